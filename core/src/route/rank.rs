//! The order among targets of the same price (potus.md F4).

/// A place in a total order over instances: of two targets with one price the lower rank is taken.
///
/// It depends on the sending agent at most, never on the sender there, so that an agent's senders share
/// one order of targets (potus.md 7.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    lot: u64,
    /// Two that drew the same lot are still in order.
    target: u32,
}

impl Rank {
    /// Targets as they were listed.
    pub fn listed(place: u32) -> Self {
        Self { lot: 0, target: place }
    }

    /// A lot drawn anew by each agent in each slot, so that agents that see the same queues do not all take the
    /// same target.
    pub fn drawn(target: u32, slot: i64, agent: u16) -> Self {
        let lot = mix(mix(slot as u64 ^ u64::from(agent) << 48) ^ u64::from(target));
        Self { lot, target }
    }

    /// The lot of `window` slots later: a run that looks so far ahead and began so much earlier draws what the
    /// one without a window draws (the equivalence of potus.md section 4).
    pub fn ahead(target: u32, slot: i64, window: u32, agent: u16) -> Self {
        Self::drawn(target, slot + i64::from(window), agent)
    }
}

/// The finaliser of `SplitMix64`: every bit of the input moves every bit of the result.
pub(super) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Lots from a seed, the same everywhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lots(pub(crate) u64);

impl Lots {
    pub(crate) fn next(&mut self) -> u64 {
        let lot = mix(self.0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        lot
    }

    /// A number under `bound`, by the high bits of a product (bias under 2^-32 for our bounds).
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_targets_keep_their_order() {
        assert!(Rank::listed(0) < Rank::listed(1) && Rank::listed(9) < Rank::listed(10));
    }

    #[test]
    fn every_target_is_first_about_equally_often_and_agents_disagree() {
        let first = |slot, agent| (0..4u32).min_by_key(|t| Rank::drawn(*t, slot, agent)).unwrap();
        let mut firsts = [0; 4];
        (0..40_000).for_each(|slot| firsts[first(slot, 3) as usize] += 1);
        assert!(firsts.iter().all(|n| (9_700..10_300).contains(n)), "{firsts:?}");
        let agreed = (0..4_000).filter(|slot| first(*slot, 0) == first(*slot, 1)).count();
        assert!((900..1_100).contains(&agreed), "{agreed}");
    }

    #[test]
    fn a_window_draws_the_lots_of_later_slots() {
        assert_eq!(Rank::ahead(3, -4, 4, 1), Rank::drawn(3, 0, 1));
    }
}
