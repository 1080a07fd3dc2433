//! Tumbling and sliding windows: a table of groups for each pane, merged for each window.

mod units;

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use datafusion_common::arrow::array::{AsArray, TimestampNanosecondArray, UInt16Array, UInt32Array};
use datafusion_common::arrow::compute::take;
use datafusion_common::arrow::datatypes::{SchemaRef, TimestampNanosecondType, UInt16Type};
use datafusion_common::arrow::record_batch::RecordBatch;
use tuplane_core::time::Panes;

use super::merging::{Blocks, Merging, Part};
use super::{Ends, Input, Late, WindowPart, WindowProgram, input};
use crate::aggregate::table::{GroupTable, Incoming, WhenEmpty, batch};
use crate::program::{Dropped, EvalError};

pub(super) use units::OpenPanes;

/// Open panes by their beginning, and the window that is on its way out.
pub(super) struct PaneTable {
    program: WindowProgram,
    panes: Panes,
    partitions: u16,
    part: WindowPart,
    open: BTreeMap<i64, GroupTable>,
    blocks: Blocks,
    /// Panes that have changed since their windows were last given early.
    changed: HashSet<i64>,
    /// Windows that end by then have been given.
    passed: Option<i64>,
    /// Windows that end by then are to be given.
    due: Option<i64>,
    /// Partial results of all open panes are to be given.
    all: bool,
    /// Windows that are to be given as they are.
    early: Ends,
    leaving: Option<Leaving>,
    pub(super) dropped: Vec<Dropped>,
    pub(super) last: Option<Dropped>,
}

/// A window (or a pane, of partial results) whose groups are being given, once they have been put together.
struct Leaving {
    start: i64,
    end: i64,
    merging: Merging,
    keep: Keep,
}

impl Leaving {
    /// A pane by itself.
    fn pane(start: i64, end: i64, table: GroupTable) -> Self {
        Self { start, end, merging: Merging::new(table, std::iter::empty()), keep: Keep::All }
    }
}

impl PaneTable {
    pub(super) fn new(
        program: WindowProgram,
        panes: Panes,
        partitions: u16,
        part: WindowPart,
    ) -> Result<Self, EvalError> {
        let table = Self {
            program,
            panes,
            partitions,
            part,
            open: BTreeMap::new(),
            blocks: Blocks::new(&panes),
            changed: HashSet::new(),
            passed: None,
            due: None,
            all: false,
            early: Ends::new(),
            leaving: None,
            dropped: Vec::new(),
            last: None,
        };
        // A key that no table can hold is found now.
        table.fresh()?;
        Ok(table)
    }

    pub(super) fn watermark(&self) -> Option<i64> {
        self.passed
    }

    pub(super) fn bytes(&self) -> usize {
        let leaving = self.leaving.iter().map(|leaving| &leaving.merging.table);
        let tables: usize = self.open.values().chain(leaving).map(GroupTable::bytes).sum();
        tables + self.blocks.bytes()
    }

    /// Some pane is open, or a window on its way out.
    pub(super) fn holds(&self) -> bool {
        !self.open.is_empty() || self.leaving.is_some()
    }

    fn fresh(&self) -> Result<GroupTable, EvalError> {
        GroupTable::new(self.program.aggregate.clone(), self.partitions, WhenEmpty::Nothing)
    }

    pub(super) fn update(
        &mut self,
        side: usize,
        rows: &RecordBatch,
        partitions: Option<&UInt16Array>,
        late: &mut Late,
    ) -> Result<(), EvalError> {
        let input =
            input(&self.program.aggregate, side, rows, partitions, &mut self.dropped, &mut self.last)?;
        self.take_in(&input, late)
    }

    pub(super) fn merge(
        &mut self,
        partials: &RecordBatch,
        partitions: Option<&UInt16Array>,
        late: &mut Late,
    ) -> Result<(), EvalError> {
        let width = partials.num_columns().saturating_sub(1);
        let times =
            partials.columns().last().and_then(|pane| pane.as_primitive_opt::<TimestampNanosecondType>());
        let Some(times) = times.cloned() else {
            let message = "partial results of a window came without their pane".to_owned();
            return Err(EvalError { row: None, message });
        };
        let rows = partials.project(&(0..width).collect::<Vec<_>>())?;
        let input = Input {
            rows,
            times,
            partitions: partitions.cloned(),
            origin: None,
            incoming: Incoming::Partials,
        };
        self.take_in(&input, late)
    }

