//! Operations: what was asked of the cluster while jobs ran, noted with who asked and what came of it.

use tuplane_core::cluster::operation::{Asked, entry};
use tuplane_core::cluster::{Command, Job};
use tuplane_core::plan::KeyMap;
use tuplane_wire::message::{ClusterReply, WireFault};
use tuplane_wire::operation::{OperationList, OperationNow};

use super::{Driver, Turn, wall_ms};

/// Who asks, where the one who does has not said so.
const SOMEBODY: &str = "somebody";

/// So long a name is believed.
const LONGEST: usize = 80;

impl Driver {
    /// Who makes the request that is being looked at.
    pub(super) fn asker(&self) -> String {
        self.asker.clone().unwrap_or_else(|| SOMEBODY.to_owned())
    }

    /// Notes who makes the next request.
    pub(super) fn asked_by(&mut self, who: &str) {
        let who: String = who.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
        self.asker = Some(who).filter(|who| !who.is_empty());
    }

    /// Gives a number to a change that was asked for and that is done at once, or that a plan carries out.
    pub(super) fn operation(
        &mut self,
        turn: &mut Turn,
        what: String,
        by: String,
        run: Option<u64>,
        plan: Option<u64>,
    ) {
        let asked = Asked { what, by, at_ms: wall_ms(), run, plan, fault: None };
        self.apply(turn, Command::Asked(Box::new(asked)));
    }

    /// What was asked of the cluster, or of one job.
    pub(super) fn operations(&self, job: Option<&str>) -> Result<ClusterReply, WireFault> {
        let only = job.map(|name| self.find(name).map(|job| job.id)).transpose()?;
        let operations = self.state.operations();
        let of_it = |id: Option<u64>| only.is_none() || only == id;
        let all = operations.all().filter(|one| of_it(one.job.as_ref().map(|(id, _)| *id)));
        let all = all.map(|one| {
            let job = one.job.as_ref().and_then(|(id, _)| self.state.jobs().find(|job| job.id == *id));
            let step = job.and_then(|job| entry(job, one.asked.plan)).map(|entry| entry.step);
            let moved = job.filter(|_| one.is_open()).and_then(moved);
            OperationNow { operation: one.clone(), step, moved }
        });
        let list = OperationList { all: all.collect(), left_out: operations.left_out() };
        Ok(ClusterReply::Operations(Box::new(list)))
    }
}

/// How many key partitions of the plan that is under way have moved, of how many.
fn moved(job: &Job) -> Option<(u32, u32)> {
    let maps = &job.under_way()?.new.maps;
    let all: usize = maps.iter().map(KeyMap::moves).sum();
    let moved = job.groups().map_or(0, |(groups, moved)| {
        groups.iter().take(moved as usize).map(|group| group.partitions.len()).sum()
    });
    (all > 0).then_some((moved as u32, all as u32))
}
