//! All that can move away from an agent, and what cannot.

use std::collections::BTreeMap;

use tuplane_core::plan::placement::Instance;
use tuplane_core::plan::{Role, VertexId};
use tuplane_wire::members::Stays;
use tuplane_wire::message::AgentInfo;
use tuplane_wire::scaling::Named;

use super::deal::Dealing;
use super::{Change, Known, nowhere_else};

impl Known<'_> {
    /// Instances of an agent go to other agents, vertex by vertex: where one vertex cannot be moved all others are.
    pub(in crate::coordinator) fn evacuate(&self, agent: &str) -> (Change, Vec<Stays>) {
        self.evacuate_to(agent, &self.open().collect::<Vec<_>>())
    }

    /// Instances of an agent go to these.
    pub(super) fn evacuate_to(&self, agent: &str, to: &[&AgentInfo]) -> (Change, Vec<Stays>) {
        let others: Vec<&AgentInfo> = to.iter().copied().filter(|info| info.id.name != agent).collect();
        let mut here: BTreeMap<(bool, VertexId), Vec<&Instance>> = BTreeMap::new();
        for one in self.running.iter().filter(|one| self.agent_of(one) == agent) {
            // What has made a join's table goes once the join's instances do.
            let follows = matches!(self.dag.vertex(one.vertex).role, Role::Collector { .. });
            here.entry((follows, one.vertex)).or_default().push(one);
        }
        let (mut change, mut stays) = (Change::default(), Vec::new());
        for own in here.values() {
            match self.with_moved(&change, own, agent, &others) {
                Ok(more) => change = more,
                Err(why) => stays.extend(own.iter().map(|one| Stays {
                    instance: Named { id: one.id, name: self.name_of(one), agent: agent.to_owned() },
                    why: why.clone(),
                })),
            }
        }
        (change, stays)
    }

    /// The change that moves these of one vertex too, if it can be carried out.
    fn with_moved(
        &self,
        change: &Change,
        own: &[&Instance],
        agent: &str,
        others: &[&AgentInfo],
    ) -> Result<Change, String> {
        if others.is_empty() {
            return Err(nowhere_else(own.len(), agent));
        }
        let mut dealing = Dealing::of(self, others.to_vec(), change);
        let mut more = change.clone();
        for one in own {
            dealing.leaves(one);
            dealing.deal(one.vertex, Some(one.id), &mut more).map_err(|fault| fault.message)?;
            more.remove.push(one.id);
        }
        self.after(&more).map_err(|fault| fault.message)?;
        Ok(more)
    }
}
