//! One job in the cluster's state: its phases, its instances that have ended, its splits.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::automatic::Automatic;
use super::command::{Command, Effect, NewJob, Placed};
use super::state::Alive;
use super::types::{
    AgentId, AgentInfo, DROPPED_BY_LOSS, EdgeLedger, FaultCode, Folded, InstanceReport, JobPhase, Pending,
    SinkFile, Split, Unasked, WireFault,
};
use crate::job::Restart;
use crate::plan::VertexId;
use crate::plan::placement::Instance;

mod automatic;
mod options;
mod scaling;
mod seal;

#[cfg(test)]
pub(super) use scaling::LISTED;
pub use scaling::PlanUnderWay;
use scaling::Plans;

/// A job and its current attempt.
///
/// It is `Starting` until all its agents have started it, then `Running`. With the logged end of its last
/// instance it has finished: it is `Sealing` while its files are made visible, and nothing fails, cancels or
/// restarts it any more; an agent that is lost then leaves it `Finished` with files pending. Before that a
/// fault or its owner takes it through `Stopping` to `Failed` or `Cancelled`, or to its next attempt: when
/// `restart` says so, or when an agent was lost before all had started, since then nothing of it counts yet.
///
/// A new coordinator lets each live job wait until its agents are back or count as dead. Its rows flow on
/// meanwhile, and a job all of whose agents are back has lost nothing: one that was `Running` or `Sealing` goes on.
/// An agent that is dead, or back as another incarnation, counts as lost. A job that was `Starting` is stopped, and
/// fails or begins again as `restart` says; one that was `Stopping` stops as it was to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The run id of its first attempt; names the job for good.
    pub id: u64,
    /// The run id of the current attempt.
    pub run: u64,
    /// From 1.
    pub attempt: u32,
    /// Unique among live jobs.
    pub name: String,
    /// Where the current attempt stands.
    pub phase: JobPhase,
    /// What comes after `Stopping`.
    then: Option<AfterStop>,
    /// Why it was stopped.
    pub fault: Option<WireFault>,
    /// When it was submitted, ms since 1970.
    pub submitted_ms: u64,
    /// When its rows began to flow.
    pub started_ms: Option<u64>,
    /// When its last instance ended, or was stopped.
    pub rows_ended_ms: Option<u64>,
    /// When it reached its last phase.
    pub ended_ms: Option<u64>,
    /// The job as JSON.
    pub job: String,
    /// The plan as JSON.
    pub dag: String,
    /// Names of the plan's edges.
    pub edge_names: Vec<String>,
    /// Stages that write files, with their vertex.
    pub file_sinks: BTreeMap<String, VertexId>,
    /// Column names of csv sources with a header.
    pub headers: BTreeMap<String, Vec<String>>,
    /// What an agent's loss does.
    pub restart: Restart,
    /// Agents of the current attempt.
    pub agents: Vec<AgentInfo>,
    /// Instances of the current attempt by their ids, those too that a rescale has ended and that are not folded.
    pub instances: Vec<Instance>,
    /// Ids of instances that a rescale has ended; their last counters are in `ended`.
    pub retired: BTreeSet<u32>,
    /// Older ones that a rescale has ended.
    pub folded: BTreeMap<VertexId, Folded>,
    /// How many agents the current attempt began with: rows are numbered by it.
    pub first_agents: u16,
    plans: Plans,
    splits: BTreeMap<String, Splits>,
    /// Final counters of instances that have ended.
    pub ended: BTreeMap<u32, InstanceReport>,
    /// Files of its sinks: hidden parts until it has finished, visible ones then.
    pub files: Vec<SinkFile>,
    /// While it is sealed: files that are visible already.
    visible: Vec<SinkFile>,
    /// Agents that could not make files visible, and why.
    seal_causes: BTreeMap<String, String>,
    /// Once it has finished: files that are not visible yet.
    pub pending: Vec<Pending>,
    /// Parts that earlier attempts have left.
    pub earlier_parts: Vec<SinkFile>,
    /// Sink instances of agents that could not be asked for their parts, of all attempts.
    pub unasked: Vec<Unasked>,
    /// The ledger at the end, summed over agents; empty before.
    pub ledger: Vec<EdgeLedger>,
    options: BTreeMap<(String, String), String>,
    /// Policy and options by edge.
    policies: BTreeMap<u32, (String, String)>,
    /// Its agents have nothing of it any more.
    pub forgotten: bool,
    /// It waits until its agents are back with a new coordinator, or dead.
    pub waits: bool,
    /// Agents whose loss during a start has led to another one: once each.
    begun_without: BTreeSet<String>,
    /// Its automatic mode, once it was turned on.
    pub automatic: Option<Automatic>,
}

