//! The states of all keys, a table per key partition, and what a batch makes of them.

mod units;

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion_common::arrow::array::{Array, ArrayRef, AsArray, TimestampNanosecondArray, UInt16Array};
use datafusion_common::arrow::compute::{concat, filter, filter_record_batch, take};
use datafusion_common::arrow::datatypes::{TimestampNanosecondType, UInt16Type};
use datafusion_common::arrow::record_batch::RecordBatch;
use hashbrown::HashMap;
use tuplane_core::job::OnError;

use super::column::{StateColumn, state_column};
use super::rounds::{self, Outcome, Rounds, then_input};
use super::{Inner, StatefulProgram, Then};
use crate::aggregate::{KeyForm, KeyTable, Scratch};
use crate::key::hash_rows;
use crate::program::rows::{Dropped, EvalError, Failed, keep_mask};
use crate::program::unnest::UnnestState;
use crate::system::{SystemColumns, conform, event_times, with_system};

/// So many states are looked at before others have their turn.
const MOST_SWEPT: usize = 16_384;

/// The states of a stateful stage, by key partition.
pub struct StatefulTable {
    program: StatefulProgram,
    form: KeyForm,
    partitions: u16,
    /// Made when the first row comes.
    tables: Vec<Option<Box<Table>>>,
    /// No row with an earlier event time follows; and when it was last begun to look through the tables for states
    /// that have run out.
    watermark: Option<i64>,
    swept: Option<i64>,
    /// Partitions that came from elsewhere and have not caught up: no state of theirs has run out since that watermark.
    unsettled: BTreeMap<u16, Option<i64>>,
    /// The tables from here on are yet to be looked through.
    sweep: usize,
    scratch: Scratch,
    dropped: Vec<Dropped>,
    last: Option<Dropped>,
}

struct Table {
    keys: KeyTable,
    states: Vec<Box<dyn StateColumn>>,
    /// The latest event time of each key, where state runs out.
    seen: Vec<i64>,
}

/// What a batch has become.
#[derive(Debug)]
pub enum Advanced {
    /// Rows.
    Rows(RecordBatch),
    /// Lists that are yet to become rows.
    Unnest(Box<UnnestState>),
}

/// The rows of a batch by their keys.
struct Keyed {
    /// Each row's key, by number.
    key_of: Vec<u32>,
    touched: Vec<Touched>,
    /// The rows before which a state has run out.
    anew: Vec<u32>,
}

/// When states run out.
#[derive(Clone, Copy)]
struct Until {
    ttl: i64,
    watermark: Option<i64>,
}

impl Until {
    /// Whether a state that was last used at `seen` has run out at `now`; one that was never used has not.
    fn has_passed(self, seen: i64, now: i64) -> bool {
        seen > i64::MIN && seen.checked_add(self.ttl).is_some_and(|end| end <= now)
    }
}

/// The keys that a batch has in one partition.
struct Touched {
    partition: usize,
    /// Their groups; they are numbered through all partitions in this order.
    groups: Vec<u32>,
}

impl StatefulTable {
    /// An empty table for keys in `partitions` partitions.
    pub fn new(program: StatefulProgram, partitions: u16) -> Result<Self, EvalError> {
        let form = KeyForm::of(program.inner.keys.output.fields())?;
        let partitions = if matches!(form, KeyForm::Global) { 1 } else { partitions.max(1) };
        Ok(Self {
            program,
            form,
            partitions,
            tables: (0..partitions).map(|_| None).collect(),
            watermark: None,
            swept: None,
            unsettled: BTreeMap::new(),
            sweep: usize::MAX,
            scratch: Scratch::default(),
            dropped: Vec::new(),
            last: None,
        })
    }

