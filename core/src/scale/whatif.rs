//! `what-if etp` and `what-if scale`: answers for graphs in a file, in the form of the conformance vectors.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::congestion::Congestion;
use super::etp::{Reading, SinkRate, etp};
use super::fluid::{Engine, steady};
use super::graph::{FlowEdge, FlowGraph, FlowVertex};
use super::planner::{Ask, Plan, Planners};

/// One graph, and what is asked of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The case's name, which the answer carries.
    pub id: String,
    /// The graph.
    pub graph: FlowGraph,
    /// How many instances there are to add, if the case says so.
    pub new_instances: Option<u32>,
    /// The file's own right answers, where it has them: by the names `queueing`, `backpressured` and `etp`.
    pub expected: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    id: String,
    graph: GraphForm,
    new_instances: Option<u32>,
    queueing: Option<Value>,
    backpressured: Option<Value>,
    etp: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphForm {
    vertices: Vec<VertexForm>,
    edges: Vec<EdgeForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VertexForm {
    id: String,
    instances: u32,
    capacity_per_instance: f64,
    #[serde(default = "one")]
    selectivity: f64,
    offered: Option<f64>,
    max_instances: Option<u32>,
}

fn one() -> f64 {
    1.0
}

/// An edge as a pair, which carries what its sender emits, or as a table with a selectivity of its own.
#[derive(Deserialize)]
#[serde(untagged, expecting = "an edge is [\"from\", \"to\"] or {\"from\", \"to\", \"selectivity\"}")]
enum EdgeForm {
    Pair(String, String),
    #[serde(rename_all = "lowercase")]
    Table(EdgeTable),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EdgeTable {
    from: String,
    to: String,
    selectivity: Option<f64>,
}

/// Reads an array of cases, or one case; says which it was (`true`: an array).
///
/// # Errors
/// A sentence for everything that is wrong with any case, or one for a file that is no JSON.
pub fn read(text: &str) -> Result<(Vec<Case>, bool), Vec<String>> {
    let (values, is_array) = crate::route::whatif::values(text)?;
    let mut cases = Vec::new();
    let mut faults = Vec::new();
    for (place, value) in values {
        let form = serde_json::from_value(value).map_err(|error| vec![error.to_string()]);
        match form.and_then(case) {
            Ok(case) => cases.push(case),
            Err(what) => faults.extend(what.iter().map(|fault| format!("{place}: {fault}"))),
        }
    }
    if faults.is_empty() { Ok((cases, is_array)) } else { Err(faults) }
}

fn case(form: Form) -> Result<Case, Vec<String>> {
    let Form { id, graph: GraphForm { vertices, edges }, new_instances, queueing, backpressured, etp } = form;
    let mut faults = Vec::new();
    let index: BTreeMap<&str, usize> =
        vertices.iter().enumerate().map(|(index, vertex)| (vertex.id.as_str(), index)).collect();
    let mut joined = Vec::new();
    for edge in edges {
        let (from, to, selectivity) = match edge {
            EdgeForm::Pair(from, to) => (from, to, None),
            EdgeForm::Table(EdgeTable { from, to, selectivity }) => (from, to, selectivity),
        };
        match (index.get(from.as_str()), index.get(to.as_str())) {
            (Some(from), Some(to)) => {
                let selectivity = selectivity.unwrap_or(vertices[*from].selectivity);
                joined.push(FlowEdge { from: *from, to: *to, selectivity });
            }
            (begin, _) => {
                let unknown = if begin.is_none() { &from } else { &to };
                faults.push(format!("edge `{from}` to `{to}`: no vertex is called `{unknown}`"));
            }
        }
    }
    let sources: Vec<bool> =
        (0..vertices.len()).map(|vertex| joined.iter().all(|edge| edge.to != vertex)).collect();
    let mut made = Vec::new();
    for (vertex, is_source) in vertices.into_iter().zip(sources) {
        let VertexForm { id, instances, capacity_per_instance, selectivity, offered, max_instances } = vertex;
        if instances == 0 {
            faults.push(format!("vertex `{id}` has 0 instances: it needs at least 1"));
        }
        if offered.is_some() && !is_source {
            faults.push(format!(
                "vertex `{id}` has inputs, and an offered rate: only sources are offered rows"
            ));
        }
        let capacity = capacity_per_instance;
        made.push(FlowVertex { id, instances, capacity, selectivity, offered, max_instances });
    }
    let graph = FlowGraph::new(made, joined)
        .map_err(|more| faults.extend(more.iter().map(ToString::to_string)))
        .ok()
        .filter(|_| faults.is_empty());
    let Some(graph) = graph else { return Err(faults) };
    let expected = [("queueing", queueing), ("backpressured", backpressured), ("etp", etp)];
    let expected = expected.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    Ok(Case { id, graph, new_instances, expected })
}

/// The answer to `what-if scale`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScaleAnswer {
    /// The case's name.
    pub id: String,
    /// Instances of every vertex after the plan.
    pub instances: BTreeMap<String, u32>,
    /// Rows a second that the sinks process with them, on the model of the engine.
    pub predicted: f64,
    /// Slots that the plan does not use, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<LeftAnswer>,
}

/// Slots that a plan does not use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftAnswer {
    /// How many.
    pub slots: u32,
    /// Why.
    pub why: String,
}

