//! The output side of an instance: its rows go to one queue per outgoing edge.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Notify;
use tuplane_core::cluster::DROPPED_BY_STOP;
use tuplane_core::job::{MAX_ROW, OnError};
use tuplane_expr::arrow::array::RecordBatch;
use tuplane_expr::arrow::compute::concat_batches;
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_expr::system::{Places, conform};
use tuplane_expr::{KeyExprs, kept_rows};

use super::ledger::Counters;
use super::operator::{DROPPED_BY_EXPRESSION, OperatorError, Remark};
use super::rows::{Budget, Charged, Kept, MOST_BYTES, MOST_ROWS, Rows, own_bytes};
use super::tap::Tap;
use crate::exchange::edge::Edge;
use crate::exchange::mark::Mark;

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
    on_error: OnError,
    /// Small pieces of this step.
    small: Vec<RecordBatch>,
    small_rows: usize,
    /// The rows that were taken last: what comes of them may share their buffers.
    input: Option<Kept>,
    /// What was appended last.
    last: Option<Charged>,
    /// Who wants to see rows, and the instance's number among those of its vertex.
    tap: Option<(Arc<Tap>, u32)>,
}

impl Output {
    pub(crate) fn new(
        exits: Vec<Exit>,
        room: Arc<Notify>,
        budget: Arc<Budget>,
        counters: Arc<Counters>,
        schema: SchemaRef,
        on_error: OnError,
    ) -> Self {
        Self {
            exits,
            room,
            budget,
            counters,
            schema,
            on_error,
            small: Vec::new(),
            small_rows: 0,
            input: None,
            last: None,
            tap: None,
        }
    }

    /// Shows rows to a tap as those of the vertex's instance with this number.
    pub(crate) fn with_tap(mut self, tap: Arc<Tap>, instance: u32) -> Self {
        self.tap = Some((tap, instance));
        self
    }

    /// Rows pass: of a sink, which sends nothing on, those that it takes.
    pub(crate) fn show(&self, batch: &RecordBatch) {
        if let Some((tap, instance)) = &self.tap {
            tap.see(*instance, batch);
        }
    }

    /// What is emitted until the end of the step comes of these rows. Nothing is sent on by a sink.
    pub(crate) fn comes_of(&mut self, rows: &Rows) {
        if !self.exits.is_empty() {
            self.input = Some(rows.kept());
        }
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

    /// Appends what waits.
    fn settle(&mut self) -> Result<(), OperatorError> {
        self.small_rows = 0;
        let joined = match &self.small[..] {
            [] => None,
            [only] => Some(only.clone()),
            [first, ..] => Some(concat_batches(&first.schema(), &self.small).map_err(other)?),
        };
        self.small.clear();
        joined.map_or(Ok(()), |joined| self.append(joined))
    }

    /// A step has ended: what waits is appended, and the rows that were taken are let go.
    pub(crate) fn end_step(&mut self) -> Result<(), OperatorError> {
        self.settle()?;
        self.input = None;
        Ok(())
    }

    fn append(&mut self, batch: RecordBatch) -> Result<(), OperatorError> {
        self.show(&batch);
        let known = self.input.iter().map(Kept::charged).chain(&self.last);
        let Some(mut rest) = Rows::derived(batch, known, &self.budget) else { return Ok(()) };
        // The next batch may be another slice of the same buffers.
        self.last = Some(rest.charged());
        loop {
            // 8,192 rows and 1 MiB at most; at least one row, however long.
            let mut count = rest.len().min(MOST_ROWS);
            while count > 1 && own_bytes(&rest.batch().slice(0, count)) > MOST_BYTES {
                count = count.div_ceil(2);
            }
            if count == rest.len() {
                return self.append_piece(rest);
            }
            let piece = rest.cut(count);
            self.append_piece(piece)?;
        }
    }

    fn append_piece(&self, rows: Rows) -> Result<(), OperatorError> {
        // A longer one would not fit into a frame to another agent.
        if rows.len() == 1 && rows.bytes() > MAX_ROW && !self.exits.is_empty() {
            return self.too_long(&rows);
        }
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
        Ok(())
    }

    /// A row that no frame would take: as if an expression could not take it.
    fn too_long(&self, rows: &Rows) -> Result<(), OperatorError> {
        let most = MAX_ROW >> 20;
        let message = format!("a row of {} bytes was made; a row has {most} MiB at most", rows.bytes());
        let remark = Remark::of(self.counters.vertex(), &message, Places::of(rows.batch()).of_row(0));
        if self.on_error == OnError::Fail {
            return Err(OperatorError::Row { row: 0, remark });
        }
        self.counters.remark(&remark);
        self.counters.drop_rows(BTreeMap::from([("too_long".to_owned(), 1)]));
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
        let rows = rows.pick(&kept_rows(rows.len(), &dropped)).map_err(other)?;
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

impl Drop for Output {
    /// A stop in the middle of a step: what waited for its end has left nowhere, and the rows that it came of are in hand no
    /// more.
    fn drop(&mut self) {
        if self.small_rows > 0 {
            let rows = BTreeMap::from([(DROPPED_BY_STOP.to_owned(), self.small_rows as u64)]);
            self.counters.drop_rows(rows);
        }
    }
}

fn other(error: impl ToString) -> OperatorError {
    OperatorError::Other(error.to_string())
}

#[cfg(test)]
mod tests {
    use tuplane_expr::arrow::array::Int64Array;
    use tuplane_expr::arrow::datatypes::{DataType, Field, Schema};

    use super::*;
    use crate::exchange::load::Load;

    #[test]
    fn what_waits_for_the_end_of_a_step_when_it_is_stopped_is_counted() {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let batch =
            RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(Int64Array::from(vec![1, 2, 3]))]);
        let batch = batch.unwrap();
        let counters = Arc::new(Counters::new("x".to_owned(), Arc::<Load>::default()));
        let output = || {
            let (room, budget) = (Arc::default(), Budget::new(1 << 20));
            Output::new(Vec::new(), room, budget, Arc::clone(&counters), Arc::clone(&schema), OnError::Fail)
        };
        let mut ended = output();
        ended.emit(batch.clone()).unwrap();
        ended.end_step().unwrap();
        drop(ended);
        assert_eq!(counters.rare_facts().0, BTreeMap::new(), "it has left");
        let mut stopped = output();
        stopped.emit(batch.clone()).unwrap();
        stopped.emit(batch).unwrap();
        drop(stopped);
        assert_eq!(counters.rare_facts().0, BTreeMap::from([(DROPPED_BY_STOP.to_owned(), 6)]));
    }
}