    /// Takes rows in, in their order, and gives what they become. A row that an expression cannot take
    /// changes no state.
    pub fn advance(
        &mut self,
        batch: &RecordBatch,
        partitions: Option<&UInt16Array>,
    ) -> Result<Advanced, EvalError> {
        let inner = Arc::clone(&self.program.inner);
        let mut failed = Failed::new(inner.on_error);
        let keys = inner.keys.eval_into(batch, &mut failed)?;
        let system = SystemColumns::of(&inner.then_input);
        let input = with_system(&crate::system::own_columns(&batch.schema()), system);
        let mut times = match self.program.ttl {
            Some(_) => Some(event_times(batch).filter(|times| times.null_count() == 0).cloned().ok_or_else(
                || {
                    let message = "rows without event time came to a stage with `ttl`".to_owned();
                    EvalError { row: None, message }
                },
            )?),
            None => None,
        };
        let mut rows = Origin { batch: conform(batch.clone(), &input)?, origin: None };
        let filtered;
        let partitions = match partitions {
            Some(all) if !failed.dropped().is_empty() => {
                filtered = filter(all, &keep_mask(batch.num_rows(), failed.dropped()))?;
                Some(filtered.as_primitive::<UInt16Type>())
            }
            other => other,
        };
        if let Some(all) = times.as_mut().filter(|_| !failed.dropped().is_empty()) {
            let kept = filter(all, &keep_mask(batch.num_rows(), failed.dropped()))?;
            *all = kept.as_primitive::<TimestampNanosecondType>().clone();
        }
        self.note(failed.last());
        rows.leave_out(&failed.into_dropped(), &mut self.dropped)?;
        if rows.batch.num_rows() == 0 {
            return Ok(Advanced::Rows(RecordBatch::new_empty(Arc::clone(&inner.output))));
        }
        let Keyed { key_of, touched, anew } =
            self.keys(keys.columns(), rows.batch.num_rows(), partitions, times.as_ref())?;
        let count = touched.iter().map(|one| one.groups.len()).sum();
        let rounds = Rounds::new(&key_of, count).beginning_anew(anew);
        let states = self.states(&touched, &rounds)?;
        let mut outcome = rounds::run(&inner, &rows.batch, &rounds, states.clone(), false)
            .map_err(|error| rows.error(error))?;
        let (mut advanced, mut left_out) = then(&inner, &rows, &outcome)?;
        if inner.on_error != OnError::Fail
            && !left_out.is_empty()
            && inner.updates.iter().any(Option::is_some)
        {
            // Some row's state must be as it was before it, and the key's later rows go on from there.
            outcome =
                rounds::run(&inner, &rows.batch, &rounds, states, true).map_err(|error| rows.error(error))?;
            (advanced, left_out) = then(&inner, &rows, &outcome)?;
        }
        self.keep(&touched, &rounds, &outcome.last)?;
        let mut all: Vec<Dropped> = outcome.failed;
        for one in left_out {
            if let Err(place) = all.binary_search_by_key(&one.row, |known| known.row) {
                all.insert(place, one);
            }
        }
        let all: Vec<Dropped> = all.into_iter().map(|one| rows.dropped(one)).collect();
        self.note(all.last());
        if inner.on_error == OnError::Drop {
            self.dropped.extend(all);
        }
        Ok(advanced)
    }

    /// No row with an earlier event time follows: states that have run out by then are let go.
    pub fn expire(&mut self, watermark: i64) -> Result<(), EvalError> {
        let Some(ttl) = self.program.ttl else { return Ok(()) };
        self.watermark = self.watermark.max(Some(watermark));
        // A state that is asked for has run out at once; looking through all of them only frees memory. So a part
        // at a time will do.
        if self.sweep >= self.tables.len() {
            if self.swept.is_some_and(|swept| watermark < swept.saturating_add(ttl / 2)) {
                return Ok(());
            }
            (self.swept, self.sweep) = (Some(watermark), 0);
        }
        let mut looked_at = 0;
        while looked_at < MOST_SWEPT
            && let Some(slot) = self.tables.get_mut(self.sweep)
        {
            self.sweep += 1;
            let Some(table) = slot else { continue };
            if self.unsettled.contains_key(&(self.sweep as u16 - 1)) {
                continue;
            }
            looked_at += table.keys.len();
            let lives = |group: &u32| table.seen[*group as usize].saturating_add(ttl) > watermark;
            let live: Vec<u32> = (0..table.keys.len() as u32).filter(lives).collect();
            if live.is_empty() {
                *slot = None;
            } else if live.len() < table.keys.len() {
                **table = table.picked(&self.program.inner, &live)?;
            }
        }
        Ok(())
    }

