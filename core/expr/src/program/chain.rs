//! The steps of a fused vertex, run one after another on a batch and cut to the engine's sizes.

use std::sync::Arc;

use datafusion_common::arrow::array::{AsArray, BooleanArray, UInt32Array};
use datafusion_common::arrow::compute::{filter, filter_record_batch, take};
use datafusion_common::arrow::datatypes::{SchemaRef, UInt32Type};
use datafusion_common::arrow::record_batch::RecordBatch;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::utils::collect_columns;
use tuplane_core::fault::Fault;
use tuplane_core::job::{OnError, Op, Stage};

use super::rows::{Dropped, EvalError, Failed, Filter, Projection, keep_mask};
use super::unnest::{Unnest, UnnestState, slice_bytes};
use crate::sql::{Language, can_fail, can_grow, copies, fitting_rows};
use crate::system::{SystemColumn, SystemColumns, conform, name_of, own_columns, with_system};

/// One step of a chain.
#[derive(Debug, Clone)]
pub enum Step {
    /// `map`.
    Map(Projection),
    /// `filter`.
    Filter(Filter),
    /// `flat_map`.
    FlatMap(Unnest),
}

impl Step {
    /// The step of a stage; `None` for an op that is no step of a chain.
    pub(crate) fn compile(
        language: Language,
        stage: &Stage,
        input: &SchemaRef,
    ) -> Option<Result<Self, Vec<Fault>>> {
        let language = language.with_arrival();
        let missing = |option: &str| vec![Fault::new(stage.at, format!("`{option}` is missing"))];
        Some(match &stage.op {
            Op::Map { select } if select.is_empty() => Err(missing("select")),
            Op::Map { select } => Projection::compile(language, select, input).map(Self::Map),
            Op::Filter { predicate: None } => Err(missing("where")),
            Op::Filter { predicate: Some(predicate) } => {
                Filter::compile(language, predicate, input).map(Self::Filter).map_err(|fault| vec![fault])
            }
            Op::FlatMap { unnest: None } => Err(missing("unnest")),
            Op::FlatMap { unnest: Some(unnest) } => {
                Unnest::compile(language, unnest, input).map(Self::FlatMap).map_err(|fault| vec![fault])
            }
            _ => return None,
        })
    }

    /// The columns that come out.
    pub fn output(&self) -> &SchemaRef {
        match self {
            Self::Map(projection) => &projection.output,
            Self::Filter(filter) => &filter.schema,
            Self::FlatMap(unnest) => &unnest.output,
        }
    }

    /// Whether some row of `input` can be one that it cannot take.
    pub(crate) fn can_fail(&self, input: &SchemaRef) -> bool {
        match self {
            Self::Map(projection) => projection.can_fail(input),
            Self::Filter(filter) => can_fail(filter.predicate(), input),
            Self::FlatMap(unnest) => unnest.can_fail(input),
        }
    }

    /// It asks when a row arrived.
    pub(crate) fn reads_arrival(&self) -> bool {
        let reads = |expr: &Arc<dyn PhysicalExpr>| {
            collect_columns(expr).iter().any(|column| column.name() == name_of(SystemColumn::Due))
        };
        self.exprs().into_iter().any(reads)
    }

    /// Copies system columns, which stand behind `width` columns of its input.
    fn carrying(self, width: usize, system: SystemColumns) -> Self {
        match self {
            Self::Map(projection) => Self::Map(projection.carrying(width, system)),
            Self::Filter(filter) => Self::Filter(filter.carrying(system)),
            Self::FlatMap(unnest) => Self::FlatMap(unnest.carrying(width, system)),
        }
    }

    /// What it computes.
    fn exprs(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        match self {
            Self::Map(projection) => projection.exprs().iter().collect(),
            Self::Filter(filter) => vec![filter.predicate()],
            Self::FlatMap(unnest) => vec![unnest.list()],
        }
    }

