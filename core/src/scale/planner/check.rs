//! What a planner answers is looked at before it counts: whoever wrote it, a plan is one that can be carried out.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Ask, Left, Move, Plan, Planner, Refusal, Removal, TakeAsk};
use crate::scale::machines::{Placement, Takes};

/// The planner's plan for more instances, if it is one.
pub(super) fn scale_out(planner: &dyn Planner, ask: &Ask<'_>) -> Result<Plan, Refusal> {
    let mut plan = caught(planner, || planner.scale_out(ask))?;
    out_faults(ask, &plan).map_err(|fault| refused(planner, &fault))?;
    let unused = ask.slots - u32::try_from(plan.steps.len()).unwrap_or(ask.slots);
    if plan.left.as_ref().map_or(0, |left| left.slots) != unused {
        let why = plan.left.map_or_else(|| "the planner does not say why".to_owned(), |left| left.why);
        plan.left = (unused > 0).then_some(Left { slots: unused, why });
    }
    Ok(plan)
}

/// The planner's plan for fewer machines, if it is one.
pub(super) fn scale_in(planner: &dyn Planner, ask: &TakeAsk<'_>) -> Result<Removal, Refusal> {
    let removal = caught(planner, || planner.scale_in(ask))?;
    in_faults(ask, &removal).map_err(|fault| refused(planner, &fault))?;
    Ok(removal)
}

fn refused(planner: &dyn Planner, fault: &str) -> Refusal {
    Refusal(format!("the plan of `{}` cannot be carried out: {fault}", planner.name()))
}

/// What it answers; a panic is a refusal.
pub(super) fn caught<T>(
    planner: &dyn Planner,
    plan: impl FnOnce() -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    catch_unwind(AssertUnwindSafe(plan)).unwrap_or_else(|panic| {
        Err(Refusal(format!("planner `{}` failed: it panicked: {}", planner.name(), said(&*panic))))
    })
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it does not say why")
}

fn out_faults(ask: &Ask<'_>, plan: &Plan) -> Result<(), String> {
    let graph = ask.graph;
    if plan.steps.len() > ask.slots as usize {
        return Err(format!("it has {} new instances, and {} are asked for", plan.steps.len(), ask.slots));
    }
    let mut instances = graph.instances();
    for (step, number) in plan.steps.iter().zip(1..) {
        let Some(vertex) = graph.vertices().get(step.vertex) else {
            return Err(format!("step {number} names vertex {}, of {}", step.vertex, graph.len()));
        };
        instances[step.vertex] = instances[step.vertex].saturating_add(1);
        if let Some(most) = vertex.max_instances.filter(|most| instances[step.vertex] > *most) {
            return Err(format!("step {number} gives `{}` more than its {most} instances", vertex.id));
        }
        match (step.machine, ask.placement) {
            (None, _) => {}
            (Some(machine), None) => {
                return Err(format!("step {number} names machine {machine}, and none is known"));
            }
            (Some(machine), Some(placement)) => {
                let found = placement.machines.get(machine);
                let Some(found) = found else {
                    return Err(format!(
                        "step {number} names machine {machine}, of {}",
                        placement.machines.len()
                    ));
                };
                if found.takes == Takes::Nothing || (found.takes == Takes::Moved && ask.moving.is_none()) {
                    return Err(format!("step {number} is on {}, which takes no new instances", found.name));
                }
            }
        }
    }
    for ((vertex, wanted), found) in graph.vertices().iter().zip(&instances).zip(&plan.instances) {
        if found != wanted {
            return Err(format!(
                "it says that `{}` then has {found} instances; {} and its steps are {wanted}",
                vertex.id, vertex.instances
            ));
        }
    }
    if plan.instances.len() != instances.len() {
        return Err(format!("it has instances of {} vertices, of {}", plan.instances.len(), instances.len()));
    }
    match ask.placement {
        Some(placement) => moves_faults(placement, &plan.moves)?,
        None if plan.moves.is_empty() => {}
        None => return Err("it moves instances, and no machine is known".to_owned()),
    }
    numbers([plan.before, plan.after])
}

fn moves_faults(placement: &Placement, moves: &[Move]) -> Result<(), String> {
    let mut moved = BTreeSet::new();
    for one in moves {
        let at = placement.on.get(one.vertex).and_then(|on| on.get(one.instance));
        if at != Some(&one.from) {
            return Err(format!(
                "it moves instance {} of vertex {} away from machine {}, where none is",
                one.instance, one.vertex, one.from
            ));
        }
        let Some(to) = placement.machines.get(one.to) else {
            return Err(format!("it moves to machine {}, of {}", one.to, placement.machines.len()));
        };
        if to.takes == Takes::Nothing {
            return Err(format!("it moves to {}, which takes no instances", to.name));
        }
        if !moved.insert((one.vertex, one.instance)) {
            return Err(format!("it moves instance {} of vertex {} twice", one.instance, one.vertex));
        }
    }
    Ok(())
}

/// Throughput may be without bound where no capacity is known.
fn numbers(predicted: [f64; 2]) -> Result<(), String> {
    match predicted.into_iter().find(|rows| rows.is_nan() || *rows < 0.0) {
        Some(rows) => Err(format!("it predicts {rows} rows/s")),
        None => Ok(()),
    }
}

fn in_faults(ask: &TakeAsk<'_>, removal: &Removal) -> Result<(), String> {
    let placement = ask.placement;
    let gone: BTreeSet<usize> = removal.machines.iter().copied().collect();
    if gone.len() != ask.machines || removal.machines.len() != ask.machines {
        return Err(format!("it gives back {} machines, and {} are asked for", gone.len(), ask.machines));
    }
    for machine in &gone {
        let Some(found) = placement.machines.get(*machine) else {
            return Err(format!("it gives back machine {machine}, of {}", placement.machines.len()));
        };
        if let Some(why) = &found.kept {
            return Err(format!("it gives back {}, which cannot go: {why}", found.name));
        }
    }
    moves_faults(placement, &removal.moves)?;
    let mut after = placement.on.clone();
    removal.moves.iter().for_each(|one| after[one.vertex][one.instance] = one.to);
    if let Some(machine) = after.iter().flatten().find(|machine| gone.contains(machine)) {
        return Err(format!("instances stay on {}, which it gives back", placement.machines[*machine].name));
    }
    if after != removal.placement.on {
        return Err("the placement after it is not the one that its moves make".to_owned());
    }
    numbers([removal.before, removal.after])
}
