//! Windows against their definition, in one stage and in two; and event time from a job's file to its rows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tuplane_core::job::{FileFormat, Job, OnError, Window, WindowKind};
use tuplane_core::plan::{Role, VertexId, plan};
use tuplane_expr::arrow::array::{Array, ArrayRef, AsArray, Int64Array, TimestampNanosecondArray};
use tuplane_expr::arrow::datatypes::{Int64Type, SchemaRef, TimestampNanosecondType};
use tuplane_expr::arrow::record_batch::RecordBatch;
use tuplane_expr::system::{SystemColumn, event_times, with_column};
use tuplane_expr::{Program, WindowPart, WindowProgram, WindowTable, resolve, vertex_program};

use crate::prelude::*;

fn window(kind: WindowKind, size: u64, slide: u64) -> Window {
    let slide = (kind == WindowKind::Sliding).then(|| Duration::from_nanos(slide));
    Window { kind, size: Some(Duration::from_nanos(size)), slide, early: None }
}

/// Rows of (key, event time, value); a negative key is null.
fn rows(rows: &[(i64, i64, i64)]) -> RecordBatch {
    let keys: Int64Array = rows.iter().map(|(key, ..)| Some(*key).filter(|key| *key >= 0)).collect();
    let values = integers(&rows.iter().map(|(.., value)| *value).collect::<Vec<_>>());
    stamped(&batch(vec![("k", Arc::new(keys)), ("x", values)]), &rows.iter().map(|r| r.1).collect::<Vec<_>>())
}

fn stamped(rows: &RecordBatch, times: &[i64]) -> RecordBatch {
    let times: ArrayRef = Arc::new(TimestampNanosecondArray::from(times.to_vec()));
    with_column(rows, SystemColumn::Ts, times).unwrap()
}

fn own() -> SchemaRef {
    batch(vec![("k", integers(&[])), ("x", integers(&[]))]).schema()
}

const COMPUTE: [&str; 3] = ["count(*) as n", "sum(x) as total", "max(x) filter (where x > 0) as most"];

fn compiled(keys: &[&str], window: &Window) -> WindowProgram {
    let compute = texts(&COMPUTE);
    WindowProgram::compile(language(), &texts(keys), window, &compute, &own(), OnError::Fail).unwrap()
}

fn opened(program: &WindowProgram, part: WindowPart) -> WindowTable {
    WindowTable::new(program.clone(), 13, part).unwrap()
}

fn emitted(table: &mut WindowTable) -> Vec<RecordBatch> {
    std::iter::from_fn(|| table.emit(5)).collect::<Result<_, _>>().unwrap()
}

/// A result row: key (-1 is null), window, count, sum, maximum of those above 0.
type Found = (i64, i64, i64, i64, i64, Option<i64>);

fn found(batches: &[RecordBatch], keyed: bool) -> Vec<Found> {
    let mut all = Vec::new();
    for given in batches {
        let time = |name: &str| {
            given.column_by_name(name).unwrap().as_primitive::<TimestampNanosecondType>().values().to_vec()
        };
        let (starts, ends) = (time("window_start"), time("window_end"));
        let integer = |name: &str| given.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
        let (n, total, most) = (integer("n"), integer("total"), integer("most"));
        for row in 0..given.num_rows() {
            let key = if keyed { integer("k") } else { Int64Array::from(vec![0; given.num_rows()]) };
            let key = if key.is_null(row) { -1 } else { key.value(row) };
            let most = most.is_valid(row).then(|| most.value(row));
            all.push((key, starts[row], ends[row], n.value(row), total.value(row), most));
        }
    }
    all.sort_unstable();
    all
}

/// What rows come to in their windows, by definition: nothing is late.
fn defined(rows: &[(i64, i64, i64)], window: &Window, keyed: bool) -> Vec<Found> {
    let size = window.size.unwrap().as_nanos() as i64;
    let key_of = |key: i64| if keyed { key.max(-1) } else { 0 };
    let mut windows: BTreeMap<(i64, i64, i64), Vec<i64>> = BTreeMap::new();
    if window.kind == WindowKind::Session {
        let mut sorted: Vec<_> = rows.iter().map(|(key, time, x)| (key_of(*key), *time, *x)).collect();
        sorted.sort_unstable();
        for run in sorted.chunk_by(|a, b| a.0 == b.0 && b.1 - a.1 < size) {
            let values = run.iter().map(|row| row.2).collect();
            windows.insert((run[0].0, run[0].1, run[run.len() - 1].1 + size), values);
        }
    } else {
        let slide = window.slide.map_or(size, |slide| slide.as_nanos() as i64);
        for (key, time, x) in rows {
            for start in (-100..100).map(|k| k * slide).filter(|s| s <= time && *time < s + size) {
                windows.entry((key_of(*key), start, start + size)).or_default().push(*x);
            }
        }
    }
    let result = |((key, start, end), values): ((i64, i64, i64), Vec<i64>)| {
        let most = values.iter().copied().filter(|x| *x > 0).max();
        (key, start, end, values.len() as i64, values.iter().sum(), most)
    };
    windows.into_iter().map(result).collect()
}

