//! Distinct rows against a set.

use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;
use tuplane_core::job::OnError;
use tuplane_expr::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array};
use tuplane_expr::arrow::datatypes::{DataType, Field};
use tuplane_expr::system::{SystemColumn, SystemColumns};
use tuplane_expr::{DistinctProgram, DistinctTable};

use crate::prelude::*;

fn distinct(keys: &[&str], input: &RecordBatch, on_error: OnError) -> DistinctTable {
    let none = SystemColumns::NONE;
    let program =
        DistinctProgram::compile(language(), &texts(keys), &input.schema(), none, on_error).unwrap();
    DistinctTable::new(program, 271).unwrap()
}

type Row = (Option<String>, Option<i64>, f64);

fn table_of(rows: &[Row]) -> RecordBatch {
    let a: ArrayRef = Arc::new(rows.iter().map(|row| row.0.as_deref()).collect::<StringArray>());
    let b: ArrayRef = Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>());
    let c: ArrayRef = Arc::new(rows.iter().map(|row| Some(row.2)).collect::<Float64Array>());
    let id = integers(&(0..rows.len() as i64).collect::<Vec<_>>());
    batch(vec![("a", a), ("b", b), ("c", c), ("id", id)])
}

proptest! {
    #[test]
    fn the_first_row_of_each_key_stays_in_its_order(
        rows in prop::collection::vec(
            (prop::option::of("[xy]"), prop::option::of(0_i64..3), prop::sample::select(vec![0.0, -0.0, f64::NAN, 1.5])),
            1..80,
        ),
        cuts in prop::collection::vec(1_usize..20, 80),
        by in 0_usize..4,
    ) {
        let keys: &[&str] = [&["a"][..], &["b"], &["a", "c"], &["b + 1 as b"]][by];
        let all = table_of(&rows);
        let mut table = distinct(keys, &all, OnError::Fail);
        let (mut start, mut found) = (0, Vec::new());
        for cut in cuts {
            let len = cut.min(rows.len() - start);
            if len > 0 {
                let made = table.advance(&all.slice(start, len), None).unwrap();
                prop_assert_eq!(made.schema(), all.schema());
                found.extend(integer_column(&made, "id").into_iter().flatten());
            }
            start += len;
        }
        let mut seen = HashSet::new();
        let expected: Vec<i64> = (0..).zip(&rows).filter(|(_, (a, b, c))| {
            // One zero, one NaN.
            let c = if *c == 0.0 { "0".to_owned() } else { c.to_string() };
            seen.insert(match by {
                0 => format!("{a:?}"),
                2 => format!("{a:?} {c}"),
                _ => format!("{b:?}"),
            })
        }).map(|(id, _)| id).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(table.keys_held(), seen.len());
    }
}

#[test]
fn the_whole_row_is_the_key_without_its_system_columns() {
    let at: ArrayRef = Arc::new(UInt64Array::from(vec![1, 2, 3]));
    let rows = batch(vec![("k", integers(&[1, 1, 2])), ("_at", at)]);
    let own = schema(&[("k", DataType::Int64)]);
    let system = SystemColumns::only(SystemColumn::At);
    let program = DistinctProgram::compile(language(), &[], &own, system, OnError::Fail).unwrap();
    let mut table = DistinctTable::new(program, 271).unwrap();
    assert_eq!(sorted_rows(&[table.advance(&rows, None).unwrap()]), ["1 1", "2 3"]);
    let list = DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)));
    let lists = schema(&[("k", DataType::Int64), ("l", list)]);
    let refused = DistinctProgram::compile(language(), &[], &lists, system, OnError::Fail).unwrap_err();
    let expected = "the whole row is the key, and `l` is bigint[], which cannot be one (give a `key`)";
    assert_eq!(refused[0].to_string(), expected);
}

#[test]
fn rows_whose_key_cannot_be_computed_go_by_on_error() {
    let rows = batch(vec![("t", some_strings(&["1", "x", "1", "y", "2"]))]);
    let key = ["cast(t as bigint) as n"];
    let error = distinct(&key, &rows, OnError::Fail).advance(&rows, None).unwrap_err();
    assert_eq!(error.row, Some(1));
    let mut table = distinct(&key, &rows, OnError::Drop);
    assert_eq!(sorted_rows(&[table.advance(&rows, None).unwrap()]), ["1", "2"]);
    let dropped: Vec<usize> = table.take_dropped().iter().map(|one| one.row).collect();
    assert_eq!((dropped, table.take_last().unwrap().row), (vec![1, 3], 3));
    // Null is a key of its own.
    let mut table = distinct(&key, &rows, OnError::Null);
    assert_eq!(sorted_rows(&[table.advance(&rows, None).unwrap()]), ["1", "2", "x"]);
}
