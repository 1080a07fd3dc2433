//! Scaling by a planner: where so many new instances go, and which agents a job gives back.

use std::collections::BTreeMap;
use std::time::Instant;

use tuplane_core::cluster::Job;
use tuplane_core::job::{self, Settings};
use tuplane_core::plan::placement::Instance;
use tuplane_core::plan::{Before, Dag, VertexId};
use tuplane_core::scale::fluid::steady;
use tuplane_core::scale::observed::{Observed, Running, name};
use tuplane_core::scale::planner::{Move, slots_by_code, slots_by_slide};
use tuplane_core::scale::{Ask, Machine, Placement, Rates, TakeAsk};
use tuplane_wire::message::{AgentInfo, WireFault};

use super::{Change, Known, afterwards, possible, refused};
use crate::coordinator::etp::Seen;

/// Vertices of which no instance can be added while the job runs, and why.
pub(in crate::coordinator) fn fixed(job: &Job, spec: &job::Job, dag: &Dag) -> BTreeMap<VertexId, String> {
    let names: Vec<String> = job.agents.iter().map(|agent| agent.id.name.clone()).collect();
    let maps = job.maps();
    let (instances, retired) = (&job.instances, &job.retired);
    let before = Before { dag, job: spec, instances, retired, agents: &names, maps: &maps };
    let has_ended = |id: u32| job.ended.contains_key(&id);
    let why = |vertex: VertexId| {
        // Wherever it would be: the agents are as good as any other.
        let refusals = (0..job.agents.len().max(1) as u16)
            .map(|agent| before.change(&[(vertex, agent)], &[], &has_ended))
            .map(|after| after.and_then(|after| possible(dag, after)).err());
        refusals.reduce(Option::and).flatten()
    };
    (0..dag.vertices.len() as u32).map(VertexId).filter_map(|id| Some((id, why(id)?))).collect()
}

/// What a planner is asked about.
struct Question {
    seen: Seen,
    observed: Observed,
    /// What vertices do: as measured, or by the model where that is not known of all.
    rates: Vec<Rates>,
    notes: Vec<String>,
}

