//! What arrives at a spout instance, slot by slot, whatever is decided elsewhere.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Gamma, Poisson};

use super::SimError;
use super::config::Arrivals;
use crate::arrivals::Scale;

/// Tuples of so many slots at the spout instance of this number, `mean` per slot. A trace begins at each instance at
/// a place that the seed draws: else all seeds would see the same, and their spread would tell nothing.
pub(super) fn series(
    arrivals: &Arrivals,
    seed: u64,
    number: usize,
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
            let first = random.random_range(0..rows.len());
            Ok(rows.into_iter().cycle().skip(first).take(slots).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::arrivals::{Format, Series};

    fn trace(counts: &str) -> Arrivals {
        let text = format!("n\n{counts}");
        let counts = Series::parse(text.as_bytes(), Path::new("four.csv"), &Format::default()).unwrap();
        Arrivals::Trace { counts: counts.into(), name: "four.csv".to_owned() }
    }

    fn moments(arrivals: &Arrivals, mean: f64) -> (f64, f64) {
        let counts = series(arrivals, 7, 3, mean, 100_000).unwrap();
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
    fn a_trace_is_scaled_and_begins_where_the_lot_falls() {
        let four = trace("0\n10\n20\n30\n");
        let mut begun = std::collections::BTreeSet::new();
        for (seed, number) in (0..8).flat_map(|seed| (0..8).map(move |number| (seed, number))) {
            let counts = series(&four, seed, number, 3.0, 6).unwrap();
            assert!((0..6).all(|slot| counts[slot] == (counts[0] + 2 * slot as u64) % 8), "{counts:?}");
            begun.insert((seed % 2, counts[0]));
        }
        assert_eq!(begun.len(), 8, "anywhere, whatever the seed: {begun:?}");
        let error = series(&trace("0\n"), 1, 0, 3.0, 6).unwrap_err().to_string();
        assert!(error.contains("four.csv") && error.contains("nothing arrives"), "{error}");
    }

    #[test]
    fn under_a_trace_seeds_differ_by_more_than_rounding() {
        // Low for long, then high for long: how spouts lie to one another matters.
        let rows: String = (0..400).map(|slot| if slot % 100 < 80 { "1\n" } else { "16\n" }).collect();
        let bursts = trace(&rows);
        let all = |seed| {
            let spouts = (0..15).map(|number| series(&bursts, seed, number, 2.0, 400).unwrap());
            spouts.fold(vec![0; 400], |sum: Vec<u64>, one| sum.iter().zip(one).map(|(a, b)| a + b).collect())
        };
        let runs: Vec<Vec<u64>> = (1..=5).map(all).collect();
        for (number, one) in runs.iter().enumerate() {
            for other in &runs[number + 1..] {
                // Rounding moves a count by less than 1 at each of 15 spouts.
                let apart = one.iter().zip(other).filter(|(a, b)| a.abs_diff(**b) >= 15).count();
                assert!(apart > 40, "{apart} of 400 slots");
            }
        }
    }

    #[test]
    fn a_longer_series_begins_as_the_shorter() {
        for arrivals in [Arrivals::Poisson, Arrivals::Overdispersed { ratio: 3.0 }] {
            let short = series(&arrivals, 5, 1, 2.0, 50).unwrap();
            assert_eq!(series(&arrivals, 5, 1, 2.0, 90).unwrap()[..50], short);
        }
    }
}
