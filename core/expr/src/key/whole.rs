//! Doubles as the integers that they are equal to, for keys of which the other side is an integer.

use std::sync::{Arc, LazyLock};

use datafusion_common::Result;
use datafusion_common::arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use datafusion_common::arrow::compute::cast;
use datafusion_common::arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use datafusion_common::config::ConfigOptions;
use datafusion_common::utils::take_function_args;
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion_physical_expr::ScalarFunctionExpr;

use crate::sql::Compiled;

/// The function's name, which no expression can call.
pub(crate) const NAME: &str = "whole_number";

/// A key's column of floats as the integers of type `to` (64 bits) that they are equal to; null for all others.
pub(super) fn whole(key: Compiled, to: &DataType) -> Compiled {
    static SIGNED: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Whole::function(DataType::Int64));
    static UNSIGNED: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Whole::function(DataType::UInt64));
    let function = if *to == DataType::UInt64 { &UNSIGNED } else { &SIGNED };
    let field = Arc::new(key.field.as_ref().clone().with_data_type(to.clone()).with_nullable(true));
    let (function, options) = (Arc::clone(function), Arc::new(ConfigOptions::default()));
    let expr = ScalarFunctionExpr::new(NAME, function, vec![key.expr], Arc::clone(&field), options);
    Compiled { expr: Arc::new(expr), field }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Whole {
    signature: Signature,
    to: DataType,
}

impl Whole {
    fn function(to: DataType) -> Arc<ScalarUDF> {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::from(Self { signature, to }))
    }
}

impl ScalarUDFImpl for Whole {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [argument] = take_function_args(NAME, args.args)?;
        let values = cast(&argument.into_array(args.number_rows)?, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        Ok(ColumnarValue::Array(match self.to {
            DataType::UInt64 => each::<UInt64Type>(values, unsigned),
            _ => each::<Int64Type>(values, signed),
        }))
    }
}

fn each<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<Float64Type>,
    of: impl Fn(f64) -> Option<T::Native>,
) -> ArrayRef {
    Arc::new(values.unary_opt::<_, T>(of))
}

/// 2^63 and 2^64, which doubles have and the types that end just before them have not.
const END_OF_SIGNED: f64 = 9_223_372_036_854_775_808.0;
const END_OF_UNSIGNED: f64 = 18_446_744_073_709_551_616.0;

fn signed(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && (-END_OF_SIGNED..END_OF_SIGNED).contains(&value)).then_some(value as i64)
}

fn unsigned(value: f64) -> Option<u64> {
    (value.fract() == 0.0 && (0.0..END_OF_UNSIGNED).contains(&value)).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ends_of_the_types() {
        let signed_cases = [
            (-END_OF_SIGNED, Some(i64::MIN)),
            (END_OF_SIGNED, None),
            (END_OF_SIGNED.next_down(), Some(i64::MAX - 1023)),
            (-0.0, Some(0)),
            (0.5, None),
            (f64::NAN, None),
            (f64::NEG_INFINITY, None),
        ];
        for (value, expected) in signed_cases {
            assert_eq!(signed(value), expected, "{value}");
        }
        let unsigned_cases = [
            (-0.0, Some(0)),
            (-1.0, None),
            (END_OF_UNSIGNED, None),
            (END_OF_UNSIGNED.next_down(), Some(u64::MAX - 2047)),
            (f64::INFINITY, None),
        ];
        for (value, expected) in unsigned_cases {
            assert_eq!(unsigned(value), expected, "{value}");
        }
    }

    proptest! {
        #[test]
        fn an_integer_is_found_exactly_if_it_is_the_double(value: i64, bits: u64) {
            // Most integers are not doubles; their nearest doubles are integers, if not the same ones.
            let near = value as f64;
            prop_assert_eq!(signed(near).map(i128::from), (near < END_OF_SIGNED).then_some(near as i128));
            let any = f64::from_bits(bits);
            prop_assert_eq!(signed(any).map(|whole| whole as f64), signed(any).map(|_| any + 0.0));
        }
    }
}