fn any_window() -> impl Strategy<Value = Window> {
    prop_oneof![
        (1u64..30).prop_map(|size| window(WindowKind::Tumbling, size, 0)),
        (1u64..30, 1u64..30).prop_map(|(a, b)| window(WindowKind::Sliding, a.max(b), a.min(b))),
        (1u64..20).prop_map(|gap| window(WindowKind::Session, gap, 0)),
    ]
}

fn any_rows() -> impl Strategy<Value = Vec<(i64, i64, i64)>> {
    prop::collection::vec((-1i64..5, -60i64..60, -9i64..9), 1..60)
}

proptest! {
    /// Whatever the order of the rows, the size of batches and where the watermark stands between them: as long
    /// as no row is late, the results are those of the definition, each given once and not before its time.
    #[test]
    fn results_are_those_of_the_definition(
        window in any_window(),
        all in any_rows(),
        cut in 1usize..20,
        keyed in any::<bool>(),
    ) {
        let program = compiled(if keyed { &["k"] } else { &[] }, &window);
        let mut table = opened(&program, WindowPart::Whole);
        let mut given = Vec::new();
        let batches: Vec<_> = all.chunks(cut).collect();
        for (number, some) in batches.iter().enumerate() {
            table.update(&rows(some), None).unwrap();
            // No later row is earlier than that.
            let rest = batches[number + 1..].iter().flat_map(|rows| rows.iter().map(|row| row.1));
            if let Some(watermark) = rest.min() {
                table.advance(watermark);
                let now = emitted(&mut table);
                for end in found(&now, keyed).iter().map(|row| row.2) {
                    prop_assert!(end <= watermark);
                }
                given.extend(now);
            }
        }
        table.advance(i64::MAX);
        given.extend(emitted(&mut table));
        prop_assert_eq!(table.take_late(), 0);
        prop_assert_eq!(found(&given, keyed), defined(&all, &window, keyed));
        prop_assert!(table.bytes() < 64 << 10, "emitted windows are let go: {}", table.bytes());
    }

    /// Two stages come to the same, however rows are spread over the first one's instances.
    #[test]
    fn two_stages_come_to_the_same(
        window in any_window(),
        all in any_rows(),
        cut in 1usize..20,
        keyed in any::<bool>(),
        idle in prop::collection::vec(any::<bool>(), 60),
    ) {
        prop_assume!(window.kind != WindowKind::Session);
        let program = compiled(if keyed { &["k"] } else { &[] }, &window);
        let mut first = [(); 3].map(|()| opened(&program, WindowPart::Prepare));
        let mut second = opened(&program, WindowPart::Combine);
        let mut given = Vec::new();
        let batches: Vec<_> = all.chunks(cut).collect();
        for (number, some) in batches.iter().enumerate() {
            first[number % 3].update(&rows(some), None).unwrap();
            let rest = batches[number + 1..].iter().flat_map(|rows| rows.iter().map(|row| row.1));
            let watermark = rest.min().unwrap_or(i64::MAX);
            for one in &mut first {
                one.advance(watermark);
                if idle[number] {
                    one.give_open();
                }
                for partial in emitted(one) {
                    prop_assert_eq!(partial.schema(), program.partial_schema());
                    second.merge(&partial, None).unwrap();
                }
            }
            second.advance(watermark);
            given.extend(emitted(&mut second));
        }
        prop_assert_eq!(second.take_late() + first.iter_mut().map(WindowTable::take_late).sum::<u64>(), 0);
        prop_assert_eq!(found(&given, keyed), defined(&all, &window, keyed));
    }

    /// Rows that come too late are counted, each once, and the others are in all their windows that are open.
    #[test]
    fn late_rows_are_counted_and_nothing_is_lost(
        window in any_window(),
        all in any_rows(),
        watermarks in prop::collection::vec(-60i64..60, 1..10),
    ) {
        prop_assume!(window.kind != WindowKind::Sliding);
        let program = compiled(&["k"], &window);
        let mut table = opened(&program, WindowPart::Whole);
        let (mut given, mut marks) = (Vec::new(), watermarks.into_iter());
        for some in all.chunks(7) {
            table.update(&rows(some), None).unwrap();
            if let Some(watermark) = marks.next() {
                table.advance(watermark);
                given.extend(emitted(&mut table));
            }
        }
        table.advance(i64::MAX);
        given.extend(emitted(&mut table));
        let late = table.take_late();
        prop_assert_eq!(late > 0, table.take_last_late().is_some());
        let counted: i64 = found(&given, true).iter().map(|row| row.3).sum();
        prop_assert_eq!(counted as u64 + late, all.len() as u64);
    }
}

