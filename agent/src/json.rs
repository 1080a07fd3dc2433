//! Values of a column as JSON, for what is not a file of rows.

use std::sync::Arc;

use serde_json::Value;
use tuplane_expr::arrow::array::{ArrayRef, RecordBatch};
use tuplane_expr::arrow::datatypes::{Field, Schema};
use tuplane_expr::arrow::error::ArrowError;
use tuplane_expr::arrow::json::WriterBuilder;
use tuplane_expr::arrow::json::writer::JsonArray;

use crate::sink::TIME;

/// Each value, written as sinks write it; null where there is none.
pub(crate) fn values(column: &ArrayRef) -> Result<Vec<Value>, ArrowError> {
    if column.is_empty() {
        return Ok(Vec::new());
    }
    let schema = Arc::new(Schema::new(vec![Field::new("v", column.data_type().clone(), true)]));
    let batch = RecordBatch::try_new(schema, vec![Arc::clone(column)])?;
    let mut text = Vec::new();
    let builder = WriterBuilder::new().with_explicit_nulls(true).with_timestamp_format(TIME.to_owned());
    let mut writer = builder.build::<_, JsonArray>(&mut text);
    writer.write(&batch)?;
    writer.finish()?;
    let rows: Vec<Value> =
        serde_json::from_slice(&text).map_err(|error| ArrowError::JsonError(error.to_string()))?;
    Ok(rows.into_iter().map(|mut row| row["v"].take()).collect())
}
