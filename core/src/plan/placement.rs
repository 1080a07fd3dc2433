//! Instances and the agents they run on, and which instances an edge reaches from an agent.

use serde::{Deserialize, Serialize};

use super::dag::{Dag, EdgeId, Parallelism, Role, Routing, Vertex, VertexId};
use crate::fault::{At, Fault, suggestion};
use crate::job::{Job, Op};

/// More instances of one vertex than this are a slip, not a plan.
const MOST: usize = 65_536;

/// An agent that may take instances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSlot {
    /// Its number in the cluster.
    pub index: u16,
    /// Its name.
    pub name: String,
    /// Its default parallelism; with 0 it takes no instances.
    pub slots: u32,
}

/// One running copy of a vertex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Instance {
    /// Dense over the job.
    pub id: u32,
    /// What it runs.
    pub vertex: VertexId,
    /// The n of `id#n`, from 0 within the vertex.
    pub number: u32,
    /// Where it runs.
    pub agent: u16,
}

/// Gives every vertex its instances. Ids go by vertex and number.
pub fn place(dag: &Dag, job: &Job, agents: &[AgentSlot]) -> Result<Vec<Instance>, Fault> {
    let agents: Vec<&AgentSlot> = agents.iter().filter(|a| a.slots > 0).collect();
    if agents.is_empty() {
        return Err(Fault::new(At::default(), "no agent has a slot to run instances"));
    }
    let mut placer = Placer { dag, job, agents, placed: vec![Vec::new(); dag.vertices.len()], next: 0 };
    let ids = || (0u32..).map(VertexId).zip(&dag.vertices);
    let collector = |v: &Vertex| matches!(v.role, Role::Collector { .. });
    for (id, vertex) in ids().filter(|(_, v)| !collector(v)) {
        placer.vertex(id, vertex)?;
    }
    for (id, _) in ids().filter(|(_, v)| collector(v)) {
        placer.with_joiners(id);
    }
    let instances = placer.number();
    check_reach(dag, job, &placer, &instances)?;
    check_partitions(dag, job, &instances)?;
    Ok(instances)
}

struct Placer<'a> {
    dag: &'a Dag,
    job: &'a Job,
    agents: Vec<&'a AgentSlot>,
    /// By vertex: the agent of each instance, by number.
    placed: Vec<Vec<u16>>,
    /// The agent that the next instance of a `Total` vertex gets.
    next: usize,
}

impl<'a> Placer<'a> {
    fn vertex(&mut self, id: VertexId, vertex: &Vertex) -> Result<(), Fault> {
        if vertex.role == Role::Timestamps {
            let source = self.upstream(id).next().unwrap_or(id);
            self.placed[id.0 as usize] = self.placed[source.0 as usize].clone();
            return Ok(());
        }
        let allowed = self.allowed(vertex)?;
        let on_each = |n: &dyn Fn(&AgentSlot) -> u32| {
            let count: u64 = allowed.iter().map(|a| u64::from(n(a))).sum();
            if count > MOST as u64 {
                return Err(too_many(self.job, vertex, count));
            }
            Ok(allowed.iter().flat_map(|a| std::iter::repeat_n(a.index, n(a) as usize)).collect())
        };
        let placed: Vec<u16> = match vertex.parallelism {
            Parallelism::PerAgent(n) => on_each(&|_| n)?,
            Parallelism::Default => on_each(&|a| a.slots)?,
            Parallelism::DefaultUpTo(n) => on_each(&|a| a.slots.min(n))?,
            Parallelism::OneProduces(_) => allowed.iter().take(1).map(|a| a.index).collect(),
            Parallelism::One => vec![self.home(id, &allowed)],
            Parallelism::Total(n) if n as usize > MOST => {
                return Err(too_many(self.job, vertex, u64::from(n)));
            }
            Parallelism::Total(n) => {
                let first = self.next;
                self.next += n as usize;
                (first..self.next).map(|turn| allowed[turn % allowed.len()].index).collect()
            }
        };
        self.placed[id.0 as usize] = placed;
        Ok(())
    }

    fn upstream(&self, of: VertexId) -> impl Iterator<Item = VertexId> {
        self.dag.edges.iter().filter(move |e| e.to == of).map(|e| e.from)
    }

