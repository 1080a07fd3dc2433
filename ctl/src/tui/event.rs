//! What can happen to the terminal UI. A recording is a list of these, one JSON document a line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tuplane_core::plan::{Instance, VertexId};
use tuplane_wire::etp::JobFlow;
use tuplane_wire::message::{
    AgentInfo, AgentStatus, EdgeLedger, InstanceReport, JobRoutes, JobStatus, JobSummary,
};
use tuplane_wire::routing::EdgeRouting;
use tuplane_wire::scaling::{Folded, Rescale, ScaleAsk, ScalePlan};

use super::key::Key;

/// Something that happened, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Event {
    /// Milliseconds since the UI began.
    pub(crate) at: u64,
    /// What.
    pub(crate) what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum What {
    /// A key was pressed.
    Key(Key),
    /// The mouse did something.
    Mouse(Mouse),
    /// Text was pasted into the terminal.
    Paste(String),
    /// The terminal has this size now.
    Resize {
        /// Columns.
        width: u16,
        /// Lines.
        height: u16,
    },
    /// Time has passed.
    Tick,
    /// The cluster has answered.
    Telemetry(Box<Telemetry>),
    /// It was said how the edges of a job choose their targets.
    Routes(Box<RouteFacts>),
    /// It was said what a job does in a second.
    Etp(Box<EtpFacts>),
    /// A plan for more or fewer instances was made, or was not.
    Planned(Box<PlanFacts>),
    /// A request was answered: what was done, or why it was not.
    Reply(Result<String, String>),
    /// The connection to the cluster has changed.
    Connection(News),
    /// Something of a recording that is played: it is shown, and leads to nothing outside of the UI.
    #[serde(skip)]
    Replayed(Box<What>),
    /// The recording that is played has ended; true where its last line was cut.
    #[serde(skip)]
    PlayedToTheEnd(bool),
}

/// The mouse: only what the UI acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mouse {
    /// The wheel was turned away from the person.
    Up,
    /// The wheel was turned towards the person.
    Down,
    /// The left button was pressed at a column and a line.
    Press(u16, u16),
}

/// What became of the connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum News {
    /// A first answer has come, or the first one after an outage.
    Connected,
    /// No answer.
    Lost {
        /// What was seen.
        cause: String,
        /// The how manieth attempt that was.
        attempt: u32,
        /// The next one comes in so many milliseconds.
        next_in: u64,
    },
    /// No cluster runs, or none was chosen: why, and what would help.
    Nobody(String),
    /// Local agents are being started for the demo.
    Starting,
    /// There is a cluster, and its first answer is waited for.
    Connecting,
}

/// What the cluster says of itself at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Telemetry {
    /// The cluster's name.
    pub(crate) cluster: String,
    /// Wall clock when the answers came, ms since 1970.
    pub(crate) wall_ms: u64,
    /// All jobs.
    pub(crate) jobs: Vec<JobSummary>,
    /// The job that is looked at.
    pub(crate) job: Option<JobFacts>,
    /// All agents.
    pub(crate) agents: Vec<AgentStatus>,
}

/// How the edges of a job choose their targets: [`JobRoutes`] without what [`Telemetry`] has as well.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RouteFacts {
    /// The run.
    pub(crate) run: u64,
    /// Edges as each agent sends on them, by the agent's index in the run.
    pub(crate) edges: Vec<(u16, EdgeRouting)>,
    /// Agents that did not answer, and why.
    pub(crate) silent: Vec<(String, String)>,
    /// Why the cluster did not say it.
    pub(crate) fault: Option<String>,
}

/// What a job does in a second, what its vertices carry, and how it was rescaled.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct EtpFacts {
    /// The run.
    pub(crate) run: u64,
    /// Rates and what follows from them.
    pub(crate) flow: Option<JobFlow>,
    /// Its rescales, the oldest first.
    pub(crate) history: Vec<Rescale>,
    /// Why the cluster did not say it.
    pub(crate) fault: Option<String>,
}

/// What was asked for, and the plan that the cluster makes of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlanFacts {
    /// The run.
    pub(crate) run: u64,
    /// What was asked for.
    pub(crate) ask: ScaleAsk,
    /// The plan, or why there is none.
    pub(crate) plan: Result<ScalePlan, String>,
}

impl From<JobRoutes> for RouteFacts {
    fn from(routes: JobRoutes) -> Self {
        Self { run: routes.run, edges: routes.edges, silent: routes.silent, fault: None }
    }
}