    fn take_in(&mut self, input: &Input, late: &mut Late) -> Result<(), EvalError> {
        let mut by_pane: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
        let mut before: Option<(i64, bool)> = None;
        for (row, time) in input.times.values().iter().enumerate() {
            let pane = self.panes.pane_of(*time);
            let is_late = match before {
                Some((known, is_late)) if known == pane => is_late,
                _ => self.passed.is_some_and(|passed| self.panes.last_end(pane) <= passed),
            };
            before = Some((pane, is_late));
            if is_late {
                late.add(input.origin(row), *time, self.passed);
            } else {
                by_pane.entry(pane).or_default().push(row as u32);
            }
        }
        for (pane, rows) in by_pane {
            self.blocks.forget(pane);
            if !self.open.contains_key(&pane) {
                self.open.insert(pane, self.fresh()?);
            }
            let Some(table) = self.open.get_mut(&pane) else { continue };
            if self.program.early.is_some() {
                self.changed.insert(pane);
            }
            if rows.len() == input.rows.num_rows() {
                table.take_in(&input.rows, input.partitions.as_ref(), &input.incoming)?;
                continue;
            }
            let rows = UInt32Array::from(rows);
            let columns = input.rows.columns().iter().map(|column| take(column, &rows, None));
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            let picked = batch(&input.rows.schema(), columns, rows.len())?;
            let partitions = input.partitions.as_ref().map(|all| take(all, &rows, None)).transpose()?;
            let partitions = partitions.as_ref().map(AsArray::as_primitive::<UInt16Type>);
            table.take_in(&picked, partitions, &input.incoming)?;
        }
        Ok(())
    }

    pub(super) fn advance(&mut self, watermark: i64) {
        self.due = self.due.max(Some(watermark));
    }

    pub(super) fn give_open(&mut self) {
        self.all = self.part == WindowPart::Prepare;
    }

    pub(super) fn give_early(&mut self) {
        for pane in std::mem::take(&mut self.changed) {
            if !self.open.contains_key(&pane) {
                continue;
            }
            let last = self.panes.last_end(pane);
            let mut end = self.panes.first_end_after(self.passed.map_or(pane, |passed| passed.max(pane)));
            while end < last {
                self.early.insert(end);
                end = self.panes.first_end_after(end);
            }
            self.early.insert(last);
        }
    }