    /// The rows that `on_error = "drop"` left out since the last call; numbers are those of each call's batch.
    pub fn take_dropped(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.dropped)
    }

    /// The last row that was left out, or in which something became null, since the last call.
    pub fn take_last(&mut self) -> Option<Dropped> {
        self.last.take()
    }

    /// How many keys there are.
    pub fn keys_held(&self) -> usize {
        self.tables.iter().flatten().map(|table| table.keys.len()).sum()
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        self.tables.iter().flatten().map(|table| table.bytes()).sum()
    }

    fn note(&mut self, last: Option<&Dropped>) {
        if let Some(last) = last {
            self.last = Some(last.clone());
        }
    }

    /// Numbers the keys of rows, partition by partition.
    fn keys(
        &mut self,
        columns: &[ArrayRef],
        rows: usize,
        partitions: Option<&UInt16Array>,
        times: Option<&TimestampNanosecondArray>,
    ) -> Result<Keyed, EvalError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        hash_rows(columns, rows, &mut scratch.hashes)?;
        scratch.sort(self.partitions, partitions)?;
        let keys = self.form.read(columns)?;
        let mut key_of = vec![0; rows];
        let (mut touched, mut anew) = (Vec::new(), Vec::new());
        let (mut count, mut known) = (0_u32, HashMap::new());
        for partition in 0..usize::from(self.partitions) {
            let (start, end) = (scratch.starts[partition] as usize, scratch.starts[partition + 1] as usize);
            if start == end {
                continue;
            }
            let rows = &scratch.order[start..end];
            let table = match &mut self.tables[partition] {
                Some(table) => table,
                empty => empty.insert(Table::new(&self.program.inner)?),
            };
            table.keys.assign(&keys, &scratch.hashes, rows, &mut scratch.groups);
            for state in &mut table.states {
                state.resize(table.keys.len());
            }
            if let (Some(times), Some(ttl)) = (times, self.program.ttl) {
                let unsettled = self.unsettled.get(&(partition as u16));
                let until = Until { ttl, watermark: unsettled.copied().unwrap_or(self.watermark) };
                table.see(&self.program.inner, times, (rows, &scratch.groups), until, &mut anew)?;
            }
            known.clear();
            let mut groups = Vec::new();
            for (row, group) in rows.iter().zip(&scratch.groups) {
                key_of[*row as usize] = *known.entry(*group).or_insert_with(|| {
                    groups.push(*group);
                    count += 1;
                    count - 1
                });
            }
            touched.push(Touched { partition, groups });
        }
        self.scratch = scratch;
        Ok(Keyed { key_of, touched, anew })
    }

    /// The states of a batch's keys, by rank.
    fn states(&self, touched: &[Touched], rounds: &Rounds) -> Result<Vec<ArrayRef>, EvalError> {
        let first = &self.program.inner.first;
        let mut states = Vec::with_capacity(first.len());
        for (index, first) in first.iter().enumerate() {
            let mut pieces: Vec<ArrayRef> = Vec::with_capacity(touched.len());
            for one in touched {
                if let Some(table) = &self.tables[one.partition] {
                    pieces.push(table.states[index].get(&one.groups)?);
                }
            }
            if pieces.is_empty() {
                pieces.push(first.slice(0, 0));
            }
            let all = concat(&pieces.iter().map(|piece| &**piece as &dyn Array).collect::<Vec<_>>())?;
            states.push(take(&all, &rounds.keys, None)?);
        }
        Ok(states)
    }

    /// Writes the keys' states back, which come by rank.
    fn keep(&mut self, touched: &[Touched], rounds: &Rounds, states: &[ArrayRef]) -> Result<(), EvalError> {
        for (index, state) in states.iter().enumerate() {
            if self.program.inner.updates[index].is_none() {
                continue;
            }
            let by_key = take(state, &rounds.ranks, None)?;
            let mut from = 0;
            for one in touched {
                if let Some(table) = &mut self.tables[one.partition] {
                    table.states[index].set(&one.groups, &by_key.slice(from, one.groups.len()))?;
                }
                from += one.groups.len();
            }
        }
        Ok(())
    }
}

