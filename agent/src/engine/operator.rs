//! Operators: what an instance does with the rows it takes.

use std::collections::BTreeMap;
use std::time::Instant;

use tuplane_core::place::RowPlace;
use tuplane_core::time::Moved;
use tuplane_expr::Units;
use tuplane_expr::arrow::array::{RecordBatch, UInt16Array};

mod aggregate;
mod chain;
mod join;
mod keyed;
mod sort;
mod stamp;
mod window;

pub(crate) use aggregate::Aggregate;
pub(crate) use chain::{ChainOperator, Pass};
pub(crate) use join::{Collector, Joiner, TableSlot};
pub(crate) use keyed::Keyed;
pub(crate) use sort::{Collect, Sort};
pub(crate) use stamp::Stamp;
pub(crate) use window::Windowed;

/// Why an operator cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// A row that it cannot take.
    #[error("row {row} of a batch: {}", remark.message)]
    Row {
        /// Index in the batch.
        row: usize,
        /// What is wrong with it, and where it entered.
        remark: Remark,
    },
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// A sentence about a row that an expression could not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The stage whose expression it is.
    pub stage: String,
    /// What is wrong.
    pub message: String,
    /// Where the row entered, if that is known.
    pub place: Option<RowPlace>,
}

impl Remark {
    /// Of a stage's expression.
    pub fn of(stage: &str, message: &str, place: Option<RowPlace>) -> Self {
        Self { stage: stage.to_owned(), message: message.to_owned(), place }
    }

    /// The sentence without the place.
    pub fn text(&self) -> String {
        format!("stage {}: {}", self.stage, self.message)
    }
}

/// The reason under which rows are counted that an expression could not take.
pub const DROPPED_BY_EXPRESSION: &str = "expression";

/// Rows that an operator left out, by reason.
pub type DroppedRows = BTreeMap<String, u64>;

/// An operator of one instance. The engine pushes a batch, then pulls until there is nothing, and
/// so may pause between two pieces of a result when its output is full.
pub trait Operator: Send {
    /// Takes a batch of input `input`; its key partitions come along where the edge is partitioned.
    fn push(
        &mut self,
        input: usize,
        batch: RecordBatch,
        partitions: Option<&UInt16Array>,
    ) -> Result<(), OperatorError>;

    /// The next piece of what it has to give: at most `most_rows` rows and about `most_bytes`; without rows if it has
    /// more to do before, of which each call does a part. `None` if it has nothing to give.
    fn pull(&mut self, most_rows: usize, most_bytes: usize) -> Result<Option<RecordBatch>, OperatorError>;

    /// One of several inputs has ended; there may be something to pull.
    fn end_input(&mut self, _input: usize) -> Result<(), OperatorError> {
        Ok(())
    }

    /// It merges the channels of its one input, each of which is in order: what it calls inputs are channels
    /// to the engine, and it gets rows of a channel only when it has asked for them.
    fn merges(&self) -> bool {
        false
    }

    /// The channels whose rows it needs next, if it merges.
    fn take_asked(&mut self) -> Vec<usize> {
        Vec::new()
    }

    /// The run begins.
    fn begin(&mut self) {}

    /// No row with an earlier event time follows on any input (nanoseconds since 1970, UTC); there may be
    /// something to pull.
    fn watermark(&mut self, _time: i64) -> Result<(), OperatorError> {
        Ok(())
    }

    /// All inputs are idle, so that others' watermarks may run ahead of what it holds; there may be something to
    /// pull, which leaves before the idleness is passed on.
    fn idle(&mut self) -> Result<(), OperatorError> {
        Ok(())
    }

    /// After [`Operator::idle`]: results of rows that it holds are yet to come, at event times that the watermark has
    /// not passed. It is not idle to those behind it then, so that they do not come late.
    fn holds_results(&self) -> bool {
        false
    }

    /// Its rows may be earlier than the watermark that it was told, or it has its own: neither watermarks nor
    /// idleness are passed on.
    fn holds_event_time(&self) -> bool {
        false
    }

    /// When to call [`Operator::tick`].
    fn next_tick(&self) -> Option<Instant> {
        None
    }

    /// It is as late as it has asked for; there may be something to pull. `quiet`: no rows wait for it, nor what it
    /// gave for room.
    fn tick(&mut self, _now: Instant, _quiet: bool) -> Result<(), OperatorError> {
        Ok(())
    }

    /// What it says of event time itself since the last call: asked for before each [`Operator::pull`] and after
    /// the last one.
    fn take_moved(&mut self) -> Vec<Moved> {
        Vec::new()
    }

    /// All inputs have ended; what [`Operator::pull`] gives afterwards is the rest.
    fn end(&mut self) -> Result<(), OperatorError> {
        Ok(())
    }

    /// It never holds up its thread for longer than its rows take; one that does gets a thread of its own.
    fn is_cooperative(&self) -> bool {
        true
    }

    /// Its state by key partition, if it keeps some that another instance can go on with. Asked for when there is
    /// nothing to pull; there may be something when it has been given some.
    fn units(&mut self) -> Option<&mut dyn Units> {
        None
    }

    /// About how many bytes of memory its state takes; what the agent's budget counts is not among them.
    fn state_bytes(&self) -> usize {
        0
    }

    /// Rows left out since the last call.
    fn take_dropped(&mut self) -> DroppedRows {
        DroppedRows::new()
    }

    /// About the last row since the last call that was left out, or in which a value became null.
    fn take_remark(&mut self) -> Option<Remark> {
        None
    }

    /// Rows since the last call whose event time is far ahead of the others'.
    fn take_ahead(&mut self) -> u64 {
        0
    }

    /// Changes a live option.
    fn set(&mut self, option: &str, _value: &serde_json::Value) -> Result<(), String> {
        Err(format!("`{option}` cannot be changed while the job runs"))
    }
}
