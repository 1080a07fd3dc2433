//! Scaling by a restart, as other systems do it: what of a job stops, and starts anew with the plan.

use std::collections::BTreeSet;

use tuplane_core::cluster::Halt;
use tuplane_core::job::Op;
use tuplane_core::plan::placement::Instance;
use tuplane_core::plan::{KeyMap, VertexId};
use tuplane_wire::message::WireFault;
use tuplane_wire::scaling::Restarted;

use super::{Change, Known, refused};

/// The longest that a start may be said to cost, ms.
const MOST_COST_MS: u64 = 600_000;

/// As the command has it.
pub(super) fn mechanism(what: Restarted) -> &'static str {
    match what {
        Restarted::Moved => "restart-moved",
        Restarted::All => "restart-all",
    }
}

impl Known<'_> {
    /// A change, and with it what stops: all of the job, or its part on agents whose part changes. Instances that would
    /// stay there are ended too, and others started in their place; sources pause.
    pub(super) fn restarting(
        &self,
        mut change: Change,
        what: Restarted,
        cost_ms: u64,
    ) -> Result<Change, WireFault> {
        if change.halt.is_some() {
            return Err(refused("one mechanism can be asked for"));
        }
        if cost_ms > MOST_COST_MS {
            return Err(refused(format!("a start costs at most {} s", MOST_COST_MS / 1000)));
        }
        if change.add.is_empty() && change.remove.is_empty() {
            return Ok(change);
        }
        let stops = self.restarted(&change, what);
        let here = self.running.iter().filter(|one| stops.contains(self.agent_of(one)));
        let here: Vec<&Instance> = here.filter(|one| !self.job.ended.contains_key(&one.id)).collect();
        let agents = stops.iter().copied().collect::<Vec<_>>().join(", ");
        let (mut instances, mut again) = (Vec::new(), Vec::new());
        for one in here {
            self.can_stop(one.vertex)?;
            instances.push(one.id);
            let goes = change.remove.contains(&one.id);
            if !goes && self.dag.inputs(one.vertex).next().is_some() {
                change.remove.push(one.id);
                again.push((one.vertex, self.agent_of(one).to_owned()));
            }
        }
        change.add.splice(0..0, again);
        change.notes.push(format!(
            "{}: what the job has on {agents} stops, rows that wait for it are dropped and counted, and after {cost_ms} ms \
             it starts anew",
            mechanism(what)
        ));
        change.halt = Some(Halt { instances, cost_ms });
        Ok(change)
    }

    /// Agents on which the job's part stops. Of a vertex that grows an instance is split for each new one, as in Storm, whose
    /// new executors take tasks of the old ones: the agents of those change too.
    fn restarted(&self, change: &Change, what: Restarted) -> BTreeSet<&str> {
        let has = |one: &Instance| change.remove.contains(&one.id);
        if what == Restarted::All {
            return self.running.iter().map(|one| self.agent_of(one)).collect();
        }
        let mut stops: BTreeSet<&str> =
            self.running.iter().filter(|one| has(one)).map(|one| self.agent_of(one)).collect();
        let used = self.running.iter().map(|one| self.agent_of(one));
        stops.extend(used.filter(|agent| change.add.iter().any(|(_, to)| to == agent)));
        let grown: BTreeSet<VertexId> = change.add.iter().map(|(vertex, _)| *vertex).collect();
        for vertex in grown {
            let own = || self.running.iter().filter(|one| one.vertex == vertex);
            let new = change.add.iter().filter(|(of, _)| *of == vertex).count();
            let more = new.saturating_sub(own().filter(|one| has(one)).count());
            stops.extend(own().filter(|one| !has(one)).take(more).map(|one| self.agent_of(one)));
        }
        stops
    }

    /// Key partitions do not move while their holders stand still, and would be lost with them.
    pub(super) fn keeps_no_state(&self, maps: &[KeyMap]) -> Result<(), WireFault> {
        match maps.first() {
            Some(map) => Err(refused(format!(
                "key partitions of `{}` would have to move, which a restart does not do: use --mechanism live",
                self.dag.vertex(map.vertex).label()
            ))),
            None => Ok(()),
        }
    }

    /// A vertex whose rows in hand are somebody else's cannot be stopped where it stands.
    fn can_stop(&self, vertex: VertexId) -> Result<(), WireFault> {
        let stages = &self.dag.vertex(vertex).stages;
        let calls = |stage: &&tuplane_core::job::Stage| {
            stages.contains(&stage.id) && matches!(stage.op, Op::UsingService(_))
        };
        match self.spec.stages.iter().find(calls) {
            Some(stage) => Err(refused(format!(
                "`{}` calls a service, and is not stopped in the middle of that: use --mechanism live",
                stage.id
            ))),
            None => Ok(()),
        }
    }
}
