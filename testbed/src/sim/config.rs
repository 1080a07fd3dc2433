//! What a simulation is told: everything that decides about its outcome.

use std::sync::Arc;
use std::time::Duration;

use tuplane_core::job::Placement;
use tuplane_core::route::RouteOptions;

use super::app::App;
use super::network::Network;
use crate::arrivals::Series;

/// One simulation. Two runs of one configuration and seed give the same outcome to the byte.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name in results.
    pub name: String,
    /// How the servers are joined; each server is one container.
    pub network: Network,
    /// What runs on them, in the order in which it is placed.
    pub apps: Vec<App>,
    /// The load of its instances that a bolt's parallelism is made for, where an application does not say how
    /// many it has.
    pub load: f64,
    /// `d`: the instances of a bolt have, in turn, capacity `mu - d` and `mu + d`.
    pub uneven: u32,
    /// Slots from 0 on.
    pub slots: u32,
    /// Slots at the beginning that no figure counts.
    pub warmup: u32,
    /// Feeds all that is drawn by lot.
    pub seed: u64,
    /// How instances get their containers, application by application.
    pub placement: Placement,
    /// What arrives at the spouts.
    pub arrivals: Arrivals,
    /// How far spouts see ahead.
    pub lookahead: Lookahead,
    /// Where tuples go.
    pub routing: Routing,
    /// What is known of the queues.
    pub telemetry: Telemetry,
}

/// Tuples per slot at a spout instance. The means are the applications'.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrivals {
    /// Independent Poisson counts.
    Poisson,
    /// Poisson counts whose mean is itself drawn, from a gamma distribution, in each slot.
    Overdispersed {
        /// Variance over mean, more than 1.
        ratio: f64,
    },
    /// Measured counts, scaled to the spout's mean. Each spout instance starts at a place of the trace that is drawn
    /// by the seed, and goes on from its beginning at its end.
    Trace {
        /// The counts.
        counts: Arc<Series>,
        /// Where they are from.
        name: String,
    },
}

/// The lookahead window of the spouts.
#[derive(Debug, Clone, PartialEq)]
pub struct Lookahead {
    /// `W` in slots: that of each application, or their mean.
    pub size: u32,
    /// Each application's window is drawn evenly from 0 to 2 `size`, as the publication does.
    pub spread: bool,
    /// The run begins at slot `-size` with empty windows, rather than at slot 0 with full ones.
    pub early: bool,
    /// Name of the predictor; [`PERFECT`] knows what comes.
    pub predictor: String,
    /// Its options, and the errors that are injected on purpose: `missed` and `false_positives`.
    pub options: serde_json::Map<String, serde_json::Value>,
}

impl Default for Lookahead {
    fn default() -> Self {
        Self {
            size: 0,
            spread: false,
            early: false,
            predictor: PERFECT.to_owned(),
            options: serde_json::Map::new(),
        }
    }
}

impl Lookahead {
    /// Forecasts are what comes, and need not be asked for.
    pub fn is_perfect(&self) -> bool {
        self.predictor == PERFECT && self.options.is_empty()
    }
}

/// The predictor that knows what comes.
pub const PERFECT: &str = "perfect";

/// How tuples are routed.
#[derive(Debug, Clone, PartialEq)]
pub struct Routing {
    /// Name of the policy of all edges.
    pub policy: String,
    /// Its options. A slot of the simulation is one period; `max_hold` counts in slots of `slot`. Between two slots
    /// nothing is sent (`between_slots`), a run has one row, and no queue has a bound.
    pub options: RouteOptions,
}

impl Routing {
    /// `max_hold` in slots, at least 1.
    pub fn max_hold(&self) -> Option<i64> {
        let slots = |hold: Duration| hold.as_secs_f64() / self.options.slot.as_secs_f64();
        self.options.max_hold.map(|hold| (slots(hold).ceil() as i64).max(1))
    }
}

/// What senders know of the queues at their targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Telemetry {
    /// Queue lengths are told every so many slots, at least 1.
    pub every: u32,
    /// They arrive so many slots later.
    pub delay: u32,
    /// Dead reckoning goes slot by slot with what others send, which needs more than agents tell each other; else it
    /// is theirs.
    pub by_slot: bool,
}

impl Telemetry {
    /// Queue lengths of the slot's beginning, as the publication assumes.
    pub const FRESH: Self = Self { every: 1, delay: 0, by_slot: false };

    /// Every decision sees the queues of its own slot.
    pub fn is_fresh(self) -> bool {
        self.every <= 1 && self.delay == 0
    }
}
