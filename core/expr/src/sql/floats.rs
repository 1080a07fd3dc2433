//! Floats in expressions: NaN has one form, which is greater than all numbers, and the two zeros are equal where
//! `DataFusion` takes them for two.

use std::sync::{Arc, LazyLock};

use datafusion_common::arrow::array::{Array, ArrayRef, AsArray};
use datafusion_common::arrow::datatypes::{DataType, Float32Type, Float64Type, Schema};
use datafusion_common::config::ConfigOptions;
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion_physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, Literal, NegativeExpr, TryCastExpr, in_list,
};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use crate::aggregate::one_float_form;

/// The function's name, which no expression can call.
pub(super) const NAME: &str = "one_float_form";

/// Functions of values that they only choose from, or compare.
const COMPARE: [&str; 3] = ["greatest", "least", "nullif"];

type Node = Arc<dyn PhysicalExpr>;

/// The same expression with the floats that it makes, or compares, in one form; `None` where that changes nothing.
/// A processor sets the sign of the NaN that it makes, and such a one would be less than all numbers.
pub(super) fn in_one_form(node: &Node, schema: &Schema) -> Option<Result<Node>> {
    if let Some(case) = node.downcast_ref::<CaseExpr>() {
        let base = case.expr().filter(|base| is_float(base, schema))?;
        let whens = case.when_then_expr().iter();
        let whens = whens.map(|(when, then)| (one_form(when, schema), Arc::clone(then))).collect();
        let case = CaseExpr::try_new(Some(one_form(base, schema)), whens, case.else_expr().cloned());
        return Some(case.map(|case| Arc::new(case) as _));
    }
    if let Some(within) = node.downcast_ref::<InListExpr>() {
        let value = Some(within.expr()).filter(|value| is_float(value, schema))?;
        let list = within.list().iter().map(|one| one_form(one, schema)).collect();
        return Some(in_list(one_form(value, schema), list, &within.negated(), schema));
    }
    if let Some(pair) = node.downcast_ref::<BinaryExpr>()
        && pair.op().supports_propagation()
        && [pair.left(), pair.right()].into_iter().any(|side| side.is::<Column>() && is_float(side, schema))
    {
        let (left, right) = (one_form(pair.left(), schema), one_form(pair.right(), schema));
        return Some(Ok(Arc::new(BinaryExpr::new(left, *pair.op(), right))));
    }
    if !is_float(node, schema) {
        return None;
    }
    if let Some(call) = node.downcast_ref::<ScalarFunctionExpr>()
        && COMPARE.contains(&call.fun().name())
    {
        let args = call.args().iter().map(|arg| one_form(arg, schema)).collect();
        return Some(call.return_field(schema).map(|field| {
            let (function, options) = (Arc::new(call.fun().clone()), Arc::new(call.config_options().clone()));
            Arc::new(ScalarFunctionExpr::new(call.name(), function, args, field, options)) as _
        }));
    }
    // What arithmetic makes of another NaN is another one, so that only its last result matters.
    if let Some(pair) = node.downcast_ref::<BinaryExpr>() {
        let pair = BinaryExpr::new(bare(pair.left()), *pair.op(), bare(pair.right()));
        return Some(Ok(call(&(Arc::new(pair) as Node), false, schema)));
    }
    let makes = node.is::<NegativeExpr>()
        || node.is::<CastExpr>()
        || node.is::<TryCastExpr>()
        || node.is::<ScalarFunctionExpr>()
        || node.is::<Literal>();
    makes.then(|| Ok(call(node, false, schema)))
}

/// What an arithmetic operator would be given without [`in_one_form`].
fn bare(node: &Node) -> Node {
    match node.downcast_ref::<ScalarFunctionExpr>() {
        Some(call) if call.fun().name() == NAME && call.args()[0].is::<BinaryExpr>() => {
            Arc::clone(&call.args()[0])
        }
        _ => Arc::clone(node),
    }
}

fn is_float(node: &Node, schema: &Schema) -> bool {
    node.data_type(schema).is_ok_and(|kind| matches!(kind, DataType::Float32 | DataType::Float64))
}

/// A float with one NaN and one zero; another value as it is.
fn one_form(node: &Node, schema: &Schema) -> Node {
    if is_float(node, schema) { call(node, true, schema) } else { Arc::clone(node) }
}

fn call(node: &Node, zeros: bool, schema: &Schema) -> Node {
    static NANS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| OneForm::function(false));
    static ALL: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| OneForm::function(true));
    if let Some(literal) = node.downcast_ref::<Literal>() {
        let value = match literal.value() {
            ScalarValue::Float32(Some(value)) => ScalarValue::Float32(Some(match *value {
                value if value.is_nan() => f32::NAN,
                value if zeros => value + 0.0,
                value => value,
            })),
            ScalarValue::Float64(Some(value)) => ScalarValue::Float64(Some(match *value {
                value if value.is_nan() => f64::NAN,
                value if zeros => value + 0.0,
                value => value,
            })),
            other => other.clone(),
        };
        return Arc::new(Literal::new(value));
    }
    let Ok(field) = node.return_field(schema) else { return Arc::clone(node) };
    let function = Arc::clone(if zeros { &ALL } else { &NANS });
    let options = Arc::new(ConfigOptions::default());
    Arc::new(ScalarFunctionExpr::new(NAME, function, vec![Arc::clone(node)], field, options))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OneForm {
    signature: Signature,
    zeros: bool,
}

impl OneForm {
    fn function(zeros: bool) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::from(Self { signature: Signature::any(1, Volatility::Immutable), zeros }))
    }
}

impl ScalarUDFImpl for OneForm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let [kind] = take_function_args(NAME, arguments)?;
        Ok(kind.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = take_function_args(NAME, args.args)?;
        Ok(match value {
            ColumnarValue::Array(values) if has_others(&values, self.zeros) => {
                ColumnarValue::Array(one_float_form(&values))
            }
            ColumnarValue::Scalar(value) => {
                let one = one_float_form(&value.to_array()?);
                ColumnarValue::Scalar(ScalarValue::try_from_array(&one, 0)?)
            }
            same @ ColumnarValue::Array(_) => same,
        })
    }
}

/// Whether some value has its sign set and is NaN or, if they count, zero: most columns have none and stay.
fn has_others(values: &ArrayRef, zeros: bool) -> bool {
    const MINUS: u64 = 1 << 63;
    const MINUS_32: u32 = 1 << 31;
    match values.data_type() {
        DataType::Float64 => {
            let infinite = f64::NEG_INFINITY.to_bits();
            let values = values.as_primitive::<Float64Type>().values();
            values.iter().any(|value| value.to_bits() > infinite || zeros && value.to_bits() == MINUS)
        }
        DataType::Float32 => {
            let infinite = f32::NEG_INFINITY.to_bits();
            let values = values.as_primitive::<Float32Type>().values();
            values.iter().any(|value| value.to_bits() > infinite || zeros && value.to_bits() == MINUS_32)
        }
        _ => false,
    }
}
