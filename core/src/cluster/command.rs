//! What happens to a cluster (commands, logged) and what is to be done about it (effects).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::automatic::AutoWhat;
use super::operation::Asked;
use super::rescale::Named;
use super::types::{AgentId, AgentInfo, EdgeLedger, InstanceReport, SinkFile, Split, WireFault};
use super::units::SourceGiven;
use crate::job::Restart;
use crate::plan::placement::Instance;
use crate::plan::{KeyMap, SourceMove, VertexId};
use crate::route::moves::Group;
use crate::scale::{AutoOptions, Memory};

/// One entry of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Logged {
    /// The coordinator's wall clock, ms since 1970; for display only.
    pub at_ms: u64,
    /// What happened.
    pub command: Command,
}

/// What happened. Variants are only appended; any other change raises [`FORMAT`](super::FORMAT).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// A coordinator begins with this log: agents of an earlier one are waited for, and what ran stops.
    CoordinatorStarted,
    /// An agent joined, or joined again.
    AgentRegistered(Box<AgentInfo>),
    /// An agent is dead.
    AgentLost {
        /// Who.
        id: AgentId,
        /// What was seen.
        cause: String,
    },
    /// A job was accepted.
    Submitted(Box<NewJob>),
    /// All agents of a run have started it.
    Prepared {
        /// The run.
        run: u64,
    },
    /// An agent could not prepare, connect or start a run.
    PrepareFailed {
        /// The run.
        run: u64,
        /// Why.
        fault: WireFault,
    },
    /// An instance has ended.
    InstanceEnded {
        /// The run.
        run: u64,
        /// Its dense id.
        instance: u32,
        /// Its final counters.
        last: Box<InstanceReport>,
        /// Its part files.
        files: Vec<SinkFile>,
    },
    /// An instance failed.
    InstanceFailed {
        /// The run.
        run: u64,
        /// Its dense id.
        instance: u32,
        /// What and where.
        fault: WireFault,
    },
    /// The owner ends a job.
    CancelRequested {
        /// The run.
        run: u64,
    },
    /// All agents that are left have stopped a run.
    Stopped {
        /// The run.
        run: u64,
        /// Its ledger at that moment, summed over agents; of a lost agent what it last said.
        edges: Vec<EdgeLedger>,
        /// Part files that those who answered have left.
        parts: Vec<SinkFile>,
        /// Names of the agents that have answered.
        answered: Vec<String>,
    },
    /// Agents have made files of a run visible, or could not.
    Sealed {
        /// The run.
        run: u64,
        /// What came of it.
        work: SealWork,
        /// The final ledger, summed over agents.
        edges: Vec<EdgeLedger>,
    },
    /// A split was given to an instance.
    SplitTaken {
        /// The run.
        run: u64,
        /// The source stage.
        stage: String,
        /// The instance's dense id.
        instance: u32,
        /// The split's number.
        split: u32,
    },
    /// An instance gave a split back, read as far as it says.
    SplitReturned {
        /// The run.
        run: u64,
        /// The source stage.
        stage: String,
        /// The instance's dense id.
        instance: u32,
        /// The rest of it.
        split: Split,
    },
    /// A live option was changed.
    OptionSet {
        /// The run.
        run: u64,
        /// The stage.
        stage: String,
        /// The option.
        option: String,
        /// Its value as JSON.
        value: String,
    },
    /// An edge's policy was changed.
    PolicySet {
        /// The run.
        run: u64,
        /// Index of the edge in the plan.
        edge: u32,
        /// The policy's name.
        policy: String,
        /// Its options, as a JSON object.
        options: String,
    },
    /// A job that is started again has new places.
    Restarted {
        /// The run that was stopped.
        run: u64,
        /// Where its instances go now.
        placed: Placed,
    },
    /// A job cannot be started again.
    RestartFailed {
        /// The run that was stopped.
        run: u64,
        /// Why.
        fault: WireFault,
    },
    /// All jobs and then all agents are to end.
    ShutdownRequested,
    /// A job's instances are to change while it runs.
    RescaleAsked {
        /// The run.
        run: u64,
        /// The plan.
        new: Box<NewScale>,
    },
    /// All agents have made what a plan needs.
    RescalePrepared {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
    },
    /// A plan could not be prepared.
    RescaleFailed {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
        /// Why.
        fault: WireFault,
    },
    /// A plan that was prepared holds from here on.
    RescaleCommitted {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
    },
    /// All agents route by a plan that was committed.
    RescaleSwitched {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
    },
    /// What came of a rescale was measured, or will not be.
    RescaleMeasured {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
        /// Rows a second that all sinks took together, or why that is not known.
        rows_per_second: Result<f64, String>,
    },
    /// The sizes of key partitions that a plan moves are known, and so is what moves together.
    GroupsMade {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
        /// In the order in which they move.
        groups: Vec<Group>,
    },
    /// A group has moved: its new instance has the state, and the rows that waited for it.
    GroupMoved {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
        /// Which, from 0.
        group: u32,
    },
    /// After the last group nothing is sent any more to instances that hold no partition.
    OwnersReleased {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
    },
    /// An agent gets no new instances, or gets some again.
    AgentDrained {
        /// Its name: the next incarnation is drained too.
        name: String,
        /// It gets none.
        drained: bool,
    },
    /// An agent is not one of the cluster any more; it ends.
    AgentReleased {
        /// Who.
        id: AgentId,
    },
    /// A job's automatic mode was turned on or off.
    AutoSet {
        /// The run.
        run: u64,
        /// How it decides; `None`: off.
        options: Option<AutoOptions>,
    },
    /// A job's automatic mode has something to remember.
    AutoNoted {
        /// The run.
        run: u64,
        /// All of it.
        memory: Box<Memory>,
        /// The newest plan that it has taken note of.
        plan: u64,
        /// What it did or said, why, and the plan that came of it.
        note: Option<(AutoWhat, String, Option<u64>)>,
    },
    /// A change was asked for: it gets a number. What it does are commands of their own.
    Asked(Box<Asked>),
    /// Source instances that a plan ends have stopped, and said what they have not read.
    SourcesGiven {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
        /// One for each of them.
        given: Vec<SourceGiven>,
    },
    /// What they have not read is with others.
    SourcesHanded {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
    },
}