    /// Agents that may run it: those of `on` for a source, else all.
    fn allowed(&self, vertex: &Vertex) -> Result<Vec<&'a AgentSlot>, Fault> {
        let stage = self.job.stages.iter().find(|s| vertex.stages.first() == Some(&s.id));
        let Some((stage, on)) = stage.and_then(|s| match &s.op {
            Op::Source(source) if !source.on.is_empty() => Some((s, &source.on)),
            _ => None,
        }) else {
            return Ok(self.agents.clone());
        };
        for name in on {
            if !self.agents.iter().any(|a| a.name == name.value) {
                let message =
                    format!("source `{}` is to run on agent `{}`, which is not there", stage.id, name.value);
                let fault = Fault::new(name.at, message).stage(stage.id.clone());
                let names = || self.agents.iter().map(|a| a.name.as_str());
                return Err(match suggestion(&name.value, names()) {
                    Some(close) => fault.help(format!("did you mean `{close}`?")),
                    None => fault.help(format!("agents: {}", names().collect::<Vec<_>>().join(", "))),
                });
            }
        }
        Ok(self.agents.iter().copied().filter(|a| on.iter().any(|n| n.value == a.name)).collect())
    }

    /// The first agent, unless everything that the one instance reads is elsewhere.
    fn home(&self, id: VertexId, allowed: &[&AgentSlot]) -> u16 {
        let reads = |agent: u16| self.upstream(id).any(|up| self.placed[up.0 as usize].contains(&agent));
        let near = allowed.iter().find(|a| reads(a.index));
        near.or(allowed.first()).map_or(0, |a| a.index)
    }

    /// A collector stands on every agent that has an instance of its joiner.
    fn with_joiners(&mut self, collector: VertexId) {
        let joiner = self.dag.edges.iter().find(|e| e.from == collector).map(|e| e.to);
        let Some(joiner) = joiner else { return };
        let has = |a: &&&AgentSlot| self.placed[joiner.0 as usize].contains(&a.index);
        self.placed[collector.0 as usize] = self.agents.iter().filter(has).map(|a| a.index).collect();
    }

    fn number(&self) -> Vec<Instance> {
        let all = (0u32..).map(VertexId).zip(&self.placed);
        let numbered =
            all.flat_map(|(vertex, agents)| (0u32..).zip(agents).map(move |(n, &a)| (vertex, n, a)));
        (0u32..)
            .zip(numbered)
            .map(|(id, (vertex, number, agent))| Instance { id, vertex, number, agent })
            .collect()
    }
}

fn at_vertex(job: &Job, vertex: &Vertex, message: String) -> Fault {
    let stage = job.stages.iter().find(|s| vertex.stages.first() == Some(&s.id));
    let fault = Fault::new(stage.map(|s| s.at).unwrap_or_default(), message);
    match stage {
        Some(stage) => fault.stage(stage.id.clone()),
        None => fault,
    }
}

fn too_many(job: &Job, vertex: &Vertex, count: u64) -> Fault {
    at_vertex(job, vertex, format!("`{}` would get {count} instances, more than {MOST}", vertex.label()))
        .help("set a smaller `parallelism` or `instances`")
}

/// Rows of a local edge need an instance on their own agent.
fn check_reach(dag: &Dag, job: &Job, placer: &Placer<'_>, instances: &[Instance]) -> Result<(), Fault> {
    for (index, edge) in dag.edges.iter().enumerate().filter(|(_, e)| !e.distributed) {
        let to = &placer.placed[edge.to.0 as usize];
        let Some(agent) = placer.placed[edge.from.0 as usize].iter().find(|a| !to.contains(a)) else {
            continue;
        };
        let name = placer.agents.iter().find(|a| a.index == *agent).map_or("?", |a| &a.name);
        let target = dag.vertex(edge.to);
        let message = format!(
            "{} stays on one agent, but agent `{name}` has no instance of `{}`",
            dag.edge_name(EdgeId(index as u32)),
            target.label()
        );
        return Err(at_vertex(job, target, message).help("put a rebalance between the two"));
    }
    let empty =
        (0u32..).map(VertexId).zip(&dag.vertices).find(|(id, _)| !instances.iter().any(|i| i.vertex == *id));
    match empty {
        Some((_, vertex)) => Err(at_vertex(job, vertex, format!("`{}` got no instance", vertex.label()))),
        None => Ok(()),
    }
}

/// A keyed vertex has at most one instance a partition, counted over what its edge reaches.
fn check_partitions(dag: &Dag, job: &Job, instances: &[Instance]) -> Result<(), Fault> {
    let partitions = usize::from(job.options.partitions());
    for (index, edge) in dag.edges.iter().enumerate() {
        if !matches!(edge.routing, Routing::Partitioned { .. }) {
            continue;
        }
        let id = EdgeId(index as u32);
        let mut senders: Vec<u16> =
            instances.iter().filter(|i| i.vertex == edge.from).map(|i| i.agent).collect();
        senders.dedup();
        for agent in senders {
            let n = targets(dag, id, instances, agent).len();
            if n <= partitions {
                continue;
            }
            return Err(too_few_partitions(job, dag.vertex(edge.to), n));
        }
    }
    Ok(())
}

