//! How far a source looks ahead: to the end of the slot that is so many slots behind the current one.

use std::time::{Duration, Instant};

use crate::exchange::priced::Slots;

/// A source's window.
#[derive(Debug, Clone)]
pub(crate) struct Lookahead {
    slots: Slots,
    slot: Duration,
    /// Slots behind the current one, at least 1.
    ahead: u32,
}

impl Lookahead {
    pub(crate) fn new(slots: Slots, slot: Duration, ahead: u32) -> Self {
        Self { slots, slot, ahead }
    }

    /// Rows that are due by then may be given now.
    pub(super) fn until(&self, now: Instant) -> Instant {
        let behind =
            self.slots.begin_of(self.slot, self.slots.number(self.slot, now) + i64::from(self.ahead) + 1);
        behind.checked_sub(Duration::from_nanos(1)).unwrap_or(behind)
    }

    /// From when on a row may be given that is due then.
    pub(super) fn opens(&self, due: Instant) -> Instant {
        self.slots.begin_of(self.slot, self.slots.number(self.slot, due) - i64::from(self.ahead))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_row_may_be_given_from_the_slot_on_that_is_so_many_before_its_own(
            now in 0u64..1_000_000, due in 0u64..1_000_000, slot in 1u64..50, ahead in 1u32..20,
        ) {
            let (slots, slot) = (Slots::begin(), Duration::from_micros(slot * 1000));
            let look = Lookahead::new(slots.clone(), slot, ahead);
            let [now, due] = [now, due].map(|us| slots.began + Duration::from_micros(us));
            prop_assert_eq!(due <= look.until(now), look.opens(due) <= now);
            prop_assert!(slots.number(slot, look.until(now)) == slots.number(slot, now) + i64::from(ahead));
        }
    }
}
