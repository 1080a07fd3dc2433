//! Functions whose results grow with what they are given: a row's that is too large is refused before it is made, and
//! rows are worked on so many at a time that the results of a batch stay small.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use datafusion_common::arrow::array::{Array, AsArray, RecordBatch};
use datafusion_common::arrow::compute::kernels::concat_elements::concat_elements_dyn;
use datafusion_common::arrow::compute::{cast, max, min};
use datafusion_common::arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema, TimeUnit};
use datafusion_common::config::ConfigOptions;
use datafusion_common::utils::take_function_args;
use datafusion_common::{DataFusionError, Result, ScalarValue, exec_err};
use datafusion_expr::{
    ColumnarValue, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion_physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use tuplane_core::job::MAX_ROW;

use crate::program::slice_bytes;

/// Bytes that such results of one batch may have together, unless one row has more.
const MOST_BATCH: i128 = 8 << 20;

/// So many rows go together where it cannot be said how large their results are.
const UNKNOWN: usize = 16;

/// How a result grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Growth {
    /// A list from a start to a stop.
    Series,
    /// Something so many times, as a list or as a text.
    Times { list: bool },
    /// A length, of a list or of a text.
    To { list: bool },
    /// All arguments one after another.
    Joined,
    /// A text with something in place of each of some parts.
    Replaced,
}

impl Growth {
    /// How a function's result grows; `None` for one whose result does not.
    pub(super) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "range" | "generate_series" => Self::Series,
            "repeat" => Self::Times { list: false },
            "array_repeat" | "list_repeat" => Self::Times { list: true },
            "lpad" | "rpad" => Self::To { list: false },
            "array_resize" | "list_resize" => Self::To { list: true },
            "concat" | "concat_ws" | "array_concat" | "make_array" | "struct" | "named_struct" | JOIN => {
                Self::Joined
            }
            "replace" => Self::Replaced,
            _ => return None,
        })
    }

    /// It makes much of numbers, and not of what it is given.
    pub(super) fn is_of_numbers(self) -> bool {
        !matches!(self, Self::Joined | Self::Replaced)
    }

    /// Values of the list or characters of the text that it makes of these; `None` where they do not say.
    pub(super) fn size(self, args: &[ScalarValue]) -> Option<i128> {
        match self {
            Self::Series => series(args),
            Self::Times { .. } => {
                let (item, times) = (args.first()?, number(args.get(1)?)?);
                Some(length(item).max(1).saturating_mul(times))
            }
            Self::To { .. } => number(args.get(1)?),
            Self::Joined => Some(args.iter().map(length).sum()),
            Self::Replaced => {
                let text = |at: usize| args.get(at).and_then(ScalarValue::try_as_str).flatten();
                let (whole, from, to) = (text(0)?, text(1)?, text(2)?);
                let more = (to.len() as i128 - from.len() as i128).max(0);
                Some(whole.len() as i128 + more * whole.matches(from).count() as i128)
            }
        }
    }

    /// About how many bytes one of so many values or characters has.
    fn bytes(self, size: i128) -> i128 {
        let each = match self {
            Self::Series | Self::Times { list: true } | Self::To { list: true } => 8,
            Self::Times { list: false } | Self::To { list: false } | Self::Joined | Self::Replaced => 1,
        };
        size.max(0).saturating_mul(each)
    }

    /// A size that no row exceeds; `None` where that cannot be said at once.
    fn at_most(self, args: &[ColumnarValue]) -> Option<i128> {
        Some(match self {
            Self::Series => {
                let ends = args.iter().take(2).map(most).collect::<Option<Vec<_>>>()?;
                ends.into_iter().sum::<i128>() + 1
            }
            Self::Times { .. } => longest(args.first()?)?.max(1).saturating_mul(most(args.get(1)?)?),
            Self::To { .. } => most(args.get(1)?)?,
            Self::Joined => args.iter().map(whole_bytes).sum(),
            Self::Replaced => {
                (longest(args.first()?)? + 1).saturating_mul((longest(args.get(2)?)? + 1).max(1))
            }
        })
    }

    /// About how many bytes the result of a row has.
    fn of_row(self, args: &[ColumnarValue], row: usize) -> Result<i128> {
        if self == Self::Joined {
            return Ok(args.iter().map(|arg| row_bytes(arg, row)).sum());
        }
        let values = args.iter().map(|arg| match arg {
            ColumnarValue::Scalar(value) => Ok(value.clone()),
            ColumnarValue::Array(values) => ScalarValue::try_from_array(values, row),
        });
        Ok(self.bytes(self.size(&values.collect::<Result<Vec<_>>>()?).unwrap_or(0)))
    }
}

