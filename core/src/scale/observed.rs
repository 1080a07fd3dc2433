//! A running job as scaling sees it: its graph with measured capacities, who is congested, what each vertex carries.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::congestion::Congestion;
use super::etp::{Reading, SinkRate, etp};
use super::fluid::{self, EQUAL, Engine, Steady, demand, steady};
use super::graph::{FlowEdge, FlowGraph, FlowVertex, Rates, total};
use super::limit::{self, HELD, Limit, Load, piled_up};
use super::machines::Placement;
use super::planner::MOST;
use super::rates::{Figure, JobRates, Kind, Offer, VertexRates};
use crate::job::Overflow;
use crate::plan::{Dag, Routing, Vertex, VertexId};

/// A running job's graph.
#[derive(Debug, Clone)]
pub struct Observed {
    /// Vertices by the plan's index, with what one of their instances was measured to take. A source of which it is only
    /// known that it is held up offers more than any plan could take.
    pub graph: FlowGraph,
    /// The same, but that such a source offers a hair more than is taken of it: what it offers at least.
    pub least: FlowGraph,
    /// What each vertex does, or why that is not known.
    pub rates: Result<Vec<Rates>, String>,
    /// What had to be assumed, in sentences.
    pub assumed: Vec<String>,
}

/// What the engine of a job does with rows that a vertex cannot take.
impl From<Overflow> for Engine {
    fn from(overflow: Overflow) -> Self {
        match overflow {
            Overflow::Grow => Self::Queueing,
            Overflow::Block => Self::BackPressured,
        }
    }
}

/// What a job is and does.
#[derive(Debug, Clone, Copy)]
pub struct Running<'a> {
    /// Its plan.
    pub dag: &'a Dag,
    /// How its vertices pass their time.
    pub kinds: &'a [Kind],
    /// Its rates.
    pub rates: &'a JobRates,
    /// What its engine does with rows that a vertex cannot take.
    pub engine: Engine,
    /// How a vertex is found to be congested.
    pub congestion: Congestion,
    /// Which of its vertices can have no more instances than they have, and why.
    pub fixed: &'a BTreeMap<VertexId, String>,
    /// Its key partitions: a vertex to which rows come by key can have so many instances.
    pub partitions: u16,
    /// Capacities are those of instances that do not wait for a core: where they are on machines whose cores are counted
    /// apart.
    pub alone: bool,
}

/// A running job whose instances are on machines that are known.
#[derive(Debug, Clone, Copy)]
pub struct OnMachines<'a> {
    /// Its graph as plans for it are made on it: capacities of instances that have a core whenever they ask, corrected by what was
    /// measured.
    pub graph: &'a FlowGraph,
    /// Where they are.
    pub placement: &'a Placement,
    /// Rows a second at its sinks by the model, before capacities were corrected.
    pub modelled: f64,
}

/// A job's congestion, what its vertices carry, and what more of them would bring.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobEtp {
    /// By the plan's index.
    pub vertices: Vec<VertexEtp>,
    /// Rows a second that the sinks take, as measured.
    pub throughput: Figure,
    /// The same as the model has it for the measured capacities.
    pub modelled: Figure,
    /// What limits the job.
    pub limit: Option<Limit>,
    /// What had to be assumed, in sentences.
    pub assumed: Vec<String>,
}

/// One vertex.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VertexEtp {
    /// It cannot take what reaches it, or would.
    pub congested: Result<bool, String>,
    /// Rows a second that would reach it if nobody were held back.
    pub demand: Figure,
    /// Its share of the job's output, by paths.
    pub path: Figure,
    /// The same by the sinks that it reaches.
    pub sink_set: Figure,
    /// The same by what flows through it.
    pub flow_share: Figure,
    /// Rows a second that the sinks would take more with one more instance of it.
    pub gain: Figure,
}