/// A plan for a job that runs: what there is stays where it is, but for what goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewScale {
    /// Its number.
    pub epoch: u64,
    /// What was asked for, as the command says it.
    pub asked: String,
    /// Who chose, if a planner did.
    pub planner: Option<String>,
    /// Rows a second that all sinks together are to take, as was predicted.
    pub predicted: Option<f64>,
    /// Agents that join the job's: their indices go on from those that it has.
    pub joining: Vec<AgentInfo>,
    /// Instances that it starts: their ids go on from those that there were.
    pub coming: Vec<Instance>,
    /// Ids of instances that end with it.
    pub going: Vec<u32>,
    /// Key partitions that it moves.
    pub maps: Vec<KeyMap>,
    /// Sources of which instances end with it, and who goes on.
    pub sources: Vec<SourceMove>,
    /// The plan's graph as JSON.
    pub dag: String,
    /// What is new, by name.
    pub started: Vec<Named>,
    /// What ends, by name.
    pub stopped: Vec<Named>,
    /// Why nothing was predicted.
    #[serde(default)]
    pub unpredicted: Option<String>,
    /// Why so, in words.
    pub why: Option<String>,
    /// What stops before anything of it starts; `None`: nothing does.
    pub halt: Option<Halt>,
}

/// Instances that stop before a plan's new ones start, as where a job is restarted to be scaled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halt {
    /// Those that the plan leaves out never go on; others, sources, do once rows go by it.
    pub instances: Vec<u32>,
    /// How long it is until the new ones start, in milliseconds: what starting a process costs.
    pub cost_ms: u64,
}

