//! Values that operators and functions would give a wrong result of, and are errors of their row instead; and
//! constant arguments with which a function fails for every row, which are faults of the job.

use std::sync::{Arc, LazyLock};

use datafusion_common::arrow::array::{Array, AsArray, RecordBatch, RecordBatchOptions};
use datafusion_common::arrow::compute::cast;
use datafusion_common::arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema};
use datafusion_common::config::ConfigOptions;
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, ScalarValue, exec_err, plan_datafusion_err, plan_err};
use datafusion_expr::{
    ColumnarValue, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion_physical_expr::expressions::{BinaryExpr, Literal};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};

type Node = Arc<dyn PhysicalExpr>;

/// The name of what looks at how far bits are to be shifted; no expression can call it.
const SHIFT: &str = "within_bits";

/// Arguments that a function takes as constants alone, by its name, counted from 0.
const CONSTANT: [(&str, usize); 5] =
    [("date_trunc", 0), ("date_part", 0), ("encode", 1), ("decode", 1), ("from_unixtime", 1)];

/// The same operator or call, with what it would give a wrong result of as an error; `None` if it needs nothing.
pub(super) fn guarded(node: &Node, schema: &Schema) -> Option<Result<Node>> {
    if let Some(pair) = node.downcast_ref::<BinaryExpr>().filter(|pair| is_shift(*pair.op())) {
        let bits = pair.left().data_type(schema).ok()?.primitive_width()? * 8;
        let field = pair.right().return_field(schema).ok()?;
        let options = Arc::new(ConfigOptions::default());
        let by = ScalarFunctionExpr::new(
            SHIFT,
            Within::function(bits),
            vec![Arc::clone(pair.right())],
            field,
            options,
        );
        return Some(Ok(Arc::new(BinaryExpr::new(Arc::clone(pair.left()), *pair.op(), Arc::new(by)))));
    }
    let call = node.downcast_ref::<ScalarFunctionExpr>()?;
    if !matches!(call.fun().name(), "date_trunc" | "date_bin") {
        return None;
    }
    Some(call.return_field(schema).map(|field| {
        let function = Arc::new(ScalarUDF::from(Floor { inner: call.fun().clone() }));
        let options = Arc::new(call.config_options().clone());
        Arc::new(ScalarFunctionExpr::new(call.name(), function, call.args().to_vec(), field, options)) as _
    }))
}

/// Whether an operator moves bits.
pub(super) fn is_shift(op: Operator) -> bool {
    matches!(op, Operator::BitwiseShiftLeft | Operator::BitwiseShiftRight)
}

/// Refuses constant arguments with which every row fails: a regular expression that cannot be compiled, and a
/// column where a function takes a constant alone.
pub(super) fn never_works(node: &Node, schema: &Schema) -> Result<()> {
    if let Some(pair) = node.downcast_ref::<BinaryExpr>() {
        use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
        if matches!(pair.op(), RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch)
            && pair.right().is::<Literal>()
        {
            let nothing: Node = Arc::new(Literal::new(any(&pair.left().data_type(schema)?)?));
            let none = Arc::new(Schema::empty());
            let row = RecordBatchOptions::new().with_row_count(Some(1));
            let row = RecordBatch::try_new_with_options(none, Vec::new(), &row)?;
            let tried = BinaryExpr::new(nothing, *pair.op(), Arc::clone(pair.right())).evaluate(&row);
            compiled(tried)?;
        }
        return Ok(());
    }
    let Some(call) = node.downcast_ref::<ScalarFunctionExpr>() else { return Ok(()) };
    let name = call.fun().name();
    for (_, at) in CONSTANT.iter().filter(|(function, _)| *function == name) {
        if call.args().get(*at).is_some_and(|arg| !arg.is::<Literal>()) {
            return plan_err!("argument {} of `{name}` must be a constant, not one of each row", at + 1);
        }
    }
    if name.starts_with("regexp_") && call.args().get(1).is_some_and(|pattern| pattern.is::<Literal>()) {
        let (mut args, mut arg_fields) = (Vec::new(), Vec::<FieldRef>::new());
        for arg in call.args() {
            let value = match arg.downcast_ref::<Literal>() {
                Some(literal) => literal.value().clone(),
                None => any(&arg.data_type(schema)?)?,
            };
            arg_fields.push(Arc::new(Field::new("argument", value.data_type(), true)));
            args.push(ColumnarValue::Scalar(value));
        }
        let config_options = Arc::new(call.config_options().clone());
        let return_field = call.return_field(schema)?;
        let tried = call.fun().invoke_with_args(ScalarFunctionArgs {
            args,
            arg_fields,
            number_rows: 1,
            return_field,
            config_options,
        });
        compiled(tried)?;
    }
    Ok(())
}

