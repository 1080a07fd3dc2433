//! Rows as JSON, one object a line; a member without a value is left out.

use tuplane_expr::arrow::array::RecordBatch;
use tuplane_expr::arrow::json::WriterBuilder;
use tuplane_expr::arrow::json::writer::LineDelimited;

use super::SinkError;
use super::csv::{TIME, times_can_be_shown};

/// Appends the rows of a batch.
pub(super) fn push_rows(batch: &RecordBatch, text: &mut Vec<u8>) -> Result<(), SinkError> {
    // Its writer puts the words of an error where a value cannot be shown.
    times_can_be_shown(batch)?;
    let builder = WriterBuilder::new().with_timestamp_format(TIME.to_owned());
    let mut writer = builder.build::<_, LineDelimited>(text);
    writer.write(batch)?;
    writer.finish()?;
    Ok(())
}
