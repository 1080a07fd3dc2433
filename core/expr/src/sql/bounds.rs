//! Constants that would grow without bound when they are computed at check, or overflow: refused beforehand.

use std::sync::Arc;

use datafusion_common::arrow::array::{Array, AsArray};
use datafusion_common::arrow::datatypes::{DataType, Schema};
use datafusion_common::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DataFusionError, ScalarValue, plan_err};
use datafusion_expr::{ColumnarValue, Expr, Operator};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, Literal, NegativeExpr};

use super::growth::{Growth, length};
use super::refuse::is_shift;

/// Values of a list, or characters of a text, that a constant may have.
const MOST: i128 = 1_000_000;

/// The same for all arguments together of any other constant call: its result may be small and yet take
/// the product of their sizes to compute.
const MOST_GIVEN: i128 = 20_000;

/// Refuses a constant call such as `range(0, 150000000)`, which would be computed, and kept whole, each
/// time the job is checked, or `levenshtein` of two long texts, which would take minutes. Inner calls are
/// computed before outer ones are looked at, so that no argument is folded before it is known to be small;
/// `simplify` folds what is constant, so that `1000 * 1000 * 1000` counts too.
///
/// Arithmetic of constants is computed as that of rows is: `simplify` takes the overflow of integers for a
/// number.
pub(super) fn constants(
    expr: &Expr,
    simplify: impl Fn(Expr) -> Result<Expr, DataFusionError>,
) -> Result<(), DataFusionError> {
    let folded = |args: &[&Expr]| -> Option<Vec<ScalarValue>> {
        args.iter()
            .map(|arg| match arg {
                Expr::Literal(value, _) => Some(value.clone()),
                arg if arg.any_column_refs() => None,
                arg => match simplify((*arg).clone()) {
                    Ok(Expr::Literal(value, _)) => Some(value),
                    // It cannot be computed: planning says what is wrong with it.
                    _ => None,
                },
            })
            .collect()
    };
    expr.clone()
        .transform_up(|node| match node {
            Expr::ScalarFunction(mut call) => {
                let Some(values) = folded(&call.args.iter().collect::<Vec<_>>()) else {
                    return Ok(Transformed::no(Expr::ScalarFunction(call)));
                };
                if let Some(growth) = Growth::of(call.name()).filter(|growth| growth.is_of_numbers()) {
                    let size = growth.size(&values).unwrap_or(0);
                    if size > MOST {
                        return plan_err!(
                            "the constant `{}` would have {size} values or characters; at most {MOST} are \
                             computed ahead",
                            call.name()
                        );
                    }
                } else {
                    within(call.name(), given(&values), MOST_GIVEN)?;
                }
                call.args = values.into_iter().map(|value| Expr::Literal(value, None)).collect();
                let call = Expr::ScalarFunction(call);
                // A call that stays one is not computed ahead either.
                Ok(Transformed::yes(simplify(call.clone()).unwrap_or(call)))
            }
            Expr::BinaryExpr(ref pair) if super::overflows(pair.op) || is_shift(pair.op) => {
                let Some(values) = folded(&[&pair.left, &pair.right]) else {
                    return Ok(Transformed::no(node));
                };
                let [left, right] = literals(values)?;
                let result = computed(Arc::new(BinaryExpr::new(left, pair.op, right)))?;
                Ok(Transformed::yes(Expr::Literal(result, None)))
            }
            Expr::Negative(ref inner) => {
                let Some(values) = folded(&[&**inner]) else { return Ok(Transformed::no(node)) };
                let [inner] = literals(values)?;
                let result = computed(Arc::new(NegativeExpr::new(inner)))?;
                Ok(Transformed::yes(Expr::Literal(result, None)))
            }
            Expr::BinaryExpr(ref pair) if pair.op == Operator::StringConcat => {
                let Some(values) = folded(&[&pair.left, &pair.right]) else {
                    return Ok(Transformed::no(node));
                };
                within("||", given(&values), MOST)?;
                // Known from here on, so that the next one can be looked at.
                Ok(Transformed::yes(simplify(node.clone()).unwrap_or(node)))
            }
            Expr::BinaryExpr(ref pair) if is_pattern(pair.op) => {
                if let Some(values) = folded(&[&pair.left, &pair.right]) {
                    within(&pair.op.to_string(), given(&values), MOST_GIVEN)?;
                }
                Ok(Transformed::no(node))
            }
            Expr::Like(ref like) | Expr::SimilarTo(ref like) => {
                if let Some(values) = folded(&[&like.expr, &like.pattern]) {
                    within("like", given(&values), MOST_GIVEN)?;
                }
                Ok(Transformed::no(node))
            }
            node => Ok(Transformed::no(node)),
        })
        .map(|_| ())
}

type Node = Arc<dyn PhysicalExpr>;

fn literals<const N: usize>(values: Vec<ScalarValue>) -> Result<[Node; N], DataFusionError> {
    let all: Vec<Node> = values.into_iter().map(|value| Arc::new(Literal::new(value)) as _).collect();
    let given = all.len();
    all.try_into().or_else(|_| plan_err!("{given} constants stand where {N} are worked on"))
}

/// The value of an expression of constants, as a row would have it.
fn computed(expr: Node) -> Result<ScalarValue, DataFusionError> {
    let none = Arc::new(Schema::empty());
    let expr = super::checked(expr, &none)?;
    let row = RecordBatchOptions::new().with_row_count(Some(1));
    match expr.evaluate(&RecordBatch::try_new_with_options(none, Vec::new(), &row)?)? {
        ColumnarValue::Scalar(value) => Ok(value),
        ColumnarValue::Array(values) => ScalarValue::try_from_array(&values, 0),
    }
}

fn within(name: &str, size: i128, most: i128) -> Result<(), DataFusionError> {
    if size > most {
        return plan_err!(
            "the constant `{name}` takes {size} values or characters in; at most {most} are worked on ahead"
        );
    }
    Ok(())
}

/// The right side is searched for in the left one.
fn is_pattern(op: Operator) -> bool {
    use Operator::{
        ILikeMatch, LikeMatch, NotILikeMatch, NotLikeMatch, RegexIMatch, RegexMatch, RegexNotIMatch,
        RegexNotMatch,
    };
    matches!(
        op,
        RegexMatch
            | RegexIMatch
            | RegexNotMatch
            | RegexNotIMatch
            | LikeMatch
            | ILikeMatch
            | NotLikeMatch
            | NotILikeMatch
    )
}

/// Values and characters of all arguments; a list counts by what is in it.
fn given(values: &[ScalarValue]) -> i128 {
    values
        .iter()
        .map(|value| match value {
            ScalarValue::List(list) => items(list.as_ref()),
            ScalarValue::LargeList(list) => items(list.as_ref()),
            ScalarValue::FixedSizeList(list) => items(list.as_ref()),
            ScalarValue::Binary(Some(bytes)) | ScalarValue::LargeBinary(Some(bytes)) => bytes.len() as i128,
            other => length(other),
        })
        .sum()
}

/// The values in lists, of lists in lists all of them.
fn items(list: &dyn Array) -> i128 {
    let inner = match list.data_type() {
        DataType::List(_) => list.as_list::<i32>().values(),
        DataType::LargeList(_) => list.as_list::<i64>().values(),
        DataType::FixedSizeList(..) => list.as_fixed_size_list().values(),
        _ => return list.len() as i128,
    };
    items(inner.as_ref())
}
