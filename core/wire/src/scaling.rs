//! How many instances a job has and where: what may be asked of the coordinator, and what it plans.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
pub use tuplane_core::cluster::automatic::{AutoNote, AutoWhat};
pub use tuplane_core::cluster::rescale::{Named, Rescale, Step};
pub use tuplane_core::cluster::types::Folded;
pub use tuplane_core::cluster::units::{Handed, Paced, Rest, SourceGiven, SourceUnit};
use tuplane_core::plan::VertexId;
pub use tuplane_core::scale::AutoOptions;

/// Where new instances go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScalePlace {
    /// To agents without an instance of the job alone; refused where there are none.
    OnlyFresh,
    /// To any agent.
    #[default]
    Anywhere,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ScaleAsk {
    /// So many instances of one vertex.
    Set {
        /// A stage's id, or the name of a vertex.
        vertex: String,
        /// Instances in all.
        instances: u32,
        /// Where new ones go.
        place: ScalePlace,
    },
    /// More instances, where they pay most.
    Out {
        /// Agents to be added; 0: none.
        agents: u32,
        /// Instances to be added; 0: as many as belong to the added agents.
        instances: u32,
        /// Who chooses; the setting's where none is named.
        planner: Option<String>,
        /// New instances may go to agents that have some already.
        anywhere: bool,
    },
    /// An agent less.
    In {
        /// Agents to be given back; 1 where one is named.
        agents: u32,
        /// This one.
        agent: Option<String>,
        /// Who chooses; the setting's where none is named. A named agent needs none: all that it has moves.
        planner: Option<String>,
        /// The agent stays in the cluster.
        keep: bool,
    },
    /// These instances, as somebody else has planned it.
    Exact(Box<ExactPlan>),
    /// The same, with instances that stop before anything new starts.
    Restarting {
        /// What.
        ask: Box<ScaleAsk>,
        /// Which stop.
        what: Restarted,
        /// Milliseconds until what is new starts.
        cost_ms: u64,
    },
}

/// A plan that was made elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExactPlan {
    /// New instances: of which vertex, on which agent.
    pub add: Vec<(String, String)>,
    /// Instances by name, and the agents that others in their place are started on.
    pub moves: Vec<(String, String)>,
    /// Instances by name that end.
    pub end: Vec<String>,
    /// Who has planned it.
    pub planner: Option<String>,
    /// Rows a second that all sinks together are to take.
    pub predicted: Option<f64>,
}

/// What of a job is stopped and started anew when it is scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restarted {
    /// The job's part on agents whose part changes.
    Moved,
    /// All of the job.
    All,
}

/// What a rescale does, or would do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScalePlan {
    /// The job's name.
    pub job: String,
    /// The run.
    pub run: u64,
    /// The epoch of the plan that holds now.
    pub epoch: u64,
    /// The epoch of this one; `None`: it was not carried out, for it was only asked for, or changes nothing.
    pub next: Option<u64>,
    /// What was asked for, in words.
    pub asked: String,
    /// Who chose.
    pub planner: Option<String>,
    /// New instances that take the place of none.
    pub started: Vec<ScaleInstance>,
    /// New instances that take the place of others.
    pub moved: Vec<ScaleMove>,
    /// Instances that end and that none takes the place of.
    pub stopped: Vec<ScaleInstance>,
    /// Edges that change.
    pub edges: Vec<ScaleEdge>,
    /// Remarks for people.
    pub notes: Vec<String>,
    /// Names of agents that it empties and that are not to be released all the same; the notes say why.
    pub staying: Vec<String>,
    /// Rows a second that all sinks together are expected to take with the new plan.
    pub predicted: Option<f64>,
    /// Why nothing is predicted; `None` also where nothing changes.
    pub unpredicted: Option<String>,
    /// Why these operators.
    pub why: Option<String>,
    /// Instances of each vertex that changes, before and after.
    pub counts: Vec<ScaleCount>,
    /// What tells it from every other plan for the job; `None`: it changes nothing.
    pub id: Option<u64>,
    /// The number of the operation that carries it out.
    pub operation: Option<u64>,
}

impl ScalePlan {
    /// It would leave all as it is.
    pub fn is_empty(&self) -> bool {
        self.started.is_empty() && self.moved.is_empty() && self.stopped.is_empty()
    }
}

/// One instance of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleInstance {
    /// Index of its vertex in the plan.
    pub vertex: u32,
    /// What it is, by name.
    pub instance: Named,
}

/// A new instance in the place of one that ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleMove {
    /// Index of the vertex in the plan.
    pub vertex: u32,
    /// Which ends.
    pub from: Named,
    /// Which is started.
    pub to: Named,
}

/// An edge that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleEdge {
    /// Index in the plan.
    pub edge: u32,
    /// Its name.
    pub name: String,
    /// What changes, e.g. `local becomes distributed`.
    pub change: String,
    /// Why.
    pub why: String,
}

/// Instances of a vertex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleCount {
    /// Index of the vertex in the plan.
    pub vertex: u32,
    /// Its name.
    pub name: String,
    /// Before.
    pub before: u32,
    /// After.
    pub after: u32,
}

/// The plan of a job now, and how it came to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobScalings {
    /// The job's name.
    pub job: String,
    /// The run.
    pub run: u64,
    /// The epoch of the plan that holds.
    pub epoch: u64,
    /// Its rescales, the oldest first.
    pub history: Vec<Rescale>,
    /// Older ones that were left out.
    pub left_out: u64,
    /// Its automatic mode, once it was turned on.
    #[serde(default)]
    pub auto: Option<AutoView>,
}

