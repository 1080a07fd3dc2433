//! Lists of JSON become lists of rows, value by value.

use std::fs;

use tuplane_core::fault::Spanned;
use tuplane_expr::arrow::array::{Array, ListArray};
use tuplane_expr::arrow::datatypes::{DataType, Field, Int32Type};
use tuplane_expr::arrow::util::display::{ArrayFormatter, FormatOptions};

use super::*;

fn list(of: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(of, true)))
}

fn shown(rows: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::new().with_null("-");
    let columns: Vec<_> =
        rows.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
    (0..rows.num_rows())
        .map(|row| columns.iter().map(|c| c.value(row).to_string()).collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn lists_of_every_kind_of_value() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.jsonl");
    let lines = [
        r#"{"t": ["a", "b c"], "n": [1, 2], "i": [3, 4], "f": [1, 2.5], "b": [true]}"#,
        r#"{"t": [], "n": null, "f": [null, 1e2]}"#,
        r#"{"t": "a"}"#,
        r#"{"t": ["a", ["b"]]}"#,
        r#"{"t": ["a", {"b": 1}]}"#,
        r#"{"n": [1, 2.5]}"#,
        r#"{"i": [1, 3000000000, 3]}"#,
        r#"{"i": [1, "two", 3]}"#,
        r#"{"t": ["last"]}"#,
    ];
    fs::write(&path, lines.join("\n")).unwrap();
    let schema = schema(&[
        ("t", list(DataType::Utf8)),
        ("n", list(DataType::Int64)),
        ("i", list(DataType::Int32)),
        ("f", list(DataType::Float64)),
        ("b", list(DataType::Boolean)),
    ]);
    let mut file = options(Format::Jsonl);
    file.columns = ["t", "n", "i", "f", "b"]
        .iter()
        .zip(["text[]", "bigint[]", "int[]", "double[]", "boolean[]"])
        .map(|(name, kind)| (Spanned::nowhere((*name).to_owned()), Spanned::nowhere(kind.to_owned())))
        .collect();
    let outcome = run(&source(file.clone()), &schema, vec![whole(&path)], 3).unwrap();
    assert_eq!(
        shown(&outcome.rows),
        ["[a, b c] [1, 2] [3, 4] [1.0, 2.5] [true]", "[] - - [-, 100.0] -", "[last] - - - -",]
    );
    assert_eq!(outcome.rejected.total(), 6);
    let first = outcome.rejected.first.as_deref().unwrap();
    assert!(first.ends_with("in.jsonl:3: column `t`: a text where type text[] is expected"), "{first}");
    let last = outcome.last();
    assert!(
        last.ends_with("in.jsonl:8: column `i`: a text in a list where type int[] is expected"),
        "{last}"
    );
    let note = outcome.rejected.note().unwrap();
    assert!(
        note.starts_with(last) && note.ends_with(&format!("(the first of this instance: {first})")),
        "{note}"
    );

    // One document, with the same fault in the middle of a batch.
    let path = folder.path().join("in.json");
    fs::write(&path, r#"[{"i": [1]}, {"i": []}, {"i": [-3000000000]}, {"i": [2, 3]}]"#).unwrap();
    file.format = Format::Json;
    let outcome = run(&source(file), &schema, vec![whole(&path)], 8).unwrap();
    let lists = outcome.rows.column(2).as_any().downcast_ref::<ListArray>().unwrap();
    let numbers: Vec<usize> = (0..lists.len()).map(|row| lists.value(row).len()).collect();
    assert_eq!(numbers, [1, 0, 2]);
    assert_eq!(lists.values().as_primitive::<Int32Type>().values().last(), Some(&3));
    assert_eq!(outcome.rejected.total(), 1);
}

#[test]
fn a_list_in_csv_is_refused() {
    let refused = run(&source(options(Format::Csv)), &schema(&[("t", list(DataType::Utf8))]), Vec::new(), 1);
    assert!(matches!(refused, Err(SourceError::Refused(why)) if why.contains("cannot read")));
}
