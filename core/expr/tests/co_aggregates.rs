//! Aggregates over several inputs against a map, in one stage and in two.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use tuplane_core::job::{OnError, Op};
use tuplane_core::plan::{EdgeId, Role, VertexId, plan};
use tuplane_expr::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use tuplane_expr::arrow::compute::cast;
use tuplane_expr::arrow::datatypes::{DataType, SchemaRef};
use tuplane_expr::{
    AggregateInput, AggregateProgram, GroupTable, WhenEmpty, edge_key, resolve, vertex_program,
};

use crate::prelude::*;

/// Id, keys and what is computed of an input.
type Input<'a> = (&'a str, &'a [&'a str], &'a [&'a str], SchemaRef);

fn compiled(inputs: &[Input<'_>], on_error: OnError) -> Result<AggregateProgram, String> {
    let texts: Vec<_> = inputs.iter().map(|(_, keys, compute, _)| (texts(keys), texts(compute))).collect();
    let all: Vec<AggregateInput<'_>> = inputs
        .iter()
        .zip(&texts)
        .map(|((id, _, _, columns), (keys, compute))| AggregateInput { id, keys, compute, columns })
        .collect();
    AggregateProgram::compile_several(language(), &all, on_error)
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn columns(rows: &[(Option<i64>, i64)], key: &str, kind: &DataType) -> RecordBatch {
    let k: ArrayRef = Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>());
    let x = integers(&rows.iter().map(|row| row.1).collect::<Vec<_>>());
    batch(vec![(key, cast(&k, kind).unwrap()), ("x", x)])
}

fn rows() -> impl Strategy<Value = Vec<(Option<i64>, i64)>> {
    prop::collection::vec((prop::option::of(0_i64..5), -9_i64..9), 0..40)
}

/// Rows and sum of one input, rows and greatest value of the other.
type Both = (i64, Option<i64>, i64, Option<i64>);

proptest! {
    #[test]
    fn several_inputs_meet_by_key(a in rows(), b in rows(), keyed: bool, stages in 1_usize..3, cut in 0_usize..40) {
        let (left, right) = (columns(&a, "k", &DataType::Int64), columns(&b, "other", &DataType::Int16));
        let keys: [&[&str]; 2] = if keyed { [&["k"], &["other"]] } else { [&[], &[]] };
        let program = compiled(&[
            ("a", keys[0], &["count(*) as n", "sum(x) filter (where x > 0) as s"], left.schema()),
            ("b", keys[1], &["count(*) as m", "max(x) - count(*) as t"], right.schema()),
        ], OnError::Fail).unwrap();
        let table = || GroupTable::new(program.clone(), 271, WhenEmpty::OneRow).unwrap();
        let cuts = |rows: &RecordBatch| {
            let cut = cut.min(rows.num_rows());
            [rows.slice(0, cut), rows.slice(cut, rows.num_rows() - cut)]
        };
        let (mut first, mut second) = (table(), table());
        let (mut of_first, of_second) = (cuts(&left), cuts(&right));
        of_first.reverse();
        let result = if stages == 1 {
            for (a, b) in of_first.iter().zip(&of_second) {
                first.update_from(0, a, None).unwrap();
                first.update_from(1, b, None).unwrap();
            }
            finals(&mut first)
        } else {
            // Two preparing instances, each with a part of both inputs.
            for (n, instance) in [&mut first, &mut second].into_iter().enumerate() {
                instance.update_from(1, &of_second[n], None).unwrap();
                instance.update_from(0, &of_first[n], None).unwrap();
            }
            let mut combine = table();
            for partial in partials(&mut first).into_iter().chain(partials(&mut second)) {
                combine.merge(&partial, None).unwrap();
            }
            finals(&mut combine)
        };
        let mut expected: BTreeMap<Option<i64>, Both> = BTreeMap::new();
        if !keyed {
            expected.insert(None, (0, None, 0, None));
        }
        for (k, x) in &a {
            let group = expected.entry(k.filter(|_| keyed)).or_default();
            group.0 += 1;
            if *x > 0 {
                group.1 = Some(group.1.unwrap_or(0) + x);
            }
        }
        for (k, x) in &b {
            let group = expected.entry(k.filter(|_| keyed)).or_default();
            group.2 += 1;
            group.3 = group.3.max(Some(*x));
        }
        let shown = |value: Option<i64>| value.map_or("-".to_owned(), |value| value.to_string());
        let mut expected: Vec<String> = expected.into_iter().map(|(k, (n, s, m, most))| {
            let row = format!("{n} {} {m} {}", shown(s), shown(most.map(|most| most - m)));
            if keyed { format!("{} {row}", shown(k)) } else { row }
        }).collect();
        expected.sort();
        prop_assert_eq!(sorted_rows(&result), expected);
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let a = schema(&[("k", DataType::Int64), ("x", DataType::Int64)]);
    let b = schema(&[("k", DataType::Utf8), ("x", DataType::Int64)]);
    let said = |inputs: &[Input<'_>]| compiled(inputs, OnError::Fail).unwrap_err();
    let count: &[&str] = &["count(*) as n"];
    let kinds = said(&[("a", &["k"], count, a.clone()), ("b", &["k"], &["count(*) as m"], b.clone())]);
    assert!(
        kinds.starts_with("`k` of `a` is bigint and `k` of `b` is text, which have no type in common"),
        "{kinds}"
    );
    let doubles = schema(&[("k", DataType::Float64)]);
    let m: &[&str] = &["count(*) as m"];
    let inexact = said(&[("a", &["k"], count, a.clone()), ("b", &["k"], m, doubles.clone())]);
    assert!(
        inexact.starts_with("`k` of `a` is bigint and `k` of `b` is double, which have no type in common (")
            && inexact.contains("cast both to bigint, to double or to decimal(38, n)"),
        "{inexact}"
    );
    for to in ["bigint", "double", "decimal(38, 0)"] {
        let key: &[&str] = &[&format!("cast(k as {to}) as k")];
        compiled(&[("a", key, count, a.clone()), ("b", key, m, doubles.clone())], OnError::Fail).unwrap();
    }
    let twice = said(&[("a", &["k"], count, a.clone()), ("b", &["cast(k as int) as k"], count, b)]);
    assert!(twice.starts_with("two columns are called `n`"), "{twice}");
    let key = said(&[("a", &["k"], &["count(*) as k"], a.clone()), ("b", &["k"], count, a.clone())]);
    assert!(key.starts_with("two columns are called `k`"), "{key}");
    let lengths = said(&[("a", &["k"], count, a.clone()), ("b", &["k", "x"], &["count(*) as m"], a)]);
    assert!(lengths.contains("different lengths"), "{lengths}");
}

#[test]
fn a_key_may_stand_in_what_is_computed_of_any_input() {
    let a = batch(vec![("k", integers(&[1, 2])), ("x", integers(&[10, 20]))]);
    let b = batch(vec![("other", integers(&[2])), ("x", integers(&[5]))]);
    let inputs: [Input<'_>; 2] = [
        ("a", &["k"], &["sum(x) + k as s"], a.schema()),
        ("b", &["other"], &["count(*) * other as c"], b.schema()),
    ];
    let program = compiled(&inputs, OnError::Fail).unwrap();
    let mut table = GroupTable::new(program, 271, WhenEmpty::Nothing).unwrap();
    table.update_from(0, &a, None).unwrap();
    table.update_from(1, &b, None).unwrap();
    assert_eq!(sorted_rows(&finals(&mut table)), ["1 11 0", "2 22 2"]);
}

#[test]
fn both_inputs_send_a_key_to_the_same_partition() {
    let compute =
        [("by_a".to_owned(), texts(&["count(*) as n"])), ("by_b".to_owned(), texts(&["count(*) as m"]))];
    let job = job(vec![
        stage("a", words_source(), &[]),
        stage("b", words_source(), &[]),
        stage("lengths", map(&["cast(length(line) as smallint) as k"]), &["a"]),
        stage("more", map(&["cast(length(line) as double) as k2"]), &["b"]),
        stage("by_a", Op::GroupBy { key: texts(&["k"]) }, &["lengths"]),
        stage("by_b", Op::GroupBy { key: texts(&["k2"]) }, &["more"]),
        stage(
            "co",
            Op::CoAggregate { compute: compute.into(), combine: true, builder: false },
            &["by_a", "by_b"],
        ),
        stage("out", count_sink(), &["co"]),
    ]);
    let (dag, types) = (plan(&job).unwrap(), resolve(&job).unwrap());
    let columns: Vec<String> = types
        .output("co")
        .unwrap()
        .fields()
        .iter()
        .map(|f| format!("{} {}", f.name(), f.data_type()))
        .collect();
    assert_eq!(columns, ["k Float64", "n Int64", "m Int64"]);
    let prepare = dag.vertices.iter().position(|v| v.role == Role::Prepare).unwrap();
    let edges: Vec<EdgeId> = dag.inputs(VertexId(prepare as u32)).map(|(edge, _)| edge).collect();
    let ids = |edge: EdgeId, rows: RecordBatch| {
        edge_key(&job, &types, &dag, edge).unwrap().unwrap().partitions(&rows, 271).unwrap()
    };
    let k = |kind, name: &str| {
        let column = cast(&integers(&[1, 2, 3, 400]), &kind).unwrap();
        batch(vec![(name, column)])
    };
    let (left, right) = (ids(edges[0], k(DataType::Int16, "k")), ids(edges[1], k(DataType::Float64, "k2")));
    assert_eq!(left, right);
    let program = vertex_program(&job, &types, &dag, VertexId(prepare as u32)).unwrap();
    assert_eq!((program.input.len(), program.output.fields().len()), (2, 3));
}
