//! Constants that would grow without bound when they are computed at check: refused beforehand.

use std::ops::ControlFlow;

use datafusion_common::arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{DataFusionError, ScalarValue, plan_err};
use datafusion_expr::Expr;

/// Values of a list, or characters of a text, that a constant may have.
const MOST: i128 = 1_000_000;

/// Refuses a constant call such as `range(0, 150000000)`, which would be computed, and kept whole, each
/// time the job is checked. `simplify` folds one argument, so that `1000 * 1000 * 1000` counts too;
/// inner calls are looked at before outer ones, so no argument is folded before it is known to be small.
pub(super) fn constants(
    expr: &Expr,
    simplify: impl Fn(Expr) -> Result<Expr, DataFusionError>,
) -> Result<(), DataFusionError> {
    let mut calls = Vec::new();
    expr.apply(|node| {
        if let Expr::ScalarFunction(call) = node {
            calls.push(call);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    // Parents come before their children in this order.
    for call in calls.into_iter().rev() {
        let Some(growth) = growth(call.name()) else { continue };
        let mut values = Vec::with_capacity(call.args.len());
        let folded = call.args.iter().try_for_each(|arg| match simplify(arg.clone()) {
            Ok(Expr::Literal(value, _)) => {
                values.push(value);
                ControlFlow::Continue(())
            }
            // Not a constant, or one that cannot be computed: planning says what is wrong with it.
            _ => ControlFlow::Break(()),
        });
        if folded.is_break() {
            continue;
        }
        let size = growth(&values).unwrap_or(0);
        if size > MOST {
            return plan_err!(
                "the constant `{}` would have {size} values or characters; at most {MOST} are computed ahead",
                call.name()
            );
        }
    }
    Ok(())
}

/// How large a result is, from the arguments; `None` where they do not say.
type Growth = fn(&[ScalarValue]) -> Option<i128>;

/// How a function's result grows; `None` for one whose result does not.
fn growth(name: &str) -> Option<Growth> {
    Some(match name {
        "range" | "generate_series" => series,
        "repeat" | "array_repeat" | "list_repeat" => |args| {
            let (item, times) = (args.first()?, number(args.get(1)?)?);
            Some(length(item).max(1).saturating_mul(times))
        },
        "lpad" | "rpad" | "array_resize" | "list_resize" => |args| number(args.get(1)?),
        _ => return None,
    })
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
fn length(value: &ScalarValue) -> i128 {
    value.try_as_str().flatten().map_or(1, |text| text.len() as i128)
}
