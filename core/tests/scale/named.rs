//! The named failures of elasticity.md section 2.1, with the numbers given there, on a queueing engine.

use tuplane_core::scale::planner::{slots_by_code, slots_by_slide};
use tuplane_core::scale::{Engine, FlowEdge, FlowGraph, FlowVertex, steady};

use super::planners::planned;

/// Name, instances, capacity of one, selectivity.
type Vertex = (&'static str, u32, f64, f64);

fn graph(offered: &[f64], vertices: &[Vertex], edges: &[(usize, usize)]) -> FlowGraph {
    let made =
        vertices.iter().enumerate().map(|(index, (id, instances, capacity, selectivity))| FlowVertex {
            offered: offered.get(index).copied(),
            selectivity: *selectivity,
            ..FlowVertex::new(*id, *instances, *capacity)
        });
    let edges =
        edges.iter().map(|(from, to)| FlowEdge { from: *from, to: *to, selectivity: vertices[*from].3 });
    FlowGraph::new(made.collect(), edges.collect()).unwrap()
}

fn chain(offered: f64, vertices: &[Vertex]) -> FlowGraph {
    let edges: Vec<_> = (1..vertices.len()).map(|to| (to - 1, to)).collect();
    graph(&[offered], vertices, &edges)
}

/// New instances by vertex, and what comes out.
fn result(graph: &FlowGraph, slots: u32, planner: &str) -> (Vec<u32>, f64) {
    let plan = planned(graph, Engine::Queueing, slots, planner);
    let added = plan.instances.iter().zip(graph.instances()).map(|(after, before)| after - before);
    (added.collect(), plan.after)
}

#[test]
fn one_the_observed_rate_is_taken_for_the_capacity() {
    let chain = chain(
        4000.0,
        &[("0", 1, 4000.0, 1.0), ("1", 1, 500.0, 1.0), ("2", 1, 3000.0, 1.0), ("3", 1, 3000.0, 1.0)],
    );
    assert_eq!(result(&chain, 4, "stela-code"), (vec![0, 2, 1, 1], 1500.0));
    assert_eq!(result(&chain, 4, "best"), (vec![0, 4, 0, 0], 2500.0));
}

#[test]
fn two_fifteen_percent_over_is_not_congested() {
    let chain = chain(1150.0, &[("0", 1, 9000.0, 1.0), ("1", 1, 9000.0, 1.0), ("2", 1, 1000.0, 1.0)]);
    assert_eq!(result(&chain, 1, "stela-code"), (vec![1, 0, 0], 1000.0));
    assert_eq!(result(&chain, 1, "stela"), (vec![1, 0, 0], 1000.0));
    assert_eq!(result(&chain, 1, "best"), (vec![0, 0, 1], 1150.0));
}

#[test]
fn three_a_chain_like_page_load() {
    let fast = |name, selectivity| (name, 4, 1000.0, selectivity);
    let vertices = [
        fast("spout", 1.0),
        fast("transform", 1.0),
        fast("filter", 0.8),
        fast("join", 1.0),
        ("filter2", 4, 200.0, 0.8),
        fast("aggregate", 1.0),
        fast("sink", 1.0),
    ];
    let chain = chain(2000.0, &vertices);
    assert!((result(&chain, 4, "stela-code").1 - 960.0).abs() < 1e-9);
    assert!((result(&chain, 4, "best").1 - 1280.0).abs() < 1e-9);
}

#[test]
fn four_two_bottlenecks_in_series() {
    let chain = chain(
        6000.0,
        &[("src", 1, 6000.0, 1.0), ("a", 2, 1000.0, 1.0), ("fast", 1, 6000.0, 1.0), ("b", 2, 800.0, 1.0)],
    );
    assert_eq!(result(&chain, 4, "stela-code"), (vec![0, 1, 1, 2], 3000.0));
    assert_eq!(result(&chain, 4, "best"), (vec![0, 2, 0, 2], 3200.0));
}

#[test]
fn four_two_that_bind_alike_gain_nothing_alone() {
    let chain = chain(6000.0, &[("src", 1, 6000.0, 1.0), ("a", 2, 1000.0, 1.0), ("b", 2, 1000.0, 1.0)]);
    for engine in [Engine::Queueing, Engine::BackPressured] {
        let plan = planned(&chain, engine, 2, "best");
        assert_eq!(plan.instances, [1, 3, 3], "{engine}");
        let [first, second] = &plan.steps[..] else { panic!("{:?}", plan.steps) };
        let alone =
            "carries 100 % of the output, takes at most 2000 rows/s: pays together with the steps behind it";
        assert_eq!((first.why.as_str(), first.after - first.before), (alone, 0.0));
        assert_eq!(second.why, "carries 100 % of the output, limits it at 2000 rows/s that it takes");
        assert_eq!(planned(&chain, engine, 1, "best").left.unwrap().slots, 1);
    }
}

#[test]
fn five_where_the_authors_code_is_right() {
    let star = graph(
        &[2000.0, 2000.0],
        &[
            ("s1", 2, 1000.0, 1.0),
            ("s2", 2, 1000.0, 1.0),
            ("centre", 4, 500.0, 1.0),
            ("t1", 2, 900.0, 1.0),
            ("t2", 2, 900.0, 1.0),
        ],
        &[(0, 2), (1, 2), (2, 3), (2, 4)],
    );
    assert_eq!(result(&star, 3, "stela-code"), (vec![0, 0, 1, 1, 1], 5000.0));
    let middle = |name| (name, 4, 500.0, 1.0);
    let diamond = graph(
        &[1500.0],
        &[
            ("src", 4, 500.0, 1.0),
            middle("a"),
            middle("b"),
            middle("c"),
            middle("d"),
            ("sink", 4, 300.0, 1.0),
        ],
        &[(0, 1), (0, 2), (0, 3), (0, 4), (1, 5), (2, 5), (3, 5), (4, 5)],
    );
    assert_eq!(result(&diamond, 4, "stela-code"), (vec![0, 0, 0, 0, 0, 4], 2400.0));
    let source = chain(3000.0, &[("src", 1, 1000.0, 1.0), ("a", 4, 1000.0, 1.0), ("sink", 4, 1000.0, 1.0)]);
    assert_eq!(result(&source, 2, "stela-code"), (vec![2, 0, 0], 3000.0));
    for (graph, slots) in [(star, 3), (diamond, 4), (source, 2)] {
        assert_eq!(result(&graph, slots, "best"), result(&graph, slots, "stela-code"));
    }
}

#[test]
fn six_a_split_executor_brings_less_than_projected_unless_rows_are_dealt_to_instances() {
    // Storm deals rows to tasks. Four executors of two tasks; one of them is split.
    let split = |load: f64| -> f64 {
        let executors = [2.0, 2.0, 2.0, 1.0, 1.0];
        executors.iter().map(|tasks| f64::min(1.0, tasks * load / 8.0)).sum()
    };
    assert!((split(4.8) - 4.2).abs() < 1e-9, "{}", split(4.8));
    assert!((split(8.0) - 5.0).abs() < 1e-9);
    // Here rows are dealt to instances, and the projection holds at any load.
    let chain = chain(4.8, &[("src", 1, 100.0, 1.0), ("a", 4, 1.0, 1.0)]);
    assert!((result(&chain, 1, "best").1 - 4.8).abs() < 1e-9);
    let capacities = chain.capacities(&[1, 5]);
    assert!((steady(&chain, &capacities, Engine::Queueing).throughput - 4.8).abs() < 1e-9);
}

#[test]
fn an_external_bound_is_no_reason_for_instances() {
    // numaflow#136: the sink's other end takes 100 rows/s, whoever writes.
    let mut vertices = vec![FlowVertex { offered: Some(500.0), ..FlowVertex::new("src", 1, 1000.0) }];
    vertices.push(FlowVertex { max_instances: Some(1), ..FlowVertex::new("external", 1, 100.0) });
    let edges = vec![FlowEdge { from: 0, to: 1, selectivity: 1.0 }];
    let graph = FlowGraph::new(vertices, edges).unwrap();
    for engine in [Engine::Queueing, Engine::BackPressured] {
        let plan = planned(&graph, engine, 4, "best");
        assert_eq!(plan.instances, [1, 1]);
        let why = plan.left.unwrap().why;
        assert_eq!(why, "no gain: `external` is full and may have no more than 1 instances", "{engine}");
    }
}

#[test]
fn a_job_that_takes_all_gets_no_more() {
    let chain = chain(100.0, &[("src", 1, 1000.0, 1.0), ("sink", 1, 1000.0, 1.0)]);
    for planner in ["best", "ds2"] {
        let plan = planned(&chain, Engine::BackPressured, 3, planner);
        let left = plan.left.unwrap();
        assert_eq!(left.slots, 3);
        assert_eq!(left.why, "no gain: the job takes all that its sources offer, 100 rows/s", "{planner}");
    }
}

#[test]
fn what_takes_all_it_is_offered_does_not_end_the_search() {
    let offered = FlowVertex { offered: Some(100.0), ..FlowVertex::new("p", 1, 1000.0) };
    let vertices = vec![
        offered,
        FlowVertex::new("ps", 1, 100.0),
        FlowVertex::new("o", 1, 100.0),
        FlowVertex::new("os", 1, 500.0),
    ];
    let edges =
        vec![FlowEdge { from: 0, to: 1, selectivity: 1.0 }, FlowEdge { from: 2, to: 3, selectivity: 1.0 }];
    let graph = FlowGraph::new(vertices, edges).unwrap();
    let plan = planned(&graph, Engine::BackPressured, 2, "ds2");
    assert_eq!((plan.instances, plan.after), (vec![1, 1, 3, 1], 400.0));
}

#[test]
fn the_number_of_new_instances_as_published_and_as_in_the_code() {
    for (instances, machines, slide, code) in [(12, 4, 3, 2), (24, 6, 4, 3), (28, 7, 4, 3), (32, 8, 4, 3)] {
        assert_eq!(slots_by_slide(1, instances, machines), slide);
        assert_eq!(slots_by_code(1, instances, machines), code);
    }
}