/// What is asked of a job's automatic mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AutoAsk {
    /// How it stands.
    Show,
    /// It acts no more.
    Off,
    /// It acts, and decides so.
    On(AutoOptions),
}

/// A job's automatic mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AutoView {
    /// It acts.
    pub on: bool,
    /// How it decides.
    pub options: AutoOptions,
    /// When it was turned on or off, ms since 1970.
    pub since_ms: u64,
    /// What it made of its last look; `None` while it is off, or has not looked yet.
    pub thought: Option<String>,
    /// What it did and said, the oldest first.
    pub notes: Vec<AutoNote>,
}

/// The answer to `Auto`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobAuto {
    /// The job's name.
    pub job: String,
    /// The run.
    pub run: u64,
    /// `None`: it was never turned on.
    pub auto: Option<AutoView>,
}

/// Instances of a job that are not simply running, and the plan that holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobScale {
    /// The epoch of the plan that holds.
    pub epoch: u64,
    /// How far a rescale is that is under way.
    pub step: Option<Step>,
    /// Instances that are being made: nothing is sent to them yet.
    pub coming: Vec<u32>,
    /// Instances that are being drained.
    pub leaving: Vec<u32>,
    /// Instances that have ended because a rescale left them out, the newest of them.
    pub retired: Vec<u32>,
    /// Older ones, which are not listed one by one any more, by vertex.
    pub folded: BTreeMap<VertexId, Folded>,
    /// Who holds each key partition, of the vertices whose partitions a rescale has moved or moves now.
    pub maps: BTreeMap<VertexId, Vec<u32>>,
    /// What the automatic mode thinks; `None`: it is off.
    #[serde(default)]
    pub auto: Option<String>,
}

/// A group of key partitions on its way from one instance of a vertex to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyGroup {
    /// The run.
    pub run: u64,
    /// The number of the plan that moves it.
    pub epoch: u64,
    /// Its number in the plan: groups move in this order, one after the other.
    pub number: u32,
    /// Dense id of the instance that holds it.
    pub from: u32,
    /// Dense id of the instance that is to hold it.
    pub to: u32,
    /// Its key partitions.
    pub partitions: Vec<u16>,
}

/// Rows that move with key partitions, as one agent counts them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedRows {
    /// The last group that an instance here has taken: the number of its plan, and its own.
    pub taken: Option<(u32, u32)>,
    /// Rows that have left with groups of which it is not known here that they were taken.
    pub away: Vec<AwayRows>,
}

/// Rows of one edge that have left with a group. Its former owner counts them as waiting until it hears that the group was
/// taken; a run that stops before finds them at its new owner, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwayRows {
    /// Index of the edge in the plan.
    pub edge: u32,
    /// The number of the group's plan, and its own.
    pub group: (u32, u32),
    /// How many.
    pub rows: u64,
    /// They count as dropped by a stop, not as waiting.
    pub dropped: bool,
}

/// What moves key partitions, step by step. An agent that is asked again, by a later coordinator too, answers as before;
/// a fault that may not be repeated ends the run's attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyAsk {
    /// How large is the state of key partitions that an instance there holds?
    Sizes {
        /// The run.
        run: u64,
        /// The number of the plan that moves them.
        epoch: u64,
        /// Dense id of the instance.
        instance: u32,
        /// Which.
        partitions: Vec<u16>,
    },
    /// A group is about to move: said to the agent of its new owner and then to that of its old one, before any
    /// sender goes by it.
    Begin(KeyGroup),
    /// Senders there go by the group's new owner from now on, and say so to both owners.
    Turn(KeyGroup),
    /// The old owner gives the group's state, and the rows that have come for it, to the new owner's agent once all
    /// senders have spoken to it.
    Ship(KeyGroup),
    /// The new owner has taken in what came, and what it made of it has arrived where it goes.
    Await(KeyGroup),
    /// The group has moved: event time goes on behind its owners there.
    End(KeyGroup),
    /// All groups of a plan have moved: what holds nothing any more gets its end.
    Release {
        /// The run.
        run: u64,
        /// The plan's number.
        epoch: u64,
    },
}

/// What hands over what source instances have not read that a plan ends, step by step. An agent that is asked again, by a
/// later coordinator too, answers as before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceAsk {
    /// Instances there may give rows soon that are older than what they have said of event time: whoever takes what they
    /// give holds its own, as soon as this has come.
    Hold {
        /// The run.
        run: u64,
        /// The number of the plan.
        epoch: u64,
        /// Dense ids.
        instances: Vec<u32>,
    },
    /// An instance there reads no further than the row it is at, and ends. Answered with what it has not read once all
    /// that it gave has arrived.
    Give {
        /// The run.
        run: u64,
        /// The number of the plan.
        epoch: u64,
        /// Its dense id.
        instance: u32,
    },
    /// Rows that have come from one instance's agent by now are gone through before those that others give from now on.
    Behind {
        /// The run.
        run: u64,
        /// The number of the plan.
        epoch: u64,
        /// Dense id of the one that has ended.
        from: u32,
        /// Dense ids of those that go on with what it has not read.
        to: Vec<u32>,
    },
    /// An instance there goes on with these, and then as it was.
    Take {
        /// The run.
        run: u64,
        /// The number of the plan.
        epoch: u64,
        /// Its dense id.
        instance: u32,
        /// What others have not read; it may be nothing.
        units: Vec<SourceUnit>,
    },
}
