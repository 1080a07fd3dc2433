//! Whether an expression can meet a row that it cannot take.

use std::sync::Arc;

use datafusion_common::arrow::datatypes::{DataType, Schema};
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal,
    NegativeExpr, NotExpr, TryCastExpr,
};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};

/// Functions that take every row, by their own names. Others are thought to fail: `substr` does for a
/// negative length, `split_part` for field 0, `chr`, `repeat` and `lpad` for large numbers, `abs` for the
/// least integer, `to_timestamp` and `date_trunc` for much. That any of them may make a row too large is left aside.
const TAKE_EVERYTHING: [&str; 30] = [
    "ascii",
    "ascii_lower",
    "btrim",
    "cardinality",
    "character_length",
    "coalesce",
    "concat",
    "concat_ws",
    "contains",
    "ends_with",
    "get_field",
    "isnan",
    "iszero",
    "left",
    "lower",
    "ltrim",
    "make_array",
    "md5",
    "nullif",
    "octet_length",
    "reverse",
    "right",
    "rtrim",
    "starts_with",
    "strpos",
    "upper",
    "words",
    crate::key::WHOLE_NUMBER,
    super::floats::NAME,
    super::growth::JOIN,
];

/// Whether an expression over `schema` can fail for some row. In doubt it can.
pub(crate) fn can_fail(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    by_itself(expr, schema) || expr.children().into_iter().any(|child| can_fail(child, schema))
}

/// The same of its outermost operator alone.
fn by_itself(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let node = expr.as_ref();
    let float = |expr: &Arc<dyn PhysicalExpr>| expr.data_type(schema).is_ok_and(|kind| kind.is_floating());
    if let Some(binary) = node.downcast_ref::<BinaryExpr>() {
        return match binary.op() {
            Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
            | Operator::And
            | Operator::Or
            | Operator::LikeMatch
            | Operator::ILikeMatch
            | Operator::NotLikeMatch
            | Operator::NotILikeMatch
            | Operator::StringConcat => false,
            // Integers and decimals overflow or meet a zero; floats have infinity and NaN.
            Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo => {
                !(float(binary.left()) && float(binary.right()))
            }
            _ => true,
        };
    }
    if let Some(cast) = node.downcast_ref::<CastExpr>() {
        return !cast.expr().data_type(schema).is_ok_and(|from| takes_all(&from, cast.cast_type()));
    }
    if let Some(negative) = node.downcast_ref::<NegativeExpr>() {
        return !float(negative.arg());
    }
    if let Some(function) = node.downcast_ref::<ScalarFunctionExpr>() {
        return !TAKE_EVERYTHING.contains(&function.fun().name());
    }
    let takes_all = node.is::<Column>()
        || node.is::<Literal>()
        || node.is::<NotExpr>()
        || node.is::<IsNullExpr>()
        || node.is::<IsNotNullExpr>()
        || node.is::<LikeExpr>()
        || node.is::<InListExpr>()
        || node.is::<CaseExpr>()
        || node.is::<TryCastExpr>();
    !takes_all
}

/// Whether every value of one type is one of another.
fn takes_all(from: &DataType, to: &DataType) -> bool {
    let text = |kind: &DataType| matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let bits = |kind: &DataType| kind.primitive_width().unwrap_or(0) * 8;
    if from == to || text(from) && text(to) {
        return true;
    }
    let number = |kind: &DataType| kind.is_integer() || kind.is_floating();
    if from.is_integer() && to.is_integer() {
        // A signed type holds an unsigned one that is narrower, and never the other way round.
        let signs = from.is_signed_integer() == to.is_signed_integer() || to.is_signed_integer();
        return signs
            && (bits(from) < bits(to)
                || from.is_signed_integer() == to.is_signed_integer() && bits(from) == bits(to));
    }
    number(from) && to.is_floating()
        || from.is_null()
        || *from == DataType::Boolean && number(to)
        || text(to) && (number(from) || *from == DataType::Boolean)
}
