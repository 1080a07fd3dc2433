//! Isolated edges in a plan that changes: their fixed pairs stand within an agent, and begin and end as a whole there.

use std::collections::BTreeSet;

use super::Before;
use crate::plan::dag::{Edge, EdgeId};
use crate::plan::placement::Instance;

impl Before<'_> {
    /// Whether the pairs of an isolated edge are as they were on each agent, or all begin or all end there.
    pub(super) fn pairs(&self, id: EdgeId, edge: &Edge, after: &[Instance]) -> Result<(), String> {
        let is_end = |one: &&Instance| one.vertex == edge.from || one.vertex == edge.to;
        let agents: BTreeSet<u16> =
            self.standing().chain(after).filter(is_end).map(|one| one.agent).collect();
        for agent in agents {
            let is_here = |one: &&Instance| is_end(one) && one.agent == agent;
            let before: BTreeSet<u32> = self.standing().filter(is_here).map(|one| one.id).collect();
            let now: Vec<&Instance> = after.iter().filter(is_here).collect();
            let of = |vertex| now.iter().any(|one| one.vertex == vertex);
            // Where pairs have ended what joined them is in use no more, and cannot be again.
            let all_begin = of(edge.from) && of(edge.to) && !self.instances.iter().any(|one| is_here(&one));
            let as_before = now.iter().map(|one| one.id).collect::<BTreeSet<u32>>() == before;
            if as_before || all_begin || now.is_empty() {
                continue;
            }
            let [from, to] = [edge.from, edge.to].map(|vertex| self.dag.vertex(vertex).label());
            return Err(format!(
                "{} joins fixed pairs of instances within an agent, so that order is kept ({}): all that agent {} has of \
                 `{from}` and `{to}` ends in one plan, or begins there in one plan if it has had none; say so with `tuplane \
                 scale apply`",
                self.dag.edge_name(id),
                edge.why,
                self.agents.get(usize::from(agent)).map_or("?", String::as_str)
            ));
        }
        Ok(())
    }
}
