//! Control messages: requests, replies and the facts they carry.
//!
//! They travel as versioned bytes inside tarpc calls (see `service`), so a payload that cannot be
//! read is an error of that call and never the end of the connection. Enum variants and fields are
//! only appended: their order is the format.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
pub use tuplane_core::cluster::types::{
    AgentId, AgentInfo, EdgeLedger, FaultCode, Flow, InstanceReport, JobPhase, Pending, Response, SinkFile,
    Split, Unasked, WireFault,
};
use tuplane_core::place::RowPlace;
use tuplane_core::plan::placement::Instance;
use tuplane_core::plan::{SourceMove, VertexId};

use crate::etp::JobFlow;
use crate::members::AgentDrain;
use crate::operation::OperationList;
use crate::routing::EdgeRouting;
use crate::scaling::{
    AutoAsk, JobAuto, JobScale, JobScalings, KeyAsk, ScaleAsk, ScalePlan, SourceAsk, SourceGiven,
};
pub use peek::{PeekRow, PeekValue, Peeked};
pub use report::{Event, HostFacts, Report, RunReport};

mod peek;
mod report;

/// Everything an agent needs to run its share of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// Unique in the cluster's life.
    pub run: u64,
    /// Grows with each restart of the same job.
    pub attempt: u32,
    /// The job as JSON of `tuplane_core::job::Job`.
    pub job: String,
    /// The plan as JSON of `tuplane_core::plan::Dag`.
    pub dag: String,
    /// Participating agents; `Instance::agent` is an index into it.
    pub agents: Vec<AgentInfo>,
    /// All instances of the run but those that an earlier plan has ended.
    pub instances: Vec<Instance>,
    /// Column names of csv sources with a header, by stage.
    pub headers: BTreeMap<String, Vec<String>>,
    /// Cost of a row from each agent (row) to each (column), by the cluster's table: so many rows of so many
    /// columns as there are agents.
    pub costs: Vec<u32>,
    /// The number of the plan.
    pub epoch: u64,
    /// Instances that it adds to the plan before; nothing is sent to them until it is committed.
    pub coming: Vec<u32>,
    /// Instances of the plan before that end with it.
    pub going: Vec<u32>,
    /// How many agents the attempt began with: rows are numbered by it.
    pub first_agents: u16,
    /// Live options that were changed since the attempt began: stage, option, value as JSON.
    pub options: Vec<(String, String, String)>,
    /// Policies that were changed since then: edge, policy, options as JSON.
    pub policies: Vec<(u32, String, String)>,
    /// Who holds each key partition now, of the vertices where that does not follow from their instances.
    pub maps: BTreeMap<VertexId, Vec<u32>>,
    /// Vertices whose key partitions this plan moves, once rows go by it: until then those that end hold theirs.
    pub moving: Vec<VertexId>,
    /// Sources of which instances end with it: what these have not read goes to others, once rows go by it.
    pub sources: Vec<SourceMove>,
}

impl RunPlan {
    /// Cost of a row between two agents, by their indices.
    pub fn cost(&self, from: u16, to: u16) -> u32 {
        let known = self.costs.get(usize::from(from) * self.agents.len() + usize::from(to));
        known.copied().unwrap_or(u32::from(from != to))
    }

    /// Instances that take rows by this plan.
    pub fn targets(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter().filter(|instance| !self.going.contains(&instance.id))
    }

    /// An agent, by index, has instances by this plan or the one before.
    pub fn has_part(&self, agent: u16) -> bool {
        self.instances.iter().any(|instance| instance.agent == agent)
    }

    /// It moves key partitions of this vertex.
    pub fn moves(&self, vertex: VertexId) -> bool {
        self.moving.contains(&vertex)
    }

    /// Others may hand a source instance what they have not read.
    pub fn is_handed(&self, instance: u32) -> bool {
        self.sources.iter().any(|one| one.takers().contains(&instance))
    }

    /// Instances that have sent rows by the plan before.
    pub fn senders_before(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter().filter(|instance| !self.coming.contains(&instance.id))
    }
}

