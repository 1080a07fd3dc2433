//! Dead reckoning: how long a target's queue is by now (potus.md F8).

/// What is left of a queue that was `queued` rows long `age_us` microseconds ago, when since then `sent` rows went
/// there that it had not received, and it works off `capacity` rows a second. Never below 0, rounded to the next row:
/// a row is there until it is done. Agents and simulations reckon so.
///
/// What others send is not known, so a target that they feed seems to empty: on the simulated Fat-Tree lengths that are
/// told every 5 slots cost a twentieth of the response, and those of 20 slots ago more than half (docs/simulation.md).
pub fn reckon(queued: u64, sent: u64, capacity: f64, age_us: u64) -> u64 {
    let done = (capacity.max(0.0) * age_us as f64 / 1e6).floor();
    queued.saturating_add(sent).saturating_sub(done as u64)
}

/// The same slot by slot, with what others send, for simulations: it takes how many rows a target got from everybody,
/// which agents do not tell each other. A queue that was `queued` rows long before the slots of `own`, in each
/// of which the target works off `capacity` rows, then gets as many of this sender's as `own` says and `others` more.
///
/// Against [`reckon`], rows cannot be worked off before they came, and a target that others feed is not taken for
/// empty: with lengths of 20 slots ago that keeps a POTUS sender near what it does with fresh ones.
pub fn reckon_by_slot(queued: u64, capacity: f64, others: f64, own: impl IntoIterator<Item = u64>) -> u64 {
    let after = |queue: f64, own: u64| (queue - capacity).max(0.0) + own as f64 + others;
    own.into_iter().fold(queued as f64, after).round() as u64
}

/// What others send to a target in a slot, from how many rows it got in all: the past tells how they go on.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Others {
    rate: f64,
    /// The last count: its slot, rows from everybody, rows of this sender.
    last: Option<(i64, u64, u64)>,
}

impl Others {
    /// Slots after which a change of the rate has gone in by 30 percent.
    const STEADY: f64 = 20.0;

    /// By the beginning of `slot` a target had got so many rows in all, `own` of them from this sender.
    pub fn count(&mut self, slot: i64, all: u64, own: u64) {
        if let Some((before, all_before, own_before)) = self.last {
            let slots = (slot - before).max(1) as f64;
            let others = all.saturating_sub(all_before).saturating_sub(own.saturating_sub(own_before));
            let weight = 1.0 - 0.7f64.powf(slots / Self::STEADY);
            self.rate += weight * (others as f64 / slots - self.rate);
        }
        self.last = Some((slot, all, own));
    }

    /// Rows a slot.
    pub fn rate(&self) -> f64 {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_by_slot_nothing_is_worked_off_before_it_came() {
        assert_eq!(reckon_by_slot(10, 4.0, 0.0, [0, 0, 3]), 3);
        assert_eq!(reckon_by_slot(10, 4.0, 0.0, [0, 0, 3, 1]), 1);
        assert_eq!(reckon_by_slot(10, 4.0, 2.5, [0, 1]), 8);
        assert_eq!(reckon_by_slot(7, 4.0, 2.5, []), 7);
    }

    #[test]
    fn others_are_what_came_beside_ones_own() {
        let mut others = Others::default();
        for slot in 0..400 {
            others.count(slot, 7 * slot as u64, 3 * slot as u64);
        }
        assert!((others.rate() - 4.0).abs() < 0.01, "{}", others.rate());
        // Seldom counts weigh as much as many together.
        let mut seldom = Others::default();
        for slot in (0..400).step_by(20) {
            seldom.count(slot, 7 * slot as u64, 3 * slot as u64);
        }
        assert!((seldom.rate() - 4.0).abs() < 0.01, "{}", seldom.rate());
    }

    #[test]
    fn what_went_there_is_added_and_what_was_done_taken_off() {
        assert_eq!(reckon(10, 5, 0.0, 1_000_000), 15);
        assert_eq!(reckon(10, 5, 4_000.0, 2_000), 7);
        assert_eq!(reckon(10, 5, 4_000.0, 60_000_000), 0);
        assert_eq!(reckon(10, 0, f64::NAN, 5), 10);
        assert_eq!(reckon(1, 0, 500.0, 1_900), 1);
    }
}