    /// Indices of the input columns that the step itself reads.
    fn reads(&self) -> Vec<usize> {
        let of = |expr| collect_columns(expr).into_iter().map(|c| c.index());
        match self {
            Self::Map(projection) => projection.exprs().iter().flat_map(of).collect(),
            Self::Filter(filter) => of(filter.predicate()).collect(),
            Self::FlatMap(_) => Vec::new(),
        }
    }
}

/// Bytes that a step makes at once of rows that it copies, unless one row has more.
const MOST_MADE: usize = 8 << 20;

/// The steps of a fused vertex.
#[derive(Debug, Clone)]
pub struct Chain {
    steps: Arc<[Step]>,
    /// Which of them may make much of little.
    grow: Arc<[bool]>,
    /// How often each of them copies what it is given.
    copies: Arc<[usize]>,
    /// The stage of each step.
    stages: Arc<[String]>,
    input: SchemaRef,
    output: SchemaRef,
    on_error: OnError,
}

impl Chain {
    /// Compiles the stages of a chain in order, over its input with the system columns that come with it; those in
    /// `leaving` are in its output. A column that no step after an unnest reads is not copied by it.
    pub(crate) fn compile(
        language: Language,
        stages: &[&Stage],
        input: &SchemaRef,
        leaving: SystemColumns,
        on_error: OnError,
    ) -> Result<Self, Vec<Fault>> {
        let (entering, input) = (SystemColumns::of(input), &own_columns(input));
        let mut steps: Vec<Step> = Vec::new();
        let mut ids = Vec::new();
        for (position, stage) in stages.iter().enumerate() {
            let schema = steps.last().map_or(input, Step::output);
            match Step::compile(language, stage, schema) {
                Some(Ok(Step::FlatMap(unnest))) => {
                    let used = used_after(language, &unnest.output, &stages[position + 1..])?;
                    let schema = Arc::clone(schema);
                    steps.push(Step::FlatMap(match used {
                        Some(used) => unnest.keeping(&schema, &used),
                        None => unnest,
                    }));
                }
                Some(step) => steps.push(step?),
                None => continue,
            }
            ids.push(stage.id.clone());
        }
        let arrival =
            steps.iter().any(Step::reads_arrival).then_some(SystemColumn::Due).map(SystemColumns::only);
        let system = entering.in_both(leaving.and(arrival.unwrap_or_default()));
        if !system.is_empty() {
            let mut width = input.fields().len();
            for step in &mut steps {
                let next = step.output().fields().len();
                *step = step.clone().carrying(width, system);
                width = next;
            }
        }
        let output = with_system(&own_columns(steps.last().map_or(input, Step::output)), leaving);
        let input = with_system(input, system);
        let grow = steps.iter().map(|step| step.exprs().into_iter().any(can_grow)).collect();
        let copies = steps.iter().map(|step| copies(step.exprs())).collect();
        Ok(Self { steps: steps.into(), grow, copies, stages: ids.into(), input, output, on_error })
    }

    /// The columns that go in: what a batch has more must be dropped before.
    pub fn input(&self) -> &SchemaRef {
        &self.input
    }

    /// The columns that come out.
    pub fn output(&self) -> &SchemaRef {
        &self.output
    }

    /// The steps in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Begins with a batch; results come from [`ChainRun::next`].
    pub fn run(&self, batch: RecordBatch) -> ChainRun {
        let waiting = vec![Waiting { step: 0, what: What::Rows(Rows { batch, from: None }) }];
        ChainRun { chain: self.clone(), waiting, dropped: Vec::new(), last: None, failed: None }
    }
}

/// The columns of `schema` that `stages` read up to the next map; `None` if there is none, so that all go on.
fn used_after(
    language: Language,
    schema: &SchemaRef,
    stages: &[&Stage],
) -> Result<Option<Vec<usize>>, Vec<Fault>> {
    let mut used = Vec::new();
    for stage in stages {
        match Step::compile(language, stage, schema).transpose()? {
            Some(step @ Step::Map(_)) => {
                used.extend(step.reads());
                return Ok(Some(used));
            }
            Some(step @ Step::Filter(_)) => used.extend(step.reads()),
            Some(Step::FlatMap(_)) => return Ok(None),
            None => {}
        }
    }
    Ok(None)
}