#[test]
fn a_row_is_late_only_if_all_of_its_windows_were_given() {
    let program = compiled(&[], &window(WindowKind::Sliding, 10, 5));
    let mut table = opened(&program, WindowPart::Whole);
    table.advance(12);
    assert!(emitted(&mut table).is_empty());
    // In [0, 10), which is gone, and in [5, 15).
    table.update(&rows(&[(0, 7, 1)]), None).unwrap();
    // In [-5, 5) and [0, 10).
    table.update(&rows(&[(0, 20, 1), (0, 4, 1)]), None).unwrap();
    assert_eq!(table.take_late(), 1);
    let last = table.take_last_late().unwrap();
    assert_eq!(last.row, 1);
    let said = "a row of 1970-01-01T00:00:00.000000004Z came when its windows had been given";
    assert!(last.message.starts_with(said), "{}", last.message);
    table.advance(i64::MAX);
    let ends: Vec<i64> = found(&emitted(&mut table), false).iter().map(|row| row.2).collect();
    assert_eq!(ends, [15, 25, 30]);
}

#[test]
fn what_is_open_is_given_before_others_go_on_and_late_partial_results_are_named() {
    let program = compiled(&["k"], &window(WindowKind::Tumbling, 10, 0));
    let (mut first, mut second) =
        (opened(&program, WindowPart::Prepare), opened(&program, WindowPart::Combine));
    first.advance(105);
    first.update(&rows(&[(1, 106, 2), (1, 107, 3), (2, 111, 1)]), None).unwrap();
    assert!(emitted(&mut first).is_empty());
    first.give_open();
    for partial in emitted(&mut first) {
        second.merge(&partial, None).unwrap();
    }
    // Awake again, and still in time.
    first.update(&rows(&[(1, 108, 4)]), None).unwrap();
    first.advance(110);
    let partials = emitted(&mut first);
    for partial in &partials {
        second.merge(partial, None).unwrap();
    }
    second.advance(200);
    let expected = [(1, 100, 110, 3, 9, Some(4)), (2, 110, 120, 1, 1, Some(1))];
    assert_eq!(found(&emitted(&mut second), true), expected);
    assert_eq!(second.take_late(), 0);
    second.merge(&partials[0], None).unwrap();
    assert_eq!(second.take_late(), 1);
    let said = "a partial result of rows from 1970-01-01T00:00:00.000000100Z on came when its windows had been given; \
                the watermark stood at";
    let last = second.take_last_late().unwrap();
    assert!(last.message.starts_with(said), "{}", last.message);
}

/// Bounds that no number says are cut off at the ends of time; each row leaves, and no window is walked over
/// that holds none.
#[test]
fn windows_at_the_ends_of_time_are_given_and_come_to_an_end() {
    let hour = 3_600_000_000_000_u64;
    for window in [
        window(WindowKind::Tumbling, 2 * hour, 0),
        window(WindowKind::Sliding, 2 * hour, hour),
        window(WindowKind::Sliding, 3, 1),
        window(WindowKind::Session, hour, 0),
    ] {
        let early = Window { early: Some(Duration::from_secs(1)), ..window.clone() };
        for (window, part) in
            [(&window, WindowPart::Whole), (&window, WindowPart::Prepare), (&early, WindowPart::Whole)]
        {
            let program = compiled(&[], window);
            let mut table = opened(&program, part);
            let times = [i64::MIN, i64::MIN, i64::MIN + 1, 0, i64::MAX - 1, i64::MAX];
            table.update(&rows(&times.map(|time| (0, time, 1))), None).unwrap();
            table.give_early();
            emitted(&mut table);
            for watermark in [i64::MIN, i64::MIN + 5, 0, i64::MAX - 1] {
                table.advance(watermark);
                emitted(&mut table);
            }
            table.advance(i64::MAX);
            let last = emitted(&mut table);
            assert!(!last.is_empty(), "{window:?}");
            assert!(table.emit(5).is_none() && table.take_late() == 0);
            assert!(table.bytes() < 4 << 10, "{window:?}: {} bytes are kept", table.bytes());
        }
    }
}

#[test]
fn a_session_takes_in_rows_up_to_its_gap_and_joins_others() {
    let program = compiled(&["k"], &window(WindowKind::Session, 10, 0));
    let mut table = opened(&program, WindowPart::Whole);
    table.update(&rows(&[(1, 0, 1), (1, 15, 2), (2, 3, 5)]), None).unwrap();
    table.update(&rows(&[(1, 8, 4), (1, 25, 8)]), None).unwrap();
    table.advance(24);
    // The row at 25 is not in [0, 25).
    assert_eq!(found(&emitted(&mut table), true), [(2, 3, 13, 1, 5, Some(5))]);
    // Too late by itself, but in a session that is open.
    table.update(&rows(&[(1, 5, 16), (3, 5, 1)]), None).unwrap();
    assert_eq!(table.take_late(), 1);
    table.advance(25);
    assert_eq!(found(&emitted(&mut table), true), [(1, 0, 25, 4, 23, Some(16))]);
    table.advance(i64::MAX);
    assert_eq!(found(&emitted(&mut table), true), [(1, 25, 35, 1, 8, Some(8))]);
}

