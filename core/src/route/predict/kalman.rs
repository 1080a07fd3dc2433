//! A Kalman filter of the local level model.

use super::registry::within;
use super::{Predictor, Refusal};

/// The ratios q : r that an estimating filter compares, as powers of the square root of 10: gains from 0.01 to 0.99.
const RATIOS: std::ops::RangeInclusive<i32> = -8..=4;

/// The local level model: `level' = level + w`, `arrived = level + v`, with Var w = q and Var v = r.
///
/// Forecasts depend on the ratio q : r alone. Where it is not given, a filter runs for each of a row of ratios, and that
/// of the greatest likelihood over the last slots or so speaks (normal errors, r at its own best value for each ratio).
#[derive(Debug, Clone)]
pub struct Kalman {
    filters: Vec<Filter>,
    memory: f64,
    seen: f64,
}

/// The filter of one ratio; variances are in units of r.
#[derive(Debug, Clone, Copy)]
struct Filter {
    ratio: f64,
    level: f64,
    /// Of the last observation; also the variance of `level` around the true one.
    gain: f64,
    /// Means over the last slots or so, of the errors' squares over their variances, and of the logarithms of these.
    square: f64,
    log: f64,
}

impl Kalman {
    /// With variances that are estimated over about the last `memory` slots.
    ///
    /// # Errors
    /// If `memory` is 0.
    pub fn estimating(memory: usize) -> Result<Self, Refusal> {
        if memory == 0 {
            return Err(Refusal::new("`memory` is 0: variances are estimated over at least one slot"));
        }
        let filters = RATIOS.map(|power| Filter::new(10f64.powf(f64::from(power) / 2.0))).collect();
        Ok(Self { filters, memory: memory as f64, seen: 0.0 })
    }

    /// With given variances, in rows squared: `q` of the level's step, `r` of an observation around the level.
    ///
    /// # Errors
    /// If one is not finite or below 0, or both are 0.
    pub fn with_variances(q: f64, r: f64) -> Result<Self, Refusal> {
        let q = within("q", q, 0.0..=f64::MAX, "at least 0")?;
        let r = within("r", r, 0.0..=f64::MAX, "at least 0")?;
        if q == 0.0 && r == 0.0 {
            return Err(Refusal::new("`q` and `r` are both 0: one of them must be above 0"));
        }
        Ok(Self { filters: vec![Filter::new(q / r)], memory: 1.0, seen: 0.0 })
    }

    /// Takes in a value, which may be any real number.
    pub(super) fn add(&mut self, value: f64) {
        let weight = 1.0 / self.seen.clamp(1.0, self.memory);
        for filter in &mut self.filters {
            if self.seen > 0.0 {
                filter.add(value, weight);
            } else {
                filter.level = value;
            }
        }
        self.seen += 1.0;
    }

    /// The level, once there was a value.
    pub(super) fn level(&self) -> Option<f64> {
        self.best().filter(|_| self.seen > 0.0).map(|filter| filter.level)
    }

    fn best(&self) -> Option<&Filter> {
        self.filters.iter().min_by(|one, other| one.unlikely().total_cmp(&other.unlikely()))
    }
}

impl Predictor for Kalman {
    fn name(&self) -> &'static str {
        "kalman"
    }

    fn observe(&mut self, _slot: u64, arrived: u64) {
        self.add(arrived as f64);
    }

    fn forecast(&mut self, window: usize) -> Vec<f64> {
        super::level(self.level(), window)
    }
}

impl Filter {
    /// After its first observation the level is as uncertain as that is.
    fn new(ratio: f64) -> Self {
        Self { ratio, level: 0.0, gain: 1.0, square: 0.0, log: 0.0 }
    }

    fn add(&mut self, arrived: f64, weight: f64) {
        let ahead = self.gain + self.ratio;
        let error = arrived - self.level;
        self.square += weight * (error * error / (ahead + 1.0) - self.square);
        self.log += weight * ((ahead + 1.0).ln() - self.log);
        // Where observations are exact (r = 0) the ratio is infinite.
        self.gain = if ahead.is_finite() { ahead / (ahead + 1.0) } else { 1.0 };
        self.level += self.gain * error;
    }

