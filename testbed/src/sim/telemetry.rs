//! What containers know of the queues at targets, when it is old (potus.md F8).

use std::collections::VecDeque;

use tuplane_core::route::{Others, reckon, reckon_by_slot};

use super::config::Telemetry;

/// Queues of one slot.
#[derive(Debug, Clone)]
struct Snapshot {
    slot: i64,
    /// By instance: its queue.
    lengths: Vec<u64>,
    /// By instance: tuples that it had got before the slot.
    received: Vec<u64>,
    /// By container and instance: tuples that the one had sent to the other.
    sent: Vec<u64>,
}

/// Queue lengths as containers see them.
#[derive(Debug)]
pub(super) struct Known {
    telemetry: Telemetry,
    dead_reckoning: bool,
    start: i64,
    now: i64,
    instances: usize,
    /// Told: what has arrived last, then what is on its way.
    told: VecDeque<Snapshot>,
    /// The slot whose queues arrived last.
    arrived: Option<i64>,
    received: Vec<u64>,
    sent: Vec<u64>,
    /// By slot, the last one being `now`: what was sent in it, by container and instance.
    lately: VecDeque<Vec<u32>>,
    others: Vec<Others>,
}

impl Known {
    pub(super) fn new(
        telemetry: Telemetry,
        dead_reckoning: bool,
        start: i64,
        containers: usize,
        instances: usize,
    ) -> Self {
        let pairs = if telemetry.is_fresh() { 0 } else { containers * instances };
        Self {
            telemetry,
            dead_reckoning,
            start,
            now: start,
            instances,
            told: VecDeque::new(),
            arrived: None,
            received: vec![0; instances],
            sent: vec![0; pairs],
            lately: VecDeque::new(),
            others: vec![Others::default(); pairs],
        }
    }

    /// A slot begins with these queue lengths.
    pub(super) fn begin(&mut self, slot: i64, lengths: &[u64]) {
        self.now = slot;
        let Telemetry { every, delay, .. } = self.telemetry;
        if self.telemetry.is_fresh() {
            return;
        }
        if (slot - self.start) % i64::from(every.max(1)) == 0 {
            let (received, sent) = (self.received.clone(), self.sent.clone());
            self.told.push_back(Snapshot { slot, lengths: lengths.to_vec(), received, sent });
        }
        let by_now = slot - i64::from(delay);
        while self.told.get(1).is_some_and(|next| next.slot <= by_now) {
            self.told.pop_front();
        }
        let news = self.told.front().filter(|told| told.slot <= by_now && self.arrived != Some(told.slot));
        if let Some(told) = news {
            self.arrived = Some(told.slot);
            for (pair, (others, sent)) in self.others.iter_mut().zip(&told.sent).enumerate() {
                others.count(told.slot, told.received[pair % self.instances], *sent);
            }
        }
        let most = (every + delay) as usize + 1;
        let mut new =
            if self.lately.len() > most { self.lately.pop_front() } else { None }.unwrap_or_default();
        new.clear();
        new.resize(self.sent.len(), 0);
        self.lately.push_back(new);
    }

    /// The queue at an instance of a capacity, as a container sees it; `length` is its true length.
    pub(super) fn length(&self, container: usize, instance: usize, capacity: u32, length: u64) -> u64 {
        if self.telemetry.is_fresh() {
            return length;
        }
        // Before anything was told all queues are known to be empty, as they were at the start.
        let told = self.told.front().filter(|told| self.arrived == Some(told.slot));
        let (slot, length) = told.map_or((self.start, 0), |told| (told.slot, told.lengths[instance]));
        if !self.dead_reckoning {
            return length;
        }
        let pair = container * self.instances + instance;
        let before = self.lately.len() - 1;
        let age = usize::try_from(self.now - slot).unwrap_or(0).min(before);
        let own = (before - age..before).map(|slot| u64::from(self.lately[slot][pair]));
        if self.telemetry.by_slot {
            return reckon_by_slot(length, f64::from(capacity), self.others[pair].rate(), own);
        }
        // A slot stands for the second.
        reckon(length, own.sum(), f64::from(capacity), age as u64 * 1_000_000)
    }

    /// A container has sent tuples to an instance.
    pub(super) fn sent(&mut self, container: usize, instance: usize, rows: u64) {
        let pair = container * self.instances + instance;
        let Some(sent) = self.sent.get_mut(pair) else { return };
        *sent += rows;
        self.received[instance] += rows;
        if let Some(lately) = self.lately.back_mut() {
            lately[pair] += rows as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(every: u32, delay: u32, dead_reckoning: bool) -> Known {
        Known::new(Telemetry { every, delay, by_slot: false }, dead_reckoning, 0, 1, 1)
    }

    #[test]
    fn lengths_are_as_old_as_they_are_told() {
        let lengths = |every, delay| {
            let mut known = known(every, delay, false);
            let see = |slot: i64| {
                known.begin(slot, &[10 + slot as u64]);
                known.length(0, 0, 3, 99)
            };
            (0..7).map(see).collect::<Vec<_>>()
        };
        assert_eq!(lengths(3, 0), [10, 10, 10, 13, 13, 13, 16]);
        assert_eq!(lengths(1, 2), [0, 0, 10, 11, 12, 13, 14]);
        assert_eq!(lengths(3, 1), [0, 10, 10, 10, 13, 13, 13]);
        assert_eq!(known(1, 0, true).length(0, 0, 3, 99), 99);
    }

    #[test]
    fn what_was_sent_since_is_added_and_what_was_worked_off_taken_away() {
        let mut known = known(4, 0, true);
        known.begin(0, &[20]);
        assert_eq!(known.length(0, 0, 3, 0), 20);
        known.sent(0, 0, 5);
        known.begin(1, &[0]);
        assert_eq!(known.length(0, 0, 3, 0), 22);
        known.begin(2, &[0]);
        known.begin(3, &[0]);
        assert_eq!(known.length(0, 0, 3, 0), 16);
        known.begin(4, &[2]);
        assert_eq!(known.length(0, 0, 3, 0), 2);
    }

    #[test]
    fn what_others_send_goes_on() {
        let after = |by_slot| {
            let mut known = Known::new(Telemetry { every: 10, delay: 0, by_slot }, true, 0, 2, 1);
            for slot in 0..2_005 {
                known.begin(slot, &[6]);
                known.sent(1, 0, 2);
            }
            (known.length(0, 0, 3, 0), known.length(1, 0, 3, 0))
        };
        // In four slots 12 are worked off and 8 came. As agents reckon nobody knows what others send.
        assert_eq!((after(true), after(false)), ((2, 2), (0, 2)));
    }
}
