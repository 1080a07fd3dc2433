//! The facts that the cluster's state is made of; the wire's messages carry the same types.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use super::response::Response;
use crate::place::RowPlace;

/// The reason under which an agent counts rows that a stop found in its queues.
pub const DROPPED_BY_STOP: &str = "stopped";

/// The reason under which the ledger of a job that was stopped counts rows that nobody took or
/// dropped: they went with an agent, or were under way.
pub const DROPPED_BY_LOSS: &str = "lost";

/// An error as it crosses the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct WireFault {
    /// What kind of error; decides the exit code.
    pub code: FaultCode,
    /// One sentence for a person.
    pub message: String,
    /// Trying again later may help.
    pub retryable: bool,
    /// Where the row entered that it is about, until the coordinator has put that into words.
    pub place: Option<RowPlace>,
}

impl WireFault {
    /// A fault that trying again does not mend.
    pub fn new(code: FaultCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: false, place: None }
    }

    /// Names the place of the row that it is about.
    #[must_use]
    pub fn at(mut self, place: Option<RowPlace>) -> Self {
        self.place = place;
        self
    }
}

/// Kinds of errors (engine.md section 12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultCode {
    /// A file, plan or request was refused; nothing changed. Exit 2.
    Refused,
    /// A row that an expression could not take. Exit 1.
    Row,
    /// An operator's error or panic. Exit 1.
    Instance,
    /// An agent was lost. Exit 1.
    Agent,
    /// No such job, stage, agent. Exit 6.
    NotFound,
    /// Versions or registries differ. Exit 8.
    Version,
    /// The called agent does not coordinate.
    NotCoordinator,
    /// The caller knows an older state: its incarnation is not the current one, or a job has another plan
    /// than the one that was meant. Exit 5.
    Stale,
    /// A defect of Tuplane. Exit 70.
    Internal,
    /// Fewer agents are there than were asked for, and nothing else is in the way. Exit 2.
    TooFewAgents,
}

/// Who an agent is: its name, and a number that grows with each start of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AgentId {
    /// Unique in the cluster.
    pub name: String,
    /// Nanoseconds since 1970 at its start; messages of an older one are refused.
    pub incarnation: u64,
}

/// What an agent says of itself when it registers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentInfo {
    /// Name and incarnation.
    pub id: AgentId,
    /// `host:port` where control and data are served.
    pub address: String,
    /// Default instances per vertex on this agent.
    pub slots: u32,
    /// Most rows in `work` at once; 0 for no limit.
    pub cores: u32,
    /// Zone for the cost table.
    pub zone: String,
    /// Its process id, for people.
    pub pid: u32,
    /// Build version.
    pub version: String,
    /// The machine's host name.
    pub host: String,
    /// Fingerprint of its registry of operators.
    pub registry: u64,
}

/// One split of a shared source: a file or a byte range of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Its number within the stage.
    pub number: u32,
    /// The file.
    pub path: String,
    /// First byte; reading starts behind the first line end at or after it, unless 0.
    pub start: u64,
    /// Lines that begin before this byte belong to it; `u64::MAX` for the end of the file.
    pub end: u64,
    /// The file as it was when the job was submitted; `None` for a pipe or a device.
    pub seen: Option<FileState>,
    /// How far an instance had read that gave it back; `None` if nothing of it has been read.
    pub done: Option<Progress>,
}

/// How far a split has been read: up to the end of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The byte of the file at which the next row begins.
    pub offset: u64,
    /// The split's lines before that.
    pub lines: u64,
}

/// What tells a file from one that took its place, or was cut, since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// Its length.
    pub bytes: u64,
    /// The machine that looked, as a fingerprint: `device` and `inode` mean nothing on another one. 0 where
    /// it has no name for itself.
    pub machine: u64,
    /// The device that holds it.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// A file a sink made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkFile {
    /// The agent's name.
    pub agent: String,
    /// The stage.
    pub stage: String,
    /// Where it stands on that agent.
    pub path: String,
    /// Rows in it.
    pub rows: u64,
    /// Bytes in it.
    pub bytes: u64,
}

/// Files of a job that has finished which are not visible yet, by the agent that wrote them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// The agent's name.
    pub agent: String,
    /// Why they are not.
    pub cause: String,
    /// The hidden parts.
    pub parts: Vec<SinkFile>,
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.parts.iter().map(|part| part.path.as_str()).collect();
        write!(f, "pending on {}: its hidden parts are at {} ({})", self.agent, paths.join(", "), self.cause)
    }
}

/// Sink instances on an agent that could not be asked what they had written when their run was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unasked {
    /// The agent's name.
    pub agent: String,
    /// The attempt that was stopped.
    pub attempt: u32,
    /// `stage#number` each.
    pub instances: Vec<String>,
}

