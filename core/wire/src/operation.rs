//! What was asked of a cluster while jobs ran, and how far it is.

use serde::{Deserialize, Serialize};
pub use tuplane_core::cluster::operation::{Asked, Operation};

use crate::scaling::Step;

/// The answer to `Operations`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationList {
    /// The oldest first.
    pub all: Vec<OperationNow>,
    /// How many older ones are not remembered any more.
    pub left_out: u64,
}

/// An operation as it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationNow {
    /// What was asked, and what came of it.
    pub operation: Operation,
    /// How far its plan is.
    pub step: Option<Step>,
    /// Key partitions that have moved, and all that its plan moves; `None` where it moves none, or is over.
    pub moved: Option<(u32, u32)>,
}
