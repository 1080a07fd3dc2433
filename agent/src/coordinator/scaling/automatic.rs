//! What the automatic mode may do to a job, and the change that it wants.

use tuplane_core::job::Overflow;
use tuplane_core::plan::placement::Instance;
use tuplane_core::plan::{LEAST_QUEUE, VertexId};
use tuplane_core::scale::Bound;
use tuplane_core::scale::observed::keys_in;
use tuplane_wire::message::{AgentInfo, WireFault};

use super::deal::Dealing;
use super::{Change, Known};

impl Known<'_> {
    /// How few and how many instances each vertex may have: one that can be given none, or of which none can be taken, has
    /// what it has. `no_more` says why a vertex would not be helped.
    pub(in crate::coordinator) fn bounds(
        &self,
        most: Option<u32>,
        no_more: impl Fn(usize) -> Option<String>,
    ) -> Vec<Bound> {
        let fixed = self.fixed_on(&self.open().collect::<Vec<_>>());
        let slots: u32 = self.open().map(|agent| agent.slots).sum();
        let bound = |index: usize| {
            let vertex = VertexId(index as u32);
            let own: Vec<&Instance> = self.running.iter().filter(|one| one.vertex == vertex).collect();
            let present = own.len() as u32;
            if self.dag.inputs(vertex).next().is_none() {
                let why = "the automatic mode leaves sources as they are".to_owned();
                return Bound { least: present, most: present, why };
            }
            let can_go = own.first().is_some_and(|one| self.may_end(one.id));
            let least = if can_go { 1 } else { present };
            let by_key = self.dag.is_partitioned(vertex).then(|| u32::from(self.spec.options.partitions()));
            let by_key = by_key.filter(|partitions| *partitions <= most.unwrap_or(slots));
            // With as many as that none can be added for this reason, which is said better here.
            let fixed = fixed.get(&vertex).filter(|_| by_key.is_none_or(|partitions| present < partitions));
            match (fixed.cloned().or_else(|| no_more(index)), by_key, most) {
                (Some(why), ..) => Bound { least, most: present, why },
                (None, Some(most), _) => Bound { least, most, why: keys_in(most) },
                (None, None, Some(most)) => {
                    Bound { least, most, why: format!("{most} are the most (`--most`)") }
                }
                (None, None, None) => {
                    let why = format!(
                        "the agents that take instances have {slots} slots (`--most N` allows for more, `tuplane agents \
                         add` adds agents)"
                    );
                    Bound { least, most: slots, why }
                }
            }
        };
        (0..self.dag.vertices.len()).map(bound).collect()
    }

    fn may_end(&self, id: u32) -> bool {
        self.changed(&Change { remove: vec![id], ..Change::default() }).is_ok()
    }

    /// How many more instances the agents have room for, whichever these are.
    pub(in crate::coordinator) fn room(&self) -> u32 {
        let ids = (0..self.dag.vertices.len() as u32).map(VertexId);
        let most = ids.map(|vertex| self.queues(vertex)).max().unwrap_or(0).max(1);
        let room = |agent: &AgentInfo| {
            let Some(queues) = self.queues_held(&agent.id.name) else { return u32::MAX };
            let here = self.running.iter().filter(|one| self.agent_of(one) == agent.id.name);
            let used: u64 = here.map(|one| self.queues(one.vertex)).sum();
            u32::try_from(queues.saturating_sub(used) / most).unwrap_or(u32::MAX)
        };
        self.open().map(room).fold(0, u32::saturating_add)
    }

    /// So many queues of the least size fit into what an agent may hold of the job, where that is known.
    pub(super) fn queues_held(&self, agent: &str) -> Option<u64> {
        if self.spec.options.overflow == Overflow::Grow {
            return None;
        }
        Some(self.rooms.get(agent)?.may_hold(self.spec.options.memory) / LEAST_QUEUE)
    }

    /// So many instances of every vertex, by index, where that is not what it has `now`: new ones where there are fewest. All
    /// others stay as they are, with instances too that have ended and are not counted.
    pub(in crate::coordinator) fn to(&self, now: &[u32], instances: &[u32]) -> Result<Change, WireFault> {
        let mut dealing = Dealing::new(self, self.open().collect());
        let mut change = Change::default();
        for (vertex, (_, wanted)) in
            (0u32..).map(VertexId).zip(now.iter().zip(instances)).filter(|(_, (now, wanted))| now != wanted)
        {
            self.resize(vertex, *wanted, &mut dealing, &mut change)?;
        }
        Ok(change)
    }
}
