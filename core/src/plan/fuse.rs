//! Fusion: chains of map, filter and `flat_map` run as one vertex.

use super::graph::{Graph, Transform};
use crate::job::Op;

/// Transforms by vertex, in the order of the chains' heads; most chains have length 1.
pub(super) fn chains(graph: &Graph<'_>) -> Vec<Vec<usize>> {
    let mut taken = vec![false; graph.transforms.len()];
    let mut chains = Vec::new();
    for head in 0..graph.transforms.len() {
        if taken[head] {
            continue;
        }
        let mut chain = vec![head];
        let mut last = head;
        while let Some(next) = follower(graph, last) {
            taken[next] = true;
            chain.push(next);
            last = next;
        }
        chains.push(chain);
    }
    chains
}

/// The transform that may run in one vertex with this one: its only reader, alike in
/// parallelism, and not rebalanced between the two.
fn follower(graph: &Graph<'_>, index: usize) -> Option<usize> {
    let this = &graph.transforms[index];
    if !fusable(this) || this.readers != 1 {
        return None;
    }
    let next = graph.transforms.iter().position(|t| t.inputs.iter().any(|i| i.from == index))?;
    let other = &graph.transforms[next];
    let alike = (this.parallelism, this.instances) == (other.parallelism, other.instances);
    (fusable(other) && alike && other.inputs[0].flag.is_none()).then_some(next)
}

fn fusable(transform: &Transform<'_>) -> bool {
    matches!(transform.stage.op, Op::Map { .. } | Op::Filter { .. } | Op::FlatMap { .. })
}
