//! `sort`: the order that `by` says, rows kept in sorted runs, and runs merged.

mod by;
mod merge;

use std::sync::Arc;

use datafusion_common::arrow::array::{ArrayRef, RecordBatch};
use datafusion_common::arrow::compute::{SortOptions, concat, concat_batches, filter_record_batch};
use datafusion_common::arrow::datatypes::SchemaRef;
use datafusion_common::arrow::row::{RowConverter, Rows, SortField};
use tuplane_core::fault::Fault;
use tuplane_core::job::{OnError, Text};

use super::rows::{Dropped, EvalError, Failed, Projection, keep_mask};
use super::unnest::{kept, slice_bytes};
use crate::aggregate::one_float_form;
use crate::sql::{Compiled, Language, sql_name};
use crate::system::{SystemColumns, conform, with_system};

pub use merge::Merger;

/// Rows of a run: sorting so many takes some milliseconds.
const RUN_ROWS: usize = 16_384;
/// Bytes of a run, unless one batch is larger.
const RUN_BYTES: usize = 4 << 20;

/// A compiled `sort`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SortProgram {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    by: Projection,
    options: Vec<SortOptions>,
    output: SchemaRef,
    on_error: OnError,
}

impl SortProgram {
    /// Compiles `by`: expressions with `asc` or `desc` and `nulls first` or `nulls last`. `system` columns of
    /// the input are kept.
    pub fn compile(
        language: Language,
        by: &[Text],
        input: &SchemaRef,
        system: SystemColumns,
        on_error: OnError,
    ) -> Result<Self, Vec<Fault>> {
        let (mut columns, mut options, mut faults) = (Vec::<Compiled>::new(), Vec::new(), Vec::new());
        for (position, text) in by.iter().enumerate() {
            let (expr, order) = by::parse(text);
            match language.of_keys().compile(&expr, input).and_then(|one| can_be_sorted(&expr, one)) {
                Ok(one) => {
                    // The same column may stand twice; its names here are nobody's.
                    let field = one.field.as_ref().clone().with_name(format!("#{position}"));
                    columns.push(Compiled { field: Arc::new(field), ..one });
                    options.push(order);
                }
                Err(fault) => faults.push(fault),
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let (by, output) = (Projection::new(columns), with_system(input, system));
        Ok(Self { inner: Arc::new(Inner { by, options, output, on_error }) })
    }

    /// Whether some row of `input` can be one that an expression cannot take.
    pub(crate) fn can_fail(&self, input: &SchemaRef) -> bool {
        self.inner.by.can_fail(input)
    }

    /// The columns that come out: those that go in, and system columns.
    pub fn output(&self) -> &SchemaRef {
        &self.inner.output
    }

    fn keys(&self) -> Result<RowConverter, EvalError> {
        let fields = self.inner.by.output.fields().iter().zip(&self.inner.options);
        let fields =
            fields.map(|(field, options)| SortField::new_with_options(field.data_type().clone(), *options));
        Ok(RowConverter::new(fields.collect())?)
    }
}

fn can_be_sorted(text: &Text, one: Compiled) -> Result<Compiled, Fault> {
    let kind = one.field.data_type();
    if RowConverter::supports_fields(&[SortField::new(kind.clone())]) {
        return Ok(one);
    }
    let message = format!("`{}` is {}, which has no order", text.value.trim(), sql_name(kind));
    Err(Fault::new(text.at, message))
}

/// What rows are compared by, as bytes in the order of the rows.
fn sort_keys(converter: &RowConverter, columns: &[ArrayRef]) -> Result<Rows, EvalError> {
    let columns: Vec<ArrayRef> = columns.iter().map(one_float_form).collect();
    Ok(converter.convert_columns(&columns)?)
}

/// Rows in order, and what they are compared by.
#[derive(Debug)]
pub struct Run {
    batch: RecordBatch,
    keys: Rows,
    /// The rows' numbers in order; `None` if that is how they stand.
    order: Option<Vec<u32>>,
}

impl Run {
    /// How many rows.
    pub fn rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        let order = self.order.as_ref().map_or(0, |order| order.capacity() * size_of::<u32>());
        self.batch.get_array_memory_size() + self.keys.size() + order
    }
}

/// Takes rows in and sorts them, run by run.
pub struct Sorter {
    program: SortProgram,
    converter: RowConverter,
    /// Copies of rows that wait to be a run.
    waiting: Vec<(RecordBatch, Vec<ArrayRef>)>,
    waiting_rows: usize,
    waiting_bytes: usize,
    runs: Vec<Run>,
    run_bytes: usize,
    rows: u64,
    dropped: Vec<Dropped>,
    last: Option<Dropped>,
}

impl Sorter {
    /// One without rows.
    pub fn new(program: SortProgram) -> Result<Self, EvalError> {
        let converter = program.keys()?;
        Ok(Self {
            program,
            converter,
            waiting: Vec::new(),
            waiting_rows: 0,
            waiting_bytes: 0,
            runs: Vec::new(),
            run_bytes: 0,
            rows: 0,
            dropped: Vec::new(),
            last: None,
        })
    }

