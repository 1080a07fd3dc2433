//! What a planner chooses for a topology, and what the fluid model predicts of that: throughput before and after.
//!
//! Machines bind: an instance has at most a core, and the instances of a machine share its cores
//! (`core/scale/machines`). New instances go to new machines, as published. Planners see the rates that were measured, or
//! would be.

use tuplane_core::scale::machines::Takes;
use tuplane_core::scale::{Ask, Congestion, Engine, FlowGraph, Machine, Placement, Planners, Rates, TakeAsk};

use super::StelaError;
use super::plan::Overflow;
use super::topology::{Placed, Topology};

/// Storm's default: it adds no instances and deals all anew over the machines.
pub(super) const DEFAULT: &str = "storm-default";

/// The same with as many instances more as Stela adds, one for each operator in turn.
pub(super) const DEFAULT_N: &str = "storm-default-n";

/// A prediction.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Predicted {
    pub(super) topology: &'static Topology,
    pub(super) planner: &'static str,
    pub(super) overflow: Overflow,
    pub(super) choice: Choice,
}

/// What a planner chooses, and what the model predicts of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Choice {
    /// Rows a second that the sinks take, before and after.
    pub(super) before: f64,
    pub(super) after: f64,
    /// New instances that there are to be, by the planner's rule for N.
    pub(super) slots: u32,
    /// Operators that get some, and how many.
    pub(super) added: Vec<(String, u32)>,
    /// Instances that change their machine.
    pub(super) moved: usize,
    /// Where all are then: of each operator those that there were, in their order, and then new ones.
    pub(super) placement: Placement,
}

/// What a planner is asked about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Situation<'a> {
    pub(super) topology: &'static Topology,
    /// The operators.
    pub(super) graph: &'a FlowGraph,
    /// Where their instances are, on all machines that there are before.
    pub(super) placement: &'a Placement,
    /// What happens to rows that an operator cannot take.
    pub(super) engine: Engine,
    /// What the operators do, where that was measured.
    pub(super) measured: Option<&'a [Rates]>,
    /// Who may be asked.
    pub(super) planners: &'a Planners,
}

/// What the model predicts for one of the planners.
///
/// # Errors
/// If there is no such planner, or it refuses.
pub(super) fn predict(
    placed: &Placed,
    planner: &'static str,
    overflow: Overflow,
    planners: &Planners,
) -> Result<Predicted, StelaError> {
    let Placed { topology, graph, placement, .. } = placed;
    let machines = topology.machines;
    let more: Vec<Machine> = topology.hosts(machines.before..machines.after).collect();
    let situation =
        Situation { topology, graph, placement, engine: overflow.engine(), measured: None, planners };
    let choice = situation.choose(planner, &more);
    let refused = |why: String| StelaError::Planner { topology: topology.key, planner, why };
    Ok(Predicted { topology, planner, overflow, choice: choice.map_err(refused)? })
}

impl Situation<'_> {
    /// What a planner chooses, with so many machines `more` or, where the topology is scaled in, fewer.
    pub(super) fn choose(&self, planner: &str, more: &[Machine]) -> Result<Choice, String> {
        if self.topology.is_scale_out() { self.out(planner, more) } else { self.take(planner) }
    }

    fn out(&self, planner: &str, more: &[Machine]) -> Result<Choice, String> {
        let Self { topology, graph, placement, engine, measured, planners } = *self;
        let machines = topology.machines;
        let new = machines.after - machines.before;
        let adds = if planner == DEFAULT_N { "round-robin" } else { planner };
        let instances = placement.instances().iter().sum();
        let slots = planners.slots(adds, new, instances, machines.before);
        let slots = slots.map_err(|refusal| refusal.to_string())?;
        // New instances go to the new machines.
        let mut wide = placement.clone();
        wide.machines.iter_mut().for_each(|machine| machine.takes = Takes::Moved);
        wide.machines.extend_from_slice(more);
        let now = placement.expected(graph, engine);
        let plan_of = |planner: &str, graph: &FlowGraph, placement: &Placement, rates: Option<&[Rates]>| {
            let rates = rates.map_or_else(|| placement.steady(graph, engine).rates, <[Rates]>::to_vec);
            let ask = Ask {
                graph,
                engine,
                slots,
                rates,
                congestion: Congestion::default(),
                placement: Some(placement),
                moving: None,
            };
            planners.scale_out(planner, &ask).map_err(|refusal| refusal.to_string())
        };
        let plan = plan_of(adds, graph, &wide, measured)?;
        let added =
            graph.vertices().iter().zip(&plan.instances).map(|(v, n)| (v.id.clone(), n - v.instances));
        let added: Vec<(String, u32)> = added.filter(|(_, n)| *n > 0).collect();
        let mut moves = plan.moves;
        let apply = |wide: &mut Placement, moves: &[tuplane_core::scale::planner::Move]| {
            for moving in moves {
                wide.on[moving.vertex][moving.instance] = moving.to;
            }
        };
        apply(&mut wide, &moves);
        for step in &plan.steps {
            wide.on[step.vertex].push(step.machine.unwrap_or(placement.machines.len()));
        }
        if planner == DEFAULT_N {
            moves = plan_of(DEFAULT, &graph.with_instances(&plan.instances), &wide, None)?.moves;
            apply(&mut wide, &moves);
        }
        let after = wide.expected(graph, engine).throughput;
        Ok(Choice { before: now.throughput, after, slots, added, moved: moves.len(), placement: wide })
    }

    fn take(&self, planner: &str) -> Result<Choice, String> {
        let Self { topology, graph, placement, engine, measured, planners } = *self;
        let machines = (topology.machines.before - topology.machines.after) as usize;
        let before = placement.expected(graph, engine).throughput;
        let mut ask = TakeAsk::new(graph, placement, engine, machines);
        if let Some(measured) = measured {
            ask.rates = measured.to_vec();
        }
        let after = planners.scale_in(planner, &ask).map_err(|refusal| refusal.to_string())?.placement;
        let places = |placement: &Placement| placement.on.concat();
        let moved = places(placement).iter().zip(places(&after)).filter(|(from, to)| **from != *to).count();
        let throughput = after.expected(graph, engine).throughput;
        Ok(Choice { before, after: throughput, slots: 0, added: Vec::new(), moved, placement: after })
    }
}

#[cfg(test)]
mod tests {
    use super::super::topology::TOPOLOGIES;
    use super::*;

    /// What an instance has to bring to be put elsewhere.
    const NEAR: f64 = 3e-3;

    #[test]
    fn best_is_never_below_the_baselines_on_the_published_topologies() {
        for topology in TOPOLOGIES.iter().filter(|topology| topology.is_scale_out()) {
            let placed = topology.place().unwrap();
            for overflow in Overflow::ALL {
                let of = |planner| predict(&placed, planner, overflow, &Planners::default()).unwrap();
                let best = of("best");
                for planner in ["round-robin", "ds2", "stela", DEFAULT, DEFAULT_N] {
                    let other = of(planner);
                    let (key, overflow) = (topology.key, overflow.name());
                    println!(
                        "{key} {overflow}: best {:.0}, {planner} {:.0}, before {:.0}",
                        best.choice.after, other.choice.after, best.choice.before
                    );
                    assert!(
                        best.choice.after >= other.choice.after * (1.0 - NEAR),
                        "{key} {overflow}: {planner}"
                    );
                }
                assert!(best.choice.after >= best.choice.before * (1.0 - NEAR), "{}", topology.key);
            }
        }
    }
}
