//! Aggregates over groups: results, partial results, partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use tuplane_core::job::OnError;
use tuplane_expr::arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};
use tuplane_expr::arrow::record_batch::RecordBatch;
use tuplane_expr::{AggregateProgram, GroupTable, WhenEmpty};

use crate::prelude::*;

fn bids() -> RecordBatch {
    batch(vec![
        ("bidder", strings([Some("a"), Some("b"), Some("a"), None, Some("b"), None])),
        ("price", Arc::new(Int64Array::from(vec![Some(10), Some(5), Some(30), Some(7), None, Some(9)]))),
        ("weight", floats(&[0.5, 1.5, 2.5, 3.5, 4.5, 5.5])),
    ])
}

fn compute(keys: &[&str], compute: &[&str], rows: &RecordBatch) -> Vec<String> {
    let mut table = table(&program(keys, compute, &rows.schema()), 271);
    table.update(rows, None).unwrap();
    sorted_rows(&finals(&mut table))
}

#[test]
fn own_aggregates() {
    let all = [
        "count(*) as n",
        "count(price) as p",
        "sum(price) as s",
        "min(price) as lo",
        "max(price) as hi",
        "avg(price) as m",
        "count(distinct price) as d",
    ];
    assert_eq!(
        compute(&["bidder"], &all, &bids()),
        ["- 2 2 16 7 9 8.0 2", "a 2 2 40 10 30 20.0 2", "b 2 1 5 5 5 5.0 1"]
    );
}

#[test]
fn datafusions_aggregates() {
    let rows = bids();
    assert_eq!(
        compute(
            &["bidder"],
            &["median(price) as m", "bool_and(price > 8) as all_high", "string_agg(bidder, '+') as s"],
            &rows
        ),
        ["- 8.0 false -", "a 20.0 true a+a", "b 5.0 false b+b"]
    );
    assert_eq!(
        compute(&[], &["stddev(weight) as s", "first_value(bidder) as f", "sum(distinct price) as d"], &rows)
            .len(),
        1
    );
    assert_eq!(
        compute(&[], &["approx_distinct(price) as d", "array_agg(price) as a"], &rows),
        ["5 [10, 5, 30, 7, , 9]".replace(", ,", ", -,")]
    );
    assert_eq!(compute(&[], &["percentile_cont(0.5) within group (order by weight) as p"], &rows), ["3.0"]);
}

#[test]
fn expressions_over_aggregates_and_keys() {
    let over = [
        "max(price) - min(price) as spread",
        "cast(sum(price) as double) / count(*) as mean",
        "bidder || count(*) as label",
    ];
    assert_eq!(compute(&["bidder"], &over, &bids()), ["- 2 8.0 -", "a 20 20.0 a2", "b 0 2.5 b2"]);
}

#[test]
fn filters_of_aggregates() {
    assert_eq!(
        compute(&["bidder"], &["count(*) filter (where price > 8) as high", "count(*) as n"], &bids()),
        ["- 1 2", "a 2 2", "b 0 2"]
    );
}

