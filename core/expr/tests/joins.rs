//! Hash joins against nested loops.

use std::sync::Arc;

use proptest::prelude::*;
use tuplane_core::fault::At;
use tuplane_core::job::{JoinKind, OnError, Op};
use tuplane_core::plan::{Role, plan};
use tuplane_expr::arrow::array::{
    ArrayRef, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch, UInt64Array,
};
use tuplane_expr::arrow::compute::cast;
use tuplane_expr::arrow::datatypes::{DataType, SchemaRef};
use tuplane_expr::system::{SystemColumn, SystemColumns};
use tuplane_expr::{
    JoinBuilder, JoinProgram, JoinTable, JoinTexts, Program, Projection, resolve, vertex_program,
};

use crate::prelude::*;

fn compiled(
    on: &[&str],
    kind: JoinKind,
    inputs: &[(&str, SchemaRef)],
    system: SystemColumns,
    on_error: OnError,
) -> Result<JoinProgram, String> {
    let on = texts(on);
    let texts = JoinTexts { on: &on, kind, at: At::default() };
    JoinProgram::compile(language(), texts, inputs, system, on_error)
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn table(program: &JoinProgram, input: usize, batches: &[RecordBatch]) -> Arc<JoinTable> {
    let mut builder = JoinBuilder::new(program.clone(), input).unwrap();
    for batch in batches {
        builder.push(batch).unwrap();
    }
    Arc::new(builder.finish().unwrap())
}

/// All joined rows, in pieces of at most so many.
fn joined(
    program: &JoinProgram,
    primary: &RecordBatch,
    tables: Vec<Arc<JoinTable>>,
    most: usize,
    bytes: usize,
) -> Vec<RecordBatch> {
    let mut run = program.run(primary, &tables.into()).unwrap();
    let pieces: Vec<RecordBatch> =
        std::iter::from_fn(|| run.next(most, bytes)).collect::<Result<_, _>>().unwrap();
    assert!(pieces.iter().all(|piece| (1..=most).contains(&piece.num_rows())));
    pieces
}

#[test]
fn enriching_rows_that_wait_keep_no_more_alive_than_themselves() {
    let wide = integers(&(0..100_000).collect::<Vec<_>>());
    let buffer = wide.to_data().buffers()[0].clone();
    let rows = batch(vec![("a", wide)]);
    let inputs = [("p", rows.schema()), ("e", rows.schema())];
    let program =
        compiled(&["p.a = e.a"], JoinKind::Inner, &inputs, SystemColumns::NONE, OnError::Fail).unwrap();
    let mut builder = JoinBuilder::new(program, 0).unwrap();
    builder.push(&rows.slice(7, 1)).unwrap();
    builder.push(&rows.slice(70_000, 2)).unwrap();
    drop(rows);
    assert_eq!((buffer.strong_count(), builder.finish().unwrap().rows()), (1, 3));
}

type Keyed = (Option<i64>, Option<String>);

fn longs(rows: &[Keyed]) -> RecordBatch {
    let a: ArrayRef = Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>());
    let b = strings(rows.iter().map(|row| row.1.as_deref()));
    let id = integers(&(0..rows.len() as i64).collect::<Vec<_>>());
    batch(vec![("a", a), ("b", b), ("id", id)])
}

/// As [`longs`], but for the type of `a`.
fn shorts(rows: &[Keyed]) -> RecordBatch {
    let a: ArrayRef = Arc::new(rows.iter().map(|row| row.0.map(|a| a as i32)).collect::<Int32Array>());
    let all = longs(rows);
    batch(vec![("a", a), ("b", Arc::clone(all.column(1))), ("id", Arc::clone(all.column(2)))])
}

fn doubles(rows: &[Keyed]) -> RecordBatch {
    let a: ArrayRef = Arc::new(rows.iter().map(|row| row.0.map(|a| a as f64)).collect::<Float64Array>());
    let all = longs(rows);
    batch(vec![("a", a), ("b", Arc::clone(all.column(1))), ("id", Arc::clone(all.column(2)))])
}

