//! Sinks: where rows go.

use serde::{Deserialize, Serialize};

use super::Text;

/// `sink`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sink {
    /// Routing of its input edge.
    pub kind: SinkKind,
    /// Key of a partitioned sink.
    pub key: Vec<Text>,
    /// What the connector itself prefers.
    pub preferred_parallelism: Option<u32>,
    /// Where rows go; absent in planner cases.
    pub connector: Option<SinkConnector>,
}

/// `sink.type` (rebalance.md 3.1, 3.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkKind {
    /// Any instance takes any row.
    #[default]
    Default,
    /// By key, within an agent.
    Partitioned,
    /// By key, over all agents.
    DistributedPartitioned,
    /// One instance in the cluster.
    TotalParallelismOne,
}

/// `sink.connector` with its options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SinkConnector {
    /// Files in a folder, one or more an instance.
    File {
        /// The folder.
        path: Text,
        /// csv or jsonl.
        format: SinkFormat,
        /// Every agent reaches the same path.
        shared: bool,
    },
    /// The agent's standard output (shown by `tuplane run`).
    Stdout {
        /// csv or jsonl.
        format: SinkFormat,
    },
    /// Counts rows and drops them.
    Count,
    /// For experiments: id, instance, agent, arrival, done.
    Ledger {
        /// The folder.
        path: Text,
        /// The id column.
        id: Text,
    },
    /// A registered sink.
    Registered {
        /// Its registered name.
        name: Text,
        /// Its options, unchecked here.
        with: serde_json::Value,
    },
}

/// Format of a sink.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkFormat {
    /// Comma-separated values with a header.
    #[default]
    Csv,
    /// One JSON object a line.
    Jsonl,
}
