//! `what-if etp` and `what-if scale`: answers for graphs in a file, in the form of the conformance vectors.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::congestion::Congestion;
use super::etp::{Reading, SinkRate, etp};
use super::fluid::{Engine, demand, steady};
use super::graph::{FlowEdge, FlowGraph, FlowVertex};
use super::planner::{Ask, MOST, Plan, Planners, Step};
use crate::fault::suggestion;
use crate::fields::Fields;
use crate::route::whatif::read_all;

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

/// The most that a rate, a selectivity or a number of rows may be: sums of such have a number.
const MOST_NUMBER: f64 = 1e18;

/// The most instances of a vertex.
const MOST_INSTANCES: u64 = 1_000_000;

const POSITIVE: &str = "a number above 0, at most 1e18";
const NOT_NEGATIVE: &str = "a number from 0 to 1e18";

fn positive(number: f64) -> bool {
    number > 0.0 && number <= MOST_NUMBER
}

fn not_negative(number: f64) -> bool {
    (0.0..=MOST_NUMBER).contains(&number)
}

/// Reads an array of cases, or one case; says which it was (`true`: an array).
///
/// # Errors
/// A sentence for everything that is wrong with any case, each with the case, the vertex or edge, and the field; or one for
/// a file that is no JSON.
pub fn read(text: &str) -> Result<(Vec<Case>, bool), Vec<String>> {
    read_all(text, case, |case| &case.id)
}

/// One case; `None` if something is wrong with it, which then is among the faults.
fn case(place: &str, value: &Value, faults: &mut Vec<String>) -> Option<Case> {
    let before = faults.len();
    let mut fields = Fields::of(format!("{place}: "), value, faults)?;
    let id = fields.text("id", faults);
    let new_instances = fields.whole_or("new_instances", u64::MAX, 0..=u64::from(MOST), faults);
    let expected = ["queueing", "backpressured", "etp"].into_iter();
    let expected = expected.filter_map(|name| Some((name.to_owned(), fields.given(name)?.clone()))).collect();
    let graph = fields.table("graph", faults).and_then(|graph| read_graph(place, graph, faults));
    fields.finish(faults);
    let new_instances = new_instances.and_then(|slots| u32::try_from(slots).ok());
    (faults.len() == before).then_some(())?;
    Some(Case { id: id?.to_owned(), graph: graph?, new_instances, expected })
}

fn read_graph(place: &str, mut fields: Fields<'_>, faults: &mut Vec<String>) -> Option<FlowGraph> {
    let before = faults.len();
    let (vertices, edges) = (fields.list("vertices", faults), fields.list("edges", faults));
    if vertices.is_some_and(<[Value]>::is_empty) {
        faults.push(fields.fault("vertices", "there are none"));
    }
    fields.finish(faults);
    let numbered = vertices?.iter().zip(1..);
    let mut made: Vec<(Option<FlowVertex>, String)> =
        numbered.map(|(value, number)| vertex(place, number, value, faults)).collect();
    let mut index: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, (vertex, path)) in made.iter().enumerate() {
        if let Some(vertex) = vertex
            && index.insert(&vertex.id, at).is_some()
        {
            faults.push(format!("{path}, id: another one before it has this name"));
        }
    }
    // A name that stands there is no unknown one, whatever else is wrong with its vertex.
    let named: BTreeSet<&str> = vertices?.iter().filter_map(|value| value.get("id")?.as_str()).collect();
    let mut joined = Vec::new();
    let mut receives = BTreeSet::new();
    for (value, number) in edges?.iter().zip(1..) {
        let Some((from, to, selectivity)) = edge(place, number, value, faults) else { continue };
        receives.insert(to);
        for (end, id) in [("from", from), ("to", to)] {
            if !named.contains(id) {
                let close = suggestion(id, named.iter().copied());
                let close = close.map(|close| format!("; did you mean `{close}`?")).unwrap_or_default();
                faults
                    .push(format!("{place}: edge number {number}, {end}: no vertex is called `{id}`{close}"));
            }
        }
        if let (Some(from), Some(to)) = (index.get(from), index.get(to)) {
            let of_sender = || made[*from].0.as_ref().map(|vertex| vertex.selectivity);
            let Some(selectivity) = selectivity.or_else(of_sender) else { continue };
            joined.push(FlowEdge { from: *from, to: *to, selectivity });
        }
    }
    (faults.len() == before).then_some(())?;
    for (vertex, path) in &made {
        if let Some(vertex) = vertex
            && vertex.offered.is_some()
            && receives.contains(vertex.id.as_str())
        {
            faults.push(format!("{path}, offered: the vertex has inputs, and only sources are offered rows"));
        }
    }
    let vertices = made.drain(..).filter_map(|(vertex, _)| vertex);
    // What was said of a vertex is not said again, and hides no cycle.
    let vertices = vertices.map(|vertex| {
        let offered = vertex.offered.filter(|_| !receives.contains(vertex.id.as_str()));
        FlowVertex { offered, ..vertex }
    });
    let graph = FlowGraph::new(vertices.collect(), joined)
        .map_err(|more| faults.extend(more.iter().map(|fault| format!("{place}: {fault}"))))
        .ok()
        .filter(|_| faults.len() == before)?;
    let reaches = demand(&graph, &graph.capacities(&graph.instances()));
    if let Some((vertex, _)) = graph.vertices().iter().zip(reaches).find(|(_, rows)| *rows > MOST_ROWS) {
        let id = &vertex.id;
        faults.push(format!("{place}: vertex `{id}`: more than {MOST_ROWS:e} rows/s would reach it"));
        return None;
    }
    Some(graph)
}

