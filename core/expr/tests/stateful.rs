//! Stateful stages against a plain fold, row by row.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;
use tuplane_core::job::{OnError, StatefulShape};
use tuplane_expr::arrow::array::{Array, ArrayRef, RecordBatch, StringArray, UInt64Array};
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_expr::system::{SystemColumn, SystemColumns};
use tuplane_expr::{Advanced, StatefulProgram, StatefulTable, StatefulTexts};

use crate::prelude::*;

struct Entry<'a> {
    shape: StatefulShape,
    state: &'a [&'a str],
    update: &'a [&'a str],
    then: &'a [&'a str],
}

fn compiled(
    keys: &[&str],
    entry: &Entry<'_>,
    input: &SchemaRef,
    on_error: OnError,
) -> Result<StatefulProgram, String> {
    let (state, update, then) = (texts(entry.state), texts(entry.update), texts(entry.then));
    let of = StatefulTexts { shape: entry.shape, state: &state, update: &update, then: &then };
    StatefulProgram::compile(language(), &texts(keys), of, input, SystemColumns::NONE, on_error)
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn stateful(keys: &[&str], entry: &Entry<'_>, rows: &RecordBatch, on_error: OnError) -> StatefulTable {
    StatefulTable::new(compiled(keys, entry, &rows.schema(), on_error).unwrap(), 271).unwrap()
}

fn all_rows(advanced: Advanced) -> Vec<String> {
    match advanced {
        Advanced::Rows(made) => rows(&made),
        Advanced::Unnest(mut state) => {
            std::iter::from_fn(|| state.next(3, 1 << 20)).flat_map(|made| rows(&made.unwrap())).collect()
        }
    }
}

/// Key, number to add (as text, perhaps none).
type Row = (Option<String>, String);

fn table_of(rows: &[Row]) -> RecordBatch {
    let k: ArrayRef = Arc::new(rows.iter().map(|r| r.0.as_deref()).collect::<StringArray>());
    let y: ArrayRef = Arc::new(rows.iter().map(|r| Some(r.1.as_str())).collect::<StringArray>());
    batch(vec![("k", k), ("y", y)])
}

/// The entry below, for one row: what comes out, if anything does.
fn fold(state: &mut (i64, String), row: &Row, on_error: OnError) -> Option<String> {
    let k = row.0.as_deref().unwrap_or("-");
    let (old, updated) = (state.clone(), row.1.parse::<i64>());
    if let Ok(y) = &updated {
        *state = (state.0 + y, format!("{}{}", state.1, row.1));
    }
    let seen = state.clone();
    let share = if seen.0 == 3 { None } else { Some(60 / (seen.0 - 3)) };
    if updated.is_err() || share.is_none() {
        *state = old;
        if on_error == OnError::Drop {
            return None;
        }
    }
    let share = share.map_or("-".to_owned(), |share| share.to_string());
    Some(format!("{k} {} {} {} {share}", row.1, seen.0, seen.1))
}

const SUMS: Entry<'_> = Entry {
    shape: StatefulShape::Map,
    state: &["cast(0 as bigint) as s", "'' as t", "true as same"],
    update: &["t || y as t", "s + cast(y as bigint) as s"],
    then: &["*", "s", "t", "60 / (s - 3) as share"],
};

