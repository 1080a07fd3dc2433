//! Whole rows out of real-valued forecasts, and the lots that predictors draw.

use crate::route::rank::Lots;

/// Rounds real-valued numbers of rows to whole ones so that their mean stays (potus.md, F13).
///
/// A slot has one lot, made from the seed and the slot's number: the same value for the same slot is rounded the same
/// way whenever it is asked for, so that a forecast that is revised each slot does not grow by rounding alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rounding {
    /// Feeds the lots.
    pub seed: u64,
    /// The most rows of a slot (`lambda_max`).
    pub most: u64,
}

impl Rounding {
    /// Rounds with this seed and without a limit.
    pub fn new(seed: u64) -> Self {
        Self { seed, most: u64::MAX }
    }

    /// Whole rows of a slot: the number below `rows`, or the one above with the probability of the fraction, clipped
    /// to 0 ..= `most`. What is not a number counts as 0.
    pub fn rows(&self, slot: u64, rows: f64) -> u64 {
        let below = rows.floor();
        let up = unit(&mut Lots(stream(self.seed, slot))) < rows - below;
        // The cast clips what is below 0 or beyond 2^64, and makes 0 of what is not a number.
        (below as u64).saturating_add(u64::from(up && below >= 0.0)).min(self.most)
    }

    /// Whole rows of `window` slots from slot `first` on; what the forecast does not reach counts as 0.
    pub fn forecast(&self, first: u64, forecast: &[f64], window: usize) -> Vec<u64> {
        let forecast = forecast.iter().copied().chain(std::iter::repeat(0.0));
        (first..).zip(forecast).take(window).map(|(slot, rows)| self.rows(slot, rows)).collect()
    }
}

/// A seed of its own for each number, so that lots can be drawn in any order.
pub(super) fn stream(seed: u64, number: u64) -> u64 {
    Lots(seed ^ Lots(number).next()).next()
}

/// A real number from 0 up to, but not including, 1.
pub(super) fn unit(lots: &mut Lots) -> f64 {
    const STEP: f64 = 1.0 / (1u64 << 53) as f64;
    (lots.next() >> 11) as f64 * STEP
}

/// A Poisson number of this mean (finite, at least 0): products of lots (Knuth) in steps whose exponential does not
/// vanish; for means above 4,096 the normal distribution, which by then differs by less than a hundredth of a standard deviation.
pub(super) fn poisson(lots: &mut Lots, mean: f64) -> u64 {
    if mean > 4096.0 {
        // Box and Muller's pair, of which one is used.
        let radius = (-2.0 * (1.0 - unit(lots)).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * unit(lots)).cos();
        return mean.sqrt().mul_add(normal, mean).round() as u64;
    }
    let (mut left, mut number) = (mean, 0);
    while left > 0.0 {
        let step = left.min(16.0);
        left -= step;
        let end = (-step).exp();
        let mut product = unit(lots);
        while product > end {
            number += 1;
            product *= unit(lots);
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_mean_stays() {
        let rounding = Rounding::new(3);
        let sum: u64 = (0..100_000).map(|slot| rounding.rows(slot, 2.3)).sum();
        // Six standard deviations of a mean of 100,000 lots are 0.009.
        assert!((sum as f64 / 100_000.0 - 2.3).abs() < 0.009, "{sum}");
    }

    #[test]
    fn what_is_no_number_of_rows_is_clipped() {
        let rounding = Rounding { seed: 1, most: 9 };
        for slot in 0..100 {
            for (rows, whole) in
                [(-0.5, 0), (-7.0, 0), (f64::NAN, 0), (f64::INFINITY, 9), (9.5, 9), (1e300, 9)]
            {
                assert_eq!(rounding.rows(slot, rows), whole, "{rows}");
            }
        }
    }

    #[test]
    fn what_a_forecast_does_not_reach_is_not_predicted() {
        let rounding = Rounding::new(1);
        assert_eq!(rounding.forecast(7, &[2.0, 3.0], 4), [2, 3, 0, 0]);
        assert_eq!(rounding.forecast(7, &[2.0, 3.0], 1), [2]);
    }

    #[test]
    fn poisson_numbers_have_their_mean_and_variance() {
        let mut lots = Lots(8);
        assert_eq!(poisson(&mut lots, 0.0), 0);
        for mean in [0.3, 4.0, 40.0, 5000.0] {
            let numbers: Vec<f64> = (0..20_000).map(|_| poisson(&mut lots, mean) as f64).collect();
            let found = numbers.iter().sum::<f64>() / 20_000.0;
            let variance = numbers.iter().map(|n| (n - found).powi(2)).sum::<f64>() / 20_000.0;
            // Six standard deviations of a mean, and as many or more of a variance.
            assert!((found - mean).abs() < 6.0 * (mean / 20_000.0).sqrt(), "{found} of {mean}");
            assert!((variance / mean - 1.0).abs() < 0.13, "{variance} of {mean}");
        }
    }

    proptest! {
        #[test]
        fn one_of_the_two_neighbours_and_the_same_each_time(seed: u64, slot: u64, rows in 0.0..1e9, more in 0.0..10.0) {
            let rounding = Rounding::new(seed);
            let whole = rounding.rows(slot, rows);
            prop_assert!(whole == rows.floor() as u64 || whole == rows.ceil() as u64, "{whole}");
            prop_assert_eq!(whole, rounding.rows(slot, rows));
            // A slot's lot is fixed: more is never rounded to less.
            prop_assert!(rounding.rows(slot, rows + more) >= whole);
            prop_assert_eq!(rounding.rows(slot, rows.floor()), rows.floor() as u64);
        }
    }
}
