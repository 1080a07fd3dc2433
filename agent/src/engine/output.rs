//! The output side of an instance: its rows go to one queue per outgoing edge.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Notify;
use tuplane_core::job::OnError;
use tuplane_expr::arrow::array::{RecordBatch, UInt32Array};
use tuplane_expr::arrow::compute::concat_batches;
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_expr::system::{Places, conform};
use tuplane_expr::{Dropped, KeyExprs};

use super::ledger::Counters;
use super::operator::{DROPPED_BY_EXPRESSION, OperatorError, Remark};
use super::rows::{Budget, MOST_BYTES, MOST_ROWS, Rows, own_bytes};
use crate::exchange::edge::Edge;
use crate::exchange::mark::Mark;

/// A longer row is refused: it would not fit into a frame to another agent.
const MOST_ROW: u64 = 16 << 20;

/// Pieces under so many rows are joined before they go on.
const SMALL: usize = 1024;

/// One outgoing edge of an instance.
#[derive(Debug)]
pub(crate) struct Exit {
    pub(crate) edge: Arc<Edge>,
    /// The instance's number among the edge's senders.
    pub(crate) sender: usize,
    /// The edge's key, where it is partitioned.
    pub(crate) key: Option<ExitKey>,
}

/// The key of a partitioned edge.
#[derive(Debug)]
pub(crate) struct ExitKey {
    pub(crate) key: KeyExprs,
    pub(crate) partitions: u16,
    /// What happens to a row whose key cannot be computed.
    pub(crate) on_error: OnError,
    /// The stage that the key was written at.
    pub(crate) stage: String,
}

/// All outgoing edges of an instance.
#[derive(Debug)]
pub(crate) struct Output {
    exits: Vec<Exit>,
    room: Arc<Notify>,
    budget: Arc<Budget>,
    counters: Arc<Counters>,
    /// Columns of its rows.
    schema: SchemaRef,
    /// Small pieces of this step.
    small: Vec<RecordBatch>,
    small_rows: usize,
}

impl Output {
    pub(crate) fn new(
        exits: Vec<Exit>,
        room: Arc<Notify>,
        budget: Arc<Budget>,
        counters: Arc<Counters>,
        schema: SchemaRef,
    ) -> Self {
        Self { exits, room, budget, counters, schema, small: Vec::new(), small_rows: 0 }
    }

    /// Appends rows to every outgoing edge. Small pieces wait for the end of the step.
    /// System columns that nobody behind needs are dropped here.
    pub(crate) fn emit(&mut self, batch: RecordBatch) -> Result<(), OperatorError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let batch = conform(batch, &self.schema).map_err(other)?;
        if batch.num_rows() >= SMALL || own_bytes(&batch) >= MOST_BYTES / 4 {
            self.settle()?;
            return self.append(batch);
        }
        self.small_rows += batch.num_rows();
        self.small.push(batch);
        if self.small_rows >= SMALL { self.settle() } else { Ok(()) }
    }

    /// Appends what waits: a step has ended, or a mark follows.
    pub(crate) fn settle(&mut self) -> Result<(), OperatorError> {
        self.small_rows = 0;
        let joined = match &self.small[..] {
            [] => return Ok(()),
            [only] => only.clone(),
            [first, ..] => concat_batches(&first.schema(), &self.small).map_err(other)?,
        };
        self.small.clear();
        self.append(joined)
    }

    fn append(&self, batch: RecordBatch) -> Result<(), OperatorError> {
        let mut from = 0;
        while from < batch.num_rows() {
            // 8,192 rows and 1 MiB at most; at least one row, however long.
            let mut count = (batch.num_rows() - from).min(MOST_ROWS);
            let mut piece = batch.slice(from, count);
            while count > 1 && own_bytes(&piece) > MOST_BYTES {
                count = count.div_ceil(2);
                piece = batch.slice(from, count);
            }
            from += count;
            if count == 1 && own_bytes(&piece) > MOST_ROW && !self.exits.is_empty() {
                self.counters.drop_rows(BTreeMap::from([("too_long".to_owned(), 1)]));
                continue;
            }
            let Some(rows) = Rows::new(piece, None, &self.budget) else { continue };
            // A row counts once, on however many edges, unless its key leaves it out of all.
            let mut given = if self.exits.is_empty() { rows.len() } else { 0 };
            for exit in &self.exits {
                let rows = match &exit.key {
                    Some(key) => self.with_key(key, &rows)?,
                    None => Some(rows.clone()),
                };
                if let Some(rows) = rows {
                    given = given.max(rows.len());
                    exit.edge.append(exit.sender, rows).map_err(other)?;
                }
            }
            self.counters.add_out(given as u64);
        }
        Ok(())
    }

    /// Rows with their key partitions; without those whose key cannot be computed, if such are dropped.
    fn with_key(&self, exit: &ExitKey, rows: &Rows) -> Result<Option<Rows>, OperatorError> {
        let computed = exit.key.partitions_of(rows.batch(), exit.partitions, exit.on_error);
        let (ids, dropped, last) =
            computed.map_err(|error| OperatorError::of(&exit.stage, error, &Places::of(rows.batch())))?;
        if let Some(last) = last {
            let place = Places::of(rows.batch()).of_row(last.row);
            self.counters.remark(&Remark::of(&exit.stage, &last.message, place));
        }
        if dropped.is_empty() {
            return Ok(Some(rows.clone().with_partitions(ids)));
        }
        let count = dropped.len() as u64;
        self.counters.drop_rows(BTreeMap::from([(DROPPED_BY_EXPRESSION.to_owned(), count)]));
        if ids.is_empty() {
            return Ok(None);
        }
        let rows = rows.pick(&without(rows.len(), &dropped)).map_err(other)?;
        Ok(Some(rows.with_partitions(ids)))
    }

    /// Passes a mark on to every edge.
    pub(crate) fn mark(&mut self, mark: Mark) -> Result<(), OperatorError> {
        self.settle()?;
        for exit in &self.exits {
            exit.edge.mark(exit.sender, mark);
        }
        Ok(())
    }

    /// Some queue is at its bound.
    pub(crate) fn is_full(&self) -> bool {
        self.exits.iter().any(|exit| exit.edge.is_full(exit.sender))
    }

    /// Everything given has left, the end included.
    pub(crate) fn is_drained(&self) -> bool {
        self.exits.iter().all(|exit| exit.edge.is_drained(exit.sender))
    }

    /// Waits for room, or for the last rows to leave.
    pub(crate) async fn wait(&self) {
        self.room.notified().await;
    }

    /// The instance has nothing more to do: what has left may go onto the wire.
    pub(crate) fn flush(&self) {
        for exit in &self.exits {
            exit.edge.flush();
        }
    }
}

/// Numbers of the rows that were not dropped.
fn without(rows: usize, dropped: &[Dropped]) -> UInt32Array {
    let mut dropped = dropped.iter().map(|one| one.row).peekable();
    (0..rows).filter(|row| dropped.next_if_eq(row).is_none()).map(|row| row as u32).collect::<Vec<_>>().into()
}

fn other(error: impl ToString) -> OperatorError {
    OperatorError::Other(error.to_string())
}
