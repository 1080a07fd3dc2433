//! The planner `best`: its search against all ways, and what it leaves.

use super::*;
use crate::route::rank::Lots;
use crate::scale::fluid::Engine;
use crate::scale::graph::{FlowEdge, FlowGraph, FlowVertex};
use crate::scale::whatif;

const CASES: &str = include_str!("../../../../tests/vectors/scale_out_cases.json");

/// Throughput over the optimum that the vectors have, case by case, in order of size.
fn ratios(engine: Engine, plan: impl Fn(&mut Model<'_>) -> Vec<u32>) -> Vec<f64> {
    let (cases, _) = whatif::read(CASES).unwrap();
    let mut ratios: Vec<f64> = cases
        .iter()
        .map(|case| {
            let ask = Ask::new(&case.graph, engine, case.new_instances.unwrap());
            let mut model = Model::new(&ask);
            let instances = plan(&mut model);
            model.throughput(&instances) / case.expected[engine.name()]["optimum"].as_f64().unwrap()
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

#[test]
fn the_search_that_large_graphs_get_is_near_the_optimum_on_small_ones() {
    for engine in [Engine::Queueing, Engine::BackPressured] {
        let ratios = ratios(engine, searched);
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        let exact = ratios.iter().filter(|ratio| **ratio > 1.0 - 1e-9).count();
        println!("{engine}: mean {mean:.5}, min {:.4}, p10 {:.4}, exact {exact}", ratios[0], ratios[20]);
        assert!(mean >= 0.995 && ratios[20] >= 0.97, "{engine}: {mean} {}", ratios[20]);
    }
}

/// A random graph of so many operators, twenty of them sources.
fn large(vertices: usize) -> FlowGraph {
    let mut lots = Lots(3);
    let mut one = |of: &[f64]| of[lots.below(of.len() as u64) as usize];
    let made = (0..vertices).map(|index| FlowVertex {
        offered: (index < 20).then_some(1000.0),
        ..FlowVertex::new(index.to_string(), 1, one(&[100.0, 300.0, 1000.0, 3000.0]))
    });
    let made: Vec<FlowVertex> = made.collect();
    let mut edges = Vec::new();
    for to in 20..vertices {
        for _ in 0..2 {
            let from = to - 1 - (lots.below(to.min(200) as u64) as usize).min(to - 1);
            edges.push(FlowEdge { from, to, selectivity: 0.5 });
        }
    }
    FlowGraph::new(made, edges).unwrap()
}

#[test]
fn twenty_thousand_operators_are_planned_with_bounded_work() {
    let graph = large(20_000);
    let size = (graph.len() + graph.edges().len()) as u64;
    for engine in [Engine::Queueing, Engine::BackPressured] {
        let ask = Ask::new(&graph, engine, 5);
        let mut model = Model::new(&ask);
        let instances = searched(&mut model);
        // The last solution may run over, and what is in hand is solved once more each.
        assert!(model.steps < BUDGET + 60 * 20 * size, "{engine}: {} steps", model.steps);
        let planned = model.throughput(&instances);
        let in_turn = Plan::of("", &ask, dealt(&ask).into_iter().map(|v| (v, String::new())).collect(), "");
        assert!(planned >= in_turn.after, "{engine}: {planned}");
        // Under back-pressure more vertices hold the twenty sources back than there are slots.
        assert!(engine == Engine::BackPressured || planned > in_turn.before, "{planned}");
    }
}
