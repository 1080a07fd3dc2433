//! Sources that look ahead: which edges may take rows that have not arrived, and how far that is in time.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::dag::{Dag, Edge, EdgeId, Role, Routing, VertexId};
use super::error::{Kind, PlanError};
use crate::fault::At;
use crate::job::{Job, Op, Settings, Source};
use crate::route::{RouteOptions, Setting};

/// The policy that says of each row whether it is worth sending now.
const POLICY: &str = "potus";

/// How far a source looks ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// Slots behind the current one whose rows may be sent; at least 1.
    pub slots: u32,
    /// The length of one.
    pub slot: Duration,
}

/// How far the instances of a vertex look ahead; `None` if they do not, or are no source's.
pub fn ahead(dag: &Dag, job: &Job, vertex: VertexId) -> Option<Ahead> {
    let (source, _) = source(dag, job, vertex)?;
    let (_, edge) = dag.outputs(vertex).next()?;
    Some(Ahead { slots: source.ahead(), slot: slot(edge, job) })
}

/// Why an edge whose sender looks ahead cannot have this policy with these options, if it cannot.
pub fn refuses_route(
    dag: &Dag,
    job: &Job,
    edge: EdgeId,
    policy: &str,
    given: &BTreeMap<String, Value>,
) -> Option<String> {
    let from = dag.edge(edge).from;
    let (ahead, (_, stage)) = (ahead(dag, job, from)?, source(dag, job, from)?);
    let name = dag.edge_name(edge);
    if policy != POLICY {
        return Some(only_potus(&name, stage, ahead.slots, &format!("has the policy `{policy}`")));
    }
    let slot = slot_of(given, job);
    (slot != ahead.slot).then(|| {
        format!(
            "the window of `{stage}` is counted in slots of {:?}, so those of {name} cannot be {slot:?} while the job \
             runs",
            ahead.slot
        )
    })
}

/// Whether every edge of a source that looks ahead can take its rows.
pub(super) fn check(dag: &Dag, job: &Job) -> Result<(), PlanError> {
    for vertex in (0..dag.vertices.len() as u32).map(VertexId) {
        let (Some(ahead), Some((source, stage))) = (ahead(dag, job, vertex), source(dag, job, vertex)) else {
            continue;
        };
        let at = source.window.as_ref().map_or(At::default(), |window| window.at);
        for (id, edge) in dag.outputs(vertex) {
            let name = dag.edge_name(id);
            let why = match &edge.routing {
                Routing::Unicast if edge.policy() != POLICY => format!("has the policy `{}`", edge.policy()),
                Routing::Unicast if edge.spills => "lets rows wait on disk".to_owned(),
                Routing::Unicast => {
                    if slot(edge, job) == ahead.slot {
                        continue;
                    }
                    let message = format!(
                        "the window of `{stage}` is counted in slots, and its edges have slots of {:?} and {:?}",
                        ahead.slot,
                        slot(edge, job)
                    );
                    return Err(PlanError::at(Kind::Route, at, message).help("give them the same `slot`"));
                }
                _ => "leaves no choice of when a row is sent where".to_owned(),
            };
            let error = PlanError::at(Kind::Route, at, only_potus(&name, stage, ahead.slots, &why));
            return Err(error.help("put a rebalance with policy = \"potus\" behind it, or set window = 0"));
        }
    }
    Ok(())
}

fn only_potus(edge: &str, stage: &str, window: u32, why: &str) -> String {
    format!(
        "`{stage}` looks ahead (window = {window}), and {edge} {why}: only the price of `{POLICY}` says which rows are \
         worth sending before they arrive"
    )
}

/// The source of a vertex, if that is one that looks ahead, and its stage's id.
fn source<'j>(dag: &Dag, job: &'j Job, vertex: VertexId) -> Option<(&'j Source, &'j str)> {
    let vertex = dag.vertex(vertex);
    let id = vertex.stages.last().filter(|_| vertex.role == Role::Whole)?;
    let stage = job.stages.iter().find(|stage| stage.id == *id)?;
    match &stage.op {
        Op::Source(source) if source.ahead() > 0 => Some((source, &stage.id)),
        _ => None,
    }
}

fn slot(edge: &Edge, job: &Job) -> Duration {
    slot_of(&edge.route.options, job)
}

fn slot_of(given: &BTreeMap<String, Value>, job: &Job) -> Duration {
    let setting = match job.options.settings {
        Settings::Paper => Setting::Paper,
        Settings::Default => Setting::Default,
    };
    // Options that cannot be read were refused where they stand.
    RouteOptions::read(given, setting).unwrap_or_else(|_| RouteOptions::of(setting)).slot
}
