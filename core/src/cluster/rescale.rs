//! A job's rescales: what was asked for, what was planned, how far it went, and what came of it.

use serde::{Deserialize, Serialize};

/// One instance as people call it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Dense id.
    pub id: u32,
    /// `id#n`.
    pub name: String,
    /// The name of the agent that it is on.
    pub agent: String,
}

/// How far a rescale went. It goes through the first four in this order, or fails before it is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Agents are making the new instances and their channels. The old plan holds.
    Asked,
    /// All agents have; nothing is sent to the new instances yet. The old plan holds.
    Prepared,
    /// The new plan holds; instances that it leaves out are drained.
    Committed,
    /// Those have ended.
    Done,
    /// The old plan has held throughout, or the job ended first.
    Failed,
}

impl Step {
    /// It will not change any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }

    /// As texts and documents say it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Prepared => "prepared",
            Self::Committed => "committed",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// One rescale of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rescale {
    /// The epoch of its plan. A plan that failed has used its number too.
    pub epoch: u64,
    /// The attempt of the job that it belongs to.
    pub attempt: u32,
    /// What was asked for, as the command says it.
    pub asked: String,
    /// Who chose where, if a planner did.
    pub planner: Option<String>,
    /// How far it went.
    pub step: Step,
    /// Why it failed.
    pub fault: Option<String>,
    /// Instances that it starts.
    pub started: Vec<Named>,
    /// Instances that it ends.
    pub stopped: Vec<Named>,
    /// When it was asked for, ms since 1970.
    pub asked_ms: u64,
    /// When all agents had prepared it.
    pub prepared_ms: Option<u64>,
    /// When the new plan began to hold.
    pub committed_ms: Option<u64>,
    /// When it was done, or failed.
    pub ended_ms: Option<u64>,
    /// Rows a second that all sinks together take with the new plan, as was predicted.
    pub predicted: Option<f64>,
    /// The same as it was measured once a whole window had passed.
    pub measured: Option<f64>,
    /// Why it was not measured, where that will not come any more.
    #[serde(default)]
    pub unmeasured: Option<String>,
    /// Why so, in words; a planner's, or those of the automatic mode.
    #[serde(default)]
    pub why: Option<String>,
}

impl Rescale {
    /// Neither is it known what came of it, nor that this will not be known.
    pub fn is_unmeasured(&self) -> bool {
        self.measured.is_none() && self.unmeasured.is_none()
    }
}