/// A batch on its way through a chain.
#[derive(Debug)]
pub struct ChainRun {
    chain: Chain,
    /// The last one is next: what is furthest along leaves first, so that order is kept.
    waiting: Vec<Waiting>,
    dropped: Vec<Dropped>,
    last: Option<LeftOut>,
    /// The step that failed.
    failed: Option<usize>,
}

/// A row that was dropped, or in which a value became null, and the stage that could not take it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The stage.
    pub stage: String,
    /// Index of the row in the batch that the caller gave.
    pub row: usize,
    /// What is wrong with it.
    pub message: String,
}

#[derive(Debug)]
struct Waiting {
    step: usize,
    what: What,
}

#[derive(Debug)]
enum What {
    Rows(Rows),
    /// An unnest under way, and the input rows of its batch.
    Unnest(Box<UnnestState>, Option<UInt32Array>),
}

#[derive(Debug)]
struct Rows {
    batch: RecordBatch,
    /// The row of the chain's input that each row comes from, unless it is the same number.
    from: Option<UInt32Array>,
}

impl Rows {
    /// The rows behind the first ones, if there are more than these.
    fn split_off(&mut self, first: usize) -> Option<Self> {
        let (all, rest) = (self.batch.num_rows(), self.batch.num_rows().checked_sub(first)?);
        if rest == 0 {
            return None;
        }
        let from = match &self.from {
            Some(from) => from.clone(),
            None => UInt32Array::from_iter_values(0..all as u32),
        };
        let behind = Self { batch: self.batch.slice(first, rest), from: Some(from.slice(first, rest)) };
        (self.batch, self.from) = (self.batch.slice(0, first), Some(from.slice(0, first)));
        Some(behind)
    }

    fn input_row(&self, row: usize) -> usize {
        self.from.as_ref().map_or(row, |from| from.value(row) as usize)
    }
}

impl ChainRun {
    /// The next rows: at most `max_rows` and about `max_bytes`, at least one. `None` at the end.
    pub fn next(&mut self, max_rows: usize, max_bytes: usize) -> Option<Result<RecordBatch, EvalError>> {
        while let Some(Waiting { step, what }) = self.waiting.pop() {
            match self.advance(step, what, max_rows, max_bytes) {
                Ok(Some(batch)) if batch.num_rows() > 0 => return Some(Ok(batch)),
                Ok(_) => {}
                Err(error) => {
                    self.waiting.clear();
                    return Some(Err(error));
                }
            }
        }
        None
    }

