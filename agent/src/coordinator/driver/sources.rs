//! What source instances have not read that a plan ends goes to others: each step carried out on the agents, and noted.

use tuplane_core::cluster::{Command, SourceUnit};

use super::Driver;
use crate::coordinator::effects::keys::Places;
use crate::coordinator::effects::sources;

impl Driver {
    /// Stops source instances that end.
    pub(super) fn give_sources(&self, run: u64, epoch: u64) {
        let Some(job) = self.state.run(run) else { return };
        let Some(plan) = job.under_way().filter(|plan| plan.new.epoch == epoch) else { return };
        // Those too that have ended under an earlier coordinator: their agents know what they have not read.
        let knows = |id: u32| !job.retired.contains(&id) || plan.new.going.contains(&id);
        let places = Places::new(&job.agents, job.instances.iter().filter(|one| knows(one.id)));
        let moves = plan.new.sources.clone();
        let (links, on) = (self.links.clone(), places.clone());
        self.step(run, places, async move {
            let given = sources::give(&links, &on, (run, epoch), &moves).await?;
            let left: Vec<u32> =
                given.iter().flat_map(|given| &given.units).map(SourceUnit::number).collect();
            tracing::info!(run, epoch, ended = given.len(), ?left, "source instances have ended");
            Ok(Command::SourcesGiven { run, epoch, given })
        });
    }

    /// Hands over what they have not read.
    pub(super) fn hand_sources(&self, run: u64, epoch: u64) {
        let Some((job, places)) = self.moving(run, epoch) else { return };
        let moves = job.under_way().map(|plan| plan.new.sources.clone()).unwrap_or_default();
        let Some(handed) = job.handed().cloned() else { return };
        let (links, on) = (self.links.clone(), places.clone());
        self.step(run, places, async move {
            sources::hand(&links, &on, (run, epoch), &moves, &handed).await?;
            tracing::info!(run, epoch, takers = handed.len(), "what they had not read is with others");
            Ok(Command::SourcesHanded { run, epoch })
        });
    }
}
