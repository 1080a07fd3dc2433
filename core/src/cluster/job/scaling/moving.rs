//! Key partitions move in a plan that was committed: in groups, one after the other, each of them logged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::Job;
use crate::cluster::command::Effect;
use crate::cluster::rescale::Step;
use crate::cluster::state::Alive;
use crate::cluster::types::{FaultCode, JobPhase, WireFault};
use crate::plan::{KeyMap, VertexId};
use crate::route::moves::Group;

/// How far the key partitions of a plan have moved.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Moving {
    /// In the order in which they move; `None` until their sizes are known.
    groups: Option<Vec<Group>>,
    /// How many of them have moved, from the first.
    moved: u32,
    /// Senders have no instance on their lists any more that holds nothing.
    released: bool,
}

impl Moving {
    /// What is to be done next, where rows go by a plan that moves these partitions.
    fn next(&self, run: u64, epoch: u64, maps: &[KeyMap]) -> Option<Effect> {
        if maps.is_empty() || self.released {
            return None;
        }
        let Some(groups) = &self.groups else { return Some(Effect::Divide { run, epoch }) };
        let left = (self.moved as usize) < groups.len();
        Some(if left {
            Effect::Move { run, epoch, group: self.moved }
        } else {
            Effect::Release { run, epoch }
        })
    }

    /// Nothing is left to do of a plan that moves these partitions.
    pub(super) fn is_over(&self, maps: &[KeyMap]) -> bool {
        maps.is_empty() || self.released
    }
}

/// Groups that carry one map over into the other, each partition once.
fn fit(maps: &[KeyMap], groups: &[Group]) -> bool {
    let mut now: Vec<Vec<u32>> = maps.iter().map(|map| map.before.clone()).collect();
    for group in groups {
        // Instances are of one vertex, so that a group is of one map.
        let holds = |map: &KeyMap| map.before.contains(&group.from);
        let Some(index) = maps.iter().position(holds) else { return false };
        for partition in &group.partitions {
            match now[index].get_mut(usize::from(*partition)) {
                Some(owner) if *owner == group.from => *owner = group.to,
                _ => return false,
            }
        }
    }
    maps.iter().zip(&now).all(|(map, now)| map.after == *now)
}

impl Job {
    /// The groups of key partitions that the plan under way moves, and how many of them have moved; `None` before
    /// they were made.
    pub fn groups(&self) -> Option<(&[Group], u32)> {
        let moving = &self.plans.under_way.as_ref()?.moving;
        Some((moving.groups.as_deref()?, moving.moved))
    }

    /// Who holds each key partition, of the vertices whose partitions a rescale has moved or moves now: what senders
    /// go by at this moment, or will once the group that is on its way has moved.
    pub fn maps(&self) -> BTreeMap<VertexId, Vec<u32>> {
        let mut all = self.plans.maps.clone();
        let Some(scaling) = &self.plans.under_way else { return all };
        let moved = scaling.moving.groups.iter().flatten().take(scaling.moving.moved as usize);
        let moved: Vec<&Group> = moved.collect();
        for map in &scaling.new.maps {
            let mut now = map.before.clone();
            for group in &moved {
                for partition in &group.partitions {
                    if let Some(owner) =
                        now.get_mut(usize::from(*partition)).filter(|owner| **owner == group.from)
                    {
                        *owner = group.to;
                    }
                }
            }
            all.insert(map.vertex, now);
        }
        all
    }

    /// What is to be done next about key partitions.
    pub(super) fn next_move(&self) -> Option<Effect> {
        let scaling = self.plans.under_way.as_ref()?;
        let goes = self.phase == JobPhase::Running
            && scaling.step == Step::Committed
            && scaling.switched
            && scaling.sourcing.is_over(&scaling.new.sources);
        goes.then(|| scaling.moving.next(self.run, scaling.new.epoch, &scaling.new.maps)).flatten()
    }

    /// It is known what moves together. Groups that do not make the new map are a defect: nobody would ask for others, so
    /// that it ends the attempt as any step that fails behind the commit.
    pub(in crate::cluster) fn groups_made(
        &mut self,
        at_ms: u64,
        epoch: u64,
        groups: Vec<Group>,
        alive: &Alive,
    ) -> Vec<Effect> {
        if !matches!(self.next_move(), Some(Effect::Divide { epoch: now, .. }) if now == epoch) {
            return Vec::new();
        }
        if let Some(scaling) = &mut self.plans.under_way
            && fit(&scaling.new.maps, &groups)
        {
            scaling.moving.groups = Some(groups);
            return self.next_move().into_iter().collect();
        }
        let message = format!("the groups of key partitions of plan {epoch} do not make its map");
        self.fail(at_ms, WireFault::new(FaultCode::Internal, message), alive)
    }

    /// The new instance of a group has its state and the rows that waited for it.
    pub(in crate::cluster) fn group_moved(&mut self, epoch: u64, group: u32) -> Vec<Effect> {
        match self.next_move() {
            Some(Effect::Move { epoch: now, group: next, .. }) if (now, next) == (epoch, group) => {}
            _ => return Vec::new(),
        }
        if let Some(scaling) = &mut self.plans.under_way {
            scaling.moving.moved += 1;
        }
        self.next_move().into_iter().collect()
    }

    /// Nothing is sent any more to instances that hold nothing.
    pub(in crate::cluster) fn owners_released(&mut self, at_ms: u64, epoch: u64) {
        if matches!(self.next_move(), Some(Effect::Release { epoch: now, .. }) if now == epoch) {
            if let Some(scaling) = &mut self.plans.under_way {
                scaling.moving.released = true;
            }
            self.rescale_done(at_ms);
        }
    }
}
