//! Averages of the past: of the last slots, or of all with weights that fall off.

use std::collections::VecDeque;

use super::registry::within;
use super::{Predictor, Refusal};

/// The mean of the last slots.
#[derive(Debug, Clone)]
pub struct MovingAverage {
    slots: usize,
    last: VecDeque<u64>,
    /// Of `last`; it holds any sum of counts.
    sum: u128,
}

impl MovingAverage {
    /// The mean of the last `slots` slots (of all, while there are fewer).
    ///
    /// # Errors
    /// If `slots` is 0.
    pub fn new(slots: usize) -> Result<Self, Refusal> {
        if slots == 0 {
            return Err(Refusal::new("`slots` is 0: an average takes at least one slot"));
        }
        Ok(Self { slots, last: VecDeque::new(), sum: 0 })
    }
}

impl Predictor for MovingAverage {
    fn name(&self) -> &'static str {
        "moving_average"
    }

    fn observe(&mut self, _slot: u64, arrived: u64) {
        if self.last.len() == self.slots {
            self.sum -= self.last.pop_front().map_or(0, u128::from);
        }
        self.last.push_back(arrived);
        self.sum += u128::from(arrived);
    }

    fn forecast(&mut self, window: usize) -> Vec<f64> {
        let mean = (!self.last.is_empty()).then(|| self.sum as f64 / self.last.len() as f64);
        super::level(mean, window)
    }
}

/// The exponentially weighted mean: `level += alpha * (arrived - level)`, from the first slot's count on.
#[derive(Debug, Clone, Copy)]
pub struct Ewma {
    alpha: f64,
    level: Option<f64>,
}

impl Ewma {
    /// With the weight `alpha` of the newest slot, above 0 and at most 1.
    ///
    /// # Errors
    /// If `alpha` is not.
    pub fn new(alpha: f64) -> Result<Self, Refusal> {
        Ok(Self {
            alpha: within("alpha", alpha, f64::MIN_POSITIVE..=1.0, "above 0 and at most 1")?,
            level: None,
        })
    }
}

impl Predictor for Ewma {
    fn name(&self) -> &'static str {
        "ewma"
    }

    fn observe(&mut self, _slot: u64, arrived: u64) {
        let arrived = arrived as f64;
        self.level = Some(self.level.map_or(arrived, |level| self.alpha.mul_add(arrived - level, level)));
    }

    fn forecast(&mut self, window: usize) -> Vec<f64> {
        super::level(self.level, window)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_cannot_average_is_refused_and_nothing_seen_gives_nothing() {
        assert!(MovingAverage::new(0).is_err());
        for alpha in [0.0, -0.1, 1.1, f64::NAN] {
            assert!(Ewma::new(alpha).is_err(), "{alpha}");
        }
        assert_eq!(MovingAverage::new(3).unwrap().forecast(4), [0.0; 0]);
        assert_eq!(Ewma::new(1.0).unwrap().forecast(4), [0.0; 0]);
    }

    proptest! {
        #[test]
        fn a_moving_average_is_the_mean_of_the_last(counts in prop::collection::vec(0u64..1 << 40, 1..60), slots in 1usize..20) {
            let mut average = MovingAverage::new(slots).unwrap();
            for (slot, count) in (0..).zip(&counts) {
                average.observe(slot, *count);
            }
            let last = &counts[counts.len().saturating_sub(slots)..];
            let mean = last.iter().sum::<u64>() as f64 / last.len() as f64;
            prop_assert_eq!(average.forecast(3), vec![mean; 3]);
        }

        /// level = (1 - a)^(n-1) x_1 + a sum_k (1 - a)^(n-k) x_k over k = 2 ..= n.
        #[test]
        fn an_ewma_has_its_closed_form(counts in prop::collection::vec(0u64..1_000_000, 1..60), alpha in 0.001..1.0f64) {
            let mut average = Ewma::new(alpha).unwrap();
            for (slot, count) in (0..).zip(&counts) {
                average.observe(slot, *count);
            }
            let n = counts.len() as i32;
            let closed: f64 = (1..).zip(&counts).map(|(k, count)| {
                let weight = if k == 1 { 1.0 } else { alpha };
                weight * (1.0 - alpha).powi(n - k) * *count as f64
            }).sum();
            let level = average.forecast(1)[0];
            prop_assert!((level - closed).abs() <= 1e-9 * closed.max(1.0), "{level} {closed}");
        }
    }
}
