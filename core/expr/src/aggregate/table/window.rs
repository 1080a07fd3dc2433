//! Aggregates by window: rows in, results out when the watermark has passed a window's end.

mod guests;
mod merging;
mod panes;
mod sessions;
mod units;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use datafusion_common::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, TimestampNanosecondArray, UInt16Array,
};
use datafusion_common::arrow::compute::filter;
use datafusion_common::arrow::datatypes::{
    DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit, TimestampNanosecondType, UInt16Type,
};
use datafusion_common::arrow::record_batch::RecordBatch;
use tuplane_core::fault::{At, Fault};
use tuplane_core::job::{OnError, Text, Window};
use tuplane_core::time::WindowSpec;

use super::{Incoming, batch};
use crate::aggregate::AggregateProgram;
use crate::program::{Dropped, EvalError, Failed, keep_mask};
use crate::sql::Language;
use crate::system::{SystemColumn, SystemColumns, event_times, shown_time, with_column, with_system};
use guests::Guest;
use panes::PaneTable;
use sessions::SessionTable;

/// The columns that a window adds behind the key.
const ADDED: [&str; 2] = ["window_start", "window_end"];

/// And this one, where results are given early: whether no other one of the window follows.
const FINAL: &str = "window_final";

/// The last column of a partial result: the beginning of its pane.
const PANE: &str = "#pane";

/// A column of state on its way: it has changed since it was last given early.
const CHANGED: &str = "#changed";

const TIME: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);

/// A compiled aggregate by window. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WindowProgram {
    aggregate: AggregateProgram,
    spec: WindowSpec,
    early: Option<Duration>,
    /// The key's columns, `window_start`, `window_end` (and `window_final`), the computed ones, then system columns.
    output: SchemaRef,
    /// Columns of a partial result.
    partial: SchemaRef,
}

impl WindowProgram {
    /// Compiles a window and `compute` for the groups that `keys` make; no keys make one group of all rows.
    pub fn compile(
        language: Language,
        keys: &[Text],
        window: &Window,
        compute: &[Text],
        input: &SchemaRef,
        on_error: OnError,
    ) -> Result<Self, Vec<Fault>> {
        let aggregate = AggregateProgram::compile(language, keys, compute, input, on_error)?;
        Self::over(aggregate, window, keys.iter().chain(compute))
    }

    /// A window over an aggregate, of one input or several; `named` are the texts of its columns, in order.
    pub(crate) fn over<'a>(
        aggregate: AggregateProgram,
        window: &Window,
        named: impl Iterator<Item = &'a Text>,
    ) -> Result<Self, Vec<Fault>> {
        // What a window lacks is a fault of its own stage, which has been reported there.
        let spec = WindowSpec::new(window).map_err(|message| vec![Fault::new(At::default(), message)])?;
        let made = aggregate.final_schema();
        let early = window.early.filter(|early| !early.is_zero());
        let is_taken = |name: &str| is_added(name) || name == FINAL && early.is_some();
        let taken = named.zip(made.fields()).filter(|(_, field)| is_taken(field.name()));
        let faults: Vec<Fault> = taken
            .map(|(text, field)| {
                let message = format!("`{}` is a column that the window adds", field.name());
                Fault::new(text.at, message).help("name it otherwise with `as`")
            })
            .collect();
        if !faults.is_empty() {
            return Err(faults);
        }
        let added = ADDED.map(|name| Arc::new(Field::new(name, TIME, true))).into_iter();
        let added = added.chain(early.map(|_| Arc::new(Field::new(FINAL, DataType::Boolean, true))));
        let (keys, computed) = made.fields().split_at(aggregate.keys());
        let output = keys.iter().cloned().chain(added).chain(computed.iter().cloned());
        let output = Arc::new(Schema::new(output.collect::<Vec<FieldRef>>()));
        let pane = Arc::new(Field::new(PANE, TIME, true));
        let partial = aggregate.partial_schema().fields().iter().cloned().chain([pane]).collect::<Vec<_>>();
        Ok(Self { aggregate, spec, early, output, partial: Arc::new(Schema::new(partial)) })
    }

    /// Results have these system columns; an event time is the last instant of the window.
    #[must_use]
    pub(crate) fn carrying(mut self, system: SystemColumns) -> Self {
        self.output = with_system(&self.output, system);
        self
    }

    /// What is computed in each window.
    pub(crate) fn aggregate(&self) -> &AggregateProgram {
        &self.aggregate
    }

    /// Where windows lie.
    pub(crate) fn spec(&self) -> WindowSpec {
        self.spec
    }

    /// How many key columns lead a row, partial or final.
    pub fn keys(&self) -> usize {
        self.aggregate.keys()
    }

    /// Partial results of open windows are given this often.
    pub fn early(&self) -> Option<Duration> {
        self.early
    }

    /// Columns of a partial result: the key columns, then the aggregates' states, then the pane.
    pub fn partial_schema(&self) -> SchemaRef {
        Arc::clone(&self.partial)
    }

    /// The key columns, `window_start`, `window_end`, what `compute` names, and system columns.
    pub fn final_schema(&self) -> SchemaRef {
        Arc::clone(&self.output)
    }

    /// Results of one window, or of one each, from what the aggregate gives, as the watermark stands.
    fn results(
        &self,
        values: &RecordBatch,
        starts: ArrayRef,
        ends: &TimestampNanosecondArray,
        watermark: Option<i64>,
    ) -> Result<RecordBatch, EvalError> {
        let (keys, computed) = values.columns().split_at(self.keys());
        let mut columns = keys.to_vec();
        columns.extend([starts, Arc::new(ends.clone()) as ArrayRef]);
        if self.early.is_some() {
            let last: BooleanArray = ends.values().iter().map(|end| Some(watermark >= Some(*end))).collect();
            columns.push(Arc::new(last));
        }
        columns.extend_from_slice(computed);
        let system = SystemColumns::of(&self.output);
        let own = crate::system::own_columns(&self.output);
        let rows = batch(&own, columns, values.num_rows())?;
        let rows = if system.has(SystemColumn::Ts) {
            // The last instant of the window: a window over windows holds it, and nothing after it is late.
            let last = ends.unary::<_, TimestampNanosecondType>(|end| end.saturating_sub(1));
            with_column(&rows, SystemColumn::Ts, Arc::new(last))?
        } else {
            rows
        };
        Ok(crate::system::conform(rows, &self.output)?)
    }
}