impl Running<'_> {
    /// Its graph. A vertex whose capacity is not known limits nothing; an edge of which it is not known what comes over
    /// it carries a row for each row.
    ///
    /// # Errors
    /// In a sentence, if nothing is known of the job yet.
    pub fn observe(&self) -> Result<Observed, String> {
        let mut assumed = Vec::new();
        let ids = names(self.dag);
        let vertices = self.rates.vertices.iter().zip(&ids).enumerate().map(|(index, (rates, id))| {
            let capacity = if self.alone { &rates.capacity_alone } else { &rates.capacity };
            let capacity = capacity.clone().unwrap_or_else(|why| {
                assumed.push(format!("{id} limits nothing: what it can do is not known ({why})"));
                f64::INFINITY
            });
            FlowVertex {
                selectivity: if self.is_sink(index) { 1.0 } else { rates.selectivity.clone().unwrap_or(1.0) },
                offered: self.offered(index, rates, &mut assumed),
                max_instances: self.most(index),
                ..FlowVertex::new(id, rates.instances, capacity)
            }
        });
        let mut vertices: Vec<FlowVertex> = vertices.collect();
        let edges = self.dag.edges.iter().zip(&self.rates.edges).enumerate().map(|(index, (edge, rates))| {
            let selectivity = rates.selectivity.clone().unwrap_or_else(|why| {
                let edge = self.dag.edge_name(crate::plan::EdgeId(index as u32));
                assumed
                    .push(format!("{edge} carries a row for each row: what it carries is not known ({why})"));
                1.0
            });
            FlowEdge { from: edge.from.0 as usize, to: edge.to.0 as usize, selectivity }
        });
        let edges: Vec<FlowEdge> = edges.collect();
        let open = self.open(&mut vertices, &mut assumed);
        let graph = FlowGraph::new(vertices, edges)
            .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        let (graph, least) = held_up(graph, &open, self.engine);
        Ok(Observed { graph, least, rates: self.measured(&ids), assumed })
    }

    /// Gives a rate to sources of which neither what they are offered nor what they can give is known. Those that are held
    /// up are named: they could give more than they do.
    fn open(&self, vertices: &mut [FlowVertex], assumed: &mut Vec<String>) -> Vec<usize> {
        let mut held = Vec::new();
        for (index, (vertex, rates)) in vertices.iter_mut().zip(&self.rates.vertices).enumerate() {
            let is_source = self.dag.inputs(VertexId(index as u32)).next().is_none();
            if !is_source || vertex.offered.is_some() || vertex.capacity.is_finite() {
                continue;
            }
            let given = rates.processed.clone().unwrap_or(0.0);
            vertex.offered = Some(given);
            let blocked = rates.blocked.clone().unwrap_or(0.0);
            if blocked > HELD {
                held.push(index);
                assumed.push(format!(
                    "{} offers more than is taken of it: it is held up {:.0} % of the time",
                    vertex.id,
                    blocked * 100.0
                ));
            } else {
                assumed.push(format!("{} offers what it gives, {given:.0} rows/s", vertex.id));
            }
        }
        held
    }

    /// What the vertices do, if that is known of all.
    fn measured(&self, ids: &[String]) -> Result<Vec<Rates>, String> {
        let of = |(index, (rates, id)): (usize, (&VertexRates, &String))| {
            let named = |figure: &Figure| figure.clone().map_err(|why| format!("{id}: {why}"));
            if rates.instances == 0 {
                return Ok(Rates::default());
            }
            let processed = named(&rates.processed)?;
            let emitted = if self.is_sink(index) { processed } else { named(&rates.emitted)? };
            // A source that is as fast as it can be is offered what it gives.
            let input = if rates.offered.is_some() {
                rates.input.clone().unwrap_or(processed)
            } else {
                named(&rates.input)?
            };
            Ok(Rates { input, processed, emitted })
        };
        self.rates.vertices.iter().zip(ids).enumerate().map(of).collect()
    }

    /// What it takes it gives away, to nobody here: it counts as emitted, as of the sinks that Stela's authors measured.
    fn is_sink(&self, index: usize) -> bool {
        self.dag.outputs(VertexId(index as u32)).next().is_none()
    }

    fn offered(&self, index: usize, rates: &VertexRates, assumed: &mut Vec<String>) -> Option<f64> {
        if rates.instances == 0 && self.dag.inputs(VertexId(index as u32)).next().is_none() {
            return Some(0.0);
        }
        match self.kinds.get(index) {
            Some(Kind::Source(Offer::Paced(rate))) => match rate {
                Ok(rate) => Some(*rate),
                Err(why) => {
                    assumed.push(format!(
                        "{} offers what it gives: its rate is not known ({why})",
                        name(self.dag, index)
                    ));
                    rates.processed.clone().ok()
                }
            },
            _ => None,
        }
    }

    /// Why more instances of a vertex cannot be, or would not help.
    pub fn no_more(&self, index: usize) -> Option<String> {
        let vertex = VertexId(index as u32);
        let whole = |routing: &Routing| matches!(routing, Routing::AllToOne | Routing::Broadcast);
        let mut inputs = self.dag.inputs(vertex).map(|(_, edge)| &edge.routing).peekable();
        if inputs.peek().is_some() && inputs.all(whole) {
            return Some("every row goes to one instance, or to all: more of them share nothing".to_owned());
        }
        self.fixed.get(&vertex).cloned().or_else(|| {
            let most = self.by_key(index)?;
            (self.rates.vertices[index].instances >= most).then(|| keys_in(most))
        })
    }

    /// How many instances a vertex can have, where that is known.
    fn most(&self, index: usize) -> Option<u32> {
        self.no_more(index).map(|_| self.rates.vertices[index].instances).or_else(|| self.by_key(index))
    }

    /// How many instances a vertex can have to which rows come by key.
    fn by_key(&self, index: usize) -> Option<u32> {
        self.dag.is_partitioned(VertexId(index as u32)).then_some(u32::from(self.partitions))
    }

    /// Congestion, ETP in its three readings, and what one more instance of each vertex would bring. Where machines are given
    /// that is what is to be expected of one on the machine that it would go to, else what the fluid says.
    pub fn etp(&self, machines: Option<&OnMachines<'_>>) -> JobEtp {
        let throughput = self.rates.throughput(self.dag);
        let loads: Vec<Option<Load>> = self.rates.vertices.iter().map(load).collect();
        let waits: Vec<Option<f64>> = self.rates.vertices.iter().map(waits).collect();
        let limit = match self.engine {
            Engine::BackPressured => None,
            // Who is blocked is a source that gives what is taken: it is held up by the first stage, which need not be
            // what limits the job.
            Engine::Queueing => piled_up(self.dag, &loads, &waits),
        };
        let limit = limit.or_else(|| limit::limit(self.dag, &loads, &waits));
        let seen = match self.nothing_known().map_or_else(|| self.observe(), Err) {
            Ok(seen) => seen,
            Err(why) => {
                let vertices = self.rates.vertices.iter().map(|_| VertexEtp::unknown(&why)).collect();
                return JobEtp { vertices, throughput, modelled: Err(why), limit, assumed: Vec::new() };
            }
        };
        let instances = seen.graph.instances();
        let capacities = seen.graph.capacities(&instances);
        let now = steady(&seen.graph, &capacities, self.engine);
        let demand = demand(&seen.graph, &capacities);
        // What a source offers that is held up is not known, and who only would be full if it were more is not.
        let known = demand.iter().zip(fluid::demand(&seen.least, &capacities)).map(|(most, least)| {
            if most.is_finite() && least >= most * (1.0 - EQUAL) {
                Ok(*most)
            } else {
                Err(BEHIND_UNKNOWN.to_owned())
            }
        });
        let known: Vec<Figure> = known.collect();
        let congested = self.congested(&seen, &instances);
        let reading = |reading: Reading| -> Result<Vec<f64>, String> {
            let (rates, congested) = (seen.rates.as_ref()?, congested.as_ref()?);
            etp(&seen.graph, rates, congested, reading, SinkRate::Processed).map_err(|none| none.to_string())
        };
        let [path, sink_set, flow_share] = [Reading::Path, Reading::SinkSet, Reading::FlowShare].map(reading);
        let expected = machines.map(|at| at.placement.expected(at.graph, self.engine).throughput);
        let of = |all: &Result<Vec<f64>, String>, vertex: usize| all.clone().map(|all| plain(all[vertex]));
        let vertex = |vertex: usize| VertexEtp {
            congested: congested.clone().map(|all| all[vertex]),
            demand: known[vertex].clone(),
            path: of(&path, vertex),
            sink_set: of(&sink_set, vertex),
            flow_share: of(&flow_share, vertex),
            gain: match (machines, expected) {
                (Some(machines), Some(now)) => self.gain_on(machines, vertex, now),
                _ => self.gain(&seen.graph, &instances, vertex, &now),
            },
        };
        let vertices = (0..seen.graph.len()).map(vertex).collect();
        let modelled = machines.map_or(now.throughput, |machines| machines.modelled);
        let modelled = if modelled.is_finite() { Ok(modelled) } else { Err(BEHIND_UNKNOWN.to_owned()) };
        JobEtp { vertices, throughput, modelled, limit, assumed: seen.assumed }
    }

    /// Why nothing can be said, while no vertex's capacity is known.
    pub fn nothing_known(&self) -> Option<String> {
        let mut whys = self.rates.vertices.iter().map(|rates| rates.capacity.clone().err());
        let first = whys.next()??;
        whys.all(|why| why.is_some()).then_some(first)
    }

    fn congested(&self, seen: &Observed, instances: &[u32]) -> Result<Vec<bool>, String> {
        match (&seen.rates, self.congestion) {
            (Ok(rates), test) => Ok(test.find(&seen.least, instances, rates)),
            (Err(_), Congestion::Demand) => Ok(self.congestion.find(&seen.least, instances, &[])),
            (Err(why), Congestion::Ratio(_)) => Err(why.clone()),
        }
    }

    /// Why it cannot be said what more of a vertex would bring.
    fn no_gain(&self, vertex: usize) -> Option<String> {
        self.rates.vertices[vertex].capacity.as_ref().err().cloned().or_else(|| self.no_more(vertex))
    }

    /// What one more instance of a vertex would bring on the machine that it would go to; `now` is what comes of the job without it.
    fn gain_on(&self, at: &OnMachines<'_>, vertex: usize, now: f64) -> Figure {
        if let Some(why) = self.no_gain(vertex) {
            return Err(why);
        }
        let Some(machine) = at.placement.emptiest(vertex) else {
            return Err("no machine that the job has takes new instances".to_owned());
        };
        let mut more = at.placement.clone();
        more.on[vertex].push(machine);
        let gain = more.expected(at.graph, self.engine).throughput - now;
        match gain {
            gain if !gain.is_finite() => Err(BEHIND_UNKNOWN.to_owned()),
            gain if gain <= now * FOUND => Ok(0.0),
            gain => Ok(gain),
        }
    }

    fn gain(&self, graph: &FlowGraph, instances: &[u32], vertex: usize, now: &Steady) -> Figure {
        if let Some(why) = self.no_gain(vertex) {
            return Err(why);
        }
        let mut more = instances.to_vec();
        more[vertex] += 1;
        let then = steady(graph, &graph.capacities(&more), self.engine).throughput;
        let gain = then - now.throughput;
        if !gain.is_finite() {
            Err(BEHIND_UNKNOWN.to_owned())
        } else if gain <= now.throughput * EQUAL {
            Ok(0.0)
        } else {
            Ok(gain)
        }
    }
}