#[test]
fn early_results_are_of_windows_that_have_changed() {
    for kind in [WindowKind::Tumbling, WindowKind::Sliding, WindowKind::Session] {
        let early = Window { early: Some(Duration::from_secs(1)), ..window(kind, 10, 5) };
        let program = compiled(&[], &early);
        assert_eq!(program.early(), Some(Duration::from_secs(1)));
        let mut table = opened(&program, WindowPart::Whole);
        table.give_early();
        assert!(emitted(&mut table).is_empty());
        // Whether each result is the last one of its window.
        let last_ones = |given: &[RecordBatch]| -> Vec<bool> {
            let of = |given: &RecordBatch| given.column_by_name("window_final").unwrap().as_boolean().clone();
            given.iter().flat_map(|given| of(given).iter().flatten().collect::<Vec<_>>()).collect()
        };
        table.update(&rows(&[(0, 1, 3)]), None).unwrap();
        table.give_early();
        let given = emitted(&mut table);
        assert!(!last_ones(&given).contains(&true), "{kind:?}");
        let first: Vec<i64> = found(&given, false).iter().map(|row| row.3).collect();
        let windows = if kind == WindowKind::Sliding { 2 } else { 1 };
        assert_eq!(first, vec![1; windows], "{kind:?}");
        table.give_early();
        assert!(emitted(&mut table).is_empty(), "{kind:?}");
        table.update(&rows(&[(0, 2, 3)]), None).unwrap();
        table.give_early();
        assert_eq!(found(&emitted(&mut table), false).len(), windows);
        table.advance(i64::MAX);
        let given = emitted(&mut table);
        assert_eq!(last_ones(&given), vec![true; windows], "{kind:?}");
        let last: Vec<i64> = found(&given, false).iter().map(|row| row.3).collect();
        assert_eq!(last, vec![2; windows], "the final ones come still");
    }
    let early = Window { early: Some(Duration::from_secs(1)), ..window(WindowKind::Tumbling, 10, 5) };
    let compute = texts(&["count(*) as window_final"]);
    let faults =
        WindowProgram::compile(language(), &[], &early, &compute, &own(), OnError::Fail).unwrap_err();
    assert!(faults[0].message.contains("`window_final` is a column that the window adds"), "{faults:?}");
    assert!(
        compiled(&[], &window(WindowKind::Tumbling, 10, 5)).final_schema().index_of("window_final").is_err()
    );
}

/// The panes of a window are put together piece by piece, so that others have their turn in between.
#[test]
fn a_window_of_many_panes_is_put_together_in_several_calls() {
    for keys in [&[][..], &["k"][..]] {
        let program = compiled(keys, &window(WindowKind::Sliding, 2000, 1));
        let mut table = opened(&program, WindowPart::Whole);
        let all: Vec<_> = (0..2000).map(|time| (time % 3, time, 1)).collect();
        table.update(&rows(&all), None).unwrap();
        table.advance(2000);
        let calls = emitted(&mut table);
        let given = found(&calls, !keys.is_empty());
        let (mut windows, mut rows) = (BTreeMap::new(), 0);
        for (_, start, end, n, ..) in given {
            assert_eq!(end - start, 2000);
            *windows.entry(end).or_insert(0) += n;
            rows += n;
        }
        assert_eq!(windows, (1..=2000).map(|end| (end, end)).collect());
        assert_eq!(rows, 2000 * 2001 / 2);
        let empty = calls.iter().filter(|call| call.num_rows() == 0).count();
        assert!(
            (2000..4000).contains(&empty),
            "{empty} calls put 2,000 windows of up to 2,000 panes together"
        );
    }
}

#[test]
fn many_sessions_leave_no_trace() {
    let program = compiled(&["k"], &window(WindowKind::Session, 10, 0));
    let mut table = opened(&program, WindowPart::Whole);
    let (mut most, mut sessions) = (0, 0);
    // One key stays, thousands come and go.
    for step in 0..200_i64 {
        let some: Vec<_> =
            (0..50).map(|n| (1 + step * 50 + n, step * 5, 1)).chain([(0, step * 5, 1)]).collect();
        table.update(&rows(&some), None).unwrap();
        table.advance(step * 5);
        sessions += found(&emitted(&mut table), true).len();
        most = most.max(table.bytes());
    }
    table.advance(i64::MAX);
    let last = found(&emitted(&mut table), true);
    assert_eq!(sessions + last.len(), 200 * 50 + 1);
    assert!(last.contains(&(0, 0, 1005, 200, 200, Some(1))), "{last:?}");
    assert!(most < 1 << 20, "{most} bytes for some 200 open sessions");
}

