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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::FileFormat;

    /// Flows by the vertices' labels.
    fn flows(text: &str) -> Vec<(String, String, f64)> {
        let job = Job::parse(text, FileFormat::Toml).unwrap();
        let dag = crate::plan::plan(&job).unwrap();
        let label = |vertex: usize| dag.vertices[vertex].label();
        let flows = estimate(&dag, &job, &|_| 3);
        flows.into_iter().map(|flow| (label(flow.from), label(flow.to), flow.rate)).collect()
    }

    fn sorted(mut flows: Vec<(String, String, f64)>) -> Vec<String> {
        flows.sort_by(|a, b| a.partial_cmp(b).unwrap());
        flows.iter().map(|(from, to, rate)| format!("{from} {rate} {to}")).collect()
    }

    const TWO: &str = "stage = [{ id = 'a', op = 'source', rate = 10 }, { id = 'b', op = 'source' },\n\
        { id = 'm', op = 'work', in = 'a' }, { id = 'o', op = 'merge', in = ['m', 'b'] },\n\
        { id = 'p', op = 'map', in = 'o' }, { id = 'x', op = 'sink', in = 'p' }, { id = 'y', op = 'sink', in = 'p' }]";

    #[test]
    fn rows_are_added_up_from_the_sources_on() {
        let all = ["a 1 m", "b 1 o", "m 1 o", "o 2 p", "p 2 x", "p 2 y"];
        assert_eq!(sorted(flows(TWO)), all);
        let rated = TWO.replace("{ id = 'b', op = 'source'", "{ id = 'b', op = 'source', rate = 2.5");
        let all = ["a 10 m", "b 2.5 o", "m 10 o", "o 12.5 p", "p 12.5 x", "p 12.5 y"];
        assert_eq!(sorted(flows(&rated)), all);
    }

    #[test]
    fn what_goes_with_another_vertex_counts_as_that() {
        let text = "stage = [{ id = 'a', op = 'source', timestamps = 'source' }, { id = 'b', op = 'source' },\n\
            { id = 'j', op = 'hash_join', in = ['a', 'b'] }, { id = 'x', op = 'sink', in = 'j' }]";
        // A row of b to each of three; none of these leaves the join.
        assert_eq!(sorted(flows(text)), ["a 1 j", "b 3 j", "j 1 x"]);
    }
}