/// The greatest number of a column, without its sign.
fn most(arg: &ColumnarValue) -> Option<i128> {
    match arg {
        ColumnarValue::Scalar(value) => number(value).map(i128::abs),
        ColumnarValue::Array(values) if values.data_type().is_integer() => {
            let values = cast(values, &DataType::Int64).ok()?;
            let values = values.as_primitive::<Int64Type>();
            let ends = [min(values), max(values)];
            Some(ends.into_iter().flatten().map(|end| i128::from(end).abs()).max().unwrap_or(0))
        }
        ColumnarValue::Array(_) => None,
    }
}

/// The length of the longest text of a column; of other values it is 1.
fn longest(arg: &ColumnarValue) -> Option<i128> {
    match arg {
        ColumnarValue::Scalar(value) => Some(length(value)),
        ColumnarValue::Array(values) => match values.data_type() {
            DataType::Utf8 => {
                let offsets = values.as_string::<i32>().value_offsets();
                Some(offsets.windows(2).map(|pair| i128::from(pair[1] - pair[0])).max().unwrap_or(0))
            }
            kind if kind.is_primitive() => Some(1),
            _ => None,
        },
    }
}

/// Bytes of a whole column.
fn whole_bytes(arg: &ColumnarValue) -> i128 {
    match arg {
        ColumnarValue::Array(values) => slice_bytes(values) as i128,
        scalar @ ColumnarValue::Scalar(_) => row_bytes(scalar, 0),
    }
}

/// Bytes of a row's value.
fn row_bytes(arg: &ColumnarValue, row: usize) -> i128 {
    match arg {
        ColumnarValue::Array(values) => slice_bytes(&values.slice(row, 1)) as i128,
        ColumnarValue::Scalar(value) => match value.try_as_str() {
            Some(text) => text.map_or(0, str::len) as i128,
            None => value.size() as i128,
        },
    }
}

/// The name of `||` of two texts as a function, which no expression can call.
pub(super) const JOIN: &str = "||";

/// `||` of two texts as a function, so that it can be bounded as others are.
pub(super) fn joined(pair: &BinaryExpr, schema: &Schema) -> Option<Result<Arc<dyn PhysicalExpr>>> {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        let inner = ScalarUDF::from(Join { signature: Signature::any(2, Volatility::Immutable) });
        Arc::new(ScalarUDF::from(Bounded { inner }))
    });
    let text = |side: &Arc<dyn PhysicalExpr>| {
        side.data_type(schema).is_ok_and(|kind| matches!(kind, DataType::Utf8 | DataType::Utf8View))
    };
    let kind = pair.left().data_type(schema).ok()?;
    let same = pair.right().data_type(schema).is_ok_and(|other| other == kind);
    if *pair.op() != Operator::StringConcat || !text(pair.left()) || !same {
        return None;
    }
    let field = Arc::new(Field::new(JOIN, kind, true));
    let args = vec![Arc::clone(pair.left()), Arc::clone(pair.right())];
    let options = Arc::new(ConfigOptions::default());
    Some(Ok(Arc::new(ScalarFunctionExpr::new(JOIN, Arc::clone(&FUNCTION), args, field, options))))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Join {
    signature: Signature,
}

impl ScalarUDFImpl for Join {
    fn name(&self) -> &'static str {
        JOIN
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let [left, _] = take_function_args(JOIN, arguments)?;
        Ok(left.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = take_function_args(JOIN, args.args)?;
        let (left, right) = (left.into_array(args.number_rows)?, right.into_array(args.number_rows)?);
        Ok(ColumnarValue::Array(concat_elements_dyn(&left, &right)?))
    }
}

