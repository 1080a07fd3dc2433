//! The groups of an aggregate: one table per key partition, filled row by row and drained in batches.

mod rolling;
mod units;
mod window;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use datafusion_common::Result as DfResult;
use datafusion_common::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt16Array, new_null_array};
use datafusion_common::arrow::compute::{concat, filter_record_batch};
use datafusion_common::arrow::datatypes::{DataType, FieldRef, SchemaRef};
use datafusion_common::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use tuplane_core::route::key::partition;

use super::keys::{KeyForm, KeyTable};
use super::{Accumulator, AggregateProgram, Rows};
use crate::key::hash_rows;
use crate::program::{Dropped, EvalError, Failed, keep_mask, kept_partitions};
use crate::sql::plain_message;
pub use rolling::{RollingProgram, RollingTable};
pub use window::{WindowPart, WindowProgram, WindowTable};

/// What an aggregate without a key gives when no row came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenEmpty {
    /// No row: an instance that is one of several.
    Nothing,
    /// One row, as SQL does: a count of 0, a sum that is null.
    OneRow,
}

/// The groups of an aggregate, by key partition.
pub struct GroupTable {
    program: AggregateProgram,
    form: KeyForm,
    partitions: u16,
    when_empty: WhenEmpty,
    /// Those of partitions that rows came to, by partition: each pane of a window has such a table, and most of them
    /// few of the partitions.
    tables: BTreeMap<u16, Box<Table>>,
    /// Tables on their way out; rows that come meanwhile go to new ones.
    draining: VecDeque<Box<Table>>,
    /// How many groups of the first of these have left.
    drained: usize,
    groups: usize,
    seen_rows: bool,
    dropped: Vec<Dropped>,
    last: Option<Dropped>,
    scratch: Scratch,
}

struct Table {
    keys: KeyTable,
    accumulators: Vec<Box<dyn Accumulator>>,
}

/// Buffers that live from batch to batch.
#[derive(Default)]
pub(crate) struct Scratch {
    /// The hash of each row's key.
    pub(crate) hashes: Vec<u64>,
    partitions: Vec<u16>,
    /// First row of each partition in `order`.
    pub(crate) starts: Vec<u32>,
    /// The rows, sorted by partition.
    pub(crate) order: Vec<u32>,
    /// The group of each row of the partition at hand.
    pub(crate) groups: Vec<u32>,
}

/// With more partitions than this buffers are made anew for each batch.
const MOST_STARTS: usize = 1024;

/// What comes in.
enum Incoming {
    /// Rows, which go into these aggregates.
    Rows(Range<usize>),
    /// Partial results.
    Partials,
}

/// What leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outgoing {
    Partials,
    Values,
}

impl GroupTable {
    /// An empty table for keys in `partitions` partitions.
    pub fn new(program: AggregateProgram, partitions: u16, when_empty: WhenEmpty) -> Result<Self, EvalError> {
        let fields = &program.inner.partial.fields()[..program.inner.keys];
        let form = KeyForm::of(fields)?;
        let partitions = if matches!(form, KeyForm::Global) { 1 } else { partitions.max(1) };
        Ok(Self {
            program,
            form,
            partitions,
            when_empty,
            tables: BTreeMap::new(),
            draining: VecDeque::new(),
            drained: 0,
            groups: 0,
            seen_rows: false,
            dropped: Vec::new(),
            last: None,
            scratch: Scratch::default(),
        })
    }

    /// Takes in rows; their key partitions are computed unless they are known.
    pub fn update(&mut self, batch: &RecordBatch, partitions: Option<&UInt16Array>) -> Result<(), EvalError> {
        self.update_from(0, batch, partitions)
    }