/// The answer to `what-if etp`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EtpAnswer {
    /// The case's name.
    pub id: String,
    /// The congested vertices, in the order of the graph.
    pub congested: Vec<String>,
    /// [`Reading::Path`] by vertex; null where there is no output.
    pub path: BTreeMap<String, Option<f64>>,
    /// [`Reading::SinkSet`].
    pub sink_set: BTreeMap<String, Option<f64>>,
    /// [`Reading::FlowShare`].
    pub flow_share: BTreeMap<String, Option<f64>>,
    /// Why there are no shares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Case {
    /// The plan of a planner for the case's new instances, with rates from the engine's model.
    ///
    /// # Errors
    /// A sentence that names the case, if it does not say how many instances are new, or the planner refuses.
    pub fn plan(&self, engine: Engine, planner: &str, planners: &Planners) -> Result<Plan, String> {
        let refuse = |what: &dyn std::fmt::Display| format!("case {}: {what}", self.id);
        let slots = self.new_instances.ok_or_else(|| refuse(&"it has no `new_instances`"))?;
        planners.scale_out(planner, &Ask::new(&self.graph, engine, slots)).map_err(|error| refuse(&error))
    }

    /// A plan of [`Self::plan`] as the answer.
    pub fn answer(&self, plan: &Plan) -> ScaleAnswer {
        let names = self.graph.vertices().iter().map(|vertex| vertex.id.clone());
        let left = plan.left.as_ref().map(|left| LeftAnswer { slots: left.slots, why: left.why.clone() });
        ScaleAnswer {
            id: self.id.clone(),
            instances: names.zip(plan.instances.iter().copied()).collect(),
            predicted: plan.after,
            left,
        }
    }

    /// ETP in its readings, and who is congested, on the rates of a queueing engine.
    pub fn etp(&self, congestion: Congestion) -> EtpAnswer {
        let graph = &self.graph;
        let instances = graph.instances();
        let rates = steady(graph, &graph.capacities(&instances), Engine::Queueing).rates;
        let congested = congestion.find(graph, &instances, &rates);
        let mut reason = None;
        let mut by_name = |reading| {
            let shares = etp(graph, &rates, &congested, reading, SinkRate::Processed);
            reason = shares.as_ref().err().map(ToString::to_string);
            let share = |vertex: usize| shares.as_ref().ok().map(|shares| shares[vertex]);
            graph
                .vertices()
                .iter()
                .enumerate()
                .map(|(index, vertex)| (vertex.id.clone(), share(index)))
                .collect()
        };
        let [path, sink_set, flow_share] =
            [Reading::Path, Reading::SinkSet, Reading::FlowShare].map(&mut by_name);
        let names = graph.vertices().iter().zip(&congested).filter(|(_, congested)| **congested);
        let congested = names.map(|(vertex, _)| vertex.id.clone()).collect();
        EtpAnswer { id: self.id.clone(), congested, path, sink_set, flow_share, reason }
    }
}
