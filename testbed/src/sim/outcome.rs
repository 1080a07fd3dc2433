//! What came of a simulation.

use serde::Serialize;

use super::measure::{Backlog, Response};

/// Figures of one run. Those per slot are means over the measured slots.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Instances, spouts included.
    pub instances: usize,
    /// Containers, one on each server.
    pub containers: usize,
    /// Slots that were measured.
    pub slots: u64,
    /// Response times over all applications.
    pub response: Response,
    /// Equation 11: the sum of `U` over all tuples that were sent.
    pub cost_per_slot: f64,
    /// Tuples sent, whatever they cost.
    pub tuples_per_slot: f64,
    /// Queue lengths.
    pub backlog: Backlog,
    /// `q_in + beta * (q_out + q_rem)`.
    pub weighted_backlog: f64,
    /// By how much the weighted backlog rose per slot, from the third to the last quarter of the measured slots.
    pub growth: f64,
    /// Tuples that had to leave and could not, each counted in every slot that it waited on.
    pub deferred: u64,
    /// Tuples that had waited for `max_hold` and left at a price of 0 or more, at which nothing else would have let
    /// them go.
    pub forced: u64,
    /// What forecasts led to.
    pub foresight: Foresight,
    /// Weights in force, where the policy is POTUS: rules have another value in each slot, at each container and for
    /// each component.
    pub weights: Option<Weights>,
    /// By application.
    pub apps: Vec<AppOutcome>,
}

/// Mean `V` and `beta`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Weights {
    /// Mean of `V`.
    pub v: f64,
    /// `beta`.
    pub beta: f64,
}

/// Tuples by what was foreseen of them, a tuple for several successors counted for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Foresight {
    /// Arrived and had been sent before.
    pub pre_served: u64,
    /// Sent before and did not arrive: phantoms.
    pub wasted: u64,
    /// Foreseen and not sent, and did not arrive.
    pub dropped: u64,
    /// Arrived and stood in no forecast.
    pub unforeseen: u64,
    /// Mean square error of the forecasts of the next slot, as real numbers; null without forecasts.
    pub mse: Option<f64>,
    /// Measured slots without a forecast, a slot counted for each spout instance: they are not in `mse`.
    pub missing: u64,
    /// Forecasts that a predictor's process gave too late, over the whole run.
    pub late: u64,
}

/// Figures of one application.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AppOutcome {
    /// Its name.
    pub name: String,
    /// Its lookahead window.
    pub window: u32,
    /// Its instances.
    pub instances: usize,
    /// Its response times.
    pub response: Response,
    /// Cost of its tuples.
    pub cost_per_slot: f64,
}
