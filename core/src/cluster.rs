//! The cluster's state as a state machine: logged commands in, new state and effects out.
//!
//! It is the only thing that holds state about the cluster. It reads no clock (commands carry
//! their time) and asks nobody, so replaying a log gives an equal state.

pub mod command;
pub mod job;
pub mod state;
pub mod types;

pub use command::{Command, Effect, Logged, NewJob, Placed};
pub use job::{DROPPED_BY_LOSS, DROPPED_BY_STOP, Job, NextSplit};
pub use state::{Agent, Presence, State};

#[cfg(test)]
mod tests;
