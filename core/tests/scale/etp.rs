//! ETP and congestion agree with the conformance vectors, with the deck, and with what holds for any graph.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;
use tuplane_core::scale::whatif::{self, Case};
use tuplane_core::scale::{
    Congestion, Engine, FlowEdge, FlowGraph, FlowVertex, Rates, Reading, SinkRate, etp, steady,
};

pub(super) const CASES: &str = include_str!("../vectors/scale_out_cases.json");

pub(super) const READINGS: [Reading; 3] = [Reading::Path, Reading::SinkSet, Reading::FlowShare];

pub(super) fn cases() -> Vec<Case> {
    let (cases, is_array) = whatif::read(CASES).unwrap();
    assert!(is_array && cases.len() == 200);
    cases
}

pub(super) fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

#[test]
fn all_vectors_have_the_congested_vertices_and_the_shares_that_they_say() {
    for case in cases() {
        let expected = &case.expected["etp"];
        let answer = case.etp(Congestion::default());
        let congested: Vec<&str> =
            expected["congested"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let (mut ours, mut theirs) = (answer.congested.clone(), congested);
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(ours, theirs, "{}", case.id);
        for (name, shares) in [
            ("etp_path", &answer.path),
            ("etp_sink_set", &answer.sink_set),
            ("etp_flow_share", &answer.flow_share),
        ] {
            let expected: BTreeMap<String, f64> = serde_json::from_value(expected[name].clone()).unwrap();
            assert_eq!(shares.len(), expected.len());
            for (id, share) in shares {
                assert!(near(share.unwrap(), expected[id]), "{} {name} of {id}: {share:?}", case.id);
            }
        }
        assert_eq!(answer.reason, None);
    }
}

#[test]
fn all_vectors_have_the_rates_that_they_say() {
    for case in cases() {
        let graph = &case.graph;
        let capacities = graph.capacities(&graph.instances());
        let queueing = steady(graph, &capacities, Engine::Queueing);
        for (vertex, rates) in graph.vertices().iter().zip(&queueing.rates) {
            let expected = &case.expected["etp"]["rates"][&vertex.id];
            for (name, ours) in
                [("input", rates.input), ("processed", rates.processed), ("emitted", rates.emitted)]
            {
                assert!(
                    near(ours, expected[name].as_f64().unwrap()),
                    "{} {} {name}: {ours}",
                    case.id,
                    vertex.id
                );
            }
        }
        for engine in [Engine::Queueing, Engine::BackPressured] {
            let before = case.expected[engine.name()]["before"].as_f64().unwrap();
            assert!(near(steady(graph, &capacities, engine).throughput, before), "{} {engine}", case.id);
        }
    }
}

/// A graph from capacities of one instance, edges by index, selectivity 1; the first vertices are sources.
pub(super) fn graph(capacities: &[f64], offered: &[f64], edges: &[(usize, usize)]) -> FlowGraph {
    let vertices = capacities.iter().enumerate().map(|(index, capacity)| FlowVertex {
        offered: offered.get(index).copied(),
        ..FlowVertex::new(index.to_string(), 1, *capacity)
    });
    let edges = edges.iter().map(|(from, to)| FlowEdge { from: *from, to: *to, selectivity: 1.0 });
    FlowGraph::new(vertices.collect(), edges.collect()).unwrap()
}

fn rates(graph: &FlowGraph) -> Vec<Rates> {
    steady(graph, &graph.capacities(&graph.instances()), Engine::Queueing).rates
}

fn shares(graph: &FlowGraph, reading: Reading) -> Vec<f64> {
    let rates = rates(graph);
    let congested = Congestion::default().find(graph, &graph.instances(), &rates);
    etp(graph, &rates, &congested, reading, SinkRate::Processed).unwrap()
}

#[test]
fn the_decks_example_gives_nothing_and_two_ninths() {
    let names = ["1", "2", "3", "4", "5", "6", "7", "9", "10"];
    let at = |name: &str| names.iter().position(|known| *known == name).unwrap();
    let edges = [("1", "3"), ("1", "4"), ("3", "6"), ("3", "7"), ("6", "9"), ("6", "10"), ("2", "5")];
    let edges: Vec<_> = edges.iter().map(|(from, to)| (at(from), at(to))).collect();
    let capacities = [3000.0, 1000.0, 1000.0, 1000.0, 1000.0, 750.0, 2000.0, 2000.0, 2000.0];
    let deck = graph(&capacities, &[5000.0, 1000.0], &edges);
    for reading in READINGS {
        let shares = shares(&deck, reading);
        for (name, share) in [("1", 0.0), ("3", 2.0 / 9.0), ("4", 2.0 / 9.0), ("6", 1.0 / 3.0)] {
            assert!(near(shares[at(name)], share), "{reading:?} of {name}: {shares:?}");
        }
    }
}

#[test]
fn the_diamond_counts_its_sink_twice_once_or_by_halves() {
    let diamond =
        graph(&[1000.0, 500.0, 1000.0, 1000.0, 2000.0], &[1000.0], &[(0, 1), (1, 2), (1, 3), (2, 4), (3, 4)]);
    assert_eq!(shares(&diamond, Reading::Path), [0.0, 2.0, 1.0, 1.0, 1.0]);
    assert_eq!(shares(&diamond, Reading::SinkSet), [0.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(shares(&diamond, Reading::FlowShare), [0.0, 1.0, 0.5, 0.5, 1.0]);
}

/// A ladder of so many diamonds.
fn ladder(diamonds: usize) -> FlowGraph {
    let edges =
        (0..diamonds).map(|k| 3 * k).flat_map(|k| [(k, k + 1), (k, k + 2), (k + 1, k + 3), (k + 2, k + 3)]);
    let vertices = (0..=3 * diamonds).map(|index| FlowVertex {
        offered: (index == 0).then_some(1.0),
        ..FlowVertex::new(index.to_string(), 1, 1e300)
    });
    // Two whole copies, of which each branch passes on one half.
    let half = |from: usize| if from.is_multiple_of(3) { 1.0 } else { 0.5 };
    let edges = edges.map(|(from, to)| FlowEdge { from, to, selectivity: half(from) });
    FlowGraph::new(vertices.collect(), edges.collect()).unwrap()
}

#[test]
fn a_ladder_of_diamonds_is_one_pass_and_paths_without_number_are_a_number() {
    // Recursion would need 4,194,301 calls for 20 diamonds, and more than there is time for 6,000.
    let source = |diamonds: usize, reading| shares(&ladder(diamonds), reading)[0];
    assert!(near(source(20, Reading::Path), 1_048_576.0));
    assert!(near(source(20, Reading::SinkSet), 1.0) && near(source(20, Reading::FlowShare), 1.0));
    for reading in READINGS {
        let all = shares(&ladder(6000), reading);
        assert!(all.iter().all(|share| share.is_finite()), "{reading:?}");
    }
}

#[test]
fn without_output_there_is_a_reason_and_no_share() {
    let dry = r#"{"id": "dry", "graph": {"edges": [["a", "b"]], "vertices": [
        {"id": "a", "instances": 1, "capacity_per_instance": 10, "offered": 0},
        {"id": "b", "instances": 1, "capacity_per_instance": 10}]}}"#;
    let answer = whatif::read(dry).unwrap().0[0].etp(Congestion::default());
    assert_eq!(answer.reason.as_deref(), Some("no share can be given: no sink has processed a row"));
    assert_eq!(answer.path["a"], None);
}

