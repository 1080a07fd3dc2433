//! Row-wise steps: results, rows that cannot be taken, and unnest.

use std::sync::Arc;

use proptest::prelude::*;
use tuplane_core::job::{OnError, Op};
use tuplane_core::plan::{VertexId, plan};
use tuplane_expr::arrow::array::{Array, AsArray, ListArray, StringArray};
use tuplane_expr::arrow::datatypes::{DataType, Field, Int32Type};
use tuplane_expr::arrow::record_batch::RecordBatch;
use tuplane_expr::{
    Chain, ChainRun, EvalError, Filter, Program, Projection, Step, Unnest, resolve, vertex_program,
};

use crate::prelude::*;

fn project(select: &[&str], batch: &RecordBatch) -> RecordBatch {
    Projection::compile(language(), &texts(select), &batch.schema()).unwrap().eval(batch).unwrap()
}

fn requests() -> RecordBatch {
    batch(vec![
        ("client", some_strings(&["a", "b", "c", "d"])),
        ("status", strings([Some("200"), Some("404"), Some("5000"), None])),
        ("Status", some_strings(&["w", "x", "y", "z"])),
    ])
}

#[test]
fn text_is_compared_with_numbers_as_a_number() {
    let rows = requests();
    let kept =
        Filter::compile(language(), &text("status >= 400"), &rows.schema()).unwrap().eval(&rows).unwrap();
    assert_eq!(text_column(&kept, "client"), [Some("b".to_owned()), Some("c".to_owned())]);
}

#[test]
fn try_cast_gives_null() {
    let rows = batch(vec![("status", some_strings(&["200", "-", "404"]))]);
    let out = project(&["try_cast(status as int) as status"], &rows);
    let status = out.column(0).as_primitive::<Int32Type>();
    assert_eq!(status.iter().collect::<Vec<_>>(), [Some(200), None, Some(404)]);
}

#[test]
fn names_are_case_sensitive() {
    let out = project(&["Status as a", "status as b"], &requests());
    assert_eq!(text_column(&out, "a")[0].as_deref(), Some("w"));
    assert_eq!(text_column(&out, "b")[0].as_deref(), Some("200"));
}

#[test]
fn a_keyword_can_be_a_column() {
    let rows = batch(vec![("user", some_strings(&["u"])), ("current_date", some_strings(&["d"]))]);
    let out = project(&["user", "upper(user) as b", "current_date as c", "\"user\" as d"], &rows);
    assert_eq!(crate::prelude::rows(&out), ["u U d u"]);
}

#[test]
fn columns_are_named_by_alias_column_or_text() {
    let out = project(&["status", "upper(client) as Up", "length(client)"], &requests());
    let names: Vec<String> = out.schema().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(names, ["status", "Up", "length(client)"]);
}

#[test]
fn text_and_lists_have_the_plans_types() {
    let out = project(
        &[
            "substr(client, 1) as a",
            "client || 'x' as b",
            "string_to_array(client, ',') as c",
            "words(substr(client, 1)) as d",
        ],
        &requests(),
    );
    let list = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
    let kinds: Vec<DataType> = out.schema().fields().iter().map(|f| f.data_type().clone()).collect();
    assert_eq!(kinds, [DataType::Utf8, DataType::Utf8, list.clone(), list]);
}

fn divisors(zeroes: &[usize], len: usize) -> RecordBatch {
    let values: Vec<i64> = (0..len).map(|i| if zeroes.contains(&i) { 0 } else { i as i64 + 1 }).collect();
    batch(vec![("x", integers(&values))])
}

#[test]
fn a_division_by_zero_is_found_by_halving() {
    let rows = divisors(&[600, 77], 1000);
    let divide = Projection::compile(language(), &texts(&["100 / x as y", "x"]), &rows.schema()).unwrap();
    let error = divide.eval(&rows).unwrap_err();
    assert_eq!(error, EvalError { row: Some(77), message: "division by zero".to_owned() });

    let (kept, dropped) = divide.eval_rows(&rows, OnError::Drop).unwrap();
    assert_eq!(dropped.iter().map(|d| d.row).collect::<Vec<_>>(), [77, 600]);
    assert_eq!(kept.num_rows(), 998);
    assert_eq!(integer_column(&kept, "x")[77], Some(79));

    let (all, dropped) = divide.eval_rows(&rows, OnError::Null).unwrap();
    assert!(dropped.is_empty());
    assert_eq!(all.num_rows(), 1000);
    assert_eq!(integer_column(&all, "y")[76..79], [Some(1), None, Some(1)]);
    assert_eq!(integer_column(&all, "x")[77], Some(0));
}

