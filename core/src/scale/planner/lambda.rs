//! The largest share of what sources are offered that a job can take with so many more instances.
//!
//! DS2 (Kalavri et al., OSDI 2018) asks how many instances a vertex needs for a rate: `ceil(required / true rate)`. With
//! a budget the question is turned round: the largest `s` such that the sum over vertices of
//! `max(0, ceil(s * demand / c) - n)` is at most N (elasticity.md section 2.1). The vertex with the smallest
//! `n * c / demand` binds, so N times one more for that one gives the same as a search for `s`, in
//! O(V + N log V), and says in which order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::simple::may_grow;
use super::{Ask, Plan, Planner, Refusal, explain};
use crate::scale::fluid::{EQUAL, Ordered, demand};
use crate::scale::graph::total;

/// What reaches a vertex, as a line in the share `s` of what the sources offer.
#[derive(Debug, Clone, Copy)]
struct Need {
    /// Of sources that are offered a rate: it ends at `s = 1`.
    paced: f64,
    /// Of sources that give what their instances take: with more instances they give more.
    open: f64,
}

impl Need {
    /// The share at which so many rows reach the vertex; infinite if they never do.
    fn share(self, capacity: f64) -> f64 {
        let whole = self.paced + self.open;
        if self.open == 0.0 && capacity >= whole * (1.0 - EQUAL) {
            // All of it is taken, however much more open sources give.
            f64::INFINITY
        } else if capacity < whole {
            capacity / whole
        } else {
            (capacity - self.paced) / self.open
        }
    }

    fn at(self, share: f64) -> f64 {
        self.paced * share.min(1.0) + self.open * share
    }
}

/// What the search has found.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    /// Who gets one more, in the order in which they bind, and the rows a second that it then has to take.
    pub(super) picks: Vec<(usize, f64)>,
    /// The vertices that bind at the end, one of each needs one more for any gain; empty if nothing binds.
    pub(super) binding: Vec<usize>,
}

/// The search. It stops where nothing binds, and at a vertex that may not have more instances.
pub(super) fn search(ask: &Ask<'_>) -> Found {
    let graph = ask.graph;
    let mut instances = graph.instances();
    let capacities = graph.capacities(&instances);
    let all = demand(graph, &capacities);
    let open_only: Vec<f64> = {
        let open = |vertex: usize| graph.is_source(vertex) && graph.vertices()[vertex].offered.is_none();
        let mut rows = vec![0.0; graph.len()];
        for vertex in graph.order() {
            if open(*vertex) {
                rows[*vertex] = capacities[*vertex];
            }
            for edge in graph.outputs(*vertex) {
                rows[edge.to] += rows[*vertex] * edge.selectivity;
            }
        }
        rows
    };
    let needs: Vec<Need> =
        all.iter().zip(open_only).map(|(all, open)| Need { paced: (all - open).max(0.0), open }).collect();
    let share = |vertex: usize, instances: u32| {
        needs[vertex].share(total(instances, graph.vertices()[vertex].capacity))
    };
    let needed = (0..graph.len()).filter(|vertex| all[*vertex] > 0.0);
    let mut heap: BinaryHeap<Reverse<(Ordered, usize)>> =
        needed.map(|vertex| Reverse((Ordered(share(vertex, instances[vertex])), vertex))).collect();
    let mut picks: Vec<(usize, f64)> = Vec::new();
    while let Some(Reverse((Ordered(bound), vertex))) = heap.peek().copied() {
        let done = bound.is_infinite() || picks.len() >= ask.slots as usize;
        if done || (bound >= 1.0 && needs[vertex].open == 0.0) || !may_grow(ask, &instances, vertex) {
            break;
        }
        heap.pop();
        picks.push((vertex, bound));
        instances[vertex] += 1;
        heap.push(Reverse((Ordered(share(vertex, instances[vertex])), vertex)));
    }
    let reached = heap.peek().map_or(f64::INFINITY, |Reverse((Ordered(bound), _))| *bound);
    let limits = |bound: f64, vertex: usize| {
        bound.is_finite() && bound <= reached * (1.0 + EQUAL) && (bound < 1.0 || needs[vertex].open > 0.0)
    };
    let at_end = heap.iter().filter(|Reverse((Ordered(bound), vertex))| limits(*bound, *vertex));
    let mut binding: Vec<usize> = at_end.map(|Reverse((_, vertex))| *vertex).collect();
    binding.sort_unstable();
    // Those that bind no less than the rest does at the end bring nothing.
    picks.retain(|(_, bound)| *bound < reached * (1.0 - EQUAL));
    let share = if reached.is_finite() { reached } else { 1.0 };
    Found { picks: picks.into_iter().map(|(vertex, _)| (vertex, needs[vertex].at(share))).collect(), binding }
}

/// DS2 with a budget: the instances that the largest common share of all sources needs. What is left is
/// too few to raise it.
#[derive(Debug, Clone, Copy)]
pub struct Ds2;

impl Planner for Ds2 {
    fn name(&self) -> &'static str {
        "ds2"
    }

    fn scale_out(&self, ask: &Ask<'_>) -> Result<Plan, Refusal> {
        let found = search(ask);
        let needs = |(vertex, rows): (usize, f64)| {
            let each = explain::rows(ask.graph.vertices()[vertex].capacity);
            (vertex, format!("needs another instance for {} rows/s at {each} each", explain::rows(rows)))
        };
        let picks: Vec<_> = found.picks.into_iter().map(needs).collect();
        let left = explain::left(ask, &picks, &found.binding);
        Ok(Plan::of(self.name(), ask, picks, left))
    }
}