/// Whether a window makes a column of this name.
fn is_added(name: &str) -> bool {
    ADDED.contains(&name)
}

/// What comes into a window, and what leaves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowPart {
    /// Rows come, results leave.
    Whole,
    /// Rows come, partial results by pane leave.
    Prepare,
    /// Partial results by pane come, results leave.
    Combine,
}

/// The open windows of an aggregate, by key partition.
pub struct WindowTable {
    open: Open,
    /// Partitions that came from elsewhere and are not as far as the others, or further.
    guests: Vec<Guest>,
    part: WindowPart,
    late: Late,
}

enum Open {
    Panes(Box<PaneTable>),
    Sessions(Box<SessionTable>),
}

/// Rows that came when all of their windows had been given.
#[derive(Debug, Default)]
struct Late {
    rows: u64,
    last: Option<LateRow>,
}

/// The last one: its number in the batch that was given last, its event time, and the watermark then.
#[derive(Debug, Clone, Copy)]
struct LateRow {
    row: usize,
    time: i64,
    watermark: Option<i64>,
}

impl Late {
    fn add(&mut self, row: usize, time: i64, watermark: Option<i64>) {
        self.rows += 1;
        self.last = Some(LateRow { row, time, watermark });
    }
}

/// Rows of a batch that their expressions have taken, in the aggregate's columns.
struct Input {
    rows: RecordBatch,
    times: TimestampNanosecondArray,
    partitions: Option<UInt16Array>,
    /// Their numbers in the batch that was given, unless they are the same.
    origin: Option<Vec<usize>>,
    /// What they are.
    incoming: Incoming,
}

impl Input {
    fn origin(&self, row: usize) -> usize {
        self.origin.as_ref().map_or(row, |origin| origin[row])
    }
}

impl Open {
    fn update(
        &mut self,
        input: usize,
        batch: &RecordBatch,
        partitions: Option<&UInt16Array>,
        late: &mut Late,
    ) -> Result<(), EvalError> {
        match self {
            Self::Panes(table) => table.update(input, batch, partitions, late),
            Self::Sessions(table) => table.update(input, batch, partitions, late),
        }
    }

    fn merge(
        &mut self,
        batch: &RecordBatch,
        partitions: Option<&UInt16Array>,
        late: &mut Late,
    ) -> Result<(), EvalError> {
        match self {
            Self::Panes(table) => table.merge(batch, partitions, late),
            Self::Sessions(_) => Err(EvalError {
                row: None,
                message: "partial results came to a session window, which has none".to_owned(),
            }),
        }
    }

