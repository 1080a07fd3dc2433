//! Which vertices cannot take what reaches them.

use super::fluid::{EQUAL, demand};
use super::graph::{FlowGraph, Rates};

/// Stela's bound on input over processed rows (`CongestionRate` in the authors' code, elasticity.md section 1.3).
pub const PUBLISHED: f64 = 1.2;

/// How a vertex is found to be congested.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Congestion {
    /// More than this many times as much reaches it as it processes, strictly (Stela, with [`PUBLISHED`]). A source
    /// never is. Under back-pressure nothing ever is: what reaches a vertex is what it takes.
    Ratio(f64),
    /// What would reach it, if nobody held anything back, is more than its instances can take: the
    /// test of the `default` setting. It also holds for sources that are offered more than they take, and
    /// needs true capacities and the rates that sources are offered.
    Demand,
}

impl Default for Congestion {
    fn default() -> Self {
        Self::Ratio(PUBLISHED)
    }
}

impl Congestion {
    /// The congested ones among vertices with these rates; the second test reads `instances` and the graph instead.
    pub fn find(self, graph: &FlowGraph, instances: &[u32], rates: &[Rates]) -> Vec<bool> {
        match self {
            Self::Ratio(ratio) => rates
                .iter()
                .enumerate()
                .map(|(vertex, rates)| !graph.is_source(vertex) && rates.input > ratio * rates.processed)
                .collect(),
            Self::Demand => {
                let capacities = graph.capacities(instances);
                let demand = demand(graph, &capacities);
                demand
                    .iter()
                    .zip(capacities)
                    .map(|(rows, capacity)| *rows > capacity * (1.0 + EQUAL))
                    .collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::graph::{FlowEdge, FlowVertex};

    #[test]
    fn the_published_test_is_strict_and_the_other_sees_what_is_held_back() {
        let vertices = vec![
            FlowVertex { offered: Some(120.0), ..FlowVertex::new("in", 1, 110.0) },
            FlowVertex::new("mid", 1, 100.0),
            FlowVertex::new("out", 2, 60.0),
        ];
        let edge = |from, to| FlowEdge { from, to, selectivity: 1.0 };
        let graph = FlowGraph::new(vertices, vec![edge(0, 1), edge(1, 2)]).unwrap();
        let rates = |input, processed| Rates { input, processed, emitted: processed };
        let rates = [rates(500.0, 110.0), rates(120.0, 100.0), rates(120.5, 100.0)];
        let found = |test: Congestion| test.find(&graph, &graph.instances(), &rates);
        assert_eq!(found(Congestion::default()), [false, false, true]);
        assert_eq!(found(Congestion::Ratio(1.1)), [false, true, true]);
        assert_eq!(found(Congestion::Demand), [true, true, false]);
    }
}
