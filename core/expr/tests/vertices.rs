//! From a job and its plan to programs and keys.

use tuplane_core::job::{Op, Route, Sink, SinkConnector, SinkFormat, SinkKind};
use tuplane_core::plan::{Dag, Edge, EdgeId, Key, Parallelism, Partitioner, Role, Routing, Vertex, VertexId};
use tuplane_expr::arrow::datatypes::DataType;
use tuplane_expr::{Program, edge_key, resolve, vertex_program};

use crate::prelude::*;

pub(crate) fn edge(from: u32, to: u32, routing: Routing) -> Edge {
    Edge {
        from: VertexId(from),
        from_ordinal: 0,
        to: VertexId(to),
        ordinal: 0,
        routing,
        distributed: false,
        priority: 0,
        ordered: false,
        route: Route::default(),
        rebalance: None,
        why: String::new(),
    }
}

fn vertex(name: &str, stages: &[&str], role: Role) -> Vertex {
    let stages = stages.iter().map(|s| (*s).to_owned()).collect();
    Vertex { name: name.to_owned(), stages, role, parallelism: Parallelism::Default }
}

fn word_count() -> (tuplane_core::job::Job, Dag) {
    let sink = Op::Sink(Sink {
        kind: SinkKind::Default,
        key: Vec::new(),
        preferred_parallelism: None,
        connector: Some(SinkConnector::Stdout { format: SinkFormat::Csv }),
    });
    let job = job(vec![
        stage("lines", words_source(), &[]),
        stage("split", Op::FlatMap { unnest: Some(text("words(line) as word")) }, &["lines"]),
        stage("lower", map(&["ascii_lower(word) as word"]), &["split"]),
        stage("by_word", Op::GroupBy { key: texts(&["word"]) }, &["lower"]),
        stage("counts", Op::Aggregate { compute: texts(&["count(*) as n"]), combine: true }, &["by_word"]),
        stage("out", sink, &["counts"]),
    ]);
    let partitioned = |key| Routing::Partitioned { key, partitioner: Partitioner::Default };
    let dag = Dag {
        vertices: vec![
            vertex("lines", &["lines"], Role::Whole),
            vertex("fused(flat-map, map)", &["split", "lower"], Role::Whole),
            vertex("aggregate-prepare", &["counts"], Role::Prepare),
            vertex("aggregate", &["counts"], Role::Combine),
            vertex("out", &["out"], Role::Whole),
        ],
        edges: vec![
            edge(0, 1, Routing::Unicast),
            edge(1, 2, partitioned(Key::Exprs(texts(&["word"])))),
            edge(2, 3, partitioned(Key::Entry)),
            edge(3, 4, Routing::Unicast),
        ],
        notes: Vec::new(),
    };
    (job, dag)
}

#[test]
fn a_word_count_from_plan_to_result() {
    let (job, dag) = word_count();
    let types = resolve(&job).unwrap();
    let program = |v| vertex_program(&job, &types, &dag, VertexId(v)).unwrap();
    let result = schema(&[("word", DataType::Utf8), ("n", DataType::Int64)]);
    assert_eq!(types.output("counts").unwrap(), result);
    assert!(matches!(program(0).program, Program::Pass) && program(0).input.is_empty());
    assert!(matches!(program(4).program, Program::Pass));
    assert_eq!(program(4).input, [result.clone()]);
    assert_eq!(program(3).input, [program(2).output]);
    assert_eq!(program(3).output, result);
    assert_eq!((program(2).role, program(3).role), (Role::Prepare, Role::Combine));

    let Program::Chain(chain) = program(1).program else { panic!("not a chain") };
    let Program::Aggregate(aggregate) = program(2).program else { panic!("not an aggregate") };
    let mut run = chain.run(batch(vec![("line", some_strings(&["To be or", "not to be"]))]));
    let (mut prepare, mut combine) = (table(&aggregate, 271), table(&aggregate, 271));
    let by_expr = edge_key(&job, &types, &dag, EdgeId(1)).unwrap().unwrap();
    let by_entry = edge_key(&job, &types, &dag, EdgeId(2)).unwrap().unwrap();
    while let Some(words) = run.next(4, 1 << 20) {
        let words = words.unwrap();
        let ids = by_expr.partitions(&words, 271).unwrap();
        prepare.update(&words, Some(&ids)).unwrap();
    }
    for partial in partials(&mut prepare) {
        assert_eq!(partial.schema(), program(2).output);
        let ids = by_entry.partitions(&partial, 271).unwrap();
        assert_eq!(ids, by_expr.partitions(&partial, 271).unwrap());
        combine.merge(&partial, Some(&ids)).unwrap();
    }
    let counts = finals(&mut combine);
    assert_eq!(sorted_rows(&counts), ["be 2", "not 1", "or 1", "to 2"]);
}

#[test]
fn only_partitioned_edges_have_keys() {
    let (job, dag) = word_count();
    let types = resolve(&job).unwrap();
    assert!(edge_key(&job, &types, &dag, EdgeId(0)).unwrap().is_none());
}

#[test]
fn the_whole_row_as_a_key() {
    let (job, mut dag) = word_count();
    let types = resolve(&job).unwrap();
    dag.edges[3].routing = Routing::Partitioned { key: Key::WholeItem, partitioner: Partitioner::Default };
    let key = edge_key(&job, &types, &dag, EdgeId(3)).unwrap().unwrap();
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
