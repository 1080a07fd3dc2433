//! How many rows will arrive: predictors of a source's arrivals, and what is made of their forecasts.
//!
//! A predictor gives numbers of rows, never the rows themselves (potus.md, F13).

mod average;
mod distribution;
mod injected;
mod kalman;
mod perfect;
mod registry;
mod rounding;
mod score;
mod seasonal;

pub use average::{Ewma, MovingAverage};
pub use distribution::Distribution;
pub use injected::{FalsePositives, Missed};
pub use kalman::Kalman;
pub use perfect::Perfect;
pub use registry::{PredictorError, PredictorRegistry, Refusal, Setup};
pub use rounding::Rounding;
pub use score::{Score, score};
pub use seasonal::{Seasonal, Seasons};

/// Predicts the arrivals of one source instance from those that it has seen.
///
/// [`Predictor::observe`] is called once for each slot, in order, also for slots in which nothing arrived.
pub trait Predictor: Send + std::fmt::Debug {
    /// The predictor's name, as in the registry and in results.
    fn name(&self) -> &str;

    /// Slot `slot` has ended; so many rows arrived in it.
    fn observe(&mut self, slot: u64, arrived: u64);

    /// Expected arrivals of the `window` slots after the last observed one (from slot 0 on if none was), nearest
    /// first, in rows: finite and at least 0, and at most `window` of them. For slots that are left out there is no
    /// forecast: nothing is pre-served for them ([`Rounding::forecast`] gives 0).
    fn forecast(&mut self, window: usize) -> Vec<f64>;

    /// Why the predictor has given up, if it has: from then on it has no forecasts. Those that compute in the
    /// program itself do not.
    fn failure(&self) -> Option<&str> {
        None
    }

    /// Slots that had no forecast because it came too late; 0 for those that compute in the program itself.
    fn late(&self) -> u64 {
        0
    }
}

/// The same expectation for each slot of a window; none before there was an observation.
fn level(level: Option<f64>, window: usize) -> Vec<f64> {
    level.map_or_else(Vec::new, |level| vec![level.max(0.0); window])
}