/// Counters of one instance; totals since its start, monotonic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InstanceReport {
    /// Dense id.
    pub instance: u32,
    /// Rows taken in.
    pub rows_in: u64,
    /// Rows given out, over all edges (a broadcast row once).
    pub rows_out: u64,
    /// Rows dropped, with the reason.
    pub dropped: BTreeMap<String, u64>,
    /// Nanoseconds busy, what is being worked on included.
    pub busy_ns: u64,
    /// Of these, waiting for one of the agent's cores.
    pub waiting_core_ns: u64,
    /// Nanoseconds blocked on output.
    pub blocked_ns: u64,
    /// Nanoseconds idle.
    pub idle_ns: u64,
    /// Rows waiting at its inputs or being worked on (`Q_in`).
    pub queue_in: u64,
    /// Rows waiting at its outputs (`Q_out`).
    pub queue_out: u64,
    /// Its last fault that did not end it: a bad line with its place, or a row that an expression could
    /// not take.
    pub note: Option<String>,
    /// It has ended.
    pub ended: bool,
    /// Where the row of the note entered, until the coordinator has put that into words.
    pub note_place: Option<RowPlace>,
    /// Its watermark: no row with an earlier event time follows (nanoseconds since 1970, UTC).
    pub watermark: Option<i64>,
    /// Rows whose event time was so far ahead of the others' that they had to be confirmed.
    pub ahead: u64,
    /// Rows that went on with nulls in place of a service's answer.
    pub unanswered: u64,
    /// About how many bytes of memory its state takes, beside what the agent's budget counts.
    pub state_bytes: u64,
    /// Of a sink: response times of the rows whose arrival is known.
    pub response: Response,
}

impl InstanceReport {
    /// Counts what another instance, which has ended, has counted too: rows, times and response times. What says how
    /// one instance stands (its number, its queues, its watermark, its last note) stays.
    pub fn add_ended(&mut self, other: &Self) {
        self.rows_in += other.rows_in;
        self.rows_out += other.rows_out;
        for (reason, rows) in &other.dropped {
            *self.dropped.entry(reason.clone()).or_default() += rows;
        }
        self.busy_ns += other.busy_ns;
        self.waiting_core_ns += other.waiting_core_ns;
        self.blocked_ns += other.blocked_ns;
        self.idle_ns += other.idle_ns;
        self.ahead += other.ahead;
        self.unanswered += other.unanswered;
        self.response.add(&other.response);
    }
}

/// Instances of a vertex that rescales have ended, as far as they are not listed one by one any more.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Folded {
    /// How many they are.
    pub instances: u32,
    /// What they have counted together (see [`InstanceReport::add_ended`]).
    pub counters: InstanceReport,
}

/// One edge as one agent sees it. Sums over agents make the edge's ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeLedger {
    /// Index in the plan.
    pub edge: u32,
    /// Rows appended to output queues here.
    pub emitted: u64,
    /// Rows in output queues here.
    pub queued_out: u64,
    /// Rows sent to other agents and not acknowledged.
    pub in_flight: u64,
    /// Rows in input queues here.
    pub queued_in: u64,
    /// Rows taken by instances here.
    pub taken: u64,
    /// Rows dropped here, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// What went from each agent to each (sender, receiver: indices in the run), itself included.
    pub flows: BTreeMap<(u16, u16), Flow>,
    /// The policy in force, where the edge has one.
    pub policy: Option<String>,
    /// Rows sent per target instance.
    pub targets: BTreeMap<u32, u64>,
}

impl EdgeLedger {
    /// Rows that were taken or dropped.
    pub fn accounted(&self) -> u64 {
        self.dropped.values().fold(self.taken, |sum, rows| sum.saturating_add(*rows))
    }

    /// Every row that was emitted has been taken or dropped.
    pub fn is_settled(&self) -> bool {
        self.emitted == self.accounted()
    }

    /// Rows that nobody took: those that a stop found in queues, and those that went with an agent or
    /// were under way. Rows dropped for other reasons are not lost but left out by the job itself.
    pub fn lost(&self) -> u64 {
        let left_out = self
            .dropped
            .iter()
            .filter(|(reason, _)| ![DROPPED_BY_STOP, DROPPED_BY_LOSS].contains(&reason.as_str()))
            .fold(self.taken, |sum, (_, rows)| sum.saturating_add(*rows));
        self.emitted.saturating_sub(left_out)
    }

    /// Adds what another agent saw of the same edge.
    pub fn add(&mut self, other: &Self) {
        self.emitted += other.emitted;
        self.queued_out += other.queued_out;
        self.in_flight += other.in_flight;
        self.queued_in += other.queued_in;
        self.taken += other.taken;
        for (reason, rows) in &other.dropped {
            *self.dropped.entry(reason.clone()).or_default() += rows;
        }
        for (pair, flow) in &other.flows {
            let total = self.flows.entry(*pair).or_default();
            total.rows += flow.rows;
            total.bytes += flow.bytes;
            total.wire_bytes += flow.wire_bytes;
        }
        for (target, rows) in &other.targets {
            *self.targets.entry(*target).or_default() += rows;
        }
        if self.policy.is_none() {
            self.policy.clone_from(&other.policy);
        }
    }
}

/// What has gone from one agent to another on one edge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Rows sent.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes on the wire, headers included; 0 within an agent.
    pub wire_bytes: u64,
}

/// State of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobPhase {
    /// Instances are being made.
    Starting,
    /// Rows flow.
    Running,
    /// All instances have ended: the job has finished and cannot fail any more; its files are being made visible.
    Sealing,
    /// Ended with all its results, though some files may be pending (see [`Pending`]).
    Finished,
    /// Ended by its owner.
    Cancelled,
    /// Ended by an error.
    Failed,
    /// It was cancelled or has failed, and its instances are being stopped.
    Stopping,
}

impl JobPhase {
    /// It will not change any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Finished | Self::Cancelled | Self::Failed)
    }
}
