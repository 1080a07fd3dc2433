//! The graph that scaling reasons about: who sends to whom, how much an instance takes, how much it makes of it.

use std::collections::{BTreeMap, BTreeSet};

/// One vertex with what is known of its load.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowVertex {
    /// Its name, the only one in the graph.
    pub id: String,
    /// How many instances it has.
    pub instances: u32,
    /// Rows a second that one instance takes when it has work all the time (its true capacity: rows by *busy* time).
    /// Infinite where that is not known: such a vertex then limits nothing and gets nothing.
    pub capacity: f64,
    /// Rows that it emits for one it has processed. What arrives at others is said by the edges; this one is the emitted
    /// rate that Stela reads, and of a sink the only place that says it.
    pub selectivity: f64,
    /// Of a source: rows a second that the outside offers. `None`: as many as its instances take, however many
    /// there are. Means nothing for a vertex with inputs.
    pub offered: Option<f64>,
    /// The most instances that it can have, if there is a bound.
    pub max_instances: Option<u32>,
}

impl FlowVertex {
    /// A vertex with selectivity 1 that offers nothing of its own and may have any number of instances.
    pub fn new(id: impl Into<String>, instances: u32, capacity: f64) -> Self {
        Self { id: id.into(), instances, capacity, selectivity: 1.0, offered: None, max_instances: None }
    }
}

/// Rows go from one vertex to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowEdge {
    /// Index of the sender in [`FlowGraph::vertices`].
    pub from: usize,
    /// Index of the receiver.
    pub to: usize,
    /// Rows on this edge for one row that `from` has processed.
    pub selectivity: f64,
}

/// What one vertex does in a second, measured or modelled.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rates {
    /// Rows that reach it; of a source, rows that it is offered.
    pub input: f64,
    /// Rows that it takes and works on.
    pub processed: f64,
    /// Rows that it emits, counted once however many receivers each goes to.
    pub emitted: f64,
}

/// Why vertices and edges are no graph.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GraphError {
    /// Two vertices share a name.
    #[error("two vertices are called `{0}`")]
    SameName(String),
    /// A number that a vertex cannot have.
    #[error("vertex `{vertex}`: {what} is {value}: it must be {rule}")]
    Vertex {
        /// Which.
        vertex: String,
        /// Of what.
        what: &'static str,
        /// The number.
        value: f64,
        /// What it must be.
        rule: &'static str,
    },
    /// A number that an edge cannot have.
    #[error("edge `{from}` to `{to}`: its selectivity is {value}: it must be 0 or more")]
    Edge {
        /// Its sender.
        from: String,
        /// Its receiver.
        to: String,
        /// The number.
        value: f64,
    },
    /// An edge to or from a vertex that there is not.
    #[error("edge number {edge} names vertex number {vertex}, and there are {vertices}")]
    NoVertex {
        /// The edge, counted from 1.
        edge: usize,
        /// What it names, counted from 1.
        vertex: usize,
        /// How many there are.
        vertices: usize,
    },
    /// A source of which nothing is known.
    #[error("source `{0}` has neither an offered rate nor a known capacity: give one of them")]
    Open(String),
    /// Rows could go round.
    #[error("the graph has a cycle: {}", cycle.join(" -> "))]
    Cycle {
        /// The vertices on it; the first one is the last one, too.
        cycle: Vec<String>,
    },
}

/// An acyclic graph of vertices. Several edges between the same two vertices are one that carries the rows of all.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowGraph {
    vertices: Vec<FlowVertex>,
    edges: Vec<FlowEdge>,
    inputs: Vec<Vec<usize>>,
    outputs: Vec<Vec<usize>>,
    order: Vec<usize>,
}

impl FlowGraph {
    /// A graph of these vertices and edges.
    ///
    /// # Errors
    /// Everything that is wrong with it; a cycle only if nothing else is.
    pub fn new(vertices: Vec<FlowVertex>, edges: Vec<FlowEdge>) -> Result<Self, Vec<GraphError>> {
        let faults = faults(&vertices, &edges);
        if !faults.is_empty() {
            return Err(faults);
        }
        let mut merged: Vec<FlowEdge> = Vec::with_capacity(edges.len());
        let mut known: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for edge in edges {
            let at = *known.entry((edge.from, edge.to)).or_insert(merged.len());
            match merged.get_mut(at) {
                Some(same) => same.selectivity += edge.selectivity,
                None => merged.push(edge),
            }
        }
        let mut inputs = vec![Vec::new(); vertices.len()];
        let mut outputs = vec![Vec::new(); vertices.len()];
        for (index, edge) in merged.iter().enumerate() {
            outputs[edge.from].push(index);
            inputs[edge.to].push(index);
        }
        let mut graph = Self { vertices, edges: merged, inputs, outputs, order: Vec::new() };
        let open = |v: &&FlowVertex| v.offered.is_none() && v.capacity.is_infinite();
        let sources = graph.vertices.iter().zip(&graph.inputs).filter(|(_, inputs)| inputs.is_empty());
        let open: Vec<GraphError> =
            sources.map(|(vertex, _)| vertex).filter(open).map(|v| GraphError::Open(v.id.clone())).collect();
        if !open.is_empty() {
            return Err(open);
        }
        graph.order = graph.sorted();
        if graph.order.len() < graph.vertices.len() {
            return Err(vec![GraphError::Cycle { cycle: graph.cycle() }]);
        }
        Ok(graph)
    }