#[test]
fn everything_that_is_wrong_with_a_file_is_said_at_once() {
    let wrong = r#"[{"id": "x", "graph": {"edges": [["a", "c"], ["b", "a"]], "vertices": [
        {"id": "a", "instances": 0, "capacity_per_instance": 10, "offered": 3},
        {"id": "b", "instances": 1, "capacity_per_instance": -1}]}},
        {"id": "y", "graph": {"edges": [["a", "b", "c"]], "vertices": []}},
        {"graph": 3},
        {"id": "z", "graph": {"edges": [["a", "b"], ["b", "a"]], "vertices": [
        {"id": "a", "instances": 1, "capacity_per_instance": 10},
        {"id": "b", "instances": 1, "capacity_per_instance": 10}]}}]"#;
    let said = whatif::read(wrong).unwrap_err();
    assert_eq!(
        said,
        [
            "case number 1 (x): vertex `a`, instances: it is 0, and must be a whole number from 1 to 1000000",
            "case number 1 (x): vertex `b`, capacity_per_instance: it is -1, and must be a number above 0, at most 1e18",
            "case number 1 (x): edge number 1, to: no vertex is called `c`; did you mean `a`?",
            "case number 2 (y): vertices: there are none",
            "case number 2 (y): edge number 1: it must be [\"from\", \"to\"] or {\"from\", \"to\", \"selectivity\"}",
            "case number 3: id: it is missing",
            "case number 3: graph: it is a number, and must be a table of fields",
            "case number 4 (z): the graph has a cycle: a -> b -> a",
        ]
    );
}

