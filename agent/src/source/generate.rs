//! Sources that make their rows up: numbered rows, dealt over the instances in turn.

use std::sync::Arc;
use std::time::Instant;

use tuplane_core::job::{Generator, GeneratorKind};
use tuplane_expr::arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use tuplane_expr::arrow::compute::cast;
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_wire::message::Split;

use super::pace::{Pace, Pacing};
use super::words::Words;
use super::{BATCH_ROWS, Polled, Rejected, Schedule, Source, SourceContext, SourceError};

/// Makes the rows `first`, `first + step`, ... of a numbered series.
pub(super) trait Series: Send {
    /// At most `count` rows and about 1 MiB; at least one.
    fn rows(&mut self, first: u64, step: u64, count: usize) -> Result<RecordBatch, SourceError>;
}

/// A series under a schedule: instance i of k gives rows i, i + k, i + 2k, ...
pub(super) struct Generated<S, P = Pace> {
    series: S,
    pace: P,
    next: u64,
    step: u64,
    /// Rows of the series over all instances; `None`: without end.
    rows: Option<u64>,
    rejected: Rejected,
}

impl<S: Series, P: Pacing> Generated<S, P> {
    /// One instance's share of `rows` rows.
    pub(super) fn new(series: S, rows: Option<u64>, pace: P, context: &SourceContext) -> Self {
        let (next, step) = (u64::from(context.instance_number), u64::from(context.instances));
        Self { series, pace, next, step, rows, rejected: Rejected::default() }
    }

    fn left(&self) -> u64 {
        self.rows.map_or(u64::MAX, |rows| rows.saturating_sub(self.next).div_ceil(self.step))
    }
}

impl<S: Series, P: Pacing> Source for Generated<S, P> {
    fn poll(&mut self, max_rows: usize) -> Result<Polled, SourceError> {
        let left = usize::try_from(self.left()).unwrap_or(usize::MAX);
        if left == 0 {
            return Ok(Polled::End);
        }
        let now = Instant::now();
        let count = match self.pace.due(max_rows.clamp(1, BATCH_ROWS).min(left), now) {
            Ok(count) => count,
            Err(next) => return Ok(Polled::Wait(next)),
        };
        let batch = self.series.rows(self.next, self.step, count)?;
        self.next += self.step * batch.num_rows() as u64;
        self.pace.gave(batch.num_rows(), now);
        Ok(Polled::Rows(batch))
    }

    fn split(&mut self, _split: Option<Split>) -> Result<(), SourceError> {
        Err(SourceError::Refused("a source that makes its rows up has no splits".to_owned()))
    }

    fn schedule(&self, rows: usize) -> Option<Schedule> {
        self.pace.schedule(rows)
    }

    fn rejected(&self) -> &Rejected {
        &self.rejected
    }

    fn set(&mut self, option: &str, value: &serde_json::Value) -> Result<(), String> {
        self.pace.set(option, value)
    }
}

/// Makes an instance of `connector = "generator"`.
pub(super) fn generator(
    options: &Generator,
    pace: Pace,
    context: &SourceContext,
) -> Result<Box<dyn Source>, SourceError> {
    match options.kind {
        GeneratorKind::Sequence => {
            let columns = Arranged::new(&context.schema, &["value"])?;
            Ok(Box::new(Generated::new(Sequence { columns }, options.n, pace, context)))
        }
        GeneratorKind::Words { words, exponent, per_line } => {
            let columns = Arranged::new(&context.schema, &["line"])?;
            let series = Words::new(words, exponent, per_line, options.seed, columns)?;
            Ok(Box::new(Generated::new(series, options.n, pace, context)))
        }
    }
}

/// `value`: the row's own number.
struct Sequence {
    columns: Arranged,
}

impl Series for Sequence {
    fn rows(&mut self, first: u64, step: u64, count: usize) -> Result<RecordBatch, SourceError> {
        self.columns.batch(&[numbers(first, step, count)])
    }
}

/// `count` row numbers as an array.
pub(super) fn numbers(first: u64, step: u64, count: usize) -> ArrayRef {
    let (first, step) = (first as i64, step as i64);
    Arc::new(Int64Array::from_iter_values(
        (0..count as i64).map(|row| first.wrapping_add(row.wrapping_mul(step))),
    ))
}

/// Puts columns, made in an order of their own, into the order and types of a schema.
#[derive(Debug)]
pub(super) struct Arranged {
    schema: SchemaRef,
    /// For each column of the schema its place among the made ones.
    places: Vec<usize>,
}

impl Arranged {
    /// `made` names the columns that [`Arranged::batch`] will be given.
    pub(super) fn new(schema: &SchemaRef, made: &[&str]) -> Result<Self, SourceError> {
        let place = |name: &String| {
            made.iter().position(|made| made == name).ok_or_else(|| {
                SourceError::Refused(format!(
                    "there is no column `{name}`; this source has {}",
                    made.join(", ")
                ))
            })
        };
        let places = schema.fields().iter().map(|field| place(field.name())).collect::<Result<_, _>>()?;
        Ok(Self { schema: Arc::clone(schema), places })
    }

    /// The batch of these columns.
    pub(super) fn batch(&self, made: &[ArrayRef]) -> Result<RecordBatch, SourceError> {
        let mut columns = Vec::with_capacity(self.places.len());
        for (field, place) in self.schema.fields().iter().zip(&self.places) {
            let column = &made[*place];
            if column.data_type() == field.data_type() {
                columns.push(Arc::clone(column));
            } else {
                columns.push(cast(column, field.data_type())?);
            }
        }
        let rows = made.first().map_or(0, Array::len);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}
