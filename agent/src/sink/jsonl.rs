//! Rows as JSON, one object a line; a member without a value is left out.

use tuplane_expr::arrow::array::RecordBatch;
use tuplane_expr::arrow::json::WriterBuilder;
use tuplane_expr::arrow::json::writer::LineDelimited;

use super::SinkError;
use super::csv::TIME;

/// Appends the rows of a batch.
pub(super) fn push_rows(batch: &RecordBatch, text: &mut Vec<u8>) -> Result<(), SinkError> {
    let builder = WriterBuilder::new().with_timestamp_format(TIME.to_owned());
    let mut writer = builder.build::<_, LineDelimited>(text);
    writer.write(batch)?;
    writer.finish()?;
    Ok(())
}
