//! What does not fit into an output queue whose sender may not be held up by its targets: rows and marks in order,
//! on the agent's disk (engine.md section 8). Nothing here waits for that disk.

mod disk;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Notify;
use tuplane_expr::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tuplane_expr::arrow::error::ArrowError;

use super::mark::{Item, Mark};
use crate::engine::rows::{Budget, Rows};
use crate::engine::spill::{MOST, SpillError, Spills};
use disk::Disk;

/// Rows are written in pieces of so many ...
const PIECE_ROWS: usize = 4096;
/// ... or so many bytes.
const PIECE_BYTES: u64 = 256 << 10;
/// So many pieces are read before they are asked for.
const READ_AHEAD: usize = 2;
/// The column of key partitions in a file.
const PARTITION: &str = "#partition";

/// Why rows cannot wait on disk.
#[derive(Debug, thiserror::Error)]
#[error("rows on {edge} wait until the join's other side has ended: {why}")]
pub(crate) struct OverflowError {
    edge: String,
    why: Arc<Why>,
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
    #[error("no thread can be had that writes them to disk: {0}")]
    Thread(std::io::Error),
    #[error("writing or reading them panicked")]
    Panicked,
}

/// The rows and marks of one sender that its output queue has no room for.
#[derive(Debug)]
pub(crate) struct Overflow {
    edge: String,
    spills: Spills,
    budget: Arc<Budget>,
    /// How often the ledger counts a row: once for each target of a broadcast.
    copies: u64,
    /// Told when there is more to take, or room for more.
    wake: Arc<Notify>,
    /// What has come first, in order.
    settled: VecDeque<Settled>,
    /// What has come since: rows that are yet to be written.
    fresh: Vec<Rows>,
    fresh_rows: usize,
    fresh_bytes: u64,
    /// From the first piece on.
    disk: Option<Disk>,
    /// Pieces that have been asked for and not been taken.
    asked: usize,
    /// The sender waits until more has been written.
    holds_up: bool,
    /// As the ledger counts them.
    rows: u64,
}