proptest! {
    #[test]
    fn a_batch_in_rounds_is_a_fold_row_by_row(
        rows in prop::collection::vec((prop::option::of("[a-d]"), prop::sample::select(vec!["1", "2", "-1", "x"])), 1..60),
        cuts in prop::collection::vec(1usize..20, 60),
        keyed: bool,
        drop: bool,
    ) {
        let rows: Vec<Row> = rows.into_iter().map(|(k, y)| (k, y.to_owned())).collect();
        let on_error = if drop { OnError::Drop } else { OnError::Null };
        let all = table_of(&rows);
        let mut table = stateful(if keyed { &["k"] } else { &[] }, &SUMS, &all, on_error);
        let (mut start, mut found, mut dropped) = (0, Vec::new(), 0);
        for cut in cuts {
            let len = cut.min(rows.len() - start);
            if len > 0 {
                found.extend(all_rows(table.advance(&all.slice(start, len), None).unwrap()));
                dropped += table.take_dropped().len();
            }
            start += len;
        }
        let mut states: HashMap<Option<String>, (i64, String)> = HashMap::new();
        let expected: Vec<String> = rows.iter().filter_map(|row| {
            let key = row.0.clone().filter(|_| keyed);
            fold(states.entry(key).or_default(), row, on_error)
        }).collect();
        prop_assert_eq!(dropped, if drop { rows.len() - expected.len() } else { 0 });
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn the_three_shapes() {
    let input =
        batch(vec![("k", some_strings(&["a", "b", "a", "a", "b"])), ("x", integers(&[1, 5, 3, 2, 4]))]);
    let of = |shape, then: &[&str]| {
        let entry = Entry { shape, state: &["0 as seen"], update: &["seen + 1 as seen"], then };
        let mut table = stateful(&["k"], &entry, &input, OnError::Fail);
        all_rows(table.advance(&input, None).unwrap())
    };
    assert_eq!(of(StatefulShape::Map, &["seen", "k"]), ["1 a", "1 b", "2 a", "3 a", "2 b"]);
    assert_eq!(of(StatefulShape::Map, &["*"]), ["a 1", "b 5", "a 3", "a 2", "b 4"]);
    assert_eq!(of(StatefulShape::Filter, &["seen % 2 = 0"]), ["a 3", "b 4"]);
    assert_eq!(of(StatefulShape::FlatMap, &["range(1, seen) as i"]), ["a 3 1", "a 2 1", "a 2 2", "b 4 1"]);
}

#[test]
fn states_of_every_kind_are_kept_from_batch_to_batch() {
    let input = batch(vec![("k", some_strings(&["a", "b", "a"])), ("x", integers(&[1, 2, 3]))]);
    let entry = Entry {
        shape: StatefulShape::Map,
        state: &[
            "cast(null as bigint) as prior",
            "cast('2024-01-01' as timestamp) as first_day",
            "cast(0 as decimal(10, 2)) as money",
            "make_array(cast(0 as bigint)) as list",
            "false as odd",
            "'-' as name",
        ],
        update: &[
            "x as prior",
            "first_day + interval '1 day' as first_day",
            "cast(money + x as decimal(10, 2)) as money",
            "array_append(list, x) as list",
            "not odd as odd",
            "name || k as name",
        ],
        then: &["k", "prior", "cast(first_day as date) as day", "money", "list", "odd", "name"],
    };
    let mut table = stateful(&["k"], &entry, &input, OnError::Fail);
    all_rows(table.advance(&input, None).unwrap());
    assert_eq!(
        all_rows(table.advance(&input.slice(1, 2), None).unwrap()),
        ["b 2 2024-01-03 4.00 [0, 2, 2] false -bb", "a 3 2024-01-04 7.00 [0, 1, 3, 3] true -aaa"]
    );
    assert_eq!(table.keys_held(), 2);
    assert!(table.bytes() > 100);
}

#[test]
fn system_columns_go_with_their_rows() {
    let at: ArrayRef = Arc::new(UInt64Array::from(vec![Some(11), Some(12), None, Some(14)]));
    let with = batch(vec![("k", some_strings(&["a", "b", "a", "a"])), ("_at", at)]);
    let own = schema(&[("k", with.column(0).data_type().clone())]);
    let of = |shape, then: &[&str]| {
        let (state, update, then) = (texts(&["0 as n"]), texts(&["n + 1 as n"]), texts(then));
        let of = StatefulTexts { shape, state: &state, update: &update, then: &then };
        let system = SystemColumns::only(SystemColumn::At);
        let keys = texts(&["k"]);
        let program = StatefulProgram::compile(language(), &keys, of, &own, system, OnError::Fail).unwrap();
        assert_eq!(program.output().fields().last().unwrap().name(), "_at");
        all_rows(StatefulTable::new(program, 271).unwrap().advance(&with, None).unwrap())
    };
    assert_eq!(of(StatefulShape::Map, &["n", "*"]), ["1 a 11", "1 b 12", "2 a -", "3 a 14"]);
    assert_eq!(of(StatefulShape::Filter, &["n <> 2"]), ["a 11", "b 12", "a 14"]);
    assert_eq!(of(StatefulShape::FlatMap, &["range(1, n) as i"]), ["a 1 -", "a 1 14", "a 2 14"]);
}

#[test]
fn the_row_that_fails_is_named() {
    let input = table_of(&[(Some("a".into()), "1".into()), (Some("b".into()), "x".into())]);
    let mut table = stateful(&["k"], &SUMS, &input, OnError::Fail);
    assert_eq!(table.advance(&input, None).unwrap_err().row, Some(1));
}

#[test]
fn faults() {
    let input = table_of(&[]).schema();
    let said = |state: &[&str], update: &[&str], select: &[&str]| {
        let entry = Entry { shape: StatefulShape::Map, state, update, then: select };
        compiled(&["k"], &entry, &input, OnError::Fail).unwrap_err()
    };
    let fine: &[&str] = &["s"];
    assert!(said(&["0 as k"], &[], fine).contains("the state `k` is called as a column of the row"));
    assert!(said(&["0"], &[], fine).contains("has no name of its own"));
    assert!(said(&["0 as s", "1 as s"], &[], fine).contains("two columns are called `s`"));
    assert!(said(&["k as s"], &[], fine).contains("there before any row"));
    assert!(said(&["null as s"], &[], fine).contains("always null"));
    assert!(said(&["0 as s"], &["1 as z"], fine).contains("`z`, which is no state"));
    assert!(said(&["0 as s"], &["1 as s", "2 as s"], fine).contains("updated twice"));
    let types = said(&["0 as s"], &["s + 0.5 as s"], fine);
    assert!(types.contains("`update` makes `s` double, and its first value is bigint"), "{types}");
    assert!(said(&["0 as s"], &["y as s"], fine).contains("text"));
    // All at once.
    assert_eq!(said(&["0 as s"], &["s + q as s"], &["r", "u"]).lines().count(), 3);
}
