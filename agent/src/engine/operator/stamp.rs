//! `add_timestamps`: rows get their event times in a vertex of its own.

use std::time::Instant;

use tuplane_core::time::Moved;
use tuplane_expr::arrow::array::{RecordBatch, UInt16Array};

use super::{DroppedRows, Operator, OperatorError, Remark};
use crate::engine::stamp::{Given, Stamper};

/// One instance of it.
pub(crate) struct Stamp {
    stamper: Stamper,
    /// What is to be told now, in order; then rows, and what comes after them.
    told: Vec<Moved>,
    rows: Option<RecordBatch>,
    after: Option<Moved>,
}

impl Stamp {
    pub(crate) fn new(stamper: Stamper) -> Self {
        Self { stamper, told: Vec::new(), rows: None, after: None }
    }
}

impl Operator for Stamp {
    fn begin(&mut self) {
        self.stamper.begin();
    }

    fn push(&mut self, _: usize, batch: RecordBatch, _: Option<&UInt16Array>) -> Result<(), OperatorError> {
        let Given { before, rows, after } = self.stamper.stamp(&batch, None)?;
        self.told.extend(before);
        self.after = after;
        self.rows = Some(rows);
        Ok(())
    }

    fn pull(&mut self, most_rows: usize, _: usize) -> Result<Option<RecordBatch>, OperatorError> {
        let Some(rows) = self.rows.take().filter(|rows| rows.num_rows() > 0) else {
            self.told.extend(self.after.take());
            return Ok(None);
        };
        if rows.num_rows() > most_rows {
            self.rows = Some(rows.slice(most_rows, rows.num_rows() - most_rows));
        }
        Ok(Some(rows.slice(0, rows.num_rows().min(most_rows))))
    }

    fn take_moved(&mut self) -> Vec<Moved> {
        std::mem::take(&mut self.told)
    }

    fn holds_event_time(&self) -> bool {
        true
    }

    fn next_tick(&self) -> Option<Instant> {
        self.stamper.next_tick()
    }

    fn tick(&mut self, _: Instant, quiet: bool) -> Result<(), OperatorError> {
        if quiet {
            self.told.extend(self.stamper.tick());
        } else {
            self.told.extend(self.stamper.arrive());
            self.stamper.wait();
        }
        Ok(())
    }

    fn take_ahead(&mut self) -> u64 {
        self.stamper.take_ahead()
    }

    fn take_dropped(&mut self) -> DroppedRows {
        self.stamper.take_dropped()
    }

    fn take_remark(&mut self) -> Option<Remark> {
        self.stamper.take_remark()
    }
}