impl Known<'_> {
    /// So many new instances, on so many agents that have had none of the job.
    pub(super) fn out(
        &self,
        agents: u32,
        instances: u32,
        planner: Option<&str>,
        anywhere: bool,
    ) -> Result<Change, WireFault> {
        if agents == 0 && instances == 0 {
            return Err(refused("nothing is asked for; give --agents N or --instances N"));
        }
        let mut used: Vec<&AgentInfo> = self.used();
        let mut fresh: Vec<&AgentInfo> = self.open().filter(|agent| !self.is_used(agent)).collect();
        fresh.sort_by(|a, b| a.id.name.cmp(&b.id.name));
        if fresh.len() < agents as usize {
            let all = self.open().count();
            return Err(refused(format!(
                "--agents {agents}: of {all} registered agents {} have no instance of job {}; start more of them first",
                fresh.len(),
                self.job.name
            )));
        }
        fresh.truncate(agents as usize);
        let planner = planner.unwrap_or(match self.spec.options.settings {
            Settings::Paper => "stela",
            Settings::Default => "best",
        });
        let (running, hosts) = (self.running.len() as u32, used.len() as u32);
        let slots = match (instances, planner) {
            (0, "stela-code") => slots_by_code(agents, running, hosts),
            (0, _) => slots_by_slide(agents, running, hosts),
            (given, _) => given,
        };
        if slots == 0 {
            return Err(refused(format!(
                "{running} instances on {hosts} agents are less than one for {agents} more agents; say how many with \
                 --instances"
            )));
        }
        let fixed = fixed(self.job, self.spec, self.dag);
        let Question { seen, observed, rates, mut notes } = self.question(&fixed, false)?;
        // Agents that instances may go to, or come from.
        let candidates: Vec<&AgentInfo> = match (agents, anywhere) {
            (0, _) => used.iter().filter(|agent| self.is_open(agent)).copied().collect(),
            (_, false) => fresh.clone(),
            (_, true) => used.iter().chain(&fresh).filter(|agent| self.is_open(agent)).copied().collect(),
        };
        used.extend(&fresh);
        let (placement, ids) = self.placement(&used, |_| None);
        let ask = Ask {
            graph: &observed.graph,
            engine: seen.engine,
            slots,
            rates,
            congestion: seen.congestion(),
            placement: Some(&placement),
        };
        let plan = self.planners.scale_out(planner, &ask).map_err(|refusal| refused(refusal.0))?;
        let mut change = Change { planner: Some(planner.to_owned()), ..Change::default() };
        for step in &plan.steps {
            let vertex = VertexId(step.vertex as u32);
            let agent = self.emptiest(vertex, &candidates, &change)?;
            change.add.push((vertex, agent));
        }
        let as_planned = self.moved(&plan.moves, &used, &[], &ids, &mut change)?;
        change.predicted = finite(plan.after).filter(|_| as_planned);
        let whys = plan.steps.iter().map(|step| format!("{} {}", name(self.dag, step.vertex), step.why));
        let mut whys: Vec<String> = whys.collect();
        whys.dedup();
        change.why = (!whys.is_empty()).then(|| whys.join("; "));
        if let Some(left) = &plan.left {
            notes.push(format!("{} of {slots} instances are not used: {}", left.slots, left.why));
            let stay = |(id, why): (&VertexId, &String)| {
                format!("{} stays as it is: {why}", name(self.dag, id.0 as usize))
            };
            notes.extend(fixed.iter().map(stay));
        }
        if let (Some(before), Some(after)) = (finite(plan.before), finite(plan.after)) {
            notes.push(format!("the model says {before:.0} rows/s before it and {after:.0} after it"));
        }
        change.notes = notes;
        Ok(change)
    }

    /// So many agents less.
    pub(super) fn take(&self, agents: u32, planner: Option<&str>, keep: bool) -> Result<Change, WireFault> {
        let mut used = self.used();
        used.sort_by(|a, b| a.id.name.cmp(&b.id.name));
        let planner = planner.unwrap_or(match self.spec.options.settings {
            Settings::Paper => "etp-sum",
            Settings::Default => "best",
        });
        let none = BTreeMap::new();
        let Question { seen, observed, rates, mut notes } = self.question(&none, true)?;
        let (placement, ids) = self.placement(&used, |agent| self.kept(agent, &used));
        let ask = TakeAsk {
            graph: &observed.graph,
            placement: &placement,
            engine: seen.engine,
            machines: agents as usize,
            rates,
            congestion: seen.congestion(),
            seed: self.job.run.wrapping_mul(1_000_003).wrapping_add(self.job.epoch()),
        };
        let removal = self.planners.scale_in(planner, &ask).map_err(|refusal| refused(refusal.0))?;
        let mut change = Change { planner: Some(planner.to_owned()), ..Change::default() };
        let as_planned = self.moved(&removal.moves, &used, &removal.machines, &ids, &mut change)?;
        let names: Vec<&str> =
            removal.machines.iter().map(|machine| placement.machines[*machine].name.as_str()).collect();
        let names = names.join(", ");
        change.predicted = finite(removal.after).filter(|_| as_planned);
        change.why = Some(format!("{names}: {}", removal.why));
        notes.push(format!("{names}: nothing of the job stays there; each {}", afterwards(keep)));
        if !as_planned {
            notes.push("what was planned for agents that are drained goes to others".to_owned());
        }
        change.notes = notes;
        Ok(change)
    }

    /// Moves of a plan: an instance ends, another one begins elsewhere. An agent that is drained gets none: what a planner
    /// would have there goes to the emptiest of those that stay (not `leave`, by index). False if that was so.
    fn moved(
        &self,
        moves: &[Move],
        agents: &[&AgentInfo],
        leave: &[usize],
        ids: &[Vec<u32>],
        change: &mut Change,
    ) -> Result<bool, WireFault> {
        let stay = agents.iter().enumerate().filter(|(at, agent)| !leave.contains(at) && self.is_open(agent));
        let open: Vec<&AgentInfo> = stay.map(|(_, agent)| *agent).collect();
        let mut as_planned = true;
        for one in moves {
            let (vertex, to) = (VertexId(one.vertex as u32), agents[one.to]);
            change.remove.push(ids[one.vertex][one.instance]);
            let to = if self.drained.contains(&to.id.name) {
                as_planned = false;
                self.emptiest(vertex, &open, change)?
            } else {
                to.id.name.clone()
            };
            change.add.push((vertex, to));
        }
        Ok(as_planned)
    }

    fn is_used(&self, agent: &AgentInfo) -> bool {
        self.running.iter().any(|one| self.agent_of(one) == agent.id.name)
    }

    /// Agents that have instances of the job.
    fn used(&self) -> Vec<&AgentInfo> {
        self.agents.iter().filter(|agent| self.is_used(agent)).collect()
    }

    /// The job as it was measured.
    fn question(&self, fixed: &BTreeMap<VertexId, String>, alone: bool) -> Result<Question, WireFault> {
        let seen = Seen::of(self.job, self.live, Instant::now())?;
        let running = Running { alone, ..seen.running(seen.congestion(), fixed) };
        if let Some(why) = running.nothing_known() {
            return Err(refused(format!("no rates of job {} are known yet: {why}", self.job.name)));
        }
        let observed = running.observe().map_err(refused)?;
        let mut notes = Vec::new();
        match (&seen.rates.seconds, seen.rates.full) {
            (Ok(seconds), false) => notes.push(format!("rates are means over {seconds:.0} s so far")),
            (Err(why), _) => notes.push(format!("not all rates are known: {why}")),
            _ => {}
        }
        let rates = observed.rates.clone().unwrap_or_else(|why| {
            notes.push(format!("rates are the model's, for not all are known: {why}"));
            let graph = &observed.graph;
            steady(graph, &graph.capacities(&graph.instances()), seen.engine).rates
        });
        notes.extend(observed.assumed.iter().cloned());
        Ok(Question { seen, observed, rates, notes })
    }

    /// Which running instance is on which of these agents, and its id by vertex and place.
    fn placement(
        &self,
        agents: &[&AgentInfo],
        kept: impl Fn(&AgentInfo) -> Option<String>,
    ) -> (Placement, Vec<Vec<u32>>) {
        let machine = |agent: &&AgentInfo| {
            // An instance works on one row at a time: a core for each is as good as no limit.
            let cores = if agent.cores == 0 { self.running.len() as f64 } else { f64::from(agent.cores) };
            Machine { kept: kept(agent), ..Machine::new(agent.id.name.clone(), cores) }
        };
        let machines: Vec<Machine> = agents.iter().map(machine).collect();
        let (mut on, mut ids) =
            (vec![Vec::new(); self.dag.vertices.len()], vec![Vec::new(); self.dag.vertices.len()]);
        for one in self.running.iter().filter(|one| !self.job.ended.contains_key(&one.id)) {
            let at = agents.iter().position(|agent| agent.id.name == self.agent_of(one));
            let vertex = one.vertex.0 as usize;
            if let Some(at) = at {
                on[vertex].push(at);
                ids[vertex].push(one.id);
            }
        }
        (Placement { machines, on }, ids)
    }

    /// Why an agent cannot be given back: something on it cannot move.
    fn kept(&self, agent: &AgentInfo, used: &[&AgentInfo]) -> Option<String> {
        let names: Vec<String> = self.job.agents.iter().map(|agent| agent.id.name.clone()).collect();
        let before = Before {
            dag: self.dag,
            job: self.spec,
            instances: &self.job.instances,
            retired: &self.job.retired,
            agents: &names,
            maps: &self.job.maps(),
        };
        let has_ended = |id: u32| self.job.ended.contains_key(&id);
        let other = used.iter().find(|other| other.id != agent.id)?;
        let to = names.iter().position(|name| *name == other.id.name)? as u16;
        // What has ended moves no more.
        let here: Vec<&Instance> = self
            .running
            .iter()
            .filter(|one| self.agent_of(one) == agent.id.name && !has_ended(one.id))
            .collect();
        let add: Vec<(VertexId, u16)> = here.iter().map(|one| (one.vertex, to)).collect();
        let remove: Vec<u32> = here.iter().map(|one| one.id).collect();
        before.change(&add, &remove, &has_ended).and_then(|after| possible(self.dag, after)).err()
    }
}

fn finite(rate: f64) -> Option<f64> {
    rate.is_finite().then_some(rate)
}