/// Requests to the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ClusterRequest {
    /// An agent joins (or joins again after a lost connection).
    Register(AgentInfo),
    /// An agent reports, four times a second; renews its lease.
    Report(Box<Report>),
    /// Things that happened on an agent and must not be lost; sent again until answered.
    Events {
        /// Who.
        agent: AgentId,
        /// What, in order.
        events: Vec<Event>,
    },
    /// The next split of a shared source for one instance.
    NextSplit {
        /// Who asks.
        agent: AgentId,
        /// The run.
        run: u64,
        /// The source stage.
        stage: String,
        /// The asking instance (dense id).
        instance: u32,
        /// How many splits this instance was given so far: asking again gives the same answer.
        have: u32,
    },
    /// A job to run: JSON of `Job`, paths already absolute.
    Submit {
        /// The job.
        job: String,
        /// Start although another run's results would be mixed with this one's.
        force: bool,
    },
    /// All jobs.
    Jobs,
    /// One job in full; the newest where no name is given.
    Status {
        /// Name, or run id.
        job: Option<String>,
    },
    /// Ends a job.
    Cancel {
        /// Name, or run id.
        job: String,
    },
    /// All agents.
    Agents,
    /// Changes a live option of a stage.
    Set {
        /// Name, or run id.
        job: String,
        /// The stage.
        stage: String,
        /// The option, e.g. `ms`.
        option: String,
        /// Its value as JSON.
        value: String,
    },
    /// Changes an edge's policy.
    Route {
        /// Name, or run id.
        job: String,
        /// The edge, `from..to`.
        edge: String,
        /// The policy's name.
        policy: String,
        /// All its options, as a JSON object; those that it does not name are as the setting has them. Empty: none.
        options: String,
    },
    /// Ends all jobs and then all agents.
    Shutdown,
    /// Whether a job could be submitted: JSON of `Job`, paths already absolute.
    Check {
        /// The job.
        job: String,
    },
    /// How the edges of a job stand that choose their targets.
    Routes {
        /// Name, or run id.
        job: String,
        /// With the decisions that were kept.
        decisions: bool,
    },
    /// More or fewer instances, or others, while the job runs. Answered once the plan is logged (or refused, or
    /// only made: `dry_run`); `Scalings` says how far it is.
    Scale {
        /// Name, or run id.
        job: String,
        /// What.
        ask: ScaleAsk,
        /// Refused unless the plan of this epoch holds.
        if_epoch: Option<u64>,
        /// The plan is made and not carried out.
        dry_run: bool,
        /// Refused unless this is the plan that it makes ([`ScalePlan::id`]).
        if_plan: Option<u64>,
    },
    /// The rescales of a job.
    Scalings {
        /// Name, or run id.
        job: String,
    },
    /// What a running job does in a second, and what its vertices carry.
    Etp {
        /// Name, or run id.
        job: String,
        /// Congested is what more than this many times as much reaches as it processes. `None`: the job's setting
        /// says (`paper`: 1.2; `default`: what more would reach than it can take).
        ratio: Option<f64>,
    },
    /// An agent gets no new instances, and what live jobs have there moves away as far as it can.
    Drain {
        /// Its name.
        agent: String,
        /// It gets instances again; nothing moves.
        undo: bool,
        /// Nothing is changed: only what would be done is said.
        dry_run: bool,
    },
    /// An agent that is drained and without which every job goes on, or that is dead, leaves the cluster; its
    /// process ends itself when it next reports.
    Release {
        /// Its name.
        agent: String,
    },
    /// A job's automatic mode: how it stands, on, or off.
    Auto {
        /// Name, or run id.
        job: String,
        /// What.
        ask: AutoAsk,
    },
    /// A request, and who makes it: `user@host`, as the asker says it. Answered as the request is.
    By {
        /// Who.
        who: String,
        /// What.
        request: Box<ClusterRequest>,
    },
    /// What was asked of the cluster while jobs ran.
    Operations {
        /// Of this job alone (name, or run id).
        job: Option<String>,
    },
}

impl ClusterRequest {
    /// What is asked, whoever asks.
    pub fn itself(&self) -> &Self {
        let mut request = self;
        while let Self::By { request: inner, .. } = request {
            request = inner;
        }
        request
    }

    /// It may change something of what runs: the one who asks is noted.
    pub fn is_change(&self) -> bool {
        match self {
            Self::Scale { dry_run, .. } | Self::Drain { dry_run, .. } => !dry_run,
            Self::Auto { ask, .. } => *ask != AutoAsk::Show,
            Self::Set { .. } | Self::Route { .. } | Self::Release { .. } => true,
            _ => false,
        }
    }
}

