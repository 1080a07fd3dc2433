//! What Storm does with one machine more: baselines that move instances and add none.

use super::take::{others, removable, removal};
use super::{Ask, Left, Move, Plan, Planner, Refusal, Removal, TakeAsk};
use crate::scale::graph::FlowGraph;
use crate::scale::machines::{Placement, Takes};

/// Storm's own `rebalance` (`EvenScheduler`): everything is unassigned and dealt again, one instance to each machine in turn, in
/// the order of the vertices (elasticity.md section 1.7). Storm deals over workers, with the machines' workers
/// interleaved; with as many workers on each machine that is the same.
#[derive(Debug, Clone, Copy)]
pub struct StormDefault;

/// The authors' baseline `LinkLoadBasedScheduler` in its last form: vertices by the rows they send, the fewest first; an instance
/// of each, of its receivers and of its senders in turn goes to the new machines, until these host their mean number.
#[derive(Debug, Clone, Copy)]
pub struct LeastLinkLoad;

impl Planner for StormDefault {
    fn name(&self) -> &'static str {
        "storm-default"
    }

    fn scale_out(&self, ask: &Ask<'_>) -> Result<Plan, Refusal> {
        let placement = placed(ask, self.name())?;
        let after = deal_anew(placement, &placement.instances(), |_| false);
        Ok(moved(self.name(), ask, placement, &after))
    }

    /// Everything is dealt again over the machines that stay. Which ones these are does not matter to it: the first.
    fn scale_in(&self, ask: &TakeAsk<'_>) -> Result<Removal, Refusal> {
        let mut free = removable(ask)?;
        let gone = free.split_off(free.len() - ask.machines);
        let mut turn = others(ask, &gone).into_iter().cycle();
        let on = ask.placement.on.iter().map(|on| turn.by_ref().take(on.len()).collect());
        let after = Placement { on: on.collect(), machines: ask.placement.machines.clone() };
        let why = "the last ones; all instances are dealt anew over the others".to_owned();
        Ok(removal(self.name(), ask, gone, after, why))
    }
}

impl Planner for LeastLinkLoad {
    fn name(&self) -> &'static str {
        "least-link-load"
    }

    fn scale_out(&self, ask: &Ask<'_>) -> Result<Plan, Refusal> {
        let placement = placed(ask, self.name())?;
        let hosted = placement.hosted();
        let new: Vec<usize> = (0..hosted.len()).filter(|machine| hosted[*machine] == 0).collect();
        let mean = hosted.iter().sum::<usize>() / hosted.len().max(1);
        let mut after = placement.clone();
        let mut left = mean * new.len();
        for vertex in by_load(ask) {
            let around = around(ask.graph, vertex);
            loop {
                let mut none = true;
                for vertex in &around {
                    let here = after.on[*vertex].iter().position(|machine| !new.contains(machine));
                    if let (Some(instance), 1..) = (here, left) {
                        left -= 1;
                        none = false;
                        after.on[*vertex][instance] = new[left % new.len()];
                    }
                }
                if none {
                    break;
                }
            }
        }
        Ok(moved(self.name(), ask, placement, &after))
    }
}

/// So many instances of each vertex, dealt anew one to each machine in turn: to those that take any. Vertices that `stays`
/// names keep what they have, and only their new instances are dealt.
pub(super) fn deal_anew(placement: &Placement, counts: &[u32], stays: impl Fn(usize) -> bool) -> Placement {
    let takes = |machine: &usize| placement.machines[*machine].takes != Takes::Nothing;
    let mut turn: Vec<usize> = (0..placement.machines.len()).filter(takes).collect();
    if turn.is_empty() {
        turn = (0..placement.machines.len()).collect();
    }
    let mut turn = turn.into_iter().cycle();
    let on = placement.on.iter().zip(counts).enumerate().map(|(vertex, (on, count))| {
        let kept = if stays(vertex) { on.as_slice() } else { &[] };
        let rest = (*count as usize).saturating_sub(kept.len());
        kept.iter().copied().chain(turn.by_ref().take(rest)).collect()
    });
    Placement { on: on.collect(), machines: placement.machines.clone() }
}

fn placed<'a>(ask: &'a Ask<'_>, name: &str) -> Result<&'a Placement, Refusal> {
    let refuse =
        || Refusal(format!("planner `{name}` moves instances: it needs to know on which machines they are"));
    ask.placement.filter(|placement| !placement.machines.is_empty()).ok_or_else(refuse)
}

/// Vertices by the rows that leave them in a second over all their edges, the fewest first.
fn by_load(ask: &Ask<'_>) -> Vec<usize> {
    let graph = ask.graph;
    let sends = |vertex: usize| {
        graph.outputs(vertex).map(|edge| ask.rates[vertex].processed * edge.selectivity).sum::<f64>()
    };
    let mut order: Vec<usize> = (0..graph.len()).collect();
    order.sort_by(|a, b| sends(*a).total_cmp(&sends(*b)));
    order
}

/// A vertex, its receivers and its senders.
fn around(graph: &FlowGraph, vertex: usize) -> Vec<usize> {
    let receivers = graph.outputs(vertex).map(|edge| edge.to);
    let senders = graph.inputs(vertex).map(|edge| edge.from);
    std::iter::once(vertex).chain(receivers).chain(senders).collect()
}

/// The moves from one placement to another, and what they bring.
pub(super) fn moves(before: &Placement, after: &Placement) -> Vec<Move> {
    let places = before.on.iter().zip(&after.on).enumerate();
    let places = places.flat_map(|(vertex, (old, new))| {
        let pairs = old.iter().zip(new).enumerate();
        pairs.map(move |(instance, (from, to))| Move { vertex, instance, from: *from, to: *to })
    });
    places.filter(|place| place.from != place.to).collect()
}

fn moved(name: &str, ask: &Ask<'_>, before: &Placement, after: &Placement) -> Plan {
    let throughput = |placement: &Placement| placement.expected(ask.graph, ask.engine).throughput;
    let left = |slots| Left { slots, why: format!("`{name}` moves instances and adds none") };
    Plan {
        planner: name.to_owned(),
        steps: Vec::new(),
        moves: moves(before, after),
        left: (ask.slots > 0).then(|| left(ask.slots)),
        instances: before.instances(),
        before: throughput(before),
        after: throughput(after),
    }
}