fn partners(row: &Keyed, others: &[Keyed], both: bool, kind: JoinKind) -> Vec<Option<usize>> {
    let same =
        |other: &Keyed| row.0.is_some() && row.0 == other.0 && (!both || row.1.is_some() && row.1 == other.1);
    let found: Vec<Option<usize>> =
        others.iter().enumerate().filter(|(_, other)| same(other)).map(|(n, _)| Some(n)).collect();
    if found.is_empty() && kind == JoinKind::Left { vec![None] } else { found }
}

fn keyed(most: usize) -> impl Strategy<Value = Vec<Keyed>> {
    let a = prop::option::of(-3_i64..4);
    let b = prop::option::of("[xy]{0,1}");
    prop::collection::vec((a, b), 0..most)
}

proptest! {
    #[test]
    fn a_hash_join_is_a_nested_loop(
        primary in keyed(30),
        left in keyed(40),
        right in keyed(12),
        outer: bool,
        most in 1_usize..20,
        cut in 1_usize..40,
    ) {
        let kind = if outer { JoinKind::Left } else { JoinKind::Inner };
        let (p, l, r) = (longs(&primary), shorts(&left), doubles(&right));
        let inputs = [("p", p.schema()), ("l", l.schema()), ("r", r.schema())];
        let on = ["a = a and b = b", "p.a = r.a"];
        let program = compiled(&on, kind, &inputs, SystemColumns::NONE, OnError::Fail).unwrap();
        let cut = cut.min(l.num_rows());
        let tables = vec![
            table(&program, 0, &[l.slice(0, cut), l.slice(cut, l.num_rows() - cut)]),
            table(&program, 1, &[r]),
        ];
        let pieces = joined(&program, &p, tables, most, 1 << 20);
        let found: Vec<(Option<i64>, Option<i64>, Option<i64>)> = pieces.iter().flat_map(|piece| {
            let of = |name| integer_column(piece, name);
            let (p, l, r) = (of("id"), of("l.id"), of("r.id"));
            p.into_iter().zip(l).zip(r).map(|((p, l), r)| (p, l, r)).collect::<Vec<_>>()
        }).collect();
        let mut expected = Vec::new();
        for (number, row) in primary.iter().enumerate() {
            for l in partners(row, &left, true, kind) {
                for r in partners(row, &right, false, kind) {
                    let id = |n: Option<usize>| n.map(|n| n as i64);
                    expected.push((Some(number as i64), id(l), id(r)));
                }
            }
        }
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn integers_and_doubles_meet_exactly() {
    const EDGE: i64 = 1 << 53;
    let doubles =
        [EDGE as f64, (EDGE + 2) as f64, 0.5, -0.0, f64::NAN, 2.0_f64.powi(63), -(2.0_f64.powi(63))];
    let shown = |row: &RecordBatch| sorted_rows([row]);
    let long = batch(vec![("k", integers(&[EDGE - 1, EDGE, EDGE + 1, EDGE + 2, 0, 1, i64::MIN, i64::MAX]))]);
    let double = batch(vec![("k", floats(&doubles)), ("n", integers(&[0, 1, 2, 3, 4, 5, 6]))]);
    let unsigned = batch(vec![("k", cast(long.column(0), &DataType::UInt64).unwrap())]);
    let single = batch(vec![("k", Arc::new(Float32Array::from(vec![16_777_216.0, 0.5])) as ArrayRef)]);
    let whole = batch(vec![("k", Arc::new(Int32Array::from(vec![16_777_216, 16_777_217, 0])) as ArrayRef)]);
    let meet = |primary: &RecordBatch, enriching: &RecordBatch| {
        let inputs = [("p", primary.schema()), ("e", enriching.schema())];
        let program = compiled(&["k = k"], JoinKind::Inner, &inputs, SystemColumns::NONE, OnError::Fail);
        let program = program.unwrap();
        let tables = vec![table(&program, 0, std::slice::from_ref(enriching))];
        joined(&program, primary, tables, 100, 1 << 20).iter().flat_map(shown).collect::<Vec<_>>()
    };
    let found = [
        "-9223372036854775808 -9.223372036854776e18 6",
        "0 -0.0 3",
        "9007199254740992 9007199254740992.0 0",
        "9007199254740994 9007199254740994.0 1",
    ];
    assert_eq!(meet(&long, &double), found);
    // The other way round, and without a sign (where negative ones have become null).
    assert_eq!(meet(&double, &long).len(), 4);
    let found =
        ["0 -0.0 3", "9007199254740992 9007199254740992.0 0", "9007199254740994 9007199254740994.0 1"];
    assert_eq!(meet(&unsigned, &double), found);
    assert_eq!(meet(&whole, &single), ["16777216 16777216.0"]);
}

#[test]
fn a_row_with_more_partners_than_a_piece_holds_goes_on_in_the_next() {
    let p = batch(vec![("k", integers(&[1, 2, 1]))]);
    let many =
        batch(vec![("k", integers(&[1; 200_000])), ("n", integers(&(0..200_000).collect::<Vec<_>>()))]);
    let inputs = [("p", p.schema()), ("m", many.schema())];
    let program = compiled(&["k = k"], JoinKind::Inner, &inputs, SystemColumns::NONE, OnError::Fail).unwrap();
    let pieces: Vec<RecordBatch> = (0..200).map(|n| many.slice(n * 1000, 1000)).collect();
    // 24 bytes a row: about 4,369 fit.
    let made = joined(&program, &p, vec![table(&program, 0, &pieces)], 8192, 100 << 10);
    assert!(made.iter().all(|piece| piece.num_rows() <= 4400), "{}", made[0].num_rows());
    let found: Vec<i64> = made.iter().flat_map(|piece| integer_column(piece, "m.n")).flatten().collect();
    let once: Vec<i64> = (0..200_000).collect();
    assert_eq!(found, [once.clone(), once].concat());
}

#[test]
fn columns_of_an_input_stand_under_its_id() {
    let p = batch(vec![("id", integers(&[7])), ("ad", some_strings(&["x"]))]);
    let ads = batch(vec![("ad", some_strings(&["x"])), ("campaign", some_strings(&["c"]))]);
    let of = |on: &str, kind| {
        let inputs = [("views", p.schema()), ("ads", ads.schema())];
        compiled(&[on], kind, &inputs, SystemColumns::NONE, OnError::Fail)
    };
    let program = of("ad = ad", JoinKind::Inner).unwrap();
    let names: Vec<&str> = program.output().fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["id", "ad", "ads.ad", "ads.campaign"]);
    let tables = vec![table(&program, 0, std::slice::from_ref(&ads))];
    assert_eq!(sorted_rows(&joined(&program, &p, tables, 10, 100)), ["7 x x c"]);
    // Without partners, and with an empty table.
    let program = of("upper(ad) = ads.ad", JoinKind::Left).unwrap();
    for rows in [1, 0] {
        let tables = vec![table(&program, 0, &[ads.slice(0, rows)])];
        assert_eq!(sorted_rows(&joined(&program, &p, tables, 10, 100)), ["7 x - -"]);
    }
}

#[test]
fn conditions_that_cannot_be_joined_on_are_refused() {
    let p = schema(&[("id", DataType::Int64), ("ad", DataType::Utf8), ("ads.y", DataType::Utf8)]);
    let ads = schema(&[("ad", DataType::Utf8), ("x", DataType::Utf8), ("y", DataType::Utf8)]);
    let said = |on: &str, ads: &SchemaRef| {
        let inputs = [("views", Arc::clone(&p)), ("ads", Arc::clone(ads))];
        compiled(&[on], JoinKind::Inner, &inputs, SystemColumns::NONE, OnError::Fail).unwrap_err()
    };
    let plain = schema(&[("ad", DataType::Utf8), ("x", DataType::Utf8)]);
    for (on, expected) in [
        ("ad = ad or id = x", "`ad = ad or id = x` is no equality (write `primary expr = enriching expr`"),
        ("ad", "`ad` is no equality"),
        (
            "id = ad",
            "`id` of `views` is bigint and `ad` of `ads` is text, which have no type in common (cast one",
        ),
        ("ad = 'a'", "`'a'` names no column of `ads`"),
        (
            "x = ad",
            "`x = ad` has its sides the wrong way round (left of `=` stands an expression over `views`",
        ),
        ("ad = nothing", "no column `nothing` (columns: ad, x)"),
        ("views.ads.y = ad", "no column `views.ads.y`"),
    ] {
        let found = said(on, &plain);
        assert!(found.contains(expected), "{on}: {found}");
    }
    let inputs = [("a", Arc::clone(&plain)), ("b", Arc::clone(&plain)), ("b", Arc::clone(&plain))];
    let both = compiled(&["x = x", "x = x"], JoinKind::Inner, &inputs, SystemColumns::NONE, OnError::Fail);
    assert!(both.unwrap_err().starts_with("the enriching input `b` stands twice"));
    let twice = said("ad = ad", &ads);
    assert!(twice.starts_with("two columns of the joined row are called `ads.y`"), "{twice}");
}

#[test]
fn keys_that_cannot_be_computed_go_by_on_error() {
    let p = batch(vec![("t", some_strings(&["1", "x", "2"]))]);
    let e = batch(vec![("n", integers(&[1, 2])), ("t", some_strings(&["1", "y"]))]);
    let inputs = [("p", p.schema()), ("e", e.schema())];
    let of =
        |on: &str, on_error| compiled(&[on], JoinKind::Left, &inputs, SystemColumns::NONE, on_error).unwrap();
    let on = "cast(t as bigint) = n";
    let fail = of(on, OnError::Fail);
    let error = fail.run(&p, &vec![table(&fail, 0, std::slice::from_ref(&e))].into()).unwrap_err();
    assert_eq!(error.row, Some(1));
    assert!(error.message.contains("cannot cast 'x' to bigint"), "{error}");
    for (on_error, dropped, rows) in [
        (OnError::Drop, 1, vec!["1 1 1", "2 2 y"]),
        // A key that is null finds nothing.
        (OnError::Null, 0, vec!["1 1 1", "2 2 y", "x - -"]),
    ] {
        let program = of(on, on_error);
        let mut run = program.run(&p, &vec![table(&program, 0, std::slice::from_ref(&e))].into()).unwrap();
        assert_eq!(run.take_dropped().len(), dropped);
        assert_eq!(run.take_last().unwrap().row, 1);
        let made: Vec<RecordBatch> = std::iter::from_fn(|| run.next(10, 1000)).map(Result::unwrap).collect();
        assert_eq!(sorted_rows(&made), rows);
    }
    // The same on the other side.
    let program = of("t = cast(cast(t as bigint) as text)", OnError::Drop);
    let mut builder = JoinBuilder::new(program.clone(), 0).unwrap();
    builder.push(&e).unwrap();
    assert_eq!((builder.take_dropped().len(), builder.take_last().unwrap().row), (1, 1));
    assert_eq!(builder.finish().unwrap().rows(), 1);
}

#[test]
fn the_first_inputs_system_columns_go_with_its_rows_and_others_do_not() {
    let at = |numbers: &[u64]| Arc::new(UInt64Array::from(numbers.to_vec())) as ArrayRef;
    let p = batch(vec![("k", integers(&[1, 2])), ("_at", at(&[11, 12]))]);
    let e = batch(vec![("k", integers(&[2, 2])), ("_at", at(&[21, 22]))]);
    let own = schema(&[("k", DataType::Int64)]);
    let inputs = [("p", Arc::clone(&own)), ("e", own)];
    let system = SystemColumns::only(SystemColumn::At);
    let program = compiled(&["k = k"], JoinKind::Left, &inputs, system, OnError::Fail).unwrap();
    let names: Vec<&str> = program.output().fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["k", "e.k", "_at"]);
    let made = joined(&program, &p, vec![table(&program, 0, &[e])], 10, 1000);
    assert_eq!(sorted_rows(&made), ["1 - 11", "2 2 12", "2 2 12"]);
}

