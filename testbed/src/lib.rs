//! Tuplane's testbed: where agents run and how experiments are done.

pub mod arrivals;
pub mod hosts;
pub mod jobs;
pub mod launch;
pub mod predict;
pub mod sim;
pub mod skip;