    /// Twice the negative logarithm of the likelihood for each slot, less a constant.
    fn unlikely(&self) -> f64 {
        self.square.ln() + self.log
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::rounding::unit;
    use super::*;
    use crate::route::rank::Lots;

    #[test]
    fn variances_that_cannot_be_are_refused() {
        for (q, r) in [(0.0, 0.0), (-1.0, 1.0), (1.0, f64::NAN), (f64::INFINITY, 1.0)] {
            assert!(Kalman::with_variances(q, r).is_err(), "{q} {r}");
        }
        assert!(Kalman::estimating(0).is_err());
        assert_eq!(Kalman::estimating(1).unwrap().forecast(2), [0.0; 0]);
    }

    #[test]
    fn the_ratio_is_found_in_the_model_itself() {
        // Uniform steps and noise, scaled so that rounding to rows is small beside them.
        for (step, noise) in [(100.0, 1000.0), (1000.0, 1000.0), (1000.0, 300.0)] {
            let (mut lots, mut level, mut kalman) = (Lots(5), 1e7, Kalman::estimating(20_000).unwrap());
            for slot in 0..20_000 {
                level += step * (unit(&mut lots) - 0.5);
                kalman.observe(slot, (level + noise * (unit(&mut lots) - 0.5)).round() as u64);
            }
            // The nearest of the ratios compared, or its neighbour.
            let found = (kalman.best().unwrap().ratio / (step * step / (noise * noise))).log10();
            assert!(found.abs() <= 0.5, "{found}");
        }
    }

    #[test]
    fn a_constant_is_predicted_exactly() {
        let mut kalman = Kalman::estimating(10).unwrap();
        for slot in 0..50 {
            kalman.observe(slot, 7);
        }
        assert_eq!(kalman.forecast(3), [7.0; 3]);
    }

    #[test]
    fn exact_observations_are_the_level_and_steps_that_never_come_leave_the_mean() {
        for (q, r, level) in [(1.0, 0.0, 9.0), (0.0, 1.0, 4.0)] {
            let mut kalman = Kalman::with_variances(q, r).unwrap();
            for (slot, arrived) in (0..).zip([1, 2, 9]) {
                kalman.observe(slot, arrived);
            }
            let found = kalman.forecast(1)[0];
            assert!((found - level).abs() < 1e-9, "{found}");
        }
    }

    proptest! {
        /// The variance ahead P of the steady state solves P^2 = q P + q r, and the gain is P / (P + r).
        #[test]
        fn the_gain_goes_to_its_steady_state(q in 0.01..100.0f64, r in 0.01..100.0f64, counts in prop::collection::vec(0u64..1000, 400)) {
            let mut kalman = Kalman::with_variances(q, r).unwrap();
            for (slot, count) in (0..).zip(&counts) {
                kalman.observe(slot, *count);
            }
            let ahead = f64::midpoint(q, (q * q + 4.0 * q * r).sqrt());
            let steady = ahead / (ahead + r);
            let before = kalman.forecast(1)[0];
            kalman.observe(400, 5000);
            let gain = (kalman.forecast(1)[0] - before) / (5000.0 - before);
            prop_assert!((gain - steady).abs() < 1e-6, "{gain} {steady}");
        }

        #[test]
        fn forecasts_stay_among_the_counts(counts in prop::collection::vec(0u64..1000, 1..100), memory in 1usize..50) {
            let mut kalman = Kalman::estimating(memory).unwrap();
            for (slot, count) in (0..).zip(&counts) {
                kalman.observe(slot, *count);
                let seen = &counts[..=slot as usize];
                let (least, most) = (*seen.iter().min().unwrap() as f64, *seen.iter().max().unwrap() as f64);
                let level = kalman.forecast(1)[0];
                prop_assert!(level >= least - 1e-6 && level <= most + 1e-6, "{level} in {least} ..= {most}");
            }
        }
    }
}