    /// As [`GroupTable::update`], with rows of one of several inputs.
    pub fn update_from(
        &mut self,
        input: usize,
        batch: &RecordBatch,
        partitions: Option<&UInt16Array>,
    ) -> Result<(), EvalError> {
        let program = Arc::clone(&self.program.inner);
        let mut failed = Failed::new(program.on_error);
        let (columns, aggregates) = program.side(input);
        let rows = columns.eval_into(batch, &mut failed)?;
        let partitions = kept_partitions(partitions, failed.dropped())?;
        if let Some(last) = failed.last() {
            self.last = Some(last.clone());
        }
        self.dropped.extend(failed.into_dropped());
        self.take_in(&rows, partitions.as_ref(), &Incoming::Rows(aggregates))
    }

    /// Takes in partial results.
    pub fn merge(&mut self, batch: &RecordBatch, partitions: Option<&UInt16Array>) -> Result<(), EvalError> {
        self.take_in(batch, partitions, &Incoming::Partials)
    }

    /// The rows that `on_error = "drop"` left out of [`update`](Self::update) since the last call, and the
    /// results that it left out of [`emit_final`](Self::emit_final); numbers are those of each call's batch.
    pub fn take_dropped(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.dropped)
    }

    /// The last row that was left out, or in which a value became null, since the last call; its number is
    /// that of its call's batch, and `usize::MAX` for a result, which has no row.
    pub fn take_last(&mut self) -> Option<Dropped> {
        self.last.take()
    }

    /// The next partial results, at most `max_rows`; `None` when all have left.
    ///
    /// The first call begins to drain what is there. Rows that come before the end of that belong to the
    /// next draining.
    pub fn emit_partial(&mut self, max_rows: usize) -> Option<Result<RecordBatch, EvalError>> {
        self.emit(max_rows, Outgoing::Partials)
    }

    /// The next results, at most `max_rows`; `None` when all have left. As for
    /// [`emit_partial`](Self::emit_partial).
    pub fn emit_final(&mut self, max_rows: usize) -> Option<Result<RecordBatch, EvalError>> {
        self.emit(max_rows, Outgoing::Values)
    }

    /// How many groups there are.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        self.tables.values().chain(&self.draining).map(|table| table.bytes()).sum()
    }

    /// A copy of a partition's groups as partial results; `None` if it has none.
    pub fn save_partition(&self, partition: u16) -> Option<Result<RecordBatch, EvalError>> {
        let table = self.tables.get(&partition)?;
        Some(self.saved(table))
    }

    /// Takes a partition's groups out, as partial results that [`merge`](Self::merge) takes in elsewhere.
    pub fn take_partition(&mut self, partition: u16) -> Option<Result<RecordBatch, EvalError>> {
        let table = self.tables.remove(&partition)?;
        self.groups -= table.keys.len();
        Some(self.saved(&table))
    }

    fn saved(&self, table: &Table) -> Result<RecordBatch, EvalError> {
        let columns = table.partials(&self.form, 0..table.keys.len())?;
        Ok(batch(&self.program.inner.partial, columns, table.keys.len())?)
    }

    fn take_in(
        &mut self,
        batch: &RecordBatch,
        partitions: Option<&UInt16Array>,
        incoming: &Incoming,
    ) -> Result<(), EvalError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.seen_rows = true;
        let program = Arc::clone(&self.program.inner);
        let mut scratch = std::mem::take(&mut self.scratch);
        let columns = batch.columns();
        let key_columns = &columns[..program.keys];
        hash_rows(key_columns, batch.num_rows(), &mut scratch.hashes)?;
        scratch.sort(self.partitions, partitions)?;
        let keys = self.form.read(key_columns)?;
        let filters = match incoming {
            Incoming::Rows(of) => filters(&program.aggregates[of.clone()], columns),
            Incoming::Partials => Vec::new(),
        };
        for index in 0..self.partitions {
            let place = usize::from(index);
            let (start, end) = (scratch.starts[place] as usize, scratch.starts[place + 1] as usize);
            if start == end {
                continue;
            }
            let rows = &scratch.order[start..end];
            let table = self.table(index)?;
            let before = table.keys.len();
            table.keys.assign(&keys, &scratch.hashes, rows, &mut scratch.groups);
            let more = table.keys.len() - before;
            let rows = Rows { rows, groups: &scratch.groups };
            match incoming {
                Incoming::Rows(of) => table.update(&program.aggregates, of, columns, &filters, rows)?,
                Incoming::Partials => table.merge(&program, columns, rows)?,
            }
            self.groups += more;
        }
        self.scratch = scratch.kept();
        Ok(())
    }

    /// A partition's groups, made when its first row comes.
    fn table(&mut self, partition: u16) -> DfResult<&mut Table> {
        Ok(match self.tables.entry(partition) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(Box::new(Table::new(&self.program)?)),
        })
    }

    fn emit(&mut self, max_rows: usize, outgoing: Outgoing) -> Option<Result<RecordBatch, EvalError>> {
        if let Err(error) = self.begin_draining() {
            return Some(Err(error));
        }
        let inner = Arc::clone(&self.program.inner);
        let mut failed = Failed::new(inner.on_error);
        let mut pieces: Vec<Vec<ArrayRef>> = Vec::new();
        let mut rows = 0;
        while rows < max_rows.max(1) {
            let Some(table) = self.draining.front() else { break };
            let end = table.keys.len().min(self.drained + max_rows.max(1) - rows);
            let groups = self.drained..end;
            let columns = match outgoing {
                Outgoing::Partials => table.partials(&self.form, groups).map_err(EvalError::from),
                Outgoing::Values => {
                    let kinds = &inner.values.fields()[inner.keys..];
                    let values = table.values(&self.form, groups, kinds, rows, &mut failed);
                    values.map_err(|error| EvalError { row: None, message: of_group(&error.message) })
                }
            };
            match columns {
                Ok(columns) => pieces.push(columns),
                Err(error) => return Some(Err(error)),
            }
            rows += end - self.drained;
            self.groups -= end - self.drained;
            self.drained = end;
            if end == table.keys.len() {
                self.draining.pop_front();
                self.drained = 0;
            }
        }
        if rows == 0 { None } else { Some(self.finish(&pieces, rows, outgoing, failed)) }
    }

    /// Moves all tables to the way out, unless some are on it.
    fn begin_draining(&mut self) -> Result<(), EvalError> {
        if !self.draining.is_empty() {
            return Ok(());
        }
        self.draining.extend(std::mem::take(&mut self.tables).into_values());
        let empty = matches!(self.form, KeyForm::Global) && !self.seen_rows;
        if empty && self.when_empty == WhenEmpty::OneRow {
            self.seen_rows = true;
            let mut table = Table::new(&self.program)?;
            table.keys.ensure_global();
            table.resize();
            self.groups += 1;
            self.draining.push_back(Box::new(table));
        }
        Ok(())
    }

    fn finish(
        &mut self,
        pieces: &[Vec<ArrayRef>],
        rows: usize,
        outgoing: Outgoing,
        failed: Failed,
    ) -> Result<RecordBatch, EvalError> {
        let width = pieces.first().map_or(0, Vec::len);
        let column = |index: usize| match pieces {
            [only] => Ok(Arc::clone(&only[index])),
            _ => concat(&pieces.iter().map(|piece| &*piece[index]).collect::<Vec<&dyn Array>>()),
        };
        let columns = (0..width).map(column).collect::<Result<Vec<_>, _>>()?;
        let inner = Arc::clone(&self.program.inner);
        match outgoing {
            Outgoing::Partials => Ok(batch(&inner.partial, columns, rows)?),
            Outgoing::Values => {
                let values = batch(&inner.values, columns, rows)?;
                let (values, _) = given(values, failed, &mut self.dropped, &mut self.last)?;
                results(&inner, &values, &mut self.dropped, &mut self.last)
            }
        }
    }
}