/// The same for what holds on any cluster, of one agent even.
pub(super) fn check_fewest(dag: &Dag, job: &Job) -> Result<(), Fault> {
    for edge in dag.edges.iter().filter(|edge| matches!(edge.routing, Routing::Partitioned { .. })) {
        let vertex = dag.vertex(edge.to);
        let fewest = match vertex.parallelism {
            Parallelism::PerAgent(n) | Parallelism::Total(n) => n as usize,
            _ => 1,
        };
        if fewest > usize::from(job.options.partitions()) {
            return Err(too_few_partitions(job, vertex, fewest));
        }
    }
    Ok(())
}

fn too_few_partitions(job: &Job, vertex: &Vertex, n: usize) -> Fault {
    let partitions = usize::from(job.options.partitions());
    let message = format!(
        "`{}` would have {n} instances by key, and there are {partitions} partitions: {} would get no key",
        vertex.label(),
        n - partitions
    );
    let mut fault =
        at_vertex(job, vertex, message).help("lower its parallelism, or raise `partitions` in [job]");
    // What an override says is what was changed last.
    if job.options.partitions_at.is_override() {
        fault.at = job.options.partitions_at;
    }
    fault
}

/// Ids of the instances that a row may go to from this agent, by number.
pub fn targets(dag: &Dag, edge: EdgeId, instances: &[Instance], sending_agent: u16) -> Vec<u32> {
    let edge = dag.edge(edge);
    let reached =
        instances.iter().filter(|i| i.vertex == edge.to && (edge.distributed || i.agent == sending_agent));
    let most = if edge.routing == Routing::AllToOne { 1 } else { usize::MAX };
    reached.take(most).map(|i| i.id).collect()
}

/// As [`targets`], for one sender: fewer on an isolated edge.
pub fn targets_of(dag: &Dag, edge: EdgeId, instances: &[Instance], sender: &Instance) -> Vec<u32> {
    let all = targets(dag, edge, instances, sender.agent);
    let edge = dag.edge(edge);
    if edge.routing != Routing::Isolated {
        return all;
    }
    let peers: Vec<u32> = instances
        .iter()
        .filter(|i| i.vertex == sender.vertex && i.agent == sender.agent)
        .map(|i| i.id)
        .collect();
    let Some(u) = peers.iter().position(|&id| id == sender.id) else { return Vec::new() };
    // A source of which one instance is made keeps the pairs that it would have had.
    let most = match dag.vertex(edge.from).parallelism {
        Parallelism::OneProduces(n) if dag.vertex(edge.to).role != Role::Timestamps => n as usize,
        _ => peers.len(),
    };
    isolated_targets(u as u32, most as u32, all.len() as u32).into_iter().map(|d| all[d as usize]).collect()
}

/// Of `down` instances those that upstream `u` of `up` feeds: every d with d mod U = u mod D.
pub fn isolated_targets(u: u32, up: u32, down: u32) -> Vec<u32> {
    if up == 0 || down == 0 {
        return Vec::new();
    }
    (0..down).filter(|d| d % up == u % down).collect()
}

/// The instance that holds each partition. Partitions are dealt over agents in turn and on each
/// over its instances in turn; an agent whose instances have all had one is passed over until
/// the others' have, so that every instance gets an equal share. It depends on the target and
/// the edge's reach alone: all inputs of one vertex that reach alike agree.
pub fn partition_map(
    dag: &Dag,
    edge: EdgeId,
    instances: &[Instance],
    partitions: u16,
    sending_agent: u16,
) -> Vec<u32> {
    let edge = dag.edge(edge);
    let mut rounds: Vec<(usize, u16, u32)> = Vec::new();
    for i in
        instances.iter().filter(|i| i.vertex == edge.to && (edge.distributed || i.agent == sending_agent))
    {
        let round = rounds.iter().filter(|(_, agent, _)| *agent == i.agent).count();
        rounds.push((round, i.agent, i.id));
    }
    rounds.sort_unstable();
    if rounds.is_empty() {
        return Vec::new();
    }
    (0..usize::from(partitions)).map(|p| rounds[p % rounds.len()].2).collect()
}
