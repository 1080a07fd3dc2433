//! The planned graph: vertices, edges, and the notes that explain them.

use serde::{Deserialize, Serialize};

use crate::fault::{At, Spanned};
use crate::job::{Route, Text, Time, Window};

/// A planned job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Dag {
    /// In topological order; a `VertexId` is an index.
    pub vertices: Vec<Vertex>,
    /// An `EdgeId` is an index.
    pub edges: Vec<Edge>,
    /// What a person should know about the plan, e.g. a rebalance without effect.
    pub notes: Vec<Note>,
    /// Sources send a watermark when event time has moved on by so many milliseconds.
    pub watermark_stride: u64,
}

/// Index into [`Dag::vertices`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VertexId(pub u32);

/// Index into [`Dag::edges`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EdgeId(pub u32);

/// One vertex: one or more stages, run by instances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vertex {
    /// Jet's derived name, unique in the job: `fused(map, filter)`, `aggregate-prepare`.
    pub name: String,
    /// The ids of the stages it was made of, in order.
    pub stages: Vec<String>,
    /// What its instances run.
    pub role: Role,
    /// Instances on each agent, or in all.
    pub parallelism: Parallelism,
    /// The grouping key of each input, by ordinal; empty where an input has none.
    pub keys: Vec<Vec<Text>>,
    /// The window that its stage aggregates by.
    pub window: Option<Window>,
    /// How its rows get their event time here.
    #[serde(default)]
    pub time: Option<Time>,
    /// The ids of the peeks that tap its output.
    pub peeks: Vec<String>,
}

impl Vertex {
    /// The name that commands show and take: the stage's id, `id/prepare` for the first of two,
    /// the derived name where several stages were fused.
    pub fn label(&self) -> String {
        match (&self.stages[..], self.role) {
            ([only], Role::Prepare) => format!("{only}/prepare"),
            ([only], Role::Timestamps) => format!("{only}/timestamps"),
            ([only], Role::Collector { input }) => format!("{only}/collector{input}"),
            ([only], Role::Merge { step }) => format!("{only}/merge{step}"),
            ([only], _) => only.clone(),
            _ => self.stages.join("+"),
        }
    }
}

/// What the instances of a vertex run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A stage (or a chain of fused stages) whole.
    Whole,
    /// The first of two vertices: partial results (`-prepare`, `sort`).
    Prepare,
    /// The second of two vertices: merges partial results (`sort-collect`, the combine vertex).
    Combine,
    /// Event times assigned behind a source.
    Timestamps,
    /// A merge of an n-way merge but its last, which is `Whole`.
    Merge {
        /// Which, from 1.
        step: u32,
    },
    /// One build side of a hash join.
    Collector {
        /// Which enriching input, from 1.
        input: u32,
    },
}

/// How many instances a vertex has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parallelism {
    /// So many on every agent.
    PerAgent(u32),
    /// The agent's own default (its slots) on every agent.
    Default,
    /// The agent's own default on every agent, but at most so many.
    DefaultUpTo(u32),
    /// One in the whole cluster.
    One,
    /// So many in all, placed by the placement policy.
    Total(u32),
    /// So many on every agent, of which one in the cluster produces (a non-distributed source).
    OneProduces(u32),
}

impl Parallelism {
    /// At most as many instances as the upstream has, on each agent.
    pub(super) fn capped(self, upstream: Self) -> Self {
        let Some((own, own_default)) = self.bounds() else { return self };
        let Some((up, up_default)) = upstream.bounds() else { return self };
        let most = [own, up].into_iter().flatten().min();
        match (most, own_default || up_default) {
            (None, _) => Self::Default,
            (Some(1), _) => Self::PerAgent(1),
            (Some(n), true) => Self::DefaultUpTo(n),
            (Some(n), false) => Self::PerAgent(n),
        }
    }

    /// The fixed bound on each agent, and whether the agent's default bounds it too.
    fn bounds(self) -> Option<(Option<u32>, bool)> {
        match self {
            Self::PerAgent(n) | Self::OneProduces(n) => Some((Some(n), false)),
            Self::One => Some((Some(1), false)),
            Self::Default => Some((None, true)),
            Self::DefaultUpTo(n) => Some((Some(n), true)),
            Self::Total(_) => None,
        }
    }
}

