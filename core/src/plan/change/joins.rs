//! Joins in a plan that changes: every agent with an instance of one has its tables, made by collectors that have come to
//! their end. An agent that gets its first instance is given a copy.

use std::collections::BTreeSet;

use super::Before;
use super::companions::Wanted;
use crate::plan::dag::{Dag, Edge, Role, VertexId};
use crate::plan::placement::Instance;

/// Tables of a join that go from one agent to another, which is about to get its first instances of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableCopy {
    /// The join.
    pub vertex: VertexId,
    /// Index of the agent that has them.
    pub from: u16,
    /// Index of the agent that is to have them.
    pub to: u16,
    /// One of the instances that come there, by its dense id.
    pub target: u32,
}

impl Dag {
    /// This edge says that a table is complete; no rows go by it.
    pub fn hands_table(&self, edge: &Edge) -> bool {
        matches!(self.vertex(edge.from).role, Role::Collector { .. })
    }

    fn joins(&self) -> BTreeSet<VertexId> {
        self.edges.iter().filter(|edge| self.hands_table(edge)).map(|edge| edge.to).collect()
    }

    /// What makes the tables of a join, in the order of its inputs; nothing of any other vertex.
    pub fn collectors(&self, vertex: VertexId) -> impl Iterator<Item = VertexId> {
        self.inputs(vertex).filter(|(_, edge)| self.hands_table(edge)).map(|(_, edge)| edge.from)
    }

    /// The tables that agents need which a plan gives their first instances of a join. `coming` says which of these
    /// instances are new. Those that have tables give them in turn.
    pub fn table_copies(&self, instances: &[Instance], coming: &dyn Fn(u32) -> bool) -> Vec<TableCopy> {
        let mut copies = Vec::new();
        for vertex in self.joins() {
            let own = || instances.iter().filter(move |one| one.vertex == vertex);
            let have: BTreeSet<u16> = own().filter(|one| !coming(one.id)).map(|one| one.agent).collect();
            let mut given = BTreeSet::new();
            let new = own().filter(|one| coming(one.id) && !have.contains(&one.agent));
            let new = new.filter(|one| given.insert(one.agent));
            // At the beginning of a run nobody has any.
            let copy = |(from, to): (&u16, &Instance)| TableCopy {
                vertex,
                from: *from,
                to: to.agent,
                target: to.id,
            };
            copies.extend(have.iter().cycle().zip(new).map(copy));
        }
        copies
    }
}

impl Before<'_> {
    /// Whether the tables of a join are complete, so that an agent can be given a copy. True of what is no join.
    pub(super) fn has_tables(&self, vertex: VertexId, ended: &dyn Fn(u32) -> bool) -> Result<(), String> {
        for collector in self.dag.collectors(vertex) {
            let own: Vec<&Instance> = self.standing().filter(|one| one.vertex == collector).collect();
            let open = own.iter().filter(|one| !ended(one.id)).count();
            if open > 0 {
                return Err(format!(
                    "`{}` is a join, and `{}` still reads its table on {open} of {} agents: its instances stay as they are \
                     until that is read; ask again then",
                    self.dag.vertex(vertex).label(),
                    self.dag.vertex(collector).label(),
                    own.len()
                ));
            }
        }
        Ok(())
    }

    /// With the last instance of a join on an agent what has made its tables there goes too. Gives what of a change is
    /// none of the joins' own.
    pub(super) fn with_collectors(&self, wanted: &mut Wanted) {
        let going: BTreeSet<u32> = wanted.remove.iter().copied().collect();
        for vertex in self.dag.joins() {
            let stay = || self.standing().filter(|one| one.vertex == vertex && !going.contains(&one.id));
            let is_touched = wanted.add.iter().any(|(of, _)| *of == vertex)
                || self.standing().any(|one| one.vertex == vertex && going.contains(&one.id));
            if !is_touched {
                continue;
            }
            let collectors: BTreeSet<VertexId> = self.dag.collectors(vertex).collect();
            let new = wanted.add.iter().filter(|(of, _)| *of == vertex).map(|(_, agent)| *agent);
            let needed: BTreeSet<u16> = stay().map(|one| one.agent).chain(new).collect();
            let had: BTreeSet<u16> =
                self.standing().filter(|one| one.vertex == vertex).map(|one| one.agent).collect();
            wanted.add.retain(|(of, _)| !collectors.contains(of));
            let makers: Vec<&Instance> =
                self.standing().filter(|one| collectors.contains(&one.vertex)).collect();
            wanted.remove.retain(|id| !makers.iter().any(|one| one.id == *id));
            let unused = makers.iter().filter(|one| !needed.contains(&one.agent));
            wanted.remove.extend(unused.map(|one| one.id));
            wanted.collectors.extend(collectors);
            let label = self.dag.vertex(vertex).label();
            wanted.notes.extend(needed.difference(&had).map(|agent| {
                let agent = self.agents.get(usize::from(*agent)).map_or("?", String::as_str);
                format!("what `{label}` joins with is copied to {agent} before rows go there")
            }));
        }
    }
}
