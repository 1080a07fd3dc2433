//! How many rows go between vertices, as far as that can be told before a run.

use super::strategy::Flow;
use crate::job::{Job, Op};
use crate::plan::dag::{Dag, Role, Routing, Vertex, VertexId};

/// Rows between vertices, relative to each other; a vertex is the component of its number. Every source gives
/// as many rows, or its `rate` where all sources have one. Every other vertex gives a row for each that it
/// takes (of a join: for each of its first input), on each of its outputs. A broadcast row counts once per
/// target instance; `instances` says how many a vertex has.
///
/// What goes where another vertex goes counts as that one's: timestamps as their source's, a collector as its
/// join's.
pub(super) fn estimate(dag: &Dag, job: &Job, instances: &dyn Fn(VertexId) -> u32) -> Vec<Flow> {
    let mut given: Vec<f64> = vec![0.0; dag.vertices.len()];
    let rates: Vec<(usize, Option<f64>)> = sources(dag, job).collect();
    let all_rated = rates.iter().all(|(_, rate)| rate.is_some());
    for (vertex, rate) in rates {
        given[vertex] = rate.filter(|_| all_rated).unwrap_or(1.0);
    }
    let mut flows = Vec::new();
    // Edges go forward, so what a vertex gives is known when its outputs are looked at.
    for from in (0..dag.vertices.len() as u32).map(VertexId) {
        for (_, edge) in dag.outputs(from) {
            let (sender, taker) = (goes_with(dag, from), goes_with(dag, edge.to));
            let copies = if edge.routing == Routing::Broadcast { instances(taker) } else { 1 };
            let rate = given[from.0 as usize] * f64::from(copies);
            let is_build_side = edge.priority < 0;
            if !is_build_side {
                given[edge.to.0 as usize] += rate;
            }
            if sender != taker {
                flows.push(Flow { from: sender.0 as usize, to: taker.0 as usize, rate });
            }
        }
    }
    flows
}

/// Vertices that read nothing, with the `rate` of their stage.
fn sources(dag: &Dag, job: &Job) -> impl Iterator<Item = (usize, Option<f64>)> {
    let rate = |vertex: &Vertex| {
        let stage = job.stages.iter().find(|stage| vertex.stages.first() == Some(&stage.id))?;
        match &stage.op {
            Op::Source(source) => source.rate,
            _ => None,
        }
    };
    let is_source = |at: usize| !dag.edges.iter().any(|edge| edge.to.0 as usize == at);
    let all = dag.vertices.iter().enumerate().filter(move |(at, _)| is_source(*at));
    all.map(move |(at, vertex)| (at, rate(vertex)))
}

/// The vertex on whose agents a vertex stands, itself for most.
fn goes_with(dag: &Dag, vertex: VertexId) -> VertexId {
    let other = match dag.vertex(vertex).role {
        Role::Timestamps => dag.edges.iter().find(|edge| edge.to == vertex).map(|edge| edge.from),
        Role::Collector { .. } => dag.edges.iter().find(|edge| edge.from == vertex).map(|edge| edge.to),
        _ => None,
    };
    other.unwrap_or(vertex)
}
