//! What the fluid model predicts for a topology: throughput before and after, under each planner.
//!
//! Machines bind: an instance has at most a core, and the instances of a machine share its cores
//! (`core/scale/machines`). New instances go to new machines, as published. Planners see the rates that would be measured.

use tuplane_core::scale::machines::Takes;
use tuplane_core::scale::planner::{slots_by_code, slots_by_slide};
use tuplane_core::scale::{Ask, Congestion, FlowGraph, Placement, Planners, TakeAsk};

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
    /// Rows a second that the sinks take, before and after.
    pub(super) before: f64,
    pub(super) after: f64,
    /// New instances that there are to be, by the planner's rule for N.
    pub(super) slots: u32,
    /// Operators that get some, and how many.
    pub(super) added: Vec<(String, u32)>,
    /// Instances that change their machine.
    pub(super) moved: usize,
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
    let refused = |why: String| StelaError::Planner { topology: placed.topology.key, planner, why };
    let predicted = if placed.topology.is_scale_out() {
        out(placed, planner, overflow, planners)
    } else {
        take(placed, planner, overflow, planners)
    };
    predicted.map_err(refused)
}

fn out(
    placed: &Placed,
    planner: &'static str,
    overflow: Overflow,
    planners: &Planners,
) -> Result<Predicted, String> {
    let Placed { topology, graph, placement, .. } = placed;
    let engine = overflow.engine();
    let machines = topology.machines;
    let new = machines.after - machines.before;
    let rule = if planner == "stela-code" { slots_by_code } else { slots_by_slide };
    let slots = rule(new, placed.executors(), machines.before);
    // New instances go to the new machines.
    let mut wide = placement.clone();
    wide.machines.iter_mut().for_each(|machine| machine.takes = Takes::Moved);
    wide.machines.extend(topology.hosts(machines.before..machines.after));
    let now = placement.steady(graph, engine);
    let plan_of = |planner: &str, graph: &FlowGraph, placement: &Placement| {
        let rates = placement.steady(graph, engine).rates;
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
    let adds = if planner == DEFAULT_N { "round-robin" } else { planner };
    let plan = plan_of(adds, graph, &wide)?;
    let added = graph.vertices().iter().zip(&plan.instances).map(|(v, n)| (v.id.clone(), n - v.instances));
    let added: Vec<(String, u32)> = added.filter(|(_, n)| *n > 0).collect();
    let mut moved = plan.moves.len();
    let after = if planner == DEFAULT_N {
        for (vertex, instances) in plan.instances.iter().enumerate() {
            // Wherever: all are dealt anew.
            wide.on[vertex].resize(*instances as usize, 0);
        }
        let dealt = plan_of(DEFAULT, &graph.with_instances(&plan.instances), &wide)?;
        moved = dealt.moves.len();
        dealt.after
    } else {
        plan.after
    };
    Ok(Predicted { topology, planner, overflow, before: now.throughput, after, slots, added, moved })
}

fn take(
    placed: &Placed,
    planner: &'static str,
    overflow: Overflow,
    planners: &Planners,
) -> Result<Predicted, String> {
    let Placed { topology, graph, placement, .. } = placed;
    let engine = overflow.engine();
    let machines = (topology.machines.before - topology.machines.after) as usize;
    let before = placement.steady(graph, engine).throughput;
    let after = if planner == DEFAULT {
        dealt(placement, topology.machines.after as usize)
    } else {
        let ask = TakeAsk::new(graph, placement, engine, machines);
        planners.scale_in(planner, &ask).map_err(|refusal| refusal.to_string())?.placement
    };
    let places = |placement: &Placement| placement.on.concat();
    let moved = places(placement).iter().zip(places(&after)).filter(|(from, to)| **from != *to).count();
    let after = after.steady(graph, engine).throughput;
    Ok(Predicted { topology, planner, overflow, before, after, slots: 0, added: Vec::new(), moved })
}

/// Storm's default on the first machines alone. Which ones stay does not matter: everything is dealt anew.
fn dealt(placement: &Placement, stay: usize) -> Placement {
    let mut after = placement.clone();
    let mut turn = (0..stay).cycle();
    after.on.iter_mut().flatten().zip(&mut turn).for_each(|(at, machine)| *at = machine);
    after
}

#[cfg(test)]
mod tests {
    use super::super::topology::TOPOLOGIES;
    use super::*;

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
                        best.after, other.after, best.before
                    );
                    assert!(best.after >= other.after * (1.0 - 1e-9), "{key} {overflow}: {planner}");
                }
                assert!(best.after >= best.before * (1.0 - 1e-9), "{}", topology.key);
            }
        }
    }
}