/// How often the column that is copied most often stands in these expressions: what they make of rows has no more
/// bytes than so many times the rows have, but for what grows otherwise.
pub(crate) fn copies<'a>(exprs: impl IntoIterator<Item = &'a Arc<dyn PhysicalExpr>>) -> usize {
    fn count(expr: &Arc<dyn PhysicalExpr>, found: &mut BTreeMap<usize, usize>) {
        if let Some(column) = expr.downcast_ref::<Column>() {
            *found.entry(column.index()).or_default() += 1;
        }
        expr.children().into_iter().for_each(|child| count(child, found));
    }
    let mut found = BTreeMap::new();
    exprs.into_iter().for_each(|expr| count(expr, &mut found));
    found.into_values().max().unwrap_or(0)
}

/// One of these functions, which gives no row a result that no row may have.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: ScalarUDF,
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(arguments)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let most = i128::from(MAX_ROW);
        if let Some(growth) = Growth::of(self.name())
            && growth.at_most(&args.args).is_none_or(|size| growth.bytes(size) > most)
        {
            for row in 0..args.number_rows {
                let bytes = growth.of_row(&args.args, row)?;
                if bytes > most {
                    return exec_err!(
                        "`{}` would make {bytes} bytes of a row, which has {} MiB at most",
                        self.name(),
                        most >> 20
                    );
                }
            }
        }
        self.inner.invoke_with_args(args)
    }
}

/// The same call, bounded; `None` if its function needs no bound.
pub(super) fn bounded(
    call: &ScalarFunctionExpr,
    schema: &Schema,
) -> Option<Result<Arc<dyn PhysicalExpr>, DataFusionError>> {
    Growth::of(call.fun().name())?;
    Some(call.return_field(schema).map(|field| {
        let function = Arc::new(ScalarUDF::from(Bounded { inner: call.fun().clone() }));
        let config = Arc::new(call.config_options().clone());
        Arc::new(ScalarFunctionExpr::new(call.name(), function, call.args().to_vec(), field, config)) as _
    }))
}

/// Calls in an expression whose results may be large, inner ones first.
fn calls<'a>(expr: &'a Arc<dyn PhysicalExpr>, found: &mut Vec<(Growth, &'a ScalarFunctionExpr)>) {
    expr.children().into_iter().for_each(|child| calls(child, found));
    if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>()
        && let Some(growth) = Growth::of(call.fun().name())
    {
        let constant = |at: usize| {
            let literal = call.args().get(at).and_then(|arg| arg.downcast_ref::<Literal>());
            literal.and_then(|literal| number(literal.value()))
        };
        let small = match growth {
            Growth::Series => false,
            Growth::Times { .. } => constant(1).is_some_and(|times| times <= 64),
            Growth::To { .. } => constant(1).is_some_and(|length| length <= 1024),
            // As large as its arguments are.
            Growth::Joined => true,
            Growth::Replaced => {
                let to = call.args().get(2).and_then(|arg| arg.downcast_ref::<Literal>());
                to.is_some_and(|to| length(to.value()) <= 8)
            }
        };
        if !small {
            found.push((growth, call));
        }
    }
}

/// Whether an expression may make much of little.
pub(crate) fn can_grow(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let mut found = Vec::new();
    calls(expr, &mut found);
    !found.is_empty()
}

/// How many rows of a batch, from the first, the expressions are to be computed of at once.
pub(crate) fn fitting_rows<'a>(
    exprs: impl IntoIterator<Item = &'a Arc<dyn PhysicalExpr>>,
    batch: &RecordBatch,
) -> usize {
    let mut found = Vec::new();
    exprs.into_iter().for_each(|expr| calls(expr, &mut found));
    let mut rows = batch.num_rows();
    for (growth, call) in found {
        rows = rows.min(fitting(growth, call, &batch.slice(0, rows)).unwrap_or(UNKNOWN));
    }
    rows.max(1)
}

