//! The structure of a job: what a file, the Rust builder and a planner case all become.

mod service;
mod sink;
mod source;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fault::{At, Spanned};

pub use service::*;
pub use sink::*;
pub use source::*;

/// Text from a job file, with its place: an expression, a column name, a path.
pub type Text = Spanned<String>;

/// A whole job: options, stages in creation order, and settings of edges without a rebalance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The job's name: free text, shown to people.
    pub name: String,
    /// `[job]`, or the same keys at the top level.
    pub options: Options,
    /// The stages in the order they were written.
    pub stages: Vec<Stage>,
    /// `[[route]]`: policies of edges that no rebalance made.
    pub routes: Vec<RouteEntry>,
}

/// `[job]`. Absent options are `None` so that a reader can tell a choice from a default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// The named set of algorithm options.
    pub settings: Settings,
    /// Edges that would be local round-robin become isolated (rebalance.md section 8).
    pub preserve_order: bool,
    /// Instances per agent of a vertex that says nothing; default: the agent's slots.
    pub default_parallelism: Option<u32>,
    /// `false` lifts the refusal of `now()`, `random()` and the like.
    pub deterministic: Option<bool>,
    /// Key partitions, 271 unless set; also the most instances a keyed vertex can have.
    pub partitions: Option<u16>,
    /// Where that stands; not sent along.
    #[serde(skip)]
    pub partitions_at: At,
    /// What the job does when an agent is lost.
    pub restart: Restart,
    /// Bytes of queued rows per agent, if that is less than this job's share of the agent's budget. Where queues grow, it
    /// is what the job may hold there whatever that budget is.
    pub memory: Option<u64>,
    /// What happens to a row that an expression cannot take.
    pub on_error: OnError,
    /// `block`: queues are bounded; `grow`: only the agent's memory bounds them.
    pub overflow: Overflow,
    /// How instances of stages with `instances` get their agents.
    #[serde(default)]
    pub placement: Placement,
}

impl Options {
    /// Key partitions in force.
    pub fn partitions(&self) -> u16 {
        self.partitions.unwrap_or(271)
    }
}

/// The two settings of `engine.md` section 13.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Settings {
    /// The published algorithms to the letter.
    Paper,
    /// What serves an operator best, as measured.
    #[default]
    Default,
}

/// `restart`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    /// The job ends as failed.
    #[default]
    Never,
    /// The job is started again from its first row.
    FromStart,
}

/// `on_error`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The job fails and names the row's place.
    #[default]
    Fail,
    /// The row is dropped and counted.
    Drop,
    /// The value becomes null.
    Null,
}

/// What the cause of a job says first, behind the agent's name, that ended because its queues had grown to what it may hold
/// there.
pub const OVERRUN: &str = "rows in queues that grow (`overflow = \"grow\"`) fill";

/// `overflow`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// A full queue blocks its writer.
    #[default]
    Block,
    /// Queues grow up to the agent's memory.
    Grow,
}

/// `placement`: the strategies of [`strategy`](crate::plan::placement::strategy).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Dealt in turn, as Storm does.
    #[default]
    RoundRobin,
    /// Together with those that it has most traffic with.
    THeron,
    /// By the most loaded link between agents.
    LinkLoad,
}

impl Placement {
    /// All, by name.
    pub const ALL: [(&'static str, Self); 3] =
        [("round_robin", Self::RoundRobin), ("t_heron", Self::THeron), ("link_load", Self::LinkLoad)];

    /// As job files name it.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, placement)| *placement == self).map_or("?", |(name, _)| name)
    }
}

/// One entry of `[[stage]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Its id: `[A-Za-z0-9_][A-Za-z0-9_-]*`, at most 64 characters.
    pub id: String,
    /// Where the entry stands.
    pub at: At,
    /// What it does.
    pub op: Op,
    /// The stages it reads, in ordinal order.
    pub inputs: Vec<Text>,
    /// A name for people; the op's own name (or, for sources and sinks, the id) unless set.
    pub name: Option<String>,
    /// Instances on every agent.
    pub parallelism: Option<u32>,
    /// Instances in all, placed by the placement policy; excludes `parallelism`.
    pub instances: Option<u32>,
}

