//! Session windows: rows of a key that are no further apart than the gap, joined as they come.

mod units;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use datafusion_common::Result as DfResult;
use datafusion_common::arrow::array::AsArray;
use datafusion_common::arrow::array::{Array, ArrayRef, TimestampNanosecondArray, UInt16Array};
use datafusion_common::arrow::compute::{concat, filter};
use datafusion_common::arrow::datatypes::{DataType, TimestampNanosecondType};
use datafusion_common::arrow::record_batch::RecordBatch;

use super::{Late, WindowProgram, input, values_to_results};
use crate::aggregate::keys::{KeyForm, KeyTable};
use crate::aggregate::table::{Scratch, batch, filters, given, of_group, update_all, value_column};
use crate::aggregate::{Accumulator, AggregateProgram, Rows};
use crate::key::hash_rows;
use crate::program::{Dropped, EvalError, Failed};

pub(super) use units::OpenSessions;

/// So many places of sessions that are gone are kept before a table is built anew.
const SLACK: usize = 256;

/// So many sessions are moved to new tables before others have their turn.
const MOST_MOVED: usize = 8_192;

/// The open sessions of all keys, a table per key partition, and those on their way out.
pub(super) struct SessionTable {
    program: WindowProgram,
    gap: i64,
    form: KeyForm,
    partitions: u16,
    /// Made when the first row comes.
    tables: Vec<Option<Box<Table>>>,
    watermark: Option<i64>,
    leaving: VecDeque<Leaving>,
    scratch: Scratch,
    pub(super) dropped: Vec<Dropped>,
    pub(super) last: Option<Dropped>,
}

/// The sessions of one key partition.
struct Table {
    keys: KeyTable,
    /// Open sessions by key, in the order of their beginnings.
    open: Vec<Vec<Session>>,
    /// When to look at a key again: at the latest when one of its sessions ends.
    deadlines: BinaryHeap<Reverse<(i64, u32)>>,
    accumulators: Vec<Box<dyn Accumulator>>,
    /// Groups of the accumulators, and how many of them are open sessions.
    slots: usize,
    live: usize,
}

#[derive(Debug, Clone, Copy)]
struct Session {
    start: i64,
    end: i64,
    slot: u32,
    /// It has changed since it was last given early.
    changed: bool,
}

/// A session that is to be given.
#[derive(Debug, Clone, Copy)]
struct Leaving {
    partition: u16,
    key: u32,
    session: Session,
}

impl SessionTable {
    pub(super) fn new(program: WindowProgram, gap: i64, partitions: u16) -> Result<Self, EvalError> {
        let form = KeyForm::of(&program.partial.fields()[..program.keys()])?;
        let partitions = if matches!(form, KeyForm::Global) { 1 } else { partitions.max(1) };
        Ok(Self {
            program,
            gap,
            form,
            partitions,
            tables: (0..partitions).map(|_| None).collect(),
            watermark: None,
            leaving: VecDeque::new(),
            scratch: Scratch::default(),
            dropped: Vec::new(),
            last: None,
        })
    }

    pub(super) fn watermark(&self) -> Option<i64> {
        self.watermark
    }

    pub(super) fn bytes(&self) -> usize {
        self.tables.iter().flatten().map(|table| table.bytes()).sum()
    }

    /// Some session is open, or on its way out.
    pub(super) fn holds(&self) -> bool {
        !self.leaving.is_empty() || self.tables.iter().flatten().any(|table| table.live > 0)
    }

    pub(super) fn update(
        &mut self,
        side: usize,
        rows: &RecordBatch,
        partitions: Option<&UInt16Array>,
        late: &mut Late,
    ) -> Result<(), EvalError> {
        let aggregate = self.program.aggregate.clone();
        let input = input(&aggregate, side, rows, partitions, &mut self.dropped, &mut self.last)?;
        let columns = input.rows.columns();
        let key_columns = &columns[..aggregate.keys()];
        let mut scratch = std::mem::take(&mut self.scratch);
        hash_rows(key_columns, input.rows.num_rows(), &mut scratch.hashes)?;
        scratch.sort(self.partitions, input.partitions.as_ref())?;
        let keys = self.form.read(key_columns)?;
        let (_, of) = aggregate.inner.side(side);
        let aggregates = &aggregate.inner.aggregates[of.clone()];
        let filters = filters(aggregates, columns);
        let bounds = Bounds { gap: self.gap, watermark: self.watermark };
        for partition in 0..usize::from(self.partitions) {
            let (start, end) = (scratch.starts[partition] as usize, scratch.starts[partition + 1] as usize);
            if start == end {
                continue;
            }
            let table = match &mut self.tables[partition] {
                Some(table) => table,
                empty => empty.insert(Box::new(Table::new(&aggregate)?)),
            };
            let all = &scratch.order[start..end];
            table.keys.assign(&keys, &scratch.hashes, all, &mut scratch.groups);
            table.open.resize_with(table.keys.len(), Vec::new);
            // Rows and the slots of their sessions; and sessions that a row has joined to an earlier one.
            let (mut taken, mut slots, mut joined) = (Vec::new(), Vec::new(), Vec::new());
            for (row, key) in all.iter().zip(&scratch.groups) {
                let time = input.times.value(*row as usize);
                match table.place(*key, time, bounds, &mut joined) {
                    Some(slot) => {
                        taken.push(*row);
                        slots.push(slot);
                    }
                    None => late.add(input.origin(*row as usize), time, bounds.watermark),
                }
            }
            for accumulator in &mut table.accumulators {
                accumulator.resize(table.slots);
            }
            let rows = Rows { rows: &taken, groups: &slots };
            update_all(&mut table.accumulators[of.clone()], aggregates, columns, &filters, rows)?;
            for (from, to) in joined {
                table.join(from, to)?;
            }
        }
        self.scratch = scratch;
        Ok(())
    }