    fn advance(&mut self, watermark: i64) {
        match self {
            Self::Panes(table) => table.advance(watermark),
            Self::Sessions(table) => table.advance(watermark),
        }
    }

    fn give_early(&mut self) {
        match self {
            Self::Panes(table) => table.give_early(),
            Self::Sessions(table) => table.give_early(),
        }
    }

    fn holds(&self) -> bool {
        match self {
            Self::Panes(table) => table.holds(),
            Self::Sessions(table) => table.holds(),
        }
    }

    fn emit(&mut self, max_rows: usize) -> Option<Result<RecordBatch, EvalError>> {
        match self {
            Self::Panes(table) => table.emit(max_rows),
            Self::Sessions(table) => table.emit(max_rows),
        }
    }

    fn watermark(&self) -> Option<i64> {
        match self {
            Self::Panes(table) => table.watermark(),
            Self::Sessions(table) => table.watermark(),
        }
    }

    /// Rows left out, and the last one that was left out or in which something became null.
    fn noted(&mut self) -> (&mut Vec<Dropped>, &mut Option<Dropped>) {
        match self {
            Self::Panes(table) => (&mut table.dropped, &mut table.last),
            Self::Sessions(table) => (&mut table.dropped, &mut table.last),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Panes(table) => table.bytes(),
            Self::Sessions(table) => table.bytes(),
        }
    }
}

impl WindowTable {
    /// No windows, for keys in `partitions` partitions.
    pub fn new(program: WindowProgram, partitions: u16, part: WindowPart) -> Result<Self, EvalError> {
        let open = match program.spec {
            WindowSpec::Panes(panes) => {
                Open::Panes(Box::new(PaneTable::new(program, panes, partitions, part)?))
            }
            WindowSpec::Session { gap } => {
                Open::Sessions(Box::new(SessionTable::new(program, gap, partitions)?))
            }
        };
        Ok(Self { open, guests: Vec::new(), part, late: Late::default() })
    }

    /// Takes in rows, which have event times; their key partitions are computed unless they are known.
    pub fn update(&mut self, batch: &RecordBatch, partitions: Option<&UInt16Array>) -> Result<(), EvalError> {
        self.update_from(0, batch, partitions)
    }

    /// As [`WindowTable::update`], with rows of one of several inputs.
    pub fn update_from(
        &mut self,
        input: usize,
        batch: &RecordBatch,
        partitions: Option<&UInt16Array>,
    ) -> Result<(), EvalError> {
        if self.guests.is_empty() {
            return self.open.update(input, batch, partitions, &mut self.late);
        }
        let ids = self.ids_of_rows(input, batch, partitions)?;
        self.spread(batch, &ids, |open, rows, ids, late| open.update(input, rows, Some(ids), late))
    }

    /// Takes in partial results.
    pub fn merge(&mut self, batch: &RecordBatch, partitions: Option<&UInt16Array>) -> Result<(), EvalError> {
        if self.guests.is_empty() {
            return self.open.merge(batch, partitions, &mut self.late);
        }
        let ids = self.ids_of_partials(batch, partitions)?;
        self.spread(batch, &ids, |open, rows, ids, late| open.merge(rows, Some(ids), late))
    }

    /// No row with an earlier event time follows: windows that end by then are to be given. `i64::MAX` gives
    /// all of them.
    pub fn advance(&mut self, watermark: i64) {
        self.open.advance(watermark);
        for guest in &mut self.guests {
            // Behind the end no row comes that they could wait for.
            guest.settled |= watermark == i64::MAX;
            if guest.settled {
                guest.open.advance(watermark);
            }
        }
    }

    /// Open windows that have changed since they were last given are to be given as they are.
    pub fn give_early(&mut self) {
        self.opens_mut().for_each(Open::give_early);
    }

    /// Partial results of all open panes are to be given, whose rows may yet come. For [`WindowPart::Prepare`].
    pub fn give_open(&mut self) {
        match &mut self.open {
            Open::Panes(table) => table.give_open(),
            // A session window has one stage.
            Open::Sessions(_) => {}
        }
    }

    /// There are rows whose results are yet to come, at event times that the watermark has not passed.
    pub fn holds(&self) -> bool {
        self.opens().any(Open::holds)
    }