/// What a stage does. Functions (expressions) may be absent: planning needs none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// Rows enter.
    Source(Source),
    /// A view on its input that changes one edge; makes no vertex.
    Rebalance(Rebalance),
    /// `select`: a row from a row.
    Map {
        /// `expr as name` or `*`.
        select: Vec<Text>,
    },
    /// `where`: keeps rows.
    Filter {
        /// A boolean expression.
        predicate: Option<Text>,
    },
    /// `unnest`: as many rows as the list has elements, other columns kept.
    FlatMap {
        /// `list expr as name`.
        unnest: Option<Text>,
    },
    /// Two inputs become one; columns equal by name and type.
    Merge,
    /// Gives the next stage a key; makes no vertex.
    GroupBy {
        /// The key's expressions.
        key: Vec<Text>,
    },
    /// Gives the next stage a window; makes no vertex.
    Window(Window),
    /// One result per key (and window), or one in all.
    Aggregate {
        /// `agg(expr) as name`.
        compute: Vec<Text>,
        /// `false`: partial results cannot be merged, so it runs in one stage.
        combine: bool,
    },
    /// Aggregates several inputs by one key.
    CoAggregate {
        /// Aggregates by input id.
        compute: BTreeMap<String, Vec<Text>>,
        /// As for `Aggregate`.
        combine: bool,
        /// Made with the builder form of the API (changes nothing in the plan).
        builder: bool,
    },
    /// Enriches the first input from the others.
    HashJoin {
        /// One `primary expr = enriching expr` per enriching input.
        on: Vec<Text>,
        /// Rows without a partner.
        kind: JoinKind,
        /// Made with the builder form of the API (changes nothing in the plan).
        builder: bool,
    },
    /// `map_stateful`, `filter_stateful`, `flat_map_stateful`.
    Stateful {
        /// Which of the three.
        shape: StatefulShape,
        /// `expr as s`: first values.
        state: Vec<Text>,
        /// `expr as s` over row and old state.
        update: Vec<Text>,
        /// `select`, `where` or `unnest` over row and new state.
        then: Vec<Text>,
        /// State of a key that saw no row for so long is dropped.
        ttl: Option<Duration>,
    },
    /// The row plus running aggregates.
    RollingAggregate {
        /// `agg(expr) as name`.
        compute: Vec<Text>,
    },
    /// First row of each key.
    Distinct {
        /// The key; the whole row unless set (or unless a `group_by` stands before it).
        key: Vec<Text>,
    },
    /// All rows in order, at the end of input.
    Sort {
        /// `expr [asc|desc]`.
        by: Vec<Text>,
    },
    /// A call to something outside, per row.
    UsingService(UsingService),
    /// A registered operator.
    CustomTransform {
        /// Its registered name.
        call: Option<Text>,
        /// Its options, unchecked here.
        with: serde_json::Value,
        /// `false`: it blocks and gets a thread of its own.
        cooperative: bool,
        /// What the operator itself prefers.
        preferred_parallelism: Option<u32>,
    },
    /// An operator of known cost; plans as `CustomTransform`.
    Work(Work),
    /// A sampled tap; makes no vertex.
    Peek {
        /// At most so many rows in a second.
        sample_per_second: Option<f64>,
    },
    /// Gives rows their event time.
    AddTimestamps {
        /// Column or expression, format and bounds.
        time: Option<Time>,
    },
    /// Rows leave.
    Sink(Sink),
}

impl Op {
    /// It as a source, if it is one.
    pub fn source(&self) -> Option<&Source> {
        match self {
            Op::Source(source) => Some(source),
            _ => None,
        }
    }

    /// The op's name in a job file.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Source(_) => "source",
            Op::Rebalance(_) => "rebalance",
            Op::Map { .. } => "map",
            Op::Filter { .. } => "filter",
            Op::FlatMap { .. } => "flat_map",
            Op::Merge => "merge",
            Op::GroupBy { .. } => "group_by",
            Op::Window(_) => "window",
            Op::Aggregate { .. } => "aggregate",
            Op::CoAggregate { .. } => "co_aggregate",
            Op::HashJoin { .. } => "hash_join",
            Op::Stateful { shape: StatefulShape::Map, .. } => "map_stateful",
            Op::Stateful { shape: StatefulShape::Filter, .. } => "filter_stateful",
            Op::Stateful { shape: StatefulShape::FlatMap, .. } => "flat_map_stateful",
            Op::RollingAggregate { .. } => "rolling_aggregate",
            Op::Distinct { .. } => "distinct",
            Op::Sort { .. } => "sort",
            Op::UsingService(service) => service.op_name(),
            Op::CustomTransform { .. } => "custom_transform",
            Op::Work(_) => "work",
            Op::Peek { .. } => "peek",
            Op::AddTimestamps { .. } => "add_timestamps",
            Op::Sink(_) => "sink",
        }
    }
}

/// `rebalance`: one input of one consumer, hence exactly one edge.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rebalance {
    /// Partition by this instead of dealing in turn.
    pub key: Vec<Text>,
    /// Routing of the edge.
    pub route: Route,
}