#[test]
fn hostile_numbers_and_names_are_refused_with_the_fields_path() {
    let vertex = |rest: &str| format!(r#"{{"id": "v", "instances": 1, "capacity_per_instance": 10{rest}}}"#);
    let case = |vertices: &str, edges: &str, rest: &str| {
        format!(r#"{{"id": "x", "graph": {{"vertices": [{vertices}], "edges": [{edges}]}}{rest}}}"#)
    };
    for (text, said) in [
        (
            case(&vertex(r#", "offered": 1e308"#), "", ""),
            "vertex `v`, offered: it is 1e+308, and must be a number from 0 to 1e18",
        ),
        (
            case(&vertex(r#", "selectivity": -0.5"#), "", ""),
            "vertex `v`, selectivity: it is -0.5, and must be",
        ),
        (
            case(&vertex(r#", "offered": "many""#), "", ""),
            "vertex `v`, offered: it is a text, and must be a number",
        ),
        (
            case(&vertex(r#", "max_instance": 3"#), "", ""),
            "vertex `v`, max_instance: there is no such field; did you mean `max_instances`?",
        ),
        (
            case(r#"{"instances": 1, "capacity_per_instance": 10}"#, "", ""),
            "vertex number 1, id: it is missing",
        ),
        (
            case(r#"{"id": "v", "instances": 1.5}"#, "", ""),
            "vertex `v`, instances: it is 1.5, and must be a whole number",
        ),
        (
            case(&[vertex(""), vertex("")].join(","), "", ""),
            "vertex `v`, id: another one before it has this name",
        ),
        (
            case(&vertex(r#", "offered": 1"#), r#"["v", "v"]"#, ""),
            "vertex `v`, offered: the vertex has inputs",
        ),
        (case(&vertex(""), r#"["v", "v"]"#, ""), "the graph has a cycle: v -> v"),
        // With the fault of its vertex.
        (case(&vertex(r#", "offered": 1"#), r#"["v", "v"]"#, ""), "the graph has a cycle: v -> v"),
        (
            case(r#"{"id": "", "instances": 1, "capacity_per_instance": 10}"#, "", ""),
            "vertex ``, id: it is empty",
        ),
        (case(&vertex(""), r#"{"from": "v", "too": "w"}"#, ""), "edge number 1, to: it is missing"),
        (
            case(&vertex(""), "", r#", "new_instances": -1"#),
            "new_instances: it is -1, and must be a whole number from 0 to 10000",
        ),
        ("[7]".to_owned(), "case number 1: it is a number, and must be a table of fields"),
        (case(&vertex(r#", "offered": NaN"#), "", ""), "is no JSON"),
        (
            format!("[{0},{0}]", case(&vertex(""), "", "")),
            "case number 2 (x): another one before it has this id",
        ),
    ] {
        let faults = whatif::read(&text).unwrap_err();
        assert!(faults.iter().any(|fault| fault.contains(said)), "{text}: {faults:?}");
    }
}

#[test]
fn a_ladder_without_end_and_a_wide_graph_are_read() {
    // Each diamond sends two copies of every row: behind 400 of them no number is left.
    let ladder = |diamonds: usize| {
        let vertex = |id: usize| format!(r#"{{"id": "{id}", "instances": 1, "capacity_per_instance": 1e9}}"#);
        let vertices: Vec<String> = (0..=3 * diamonds).map(vertex).collect();
        let of = |k: usize| [(k, k + 1), (k, k + 2), (k + 1, k + 3), (k + 2, k + 3)];
        let edges = (0..diamonds).flat_map(|k| of(3 * k)).map(|(from, to)| format!(r#"["{from}", "{to}"]"#));
        let edges: Vec<String> = edges.collect();
        let (vertices, edges) = (vertices.join(","), edges.join(","));
        format!(
            r#"{{"id": "l", "graph": {{"vertices": [{vertices}], "edges": [{edges}]}}, "new_instances": 2}}"#
        )
    };
    let said = whatif::read(&ladder(400)).unwrap_err();
    assert!(said.len() == 1 && said[0].contains("more than 1e100 rows/s would reach it"), "{said:?}");
    let (cases, _) = whatif::read(&ladder(200)).unwrap();
    let answer = cases[0].etp(Congestion::default());
    assert!(answer.path.values().all(|share| share.is_some_and(f64::is_finite)));
    let wide: Vec<String> = (0..10_000)
        .map(|id| format!(r#"{{"id": "{id}", "instances": 1, "capacity_per_instance": {}}}"#, 1 + id % 7))
        .collect();
    let edges: Vec<String> = (1..10_000).map(|to| format!(r#"["{}", "{to}"]"#, (to - 1) / 3)).collect();
    let text = format!(
        r#"{{"id": "w", "graph": {{"vertices": [{}], "edges": [{}]}}, "new_instances": 2}}"#,
        wide.join(","),
        edges.join(",")
    );
    let (cases, _) = whatif::read(&text).unwrap();
    for engine in [Engine::Queueing, Engine::BackPressured] {
        let plan = cases[0].plan(engine, "best", &tuplane_core::scale::Planners::default()).unwrap();
        assert!(plan.after.is_finite() && plan.after >= plan.before);
    }
    // What looks at every vertex for every instance has a bound, whoever does.
    let planners = tuplane_core::scale::Planners::default();
    let many = whatif::Case { new_instances: Some(501), ..cases[0].clone() };
    for planner in planners.names() {
        let said = many.plan(Engine::BackPressured, planner, &planners).unwrap_err();
        assert!(said.ends_with("for each instance: at most 500 can be asked for"), "{said}");
    }
}

/// Vertices in topological order with numbers that meet each other; some edges twice.
fn any_graph() -> impl Strategy<Value = (Vec<FlowVertex>, Vec<FlowEdge>)> {
    let vertex = (1u32..4, 1u32..20, prop::sample::select(vec![0.0, 0.5, 1.0, 2.0]), 1u32..40);
    prop::collection::vec(vertex, 2..9).prop_flat_map(|vertices| {
        let count = vertices.len();
        let vertices: Vec<FlowVertex> = vertices
            .into_iter()
            .enumerate()
            .map(|(index, (instances, capacity, selectivity, offered))| FlowVertex {
                selectivity,
                offered: Some(f64::from(offered) * 100.0),
                ..FlowVertex::new(format!("v{index}"), instances, f64::from(capacity) * 100.0)
            })
            .collect();
        let edge = (0..count - 1).prop_flat_map(move |from| (Just(from), from + 1..count));
        let edges = prop::collection::vec(edge, 1..2 * count);
        (Just(vertices), edges).prop_map(|(vertices, edges)| {
            let edge =
                |(from, to): (usize, usize)| FlowEdge { from, to, selectivity: vertices[from].selectivity };
            let edges = edges.into_iter().map(edge).collect();
            (vertices, edges)
        })
    })
}

proptest! {
    #[test]
    fn flow_share_is_at_most_sink_set_and_that_at_most_one_and_path((vertices, edges) in any_graph()) {
        let graph = FlowGraph::new(vertices, edges).unwrap();
        let rates = rates(&graph);
        for congestion in [Congestion::default(), Congestion::Demand] {
            let congested = congestion.find(&graph, &graph.instances(), &rates);
            let of = |reading| etp(&graph, &rates, &congested, reading, SinkRate::Processed);
            let Ok(path) = of(Reading::Path) else { continue };
            let (set, flow) = (of(Reading::SinkSet).unwrap(), of(Reading::FlowShare).unwrap());
            for vertex in 0..graph.len() {
                let (flow, set, path) = (flow[vertex], set[vertex], path[vertex]);
                prop_assert!(flow <= set + 1e-9 && set <= path.min(1.0) + 1e-9, "{flow} {set} {path}");
            }
            if graph.vertices().iter().enumerate().all(|(v, _)| graph.inputs(v).len() <= 1) {
                for vertex in 0..graph.len() {
                    prop_assert!(near(flow[vertex], path[vertex]) || rates[vertex].processed == 0.0);
                }
            }
        }
    }

    #[test]
    fn without_congestion_the_sources_carry_everything((vertices, edges) in any_graph()) {
        let graph = FlowGraph::new(vertices, edges).unwrap();
        let rates = rates(&graph);
        let none = vec![false; graph.len()];
        if let Ok(shares) = etp(&graph, &rates, &none, Reading::FlowShare, SinkRate::Processed) {
            let sum: f64 = (0..graph.len()).filter(|v| graph.is_source(*v)).map(|v| shares[v]).sum();
            // A sink that is congested processes less than what reaches it, and all of that came from the sources.
            prop_assert!(near(sum, 1.0), "{sum}");
        }
    }

    #[test]
    fn other_names_and_another_order_change_nothing(
        ((vertices, edges), seed) in (any_graph(), any::<u64>())
    ) {
        let mut order: Vec<usize> = (0..vertices.len()).collect();
        order.sort_by_key(|index| (*index as u64).wrapping_mul(seed | 1).rotate_left(17));
        let place = |old: usize| order.iter().position(|index| *index == old).unwrap();
        let moved = order
            .iter()
            .enumerate()
            .map(|(new, old)| FlowVertex { id: format!("w{new}"), ..vertices[*old].clone() });
        let rejoined = edges.iter().rev().map(|e| FlowEdge { from: place(e.from), to: place(e.to), ..*e });
        let other = FlowGraph::new(moved.collect(), rejoined.collect()).unwrap();
        let graph = FlowGraph::new(vertices, edges).unwrap();
        let (ours, theirs) = (rates(&graph), rates(&other));
        let find = |graph: &FlowGraph, rates: &[Rates]| Congestion::default().find(graph, &graph.instances(), rates);
        let (congested, again) = (find(&graph, &ours), find(&other, &theirs));
        for reading in READINGS {
            let shares = etp(&graph, &ours, &congested, reading, SinkRate::Processed);
            let moved = etp(&other, &theirs, &again, reading, SinkRate::Processed);
            prop_assert_eq!(shares.is_err(), moved.is_err());
            if let (Ok(shares), Ok(moved)) = (shares, moved) {
                for (vertex, share) in shares.iter().enumerate() {
                    prop_assert!(near(*share, moved[place(vertex)]));
                }
            }
        }
    }
}
