//! How many rows an instance takes at once: so many that a step lasts about as long as it may.

use std::time::{Duration, Instant};

use super::super::rows::MOST_ROWS;
use super::STEP;

/// How many rows make a step: measured.
pub(super) struct Stride {
    /// 0 while nothing is known.
    pub(super) ns_per_row: f64,
    /// The most rows that were measured at once.
    most: usize,
    pub(super) adapted: Instant,
}

impl Stride {
    /// `expected`: the cost of a row, as far as it is known beforehand.
    pub(super) fn new(expected: Duration) -> Self {
        Self { ns_per_row: expected.as_nanos() as f64, most: 0, adapted: Instant::now() }
    }

    pub(super) fn rows(&self) -> usize {
        if self.ns_per_row <= 0.0 {
            return 1;
        }
        ((STEP.as_nanos() as f64 / self.ns_per_row) as usize).clamp(1, MOST_ROWS)
    }

    pub(super) fn measure(&mut self, rows: usize, busy_ns: u64) {
        // A clock that has not moved says that the rows cost next to nothing.
        let now = (busy_ns as f64 / rows.max(1) as f64).max(f64::MIN_POSITIVE);
        // The cost of a batch spreads over its rows: more rows than ever tell more than all before.
        let new = self.ns_per_row <= 0.0 || rows > self.most;
        self.ns_per_row = if new { now } else { 0.8 * self.ns_per_row + 0.2 * now };
        self.most = self.most.max(rows);
    }
}
