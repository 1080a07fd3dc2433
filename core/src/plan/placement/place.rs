//! Gives vertices their instances, and instances their agents.

use std::collections::BTreeMap;

use super::reach::targets;
use super::strategy::{self, Container, Problem};
use super::{AgentSlot, Instance, traffic};
use crate::fault::{At, Fault, suggestion};
use crate::job::{Job, Op};
use crate::plan::change::MOST_INSTANCES;
use crate::plan::dag::{Dag, EdgeId, Parallelism, Role, Routing, Vertex, VertexId};

/// Gives every vertex its instances, a row costing the same between any two agents. Ids go by vertex and
/// number.
///
/// # Errors
/// If no agent can take an instance that must be somewhere, or a vertex would get too many.
pub fn place(dag: &Dag, job: &Job, agents: &[AgentSlot]) -> Result<Vec<Instance>, Fault> {
    place_at(dag, job, agents, &|from, to| f64::from(u8::from(from != to)))
}

/// As [`place`], with the cost of a row from one agent to another, each by its index.
///
/// # Errors
/// As for [`place`].
pub fn place_at(
    dag: &Dag,
    job: &Job,
    agents: &[AgentSlot],
    cost: &dyn Fn(u16, u16) -> f64,
) -> Result<Vec<Instance>, Fault> {
    let agents: Vec<&AgentSlot> = agents.iter().filter(|a| a.slots > 0).collect();
    if agents.is_empty() {
        return Err(Fault::new(At::default(), "no agent has a slot to run instances"));
    }
    let mut placer = Placer::new(dag, job, agents);
    let collector = |v: &Vertex| matches!(v.role, Role::Collector { .. });
    for waiting in [false, true] {
        if waiting {
            placer.by_strategy(cost)?;
        }
        for (id, vertex) in numbered(dag).filter(|(_, v)| !collector(v)) {
            if placer.waits[id.0 as usize] == waiting {
                placer.vertex(id, vertex)?;
            }
        }
    }
    for (id, _) in numbered(dag).filter(|(_, v)| collector(v)) {
        placer.with_joiners(id);
    }
    let instances = placer.number();
    check_reach(dag, job, &placer, &instances)?;
    check_partitions(dag, job, &instances)?;
    Ok(instances)
}

fn numbered(dag: &Dag) -> impl Iterator<Item = (VertexId, &Vertex)> {
    (0u32..).map(VertexId).zip(&dag.vertices)
}

/// The instances that the strategy places.
fn total(vertex: &Vertex) -> Option<u32> {
    match (vertex.parallelism, vertex.role) {
        // These go where another vertex goes.
        (_, Role::Timestamps | Role::Collector { .. }) => None,
        (Parallelism::Total(n), _) => Some(n),
        _ => None,
    }
}

/// What is known of a placement that goes on.
struct Placer<'a> {
    dag: &'a Dag,
    job: &'a Job,
    agents: Vec<&'a AgentSlot>,
    /// By vertex: the agent of each instance, by number.
    placed: Vec<Vec<u16>>,
    /// By vertex: its agents are known once the strategy has placed others.
    waits: Vec<bool>,
}

impl<'a> Placer<'a> {
    fn new(dag: &'a Dag, job: &'a Job, agents: Vec<&'a AgentSlot>) -> Self {
        let mut waits: Vec<bool> = Vec::new();
        // In topological order, so that what a vertex reads is known.
        for (id, vertex) in numbered(dag) {
            let reads = dag.edges.iter().filter(|e| e.to == id).map(|e| e.from);
            let is_near = vertex.role == Role::Timestamps || vertex.parallelism == Parallelism::One;
            waits.push(
                total(vertex).is_some() || is_near && reads.into_iter().any(|from| waits[from.0 as usize]),
            );
        }
        Self { dag, job, agents, placed: vec![Vec::new(); dag.vertices.len()], waits }
    }

    fn vertex(&mut self, id: VertexId, vertex: &Vertex) -> Result<(), Fault> {
        if vertex.role == Role::Timestamps {
            let source = self.upstream(id).next().unwrap_or(id);
            self.placed[id.0 as usize] = self.placed[source.0 as usize].clone();
            return Ok(());
        }
        let allowed = self.allowed(vertex)?;
        let on_each = |n: &dyn Fn(&AgentSlot) -> u32| {
            let count: u64 = allowed.iter().map(|a| u64::from(n(a))).sum();
            if count > MOST_INSTANCES as u64 {
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
            // By the strategy.
            Parallelism::Total(_) => return Ok(()),
        };
        self.placed[id.0 as usize] = placed;
        Ok(())
    }

    /// Gives the instances of all vertices with `instances` their agents, by the job's strategy.
    fn by_strategy(&mut self, cost: &dyn Fn(u16, u16) -> f64) -> Result<(), Fault> {
        let (mut instances, mut within) = (Vec::new(), BTreeMap::new());
        for (id, vertex) in numbered(self.dag) {
            let Some(n) = total(vertex) else { continue };
            if n as usize > MOST_INSTANCES {
                return Err(too_many(self.job, vertex, u64::from(n)));
            }
            let component = id.0 as usize;
            instances.extend(std::iter::repeat_n(component, n as usize));
            let allowed = self.allowed(vertex)?;
            if allowed.len() < self.agents.len() {
                within.insert(component, allowed.iter().map(|a| self.container(a.index)).collect());
            }
        }
        let mut containers = vec![Container::default(); self.agents.len()];
        let mut standing = Vec::new();
        for (component, agents) in self.placed.iter().enumerate() {
            for &agent in agents {
                let container = self.container(agent);
                containers[container].taken += 1;
                standing.push((component, container));
            }
        }
        let counts = |id: VertexId| {
            let placed = self.placed[id.0 as usize].len() as u32;
            total(self.dag.vertex(id)).unwrap_or(placed)
        };
        let to_all = |from: &&AgentSlot| self.agents.iter().map(|to| cost(from.index, to.index)).collect();
        let problem = Problem {
            instances: &instances,
            standing: &standing,
            flows: &traffic::estimate(self.dag, self.job, &counts),
            containers: &containers,
            costs: &self.agents.iter().map(to_all).collect::<Vec<Vec<f64>>>(),
            within: &within,
        };
        let assigned = strategy::assign(self.job.options.placement, &problem).map_err(|none| {
            let vertex = self.dag.vertex(VertexId(instances[none.instance] as u32));
            at_vertex(self.job, vertex, format!("no agent has room for `{}`", vertex.label()))
        })?;
        for (component, container) in instances.into_iter().zip(assigned) {
            self.placed[component].push(self.agents[container].index);
        }
        Ok(())
    }

    /// The number that an agent has for the strategy.
    fn container(&self, agent: u16) -> usize {
        self.agents.iter().position(|a| a.index == agent).unwrap_or_default()
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
    at_vertex(
        job,
        vertex,
        format!("`{}` would get {count} instances, more than {MOST_INSTANCES}", vertex.label()),
    )
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
    let empty = numbered(dag).find(|(id, _)| !instances.iter().any(|i| i.vertex == *id));
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
pub(in crate::plan) fn check_fewest(dag: &Dag, job: &Job) -> Result<(), Fault> {
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