#[test]
fn faults_of_compute() {
    let input = bids().schema();
    let said = |compute: &[&str]| {
        let error = AggregateProgram::compile(
            language(),
            &texts(&["bidder"]),
            &texts(compute),
            &input,
            OnError::Fail,
        );
        error.unwrap_err().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert!(said(&["price + 1 as x"]).contains("has no aggregate"));
    assert!(said(&["sum(price) + price as x"]).contains("`price` is neither a key nor inside an aggregate"));
    assert!(said(&["sum(sum(price)) as x"]).contains("cannot stand inside an aggregate"));
    assert!(said(&["count(*) as bidder"]).contains("two columns are called `bidder`"));
    assert!(said(&["sum(bidder) as x"]).contains("sum"));
    assert!(said(&["array_agg(price order by price) as x"]).contains("not available"));
    assert!(said(&["sum(prize) as x"]).contains("did you mean `price`?"));
}

#[test]
fn keys_are_told_apart_by_value_and_null_is_one() {
    let keys = batch(vec![("k", floats(&[0.0, -0.0, f64::NAN, -f64::NAN, 1.0]))]);
    assert_eq!(compute(&["k"], &["count(*) as n"], &keys), ["0.0 2", "1.0 1", "NaN 2"]);
    let pairs = batch(vec![
        ("a", strings([Some("x"), None, Some("x"), None, Some("")])),
        ("b", integers(&[1, 1, 1, 1, 1])),
    ]);
    assert_eq!(compute(&["a", "b"], &["count(*) as n"], &pairs), [" 1 1", "- 1 2", "x 1 2"]);
    assert_eq!(compute(&["a"], &["count(*) as n"], &pairs), [" 1", "- 2", "x 2"]);
}

#[test]
fn one_group_without_a_key() {
    let program = program(&[], &["count(*) as n", "sum(price) as s"], &bids().schema());
    let mut quiet = GroupTable::new(program.clone(), 271, WhenEmpty::Nothing).unwrap();
    assert!(quiet.emit_final(10).is_none());
    let mut sql = GroupTable::new(program, 271, WhenEmpty::OneRow).unwrap();
    assert_eq!(sorted_rows(&finals(&mut sql)), ["0 -"]);
    assert!(sql.emit_final(10).is_none(), "the row of an empty input comes once");
    sql.update(&bids(), None).unwrap();
    assert_eq!(sorted_rows(&finals(&mut sql)), ["6 61"]);
}

#[test]
fn a_sum_that_does_not_fit_is_an_error_and_one_that_comes_back_is_not() {
    let big = batch(vec![("x", integers(&[i64::MAX, 1]))]);
    let program = program(&[], &["sum(x) as s"], &big.schema());
    let mut sums = table(&program, 1);
    sums.update(&big, None).unwrap();
    let error = sums.emit_final(10).unwrap().unwrap_err();
    assert!(error.message.contains("the sum does not fit into bigint"), "{error}");
    let mut sums = table(&program, 1);
    sums.update(&big, None).unwrap();
    sums.update(&batch(vec![("x", integers(&[-5]))]), None).unwrap();
    assert_eq!(sorted_rows(&finals(&mut sums)), [(i64::MAX - 4).to_string()]);
}

#[test]
fn a_group_whose_sum_does_not_fit_goes_by_on_error_and_others_are_given() {
    let keys = some_strings(&["a", "b", "a", "c", "b"]);
    let rows = batch(vec![("k", keys), ("x", integers(&[i64::MAX, 2, 1, 4, 5]))]);
    let run = |on_error| {
        let compute = texts(&["sum(x) as s", "count(*) as n"]);
        let program =
            AggregateProgram::compile(language(), &texts(&["k"]), &compute, &rows.schema(), on_error)
                .unwrap();
        let mut table = table(&program, 271);
        table.update(&rows, None).unwrap();
        (sorted_rows(&finals(&mut table)), table.take_dropped().len(), table.take_last())
    };
    let (given, dropped, last) = run(OnError::Drop);
    assert_eq!((given, dropped), (vec!["b 7 2".to_owned(), "c 4 1".to_owned()], 1));
    assert!(last.unwrap().message.starts_with("in the result of a group: the sum does not fit"));
    let (given, dropped, last) = run(OnError::Null);
    assert_eq!(given.iter().filter(|row| row.starts_with("a ")).count(), 1);
    assert_eq!((given.len(), dropped, last.is_some()), (3, 0, true));
}

#[test]
fn rows_that_an_argument_cannot_take_go_by_on_error() {
    let rows = batch(vec![("k", some_strings(&["a", "b", "a"])), ("s", some_strings(&["1", "x", "3"]))]);
    let run = |on_error| {
        let compute = texts(&["sum(cast(s as int)) as n", "count(*) as rows"]);
        let program =
            AggregateProgram::compile(language(), &texts(&["k"]), &compute, &rows.schema(), on_error)
                .unwrap();
        let mut table = table(&program, 271);
        let ids = tuplane_expr::partitions(&[Arc::clone(rows.column(0))], 271).unwrap();
        table.update(&rows, Some(&ids)).map_err(|e| e.row)?;
        let dropped: Vec<usize> = table.take_dropped().iter().map(|d| d.row).collect();
        Ok::<_, Option<usize>>((sorted_rows(&finals(&mut table)), dropped))
    };
    assert_eq!(run(OnError::Fail).unwrap_err(), Some(1));
    assert_eq!(run(OnError::Drop).unwrap(), (vec!["a 4 2".to_owned()], vec![1]));
    assert_eq!(run(OnError::Null).unwrap(), (vec!["a 4 2".to_owned(), "b - 1".to_owned()], vec![]));
}

#[test]
fn draining_is_cut_and_rows_that_come_meanwhile_wait() {
    let rows = batch(vec![("k", integers(&(0..1000).collect::<Vec<_>>()))]);
    let mut counts = table(&program(&["k"], &["count(*) as n"], &rows.schema()), 271);
    counts.update(&rows, None).unwrap();
    assert_eq!(counts.groups(), 1000);
    assert!(counts.bytes() > 16_000);
    let first = counts.emit_partial(300).unwrap().unwrap();
    assert_eq!(first.num_rows(), 300);
    counts.update(&rows.slice(0, 10), None).unwrap();
    let mut seen = vec![first];
    for rows in [300, 300, 100] {
        seen.push(counts.emit_partial(300).unwrap().unwrap());
        assert_eq!(seen.last().unwrap().num_rows(), rows);
    }
    assert_eq!(sorted_rows(&seen).len(), 1000);
    assert_eq!(counts.groups(), 10);
    assert_eq!(counts.emit_partial(300).unwrap().unwrap().num_rows(), 10);
    assert!(counts.emit_partial(300).is_none());
}

#[test]
fn a_partition_moves() {
    let rows = batch(vec![("k", integers(&(0..100).collect::<Vec<_>>()))]);
    let program = program(&["k"], &["count(*) as n", "max(k) as m"], &rows.schema());
    let (mut old, mut new) = (table(&program, 7), table(&program, 7));
    old.update(&rows, None).unwrap();
    for partition in [0, 3, 6] {
        let saved = old.save_partition(partition).unwrap().unwrap();
        let taken = old.take_partition(partition).unwrap().unwrap();
        assert_eq!(saved, taken);
        assert!(old.save_partition(partition).is_none());
        new.merge(&taken, None).unwrap();
    }
    assert_eq!(old.groups() + new.groups(), 100);
    for table in [&mut old, &mut new] {
        table.update(&rows.slice(0, 0), None).unwrap();
    }
    let mut all = finals(&mut old);
    all.extend(finals(&mut new));
    let expected: Vec<String> = (0..100).map(|k| format!("{k} 1 {k}")).collect();
    let mut expected = expected;
    expected.sort();
    assert_eq!(sorted_rows(&all), expected);
}

#[test]
fn partition_ids_must_fit() {
    let rows = batch(vec![("k", integers(&[1, 2]))]);
    let mut counts = table(&program(&["k"], &["count(*) as n"], &rows.schema()), 7);
    assert!(counts.update(&rows, Some(&vec![1, 7].into())).is_err());
    assert!(counts.update(&rows, Some(&vec![1].into())).is_err());
}

type Row = (Option<String>, Option<i64>, f64);

fn random_batch(rows: &[Row]) -> RecordBatch {
    let k: ArrayRef = Arc::new(rows.iter().map(|r| r.0.as_deref()).collect::<StringArray>());
    let x: ArrayRef = Arc::new(rows.iter().map(|r| r.1).collect::<Int64Array>());
    let f: ArrayRef = Arc::new(rows.iter().map(|r| r.2).collect::<Float64Array>());
    batch(vec![("k", k), ("x", x), ("f", f)])
}

fn random_rows() -> impl Strategy<Value = Vec<Row>> {
    // Quarters add up exactly in any order.
    let float = (-40i32..40).prop_map(|q| f64::from(q) / 4.0);
    prop::collection::vec((prop::option::of("[a-d]{0,2}"), prop::option::of(-9i64..9), float), 0..60)
}

proptest! {
    #[test]
    fn parts_merged_are_the_whole(
        rows in random_rows(),
        cut in 0usize..60,
        partitions in prop::sample::select(vec![1u16, 2, 271]),
        max_rows in 1usize..20,
        two_keys: bool,
    ) {
        let all = random_batch(&rows);
        let compute = [
            "count(*) as n", "count(x) as c", "sum(x) as s", "sum(f) as sf", "avg(f) as a", "min(x) as lo",
            "max(k) as hi", "count(distinct x) as d", "bit_xor(x) as b", "sum(x) + count(*) as e",
        ];
        let keys: &[&str] = if two_keys { &["k", "x % 3 as r"] } else { &["k"] };
        let program = program(keys, &compute, &all.schema());
        let mut whole = table(&program, partitions);
        whole.update(&all, None).unwrap();
        let cut = cut.min(rows.len());
        let mut combined = table(&program, partitions);
        for (start, len) in [(0, cut), (cut, rows.len() - cut)] {
            let mut part = table(&program, partitions);
            part.update(&all.slice(start, len), None).unwrap();
            while let Some(partial) = part.emit_partial(max_rows) {
                combined.merge(&partial.unwrap(), None).unwrap();
            }
        }
        let whole = sorted_rows(&finals(&mut whole));
        prop_assert_eq!(&sorted_rows(&finals(&mut combined)), &whole);

        // Counts against a plain map.
        if !two_keys {
            let mut counts: BTreeMap<&Option<String>, (i64, Option<i64>)> = BTreeMap::new();
            for (k, x, _) in &rows {
                let entry = counts.entry(k).or_default();
                entry.0 += 1;
                entry.1 = x.map_or(entry.1, |x| Some(entry.1.unwrap_or(0) + x));
            }
            prop_assert_eq!(whole.len(), counts.len());
            for (k, (n, s)) in counts {
                let k = k.as_deref().unwrap_or("-");
                let s = s.map_or("-".to_owned(), |s| s.to_string());
                let found = whole.iter().any(|row| {
                    let fields: Vec<&str> = row.split(' ').collect();
                    fields[0] == k && fields[1] == n.to_string() && fields[3] == s
                });
                prop_assert!(found, "{k} {n} {s} in {whole:?}");
            }
        }
    }
}

#[test]
fn a_result_that_cannot_be_computed_counts_among_the_dropped() {
    let rows = batch(vec![("s", some_strings(&["a", "b", "b"]))]);
    let program = AggregateProgram::compile(
        language(),
        &texts(&["s"]),
        &texts(&["10 / (count(*) - 1) as n"]),
        &rows.schema(),
        OnError::Drop,
    );
    let mut table = table(&program.unwrap(), 271);
    table.update(&rows, None).unwrap();
    assert_eq!(table.take_last(), None);
    assert_eq!(sorted_rows(&finals(&mut table)), ["b 10"]);
    assert_eq!(table.take_dropped().len(), 1);
    assert_eq!(table.take_last().unwrap().message, "in the result of a group: division by zero");
}

/// Each pane of a window is such a table: what it takes goes by what is in it, not by how many partitions there are.
#[test]
fn a_table_of_one_group_is_small_whatever_the_partitions() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() >> 10
    };
    let rows = batch(vec![("k", integers(&[1, 2, 3]))]);
    let program = program(&["k"], &["count(*) as n"], &rows.schema());
    let before = resident();
    let mut tables: Vec<_> = (0..1000).map(|_| table(&program, u16::MAX)).collect();
    for table in &mut tables {
        table.update(&rows, None).unwrap();
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 200, "{grown} MiB");
    assert_eq!(sorted_rows(&finals(&mut tables[999])), ["1 1", "2 1", "3 1"]);
}