/// Why a vertex can have so many instances and no more.
pub fn keys_in(partitions: u32) -> String {
    format!(
        "its keys are in {partitions} partitions (the job's `partitions`), and an instance without one would get no rows"
    )
}

/// Sources that are held up offer more than any plan can take; and, with how little more than is taken of them, least.
fn held_up(graph: FlowGraph, open: &[usize], engine: Engine) -> (FlowGraph, FlowGraph) {
    let mut most = graph.clone();
    for source in open {
        // What one row of this source alone is to each vertex.
        let alone = (0..graph.len()).filter(|vertex| graph.is_source(*vertex));
        let alone = alone.fold(graph.clone(), |graph, other| {
            graph.with_offered(other, if other == *source { 1.0 } else { 0.0 })
        });
        let rows = demand(&alone, &alone.capacities(&alone.instances()));
        let takes = |(vertex, rows): (&FlowVertex, &f64)| {
            let all = total(vertex.instances.saturating_add(MOST), vertex.capacity);
            (*rows > 0.0 && all.is_finite()).then_some(all / rows)
        };
        if let Some(all) = graph.vertices().iter().zip(&rows).filter_map(takes).reduce(f64::max) {
            most = most.with_offered(*source, all);
        }
    }
    let now = steady(&most, &most.capacities(&most.instances()), engine);
    let gives = |source: usize| match engine {
        Engine::BackPressured => now.rates[source].processed,
        // The model has no queue there that blocks: what it was seen to give.
        Engine::Queueing => graph.vertices()[source].offered.unwrap_or_default(),
    };
    let least = open
        .iter()
        .fold(most.clone(), |graph, source| graph.with_offered(*source, gives(*source) * A_HAIR_MORE));
    (most, least)
}

