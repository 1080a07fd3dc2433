//! Sorted runs and their merging, against a plain stable sort.

use std::cmp::Ordering;
use std::sync::Arc;

use proptest::prelude::*;
use tuplane_core::job::OnError;
use tuplane_expr::arrow::array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use tuplane_expr::system::SystemColumns;
use tuplane_expr::{Merger, SortProgram, Sorter};

use crate::prelude::*;

fn sort(by: &[&str], input: &RecordBatch, on_error: OnError) -> SortProgram {
    SortProgram::compile(language(), &texts(by), &input.schema(), SystemColumns::NONE, on_error).unwrap()
}

/// All rows in order, in pieces of at most so many.
fn sorted(program: &SortProgram, batches: &[RecordBatch], most: usize) -> Vec<RecordBatch> {
    let mut sorter = Sorter::new(program.clone()).unwrap();
    let mut runs = Vec::new();
    for (number, batch) in batches.iter().enumerate() {
        sorter.push(batch).unwrap();
        // Every other batch ends a run.
        if number % 2 == 0 {
            runs.extend(sorter.take_runs().unwrap());
        }
    }
    runs.extend(sorter.take_runs().unwrap());
    let mut merger = Merger::new(program.clone(), runs.len()).unwrap();
    for (source, run) in runs.into_iter().enumerate() {
        merger.push_run(source, run).unwrap();
    }
    std::iter::from_fn(|| merger.next(most, 1 << 20)).collect::<Result<_, _>>().unwrap()
}

/// Number, float, text; and where it comes from.
type Row = (Option<i64>, Option<f64>, Option<String>);

fn table_of(rows: &[Row], first: usize) -> RecordBatch {
    let a: ArrayRef = Arc::new(rows.iter().map(|r| r.0).collect::<Int64Array>());
    let b: ArrayRef = Arc::new(rows.iter().map(|r| r.1).collect::<Float64Array>());
    let c: ArrayRef = Arc::new(rows.iter().map(|r| r.2.as_deref()).collect::<StringArray>());
    let id: ArrayRef = Arc::new((first..first + rows.len()).map(|i| i as i64).collect::<Int64Array>());
    batch(vec![("a", a), ("b", b), ("c", c), ("id", id)])
}

/// As `PostgreSQL`: null is greater than all, NaN than all numbers, and there is one zero.
fn null_greatest<T>(a: Option<T>, b: Option<T>, of: impl Fn(&T, &T) -> Ordering) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => of(&a, &b),
        (a, b) => a.is_none().cmp(&b.is_none()),
    }
}

fn floats_in_order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

#[test]
fn rows_that_wait_keep_no_more_alive_than_themselves() {
    let wide = integers(&(0..100_000).collect::<Vec<_>>());
    let buffer = wide.to_data().buffers()[0].clone();
    let rows = batch(vec![("a", wide)]);
    let mut sorter = Sorter::new(sort(&["a desc"], &rows, OnError::Fail)).unwrap();
    for first in [7, 5000, 99_999] {
        sorter.push(&rows.slice(first, 1)).unwrap();
    }
    drop(rows);
    assert_eq!(buffer.strong_count(), 1);
    assert_eq!(sorter.take_runs().unwrap().iter().fold(0, |rows, run| rows + run.rows()), 3);
}

fn entry(position: usize, choice: u8) -> String {
    let column = ["a", "b", "c"][position];
    let order = ["", " asc", " DESC", " asc nulls first", " desc nulls last"][usize::from(choice)];
    format!("{column}{order}")
}

fn compare(x: &Row, y: &Row, by: &[(usize, u8)]) -> Ordering {
    by.iter().fold(Ordering::Equal, |so_far, (column, choice)| {
        so_far.then_with(|| {
            let nulls = match column {
                0 => (x.0.is_none(), y.0.is_none()),
                1 => (x.1.is_none(), y.1.is_none()),
                _ => (x.2.is_none(), y.2.is_none()),
            };
            let order = match column {
                0 => null_greatest(x.0, y.0, Ord::cmp),
                1 => null_greatest(x.1, y.1, |a, b| floats_in_order(*a, *b)),
                _ => null_greatest(x.2.clone(), y.2.clone(), Ord::cmp),
            };
            match choice {
                2 => order.reverse(),
                3 if nulls.0 != nulls.1 => order.reverse(),
                4 if nulls.0 == nulls.1 => order.reverse(),
                _ => order,
            }
        })
    })
}

