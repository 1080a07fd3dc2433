//! What agents tell the coordinator: reports that come all the time, and events that must not be lost.

use serde::{Deserialize, Serialize};
use tuplane_core::scale::KeyLoad;

use super::{AgentId, EdgeLedger, InstanceReport, SinkFile, WireFault};
use crate::scaling::MovedRows;

/// Something that happened on an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// An instance has ended: its input is done and all its rows have left.
    InstanceEnded {
        /// The run.
        run: u64,
        /// Dense instance id.
        instance: u32,
        /// Final counters of the instance.
        last: Box<InstanceReport>,
        /// Rows of the edges it touched (taken side, sent side), final.
        edges: Vec<EdgeLedger>,
        /// A sink's part files (still hidden).
        files: Vec<SinkFile>,
    },
    /// An instance failed.
    InstanceFailed {
        /// The run.
        run: u64,
        /// Dense instance id.
        instance: u32,
        /// What and where.
        fault: WireFault,
    },
    /// A peer's port refuses connections: its process is gone.
    PeerGone {
        /// Who.
        peer: AgentId,
        /// What was seen.
        cause: String,
    },
}

/// One agent's report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Who; an older incarnation is refused.
    pub agent: Option<AgentId>,
    /// Grows with each report of this incarnation.
    pub sequence: u64,
    /// The agent's wall clock, ns since 1970.
    pub now_ns: u64,
    /// Measured against the coordinator: offset of our clock and its error, ns (null if unknown).
    pub clock_offset_ns: Option<(i64, u64)>,
    /// Facts about the machine and the process.
    pub host: HostFacts,
    /// Per run.
    pub runs: Vec<RunReport>,
    /// Round trips to peers of open sessions, in microseconds, smoothed.
    pub round_trips: Vec<(String, u64)>,
}

/// Facts about a machine, by sysinfo.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Of the whole machine, 0 to 1.
    pub cpu: f32,
    /// Processors.
    pub processors: u32,
    /// Bytes.
    pub memory_total: u64,
    /// Bytes.
    pub memory_used: u64,
    /// Resident bytes of the agent (anonymous pages).
    pub rss_anon: u64,
    /// CPU seconds that the agent has used.
    pub cpu_seconds: f64,
    /// Bytes of rows the agent's queues keep alive.
    pub charged: u64,
    /// The bound of that.
    pub budget: u64,
    /// Operating system and kernel.
    pub os: String,
    /// Of each run that goes on there, the bytes that its queues may hold.
    pub reserved: Vec<(u64, u64)>,
}

/// One run on one agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// The run.
    pub run: u64,
    /// Instances on this agent.
    pub instances: Vec<InstanceReport>,
    /// Edges as this agent sees them.
    pub edges: Vec<EdgeLedger>,
    /// In answer to a stop: part files that stay.
    pub parts: Vec<SinkFile>,
    /// What instances on this agent say of their rows by key.
    pub keys: Vec<(u32, KeyLoad)>,
    /// Rows that have left with key partitions, and may count at their new owner, too.
    pub moved: MovedRows,
}
