//! Arrivals that repeat: seasons by STL decomposition, on a level that a Kalman filter follows.

use std::collections::VecDeque;

use stlrs::MstlParams;

use super::{Kalman, Predictor, Refusal};

/// What repeats with one or more periods, found by STL (Cleveland et al. 1990; for more periods MSTL, Bandara et al.
/// 2021), plus the level of what is left when it is taken off, by a [`Kalman`] filter that estimates its variances.
///
/// Until two of the longest period have been seen there are no seasons: it is that filter.
#[derive(Debug, Clone)]
pub struct Seasonal {
    periods: Vec<usize>,
    memory: usize,
    every: usize,
    last: VecDeque<f64>,
    /// Slots seen since the seasons were found.
    since: usize,
    /// The last turn of each period's season when they were found.
    seasons: Vec<Vec<f64>>,
    fresh: Kalman,
    level: Kalman,
}

/// How [`Seasonal`] works; lengths in slots.
#[derive(Debug, Clone, PartialEq)]
pub struct Seasons {
    /// After how many slots arrivals repeat: one period or more, each of at least 2.
    pub periods: Vec<usize>,
    /// The seasons are found in so many of the last slots, at least two of the longest period.
    pub memory: usize,
    /// They are found again after so many slots.
    pub every: usize,
}

impl Seasonal {
    /// The longest memory: what bounds the cost of finding seasons.
    pub const MOST: usize = 1 << 17;

    /// With these seasons.
    ///
    /// # Errors
    /// If a period is below 2 or there is none, the memory is below two of the longest period or above
    /// [`Self::MOST`], or `every` is 0.
    pub fn new(seasons: Seasons) -> Result<Self, Refusal> {
        let Seasons { periods, memory, every } = seasons;
        let longest = periods.iter().copied().max().unwrap_or_default();
        if periods.iter().any(|period| *period < 2) || longest == 0 {
            return Err(Refusal::new("`period` takes numbers of slots, each at least 2"));
        }
        if memory / 2 < longest || memory > Self::MOST {
            return Err(Refusal::new(format!(
                "`memory` is {memory}: it takes at least two of the longest period, {longest} slots, and at most {}",
                Self::MOST
            )));
        }
        if every == 0 {
            return Err(Refusal::new("`every` is 0: seasons are found again after at least one slot"));
        }
        let fresh = Kalman::estimating(memory)?;
        let (last, level) = (VecDeque::new(), fresh.clone());
        Ok(Self { periods, memory, every, last, since: 0, seasons: Vec::new(), fresh, level })
    }

    /// What repeats, in the `slot`-th slot (from 1) after the seasons were found.
    fn season(&self, slot: usize) -> f64 {
        self.seasons.iter().map(|turn| turn[(slot - 1) % turn.len()]).sum()
    }

    fn find(&mut self) {
        let last = self.last.make_contiguous();
        // It fails only where the constructor refuses, or with fewer than two periods, of which the caller knows.
        let Ok(found) = MstlParams::new().fit(last, &self.periods) else { return };
        let parts = found.seasonal();
        self.level = self.fresh.clone();
        for (slot, rows) in last.iter().enumerate() {
            self.level.add(rows - parts.iter().map(|part| part[slot]).sum::<f64>());
        }
        let turn = |(part, period): (&Vec<f64>, &usize)| part[part.len() - period..].to_vec();
        self.seasons = parts.iter().zip(&self.periods).map(turn).collect();
        self.since = 0;
    }
}

impl Predictor for Seasonal {
    fn name(&self) -> &'static str {
        "seasonal"
    }

    fn observe(&mut self, _slot: u64, arrived: u64) {
        let rows = arrived as f64;
        if self.last.len() == self.memory {
            self.last.pop_front();
        }
        self.last.push_back(rows);
        self.since += 1;
        self.level.add(rows - self.season(self.since));
        let two = self.periods.iter().max().map_or(0, |longest| 2 * longest);
        let due = if self.seasons.is_empty() { self.last.len() >= two } else { self.since >= self.every };
        if due {
            self.find();
        }
    }

    fn forecast(&mut self, window: usize) -> Vec<f64> {
        let Some(level) = self.level.level() else { return Vec::new() };
        (1..=window).map(|ahead| (level + self.season(self.since + ahead)).max(0.0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::route::predict::score;

    fn seasons(periods: &[usize]) -> Seasons {
        let longest = periods.iter().copied().max().unwrap_or_default();
        Seasons { periods: periods.into(), memory: 4 * longest, every: longest.max(1) }
    }

    #[test]
    fn seasons_that_cannot_be_are_refused() {
        let good = seasons(&[8]);
        assert!(Seasonal::new(good.clone()).is_ok());
        for bad in [
            seasons(&[]),
            seasons(&[8, 1]),
            Seasons { memory: 15, ..good.clone() },
            Seasons { memory: Seasonal::MOST + 1, ..good.clone() },
            Seasons { every: 0, ..good },
        ] {
            assert!(Seasonal::new(bad.clone()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn two_periods_at_once_are_found() {
        let arrivals: Vec<u64> =
            (0..480).map(|slot| [0, 40, 80, 20][slot % 4] + [5, 95, 50, 0, 0, 10][slot % 6]).collect();
        let mut seasonal = Seasonal::new(seasons(&[4, 6])).unwrap();
        for (slot, arrived) in (0..).zip(&arrivals[..400]) {
            seasonal.observe(slot, *arrived);
        }
        for (forecast, arrived) in seasonal.forecast(80).iter().zip(&arrivals[400..]) {
            assert!((forecast - *arrived as f64).abs() < 2.0, "{forecast} {arrived}");
        }
    }

    proptest! {
        /// What repeats exactly is predicted, wherever in its period the predictor stands and whenever it last looked.
        #[test]
        fn what_repeats_is_predicted(turn in prop::collection::vec(0u64..500, 2..12), every in 1usize..30, more in 0usize..30) {
            let period = turn.len();
            let arrivals: Vec<u64> = turn.iter().copied().cycle().take(4 * period + more).collect();
            let mut seasonal = Seasonal::new(Seasons { every, ..seasons(&[period]) }).unwrap();
            for (slot, arrived) in (0..).zip(&arrivals) {
                seasonal.observe(slot, *arrived);
            }
            for (ahead, forecast) in seasonal.forecast(2 * period).iter().enumerate() {
                let arrived = turn[(arrivals.len() + ahead) % period] as f64;
                prop_assert!((forecast - arrived).abs() < 1.0, "{forecast} {arrived} {ahead}");
            }
        }

        #[test]
        fn forecasts_are_finite_and_not_below_zero(counts in prop::collection::vec(0u64..1 << 50, 0..60), period in 2usize..20) {
            let mut seasonal = Seasonal::new(seasons(&[period])).unwrap();
            let scored = score(&mut seasonal, &counts, 3);
            prop_assert!(scored.mse(1).is_none_or(f64::is_finite));
            prop_assert!(seasonal.forecast(3).iter().all(|rows| rows.is_finite() && *rows >= 0.0));
        }
    }
}
