//! Slot-by-slot simulation of tuple scheduling, on the decisions of `core::route` (potus.md).
//!
//! The order within a slot: queue lengths are read and decisions made; tuples move to the inputs of their targets;
//! bolts work on what was at their inputs when the slot began (equation 8 to the letter, potus.md F6). A tuple
//! therefore takes two slots for each hop, and one for the first.

mod app;
mod check;
mod config;
mod decide;
mod forecast;
mod measure;
mod network;
mod outcome;
mod place;
mod read;
mod report;
mod root;
mod run;
mod series;
mod spout;
mod telemetry;
mod world;

use tuplane_core::route::predict::{PredictorError, PredictorRegistry};
use tuplane_core::route::{Policies, PolicyError};
use tuplane_core::scale::Planners;

pub use app::{App, Component, Kind};
pub use config::{Arrivals, Config, Lookahead, PERFECT, Routing, Telemetry};
pub use measure::{Backlog, Response};
pub use network::{Network, NetworkError};
pub use outcome::{AppOutcome, Foresight, Outcome, Weights};
pub use read::{FileFault, load};
pub use report::{Report, report};
pub use root::Answer;

/// Policies, predictors and planners by name: the built-in ones, and a researcher's own.
#[derive(Debug, Clone)]
pub struct Registry {
    /// Policies.
    pub policies: Policies,
    /// Predictors, those that are processes of their own among them.
    pub predictors: PredictorRegistry,
    /// Planners of scaling.
    pub planners: Planners,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            policies: Policies::default(),
            predictors: crate::predict::predictors(),
            planners: Planners::default(),
        }
    }
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The network cannot be built.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The policy cannot be made.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The predictor cannot be made.
    #[error(transparent)]
    NoPredictor(#[from] PredictorError),
    /// A predictor gave up.
    #[error("{0}")]
    Predictor(String),
    /// The configuration cannot be run.
    #[error("{0}")]
    Config(String),
    /// An invariant did not hold.
    #[error("in slot {slot}: {what}; this is a defect of the policy or of the simulator")]
    Broken {
        /// The slot.
        slot: i64,
        /// What did not hold.
        what: String,
    },
}

/// Runs a simulation with what is built in.
///
/// # Errors
/// If the configuration cannot be run, or an invariant did not hold.
pub fn run(config: &Config) -> Result<Outcome, SimError> {
    run_with(config, &Registry::default())
}

/// The same with policies and predictors of one's own.
///
/// # Errors
/// As [`run()`].
pub fn run_with(config: &Config, registry: &Registry) -> Result<Outcome, SimError> {
    run::Run::new(config, registry, false)?.finish().map(|(outcome, _)| outcome)
}

/// The same with the answer to every single tuple, in the order in which they came.
///
/// # Errors
/// As [`run()`].
pub fn run_with_answers(config: &Config, registry: &Registry) -> Result<(Outcome, Vec<Answer>), SimError> {
    run::Run::new(config, registry, true)?.finish()
}

#[cfg(test)]
mod tests;
