//! What the spouts are told to expect, and how far that is off.

use std::sync::Arc;

use tuplane_core::route::predict::{Predictor, PredictorRegistry, Rounding, Score, Setup};

use super::SimError;
use super::config::Lookahead;
use super::spout::Spout;

/// Forecasts of the next slot against what came.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Errors {
    /// Sum of the squared errors, over measured slots.
    squares: f64,
    /// Forecasts that it is of.
    scored: u64,
    /// Measured slots that had no forecast.
    pub(super) missing: u64,
    /// Forecasts that came too late, over the whole run.
    pub(super) late: u64,
}

impl Errors {
    /// Of all spouts.
    pub(super) fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |a, b| Self {
            squares: a.squares + b.squares,
            scored: a.scored + b.scored,
            missing: a.missing + b.missing,
            late: a.late + b.late,
        })
    }

    /// The mean square error; none without forecasts.
    pub(super) fn mse(&self) -> Option<f64> {
        (self.scored > 0).then(|| self.squares / self.scored as f64)
    }
}

/// The forecasts of one spout.
#[derive(Debug)]
pub(super) enum Forecast {
    /// The truth: only the new end of the window is looked up (equation 6).
    Perfect,
    /// A predictor's, revised in each slot and rounded by lot (potus.md F13).
    Predicted { predictor: Box<dyn Predictor>, rounding: Rounding, score: Score },
}

impl Forecast {
    /// For the spout of a number, which will get `arrivals`.
    pub(super) fn new(
        ahead: &Lookahead,
        predictors: &PredictorRegistry,
        seed: u64,
        number: usize,
        arrivals: &[u64],
    ) -> Result<Self, SimError> {
        if ahead.is_perfect() {
            return Ok(Self::Perfect);
        }
        if ahead.early {
            return Err(SimError::Config(
                "a run that begins early needs the perfect predictor: before slot 0 there is nothing to learn from"
                    .to_owned(),
            ));
        }
        let seed = seed ^ (number as u64 + 1).wrapping_mul(0xd1b5_4a32_d192_ed03);
        let truth: Arc<[u64]> = arrivals.into();
        let most = truth.iter().copied().max().unwrap_or(0);
        let setup = Setup { options: ahead.options.clone(), seed, truth: Some(truth) };
        let predictor = predictors.make(&ahead.predictor, &setup)?;
        Ok(Self::Predicted {
            predictor,
            rounding: Rounding { most, ..Rounding::new(seed) },
            score: Score::new(1),
        })
    }

    /// Before the first slot, which is `start`: windows are full, unless the run begins early.
    pub(super) fn fill(&mut self, spout: &mut Spout, start: i64, early: bool) {
        match self {
            Self::Perfect if early => {}
            Self::Perfect => {
                for w in 1..=spout.size() {
                    spout.expect(w, spout.arrivals(start + w as i64 - 1));
                }
            }
            Self::Predicted { .. } => self.revise(spout, start - 1),
        }
    }

    /// Slot `slot` has come, and with it its arrivals: what follows is forecast anew. Of a slot that is measured the
    /// error counts.
    pub(super) fn follow(&mut self, spout: &mut Spout, slot: i64, measured: bool) {
        match self {
            Self::Perfect => {
                let size = spout.size();
                spout.expect(size, spout.arrivals(slot + size as i64));
            }
            Self::Predicted { predictor, score, .. } => {
                let arrived = spout.arrivals(slot);
                if measured {
                    score.observe(slot as u64, arrived);
                }
                predictor.observe(slot as u64, arrived);
                self.revise(spout, slot);
            }
        }
    }

    fn revise(&mut self, spout: &mut Spout, slot: i64) {
        let Self::Predicted { predictor, rounding, score } = self else { return };
        let (next, size) = ((slot + 1) as u64, spout.size());
        // Without a window the next slot is forecast all the same, for the error.
        let forecast = predictor.forecast(size.max(1));
        score.forecast(next, &forecast[..forecast.len().min(1)]);
        for (w, rows) in (1..).zip(rounding.forecast(next, &forecast, size)) {
            spout.expect(w, rows);
        }
    }

    /// How its forecasts of the next slot were.
    pub(super) fn errors(&self) -> Errors {
        match self {
            Self::Perfect => Errors::default(),
            Self::Predicted { predictor, score, .. } => {
                let scored = score.scored(1);
                let squares = score.mse(1).unwrap_or(0.0) * scored as f64;
                Errors { squares, scored, missing: score.missing(1), late: predictor.late() }
            }
        }
    }

    /// Why the predictor has given up, if it has.
    pub(super) fn failure(&self) -> Option<&str> {
        match self {
            Self::Perfect => None,
            Self::Predicted { predictor, .. } => predictor.failure(),
        }
    }
}