/// What comes after `Stopping`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum AfterStop {
    Fail,
    Cancel,
    Restart,
    /// It has stopped and waits for the places of its next attempt.
    Replace,
}

/// A job that has ended keeps its splits unless they are more.
const KEPT_SPLITS: usize = 1000;

/// The splits of one source stage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Splits {
    all: Vec<Split>,
    /// Splits below this number are taken.
    next: u32,
    /// Numbers by instance, in the order they were given.
    taken: BTreeMap<u32, Vec<u32>>,
    /// Numbers of those that were given back and wait for another instance.
    back: Vec<u32>,
}

/// The answer to an instance that asks for a split.
#[derive(Debug, Clone, PartialEq)]
pub enum NextSplit {
    /// It was given this one before; its reply was lost.
    Again(Split),
    /// It gets this one once the command is logged.
    Take(Split, Command),
    /// No split is left.
    Exhausted,
    /// The stage has no splits, or the run is not live.
    Unknown,
}

impl Job {
    pub(super) fn new(run: u64, name: String, at_ms: u64, new: NewJob) -> Self {
        Self {
            id: run,
            run,
            attempt: 1,
            name,
            phase: JobPhase::Starting,
            then: None,
            fault: None,
            submitted_ms: at_ms,
            started_ms: None,
            rows_ended_ms: None,
            ended_ms: None,
            job: new.job,
            dag: new.dag,
            edge_names: new.edge_names,
            file_sinks: new.file_sinks,
            headers: new.headers,
            restart: new.restart,
            first_agents: new.placed.agents.len() as u16,
            agents: new.placed.agents,
            instances: new.placed.instances,
            retired: BTreeSet::new(),
            folded: BTreeMap::new(),
            plans: Plans::first(),
            splits: splits(new.placed.splits),
            ended: BTreeMap::new(),
            files: Vec::new(),
            visible: Vec::new(),
            seal_causes: BTreeMap::new(),
            pending: Vec::new(),
            earlier_parts: Vec::new(),
            unasked: Vec::new(),
            ledger: Vec::new(),
            options: BTreeMap::new(),
            policies: BTreeMap::new(),
            forgotten: false,
            waits: false,
            begun_without: BTreeSet::new(),
            automatic: None,
        }
    }

    /// It may still change.
    pub fn is_live(&self) -> bool {
        !self.phase.is_final()
    }

    /// Its instances may be running.
    pub fn is_active(&self) -> bool {
        matches!(self.phase, JobPhase::Starting | JobPhase::Running)
    }

    /// An agent, in this incarnation, takes part in the current attempt.
    pub fn uses(&self, id: &AgentId) -> bool {
        self.agents.iter().any(|agent| agent.id == *id)
    }

    /// Files of it are on an agent of this name.
    pub fn has_files_on(&self, agent: &str) -> bool {
        self.files.iter().chain(&self.visible).any(|file| file.agent == agent)
    }

    /// Rows per edge name that nobody took (see [`EdgeLedger::lost`]).
    pub fn rows_lost(&self) -> Vec<(&str, u64)> {
        self.ledger
            .iter()
            .filter_map(|edge| {
                let lost = edge.lost();
                let name = self.edge_names.get(edge.edge as usize).map_or("an unnamed edge", String::as_str);
                (lost > 0).then_some((name, lost))
            })
            .collect()
    }

    /// What an instance gets that was given `have` splits so far.
    pub fn next_split(&self, stage: &str, instance: u32, have: u32) -> NextSplit {
        let Some(splits) = self.splits.get(stage).filter(|_| self.is_active()) else {
            return NextSplit::Unknown;
        };
        let given = splits.taken.get(&instance).and_then(|taken| taken.get(have as usize));
        if let Some(split) = given.and_then(|number| splits.all.get(*number as usize)) {
            return NextSplit::Again(split.clone());
        }
        // A request that comes late, of one that has given back what it had.
        if self.ended.contains_key(&instance) || self.has_given(instance) {
            return NextSplit::Exhausted;
        }
        let number = splits.back.first().copied().unwrap_or(splits.next);
        match splits.all.get(number as usize) {
            Some(split) => NextSplit::Take(
                split.clone(),
                Command::SplitTaken { run: self.run, stage: stage.to_owned(), instance, split: number },
            ),
            None => NextSplit::Exhausted,
        }
    }

    /// A split of one of its shared sources.
    pub fn split(&self, stage: &str, number: u32) -> Option<&Split> {
        self.splits.get(stage)?.all.get(number as usize)
    }

