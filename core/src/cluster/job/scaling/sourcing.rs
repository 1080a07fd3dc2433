//! Instances of sources end in a plan that was committed: what they have not read goes to others, and both is logged.

use serde::{Deserialize, Serialize};

use super::Scaling;
use crate::cluster::Job;
use crate::cluster::command::Effect;
use crate::cluster::rescale::Step;
use crate::cluster::types::{JobPhase, Split};
use crate::cluster::units::{Handed, Rest, SourceGiven, SourceUnit, deal};
use crate::plan::SourceMove;

/// How far the sources of a plan are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sourcing {
    /// Who goes on with what; `None` until those that end have said what is left.
    handed: Option<Handed>,
    /// They have it.
    taken: bool,
}

impl Sourcing {
    fn next(&self, run: u64, epoch: u64, moves: &[SourceMove]) -> Option<Effect> {
        if self.is_over(moves) {
            return None;
        }
        Some(match &self.handed {
            None => Effect::GiveSources { run, epoch },
            Some(_) => Effect::HandSources { run, epoch },
        })
    }

    /// Nothing is left to do of a plan with these.
    pub(super) fn is_over(&self, moves: &[SourceMove]) -> bool {
        moves.is_empty() || self.taken
    }
}

/// All who give of a plan, once each.
fn fit(moves: &[SourceMove], given: &[SourceGiven]) -> bool {
    let mut wanted: Vec<u32> =
        moves.iter().flat_map(|one| one.givers.iter().map(|giver| giver.instance)).collect();
    let mut all: Vec<u32> = given.iter().map(|one| one.instance).collect();
    wanted.sort_unstable();
    all.sort_unstable();
    wanted == all
}

impl Job {
    /// Who goes on with what of the sources of the plan under way; `None` before that is known.
    pub fn handed(&self) -> Option<&Handed> {
        self.plans.under_way.as_ref()?.sourcing.handed.as_ref()
    }

    /// The first split of a shared source that can be read by whoever opened it alone: a pipe or a device.
    pub fn pipe(&self, stage: &str) -> Option<&Split> {
        self.splits.get(stage)?.all.iter().find(|split| split.seen.is_none())
    }

    /// An instance of a source that ends has said what it has not read.
    pub(in crate::cluster::job) fn has_given(&self, instance: u32) -> bool {
        let scaling = self.plans.under_way.as_ref();
        scaling.is_some_and(|scaling| {
            let all = scaling.new.sources.iter().flat_map(|one| &one.givers);
            scaling.sourcing.handed.is_some() && all.into_iter().any(|giver| giver.instance == instance)
        })
    }

    /// What is to be done next about sources.
    pub(super) fn next_of_sources(&self) -> Option<Effect> {
        let scaling = self.plans.under_way.as_ref()?;
        let goes = self.phase == JobPhase::Running && scaling.step == Step::Committed && scaling.switched;
        goes.then(|| scaling.sourcing.next(self.run, scaling.new.epoch, &scaling.new.sources)).flatten()
    }

    /// Instances that end have said what they have not read.
    pub(in crate::cluster) fn sources_given(&mut self, epoch: u64, given: Vec<SourceGiven>) -> Vec<Effect> {
        if !matches!(self.next_of_sources(), Some(Effect::GiveSources { epoch: now, .. }) if now == epoch) {
            return Vec::new();
        }
        let Some(Scaling { new, .. }) = &self.plans.under_way else { return Vec::new() };
        if !fit(&new.sources, &given) {
            return Vec::new();
        }
        let moves = new.sources.clone();
        let coming: Vec<u32> = new.coming.iter().map(|one| one.id).collect();
        let mut handed = Handed::new();
        for SourceGiven { instance, have, mut units } in given {
            let found = moves.iter().find_map(|one| {
                let giver = one.givers.iter().find(|giver| giver.instance == instance)?;
                Some((&one.stage, &giver.takers))
            });
            let Some((stage, takers)) = found else { continue };
            units.extend(self.returned(stage, instance, have, &units));
            // One that has ended can take nothing; none does while a plan may hand it something.
            let mut open: Vec<u32> =
                takers.iter().copied().filter(|id| !self.ended.contains_key(id)).collect();
            if open.is_empty() {
                open.clone_from(takers);
            }
            let held = |id: u32| match self.plans.units.get(&id) {
                Some(units) => *units as usize,
                // What an instance began with is one unit.
                None => usize::from(!coming.contains(&id)),
            };
            deal(units, &open, &held, &mut handed);
            self.plans.units.remove(&instance);
        }
        for (taker, units) in &handed {
            let began = u32::from(!coming.contains(taker));
            *self.plans.units.entry(*taker).or_insert(began) += units.len() as u32;
        }
        if let Some(scaling) = &mut self.plans.under_way {
            scaling.sourcing.handed = Some(handed);
        }
        self.next_step().into_iter().collect()
    }

    /// Splits that an instance was to be given and has not heard of. What it has read of others is noted.
    fn returned(
        &mut self,
        stage: &str,
        instance: u32,
        have: Option<u32>,
        units: &[SourceUnit],
    ) -> Vec<SourceUnit> {
        let Some(splits) = self.splits.get_mut(stage) else { return Vec::new() };
        for unit in units {
            if let Rest::Split(split) = &unit.rest
                && let Some(known) = splits.all.get_mut(split.number as usize)
            {
                known.clone_from(split);
            }
        }
        let taken = splits.taken.remove(&instance).unwrap_or_default();
        let unheard = taken.into_iter().skip(have.map_or(usize::MAX, |have| have as usize));
        unheard
            .filter_map(|number| splits.all.get(number as usize))
            .map(|split| SourceUnit { rest: Rest::Split(split.clone()), paced: None })
            .collect()
    }

    /// All units are with those who go on with them.
    pub(in crate::cluster) fn sources_handed(&mut self, at_ms: u64, epoch: u64) -> Vec<Effect> {
        if !matches!(self.next_of_sources(), Some(Effect::HandSources { epoch: now, .. }) if now == epoch) {
            return Vec::new();
        }
        if let Some(scaling) = &mut self.plans.under_way {
            scaling.sourcing.taken = true;
            // They are in the log once, and large files may have many.
            scaling.sourcing.handed = Some(Handed::new());
        }
        let next = self.next_step();
        self.rescale_done(at_ms);
        next.into_iter().collect()
    }
}
