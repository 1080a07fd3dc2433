//! What a request to scale wants of a job: which instances are to be added where, and which are to end.

use tuplane_core::cluster::Job;
use tuplane_core::plan::placement::Instance;
use tuplane_core::plan::{Dag, VertexId};
use tuplane_wire::message::{AgentInfo, FaultCode, WireFault};
use tuplane_wire::scaling::{ScaleAsk, ScalePlace};

use super::live::LiveRun;

/// What is known when a request to scale is looked at.
pub(super) struct Known<'a> {
    /// The job.
    pub(super) job: &'a Job,
    /// Its plan.
    pub(super) dag: &'a Dag,
    /// Its instances that run: neither ended nor being drained.
    pub(super) running: Vec<Instance>,
    /// Agents that may take instances, by name.
    pub(super) agents: Vec<AgentInfo>,
    /// What the agents have said of the run.
    pub(super) live: Option<&'a LiveRun>,
}

/// What is wanted of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Change {
    /// New instances: of which vertex, on the agent of which name.
    pub(super) add: Vec<(VertexId, String)>,
    /// Ids of instances that end.
    pub(super) remove: Vec<u32>,
    /// Who chose, if a planner did.
    pub(super) planner: Option<String>,
    /// Rows a second that all sinks together will take.
    pub(super) predicted: Option<f64>,
    /// Why so; or why nothing is foretold.
    pub(super) why: Option<String>,
    /// Remarks for people.
    pub(super) notes: Vec<String>,
}

/// Turns a request into instances. Whether they can be added and removed is looked at later.
///
/// # Errors
/// With the numbers, if the request cannot be met.
pub(super) fn wanted(ask: &ScaleAsk, known: &Known<'_>) -> Result<Change, WireFault> {
    match ask {
        ScaleAsk::Set { vertex, instances, place } => set(vertex, *instances, *place, known),
        ScaleAsk::In { agents, agent: Some(agent), planner: None, .. } if *agents <= 1 => leave(agent, known),
        ScaleAsk::Out { .. } | ScaleAsk::In { .. } => {
            Err(refused("only `scale set` and `scale in --agent NAME` are there yet"))
        }
    }
}

fn refused(message: impl Into<String>) -> WireFault {
    WireFault::new(FaultCode::Refused, message)
}

/// So many instances of one vertex.
fn set(_vertex: &str, _instances: u32, _place: ScalePlace, _known: &Known<'_>) -> Result<Change, WireFault> {
    Err(refused("`scale set` is not there yet"))
}

/// Everything that an agent has goes elsewhere.
fn leave(_agent: &str, _known: &Known<'_>) -> Result<Change, WireFault> {
    Err(refused("`scale in --agent` is not there yet"))
}
