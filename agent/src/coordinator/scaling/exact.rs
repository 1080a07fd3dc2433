//! A plan that was made elsewhere: instance by instance.

use tuplane_core::plan::placement::Instance;
use tuplane_wire::message::{FaultCode, WireFault};
use tuplane_wire::scaling::ExactPlan;

use super::{Change, Known, refused};

impl Known<'_> {
    /// The instances that a plan of somebody else's names.
    pub(super) fn exact(&self, plan: &ExactPlan) -> Result<Change, WireFault> {
        let ExactPlan { add, moves, end, planner, predicted } = plan;
        let mut change = Change {
            planner: planner.clone(),
            predicted: predicted.filter(|rate| rate.is_finite()),
            why: Some("it was planned elsewhere".to_owned()),
            ..Change::default()
        };
        for (name, agent) in moves {
            let one = self.by_name(name)?;
            if self.agent_of(one) == agent {
                change.notes.push(format!("{name} is on {agent} already"));
                continue;
            }
            Self::once(&change, one, name)?;
            change.remove.push(one.id);
            change.add.push((one.vertex, agent.clone()));
        }
        for name in end {
            let one = self.by_name(name)?;
            Self::once(&change, one, name)?;
            change.remove.push(one.id);
        }
        for (vertex, agent) in add {
            let found = self.dag.find_vertex(vertex);
            let vertex = found.map_err(|why| WireFault::new(FaultCode::NotFound, why))?;
            change.add.push((vertex, agent.clone()));
        }
        self.one_is_left(&change)?;
        Ok(change)
    }

    fn once(change: &Change, one: &Instance, name: &str) -> Result<(), WireFault> {
        if change.remove.contains(&one.id) {
            return Err(refused(format!("{name} is named twice")));
        }
        Ok(())
    }

    /// Of every vertex that loses instances one is left or comes.
    fn one_is_left(&self, change: &Change) -> Result<(), WireFault> {
        for one in self.running.iter().filter(|one| change.remove.contains(&one.id)) {
            let comes = change.add.iter().any(|(vertex, _)| *vertex == one.vertex);
            let stays = |other: &&Instance| other.vertex == one.vertex && !change.remove.contains(&other.id);
            if !comes && !self.running.iter().any(|other| stays(&other)) {
                let label = self.dag.vertex(one.vertex).label();
                return Err(refused(format!("`{label}` would have no instance left")));
            }
        }
        Ok(())
    }

    fn by_name(&self, name: &str) -> Result<&Instance, WireFault> {
        self.running.iter().find(|one| self.name_of(one) == name).ok_or_else(|| {
            let message =
                format!("the job has no running instance `{name}` (`tuplane status -o json` lists them)");
            WireFault::new(FaultCode::NotFound, message)
        })
    }
}