    /// The next results (or partial ones) that are to be given, at most `max_rows`; `None` if there is none.
    /// No rows may be taken in before that. A batch without rows says that more has to be put together before
    /// there are some: each call takes its share of that.
    pub fn emit(&mut self, max_rows: usize) -> Option<Result<RecordBatch, EvalError>> {
        if let Some(given) = self.opens_mut().find_map(|open| open.emit(max_rows)) {
            return Some(given);
        }
        self.absorb().err().map(Err)
    }

    /// Rows that came too late since the last call; of [`WindowPart::Combine`], partial results.
    pub fn take_late(&mut self) -> u64 {
        std::mem::take(&mut self.late.rows)
    }

    /// The last row that came too late since the last call: its number in its batch, and a sentence.
    pub fn take_last_late(&mut self) -> Option<Dropped> {
        let LateRow { row, time, watermark } = self.late.last.take()?;
        let behind = watermark
            .map_or(String::new(), |watermark| format!("; the watermark stood at {}", shown_time(watermark)));
        let time = shown_time(time);
        Some(Dropped {
            row,
            message: if self.part == WindowPart::Combine {
                format!(
                    "a partial result of rows from {time} on came when its windows had been given{behind}"
                )
            } else {
                format!("a row of {time} came when its windows had been given{behind}")
            },
        })
    }

    /// As [`super::GroupTable::take_dropped`].
    pub fn take_dropped(&mut self) -> Vec<Dropped> {
        self.opens_mut().flat_map(|open| std::mem::take(open.noted().0)).collect()
    }

    /// As [`super::GroupTable::take_last`].
    pub fn take_last(&mut self) -> Option<Dropped> {
        self.opens_mut().fold(None, |last, open| last.or(open.noted().1.take()))
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        self.opens().map(Open::bytes).sum()
    }

    fn opens(&self) -> impl Iterator<Item = &Open> {
        self.guests.iter().map(|guest| &guest.open).chain([&self.open])
    }

    fn opens_mut(&mut self) -> impl Iterator<Item = &mut Open> {
        self.guests.iter_mut().map(|guest| &mut guest.open).chain([&mut self.open])
    }
}

/// Evaluates keys and arguments of rows of an input that have event times. Rows that these cannot take go to
/// `dropped`.
fn input(
    program: &AggregateProgram,
    side: usize,
    rows: &RecordBatch,
    partitions: Option<&UInt16Array>,
    dropped: &mut Vec<Dropped>,
    last: &mut Option<Dropped>,
) -> Result<Input, EvalError> {
    let Some(times) = event_times(rows).filter(|times| times.null_count() == 0) else {
        let message = "rows without event time came to a window".to_owned();
        return Err(EvalError { row: None, message });
    };
    let inner = &program.inner;
    let mut failed = Failed::new(inner.on_error);
    let (columns, aggregates) = inner.side(side);
    let projected = columns.eval_into(rows, &mut failed)?;
    let incoming = Incoming::Rows(aggregates);
    if let Some(one) = failed.last() {
        *last = Some(one.clone());
    }
    let left_out = failed.into_dropped();
    if left_out.is_empty() {
        let partitions = partitions.cloned();
        return Ok(Input { rows: projected, times: times.clone(), partitions, origin: None, incoming });
    }
    let mask = keep_mask(rows.num_rows(), &left_out);
    let partitions = partitions.map(|all| filter(all, &mask)).transpose()?;
    let kept = Input {
        rows: projected,
        times: filter(times, &mask)?.as_primitive::<TimestampNanosecondType>().clone(),
        partitions: partitions.map(|all| all.as_primitive::<UInt16Type>().clone()),
        origin: Some((0..rows.num_rows()).filter(|row| mask.value(*row)).collect()),
        incoming,
    };
    dropped.extend(left_out);
    Ok(kept)
}

/// Results from the aggregates' values; those that cannot be computed go by `on_error`.
fn values_to_results(
    program: &AggregateProgram,
    values: &RecordBatch,
    dropped: &mut Vec<Dropped>,
    last: &mut Option<Dropped>,
) -> Result<(RecordBatch, Option<BooleanArray>), EvalError> {
    let before = dropped.len();
    let results = super::results(&program.inner, values, dropped, last)?;
    let new = &dropped[before..];
    Ok((results, (!new.is_empty()).then(|| keep_mask(values.num_rows(), new))))
}

/// Ends of windows, in order, each once.
type Ends = BTreeSet<i64>;