/// A job file's stages between a csv file with `t`, `n` and `at`, and a sink.
fn job_of(stages: &str) -> Job {
    let text = format!(
        "name = \"test\"\n[[stage]]\nid = \"in\"\nop = \"source\"\npath = \"in.csv\"\nformat = \"csv\"\n\
         columns = {{ t = \"text\", n = \"bigint\", at = \"timestamp\" }}\n{stages}"
    );
    Job::parse(&text, FileFormat::Toml).unwrap_or_else(|faults| panic!("{faults:?}"))
}

fn one(op: &str, id: &str, from: &str, more: &str) -> String {
    format!("[[stage]]\nid = \"{id}\"\nop = \"{op}\"\nin = \"{from}\"\n{more}\n")
}

fn columns(schema: &SchemaRef) -> Vec<&str> {
    schema.fields().iter().map(|field| field.name().as_str()).collect()
}

/// Names of the columns that leave each vertex, by its label.
fn leaving(job: &Job) -> BTreeMap<String, Vec<String>> {
    let types = resolve(job).unwrap_or_else(|faults| panic!("{faults:?}"));
    let dag = plan(job).unwrap();
    let of = |v: usize| {
        let program = vertex_program(job, &types, &dag, VertexId(v as u32)).unwrap();
        let names = columns(&program.output).into_iter().map(str::to_owned).collect();
        (dag.vertices[v].label(), names)
    };
    (0..dag.vertices.len()).map(of).collect()
}

const SINK: &str = "connector = \"count\"";
const MINUTES: &str = "type = \"tumbling\"\nsize = \"1m\"";

#[test]
fn event_times_go_from_the_source_to_the_last_window_and_no_further() {
    let stages = "time = \"at\"\n".to_owned()
        + &one("map", "m", "in", "select = [\"t\", \"n + 1 as n\"]")
        + &one("group_by", "by", "m", "key = \"t\"")
        + &one("window", "w", "by", MINUTES)
        + &one("aggregate", "counts", "w", "compute = [\"count(*) as n\"]")
        + &one("window", "again", "counts", MINUTES)
        + &one("aggregate", "most", "again", "compute = [\"max(n) as most\"]")
        + &one("sink", "out", "most", SINK);
    let leaving = leaving(&job_of(&stages));
    let of = |vertex: &str| leaving[vertex].join(" ");
    assert_eq!(of("in"), "t n at _at _ts");
    assert_eq!(of("m"), "t n _at _ts");
    assert_eq!(of("counts/prepare"), "t #0.0 #pane");
    assert_eq!(of("counts"), "t window_start window_end n _ts");
    assert_eq!(of("most/prepare"), "#0.0 #pane");
    assert_eq!(of("most"), "window_start window_end most");
}

#[test]
fn a_window_may_stand_before_or_behind_the_key() {
    let group = |from: &str| one("group_by", "by", from, "key = \"t\"");
    let window = |from: &str| one("window", "w", from, MINUTES);
    let behind = |from: &str| {
        one("aggregate", "counts", from, "compute = [\"count(*) as n\"]")
            + &one("sink", "out", "counts", SINK)
    };
    let one = leaving(&job_of(&format!("time = \"at\"\n{}{}{}", group("in"), window("by"), behind("w"))));
    let other = leaving(&job_of(&format!("time = \"at\"\n{}{}{}", window("in"), group("w"), behind("by"))));
    assert_eq!(one, other);
    assert_eq!(one["counts"].join(" "), "t window_start window_end n");
}

#[test]
fn arrivals_are_made_only_for_those_who_ask() {
    let stages = one("map", "m", "in", "select = [\"t\", \"arrived() as seen\"]")
        + &one("filter", "f", "m", "where = \"seen > arrived()\"")
        + &one("map", "last", "f", "select = [\"*\"]\nparallelism = 1")
        + &one("sink", "out", "last", SINK);
    let job = job_of(&stages);
    let found = leaving(&job);
    assert_eq!(found["in"].join(" "), "t n at _due");
    assert_eq!(found["m+f"].join(" "), "t seen");
    let (types, dag) = (resolve(&job).unwrap(), plan(&job).unwrap());
    let Program::Chain(chain) = vertex_program(&job, &types, &dag, VertexId(1)).unwrap().program else {
        panic!("no chain")
    };
    let at: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![None]));
    let rows = batch(vec![("t", some_strings(&["a", "b"])), ("n", integers(&[1, 2]))]);
    let at = tuplane_expr::arrow::compute::concat(&[&*at, &*at]).unwrap();
    let rows = RecordBatch::try_new(job_schema(&types), rows.columns().iter().cloned().chain([at]).collect())
        .unwrap();
    let due: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![5, 6]));
    let rows = with_column(&rows, SystemColumn::Due, due).unwrap();
    // The filter asks for rows that arrived before they arrived; without it they would carry the column.
    assert!(chain.run(rows).next(10, 1 << 20).is_none());

    for (stage, where_) in [("sort", "by = [\"arrived()\"]"), ("group_by", "key = \"arrived()\"")] {
        let stages = one(stage, "s", "in", where_)
            + &one("map", "l", if stage == "sort" { "s" } else { "in" }, "select = [\"*\"]")
            + &one("sink", "out", "l", SINK);
        let faults = resolve(&job_of(&stages)).unwrap_err();
        assert!(faults[0].message.starts_with("`arrived()` can stand in `map`"), "{faults:?}");
    }
    let stages = one("map", "m", "in", "select = [\"_due\"]") + &one("sink", "out", "m", SINK);
    assert!(resolve(&job_of(&stages)).unwrap_err()[0].message.contains("_due"));
}