/// The same of one call; an error where its arguments cannot be computed.
fn fitting(growth: Growth, call: &ScalarFunctionExpr, batch: &RecordBatch) -> Result<usize> {
    let rows = batch.num_rows();
    let args = call.args().iter().map(|arg| arg.evaluate(batch)).collect::<Result<Vec<_>>>()?;
    if growth.at_most(&args).is_some_and(|size| growth.bytes(size) * rows as i128 <= MOST_BATCH) {
        return Ok(rows);
    }
    let mut bytes = 0;
    for row in 0..rows {
        bytes += growth.of_row(&args, row)?;
        if bytes > MOST_BATCH {
            return Ok(row);
        }
    }
    Ok(rows)
}

/// Values from a start to a stop.
fn series(args: &[ScalarValue]) -> Option<i128> {
    let (start, stop, step) = match args {
        [stop] => (0, number(stop)?, 1),
        [start, stop] => (number(start)?, number(stop)?, 1),
        [start, stop, step, ..] => (number(start)?, number(stop)?, number(step)?),
        [] => return None,
    };
    // A step of nothing is the function's own error.
    (stop - start).checked_div(step).map(|values| values.max(0) + 1)
}

/// An integer as it is; an instant, a date or an interval in nanoseconds.
fn number(value: &ScalarValue) -> Option<i128> {
    const DAY: i128 = 86_400 * 1_000_000_000;
    match value {
        ScalarValue::IntervalYearMonth(Some(months)) => Some(i128::from(*months) * 30 * DAY),
        ScalarValue::IntervalDayTime(Some(time)) => {
            Some(i128::from(time.days) * DAY + i128::from(time.milliseconds) * 1_000_000)
        }
        ScalarValue::IntervalMonthDayNano(Some(time)) => {
            let days = i128::from(time.months) * 30 + i128::from(time.days);
            Some(days * DAY + i128::from(time.nanoseconds))
        }
        ScalarValue::Date32(Some(days)) => Some(i128::from(*days) * DAY),
        other => {
            let to = match other.data_type() {
                DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Nanosecond, zone),
                _ => DataType::Int64,
            };
            match other.cast_to(&to).ok()? {
                ScalarValue::Int64(Some(number)) | ScalarValue::TimestampNanosecond(Some(number), _) => {
                    Some(i128::from(number))
                }
                _ => None,
            }
        }
    }
}

/// Characters of a text; anything else is one value.
pub(super) fn length(value: &ScalarValue) -> i128 {
    value.try_as_str().flatten().map_or(1, |text| text.len() as i128)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion_common::arrow::array::{Int32Array, Int64Array, StringArray};
    use proptest::prelude::*;

    fn text(values: &[&str]) -> ColumnarValue {
        ColumnarValue::Array(Arc::new(StringArray::from(values.to_vec())))
    }

    proptest! {
        /// What is said of all rows at once is never less than what is said of one.
        #[test]
        fn no_row_is_larger_than_is_said(
            rows in prop::collection::vec((-9i64..1 << 40, -1_000_000i32..1_000_000, "[a-z]{0,9}"), 1..9),
        ) {
            let wide: Vec<i64> = rows.iter().map(|row| row.0).collect();
            let narrow: Vec<i32> = rows.iter().map(|row| row.1).collect();
            let texts: Vec<&str> = rows.iter().map(|row| row.2.as_str()).collect();
            let wide = ColumnarValue::Array(Arc::new(Int64Array::from(wide)));
            let narrow = ColumnarValue::Array(Arc::new(Int32Array::from(narrow)));
            let step = ColumnarValue::Scalar(ScalarValue::Int64(Some(-3)));
            for (name, args) in [
                ("range", vec![wide.clone()]),
                ("generate_series", vec![narrow.clone(), wide.clone()]),
                ("range", vec![wide.clone(), narrow.clone(), step]),
                ("repeat", vec![text(&texts), wide.clone()]),
                ("array_repeat", vec![narrow.clone(), wide.clone()]),
                ("lpad", vec![text(&texts), wide]),
                ("array_resize", vec![text(&texts), narrow]),
            ] {
                let growth = Growth::of(name).unwrap();
                let most = growth.bytes(growth.at_most(&args).unwrap());
                for row in 0..rows.len() {
                    prop_assert!(growth.of_row(&args, row).unwrap() <= most, "{name} of row {row}");
                }
            }
        }
    }
}
