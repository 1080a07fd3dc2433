//! Scale-out where machines are known: plans are made, and predicted, with the cores that instances share.

use proptest::prelude::*;
use tuplane_core::scale::machines::Takes;
use tuplane_core::scale::planner::Moving;
use tuplane_core::scale::{Ask, Engine, FlowEdge, FlowGraph, FlowVertex, Machine, Placement, Plan, Planners};

use super::planners::{Lots, random};

/// Plans that differ by less than this share are alike: a planner does not put an instance elsewhere for less.
const NEAR: f64 = 3e-3;

/// A random graph somewhere on machines, and some more machines that host nothing: new instances go there alone, or anywhere.
fn placed(seed: u64, anywhere: bool) -> (FlowGraph, Placement) {
    let lots = &mut Lots(seed);
    let vertices = 4 + lots.below(4);
    let sources = 1 + lots.below(2);
    let graph = random(lots, vertices, sources);
    let (old, new) = (2 + lots.below(3), 1 + lots.below(2));
    let cores = [1.0, 2.0, 2.0, 3.0][lots.below(4)];
    let machine = |index: usize| Machine {
        takes: if anywhere || index >= old { Takes::All } else { Takes::Moved },
        ..Machine::new(format!("m{index}"), cores)
    };
    let on = graph.instances().iter().map(|n| (0..*n).map(|_| lots.below(old)).collect()).collect();
    (graph, Placement { machines: (0..old + new).map(machine).collect(), on })
}

fn planned(ask: &Ask<'_>, planner: &str) -> Plan {
    let plan = Planners::default().scale_out(planner, ask).unwrap();
    let left = plan.left.as_ref().map_or(0, |left| left.slots);
    assert_eq!(plan.steps.len() + left as usize, ask.slots as usize, "{planner}");
    // The prediction is what the model says of the instances where the plan has them.
    let after = carried_out(ask.placement.unwrap(), &plan);
    let found = after.expected(ask.graph, ask.engine).throughput;
    assert!((found - plan.after).abs() <= 1e-9 * found, "{planner}: {found} and not {}", plan.after);
    plan
}

fn carried_out(placement: &Placement, plan: &Plan) -> Placement {
    let mut after = placement.clone();
    for step in &plan.steps {
        after.on[step.vertex].push(step.machine.unwrap());
    }
    for one in &plan.moves {
        assert_eq!(after.on[one.vertex][one.instance], one.from);
        after.on[one.vertex][one.instance] = one.to;
    }
    after
}

/// Storm's default with as many instances more, one for each vertex in turn.
fn storm_and_more(ask: &Ask<'_>) -> f64 {
    let graph = ask.graph.with_instances(&planned(ask, "round-robin").instances);
    let mut wide = ask.placement.unwrap().clone();
    for (on, instances) in wide.on.iter_mut().zip(graph.instances()) {
        on.resize(instances as usize, 0);
    }
    let again = Ask { graph: &graph, placement: Some(&wide), slots: 0, ..ask.clone() };
    Planners::default().scale_out("storm-default", &again).unwrap().after
}

/// The most that any way to deal the slots to vertices and machines gives.
fn optimum(ask: &Ask<'_>, placement: &mut Placement, from: usize, slots: u32) -> f64 {
    let most = placement.expected(ask.graph, ask.engine).throughput;
    let machines = placement.machines.len();
    if slots == 0 {
        return most;
    }
    let mut most = most;
    for pair in from..ask.graph.len() * machines {
        let (vertex, machine) = (pair / machines, pair % machines);
        if placement.machines[machine].takes == Takes::All {
            placement.on[vertex].push(machine);
            most = most.max(optimum(ask, placement, pair, slots - 1));
            placement.on[vertex].pop();
        }
    }
    most
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn best_is_never_below_round_robin_or_storms_default_with_as_many(
        seed: u64,
        slots in 1_u32..7,
        anywhere: bool,
        queueing: bool,
    ) {
        let (graph, placement) = placed(seed, anywhere);
        let engine = if queueing { Engine::Queueing } else { Engine::BackPressured };
        let ask = Ask { placement: Some(&placement), ..Ask::new(&graph, engine, slots) };
        let adds = planned(&ask, "best");
        prop_assert!(adds.moves.is_empty());
        for step in &adds.steps {
            prop_assert_eq!(placement.machines[step.machine.unwrap()].takes, Takes::All);
        }
        for planner in ["round-robin", "ds2", "stela"] {
            let other = Planners::default().scale_out(planner, &ask);
            let Ok(other) = other else { continue };
            prop_assert!(adds.after >= other.after * (1.0 - NEAR), "{}: {} {}", planner, adds.after, other.after);
        }
        prop_assert!(adds.after >= adds.before * (1.0 - NEAR));
        let moving = Some(Moving { stays: vec![false; graph.len()], pays: 0.0 });
        let moves = planned(&Ask { moving, ..ask.clone() }, "best");
        let storm = storm_and_more(&ask);
        prop_assert!(moves.after >= storm * (1.0 - NEAR), "{} {}", moves.after, storm);
        prop_assert!(moves.after >= adds.after * (1.0 - NEAR), "{} {}", moves.after, adds.after);
        prop_assert!(moves.after > adds.after || moves.moves.is_empty());
    }
}

#[test]
fn with_a_core_for_each_instance_machines_change_nothing() {
    for seed in 0..20 {
        let (graph, mut placement) = placed(seed, true);
        placement.machines.iter_mut().for_each(|machine| machine.cores = 1000.0);
        for engine in [Engine::Queueing, Engine::BackPressured] {
            let ask = Ask::new(&graph, engine, 4);
            let free = Planners::default().scale_out("best", &ask).unwrap();
            let bound = planned(&Ask { placement: Some(&placement), ..ask }, "best");
            assert!((free.after - bound.after).abs() <= 1e-9 * free.after, "seed {seed} {engine}");
        }
    }
}

#[test]
fn where_no_core_binds_new_instances_are_spread() {
    let vertices = vec![
        FlowVertex { offered: Some(900.0), ..FlowVertex::new("src", 1, 1000.0) },
        FlowVertex::new("work", 1, 200.0),
    ];
    let graph = FlowGraph::new(vertices, vec![FlowEdge { from: 0, to: 1, selectivity: 1.0 }]).unwrap();
    let machines = ["a", "b", "c", "d"].map(|name| Machine::new(name, 100.0)).to_vec();
    let placement = Placement { machines, on: vec![vec![0]; 2] };
    let ask = Ask { placement: Some(&placement), ..Ask::new(&graph, Engine::BackPressured, 6) };
    let plan = planned(&ask, "best");
    let machines: Vec<usize> = plan.steps.iter().filter_map(|step| step.machine).collect();
    assert_eq!((machines, plan.left.unwrap().slots), (vec![1, 2, 3, 1], 2));
}

#[test]
fn best_is_near_the_best_of_all_ways_to_add() {
    let mut ratios = Vec::new();
    for seed in 0..16 {
        let (graph, placement) = placed(seed, seed % 2 == 0);
        for engine in [Engine::Queueing, Engine::BackPressured] {
            let ask = Ask { placement: Some(&placement), ..Ask::new(&graph, engine, 3) };
            let optimum = optimum(&ask, &mut placement.clone(), 0, 3);
            let best = planned(&ask, "best").after;
            ratios.push(if optimum > 0.0 { best / optimum } else { 1.0 });
        }
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    let least = ratios.iter().copied().fold(1.0, f64::min);
    println!("mean {mean:.5}, least {least:.4}");
    assert!(mean >= 0.999 && least >= 0.97, "{mean} {least}");
}
