//! What does not fit into an output queue whose sender may not be held up: rows and marks in order, on the
//! agent's disk (engine.md section 8).

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use tuplane_expr::arrow::array::{ArrayRef, AsArray, RecordBatch};
use tuplane_expr::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tuplane_expr::arrow::error::ArrowError;

use super::mark::{Item, Mark};
use crate::engine::rows::{Budget, Rows};
use crate::engine::spill::{MOST, SpillError, SpillWriter, Spilled, Spills};

/// Rows are written in pieces of so many ...
const PIECE_ROWS: usize = 4096;
/// ... or so many bytes.
const PIECE_BYTES: u64 = 256 << 10;
/// A file has about so many bytes; its room is free again when it has been read.
const FILE_BYTES: u64 = 64 << 20;

/// Why rows cannot wait on disk.
#[derive(Debug, thiserror::Error)]
#[error("rows on {edge} wait until the join's other side has ended: {why}")]
pub(crate) struct OverflowError {
    edge: String,
    why: Why,
}

#[derive(Debug, thiserror::Error)]
enum Why {
    #[error("{0}; make the other side shorter, or read the two sides from sources of their own")]
    Full(SpillError),
    #[error(transparent)]
    Disk(SpillError),
    #[error(transparent)]
    Rows(#[from] ArrowError),
    #[error("a file of them ends too early")]
    Short,
}

/// The rows and marks of one sender that its output queue has no room for.
#[derive(Debug)]
pub(crate) struct Overflow {
    edge: String,
    spills: Spills,
    budget: Arc<Budget>,
    /// What has come first, in order.
    settled: VecDeque<Settled>,
    /// What has come since: rows that are yet to be written.
    fresh: Vec<Rows>,
    fresh_rows: usize,
    fresh_bytes: u64,
    /// Files that are complete; the first one is being read.
    files: VecDeque<(Spilled, Held)>,
    writing: Option<(SpillWriter, Held)>,
    rows: u64,
    on_disk: u64,
}

#[derive(Debug)]
enum Settled {
    /// The next piece of the files.
    Piece,
    Mark(Mark),
}

/// What a file holds.
#[derive(Debug, Default)]
struct Held {
    /// Pieces that have not been read.
    pieces: u64,
    /// Its length in bytes.
    bytes: u64,
}

impl Held {
    /// The file is so long now; gives by how much it has grown.
    fn grow(&mut self, length: u64) -> u64 {
        let more = length.saturating_sub(self.bytes);
        self.bytes += more;
        more
    }
}

impl Overflow {
    /// For rows of these columns, with their key partitions if the edge is partitioned; `edge` is its name.
    pub(crate) fn new(
        edge: String,
        folder: PathBuf,
        schema: &SchemaRef,
        partitioned: bool,
        budget: Arc<Budget>,
    ) -> Self {
        let ids = partitioned.then(|| Arc::new(Field::new("#partition", DataType::UInt16, false)));
        let fields = schema.fields().iter().cloned().chain(ids).collect::<Vec<_>>();
        Self {
            edge,
            spills: Spills::new(folder, Arc::new(Schema::new(fields))),
            budget,
            settled: VecDeque::new(),
            fresh: Vec::new(),
            fresh_rows: 0,
            fresh_bytes: 0,
            files: VecDeque::new(),
            writing: None,
            rows: 0,
            on_disk: 0,
        }
    }

    /// Nothing waits here.
    pub(crate) fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.fresh.is_empty()
    }

    /// Rows that wait here.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// A watermark waits here.
    pub(crate) fn wakes(&self) -> bool {
        self.settled.iter().any(|one| matches!(one, Settled::Mark(Mark::Watermark(_))))
    }

    /// Bytes of its files.
    pub(crate) fn on_disk(&self) -> u64 {
        self.on_disk
    }

    /// Takes in rows; `on_disk` are the bytes that all senders of the edge have there.
    pub(crate) fn push(&mut self, rows: Rows, on_disk: u64) -> Result<(), OverflowError> {
        if on_disk >= MOST {
            return Err(self.error(Why::Full(SpillError::Full { written: on_disk })));
        }
        self.rows += rows.len() as u64;
        self.fresh_rows += rows.len();
        self.fresh_bytes += rows.bytes();
        self.fresh.push(rows);
        if self.fresh_rows >= PIECE_ROWS || self.fresh_bytes >= PIECE_BYTES { self.settle() } else { Ok(()) }
    }

