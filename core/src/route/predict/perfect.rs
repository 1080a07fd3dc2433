//! Knows what will arrive: for simulations, and for sources that can see ahead.

use std::sync::Arc;

use super::Predictor;

/// Gives the arrivals themselves; after the last known slot nothing arrives.
#[derive(Debug, Clone)]
pub struct Perfect {
    arrivals: Arc<[u64]>,
    next: u64,
}

impl Perfect {
    /// `arrivals[slot]` rows arrive in each slot.
    pub fn new(arrivals: Arc<[u64]>) -> Self {
        Self { arrivals, next: 0 }
    }
}

impl Predictor for Perfect {
    fn name(&self) -> &'static str {
        "perfect"
    }

    fn observe(&mut self, slot: u64, _arrived: u64) {
        self.next = slot.saturating_add(1);
    }

    fn forecast(&mut self, window: usize) -> Vec<f64> {
        let known =
            usize::try_from(self.next).ok().and_then(|next| self.arrivals.get(next..)).unwrap_or_default();
        known.iter().map(|rows| *rows as f64).chain(std::iter::repeat(0.0)).take(window).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_moves_with_the_slots_and_ends_in_nothing() {
        let mut perfect = Perfect::new([5, 6, 7].into());
        assert_eq!(perfect.forecast(2), [5.0, 6.0]);
        perfect.observe(0, 5);
        assert_eq!(perfect.forecast(4), [6.0, 7.0, 0.0, 0.0]);
        perfect.observe(u64::MAX, 5);
        assert_eq!(perfect.forecast(1), [0.0]);
    }
}