    /// Takes rows in.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<(), EvalError> {
        let inner = Arc::clone(&self.program.inner);
        let mut failed = Failed::new(inner.on_error);
        let batch = kept(batch.clone())?;
        let keys = inner.by.eval_into(&batch, &mut failed)?;
        let mut rows = conform(batch, &inner.output)?;
        if !failed.dropped().is_empty() {
            rows = filter_record_batch(&rows, &keep_mask(rows.num_rows(), failed.dropped()))?;
        }
        if let Some(last) = failed.last() {
            self.last = Some(last.clone());
        }
        self.dropped.extend(failed.into_dropped());
        if rows.num_rows() == 0 {
            return Ok(());
        }
        self.rows += rows.num_rows() as u64;
        self.waiting_rows += rows.num_rows();
        let columns = rows.columns().iter().chain(keys.columns());
        self.waiting_bytes += columns.map(slice_bytes).sum::<usize>();
        self.waiting.push((rows, keys.columns().to_vec()));
        if self.waiting_rows >= RUN_ROWS || self.waiting_bytes >= RUN_BYTES {
            self.settle()?;
        }
        Ok(())
    }

    /// Makes a run of the rows that wait. Rows that are alike stay in the order in which they came.
    fn settle(&mut self) -> Result<(), EvalError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        // Copied, so that a run keeps no more alive than itself.
        let batches = self.waiting.iter().map(|(rows, _)| rows);
        let batch = concat_batches(self.program.output(), batches)?;
        let columns = (0..self.program.inner.options.len())
            .map(|index| concat(&self.waiting.iter().map(|(_, keys)| &*keys[index]).collect::<Vec<_>>()));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let keys = sort_keys(&self.converter, &columns)?;
        let mut order: Vec<u32> = (0..batch.num_rows() as u32).collect();
        order.sort_by(|a, b| keys.row(*a as usize).cmp(&keys.row(*b as usize)));
        let run = Run { batch, keys, order: Some(order) };
        self.run_bytes += run.bytes();
        self.runs.push(run);
        self.waiting.clear();
        (self.waiting_rows, self.waiting_bytes) = (0, 0);
        Ok(())
    }

    /// The rows taken in so far, those included that [`take_runs`](Self::take_runs) took out.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        self.run_bytes + self.waiting_bytes
    }

    /// Takes everything out, as runs in the order in which their rows came.
    pub fn take_runs(&mut self) -> Result<Vec<Run>, EvalError> {
        self.settle()?;
        self.run_bytes = 0;
        Ok(std::mem::take(&mut self.runs))
    }

    /// The rows that `on_error = "drop"` left out since the last call; numbers are those of each call's batch.
    pub fn take_dropped(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.dropped)
    }

    /// The last row that was left out, or whose value became null, since the last call.
    pub fn take_last(&mut self) -> Option<Dropped> {
        self.last.take()
    }
}
