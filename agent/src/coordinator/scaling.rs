//! Requests to scale a job: which instances are to be added where and which end, and the plan that this makes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tuplane_core::cluster::{Job, NewScale};
use tuplane_core::job;
use tuplane_core::plan::placement::Instance;
use tuplane_core::scale::Planners;
use tuplane_core::plan::{Before, Dag, LEAST_QUEUE, VertexId};
use tuplane_wire::message::{AgentInfo, FaultCode, WireFault};
use tuplane_wire::scaling::{
    Named, ScaleAsk, ScaleCount, ScaleEdge, ScaleInstance, ScaleMove, ScalePlace, ScalePlan,
};

use super::live::LiveRun;

pub(super) use planned::fixed;

mod planned;

/// What is known when a request to scale is looked at.
pub(super) struct Known<'a> {
    /// The job.
    pub(super) job: &'a Job,
    /// What it does.
    pub(super) spec: &'a job::Job,
    /// Its plan.
    pub(super) dag: &'a Dag,
    /// Its instances that run: neither ended nor being drained.
    pub(super) running: Vec<Instance>,
    /// Agents that are alive, by name.
    pub(super) agents: Vec<AgentInfo>,
    /// What the agents have said of the run.
    pub(super) live: Option<&'a LiveRun>,
    /// Bytes that each agent's queues may hold, by its name; as far as it has said so.
    pub(super) budgets: BTreeMap<String, u64>,
    /// Who may choose.
    pub(super) planners: &'a Planners,
}

/// What is wanted of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Change {
    /// New instances: of which vertex, on the agent of which name.
    pub(super) add: Vec<(VertexId, String)>,
    /// Ids of instances that end.
    pub(super) remove: Vec<u32>,
    /// Who chose, if a planner did.
    pub(super) planner: Option<String>,
    /// Rows a second that all sinks together will take.
    pub(super) predicted: Option<f64>,
    /// Why so; or why nothing is foretold.
    pub(super) why: Option<String>,
    /// Remarks for people.
    pub(super) notes: Vec<String>,
}

/// Turns a request into instances. Whether they can be added and removed is looked at later.
///
/// # Errors
/// With the numbers, if the request cannot be met.
pub(super) fn wanted(ask: &ScaleAsk, known: &Known<'_>) -> Result<Change, WireFault> {
    match ask {
        ScaleAsk::Set { vertex, instances, place } => known.set(vertex, *instances, *place),
        ScaleAsk::In { agents, agent: Some(agent), planner: None, .. } if *agents <= 1 => known.leave(agent),
        ScaleAsk::In { agent: Some(agent), .. } => {
            Err(refused(format!("{agent} is named: no other agent and no planner can be asked for with it")))
        }
        ScaleAsk::Out { agents, instances, planner, anywhere } => {
            known.out(*agents, *instances, planner.as_deref(), *anywhere)
        }
        ScaleAsk::In { agents, agent: None, planner, .. } => known.take(*agents, planner.as_deref()),
    }
}

/// What was asked for, as the command says it.
pub(super) fn asked(ask: &ScaleAsk) -> String {
    let by = |planner: &Option<String>| planner.as_ref().map(|name| format!(" --planner {name}"));
    match ask {
        ScaleAsk::Set { vertex, instances, place } => {
            let place = match place {
                ScalePlace::Anywhere => "",
                ScalePlace::Fresh | ScalePlace::OnlyFresh => " --place new",
            };
            format!("set {vertex}={instances}{place}")
        }
        ScaleAsk::Out { agents, instances, planner, anywhere } => {
            let agents = (*agents > 0).then(|| format!(" --agents {agents}"));
            let instances = (*instances > 0).then(|| format!(" --instances {instances}"));
            let place = anywhere.then(|| " --place anywhere".to_owned());
            ["out".to_owned()]
                .into_iter()
                .chain([agents, instances, by(planner), place].into_iter().flatten())
                .collect()
        }
        ScaleAsk::In { agents, agent, planner, keep } => {
            let who = agent
                .as_ref()
                .map_or_else(|| format!(" --agents {agents}"), |name| format!(" --agent {name}"));
            let keep = keep.then(|| " --keep".to_owned());
            ["in".to_owned(), who].into_iter().chain([by(planner), keep].into_iter().flatten()).collect()
        }
    }
}