#[test]
fn a_join_from_plan_to_programs() {
    let join = Op::HashJoin { on: texts(&["line = line"]), kind: JoinKind::Inner, builder: false };
    let job = job(vec![
        stage("a", words_source(), &[]),
        stage("b", words_source(), &[]),
        stage("j", join, &["a", "b"]),
        stage("few", map(&["line", "\"b.line\" as other"]), &["j"]),
        stage("out", count_sink(), &["few"]),
    ]);
    let (dag, types) = (plan(&job).unwrap(), resolve(&job).unwrap());
    assert_eq!(types.output("few").unwrap().fields().len(), 2);
    let of = |role| {
        let found = dag.vertices.iter().position(|v| v.role == role && v.stages == ["j"]).unwrap();
        vertex_program(&job, &types, &dag, tuplane_core::plan::VertexId(found as u32)).unwrap()
    };
    let (collector, joiner) = (of(Role::Collector { input: 1 }), of(Role::Whole));
    assert!(matches!(collector.program, Program::Join(_)) && matches!(joiner.program, Program::Join(_)));
    assert_eq!((collector.output.fields().len(), joiner.output.fields().len()), (1, 2));
    assert_eq!(joiner.input, [types.output("a").unwrap(), collector.output]);
    let mut unquoted = job;
    unquoted.stages[3].op = map(&["b.line as other"]);
    let faults = resolve(&unquoted).unwrap_err();
    assert!(faults[0].message.contains("must be quoted"), "{faults:?}");
    assert!(faults[0].help.as_ref().unwrap().contains("\"b.line\""), "{faults:?}");
}

