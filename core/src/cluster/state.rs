//! The whole state and the one function that changes it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::command::{Command, Effect, Logged, NewJob};
use super::job::Job;
use super::operation::Operations;
use super::types::{AgentId, AgentInfo, FaultCode, WireFault};

mod members;

pub use members::Held;

/// Jobs that have ended and are still listed, the newest ones, each with its ledger; their agents keep what
/// `fetch` needs of them.
pub(super) const KEPT_JOBS: usize = 100;

/// Agents and jobs of one cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    agents: BTreeMap<String, Agent>,
    /// By job id.
    jobs: BTreeMap<u64, Job>,
    last_run: u64,
    shutting_down: bool,
    /// Names of agents that get no new instances.
    drained: BTreeSet<String>,
    /// Agents that were released, by name: the process that ran one does not join again.
    released: BTreeMap<String, AgentInfo>,
    operations: Operations,
}

/// One agent by name: its newest incarnation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// What it said of itself.
    pub info: AgentInfo,
    /// Whether it is there.
    pub presence: Presence,
}

/// Whether an agent is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Presence {
    /// It registered and is not known to be dead.
    Alive,
    /// Known from the log of an earlier coordinator; it may come back as it was.
    Away,
    /// Dead for good: it can only come back with a new incarnation.
    Dead {
        /// What was seen.
        cause: String,
    },
}

/// Agents that jobs can use, by name.
pub(super) struct Alive(BTreeMap<String, AgentInfo>);

