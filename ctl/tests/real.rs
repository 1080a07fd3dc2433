//! Real agents as real processes, driven by the real command.

mod bounds;
mod documents;
mod failures;
mod jobs;
mod language;
mod owners;
mod pages;
mod remarks;
mod results;
mod road;
mod seat;
pub(crate) mod world;
