//! Rolling aggregates: every row against an aggregate over the rows of its key so far.

use std::sync::Arc;

use proptest::prelude::*;
use tuplane_core::job::OnError;
use tuplane_expr::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use tuplane_expr::{RollingProgram, RollingTable};

use crate::prelude::*;

fn rolling(keys: &[&str], compute: &[&str], rows: &RecordBatch, on_error: OnError) -> RollingTable {
    let program =
        RollingProgram::compile(language(), &texts(keys), &texts(compute), &rows.schema(), on_error).unwrap();
    RollingTable::new(program, 271).unwrap()
}

type Row = (Option<String>, Option<i64>);

fn table_of(rows: &[Row]) -> RecordBatch {
    let k: ArrayRef = Arc::new(rows.iter().map(|r| r.0.as_deref()).collect::<StringArray>());
    let x: ArrayRef = Arc::new(rows.iter().map(|r| r.1).collect::<Int64Array>());
    batch(vec![("k", k), ("x", x)])
}

const COMPUTE: [&str; 11] = [
    "count(*) as n",
    "count(x) as c",
    "sum(x) as s",
    "sum(cast(x as double)) as f",
    "avg(x) as a",
    "min(x) as lo",
    "max(k) as hi",
    "count(distinct x) as d",
    "median(x) as m",
    "sum(x) filter (where x > 2) as big",
    "sum(x) + count(*) as e",
];

proptest! {
    #[test]
    fn each_row_has_what_an_aggregate_over_its_keys_rows_so_far_gives(
        rows in prop::collection::vec((prop::option::of("[a-c]"), prop::option::of(-9i64..9)), 1..30),
        cuts in prop::collection::vec(1usize..9, 30),
        keyed: bool,
    ) {
        let all = table_of(&rows);
        let keys: &[&str] = if keyed { &["k"] } else { &[] };
        let mut table = rolling(keys, &COMPUTE, &all, OnError::Fail);
        let (mut start, mut found) = (0, Vec::new());
        for cut in cuts {
            let len = cut.min(rows.len() - start);
            found.extend(super::prelude::rows(&table.advance(&all.slice(start, len), None).unwrap()));
            start += len;
        }
        let whole_program = program(&[], &COMPUTE, &all.schema());
        let expected: Vec<String> = (0..rows.len()).map(|last| {
            let so_far: Vec<Row> =
                rows[..=last].iter().filter(|r| !keyed || r.0 == rows[last].0).cloned().collect();
            let one = table_of(&so_far);
            let mut whole = super::prelude::table(&whole_program, 1);
            whole.update(&one, None).unwrap();
            let row = &super::prelude::rows(&all.slice(last, 1))[0];
            format!("{row} {}", super::prelude::rows(&finals(&mut whole)[0])[0])
        }).collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn rows_that_cannot_be_taken_go_by_on_error_and_keep_their_numbers() {
    let rows =
        batch(vec![("k", some_strings(&["a", "b", "a", "a"])), ("s", some_strings(&["1", "2", "x", "3"]))]);
    let compute = ["sum(cast(s as bigint)) as n", "count(*) as c"];
    let error = rolling(&["k"], &compute, &rows, OnError::Fail).advance(&rows, None).unwrap_err();
    assert_eq!(error.row, Some(2));
    let mut drop = rolling(&["k"], &compute, &rows, OnError::Drop);
    let kept = drop.advance(&rows, None).unwrap();
    assert_eq!(super::prelude::rows(&kept), ["a 1 1 1", "b 2 2 1", "a 3 4 2"]);
    assert_eq!(drop.take_dropped().iter().map(|d| d.row).collect::<Vec<_>>(), [2]);
    assert_eq!(drop.take_last().unwrap().row, 2);
    let nulled = rolling(&["k"], &compute, &rows, OnError::Null).advance(&rows, None).unwrap();
    assert_eq!(super::prelude::rows(&nulled), ["a 1 1 1", "b 2 2 1", "a x 1 2", "a 3 4 3"]);
}

#[test]
fn a_sum_that_does_not_fit_is_its_rows_error() {
    let rows = batch(vec![("x", integers(&[i64::MAX, 1, -5]))]);
    let compute = ["sum(x) as s", "count(*) as n"];
    let error = rolling(&[], &compute, &rows, OnError::Fail).advance(&rows, None).unwrap_err();
    assert_eq!(error.row, Some(1));
    assert!(error.message.contains("the sum does not fit into bigint"), "{error}");
    let mut drop = rolling(&[], &compute, &rows, OnError::Drop);
    let kept = drop.advance(&rows, None).unwrap();
    // What could not be said was counted in all the same.
    let last = i64::MAX - 4;
    let max = i64::MAX;
    assert_eq!(super::prelude::rows(&kept), [format!("{max} {max} 1"), format!("-5 {last} 3")]);
    // A sum that not even 128 bits hold is refused for good.
    let compute = ["sum(cast(x as decimal(38, 0)) * 10000000000000000000) as s", "count(*) as n"];
    let mut drop = rolling(&[], &compute, &batch(vec![("x", integers(&[max; 4]))]), OnError::Drop);
    let kept = drop.advance(&batch(vec![("x", integers(&[max; 4]))]), None).unwrap();
    assert_eq!(kept.num_rows(), 1);
    assert_eq!(drop.take_dropped().iter().map(|d| d.row).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn faults() {
    let rows = table_of(&[]);
    let said = |compute: &[&str]| {
        let texts = texts(compute);
        let error = RollingProgram::compile(language(), &[], &texts, &rows.schema(), OnError::Fail);
        error.unwrap_err().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert!(said(&["count(*) as x"]).contains("`x` is a column of the row"));
    assert!(said(&["x + 1 as y"]).contains("has no aggregate"));
    assert_eq!(said(&["sum(y) as a", "sum(z) as b"]).lines().count(), 2);
}
