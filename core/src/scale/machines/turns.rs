//! What instances get through that take turns on the cores of their machines: less than their fluid, and sometimes more.
//!
//! A fluid on a machine needs no more than that its instances' shares fit into its cores. Instances are not fluid: one that
//! needs nearly a core for itself meets others that ask at the same moment, and gets less, though cores are idle at other moments.
//! Here each instance asks for a core for a share of the time, independently of the others (mean field); when more ask
//! than there are cores, they share these evenly, as threads do. So instance i of a machine with C cores works at the speed
//! `s_i = E[min(1, C / (1 + N_i))]`, `N_i` the number of others that ask, a sum of independent ones, and asks for `a_i = r_i / (c s_i)`
//! of the time, for `r_i` rows a second of which it would get through `c` alone. Both are brought together step by step.
//!
//! And rows pass over an instance that is full where queues are bounded: what a vertex takes is the sum of what its
//! instances take, and not as often as there are instances what the slowest one does.

use super::Placement;
use crate::scale::fluid::{Engine, Steady, back_pressured, queueing};
use crate::scale::graph::FlowGraph;

/// Rounds after which the speeds are taken as they are; each halves what is left to change.
const ROUNDS: usize = 60;

/// Speeds that change by less than this have come to rest.
const REST: f64 = 1e-6;

/// With more others on a machine than these their number is taken to be its mean.
const MANY: usize = 64;

/// Something for each instance, by vertex and instance.
type Each = Vec<Vec<f64>>;

impl Placement {
    /// The steady state that is to be expected of a graph that is placed so, with the turns that its instances take. Compare
    /// [`Placement::steady`], which is the fluid's: quicker found, and right where no instance needs most of a core.
    pub fn expected(&self, graph: &FlowGraph, engine: Engine) -> Steady {
        let mut speeds: Each = self.on.iter().map(|on| vec![1.0; on.len()]).collect();
        let mut steps = 0;
        let mut steady = Steady::default();
        for _ in 0..ROUNDS {
            steady = at_speeds(graph, engine, &speeds);
            steps += steady.steps + self.on.iter().map(Vec::len).sum::<usize>() as u64;
            let asks = asks(graph, engine, &steady, &speeds);
            let mut change: f64 = 0.0;
            for (old, new) in speeds.iter_mut().flatten().zip(self.speeds(&asks).into_iter().flatten()) {
                change = change.max((*old - new).abs());
                *old = f64::midpoint(*old, new);
            }
            if change < REST {
                break;
            }
        }
        Steady { steps, ..steady }
    }

    /// The speed at which each instance works, if all ask for their cores for such shares of the time.
    fn speeds(&self, asks: &Each) -> Each {
        let mut hosted: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.machines.len()];
        for (vertex, on) in self.on.iter().enumerate() {
            on.iter().enumerate().for_each(|(instance, machine)| hosted[*machine].push((vertex, instance)));
        }
        let mut speeds: Each = asks.iter().map(|own| vec![1.0; own.len()]).collect();
        for (machine, own) in self.machines.iter().zip(hosted).filter(|(m, own)| m.cores < own.len() as f64) {
            let shares: Vec<f64> = own.iter().map(|(vertex, instance)| asks[*vertex][*instance]).collect();
            // Those of a vertex ask alike, and stand next to each other.
            let mut last: Option<(usize, f64, f64)> = None;
            for (number, (vertex, instance)) in own.iter().enumerate() {
                let alike =
                    last.filter(|(of, share, _)| of == vertex && share.total_cmp(&shares[number]).is_eq());
                let found = alike.map_or_else(|| speed(machine.cores, &shares, number), |(.., found)| found);
                last = Some((*vertex, shares[number], found));
                speeds[*vertex][*instance] = found;
            }
        }
        speeds
    }
}

/// The steady state where each instance works at such a speed, 1 for one that has a core whenever it asks.
fn at_speeds(graph: &FlowGraph, engine: Engine, speeds: &Each) -> Steady {
    let sums = speeds.iter().zip(graph.vertices());
    let capacities: Vec<f64> = sums.map(|(own, vertex)| all(own, vertex.capacity)).collect();
    match engine {
        Engine::BackPressured => back_pressured(graph, &capacities, &[]),
        Engine::Queueing => {
            let takes = |vertex: usize, rows: f64| {
                let (own, capacity) = (&speeds[vertex], graph.vertices()[vertex].capacity);
                let each = rows / own.len().max(1) as f64;
                own.iter().map(|speed| each.min(speed * capacity)).sum()
            };
            queueing(graph, takes, &capacities)
        }
    }
}

/// The share of the time for which each instance asks for a core.
fn asks(graph: &FlowGraph, engine: Engine, steady: &Steady, speeds: &Each) -> Each {
    let vertices = graph.vertices().iter().zip(&steady.rates).zip(speeds);
    let vertices = vertices.map(|((vertex, rates), own)| {
        let most: Vec<f64> = own.iter().map(|speed| speed * vertex.capacity).collect();
        let level = match engine {
            Engine::BackPressured => level(rates.processed, &most),
            Engine::Queueing => rates.input / most.len().max(1) as f64,
        };
        let ask = |most: &f64| if *most > 0.0 && level > 0.0 { (level / most).min(1.0) } else { 0.0 };
        most.iter().map(ask).collect()
    });
    vertices.collect()
}

/// What instances of these speeds take together; what nothing is known of takes all, and none take nothing.
fn all(speeds: &[f64], capacity: f64) -> f64 {
    if speeds.is_empty() { 0.0 } else { speeds.iter().sum::<f64>() * capacity }
}

