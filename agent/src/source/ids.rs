//! `ids`: numbered rows of a chosen size, for experiments.

use std::sync::Arc;

use tuplane_core::job::{self, SourceConnector};
use tuplane_expr::arrow::array::{ArrayRef, RecordBatch, StringArray};
use tuplane_expr::arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use tuplane_expr::arrow::error::ArrowError;

use super::generate::{Arranged, Series, numbers};
use super::{BATCH_BYTES, SourceContext, SourceError};

/// What a payload is cut from: plain text, so that it can be looked at.
const TEXT: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// `id` and, where rows have one, `payload`.
pub(super) struct Ids {
    columns: Arranged,
    /// The payload's bytes; empty where the schema has no such column.
    payload: Vec<u8>,
}

impl Ids {
    /// Rows as the source's options and the schema say.
    pub(super) fn new(source: &job::Source, context: &SourceContext) -> Result<Self, SourceError> {
        let bytes = match &source.connector {
            Some(SourceConnector::Ids { payload, .. }) => *payload as usize,
            _ => 0,
        };
        let limit = source.max_row.unwrap_or(job::MAX_ROW);
        if bytes as u64 > limit {
            return Err(SourceError::Refused(format!(
                "a payload of {bytes} bytes is over `max_row`, {limit} bytes"
            )));
        }
        let columns = Arranged::new(&context.schema, &["id", "payload"])?;
        let wanted = context.schema.column_with_name("payload").is_some();
        Ok(Self { columns, payload: text(if wanted { bytes } else { 0 }) })
    }
}

impl Series for Ids {
    fn rows(&mut self, first: u64, step: u64, count: usize) -> Result<RecordBatch, SourceError> {
        let count = fitting(&self.payload, count);
        self.columns.batch(&[numbers(first, step, count), payloads(&self.payload, count)?])
    }
}

/// A payload of so many bytes.
pub(super) fn text(bytes: usize) -> Vec<u8> {
    TEXT.iter().copied().cycle().take(bytes).collect()
}

/// How many rows with a number and this payload make a batch, at most `count` and at least one.
pub(super) fn fitting(payload: &[u8], count: usize) -> usize {
    count.min(BATCH_BYTES / (payload.len() + 8)).max(1)
}

/// The payload of each of `count` rows.
pub(super) fn payloads(payload: &[u8], count: usize) -> Result<ArrayRef, ArrowError> {
    // A fresh copy for each batch: shared buffers would make the engine's memory look smaller than the load is.
    let values = Buffer::from_vec(payload.repeat(count));
    let size = payload.len() as i32;
    let offsets: Vec<i32> = (0..=count as i32).map(|row| row * size).collect();
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(Arc::new(StringArray::try_new(offsets, values, None)?))
}
