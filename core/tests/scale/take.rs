//! Scale-in on the model of elasticity.md section 2.1 (7): 6 machines of 3 cores, 400 random placements, one given back.

use tuplane_core::scale::{
    Engine, FlowEdge, FlowGraph, FlowVertex, Machine, Placement, Planners, Removal, TakeAsk, fluid,
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

/// What the fluid makes of a plan: planners choose by it.
fn fluid(graph: &FlowGraph, engine: Engine, removal: &Removal) -> f64 {
    removal.placement.steady(graph, engine).throughput
}

/// The most that any choice of so many machines leaves, wherever their instances go.
fn optimum(graph: &FlowGraph, placement: &Placement, engine: Engine, count: u32) -> f64 {
    let machines = placement.machines.len();
    let mut most = 0.0_f64;
    for set in (0..1_u32 << machines).filter(|set| set.count_ones() == count) {
        let (gone, stay): (Vec<usize>, Vec<usize>) =
            (0..machines).partition(|machine| set >> machine & 1 == 1);
        let moving: Vec<(usize, usize)> = gone.iter().flat_map(|gone| placement.of(*gone)).collect();
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
        let optimum = optimum(&graph, &placement, engine, 1);
        for (sum, planner) in sums.iter_mut().zip(planners) {
            *sum += fluid(&graph, engine, &taken(&graph, &placement, engine, 1, planner)) / optimum;
        }
        count += 1.0;
    }
    let means = sums.map(|sum| sum / count);
    println!("{planners:?}: {means:.4?} of the best choice, {count} placements");
    assert!(count > 20.0 && (means[0] - 1.0).abs() < 1e-9, "{means:?}");
    assert!(means[1] < 0.98 && means[2] < 0.98, "{means:?}");
}

#[test]
fn best_gives_back_the_best_two_of_four_machines_on_both_engines() {
    for engine in [Engine::Queueing, Engine::BackPressured] {
        let (mut least, mut count) = (f64::INFINITY, 0);
        for seed in 0..300 {
            let (graph, placement) = placed(&mut Lots(seed), 4, 3.0);
            // As above: two of them host at most eight.
            let mut hosted = placement.hosted();
            hosted.sort_unstable();
            if hosted[2] + hosted[3] > 8 {
                continue;
            }
            let optimum = optimum(&graph, &placement, engine, 2);
            least = least.min(fluid(&graph, engine, &taken(&graph, &placement, engine, 2, "best")) / optimum);
            count += 1;
        }
        println!("{engine:?}: at least {least:.5} of the best choice, {count} placements");
        assert!(count > 15 && least > 1.0 - 1e-9 && least < 1.0 + 1e-9, "{engine:?}: {least} of {count}");
    }
}

/// The most that any choice of one machine leaves where one source feeds a back-pressured engine: the fullest vertex or machine
/// throttles it, so that the best placement is the one whose fullest machine is least full. By branch and bound.
fn optimum_by_loads(graph: &FlowGraph, placement: &Placement) -> f64 {
    fn least(items: &[f64], stay: &[usize], loads: &mut [f64], full: f64, best: &mut f64) {
        let Some((load, rest)) = items.split_first() else {
            *best = best.min(full);
            return;
        };
        for (place, machine) in stay.iter().enumerate() {
            // Equally full machines are alike.
            if stay[..place].iter().any(|other| loads[*other].total_cmp(&loads[*machine]).is_eq()) {
                continue;
            }
            let now = full.max(loads[*machine] + load);
            if now < *best {
                loads[*machine] += load;
                least(rest, stay, loads, now, best);
                loads[*machine] -= load;
            }
        }
    }
    let demand = fluid::demand(graph, &graph.capacities(&graph.instances()));
    let need = |vertex: usize| {
        demand[vertex] / (graph.vertices()[vertex].capacity * f64::from(graph.vertices()[vertex].instances))
    };
    let vertices = (0..graph.len()).map(|vertex| 1.0 / need(vertex)).fold(1.0, f64::min);
    let whole: f64 = (0..graph.len()).filter(|v| graph.is_sink(*v)).map(|v| demand[v]).sum();
    let machines = placement.machines.len();
    let factor = (0..machines).map(|gone| {
        let stay: Vec<usize> = (0..machines).filter(|machine| *machine != gone).collect();
        let mut loads = vec![0.0; machines];
        for (vertex, on) in placement.on.iter().enumerate() {
            on.iter().filter(|machine| **machine != gone).for_each(|machine| loads[*machine] += need(vertex));
        }
        let mut items: Vec<f64> = placement.of(gone).iter().map(|(vertex, _)| need(*vertex)).collect();
        items.sort_by(|a, b| b.total_cmp(a));
        let full = stay.iter().map(|machine| loads[*machine]).fold(0.0, f64::max);
        let mut best = f64::INFINITY;
        least(&items, &stay, &mut loads, full, &mut best);
        vertices.min(placement.machines[gone].cores / best)
    });
    factor.fold(0.0, f64::max) * whole
}

#[test]
fn of_400_placements_best_gives_back_the_best_machine_each_time() {
    for (machines, cores, seeds) in [(6, 3.0, 0..400), (8, 2.0, 400..500)] {
        let (mut least, mut sum, count) = (f64::INFINITY, 0.0, seeds.clone().count() as f64);
        for seed in seeds {
            let (graph, placement) = placed(&mut Lots(seed), machines, cores);
            let optimum = optimum_by_loads(&graph, &placement);
            let best = taken(&graph, &placement, Engine::BackPressured, 1, "best");
            let ratio = fluid(&graph, Engine::BackPressured, &best) / optimum;
            least = least.min(ratio);
            sum += ratio;
        }
        println!("{machines} machines: {:.5} of the best choice, least {least:.4}", sum / count);
        assert!(
            sum / count >= 0.98 && least > 1.0 - 1e-9 && least < 1.0 + 1e-9,
            "{machines} machines: {least}"
        );
    }
}

#[test]
fn half_of_eight_machines_with_a_hundred_instances_are_planned_with_bounded_work() {
    let vertices = (0..7).map(|index| FlowVertex {
        offered: (index == 0).then_some(1e5),
        ..FlowVertex::new(index.to_string(), 15, [1000.0, 500.0][index % 2])
    });
    let edges = (1..7).map(|to| FlowEdge { from: to - 1, to, selectivity: 1.0 });
    let graph = FlowGraph::new(vertices.collect(), edges.collect()).unwrap();
    let machines = (0..8).map(|index| Machine::new(format!("m{index}"), 4.0)).collect();
    let on = (0..7).map(|vertex| (0..15).map(|nth| (vertex * 15 + nth) % 8).collect()).collect();
    let placement = Placement { machines, on };
    for engine in [Engine::BackPressured, Engine::Queueing] {
        let best = taken(&graph, &placement, engine, 4, "best");
        // Sixteen cores of 32 that all were in use.
        let before = placement.steady(&graph, engine).throughput;
        let after = fluid(&graph, engine, &best);
        assert!(after >= 0.49 * before, "{engine}: {after} {before}");
    }
}

#[test]
fn best_is_at_least_as_good_as_the_others_on_all_400_placements() {
    for seed in 0..400 {
        let (graph, placement) = placed(&mut Lots(seed), 6, 3.0);
        let engine = Engine::BackPressured;
        let after = |planner| fluid(&graph, engine, &taken(&graph, &placement, engine, 1, planner));
        let best = after("best");
        for planner in ["etp-sum", "random"] {
            assert!(best >= after(planner) * (1.0 - 1e-9), "seed {seed}: {planner}");
        }
    }
}

#[test]
fn every_plan_is_told_with_what_is_to_be_expected_as_one_for_more_instances_is() {
    let mut differ = 0;
    for seed in 0..20 {
        let (graph, placement) = placed(&mut Lots(seed), 6, 3.0);
        for engine in [Engine::BackPressured, Engine::Queueing] {
            for planner in ["best", "etp-sum", "random", "storm-default"] {
                let ask = TakeAsk { seed: 7, ..TakeAsk::new(&graph, &placement, engine, 1) };
                let removal = Planners::default().scale_in(planner, &ask).unwrap();
                let expected = |placement: &Placement| placement.expected(&graph, engine).throughput;
                let (before, after) = (expected(&placement), expected(&removal.placement));
                let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b;
                assert!(
                    close(removal.before, before) && close(removal.after, after),
                    "{planner} {removal:?}"
                );
                differ += usize::from(!close(removal.after, fluid(&graph, engine, &removal)));
            }
        }
    }
    assert!(differ > 0, "nothing told the two measures apart");
}

#[test]
fn many_machines_go_one_after_the_other() {
    let (mut best, mut by_sum) = (0.0, 0.0);
    for seed in 0..20 {
        let (graph, placement) = placed(&mut Lots(seed), 10, 2.0);
        let engine = Engine::BackPressured;
        let after = |planner| fluid(&graph, engine, &taken(&graph, &placement, engine, 4, planner));
        best += after("best");
        by_sum += after("etp-sum");
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

#[test]
fn a_choice_that_takes_too_long_is_refused_with_what_does_not() {
    let vertices = vec![
        FlowVertex { offered: Some(1000.0), ..FlowVertex::new("src", 1024, 1.0) },
        FlowVertex::new("sink", 1024, 1.0),
    ];
    let graph = FlowGraph::new(vertices, vec![FlowEdge { from: 0, to: 1, selectivity: 1.0 }]).unwrap();
    let machines = (0..1024).map(|index| Machine::new(format!("m{index}"), 4.0)).collect();
    let placement = Placement { machines, on: vec![(0..1024).collect(); 2] };
    let ask = |machines| TakeAsk::new(&graph, &placement, Engine::BackPressured, machines);
    let said = Planners::default().scale_in("best", &ask(512)).unwrap_err().to_string();
    assert!(
        said.contains(
            "512 machines are to be given back, of 1024 with 2048 instances: that takes `best` too long"
        ),
        "{said}"
    );
    assert!(said.contains("ask for at most 3 at a time, or for another planner (`etp-sum`)"), "{said}");
    assert_eq!(Planners::default().scale_in("etp-sum", &ask(512)).unwrap().machines.len(), 512);
}
