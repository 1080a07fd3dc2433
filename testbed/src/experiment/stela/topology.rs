//! The seven topologies: their job files, the machines, what is published of them, and the graph that planners see.

use std::collections::BTreeMap;

use tuplane_core::job::{FileFormat, Job, Op};
use tuplane_core::plan::{self, AgentSlot, Dag, Parallelism, VertexId};
use tuplane_core::scale::{FlowEdge, FlowGraph, FlowVertex, Machine, Placement};

use super::StelaError;

/// Workers that a machine has room for, Storm's default.
const SLOTS: u32 = 4;

/// The share of its rows that a filter keeps: all but those of one remainder of five.
const KEPT: f64 = 0.8;

/// A kind of machine of the publication's testbed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kind {
    /// Its name there.
    pub name: &'static str,
    /// Instances that can work at the same time.
    pub cores: u32,
}

const PC3000: Kind = Kind { name: "PC3000", cores: 2 };
const D710: Kind = Kind { name: "D710", cores: 4 };

/// How many machines there are before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machines {
    /// Before the operation.
    pub before: u32,
    /// After it.
    pub after: u32,
    /// The numbers are published, or follow from what is.
    pub known: bool,
}

/// How throughput afterwards compares with that of Storm's default, as published: it is higher by this share, from
/// the least to the most that is said.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Published {
    /// The least that is said.
    pub least: f64,
    /// The most.
    pub most: f64,
    /// Where it stands.
    pub source: &'static str,
}

/// One topology of the publication's experiments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Topology {
    /// In tables and files.
    pub key: &'static str,
    /// In titles.
    pub title: &'static str,
    /// Its job file in `testbed/experiments/stela`: name and text.
    pub file: (&'static str, &'static str),
    /// How many machines.
    pub machines: Machines,
    /// Of which kind.
    pub kind: Kind,
    /// What is published of its throughput; `None` where its figure was not recovered.
    pub published: Option<Published>,
}

macro_rules! job_file {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../experiments/stela/", $name)))
    };
}

const fn machines(before: u32, after: u32) -> Machines {
    Machines { before, after, known: true }
}

const fn slides(by: f64) -> Published {
    Published { least: by, most: by, source: "slides" }
}

/// All (elasticity.md, section 2).
pub static TOPOLOGIES: [Topology; 7] = [
    Topology {
        key: "star",
        title: "Star",
        file: job_file!("star.toml"),
        machines: machines(4, 5),
        kind: PC3000,
        published: Some(slides(0.65)),
    },
    Topology {
        key: "linear",
        title: "Linear",
        file: job_file!("linear.toml"),
        machines: machines(6, 7),
        kind: PC3000,
        published: Some(slides(0.45)),
    },
    Topology {
        key: "diamond",
        title: "Diamond",
        file: job_file!("diamond.toml"),
        machines: machines(6, 7),
        kind: PC3000,
        published: Some(slides(1.20)),
    },
    Topology {
        key: "page-load",
        title: "PageLoad",
        file: job_file!("page-load.toml"),
        machines: machines(7, 8),
        kind: PC3000,
        published: None,
    },
    Topology {
        key: "processing",
        title: "Processing",
        file: job_file!("processing.toml"),
        machines: machines(8, 9),
        kind: PC3000,
        published: None,
    },
    Topology {
        key: "network-monitoring",
        title: "network monitoring",
        file: job_file!("network-monitoring.toml"),
        machines: Machines { known: false, ..machines(8, 9) },
        kind: PC3000,
        published: Some(Published {
            least: 0.21,
            most: 0.21,
            source: "IC2E abstract: 21 % is the least gain of all; that it is this topology's is a guess from dates",
        }),
    },
    Topology {
        key: "page-load-scale-in",
        title: "PageLoad scale-in",
        file: job_file!("page-load-scale-in.toml"),
        machines: machines(8, 4),
        kind: D710,
        published: Some(Published {
            least: 0.40,
            most: 5.00,
            source: "slides; 2 to 5 times as much in the IC2E abstract",
        }),
    },
];

