//! What containers know of the queues at targets, when it is old (potus.md F8).

use std::collections::VecDeque;

use tuplane_core::route::reckon;

use super::config::Telemetry;

/// Microseconds of a slot where capacities count in tuples per slot.
const SLOT: u64 = 1_000_000;

/// Queue lengths of one slot.
#[derive(Debug, Clone)]
struct Snapshot {
    slot: i64,
    lengths: Vec<u64>,
    /// Tuples that each container (outer) had sent to each instance before it.
    sent: Vec<u64>,
}

/// Queue lengths as containers see them.
#[derive(Debug)]
pub(super) struct Known {
    telemetry: Telemetry,
    dead_reckoning: bool,
    start: i64,
    now: i64,
    /// Told, the oldest that can still be of use first.
    told: VecDeque<Snapshot>,
    sent: Vec<u64>,
    instances: usize,
}

impl Known {
    pub(super) fn new(
        telemetry: Telemetry,
        dead_reckoning: bool,
        start: i64,
        containers: usize,
        instances: usize,
    ) -> Self {
        let sent = if telemetry.is_fresh() { Vec::new() } else { vec![0; containers * instances] };
        Self { telemetry, dead_reckoning, start, now: start, told: VecDeque::new(), sent, instances }
    }

    /// A slot begins with these queue lengths.
    pub(super) fn begin(&mut self, slot: i64, lengths: &[u64]) {
        self.now = slot;
        if self.telemetry.is_fresh() {
            return;
        }
        if (slot - self.start) % i64::from(self.telemetry.every.max(1)) == 0 {
            self.told.push_back(Snapshot { slot, lengths: lengths.to_vec(), sent: self.sent.clone() });
        }
        let arrived = slot - i64::from(self.telemetry.delay);
        while self.told.get(1).is_some_and(|next| next.slot <= arrived) {
            self.told.pop_front();
        }
    }

    /// The queue at an instance of a capacity, as a container sees it; `length` is its true length.
    pub(super) fn length(&self, container: usize, instance: usize, capacity: u32, length: u64) -> u64 {
        if self.telemetry.is_fresh() {
            return length;
        }
        let arrived = self.now - i64::from(self.telemetry.delay);
        let place = container * self.instances + instance;
        // Before anything is told all queues are known to be empty, as they were at the start.
        let told = self.told.front().filter(|told| told.slot <= arrived);
        let (slot, length, sent) =
            told.map_or((self.start, 0, 0), |told| (told.slot, told.lengths[instance], told.sent[place]));
        if !self.dead_reckoning {
            return length;
        }
        let age = (self.now - slot) as u64;
        reckon(length, self.sent[place] - sent, f64::from(capacity), age * SLOT)
    }

    /// A container has sent tuples to an instance.
    pub(super) fn sent(&mut self, container: usize, instance: usize, rows: u64) {
        if let Some(sent) = self.sent.get_mut(container * self.instances + instance) {
            *sent += rows;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(every: u32, delay: u32, dead_reckoning: bool) -> Known {
        Known::new(Telemetry { every, delay }, dead_reckoning, 0, 1, 1)
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
        known.begin(3, &[0]);
        assert_eq!(known.length(0, 0, 3, 0), 16);
        known.begin(4, &[2]);
        assert_eq!(known.length(0, 0, 3, 0), 2);
    }
}
