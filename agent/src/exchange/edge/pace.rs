//! How many rows a second come to an edge: what the length of runs is chosen by.

use std::time::{Duration, Instant};

/// Rates are measured over so long to choose the length of runs.
const PACE_WINDOW: Duration = Duration::from_millis(250);
/// Below so many rows a second rows are dealt one by one, so that shares are exact.
const SLOW: f64 = 1000.0;

/// How many rows come. A window ends with the first rows that come after its length, so that it may be longer.
#[derive(Debug)]
pub(super) struct Pace {
    since: Instant,
    /// Rows since then.
    now: u64,
    /// Rows a second in the last whole window.
    last: f64,
}

impl Pace {
    pub(super) fn new(since: Instant) -> Self {
        Self { since, now: 0, last: 0.0 }
    }

    pub(super) fn add(&mut self, rows: u64, at: Instant) {
        if at.saturating_duration_since(self.since) >= PACE_WINDOW {
            (self.last, self.now, self.since) = (self.rate(at), 0, at);
        }
        self.now += rows;
    }

    /// Rows a second: of the last whole window, or of this one once it is as long. While nothing comes it falls.
    pub(super) fn rate(&self, at: Instant) -> f64 {
        let length = at.saturating_duration_since(self.since);
        if length < PACE_WINDOW { self.last } else { self.now as f64 / length.as_secs_f64() }
    }

    pub(super) fn is_slow(&self) -> bool {
        self.last.max(self.now as f64 / PACE_WINDOW.as_secs_f64()) < SLOW
    }
}