    pub(super) fn split_taken(&mut self, stage: &str, instance: u32, split: u32) {
        if self.is_active()
            && let Some(splits) = self.splits.get_mut(stage)
        {
            if let Some(at) = splits.back.iter().position(|back| *back == split) {
                splits.back.remove(at);
            } else if splits.next == split && (split as usize) < splits.all.len() {
                splits.next += 1;
            } else {
                return;
            }
            splits.taken.entry(instance).or_default().push(split);
        }
    }

    /// An instance gives back the split that it was given last, and asks for no other; whoever asks next goes on
    /// with it.
    pub(super) fn split_returned(&mut self, stage: &str, instance: u32, split: Split) {
        if self.is_active()
            && let Some(splits) = self.splits.get_mut(stage)
            && let Some(taken) = splits.taken.get_mut(&instance)
            && taken.last() == Some(&split.number)
            && let Some(known) = splits.all.get_mut(split.number as usize)
            && (&known.path, known.start, known.end) == (&split.path, split.start, split.end)
        {
            taken.pop();
            splits.back.push(split.number);
            *known = split;
        }
    }

    /// An instance asks for no split any more.
    fn splits_given(&mut self, instance: u32) {
        for splits in self.splits.values_mut() {
            splits.taken.remove(&instance);
        }
    }

    pub(super) fn prepared(&mut self, at_ms: u64, alive: &Alive) -> Vec<Effect> {
        if self.phase != JobPhase::Starting {
            return Vec::new();
        }
        self.phase = JobPhase::Running;
        self.started_ms = Some(at_ms);
        let mut effects = self.changes();
        effects.extend(self.seal_if_done(at_ms, alive));
        effects
    }

    pub(super) fn instance_ended(
        &mut self,
        at_ms: u64,
        instance: u32,
        last: InstanceReport,
        files: Vec<SinkFile>,
        alive: &Alive,
    ) -> Vec<Effect> {
        if !self.lists(instance) || !self.is_active() || self.ended.contains_key(&instance) {
            return Vec::new();
        }
        self.ended.insert(instance, last);
        self.files.extend(files);
        self.ended_by_plan(at_ms, instance);
        self.seal_if_done(at_ms, alive)
    }

    /// A new coordinator has found it live. One that runs goes on running on its agents; of one that was being
    /// started nobody knows how far that came.
    pub(super) fn coordinator_started(&mut self) {
        self.waits = true;
        if self.phase == JobPhase::Starting {
            let message = "the coordinator ended while the job was being started";
            self.fault = Some(WireFault::new(FaultCode::Agent, message));
            self.phase = JobPhase::Stopping;
            self.then = Some(match self.restart {
                Restart::FromStart => AfterStop::Restart,
                Restart::Never => AfterStop::Fail,
            });
        }
    }

    /// Its agents are back or dead: it goes on where it was under the earlier coordinator.
    pub(super) fn resume(&mut self, at_ms: u64, alive: &Alive) -> Vec<Effect> {
        self.waits = false;
        match (self.phase, self.then) {
            (JobPhase::Running, _) => {
                // A change that was under way may have reached some of its agents and not others.
                let mut effects = self.resume_rescale(at_ms);
                effects.extend(self.changes());
                effects.extend(self.seal_if_done(at_ms, alive));
                effects
            }
            (JobPhase::Sealing, _) => vec![self.seal(alive)],
            (JobPhase::Stopping, Some(AfterStop::Replace)) => vec![Effect::Replace { run: self.run }],
            (JobPhase::Stopping, Some(then)) => {
                let reason = match &self.fault {
                    Some(fault) => fault.message.clone(),
                    None => "cancelled by its owner".to_owned(),
                };
                self.stop_at(at_ms, then, reason, alive)
            }
            _ => Vec::new(),
        }
    }

    /// What was changed since it was submitted, to be told its agents.
    fn changes(&self) -> Vec<Effect> {
        let run = self.run;
        let options = self.options.iter().map(|((stage, option), value)| Effect::Set {
            run,
            stage: stage.clone(),
            option: option.clone(),
            value: value.clone(),
        });
        let policies = self.policies.iter().map(|(&edge, (policy, options))| Effect::Route {
            run,
            edge,
            policy: policy.clone(),
            options: options.clone(),
        });
        options.chain(policies).collect()
    }

