//! Real agents as real processes, driven by the real command.

mod agents;
mod auto;
mod bounds;
mod documents;
mod etp;
mod failures;
mod halves;
mod jobs;
mod keyed;
mod language;
mod own;
mod owners;
mod pages;
mod peek;
mod placement;
mod remarks;
mod rescale;
mod restart;
mod results;
mod road;
mod routes;
mod seat;
mod serve;
mod sources;
mod time;
mod trace;
pub(crate) mod world;
