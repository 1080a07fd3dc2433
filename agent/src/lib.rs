//! The agent of Tuplane: hosts instances, moves their rows, and reports; one of them coordinates.

pub mod engine;
mod exchange;
pub mod sink;
pub mod source;
mod sync;