/// A topology, planned and placed on its machines as Storm's default does it.
#[derive(Debug)]
pub struct Placed {
    /// Which.
    pub topology: &'static Topology,
    /// The operators; spouts are sources that give what their instances take.
    pub graph: FlowGraph,
    /// Where their instances are.
    pub placement: Placement,
    /// For each sink all ways that lead there, each with the numbers of the filters on it.
    ways: BTreeMap<String, Vec<Vec<u32>>>,
}

impl Topology {
    /// Machines are added, not taken.
    pub fn is_scale_out(&self) -> bool {
        self.machines.after > self.machines.before
    }

    /// Its machines of these numbers, from 0.
    pub fn hosts(&self, numbers: std::ops::Range<u32>) -> impl Iterator<Item = Machine> {
        numbers.map(|number| self.host(&format!("m{}", number + 1)))
    }

    /// One of its machines.
    pub fn host(&self, name: &str) -> Machine {
        Machine::new(name, f64::from(self.kind.cores))
    }

    /// Plans its job and places it on the machines that there are before.
    ///
    /// # Errors
    /// If its job file cannot be planned or placed so.
    pub fn place(&'static self) -> Result<Placed, StelaError> {
        let fault = |why: String| StelaError::Topology { file: self.file.0, why };
        let job = Job::parse(self.file.1, FileFormat::Toml).map_err(|faults| fault(format!("{faults:?}")))?;
        let dag = plan::plan(&job).map_err(|error| fault(error.to_string()))?;
        let agents: Vec<AgentSlot> = (0u16..)
            .zip(self.hosts(0..self.machines.before))
            .map(|(index, machine)| AgentSlot { index, name: machine.name, slots: SLOTS })
            .collect();
        let instances = plan::place(&dag, &job, &agents).map_err(|error| fault(error.to_string()))?;
        let walk = Walk { job: &job, dag: &dag };
        let (operators, graph) = walk.graph().map_err(fault)?;
        let on = operators.iter().map(|operator| {
            let mut own: Vec<_> = instances.iter().filter(|instance| instance.vertex == *operator).collect();
            own.sort_by_key(|instance| instance.number);
            own.iter().map(|instance| usize::from(instance.agent)).collect()
        });
        let placement =
            Placement { machines: self.hosts(0..self.machines.before).collect(), on: on.collect() };
        Ok(Placed { topology: self, graph, placement, ways: walk.ways() })
    }
}

impl Placed {
    /// Instances of all operators together.
    pub fn executors(&self) -> u32 {
        self.placement.instances().iter().sum()
    }

    /// The sinks by the ids of their stages.
    pub fn sinks(&self) -> impl Iterator<Item = &str> {
        self.ways.keys().map(String::as_str)
    }

    /// How often the row of this number comes to a sink: once for each way that leads there and keeps it. 0 for a sink
    /// that there is not.
    pub fn copies(&self, sink: &str, number: u64) -> u32 {
        let passes = |way: &&Vec<u32>| way.iter().all(|filter| keeps(*filter, number));
        let ways = self.ways.get(sink).into_iter().flatten().filter(passes).count();
        u32::try_from(ways).unwrap_or(u32::MAX)
    }
}

/// Whether the filter of this number keeps a row: it drops one remainder of five of another digit than the others, so that
/// two of them keep 64 % together.
fn keeps(filter: u32, number: u64) -> bool {
    !(number / 5u64.saturating_pow(filter)).is_multiple_of(5)
}

/// The `where` of the filter of this number.
fn condition(filter: u32) -> String {
    match filter {
        0 => "id % 5 <> 0".to_owned(),
        _ => format!("(id / {}) % 5 <> 0", 5u64.saturating_pow(filter)),
    }
}

/// A planned job, walked from its source to its sinks.
struct Walk<'a> {
    job: &'a Job,
    dag: &'a Dag,
}