    pub(super) fn advance(&mut self, watermark: i64) {
        self.watermark = self.watermark.max(Some(watermark));
        for (partition, table) in self.tables.iter_mut().enumerate() {
            let Some(table) = table else { continue };
            while let Some(Reverse((deadline, key))) = table.deadlines.peek().copied()
                && deadline <= watermark
            {
                table.deadlines.pop();
                let open = &mut table.open[key as usize];
                let before = open.len();
                open.retain(|session| {
                    if session.end <= watermark {
                        self.leaving.push_back(Leaving {
                            partition: partition as u16,
                            key,
                            session: *session,
                        });
                    }
                    session.end > watermark
                });
                table.live -= before - open.len();
                if let Some(next) = open.iter().map(|session| session.end).min() {
                    table.deadlines.push(Reverse((next, key)));
                }
            }
        }
    }

    pub(super) fn give_early(&mut self) {
        for (partition, table) in self.tables.iter_mut().enumerate() {
            let Some(table) = table else { continue };
            for (key, open) in table.open.iter_mut().enumerate() {
                for session in open.iter_mut().filter(|session| session.changed) {
                    session.changed = false;
                    let (partition, key) = (partition as u16, key as u32);
                    self.leaving.push_back(Leaving { partition, key, session: *session });
                }
            }
        }
    }

    pub(super) fn emit(&mut self, max_rows: usize) -> Option<Result<RecordBatch, EvalError>> {
        if self.leaving.is_empty() {
            return self.shrink().err().map(Err);
        }
        let count = self.leaving.len().min(max_rows.max(1));
        let leaving: Vec<Leaving> = self.leaving.drain(..count).collect();
        Some(self.results(&leaving))
    }

    fn results(&mut self, leaving: &[Leaving]) -> Result<RecordBatch, EvalError> {
        let inner = &self.program.aggregate.inner;
        let kinds = &inner.values.fields()[inner.keys..];
        let mut failed = Failed::new(inner.on_error);
        let mut pieces: Vec<Vec<ArrayRef>> = Vec::new();
        let mut first = 0;
        for run in leaving.chunk_by(|a, b| a.partition == b.partition) {
            let Some(table) = &self.tables[usize::from(run[0].partition)] else { continue };
            let keys: Vec<u32> = run.iter().map(|one| one.key).collect();
            let mut columns = table.keys.pick_columns(&self.form, &keys)?;
            let slots: Vec<u32> = run.iter().map(|one| one.session.slot).collect();
            for (accumulator, kind) in table.accumulators.iter().zip(kinds) {
                let values = values_of(&**accumulator, &slots, kind.data_type(), first, &mut failed);
                let values =
                    values.map_err(|error| EvalError { row: None, message: of_group(&error.message) });
                columns.push(values?);
            }
            first += run.len();
            pieces.push(columns);
        }
        let column = |index: usize| {
            concat(&pieces.iter().map(|piece| &*piece[index] as &dyn Array).collect::<Vec<_>>())
        };
        let columns = (0..inner.values.fields().len()).map(column).collect::<Result<Vec<_>, _>>()?;
        let values = batch(&inner.values, columns, leaving.len())?;
        let (values, given) = given(values, failed, &mut self.dropped, &mut self.last)?;
        let (results, computed) =
            values_to_results(&self.program.aggregate, &values, &mut self.dropped, &mut self.last)?;
        let times = |of: fn(&Session) -> i64| {
            let all: TimestampNanosecondArray = leaving.iter().map(|one| Some(of(&one.session))).collect();
            let mut kept = given.iter().chain(&computed);
            kept.try_fold(all, |times, kept| {
                filter(&times, kept).map(|some| some.as_primitive::<TimestampNanosecondType>().clone())
            })
        };
        let (starts, ends) = (times(|session| session.start)?, times(|session| session.end)?);
        self.program.results(&results, Arc::new(starts), &ends, self.watermark)
    }

