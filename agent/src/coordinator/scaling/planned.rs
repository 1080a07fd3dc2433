//! Scaling by a planner: where so many new instances go, and which agents a job gives back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use tuplane_core::plan::placement::Instance;
use tuplane_core::plan::{Role, VertexId};
use tuplane_core::scale::fluid::steady;
use tuplane_core::scale::machines::Takes;
use tuplane_core::scale::observed::{Observed, Running, name};
use tuplane_core::scale::planner::{Move, Moving};
use tuplane_core::scale::{Ask, Machine, Placement, Plan, Planners, Rates, Refusal, TakeAsk, calibrated};
use tuplane_wire::message::{AgentInfo, FaultCode, WireFault};

use super::deal::Dealing;
use super::foretell::{binds, remarks};
use super::{Change, Known, refused};
use crate::coordinator::etp::Seen;

/// With `--place anywhere` instances move, too, if a plan with moves is predicted to bring so much more than one without, as a share: rates
/// as measured differ by a few percent from one window to the next.
const MOVES_PAY: f64 = 0.05;

/// A planner looks at each vertex and edge once for each new instance, at least, and nothing else is answered meanwhile.
const MOST_LOOKS: u64 = 1_000_000;

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
        let planner = planner.unwrap_or(Planners::usual(self.spec.options.settings));
        self.planners.get(planner).map_err(|error| refused(error.to_string()))?;
        if instances > 0 && instances < agents {
            return Err(refused(format!(
                "{instances} instances are less than one for each of {agents} more agents"
            )));
        }
        let mut used: Vec<&AgentInfo> = self.used();
        let mut fresh: Vec<&AgentInfo> = self.open().filter(|agent| !self.is_used(agent)).collect();
        fresh.sort_by(|a, b| a.id.name.cmp(&b.id.name));
        if let Some(missing) = (agents as usize).checked_sub(fresh.len()).filter(|missing| *missing > 0) {
            let (all, fresh) = (self.open().count(), fresh.len());
            // Somebody may start them for it: what else is wrong, and that they have no use, is said before that.
            let change = self.with_more(missing).out(agents, instances, Some(planner), anywhere)?;
            if change.add.is_empty() && change.remove.is_empty() {
                return Ok(change);
            }
            let message = format!(
                "--agents {agents}: of {all} agents that take instances {fresh} have none of job {}",
                self.job.name
            );
            return Err(WireFault::new(FaultCode::TooFewAgents, message));
        }
        fresh.truncate(agents as usize);
        let (running, hosts) = self.at_work();
        let slots = match instances {
            0 => {
                let slots = self.planners.slots(planner, agents, running, hosts);
                slots.map_err(|refusal| refused(refusal.0))?
            }
            given => given,
        };
        if slots == 0 {
            return Err(refused(format!(
                "{running} instances on {hosts} agents are less than one for {agents} more agents; say how many with \
                 --instances"
            )));
        }
        // Agents that instances may go to, or come from.
        let candidates: Vec<&AgentInfo> = match (agents, anywhere) {
            (0, _) => used.iter().filter(|agent| self.is_open(agent)).copied().collect(),
            (_, false) => fresh.clone(),
            (_, true) => used.iter().chain(&fresh).filter(|agent| self.is_open(agent)).copied().collect(),
        };
        let mut dealing = Dealing::new(self, candidates.clone());
        dealing.check_any(u64::from(slots))?;
        let looks = u64::from(slots) * (self.dag.vertices.len() + self.dag.edges.len()) as u64;
        if looks > MOST_LOOKS {
            return Err(refused(format!(
                "{slots} new instances of a job of {} vertices and {} edges take a planner too long while the cluster waits \
                 for it: ask for at most {}",
                self.dag.vertices.len(),
                self.dag.edges.len(),
                MOST_LOOKS * u64::from(slots) / looks
            )));
        }
        let fixed = self.fixed_on(&candidates);
        let alone = binds(used.iter().chain(&fresh).copied());
        let Question { seen, observed, rates, mut notes } = self.question(&fixed, alone)?;
        used.extend(&fresh);
        let (mut placement, ids) = self.placement(&used, slots);
        for (machine, agent) in placement.machines.iter_mut().zip(&used) {
            let is_candidate = candidates.iter().any(|one| one.id == agent.id);
            machine.takes = match self.is_open(agent) {
                true if is_candidate => Takes::All,
                true => Takes::Moved,
                false => Takes::Nothing,
            };
        }
        // What has ended is in the rates, and on no agent.
        let graph = observed.graph.with_instances(&placement.instances());
        let known = observed.rates.is_ok().then_some(&rates[..]);
        let calibrated = calibrated(&graph, &placement, seen.engine, known);
        notes.extend(calibrated.sentence());
        let graph = calibrated.graph;
        let ask = Ask {
            graph: &graph,
            engine: seen.engine,
            slots,
            rates,
            congestion: seen.congestion(),
            placement: Some(&placement),
            moving: anywhere.then(|| Moving { stays: self.staying(), pays: MOVES_PAY }),
        };
        let mut plan = self.planners.scale_out(planner, &ask).map_err(|refusal| refused(refusal.0))?;
        let left_out = self.leave_out_moves(&mut plan, &mut notes);
        let mut change = Change { planner: Some(planner.to_owned()), ..Change::default() };
        let mut as_planned = !left_out;
        for step in &plan.steps {
            let vertex = VertexId(step.vertex as u32);
            let chosen = step.machine.and_then(|machine| used.get(machine));
            if let Some(agent) = chosen.filter(|agent| dealing.may_take(vertex, agent, &change)) {
                dealing.put(vertex, &agent.id.name, &mut change);
            } else {
                dealing.deal(vertex, None, &mut change)?;
                as_planned &= chosen.is_none();
            }
        }
        as_planned &= self.moved(&plan.moves, &used, &[], &ids, &mut change)?;
        change.predicted = finite(plan.after).filter(|_| as_planned);
        let whys = plan.steps.iter().map(|step| format!("{} {}", name(self.dag, step.vertex), step.why));
        change.why = reasons(whys);
        if let Some(left) = &plan.left {
            notes.push(format!("{} of {slots} instances are not used: {}", left.slots, left.why));
            let stay = |(id, why): (&VertexId, &String)| {
                format!("{} stays as it is: {why}", name(self.dag, id.0 as usize))
            };
            notes.extend(fixed.iter().map(stay));
        }
        // Else the plan that it has become is predicted like one that nobody planned.
        if let (Some(before), Some(after), true) = (finite(plan.before), finite(plan.after), as_planned) {
            notes.push(format!("the model says {before:.0} rows/s before it and {after:.0} after it"));
        }
        change.notes = notes;
        Ok(change)
    }

    /// The same with so many more agents, as the coordinator is: what would be if they were started.
    pub(super) fn with_more(&self, missing: usize) -> Self {
        let coordinates = |agent: &&AgentInfo| agent.id.name == self.coordinator;
        let like = self.open().find(coordinates).or_else(|| self.open().next());
        let more = like.into_iter().flat_map(|like| {
            (1..=missing).map(|number| {
                let mut agent = like.clone();
                // No agent has such a name.
                agent.id.name = format!("new agent {number}");
                agent
            })
        });
        Self { agents: self.agents.iter().cloned().chain(more).collect(), ..self.clone() }
    }

    /// So many agents less.
    pub(super) fn take(&self, agents: u32, planner: Option<&str>, keep: bool) -> Result<Change, WireFault> {
        let mut used = self.used();
        used.sort_by(|a, b| a.id.name.cmp(&b.id.name));
        let planner = planner.unwrap_or(Planners::usual_in(self.spec.options.settings));
        self.planners.get(planner).map_err(|error| refused(error.to_string()))?;
        let none = BTreeMap::new();
        let Question { seen, observed, rates, mut notes } =
            self.question(&none, binds(used.iter().copied()))?;
        let (mut placement, ids) = self.placement(&used, 0);
        let wanted = agents as usize;
        let kept = self.kept(&used, wanted, keep);
        let too_few = wanted < used.len() && kept.iter().filter(|why| why.is_none()).count() < wanted;
        for (machine, why) in placement.machines.iter_mut().zip(kept) {
            machine.kept = why;
        }
        for (machine, agent) in placement.machines.iter_mut().zip(&used) {
            machine.takes = if self.is_open(agent) { Takes::All } else { Takes::Nothing };
        }
        let known = observed.rates.is_ok().then_some(&rates[..]);
        let calibrated = calibrated(&observed.graph, &placement, seen.engine, known);
        notes.extend(calibrated.sentence());
        let ask = TakeAsk {
            graph: &calibrated.graph,
            placement: &placement,
            engine: seen.engine,
            machines: agents as usize,
            rates,
            congestion: seen.congestion(),
            seed: self.job.run.wrapping_mul(1_000_003).wrapping_add(self.job.epoch()),
        };
        let removal = self.planners.scale_in(planner, &ask);
        let removal = removal
            .map_err(|Refusal(why)| refused(if too_few { self.or_keep(why, &used, keep) } else { why }))?;
        let mut change = Change { planner: Some(planner.to_owned()), ..Change::default() };
        let as_planned = self.moved(&removal.moves, &used, &removal.machines, &ids, &mut change)?;
        let names: Vec<&str> =
            removal.machines.iter().map(|machine| placement.machines[*machine].name.as_str()).collect();
        let names = names.join(", ");
        change.predicted = finite(removal.after).filter(|_| as_planned);
        change.why = Some(format!("{names}: {}", removal.why));
        change.notes = notes;
        for machine in &removal.machines {
            self.note_afterwards(&placement.machines[*machine].name, &mut change, keep);
        }
        if !as_planned {
            change.notes.push("what was planned for agents that take no instances goes to others".to_owned());
        }
        Ok(change)
    }

    /// A planner that moves whatever it likes, as Storm does, is followed as far as can be: of vertices whose instances stay where
    /// they are it moves none, and the notes say so. True if there were such moves.
    fn leave_out_moves(&self, plan: &mut Plan, notes: &mut Vec<String>) -> bool {
        if plan.moves.is_empty() {
            return false;
        }
        let stays = self.staying();
        let mut kept: BTreeMap<usize, usize> = BTreeMap::new();
        plan.moves.retain(|one| {
            let may = !stays[one.vertex];
            if !may {
                *kept.entry(one.vertex).or_default() += 1;
            }
            may
        });
        notes.extend(kept.iter().map(|(vertex, count)| {
            let name = name(self.dag, *vertex);
            format!("{count} of the planner's moves are left out: an instance of {name} cannot move while the job runs")
        }));
        !kept.is_empty()
    }

    /// Moves of a plan: an instance ends, another one begins elsewhere. An agent that takes none gets none: what a planner
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
        let mut dealing = Dealing::of(self, open, change);
        let running: BTreeMap<u32, &Instance> = self.running.iter().map(|one| (one.id, one)).collect();
        let mut as_planned = true;
        let wanted: Vec<(u32, usize, usize)> =
            moves.iter().map(|one| (ids[one.vertex][one.instance], one.vertex, one.to)).collect();
        let from = |id: u32| running.get(&id).map(|one| self.agent_of(one));
        let is_there =
            |id: u32, to: usize| self.is_open(agents[to]) && from(id) == Some(&agents[to].id.name[..]);
        for (id, vertex, to) in without_swaps(&wanted, is_there) {
            let (vertex, to) = (VertexId(vertex as u32), agents[to]);
            if let Some(gone) = running.get(&id) {
                dealing.leaves(gone);
            }
            if self.is_open(to) {
                dealing.put(vertex, &to.id.name, change);
            } else {
                as_planned = false;
                dealing.deal(vertex, Some(id), change)?;
            }
            change.remove.push(id);
        }
        Ok(as_planned)
    }

    /// Instances that have not come to their end, and agents with some: of these new agents get as many as is the mean.
    pub(super) fn at_work(&self) -> (u32, u32) {
        let hosts: BTreeSet<u16> = self.working().map(|one| one.agent).collect();
        (self.working().count() as u32, hosts.len() as u32)
    }

    pub(super) fn is_used(&self, agent: &AgentInfo) -> bool {
        self.running.iter().any(|one| self.agent_of(one) == agent.id.name)
    }

    /// Agents that have instances of the job.
    pub(super) fn used(&self) -> Vec<&AgentInfo> {
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
        let notes = remarks(&running, &observed);
        let rates = observed.rates.clone().unwrap_or_else(|_| {
            let graph = &observed.graph;
            steady(graph, &graph.capacities(&graph.instances()), seen.engine).rates
        });
        Ok(Question { seen, observed, rates, notes })
    }

    /// Which running instance is on which of these agents, and its id by vertex and place; so many more are to come.
    pub(super) fn placement(&self, agents: &[&AgentInfo], more: u32) -> (Placement, Vec<Vec<u32>>) {
        let machine = |agent: &&AgentInfo| {
            // An instance works on one row at a time: a core for each is as good as no limit. Times the slots, so that agents
            // fill up by these.
            let unlimited = || f64::from(agent.slots.max(1)) * (self.running.len() as f64 + f64::from(more));
            let cores = if agent.cores == 0 { unlimited() } else { f64::from(agent.cores) };
            Machine::new(agent.id.name.clone(), cores)
        };
        let machines: Vec<Machine> = agents.iter().map(machine).collect();
        let (mut on, mut ids) =
            (vec![Vec::new(); self.dag.vertices.len()], vec![Vec::new(); self.dag.vertices.len()]);
        for one in self.working() {
            let at = agents.iter().position(|agent| agent.id.name == self.agent_of(one));
            let vertex = one.vertex.0 as usize;
            if let Some(at) = at {
                on[vertex].push(at);
                ids[vertex].push(one.id);
            }
        }
        (Placement { machines, on }, ids)
    }

    /// For each vertex, whether its instances stay where they are: one of them cannot be begun elsewhere and ended here.
    fn staying(&self) -> Vec<bool> {
        // One for each vertex and agent: those beside it are as it is.
        let mut asked: BTreeMap<(VertexId, u16), &Instance> = BTreeMap::new();
        for one in self.working() {
            asked.entry((one.vertex, one.agent)).or_insert(one);
        }
        let mut stays = vec![false; self.dag.vertices.len()];
        for ((vertex, _), one) in asked {
            let here = Change {
                add: vec![(vertex, self.agent_of(one).to_owned())],
                remove: vec![one.id],
                ..Change::default()
            };
            let stays = &mut stays[vertex.0 as usize];
            *stays = *stays || self.changed(&here).is_err();
        }
        stays
    }

    /// All that is on an agent and has not ended could be on this other one: asked first, for it is one question.
    fn can_follow(&self, agent: &AgentInfo, other: &AgentInfo) -> bool {
        let here = self.running.iter().filter(|one| self.agent_of(one) == agent.id.name);
        let here: Vec<&Instance> = here.filter(|one| !self.job.ended.contains_key(&one.id)).collect();
        let all = Change {
            add: here.iter().map(|one| (one.vertex, other.id.name.clone())).collect(),
            remove: here.iter().map(|one| one.id).collect(),
            ..Change::default()
        };
        self.changed(&all).is_ok()
    }

    /// Of each of these agents why it cannot be given back, if so many are to be. Those that other jobs use are left out as long
    /// as there are enough without them; the plan says that they stay. Where agents are to be emptied only (`keep`), the same holds
    /// of those that would stay in any case.
    pub(super) fn kept(&self, used: &[&AgentInfo], wanted: usize, keep: bool) -> Vec<Option<String>> {
        let stays = used.iter().map(|agent| self.stays(agent));
        let cannot: Vec<Option<String>> = used.iter().map(|agent| self.cannot_leave(agent, used)).collect();
        let hard: Vec<Option<String>> =
            stays.zip(&cannot).map(|(stays, cannot)| stays.or_else(|| cannot.clone())).collect();
        let shared = used.iter().zip(&hard).map(|(agent, hard)| {
            let why = || self.shared.contains(&agent.id.name).then(|| "another job uses it".to_owned());
            hard.clone().or_else(why)
        });
        let is_enough =
            |kept: &Vec<Option<String>>| kept.iter().filter(|why| why.is_none()).count() >= wanted;
        let mut tried = [shared.collect(), hard.clone()].into_iter();
        tried.find(is_enough).unwrap_or(if keep { cannot } else { hard })
    }

    /// A refusal to give agents back, and what can be done where some of them could be emptied.
    pub(super) fn or_keep(&self, why: String, used: &[&AgentInfo], keep: bool) -> String {
        let could =
            |agent: &&AgentInfo| self.stays(agent).is_some() && self.cannot_leave(agent, used).is_none();
        match used.iter().filter(|_| !keep).find(|agent| could(agent)) {
            Some(agent) => format!(
                "{why}; with --keep agents are emptied and stay in the cluster ({} can be)",
                agent.id.name
            ),
            None => why,
        }
    }

    /// Why an agent stays in the cluster, though all that can leave it has.
    fn stays(&self, agent: &AgentInfo) -> Option<String> {
        let name = &agent.id.name;
        if name == self.coordinator {
            return Some("it coordinates".to_owned());
        }
        if let Some(one) = self.files_on(name, &|_| true) {
            return Some(format!("files of {} are there until the job has ended", self.name_of(one)));
        }
        // Tables of joins go with those.
        let is_the_jobs = |one: &&Instance| {
            self.job.ended.contains_key(&one.id)
                && self.agent_of(one) == name
                && !matches!(self.dag.vertex(one.vertex).role, Role::Collector { .. })
        };
        let one = self.running.iter().find(is_the_jobs)?;
        Some(format!("{} has ended there, and is the job's until that has", self.name_of(one)))
    }

    /// Why an agent cannot be emptied: something on it can move to none of the others, or there is nothing to move.
    fn cannot_leave(&self, agent: &AgentInfo, used: &[&AgentInfo]) -> Option<String> {
        let others: Vec<&AgentInfo> = used.iter().copied().filter(|other| other.id != agent.id).collect();
        if others.is_empty() {
            return None;
        }
        if !self.working().any(|one| self.agent_of(one) == agent.id.name) {
            return Some("nothing of the job works there".to_owned());
        }
        let open: Vec<&AgentInfo> = others.into_iter().filter(|other| self.is_open(other)).collect();
        if open.first().is_some_and(|other| self.can_follow(agent, other)) {
            return None;
        }
        let (_, stays) = self.evacuate_to(&agent.id.name, &open);
        // What has ended moves no more.
        let first = stays.into_iter().find(|one| !self.job.ended.contains_key(&one.instance.id))?;
        Some(format!("{} cannot leave: {}", first.instance.name, first.why))
    }
}

