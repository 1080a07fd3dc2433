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
    /// Each holds in slots of its own.
    limits: Vec<Limit>,
    began: Instant,
}

/// What one edge sets: so many rows in slots of this length.
#[derive(Debug)]
struct Limit {
    edge: u32,
    rows: u64,
    slot: Duration,
    /// The slot in which `spent` rows were sent.
    number: u128,
    spent: u64,
}

impl Limit {
    /// A new slot begins with nothing spent. Edges ask in no order: one that comes late with an earlier instant is in
    /// the slot that has begun since.
    fn turn(&mut self, began: Instant, now: Instant) {
        let number = now.saturating_duration_since(began).as_nanos() / self.slot.as_nanos().max(1);
        if number > self.number {
            (self.number, self.spent) = (number, 0);
        }
    }
}

impl Quota {
    /// Without a limit; slots are counted from `began`.
    pub(crate) fn new(began: Instant) -> Self {
        let state = State { limits: Vec::new(), began };
        Self { limited: AtomicBool::new(false), state: Mutex::new(state) }
    }

    /// An edge sets a limit of so many rows a slot, or takes it back.
    pub(crate) fn set(&self, edge: u32, limit: Option<(u64, Duration)>) {
        let mut state = lock(&self.state);
        state.limits.retain(|limit| limit.edge != edge);
        state.limits.extend(limit.map(|(rows, slot)| Limit { edge, rows, slot, number: 0, spent: 0 }));
        self.limited.store(!state.limits.is_empty(), Ordering::Relaxed);
    }

    /// Rows that may still be sent now by every limit.
    pub(crate) fn left(&self, now: Instant) -> u64 {
        if !self.limited.load(Ordering::Relaxed) {
            return u64::MAX;
        }
        let mut state = lock(&self.state);
        let State { limits, began } = &mut *state;
        let left = limits.iter_mut().map(|limit| {
            limit.turn(*began, now);
            limit.rows.saturating_sub(limit.spent)
        });
        left.min().unwrap_or(u64::MAX)
    }

    /// Rows have been sent, on whichever edge.
    pub(crate) fn spend(&self, rows: u64, now: Instant) {
        if !self.limited.load(Ordering::Relaxed) {
            return;
        }
        let mut state = lock(&self.state);
        let State { limits, began } = &mut *state;
        for limit in limits {
            limit.turn(*began, now);
            limit.spent += rows;
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
        quota.spend(5, began);
        let hour = Duration::from_hours(1);
        quota.set(0, Some((10, hour)));
        quota.set(1, Some((7, hour)));
        assert_eq!(quota.left(began), 7, "what was sent before there was a limit is past");
        quota.spend(3, began);
        assert_eq!(quota.left(began), 4);
        quota.spend(9, began);
        assert_eq!(quota.left(began), 0);
        assert_eq!(quota.left(began + hour), 7);
        quota.set(1, None);
        assert_eq!(quota.left(began + hour), 10);
        quota.set(0, None);
        assert_eq!(quota.left(began + hour), u64::MAX);
    }

    #[test]
    fn each_limit_holds_in_its_own_slots() {
        let began = Instant::now();
        let ms = Duration::from_millis;
        let quota = Quota::new(began);
        quota.set(0, Some((10, ms(100))));
        quota.set(1, Some((20, ms(1000))));
        // 20 a second are less than 10 in each tenth of it.
        let mut sent = 0;
        for slot in 0..10 {
            let left = quota.left(began + ms(slot * 100));
            assert!(left <= 10, "{left}");
            quota.spend(left, began + ms(slot * 100));
            sent += left;
        }
        assert_eq!(sent, 20);
        assert_eq!(quota.left(began + ms(1000)), 10);
    }

    #[test]
    fn a_slot_is_not_given_again_to_one_that_comes_late() {
        let began = Instant::now();
        let slot = Duration::from_millis(5);
        let quota = Quota::new(began);
        quota.set(0, Some((10, slot)));
        quota.spend(10, began + slot);
        assert_eq!(quota.left(began), 0, "a tick that began in the slot before");
        assert_eq!(quota.left(began + slot), 0);
        quota.spend(1, began);
        assert_eq!(quota.left(began + slot), 0);
        assert_eq!(quota.left(began + 2 * slot), 10);
    }
}
