//! Progressive filling: all sources give more together until something is full; those that it holds back stay there, the others go
//! on. With each factor only what lies behind the sources that stay is looked at again, so that many sources cost no square.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::{EQUAL, Ordered, Shared, Tight, flows, offered};
use crate::scale::graph::FlowGraph;

/// A vertex with more inputs than these adds changes up instead of all its inputs.
const MANY_INPUTS: usize = 64;

/// Rows that reach a vertex: those of sources that stay where they are, and those of the others at factor 1.
#[derive(Debug, Clone, Copy, Default)]
struct Reach {
    fixed: f64,
    grows: f64,
}

/// The state between two factors.
pub(super) struct Filling<'a> {
    graph: &'a FlowGraph,
    capacities: &'a [f64],
    shared: &'a [Shared],
    /// For each vertex the shared bounds that it has a part in.
    parts: Vec<Vec<usize>>,
    /// The factor at which a source stays.
    scales: Vec<Option<f64>>,
    reach: Vec<Reach>,
    /// What has been added to the reach of a vertex with many inputs since it was looked at.
    change: Vec<Reach>,
    /// Inputs that bring rows of sources that go on: without any nothing grows, whatever rounding has left.
    feeders: Vec<u32>,
    /// The factor at which each vertex, and behind these each shared bound, is full; infinite if it never is.
    full_at: Vec<f64>,
    next: BinaryHeap<Reverse<(Ordered, usize)>>,
    place: Vec<usize>,
    held: Vec<bool>,
    steps: u64,
}

impl<'a> Filling<'a> {
    /// Before anything is full.
    pub(super) fn new(graph: &'a FlowGraph, capacities: &'a [f64], shared: &'a [Shared]) -> Self {
        let vertices = graph.len();
        let all = flows(graph, |source| offered(graph, source, capacities[source]), |_, rows| rows);
        let mut parts = vec![Vec::new(); if shared.is_empty() { 0 } else { vertices }];
        for (index, bound) in shared.iter().enumerate() {
            bound.parts.iter().for_each(|(vertex, _)| parts[*vertex].push(index));
        }
        let mut place = vec![0; vertices];
        for (at, vertex) in graph.order().iter().enumerate() {
            place[*vertex] = at;
        }
        let feeds = |vertex: usize| {
            graph.inputs(vertex).filter(|edge| edge.selectivity > 0.0 && all[edge.from] > 0.0).count()
        };
        let feeders = (0..vertices).map(|vertex| u32::try_from(feeds(vertex)).unwrap_or(u32::MAX)).collect();
        let mut filling = Self {
            graph,
            capacities,
            shared,
            parts,
            scales: vec![None; vertices],
            reach: all.into_iter().map(|grows| Reach { fixed: 0.0, grows }).collect(),
            change: vec![Reach::default(); vertices],
            feeders,
            full_at: vec![f64::INFINITY; vertices + shared.len()],
            next: BinaryHeap::new(),
            place,
            held: vec![false; vertices],
            steps: (vertices + graph.edges().len()) as u64,
        };
        for index in 0..vertices + shared.len() {
            filling.note(index);
        }
        filling
    }

    /// What is full next, below factor 1: the sources behind it then stay.
    pub(super) fn next_factor(&mut self) -> Option<Tight> {
        let vertices = self.graph.len();
        let mut found: BTreeSet<usize> = BTreeSet::new();
        let mut scale = None;
        while let Some(Reverse((Ordered(at), index))) = self.next.peek().copied() {
            let is_stale = at.total_cmp(&self.full_at[index]).is_ne();
            if !is_stale && scale.is_some_and(|scale: f64| at > scale * (1.0 + EQUAL)) {
                break;
            }
            self.next.pop();
            if !is_stale {
                scale.get_or_insert(at);
                found.insert(index);
            }
        }
        let scale = scale?;
        let full = found.range(..vertices).copied().collect();
        let shared = found.range(vertices..).map(|index| index - vertices).collect();
        let now = Tight { scale, vertices: full, shared };
        let sources = self.behind(&now);
        self.stay(sources, scale);
        Some(now)
    }

    /// The factor of each source that stays, and what it has cost.
    pub(super) fn end(self) -> (Vec<Option<f64>>, u64) {
        (self.scales, self.steps)
    }