    /// One of its agents is dead.
    pub(super) fn agent_lost(&mut self, at_ms: u64, id: &AgentId, cause: &str, alive: &Alive) -> Vec<Effect> {
        let fault = WireFault::new(FaultCode::Agent, format!("agent {} was lost: {cause}", id.name));
        if self.phase == JobPhase::Starting && self.begun_without.insert(id.name.clone()) {
            return self.stop_for(at_ms, fault, AfterStop::Restart, alive);
        }
        self.fail(at_ms, fault, alive)
    }

    /// Stops it because of a fault. `alive` are the agents that are left. The loss of an agent may
    /// begin a new attempt, if the job asks for that.
    pub(super) fn fail(&mut self, at_ms: u64, fault: WireFault, alive: &Alive) -> Vec<Effect> {
        let again = fault.code == FaultCode::Agent && self.restart == Restart::FromStart;
        self.stop_for(at_ms, fault, if again { AfterStop::Restart } else { AfterStop::Fail }, alive)
    }

    /// As `fail`, and never begins a new attempt: what failed was the attempt's own beginning, which
    /// could fail for ever. An agent that died meanwhile is reported as lost before, and then this
    /// comes too late to matter.
    pub(super) fn prepare_failed(&mut self, at_ms: u64, fault: WireFault, alive: &Alive) -> Vec<Effect> {
        if self.phase != JobPhase::Starting {
            return Vec::new();
        }
        self.stop_for(at_ms, fault, AfterStop::Fail, alive)
    }

    fn stop_for(&mut self, at_ms: u64, fault: WireFault, then: AfterStop, alive: &Alive) -> Vec<Effect> {
        if !self.is_active() {
            return Vec::new();
        }
        let reason = fault.message.clone();
        self.fault = Some(fault);
        self.stop_at(at_ms, then, reason, alive)
    }

    pub(super) fn cancel(&mut self, at_ms: u64, reason: &str, alive: &Alive) -> Vec<Effect> {
        match (self.phase, self.then) {
            (JobPhase::Starting | JobPhase::Running, _) => {
                return self.stop_at(at_ms, AfterStop::Cancel, reason.to_owned(), alive);
            }
            (JobPhase::Stopping, Some(AfterStop::Restart)) => self.then = Some(AfterStop::Cancel),
            (JobPhase::Stopping, Some(AfterStop::Replace)) => self.end(at_ms, JobPhase::Cancelled),
            _ => {}
        }
        Vec::new()
    }

    fn stop_at(&mut self, at_ms: u64, then: AfterStop, reason: String, alive: &Alive) -> Vec<Effect> {
        self.phase = JobPhase::Stopping;
        self.then = Some(then);
        // Agents that are not back yet would not be told: that is for `resume`.
        if self.waits {
            return Vec::new();
        }
        let why = format!("the job was stopped: {reason}");
        let agents = self.all_agents().map(|agent| &agent.id).filter(|id| alive.has(id)).cloned().collect();
        let stop = Effect::Stop { run: self.run, agents, reason, discard: !self.has_begun() };
        self.end_rescale(at_ms, &why);
        vec![stop]
    }

    /// All agents of this attempt had started it.
    fn has_begun(&self) -> bool {
        self.started_ms.is_some()
    }

    pub(super) fn stopped(
        &mut self,
        at_ms: u64,
        edges: Vec<EdgeLedger>,
        parts: Vec<SinkFile>,
        answered: &[String],
    ) -> Vec<Effect> {
        // A second `Stopped` of a run that waits for its new places changes nothing.
        if self.phase != JobPhase::Stopping || self.then == Some(AfterStop::Replace) {
            return Vec::new();
        }
        self.waits = false;
        self.ledger = edges.into_iter().map(closed).collect();
        self.rows_ended_ms.get_or_insert(at_ms);
        self.name_parts(parts, answered);
        match self.then {
            Some(AfterStop::Restart) => {
                self.then = Some(AfterStop::Replace);
                return vec![Effect::Replace { run: self.run }];
            }
            Some(AfterStop::Cancel) => self.end(at_ms, JobPhase::Cancelled),
            _ => {
                self.name_lost_rows();
                self.end(at_ms, JobPhase::Failed);
            }
        }
        Vec::new()
    }

    /// A new attempt; what the old one left on its agents is not needed any more.
    pub(super) fn restarted(&mut self, run: u64, placed: Placed, alive: &Alive) -> Vec<Effect> {
        if self.then != Some(AfterStop::Replace) {
            return Vec::new();
        }
        if !placed.agents.iter().all(|agent| alive.has(&agent.id)) {
            return vec![Effect::Replace { run: self.run }];
        }
        let forget = Effect::Forget { run: self.run, agents: self.agent_ids() };
        self.run = run;
        self.attempt += 1;
        self.phase = JobPhase::Starting;
        self.then = None;
        self.waits = false;
        self.fault = None;
        self.started_ms = None;
        self.rows_ended_ms = None;
        self.first_agents = placed.agents.len() as u16;
        self.agents = placed.agents;
        self.instances = placed.instances;
        self.retired.clear();
        self.folded.clear();
        self.plans.another_attempt();
        self.splits = splits(placed.splits);
        self.ended.clear();
        self.earlier_parts.append(&mut self.files);
        self.ledger.clear();
        vec![forget, Effect::Prepare { run }]
    }

