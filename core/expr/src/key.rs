//! Keys of rows: their expressions, their hashes and their partitions.
//!
//! The hash is taken over the types that the key expressions have. Inputs of one join or co-aggregation are
//! co-partitioned only if their keys have been cast to a common type first: `1` as an integer and `1.0` as
//! a float are different keys here.

mod whole;

use std::sync::Arc;

use datafusion_common::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, UInt16Array,
};
use datafusion_common::arrow::datatypes::{
    ArrowNativeType, DECIMAL128_MAX_PRECISION, DataType, Date32Type, Date64Type, Decimal128Type,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType, FieldRef,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, SchemaRef, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use datafusion_common::arrow::record_batch::RecordBatch;
use datafusion_expr::type_coercion::binary::comparison_coercion;
use datafusion_physical_expr::expressions::{CastExpr, TryCastExpr};
use tuplane_core::fault::Fault;
use tuplane_core::job::{OnError, Text};
use tuplane_core::route::key::{KeyBuf, hash_i64, partition};

use crate::program::{Dropped, EvalError, Failed, Projection, twice};
use crate::sql::{Compiled, Language, sql_name};

pub(crate) use whole::NAME as WHOLE_NUMBER;

/// The key of a row: one or more expressions.
#[derive(Debug, Clone)]
pub struct KeyExprs {
    projection: Projection,
}

impl KeyExprs {
    /// Compiles a key's expressions; `as name` gives a column its name.
    pub fn compile(language: Language, exprs: &[Text], schema: &SchemaRef) -> Result<Self, Vec<Fault>> {
        let mut columns: Vec<Compiled> = Vec::new();
        let mut faults = Vec::new();
        for text in exprs {
            match language.of_keys().compile(text, schema) {
                Ok(one) if !can_be_key(one.field.data_type()) => {
                    let found = sql_name(one.field.data_type());
                    faults.push(Fault::new(
                        text.at,
                        format!("`{}` is {found}, which cannot be a key", text.value.trim()),
                    ));
                }
                Ok(one) if columns.iter().any(|c| c.field.name() == one.field.name()) => {
                    faults.push(twice(text, one.field.name()));
                }
                Ok(one) => columns.push(one),
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() { Ok(Self { projection: Projection::new(columns) }) } else { Err(faults) }
    }

    /// The first `columns` columns of a row as they are.
    pub(crate) fn columns(schema: &SchemaRef, columns: usize) -> Self {
        Self { projection: Projection::columns(schema, 0..columns) }
    }

    /// The first `columns` columns that a projection makes.
    pub(crate) fn first_of(projection: &Projection, columns: usize) -> Self {
        let key = Self { projection: projection.clone() };
        Self { projection: Projection::new(key.into_columns().into_iter().take(columns).collect()) }
    }

    /// The key's columns: name and type.
    pub fn fields(&self) -> &[FieldRef] {
        self.projection.output.fields()
    }

    /// The key's columns for every row.
    pub fn eval(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, EvalError> {
        Ok(self.projection.eval(batch)?.columns().to_vec())
    }

    /// The key's columns, without the rows that `on_error = "drop"` left out.
    pub fn eval_rows(
        &self,
        batch: &RecordBatch,
        on_error: OnError,
    ) -> Result<(Vec<ArrayRef>, Vec<Dropped>), EvalError> {
        let (rows, dropped) = self.projection.eval_rows(batch, on_error)?;
        Ok((rows.columns().to_vec(), dropped))
    }

    /// The key partition of every row.
    pub fn partitions(&self, batch: &RecordBatch, partitions: u16) -> Result<UInt16Array, EvalError> {
        crate::key::partitions(&self.eval(batch)?, partitions)
    }

    /// As [`KeyExprs::partitions`] of the rows that can be taken; of a row that `on_error = "null"` lets pass
    /// the key is null. The second and third are the rows left out, and the last one left out or made null.
    pub fn partitions_of(
        &self,
        batch: &RecordBatch,
        partitions: u16,
        on_error: OnError,
    ) -> Result<(UInt16Array, Vec<Dropped>, Option<Dropped>), EvalError> {
        let mut failed = Failed::new(on_error);
        let rows = self.projection.eval_into(batch, &mut failed)?;
        let last = failed.last().cloned();
        Ok((crate::key::partitions(rows.columns(), partitions)?, failed.into_dropped(), last))
    }

    /// Whether some row of `schema` can be one that it cannot take.
    pub(crate) fn can_fail(&self, schema: &SchemaRef) -> bool {
        self.projection.can_fail(schema)
    }

    pub(crate) fn into_columns(self) -> Vec<Compiled> {
        let fields = self.projection.output.fields();
        let exprs = self.projection.exprs().iter().cloned();
        exprs.zip(fields.iter().cloned()).map(|(expr, field)| Compiled { expr, field }).collect()
    }
}

/// The key partition of every row, from its key's columns.
pub fn partitions(keys: &[ArrayRef], partitions: u16) -> Result<UInt16Array, EvalError> {
    let mut hashes = Vec::new();
    hash_rows(keys, keys.first().map_or(0, Array::len), &mut hashes)?;
    Ok(hashes.into_iter().map(|hash| partition(hash, partitions)).collect::<Vec<u16>>().into())
}

/// Keys of two inputs that are compared and not kept, as one type; `None` if there is none. An integer and a
/// float meet as integers, so that they are equal exactly if the numbers are: a float that no integer is equal
/// to becomes null, which equals nothing.
pub(crate) fn as_one_type(left: Compiled, right: Compiled) -> Option<(Compiled, Compiled)> {
    let (of_left, of_right) = (left.field.data_type().clone(), right.field.data_type().clone());
    let wide = |kind: &DataType| if *kind == DataType::UInt64 { DataType::UInt64 } else { DataType::Int64 };
    if of_left.is_integer() && of_right.is_floating() {
        let common = wide(&of_left);
        return Some((cast(left, &common), whole::whole(right, &common)));
    }
    if of_left.is_floating() && of_right.is_integer() {
        let common = wide(&of_right);
        return Some((whole::whole(left, &common), cast(right, &common)));
    }
    // Cast to the finer one, what does not fit is equal to nothing: the other side has no such value.
    let common = match (decimal(&of_left), decimal(&of_right)) {
        (Some(one), Some(other)) if of_left != of_right => {
            DataType::Decimal128(DECIMAL128_MAX_PRECISION, one.max(other))
        }
        (Some(one), None) if of_right.is_integer() => {
            DataType::Decimal128(DECIMAL128_MAX_PRECISION, one.max(0))
        }
        (None, Some(one)) if of_left.is_integer() => {
            DataType::Decimal128(DECIMAL128_MAX_PRECISION, one.max(0))
        }
        _ => common_type(&of_left, &of_right)?,
    };
    Some((fitting(left, &common), fitting(right, &common)))
}

/// The digits behind the point of a decimal, if 38 digits hold it.
fn decimal(kind: &DataType) -> Option<i8> {
    match kind {
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => {
            Some(*scale)
        }
        _ => None,
    }
}

/// As [`cast`], with null for what the other type has not.
fn fitting(key: Compiled, to: &DataType) -> Compiled {
    if key.field.data_type() == to {
        return key;
    }
    let field = key.field.as_ref().clone().with_data_type(to.clone()).with_nullable(true);
    Compiled { expr: Arc::new(TryCastExpr::new(key.expr, to.clone())), field: Arc::new(field) }
}

/// The type to which keys of two inputs are cast, so that values which are equal to SQL are equal keys; `None`
/// if there is none: text is never equal to a number here, and no type has the integers of 64 bits and the floats.
pub(crate) fn common_type(left: &DataType, right: &DataType) -> Option<DataType> {
    let number = |kind: &DataType| kind.is_numeric();
    let common = if left == right {
        left.clone()
    } else if has_more_than_doubles(left) && right.is_floating()
        || left.is_floating() && has_more_than_doubles(right)
    {
        return None;
    } else if number(left) && number(right) && (left.is_floating() || right.is_floating()) {
        DataType::Float64
    } else if number(left) && number(right)
        || left.is_temporal() && right.is_temporal() && time_of_day(left) == time_of_day(right)
    {
        comparison_coercion(left, right)?
    } else {
        return None;
    };
    can_be_key(&common).then_some(common)
}

/// A time without a day.
fn time_of_day(kind: &DataType) -> bool {
    matches!(kind, DataType::Time32(_) | DataType::Time64(_))
}

/// Some integers of this type are no double.
fn has_more_than_doubles(kind: &DataType) -> bool {
    matches!(kind, DataType::Int64 | DataType::UInt64)
}

/// A key's column as another type.
pub(crate) fn cast(key: Compiled, to: &DataType) -> Compiled {
    if key.field.data_type() == to {
        return key;
    }
    let field = key.field.as_ref().clone().with_data_type(to.clone());
    Compiled { expr: Arc::new(CastExpr::new(key.expr, to.clone(), None)), field: Arc::new(field) }
}

/// Whether a column of this type can be (part of) a key.
pub(crate) fn can_be_key(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Boolean
            | DataType::Utf8
            | DataType::Binary
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal128(..)
            | DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Timestamp(..)
            | DataType::Duration(_)
    ) || data_type.is_integer()
}

/// The hash of every row's key, by the canonical form of `tuplane_core::route::key`.
pub(crate) fn hash_rows(keys: &[ArrayRef], rows: usize, hashes: &mut Vec<u64>) -> Result<(), EvalError> {
    hashes.clear();
    hashes.reserve(rows);
    let mut buffer = KeyBuf::default();
    if let [key] = keys {
        match key.data_type() {
            DataType::Int64 if key.null_count() == 0 => {
                hashes.extend(key.as_primitive::<Int64Type>().values().iter().map(|v| hash_i64(*v)));
                return Ok(());
            }
            DataType::Utf8 if key.null_count() == 0 => {
                let text = key.as_string::<i32>();
                hashes.extend((0..rows).map(|row| {
                    buffer.clear();
                    buffer.push_text(text.value(row));
                    buffer.hash()
                }));
                return Ok(());
            }
            _ => {}
        }
    }
    let columns = keys.iter().map(pusher).collect::<Result<Vec<_>, _>>()?;
    for row in 0..rows {
        buffer.clear();
        for column in &columns {
            column(row, &mut buffer);
        }
        hashes.push(buffer.hash());
    }
    Ok(())
}

type Push<'a> = Box<dyn Fn(usize, &mut KeyBuf) + 'a>;

/// Appends a row's value of one column to a key.
fn pusher(column: &ArrayRef) -> Result<Push<'_>, EvalError> {
    const SECOND: i64 = 1_000_000_000;
    const DAY: i64 = 86_400 * SECOND;
    Ok(match column.data_type() {
        DataType::Boolean => {
            let values = column.as_boolean();
            or_null(column, move |row, key| key.push_i64(i64::from(values.value(row))))
        }
        DataType::Int8 => integer::<Int8Type>(column),
        DataType::Int16 => integer::<Int16Type>(column),
        DataType::Int32 => integer::<Int32Type>(column),
        DataType::Int64 => integer::<Int64Type>(column),
        DataType::UInt8 => integer::<UInt8Type>(column),
        DataType::UInt16 => integer::<UInt16Type>(column),
        DataType::UInt32 => integer::<UInt32Type>(column),
        DataType::UInt64 => {
            let values = column.as_primitive::<UInt64Type>();
            // Beyond i64 the two's complement: a hash may be shared, keys are told apart by value.
            or_null(column, move |row, key| key.push_i64(values.value(row) as i64))
        }
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>();
            or_null(column, move |row, key| key.push_f64(f64::from(values.value(row))))
        }
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>();
            or_null(column, move |row, key| key.push_f64(values.value(row)))
        }
        DataType::Decimal128(_, scale) => {
            let (values, scale) = (column.as_primitive::<Decimal128Type>(), *scale);
            or_null(column, move |row, key| key.push_decimal(values.value(row), scale))
        }
        DataType::Date32 => time::<Date32Type>(column, DAY),
        DataType::Date64 => time::<Date64Type>(column, SECOND / 1_000),
        DataType::Time32(TimeUnit::Second) => time::<Time32SecondType>(column, SECOND),
        DataType::Time32(_) => time::<Time32MillisecondType>(column, SECOND / 1_000),
        DataType::Time64(TimeUnit::Microsecond) => time::<Time64MicrosecondType>(column, 1_000),
        DataType::Time64(_) => time::<Time64NanosecondType>(column, 1),
        DataType::Timestamp(TimeUnit::Second, _) => time::<TimestampSecondType>(column, SECOND),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            time::<TimestampMillisecondType>(column, SECOND / 1_000)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => time::<TimestampMicrosecondType>(column, 1_000),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => time::<TimestampNanosecondType>(column, 1),
        DataType::Duration(TimeUnit::Second) => time::<DurationSecondType>(column, SECOND),
        DataType::Duration(TimeUnit::Millisecond) => time::<DurationMillisecondType>(column, SECOND / 1_000),
        DataType::Duration(TimeUnit::Microsecond) => time::<DurationMicrosecondType>(column, 1_000),
        DataType::Duration(TimeUnit::Nanosecond) => time::<DurationNanosecondType>(column, 1),
        DataType::Utf8 => {
            let values = column.as_string::<i32>();
            or_null(column, move |row, key| key.push_text(values.value(row)))
        }
        DataType::Binary => {
            let values = column.as_binary::<i32>();
            or_null(column, move |row, key| key.push_bytes(values.value(row)))
        }
        other => {
            return Err(EvalError { row: None, message: format!("{} cannot be a key", sql_name(other)) });
        }
    })
}

fn integer<T: ArrowPrimitiveType<Native: Into<i64>>>(column: &ArrayRef) -> Push<'_> {
    let values: &PrimitiveArray<T> = column.as_primitive();
    or_null(column, move |row, key| key.push_i64(values.value(row).into()))
}

/// A time in units of `unit` nanoseconds. Times too far away for nanoseconds share a hash with the last one
/// that is not; keys are told apart by value.
fn time<T: ArrowPrimitiveType<Native: ArrowNativeType + Into<i64>>>(
    column: &ArrayRef,
    unit: i64,
) -> Push<'_> {
    let values: &PrimitiveArray<T> = column.as_primitive();
    or_null(column, move |row, key| key.push_time(Into::<i64>::into(values.value(row)).saturating_mul(unit)))
}

fn or_null<'a>(column: &'a ArrayRef, push: impl Fn(usize, &mut KeyBuf) + 'a) -> Push<'a> {
    if column.null_count() == 0 {
        return Box::new(push);
    }
    Box::new(move |row, key| if column.is_null(row) { key.push_null() } else { push(row, key) })
}
