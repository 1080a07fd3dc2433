//! What a job does in the long run with so many instances: rates of every vertex, and what comes out.
//!
//! Rows are a fluid, and an instance takes its share of what reaches its vertex, at most its capacity (the model of
//! elasticity.md, section 2.1). What happens to more than that is the engine's: see [`Engine`].

mod filling;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::graph::{FlowGraph, Rates};
use filling::Filling;

/// Two rates that differ by less than this share of themselves are equal.
pub const EQUAL: f64 = 1e-9;

/// A number that has the order of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ordered(pub(super) f64);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// What an engine does with rows that a vertex cannot take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// They wait without bound, or are dropped: a vertex processes `min(input, n * c)`, and its senders notice
    /// nothing. Storm without a bound on rows in flight; here, a job with `overflow = "grow"`.
    Queueing,
    /// Queues are bounded, and a full one holds its senders back, up to the sources: nobody is sent more than it takes.
    ///
    /// All sources are throttled by one factor until a vertex is full. Those whose rows reach it stay at that factor,
    /// the others go on together until the next vertex is full (progressive filling). So what comes out is what
    /// the sources get through in fair shares of what they are offered, not the most that a scheduler of
    /// sources could get out: an engine does not favour a source because its rows pass cheaply. With one source
    /// both are the same: the factor is the smallest `n * c / demand`.
    BackPressured,
}

impl Engine {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queueing => "queueing",
            Self::BackPressured => "backpressured",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [Self::Queueing, Self::BackPressured]
            .into_iter()
            .find(|engine| engine.name() == name)
            .ok_or_else(|| format!("no engine is called `{name}`; there are: queueing, backpressured"))
    }
}

/// What holds sources back, and how far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tight {
    /// The share of what they are offered that the sources behind it get through, from 0 to 1.
    pub scale: f64,
    /// The vertices that are full at that share; an unbounded source, that gives all it can, is full at 1.
    pub vertices: Vec<usize>,
    /// The shared bounds that are used up, by index into what was passed.
    pub shared: Vec<usize>,
}

/// The steady state of a graph.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Steady {
    /// Of each vertex.
    pub rates: Vec<Rates>,
    /// Rows a second that the sinks process.
    pub throughput: f64,
    /// What is full, in the order in which sources met it; empty on a queueing engine, where a full vertex is
    /// one whose input is more than it processes.
    pub tight: Vec<Tight>,
    /// Vertices and edges that were looked at: what it cost.
    pub steps: u64,
}

/// A bound on several vertices together, as the cores of a machine are: the sum of factor times processed rate.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shared {
    /// What there is.
    pub limit: f64,
    /// Vertices and what one row a second of them takes of it.
    pub parts: Vec<(usize, f64)>,
}

/// What a source could send, if nobody held it back: what it is offered, or what its instances take.
pub fn offered(graph: &FlowGraph, source: usize, capacity: f64) -> f64 {
    graph.vertices()[source].offered.unwrap_or(capacity)
}

/// Rows a second that would reach each vertex, if every vertex took all.
pub fn demand(graph: &FlowGraph, capacities: &[f64]) -> Vec<f64> {
    flows(graph, |source| offered(graph, source, capacities[source]), |_, rows| rows)
}

/// The steady state with these total capacities, by vertex.
pub fn steady(graph: &FlowGraph, capacities: &[f64], engine: Engine) -> Steady {
    match engine {
        Engine::Queueing => queueing(graph, |vertex, input| capacities[vertex].min(input), capacities),
        Engine::BackPressured => back_pressured(graph, capacities, &[]),
    }
}

/// The steady state of a queueing engine, where `takes` says what a vertex processes of its input. O(V + E).
pub(super) fn queueing(graph: &FlowGraph, takes: impl Fn(usize, f64) -> f64, capacities: &[f64]) -> Steady {
    let input = flows(graph, |source| offered(graph, source, capacities[source]), &takes);
    let processed = input.iter().enumerate().map(|(vertex, input)| takes(vertex, *input)).collect();
    finish(graph, input, processed)
}

/// The steady state of a back-pressured engine, under these further bounds. O(V + E), and for each factor at which sources are
/// held back what lies behind these.
pub(super) fn back_pressured(graph: &FlowGraph, capacities: &[f64], shared: &[Shared]) -> Steady {
    let weight = |source: usize| offered(graph, source, capacities[source]);
    let mut filling = Filling::new(graph, capacities, shared);
    let mut tight: Vec<Tight> = std::iter::from_fn(|| filling.next_factor()).collect();
    let (scales, steps) = filling.end();
    let sources = || graph.order().iter().copied().filter(|vertex| graph.is_source(*vertex));
    let free = sources().filter(|v| scales[*v].is_none() && graph.vertices()[*v].offered.is_none());
    tight.extend(free.map(|v| Tight { scale: 1.0, vertices: vec![v], shared: Vec::new() }));
    let processed = flows(graph, |v| scales[v].unwrap_or(1.0) * weight(v), |_, rows| rows);
    let mut input = processed.clone();
    for source in sources() {
        input[source] = weight(source);
    }
    let mut steady = finish(graph, input, processed);
    steady.tight = tight;
    steady.steps += steps;
    steady
}