/// Rows a second that can still be reckoned with: behind many vertices that copy each row the number grows without bound.
const MOST_ROWS: f64 = 1e100;

/// A vertex, unless something is wrong with it, and its path in words.
fn vertex(
    place: &str,
    number: usize,
    value: &Value,
    faults: &mut Vec<String>,
) -> (Option<FlowVertex>, String) {
    let id = value.get("id").and_then(Value::as_str);
    let path =
        id.map_or_else(|| format!("{place}: vertex number {number}"), |id| format!("{place}: vertex `{id}`"));
    let before = faults.len();
    let mut read = || {
        let mut fields = Fields::of(path.clone(), value, faults)?;
        let id = fields.text("id", faults);
        if id.is_some_and(str::is_empty) {
            faults.push(fields.fault("id", "it is empty"));
        }
        let instances = fields.whole("instances", 1..=MOST_INSTANCES, faults);
        let capacity = fields.number("capacity_per_instance", positive, POSITIVE, faults);
        let selectivity = fields.number_or("selectivity", 1.0, not_negative, NOT_NEGATIVE, faults);
        // Not given is no number.
        let offered = fields.number_or("offered", f64::NAN, not_negative, NOT_NEGATIVE, faults);
        let most = fields.whole_or("max_instances", u64::MAX, 1..=u64::from(u32::MAX), faults);
        fields.finish(faults);
        Some(FlowVertex {
            selectivity: selectivity?,
            offered: offered.filter(|rows| !rows.is_nan()),
            max_instances: most.and_then(|most| u32::try_from(most).ok()),
            ..FlowVertex::new(id?, u32::try_from(instances?).ok()?, capacity?)
        })
    };
    let made = read();
    (made.filter(|_| faults.len() == before), path)
}

/// An edge as a pair, which carries what its sender emits, or as a table with a selectivity of its own.
fn edge<'v>(
    place: &str,
    number: usize,
    value: &'v Value,
    faults: &mut Vec<String>,
) -> Option<(&'v str, &'v str, Option<f64>)> {
    let path = format!("{place}: edge number {number}");
    if value.is_object() {
        let mut fields = Fields::of(path, value, faults)?;
        let (from, to) = (fields.text("from", faults), fields.text("to", faults));
        let selectivity = fields.number_or("selectivity", f64::NAN, not_negative, NOT_NEGATIVE, faults);
        fields.finish(faults);
        let selectivity = selectivity?;
        return Some((from?, to?, (!selectivity.is_nan()).then_some(selectivity)));
    }
    let pair = match value.as_array().map(Vec::as_slice) {
        Some([from, to]) => from.as_str().zip(to.as_str()),
        _ => None,
    };
    if pair.is_none() {
        faults
            .push(format!("{path}: it must be [\"from\", \"to\"] or {{\"from\", \"to\", \"selectivity\"}}"));
    }
    pair.map(|(from, to)| (from, to, None))
}

/// The answer to `what-if scale`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScaleAnswer {
    /// The case's name.
    pub id: String,
    /// Instances of every vertex after the plan.
    pub instances: BTreeMap<String, u32>,
    /// Rows a second that the sinks process without them, on the model of the engine.
    pub before: f64,
    /// Rows a second that they process with them.
    pub predicted: f64,
    /// The new instances, one by one.
    pub steps: Vec<StepAnswer>,
    /// Slots that the plan does not use, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<LeftAnswer>,
}

/// One new instance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepAnswer {
    /// Of which vertex.
    pub vertex: String,
    /// Rows a second that the sinks process with it and those before it.
    pub predicted: f64,
    /// Why it is this one.
    pub why: String,
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
        let step = |step: &Step| StepAnswer {
            vertex: self.graph.vertices()[step.vertex].id.clone(),
            predicted: step.after,
            why: step.why.clone(),
        };
        ScaleAnswer {
            id: self.id.clone(),
            before: plan.before,
            steps: plan.steps.iter().map(step).collect(),
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