/// One job in full: [`JobStatus`] without the job's text, in a form that JSON can hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobFacts {
    /// The line of `jobs`.
    pub(crate) summary: JobSummary,
    /// JSON of the plan.
    pub(crate) dag: String,
    /// All instances.
    pub(crate) instances: Vec<Instance>,
    /// Latest counters of each instance.
    pub(crate) counters: Vec<InstanceReport>,
    /// The ledger of each edge.
    pub(crate) edges: Vec<EdgeFacts>,
    /// Agents of the run by index.
    pub(crate) agents: Vec<AgentInfo>,
    /// Communication cost per second over all edges.
    pub(crate) cost_per_second: f64,
    /// Milliseconds from the first row to the end, or to now.
    pub(crate) running_ms: Option<u64>,
    /// Instances that a rescale has ended.
    #[serde(default)]
    pub(crate) retired: Vec<u32>,
    /// Older ones, which are not listed one by one any more, by vertex.
    #[serde(default)]
    pub(crate) folded: BTreeMap<VertexId, Folded>,
}

impl From<JobStatus> for JobFacts {
    fn from(status: JobStatus) -> Self {
        Self {
            summary: status.summary,
            dag: status.dag,
            instances: status.instances,
            counters: status.counters,
            edges: status.edges.into_iter().map(EdgeFacts::from).collect(),
            agents: status.agents,
            cost_per_second: status.cost_per_second,
            running_ms: status.running_ms,
            retired: status.scale.retired,
            folded: status.scale.folded,
        }
    }
}

/// One edge's ledger: [`EdgeLedger`] with its flows as a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EdgeFacts {
    /// Index in the plan.
    pub(crate) edge: u32,
    /// Rows appended to output queues.
    pub(crate) emitted: u64,
    /// Rows in output queues.
    pub(crate) queued_out: u64,
    /// Rows sent and not acknowledged.
    pub(crate) in_flight: u64,
    /// Rows in input queues.
    pub(crate) queued_in: u64,
    /// Rows taken by target instances.
    pub(crate) taken: u64,
    /// Rows dropped, by reason.
    pub(crate) dropped: BTreeMap<String, u64>,
    /// The policy in force.
    pub(crate) policy: Option<String>,
    /// Rows sent per target instance.
    pub(crate) targets: BTreeMap<u32, u64>,
    /// What went from agent to agent, an agent's own rows included.
    pub(crate) flows: Vec<FlowFacts>,
}

/// What has gone from one agent to another on one edge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FlowFacts {
    /// Sender, an index into the run's agents.
    pub(crate) from: u16,
    /// Receiver.
    pub(crate) to: u16,
    /// Rows sent.
    pub(crate) rows: u64,
    /// Bytes on the wire.
    pub(crate) wire_bytes: u64,
}

impl From<EdgeLedger> for EdgeFacts {
    fn from(ledger: EdgeLedger) -> Self {
        let flow = |((from, to), flow): (&(u16, u16), &tuplane_wire::message::Flow)| FlowFacts {
            from: *from,
            to: *to,
            rows: flow.rows,
            wire_bytes: flow.wire_bytes,
        };
        Self {
            edge: ledger.edge,
            emitted: ledger.emitted,
            queued_out: ledger.queued_out,
            in_flight: ledger.in_flight,
            queued_in: ledger.queued_in,
            taken: ledger.taken,
            flows: ledger.flows.iter().map(flow).collect(),
            dropped: ledger.dropped,
            policy: ledger.policy,
            targets: ledger.targets,
        }
    }
}

/// Puts events together that need not be handled one by one: of several telemetries, resizes and
/// ticks in a row the last one counts, and only if no key came in between. Takes the newer into the
/// older where that is so, else gives the newer back.
pub(crate) fn coalesce(older: &mut Event, newer: Event) -> Option<Event> {
    let joins = matches!(
        (&older.what, &newer.what),
        (What::Telemetry(_), What::Telemetry(_))
            | (What::Routes(_), What::Routes(_))
            | (What::Etp(_), What::Etp(_))
            | (What::Resize { .. }, What::Resize { .. })
            | (What::Tick, _)
    );
    if !joins {
        return Some(newer);
    }
    *older = newer;
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floods_become_one_event_and_keys_keep_their_place() {
        let resize = |at, width| Event { at, what: What::Resize { width, height: 1 } };
        let key = Event { at: 3, what: What::Key("j".parse().unwrap()) };
        let mut older = resize(1, 10);
        assert_eq!(coalesce(&mut older, resize(2, 20)), None);
        assert_eq!(older, resize(2, 20));
        assert_eq!(coalesce(&mut older, key.clone()), Some(key.clone()));
        let mut tick = Event { at: 1, what: What::Tick };
        assert_eq!(coalesce(&mut tick, key.clone()), None);
        assert_eq!(tick, key);
    }
}