/// What reaches each vertex, if sources get `begins` and each passes on what it `takes`.
fn flows(graph: &FlowGraph, begins: impl Fn(usize) -> f64, takes: impl Fn(usize, f64) -> f64) -> Vec<f64> {
    let mut input = vec![0.0; graph.len()];
    for vertex in graph.order() {
        if graph.is_source(*vertex) {
            input[*vertex] = begins(*vertex);
        }
        let rows = takes(*vertex, input[*vertex]);
        for edge in graph.outputs(*vertex) {
            input[edge.to] += rows * edge.selectivity;
        }
    }
    input
}

fn finish(graph: &FlowGraph, input: Vec<f64>, processed: Vec<f64>) -> Steady {
    let throughput =
        processed.iter().enumerate().filter(|(v, _)| graph.is_sink(*v)).map(|(_, rows)| rows).sum();
    let rates = input
        .into_iter()
        .zip(processed)
        .zip(graph.vertices())
        .map(|((input, processed), vertex)| Rates {
            input,
            processed,
            emitted: processed * vertex.selectivity,
        })
        .collect();
    let steps = (graph.len() + graph.edges().len()) as u64;
    Steady { rates, throughput, tight: Vec::new(), steps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::graph::{FlowEdge, FlowVertex};

    /// Sources with what they are offered, then the others; edges by index, selectivity 1.
    fn graph(vertices: &[(u32, f64, Option<f64>)], edges: &[(usize, usize)]) -> FlowGraph {
        let vertices = vertices.iter().enumerate().map(|(id, (instances, capacity, offered))| FlowVertex {
            offered: *offered,
            ..FlowVertex::new(id.to_string(), *instances, *capacity)
        });
        let edges = edges.iter().map(|(from, to)| FlowEdge { from: *from, to: *to, selectivity: 1.0 });
        FlowGraph::new(vertices.collect(), edges.collect()).unwrap()
    }

    fn solved(graph: &FlowGraph, engine: Engine) -> Steady {
        steady(graph, &graph.capacities(&graph.instances()), engine)
    }

    fn processed(steady: &Steady) -> Vec<f64> {
        steady.rates.iter().map(|rates| rates.processed).collect()
    }

    fn sinks(graph: &FlowGraph, engine: Engine) -> String {
        solved(graph, engine).throughput.to_string()
    }

    #[test]
    fn excess_waits_or_holds_the_source_back() {
        let chain = graph(&[(1, 900.0, Some(1000.0)), (2, 100.0, None), (1, 500.0, None)], &[(0, 1), (1, 2)]);
        let queueing = solved(&chain, Engine::Queueing);
        assert_eq!(processed(&queueing), [900.0, 200.0, 200.0]);
        assert_eq!(queueing.rates[1], Rates { input: 900.0, processed: 200.0, emitted: 200.0 });
        let held = solved(&chain, Engine::BackPressured);
        assert_eq!(processed(&held), [200.0, 200.0, 200.0]);
        assert_eq!((held.rates[0].input, held.rates[1].input), (1000.0, 200.0));
        assert_eq!(held.tight, [Tight { scale: 0.2, vertices: vec![1], shared: vec![] }]);
    }

    #[test]
    fn every_receiver_gets_a_copy_of_the_whole_stream() {
        let fan = graph(&[(1, 900.0, Some(100.0)), (1, 900.0, None), (1, 900.0, None)], &[(0, 1), (0, 2)]);
        for engine in [Engine::Queueing, Engine::BackPressured] {
            assert_eq!(sinks(&fan, engine), "200");
        }
    }

    #[test]
    fn a_source_is_held_back_only_by_what_its_rows_reach() {
        // 0 -> 2 -> sink 4, and 0 and 1 -> 3; 3 takes 300 of 100 + 500, 2 takes 20 of 100.
        let two = graph(
            &[
                (1, 1e4, Some(100.0)),
                (1, 1e4, Some(500.0)),
                (1, 20.0, None),
                (1, 300.0, None),
                (1, 1e4, None),
            ],
            &[(0, 2), (2, 4), (0, 3), (1, 3)],
        );
        let held = solved(&two, Engine::BackPressured);
        assert_eq!(held.tight[0], Tight { scale: 0.2, vertices: vec![2], shared: vec![] });
        // Source 0 is fixed at 20 rows a second; source 1 gets the rest of vertex 3.
        assert_eq!(processed(&held), [20.0, 280.0, 20.0, 300.0, 20.0]);
        assert_eq!(held.tight[1].vertices, [3]);
    }

    #[test]
    fn an_unbounded_source_gives_what_its_instances_take() {
        let open = graph(&[(2, 100.0, None), (1, 900.0, None)], &[(0, 1)]);
        for engine in [Engine::Queueing, Engine::BackPressured] {
            assert_eq!(sinks(&open, engine), "200", "{engine}");
        }
        assert_eq!(solved(&open, Engine::BackPressured).tight[0].vertices, [0]);
    }

    #[test]
    fn a_vertex_without_instances_lets_nothing_through() {
        let chain = graph(&[(1, 900.0, Some(10.0)), (0, f64::INFINITY, None)], &[(0, 1)]);
        for engine in [Engine::Queueing, Engine::BackPressured] {
            assert_eq!(sinks(&chain, engine), "0", "{engine}");
        }
    }

    #[test]
    fn an_engine_is_read_by_its_name() {
        for engine in [Engine::Queueing, Engine::BackPressured] {
            assert_eq!(engine.to_string().parse(), Ok(engine));
        }
        assert!("storm".parse::<Engine>().unwrap_err().starts_with("no engine is called `storm`"));
    }
}