impl Walk<'_> {
    fn op(&self, vertex: VertexId) -> Option<&Op> {
        let id = self.dag.vertex(vertex).stages.first()?;
        self.job.stages.iter().find(|stage| stage.id == *id).map(|stage| &stage.op)
    }

    fn receivers(&self, vertex: VertexId) -> Vec<VertexId> {
        self.dag.outputs(vertex).map(|(_, edge)| edge.to).collect()
    }

    /// What one row costs an operator, in milliseconds; `None` for what is no operator.
    fn cost(&self, vertex: VertexId) -> Option<f64> {
        match self.op(vertex)? {
            Op::Work(work) => work.ms.first().copied(),
            _ => None,
        }
    }

    fn share(&self, vertex: VertexId) -> f64 {
        if matches!(self.op(vertex), Some(Op::Filter { .. })) { KEPT } else { 1.0 }
    }

    /// The operators, and the graph of them: what lies between two is an edge.
    fn graph(&self) -> Result<(Vec<VertexId>, FlowGraph), String> {
        let all = (0u32..).map(VertexId).take(self.dag.vertices.len());
        let operators: Vec<VertexId> = all.filter(|vertex| self.cost(*vertex).is_some()).collect();
        let mut edges = Vec::new();
        for (from, operator) in operators.iter().enumerate() {
            for (receiver, selectivity) in self.reached(*operator, 1.0) {
                let to = operators.iter().position(|operator| *operator == receiver);
                edges.extend(to.map(|to| FlowEdge { from, to, selectivity }));
            }
        }
        let vertices = operators.iter().enumerate().map(|(index, operator)| {
            let vertex = self.dag.vertex(*operator);
            let Parallelism::Total(instances) = vertex.parallelism else {
                return Err(format!("`{}` does not say how many `instances` it has", vertex.label()));
            };
            let capacity = 1000.0 / self.cost(*operator).unwrap_or(f64::NAN);
            // What it emits, counted once however many receivers there are.
            let emits = edges.iter().find(|edge| edge.from == index).map_or(1.0, |edge| edge.selectivity);
            Ok(FlowVertex { selectivity: emits, ..FlowVertex::new(vertex.label(), instances, capacity) })
        });
        let vertices = vertices.collect::<Result<_, String>>()?;
        let graph = FlowGraph::new(vertices, edges);
        let graph =
            graph.map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        Ok((operators, graph))
    }

    /// The next operators on all ways, each with the share of rows that goes so far.
    fn reached(&self, from: VertexId, share: f64) -> Vec<(VertexId, f64)> {
        let next = self.receivers(from).into_iter().flat_map(|to| match self.cost(to) {
            Some(_) => vec![(to, share)],
            None => self.reached(to, share * self.share(to)),
        });
        next.collect()
    }

    /// All ways to each sink, with the filters on them.
    fn ways(&self) -> BTreeMap<String, Vec<Vec<u32>>> {
        let mut ways: BTreeMap<String, Vec<Vec<u32>>> = BTreeMap::new();
        let all = (0u32..).map(VertexId).take(self.dag.vertices.len());
        for source in all.filter(|vertex| self.dag.inputs(*vertex).next().is_none()) {
            self.follow(source, &[], &mut ways);
        }
        ways
    }

    fn follow(&self, vertex: VertexId, passed: &[u32], ways: &mut BTreeMap<String, Vec<Vec<u32>>>) {
        let mut passed = passed.to_vec();
        passed.extend(self.filter(vertex));
        let receivers = self.receivers(vertex);
        if receivers.is_empty() {
            ways.entry(self.dag.vertex(vertex).label()).or_default().push(passed.clone());
        }
        for to in receivers {
            self.follow(to, &passed, ways);
        }
    }

    /// The number of a filter, which its condition says.
    fn filter(&self, vertex: VertexId) -> Option<u32> {
        let Some(Op::Filter { predicate: Some(predicate) }) = self.op(vertex) else { return None };
        (0..16).find(|filter| condition(*filter) == predicate.value)
    }
}

#[cfg(test)]
mod tests {
    use tuplane_core::scale::planner::{slots_by_code, slots_by_slide};

    use super::*;

    fn placed(key: &str) -> Placed {
        TOPOLOGIES.iter().find(|topology| topology.key == key).unwrap().place().unwrap()
    }

