//! ETP, the effective throughput percentage: the share of a job's output that depends on one vertex, unhindered.
//!
//! A congested vertex cuts off everything below it. Three readings of "depends" differ as soon as two paths lead from a
//! vertex to a sink (elasticity.md section 1.4).

use super::graph::{FlowGraph, Rates};

/// What is counted of a sink's rate for a vertex before it. For every vertex, flow share <= sink set <= path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reading {
    /// All of it, once for each path without a congested vertex: the recursion on Stela's slide and in the authors'
    /// code. More than 1 where paths meet again.
    Path,
    /// All of it, once, if there is such a path: the paper's prose. From 0 to 1.
    SinkSet,
    /// The part that came through the vertex: what is really carried. From 0 to 1.
    FlowShare,
}

/// Which rate of a sink is its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkRate {
    /// Rows that it processes: slide and paper.
    Processed,
    /// Rows that it emits: the authors' code, whose sinks emit into nothing.
    Emitted,
}

/// There is no output to have a share in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no share can be given: {}", match .0 {
    SinkRate::Processed => "no sink has processed a row",
    SinkRate::Emitted => "no sink has emitted a row",
})]
pub struct NoOutput(pub SinkRate);

/// ETP of every vertex in one reading. O(V + E), and for [`Reading::SinkSet`] that for every 64 sinks.
///
/// # Errors
/// If the sinks together have no rate.
pub fn etp(
    graph: &FlowGraph,
    rates: &[Rates],
    congested: &[bool],
    reading: Reading,
    sink: SinkRate,
) -> Result<Vec<f64>, NoOutput> {
    let rate = |vertex: usize| match sink {
        SinkRate::Processed => rates[vertex].processed,
        SinkRate::Emitted => rates[vertex].emitted,
    };
    let sinks: Vec<usize> = (0..graph.len()).filter(|vertex| graph.is_sink(*vertex)).collect();
    let total: f64 = sinks.iter().map(|vertex| rate(*vertex)).sum();
    if total.is_nan() || total <= 0.0 {
        return Err(NoOutput(sink));
    }
    let sums = match reading {
        Reading::Path => added(graph, congested, rate, |_| 1.0),
        Reading::SinkSet => reached(graph, congested, &sinks, rate),
        Reading::FlowShare => {
            let sent = |edge: &super::FlowEdge| rates[edge.from].processed * edge.selectivity;
            let arrives: Vec<f64> = (0..graph.len()).map(|v| graph.inputs(v).map(sent).sum()).collect();
            added(graph, congested, rate, |edge| {
                if arrives[edge.to] > 0.0 { sent(edge) / arrives[edge.to] } else { 0.0 }
            })
        }
    };
    // Paths multiply: behind a thousand diamonds their sum has no number.
    Ok(sums.into_iter().map(|sum| (sum / total).min(f64::MAX)).collect())
}

/// For each vertex the sum over its uncongested receivers of what was found for them, times the edge's part.
fn added(
    graph: &FlowGraph,
    congested: &[bool],
    sink: impl Fn(usize) -> f64,
    part: impl Fn(&super::FlowEdge) -> f64,
) -> Vec<f64> {
    let mut sums = vec![0.0_f64; graph.len()];
    for vertex in graph.order().iter().rev() {
        let below = graph.outputs(*vertex).filter(|edge| !congested[edge.to]);
        let sum: f64 = below.map(|edge| sums[edge.to] * part(edge)).sum();
        sums[*vertex] = if graph.is_sink(*vertex) { sink(*vertex) } else { sum.min(f64::MAX) };
    }
    sums
}

/// For each vertex the sum over the sinks that it reaches, 64 sinks at a time: one bit each, and a table for each
/// eight of them that knows the sum of every subset.
fn reached(graph: &FlowGraph, congested: &[bool], sinks: &[usize], rate: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut sums = vec![0.0; graph.len()];
    let mut bits = vec![0_u64; graph.len()];
    for block in sinks.chunks(64) {
        bits.fill(0);
        for (bit, sink) in block.iter().enumerate() {
            bits[*sink] = 1 << bit;
        }
        let tables: Vec<[f64; 256]> = block.chunks(8).map(|eight| subsets(eight, &rate)).collect();
        for vertex in graph.order().iter().rev() {
            let below = graph.outputs(*vertex).filter(|edge| !congested[edge.to]);
            let found = below.fold(bits[*vertex], |found, edge| found | bits[edge.to]);
            bits[*vertex] = found;
            if found != 0 {
                let bytes = found.to_le_bytes();
                sums[*vertex] +=
                    bytes.iter().zip(&tables).map(|(b, table)| table[usize::from(*b)]).sum::<f64>();
            }
        }
    }
    sums
}

fn subsets(sinks: &[usize], rate: &impl Fn(usize) -> f64) -> [f64; 256] {
    let mut sums = [0.0; 256];
    for (bit, sink) in sinks.iter().enumerate() {
        let (low, high) = sums.split_at_mut(1 << bit);
        for (with, without) in high.iter_mut().zip(low) {
            *with = *without + rate(*sink);
        }
    }
    sums
}