/// `[[route]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteEntry {
    /// `from..to`, with ordinals where that is not unique.
    pub edge: Text,
    /// What holds there.
    pub route: Route,
}

/// How an edge chooses targets, where it may choose.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// A policy's name; round-robin unless set.
    pub policy: Option<Text>,
    /// The policy's own options (`v`, `beta`, `gamma`, ...), read when the policy is made.
    pub options: BTreeMap<String, serde_json::Value>,
}

/// `work`: takes a known time per row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Milliseconds a row, one for all or one per instance (the last serves the rest).
    pub ms: Vec<f64>,
    /// The time's distribution; its mean stays `ms`.
    pub spread: Spread,
    /// Waits, or burns a core.
    pub mode: WorkMode,
}

/// Distribution of a `work` time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// Always the mean.
    #[default]
    None,
    /// Exponential.
    Exp,
    /// Pareto with shape 2.5 (finite variance, heavy tail).
    Pareto,
}

/// How `work` passes its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkMode {
    /// Waits to an absolute schedule.
    #[default]
    Sleep,
    /// Keeps a core busy.
    Spin,
}

/// Which stateful op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatefulShape {
    /// `map_stateful`
    Map,
    /// `filter_stateful`
    Filter,
    /// `flat_map_stateful`
    FlatMap,
}

impl StatefulShape {
    /// The option that says what a row becomes.
    pub fn option(self) -> &'static str {
        match self {
            Self::Map => "select",
            Self::Filter => "where",
            Self::FlatMap => "unnest",
        }
    }
}

/// Rows of the primary side without a partner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinKind {
    /// Are dropped.
    #[default]
    Inner,
    /// Are kept with nulls.
    Left,
}

/// `map_using_service` and its kin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsingService {
    /// `map`, `filter` or `flat_map`.
    pub shape: StatefulShape,
    /// `_async`.
    pub asynchronous: bool,
    /// The async form that takes batches.
    pub batched: bool,
    /// The service's registered name.
    pub service: Option<Text>,
    /// Its options, unchecked here.
    pub with: serde_json::Value,
    /// The request, where the service is the built-in `http`.
    #[serde(default)]
    pub http: Option<HttpCall>,
    /// What a registered service is asked with; the whole row where nothing is said.
    #[serde(default)]
    pub args: Vec<Text>,
    /// `select`, `where` or `unnest` over the row and its answer.
    #[serde(default)]
    pub then: Vec<Text>,
    /// How it is called.
    #[serde(default)]
    pub calls: Calls,
    /// `false`: it blocks and gets a thread of its own.
    pub cooperative: bool,
    /// What the service itself prefers.
    pub preferred_parallelism: Option<u32>,
}

impl UsingService {
    /// How it is called. A request that must not come twice is not tried again unless `retries` says so.
    pub fn calls(&self) -> Calls {
        let once = self.http.as_ref().is_some_and(|call| !call.method.is_idempotent());
        let retries = self.calls.retries.or(once.then_some(0));
        Calls { retries, ..self.calls.clone() }
    }

    /// The op's name in a job file.
    pub fn op_name(&self) -> &'static str {
        match (self.shape, self.asynchronous) {
            (StatefulShape::Map, false) => "map_using_service",
            (StatefulShape::Map, true) => "map_using_service_async",
            (StatefulShape::Filter, false) => "filter_using_service",
            (StatefulShape::Filter, true) => "filter_using_service_async",
            (StatefulShape::FlatMap, false) => "flat_map_using_service",
            (StatefulShape::FlatMap, true) => "flat_map_using_service_async",
        }
    }
}

/// `window`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Tumbling, sliding or session.
    pub kind: WindowKind,
    /// Length; the gap for a session window.
    pub size: Option<Duration>,
    /// Step of a sliding window.
    pub slide: Option<Duration>,
    /// Interval of early results; `None` or zero for none.
    pub early: Option<Duration>,
}

/// `window.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowKind {
    /// Fixed, without overlap.
    Tumbling,
    /// Fixed, with overlap.
    Sliding,
    /// Ends after a gap.
    Session,
}

impl WindowKind {
    /// Its name in a job file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tumbling => "tumbling",
            Self::Sliding => "sliding",
            Self::Session => "session",
        }
    }
}

/// `time` on a source or `add_timestamps`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// The column or expression.
    pub column: Text,
    /// How text is read as a time.
    pub format: Option<Text>,
    /// The zone of stamps that carry none.
    pub zone: Option<Text>,
    /// How late a row may be.
    pub lateness: Option<Duration>,
    /// After so long without a row an instance no longer holds the watermark back.
    pub idle: Option<Duration>,
    /// Rows further ahead move the watermark only when confirmed.
    pub max_ahead: Option<Duration>,
}
