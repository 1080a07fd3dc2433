//! The cluster's state as a state machine: logged commands in, new state and effects out.
//!
//! It is the only thing that holds state about the cluster. It reads no clock (commands carry
//! their time) and asks nobody, so replaying a log gives an equal state.

pub mod automatic;
pub mod command;
pub mod job;
pub mod operation;
pub mod rescale;
pub mod response;
pub mod state;
pub mod types;
pub mod units;

pub use command::{Command, Effect, Halt, Logged, NewJob, NewScale, Placed, SealTask, SealWork};
pub use job::{Job, NextSplit, PlanUnderWay};
pub use operation::{Asked, Operation, Operations};
pub use state::{Agent, Held, Presence, State};
pub use types::{DROPPED_BY_LOSS, DROPPED_BY_STOP};
pub use units::{Handed, Paced, Rest, SourceGiven, SourceUnit};

/// The format of a kept [`State`] and of kept [`Command`]s: raised by every change of a type that either
/// holds, but for a variant at the end of an enum.
pub const FORMAT: u16 = 11;

#[cfg(test)]
mod tests;