    /// The same graph, in which a vertex is offered so many rows a second.
    #[must_use]
    pub(super) fn with_offered(mut self, vertex: usize, offered: f64) -> Self {
        self.vertices[vertex].offered = Some(offered);
        self
    }

    /// Its vertices, in the order in which they were given.
    pub fn vertices(&self) -> &[FlowVertex] {
        &self.vertices
    }

    /// Its edges, at most one between two vertices.
    pub fn edges(&self) -> &[FlowEdge] {
        &self.edges
    }

    /// How many vertices it has.
    pub fn len(&self) -> usize {
        self.vertices.len()
    }

    /// It has no vertex.
    pub fn is_empty(&self) -> bool {
        self.vertices.is_empty()
    }

    /// The vertices, each one behind all that send to it.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// The edges that end at a vertex.
    pub fn inputs(&self, vertex: usize) -> impl ExactSizeIterator<Item = &FlowEdge> {
        self.inputs[vertex].iter().map(|edge| &self.edges[*edge])
    }

    /// The edges that begin at a vertex.
    pub fn outputs(&self, vertex: usize) -> impl ExactSizeIterator<Item = &FlowEdge> {
        self.outputs[vertex].iter().map(|edge| &self.edges[*edge])
    }

    /// Nobody sends to it.
    pub fn is_source(&self, vertex: usize) -> bool {
        self.inputs[vertex].is_empty()
    }

    /// It sends to nobody.
    pub fn is_sink(&self, vertex: usize) -> bool {
        self.outputs[vertex].is_empty()
    }

    /// The index of a vertex by its name.
    pub fn find(&self, id: &str) -> Option<usize> {
        self.vertices.iter().position(|vertex| vertex.id == id)
    }

    /// The instances of every vertex.
    pub fn instances(&self) -> Vec<u32> {
        self.vertices.iter().map(|vertex| vertex.instances).collect()
    }

    /// The same graph with other numbers of instances. A bound on instances stays as it is.
    #[must_use]
    pub fn with_instances(&self, instances: &[u32]) -> Self {
        let mut graph = self.clone();
        graph
            .vertices
            .iter_mut()
            .zip(instances)
            .for_each(|(vertex, instances)| vertex.instances = *instances);
        graph
    }

    /// The same graph, in which an instance takes so many times as many rows a second. What sources are offered stays.
    #[must_use]
    pub fn faster(&self, factor: f64) -> Self {
        let mut graph = self.clone();
        graph.vertices.iter_mut().for_each(|vertex| vertex.capacity *= factor);
        graph
    }

    /// Rows a second that each vertex takes with so many instances; as if each instance had a core of its own.
    pub fn capacities(&self, instances: &[u32]) -> Vec<f64> {
        self.vertices.iter().zip(instances).map(|(vertex, n)| total(*n, vertex.capacity)).collect()
    }

    /// Kahn's algorithm; vertices on a cycle and behind one are missing.
    fn sorted(&self) -> Vec<usize> {
        let mut missing: Vec<usize> = self.inputs.iter().map(Vec::len).collect();
        let mut order: Vec<usize> = (0..self.len()).filter(|vertex| missing[*vertex] == 0).collect();
        order.reserve(self.len() - order.len());
        let mut next = 0;
        while let Some(vertex) = order.get(next).copied() {
            next += 1;
            for edge in &self.outputs[vertex] {
                let to = self.edges[*edge].to;
                missing[to] -= 1;
                if missing[to] == 0 {
                    order.push(to);
                }
            }
        }
        order
    }

    /// A cycle among the vertices that have no place in the order: each of them has an input that has none either.
    fn cycle(&self) -> Vec<String> {
        let placed: BTreeSet<usize> = self.order.iter().copied().collect();
        let before = |vertex: usize| self.inputs(vertex).map(|edge| edge.from).find(|v| !placed.contains(v));
        let mut path: Vec<usize> = Vec::new();
        let mut at = (0..self.len()).find(|vertex| !placed.contains(vertex));
        while let Some(vertex) = at {
            if let Some(begin) = path.iter().position(|seen| *seen == vertex) {
                path.drain(..begin);
                path.push(vertex);
                break;
            }
            path.push(vertex);
            at = before(vertex);
        }
        path.iter().rev().map(|vertex| self.vertices[*vertex].id.clone()).collect()
    }
}