    pub(super) fn emit(&mut self, max_rows: usize) -> Option<Result<RecordBatch, EvalError>> {
        loop {
            if let Some(mut leaving) = self.leaving.take_if(|leaving| !leaving.merging.is_done()) {
                let merged = self.put_together(&mut leaving);
                let rows = RecordBatch::new_empty(self.schema());
                self.leaving = Some(leaving);
                return Some(merged.map(|()| rows));
            }
            if let Some(leaving) = &mut self.leaving {
                let table = &mut leaving.merging.table;
                let given = match self.part {
                    WindowPart::Prepare => table.emit_partial(max_rows),
                    WindowPart::Whole | WindowPart::Combine => table.emit_final(max_rows),
                };
                let Some(given) = given else {
                    let mut table = self.leaving.take()?.merging.table;
                    self.dropped.extend(table.take_dropped());
                    self.last = table.take_last().or(self.last.take());
                    continue;
                };
                let (start, end) = (leaving.start, leaving.end);
                return Some(given.and_then(|given| self.finish(&given, start, end)));
            }
            match self.next_leaving() {
                Ok(Some(leaving)) => self.leaving = Some(leaving),
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn finish(&self, given: &RecordBatch, start: i64, end: i64) -> Result<RecordBatch, EvalError> {
        let rows = given.num_rows();
        if self.part == WindowPart::Prepare {
            let pane = Arc::new(TimestampNanosecondArray::from_value(start, rows));
            let columns = given.columns().iter().cloned().chain([pane as _]).collect();
            return Ok(batch(&self.program.partial, columns, rows)?);
        }
        let starts = Arc::new(TimestampNanosecondArray::from_value(start, rows));
        let ends = TimestampNanosecondArray::from_value(end, rows);
        self.program.results(given, starts, &ends, self.passed)
    }

    /// The columns of what leaves.
    fn schema(&self) -> SchemaRef {
        match self.part {
            WindowPart::Prepare => self.program.partial_schema(),
            WindowPart::Whole | WindowPart::Combine => self.program.final_schema(),
        }
    }

    fn next_leaving(&mut self) -> Result<Option<Leaving>, EvalError> {
        if let Some(end) = self.early.pop_first() {
            return self.window(end, Keep::All).map(Some);
        }
        if self.all {
            if let Some((start, table)) = self.open.pop_first() {
                return Ok(Some(Leaving::pane(start, self.panes.pane_end(start), table)));
            }
            self.all = false;
        }
        let Some(due) = self.due else { return Ok(None) };
        if self.part == WindowPart::Prepare {
            let first = self.open.first_key_value().map(|(pane, _)| *pane);
            if let Some(start) = first.filter(|pane| self.panes.pane_end(*pane) <= due)
                && let Some(table) = self.open.remove(&start)
            {
                return Ok(Some(Leaving::pane(start, self.panes.pane_end(start), table)));
            }
        } else if let Some((pane, _)) = self.open.first_key_value() {
            let end = self.panes.first_end_after(self.passed.map_or(*pane, |passed| passed.max(*pane)));
            if end <= due {
                self.passed = Some(end);
                return self.window(end, Keep::Open).map(Some);
            }
        }
        self.passed = self.passed.max(Some(due));
        self.due = None;
        Ok(None)
    }

    /// A window, whose panes' groups are yet to be put together.
    fn window(&mut self, end: i64, keep: Keep) -> Result<Leaving, EvalError> {
        let start = end.saturating_sub(self.panes.size());
        // Windows that end after the last instant are one, which nothing comes behind.
        let behind = if end == i64::MAX { Bound::Unbounded } else { Bound::Excluded(end) };
        let inside = self.open.range((Bound::Included(start), behind));
        let inside: Vec<i64> = inside.map(|(pane, _)| *pane).collect();
        let mut parts = self.blocks.parts(&inside, start, end).into_iter().peekable();
        // What a pane that is not needed any more has, the window can begin with.
        let first = match parts.peek() {
            Some(Part::Pane(pane)) if self.is_last(*pane, end, keep) => self.open.remove(pane),
            _ => None,
        };
        let table = match first {
            Some(table) => {
                if let Some(Part::Pane(pane)) = parts.next() {
                    self.gone(pane);
                }
                table
            }
            None => self.fresh()?,
        };
        Ok(Leaving { start, end, merging: Merging::new(table, parts), keep })
    }

    /// No later window holds a pane.
    fn is_last(&self, pane: i64, end: i64, keep: Keep) -> bool {
        keep == Keep::Open && self.panes.last_end(pane) <= end
    }

    fn gone(&mut self, pane: i64) {
        self.changed.remove(&pane);
        self.blocks.forget(pane);
    }

    /// Puts some more groups of a window's panes together, and lets panes go that no later one holds.
    fn put_together(&mut self, leaving: &mut Leaving) -> Result<(), EvalError> {
        let Self { program, partitions, blocks, open, .. } = self;
        let fresh = || GroupTable::new(program.aggregate.clone(), *partitions, WhenEmpty::Nothing);
        blocks.merge(&mut leaving.merging, open, fresh, &program.aggregate.partial_schema())?;
        if !leaving.merging.is_done() {
            return Ok(());
        }
        while let Some((pane, _)) = self.open.first_key_value()
            && self.is_last(*pane, leaving.end, leaving.keep)
        {
            let pane = *pane;
            self.open.remove(&pane);
            self.gone(pane);
        }
        Ok(())
    }
}

/// What becomes of a window's panes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// They stay: the result is an early one.
    All,
    /// Those stay that later windows hold too.
    Open,
}