/// Moves of instances (id, vertex, to which agent) without those that leave as many of a vertex on an agent as there were: one
/// that leaves while another one comes stays instead, for they are alike. `is_there`: it is on that agent now.
fn without_swaps(
    moves: &[(u32, usize, usize)],
    is_there: impl Fn(u32, usize) -> bool,
) -> Vec<(u32, usize, usize)> {
    let mut leaving: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    let mut coming: BTreeMap<usize, BTreeMap<usize, usize>> = BTreeMap::new();
    for (id, vertex, to) in moves {
        leaving.entry(*vertex).or_default().push(*id);
        *coming.entry(*vertex).or_default().entry(*to).or_default() += 1;
    }
    let mut left = Vec::new();
    for (vertex, mut coming) in coming {
        let mut leave = leaving.remove(&vertex).unwrap_or_default();
        for (to, count) in &mut coming {
            leave.retain(|id| {
                let stays = *count > 0 && is_there(*id, *to);
                *count -= usize::from(stays);
                !stays
            });
        }
        let to = coming.into_iter().flat_map(|(to, count)| std::iter::repeat_n(to, count));
        left.extend(leave.into_iter().zip(to).map(|(id, to)| (id, vertex, to)));
    }
    left
}

/// The most reasons of a plan that are said.
const MOST_REASONS: usize = 4;

