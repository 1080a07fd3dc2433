//! System columns: what the engine keeps beside a job's own columns, hidden from its expressions.
//!
//! They stand behind the job's own columns in the schema of an edge, so that expressions, which are compiled
//! over the job's own columns alone, find those where they expect them. Sources make a system column only
//! where a job needs it (see `types`); row-wise steps copy it, aggregates and sinks drop it.

use std::sync::Arc;

use datafusion_common::arrow::array::{
    Array, ArrayRef, AsArray, TimestampNanosecondArray, UInt64Array, new_null_array,
};
use datafusion_common::arrow::datatypes::{
    DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit, TimestampNanosecondType, UInt64Type,
};
use datafusion_common::arrow::error::ArrowError;
use datafusion_common::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use tuplane_core::place::RowPlace;

/// One of the system columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SystemColumn {
    /// When the row arrived, by the wall clock: what `arrived()` reads. It is the first one, so that expressions
    /// find it right behind the job's own columns, whichever others there are.
    Due,
    /// Where the row entered: the number of a [`RowPlace`], null where that is not known.
    At,
    /// The row's event time.
    Ts,
}

const TIME: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);

/// All of them, in their order behind a job's own columns.
const ALL: [(SystemColumn, &str, DataType); 3] = [
    (SystemColumn::Due, "_due", TIME),
    (SystemColumn::At, "_at", DataType::UInt64),
    (SystemColumn::Ts, "_ts", TIME),
];

/// Names of system columns to come: a job that may be written today must be one tomorrow.
const TO_COME: [&str; 1] = ["_phantom"];

/// A set of system columns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SystemColumns(u8);

impl SystemColumns {
    /// None of them.
    pub const NONE: Self = Self(0);

    /// Just this one.
    pub fn only(column: SystemColumn) -> Self {
        Self(1 << column as u8)
    }

    /// Those of a schema.
    pub fn of(schema: &Schema) -> Self {
        let found = schema.fields().iter().rev().map_while(|field| named(field.name()));
        found.fold(Self::NONE, |all, column| all.and(Self::only(column)))
    }

    /// Those in either.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those in both.
    #[must_use]
    pub fn in_both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those that are not in the other.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether one is in it.
    pub fn has(self, column: SystemColumn) -> bool {
        self.0 & Self::only(column).0 != 0
    }

    /// Whether it is empty.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Their columns, in order.
    pub(crate) fn fields(self) -> impl Iterator<Item = FieldRef> {
        let wanted = ALL.into_iter().filter(move |(column, ..)| self.has(*column));
        wanted.map(|(_, name, data_type)| Arc::new(Field::new(name, data_type, true)))
    }
}

fn named(name: &str) -> Option<SystemColumn> {
    ALL.iter().find(|(_, system, _)| *system == name).map(|(column, ..)| *column)
}

/// Why a job may not call one of its own columns so, if it may not.
pub(crate) fn refusal(name: &str) -> Option<String> {
    let kept: Vec<&str> = ALL.iter().map(|(_, system, _)| *system).chain(TO_COME).collect();
    kept.contains(&name).then(|| {
        let others: Vec<String> = kept.iter().map(|name| format!("`{name}`")).collect();
        format!("a column cannot be called `{name}`: the names {} are kept for the system", others.join(", "))
    })
}

/// How many of a schema's columns are the job's own.
pub fn own_width(schema: &Schema) -> usize {
    schema.fields().len() - schema.fields().iter().rev().map_while(|field| named(field.name())).count()
}

/// The job's own columns of a schema.
pub fn own_columns(schema: &SchemaRef) -> SchemaRef {
    let width = own_width(schema);
    if width == schema.fields().len() {
        return Arc::clone(schema);
    }
    Arc::new(Schema::new(schema.fields()[..width].to_vec()))
}

/// A schema of a job's own columns, and system columns behind them.
pub fn with_system(own: &SchemaRef, system: SystemColumns) -> SchemaRef {
    if system.is_empty() {
        return Arc::clone(own);
    }
    Arc::new(Schema::new(own.fields().iter().cloned().chain(system.fields()).collect::<Vec<_>>()))
}

/// The job's own columns of a batch.
pub fn own_part(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let width = own_width(batch.schema_ref());
    if width == batch.num_columns() {
        return Ok(batch.clone());
    }
    batch.project(&(0..width).collect::<Vec<_>>())
}

/// A batch whose own columns are a schema's, with that schema's system columns: what it has more is dropped,
/// and null stands for what it lacks.
pub fn conform(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let has = batch.schema_ref();
    let wanted = SystemColumns::of(schema);
    if SystemColumns::of(has) == wanted {
        return Ok(batch);
    }
    widen(&batch, &[], schema)
}