fn refused(message: impl Into<String>) -> WireFault {
    WireFault::new(FaultCode::Refused, message)
}

impl Known<'_> {
    fn agent_of(&self, instance: &Instance) -> &str {
        self.job.agents.get(usize::from(instance.agent)).map_or("?", |agent| agent.id.name.as_str())
    }

    /// Rows that wait for an instance, as it last said.
    fn queued(&self, instance: &Instance) -> u64 {
        let report = self.live.and_then(|live| live.counters.get(&instance.id));
        report.map_or(0, |report| report.queue_in + report.queue_out)
    }

    fn name_of(&self, instance: &Instance) -> String {
        format!("{}#{}", self.dag.vertex(instance.vertex).label(), instance.number)
    }

    /// Agents that can take instances.
    fn open(&self) -> impl Iterator<Item = &AgentInfo> {
        self.agents.iter().filter(|agent| agent.slots > 0)
    }

    /// So many instances of one vertex.
    fn set(&self, vertex: &str, wanted: u32, place: ScalePlace) -> Result<Change, WireFault> {
        let not_found = |message| WireFault::new(FaultCode::NotFound, message);
        let vertex = self.dag.find_vertex(vertex).map_err(not_found)?;
        let label = self.dag.vertex(vertex).label();
        let mut own: Vec<&Instance> = self.running.iter().filter(|one| one.vertex == vertex).collect();
        if wanted == 0 {
            let message = format!("`{label}` has {} instances, and needs one at least", own.len());
            return Err(refused(message));
        }
        let mut change = Change { why: Some("a number was asked for".to_owned()), ..Change::default() };
        let used = |agent: &&AgentInfo| self.running.iter().any(|one| self.agent_of(one) == agent.id.name);
        let fresh: Vec<&AgentInfo> = self.open().filter(|agent| !used(agent)).collect();
        let candidates = match place {
            ScalePlace::Anywhere => self.open().collect(),
            ScalePlace::OnlyFresh if fresh.is_empty() => {
                let message = format!("all {} agents have instances of the job", self.open().count());
                return Err(refused(message));
            }
            ScalePlace::Fresh if fresh.is_empty() => self.open().collect(),
            ScalePlace::Fresh | ScalePlace::OnlyFresh => fresh,
        };
        for _ in own.len()..wanted as usize {
            let agent = self.emptiest(vertex, &candidates, &change)?;
            change.add.push((vertex, agent));
        }
        while own.len() > wanted as usize {
            let on = |agent: u16| own.iter().filter(|one| one.agent == agent).count();
            let most = own
                .iter()
                .enumerate()
                .max_by_key(|(_, one)| (on(one.agent), Reverse(self.queued(one)), one.number));
            let Some((index, _)) = most else { break };
            change.remove.push(own.remove(index).id);
        }
        Ok(change)
    }

    /// The agent with the fewest instances of a vertex, and of those the one with the fewest in all for its slots.
    fn emptiest(
        &self,
        vertex: VertexId,
        candidates: &[&AgentInfo],
        change: &Change,
    ) -> Result<String, WireFault> {
        let stays = |one: &&Instance| !change.remove.contains(&one.id);
        let here = |name: &str, only: Option<VertexId>| {
            let running = self.running.iter().filter(stays).filter(|one| self.agent_of(one) == name);
            let new = change.add.iter().filter(|(_, agent)| agent == name).map(|(of, _)| *of);
            let all = running.map(|one| one.vertex).chain(new);
            all.filter(|of| only.is_none_or(|only| only == *of)).count() as u64
        };
        let key = |agent: &AgentInfo| {
            let name = agent.id.name.as_str();
            (here(name, Some(vertex)), here(name, None) * 1000 / u64::from(agent.slots.max(1)))
        };
        let found = candidates.iter().min_by_key(|agent| (key(agent), agent.id.name.clone()));
        found
            .map(|agent| agent.id.name.clone())
            .ok_or_else(|| refused("no agent has a slot to run instances"))
    }

    /// Everything that an agent has goes elsewhere.
    fn leave(&self, agent: &str) -> Result<Change, WireFault> {
        if !self.agents.iter().any(|info| info.id.name == agent) {
            let names: Vec<&str> = self.agents.iter().map(|info| info.id.name.as_str()).collect();
            let message = format!("there is no agent `{agent}` (there are {})", names.join(", "));
            return Err(WireFault::new(FaultCode::NotFound, message));
        }
        let own: Vec<&Instance> = self.running.iter().filter(|one| self.agent_of(one) == agent).collect();
        let others: Vec<&AgentInfo> = self.open().filter(|info| info.id.name != agent).collect();
        if others.is_empty() && !own.is_empty() {
            let message = format!("{} instances are on {agent}, and there is no other agent", own.len());
            return Err(refused(message));
        }
        let mut change = Change { why: Some(format!("all that is on {agent} moves")), ..Change::default() };
        for one in own {
            change.remove.push(one.id);
            let to = self.emptiest(one.vertex, &others, &change)?;
            change.add.push((one.vertex, to));
        }
        change.notes.push(format!("{agent} stays in the cluster"));
        Ok(change)
    }

    /// The plan that a change makes, and what it is to the job's state; `None` if all stays as it is.
    ///
    /// # Errors
    /// With the reason and the numbers, if it cannot be carried out.
    pub(super) fn plan(
        &self,
        ask: &ScaleAsk,
        change: Change,
    ) -> Result<(ScalePlan, Option<NewScale>), WireFault> {
        let (agents, add) = self.with_agents(&change)?;
        let names: Vec<String> = agents.iter().map(|agent| agent.id.name.clone()).collect();
        let before = Before {
            dag: self.dag,
            job: self.spec,
            instances: &self.job.instances,
            retired: &self.job.retired,
            agents: &names,
        };
        let has_ended = |id: u32| self.job.ended.contains_key(&id);
        let after = before.change(&add, &change.remove, &has_ended).map_err(refused)?;
        self.check_room(&after.new, &change.remove, &names)?;
        let named = |one: &Instance| Named {
            id: one.id,
            name: self.name_of(one),
            agent: names.get(usize::from(one.agent)).cloned().unwrap_or_default(),
        };
        let going: Vec<&Instance> =
            self.running.iter().filter(|one| change.remove.contains(&one.id)).collect();
        let started: Vec<Named> = after.new.iter().map(named).collect();
        let stopped: Vec<Named> = going.iter().map(|one| named(one)).collect();
        let mut plan = ScalePlan {
            job: self.job.name.clone(),
            run: self.job.run,
            epoch: self.job.epoch(),
            next: None,
            asked: asked(ask),
            planner: change.planner.clone(),
            started: Vec::new(),
            moved: Vec::new(),
            stopped: Vec::new(),
            edges: Vec::new(),
            notes: change.notes,
            predicted: change.predicted,
            why: change.why,
            counts: self.counts(&after.new, &change.remove),
        };
        let mut left: Vec<&Instance> = going;
        for one in &after.new {
            let place = left.iter().position(|gone| gone.vertex == one.vertex);
            match place.map(|index| left.remove(index)) {
                Some(gone) => {
                    plan.moved.push(ScaleMove { vertex: one.vertex.0, from: named(gone), to: named(one) })
                }
                None => plan.started.push(ScaleInstance { vertex: one.vertex.0, instance: named(one) }),
            }
        }
        plan.stopped
            .extend(left.into_iter().map(|one| ScaleInstance { vertex: one.vertex.0, instance: named(one) }));
        plan.edges.extend(after.edges.into_iter().map(|changed| ScaleEdge {
            edge: changed.edge.0,
            name: self.dag.edge_name(changed.edge),
            change: changed.change,
            why: changed.why,
        }));
        plan.notes.extend(after.notes);
        if plan.is_empty() {
            plan.notes.push("nothing to do: all is as it was asked for".to_owned());
            return Ok((plan, None));
        }
        let dag = serde_json::to_string(&after.dag)
            .map_err(|e| WireFault::new(FaultCode::Internal, format!("cannot encode the plan: {e}")))?;
        let new = NewScale {
            epoch: self.job.next_epoch(),
            asked: plan.asked.clone(),
            planner: change.planner,
            predicted: change.predicted,
            agents,
            before: self.job.instances.len(),
            instances: self.job.instances.iter().chain(&after.new).copied().collect(),
            going: change.remove,
            dag,
            started,
            stopped,
        };
        Ok((plan, Some(new)))
    }

    /// The job's agents and those that join it, and where each new instance goes by its index.
    fn with_agents(&self, change: &Change) -> Result<(Vec<AgentInfo>, Vec<(VertexId, u16)>), WireFault> {
        let (mut agents, mut add) = (self.job.agents.clone(), Vec::new());
        for (vertex, name) in &change.add {
            let Some(info) = self.agents.iter().find(|info| info.id.name == *name) else {
                return Err(WireFault::new(FaultCode::NotFound, format!("there is no agent `{name}`")));
            };
            let known = agents.iter().position(|agent| agent.id == info.id);
            let index = known.unwrap_or_else(|| {
                agents.push(info.clone());
                agents.len() - 1
            });
            add.push((*vertex, index as u16));
        }
        Ok((agents, add))
    }

    /// An agent holds as many instances of a job as have room for their queues: each takes 64 KiB at least, of half
    /// of what the agent's queues may hold (or of the job's `memory`).
    fn check_room(&self, new: &[Instance], remove: &[u32], names: &[String]) -> Result<(), WireFault> {
        let queues = |one: &Instance| {
            (self.dag.inputs(one.vertex).count() + self.dag.outputs(one.vertex).count()) as u64
        };
        for (index, name) in (0u16..).zip(names) {
            let here = |one: &&Instance| one.agent == index;
            let (coming, budget) = (new.iter().filter(here).count(), self.budgets.get(name));
            let Some(budget) = budget.filter(|_| coming > 0) else { continue };
            let stays = self.running.iter().filter(|one| !remove.contains(&one.id));
            let all: Vec<&Instance> = stays.chain(new).filter(here).collect();
            let needed = all.iter().map(|one| queues(one)).sum::<u64>().saturating_mul(LEAST_QUEUE);
            let has = self.spec.options.memory.unwrap_or(u64::MAX).min(budget / 2);
            if needed > has {
                return Err(refused(format!(
                    "agent {name} would hold {} instances of the job, whose queues need {} MiB at least, and may \
                     hold {} MiB",
                    all.len(),
                    needed.div_ceil(1 << 20),
                    has >> 20
                )));
            }
        }
        Ok(())
    }

    fn counts(&self, new: &[Instance], remove: &[u32]) -> Vec<ScaleCount> {
        let ids = (0..self.dag.vertices.len() as u32).map(VertexId);
        ids.filter_map(|vertex| {
            let own = self.running.iter().filter(|one| one.vertex == vertex);
            let (before, gone) = (own.clone().count(), own.filter(|one| remove.contains(&one.id)).count());
            let come = new.iter().filter(|one| one.vertex == vertex).count();
            (come + gone > 0).then(|| ScaleCount {
                vertex: vertex.0,
                name: self.dag.vertex(vertex).label(),
                before: before as u32,
                after: (before + come - gone) as u32,
            })
        })
        .collect()
    }
}
