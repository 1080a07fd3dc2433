//! What arrives at a spout instance, slot by slot, whatever is decided elsewhere.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Gamma, Poisson};

use super::SimError;
use super::config::Arrivals;

/// Tuples of so many slots at the spout instance `number` of `spouts`, `mean` per slot.
pub(super) fn series(
    arrivals: &Arrivals,
    seed: u64,
    (number, spouts): (usize, usize),
    mean: f64,
    slots: usize,
) -> Result<Vec<u64>, SimError> {
    let mut random = SmallRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number as u64);
    if mean == 0.0 {
        return Ok(vec![0; slots]);
    }
    let cannot = |why: String| SimError::Config(format!("arrivals of mean {mean}: {why}"));
    match arrivals {
        Arrivals::Poisson => {
            let counts = Poisson::new(mean).map_err(|why| cannot(why.to_string()))?;
            Ok((0..slots).map(|_| counts.sample(&mut random) as u64).collect())
        }
        Arrivals::Overdispersed { ratio } => {
            // The mean is drawn with variance mean * (ratio - 1); Poisson adds a variance of mean.
            let scale = ratio - 1.0;
            let means = Gamma::new(mean / scale, scale).map_err(|why| cannot(why.to_string()))?;
            let mut count = || {
                let mean = means.sample(&mut random);
                Poisson::new(mean).map_or(0, |counts| counts.sample(&mut random) as u64)
            };
            Ok((0..slots).map(|_| count()).collect())
        }
        Arrivals::Trace { counts, name } => {
            let of_trace = counts.iter().sum::<f64>() / counts.len().max(1) as f64;
            if of_trace.is_nan() || of_trace <= 0.0 {
                return Err(SimError::Config(format!("the trace {name} has no arrivals")));
            }
            let first = number * counts.len() / spouts;
            let scaled = counts.iter().cycle().skip(first).map(|count| count * mean / of_trace);
            // Rounding by lot keeps the mean.
            let round = |exact: f64| exact.floor() as u64 + u64::from(random.random::<f64>() < exact.fract());
            Ok(scaled.map(round).take(slots).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(arrivals: &Arrivals, mean: f64) -> (f64, f64) {
        let counts = series(arrivals, 7, (3, 15), mean, 100_000).unwrap();
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        let variance = counts.iter().map(|c| (*c as f64 - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        (mean, variance / mean)
    }

    #[test]
    fn counts_have_the_mean_and_the_variance_that_are_asked_for() {
        let (mean, ratio) = moments(&Arrivals::Poisson, 2.0);
        assert!((mean - 2.0).abs() < 0.03 && (ratio - 1.0).abs() < 0.03, "{mean} {ratio}");
        let (mean, ratio) = moments(&Arrivals::Overdispersed { ratio: 5.0 }, 2.0);
        assert!((mean - 2.0).abs() < 0.06 && (ratio - 5.0).abs() < 0.3, "{mean} {ratio}");
    }

    #[test]
    fn a_trace_is_scaled_and_begins_elsewhere_at_each_spout() {
        let counts: std::sync::Arc<[f64]> = [0.0, 10.0, 20.0, 30.0].into();
        let trace = Arrivals::Trace { counts, name: "four".to_owned() };
        assert_eq!(series(&trace, 1, (0, 4), 3.0, 6).unwrap(), [0, 2, 4, 6, 0, 2]);
        assert_eq!(series(&trace, 1, (1, 4), 3.0, 6).unwrap(), [2, 4, 6, 0, 2, 4]);
        let (mean, _) = moments(&trace, 2.5);
        assert!((mean - 2.5).abs() < 0.02, "{mean}");
        let empty = Arrivals::Trace { counts: [0.0].into(), name: "none".to_owned() };
        assert!(series(&empty, 1, (0, 1), 3.0, 6).is_err());
    }

    #[test]
    fn a_longer_series_begins_as_the_shorter() {
        for arrivals in [Arrivals::Poisson, Arrivals::Overdispersed { ratio: 3.0 }] {
            let short = series(&arrivals, 5, (1, 4), 2.0, 50).unwrap();
            assert_eq!(series(&arrivals, 5, (1, 4), 2.0, 90).unwrap()[..50], short);
        }
    }
}
