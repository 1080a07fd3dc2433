//! Which instances an edge reaches from an agent.

use super::Instance;
use crate::plan::dag::{Dag, EdgeId, Parallelism, Role, Routing};

/// Ids of the instances that a row may go to from this agent, by number.
pub fn targets(dag: &Dag, edge: EdgeId, instances: &[Instance], sending_agent: u16) -> Vec<u32> {
    let edge = dag.edge(edge);
    let reached =
        instances.iter().filter(|i| i.vertex == edge.to && (edge.distributed || i.agent == sending_agent));
    let most = if edge.routing == Routing::AllToOne { 1 } else { usize::MAX };
    reached.take(most).map(|i| i.id).collect()
}

/// As [`targets`], for one sender: fewer on an isolated edge.
pub fn targets_of(dag: &Dag, edge: EdgeId, instances: &[Instance], sender: &Instance) -> Vec<u32> {
    let all = targets(dag, edge, instances, sender.agent);
    let edge = dag.edge(edge);
    if edge.routing != Routing::Isolated {
        return all;
    }
    let peers: Vec<u32> = instances
        .iter()
        .filter(|i| i.vertex == sender.vertex && i.agent == sender.agent)
        .map(|i| i.id)
        .collect();
    let Some(u) = peers.iter().position(|&id| id == sender.id) else { return Vec::new() };
    // A source of which one instance is made keeps the pairs that it would have had.
    let most = match dag.vertex(edge.from).parallelism {
        Parallelism::OneProduces(n) if dag.vertex(edge.to).role != Role::Timestamps => n as usize,
        _ => peers.len(),
    };
    isolated_targets(u as u32, most as u32, all.len() as u32).into_iter().map(|d| all[d as usize]).collect()
}

/// Of `down` instances those that upstream `u` of `up` feeds: every d with d mod U = u mod D.
pub fn isolated_targets(u: u32, up: u32, down: u32) -> Vec<u32> {
    if up == 0 || down == 0 {
        return Vec::new();
    }
    (0..down).filter(|d| d % up == u % down).collect()
}

/// The instance that holds each partition. Partitions are dealt over agents in turn and on each
/// over its instances in turn; an agent whose instances have all had one is passed over until
/// the others' have, so that every instance gets an equal share. It depends on the target and
/// the edge's reach alone: all inputs of one vertex that reach alike agree.
pub fn partition_map(
    dag: &Dag,
    edge: EdgeId,
    instances: &[Instance],
    partitions: u16,
    sending_agent: u16,
) -> Vec<u32> {
    let edge = dag.edge(edge);
    let mut rounds: Vec<(usize, u16, u32)> = Vec::new();
    for i in
        instances.iter().filter(|i| i.vertex == edge.to && (edge.distributed || i.agent == sending_agent))
    {
        let round = rounds.iter().filter(|(_, agent, _)| *agent == i.agent).count();
        rounds.push((round, i.agent, i.id));
    }
    rounds.sort_unstable();
    if rounds.is_empty() {
        return Vec::new();
    }
    (0..usize::from(partitions)).map(|p| rounds[p % rounds.len()].2).collect()
}