proptest! {
    #[test]
    fn only_the_failing_rows_are_dropped(
        zeroes in prop::collection::btree_set(0usize..40, 0..40),
        len in 1usize..40,
    ) {
        let zeroes: Vec<usize> = zeroes.into_iter().filter(|z| *z < len).collect();
        let rows = divisors(&zeroes, len);
        let divide = Projection::compile(language(), &texts(&["x", "7 / x as y"]), &rows.schema()).unwrap();
        let (kept, dropped) = divide.eval_rows(&rows, OnError::Drop).unwrap();
        prop_assert_eq!(dropped.iter().map(|d| d.row).collect::<Vec<_>>(), zeroes.clone());
        let expected: Vec<Option<i64>> =
            (0..len).filter(|i| !zeroes.contains(i)).map(|i| Some(i as i64 + 1)).collect();
        prop_assert_eq!(integer_column(&kept, "x"), expected);
    }
}

#[test]
fn a_guard_protects_its_row_whatever_stands_beside_it() {
    let rows = divisors(&[3], 8);
    for guarded in ["x <> 0 and 8 / x > 1", "case when x = 0 then false else 8 / x > 1 end"] {
        let filter = Filter::compile(language(), &text(guarded), &rows.schema()).unwrap();
        assert_eq!(
            integer_column(&filter.eval(&rows).unwrap(), "x"),
            [Some(1), Some(2), Some(3)],
            "{guarded}"
        );
    }
}

#[test]
fn integers_that_overflow_are_an_error_of_the_row() {
    let rows = batch(vec![("x", integers(&[1, i64::MAX]))]);
    let add = Projection::compile(language(), &texts(&["x + 1 as y"]), &rows.schema()).unwrap();
    assert_eq!(add.eval(&rows).unwrap_err().row, Some(1));
    let rows = batch(vec![("x", integers(&[1, i64::MIN]))]);
    for negation in ["-x as y", "-cast(x / 4294967296 as int) as y", "abs(x) as y"] {
        let negative = Projection::compile(language(), &texts(&[negation]), &rows.schema()).unwrap();
        assert_eq!(negative.eval(&rows).unwrap_err().row, Some(1), "{negation}");
    }
}

#[test]
fn a_bad_cast_says_what_it_met() {
    let rows = batch(vec![("s", some_strings(&["1", "two"]))]);
    let cast = Projection::compile(language(), &texts(&["cast(s as int) as n"]), &rows.schema()).unwrap();
    let error = cast.eval(&rows).unwrap_err();
    assert_eq!(error.row, Some(1));
    assert!(error.message.contains("'two'") && error.message.contains("int"), "{error}");
}

fn lists(rows: &[Option<Vec<Option<&str>>>]) -> RecordBatch {
    let mut list =
        tuplane_expr::arrow::array::ListBuilder::new(tuplane_expr::arrow::array::StringBuilder::new());
    for row in rows {
        match row {
            Some(items) => {
                for item in items {
                    list.values().append_option(*item);
                }
                list.append(true);
            }
            None => list.append(false),
        }
    }
    let list: ListArray = list.finish();
    let n: Vec<i64> = (0..rows.len() as i64).collect();
    batch(vec![("n", integers(&n)), ("tags", Arc::new(list))])
}

#[test]
fn unnest_resumes_inside_a_row() {
    let rows = lists(&[Some(vec![Some("a"), None, Some("c")]), None, Some(vec![]), Some(vec![Some("d")])]);
    let unnest = Unnest::compile(language(), &text("tags as tag"), &rows.schema()).unwrap();
    let mut state = unnest.start(&rows).unwrap();
    let mut sizes = Vec::new();
    let mut out = Vec::new();
    while let Some(next) = state.next(2, usize::MAX) {
        let next = next.unwrap();
        sizes.push(next.num_rows());
        out.extend(integer_column(&next, "n").into_iter().flatten().zip(text_column(&next, "tag")));
    }
    assert_eq!(sizes, [2, 2]);
    let tag = |s: &str| Some(s.to_owned());
    assert_eq!(out, [(0, tag("a")), (0, None), (0, tag("c")), (3, tag("d"))]);
}

