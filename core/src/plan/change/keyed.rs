//! Vertices to which rows come by key in a plan that changes: their key partitions go to other instances, with the state
//! that is kept by key, if any.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Before;
use crate::job::{Op, SinkConnector, Stage};
use crate::plan::dag::{Dag, Edge, EdgeId, Role, Routing, Vertex, VertexId};
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

/// Stages of this kind keep nothing of the rows that they have worked on: another instance can go on with the next row
/// of a key as it is. (A join has the same tables in all its instances.)
pub fn keeps_nothing(op: &Op) -> bool {
    matches!(
        op,
        Op::Map { .. }
            | Op::Filter { .. }
            | Op::FlatMap { .. }
            | Op::Merge
            | Op::UsingService(_)
            | Op::Work(_)
            | Op::Rebalance(_)
            | Op::Peek { .. }
            | Op::HashJoin { .. }
            | Op::Sink(_)
    )
}

impl Dag {
    /// Rows come to a vertex by key from all agents: each of its instances holds key partitions, and it can have no more
    /// instances than there are.
    pub fn is_partitioned(&self, vertex: VertexId) -> bool {
        let by_key = |edge: &Edge| edge.distributed && matches!(edge.routing, Routing::Partitioned { .. });
        self.inputs(vertex).any(|(_, edge)| by_key(edge))
    }

    /// Some rows come to a vertex by key.
    fn has_keyed_input(&self, vertex: VertexId) -> bool {
        self.inputs(vertex).any(|(_, edge)| matches!(edge.routing, Routing::Partitioned { .. }))
    }
}

impl Before<'_> {
    /// A vertex whose key partitions move when its instances change: it keeps state by key, or rows come to it by key and
    /// it keeps nothing.
    pub(super) fn takes_by_key(&self, id: VertexId) -> bool {
        let vertex = self.dag.vertex(id);
        let is_whole = matches!(vertex.role, Role::Whole | Role::Merge { .. });
        self.keeps_by_key(vertex) || is_whole && self.dag.has_keyed_input(id)
    }

    /// What a plan says about key partitions that move.
    pub(super) fn moved_notes(&self, map: &KeyMap) -> Vec<String> {
        let vertex = self.dag.vertex(map.vertex);
        let label = vertex.label();
        let mut notes =
            vec![format!("{} of the {} key partitions of `{label}` move", map.moves(), map.before.len())];
        let to_files = |op: &Op| matches!(op, Op::Sink(sink) if matches!(sink.connector, Some(SinkConnector::File { .. })));
        if self.stages(vertex).any(|stage| to_files(&stage.op)) {
            notes.push(format!(
                "rows of a key that moves are in files of two instances of `{label}`: what is written stays where it is"
            ));
        }
        notes
    }

    /// The stages of a vertex.
    fn stages<'a>(&'a self, vertex: &'a Vertex) -> impl Iterator<Item = &'a Stage> {
        self.job.stages.iter().filter(|stage| vertex.stages.contains(&stage.id))
    }

    /// A vertex whose state is one table for each key partition, so that a partition can be moved.
    pub(super) fn keeps_by_key(&self, vertex: &Vertex) -> bool {
        let whole = matches!(vertex.role, Role::Whole | Role::Combine);
        whole && self.stages(vertex).any(|stage| keeps_by_key(&stage.op))
    }

    /// The instance that holds each key partition of a vertex; `None` where rows come to it otherwise than by key, or
    /// by key within each agent.
    pub fn owners(&self, vertex: VertexId) -> Option<Vec<u32>> {
        // The tables of a join come by other inputs.
        let (edge, input) = self.dag.inputs(vertex).next()?;
        if !input.distributed || !matches!(input.routing, Routing::Partitioned { .. }) {
            return None;
        }
        Some(self.maps.get(&vertex).cloned().unwrap_or_else(|| {
            let standing: Vec<Instance> = self.standing().copied().collect();
            // Its inputs reach all agents, so that it is the same wherever it is looked at.
            partition_map(self.dag, edge, &standing, self.job.options.partitions(), 0)
        }))
    }

    /// Rows may be in its hands that have not arrived: neither in its queue nor in its state.
    fn waits_for_arrivals(&self, vertex: VertexId) -> bool {
        let takes = |op: &Op| matches!(op, Op::Aggregate { .. } | Op::CoAggregate { .. } | Op::Sink(_));
        self.stages(self.dag.vertex(vertex)).any(|stage| takes(&stage.op))
            && self.job.stages.iter().filter_map(|stage| stage.op.source()).any(|source| source.ahead() > 0)
    }

    /// What an input of a vertex that takes rows by key says about a change of its instances.
    pub(super) fn key_input(&self, id: EdgeId, edge: &Edge) -> Result<(), String> {
        let vertex = self.dag.vertex(edge.to);
        let (name, to) = (self.dag.edge_name(id), vertex.label());
        if !matches!(edge.routing, Routing::Partitioned { .. }) {
            let why = if self.keeps_by_key(vertex) { "keeps state by key" } else { "takes rows by key" };
            return Err(format!(
                "`{to}` {why}, and rows come to it on {name} otherwise than by key: its instances stay as they are"
            ));
        }
        let unknown = |stage: &&Stage| !keeps_by_key(&stage.op) && !keeps_nothing(&stage.op);
        if let Some(stage) = self.stages(vertex).find(unknown) {
            return Err(format!(
                "rows come to `{to}` by key on {name}, and what `{}` keeps of a key cannot be handed over: its instances \
                 stay as they are",
                stage.id
            ));
        }
        if !edge.distributed {
            return Err(format!(
                "{name} goes by key within each agent ({}): a key of `{to}` has an instance on each, and they stay \
                 as they are; submit the job with a rebalance in front of `{to}`, and it goes over all agents",
                edge.why
            ));
        }
        if edge.spills {
            return Err(format!(
                "rows of {name} may wait on disk, and go by key: its targets stay as they are; where the sides of the join \
                 have sources of their own none wait there"
            ));
        }
        Ok(())
    }

    /// The map of a keyed vertex as it is, and over these instances; `None` if nobody has to move.
    pub(super) fn key_map(&self, vertex: VertexId, after: &[Instance]) -> Result<Option<KeyMap>, String> {
        let label = self.dag.vertex(vertex).label();
        if self.waits_for_arrivals(vertex) {
            return Err(format!(
                "a source gives its rows before they arrive (its `window`), and `{label}` keeps them until they do: such \
                 rows cannot be moved, and its instances stay as they are"
            ));
        }
        let before = self.owners(vertex);
        let before = before.ok_or_else(|| format!("rows come to `{label}` otherwise than by key"))?;
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