/// More than what rates are told apart by, less than what matters.
const A_HAIR_MORE: f64 = 1.0 + 1e-6;

/// What is to be expected with machines is found step by step; a gain of a smaller share of it may be what those have left.
const FOUND: f64 = 1e-4;

const BEHIND_UNKNOWN: &str =
    "what a source could give that is held up, or gives as fast as it can, is not known";

impl VertexEtp {
    fn unknown(why: &str) -> Self {
        let none = || Err(why.to_owned());
        Self {
            congested: Err(why.to_owned()),
            demand: none(),
            path: none(),
            sink_set: none(),
            flow_share: none(),
            gain: none(),
        }
    }
}

/// The sum of nothing is -0.
fn plain(value: f64) -> f64 {
    value + 0.0
}

/// Of every vertex [`name`].
fn names(dag: &Dag) -> Vec<String> {
    let labels: Vec<String> = dag.vertices.iter().map(Vertex::label).collect();
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for label in &labels {
        *count.entry(label).or_default() += 1;
    }
    let named = labels.iter().zip(&dag.vertices);
    named
        .map(|(label, vertex)| if count[label.as_str()] > 1 { vertex.name.clone() } else { label.clone() })
        .collect()
}

/// A vertex's name, the only one in its plan.
pub fn name(dag: &Dag, index: usize) -> String {
    names(dag).swap_remove(index)
}

fn load(rates: &VertexRates) -> Option<Load> {
    let (busy, blocked) = (rates.busiest.clone().ok()?, rates.blocked.clone().ok()?);
    Some(Load { busy, blocked })
}

/// Seconds that a vertex needs for what waits before it.
fn waits(rates: &VertexRates) -> Option<f64> {
    let processed = rates.processed.clone().ok().filter(|processed| *processed > 0.0)?;
    Some(rates.waiting as f64 / processed)
}
