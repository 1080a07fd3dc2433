//! A plan that was made elsewhere: instance by instance.

use std::collections::{BTreeSet, HashMap};

use tuplane_core::cluster::rescale::{MOST_PREDICTED, check_planner};
use tuplane_core::fault::shortened;
use tuplane_core::plan::VertexId;
use tuplane_core::plan::placement::Instance;
use tuplane_wire::message::{FaultCode, WireFault};
use tuplane_wire::scaling::ExactPlan;

use super::{Change, Known, refused};

/// The most entries of each of a plan's lists.
const MOST_ENTRIES: usize = 10_000;

impl Known<'_> {
    /// The instances that a plan of somebody else's names.
    pub(super) fn exact(&self, plan: &ExactPlan) -> Result<Change, WireFault> {
        let ExactPlan { add, moves, end, planner, predicted } = plan;
        if let Some(name) = planner {
            check_planner(name).map_err(|what| refused(format!("`planner` {what}")))?;
        }
        if let Some(rate) = predicted.filter(|rate| !(0.0..=MOST_PREDICTED).contains(rate)) {
            return Err(refused(format!("{rate} rows/s are foretold: it must be 0 to {MOST_PREDICTED:e}")));
        }
        for list in [add.len(), moves.len(), end.len()] {
            if list > MOST_ENTRIES {
                return Err(refused(format!("a list of {list} instances: {MOST_ENTRIES} are the most")));
            }
        }
        let mut change = Change {
            planner: planner.clone(),
            predicted: *predicted,
            why: Some("it was planned elsewhere".to_owned()),
            ..Change::default()
        };
        let running: HashMap<String, &Instance> =
            self.running.iter().map(|one| (self.name_of(one), one)).collect();
        let mut named = BTreeSet::new();
        let mut by_name = |name: &String| {
            let Some(one) = running.get(name).copied() else {
                let message = format!(
                    "the job has no running instance `{}` (`tuplane status -o json` lists them)",
                    shortened(name, 100)
                );
                return Err(WireFault::new(FaultCode::NotFound, message));
            };
            if !named.insert(one.id) {
                return Err(refused(format!("{name} is named twice")));
            }
            Ok(one)
        };
        for (name, agent) in moves {
            let one = by_name(name)?;
            if self.agent_of(one) == agent {
                change.notes.push(format!("{name} is on {agent} already"));
                continue;
            }
            change.remove.push(one.id);
            change.add.push((one.vertex, agent.clone()));
        }
        for name in end {
            change.remove.push(by_name(name)?.id);
        }
        for (vertex, agent) in add {
            change.add.push((self.vertex(vertex)?, agent.clone()));
        }
        self.one_is_left(&change)?;
        Ok(change)
    }

    /// Of every vertex that loses instances one is left or comes.
    fn one_is_left(&self, change: &Change) -> Result<(), WireFault> {
        let going: BTreeSet<u32> = change.remove.iter().copied().collect();
        let stay = self.running.iter().filter(|one| !going.contains(&one.id)).map(|one| one.vertex);
        let has: BTreeSet<VertexId> = stay.chain(change.add.iter().map(|(vertex, _)| *vertex)).collect();
        match self.running.iter().find(|one| going.contains(&one.id) && !has.contains(&one.vertex)) {
            Some(one) => {
                let label = self.dag.vertex(one.vertex).label();
                Err(refused(format!("`{label}` would have no instance left")))
            }
            None => Ok(()),
        }
    }
}