/// Why instances come, each reason once and with how many have it; `None`: there are none.
fn reasons(all: impl Iterator<Item = String>) -> Option<String> {
    let mut each: Vec<(String, usize)> = Vec::new();
    for why in all {
        match each.iter_mut().find(|(known, _)| *known == why) {
            Some((_, count)) => *count += 1,
            None => each.push((why, 1)),
        }
    }
    let rest: usize = each.iter().skip(MOST_REASONS).map(|(_, count)| count).sum();
    let said = each.iter().take(MOST_REASONS).map(|(why, count)| match count {
        1 => why.clone(),
        count => format!("{why} ({count} times)"),
    });
    let rest = (rest > 0).then(|| format!("and so on for {rest} more"));
    let said: Vec<String> = said.chain(rest).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

fn finite(rate: f64) -> Option<f64> {
    rate.is_finite().then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_said_once() {
        let said = |whys: &[&str]| reasons(whys.iter().map(|why| (*why).to_owned()));
        assert_eq!(said(&[]), None);
        assert_eq!(said(&["a", "b", "a"]).as_deref(), Some("a (2 times); b"));
        assert_eq!(
            said(&["a", "b", "c", "d", "e", "e", "f"]).as_deref(),
            Some("a; b; c; d; and so on for 3 more")
        );
    }

    #[test]
    fn an_instance_stays_where_another_one_of_its_vertex_would_come() {
        // Instance i is on agent i; 7 is of another vertex and on agent 1.
        let is_there = |id: u32, to: usize| id as usize % 6 == to;
        let moves = |all: &[(u32, usize, usize)]| without_swaps(all, is_there);
        assert_eq!(moves(&[(0, 3, 1), (1, 3, 0)]), [], "they change places");
        assert_eq!(moves(&[(2, 3, 2)]), [], "it is there");
        assert_eq!(moves(&[(0, 3, 1), (1, 3, 2), (2, 3, 4)]), [(0, 3, 4)]);
        assert_eq!(moves(&[(0, 3, 1), (7, 4, 0)]), [(0, 3, 1), (7, 4, 0)]);
        assert_eq!(moves(&[(0, 3, 1), (2, 3, 1)]), [(0, 3, 1), (2, 3, 1)]);
    }
}
