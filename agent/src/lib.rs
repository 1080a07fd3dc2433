//! The agent of Tuplane: hosts instances, moves their rows, and reports; one of them coordinates.

pub mod coordinator;
pub mod engine;
mod exchange;
mod json;
pub mod node;
pub mod road;
pub mod service;
pub mod sink;
pub mod source;
mod sync;
pub mod telemetry;