fn random_rows() -> impl Strategy<Value = Vec<Row>> {
    let floats = prop::sample::select(vec![0.0, -0.0, 1.5, -1.5, f64::NAN, -f64::NAN, f64::INFINITY]);
    prop::collection::vec(
        (prop::option::of(-2i64..3), prop::option::of(floats), prop::option::of("[ab]{0,2}")),
        0..60,
    )
}

proptest! {
    #[test]
    fn merged_runs_of_several_senders_are_one_stable_sort(
        senders in prop::collection::vec(random_rows(), 1..4),
        by in prop::collection::vec((0usize..3, 0u8..5), 1..4),
        cut in 1usize..20,
        most in 1usize..20,
    ) {
        let texts: Vec<String> = by.iter().map(|(column, choice)| entry(*column, *choice)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let program = sort(&texts, &table_of(&[], 0), OnError::Fail);
        let (mut channels, mut expected, mut first) = (Vec::new(), Vec::new(), 0);
        for rows in &senders {
            let all = table_of(rows, first);
            let pieces: Vec<RecordBatch> =
                (0..rows.len()).step_by(cut).map(|at| all.slice(at, cut.min(rows.len() - at))).collect();
            channels.push(sorted(&program, &pieces, most).into_iter());
            expected.extend(rows.iter().zip(first as i64..));
            first += rows.len();
        }
        expected.sort_by(|x, y| compare(x.0, y.0, &by));
        let mut merger = Merger::new(program, channels.len()).unwrap();
        let mut found = Vec::new();
        loop {
            let wanted: Vec<usize> = merger.wants().collect();
            let mut over = wanted.is_empty();
            for channel in wanted {
                match channels[channel].next() {
                    Some(rows) => merger.push(channel, rows).unwrap(),
                    None => merger.end(channel),
                }
            }
            while let Some(rows) = merger.next(most, 1 << 20) {
                let rows = rows.unwrap();
                prop_assert!(rows.num_rows() <= most);
                found.extend(integer_column(&rows, "id").into_iter().flatten());
                over = false;
            }
            if over {
                break;
            }
        }
        let expected: Vec<i64> = expected.into_iter().map(|(_, id)| id).collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn rows_that_have_no_place_in_the_order_go_by_on_error() {
    let rows = batch(vec![("s", some_strings(&["3", "x", "1", "2"])), ("id", integers(&[0, 1, 2, 3]))]);
    let by = ["cast(s as bigint)"];
    let mut fail = Sorter::new(sort(&by, &rows, OnError::Fail)).unwrap();
    assert_eq!(fail.push(&rows).unwrap_err().row, Some(1));
    let of = |on_error| {
        let all = sorted(&sort(&by, &rows, on_error), std::slice::from_ref(&rows), 8);
        integer_column(&all[0], "id").into_iter().flatten().collect::<Vec<_>>()
    };
    assert_eq!(of(OnError::Drop), [2, 3, 0]);
    assert_eq!(of(OnError::Null), [2, 3, 0, 1]);
}

#[test]
fn pieces_keep_to_their_bytes() {
    let long = "x".repeat(10_000);
    let rows = batch(vec![("c", some_strings(&[long.as_str(); 50]))]);
    let program = sort(&["c"], &rows, OnError::Fail);
    let mut sorter = Sorter::new(program.clone()).unwrap();
    sorter.push(&rows).unwrap();
    assert!(sorter.bytes() >= 500_000);
    let mut merger = Merger::new(program, 1).unwrap();
    merger.push_run(0, sorter.take_runs().unwrap().remove(0)).unwrap();
    let first = merger.next(8192, 40_000).unwrap().unwrap();
    assert!((3..=5).contains(&first.num_rows()), "{}", first.num_rows());
    assert_eq!(sorter.bytes(), 0);
}

#[test]
fn faults_have_the_place_of_the_expression() {
    let input = table_of(&[], 0).schema();
    let said = |by: &[&str]| {
        let none = SystemColumns::NONE;
        let error = SortProgram::compile(language(), &texts(by), &input, none, OnError::Fail);
        error.unwrap_err().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert!(said(&["aa desc"]).contains("no column `aa`"));
    assert_eq!(said(&["z", "count(*) desc"]).lines().count(), 2);
}