/// A sentence about a result, which has no row of the input.
fn of_group(message: &str) -> String {
    format!("in the result of a group: {message}")
}

/// The values of some groups, the first of which is result number `first`. One that cannot be given, such as a sum
/// that its type does not hold, is null and goes to `failed`.
fn value_column(
    accumulator: &dyn Accumulator,
    groups: Range<usize>,
    kind: &DataType,
    first: usize,
    failed: &mut Failed,
) -> Result<ArrayRef, EvalError> {
    let error = match accumulator.value(groups.clone()) {
        Ok(column) => return Ok(column),
        Err(error) => error,
    };
    if groups.len() <= 1 {
        failed.row(first, plain_message(&error))?;
        return Ok(new_null_array(kind, groups.len()));
    }
    let half = groups.len() / 2;
    let middle = groups.start + half;
    let left = value_column(accumulator, groups.start..middle, kind, first, failed)?;
    let right = value_column(accumulator, middle..groups.end, kind, first + half, failed)?;
    Ok(concat(&[&left, &right])?)
}

/// The aggregates' values of the groups that have all of them, and which those are, if not all.
fn given(
    values: RecordBatch,
    failed: Failed,
    dropped: &mut Vec<Dropped>,
    last: &mut Option<Dropped>,
) -> Result<(RecordBatch, Option<BooleanArray>), EvalError> {
    if let Some(one) = failed.last() {
        *last = Some(Dropped { row: usize::MAX, message: of_group(&one.message) });
    }
    let left_out = failed.into_dropped();
    if left_out.is_empty() {
        return Ok((values, None));
    }
    let kept = keep_mask(values.num_rows(), &left_out);
    dropped.extend(left_out);
    Ok((filter_record_batch(&values, &kept)?, Some(kept)))
}

