//! Real agents as real processes, driven by the real command.

mod bounds;
mod failures;
mod jobs;
mod owners;
mod results;
mod road;
mod seat;
pub(crate) mod world;