    /// The sources that go on and whose rows reach what is full.
    fn behind(&mut self, now: &Tight) -> Vec<usize> {
        let in_shared =
            now.shared.iter().flat_map(|index| &self.shared[*index].parts).map(|(vertex, _)| *vertex);
        let mut open: Vec<usize> = now.vertices.iter().copied().chain(in_shared).collect();
        let mut sources = Vec::new();
        while let Some(vertex) = open.pop() {
            if self.reach[vertex].grows <= 0.0 || std::mem::replace(&mut self.held[vertex], true) {
                continue;
            }
            if self.graph.is_source(vertex) {
                sources.push(vertex);
            }
            let inputs = self.graph.inputs(vertex).filter(|edge| edge.selectivity > 0.0);
            open.extend(inputs.map(|edge| edge.from));
            self.steps += 1;
        }
        sources
    }

    /// These sources stay at a factor: what they reach is looked at again, each vertex behind all that send to it.
    fn stay(&mut self, sources: Vec<usize>, scale: f64) {
        let graph = self.graph;
        let mut touched: BTreeSet<usize> = BTreeSet::new();
        let mut open: BTreeSet<usize> = BTreeSet::new();
        for source in sources {
            self.scales[source] = Some(scale);
            open.insert(self.place[source]);
        }
        while let Some(place) = open.pop_first() {
            let vertex = graph.order()[place];
            let before = self.reach[vertex];
            let now = self.reached(vertex);
            self.reach[vertex] = now;
            self.note(vertex);
            if let Some(parts) = self.parts.get(vertex) {
                touched.extend(parts);
            }
            let has_ended = before.grows > 0.0 && now.grows <= 0.0;
            for edge in graph.outputs(vertex).filter(|edge| edge.selectivity > 0.0) {
                let change = &mut self.change[edge.to];
                change.fixed += (now.fixed - before.fixed) * edge.selectivity;
                change.grows += (now.grows - before.grows) * edge.selectivity;
                let feeders = &mut self.feeders[edge.to];
                *feeders = feeders.saturating_sub(u32::from(has_ended));
                open.insert(self.place[edge.to]);
            }
            self.steps += 1 + graph.outputs(vertex).len() as u64;
        }
        for bound in touched {
            self.note(graph.len() + bound);
        }
    }

    /// What reaches a vertex now.
    fn reached(&mut self, vertex: usize) -> Reach {
        let change = std::mem::take(&mut self.change[vertex]);
        if self.graph.is_source(vertex) {
            let weight = offered(self.graph, vertex, self.capacities[vertex]);
            return self.scales[vertex]
                .map_or(self.reach[vertex], |scale| Reach { fixed: scale * weight, grows: 0.0 });
        }
        let mut now = self.reach[vertex];
        if self.graph.inputs(vertex).len() > MANY_INPUTS {
            now.fixed += change.fixed;
            now.grows = (now.grows + change.grows).max(0.0);
        } else {
            now = Reach::default();
            for edge in self.graph.inputs(vertex) {
                now.fixed += self.reach[edge.from].fixed * edge.selectivity;
                now.grows += self.reach[edge.from].grows * edge.selectivity;
            }
        }
        if self.feeders[vertex] == 0 {
            now.grows = 0.0;
        }
        now
    }

