//! Making a finished job's files visible: who renames what, and what stays pending.

use std::collections::{BTreeMap, BTreeSet};

use super::Job;
use crate::cluster::command::{Effect, SealTask, SealWork};
use crate::cluster::state::Alive;
use crate::cluster::types::{AgentInfo, EdgeLedger, JobPhase, Pending, SinkFile};

impl Job {
    /// Once its last instance has ended it has finished, and its files are made visible, by agents that are all
    /// there.
    pub(super) fn seal_if_done(&mut self, at_ms: u64, alive: &Alive) -> Vec<Effect> {
        if self.phase != JobPhase::Running || self.waits || self.ended.len() < self.instances.len() {
            return Vec::new();
        }
        let under_way = self.under_way().map(|plan| plan.new.epoch);
        let why = "the job came to its end before";
        let mut effects = under_way.map_or_else(Vec::new, |epoch| self.rescale_failed(at_ms, epoch, why));
        // One that was committed has lost nothing: all that it was to do is done.
        self.finish_rescale(at_ms);
        self.phase = JobPhase::Sealing;
        self.rows_ended_ms = Some(at_ms);
        effects.push(self.seal(alive));
        effects
    }

    /// What is left to be made visible, by those that can.
    pub(super) fn seal(&self, alive: &Alive) -> Effect {
        Effect::Seal { run: self.run, tasks: self.seal_tasks(&self.files, alive) }
    }

    /// Files have been made visible, or could not be. A part whose agent is gone is another agent's to
    /// rename, if that one is on the same host and has not failed before; what nobody is left for stays
    /// pending, and the job has finished all the same.
    pub(in crate::cluster) fn sealed(
        &mut self,
        at_ms: u64,
        work: SealWork,
        edges: Vec<EdgeLedger>,
        alive: &Alive,
    ) -> Vec<Effect> {
        match self.phase {
            JobPhase::Sealing => {
                self.waits = false;
                let known = |job: &Self| (job.files.len(), job.visible.len(), job.seal_causes.len());
                let before = known(self);
                self.files.retain(|part| !is_among(part, &work.parts));
                add_new(&mut self.visible, work.files);
                self.seal_causes.extend(work.causes);
                let tasks = self.seal_tasks(&self.files, alive);
                // Each round must come nearer to the end, or there would be none.
                if !tasks.is_empty() && known(self) != before {
                    return vec![Effect::Seal { run: self.run, tasks }];
                }
                let hidden = std::mem::take(&mut self.files);
                self.pending = self.pending_on_agents(hidden);
                self.files = std::mem::take(&mut self.visible);
                self.ledger = edges;
                self.end(at_ms, JobPhase::Finished);
            }
            JobPhase::Finished => {
                let mut hidden: Vec<_> =
                    std::mem::take(&mut self.pending).into_iter().flat_map(|pending| pending.parts).collect();
                let before = hidden.len();
                hidden.retain(|part| !is_among(part, &work.parts));
                if hidden.len() < before {
                    add_new(&mut self.files, work.files);
                }
                self.seal_causes.extend(work.causes);
                self.pending = self.pending_on_agents(hidden);
            }
            _ => {}
        }
        Vec::new()
    }

    /// An agent has joined: it may reach what is pending.
    pub(in crate::cluster) fn agent_is_back(&mut self, name: &str, alive: &Alive) -> Option<Effect> {
        self.seal_causes.remove(name);
        let hidden: Vec<_> = self.pending.iter().flat_map(|pending| pending.parts.iter().cloned()).collect();
        let mut tasks = self.seal_tasks(&hidden, alive);
        tasks.retain(|task| task.agent.name == name && !task.parts.is_empty());
        (!tasks.is_empty()).then_some(Effect::Seal { run: self.run, tasks })
    }

    /// One task per agent that has something to make visible; parts that nobody reaches are in none.
    fn seal_tasks(&self, hidden: &[SinkFile], alive: &Alive) -> Vec<SealTask> {
        let mut tasks = BTreeMap::new();
        for part in hidden {
            if let Some(info) = self.who_reaches(&part.agent, alive) {
                task_of(&mut tasks, info).parts.push(part.clone());
            }
        }
        if self.phase == JobPhase::Sealing {
            let written: BTreeSet<&str> =
                self.files.iter().chain(&self.visible).map(|file| file.stage.as_str()).collect();
            for stage in self.file_sinks.keys().filter(|stage| !written.contains(stage.as_str())) {
                if let Some(info) = self.who_has(stage, alive) {
                    task_of(&mut tasks, info).empty.push(stage.clone());
                }
            }
        }
        tasks.into_values().collect()
    }

    /// Who can rename a part of an agent: itself, in whatever incarnation; else another agent on its host,
    /// since all processes of a host see the same paths. Parts have names of their own, so that a second
    /// renaming, or one of an agent that does not see the path, does no harm.
    fn who_reaches<'a>(&self, owner: &str, alive: &'a Alive) -> Option<&'a AgentInfo> {
        let host = &self.agents.iter().find(|agent| agent.id.name == owner)?.host;
        alive
            .iter()
            .filter(|info| info.host == *host && !self.seal_causes.contains_key(&info.id.name))
            .min_by_key(|info| (info.id.name != owner, !self.uses(&info.id)))
    }

    /// The agent with the first instance of a sink among those that are left.
    fn who_has<'a>(&self, stage: &str, alive: &'a Alive) -> Option<&'a AgentInfo> {
        let vertex = self.file_sinks.get(stage)?;
        let agent = |number: u16| {
            let id = &self.agents.get(usize::from(number))?.id;
            alive.iter().find(|info| info.id == *id)
        };
        self.standing()
            .filter(|instance| instance.vertex == *vertex)
            .filter_map(|instance| Some((instance.number, agent(instance.agent)?)))
            .filter(|(_, info)| !self.seal_causes.contains_key(&info.id.name))
            .min_by_key(|(number, _)| *number)
            .map(|(_, info)| info)
    }

    fn pending_on_agents(&self, hidden: Vec<SinkFile>) -> Vec<Pending> {
        let mut pending: BTreeMap<String, Vec<SinkFile>> = BTreeMap::new();
        for part in hidden {
            pending.entry(part.agent.clone()).or_default().push(part);
        }
        let with_cause = |(agent, parts): (String, Vec<SinkFile>)| {
            let cause = self.seal_causes.get(&agent).cloned();
            Pending {
                cause: cause.unwrap_or_else(|| "it was lost before it had renamed them".to_owned()),
                agent,
                parts,
            }
        };
        pending.into_iter().map(with_cause).collect()
    }
}

/// The task of an agent, made where there is none yet.
fn task_of<'a, 'b>(tasks: &'b mut BTreeMap<&'a str, SealTask>, info: &'a AgentInfo) -> &'b mut SealTask {
    tasks.entry(&info.id.name).or_insert_with(|| SealTask {
        agent: info.id.clone(),
        parts: Vec::new(),
        empty: Vec::new(),
    })
}

fn is_among(part: &SinkFile, parts: &[SinkFile]) -> bool {
    parts.iter().any(|other| other.agent == part.agent && other.path == part.path)
}

/// Adds files that are not there yet. Two agents of a host may both say that they have renamed one.
fn add_new(files: &mut Vec<SinkFile>, new: Vec<SinkFile>) {
    for file in new {
        if !files.iter().any(|known| known.path == file.path) {
            files.push(file);
        }
    }
}