#[derive(Debug)]
enum Settled {
    /// The next piece of the files.
    Piece,
    Mark(Mark),
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
        let ids = partitioned.then(|| Arc::new(Field::new(PARTITION, DataType::UInt16, false)));
        let fields = schema.fields().iter().cloned().chain(ids).collect::<Vec<_>>();
        Self {
            edge,
            spills: Spills::new(folder, Arc::new(Schema::new(fields))),
            budget,
            copies: 1,
            wake: Arc::default(),
            settled: VecDeque::new(),
            fresh: Vec::new(),
            fresh_rows: 0,
            fresh_bytes: 0,
            disk: None,
            asked: 0,
            holds_up: false,
            rows: 0,
        }
    }

    /// Of an edge whose ledger counts each row so often; `wake` has it pumped.
    pub(super) fn on_edge(self, copies: u64, wake: Arc<Notify>) -> Self {
        Self { copies, wake, ..self }
    }

    /// Nothing waits here.
    pub(crate) fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.fresh.is_empty()
    }

    /// Rows that wait here, a broadcast row once per target.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// A watermark waits here.
    pub(crate) fn wakes(&self) -> bool {
        self.settled.iter().any(|one| matches!(one, Settled::Mark(Mark::Watermark(_))))
    }

    /// Bytes of its files, and of what is yet to be written to them.
    pub(crate) fn on_disk(&self) -> u64 {
        self.disk.as_ref().map_or(0, Disk::bytes)
    }

    /// The disk is too slow for the sender, which has to wait: [`Overflow::has_caught_up`] says for how long.
    pub(super) fn holds_up(&mut self) -> bool {
        self.holds_up = self.disk.as_ref().is_some_and(Disk::is_behind);
        self.holds_up
    }

    /// A sender that was told to wait can go on; true once.
    pub(super) fn has_caught_up(&mut self) -> bool {
        self.holds_up && !self.holds_up()
    }

    /// Takes in rows; `on_disk` are the bytes that all senders of the edge have there.
    pub(crate) fn push(&mut self, rows: Rows, on_disk: u64) -> Result<(), OverflowError> {
        self.check()?;
        if on_disk >= MOST {
            return Err(self.error(Why::Full(SpillError::Full { written: on_disk })));
        }
        self.rows += rows.len() as u64 * self.copies;
        self.fresh_rows += rows.len();
        self.fresh_bytes += rows.bytes();
        self.fresh.push(rows);
        if self.fresh_rows >= PIECE_ROWS || self.fresh_bytes >= PIECE_BYTES { self.settle() } else { Ok(()) }
    }

    /// Takes in a mark, which stands behind all rows so far.
    pub(crate) fn mark(&mut self, mark: Mark) -> Result<(), OverflowError> {
        self.check()?;
        self.settle()?;
        match (self.settled.back_mut(), mark) {
            // No row stands between the two.
            (Some(Settled::Mark(Mark::Watermark(last))), Mark::Watermark(time)) => *last = time.max(*last),
            _ => self.settled.push_back(Settled::Mark(mark)),
        }
        Ok(())
    }

    /// The first of what waits, if it is in memory: else it is being read, and who pumps the edge is woken then.
    pub(crate) fn next(&mut self) -> Result<Option<Item>, OverflowError> {
        self.check()?;
        let rows = match self.settled.front() {
            Some(Settled::Mark(mark)) => {
                let mark = *mark;
                self.settled.pop_front();
                return Ok(Some(Item::Mark(mark)));
            }
            Some(Settled::Piece) => {
                let taken = self.disk.as_ref().and_then(Disk::take);
                if taken.is_some() {
                    self.settled.pop_front();
                    self.asked -= 1;
                }
                self.read_ahead();
                taken
            }
            None => {
                let rows = Rows::join(&self.fresh).map_err(|error| self.error(error.into()))?;
                self.take_fresh();
                rows
            }
        };
        self.rows -= rows.as_ref().map_or(0, |rows| rows.len() as u64 * self.copies);
        Ok(rows.map(Item::Rows))
    }

    /// Drops everything; gives the rows.
    pub(crate) fn clear(&mut self) -> u64 {
        self.settled.clear();
        self.take_fresh();
        (self.disk, self.asked, self.holds_up) = (None, 0, false);
        std::mem::take(&mut self.rows)
    }

    fn error(&self, why: Why) -> OverflowError {
        OverflowError { edge: self.edge.clone(), why: Arc::new(why) }
    }

    /// Whether all rows that wait can be had, as far as is known.
    pub(super) fn check(&self) -> Result<(), OverflowError> {
        let Some(disk) = &self.disk else { return Ok(()) };
        disk.check().map_err(|why| OverflowError { edge: self.edge.clone(), why })
    }

    /// The rows that came last become a piece.
    fn settle(&mut self) -> Result<(), OverflowError> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        let rows = self.take_fresh();
        let disk = match self.disk.take() {
            Some(disk) => disk,
            None => Disk::start(self.spills.clone(), Arc::clone(&self.budget), Arc::clone(&self.wake))
                .map_err(|why| self.error(why))?,
        };
        self.disk.insert(disk).write(rows);
        self.settled.push_back(Settled::Piece);
        Ok(())
    }

    /// Asks for the next pieces.
    fn read_ahead(&mut self) {
        let Some(disk) = &self.disk else { return };
        let wanted = self.settled.iter().filter(|one| matches!(one, Settled::Piece)).take(READ_AHEAD).count();
        while self.asked < wanted {
            disk.read();
            self.asked += 1;
        }
    }

    /// The rows that came last.
    fn take_fresh(&mut self) -> Vec<Rows> {
        (self.fresh_rows, self.fresh_bytes) = (0, 0);
        std::mem::take(&mut self.fresh)
    }
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests;
