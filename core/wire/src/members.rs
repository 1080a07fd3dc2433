//! Agents that are drained: what moved away from one, and what stays there.

use serde::{Deserialize, Serialize};

use crate::scaling::{Named, ScalePlan};

/// What draining an agent does, or would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentDrain {
    /// The agent's name.
    pub agent: String,
    /// It gets no new instances.
    pub drained: bool,
    /// Live jobs that have something there, in the order they were submitted.
    pub jobs: Vec<JobDrain>,
}

/// One job of an agent that is drained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobDrain {
    /// The job's name.
    pub job: String,
    /// The run.
    pub run: u64,
    /// Its instances that move. `None`: none does.
    pub plan: Option<ScalePlan>,
    /// Its instances that stay.
    pub stays: Vec<Stays>,
    /// It was not looked at, or all of it was refused: why.
    pub why: Option<String>,
    /// Asking again a little later may help.
    pub again: bool,
}

/// An instance that cannot move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stays {
    /// Which.
    pub instance: Named,
    /// Why.
    pub why: String,
}
