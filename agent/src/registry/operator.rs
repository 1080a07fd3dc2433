//! Operators of the user's own, and closures over batches.

use std::collections::VecDeque;

use tuplane_core::job::OnError;
use tuplane_expr::arrow::array::{ArrayRef, RecordBatch, UInt16Array};
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_expr::sql::sql_name;
use tuplane_expr::system::{Places, own_part};
use tuplane_expr::{EvalError, KeyExprs};

use super::given::conforming;
use super::{Context, Failure, Given};
use crate::engine::operator::{DroppedRows, Operator as EngineOperator, OperatorError, Remark};
use crate::engine::rows::own_bytes;

/// A sort of operator: one for the agent, which makes instances of it.
pub trait OperatorKind: Send + Sync {
    /// The columns of its output, from those of its input, its key and its options. Asked of the coordinator
    /// when a job is submitted, and of every agent.
    ///
    /// # Errors
    /// The job is refused with these words.
    fn output(&self, given: &Given<'_>) -> Result<SchemaRef, Failure>;

    /// An instance. Behind a `group_by` all rows of a key come to one instance.
    ///
    /// # Errors
    /// The job does not start.
    fn make(&self, context: Context) -> Result<Box<dyn Operator>, Failure>;

    /// It waits for something, or computes for long: each instance gets a thread of its own. Where this is false
    /// the job can say so too (`cooperative = false`).
    fn blocks(&self) -> bool {
        false
    }

    /// What it takes and gives, in words, where that is fixed: part of the registry's fingerprint.
    fn types(&self) -> String {
        String::new()
    }
}

/// Rows that an operator takes.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Taken<'a> {
    /// The rows. A batch that is kept keeps all of its buffers, and more than its own rows may be in them:
    /// copy values into state.
    pub batch: &'a RecordBatch,
    /// The key's columns, a value a row; empty without a key.
    pub keys: &'a [ArrayRef],
}

/// An instance of an operator.
pub trait Operator: Send {
    /// Takes rows. What it has to give goes to `out`.
    ///
    /// # Errors
    /// The job fails with these words.
    fn rows(&mut self, taken: Taken<'_>, out: &mut Out) -> Result<(), Failure>;

    /// Asked after [`Operator::rows`] and [`Operator::end`], and again as long as it says true, when what it
    /// gave before has left: the way of an operator whose results are larger than memory. The answer is whether
    /// there is more.
    ///
    /// # Errors
    /// The job fails with these words.
    fn more(&mut self, _out: &mut Out) -> Result<bool, Failure> {
        Ok(false)
    }

    /// No row with an event time before `ns` (nanoseconds since 1970, UTC) comes any more, but for late ones.
    /// Called where the rows that come have event time; those that go have none before an `add_timestamps` stage.
    ///
    /// # Errors
    /// The job fails with these words.
    fn watermark(&mut self, _ns: i64, _out: &mut Out) -> Result<(), Failure> {
        Ok(())
    }

    /// All rows have come.
    ///
    /// # Errors
    /// The job fails with these words.
    fn end(&mut self, _out: &mut Out) -> Result<(), Failure> {
        Ok(())
    }
}

/// What an operator gives.
#[derive(Debug, Default)]
pub struct Out {
    pub(super) batches: VecDeque<RecordBatch>,
    dropped: DroppedRows,
    /// Rows of the batch that was taken last, and what is wrong with each.
    refused: Vec<(usize, String)>,
}

impl Out {
    /// Gives rows with the declared columns.
    pub fn give(&mut self, batch: RecordBatch) {
        if batch.num_rows() > 0 {
            self.batches.push_back(batch);
        }
    }

    /// Counts rows that it leaves out, under a reason that `tuplane status` shows.
    pub fn leave_out(&mut self, reason: &str, rows: u64) {
        *self.dropped.entry(reason.to_owned()).or_default() += rows;
    }

    /// Says of a row (its index in the batch that was taken) that it cannot be worked on. It goes by the job's
    /// `on_error`: the job fails and names the row; or, with `drop` and `null`, the row is counted under `refused`
    /// and the last one shown. What the operator gives for it all the same is given.
    pub fn refuse(&mut self, row: usize, why: impl Into<String>) {
        self.refused.push((row, why.into()));
    }
}

/// The reason under which rows are counted that an operator has refused.
const DROPPED_BY_OPERATOR: &str = "refused";

/// A closure over batches.
pub(super) struct Closure {
    output: SchemaRef,
    work: std::sync::Arc<Work>,
}

type Work = dyn Fn(&RecordBatch) -> Result<RecordBatch, Failure> + Send + Sync;

impl Closure {
    pub(super) fn new(
        output: SchemaRef,
        work: impl Fn(&RecordBatch) -> Result<RecordBatch, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self { output, work: std::sync::Arc::new(work) }
    }
}

impl OperatorKind for Closure {
    fn output(&self, _: &Given<'_>) -> Result<SchemaRef, Failure> {
        Ok(SchemaRef::clone(&self.output))
    }

    fn make(&self, _: Context) -> Result<Box<dyn Operator>, Failure> {
        Ok(Box::new(Called(std::sync::Arc::clone(&self.work))))
    }

