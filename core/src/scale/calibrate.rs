//! What a job was measured to bring out beside what the model says of it: by how much its capacities are corrected.
//!
//! A model has no queue that runs empty for a moment and no sender that waits for the slowest of its receivers, so that a real job
//! that is held back gets through somewhat less. What the difference is now is the best guess at what it will be: capacities are
//! scaled until the model says what was measured, and the plan is made on these. (Elasticity.md, section 3: Flink's autoscaler
//! does so by `observed-scalability`.)

use super::fluid::{EQUAL, Engine, Steady};
use super::graph::{FlowGraph, Rates};
use super::machines::Placement;

/// Factors that are believed: beyond them the measurement and the model are not about the same thing.
const BELIEVED: std::ops::RangeInclusive<f64> = 0.5..=2.0;

/// The model is as near to the measurement as this share of it.
const NEAR: f64 = 1e-3;

/// Steps in which it is brought there; one does where all sources are held back alike.
const ROUNDS: usize = 20;

/// A graph on which the model says what was measured.
#[derive(Debug, Clone)]
pub struct Calibrated {
    /// The graph, its capacities scaled.
    pub graph: FlowGraph,
    /// By how much.
    pub factor: f64,
    /// Rows a second at the sinks, as measured.
    pub measured: f64,
    /// What the model said of it before.
    pub modelled: f64,
}

impl Calibrated {
    /// What was done, in a sentence; none if it is next to nothing.
    pub fn sentence(&self) -> Option<String> {
        let Self { factor, measured, modelled, .. } = self;
        ((factor - 1.0).abs() >= 0.01).then(|| {
            format!(
                "the sinks take {measured:.0} rows/s and the model said {modelled:.0}: what instances can do is taken times \
                 {factor:.2}"
            )
        })
    }
}

/// Scales the capacities of a job so that the model says of it what its sinks were measured to take. Stays as it is where that says
/// nothing: where the job gets through what it is offered, in the model or as measured; where one of both figures is not
/// known; and where they differ by more than a factor of two, as when a rate is of another time.
pub fn calibrated(
    graph: &FlowGraph,
    placement: &Placement,
    engine: Engine,
    rates: Option<&[Rates]>,
) -> Calibrated {
    let solve = |factor: f64| placement.expected(&graph.faster(factor), engine);
    let now = solve(1.0);
    let sinks = |rates: &[Rates]| -> f64 {
        (0..graph.len()).filter(|v| graph.is_sink(*v)).filter_map(|v| rates.get(v)).map(|r| r.processed).sum()
    };
    let modelled = now.throughput;
    let measured = rates.map_or(f64::NAN, sinks);
    let as_it_is = Calibrated { graph: graph.clone(), factor: 1.0, measured, modelled };
    let positive = |rows: f64| rows.is_finite() && rows > 0.0;
    if !positive(modelled) || !positive(measured) || !is_held_back(graph, &now) {
        return as_it_is;
    }
    let (mut factor, mut said) = (1.0, modelled);
    for _ in 0..ROUNDS {
        factor *= measured / said;
        if !BELIEVED.contains(&factor) {
            return as_it_is;
        }
        said = solve(factor).throughput;
        if (said - measured).abs() <= NEAR * measured {
            return Calibrated { graph: graph.faster(factor), factor, ..as_it_is };
        }
    }
    as_it_is
}

/// Some source does not get through what it is offered, or gives all that its instances can.
fn is_held_back(graph: &FlowGraph, now: &Steady) -> bool {
    let held = |vertex: usize| now.rates[vertex].input > now.rates[vertex].processed * (1.0 + EQUAL);
    let open = |vertex: usize| graph.is_source(vertex) && graph.vertices()[vertex].offered.is_none();
    (0..graph.len()).any(|vertex| held(vertex) || open(vertex))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::graph::{FlowEdge, FlowVertex};
    use crate::scale::machines::Machine;

    /// A chain on one machine; the first is offered so much, or gives what it can.
    fn chain(offered: Option<f64>, capacities: &[f64]) -> (FlowGraph, Placement) {
        let made = capacities.iter().enumerate().map(|(index, capacity)| FlowVertex {
            offered: offered.filter(|_| index == 0),
            ..FlowVertex::new(index.to_string(), 1, *capacity)
        });
        let edges = (1..capacities.len()).map(|to| FlowEdge { from: to - 1, to, selectivity: 1.0 });
        let graph = FlowGraph::new(made.collect(), edges.collect()).unwrap();
        let on = vec![vec![0]; capacities.len()];
        (graph, Placement { machines: vec![Machine::new("m", 1.0)], on })
    }

    fn with(job: &(FlowGraph, Placement), engine: Engine, sink: f64) -> Calibrated {
        let mut rates = vec![Rates::default(); job.0.len()];
        rates.last_mut().unwrap().processed = sink;
        calibrated(&job.0, &job.1, engine, Some(&rates))
    }

    #[test]
    fn a_job_that_is_held_back_is_taken_as_measured() {
        let job = chain(None, &[1000.0, 250.0]);
        for (engine, sink) in
            [(Engine::BackPressured, 170.0), (Engine::BackPressured, 230.0), (Engine::Queueing, 100.0)]
        {
            let found = with(&job, engine, sink);
            let said = job.1.expected(&found.graph, engine).throughput;
            assert!((said - sink).abs() <= 1e-3 * sink, "{engine}: {said}");
            assert!(found.sentence().unwrap().contains(&format!("take {sink} rows/s")));
        }
        assert!((with(&job, Engine::BackPressured, 170.0).factor - 170.0 / 200.0).abs() < 1e-3);
    }

    #[test]
    fn a_measurement_that_says_nothing_changes_nothing() {
        let held = chain(None, &[1000.0, 250.0]);
        let free = chain(Some(100.0), &[1000.0, 250.0]);
        for (job, sink) in [(&free, 80.0), (&held, 0.0), (&held, f64::NAN), (&held, 30.0), (&held, 900.0)] {
            let found = with(job, Engine::BackPressured, sink);
            assert!(found.factor.to_bits() == 1f64.to_bits() && found.sentence().is_none(), "{sink}");
            assert_eq!(found.graph, job.0);
        }
        let unknown = calibrated(&held.0, &held.1, Engine::BackPressured, None);
        assert!(unknown.factor.to_bits() == 1f64.to_bits());
    }

    #[test]
    fn what_a_source_is_offered_is_not_scaled() {
        // At most 180 instead of 200 of the 190 that are offered; with another instance all of it comes through.
        let (graph, placement) = chain(Some(190.0), &[1e6, 200.0]);
        let placement = Placement { machines: vec![Machine::new("m", 9.0)], ..placement };
        let found = with(&(graph.clone(), placement.clone()), Engine::BackPressured, 171.0);
        // The model said that all came through: nothing to learn.
        assert!((found.factor - 1.0).abs() < 1e-9);
        let (graph, _) = chain(Some(290.0), &[1e6, 200.0]);
        let found = with(&(graph, placement.clone()), Engine::BackPressured, 180.0);
        let mut more = placement;
        more.on[1].push(0);
        let after = more.expected(&found.graph, Engine::BackPressured).throughput;
        assert!((found.factor - 0.9).abs() < 1e-9 && (after - 290.0).abs() < 1e-6, "{after}");
    }
}