#[test]
fn results_of_rows_have_neither_their_times_nor_their_arrivals() {
    let counts = one("aggregate", "c", "in", "compute = [\"count(*) as n\"]");
    let stages = format!("{counts}{}", one("map", "m", "c", "select = [\"arrived() as seen\"]"))
        + &one("sink", "out", "m", SINK);
    let faults = resolve(&job_of(&stages)).unwrap_err();
    assert!(faults[0].message.starts_with("`arrived()` is known of rows that were read"), "{faults:?}");
    // One input with times and one without: no window over both.
    let timed = "[[stage]]\nid = \"timed\"\nop = \"add_timestamps\"\nin = \"in\"\ntime = \"at\"\n";
    let stages = timed.to_owned()
        + &one("map", "a", "timed", "select = [\"n\"]")
        + &one("aggregate", "c", "timed", "compute = [\"count(*) as n\"]")
        + "[[stage]]\nid = \"both\"\nop = \"merge\"\nin = [\"a\", \"c\"]\n"
        + &one("window", "w", "both", "type = \"tumbling\"\nsize = \"1s\"")
        + &one("aggregate", "r", "w", "compute = [\"count(*) as rows\"]")
        + &one("sink", "out", "r", SINK);
    let faults = resolve(&job_of(&stages)).unwrap_err();
    assert!(faults[0].message.starts_with("a window counts event time"), "{faults:?}");
}

fn job_schema(types: &tuplane_expr::Types) -> SchemaRef {
    types.output("in").unwrap()
}

#[test]
fn a_result_that_cannot_be_computed_goes_by_on_error_in_every_window() {
    // The sum of the first key does not fit, the third's count divides by zero.
    let given = rows(&[(1, 0, i64::MAX), (2, 1, 5), (1, 2, 1), (3, 3, 1), (3, 4, 1), (3, 5, 1), (4, 6, 7)]);
    let compute = texts(&["sum(x) as s", "10 / (count(*) - 3) as q"]);
    let left = |given: &[RecordBatch]| {
        let column = |rows: &RecordBatch, name: &str| integer_column(rows, name);
        let all = given.iter().flat_map(|rows| {
            column(rows, "k").into_iter().zip(column(rows, "s")).zip(column(rows, "q")).collect::<Vec<_>>()
        });
        let mut all: Vec<_> = all.map(|((k, s), q)| (k.unwrap(), s, q)).collect();
        all.sort_unstable();
        all
    };
    for kind in [WindowKind::Tumbling, WindowKind::Sliding, WindowKind::Session] {
        let run = |on_error| {
            let window = window(kind, 100, 100);
            let keys = texts(&["k"]);
            let program =
                WindowProgram::compile(language(), &keys, &window, &compute, &own(), on_error).unwrap();
            let mut table = opened(&program, WindowPart::Whole);
            table.update(&given, None).unwrap();
            table.advance(i64::MAX);
            let made = std::iter::from_fn(|| table.emit(5)).collect::<Result<Vec<_>, _>>();
            let last = table.take_last().map(|last| last.message);
            (made, table.take_dropped().len(), last)
        };
        let (made, ..) = run(OnError::Fail);
        let error = made.unwrap_err();
        assert!(error.message.starts_with("in the result of a group: "), "{kind:?}: {}", error.message);
        let (made, dropped, last) = run(OnError::Drop);
        assert_eq!(left(&made.unwrap()), [(2, Some(5), Some(-5)), (4, Some(7), Some(-5))], "{kind:?}");
        assert!(last.unwrap().starts_with("in the result of a group: "), "{kind:?}");
        assert_eq!(dropped, 2, "{kind:?}");
        let (made, dropped, last) = run(OnError::Null);
        let wanted =
            [(1, None, Some(-10)), (2, Some(5), Some(-5)), (3, Some(3), None), (4, Some(7), Some(-5))];
        assert_eq!((left(&made.unwrap()), dropped, last.is_some()), (wanted.to_vec(), 0, true), "{kind:?}");
    }
}