/// Whether a regular expression could be compiled.
fn compiled(tried: Result<ColumnarValue>) -> Result<()> {
    tried.map(drop).map_err(|error| {
        let said = error.to_string();
        if said.contains("CompiledTooBig") || said.contains("size limit") {
            return plan_datafusion_err!(
                "the regular expression is too large: compiled it takes more than 10 MiB"
            );
        }
        error
    })
}

/// Some value that a pattern can be tried on: an empty text, the number 1.
fn any(kind: &DataType) -> Result<ScalarValue> {
    let value = if kind.is_numeric() { ScalarValue::Int64(Some(1)) } else { ScalarValue::from("") };
    value.cast_to(kind)
}

/// Numbers of bits that a value of so many has.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Within {
    signature: Signature,
    bits: usize,
}

impl Within {
    fn function(bits: usize) -> Arc<ScalarUDF> {
        static SIGNATURE: LazyLock<Signature> = LazyLock::new(|| Signature::any(1, Volatility::Immutable));
        Arc::new(ScalarUDF::from(Self { signature: SIGNATURE.clone(), bits }))
    }
}

impl ScalarUDFImpl for Within {
    fn name(&self) -> &'static str {
        SHIFT
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let [kind] = take_function_args(SHIFT, arguments)?;
        Ok(kind.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [by] = take_function_args(SHIFT, args.args)?;
        let values = match &by {
            ColumnarValue::Array(values) => Arc::clone(values),
            ColumnarValue::Scalar(value) => value.to_array()?,
        };
        // What no bigint is becomes null, and lies outside.
        let numbers = cast(&values, &DataType::Int64)?;
        let numbers = numbers.as_primitive::<Int64Type>();
        for row in 0..numbers.len() {
            if values.is_valid(row)
                && (numbers.is_null(row) || !(0..self.bits as i64).contains(&numbers.value(row)))
            {
                let by = ScalarValue::try_from_array(&values, row)?;
                return exec_err!(
                    "{} bits cannot be shifted by {by}; from 0 to {} can",
                    self.bits,
                    self.bits - 1
                );
            }
        }
        Ok(by)
    }
}

/// A function that gives the last of some instants which is not after its second argument: one that comes out later
/// has wrapped.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Floor {
    inner: ScalarUDF,
}

impl ScalarUDFImpl for Floor {
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
        let (given, rows) = (args.args.get(1).cloned(), args.number_rows);
        let result = self.inner.invoke_with_args(args)?;
        let Some(given) = given.filter(|given| given.data_type() == result.data_type()) else {
            return Ok(result);
        };
        let numbers =
            |value: &ColumnarValue| cast(&value.to_array(rows)?, &DataType::Int64).map_err(Into::into);
        let numbers: [Result<_>; 2] = [numbers(&given), numbers(&result)];
        let [before, after] = numbers;
        let (before, after) = (before?, after?);
        let (before, after) = (before.as_primitive::<Int64Type>(), after.as_primitive::<Int64Type>());
        if before.iter().zip(after).any(|(before, after)| before.zip(after).is_some_and(|(b, a)| a > b)) {
            return exec_err!("the result of `{}` is too far away for a timestamp", self.name());
        }
        Ok(result)
    }
}
