//! What arrives at a spout instance, slot by slot, whatever is decided elsewhere.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Gamma, Poisson};

use super::SimError;
use super::config::Arrivals;
use crate::arrivals::Scale;

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
            let rows = counts.rows(Scale::Mean(mean), random.random());
            let rows = rows.map_err(|why| cannot(format!("of the trace {name}: {why}")))?;
            let first = number * rows.len() / spouts;
            Ok(rows.into_iter().cycle().skip(first).take(slots).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::arrivals::{Format, Series};

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
        let trace = |counts: &str| {
            let counts = Series::parse(counts.as_bytes(), Path::new("four.csv"), &Format::default()).unwrap();
            Arrivals::Trace { counts: counts.into(), name: "four.csv".to_owned() }
        };
        let four = trace("n\n0\n10\n20\n30\n");
        assert_eq!(series(&four, 1, (0, 4), 3.0, 6).unwrap(), [0, 2, 4, 6, 0, 2]);
        assert_eq!(series(&four, 1, (1, 4), 3.0, 6).unwrap(), [2, 4, 6, 0, 2, 4]);
        let error = series(&trace("n\n0\n"), 1, (0, 1), 3.0, 6).unwrap_err().to_string();
        assert!(error.contains("four.csv") && error.contains("nothing arrives"), "{error}");
    }

    #[test]
    fn a_longer_series_begins_as_the_shorter() {
        for arrivals in [Arrivals::Poisson, Arrivals::Overdispersed { ratio: 3.0 }] {
            let short = series(&arrivals, 5, (1, 4), 2.0, 50).unwrap();
            assert_eq!(series(&arrivals, 5, (1, 4), 2.0, 90).unwrap()[..50], short);
        }
    }
}