    /// Takes in a mark, which stands behind all rows so far.
    pub(crate) fn mark(&mut self, mark: Mark) -> Result<(), OverflowError> {
        self.settle()?;
        match (self.settled.back_mut(), mark) {
            // No row stands between the two.
            (Some(Settled::Mark(Mark::Watermark(last))), Mark::Watermark(time)) => *last = time.max(*last),
            _ => self.settled.push_back(Settled::Mark(mark)),
        }
        Ok(())
    }

    /// The first of what waits.
    pub(crate) fn next(&mut self) -> Result<Option<Item>, OverflowError> {
        match self.settled.pop_front() {
            Some(Settled::Mark(mark)) => Ok(Some(Item::Mark(mark))),
            Some(Settled::Piece) => {
                let rows = self.read().map_err(|why| self.error(why))?;
                self.rows -= rows.len() as u64;
                Ok(Some(Item::Rows(rows)))
            }
            None => {
                let rows = self.take_fresh()?;
                self.rows = 0;
                Ok(rows.map(Item::Rows))
            }
        }
    }

    /// Drops everything; gives the rows.
    pub(crate) fn clear(&mut self) -> u64 {
        self.settled.clear();
        self.fresh.clear();
        self.files.clear();
        self.writing = None;
        (self.fresh_rows, self.fresh_bytes, self.on_disk) = (0, 0, 0);
        std::mem::take(&mut self.rows)
    }

    fn error(&self, why: Why) -> OverflowError {
        OverflowError { edge: self.edge.clone(), why }
    }

    /// Writes the rows that came last.
    fn settle(&mut self) -> Result<(), OverflowError> {
        let Some(rows) = self.take_fresh()? else { return Ok(()) };
        self.write(&rows).map_err(|why| self.error(why))?;
        self.settled.push_back(Settled::Piece);
        Ok(())
    }

    /// The rows that came last, as one piece.
    fn take_fresh(&mut self) -> Result<Option<Rows>, OverflowError> {
        let rows = Rows::join(&self.fresh).map_err(|error| self.error(error.into()))?;
        self.fresh.clear();
        (self.fresh_rows, self.fresh_bytes) = (0, 0);
        Ok(rows)
    }

    fn write(&mut self, rows: &Rows) -> Result<(), Why> {
        let ids = rows.partitions().map(|ids| Arc::new(ids.clone()) as ArrayRef);
        let columns = rows.batch().columns().iter().cloned().chain(ids).collect();
        let batch = RecordBatch::try_new(Arc::clone(self.spills.schema()), columns)?;
        let (mut writer, mut held) = match self.writing.take() {
            Some(writing) => writing,
            None => (self.spills.begin().map_err(Why::Disk)?, Held::default()),
        };
        writer.write(&batch).map_err(Why::Disk)?;
        held.pieces += 1;
        self.on_disk += held.grow(writer.written().map_err(Why::Disk)?);
        self.writing = Some((writer, held));
        let full = self.writing.as_ref().is_some_and(|(_, held)| held.bytes >= FILE_BYTES);
        if full { self.complete() } else { Ok(()) }
    }

    /// The file that is being written can be read.
    fn complete(&mut self) -> Result<(), Why> {
        if let Some((writer, mut held)) = self.writing.take() {
            let (mut file, written) = writer.finish().map_err(Why::Disk)?;
            self.on_disk += held.grow(written);
            file.read().map_err(Why::Disk)?;
            self.files.push_back((file, held));
        }
        Ok(())
    }

    /// The next piece of the files.
    fn read(&mut self) -> Result<Rows, Why> {
        if self.files.is_empty() {
            self.complete()?;
        }
        let (file, held) = self.files.front_mut().ok_or(Why::Short)?;
        let batch = file.next_rows().map_err(Why::Disk)?.ok_or(Why::Short)?;
        held.pieces -= 1;
        if held.pieces == 0 {
            self.on_disk -= held.bytes;
            self.files.pop_front();
        }
        let partitioned =
            batch.schema_ref().fields().last().is_some_and(|field| field.name() == "#partition");
        let width = batch.num_columns() - usize::from(partitioned);
        let ids = partitioned.then(|| batch.column(width).as_primitive().clone());
        let batch = batch.project(&(0..width).collect::<Vec<_>>())?;
        Rows::new(batch, ids, &self.budget).ok_or(Why::Short)
    }
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests;