    /// The rows dropped since the last call; numbers are those of the chain's input.
    pub fn take_dropped(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.dropped)
    }

    /// The last row that was dropped, or in which a value became null, since the last call.
    pub fn take_last(&mut self) -> Option<LeftOut> {
        self.last.take()
    }

    /// The stage whose expression failed.
    pub fn failed_stage(&self) -> Option<&str> {
        self.failed.and_then(|step| self.chain.stages.get(step)).map(String::as_str)
    }

    fn advance(
        &mut self,
        step: usize,
        what: What,
        max_rows: usize,
        max_bytes: usize,
    ) -> Result<Option<RecordBatch>, EvalError> {
        match what {
            What::Unnest(mut state, from) => {
                if let Some(next) = state.next_rows(max_rows, max_bytes) {
                    let (batch, rows) = next?;
                    let rows = match &from {
                        Some(from) => take(from, &rows, None)?.as_primitive::<UInt32Type>().clone(),
                        None => rows,
                    };
                    self.waiting.push(Waiting { step, what: What::Unnest(state, from) });
                    self.push(step + 1, batch, Some(rows));
                }
                Ok(None)
            }
            What::Rows(rows) if step == self.chain.steps.len() => {
                let len = rows_within(&rows.batch, max_rows, max_bytes);
                if len < rows.batch.num_rows() {
                    let rest = rows.batch.slice(len, rows.batch.num_rows() - len);
                    self.push(step, rest, None);
                }
                Ok(Some(conform(rows.batch.slice(0, len), &self.chain.output)?))
            }
            What::Rows(mut rows) => {
                if self.chain.copies[step] > 1 {
                    let most = MOST_MADE / self.chain.copies[step];
                    let fit = rows_within(&rows.batch, usize::MAX, most);
                    if let Some(rest) = rows.split_off(fit) {
                        self.push(step, rest.batch, rest.from);
                    }
                }
                if self.chain.grow[step] {
                    let fit = fitting_rows(self.chain.steps[step].exprs(), &rows.batch);
                    if let Some(rest) = rows.split_off(fit) {
                        self.push(step, rest.batch, rest.from);
                    }
                }
                let done = self.step(step, rows);
                if done.is_err() {
                    self.failed = Some(step);
                }
                done.map(|()| None)
            }
        }
    }

    fn step(&mut self, step: usize, rows: Rows) -> Result<(), EvalError> {
        let mut failed = Failed::new(self.chain.on_error);
        let steps = Arc::clone(&self.chain.steps);
        let of_input = |error: EvalError| EvalError { row: error.row.map(|r| rows.input_row(r)), ..error };
        match &steps[step] {
            Step::Map(projection) => {
                let batch = projection.eval_into(&rows.batch, &mut failed).map_err(of_input)?;
                let from = if failed.dropped().is_empty() {
                    rows.from.clone()
                } else {
                    Some(kept_rows(&rows, &keep_mask(rows.batch.num_rows(), failed.dropped()))?)
                };
                self.leave_out(step, &rows, failed);
                self.push(step + 1, batch, from);
            }
            Step::Filter(filter) => {
                let mask = filter.mask(&rows.batch, &mut failed).map_err(of_input)?;
                self.leave_out(step, &rows, failed);
                if mask.true_count() == rows.batch.num_rows() {
                    self.push(step + 1, rows.batch, rows.from);
                } else {
                    let batch = filter_record_batch(&rows.batch, &mask)?;
                    self.push(step + 1, batch, Some(kept_rows(&rows, &mask)?));
                }
            }
            Step::FlatMap(unnest) => {
                let state = unnest.start_into(&rows.batch, &mut failed).map_err(of_input)?;
                self.leave_out(step, &rows, failed);
                self.waiting.push(Waiting { step, what: What::Unnest(Box::new(state), rows.from) });
            }
        }
        Ok(())
    }

    fn push(&mut self, step: usize, batch: RecordBatch, from: Option<UInt32Array>) {
        if batch.num_rows() > 0 {
            self.waiting.push(Waiting { step, what: What::Rows(Rows { batch, from }) });
        }
    }

    fn leave_out(&mut self, step: usize, rows: &Rows, failed: Failed) {
        if let Some(last) = failed.last() {
            let (row, message) = (rows.input_row(last.row), last.message.clone());
            self.last = Some(LeftOut { stage: self.chain.stages[step].clone(), row, message });
        }
        let dropped = failed.into_dropped();
        let of_input = |d: Dropped| Dropped { row: rows.input_row(d.row), ..d };
        self.dropped.extend(dropped.into_iter().map(of_input));
    }
}

fn kept_rows(rows: &Rows, mask: &BooleanArray) -> Result<UInt32Array, EvalError> {
    let kept = match &rows.from {
        Some(from) => filter(from, mask)?,
        None => filter(&UInt32Array::from_iter_values(0..rows.batch.num_rows() as u32), mask)?,
    };
    Ok(kept.as_primitive::<UInt32Type>().clone())
}

/// How many rows of a batch fit: at most `max_rows`, and `max_bytes` by its mean row; at least one.
pub fn rows_within(batch: &RecordBatch, max_rows: usize, max_bytes: usize) -> usize {
    let rows = batch.num_rows();
    let bytes: usize = batch.columns().iter().map(slice_bytes).sum();
    let fit = if bytes <= max_bytes { rows } else { max_bytes / bytes.div_ceil(rows.max(1)).max(1) };
    fit.min(max_rows).max(1).min(rows)
}
