//! What a running job does in a second, what its vertices carry, and what more instances would bring.

use serde::{Deserialize, Serialize};
use tuplane_core::plan::placement::Instance;
use tuplane_core::scale::observed::JobEtp;
use tuplane_core::scale::rates::{Figure, JobRates};

/// The answer to `Etp`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobFlow {
    /// The job's name.
    pub job: String,
    /// The run.
    pub run: u64,
    /// The epoch of its plan.
    pub epoch: u64,
    /// JSON of the plan.
    pub dag: String,
    /// Names of its agents by index.
    pub agents: Vec<String>,
    /// Its instances, without those that a rescale has ended.
    pub instances: Vec<Instance>,
    /// `queueing` or `backpressured`: what happens to rows that a vertex cannot take.
    pub engine: String,
    /// How a vertex is found to be congested, in words.
    pub congestion: String,
    /// Measured rates.
    pub rates: JobRates,
    /// What follows from them.
    pub etp: JobEtp,
    /// What so many more instances would bring, each where a planner has them pay most.
    #[serde(default)]
    pub more: More,
    /// What the automatic mode thinks; `None`: it is off.
    #[serde(default)]
    pub auto: Option<String>,
}

/// What more instances would bring to a job, as `scale out --instances` would be answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct More {
    /// The planner's name.
    pub planner: String,
    /// For each number that was asked about the answer, in ascending order.
    pub plans: Vec<MorePlan>,
    /// Why there are none.
    pub why: Option<String>,
}

/// The best plan for so many more instances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MorePlan {
    /// So many more.
    pub instances: u32,
    /// Rows a second that the sinks are expected to take more.
    pub gain: Figure,
    /// Of which vertices they are, by the plan's index, and how many of each. Fewer than were asked about have a use if these are.
    pub vertices: Vec<(u32, u32)>,
    /// Why so, or why no more of them are used.
    pub why: String,
}