/// Results from the aggregates' values. One that cannot be computed, such as a division by a count of 0, has no
/// input row; by `on_error` it fails the job, is left out or is null.
fn results(
    inner: &super::Inner,
    values: &RecordBatch,
    dropped: &mut Vec<Dropped>,
    last: &mut Option<Dropped>,
) -> Result<RecordBatch, EvalError> {
    let mut failed = Failed::new(inner.on_error);
    let results = inner
        .output
        .eval_into(values, &mut failed)
        .map_err(|error| EvalError { row: None, message: of_group(&error.message) })?;
    if let Some(one) = failed.last() {
        *last = Some(Dropped { row: usize::MAX, message: of_group(&one.message) });
    }
    dropped.extend(failed.into_dropped());
    Ok(results)
}

impl Scratch {
    /// What is kept for the next batch: of many partitions the buffers would be larger than a pane is.
    fn kept(self) -> Self {
        if self.starts.len() <= MOST_STARTS { self } else { Self::default() }
    }

    /// Sorts the rows by partition, by counting.
    pub(crate) fn sort(&mut self, partitions: u16, known: Option<&UInt16Array>) -> Result<(), EvalError> {
        let rows = self.hashes.len();
        self.order.clear();
        self.starts.clear();
        if partitions == 1 {
            self.order.extend(0..rows as u32);
            self.starts.extend([0, rows as u32]);
            return Ok(());
        }
        self.partitions.clear();
        match known {
            Some(known) if known.len() != rows || known.values().iter().any(|p| *p >= partitions) => {
                let message =
                    format!("partition ids do not belong to these rows and {partitions} partitions");
                return Err(EvalError { row: None, message });
            }
            Some(known) => self.partitions.extend_from_slice(known.values()),
            None => self.partitions.extend(self.hashes.iter().map(|hash| partition(*hash, partitions))),
        }
        self.starts.resize(usize::from(partitions) + 1, 0);
        for partition in &self.partitions {
            self.starts[usize::from(*partition) + 1] += 1;
        }
        for index in 0..usize::from(partitions) {
            self.starts[index + 1] += self.starts[index];
        }
        // Filling moves each start to its end, that is to the next start; shifting undoes that.
        self.order.resize(rows, 0);
        for (row, partition) in self.partitions.iter().enumerate() {
            let next = &mut self.starts[usize::from(*partition)];
            self.order[*next as usize] = row as u32;
            *next += 1;
        }
        self.starts.copy_within(0..usize::from(partitions), 1);
        self.starts[0] = 0;
        Ok(())
    }
}

