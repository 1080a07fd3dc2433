//! How many instances and where: which vertex limits a job, and what more or fewer instances would bring.

pub mod graph;
pub mod limit;
pub mod observed;
pub mod rates;

pub use graph::{FlowEdge, FlowGraph, FlowVertex, GraphError, Rates};
pub use limit::{Limit, Load, LoadState, limit};
