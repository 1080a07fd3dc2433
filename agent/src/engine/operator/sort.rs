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

/// So many runs of one size become one, so that an instance has few files open however much it sorts.
const FAN: usize = 16;

/// A sorted run on disk.
struct OnDisk {
    rows: Spilled,
    bytes: u64,
    /// How often its rows were merged into a larger run.
    level: u32,
}

/// Sorts what it gets; gives it when the input has ended.
pub(crate) struct Sort {
    stage: String,
    program: SortProgram,
    sorter: Sorter,
    charge: StateCharge,
    /// Bytes that it may hold in memory.
    bound: u64,
    spills: Spills,
    /// In the order in which their rows came, larger ones first.
    spilled: Vec<OnDisk>,
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
        let written = self.spilled.iter().map(|run| run.bytes).sum();
        if written >= MOST {
            return Err(self.disk(&SpillError::Full { written }));
        }
        let merger = merge(&self.program, self.sorter.take_runs()?)?;
        let run = self.write(merger, &mut [], 0)?;
        self.spilled.push(run);
        while let Some(first) = self.spilled.len().checked_sub(FAN)
            && let level = self.spilled[first].level
            && self.spilled[first..].iter().all(|run| run.level == level)
        {
            let mut runs = self.spilled.split_off(first);
            for run in &mut runs {
                run.rows.read().map_err(|error| self.disk(&error))?;
            }
            let run = self.write(Merger::new(self.program.clone(), FAN)?, &mut runs, level + 1)?;
            self.spilled.push(run);
        }
        self.charge.set(self.sorter.bytes() as u64);
        Ok(())
    }

    /// Writes what a merger gives as one run.
    fn write(
        &mut self,
        mut merger: Merger,
        runs: &mut [OnDisk],
        level: u32,
    ) -> Result<OnDisk, OperatorError> {
        // Small enough that all runs of a merge have rows in memory within the bound.
        let piece = (self.bound as usize / (2 * FAN)).clamp(16 << 10, MOST_BYTES as usize / 4);
        let mut writer = self.spills.begin().map_err(|error| self.disk(&error))?;
        while let Some(rows) = self.next(&mut merger, runs, MOST_ROWS, piece)? {
            self.charge.set((self.sorter.bytes() + merger.bytes()) as u64);
            writer.write(&rows).map_err(|error| self.disk(&error))?;
        }
        let (rows, bytes) = writer.finish().map_err(|error| self.disk(&error))?;
        Ok(OnDisk { rows, bytes, level })
    }

    /// The next rows of a merge whose first sources are these runs; other sources came whole.
    fn next(
        &self,
        merger: &mut Merger,
        runs: &mut [OnDisk],
        most_rows: usize,
        most_bytes: usize,
    ) -> Result<Option<RecordBatch>, OperatorError> {
        loop {
            let wanted: Vec<usize> = merger.wants().collect();
            let waited = !wanted.is_empty();
            for source in wanted {
                match runs[source].rows.next_rows() {
                    Ok(Some(rows)) => merger.push(source, rows)?,
                    Ok(None) => merger.end(source),
                    Err(error) => return Err(self.disk(&error)),
                }
            }
            if let Some(next) = merger.next(most_rows, most_bytes) {
                return Ok(Some(next?));
            }
            if !waited {
                return Ok(None);
            }
        }
    }

    fn disk(&self, error: &SpillError) -> OperatorError {
        let (stage, rows) = (&self.stage, self.sorter.rows());
        let help = match error {
            SpillError::Full { .. } => "; sort fewer rows, or with more instances",
            SpillError::Disk { .. } => "",
        };
        OperatorError::Other(format!("stage {stage}, which sorts {rows} rows so far: {error}{help}"))
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
        let Some(mut merger) = self.merger.take() else { return Ok(None) };
        let mut runs = std::mem::take(&mut self.spilled);
        let next = self.next(&mut merger, &mut runs, most_rows, most_bytes)?;
        if next.is_some() {
            self.charge.set(merger.bytes() as u64);
            (self.merger, self.spilled) = (Some(merger), runs);
        } else {
            self.charge.set(0);
        }
        Ok(next)
    }

    fn end(&mut self) -> Result<(), OperatorError> {
        let runs = self.sorter.take_runs()?;
        let on_disk = self.spilled.len();
        let mut merger = Merger::new(self.program.clone(), on_disk + runs.len())?;
        // Those on disk came first: rows that are alike keep the order in which they came.
        for (source, run) in runs.into_iter().enumerate() {
            merger.push_run(on_disk + source, run)?;
        }
        let mut spilled = std::mem::take(&mut self.spilled);
        for run in &mut spilled {
            run.rows.read().map_err(|error| self.disk(&error))?;
        }
        self.spilled = spilled;
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