proptest! {
    #[test]
    fn unnest_makes_every_element_once_and_keeps_to_its_bounds(
        lens in prop::collection::vec(prop::option::of(0usize..30), 1..20),
        skip in 0usize..3,
        max_rows in 1usize..20,
        max_bytes in 1usize..400,
    ) {
        let items: Vec<String> = (0..30).map(|i| "x".repeat(i)).collect();
        let rows: Vec<Option<Vec<Option<&str>>>> =
            lens.iter().map(|len| len.map(|n| items[..n].iter().map(|s| Some(s.as_str())).collect())).collect();
        let skip = skip.min(rows.len() - 1);
        let batch = lists(&rows).slice(skip, rows.len() - skip);
        let unnest = Unnest::compile(language(), &text("tags"), &batch.schema()).unwrap();
        let mut state = unnest.start(&batch).unwrap();
        let mut got = Vec::new();
        while let Some(next) = state.next(max_rows, max_bytes) {
            let next = next.unwrap();
            prop_assert!((1..=max_rows).contains(&next.num_rows()));
            let tags = text_column(&next, "tags");
            let bytes: usize = tags.iter().flatten().map(|tag| tag.len() + 4 + 8).sum();
            prop_assert!(bytes <= max_bytes || next.num_rows() == 1, "{bytes} > {max_bytes}");
            got.extend(integer_column(&next, "n").into_iter().flatten().zip(tags.into_iter().flatten()));
        }
        let expected: Vec<(i64, String)> = rows
            .iter()
            .enumerate()
            .skip(skip)
            .flat_map(|(n, row)| row.iter().flatten().map(move |tag| (n as i64, tag.unwrap().to_owned())))
            .collect();
        prop_assert_eq!(got, expected);
    }
}

/// A chain of the stages behind a source of `line`.
fn chain(ops: Vec<Op>, on_error: OnError) -> Chain {
    let mut stages = vec![stage("s", words_source(), &[])];
    for (position, op) in ops.into_iter().enumerate() {
        let input = if position == 0 { "s".to_owned() } else { format!("c{}", position - 1) };
        stages.push(stage(&format!("c{position}"), op, &[&input]));
    }
    let last = stages.last().unwrap().id.clone();
    stages.push(stage("out", count_sink(), &[&last]));
    let mut job = job(stages);
    job.options.on_error = on_error;
    let types = resolve(&job).unwrap();
    let dag = plan(&job).unwrap();
    let fused = dag.vertices.iter().position(|v| v.stages.contains(&last)).unwrap();
    match vertex_program(&job, &types, &dag, VertexId(fused as u32)).unwrap().program {
        Program::Chain(chain) => chain,
        other => panic!("not a chain: {other:?}"),
    }
}

fn all(mut run: ChainRun, max_rows: usize) -> (Vec<RecordBatch>, Vec<usize>) {
    let out = std::iter::from_fn(|| run.next(max_rows, 1 << 20)).collect::<Result<Vec<_>, _>>().unwrap();
    (out, run.take_dropped().into_iter().map(|d| d.row).collect())
}

fn word_chain(on_error: OnError) -> Chain {
    chain(
        vec![
            Op::Filter { predicate: Some(text("line <> 'skip'")) },
            Op::FlatMap { unnest: Some(text("words(line) as word")) },
            Op::Filter { predicate: Some(text("word <> 'and'")) },
            map(&["100 / (length(word) - 1) as n"]),
        ],
        on_error,
    )
}

#[test]
fn a_chain_runs_its_steps_in_order_and_cuts_its_output() {
    let chain = word_chain(OnError::Fail);
    let rows = batch(vec![("line", some_strings(&["aaa bbb and cccc", "skip", "", "dd ee ff gg hh"]))]);
    let (out, dropped) = all(chain.run(rows), 3);
    assert!(dropped.is_empty());
    assert!(out.iter().all(|b| (1..=3).contains(&b.num_rows())));
    let n: Vec<i64> = out.iter().flat_map(|b| integer_column(b, "n")).flatten().collect();
    assert_eq!(n, [50, 50, 33, 100, 100, 100, 100, 100]);
}