/// What so many instances take. None take nothing, whatever one would.
pub fn total(instances: u32, capacity: f64) -> f64 {
    if instances == 0 { 0.0 } else { f64::from(instances) * capacity }
}

fn faults(vertices: &[FlowVertex], edges: &[FlowEdge]) -> Vec<GraphError> {
    let mut faults = Vec::new();
    let mut names = BTreeSet::new();
    for vertex in vertices {
        if !names.insert(&vertex.id) {
            faults.push(GraphError::SameName(vertex.id.clone()));
        }
        let mut number = |what, value: f64, fits: bool, rule| {
            if !fits {
                faults.push(GraphError::Vertex { vertex: vertex.id.clone(), what, value, rule });
            }
        };
        number("its capacity", vertex.capacity, vertex.capacity > 0.0, "above 0");
        number("its selectivity", vertex.selectivity, plain(vertex.selectivity), "0 or more");
        let offered = vertex.offered.unwrap_or_default();
        number("its offered rate", offered, plain(offered), "0 or more");
    }
    for (index, edge) in edges.iter().enumerate() {
        let unknown: Vec<usize> = [edge.from, edge.to].into_iter().filter(|v| *v >= vertices.len()).collect();
        faults.extend(unknown.iter().map(|vertex| GraphError::NoVertex {
            edge: index + 1,
            vertex: vertex + 1,
            vertices: vertices.len(),
        }));
        if unknown.is_empty() && !plain(edge.selectivity) {
            let id = |vertex: usize| vertices[vertex].id.clone();
            faults.push(GraphError::Edge { from: id(edge.from), to: id(edge.to), value: edge.selectivity });
        }
    }
    faults
}

fn plain(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(ids: &[&str]) -> Vec<FlowVertex> {
        ids.iter().map(|id| FlowVertex::new(*id, 1, 10.0)).collect()
    }

    fn edge(from: usize, to: usize) -> FlowEdge {
        FlowEdge { from, to, selectivity: 1.0 }
    }

    #[test]
    fn edges_between_the_same_two_are_one_that_carries_both() {
        let half = FlowEdge { selectivity: 0.5, ..edge(0, 1) };
        let graph = FlowGraph::new(chain(&["a", "b", "c"]), vec![edge(0, 1), edge(1, 2), half]).unwrap();
        assert_eq!(graph.edges(), [FlowEdge { selectivity: 1.5, ..edge(0, 1) }, edge(1, 2)]);
        assert_eq!(graph.inputs(1).len(), 1);
        assert!(graph.is_source(0) && graph.is_sink(2) && !graph.is_sink(1));
    }

    #[test]
    fn each_vertex_stands_behind_those_that_send_to_it() {
        let graph =
            FlowGraph::new(chain(&["c", "b", "a"]), vec![edge(2, 1), edge(1, 0), edge(2, 0)]).unwrap();
        assert_eq!(graph.order(), [2, 1, 0]);
    }

    #[test]
    fn a_cycle_is_named() {
        let edges = vec![edge(0, 1), edge(1, 2), edge(2, 3), edge(3, 1), edge(3, 4)];
        let faults = FlowGraph::new(chain(&["a", "b", "c", "d", "e"]), edges).unwrap_err();
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].to_string(), "the graph has a cycle: b -> c -> d -> b");
        let faults = FlowGraph::new(chain(&["a"]), vec![edge(0, 0)]).unwrap_err();
        assert_eq!(faults[0].to_string(), "the graph has a cycle: a -> a");
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let mut vertices = chain(&["a", "a", "b"]);
        vertices[0].capacity = 0.0;
        vertices[1].selectivity = f64::NAN;
        vertices[2].offered = Some(-1.0);
        let edges = vec![edge(0, 3), FlowEdge { selectivity: -1.0, ..edge(0, 2) }];
        let said: Vec<String> =
            FlowGraph::new(vertices, edges).unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "vertex `a`: its capacity is 0: it must be above 0",
                "two vertices are called `a`",
                "vertex `a`: its selectivity is NaN: it must be 0 or more",
                "vertex `b`: its offered rate is -1: it must be 0 or more",
                "edge number 1 names vertex number 4, and there are 3",
                "edge `a` to `b`: its selectivity is -1: it must be 0 or more",
            ]
        );
    }

    #[test]
    fn a_source_of_which_nothing_is_known_is_refused() {
        let mut vertices = chain(&["a", "b"]);
        for vertex in &mut vertices {
            vertex.capacity = f64::INFINITY;
        }
        let faults = FlowGraph::new(vertices, vec![edge(0, 1)]).unwrap_err();
        assert_eq!(faults, [GraphError::Open("a".into())]);
    }

    #[test]
    fn no_instance_takes_nothing() {
        assert_eq!((total(0, f64::INFINITY), total(3, 2.0)), (0.0, 6.0));
    }
}