#[test]
fn a_stage_stamps_rows_and_leaves_out_those_without_a_time() {
    for (on_error, left) in [("fail", None), ("drop", Some(2)), ("null", Some(2))] {
        let time = "time = { column = \"t || ' +0200'\", format = \"%Y-%m-%d %H:%M %z\" }";
        let stages = one("add_timestamps", "stamped", "in", time)
            + &one("window", "w", "stamped", MINUTES)
            + &one("aggregate", "counts", "w", "compute = [\"count(*) as n\"]")
            + &one("sink", "out", "counts", SINK);
        let job = job_of(&format!("{stages}\n[job]\non_error = \"{on_error}\"\n"));
        let (types, dag) = (resolve(&job).unwrap(), plan(&job).unwrap());
        let Program::Stamp(program) = vertex_program(&job, &types, &dag, VertexId(1)).unwrap().program else {
            panic!("no stamps")
        };
        assert_eq!(columns(program.input()), ["t", "n", "at", "_at"]);
        assert_eq!(columns(program.output()), ["t", "n", "at", "_at", "_ts"]);
        let texts = some_strings(&["1970-01-01 02:00", "soon", "1970-01-01 03:00"]);
        let null: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![None::<i64>; 3]));
        let rows = RecordBatch::try_new(types.output("in").unwrap(), vec![texts, integers(&[1, 2, 3]), null]);
        match (program.stamp(&rows.unwrap()), left) {
            (Ok(stamped), Some(left)) => {
                assert_eq!(stamped.times().values().to_vec(), [0, 3_600_000_000_000]);
                assert_eq!(stamped.rows.num_rows(), left);
                assert_eq!(event_times(&stamped.rows).unwrap().len(), left);
                assert_eq!(stamped.dropped[0].row, 1);
            }
            (Err(error), None) => {
                assert_eq!(error.row, Some(1));
                assert!(error.message.starts_with("cannot read 'soon +0200' as a time"), "{}", error.message);
            }
            other => panic!("{on_error}: {other:?}"),
        }
    }
}

#[test]
fn a_source_with_a_vertex_for_its_stamps_hands_on_what_that_needs() {
    let stages = "time = \"at\"\ntimestamps = \"source\"\n".to_owned()
        + &one("window", "w", "in", MINUTES)
        + &one("aggregate", "counts", "w", "compute = [\"count(*) as n\"]")
        + &one("sink", "out", "counts", SINK);
    let job = job_of(&stages);
    let found = leaving(&job);
    assert_eq!(found["in"].join(" "), "t n at _at");
    assert_eq!(found["in/timestamps"].join(" "), "t n at _at _ts");
    let dag = plan(&job).unwrap();
    assert_eq!(dag.vertices.iter().filter(|vertex| vertex.role == Role::Timestamps).count(), 1);
}

#[test]
fn an_operator_of_a_registry_hands_no_event_time_on() {
    let behind = |from: &str| {
        one("window", "w", from, MINUTES)
            + &one("aggregate", "counts", "w", "compute = [\"count(*) as n\"]")
            + &one("sink", "out", "counts", SINK)
    };
    let own = one("custom_transform", "own", "in", "call = \"own\"");
    let same = |asked: tuplane_expr::types::Asked<'_>| Ok(asked.input.cloned());
    let resolved = |stages: &str| tuplane_expr::resolve_registered(&job_of(stages), &|_| None, &same);
    let faults = resolved(&format!("time = \"at\"\n{own}{}", behind("own"))).unwrap_err();
    assert_eq!(faults[0].message, "`own` hands no event time on, as no operator of a registry does");
    let stamps = one("add_timestamps", "stamped", "own", "time = \"at\"");
    assert!(resolved(&format!("{own}{stamps}{}", behind("stamped"))).is_ok());
}

#[test]
fn faults_of_windows_and_times_are_said() {
    let said = |stages: &str| {
        let faults = resolve(&job_of(stages)).unwrap_err();
        faults.iter().map(|fault| fault.message.clone()).collect::<Vec<_>>().join("; ")
    };
    let aggregate = |compute: &str| {
        "time = \"at\"\n".to_owned()
            + &one("window", "w", "in", MINUTES)
            + &one("aggregate", "counts", "w", &format!("compute = [\"{compute}\"]"))
            + &one("sink", "out", "counts", SINK)
    };
    assert!(said(&aggregate("count(*) as window_end")).contains("a column that the window adds"));
    let ttl = "state = [\"0 as s\"]\nupdate = [\"s + 1 as s\"]\nselect = [\"s\"]\nttl = \"1m\"";
    let stages = one("map_stateful", "s", "in", ttl) + &one("sink", "out", "s", SINK);
    assert!(said(&stages).contains("`ttl` counts event time"));
    assert!(resolve(&job_of(&format!("time = \"at\"\n{stages}"))).is_ok());
    let stages = "time = \"n\"\n".to_owned() + &one("sink", "out", "in", SINK);
    assert!(said(&stages).contains("does not say how it counts"));
    let stages = "time = \"att\"\n".to_owned() + &one("sink", "out", "in", SINK);
    assert!(said(&stages).contains("did you mean `at`?"));
}

