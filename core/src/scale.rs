//! How many instances and where: for now, which vertex limits a job.

pub mod limit;

pub use limit::{Limit, Load, LoadState, limit};