/// Replies of the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ClusterReply {
    /// To `Register`.
    Registered {
        /// Lease in ms.
        lease_ms: u64,
        /// All agents, this one included.
        agents: Vec<AgentInfo>,
    },
    /// To `Report`.
    Reported {
        /// Receiver's wall clock when it took the report, ns since 1970 (for the clock offset).
        now_ns: u64,
        /// Runs the coordinator still knows on this agent; others are to be dropped.
        runs: Vec<u64>,
    },
    /// To `Events`, `Cancel`, `Set`, `Route`, `Shutdown`, `Check`, `Release`.
    Done,
    /// To `NextSplit`: `None` when no split is left.
    Split(Option<Split>),
    /// To `Submit`.
    Submitted {
        /// The run id.
        run: u64,
        /// The job's name, made unique.
        name: String,
    },
    /// To `Jobs`.
    Jobs(Vec<JobSummary>),
    /// To `Status`.
    Status(Box<JobStatus>),
    /// To `Agents`.
    Agents(Vec<AgentStatus>),
    /// To `Routes`.
    Routes(Box<JobRoutes>),
    /// To `Scale`.
    Scaled(Box<ScalePlan>),
    /// To `Scalings`.
    Scalings(Box<JobScalings>),
    /// To `Etp`.
    Etp(Box<JobFlow>),
    /// To `Drain`.
    Drained(Box<AgentDrain>),
    /// To `Auto`.
    Auto(Box<JobAuto>),
    /// To `Operations`.
    Operations(Box<OperationList>),
}

/// How the edges of a job stand that choose their targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRoutes {
    /// The job's name.
    pub job: String,
    /// The run.
    pub run: u64,
    /// JSON of the plan.
    pub dag: String,
    /// Agents of the run by index.
    pub agents: Vec<AgentInfo>,
    /// All instances.
    pub instances: Vec<Instance>,
    /// Its edges as each agent sends on them, by the agent's index.
    pub edges: Vec<(u16, EdgeRouting)>,
    /// Agents that did not answer, and why.
    pub silent: Vec<(String, String)>,
}

/// Requests to an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AgentRequest {
    /// Make instances, queues and channels of a run; nothing reads yet.
    Prepare(Box<RunPlan>),
    /// Connect to the peers of a run and check that each answers.
    Connect {
        /// The run.
        run: u64,
    },
    /// Sources of the run begin.
    Start {
        /// The run.
        run: u64,
    },
    /// All instances of the run stop where they are.
    Stop {
        /// The run.
        run: u64,
        /// For logs and the rows dropped.
        reason: String,
        /// It had not begun everywhere: nothing of it stays, its part files included.
        discard: bool,
    },
    /// The job has finished: hidden parts are renamed, whichever agent of this host has written them.
    Seal {
        /// The run.
        run: u64,
        /// Stages of file sinks without any row, each to get an empty file.
        empty: Vec<String>,
        /// The parts.
        parts: Vec<SinkFile>,
    },
    /// Nothing of the run is needed any more.
    Forget {
        /// The run.
        run: u64,
    },
    /// Changes a live option.
    Set {
        /// The run.
        run: u64,
        /// The stage.
        stage: String,
        /// The option.
        option: String,
        /// Its value as JSON.
        value: String,
    },
    /// Changes an edge's policy.
    Route {
        /// The run.
        run: u64,
        /// Index of the edge in the plan.
        edge: u32,
        /// The policy's name.
        policy: String,
        /// All its options, as a JSON object. Empty: none.
        options: String,
    },
    /// An agent is dead: its sessions are dropped.
    PeerLost(AgentId),
    /// Reads a part of a file that a sink of the run wrote (at most 1 MiB a call).
    ReadFile {
        /// The run.
        run: u64,
        /// A path from [`SinkFile`].
        path: String,
        /// First byte.
        offset: u64,
    },
    /// Asks for the wall clock (ns), for round trips and offsets.
    Ping,
    /// The agent ends.
    Shutdown,
    /// Asks where a row entered that this agent read from a file of its own (`files = "each"`).
    Locate {
        /// The run.
        run: u64,
        /// The row's place.
        place: RowPlace,
    },
    /// Follows a sample of the rows that leave a vertex; asked again and again.
    Peek {
        /// The run.
        run: u64,
        /// Index of the vertex in the plan.
        vertex: u32,
        /// Who follows: a number that the asker has chosen.
        follower: u64,
        /// Rows per second over all instances of the vertex, on all agents.
        rate: f64,
        /// The first row that was not seen yet ([`Peeked::next`] of the last answer, 0 at first).
        from: u64,
    },
    /// How the edges of a run stand that choose their targets.
    Routings {
        /// The run.
        run: u64,
        /// With the newest decisions that were kept, as many as so many bytes hold; 0: without.
        decisions: u64,
    },
    /// Makes what the next plan of a run needs: instances, queues, channels. Nothing is sent to them, and nothing
    /// of them runs.
    Extend(Box<RunPlan>),
    /// The plan was committed: its new instances start.
    StartNew {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
    },
    /// All new instances have started: rows go by the new plan, and those that go get their end.
    Switch {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
    },
    /// The plan failed before it was committed: nothing of it stays.
    Abort {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
    },
    /// Moves key partitions of a run.
    Keys(KeyAsk),
    /// The plan was committed, and these instances stop before its new ones start. `Switch` lets those go on that it
    /// keeps; the others drop what waits for them.
    Halt {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
        /// Which, as far as they are on this agent.
        instances: Vec<u32>,
    },
    /// Hands over what source instances have not read that a plan ends.
    Sources(SourceAsk),
}