/// A table of states with `ttl = "10ns"`, and rows of some keys at a time.
fn states_by_time() -> (tuplane_expr::StatefulTable, impl Fn(&[i64], &[i64]) -> RecordBatch) {
    let stateful = "state = [\"0 as s\"]\nupdate = [\"s + 1 as s\"]\nselect = [\"n\", \"s\"]\nttl = \"10ns\"";
    let stages = "time = \"at\"\n".to_owned()
        + &one("group_by", "by", "in", "key = \"n\"")
        + &one("map_stateful", "s", "by", stateful)
        + &one("sink", "out", "s", SINK);
    let job = job_of(&stages);
    let (types, dag) = (resolve(&job).unwrap(), plan(&job).unwrap());
    let v = dag.vertices.iter().position(|vertex| vertex.stages == ["s"]).unwrap() as u32;
    let Program::Stateful(program) = vertex_program(&job, &types, &dag, VertexId(v)).unwrap().program else {
        panic!("no state")
    };
    let schema = job_schema(&types);
    let rows = move |keys: &[i64], times: &[i64]| {
        let null: ArrayRef = Arc::new(TimestampNanosecondArray::from(times.to_vec()));
        let texts = strings(keys.iter().map(|_| None));
        let rows = RecordBatch::try_new(Arc::clone(&schema), vec![texts, integers(keys), null]).unwrap();
        stamped(&rows, times)
    };
    (tuplane_expr::StatefulTable::new(program, 13).unwrap(), rows)
}

#[test]
fn many_states_run_out_part_by_part() {
    let (mut table, rows) = states_by_time();
    let keys: Vec<i64> = (0..60_000).collect();
    for some in keys.chunks(8192) {
        table.advance(&rows(some, &vec![0; some.len()]), None).unwrap();
    }
    let mut held = vec![table.keys_held()];
    while held.last() != Some(&0) && held.len() < 9 {
        table.expire(20).unwrap();
        held.push(table.keys_held());
    }
    assert_eq!((held[0], held.last()), (60_000, Some(&0)), "{held:?}");
    assert!(held.windows(2).all(|two| two[0] - two[1] <= 16_384 + 60_000 / 13 + 1000), "{held:?}");
    // The next time around it begins anew.
    table.advance(&rows(&[1, 2], &[100, 200]), None).unwrap();
    table.expire(150).unwrap();
    assert_eq!(table.keys_held(), 1);
}

/// Rows of two keys, each a minute after the last: every one of them finds the state of its key run out.
#[test]
fn what_state_runs_out_is_the_same_in_any_batches() {
    let (keys, times): (Vec<i64>, Vec<i64>) = (0..100).map(|i| (i % 2, i * 60)).unzip();
    for size in [1, 7, 100] {
        let (mut table, rows) = states_by_time();
        for (keys, times) in keys.chunks(size).zip(times.chunks(size)) {
            let tuplane_expr::Advanced::Rows(made) = table.advance(&rows(keys, times), None).unwrap() else {
                panic!("rows become rows")
            };
            assert!(integer_column(&made, "s").iter().all(|s| *s == Some(1)), "{size}: {made:?}");
        }
    }
}

proptest! {
    /// State runs out when the watermark, or the time of the key's next row, has passed the key's last row by `ttl`,
    /// and not before.
    #[test]
    fn state_of_a_key_runs_out_by_event_time(
        steps in prop::collection::vec((prop::collection::vec((0i64..4, 0i64..100), 0..6), 0i64..120), 1..30),
    ) {
        let ttl = 10;
        let (mut table, rows) = states_by_time();
        let (mut states, mut now) = (BTreeMap::<i64, (i64, i64)>::new(), i64::MIN);
        for (some, watermark) in steps {
            let (keys, times): (Vec<i64>, Vec<i64>) = some.iter().copied().unzip();
            let tuplane_expr::Advanced::Rows(made) = table.advance(&rows(&keys, &times), None).unwrap() else {
                panic!("rows become rows")
            };
            // What the watermark has passed is gone before the batch; its rows then count one after another.
            for key in &keys {
                if states.get(key).is_some_and(|(_, seen)| now != i64::MIN && seen + ttl <= now) {
                    states.remove(key);
                }
            }
            let expected: Vec<Option<i64>> = some.iter().map(|(key, time)| {
                let (count, seen) = states.entry(*key).or_insert((0, *time));
                if *seen + ttl <= *time {
                    *count = 0;
                }
                (*count, *seen) = (*count + 1, (*seen).max(*time));
                Some(*count)
            }).collect();
            prop_assert_eq!(integer_column(&made, "s"), expected);
            now = now.max(watermark);
            table.expire(watermark).unwrap();
            let kept = states.values().filter(|(_, seen)| seen + ttl > now).count();
            prop_assert!(table.keys_held() >= kept && table.keys_held() <= states.len());
        }
        table.expire(1_000).unwrap();
        prop_assert_eq!(table.keys_held(), 0);
    }
}
