//! Event time of an instance that goes on with units of others: each of them has its own, and the least counts.

use std::collections::BTreeMap;

use tuplane_core::time::{Least, Moved, Standing, WatermarkPolicy};

use super::Stamper;

/// What an instance's rows belong to.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Where its own units stand; `None` while it has none.
    own: Option<Standing>,
    /// Units that it has taken.
    taken: BTreeMap<u32, (WatermarkPolicy, Standing)>,
    least: Least,
    /// What was said before it took any.
    said: Option<i64>,
}

impl Parts {
    fn standing(&mut self, unit: Option<u32>) -> Option<&mut Standing> {
        match unit {
            None => self.own.as_mut(),
            Some(unit) => self.taken.get_mut(&unit).map(|(_, standing)| standing),
        }
    }

    fn next(&mut self) -> Option<Moved> {
        let all = self.own.iter().chain(self.taken.values().map(|(_, standing)| standing)).copied();
        let moved = self.least.next(all)?;
        Some(match moved {
            Moved::Watermark(time) => Moved::Watermark(self.said.map_or(time, |said| said.max(time))),
            Moved::Idle => Moved::Idle,
        })
    }
}

impl Stamper {
    /// The instance goes on with these units of others. `has` says what it has: its own (`None`), or a unit.
    pub(crate) fn take(&mut self, units: &[u32], has: &dyn Fn(Option<u32>) -> bool) {
        let now = self.now();
        let said = self.policy.told();
        let parts = self.parts.get_or_insert_with(|| Box::new(Parts { said, ..Parts::default() }));
        for unit in units {
            let policy = WatermarkPolicy::new(self.options, now);
            parts.taken.insert(*unit, (policy, Standing::default()));
        }
        self.keep(has);
    }

    /// What the instance has no more holds nothing back.
    pub(crate) fn keep(&mut self, has: &dyn Fn(Option<u32>) -> bool) {
        let own = Standing { watermark: self.policy.told(), idle: self.policy.is_idle() };
        let Some(parts) = &mut self.parts else { return };
        parts.taken.retain(|unit, _| has(Some(*unit)));
        parts.own = has(None).then(|| parts.own.unwrap_or(own));
    }

    /// All units that it has taken have come to where event time stands for those who listen.
    pub(crate) fn has_caught_up(&self, until: Option<i64>) -> bool {
        let stands = |standing: &Standing| standing.idle || standing.watermark >= until;
        self.parts.as_ref().is_none_or(|parts| parts.taken.values().all(|(_, standing)| stands(standing)))
    }

    /// The policy of a unit's rows.
    pub(super) fn policy_of(&mut self, unit: Option<u32>) -> &mut WatermarkPolicy {
        let taken = unit.and_then(|unit| self.parts.as_mut()?.taken.get_mut(&unit));
        match taken {
            Some((policy, _)) => policy,
            None => &mut self.policy,
        }
    }

    /// Rows of a unit are about to come: what is to be said before, if it was idle.
    pub(super) fn wakes(&mut self, unit: Option<u32>) -> Option<Moved> {
        let woken = self.policy_of(unit).wake().map(Moved::Watermark);
        let Some(parts) = &mut self.parts else { return woken };
        if let Some(standing) = parts.standing(unit) {
            standing.idle = false;
        }
        parts.next()
    }

    /// The watermark, if it has risen with rows of a unit.
    pub(super) fn risen(&mut self, unit: Option<u32>) -> Option<Moved> {
        let risen = self.policy_of(unit).watermark();
        let Some(parts) = &mut self.parts else { return risen.map(Moved::Watermark) };
        if let Some((standing, time)) = parts.standing(unit).zip(risen) {
            standing.tell(time);
        }
        parts.next()
    }

    /// What a time without rows says, unit by unit.
    pub(super) fn silence(&mut self) -> Vec<Moved> {
        let now = self.now();
        let Self { policy, parts, .. } = self;
        let Some(parts) = parts else {
            let idle = policy.tick(now);
            let risen = policy.watermark().map(Moved::Watermark);
            return risen.into_iter().chain(idle.then_some(Moved::Idle)).collect();
        };
        let Parts { own, taken, .. } = &mut **parts;
        let own = own.as_mut().map(|standing| (policy, standing));
        for (policy, standing) in
            own.into_iter().chain(taken.values_mut().map(|(policy, standing)| (policy, standing)))
        {
            let idle = policy.tick(now);
            if let Some(time) = policy.watermark() {
                standing.tell(time);
            }
            standing.idle |= idle;
        }
        std::iter::from_fn(|| parts.next()).collect()
    }

    /// All its policies.
    pub(super) fn policies(&mut self) -> impl Iterator<Item = &mut WatermarkPolicy> {
        let taken = self.parts.iter_mut().flat_map(|parts| parts.taken.values_mut());
        std::iter::once(&mut self.policy).chain(taken.map(|(policy, _)| policy))
    }

    /// When the first of them is to be asked.
    pub(super) fn next_of_parts(&self) -> Option<i64> {
        let taken = self.parts.iter().flat_map(|parts| parts.taken.values());
        std::iter::once(&self.policy)
            .chain(taken.map(|(policy, _)| policy))
            .filter_map(WatermarkPolicy::next_tick)
            .min()
    }
}