/// The rows a second that each instance gets, if so many are dealt over those that take at most so many: all the same, but those that are
/// full get no more.
fn level(rows: f64, most: &[f64]) -> f64 {
    let mut sorted = most.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut left = rows;
    for (full, most) in sorted.iter().enumerate() {
        let each = left / (sorted.len() - full) as f64;
        if each <= *most {
            return each;
        }
        left -= most;
    }
    // All are full, but for rounding.
    f64::INFINITY
}

/// E[min(1, cores / (1 + others that ask))], others being all but one of these, each of which asks for such a share of the time.
fn speed(cores: f64, shares: &[f64], one: usize) -> f64 {
    let others = || shares.iter().enumerate().filter(|(number, _)| *number != one).map(|(_, share)| *share);
    if shares.len() > MANY {
        return (cores / (1.0 + others().sum::<f64>())).min(1.0);
    }
    // How likely each number of them is.
    let mut numbers = vec![1.0];
    for share in others() {
        numbers.push(0.0);
        for number in (0..numbers.len()).rev() {
            let one_less = if number > 0 { numbers[number - 1] } else { 0.0 };
            numbers[number] = numbers[number] * (1.0 - share) + one_less * share;
        }
    }
    let likely = numbers.iter().enumerate();
    likely.map(|(number, chance)| chance * (cores / (1.0 + number as f64)).min(1.0)).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scale::graph::{FlowEdge, FlowVertex};
    use crate::scale::machines::Machine;

    /// A chain of vertices that take so much alone, on machines with so many cores.
    fn chain(cores: &[f64], vertices: &[(f64, &[usize])]) -> (FlowGraph, Placement) {
        let made = vertices.iter().enumerate();
        let made =
            made.map(|(id, (capacity, on))| FlowVertex::new(id.to_string(), on.len() as u32, *capacity));
        let edges = (1..vertices.len()).map(|to| FlowEdge { from: to - 1, to, selectivity: 1.0 });
        let graph = FlowGraph::new(made.collect(), edges.collect()).unwrap();
        let machines = cores.iter().enumerate().map(|(id, cores)| Machine::new(id.to_string(), *cores));
        let on = vertices.iter().map(|(_, on)| on.to_vec()).collect();
        (graph, Placement { machines: machines.collect(), on })
    }

    #[test]
    fn one_that_needs_a_core_meets_others_that_ask_at_the_same_time() {
        // The first needs all of one of two cores; the others 0.71 and 0.295. Measured with agents: 0.89 of what it would get
        // through alone.
        let shares = [1.0, 0.71 / 0.866, 0.295 / 0.727];
        let found = speed(2.0, &shares, 0);
        assert!((found - 0.889).abs() < 2e-3, "{found}");
        // As many cores as ask at most: nobody waits.
        assert!((speed(3.0, &shares, 0) - 1.0).abs() < 1e-12);
        // All ask all the time: they share.
        assert!((speed(2.0, &[1.0; 5], 3) - 0.4).abs() < 1e-12);
        assert!((speed(2.0, &[1.0; 90], 3) - 2.0 / 90.0).abs() < 1e-12);
    }

    #[test]
    fn rows_pass_over_instances_that_are_full() {
        // The second vertex has an instance on a core of its own, and one that shares a core with two others.
        let (graph, placed) = chain(
            &[1.0, 1.0, 9.0],
            &[(1e5, &[2]), (100.0, &[0, 1]), (100.0, &[1, 2, 2, 2]), (100.0, &[1, 2, 2, 2])],
        );
        let even = placed.steady(&graph, Engine::BackPressured).throughput;
        let expected = placed.expected(&graph, Engine::BackPressured).throughput;
        assert!(even < 101.0 && (130.0..150.0).contains(&expected), "{even} {expected}");
        assert!((level(10.0, &[1.0, 9.0, 2.0]) - 7.0).abs() < 1e-12);
        assert!((level(3.0, &[1.0, 9.0, 2.0]) - 1.0).abs() < 1e-12);
        assert!(level(13.0, &[1.0, 9.0, 2.0]).is_infinite());
    }

    proptest! {
        #[test]
        fn it_is_the_fluid_where_cores_do_not_bind(
            vertices in prop::collection::vec((10.0f64..1000.0, prop::collection::vec(0usize..3, 1..4)), 1..6),
        ) {
            let vertices: Vec<(f64, &[usize])> = vertices.iter().map(|(c, on)| (*c, &on[..])).collect();
            let (graph, placed) = chain(&[20.0, 20.0, 20.0], &vertices);
            for engine in [Engine::BackPressured, Engine::Queueing] {
                let (fluid, found) = (placed.steady(&graph, engine), placed.expected(&graph, engine));
                prop_assert!((fluid.throughput - found.throughput).abs() <= 1e-9 * fluid.throughput);
            }
        }

        #[test]
        fn no_machine_does_more_than_it_has_cores(
            cores in 1usize..4,
            vertices in prop::collection::vec((10.0f64..1000.0, prop::collection::vec(0usize..3, 1..5)), 1..6),
        ) {
            let vertices: Vec<(f64, &[usize])> = vertices.iter().map(|(c, on)| (*c, &on[..])).collect();
            let (graph, placed) = chain(&[cores as f64; 3], &vertices);
            let found = placed.expected(&graph, Engine::BackPressured);
            let used: f64 = found.rates.iter().zip(graph.vertices()).map(|(r, v)| r.processed / v.capacity).sum();
            prop_assert!(used <= 3.0 * cores as f64 * (1.0 + 1e-3), "{used} of {}", 3 * cores);
            prop_assert!(found.throughput.is_finite() && found.throughput > 0.0);
        }
    }
}
