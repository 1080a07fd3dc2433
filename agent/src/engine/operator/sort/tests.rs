//! Sorting within bounds: what is too much goes to disk, and nothing is left of it.

use std::sync::Arc;

use tuplane_core::job::{OnError, Text};
use tuplane_expr::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use tuplane_expr::arrow::datatypes::Int64Type;
use tuplane_expr::system::SystemColumns;
use tuplane_expr::{Determinism, Language, SortProgram};

use super::*;

fn batch(first: i64, rows: i64) -> RecordBatch {
    let id = Int64Array::from_iter_values(first..first + rows);
    // Every number is there many times, so that order among equals shows.
    let x = Int64Array::from_iter_values((first..first + rows).map(|id| id * 7919 % 100));
    let text: StringArray = (0..rows).map(|_| Some("some text to fill memory with")).collect();
    let columns: Vec<(&str, ArrayRef)> =
        vec![("id", Arc::new(id)), ("x", Arc::new(x)), ("text", Arc::new(text))];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap()
}

fn sort(budget: &Arc<Budget>, folder: PathBuf) -> Sort {
    let by = [Text::nowhere("x desc".to_owned())];
    let language = Language::new(Determinism::Required);
    let schema = batch(0, 1).schema();
    let program = SortProgram::compile(language, &by, &schema, SystemColumns::NONE, OnError::Fail).unwrap();
    Sort::new("sorted", program, Arc::clone(budget), 2, folder).unwrap()
}

#[test]
fn rows_beyond_the_bound_are_sorted_over_disk_and_stay_stable() {
    let folder = tempfile::tempdir().unwrap();
    let budget = Budget::new(8 << 20);
    let mut sort = sort(&budget, folder.path().to_owned());
    for first in (0..200_000).step_by(1000) {
        sort.push(0, batch(first, 1000), None).unwrap();
        assert!(sort.pull(8192, 1 << 20).unwrap().is_none());
        assert!(budget.used() <= 3 << 20, "{}", budget.used());
    }
    assert!(sort.spilled.len() > 2, "{}", sort.spilled.len());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a file has a name");
    sort.end().unwrap();
    let mut found = Vec::new();
    while let Some(rows) = sort.pull(1000, 1 << 20).unwrap() {
        assert!(rows.num_rows() <= 1000);
        found.extend(rows.column(0).as_primitive::<Int64Type>().values().iter().copied());
    }
    let mut expected: Vec<i64> = (0..200_000).collect();
    expected.sort_by_key(|id| -(id * 7919 % 100));
    assert_eq!(found, expected);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_thousand_runs_need_few_files() {
    let folder = tempfile::tempdir().unwrap();
    let budget = Budget::new(16 << 10);
    let mut sort = sort(&budget, folder.path().to_owned());
    let mut most = 0;
    for first in (0..110_000).step_by(100) {
        sort.push(0, batch(first, 100), None).unwrap();
        most = most.max(sort.spilled.len());
    }
    assert!(sort.spilled.iter().map(|run| FAN.pow(run.level)).sum::<usize>() > 1000);
    assert!(most <= 3 * FAN, "{most}");
    sort.end().unwrap();
    let (mut found, mut charged) = (Vec::new(), 0);
    while let Some(rows) = sort.pull(1000, 1 << 20).unwrap() {
        charged = charged.max(budget.used());
        found.extend(rows.column(0).as_primitive::<Int64Type>().values().iter().copied());
    }
    let mut expected: Vec<i64> = (0..110_000).collect();
    expected.sort_by_key(|id| -(id * 7919 % 100));
    assert_eq!(found, expected);
    assert!(charged > 16 << 10, "{charged}: what the merge holds is charged");
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_folder_that_cannot_be_written_is_named_with_the_stage() {
    let budget = Budget::new(1 << 10);
    let mut sort = sort(&budget, PathBuf::from("/nonexistent"));
    let error = sort.push(0, batch(0, 10_000), None).unwrap_err().to_string();
    assert!(error.contains("stage sorted, which sorts 10000 rows"), "{error}");
    assert!(error.contains("/nonexistent"), "{error}");
}

#[test]
fn a_merge_asks_only_for_what_it_needs() {
    let budget = Budget::new(1 << 20);
    let program = sort(&budget, PathBuf::new()).program;
    let mut collect = Collect::new(program.clone(), 2).unwrap();
    let piece = |x: i64, rows: usize| {
        let of = |value: i64| Arc::new(Int64Array::from(vec![value; rows])) as ArrayRef;
        let text = Arc::new(StringArray::from(vec!["t"; rows])) as ArrayRef;
        RecordBatch::try_new(batch(0, 1).schema(), vec![of(x), of(x), text]).unwrap()
    };
    collect.push(0, piece(9, 3), None).unwrap();
    assert!(collect.pull(100, 1 << 20).unwrap().is_none(), "the other one has not spoken");
    assert!(collect.take_asked().is_empty(), "one holds rows, the other is open anyway");
    collect.push(1, piece(5, 3), None).unwrap();
    assert_eq!(collect.pull(100, 1 << 20).unwrap().unwrap().num_rows(), 3);
    assert!(collect.pull(100, 1 << 20).unwrap().is_none());
    assert_eq!(collect.take_asked(), [0]);
    assert!(collect.take_asked().is_empty(), "it was asked once");
    collect.end_input(0).unwrap();
    assert_eq!(collect.pull(100, 1 << 20).unwrap().unwrap().num_rows(), 3);
    collect.end().unwrap();
    assert!(collect.pull(100, 1 << 20).unwrap().is_none());
}