impl Alive {
    /// This incarnation is one of them.
    pub(super) fn has(&self, id: &AgentId) -> bool {
        self.0.get(&id.name).is_some_and(|info| info.id == *id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &AgentInfo> {
        self.0.values()
    }
}

impl State {
    /// Agents by name, lost ones included.
    pub fn agents(&self) -> impl Iterator<Item = &Agent> {
        self.agents.values()
    }

    /// Agents that jobs can use.
    pub fn alive(&self) -> impl Iterator<Item = &AgentInfo> {
        self.agents.values().filter(|agent| agent.presence == Presence::Alive).map(|agent| &agent.info)
    }

    /// This incarnation is registered and not dead.
    pub fn is_alive(&self, id: &AgentId) -> bool {
        self.alive().any(|info| info.id == *id)
    }

    /// Jobs in the order they were submitted.
    pub fn jobs(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.jobs.values()
    }

    /// The job whose current attempt this is.
    pub fn run(&self, run: u64) -> Option<&Job> {
        self.jobs.values().find(|job| job.run == run)
    }

    /// The job that a person means: by run id or job id, else the newest of that name, live ones
    /// first. No new job has a number as its name, but an older log may.
    pub fn find(&self, name: &str) -> Option<&Job> {
        let by_name = || {
            let mut named: Vec<_> = self.jobs.values().filter(|job| job.name == name).collect();
            named.sort_by_key(|job| (job.is_live(), job.id));
            named.pop()
        };
        let by_number = || {
            let number = name.parse::<u64>().ok()?;
            self.jobs.values().find(|job| job.run == number || job.id == number)
        };
        by_number().or_else(by_name)
    }

    /// What was asked of the cluster while jobs ran.
    pub fn operations(&self) -> &Operations {
        &self.operations
    }

    /// A shutdown was asked for: no new jobs.
    pub fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    /// Runs that an agent may keep; it drops others.
    pub fn runs_of(&self, id: &AgentId) -> Vec<u64> {
        let takes_part = |job: &&Job| job.uses(id) || job.prepares_on(id) || job.has_files_on(&id.name);
        let keeps = |job: &&Job| !job.forgotten && takes_part(job);
        self.jobs.values().filter(keeps).map(|job| job.run).collect()
    }

    /// Why an agent may not join as it is, if it may not.
    pub fn refuses(&self, info: &AgentInfo) -> Option<WireFault> {
        if self.was_released(info) {
            let message = format!("agent {} was released from the cluster", info.id.name);
            return Some(WireFault::new(FaultCode::Refused, message));
        }
        let known = self.agents.get(&info.id.name)?;
        let dead = matches!(known.presence, Presence::Dead { .. });
        let stale = match info.id.incarnation.cmp(&known.info.id.incarnation) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => dead,
            std::cmp::Ordering::Greater => false,
        };
        stale.then(|| {
            WireFault::new(
                FaultCode::Stale,
                format!(
                    "agent {} was replaced or given up; it may join with a new incarnation",
                    info.id.name
                ),
            )
        })
    }

    /// Applies one entry of the log. Entries that do not fit (late, repeated, stale) change nothing.
    pub fn apply(&mut self, entry: Logged) -> Vec<Effect> {
        let Logged { at_ms, command } = entry;
        let mut effects = match command {
            Command::CoordinatorStarted => {
                self.coordinator_started();
                self.resume(at_ms)
            }
            Command::AgentRegistered(info) => {
                let mut effects = self.registered(at_ms, *info);
                effects.extend(self.resume(at_ms));
                effects
            }
            Command::AgentLost { id, cause } => {
                let mut effects = self.agent_lost(at_ms, &id, &cause);
                effects.extend(self.resume(at_ms));
                effects
            }
            Command::Submitted(new) => self.submitted(at_ms, *new),
            Command::Prepared { run } => self.on_run(run, |job, alive| job.prepared(at_ms, alive)),
            Command::PrepareFailed { run, fault } => {
                self.on_run(run, |job, alive| job.prepare_failed(at_ms, fault, alive))
            }
            Command::InstanceEnded { run, instance, last, files } => {
                self.on_run(run, |job, alive| job.instance_ended(at_ms, instance, *last, files, alive))
            }
            Command::InstanceFailed { run, instance: _, fault } => {
                self.on_run(run, |job, alive| job.fail(at_ms, fault, alive))
            }
            Command::CancelRequested { run } => {
                self.on_run(run, |job, alive| job.cancel(at_ms, "cancelled by its owner", alive))
            }
            Command::Stopped { run, edges, parts, answered } => {
                self.on_run(run, |job, _| job.stopped(at_ms, edges, parts, &answered))
            }
            Command::Sealed { run, work, edges } => {
                self.on_run(run, |job, alive| job.sealed(at_ms, work, edges, alive))
            }
            Command::SplitTaken { run, stage, instance, split } => self.on_run(run, |job, _| {
                job.split_taken(&stage, instance, split);
                Vec::new()
            }),
            Command::SplitReturned { run, stage, instance, split } => self.on_run(run, |job, _| {
                job.split_returned(&stage, instance, split);
                Vec::new()
            }),
            Command::OptionSet { run, stage, option, value } => self.on_run(run, |job, _| {
                job.set_option(stage, option, value);
                Vec::new()
            }),
            Command::PolicySet { run, edge, policy, options } => self.on_run(run, |job, _| {
                job.set_policy(edge, policy, options);
                Vec::new()
            }),
            Command::Restarted { run, placed } => {
                // A number that is not used in the end is a gap, not a fault.
                self.last_run += 1;
                let next = self.last_run;
                self.on_run(run, |job, alive| job.restarted(next, placed, alive))
            }
            Command::RestartFailed { run, fault } => self.on_run(run, |job, _| {
                job.restart_failed(at_ms, &fault);
                Vec::new()
            }),
            Command::ShutdownRequested => self.shutdown(at_ms),
            Command::RescaleAsked { run, new } => {
                self.on_run(run, |job, alive| job.rescale_asked(at_ms, *new, alive))
            }
            Command::RescalePrepared { run, epoch } => self.on_run(run, |job, _| {
                job.rescale_prepared(at_ms, epoch);
                Vec::new()
            }),
            Command::RescaleFailed { run, epoch, fault } => {
                self.on_run(run, |job, _| job.rescale_failed(at_ms, epoch, &fault.message))
            }
            Command::RescaleCommitted { run, epoch } => {
                self.on_run(run, |job, _| job.rescale_committed(at_ms, epoch))
            }
            Command::RescaleSwitched { run, epoch } => {
                self.on_run(run, |job, _| job.rescale_switched(at_ms, epoch))
            }
            Command::RescaleMeasured { run, epoch, rows_per_second } => self.on_run(run, |job, _| {
                job.rescale_measured(epoch, rows_per_second);
                Vec::new()
            }),
            Command::GroupsMade { run, epoch, groups } => {
                self.on_run(run, |job, alive| job.groups_made(at_ms, epoch, groups, alive))
            }
            Command::GroupMoved { run, epoch, group } => {
                self.on_run(run, |job, _| job.group_moved(epoch, group))
            }
            Command::OwnersReleased { run, epoch } => self.on_run(run, |job, _| {
                job.owners_released(at_ms, epoch);
                Vec::new()
            }),
            Command::SourcesGiven { run, epoch, given } => {
                self.on_run(run, |job, _| job.sources_given(epoch, given))
            }
            Command::SourcesHanded { run, epoch } => {
                self.on_run(run, |job, _| job.sources_handed(at_ms, epoch))
            }
            Command::AgentDrained { name, drained } => {
                self.set_drained(name, drained);
                Vec::new()
            }
            Command::AgentReleased { id } => self.agent_released(&id),
            Command::AutoSet { run, options } => self.on_run(run, |job, _| {
                job.set_automatic(at_ms, options);
                Vec::new()
            }),
            Command::AutoNoted { run, memory, plan, note } => self.on_run(run, |job, _| {
                job.automatic_noted(at_ms, *memory, plan, note);
                Vec::new()
            }),
            Command::Asked(asked) => {
                let job = asked.run.and_then(|run| self.jobs.values().find(|job| job.run == run));
                self.operations.begin(*asked, job, at_ms);
                Vec::new()
            }
        };
        let Self { operations, jobs, .. } = self;
        operations.close(at_ms, |id| jobs.get(&id));
        effects.extend(self.forget_oldest());
        if self.shutting_down && !self.jobs.values().any(Job::is_live) {
            effects.push(Effect::EndAgents);
        }
        effects
    }

    fn on_run(&mut self, run: u64, change: impl FnOnce(&mut Job, &Alive) -> Vec<Effect>) -> Vec<Effect> {
        let alive = self.those_alive();
        match self.jobs.values_mut().find(|job| job.run == run) {
            Some(job) => change(job, &alive),
            None => Vec::new(),
        }
    }

    fn those_alive(&self) -> Alive {
        Alive(self.alive().map(|info| (info.id.name.clone(), info.clone())).collect())
    }

    /// Every live job waits until each of its agents is back or counts as dead (after a lease without a
    /// word), and then goes on with what is left to do: see [`Job::resume`].
    fn coordinator_started(&mut self) {
        self.shutting_down = false;
        for agent in self.agents.values_mut() {
            if agent.presence == Presence::Alive {
                agent.presence = Presence::Away;
            }
        }
        for job in self.jobs.values_mut().filter(|job| job.is_live()) {
            job.coordinator_started();
        }
    }

    /// Jobs whose agents are all back or dead go on.
    fn resume(&mut self, at_ms: u64) -> Vec<Effect> {
        let alive = self.those_alive();
        let Self { agents, jobs, .. } = self;
        let away = |info: &AgentInfo| {
            agents.get(&info.id.name).is_some_and(|agent| agent.presence == Presence::Away)
        };
        let ready = jobs.values_mut().filter(|job| job.waits && !job.agents.iter().any(away));
        ready.flat_map(|job| job.resume(at_ms, &alive)).collect()
    }

    fn registered(&mut self, at_ms: u64, info: AgentInfo) -> Vec<Effect> {
        if self.refuses(&info).is_some() {
            return Vec::new();
        }
        let mut effects = Vec::new();
        if let Some(known) = self.agents.get(&info.id.name)
            && known.info.id != info.id
        {
            let old = known.info.id.clone();
            effects = self.agent_lost(at_ms, &old, "it was started again");
        }
        let name = info.id.name.clone();
        self.released.remove(&name);
        self.agents.insert(name.clone(), Agent { info, presence: Presence::Alive });
        let alive = self.those_alive();
        effects.extend(self.jobs.values_mut().filter_map(|job| job.agent_is_back(&name, &alive)));
        effects
    }

    fn agent_lost(&mut self, at_ms: u64, id: &AgentId, cause: &str) -> Vec<Effect> {
        let Some(agent) = self.agents.get_mut(&id.name).filter(|agent| agent.info.id == *id) else {
            return Vec::new();
        };
        if matches!(agent.presence, Presence::Dead { .. }) {
            return Vec::new();
        }
        agent.presence = Presence::Dead { cause: cause.to_owned() };
        let alive = self.those_alive();
        let mut effects = vec![Effect::TellPeersLost { id: id.clone() }];
        for job in self.jobs.values_mut() {
            effects.extend(job.lost_while_preparing(at_ms, id, cause));
            if job.needs(id) {
                effects.extend(job.agent_lost(at_ms, id, cause, &alive));
            }
        }
        effects
    }

    fn submitted(&mut self, at_ms: u64, new: NewJob) -> Vec<Effect> {
        self.last_run += 1;
        let run = self.last_run;
        let gone = new.placed.agents.iter().find(|agent| !self.is_alive(&agent.id));
        let refusal = match gone {
            Some(agent) => Some(format!("agent {} was lost while the job was planned", agent.id.name)),
            None if self.shutting_down => Some("the cluster is shutting down".to_owned()),
            None => None,
        };
        let mut job = Job::new(run, self.unique_name(&new.name), at_ms, new);
        let effects = match refusal {
            Some(message) => {
                job.end_with(at_ms, WireFault::new(FaultCode::Agent, message));
                Vec::new()
            }
            None => vec![Effect::Prepare { run }],
        };
        self.jobs.insert(run, job);
        effects
    }

    /// `name`, or `name-2` and so on while a live job has it.
    fn unique_name(&self, wanted: &str) -> String {
        let live: BTreeSet<_> =
            self.jobs.values().filter(|job| job.is_live()).map(|job| job.name.as_str()).collect();
        if !live.contains(wanted) {
            return wanted.to_owned();
        }
        // More numbers than live jobs: one of them is free.
        let mut numbered = (2..live.len() + 3).map(|n| format!("{wanted}-{n}"));
        numbered.find(|name| !live.contains(name.as_str())).unwrap_or_else(|| wanted.to_owned())
    }

    fn shutdown(&mut self, at_ms: u64) -> Vec<Effect> {
        self.shutting_down = true;
        let alive = self.those_alive();
        let reason = "the cluster is shutting down";
        self.jobs.values_mut().flat_map(|job| job.cancel(at_ms, reason, &alive)).collect()
    }

    fn forget_oldest(&mut self) -> Vec<Effect> {
        let ended: Vec<u64> = self.jobs.values().filter(|job| !job.is_live()).map(|job| job.id).collect();
        let surplus = ended.len().saturating_sub(KEPT_JOBS);
        let forgotten = ended.iter().take(surplus).filter_map(|id| self.jobs.remove(id));
        forgotten
            .filter(|job| !job.forgotten)
            .map(|job| Effect::Forget { run: job.run, agents: job.agent_ids() })
            .collect()
    }
}
