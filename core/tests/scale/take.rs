//! Scale-in on the model of elasticity.md section 2.1 (7): 6 machines of 3 cores, 400 random placements, one given back.

use tuplane_core::scale::{
    Engine, FlowGraph, FlowVertex, Machine, Placement, Planners, Removal, TakeAsk, fluid,
};

use super::planners::{Lots, random};

/// A random graph that asks for nine tenths of the cores, with about as many instances as that takes, somewhere.
fn placed(lots: &mut Lots, machines: usize, cores: f64) -> (FlowGraph, Placement) {
    let vertices = 5 + lots.below(3);
    let graph = random(lots, vertices, 1);
    let demand = fluid::demand(&graph, &graph.capacities(&graph.instances()));
    let whole: f64 = graph.vertices().iter().zip(&demand).map(|(vertex, rows)| rows / vertex.capacity).sum();
    let factor = 0.9 * cores * machines as f64 / whole;
    let made = graph.vertices().iter().zip(&demand).map(|(vertex, rows)| FlowVertex {
        instances: (rows * factor / vertex.capacity * 1.1).ceil().clamp(1.0, 8.0) as u32,
        offered: vertex.offered.map(|rows| rows * factor),
        ..vertex.clone()
    });
    let graph = FlowGraph::new(made.collect(), graph.edges().to_vec()).unwrap();
    let on = graph.instances().iter().map(|n| (0..*n).map(|_| lots.below(machines)).collect()).collect();
    let machines = (0..machines).map(|index| Machine::new(format!("m{index}"), cores)).collect();
    (graph, Placement { machines, on })
}

fn taken(
    graph: &FlowGraph,
    placement: &Placement,
    engine: Engine,
    machines: usize,
    planner: &str,
) -> Removal {
    let ask = TakeAsk { seed: 7, ..TakeAsk::new(graph, placement, engine, machines) };
    let removal = Planners::default().scale_in(planner, &ask).unwrap();
    // What holds for any plan: the machines are empty, and only their instances have moved.
    assert_eq!(removal.machines.len(), machines);
    for machine in &removal.machines {
        assert_eq!(removal.placement.hosted()[*machine], 0, "{planner}");
    }
    assert!(removal.moves.iter().all(|one| removal.machines.contains(&one.from)), "{planner}");
    let moved: usize = removal.machines.iter().map(|machine| placement.hosted()[*machine]).sum();
    assert_eq!(
        (removal.moves.len(), removal.placement.instances()),
        (moved, placement.instances()),
        "{planner}"
    );
    removal
}

/// The most that any choice of one machine leaves, wherever its instances go.
fn optimum(graph: &FlowGraph, placement: &Placement, engine: Engine) -> f64 {
    let machines = placement.machines.len();
    let mut most = 0.0_f64;
    for gone in 0..machines {
        let stay: Vec<usize> = (0..machines).filter(|machine| *machine != gone).collect();
        let moving = placement.of(gone);
        let mut after = placement.clone();
        for mut way in 0..stay.len().pow(u32::try_from(moving.len()).unwrap()) {
            for (vertex, instance) in &moving {
                after.on[*vertex][*instance] = stay[way % stay.len()];
                way /= stay.len();
            }
            most = most.max(after.steady(graph, engine).throughput);
        }
    }
    most
}

#[test]
fn best_gives_back_the_best_machine_and_the_others_do_not() {
    let planners = ["best", "etp-sum", "random"];
    let mut sums = [0.0; 3];
    let mut count = 0.0;
    for seed in 0..400 {
        let (graph, placement) = placed(&mut Lots(seed), 6, 3.0);
        // The optimum over all ways is dear: where at most four instances move, and of those one in four queues.
        if placement.hosted().iter().max() > Some(&4) {
            continue;
        }
        let engine = if seed % 16 == 0 { Engine::Queueing } else { Engine::BackPressured };
        let optimum = optimum(&graph, &placement, engine);
        for (sum, planner) in sums.iter_mut().zip(planners) {
            *sum += taken(&graph, &placement, engine, 1, planner).after / optimum;
        }
        count += 1.0;
    }
    let means = sums.map(|sum| sum / count);
    println!("{planners:?}: {means:.4?} of the best choice, {count} placements");
    assert!(count > 20.0 && (means[0] - 1.0).abs() < 1e-9, "{means:?}");
    assert!(means[1] < 0.98 && means[2] < 0.98, "{means:?}");
}

#[test]
fn with_too_many_instances_to_try_all_ways_best_is_near_the_best_choice() {
    let (mut sum, mut count) = (0.0, 0.0);
    for seed in 0..60 {
        let (graph, placement) = placed(&mut Lots(seed), 4, 3.0);
        if placement.hosted().iter().max().is_some_and(|most| (7..9).contains(most)) {
            let optimum = optimum(&graph, &placement, Engine::BackPressured);
            sum += taken(&graph, &placement, Engine::BackPressured, 1, "best").after / optimum;
            count += 1.0;
        }
    }
    println!("best: {:.4} of the best choice, {count} placements", sum / count);
    assert!(count > 5.0 && sum / count >= 0.98, "{sum} {count}");
}

#[test]
fn best_is_at_least_as_good_as_the_others_on_all_400_placements() {
    for seed in 0..400 {
        let (graph, placement) = placed(&mut Lots(seed), 6, 3.0);
        let after = |planner| taken(&graph, &placement, Engine::BackPressured, 1, planner).after;
        let best = after("best");
        for planner in ["etp-sum", "random"] {
            assert!(best >= after(planner) * (1.0 - 1e-9), "seed {seed}: {planner}");
        }
    }
}

#[test]
fn many_machines_go_one_after_the_other() {
    let (mut best, mut by_sum) = (0.0, 0.0);
    for seed in 0..20 {
        let (graph, placement) = placed(&mut Lots(seed), 10, 2.0);
        best += taken(&graph, &placement, Engine::BackPressured, 4, "best").after;
        by_sum += taken(&graph, &placement, Engine::BackPressured, 4, "etp-sum").after;
    }
    assert!(best > by_sum, "{best} {by_sum}");
}

#[test]
fn what_cannot_be_given_back_is_refused_with_the_numbers() {
    let (graph, mut placement) = placed(&mut Lots(1), 3, 3.0);
    let refused = |placement: &Placement, machines, planner| {
        let ask = TakeAsk::new(&graph, placement, Engine::Queueing, machines);
        Planners::default().scale_in(planner, &ask).unwrap_err().to_string()
    };
    for planner in ["best", "etp-sum", "random"] {
        let said = refused(&placement, 3, planner);
        assert_eq!(said, "3 machines are to be given back, of 3: at least 1 has to stay");
    }
    placement.machines[0].kept = Some("the only host of source `0`".into());
    placement.machines[1].kept = Some("the only host of source `1`".into());
    let said = refused(&placement, 2, "best");
    let kept = "m0 (the only host of source `0`), m1 (the only host of source `1`)";
    assert_eq!(said, format!("2 machines are to be given back, and 1 can be: {kept}"));
    assert_eq!(taken(&graph, &placement, Engine::Queueing, 1, "best").machines, [2]);
    let said = refused(&placement, 1, "ds2");
    assert_eq!(said, "planner `ds2` only plans where more instances go");
}
