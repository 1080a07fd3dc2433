//! Gamma: the most rows that one sending instance may send in a slot, over all its edges.

use std::time::{Duration, Instant};

use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// The quota of one instance, which its edges share.
#[derive(Debug)]
pub(crate) struct Quota {
    /// Some edge sets one: others look no further where none does.
    limited: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// By the edge that sets it: rows, and the slot's length. The least holds.
    limits: Vec<(u32, u64, Duration)>,
    began: Instant,
    slot: u128,
    spent: u64,
}

impl State {
    fn limit(&self) -> Option<(u64, Duration)> {
        self.limits.iter().map(|(_, rows, slot)| (*rows, *slot)).min()
    }

    /// A new slot begins with nothing spent.
    fn turn(&mut self, slot: Duration, now: Instant) {
        let number = now.saturating_duration_since(self.began).as_nanos() / slot.as_nanos().max(1);
        if number != self.slot {
            (self.slot, self.spent) = (number, 0);
        }
    }
}

impl Quota {
    /// Without a limit; slots are counted from `began`.
    pub(crate) fn new(began: Instant) -> Self {
        let state = State { limits: Vec::new(), began, slot: 0, spent: 0 };
        Self { limited: AtomicBool::new(false), state: Mutex::new(state) }
    }

    /// An edge sets a limit of so many rows a slot, or takes it back.
    pub(crate) fn set(&self, edge: u32, limit: Option<(u64, Duration)>) {
        let mut state = lock(&self.state);
        state.limits.retain(|(of, ..)| *of != edge);
        state.limits.extend(limit.map(|(rows, slot)| (edge, rows, slot)));
        self.limited.store(!state.limits.is_empty(), Ordering::Relaxed);
    }

    /// Rows that may still be sent in this slot.
    pub(crate) fn left(&self, now: Instant) -> u64 {
        if !self.limited.load(Ordering::Relaxed) {
            return u64::MAX;
        }
        let mut state = lock(&self.state);
        let Some((rows, slot)) = state.limit() else { return u64::MAX };
        state.turn(slot, now);
        rows.saturating_sub(state.spent)
    }

    /// Rows have been sent, on whichever edge.
    pub(crate) fn spend(&self, rows: u64) {
        if !self.limited.load(Ordering::Relaxed) {
            return;
        }
        let mut state = lock(&self.state);
        if let Some((_, slot)) = state.limit() {
            state.turn(slot, Instant::now());
            state.spent += rows;
        }
    }
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_holds_and_each_slot_begins_anew() {
        let began = Instant::now();
        let quota = Quota::new(began);
        assert_eq!(quota.left(began), u64::MAX);
        quota.spend(5);
        let hour = Duration::from_hours(1);
        quota.set(0, Some((10, hour)));
        quota.set(1, Some((7, hour)));
        assert_eq!(quota.left(began), 7, "what was sent before there was a limit is past");
        quota.spend(3);
        assert_eq!(quota.left(Instant::now()), 4);
        quota.spend(9);
        assert_eq!(quota.left(Instant::now()), 0);
        assert_eq!(quota.left(began + hour), 7);
        quota.set(1, None);
        assert_eq!(quota.left(began + hour), 10);
        quota.set(0, None);
        assert_eq!(quota.left(began + hour), u64::MAX);
    }
}