/// Files of a run that one agent is to make visible.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SealTask {
    /// Who: the agent that wrote them, or another on its host.
    pub agent: AgentId,
    /// Hidden parts to be renamed.
    pub parts: Vec<SinkFile>,
    /// File sinks without a row, each to get an empty file.
    pub empty: Vec<String>,
}

/// What came of sealing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SealWork {
    /// Parts that were renamed, by their hidden names.
    pub parts: Vec<SinkFile>,
    /// Files that are visible now; `agent` is the one that has them.
    pub files: Vec<SinkFile>,
    /// Agents that could not, and why.
    pub causes: BTreeMap<String, String>,
}

/// Instances on agents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    /// Agents that take part; `Instance::agent` is an index into it.
    pub agents: Vec<AgentInfo>,
    /// All instances.
    pub instances: Vec<Instance>,
    /// Splits of shared sources by stage.
    pub splits: BTreeMap<String, Vec<Split>>,
}

/// A job that was checked, planned and placed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewJob {
    /// The name it asks for; a number is added if a live job has it.
    pub name: String,
    /// The job as JSON.
    pub job: String,
    /// The plan as JSON.
    pub dag: String,
    /// The plan's edges by index, as people call them.
    pub edge_names: Vec<String>,
    /// Stages that write files, with their vertex.
    pub file_sinks: BTreeMap<String, VertexId>,
    /// Column names of csv sources with a header, by stage.
    pub headers: BTreeMap<String, Vec<String>>,
    /// What an agent's loss does.
    pub restart: Restart,
    /// Where its instances go.
    pub placed: Placed,
}

/// What the coordinator is to do after a command. Effects are not logged: for those that a coordinator
/// took with it, the next one's start leads to new ones.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Prepare, connect and start a run on its agents; answer with `Prepared` or `PrepareFailed`.
    Prepare {
        /// The run.
        run: u64,
    },
    /// Stop a run; answer with `Stopped`.
    Stop {
        /// The run.
        run: u64,
        /// Its agents that are left.
        agents: Vec<AgentId>,
        /// Why, for logs.
        reason: String,
        /// Not all of its agents had started it: what it wrote is removed.
        discard: bool,
    },
    /// Place a stopped run anew; answer with `Restarted` or `RestartFailed`.
    Replace {
        /// The run that was stopped.
        run: u64,
    },
    /// Make files of a run visible; answer with `Sealed`.
    Seal {
        /// The run.
        run: u64,
        /// Who does what.
        tasks: Vec<SealTask>,
    },
    /// Nothing of a run is needed any more.
    Forget {
        /// The run.
        run: u64,
        /// Its agents.
        agents: Vec<AgentId>,
    },
    /// Set a live option again after a restart.
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
    /// Set an edge's policy again after a restart.
    Route {
        /// The run.
        run: u64,
        /// Index of the edge.
        edge: u32,
        /// The policy.
        policy: String,
        /// Its options, as a JSON object.
        options: String,
    },
    /// Tell all agents that one is dead.
    TellPeersLost {
        /// Who is dead.
        id: AgentId,
    },
    /// No job is left and a shutdown was asked for: end all agents.
    EndAgents,
    /// Prepare a plan on all its agents; answer with `RescalePrepared` or `RescaleFailed`.
    Extend {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
    },
    /// Start the new instances of a plan that was committed, then route by it; answer with `RescaleSwitched`.
    Switch {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
    },
    /// Ask for the sizes of the key partitions that a plan moves; answer with `GroupsMade`.
    Divide {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
    },
    /// Move a group of key partitions, as far as that was not done; answer with `GroupMoved`.
    Move {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
        /// Which, from 0.
        group: u32,
    },
    /// All groups have moved: take instances without a partition off the lists; answer with `OwnersReleased`.
    Release {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
    },
    /// Stop the source instances that a plan ends; answer with `SourcesGiven`.
    GiveSources {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
    },
    /// Hand what they have not read to others, as far as that was not done; answer with `SourcesHanded`.
    HandSources {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
    },
    /// Undo what was prepared of a plan.
    Abort {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
        /// Its agents.
        agents: Vec<AgentId>,
    },
}
