//! Instances on machines whose cores they share: what a placement lets through.
//!
//! Rows are dealt evenly over the instances of a vertex. An instance asks for the share of a core that its rows need,
//! and at most one; a machine deals its cores fairly: who asks for little gets it, the others share the rest.

mod turns;

use super::fluid::{EQUAL, Engine, Shared, Steady, back_pressured, demand, queueing};
use super::graph::FlowGraph;

/// Rounds after which the shares of a queueing engine are taken as they are; each halves what is left to change.
const ROUNDS: usize = 60;

/// Which instances may come to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Takes {
    /// New ones, and those that move.
    #[default]
    All,
    /// Those that move. New ones have other machines to go to, unless the plan deals anew what there is.
    Moved,
    /// None: it is being drained, for one.
    Nothing,
}

/// One machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// How many instances can work at the same time.
    pub cores: f64,
    /// Why it cannot be given back, if so: it is a source's only host, for one.
    pub kept: Option<String>,
    /// Which instances may come to it.
    pub takes: Takes,
}

impl Machine {
    /// A machine that can be given back, and takes all instances.
    pub fn new(name: impl Into<String>, cores: f64) -> Self {
        Self { name: name.into(), cores, kept: None, takes: Takes::All }
    }
}

/// Which instance is where.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The machines.
    pub machines: Vec<Machine>,
    /// For each vertex the machine of each of its instances, by index.
    pub on: Vec<Vec<usize>>,
}

impl Placement {
    /// How many instances each vertex has.
    pub fn instances(&self) -> Vec<u32> {
        self.on.iter().map(|machines| u32::try_from(machines.len()).unwrap_or(u32::MAX)).collect()
    }

    /// How many instances each machine hosts.
    pub fn hosted(&self) -> Vec<usize> {
        let mut hosted = vec![0; self.machines.len()];
        for machine in self.on.iter().flatten() {
            hosted[*machine] += 1;
        }
        hosted
    }

    /// The instances of a machine: vertex and the instance's number in it.
    pub fn of(&self, machine: usize) -> Vec<(usize, usize)> {
        let places = self.on.iter().enumerate();
        let places = places.flat_map(|(v, on)| on.iter().enumerate().map(move |(nth, at)| (v, nth, *at)));
        places.filter(|(_, _, at)| *at == machine).map(|(vertex, nth, _)| (vertex, nth)).collect()
    }

    /// Where one more instance of a vertex goes if nobody chooses: of the machines that take new ones that with the fewest
    /// instances of the vertex, then that with the fewest in all for its cores; the first of equals.
    pub fn emptiest(&self, vertex: usize) -> Option<usize> {
        let hosted = self.hosted();
        let own = |machine: usize| self.on[vertex].iter().filter(|at| **at == machine).count();
        let key = |machine: usize| (own(machine), hosted[machine] as f64 / self.machines[machine].cores);
        let open = (0..self.machines.len()).filter(|machine| self.machines[*machine].takes == Takes::All);
        let keys = open.map(|machine| (key(machine), machine));
        keys.min_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))).map(|(_, machine)| machine)
    }

    /// Cores that the instances of a machine ask for, if everything that sources are offered went through.
    pub fn asked(&self, graph: &FlowGraph) -> Vec<f64> {
        self.loads(&self.wishes(graph))
    }

    /// The share of a core that one instance of each vertex asks for, if everything that sources are offered went through. Where
    /// instances are plays no part.
    pub(super) fn wishes(&self, graph: &FlowGraph) -> Vec<f64> {
        let capacities = graph.capacities(&self.instances());
        demand(graph, &capacities).iter().zip(&capacities).map(|(rows, most)| wish(*rows, *most)).collect()
    }

    /// What each machine's instances ask for together, where each of a vertex asks for so much.
    pub(super) fn loads(&self, wishes: &[f64]) -> Vec<f64> {
        let mut loads = vec![0.0; self.machines.len()];
        for (machines, wish) in self.on.iter().zip(wishes) {
            for machine in machines {
                loads[*machine] += wish;
            }
        }
        loads
    }

    /// The steady state of a graph that is placed so. Exact for a back-pressured engine; for a queueing one the shares of
    /// cores and the rates that follow from them are brought together step by step.
    pub fn steady(&self, graph: &FlowGraph, engine: Engine) -> Steady {
        let capacities = graph.capacities(&self.instances());
        match engine {
            Engine::BackPressured => back_pressured(graph, &capacities, &self.bounds(&capacities)),
            Engine::Queueing => self.queueing(graph, &capacities),
        }
    }

    /// For each machine the vertices that have instances there, and how many.
    fn by_machine(&self) -> Vec<Vec<(usize, u32)>> {
        let mut hosts: Vec<Vec<(usize, u32)>> = vec![Vec::new(); self.machines.len()];
        for (vertex, machines) in self.on.iter().enumerate() {
            for machine in machines {
                match hosts[*machine].last_mut() {
                    Some((last, count)) if *last == vertex => *count += 1,
                    _ => hosts[*machine].push((vertex, 1)),
                }
            }
        }
        hosts
    }

    /// The cores of each machine as a bound on the rates of the vertices that have instances there.
    fn bounds(&self, capacities: &[f64]) -> Vec<Shared> {
        let part = |(vertex, count): (usize, u32)| (vertex, f64::from(count) / capacities[vertex]);
        let machines = self.machines.iter().zip(self.by_machine());
        machines
            .map(|(machine, hosted)| Shared {
                limit: machine.cores,
                parts: hosted.into_iter().map(part).collect(),
            })
            .collect()
    }

    fn queueing(&self, graph: &FlowGraph, capacities: &[f64]) -> Steady {
        let mut input = demand(graph, capacities);
        let mut takes = capacities.to_vec();
        let mut hosts = self.by_machine();
        let mut steps = 0;
        let mut steady = Steady::default();
        for round in 0..ROUNDS {
            let wishes: Vec<f64> =
                input.iter().zip(capacities).map(|(rows, most)| wish(*rows, *most)).collect();
            let shares = self.shares(&mut hosts, &wishes);
            for (vertex, share) in shares.into_iter().enumerate() {
                let instances = self.on[vertex].len() as f64;
                let now = if instances > 0.0 { share / instances * capacities[vertex] } else { 0.0 };
                // A share that is not limited by a machine would be infinite times 0 where nothing is known.
                takes[vertex] = if now.is_nan() { f64::INFINITY } else { now };
            }
            steady = queueing(graph, |vertex, rows| rows.min(takes[vertex]), capacities);
            steps += steady.steps;
            let mut moved = false;
            for (old, new) in input.iter_mut().zip(&steady.rates) {
                moved |= (*old - new.input).abs() > EQUAL * old.abs();
                // Half way: rows that a sender gains are cores that its receiver loses.
                *old = if round == 0 { new.input } else { f64::midpoint(*old, new.input) };
            }
            if !moved {
                break;
            }
        }
        Steady { steps, ..steady }
    }

    /// Cores that each vertex gets in all, when each of its instances wishes for so much of a core. Puts what each machine
    /// hosts in order of that.
    fn shares(&self, hosts: &mut [Vec<(usize, u32)>], wishes: &[f64]) -> Vec<f64> {
        let mut shares = vec![0.0; wishes.len()];
        for (machine, hosted) in self.machines.iter().zip(hosts) {
            hosted.sort_by(|(a, _), (b, _)| wishes[*a].total_cmp(&wishes[*b]));
            let mut cores = machine.cores;
            let mut waiting: u32 = hosted.iter().map(|(_, count)| count).sum();
            for (vertex, count) in hosted {
                let each = wishes[*vertex].min(cores / f64::from(waiting));
                shares[*vertex] += each * f64::from(*count);
                cores -= each * f64::from(*count);
                waiting -= *count;
            }
        }
        shares
    }
}

