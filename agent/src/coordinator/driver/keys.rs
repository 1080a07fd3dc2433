//! Key partitions of a job that move: each step carried out on the agents, and noted.

use std::future::Future;

use tuplane_core::cluster::{Command, Job};
use tuplane_core::plan::{KeyMap, Vertex, VertexId};
use tuplane_wire::message::{FaultCode, WireFault};
use tuplane_wire::scaling::KeyGroup;

use super::scale::read;
use super::{Driver, Note};
use crate::coordinator::effects::keys::{self, Places};

impl Driver {
    /// The plan of a run that moves key partitions, and where its instances are.
    pub(super) fn moving(&self, run: u64, epoch: u64) -> Option<(&Job, Places)> {
        let job = self.state.run(run)?;
        job.under_way().filter(|plan| plan.new.epoch == epoch)?;
        // An agent that an earlier plan has emptied knows nothing of this one; before it is committed what comes with it counts too.
        let agents: Vec<_> = job.all_agents().cloned().collect();
        Some((job, Places::new(&agents, job.standing_by_plan())))
    }

    /// Key partitions that a plan moves, with their vertex as people call it, and where its instances are.
    pub(super) fn to_move(&self, run: u64, epoch: u64) -> (Places, Vec<(String, KeyMap)>) {
        let Some((job, places)) = self.moving(run, epoch) else { return (Places::default(), Vec::new()) };
        let dag = read(job).map(|(_, dag)| dag);
        let label = |vertex: VertexId| {
            let known = dag.as_ref().ok().and_then(|dag| dag.vertices.get(vertex.0 as usize));
            known.map_or_else(|| format!("vertex {}", vertex.0), Vertex::label)
        };
        let maps = job.under_way().map(|plan| plan.new.maps.clone()).unwrap_or_default();
        (places, maps.into_iter().map(|map| (label(map.vertex), map)).collect())
    }

    /// Finds out what moves together.
    pub(super) fn divide(&self, run: u64, epoch: u64) {
        let Some((job, places)) = self.moving(run, epoch) else { return };
        let maps = job.under_way().map(|plan| plan.new.maps.clone()).unwrap_or_default();
        let (links, on) = (self.links.clone(), places.clone());
        self.step(run, places, async move {
            let groups = keys::divide(&links, run, epoch, &on, &maps).await?;
            tracing::info!(run, epoch, groups = groups.len(), "key partitions move");
            Ok(Command::GroupsMade { run, epoch, groups })
        });
    }

    /// Moves a group.
    pub(super) fn move_group(&self, run: u64, epoch: u64, number: u32) {
        let Some((job, places)) = self.moving(run, epoch) else { return };
        let Some(group) = job.groups().and_then(|(groups, _)| groups.get(number as usize)) else { return };
        let (from, to, partitions) = (group.from, group.to, group.partitions.clone());
        let group = KeyGroup { run, epoch, number, from, to, partitions };
        let (links, on) = (self.links.clone(), places.clone());
        self.step(run, places, async move {
            keys::move_group(&links, &on, group).await?;
            tracing::debug!(run, epoch, number, "a group of key partitions has moved");
            Ok(Command::GroupMoved { run, epoch, group: number })
        });
    }

    /// Lets go what holds nothing any more.
    pub(super) fn release_owners(&self, run: u64, epoch: u64) {
        let Some((_, places)) = self.moving(run, epoch) else { return };
        let (links, on) = (self.links.clone(), places.clone());
        self.step(run, places, async move {
            keys::release(&links, &on, run, epoch).await?;
            Ok(Command::OwnersReleased { run, epoch })
        });
    }

    /// Does something on the agents of a plan that was committed; there is no way back, so that its failure is the
    /// run's.
    pub(super) fn step(
        &self,
        run: u64,
        places: Places,
        work: impl Future<Output = Result<Command, WireFault>> + Send + 'static,
    ) {
        let (links, notes) = (self.links.clone(), self.notes.clone());
        tokio::spawn(async move {
            let command = match work.await {
                Ok(command) => command,
                Err(fault) => {
                    if fault.code == FaultCode::Agent {
                        // Noted before, so that a run that begins again does so without it.
                        for (id, cause) in links.gone_among(places.agents()).await {
                            let _ = notes.send(Note::Gone { id, cause });
                        }
                    }
                    Command::InstanceFailed { run, instance: 0, fault }
                }
            };
            // Without its receiver the coordinator has ended.
            let _ = notes.send(Note::Happened(command));
        });
    }
}

#[cfg(test)]
mod tests;
