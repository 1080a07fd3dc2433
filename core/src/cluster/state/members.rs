//! Agents that are drained, and those that are released.

use super::{Job, Presence, State};
use crate::cluster::command::Effect;
use crate::cluster::types::{AgentId, AgentInfo};
use crate::plan::placement::Instance;

/// What a live job has on an agent: why that cannot be released.
#[derive(Debug, Clone, PartialEq)]
pub struct Held<'a> {
    /// The job.
    pub job: &'a Job,
    /// Its instances there that no rescale has ended; it fails without them.
    pub instances: Vec<&'a Instance>,
    /// A plan that is being prepared has instances there.
    pub prepares: bool,
    /// Hidden parts of its files are there.
    pub files: bool,
}

impl State {
    /// An agent of this name gets no new instances.
    pub fn is_drained(&self, name: &str) -> bool {
        self.drained.contains(name)
    }

    /// Agents that new instances may go to.
    pub fn open(&self) -> impl Iterator<Item = &AgentInfo> {
        self.alive().filter(|info| !self.is_drained(&info.id.name))
    }

    /// What live jobs have on an agent.
    pub fn held_by(&self, id: &AgentId) -> Vec<Held<'_>> {
        let all = self.jobs().filter(|job| job.is_live()).map(|job| Held {
            instances: job.standing_on(id),
            prepares: job.prepares_on(id),
            files: job.has_files_on(&id.name),
            job,
        });
        all.filter(|held| !held.instances.is_empty() || held.prepares || held.files).collect()
    }

    pub(super) fn set_drained(&mut self, name: String, drained: bool) {
        if drained && self.agents.contains_key(&name) {
            self.drained.insert(name);
        } else if !drained {
            self.drained.remove(&name);
        }
    }

    /// An agent that is drained, or dead, and without which every job goes on, is forgotten.
    pub(super) fn agent_released(&mut self, id: &AgentId) -> Vec<Effect> {
        let Some(agent) = self.agents.get(&id.name).filter(|agent| agent.info.id == *id) else {
            return Vec::new();
        };
        let dead = matches!(agent.presence, Presence::Dead { .. });
        if !(dead || self.is_drained(&id.name)) || !self.held_by(id).is_empty() {
            return Vec::new();
        }
        self.drained.remove(&id.name);
        if let Some(agent) = self.agents.remove(&id.name) {
            self.released.insert(id.name.clone(), agent.info);
        }
        vec![Effect::TellPeersLost { id: id.clone() }]
    }

    /// This is an incarnation of an agent that was released, or a later one of the same process.
    pub(super) fn was_released(&self, info: &AgentInfo) -> bool {
        self.released.get(&info.id.name).is_some_and(|gone| {
            let same = (gone.pid, &gone.host, &gone.address) == (info.pid, &info.host, &info.address);
            same || info.id.incarnation <= gone.id.incarnation
        })
    }
}