    /// Lets go of sessions that are gone, and of keys that have none: of some at a time, the others are for the
    /// next calls.
    fn shrink(&mut self) -> Result<(), EvalError> {
        let mut moved = 0;
        for slot in &mut self.tables {
            let Some(table) = slot else { continue };
            if table.live == 0 {
                *slot = None;
            } else if table.slots > 2 * table.live + SLACK {
                **table = table.rebuilt(&self.program.aggregate)?;
                moved += table.live;
                if moved >= MOST_MOVED {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// What decides on a row's session.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    gap: i64,
    watermark: Option<i64>,
}

impl Table {
    fn new(program: &AggregateProgram) -> DfResult<Self> {
        let accumulators = program.inner.aggregates.iter().map(crate::aggregate::Aggregate::accumulator);
        Ok(Self {
            keys: KeyTable::default(),
            open: Vec::new(),
            deadlines: BinaryHeap::new(),
            accumulators: accumulators.collect::<DfResult<_>>()?,
            slots: 0,
            live: 0,
        })
    }

    fn bytes(&self) -> usize {
        let sessions: usize = self.open.iter().map(|open| open.capacity() * size_of::<Session>()).sum();
        self.keys.memory()
            + self.accumulators.iter().map(|one| one.bytes()).sum::<usize>()
            + self.open.capacity() * size_of::<Vec<Session>>()
            + self.deadlines.capacity() * size_of::<Reverse<(i64, u32)>>()
            + sessions
    }

    /// The slot of the session that a row belongs to; `None` if it comes too late for one. Sessions that it
    /// joins are noted as (from, to).
    fn place(&mut self, key: u32, time: i64, bounds: Bounds, joined: &mut Vec<(u32, u32)>) -> Option<u32> {
        let alone = Session {
            start: time,
            end: time.saturating_add(bounds.gap),
            slot: self.slots as u32,
            changed: true,
        };
        let open = &mut self.open[key as usize];
        let first = open.partition_point(|session| session.end <= alone.start);
        let past = first + open[first..].partition_point(|session| session.start < alone.end);
        if first == past {
            if bounds.watermark.is_some_and(|watermark| alone.end <= watermark) {
                return None;
            }
            open.insert(first, alone);
            self.slots += 1;
            self.live += 1;
            self.deadlines.push(Reverse((alone.end, key)));
            return Some(alone.slot);
        }
        let slot = open[first].slot;
        let end = open[past - 1].end.max(alone.end);
        joined.extend(open[first + 1..past].iter().map(|session| (session.slot, slot)));
        self.live -= past - first - 1;
        open.drain(first + 1..past);
        let session = &mut open[first];
        *session = Session { start: session.start.min(time), end, slot, changed: true };
        Some(slot)
    }

    /// Adds one session's state to another's.
    fn join(&mut self, from: u32, to: u32) -> DfResult<()> {
        for accumulator in &mut self.accumulators {
            let state = accumulator.save(from as usize..from as usize + 1)?;
            accumulator.merge(&state, Rows { rows: &[0], groups: &[to] })?;
        }
        Ok(())
    }

    /// The same with open sessions and their keys alone.
    fn rebuilt(&self, program: &AggregateProgram) -> DfResult<Self> {
        let mut new = Self::new(program)?;
        let live: Vec<u32> =
            (0..self.open.len() as u32).filter(|key| !self.open[*key as usize].is_empty()).collect();
        new.keys = self.keys.pick(&live);
        let mut slots = Vec::with_capacity(self.live);
        for key in &live {
            let sessions = &self.open[*key as usize];
            let key = new.open.len() as u32;
            new.deadlines.extend(sessions.iter().map(|session| Reverse((session.end, key))));
            new.open.push(
                sessions
                    .iter()
                    .map(|session| {
                        slots.push(session.slot);
                        Session { slot: slots.len() as u32 - 1, ..*session }
                    })
                    .collect(),
            );
        }
        (new.slots, new.live) = (slots.len(), slots.len());
        for (old, new) in self.accumulators.iter().zip(&mut new.accumulators) {
            new.resize(slots.len());
            let mut first = 0;
            for run in runs(&slots) {
                let (state, count) = (old.save(run.clone())?, run.len());
                let rows: Vec<u32> = (0..count as u32).collect();
                let groups: Vec<u32> = (first..first + count as u32).collect();
                new.merge(&state, Rows { rows: &rows, groups: &groups })?;
                first += count as u32;
            }
        }
        Ok(new)
    }
}

/// Ranges of numbers that follow each other, in order.
fn runs(slots: &[u32]) -> impl Iterator<Item = Range<usize>> {
    slots.chunk_by(|a, b| a + 1 == *b).map(|run| run[0] as usize..run[run.len() - 1] as usize + 1)
}

/// The values of these slots, the first of which is result number `first`.
fn values_of(
    accumulator: &dyn Accumulator,
    slots: &[u32],
    kind: &DataType,
    mut first: usize,
    failed: &mut Failed,
) -> Result<ArrayRef, EvalError> {
    let mut pieces = Vec::new();
    for run in runs(slots) {
        let count = run.len();
        pieces.push(value_column(accumulator, run, kind, first, failed)?);
        first += count;
    }
    Ok(concat(&pieces.iter().map(|piece| &**piece as &dyn Array).collect::<Vec<_>>())?)
}