/// The share of a core that one instance asks for, when the vertex gets so many rows and takes at most so many.
fn wish(rows: f64, most: f64) -> f64 {
    if rows > 0.0 { (rows / most).min(1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::graph::{FlowEdge, FlowVertex};

    /// A chain; the first is offered so much.
    fn chain(offered: f64, vertices: &[(u32, f64)]) -> FlowGraph {
        let made = vertices.iter().enumerate().map(|(index, (instances, capacity))| FlowVertex {
            offered: (index == 0).then_some(offered),
            ..FlowVertex::new(index.to_string(), *instances, *capacity)
        });
        let edges = (1..vertices.len()).map(|to| FlowEdge { from: to - 1, to, selectivity: 1.0 });
        FlowGraph::new(made.collect(), edges.collect()).unwrap()
    }

    fn placed(cores: &[f64], on: &[&[usize]]) -> Placement {
        let machines =
            cores.iter().enumerate().map(|(index, cores)| Machine::new(format!("m{index}"), *cores));
        Placement { machines: machines.collect(), on: on.iter().map(|at| at.to_vec()).collect() }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6 * b
    }

    #[test]
    fn with_a_core_for_each_instance_a_placement_changes_nothing() {
        let graph = chain(5000.0, &[(2, 2000.0), (3, 1000.0), (1, 4000.0)]);
        let placed = placed(&[3.0, 3.0], &[&[0, 1], &[0, 0, 1], &[1]]);
        for engine in [Engine::Queueing, Engine::BackPressured] {
            let free = super::super::fluid::steady(&graph, &graph.capacities(&graph.instances()), engine);
            let shared = placed.steady(&graph, engine);
            assert!(close(shared.throughput, free.throughput), "{engine}: {}", shared.throughput);
        }
    }

    #[test]
    fn two_on_one_core_get_what_both_can_go_through_with() {
        // Each row costs 1/1000 and 1/250 of a core: 200 rows a second fill it.
        let graph = chain(600.0, &[(1, 1000.0), (1, 250.0)]);
        let placed = placed(&[1.0], &[&[0], &[0]]);
        let held = placed.steady(&graph, Engine::BackPressured);
        assert!(close(held.throughput, 200.0), "{}", held.throughput);
        assert_eq!(held.tight[0].shared, [0]);
        // Without back-pressure both want more than half of it, and get half.
        let queued = placed.steady(&graph, Engine::Queueing);
        assert!(close(queued.throughput, 125.0) && close(queued.rates[0].processed, 500.0), "{queued:?}");
    }

    #[test]
    fn who_asks_for_little_gets_it() {
        let graph = chain(100.0, &[(1, 1000.0), (1, 1000.0), (1, 120.0)]);
        let placed = placed(&[1.0], &[&[0], &[0], &[0]]);
        // 0.1 + 0.1 + 0.8 of a core; the last one asks for 0.833.
        let queued = placed.steady(&graph, Engine::Queueing);
        assert!(close(queued.throughput, 96.0), "{}", queued.throughput);
    }

    #[test]
    fn a_machine_says_what_it_hosts_and_what_that_asks_for() {
        let graph = chain(500.0, &[(2, 500.0), (1, 1000.0)]);
        let placed = placed(&[1.0, 1.0], &[&[0, 1], &[1]]);
        assert_eq!(placed.hosted(), [1, 2]);
        assert_eq!(placed.of(1), [(0, 1), (1, 0)]);
        assert_eq!(placed.asked(&graph), [0.5, 1.0]);
    }
}
