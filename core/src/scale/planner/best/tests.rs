use super::*;
use crate::scale::fluid::Engine;
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