/// Replies of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AgentReply {
    /// To most requests.
    Done,
    /// To `Stop`: counters and ledger of that moment.
    Stopped(Box<RunReport>),
    /// To `Seal`: the visible files.
    Sealed(Vec<SinkFile>),
    /// To `ReadFile`: bytes; fewer than 1 MiB means the end.
    Bytes(Vec<u8>),
    /// To `Ping`: wall clock, ns since 1970.
    Clock(u64),
    /// To `Locate`: the file and the line, in words.
    Located(String),
    /// To `Peek`.
    Peeked(Box<Peeked>),
    /// To `Routings`.
    Routings(Vec<EdgeRouting>),
    /// To [`KeyAsk::Sizes`]: bytes, in the order of the partitions.
    KeySizes(Vec<u64>),
    /// To [`SourceAsk::Give`].
    SourceGiven(Box<SourceGiven>),
}

/// A line of `tuplane jobs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSummary {
    /// Run id.
    pub run: u64,
    /// Name, unique among live jobs.
    pub name: String,
    /// Where it stands.
    pub phase: JobPhase,
    /// Which attempt.
    pub attempt: u32,
    /// Wall clock at submit, ms since 1970.
    pub submitted_ms: u64,
    /// Wall clock at the end, ms since 1970.
    pub ended_ms: Option<u64>,
    /// Why it failed or was cancelled, in a sentence.
    pub fault: Option<WireFault>,
    /// Instances in all.
    pub instances: u32,
    /// Agents that take part.
    pub agents: Vec<String>,
    /// Files of a finished job that are not visible yet.
    pub pending: Vec<Pending>,
}

/// A job in full.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobStatus {
    /// The line of `jobs`.
    pub summary: JobSummary,
    /// JSON of the plan.
    pub dag: String,
    /// JSON of the job.
    pub job: String,
    /// All instances.
    pub instances: Vec<Instance>,
    /// Latest counters of each instance (final ones for those that ended).
    pub counters: Vec<InstanceReport>,
    /// The ledger per edge: sums over agents.
    pub edges: Vec<EdgeLedger>,
    /// Files of its sinks: visible ones if finished, parts otherwise.
    pub files: Vec<SinkFile>,
    /// Agents of the run by index.
    pub agents: Vec<AgentInfo>,
    /// Age of the oldest counter, ms.
    pub age_ms: u64,
    /// The guarantee in words.
    pub guarantee: String,
    /// Communication cost per second over all edges, by the cost table.
    pub cost_per_second: f64,
    /// Milliseconds from the first row to the end (or to now).
    pub running_ms: Option<u64>,
    /// Parts that earlier attempts have left.
    pub earlier_parts: Vec<SinkFile>,
    /// Sink instances that could not be asked for their parts.
    pub unasked: Vec<Unasked>,
    /// The epoch of its plan, and its instances that come and go.
    pub scale: JobScale,
}

/// A line of `tuplane agents`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// What it said of itself.
    pub info: AgentInfo,
    /// It holds its lease.
    pub alive: bool,
    /// It is the coordinator.
    pub coordinator: bool,
    /// Age of its last report, ms.
    pub age_ms: u64,
    /// Its last facts.
    pub host: HostFacts,
    /// Clock offset to the coordinator and its error, ns.
    pub clock_offset_ns: Option<(i64, u64)>,
    /// Live instances on it.
    pub instances: u32,
    /// Why it is gone.
    pub lost: Option<String>,
    /// Round trips to peers, microseconds.
    pub round_trips: Vec<(String, u64)>,
    /// It gets no new instances.
    pub drained: bool,
}
