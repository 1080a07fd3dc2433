//! Numbers of JSON: one rule for all widths, and every digit of a decimal.

use std::fs;

use tuplane_core::fault::Spanned;
use tuplane_expr::arrow::datatypes::{DataType, Field};
use tuplane_expr::arrow::util::display::array_value_to_string;

use super::*;

/// What becomes of JSON lines with one column `a`: the values, and why others are bad lines.
fn read(kind: &str, data_type: &DataType, format: Format, text: &str) -> (Vec<String>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in");
    let mut file = options(format);
    file.columns = vec![(Spanned::nowhere("a".to_owned()), Spanned::nowhere(kind.to_owned()))];
    let schema = schema(&[("a", data_type.clone())]);
    let (mut values, mut bad) = (Vec::new(), Vec::new());
    let pieces: Vec<&str> =
        if matches!(file.format, Format::Json) { vec![text] } else { text.lines().collect() };
    for piece in pieces {
        fs::write(&path, piece).unwrap();
        let outcome = run(&source(file.clone()), &schema, vec![whole(&path)], 4).unwrap();
        let column = outcome.rows.column(0);
        values.extend((0..column.len()).map(|row| array_value_to_string(column, row).unwrap()));
        bad.extend(outcome.rejected.first.iter().map(|why| why.split("/in:1: ").last().unwrap().to_owned()));
    }
    (values, bad)
}

#[test]
fn whole_numbers_are_read_by_one_rule_whatever_their_width() {
    let lines = "{\"a\": 5}\n{\"a\": \"5\"}\n{\"a\": 5.0}\n{\"a\": 9e99}\n{\"a\": true}\n{\"a\": null}";
    for (kind, data_type) in [
        ("bigint", DataType::Int64),
        ("int", DataType::Int32),
        ("smallint", DataType::Int16),
        ("tinyint", DataType::Int8),
    ] {
        let (values, bad) = read(kind, &data_type, Format::Jsonl, lines);
        assert_eq!(values, ["5", ""], "{kind}");
        let number =
            format!("column `a`: a number with a fraction or beyond 64 bits where type {kind} is expected");
        assert_eq!(bad[0], format!("column `a`: a text where type {kind} is expected"));
        assert_eq!((&bad[1], &bad[2]), (&number, &number));
        assert_eq!(bad.len(), 4, "{bad:?}");
    }
    let (values, bad) =
        read("int", &DataType::Int32, Format::Jsonl, "{\"a\": 2147483648}\n{\"a\": -2147483648}");
    assert_eq!(values, ["-2147483648"]);
    assert_eq!(bad, ["column `a`: `2147483648` is not of type int"]);
}

#[test]
fn finite_numbers_are_read_by_one_rule_whatever_their_width() {
    let lines = "{\"a\": 5}\n{\"a\": 0.5}\n{\"a\": \"0.5\"}\n{\"a\": \"inf\"}";
    for (kind, data_type) in [("double", DataType::Float64), ("real", DataType::Float32)] {
        let (values, bad) = read(kind, &data_type, Format::Jsonl, lines);
        assert_eq!(
            (values.as_slice(), bad.len()),
            (["5.0", "0.5"].map(str::to_owned).as_slice(), 2),
            "{kind}"
        );
        assert_eq!(bad[0], format!("column `a`: a text where type {kind} is expected"));
    }
    let (values, bad) = read("real", &DataType::Float32, Format::Jsonl, "{\"a\": 1e39}\n{\"a\": 1e38}");
    assert_eq!(
        (values, bad),
        (vec!["1e38".to_owned()], vec!["column `a`: `1e39` is not of type real".to_owned()])
    );
}

#[test]
fn a_decimal_has_every_digit_that_was_written() {
    let decimal = DataType::Decimal128(38, 4);
    let written = "123456789012345678.1234";
    for line in [
        r#"{"a": 123456789012345678.1234}"#,
        r#"{"a": "123456789012345678.1234"}"#,
        r#"{"b": [1, {"c": -2.5, "a": 7}], "d\\\"9": "8\"7", "e": 1e3, "a": 123456789012345678.1234, "f": 3}"#,
        r#"{"a": 1, "x": {"a": [0]}, "a": 123456789012345678.1234}"#,
    ] {
        let (values, bad) = read("decimal(38, 4)", &decimal, Format::Jsonl, line);
        assert_eq!((values, bad), (vec![written.to_owned()], Vec::new()), "{line}");
    }
    let document = r#"[{"n": 1, "a": 0.1}, {"a": [5]}, {"a": true, "n": 2}, 3,
        {"a": -123456789012345678.1234}, {"a": 18446744073709551616}, {"a": 1.5e2}, {"a": null}]"#;
    let (values, bad) = read("decimal(38, 4)", &decimal, Format::Json, document);
    assert_eq!(values, ["0.1000", "-123456789012345678.1234", "18446744073709551616.0000", "150.0000", ""]);
    assert_eq!(bad.len(), 1, "{bad:?}");
    let list = DataType::List(Field::new_list_field(DataType::Decimal128(20, 1), true).into());
    let (values, _) =
        read("decimal(20, 1)[]", &list, Format::Jsonl, r#"{"a": [1234567890123456789.1, "2", null]}"#);
    assert_eq!(values, ["[1234567890123456789.1, 2.0, ]"]);
}

#[test]
fn other_types_are_read_from_their_texts_alone() {
    let (values, bad) =
        read("date", &DataType::Date32, Format::Jsonl, "{\"a\": \"2024-02-29\"}\n{\"a\": 19782}");
    assert_eq!((values, bad.len()), (vec!["2024-02-29".to_owned()], 1));
    let (_, bad) = read("binary", &DataType::Binary, Format::Jsonl, "{\"a\": 5}");
    assert_eq!(bad, ["column `a`: a number where type binary is expected"]);
}
