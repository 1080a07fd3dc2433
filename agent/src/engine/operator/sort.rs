//! Sorting: instances that put what they got in order, on disk where it is much, and one that merges them.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use tuplane_expr::arrow::array::{RecordBatch, UInt16Array};
use tuplane_expr::system::Places;
use tuplane_expr::{Merger, SortProgram, Sorter};

use super::{DROPPED_BY_EXPRESSION, DroppedRows, Operator, OperatorError, Remark};
use crate::engine::rows::{Budget, MOST_BYTES, MOST_ROWS, StateCharge};
use crate::engine::spill::{MOST, SpillError, Spilled, Spills};

/// Sorts what it gets; gives it when the input has ended.
pub(crate) struct Sort {
    stage: String,
    program: SortProgram,
    sorter: Sorter,
    charge: StateCharge,
    /// Bytes that it may hold in memory.
    bound: u64,
    spills: Spills,
    /// Bytes on disk.
    written: u64,
    spilled: Vec<Spilled>,
    /// Once the input has ended.
    merger: Option<Merger>,
    remark: Option<Remark>,
}

impl Sort {
    /// One of `here` instances on this agent: together they hold at most half of the budget, the rest of it
    /// being left to queues.
    pub(crate) fn new(
        stage: &str,
        program: SortProgram,
        budget: Arc<Budget>,
        here: u64,
        folder: PathBuf,
    ) -> Result<Self, OperatorError> {
        let bound = budget.limit() / 2 / here.max(1);
        Ok(Self {
            stage: stage.to_owned(),
            sorter: Sorter::new(program.clone())?,
            spills: Spills::new(folder, Arc::clone(program.output())),
            written: 0,
            program,
            charge: StateCharge::new(budget),
            bound,
            spilled: Vec::new(),
            merger: None,
            remark: None,
        })
    }

    /// Writes what is in memory to disk, as one run.
    fn spill(&mut self) -> Result<(), OperatorError> {
        let (stage, rows) = (&self.stage, self.sorter.rows());
        let disk = |error: SpillError| {
            let help = match error {
                SpillError::Full { .. } => "; sort fewer rows, or with more instances",
                SpillError::Disk { .. } => "",
            };
            OperatorError::Other(format!("stage {stage}, which sorts {rows} rows so far: {error}{help}"))
        };
        if self.written >= MOST {
            return Err(disk(SpillError::Full { written: self.written }));
        }
        let mut merger = merge(&self.program, self.sorter.take_runs()?)?;
        let mut writer = self.spills.begin().map_err(disk)?;
        while let Some(rows) = merger.next(MOST_ROWS, (MOST_BYTES / 4) as usize) {
            writer.write(&rows?).map_err(disk)?;
        }
        let (spilled, written) = writer.finish().map_err(disk)?;
        self.written += written;
        self.spilled.push(spilled);
        self.charge.set(self.sorter.bytes() as u64);
        Ok(())
    }
}

fn merge(program: &SortProgram, runs: Vec<tuplane_expr::Run>) -> Result<Merger, OperatorError> {
    let mut merger = Merger::new(program.clone(), runs.len())?;
    for (source, run) in runs.into_iter().enumerate() {
        merger.push_run(source, run)?;
    }
    Ok(merger)
}

impl Operator for Sort {
    fn push(&mut self, _: usize, batch: RecordBatch, _: Option<&UInt16Array>) -> Result<(), OperatorError> {
        let places = Places::of(&batch);
        self.sorter.push(&batch).map_err(|error| OperatorError::of(&self.stage, error, &places))?;
        if let Some(last) = self.sorter.take_last() {
            self.remark = Some(Remark::of(&self.stage, &last.message, places.of_row(last.row)));
        }
        self.charge.set(self.sorter.bytes() as u64);
        if self.sorter.bytes() as u64 > self.bound { self.spill() } else { Ok(()) }
    }

    fn holds_event_time(&self) -> bool {
        true
    }

    fn pull(&mut self, most_rows: usize, most_bytes: usize) -> Result<Option<RecordBatch>, OperatorError> {
        let Some(merger) = &mut self.merger else { return Ok(None) };
        loop {
            // Only runs on disk are ever waited for: those in memory came whole.
            let wanted: Vec<usize> = merger.wants().collect();
            let waited = !wanted.is_empty();
            for source in wanted {
                match self.spilled[source].next_rows() {
                    Ok(Some(rows)) => merger.push(source, rows)?,
                    Ok(None) => merger.end(source),
                    Err(error) => return Err(OperatorError::Other(format!("stage {}: {error}", self.stage))),
                }
            }
            if let Some(next) = merger.next(most_rows, most_bytes) {
                return Ok(Some(next?));
            }
            if !waited {
                break;
            }
        }
        self.charge.set(0);
        self.merger = None;
        self.spilled.clear();
        Ok(None)
    }

    fn end(&mut self) -> Result<(), OperatorError> {
        let runs = self.sorter.take_runs()?;
        let on_disk = self.spilled.len();
        let mut merger = Merger::new(self.program.clone(), on_disk + runs.len())?;
        // Those on disk came first: rows that are alike keep the order in which they came.
        for (source, run) in runs.into_iter().enumerate() {
            merger.push_run(on_disk + source, run)?;
        }
        for spilled in &mut self.spilled {
            spilled.read().map_err(|e| OperatorError::Other(format!("stage {}: {e}", self.stage)))?;
        }
        self.merger = Some(merger);
        Ok(())
    }

    /// It sorts thousands of rows in one go, and reads and writes files.
    fn is_cooperative(&self) -> bool {
        false
    }

    fn take_dropped(&mut self) -> DroppedRows {
        match self.sorter.take_dropped().len() {
            0 => DroppedRows::new(),
            rows => DroppedRows::from([(DROPPED_BY_EXPRESSION.to_owned(), rows as u64)]),
        }
    }

    fn take_remark(&mut self) -> Option<Remark> {
        self.remark.take()
    }
}

/// Merges what the instances of a sort give: each of its channels is one of them.
pub(crate) struct Collect {
    merger: Merger,
    /// Channels that have given rows since they were last asked, or have ended.
    asked: Vec<bool>,
}

impl Collect {
    pub(crate) fn new(program: SortProgram, channels: usize) -> Result<Self, OperatorError> {
        Ok(Self { merger: Merger::new(program, channels)?, asked: vec![true; channels] })
    }
}

impl Operator for Collect {
    fn push(
        &mut self,
        channel: usize,
        batch: RecordBatch,
        _: Option<&UInt16Array>,
    ) -> Result<(), OperatorError> {
        self.asked[channel] = false;
        Ok(self.merger.push(channel, batch)?)
    }

    fn holds_event_time(&self) -> bool {
        true
    }

    fn pull(&mut self, most_rows: usize, most_bytes: usize) -> Result<Option<RecordBatch>, OperatorError> {
        Ok(self.merger.next(most_rows, most_bytes).transpose()?)
    }

    fn merges(&self) -> bool {
        true
    }

    fn take_asked(&mut self) -> Vec<usize> {
        let asked = &mut self.asked;
        self.merger.wants().filter(|channel| !std::mem::replace(&mut asked[*channel], true)).collect()
    }

    fn end_input(&mut self, channel: usize) -> Result<(), OperatorError> {
        self.merger.end(channel);
        Ok(())
    }

    fn end(&mut self) -> Result<(), OperatorError> {
        for channel in 0..self.asked.len() {
            self.merger.end(channel);
        }
        Ok(())
    }
}
