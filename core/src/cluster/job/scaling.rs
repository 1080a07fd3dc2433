//! A job's instances change while it runs: asked, prepared, committed, done; or failed before it is committed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Job;
use crate::cluster::command::{Effect, NewScale};
use crate::cluster::rescale::{Rescale, Step};
use crate::cluster::state::Alive;
use crate::cluster::types::{AgentId, AgentInfo, JobPhase};
use crate::plan::placement::Instance;
use crate::plan::{SourceMove, VertexId};
use moving::Moving;
use sourcing::Sourcing;

mod moving;
mod sourcing;

/// So many rescales of a job are remembered, the newest.
const KEPT: usize = 100;

/// So many instances that rescales have ended are listed one by one, the newest.
pub(in crate::cluster) const LISTED: usize = 64;

/// Why a plan was not measured that a job has outlived by less than a window.
const ENDED_FIRST: &str = "the job, or this attempt of it, ended before a whole window had passed";

/// The rescale that is under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Scaling {
    new: NewScale,
    step: Step,
    /// All agents route by the new plan, but for key partitions that have not moved.
    switched: bool,
    /// Its sources.
    sourcing: Sourcing,
    /// Its key partitions.
    moving: Moving,
}

/// A job's plans.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Plans {
    /// The number of the plan that holds.
    pub(super) epoch: u64,
    /// The last number that was used.
    last: u64,
    /// Who holds each key partition by the plan that holds, of vertices whose partitions a rescale has moved.
    maps: BTreeMap<VertexId, Vec<u32>>,
    /// How many units source instances have, of those that were handed some.
    units: BTreeMap<u32, u32>,
    under_way: Option<Scaling>,
    history: Vec<Rescale>,
    left_out: u64,
}

impl Plans {
    /// The first plan of a job.
    pub(super) fn first() -> Self {
        Self { epoch: 1, last: 1, ..Self::default() }
    }

    /// Another attempt has a plan of its own.
    pub(super) fn another_attempt(&mut self) {
        self.last += 1;
        self.epoch = self.last;
        self.maps.clear();
        self.units.clear();
    }

    /// What came of plans that are done and were not measured will not be known any more.
    fn never_measured(&mut self, why: &str) {
        for entry in self.history.iter_mut().filter(|entry| entry.step == Step::Done && entry.is_unmeasured())
        {
            entry.unmeasured = Some(why.to_owned());
        }
    }
}

/// A plan that agents are to prepare, or to route by.
#[derive(Debug, Clone, Copy)]
pub struct PlanUnderWay<'a> {
    /// How far it is.
    pub step: Step,
    /// The plan.
    pub new: &'a NewScale,
    /// All agents have its new instances running, and route by it but for key partitions that have not moved.
    pub switched: bool,
}

impl Job {
    /// The number of the plan that holds, from 1.
    pub fn epoch(&self) -> u64 {
        self.plans.epoch
    }

    /// The number that the next plan gets.
    pub fn next_epoch(&self) -> u64 {
        self.plans.last + 1
    }

