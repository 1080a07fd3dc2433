//! Row-wise operators: a fused chain of map, filter and `flat_map`; and passing on.

use tuplane_expr::arrow::array::{RecordBatch, UInt16Array};
use tuplane_expr::system::{Places, conform};
use tuplane_expr::{Chain, ChainRun, EvalError};

use super::{DROPPED_BY_EXPRESSION, DroppedRows, Operator, OperatorError, Remark};

/// Runs a chain.
pub(crate) struct ChainOperator {
    chain: Chain,
    run: Option<ChainRun>,
    /// Where the rows of the run entered.
    places: Places,
    dropped: DroppedRows,
    remark: Option<Remark>,
}

impl ChainOperator {
    pub(crate) fn new(chain: Chain) -> Self {
        let (places, dropped) = (Places::default(), DroppedRows::new());
        Self { chain, run: None, places, dropped, remark: None }
    }
}

impl OperatorError {
    /// An expression of a stage failed on rows that entered there.
    pub(crate) fn of(stage: &str, error: EvalError, places: &Places) -> Self {
        match error.row {
            Some(row) => Self::Row { row, remark: Remark::of(stage, &error.message, places.of_row(row)) },
            None => Self::Other(error.message),
        }
    }
}

impl From<EvalError> for OperatorError {
    fn from(error: EvalError) -> Self {
        Self::Other(error.message)
    }
}

impl Operator for ChainOperator {
    fn push(&mut self, _: usize, batch: RecordBatch, _: Option<&UInt16Array>) -> Result<(), OperatorError> {
        self.places = Places::of(&batch);
        let batch = conform(batch, self.chain.input()).map_err(EvalError::from)?;
        self.run = Some(self.chain.run(batch));
        Ok(())
    }

    fn pull(&mut self, most_rows: usize, most_bytes: usize) -> Result<Option<RecordBatch>, OperatorError> {
        let Some(run) = &mut self.run else { return Ok(None) };
        let next = run.next(most_rows, most_bytes).transpose().map_err(|error| {
            OperatorError::of(run.failed_stage().unwrap_or_default(), error, &self.places)
        })?;
        if next.is_none() {
            let dropped = run.take_dropped();
            if !dropped.is_empty() {
                *self.dropped.entry(DROPPED_BY_EXPRESSION.to_owned()).or_default() += dropped.len() as u64;
            }
            if let Some(last) = run.take_last() {
                self.remark = Some(Remark::of(&last.stage, &last.message, self.places.of_row(last.row)));
            }
            self.run = None;
        }
        Ok(next)
    }

    fn take_dropped(&mut self) -> DroppedRows {
        std::mem::take(&mut self.dropped)
    }

    fn take_remark(&mut self) -> Option<Remark> {
        self.remark.take()
    }
}

/// Passes rows on as they are: merge.
#[derive(Default)]
pub(crate) struct Pass {
    waiting: Option<RecordBatch>,
}

impl Operator for Pass {
    fn push(&mut self, _: usize, batch: RecordBatch, _: Option<&UInt16Array>) -> Result<(), OperatorError> {
        self.waiting = Some(batch);
        Ok(())
    }

    fn pull(&mut self, most_rows: usize, _: usize) -> Result<Option<RecordBatch>, OperatorError> {
        let Some(batch) = self.waiting.take() else { return Ok(None) };
        if batch.num_rows() <= most_rows {
            return Ok(Some(batch));
        }
        self.waiting = Some(batch.slice(most_rows, batch.num_rows() - most_rows));
        Ok(Some(batch.slice(0, most_rows)))
    }
}
