//! What a running job does in a second, what its vertices carry, and what more instances would bring.

use serde::{Deserialize, Serialize};
use tuplane_core::plan::placement::Instance;
use tuplane_core::scale::observed::JobEtp;
use tuplane_core::scale::rates::JobRates;

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
    /// What the automatic mode thinks; `None`: it is off.
    #[serde(default)]
    pub auto: Option<String>,
}