/// What rows become with their states; and those for which that cannot be computed.
fn then(inner: &Inner, rows: &Origin, outcome: &Outcome) -> Result<(Advanced, Vec<Dropped>), EvalError> {
    let width = inner.then_input.fields().len();
    let count = rows.batch.num_rows();
    let input = then_input(inner, rows.batch.columns().to_vec(), &outcome.after, width, count)?;
    let mut input = Origin { batch: input, origin: None };
    let mut own = Origin { batch: rows.batch.clone(), origin: None };
    if inner.on_error == OnError::Drop {
        input.leave_out(&outcome.failed, &mut Vec::new())?;
        own.leave_out(&outcome.failed, &mut Vec::new())?;
    }
    let fail = |error: EvalError| rows.error(input.error(error));
    // What becomes null counts as left out here, for the sake of the state.
    let mut first = Failed::new(if inner.on_error == OnError::Fail { OnError::Fail } else { OnError::Drop });
    let mut advanced = inner.then.apply(&input.batch, &own.batch, &mut first).map_err(fail)?;
    if let Then::Map(projection) = &inner.then
        && inner.on_error == OnError::Null
        && !first.dropped().is_empty()
    {
        let mut again = Failed::new(OnError::Null);
        advanced = Advanced::Rows(projection.eval_into(&input.batch, &mut again).map_err(fail)?);
    }
    let left_out = first.into_dropped().into_iter().map(|one| input.dropped(one)).collect();
    Ok((advanced, left_out))
}

impl Table {
    fn new(inner: &Inner) -> Result<Box<Self>, EvalError> {
        let states = inner.first.iter().map(state_column).collect::<Result<_, _>>()?;
        Ok(Box::new(Self { keys: KeyTable::default(), states, seen: Vec::new() }))
    }

    /// Rows of these groups have come, in their order. A state that has run out begins anew: at once if the
    /// watermark says so, else before the row that says so by its own time, which is noted in `anew`. So a row that
    /// is not late gets the same however rows come in batches.
    fn see(
        &mut self,
        inner: &Inner,
        times: &TimestampNanosecondArray,
        (rows, groups): (&[u32], &[u32]),
        until: Until,
        anew: &mut Vec<u32>,
    ) -> Result<(), EvalError> {
        self.seen.resize(self.keys.len(), i64::MIN);
        for group in groups {
            let seen = &mut self.seen[*group as usize];
            if until.watermark.is_some_and(|watermark| until.has_passed(*seen, watermark)) {
                *seen = i64::MIN;
                for (state, first) in self.states.iter_mut().zip(&inner.first) {
                    state.set(&[*group], first)?;
                }
            }
        }
        for (row, group) in rows.iter().zip(groups) {
            let (seen, time) = (&mut self.seen[*group as usize], times.value(*row as usize));
            if until.has_passed(*seen, time) {
                anew.push(*row);
            }
            *seen = (*seen).max(time);
        }
        Ok(())
    }

    /// The states of these groups alone.
    fn picked(&self, inner: &Inner, groups: &[u32]) -> Result<Self, EvalError> {
        let all: Vec<u32> = (0..groups.len() as u32).collect();
        let mut states = inner.first.iter().map(state_column).collect::<Result<Vec<_>, _>>()?;
        for (new, old) in states.iter_mut().zip(&self.states) {
            new.resize(groups.len());
            new.set(&all, &old.get(groups)?)?;
        }
        let seen = groups.iter().map(|group| self.seen[*group as usize]).collect();
        Ok(Self { keys: self.keys.pick(groups), states, seen })
    }
}

/// Rows of a batch that are left, and their numbers in it.
struct Origin {
    batch: RecordBatch,
    /// Unless they are the same.
    origin: Option<Vec<usize>>,
}

impl Origin {
    fn row(&self, row: usize) -> usize {
        self.origin.as_ref().map_or(row, |origin| origin[row])
    }

    fn dropped(&self, one: Dropped) -> Dropped {
        Dropped { row: self.row(one.row), ..one }
    }

    fn error(&self, error: EvalError) -> EvalError {
        EvalError { row: error.row.map(|row| self.row(row)), ..error }
    }

    /// Takes rows out.
    fn leave_out(&mut self, dropped: &[Dropped], to: &mut Vec<Dropped>) -> Result<(), EvalError> {
        if dropped.is_empty() {
            return Ok(());
        }
        let mask = keep_mask(self.batch.num_rows(), dropped);
        let kept = (0..self.batch.num_rows()).filter(|row| mask.value(*row)).map(|row| self.row(row));
        let origin = kept.collect();
        to.extend(dropped.iter().map(|one| self.dropped(one.clone())));
        self.batch = filter_record_batch(&self.batch, &mask)?;
        self.origin = Some(origin);
        Ok(())
    }
}