    /// The rescale that is under way.
    pub fn under_way(&self) -> Option<PlanUnderWay<'_>> {
        let Scaling { new, step, switched, .. } = self.plans.under_way.as_ref()?;
        Some(PlanUnderWay { step: *step, new, switched: *switched })
    }

    /// Its rescales, the oldest first, and how many older ones are not remembered any more.
    pub fn rescales(&self) -> (&[Rescale], u64) {
        (&self.plans.history, self.plans.left_out)
    }

    /// An instance is listed by itself: it is not folded.
    pub fn lists(&self, instance: u32) -> bool {
        self.instances.binary_search_by_key(&instance, |one| one.id).is_ok()
    }

    /// Instances of the current attempt that no rescale has ended.
    pub fn standing(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter().filter(|instance| !self.retired.contains(&instance.id))
    }

    /// The same by the plan that is under way, if there is one: its new instances too.
    pub fn standing_by_plan(&self) -> impl Iterator<Item = &Instance> {
        let coming = self.being_prepared().map_or(&[][..], |new| &new.coming);
        self.standing().chain(coming)
    }

    /// Agents of the current attempt by index, and those that join it with the plan that is under way.
    pub fn all_agents(&self) -> impl Iterator<Item = &AgentInfo> {
        let joining = self.being_prepared().map_or(&[][..], |new| &new.joining);
        self.agents.iter().chain(joining)
    }

    /// The current attempt cannot go on without this agent.
    pub fn needs(&self, id: &AgentId) -> bool {
        !self.standing_on(id).is_empty()
    }

    /// Instances of the current attempt on an agent that no rescale has ended.
    pub fn standing_on(&self, id: &AgentId) -> Vec<&Instance> {
        let index = self.agents.iter().position(|agent| agent.id == *id);
        let here = |one: &&Instance| index == Some(usize::from(one.agent));
        self.standing().filter(here).collect()
    }

    /// An agent takes part in a plan that is being prepared.
    pub(in crate::cluster) fn prepares_on(&self, id: &AgentId) -> bool {
        self.being_prepared().is_some() && self.all_agents().any(|agent| agent.id == *id)
    }

    /// The plan that is being prepared, and may still fail.
    fn being_prepared(&self) -> Option<&NewScale> {
        let scaling = self.plans.under_way.as_ref()?;
        matches!(scaling.step, Step::Asked | Step::Prepared).then_some(&scaling.new)
    }

    /// A new plan was made for what is there now.
    pub(in crate::cluster) fn rescale_asked(
        &mut self,
        at_ms: u64,
        new: NewScale,
        alive: &Alive,
    ) -> Vec<Effect> {
        // No instance that runs by it is on an agent that is dead.
        let agents: Vec<&AgentInfo> = self.agents.iter().chain(&new.joining).collect();
        let runs_alive = |instance: &Instance| {
            agents.get(usize::from(instance.agent)).is_some_and(|agent| alive.has(&agent.id))
        };
        let standing: BTreeSet<u32> = self.standing().map(|instance| instance.id).collect();
        let first = self.instances.last().map_or(0, |last| last.id + 1);
        let coming = first..first + new.coming.len() as u32;
        // What each map begins with is what holds, and nobody holds anything who is not there.
        let stays = |id: &u32| !new.going.contains(id) && (standing.contains(id) || coming.contains(id));
        let maps_fit = new.maps.iter().all(|map| {
            map.before.len() == map.after.len()
                && self.plans.maps.get(&map.vertex).is_none_or(|held| *held == map.before)
                && map.after.iter().all(stays)
        });
        let takers_stay = new.sources.iter().flat_map(SourceMove::takers).all(|id| stays(&id));
        let fits = self.phase == JobPhase::Running
            && maps_fit
            && takers_stay
            && self.plans.under_way.is_none()
            && new.epoch == self.next_epoch()
            && new.joining.iter().all(|agent| !self.uses(&agent.id))
            && new.coming.iter().map(|instance| instance.id).eq(coming.clone())
            && new.going.iter().all(|id| standing.contains(id))
            && self.standing().chain(&new.coming).all(runs_alive);
        if !fits {
            return Vec::new();
        }
        self.plans.last = new.epoch;
        self.plans.never_measured("another plan was asked for before a whole window had passed");
        self.plans.history.push(Rescale {
            epoch: new.epoch,
            attempt: self.attempt,
            asked: new.asked.clone(),
            planner: new.planner.clone(),
            step: Step::Asked,
            fault: None,
            started: new.started.clone(),
            stopped: new.stopped.clone(),
            asked_ms: at_ms,
            prepared_ms: None,
            committed_ms: None,
            ended_ms: None,
            predicted: new.predicted,
            unpredicted: new.unpredicted.clone(),
            measured: None,
            unmeasured: None,
            why: new.why.clone(),
        });
        if self.plans.history.len() > KEPT {
            self.plans.history.remove(0);
            self.plans.left_out += 1;
        }
        let epoch = new.epoch;
        self.plans.under_way = Some(Scaling {
            new,
            step: Step::Asked,
            switched: false,
            sourcing: Sourcing::default(),
            moving: Moving::default(),
        });
        vec![Effect::Extend { run: self.run, epoch }]
    }

    /// All agents have made what a plan needs.
    pub(in crate::cluster) fn rescale_prepared(&mut self, at_ms: u64, epoch: u64) {
        if self.moves(epoch, Step::Asked, Step::Prepared)
            && let Some(entry) = self.plans.history.last_mut()
        {
            entry.prepared_ms = Some(at_ms);
        }
    }

    /// From here on the new plan holds.
    pub(in crate::cluster) fn rescale_committed(&mut self, at_ms: u64, epoch: u64) -> Vec<Effect> {
        if !self.moves(epoch, Step::Prepared, Step::Committed) {
            return Vec::new();
        }
        if let Some(entry) = self.plans.history.last_mut() {
            entry.committed_ms = Some(at_ms);
        }
        let Some(Scaling { new, .. }) = &self.plans.under_way else { return Vec::new() };
        self.plans.epoch = new.epoch;
        self.agents.extend(new.joining.iter().cloned());
        self.instances.extend(&new.coming);
        self.dag.clone_from(&new.dag);
        self.plans.maps.extend(new.maps.iter().map(|map| (map.vertex, map.after.clone())));
        // Those that had come to their end by themselves.
        let ended = new.going.iter().filter(|id| self.ended.contains_key(id));
        self.retired.extend(ended);
        vec![Effect::Switch { run: self.run, epoch }]
    }

    /// What is to be done next of a plan by which rows go: first what source instances have not read goes to others, then
    /// key partitions move.
    fn next_step(&self) -> Option<Effect> {
        self.next_of_sources().or_else(|| self.next_move())
    }

    /// All agents route by the new plan. What sources have not read and key partitions have yet to move.
    pub(in crate::cluster) fn rescale_switched(&mut self, at_ms: u64, epoch: u64) -> Vec<Effect> {
        match &mut self.plans.under_way {
            Some(scaling)
                if scaling.new.epoch == epoch && scaling.step == Step::Committed && !scaling.switched =>
            {
                scaling.switched = true;
            }
            _ => return Vec::new(),
        }
        let next = self.next_step();
        self.rescale_done(at_ms);
        next.into_iter().collect()
    }

    /// A plan could not be prepared: the old one goes on.
    pub(in crate::cluster) fn rescale_failed(&mut self, at_ms: u64, epoch: u64, why: &str) -> Vec<Effect> {
        let agents = match self.being_prepared() {
            Some(new) if new.epoch == epoch => self.all_agents().map(|agent| agent.id.clone()).collect(),
            _ => return Vec::new(),
        };
        self.close_rescale(at_ms, Step::Failed, Some(why));
        vec![Effect::Abort { run: self.run, epoch, agents }]
    }

    /// An agent is dead that a plan which is being prepared counts on.
    pub(in crate::cluster) fn lost_while_preparing(
        &mut self,
        at_ms: u64,
        id: &AgentId,
        cause: &str,
    ) -> Vec<Effect> {
        match self.being_prepared() {
            // While it waits it is not known who else is there: it fails when that is known.
            Some(new) if self.prepares_on(id) && !self.waits => {
                let epoch = new.epoch;
                self.rescale_failed(at_ms, epoch, &format!("agent {} was lost: {cause}", id.name))
            }
            _ => Vec::new(),
        }
    }

    /// An instance has ended: of those that a plan leaves out it may have been the last.
    pub(super) fn ended_by_plan(&mut self, at_ms: u64, instance: u32) {
        if let Some(scaling) = &self.plans.under_way
            && scaling.step == Step::Committed
            && scaling.new.going.contains(&instance)
        {
            self.retired.insert(instance);
            self.rescale_done(at_ms);
        }
    }

    /// What the sinks took with a plan, as it was measured. What is known stays.
    pub(in crate::cluster) fn rescale_measured(&mut self, epoch: u64, rows_per_second: Result<f64, String>) {
        if !self.is_live() {
            return;
        }
        let entry = self.plans.history.iter_mut().find(|entry| entry.epoch == epoch);
        if let Some(entry) = entry.filter(|entry| entry.step == Step::Done && entry.is_unmeasured()) {
            match rows_per_second {
                Ok(rows) => entry.measured = Some(rows),
                Err(why) => entry.unmeasured = Some(why),
            }
        }
    }

    fn rescale_done(&mut self, at_ms: u64) {
        let done = self.plans.under_way.as_ref().is_some_and(|scaling| {
            scaling.switched
                && scaling.sourcing.is_over(&scaling.new.sources)
                && scaling.moving.is_over(&scaling.new.maps)
                && scaling.new.going.iter().all(|id| self.ended.contains_key(id))
        });
        if done {
            self.close_rescale(at_ms, Step::Done, None);
        }
    }

    /// A new coordinator goes on: what was not committed is given up, what was is carried out.
    pub(super) fn resume_rescale(&mut self, at_ms: u64) -> Vec<Effect> {
        let Some(Scaling { new, step, switched, .. }) = &self.plans.under_way else { return Vec::new() };
        let epoch = new.epoch;
        match step {
            Step::Committed if *switched => self.next_step().into_iter().collect(),
            Step::Committed => vec![Effect::Switch { run: self.run, epoch }],
            _ => self.rescale_failed(at_ms, epoch, "the coordinator ended before it was committed"),
        }
    }

    /// The attempt ends before the rescale does.
    pub(super) fn end_rescale(&mut self, at_ms: u64, why: &str) {
        self.close_rescale(at_ms, Step::Failed, Some(why));
        self.plans.never_measured(ENDED_FIRST);
    }

    /// All instances have ended, and with them what was left to do.
    pub(super) fn finish_rescale(&mut self, at_ms: u64) {
        self.close_rescale(at_ms, Step::Done, None);
        self.plans.never_measured(ENDED_FIRST);
    }

    fn close_rescale(&mut self, at_ms: u64, step: Step, why: Option<&str>) {
        if self.plans.under_way.take().is_some()
            && let Some(entry) = self.plans.history.last_mut()
        {
            entry.step = step;
            entry.fault = why.map(str::to_owned);
            entry.ended_ms = Some(at_ms);
            self.fold();
        }
    }

    /// Lists no more than [`LISTED`] instances that rescales have ended, the newest: a job that is rescaled for weeks
    /// costs what any other does. What the others have counted is kept as one sum for each vertex. The newest of each
    /// vertex stays in the list, so that no id and no number is used twice.
    fn fold(&mut self) {
        let surplus = self.retired.len().saturating_sub(LISTED);
        let newest: BTreeMap<VertexId, u32> = self.instances.iter().map(|one| (one.vertex, one.id)).collect();
        let may_go = |one: &&Instance| self.retired.contains(&one.id) && newest[&one.vertex] != one.id;
        let gone: Vec<Instance> = self.instances.iter().filter(may_go).take(surplus).copied().collect();
        for one in &gone {
            self.retired.remove(&one.id);
            self.splits_given(one.id);
            let folded = self.folded.entry(one.vertex).or_default();
            folded.instances += 1;
            folded.counters.add_ended(&self.ended.remove(&one.id).unwrap_or_default());
        }
        self.instances.retain(|one| gone.binary_search_by_key(&one.id, |gone| gone.id).is_err());
    }

    /// Goes on from one step to the next, if it is at that one and the job runs.
    fn moves(&mut self, epoch: u64, from: Step, to: Step) -> bool {
        match &mut self.plans.under_way {
            Some(scaling)
                if self.phase == JobPhase::Running && scaling.new.epoch == epoch && scaling.step == from =>
            {
                scaling.step = to;
                if let Some(entry) = self.plans.history.last_mut() {
                    entry.step = to;
                }
                true
            }
            _ => false,
        }
    }
}