/// One edge, from one output ordinal to one input ordinal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// Where rows come from.
    pub from: VertexId,
    /// Which output of `from`.
    pub from_ordinal: u32,
    /// Where rows go.
    pub to: VertexId,
    /// Which input of `to`.
    pub ordinal: u32,
    /// Which instances may take a row.
    pub routing: Routing,
    /// Targets are on all agents, not only on the sender's.
    pub distributed: bool,
    /// Lower is read first; 0 unless the edge is a join's build side.
    pub priority: i32,
    /// The receiver merges its channels in order.
    pub ordered: bool,
    /// Its rows wait for a build side that cannot end while they hold up their sender: beyond the output
    /// queue's bound they wait on the sender's disk.
    #[serde(default)]
    pub spills: bool,
    /// The policy of a unicast edge and its options.
    pub route: Route,
    /// Set where a rebalance stands on this edge.
    pub rebalance: Option<RebalanceEffect>,
    /// The ids of the views (rebalance, `group_by`, window) that its consumer reads it through.
    pub via: Vec<String>,
    /// In words: why it is routed so.
    pub why: String,
}

impl Edge {
    /// The name of its policy; it matters on unicast edges only.
    pub fn policy(&self) -> &str {
        self.route.policy.as_ref().map_or("round-robin", |p| &p.value)
    }
}

/// Which instances of the target vertex may take a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// Any one, by policy.
    Unicast,
    /// Fixed pairs within an agent, so that order is kept.
    Isolated,
    /// The one that holds the key's partition.
    Partitioned {
        /// The key.
        key: Key,
        /// How a key becomes a partition.
        partitioner: Partitioner,
    },
    /// Always the same one.
    AllToOne,
    /// Every one.
    Broadcast,
}

/// The key of a partitioned edge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    /// Expressions over the row.
    Exprs(Vec<Text>),
    /// The key of a (key, partial result) row.
    Entry,
    /// All columns.
    WholeItem,
}

/// Jet's two partitioners; both are XXH3 here, the name is kept for the planner cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Partitioner {
    /// By the serialised key.
    Default,
    /// By the hash code; Jet's choice on local edges.
    HashCode,
}

/// What a rebalance did to its edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebalanceEffect {
    /// The id of the rebalance entry.
    pub stage: String,
    /// Where it stands.
    pub at: At,
    /// What it changed, in words; empty if nothing.
    pub changed: String,
}

/// A remark about the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// A sentence.
    pub text: Spanned<String>,
    /// It says that something the user wrote has no effect (exit 2 under `--strict`).
    pub no_effect: bool,
    /// Whoever runs the job is warned of it.
    #[serde(default)]
    pub warns: bool,
}

impl Dag {
    /// The vertex with this index.
    pub fn vertex(&self, id: VertexId) -> &Vertex {
        &self.vertices[id.0 as usize]
    }

    /// The edge with this index.
    pub fn edge(&self, id: EdgeId) -> &Edge {
        &self.edges[id.0 as usize]
    }

    /// Edges into a vertex, by input ordinal.
    pub fn inputs(&self, to: VertexId) -> impl Iterator<Item = (EdgeId, &Edge)> {
        let mut edges: Vec<_> = self.numbered().filter(|(_, e)| e.to == to).collect();
        edges.sort_by_key(|(_, e)| e.ordinal);
        edges.into_iter()
    }

    /// Edges out of a vertex, by output ordinal.
    pub fn outputs(&self, from: VertexId) -> impl Iterator<Item = (EdgeId, &Edge)> {
        let mut edges: Vec<_> = self.numbered().filter(|(_, e)| e.from == from).collect();
        edges.sort_by_key(|(_, e)| e.from_ordinal);
        edges.into_iter()
    }

    fn numbered(&self) -> impl Iterator<Item = (EdgeId, &Edge)> {
        self.edges.iter().enumerate().map(|(i, e)| (EdgeId(i as u32), e))
    }

    /// An edge's name: `from..to`, or `from:ordinal..to:ordinal` where that is not unique.
    pub fn edge_name(&self, id: EdgeId) -> String {
        let edge = self.edge(id);
        let (from, to) = (self.vertex(edge.from).label(), self.vertex(edge.to).label());
        if self.edges.iter().filter(|e| e.from == edge.from && e.to == edge.to).count() == 1 {
            format!("{from}..{to}")
        } else {
            format!("{from}:{}..{to}:{}", edge.from_ordinal, edge.ordinal)
        }
    }
}
