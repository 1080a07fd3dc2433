//! Vertices that keep state by key in a plan that changes: their key partitions go to other instances.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Before;
use crate::job::Op;
use crate::plan::dag::{Edge, EdgeId, Role, Routing, Vertex, VertexId};
use crate::plan::placement::{Instance, partition_map};
use crate::route::moves::{moved, remap};

/// Who holds each key partition of a vertex (dense ids), before a change and after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyMap {
    /// The vertex.
    pub vertex: VertexId,
    /// As it was; one entry for each partition.
    pub before: Vec<u32>,
    /// As it is to be, of the same length.
    pub after: Vec<u32>,
}

impl KeyMap {
    /// How many partitions it moves.
    pub fn moves(&self) -> usize {
        moved(&self.before, &self.after).values().map(Vec::len).sum()
    }

    /// Instances that hold a partition before or after, and some other at the other time.
    pub fn owners(&self) -> BTreeSet<u32> {
        moved(&self.before, &self.after).into_keys().flat_map(|(from, to)| [from, to]).collect()
    }
}

/// Stages of this kind keep state by key.
fn keeps_by_key(op: &Op) -> bool {
    matches!(
        op,
        Op::GroupBy { .. }
            | Op::Window(_)
            | Op::Aggregate { .. }
            | Op::CoAggregate { .. }
            | Op::Stateful { .. }
            | Op::RollingAggregate { .. }
            | Op::Distinct { .. }
    )
}

impl Before<'_> {
    /// A vertex whose state is one table for each key partition, so that a partition can be moved.
    pub(super) fn keeps_by_key(&self, vertex: &Vertex) -> bool {
        let stages = || self.job.stages.iter().filter(|stage| vertex.stages.contains(&stage.id));
        matches!(vertex.role, Role::Whole | Role::Combine) && stages().any(|stage| keeps_by_key(&stage.op))
    }

    /// What an input of a keyed vertex says about a change of its instances.
    pub(super) fn key_input(&self, id: EdgeId, edge: &Edge) -> Result<(), String> {
        let (name, to) = (self.dag.edge_name(id), self.dag.vertex(edge.to).label());
        if !matches!(edge.routing, Routing::Partitioned { .. }) {
            return Err(format!(
                "`{to}` keeps state by key, and rows come to it on {name} otherwise than by key: its instances stay \
                 as they are"
            ));
        }
        if !edge.distributed {
            return Err(format!(
                "{name} goes by key within each agent ({}): a key of `{to}` has an instance on each, and they stay \
                 as they are",
                edge.why
            ));
        }
        if edge.spills {
            return Err(format!("rows of {name} may wait on disk: its targets stay as they are"));
        }
        Ok(())
    }

    /// The map of a keyed vertex as it is, and over these instances; `None` if nobody has to move.
    pub(super) fn key_map(&self, vertex: VertexId, after: &[Instance]) -> Result<Option<KeyMap>, String> {
        let label = self.dag.vertex(vertex).label();
        let Some((edge, _)) = self.dag.inputs(vertex).next() else {
            return Err(format!("`{label}` keeps state by key and has no input"));
        };
        let before = self.maps.get(&vertex).cloned().unwrap_or_else(|| {
            let standing: Vec<Instance> = self.standing().copied().collect();
            // Its inputs reach all agents, so that it is the same wherever it is looked at.
            partition_map(self.dag, edge, &standing, self.job.options.partitions(), 0)
        });
        let owners: Vec<u32> = after.iter().filter(|one| one.vertex == vertex).map(|one| one.id).collect();
        if owners.len() > before.len() {
            return Err(format!(
                "`{label}` would get {} instances, and its keys are in {} partitions (the job's `partitions`): an \
                 instance without one would get no rows",
                owners.len(),
                before.len()
            ));
        }
        let after = remap(&before, &owners);
        Ok((before != after).then_some(KeyMap { vertex, before, after }))
    }
}
