//! Tuplane's testbed: where agents run and how experiments are done.

pub mod arrivals;
mod bench;
mod cli;
mod demo;
pub mod experiment;
pub mod hosts;
pub mod jobs;
pub mod launch;
mod paper;
pub mod predict;
mod scratch;
pub mod sim;
mod simulate;
pub mod skip;
mod what_if;

pub use cli::run;