    /// Notes at which factor a vertex or a shared bound is full. Factors only rise: those from 1 on are never met.
    fn note(&mut self, index: usize) {
        let vertices = self.graph.len();
        let (limit, Reach { fixed, grows }) = if index < vertices {
            (self.capacities[index], self.reach[index])
        } else {
            let Shared { limit, parts } = &self.shared[index - vertices];
            let sum = |of: fn(&Reach) -> f64| -> f64 {
                parts.iter().map(|(vertex, factor)| factor * of(&self.reach[*vertex])).sum()
            };
            (*limit, Reach { fixed: sum(|reach| reach.fixed), grows: sum(|reach| reach.grows) })
        };
        let at = if grows > 0.0 { ((limit - fixed) / grows).max(0.0) } else { f64::INFINITY };
        self.full_at[index] = at;
        if at < 1.0 {
            self.next.push(Reverse((Ordered(at), index)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Engine, back_pressured, steady};
    use super::*;
    use crate::route::rank::Lots;
    use crate::scale::graph::{FlowEdge, FlowVertex};

    /// The same in the open: every flow anew for every factor.
    fn in_the_open(graph: &FlowGraph, capacities: &[f64], shared: &[Shared]) -> Vec<f64> {
        let weight = |source: usize| offered(graph, source, capacities[source]);
        let mut scales: Vec<Option<f64>> = vec![None; graph.len()];
        loop {
            let fixed = flows(graph, |v| scales[v].map_or(0.0, |scale| scale * weight(v)), |_, rows| rows);
            let grows = flows(graph, |v| scales[v].map_or(weight(v), |_| 0.0), |_, rows| rows);
            let room = |limit: f64, fixed: f64, grows: f64| {
                if grows > 0.0 { ((limit - fixed) / grows).max(0.0) } else { f64::INFINITY }
            };
            let own: Vec<f64> = (0..graph.len()).map(|v| room(capacities[v], fixed[v], grows[v])).collect();
            let sum = |parts: &[(usize, f64)], flow: &[f64]| -> f64 {
                parts.iter().map(|(v, factor)| factor * flow[*v]).sum()
            };
            let common: Vec<f64> =
                shared.iter().map(|s| room(s.limit, sum(&s.parts, &fixed), sum(&s.parts, &grows))).collect();
            let scale = own.iter().chain(&common).copied().fold(1.0, f64::min);
            if scale >= 1.0 {
                return flows(graph, |v| scales[v].unwrap_or(1.0) * weight(v), |_, rows| rows);
            }
            let full = |room: f64| room <= scale * (1.0 + EQUAL);
            let mut held: Vec<bool> = (0..graph.len()).map(|v| full(own[v])).collect();
            for (bound, _) in shared.iter().zip(&common).filter(|(_, room)| full(**room)) {
                bound.parts.iter().for_each(|(vertex, _)| held[*vertex] |= grows[*vertex] > 0.0);
            }
            for vertex in graph.order().iter().rev().filter(|vertex| grows[**vertex] > 0.0) {
                held[*vertex] |= graph.outputs(*vertex).any(|edge| edge.selectivity > 0.0 && held[edge.to]);
                if held[*vertex] && graph.is_source(*vertex) {
                    scales[*vertex] = Some(scale);
                }
            }
        }
    }

    #[test]
    fn it_is_what_every_flow_anew_gives() {
        for seed in 0..400 {
            let mut lots = Lots(seed);
            let mut below = |bound: usize| lots.below(bound as u64) as usize;
            let (vertices, sources) = (3 + below(12), 1 + below(6));
            let made = (0..vertices).map(|index| FlowVertex {
                offered: (index < sources && below(4) > 0).then(|| [100.0, 250.0, 1000.0, 0.0][below(4)]),
                ..FlowVertex::new(index.to_string(), 1, [50.0, 100.0, 300.0, 1000.0][below(4)])
            });
            let made: Vec<FlowVertex> = made.collect();
            let mut edges = Vec::new();
            for to in sources..vertices {
                for _ in 0..=below(3) {
                    edges.push(FlowEdge { from: below(to), to, selectivity: [0.0, 0.5, 1.0, 2.0][below(4)] });
                }
            }
            let graph = FlowGraph::new(made, edges).unwrap();
            let capacities = graph.capacities(&graph.instances());
            let shared: Vec<Shared> = (0..below(3))
                .map(|_| Shared {
                    limit: [0.5, 1.0, 2.0][below(3)],
                    parts: (0..vertices)
                        .filter(|_| below(2) == 0)
                        .map(|v| (v, 1.0 / capacities[v]))
                        .collect(),
                })
                .collect();
            let found = back_pressured(&graph, &capacities, &shared);
            for (rates, wanted) in found.rates.iter().zip(in_the_open(&graph, &capacities, &shared)) {
                let off = (rates.processed - wanted).abs();
                assert!(off <= 1e-9 * wanted.max(1.0), "seed {seed}: {} and not {wanted}", rates.processed);
            }
        }
    }

    #[test]
    fn many_sources_of_one_sink_cost_no_square() {
        let many = 5000;
        let vertices = (0..=2 * many).map(|index| FlowVertex {
            offered: (index < many).then_some(10.0),
            ..FlowVertex::new(
                index.to_string(),
                1,
                if index == 2 * many { 1e9 } else { 15.0 - index as f64 / 1e3 },
            )
        });
        let edges = (0..many).flat_map(|source| [(source, many + source), (many + source, 2 * many)]);
        let edges = edges.map(|(from, to)| FlowEdge { from, to, selectivity: 1.0 }).collect();
        let graph = FlowGraph::new(vertices.collect(), edges).unwrap();
        let found = steady(&graph, &graph.capacities(&graph.instances()), Engine::BackPressured);
        // The branches take from 10 rows a second down to 5, each another number.
        assert!(found.steps < 100 * many as u64, "{}", found.steps);
        let sum: f64 = (many..2 * many).map(|index| (15.0 - index as f64 / 1e3).min(10.0)).sum();
        assert!((found.throughput - sum).abs() <= 1e-9 * sum, "{} {sum}", found.throughput);
    }
}
