//! The benchmark of scaling: ETP in its readings and plans, on a ladder of diamonds and on a large random graph.

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tuplane_core::scale::planner::slots_by_slide;
use tuplane_core::scale::{
    Ask, Congestion, Engine, FlowEdge, FlowGraph, FlowVertex, Machine, Planners, Reading, SinkRate, TakeAsk,
    etp, steady,
};

use crate::experiment::stela::topology::TOPOLOGIES;

/// Diamonds of the ladder, and operators of the random graph: the sizes of elasticity.md.
const DIAMONDS: usize = 20;
const OPERATORS: usize = 20_000;
/// Runs of which the median is taken.
const RUNS: usize = 11;
/// Instances to place.
const SLOTS: u32 = 5;
/// The sets of sinks of the random graph take less than so many milliseconds, and any reading on the ladder than so many.
const MOST_RANDOM_MS: f64 = 20.0;
const MOST_LADDER_MS: f64 = 1.0;
/// A plan by `best` on machines, of whichever kind, takes less than so many.
const MOST_MACHINES_MS: f64 = 2000.0;

/// Prints a line for each graph: milliseconds for each reading of ETP, and for a plan by `best` on each engine; and one for plans on
/// machines.
pub(super) fn run(out: &mut impl Write) -> Result<()> {
    for (name, graph) in [("ladder", ladder()?), ("random", random()?)] {
        let instances = graph.instances();
        let rates = steady(&graph, &graph.capacities(&instances), Engine::Queueing).rates;
        let congested = Congestion::default().find(&graph, &instances, &rates);
        let reading = |reading| {
            median(|| drop(black_box(etp(&graph, &rates, &congested, reading, SinkRate::Processed))))
        };
        let planners = Planners::default();
        let plan = |engine| {
            let ask = Ask::new(&graph, engine, SLOTS);
            median(|| drop(black_box(planners.scale_out("best", &ask))))
        };
        let readings = [Reading::Path, Reading::SinkSet, Reading::FlowShare].map(reading);
        let [path, sink_set, flow_share] = readings;
        let line = json!({
            "workload": "scale",
            "graph": name,
            "operators": graph.len(),
            "edges": graph.edges().len(),
            "path_ms": path,
            "sink_set_ms": sink_set,
            "flow_share_ms": flow_share,
            "best_queueing_ms": plan(Engine::Queueing),
            "best_backpressured_ms": plan(Engine::BackPressured),
        });
        writeln!(out, "{line}")?;
        let most = if name == "ladder" { MOST_LADDER_MS } else { MOST_RANDOM_MS };
        ensure!(readings.iter().all(|ms| *ms < most), "ETP takes more than {most} ms on the graph `{name}`");
    }
    on_machines(out)
}

/// The published scale-in, 8 machines with 105 instances to 4, and as many instances more as one machine more brings.
fn on_machines(out: &mut impl Write) -> Result<()> {
    let placed =
        TOPOLOGIES.iter().find(|topology| !topology.is_scale_out()).context("no scale-in")?.place()?;
    let planners = Planners::default();
    let mut wide = placed.placement.clone();
    wide.machines.push(Machine::new("new", wide.machines[0].cores));
    let instances: u32 = placed.graph.instances().iter().sum();
    let slots = slots_by_slide(1, instances, 8);
    let mut line = json!({ "workload": "scale on machines", "instances": instances, "machines": 8 });
    let mut slowest = 0.0_f64;
    for engine in [Engine::Queueing, Engine::BackPressured] {
        let take = TakeAsk::new(&placed.graph, &placed.placement, engine, 4);
        let more = Ask { placement: Some(&wide), ..Ask::new(&placed.graph, engine, slots) };
        let take = median(|| drop(black_box(planners.scale_in("best", &take))));
        let more = median(|| drop(black_box(planners.scale_out("best", &more))));
        line[format!("in_{engine}_ms")] = take.into();
        line[format!("out_{engine}_ms")] = more.into();
        slowest = slowest.max(take).max(more);
    }
    writeln!(out, "{line}")?;
    ensure!(slowest < MOST_MACHINES_MS, "a plan on machines takes more than {MOST_MACHINES_MS} ms");
    Ok(())
}

fn graph(vertices: impl Iterator<Item = FlowVertex>, edges: Vec<FlowEdge>) -> Result<FlowGraph> {
    FlowGraph::new(vertices.collect(), edges).map_err(|faults| anyhow!("{faults:?}"))
}

fn ladder() -> Result<FlowGraph> {
    let pairs = (0..DIAMONDS).map(|k| 3 * k);
    let pairs = pairs.flat_map(|k| [(k, k + 1), (k, k + 2), (k + 1, k + 3), (k + 2, k + 3)]);
    let half = |from: usize| if from.is_multiple_of(3) { 1.0 } else { 0.5 };
    let edges = pairs.map(|(from, to)| FlowEdge { from, to, selectivity: half(from) }).collect();
    let vertices = (0..=3 * DIAMONDS).map(|index| FlowVertex {
        offered: (index == 0).then_some(1000.0),
        ..FlowVertex::new(index.to_string(), 1, if index == 30 { 500.0 } else { 2000.0 })
    });
    graph(vertices, edges)
}

/// Two inputs for each operator but the first twenty, from anywhere before it.
fn random() -> Result<FlowGraph> {
    let mut lots = SmallRng::seed_from_u64(1);
    let mut edges = Vec::new();
    for to in 20..OPERATORS {
        edges.extend([(); 2].map(|()| FlowEdge { from: lots.random_range(0..to), to, selectivity: 0.5 }));
    }
    let vertices = (0..OPERATORS).map(|index| FlowVertex {
        offered: (index < 20).then_some(1000.0),
        ..FlowVertex::new(index.to_string(), 1, 10_f64.powi(lots.random_range(2..5)))
    });
    graph(vertices, edges)
}

/// Milliseconds.
fn median(mut what: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let begun = Instant::now();
            what();
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[RUNS / 2]
}
