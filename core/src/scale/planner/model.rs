//! What one more instance here or there brings on the model, and which few are worth a try.

use super::simple::may_grow;
use super::{Ask, Engine, explain};
use crate::scale::fluid::{EQUAL, Steady, steady};

/// Vertices and edges that one plan may look at. Small graphs never get there; one of 20,000 operators is
/// solved some 160 times.
pub(super) const BUDGET: u64 = 10_000_000;

/// Sets of several vertices that are tried in one round on a queueing engine.
const SETS: usize = 32;

/// The model, and what it has cost so far.
pub(super) struct Model<'a> {
    pub(super) ask: &'a Ask<'a>,
    pub(super) steps: u64,
}

/// Vertices that get one more instance each, together.
struct Try {
    vertices: Vec<usize>,
    /// Rows a second that it brings at most.
    bound: f64,
}

impl Try {
    fn slots(&self) -> f64 {
        self.vertices.len() as f64
    }
}

impl<'a> Model<'a> {
    pub(super) fn new(ask: &'a Ask<'a>) -> Self {
        Self { ask, steps: 0 }
    }

    pub(super) fn spent(&self) -> bool {
        self.steps >= BUDGET
    }

    pub(super) fn solve(&mut self, instances: &[u32]) -> Steady {
        let now = steady(self.ask.graph, &self.ask.graph.capacities(instances), self.ask.engine);
        self.steps += now.steps;
        now
    }

    pub(super) fn throughput(&mut self, instances: &[u32]) -> f64 {
        self.solve(instances).throughput
    }

    /// Adds instances while there are slots and any of the tries brings something: in each round the one that brings
    /// most for a slot. Of equals the one that carries more of the output (flow share), then the fuller one.
    pub(super) fn grow(&mut self, instances: &mut [u32], mut slots: u32) {
        while slots > 0 && !self.spent() {
            let now = self.solve(instances);
            let carried = explain::carried(self.ask, &now);
            let mut best: Option<(f64, Try)> = None;
            for next in self.tries(instances, &now, slots) {
                let most = next.bound / next.slots();
                if self.spent() || best.as_ref().is_some_and(|(gain, _)| most < gain * (1.0 - EQUAL)) {
                    break;
                }
                next.vertices.iter().for_each(|vertex| instances[*vertex] += 1);
                let gain = self.throughput(instances) - now.throughput;
                next.vertices.iter().for_each(|vertex| instances[*vertex] -= 1);
                if gain <= now.throughput * EQUAL {
                    continue;
                }
                let gain = gain / next.slots();
                let better = best.as_ref().is_none_or(|(most, found)| {
                    let first = |tried: &Try| carried[tried.vertices[0]];
                    gain > most * (1.0 + EQUAL)
                        || (gain >= most * (1.0 - EQUAL) && first(&next) > first(found))
                });
                if better {
                    best = Some((gain, next));
                }
            }
            let Some((_, found)) = best else { return };
            slots -= u32::try_from(found.vertices.len()).unwrap_or(slots);
            found.vertices.iter().for_each(|vertex| instances[*vertex] += 1);
        }
    }

    /// What may bring something, the most promising first.
    fn tries(&self, instances: &[u32], now: &Steady, slots: u32) -> Vec<Try> {
        let mut tries = match self.ask.engine {
            Engine::BackPressured => held(now),
            Engine::Queueing => self.overflowing(instances, now, slots),
        };
        tries.retain(|tried| {
            tried.vertices.len() <= slots as usize
                && tried.vertices.iter().all(|vertex| may_grow(self.ask, instances, *vertex))
        });
        tries.sort_by(|a, b| (b.bound / b.slots()).total_cmp(&(a.bound / a.slots())));
        tries
    }

    /// On a queueing engine: each vertex that is full, and each set of full ones along one path, if the first of
    /// them has rows waiting. Every rate is a concave function of the capacities (sums and minima), so
    /// what one more row of capacity brings now bounds what an instance brings.
    fn overflowing(&self, instances: &[u32], now: &Steady, slots: u32) -> Vec<Try> {
        let graph = self.ask.graph;
        let capacities = graph.capacities(instances);
        let full = |v: usize| now.rates[v].input >= capacities[v] * (1.0 - EQUAL) && now.rates[v].input > 0.0;
        let waits = |v: usize| {
            let open = graph.is_source(v) && graph.vertices()[v].offered.is_none();
            let each = graph.vertices()[v].capacity;
            if open { each } else { each.min(now.rates[v].input - capacities[v]) }
        };
        // For one row more out of a vertex: rows more at the sinks if full ones take none, and if they take all;
        // how many full ones there are on the way to the nearest sink, and which way that is.
        let mut free = vec![0.0_f64; graph.len()];
        let mut whole = vec![0.0_f64; graph.len()];
        let mut closed: Vec<u32> = vec![0; graph.len()];
        let mut way: Vec<Option<usize>> = vec![None; graph.len()];
        for vertex in graph.order().iter().copied().rev() {
            if graph.is_sink(vertex) {
                (free[vertex], whole[vertex]) = (1.0, 1.0);
                continue;
            }
            let passes = || graph.outputs(vertex).filter(|edge| edge.selectivity > 0.0);
            for edge in passes() {
                free[vertex] += if full(edge.to) { 0.0 } else { edge.selectivity * free[edge.to] };
                whole[vertex] += edge.selectivity * whole[edge.to];
            }
            let cost = |to: usize| closed[to].saturating_add(u32::from(full(to)));
            let next = passes().map(|edge| (cost(edge.to), edge.selectivity * whole[edge.to], edge.to));
            let next = next.min_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
            closed[vertex] = next.map_or(u32::MAX, |(cost, _, _)| cost);
            way[vertex] = next.map(|(_, _, to)| to);
        }
        let over: Vec<usize> =
            (0..graph.len()).filter(|v| full(*v) && waits(*v) > capacities[*v] * EQUAL).collect();
        let single = |v: &usize| Try { vertices: vec![*v], bound: waits(*v) * free[*v] };
        let mut tries: Vec<Try> = over.iter().map(single).filter(|tried| tried.bound > 0.0).collect();
        let several = |v: &&usize| closed[**v] > 0 && closed[**v] < slots;
        let mut begins: Vec<usize> = over.iter().filter(several).copied().collect();
        begins.sort_by(|a, b| (waits(*b) * whole[*b]).total_cmp(&(waits(*a) * whole[*a])));
        for begin in begins.into_iter().take(SETS) {
            let along = std::iter::successors(Some(begin), |vertex| way[*vertex]);
            let vertices: Vec<usize> = along.filter(|vertex| full(*vertex)).collect();
            let bound = vertices.iter().map(|v| graph.vertices()[*v].capacity * whole[*v]).sum();
            tries.push(Try { vertices, bound });
        }
        tries
    }
}

/// On a back-pressured engine: each set of vertices that hold the same sources back. Any other vertex
/// has capacity to spare, and more of it changes nothing.
fn held(now: &Steady) -> Vec<Try> {
    let tight = now.tight.iter().filter(|tight| !tight.vertices.is_empty());
    tight.map(|tight| Try { vertices: tight.vertices.clone(), bound: f64::INFINITY }).collect()
}
