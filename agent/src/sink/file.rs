//! `file` and `stdout`: rows as they are, in csv or JSON lines.

use tuplane_core::job::SinkFormat;
use tuplane_expr::arrow::array::RecordBatch;
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_wire::message::SinkFile;

use super::part::{Part, Place};
use super::{Sink, SinkContext, SinkError, csv, jsonl};

/// Writes rows to a part file that is made with the first of them.
pub(super) struct Rows {
    place: Place,
    format: SinkFormat,
    schema: SchemaRef,
    part: Option<Part>,
    text: Vec<u8>,
}

impl Rows {
    /// A sink to `place`.
    pub(super) fn new(place: Place, format: SinkFormat, context: &SinkContext) -> Self {
        Self { place, format, schema: context.schema.clone(), part: None, text: Vec::new() }
    }
}

impl Sink for Rows {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.text.clear();
        match self.format {
            SinkFormat::Csv => {
                if self.part.is_none() {
                    self.text = csv::header(&self.schema);
                }
                csv::push_rows(batch, &mut self.text)?;
            }
            SinkFormat::Jsonl => jsonl::push_rows(batch, &mut self.text)?,
        }
        let part = match &mut self.part {
            Some(part) => part,
            None => self.part.insert(Part::create(&self.place)?),
        };
        part.append(&self.text, batch.num_rows())
    }

    fn finish(&mut self) -> Result<Vec<SinkFile>, SinkError> {
        self.part.take().map(Part::finish).transpose().map(|file| file.into_iter().collect())
    }
}
