//! Agents as tasks of one process: whole jobs, many of them, without starting processes.

#![expect(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it should be")]

mod cluster;
mod pipelines;
