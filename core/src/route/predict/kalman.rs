//! A Kalman filter of the local level model.

use super::registry::within;
use super::{Predictor, Refusal};

/// The local level model: `level' = level + w`, `arrived = level + v`, with Var w = q and Var v = r.
///
/// Where q and r are not given they are estimated from the moments of the differences d of neighbouring slots:
/// E d d' = -r for neighbouring differences, E d^2 = q + 2r.
#[derive(Debug, Clone)]
pub struct Kalman {
    /// The two variances, where they are given.
    given: Option<Variances>,
    moments: Moments,
    state: Option<State>,
}

/// In rows squared.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Variances {
    /// Of the level's step from slot to slot.
    q: f64,
    /// Of an observation around the level.
    r: f64,
}

#[derive(Debug, Clone, Copy)]
struct State {
    level: f64,
    /// Of `level` around the true one.
    variance: f64,
    last: f64,
}

/// Means of products of differences over the last slots or so: plain ones at first, exponentially weighted later.
#[derive(Debug, Clone, Copy)]
struct Moments {
    memory: f64,
    seen: f64,
    /// The last difference.
    last: Option<f64>,
    square: f64,
    product: f64,
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
        let moments = Moments { memory: memory as f64, seen: 0.0, last: None, square: 0.0, product: 0.0 };
        Ok(Self { given: None, moments, state: None })
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
        Ok(Self { given: Some(Variances { q, r }), ..Self::estimating(1)? })
    }
}

impl Predictor for Kalman {
    fn name(&self) -> &'static str {
        "kalman"
    }

    fn observe(&mut self, _slot: u64, arrived: u64) {
        let arrived = arrived as f64;
        let Some(state) = &mut self.state else {
            let variance = self.given.map_or(0.0, |given| given.r);
            self.state = Some(State { level: arrived, variance, last: arrived });
            return;
        };
        self.moments.add(arrived - state.last);
        state.last = arrived;
        let Variances { q, r } = self.given.unwrap_or_else(|| self.moments.variances());
        let ahead = state.variance + q;
        // Without any variance an observation is the level.
        let gain = if ahead + r > 0.0 { ahead / (ahead + r) } else { 1.0 };
        state.level += gain * (arrived - state.level);
        state.variance = (1.0 - gain) * ahead;
    }

    fn forecast(&mut self, window: usize) -> Vec<f64> {
        super::level(self.state.map(|state| state.level), window)
    }
}

impl Moments {
    fn add(&mut self, difference: f64) {
        self.seen += 1.0;
        let weight = 1.0 / self.seen.min(self.memory);
        self.square += weight * (difference.powi(2) - self.square);
        if let Some(last) = self.last.replace(difference) {
            let weight = 1.0 / (self.seen - 1.0).min(self.memory);
            self.product += weight * (difference * last - self.product);
        }
    }

    fn variances(&self) -> Variances {
        // Neither is below 0, whatever the estimates are; together they keep E d^2.
        let r = (-self.product).clamp(0.0, self.square / 2.0);
        Variances { q: self.square - 2.0 * r, r }
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
    fn variances_are_found_in_the_model_itself() {
        // Uniform steps and noise of known variance, scaled so that rounding to rows is small beside them.
        let (mut lots, mut level, mut kalman) = (Lots(5), 1e6, Kalman::estimating(1_000_000).unwrap());
        let (step, noise) = (200.0, 400.0);
        for slot in 0..100_000 {
            level += step * (unit(&mut lots) - 0.5);
            kalman.observe(slot, (level + noise * (unit(&mut lots) - 0.5)).round() as u64);
        }
        let Variances { q, r } = kalman.moments.variances();
        let (true_q, true_r) = (step * step / 12.0, noise * noise / 12.0);
        // The estimates' own standard deviations are under 3 % here.
        assert!(
            (q / true_q - 1.0).abs() < 0.2 && (r / true_r - 1.0).abs() < 0.1,
            "{q} {true_q} {r} {true_r}"
        );
    }

    #[test]
    fn a_constant_is_predicted_exactly() {
        let mut kalman = Kalman::estimating(10).unwrap();
        for slot in 0..50 {
            kalman.observe(slot, 7);
        }
        assert_eq!(kalman.forecast(3), [7.0; 3]);
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
            let before = kalman.state.unwrap();
            kalman.observe(400, 5000);
            let gain = (kalman.state.unwrap().level - before.level) / (5000.0 - before.level);
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