#[test]
fn a_result_that_no_row_may_have_is_refused_before_it_is_made() {
    let rows = batch(vec![("n", integers(&[3, 3_000_000_000, 2])), ("t", some_strings(&["a", "b", "c"]))]);
    for list in [
        "range(0, n) as i",
        "generate_series(1, n) as i",
        "range(timestamp '2020-01-01', cast(to_timestamp_seconds(1577836800 + n) as timestamp), interval '1 second') as i",
        "array_repeat(t, n) as i",
        "string_to_array(repeat('x,', n - 1) || 'x', ',') as i",
        "string_to_array(lpad(t, 2 * n - 1, 'x,'), ',') as i",
    ] {
        let unnest = Unnest::compile(language(), &text(list), &rows.schema()).unwrap();
        let error = unnest.start(&rows).unwrap_err();
        assert!(error.message.contains("has 16 MiB at most"), "{list}: {}", error.message);
        let (mut state, dropped) = unnest.start_rows(&rows, OnError::Drop).unwrap();
        assert_eq!(dropped.iter().map(|one| one.row).collect::<Vec<_>>(), [1], "{list}");
        let made: usize =
            std::iter::from_fn(|| state.next(8192, 1 << 20)).map(|rows| rows.unwrap().num_rows()).sum();
        assert_eq!(made, 5, "{list}");
    }
}

#[test]
fn large_results_are_made_of_a_few_rows_at_a_time() {
    // 1.6 MB a row, of which 8 MiB hold five; and the rows in between that have none.
    let lines: Vec<String> =
        (0..60).map(|row| if row % 3 == 0 { "x".repeat(10) } else { String::new() }).collect();
    let rows = batch(vec![("line", some_strings(&lines.iter().map(String::as_str).collect::<Vec<_>>()))]);
    let select = &["cast(length(line) as bigint) as n", "range(0, length(line) * 20000) as r"];
    let chain = chain(vec![map(select), Op::Filter { predicate: Some(text("n >= 0")) }], OnError::Fail);
    let mut run = chain.run(rows);
    let (mut n, mut largest) = (Vec::new(), 0);
    while let Some(next) = run.next(8192, 64 << 20) {
        let next = next.unwrap();
        n.extend(integer_column(&next, "n").into_iter().flatten());
        largest = largest.max(next.get_array_memory_size());
    }
    assert_eq!(n, lines.iter().map(|line| line.len() as i64).collect::<Vec<_>>());
    // Half of that may be room to grow.
    assert!((6 << 20..17 << 20).contains(&largest), "{largest} bytes at once");
}

#[test]
fn an_unnest_copies_no_column_that_nobody_reads() {
    let chain = word_chain(OnError::Fail);
    let Some(Step::FlatMap(unnest)) = chain.steps().get(1) else { panic!("{chain:?}") };
    assert_eq!(unnest.output, schema(&[("word", DataType::Utf8)]));
    let open = chain_without_map();
    assert_eq!(*open.output(), schema(&[("line", DataType::Utf8), ("word", DataType::Utf8)]));
}

fn chain_without_map() -> Chain {
    chain(vec![Op::FlatMap { unnest: Some(text("words(line) as word")) }], OnError::Fail)
}

#[test]
fn faulty_rows_have_the_number_of_the_chains_input() {
    let lines = batch(vec![("line", some_strings(&["skip", "aaa bbb", "skip", "ccc d and ee", "f"]))]);
    let mut failing = word_chain(OnError::Fail).run(lines.clone());
    let error = std::iter::from_fn(|| failing.next(8192, 1 << 20)).find_map(Result::err).unwrap();
    assert_eq!(error, EvalError { row: Some(3), message: "division by zero".to_owned() });
    assert!(failing.next(8192, 1 << 20).is_none(), "a failed run has ended");

    let (out, dropped) = all(word_chain(OnError::Drop).run(lines.clone()), 8192);
    assert_eq!(dropped, [3, 4]);
    assert_eq!(
        out.iter().flat_map(|b| integer_column(b, "n")).flatten().collect::<Vec<_>>(),
        [50, 50, 50, 100]
    );

    let (out, dropped) = all(word_chain(OnError::Null).run(lines), 8192);
    assert!(dropped.is_empty());
    let n: Vec<Option<i64>> = out.iter().flat_map(|b| integer_column(b, "n")).collect();
    assert_eq!(n, [Some(50), Some(50), Some(50), None, Some(100), None]);
}

#[test]
fn words_of_a_slice() {
    let lines = batch(vec![("line", some_strings(&["x y", " a\tb ", "", "c"]))]).slice(1, 3);
    let out = project(&["words(line) as w"], &lines);
    let list = out.column(0).as_list::<i32>().clone();
    let got: Vec<usize> = (0..3).map(|row| list.value(row).len()).collect();
    assert_eq!(got, [2, 0, 1]);
    assert_eq!(*list.value(0).as_string::<i32>(), StringArray::from(vec!["a", "b"]));
}