    #[test]
    fn the_job_files_have_the_published_operators_and_counts() {
        // elasticity.md, section 2: operators, instances in all, and N as published and as the code has it.
        let published = [
            ("star", 5, 12, Some((3, 2))),
            ("linear", 4, 24, Some((4, 3))),
            ("diamond", 6, 24, Some((4, 3))),
            ("page-load", 7, 28, Some((4, 3))),
            ("processing", 8, 32, Some((4, 3))),
            ("network-monitoring", 10, 40, None),
            ("page-load-scale-in", 7, 105, None),
        ];
        assert_eq!(published.len(), TOPOLOGIES.len());
        for (key, operators, executors, slots) in published {
            let placed = placed(key);
            assert_eq!((placed.graph.len(), placed.executors()), (operators, executors), "{key}");
            let Machines { before, after, .. } = placed.topology.machines;
            if let Some(slots) = slots {
                let new = after - before;
                let ours = (slots_by_slide(new, executors, before), slots_by_code(new, executors, before));
                assert_eq!(ours, slots, "{key}");
            }
            // Dealt in turn: no machine has two more than another.
            let hosted = placed.placement.hosted();
            let (least, most) = (hosted.iter().min().unwrap(), hosted.iter().max().unwrap());
            assert!(hosted.len() == before as usize && most - least <= 1, "{key}: {hosted:?}");
        }
    }

    #[test]
    fn what_lies_between_two_operators_is_an_edge() {
        let edges = |key: &str| -> Vec<String> {
            let placed = placed(key);
            let graph = &placed.graph;
            let id = |vertex: usize| graph.vertices()[vertex].id.as_str();
            let edges = graph.edges().iter();
            let mut edges: Vec<String> = edges
                .map(|edge| format!("{} {} {:.2}", id(edge.from), id(edge.to), edge.selectivity))
                .collect();
            edges.sort();
            edges
        };
        assert_eq!(
            edges("star"),
            ["centre sink1 1.00", "centre sink2 1.00", "spout1 centre 1.00", "spout2 centre 1.00"]
        );
        assert_eq!(edges("diamond").len(), 8);
        assert!(edges("page-load").contains(&"filter2 aggregate 0.80".to_owned()));
        assert_eq!(
            edges("network-monitoring"),
            [
                "aggregate filter 1.00",
                "filter functor 0.80",
                "filter_failure parse_failures 0.80",
                "filter_success parse_success 0.80",
                "functor join 1.00",
                "parse filter_failure 1.00",
                "parse filter_success 1.00",
                "parse_failures aggregate 1.00",
                "parse_success join 1.00",
                "spout parse 1.00"
            ]
        );
    }

    #[test]
    fn a_row_comes_once_by_each_way_that_keeps_it() {
        let star = placed("star");
        assert_eq!(star.sinks().collect::<Vec<_>>(), ["out1", "out2"]);
        // Both spouts get all that the feed gives.
        assert_eq!((star.copies("out1", 0), star.copies("out2", 7), star.copies("none", 7)), (2, 2, 0));
        assert_eq!(placed("diamond").copies("out", 5), 4);
        let page = placed("page-load");
        let kept = (0..10_000).filter(|number| page.copies("out", *number) == 1).count();
        assert_eq!(kept, 6400);
        // 64 % by the long branch and 80 % by the short one.
        let network = placed("network-monitoring");
        assert_eq!((0..1250).map(|number| network.copies("out", number)).sum::<u32>(), 800 + 1000);
    }

    #[test]
    fn a_filters_condition_says_its_number() {
        for topology in &TOPOLOGIES {
            let filters = topology.file.1.matches("op = \"filter\"").count();
            let job = Job::parse(topology.file.1, FileFormat::Toml).unwrap();
            let dag = plan::plan(&job).unwrap();
            let walk = Walk { job: &job, dag: &dag };
            let all = (0u32..).map(VertexId).take(dag.vertices.len());
            assert_eq!(all.filter_map(|vertex| walk.filter(vertex)).count(), filters, "{}", topology.key);
        }
        assert_eq!(condition(2), "(id / 25) % 5 <> 0");
        assert!(!keeps(0, 10) && keeps(0, 11) && !keeps(1, 103) && keeps(1, 106));
    }
}