impl Table {
    fn new(program: &AggregateProgram) -> DfResult<Self> {
        let accumulators = program.inner.aggregates.iter().map(super::Aggregate::accumulator);
        Ok(Self { keys: KeyTable::default(), accumulators: accumulators.collect::<DfResult<_>>()? })
    }

    fn resize(&mut self) {
        for accumulator in &mut self.accumulators {
            accumulator.resize(self.keys.len());
        }
    }

    fn bytes(&self) -> usize {
        self.keys.memory() + self.accumulators.iter().map(|one| one.bytes()).sum::<usize>()
    }

    fn update(
        &mut self,
        aggregates: &[super::Aggregate],
        of: &Range<usize>,
        columns: &[ArrayRef],
        filters: &[Option<&BooleanArray>],
        rows: Rows<'_>,
    ) -> DfResult<()> {
        self.resize();
        update_all(&mut self.accumulators[of.clone()], &aggregates[of.clone()], columns, filters, rows)
    }

    fn merge(&mut self, program: &super::Inner, columns: &[ArrayRef], rows: Rows<'_>) -> DfResult<()> {
        self.resize();
        let mut start = program.keys;
        for (accumulator, aggregate) in self.accumulators.iter_mut().zip(&program.aggregates) {
            let end = start + aggregate.state.len();
            accumulator.merge(&columns[start..end], rows)?;
            start = end;
        }
        Ok(())
    }

    /// Keys and states of some groups.
    fn partials(&self, form: &KeyForm, groups: Range<usize>) -> DfResult<Vec<ArrayRef>> {
        let mut columns = self.keys.columns(form, groups.clone())?;
        for accumulator in &self.accumulators {
            columns.extend(accumulator.save(groups.clone())?);
        }
        Ok(columns)
    }

    /// Keys and values of some groups, the first of which is result number `first`.
    fn values(
        &self,
        form: &KeyForm,
        groups: Range<usize>,
        kinds: &[FieldRef],
        first: usize,
        failed: &mut Failed,
    ) -> Result<Vec<ArrayRef>, EvalError> {
        let mut columns = self.keys.columns(form, groups.clone())?;
        for (accumulator, field) in self.accumulators.iter().zip(kinds) {
            columns.push(value_column(&**accumulator, groups.clone(), field.data_type(), first, failed)?);
        }
        Ok(columns)
    }
}

/// Gives rows to all aggregates, to each those that its `filter (where ..)` lets in.
fn update_all(
    accumulators: &mut [Box<dyn Accumulator>],
    aggregates: &[super::Aggregate],
    columns: &[ArrayRef],
    filters: &[Option<&BooleanArray>],
    rows: Rows<'_>,
) -> DfResult<()> {
    for ((accumulator, aggregate), filter) in accumulators.iter_mut().zip(aggregates).zip(filters) {
        let arguments = &columns[aggregate.arguments.clone()];
        let Some(filter) = filter else {
            accumulator.update(arguments, rows)?;
            continue;
        };
        let wanted = rows.pairs().filter(|(row, _)| filter.is_valid(*row) && filter.value(*row));
        let (kept, groups): (Vec<u32>, Vec<u32>) = wanted.map(|(r, g)| (r as u32, g as u32)).unzip();
        accumulator.update(arguments, Rows { rows: &kept, groups: &groups })?;
    }
    Ok(())
}

/// The `filter (where ..)` column of each aggregate.
fn filters<'a>(aggregates: &[super::Aggregate], columns: &'a [ArrayRef]) -> Vec<Option<&'a BooleanArray>> {
    let of = |aggregate: &super::Aggregate| {
        let column = &columns[aggregate.filter?];
        // The compiler of the program has seen to it.
        (*column.data_type() == DataType::Boolean).then(|| column.as_boolean())
    };
    aggregates.iter().map(of).collect()
}

fn batch(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, datafusion_common::arrow::error::ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}
