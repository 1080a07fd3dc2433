//! Tuplane's decisions: job files, planning, routing and the cluster's state machine.
//!
//! Nothing here opens a socket, reads a clock, starts a thread or touches a file: time and
//! randomness are arguments. The running agent and the simulator call the same functions.

pub mod cluster;
pub mod fault;
mod fields;
pub mod fingerprint;
pub mod job;
pub mod place;
pub mod plan;
pub mod route;
pub mod scale;
pub mod time;
