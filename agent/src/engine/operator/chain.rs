//! Row-wise operators: a fused chain of map, filter and `flat_map`; and passing on.

use tuplane_expr::arrow::array::{RecordBatch, UInt16Array};
use tuplane_expr::{Chain, ChainRun, EvalError};

use super::{DroppedRows, Operator, OperatorError};

/// Runs a chain.
pub(crate) struct ChainOperator {
    chain: Chain,
    run: Option<ChainRun>,
    dropped: DroppedRows,
}

impl ChainOperator {
    pub(crate) fn new(chain: Chain) -> Self {
        Self { chain, run: None, dropped: DroppedRows::new() }
    }
}

impl From<EvalError> for OperatorError {
    fn from(error: EvalError) -> Self {
        match error.row {
            Some(row) => Self::Row { row, message: error.message },
            None => Self::Other(error.message),
        }
    }
}

impl Operator for ChainOperator {
    fn push(&mut self, _: usize, batch: RecordBatch, _: Option<&UInt16Array>) -> Result<(), OperatorError> {
        self.run = Some(self.chain.run(batch));
        Ok(())
    }

    fn pull(&mut self, most_rows: usize, most_bytes: usize) -> Result<Option<RecordBatch>, OperatorError> {
        let Some(run) = &mut self.run else { return Ok(None) };
        let next = run.next(most_rows, most_bytes).transpose()?;
        if next.is_none() {
            let dropped = run.take_dropped();
            if !dropped.is_empty() {
                *self.dropped.entry("expression".to_owned()).or_default() += dropped.len() as u64;
            }
            self.run = None;
        }
        Ok(next)
    }

    fn take_dropped(&mut self) -> DroppedRows {
        std::mem::take(&mut self.dropped)
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
