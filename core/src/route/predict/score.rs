//! How good forecasts were: mean squared error and bias, for each number of slots ahead.

use std::collections::VecDeque;

use super::Predictor;

/// Compares forecasts with what arrived then.
#[derive(Debug, Clone, Default)]
pub struct Score {
    /// Forecasts whose slots are not all past: the first slot of each, and its values.
    made: VecDeque<(u64, Vec<f64>)>,
    horizons: Vec<Sums>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    scored: u64,
    missing: u64,
    error: f64,
    square: f64,
}

impl Score {
    /// Over forecasts of `window` slots.
    pub fn new(window: usize) -> Self {
        Self { made: VecDeque::new(), horizons: vec![Sums::default(); window] }
    }

    /// A forecast, whose first value is for slot `first`: the next one to be [observed](Self::observe).
    pub fn forecast(&mut self, first: u64, forecast: &[f64]) {
        self.made.push_back((first, forecast.to_vec()));
        if self.made.len() > self.horizons.len() {
            self.made.pop_front();
        }
    }

    /// So many rows arrived in slot `slot`.
    pub fn observe(&mut self, slot: u64, arrived: u64) {
        for (first, forecast) in &self.made {
            let Some(ahead) = slot.checked_sub(*first).and_then(|ahead| usize::try_from(ahead).ok()) else {
                continue;
            };
            let Some(sums) = self.horizons.get_mut(ahead) else { continue };
            if let Some(rows) = forecast.get(ahead) {
                let error = rows - arrived as f64;
                sums.scored += 1;
                sums.error += error;
                sums.square += error * error;
            } else {
                sums.missing += 1;
            }
        }
    }

    /// How many slots ahead are scored.
    pub fn window(&self) -> usize {
        self.horizons.len()
    }

    /// Mean squared error, in rows squared, of forecasts `ahead` slots ahead (1 is the next slot). `None` if there was
    /// none.
    pub fn mse(&self, ahead: usize) -> Option<f64> {
        self.mean(ahead, |sums| sums.square)
    }

    /// Mean of forecast less arrivals, in rows: above 0 if too much is predicted.
    pub fn bias(&self, ahead: usize) -> Option<f64> {
        self.mean(ahead, |sums| sums.error)
    }

    /// How many slots were scored so far ahead.
    pub fn scored(&self, ahead: usize) -> u64 {
        self.at(ahead).scored
    }

    /// How many slots had no forecast so far ahead.
    pub fn missing(&self, ahead: usize) -> u64 {
        self.at(ahead).missing
    }

    fn at(&self, ahead: usize) -> Sums {
        ahead.checked_sub(1).and_then(|index| self.horizons.get(index)).copied().unwrap_or_default()
    }

    fn mean(&self, ahead: usize, of: impl Fn(&Sums) -> f64) -> Option<f64> {
        let sums = self.at(ahead);
        (sums.scored > 0).then(|| of(&sums) / sums.scored as f64)
    }
}

/// Runs a fresh predictor over the arrivals of slots 0, 1, .. and scores its forecasts of `window` slots.
pub fn score(predictor: &mut dyn Predictor, arrivals: &[u64], window: usize) -> Score {
    let mut score = Score::new(window);
    for (slot, arrived) in (0..).zip(arrivals) {
        score.forecast(slot, &predictor.forecast(window));
        score.observe(slot, *arrived);
        predictor.observe(slot, *arrived);
    }
    score
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::route::predict::{Distribution, Perfect};

    /// Always the same number.
    #[derive(Debug)]
    struct Constant(f64);

    impl Predictor for Constant {
        fn name(&self) -> &'static str {
            "constant"
        }

        fn observe(&mut self, _slot: u64, _arrived: u64) {}

        fn forecast(&mut self, window: usize) -> Vec<f64> {
            vec![self.0; window]
        }
    }

    /// Mean and variance of counts.
    fn moments(counts: &[u64]) -> (f64, f64) {
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        (mean, counts.iter().map(|n| (*n as f64 - mean).powi(2)).sum::<f64>() / counts.len() as f64)
    }

    #[test]
    fn horizons_are_kept_apart_and_what_is_not_predicted_is_counted() {
        let mut score = Score::new(3);
        for (slot, arrived) in (0..).zip([1, 2, 4]) {
            score.forecast(slot, &[2.0, 2.0]);
            score.observe(slot, arrived);
        }
        assert_eq!((score.mse(1), score.scored(1), score.missing(1)), (Some(5.0 / 3.0), 3, 0));
        assert_eq!((score.mse(2), score.bias(2), score.scored(2)), (Some(2.0), Some(-1.0), 2));
        assert_eq!((score.mse(3), score.scored(3), score.missing(3)), (None, 0, 1));
        assert_eq!((score.mse(0), score.mse(4), score.window()), (None, None, 3));
    }

    #[test]
    fn independent_lots_err_by_twice_the_variance() {
        let mut source = Distribution::new(8, 11).unwrap();
        for (slot, count) in (0..).zip([0, 2, 3, 3, 4, 5, 9, 14]) {
            source.observe(slot, count);
        }
        let counts: Vec<u64> = source.forecast(40_000).iter().map(|rows| *rows as u64).collect();
        let (_, variance) = moments(&counts);
        let scored = super::score(&mut Distribution::new(100_000, 12).unwrap(), &counts, 1);
        let ratio = scored.mse(1).unwrap() / (2.0 * variance);
        assert!((ratio - 1.0).abs() < 0.06, "{ratio}");
    }

    proptest! {
        #[test]
        fn the_truth_has_no_error_and_the_mean_errs_by_the_variance(counts in prop::collection::vec(0u64..10_000, 1..200), window in 1usize..6) {
            let (mean, variance) = moments(&counts);
            let perfect = super::score(&mut Perfect::new(counts.as_slice().into()), &counts, window);
            for ahead in 1..=window.min(counts.len()) {
                prop_assert_eq!(perfect.mse(ahead), Some(0.0));
                prop_assert_eq!(perfect.scored(ahead), (counts.len() + 1 - ahead) as u64);
            }
            let constant = super::score(&mut Constant(mean), &counts, window);
            let mse = constant.mse(1).unwrap();
            prop_assert!((mse - variance).abs() <= 1e-6 * variance.max(1.0), "{mse} {variance}");
            prop_assert!(constant.bias(1).unwrap().abs() < 1e-6);
        }
    }
}
