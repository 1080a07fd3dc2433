//! Values of a column as JSON, for what is not a file of rows.

use std::sync::Arc;

use tuplane_expr::arrow::array::{ArrayRef, RecordBatch};
use tuplane_expr::arrow::datatypes::{Field, Schema};
use tuplane_expr::arrow::error::ArrowError;
use tuplane_expr::arrow::json::WriterBuilder;
use tuplane_expr::arrow::json::writer::LineDelimited;

use crate::sink::TIME;

/// Each value as JSON, written as sinks write it; `null` where there is none. It is not read again: a parser
/// makes floats of decimals, and puts the members of objects in another order.
pub(crate) fn values(column: &ArrayRef) -> Result<Vec<String>, ArrowError> {
    if column.is_empty() {
        return Ok(Vec::new());
    }
    let schema = Arc::new(Schema::new(vec![Field::new("v", column.data_type().clone(), true)]));
    let batch = RecordBatch::try_new(schema, vec![Arc::clone(column)])?;
    let mut text = Vec::new();
    let builder = WriterBuilder::new().with_explicit_nulls(true).with_timestamp_format(TIME.to_owned());
    let mut writer = builder.build::<_, LineDelimited>(&mut text);
    writer.write(&batch)?;
    writer.finish()?;
    let text = String::from_utf8(text).map_err(|error| ArrowError::JsonError(error.to_string()))?;
    let value = |line: &str| {
        let value = line.strip_prefix("{\"v\":").and_then(|rest| rest.strip_suffix('}'));
        value.map(str::to_owned).ok_or_else(|| ArrowError::JsonError(format!("no value in `{line}`")))
    };
    // A line end inside a value is escaped.
    text.lines().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tuplane_expr::arrow::array::{
        Array, Decimal128Array, Float64Array, Int64Array, StringArray, StructArray, TimestampNanosecondArray,
    };

    fn written(column: impl Array + 'static) -> Vec<String> {
        let column: ArrayRef = Arc::new(column);
        values(&column).unwrap()
    }

    #[test]
    fn values_are_written_as_they_are() {
        let decimals = Decimal128Array::from(vec![Some(1_234_567_890_123_456_781_234), None]);
        let decimals = decimals.with_precision_and_scale(38, 4).unwrap();
        assert_eq!(written(decimals.clone()), ["123456789012345678.1234", "null"]);
        let texts = StringArray::from(vec![Some("a\n\"}b"), None, Some("\r\u{2028}")]);
        assert_eq!(written(texts), [r#""a\n\"}b""#, "null", "\"\\r\u{2028}\""]);
        assert_eq!(written(Float64Array::from(vec![1.5, f64::NAN])), ["1.5", "null"]);
        assert_eq!(written(TimestampNanosecondArray::from(vec![1])), [r#""1970-01-01T00:00:00.000000001Z""#]);
        assert_eq!(written(StringArray::from(Vec::<&str>::new())), Vec::<String>::new());
        let member = |name: &str, kind: &ArrayRef| Arc::new(Field::new(name, kind.data_type().clone(), true));
        let (price, id): (ArrayRef, ArrayRef) =
            (Arc::new(decimals), Arc::new(Int64Array::from(vec![Some(2), None])));
        let object = StructArray::from(vec![(member("z", &price), price), (member("a", &id), id)]);
        assert_eq!(written(object), [r#"{"z":123456789012345678.1234,"a":2}"#, r#"{"z":null,"a":null}"#]);
    }
}