    fn types(&self) -> String {
        let fields = self.output.fields().iter();
        fields
            .map(|field| format!("{} {}", field.name(), sql_name(field.data_type())))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

struct Called(std::sync::Arc<Work>);

impl Operator for Called {
    fn rows(&mut self, taken: Taken<'_>, out: &mut Out) -> Result<(), Failure> {
        out.give((self.0)(taken.batch)?);
        Ok(())
    }
}

/// An operator of a registry, as the engine runs it.
pub(crate) struct Custom {
    name: String,
    operator: Box<dyn Operator>,
    output: SchemaRef,
    cooperative: bool,
    key: Option<KeyExprs>,
    /// The stage, and what becomes of rows that the operator refuses.
    stage: String,
    on_error: OnError,
    remark: Option<Remark>,
    out: Out,
    /// It may have more to give.
    more: bool,
}

impl Custom {
    pub(super) fn new(name: &str, operator: Box<dyn Operator>, output: SchemaRef, cooperative: bool) -> Self {
        Self {
            name: name.to_owned(),
            operator,
            output,
            cooperative,
            key: None,
            stage: name.to_owned(),
            on_error: OnError::Fail,
            remark: None,
            out: Out::default(),
            more: false,
        }
    }

    /// It runs at this stage, whose refused rows go by `on_error`.
    pub(crate) fn at(mut self, stage: &str, on_error: OnError) -> Self {
        (self.stage, self.on_error) = (stage.to_owned(), on_error);
        self
    }

    /// It works by this key.
    pub(crate) fn by(mut self, key: KeyExprs) -> Self {
        self.key = (!key.fields().is_empty()).then_some(key);
        self
    }

    fn failed(&self, why: &Failure) -> OperatorError {
        OperatorError::Other(format!("operator `{}`: {why}", self.name))
    }

    /// Rows of this batch that the operator has refused.
    fn refuse(&mut self, batch: &RecordBatch) -> Result<(), OperatorError> {
        let refused = std::mem::take(&mut self.out.refused);
        if let Some((row, _)) = refused.iter().find(|(row, _)| *row >= batch.num_rows()) {
            let why = format!("it refuses row {row} of a batch of {}", batch.num_rows());
            return Err(self.failed(&why.into()));
        }
        let places = Places::of(batch);
        match (refused.last(), self.on_error) {
            (None, _) => Ok(()),
            (Some(_), OnError::Fail) => {
                let (row, message) = refused.into_iter().min_by_key(|(row, _)| *row).unwrap_or_default();
                Err(OperatorError::of(&self.stage, EvalError { row: Some(row), message }, &places))
            }
            (Some((row, message)), OnError::Drop | OnError::Null) => {
                self.remark = Some(Remark::of(&self.stage, message, places.of_row(*row)));
                self.out.leave_out(DROPPED_BY_OPERATOR, refused.len() as u64);
                Ok(())
            }
        }
    }
}

impl EngineOperator for Custom {
    fn push(&mut self, _: usize, batch: RecordBatch, _: Option<&UInt16Array>) -> Result<(), OperatorError> {
        let own = own_part(&batch).map_err(|why| self.failed(&why.into()))?;
        let keys = match &self.key {
            // A row without a key did not get here: its sender has dropped it, made the key null, or failed.
            Some(key) => key.eval_rows(&own, OnError::Null)?.0,
            None => Vec::new(),
        };
        let taken = Taken { batch: &own, keys: &keys };
        self.operator.rows(taken, &mut self.out).map_err(|why| self.failed(&why))?;
        self.more = true;
        self.refuse(&batch)
    }

    fn pull(&mut self, most_rows: usize, most_bytes: usize) -> Result<Option<RecordBatch>, OperatorError> {
        while self.out.batches.is_empty() && self.more {
            self.more = self.operator.more(&mut self.out).map_err(|why| self.failed(&why))?;
        }
        let Some(batch) = self.out.batches.pop_front() else { return Ok(None) };
        let batch = conforming(&batch, &self.output).map_err(|why| self.failed(&why))?;
        let per_row = (own_bytes(&batch) as usize).div_ceil(batch.num_rows()).max(1);
        let count = (most_bytes / per_row).clamp(1, most_rows.max(1)).min(batch.num_rows());
        if count < batch.num_rows() {
            self.out.batches.push_front(batch.slice(count, batch.num_rows() - count));
        }
        Ok(Some(batch.slice(0, count)))
    }

    fn watermark(&mut self, time: i64) -> Result<(), OperatorError> {
        self.operator.watermark(time, &mut self.out).map_err(|why| self.failed(&why))?;
        self.more = true;
        Ok(())
    }

    fn end(&mut self) -> Result<(), OperatorError> {
        self.operator.end(&mut self.out).map_err(|why| self.failed(&why))?;
        self.more = true;
        Ok(())
    }

    fn is_cooperative(&self) -> bool {
        self.cooperative
    }

    fn take_dropped(&mut self) -> DroppedRows {
        std::mem::take(&mut self.out.dropped)
    }

    fn take_remark(&mut self) -> Option<Remark> {
        self.remark.take()
    }
}