/// A batch's own columns, `more` of them, and a schema's system columns: null stands for those that it lacks.
pub(crate) fn widen(
    batch: &RecordBatch,
    more: &[ArrayRef],
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let wanted = SystemColumns::of(schema);
    let system = wanted.fields().map(|field| match batch.column_by_name(field.name()) {
        Some(column) => Arc::clone(column),
        None => new_null_array(field.data_type(), batch.num_rows()),
    });
    let own = batch.columns()[..own_width(batch.schema_ref())].iter();
    let columns: Vec<ArrayRef> = own.chain(more).cloned().chain(system).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// A batch with one more of its system columns, or another one in its place.
pub fn with_column(
    batch: &RecordBatch,
    column: SystemColumn,
    values: ArrayRef,
) -> Result<RecordBatch, ArrowError> {
    let has = SystemColumns::of(batch.schema_ref());
    let all = has.and(SystemColumns::only(column));
    let schema = with_system(&own_columns(batch.schema_ref()), all);
    let mut columns = batch.columns()[..own_width(batch.schema_ref())].to_vec();
    for (one, name, _) in ALL.into_iter().filter(|(one, ..)| all.has(*one)) {
        match batch.column_by_name(name) {
            Some(known) if one != column => columns.push(Arc::clone(known)),
            _ => columns.push(Arc::clone(&values)),
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema, columns, &options)
}

/// The column of a batch that holds its rows' event times, in nanoseconds since 1970.
pub fn event_times(batch: &RecordBatch) -> Option<&TimestampNanosecondArray> {
    batch.column_by_name(name_of(SystemColumn::Ts))?.as_primitive_opt::<TimestampNanosecondType>()
}

/// The column of a batch that says when its rows arrived or will arrive, in nanoseconds since 1970 by the wall clock.
pub fn arrivals(batch: &RecordBatch) -> Option<&TimestampNanosecondArray> {
    batch.column_by_name(name_of(SystemColumn::Due))?.as_primitive_opt::<TimestampNanosecondType>()
}

/// An event time as people read it: RFC 3339 in UTC.
pub fn shown_time(time: i64) -> String {
    chrono::DateTime::from_timestamp_nanos(time).to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)
}

/// The name of a system column.
pub(crate) fn name_of(column: SystemColumn) -> &'static str {
    ALL[column as usize].1
}

/// Where the rows of a batch entered.
#[derive(Debug, Clone, Default)]
pub struct Places(Option<UInt64Array>);

impl Places {
    /// As its column `_at` says, if it has one.
    pub fn of(batch: &RecordBatch) -> Self {
        let column = SystemColumns::of(batch.schema_ref()).has(SystemColumn::At);
        let column = column.then(|| batch.column_by_name(name_of(SystemColumn::At))).flatten();
        Self(column.and_then(|column| column.as_primitive_opt::<UInt64Type>()).cloned())
    }

    /// Where one of them entered; `None` where that is not known.
    pub fn of_row(&self, row: usize) -> Option<RowPlace> {
        let numbers = self.0.as_ref()?;
        (row < numbers.len() && numbers.is_valid(row)).then(|| RowPlace::from_number(numbers.value(row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion_common::arrow::array::Int64Array;

    fn own() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, true)]))
    }

    fn batch(schema: &SchemaRef) -> RecordBatch {
        let x: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let at: ArrayRef = Arc::new(UInt64Array::from(vec![Some(7), None]));
        let columns = if schema.fields().len() == 1 { vec![x] } else { vec![x, at] };
        RecordBatch::try_new(Arc::clone(schema), columns).unwrap()
    }

    #[test]
    fn system_columns_stand_behind_a_jobs_own() {
        let with = with_system(&own(), SystemColumns::only(SystemColumn::At));
        assert_eq!(with.fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["x", "_at"]);
        assert_eq!((own_width(&with), own_width(&own())), (1, 1));
        assert_eq!(own_columns(&with), own());
        assert!(SystemColumns::of(&with).has(SystemColumn::At) && SystemColumns::of(&own()).is_empty());
    }

    #[test]
    fn a_batch_conforms_by_dropping_and_by_nulls() {
        let with = with_system(&own(), SystemColumns::only(SystemColumn::At));
        assert_eq!(conform(batch(&with), &with).unwrap(), batch(&with));
        assert_eq!(conform(batch(&with), &own()).unwrap(), batch(&own()));
        let filled = conform(batch(&own()), &with).unwrap();
        assert_eq!((filled.num_columns(), filled.column(1).null_count()), (2, 2));
        let places = Places::of(&batch(&with));
        assert_eq!(places.of_row(0), Some(RowPlace::from_number(7)));
        assert_eq!((places.of_row(1), places.of_row(2)), (None, None));
        assert_eq!(Places::of(&batch(&own())).of_row(0), None);
    }

    #[test]
    fn a_column_is_put_in_its_place_or_takes_that_of_another() {
        let with = with_system(&own(), SystemColumns::only(SystemColumn::At));
        let times = |first: i64| -> ArrayRef { Arc::new(TimestampNanosecondArray::from(vec![first, 9])) };
        let stamped = with_column(&batch(&with), SystemColumn::Ts, times(5)).unwrap();
        let both = with_column(&stamped, SystemColumn::Due, times(6)).unwrap();
        let names: Vec<String> = both.schema().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names, ["x", "_due", "_at", "_ts"]);
        assert_eq!(event_times(&both).unwrap().value(0), 5);
        let again = with_column(&both, SystemColumn::Ts, times(7)).unwrap();
        assert_eq!((again.num_columns(), event_times(&again).unwrap().value(0)), (4, 7));
        assert!(event_times(&batch(&own())).is_none());
    }

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (position, (column, name, _)) in ALL.iter().enumerate() {
            assert_eq!((*column as usize, named(name)), (position, Some(*column)));
        }
        assert!(refusal("_at").unwrap().contains("`_at`") && refusal("_due").is_some());
        assert!(refusal("at").is_none() && refusal("_attributes").is_none());
    }
}
