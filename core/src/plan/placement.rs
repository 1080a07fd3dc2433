//! Instances and the agents they run on, and which instances an edge reaches from an agent.

mod place;
mod reach;
pub mod strategy;
mod traffic;

use serde::{Deserialize, Serialize};

use super::dag::VertexId;

pub(super) use place::check_fewest;
pub use place::{place, place_at};
pub use reach::{isolated_targets, partition_map, targets, targets_of};

/// An agent that may take instances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSlot {
    /// Its number in the cluster.
    pub index: u16,
    /// Its name.
    pub name: String,
    /// Its default parallelism; with 0 it takes no instances.
    pub slots: u32,
}

/// One running copy of a vertex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Instance {
    /// Dense over the job.
    pub id: u32,
    /// What it runs.
    pub vertex: VertexId,
    /// The n of `id#n`, from 0 within the vertex.
    pub number: u32,
    /// Where it runs.
    pub agent: u16,
}