/// What one side's type cannot hold is equal to nothing on the other.
#[test]
fn a_key_that_does_not_fit_finds_nothing() {
    let found = |left: (&str, ArrayRef), right: (&str, ArrayRef)| {
        let (left, right) = (typed(left.0, &left.1), typed(right.0, &right.1));
        let inputs = [("p", left.schema()), ("e", right.schema())];
        let program =
            compiled(&["p.a = e.a"], JoinKind::Inner, &inputs, SystemColumns::NONE, OnError::Fail).unwrap();
        let table = table(&program, 0, &[right]);
        joined(&program, &left, vec![table], 100, 1 << 20).iter().map(RecordBatch::num_rows).sum::<usize>()
    };
    let of = |values: &[&str]| some_strings(values);
    let all = [
        ("bigint", of(&["9223372036854775807", "1"]), "decimal(38, 37)", of(&["1", "1.5"]), 1),
        ("decimal(38, 37)", of(&["1", "1.5"]), "bigint", of(&["9223372036854775807", "1"]), 1),
        (
            "decimal(38, 0)",
            of(&["99999999999999999999999999999999999999", "2"]),
            "decimal(38, 37)",
            of(&["2", "0.1"]),
            1,
        ),
        ("decimal(10, 2)", of(&["1.50"]), "decimal(12, 4)", of(&["1.5", "1.5001"]), 1),
        ("int", of(&["7"]), "decimal(3, 1)", of(&["7.0", "7.5"]), 1),
        (
            "date",
            of(&["9999-12-31", "2024-01-01"]),
            "timestamp",
            of(&["2024-01-01T00:00:00", "2024-01-01T00:00:01"]),
            1,
        ),
    ];
    for (left, these, right, those, expected) in all {
        assert_eq!(found((left, these), (right, those)), expected, "{left} = {right}");
    }
}

/// A column `a` of a type, from texts.
fn typed(kind: &str, values: &ArrayRef) -> RecordBatch {
    let texts = batch(vec![("a", Arc::clone(values))]);
    let select = [text(&format!("cast(a as {kind}) as a"))];
    Projection::compile(language(), &select, &texts.schema()).unwrap().eval(&texts).unwrap()
}

#[test]
fn a_date_is_no_time_of_day() {
    let of = |kind: &str| typed(kind, &some_strings(&[])).schema();
    let inputs = [("p", of("date")), ("e", of("time"))];
    let said =
        compiled(&["p.a = e.a"], JoinKind::Inner, &inputs, SystemColumns::NONE, OnError::Fail).unwrap_err();
    assert!(said.contains("is date") && said.contains("is time, which have no type in common"), "{said}");
}