    pub(super) fn restart_failed(&mut self, at_ms: u64, fault: &WireFault) {
        if self.then != Some(AfterStop::Replace) {
            return;
        }
        self.name_lost_rows();
        if let Some(first) = &mut self.fault {
            first.message = format!("{}; it could not be started again: {}", first.message, fault.message);
        }
        self.end(at_ms, JobPhase::Failed);
    }

    /// Ends it at once: those who ran it are gone, or never began.
    pub(super) fn end_with(&mut self, at_ms: u64, fault: WireFault) {
        self.fault = Some(fault);
        self.rows_ended_ms.get_or_insert(at_ms);
        self.end(at_ms, JobPhase::Failed);
        self.forgotten = true;
    }

    pub(super) fn agent_ids(&self) -> Vec<AgentId> {
        self.agents.iter().map(|agent| agent.id.clone()).collect()
    }

    fn end(&mut self, at_ms: u64, phase: JobPhase) {
        self.phase = phase;
        self.then = None;
        self.waits = false;
        self.ended_ms = Some(at_ms);
        // They name the files of rows that were left out. Where there are very many, lines must do.
        if self.splits.values().map(|splits| splits.all.len()).sum::<usize>() > KEPT_SPLITS {
            self.splits.clear();
        }
        self.splits.values_mut().for_each(|splits| splits.taken.clear());
    }

    /// Notes the parts that a stop has left, and whose parts nobody could be asked for.
    fn name_parts(&mut self, parts: Vec<SinkFile>, answered: &[String]) {
        if !self.has_begun() {
            // Those who answered have removed what they had.
            self.files.retain(|file| !answered.contains(&file.agent));
        }
        for part in parts {
            if !self.files.iter().any(|file| file.agent == part.agent && file.path == part.path) {
                self.files.push(part);
            }
        }
        for (index, agent) in (0u16..).zip(&self.agents) {
            let is_open =
                |instance: &&Instance| instance.agent == index && !self.ended.contains_key(&instance.id);
            let stage = |instance: &Instance| {
                self.file_sinks.iter().find(|(_, vertex)| **vertex == instance.vertex).map(|(stage, _)| stage)
            };
            let name = |instance: &Instance| Some(format!("{}#{}", stage(instance)?, instance.number));
            let instances: Vec<_> = self.instances.iter().filter(is_open).filter_map(name).collect();
            if !instances.is_empty() && !answered.contains(&agent.id.name) {
                let agent = agent.id.name.clone();
                self.unasked.push(Unasked { agent, attempt: self.attempt, instances });
            }
        }
    }

    fn name_lost_rows(&mut self) {
        let lost: Vec<_> = self.rows_lost().iter().map(|(edge, rows)| format!("{edge} {rows}")).collect();
        if let Some(fault) = &mut self.fault
            && fault.code == FaultCode::Agent
            && !lost.is_empty()
        {
            fault.message = format!("{}; rows lost: {}", fault.message, lost.join(", "));
        }
    }
}

/// An edge's ledger once a run was stopped: nothing waits or is under way any more, so that every row
/// emitted was taken or dropped. Agents were not asked at one moment: a row may have been under way at
/// its sender and dropped by its receiver, and a lost sender's last word may be older than what
/// arrived from it.
fn closed(mut edge: EdgeLedger) -> EdgeLedger {
    (edge.queued_out, edge.in_flight, edge.queued_in) = (0, 0, 0);
    let accounted = edge.accounted();
    let lost = edge.emitted.saturating_sub(accounted);
    if lost > 0 {
        let dropped = edge.dropped.entry(DROPPED_BY_LOSS.to_owned()).or_default();
        *dropped = dropped.saturating_add(lost);
    }
    // What arrived was emitted, whether or not its sender could still say so.
    edge.emitted = edge.emitted.max(accounted);
    edge
}

fn splits(all: BTreeMap<String, Vec<Split>>) -> BTreeMap<String, Splits> {
    all.into_iter().map(|(stage, all)| (stage, Splits { all, ..Splits::default() })).collect()
}
