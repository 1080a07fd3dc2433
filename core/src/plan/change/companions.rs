//! Vertices that stand beside those who send to them on each agent: first halves of aggregations come and go with their senders.

use std::collections::{BTreeMap, BTreeSet};

use super::Before;
use crate::plan::dag::{Role, Routing, VertexId};
use crate::plan::placement::Instance;

/// What is added and what ends, companions included.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) add: Vec<(VertexId, u16)>,
    pub(super) remove: Vec<u32>,
    /// Vertices whose instances come and go with others.
    pub(super) companions: BTreeSet<VertexId>,
    /// Vertices that have made the tables of joins which change. They have ended, and go with the last instance there.
    pub(super) collectors: BTreeSet<VertexId>,
    pub(super) notes: Vec<String>,
}

impl Before<'_> {
    /// Senders of a vertex that holds partial results of its agent alone, all of whose inputs come by key and from there; none
    /// of any other vertex.
    fn senders_beside(&self, vertex: VertexId) -> BTreeSet<VertexId> {
        let by_key_from_here = |routing: &Routing| matches!(routing, Routing::Partitioned { .. });
        let is_companion = self.dag.vertex(vertex).role == Role::Prepare
            && self.dag.inputs(vertex).all(|(_, edge)| !edge.distributed && by_key_from_here(&edge.routing));
        self.dag.inputs(vertex).filter(|_| is_companion).map(|(_, edge)| edge.from).collect()
    }

    /// A change with what it means to companions: on an agent that gets its first sender they begin, as many as there are on
    /// any other agent at most; where the last sender ends they end, and hand on what they hold. What is asked of companions
    /// beside their senders (an agent that is left) follows from these.
    pub(super) fn with_companions(&self, add: &[(VertexId, u16)], remove: &[u32]) -> Wanted {
        let mut wanted = Wanted { add: add.to_vec(), remove: remove.to_vec(), ..Wanted::default() };
        let going: BTreeSet<u32> = remove.iter().copied().collect();
        let touched = self.standing().filter(|one| going.contains(&one.id)).map(|one| one.vertex);
        let touched: BTreeSet<VertexId> = touched.chain(add.iter().map(|(vertex, _)| *vertex)).collect();
        for vertex in (0..self.dag.vertices.len() as u32).map(VertexId) {
            let senders = self.senders_beside(vertex);
            if senders.is_disjoint(&touched) {
                continue;
            }
            wanted.companions.insert(vertex);
            let own: Vec<Instance> = self.standing().filter(|one| one.vertex == vertex).copied().collect();
            wanted.add.retain(|(of, _)| *of != vertex);
            let ids: BTreeSet<u32> = own.iter().map(|one| one.id).collect();
            wanted.remove.retain(|id| !ids.contains(id));
            let stay = self.standing().filter(|one| !going.contains(&one.id));
            let after = stay.map(|one| (one.vertex, one.agent)).chain(add.iter().copied());
            let needed: BTreeSet<u16> =
                after.filter(|(vertex, _)| senders.contains(vertex)).map(|(_, agent)| agent).collect();
            let mut here: BTreeMap<u16, u32> = BTreeMap::new();
            for one in &own {
                *here.entry(one.agent).or_default() += 1;
            }
            let count = here.values().copied().max().unwrap_or(1);
            let come: Vec<u16> = needed.iter().copied().filter(|agent| !here.contains_key(agent)).collect();
            let go: Vec<u32> =
                own.iter().filter(|one| !needed.contains(&one.agent)).map(|one| one.id).collect();
            let label = self.dag.vertex(vertex).label();
            if !come.is_empty() {
                wanted.notes.push(format!(
                    "`{label}` begins where those begin who send to it: it works on one agent's rows"
                ));
            }
            if !go.is_empty() {
                wanted.notes.push(format!(
                    "`{label}` ends where nothing is left that sends to it, and hands on what it holds"
                ));
            }
            wanted.add.extend(come.iter().flat_map(|agent| (0..count).map(|_| (vertex, *agent))));
            wanted.remove.extend(go);
        }
        self.with_collectors(&mut wanted);
        wanted
    }
}
