//! Sources that make their rows up: numbered rows, dealt over the instances in turn.

use std::sync::Arc;
use std::time::Instant;

use tuplane_core::job::{Generator, GeneratorKind};
use tuplane_expr::arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use tuplane_expr::arrow::compute::cast;
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_wire::message::Split;
use tuplane_wire::scaling::{Rest, SourceUnit};

use super::pace::{ByNumber, Pace, SHARERS};
use super::words::Words;
use super::{BATCH_ROWS, Polled, Rejected, Schedule, Source, SourceContext, SourceError};
use crate::engine::due::DueClock;

/// Makes the rows `first`, `first + step`, ... of a numbered series.
pub(super) trait Series: Send {
    /// At most `count` rows and about 1 MiB; at least one.
    fn rows(&mut self, first: u64, step: u64, count: usize) -> Result<RecordBatch, SourceError>;
}

/// Every so many-th row of a series, under a schedule.
struct Unit<P> {
    /// That of its first row.
    number: u32,
    step: u64,
    next: u64,
    pace: P,
    /// Another instance has begun with it.
    taken: bool,
}

impl<P> Unit<P> {
    /// Rows that it has yet to give, of so many of the series.
    fn left(&self, rows: Option<u64>) -> u64 {
        rows.map_or(u64::MAX, |rows| rows.saturating_sub(self.next).div_ceil(self.step))
    }
}

/// A series under a schedule: instance i of k gives rows i, i + k, i + 2k, ... That is a unit, which another instance may
/// go on with, beside units of its own.
pub(super) struct Generated<S, P = Pace> {
    series: S,
    /// What schedules of units are made of.
    pace: P,
    units: Vec<Unit<P>>,
    /// Units take turns.
    turn: usize,
    /// The unit whose rows were given last.
    last: usize,
    /// Rows of the series over all instances; `None`: without end.
    rows: Option<u64>,
    rejected: Rejected,
}

impl<S: Series, P: ByNumber> Generated<S, P> {
    /// One instance's share of `rows` rows.
    pub(super) fn new(series: S, rows: Option<u64>, pace: P, context: &SourceContext) -> Self {
        let (next, step) = (u64::from(context.instance_number), u64::from(context.instances));
        let own = (!context.handed).then(|| Unit {
            number: context.instance_number,
            step,
            next,
            pace: pace.of(next, step, None),
            taken: false,
        });
        let units = own.into_iter().collect();
        Self { series, pace, units, turn: 0, last: 0, rows, rejected: Rejected::default() }
    }
}

impl<S: Series, P: ByNumber> Source for Generated<S, P> {
    fn poll(&mut self, max_rows: usize) -> Result<Polled, SourceError> {
        let Self { series, units, turn, last, rows, .. } = self;
        units.retain(|unit| unit.left(*rows) > 0);
        let (count, now) = (units.len(), Instant::now());
        let mut earliest: Option<Instant> = None;
        for index in (0..count).map(|place| (*turn + place) % count) {
            let unit = &mut units[index];
            let left = usize::try_from(unit.left(*rows)).unwrap_or(usize::MAX);
            let count = match unit.pace.due(max_rows.clamp(1, BATCH_ROWS).min(left), now) {
                Ok(count) => count,
                Err(next) => {
                    earliest = Some(earliest.map_or(next, |earliest| earliest.min(next)));
                    continue;
                }
            };
            let batch = series.rows(unit.next, unit.step, count)?;
            unit.next += unit.step * batch.num_rows() as u64;
            unit.pace.gave(batch.num_rows(), now);
            (*turn, *last) = (index + 1, index);
            return Ok(Polled::Rows(batch));
        }
        Ok(earliest.map_or(Polled::End, Polled::Wait))
    }

    fn split(&mut self, _split: Option<Split>) -> Result<(), SourceError> {
        Err(SourceError::Refused("a source that makes its rows up has no splits".to_owned()))
    }

    fn give_back(&mut self, clock: &DueClock) -> Result<Vec<SourceUnit>, SourceError> {
        let rows = self.rows;
        let left = self.units.drain(..).filter(|unit| unit.left(rows) > 0);
        let given = left.map(|unit| SourceUnit {
            rest: Rest::Rows { number: unit.number, step: unit.step, next: unit.next },
            paced: unit.pace.kept(clock),
        });
        Ok(given.collect())
    }

    fn take(&mut self, units: Vec<SourceUnit>, clock: &DueClock) -> Result<(), SourceError> {
        for SourceUnit { rest, paced } in units {
            let Rest::Rows { number, step, next } = rest else {
                return Err(SourceError::Refused("a source that makes its rows up has no splits".to_owned()));
            };
            let pace = self.pace.of(next, step, paced.map(|paced| (paced, clock)));
            self.units.push(Unit { number, step, next, pace, taken: true });
        }
        Ok(())
    }

    fn unit(&self) -> Option<u32> {
        self.units.get(self.last).filter(|unit| unit.taken).map(|unit| unit.number)
    }

    fn has(&self, unit: Option<u32>) -> bool {
        let is = |one: &Unit<P>| if one.taken { unit == Some(one.number) } else { unit.is_none() };
        self.units.iter().any(|one| is(one) && one.left(self.rows) > 0)
    }

    fn schedule(&self, rows: usize) -> Option<Schedule> {
        self.units.get(self.last)?.pace.schedule(rows)
    }

    fn rejected(&self) -> &Rejected {
        &self.rejected
    }

    fn set(&mut self, option: &str, value: &serde_json::Value) -> Result<(), String> {
        if option == SHARERS {
            // Its units share the rate, and they are as many as ever.
            return Ok(());
        }
        self.pace.set(option, value)?;
        self.units.iter_mut().try_for_each(|unit| unit.pace.set(option, value))
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
