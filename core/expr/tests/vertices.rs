//! From a job and its plan to programs and keys.

use tuplane_core::job::{Job, Op};
use tuplane_core::plan::{Dag, EdgeId, Key, Partitioner, Role, Routing, VertexId, plan};
use tuplane_expr::arrow::datatypes::DataType;
use tuplane_expr::{KeyExprs, Program, edge_key, resolve, vertex_program};

use crate::prelude::*;

fn word_count() -> (Job, Dag) {
    let job = job(vec![
        stage("lines", words_source(), &[]),
        stage("split", Op::FlatMap { unnest: Some(text("words(line) as word")) }, &["lines"]),
        stage("lower", map(&["ascii_lower(word) as word"]), &["split"]),
        stage("by_word", Op::GroupBy { key: texts(&["word"]) }, &["lower"]),
        stage("counts", Op::Aggregate { compute: texts(&["count(*) as n"]), combine: true }, &["by_word"]),
        stage("out", count_sink(), &["counts"]),
    ]);
    let dag = plan(&job).unwrap();
    (job, dag)
}

/// The vertex that a stage became, by role.
fn vertex(dag: &Dag, stage: &str, role: Role) -> VertexId {
    let found = dag.vertices.iter().position(|v| v.role == role && v.stages.iter().any(|s| s == stage));
    VertexId(found.unwrap() as u32)
}

/// The edge into a vertex.
fn edge(dag: &Dag, to: VertexId) -> EdgeId {
    dag.inputs(to).next().unwrap().0
}

#[test]
fn a_word_count_from_plan_to_result() {
    let (job, dag) = word_count();
    let types = resolve(&job).unwrap();
    let of = |stage, role| vertex_program(&job, &types, &dag, vertex(&dag, stage, role)).unwrap();
    let (lines, sink) = (of("lines", Role::Whole), of("out", Role::Whole));
    let (prepared, result) = (of("counts", Role::Prepare), of("counts", Role::Combine));
    let columns = schema(&[("word", DataType::Utf8), ("n", DataType::Int64)]);
    assert_eq!(types.output("counts").unwrap(), columns);
    assert!(matches!(lines.program, Program::Pass) && lines.input.is_empty());
    assert!(matches!(sink.program, Program::Pass));
    assert_eq!(sink.input, std::slice::from_ref(&columns));
    assert_eq!(result.input, std::slice::from_ref(&prepared.output));
    assert_eq!(result.output, columns);

    let Program::Chain(chain) = of("split", Role::Whole).program else { panic!("not a chain") };
    assert_eq!(chain.steps().len(), 2);
    let Program::Aggregate(aggregate) = prepared.program else { panic!("not an aggregate") };
    let mut run = chain.run(batch(vec![("line", some_strings(&["To be or", "not to be"]))]));
    let (mut prepare, mut combine) = (table(&aggregate, 271), table(&aggregate, 271));
    while let Some(words) = run.next(4, 1 << 20) {
        prepare.update(&words.unwrap(), None).unwrap();
    }
    let to_combine = edge(&dag, vertex(&dag, "counts", Role::Combine));
    assert!(matches!(dag.edge(to_combine).routing, Routing::Partitioned { key: Key::Entry, .. }));
    let key = edge_key(&job, &types, &dag, to_combine).unwrap().unwrap();
    for partial in partials(&mut prepare) {
        assert_eq!(partial.schema(), prepared.output);
        let ids = key.partitions(&partial, 271).unwrap();
        combine.merge(&partial, Some(&ids)).unwrap();
    }
    assert_eq!(sorted_rows(&finals(&mut combine)), ["be 2", "not 1", "or 1", "to 2"]);
}

#[test]
fn an_edge_by_expressions_and_one_by_partial_rows_agree() {
    let rows = batch(vec![("word", strings([Some("a"), Some("b"), None, Some("a")]))]);
    let mut counts = table(&program(&["word"], &["count(*) as n"], &rows.schema()), 271);
    counts.update(&rows, None).unwrap();
    let by_expr = KeyExprs::compile(language(), &texts(&["word"]), &rows.schema()).unwrap();
    let before = by_expr.partitions(&rows, 271).unwrap();
    for partial in partials(&mut counts) {
        let after = by_expr.partitions(&partial, 271).unwrap();
        for (row, word) in text_column(&partial, "word").into_iter().enumerate() {
            let same = text_column(&rows, "word").iter().position(|w| *w == word).unwrap();
            assert_eq!(after.value(row), before.value(same));
        }
    }
}

#[test]
fn only_partitioned_edges_have_keys() {
    let (job, dag) = word_count();
    let types = resolve(&job).unwrap();
    let unicast = edge(&dag, vertex(&dag, "split", Role::Whole));
    assert!(edge_key(&job, &types, &dag, unicast).unwrap().is_none());
}

#[test]
fn the_whole_row_as_a_key() {
    let (job, mut dag) = word_count();
    let types = resolve(&job).unwrap();
    let out = edge(&dag, vertex(&dag, "out", Role::Whole));
    dag.edges[out.0 as usize].routing =
        Routing::Partitioned { key: Key::WholeItem, partitioner: Partitioner::Default };
    let key = edge_key(&job, &types, &dag, out).unwrap().unwrap();
    assert_eq!(key.fields().len(), 2);
}

#[test]
fn the_key_reaches_through_views() {
    let (mut job, _) = word_count();
    job.stages[4].inputs = texts(&["view"]);
    job.stages.insert(4, stage("view", Op::Peek { sample_per_second: None }, &["by_word"]));
    let types = resolve(&job).unwrap();
    assert_eq!(types.output("counts").unwrap().field(0).name(), "word");
}
