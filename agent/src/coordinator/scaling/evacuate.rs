//! All that can move away from an agent, and what cannot.

use std::collections::BTreeSet;

use tuplane_core::plan::VertexId;
use tuplane_core::plan::placement::Instance;
use tuplane_wire::members::Stays;
use tuplane_wire::message::AgentInfo;
use tuplane_wire::scaling::{Named, ScaleAsk};

use super::{Change, Known, nowhere_else};

impl Known<'_> {
    /// Instances of an agent go to other agents, vertex by vertex: where one vertex cannot be moved all others are.
    pub(in crate::coordinator) fn evacuate(&self, agent: &str) -> (Change, Vec<Stays>) {
        let here: Vec<&Instance> = self.running.iter().filter(|one| self.agent_of(one) == agent).collect();
        let others: Vec<&AgentInfo> = self.open().filter(|info| info.id.name != agent).collect();
        let vertices: BTreeSet<VertexId> = here.iter().map(|one| one.vertex).collect();
        let (mut change, mut stays) = (Change::default(), Vec::new());
        for vertex in vertices {
            let own: Vec<&Instance> = here.iter().filter(|one| one.vertex == vertex).copied().collect();
            match self.with_moved(&change, vertex, &own, agent, &others) {
                Ok(more) => change = more,
                Err(why) => stays.extend(own.iter().map(|one| Stays {
                    instance: Named { id: one.id, name: self.name_of(one), agent: agent.to_owned() },
                    why: why.clone(),
                })),
            }
        }
        (change, stays)
    }

    /// The change that moves these too, if it can be carried out.
    fn with_moved(
        &self,
        change: &Change,
        vertex: VertexId,
        own: &[&Instance],
        agent: &str,
        others: &[&AgentInfo],
    ) -> Result<Change, String> {
        if others.is_empty() {
            return Err(nowhere_else(own.len(), agent));
        }
        let mut more = change.clone();
        for one in own {
            more.remove.push(one.id);
            more.add.push((vertex, self.emptiest(vertex, others, &more).map_err(|fault| fault.message)?));
        }
        // Only whether it is refused matters.
        let ask = ScaleAsk::In { agents: 1, agent: Some(agent.to_owned()), planner: None, keep: true };
        self.plan(&ask, more.clone()).map_err(|fault| fault.message)?;
        Ok(more)
    }
}
