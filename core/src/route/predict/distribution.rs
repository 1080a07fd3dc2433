//! "Distr" of the publication: a lot from the counts of the past.

use std::collections::VecDeque;

use super::{Predictor, Refusal};
use crate::route::rank::Lots;

/// Draws each slot's arrivals from the empirical distribution of past counts, independently of the others.
///
/// A slot's lot is drawn when the window first reaches it and stays: what is predicted for a slot does not change while
/// the window passes over it.
#[derive(Debug, Clone)]
pub struct Distribution {
    memory: usize,
    /// The last counts; the oldest is at `oldest` once there are `memory` of them.
    counts: Vec<u64>,
    oldest: usize,
    lots: Lots,
    /// Drawn for the slots after the last observed one.
    ahead: VecDeque<u64>,
}

impl Distribution {
    /// Over the last `memory` slots.
    ///
    /// # Errors
    /// If `memory` is 0.
    pub fn new(memory: usize, seed: u64) -> Result<Self, Refusal> {
        if memory == 0 {
            return Err(Refusal::new("`memory` is 0: a distribution takes at least one slot"));
        }
        Ok(Self { memory, counts: Vec::new(), oldest: 0, lots: Lots(seed), ahead: VecDeque::new() })
    }
}

impl Predictor for Distribution {
    fn name(&self) -> &'static str {
        "distr"
    }

    fn observe(&mut self, _slot: u64, arrived: u64) {
        self.ahead.pop_front();
        if self.counts.len() < self.memory {
            self.counts.push(arrived);
        } else {
            self.counts[self.oldest] = arrived;
            self.oldest = (self.oldest + 1) % self.memory;
        }
    }

    fn forecast(&mut self, window: usize) -> Vec<f64> {
        if self.counts.is_empty() {
            return Vec::new();
        }
        while self.ahead.len() < window {
            self.ahead.push_back(self.counts[self.lots.below(self.counts.len() as u64) as usize]);
        }
        self.ahead.iter().take(window).map(|rows| *rows as f64).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lots_follow_the_counts() {
        let mut distr = Distribution::new(10, 4).unwrap();
        assert_eq!(distr.forecast(3), [0.0; 0]);
        for (slot, count) in (0..).zip([3, 3, 3, 8]) {
            distr.observe(slot, count);
        }
        let eights = distr.forecast(40_000).iter().filter(|rows| **rows > 7.5).count();
        // A quarter, and six standard deviations.
        assert!((9_480..10_520).contains(&eights), "{eights}");
        assert!(Distribution::new(0, 4).is_err());
    }

    proptest! {
        #[test]
        fn lots_are_counts_of_the_memory_and_stay(counts in prop::collection::vec(0u64..50, 1..80), memory in 1usize..20, window in 1usize..6, seed: u64) {
            let mut distr = Distribution::new(memory, seed).unwrap();
            let mut before: Vec<f64> = Vec::new();
            for (slot, count) in counts.iter().enumerate() {
                distr.observe(slot as u64, *count);
                let forecast = distr.forecast(window);
                prop_assert_eq!(forecast.len(), window);
                // Each is a count that was in the memory when the window first reached its slot, and no slot's changes.
                let known = &counts[(slot + 1).saturating_sub(memory + window)..=slot];
                prop_assert!(forecast.iter().all(|rows| known.contains(&(*rows as u64))));
                if let Some(kept) = before.get(1..) {
                    prop_assert_eq!(&forecast[..kept.len()], kept);
                }
                prop_assert_eq!(&distr.forecast(window), &forecast);
                before = forecast;
            }
        }
    }
}
