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

/// ETP of every vertex in one reading. O(V + E), and for [`Reading::SinkSet`] that for every 512 sinks.
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
        // A sum of nothing is -0.
        sums[*vertex] = if graph.is_sink(*vertex) { sink(*vertex) } else { sum.min(f64::MAX) + 0.0 };
    }
    sums
}

/// Sinks that are looked at in one pass: the bits of one line of a processor's cache.
const AT_ONCE: usize = 512;

/// A word with more bits than this is added up by tables for each eight of its sinks, else bit by bit.
const FEW: u32 = 8;

/// For each vertex the sum over the sinks that it reaches, one bit each.
fn reached(graph: &FlowGraph, congested: &[bool], sinks: &[usize], rate: impl Fn(usize) -> f64) -> Vec<f64> {
    // By place in the order, and without edges to congested vertices: neighbours are then near each other in memory.
    let mut place = vec![0_u32; graph.len()];
    for (at, vertex) in (0_u32..).zip(graph.order()) {
        place[*vertex] = at;
    }
    let mut below = Vec::with_capacity(graph.edges().len());
    let mut ends = Vec::with_capacity(graph.len());
    for vertex in graph.order() {
        let open = graph.outputs(*vertex).filter(|edge| !congested[edge.to]);
        below.extend(open.map(|edge| place[edge.to]));
        ends.push(below.len());
    }
    let mut sinks: Vec<usize> = sinks.to_vec();
    sinks.sort_unstable_by_key(|sink| place[*sink]);
    let mut sums = vec![0.0; graph.len()];
    let mut bits = vec![[0_u64; AT_ONCE / 64]; graph.len()];
    // Most vertices reach no sink of a block: their bits are neither read nor cleared.
    let mut reaches = vec![false; graph.len()];
    // The sums over the sinks of a block.
    let mut of_block = vec![0.0; graph.len()];
    for block in sinks.chunks(AT_ONCE) {
        reaches.fill(false);
        for (bit, sink) in block.iter().enumerate() {
            let at = place[*sink] as usize;
            bits[at] = [0; AT_ONCE / 64];
            bits[at][bit / 64] = 1 << (bit % 64);
            of_block[at] = rate(*sink);
            reaches[at] = true;
        }
        let rates: Vec<f64> = block.iter().map(|sink| rate(*sink)).collect();
        let tables: Vec<[f64; 256]> = rates.chunks(8).map(subsets).collect();
        // A vertex behind the last sink of the block reaches none of them.
        let last = block.last().map_or(0, |sink| place[*sink] as usize);
        for at in (0..=last).rev() {
            if reaches[at] {
                // A sink: it has no edges.
                sums[graph.order()[at]] += of_block[at];
                continue;
            }
            let begin = at.checked_sub(1).map_or(0, |before| ends[before]);
            let receivers = || below[begin..ends[at]].iter().map(|to| *to as usize).filter(|to| reaches[*to]);
            // The receiver with the most, and what the others have beside it: never subtracted, so that nothing is lost to rounding.
            let Some(most) = receivers().max_by(|a, b| of_block[*a].total_cmp(&of_block[*b])) else {
                continue;
            };
            let (mut found, mut sum) = (bits[most], of_block[most]);
            for to in receivers().filter(|to| *to != most) {
                let mut more = bits[to];
                let mut shared = false;
                for (more, known) in more.iter_mut().zip(&mut found) {
                    shared |= *more & *known != 0;
                    *more &= !*known;
                    *known |= *more;
                }
                sum += if shared { sum_of(&more, &rates, &tables) } else { of_block[to] };
            }
            (bits[at], of_block[at], reaches[at]) = (found, sum, true);
            sums[graph.order()[at]] += sum;
        }
    }
    sums
}

/// The sum of the rates whose bits are set.
fn sum_of(words: &[u64], rates: &[f64], tables: &[[f64; 256]]) -> f64 {
    let mut sum = 0.0;
    for (index, word) in words.iter().enumerate().filter(|(_, word)| **word != 0) {
        if word.count_ones() > FEW {
            let eights = word.to_le_bytes().into_iter().zip(&tables[index * 8..]);
            sum += eights.map(|(byte, table)| table[usize::from(byte)]).sum::<f64>();
        } else {
            let mut left = *word;
            while left != 0 {
                sum += rates[index * 64 + left.trailing_zeros() as usize];
                left &= left - 1;
            }
        }
    }
    sum
}

/// The sum of every subset of at most eight rates, by its bits.
fn subsets(rates: &[f64]) -> [f64; 256] {
    let mut sums = [0.0; 256];
    for (bit, rate) in rates.iter().enumerate() {
        let (low, high) = sums.split_at_mut(1 << bit);
        for (with, without) in high.iter_mut().zip(low) {
            *with = *without + rate;
        }
    }
    sums
}
