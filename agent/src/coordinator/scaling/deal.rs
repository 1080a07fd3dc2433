//! Where new instances go: agents that may take one of a vertex, and of those the one with the fewest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use tuplane_core::plan::placement::Instance;
use tuplane_core::plan::{LEAST_QUEUE, MOST_INSTANCES, VertexId, reads_on};
use tuplane_wire::message::{AgentInfo, WireFault};

use super::{Change, Known, refused};

/// What decides which vertices can have more instances, or fewer: the plan, how many instances have ended, and the agents
/// that take some, with their slots.
pub(in crate::coordinator) type Stands = (u64, usize, Vec<(String, u32)>);

/// What an agent has of a job.
#[derive(Debug, Default)]
struct Here {
    of: HashMap<VertexId, u64>,
    all: u64,
    queues: u64,
}

/// Instances that are dealt one by one. What each agent has is counted once, and then added up.
pub(super) struct Dealing<'a> {
    known: &'a Known<'a>,
    candidates: Vec<&'a AgentInfo>,
    here: HashMap<&'a str, Here>,
    /// Those of the candidates that may take an instance, found when one of its vertex is dealt first.
    takers: HashMap<VertexId, Vec<&'a AgentInfo>>,
}

impl<'a> Dealing<'a> {
    /// Everything as it runs; new instances go to these.
    pub(super) fn new(known: &'a Known<'a>, candidates: Vec<&'a AgentInfo>) -> Self {
        let mut dealing = Self { known, candidates, here: HashMap::new(), takers: HashMap::new() };
        for one in &known.running {
            dealing.count(one.vertex, known.agent_of(one));
        }
        dealing
    }

    /// Everything as it is after a change; further instances go to these.
    pub(super) fn of(known: &'a Known<'a>, candidates: Vec<&'a AgentInfo>, change: &Change) -> Self {
        let mut dealing = Self::new(known, candidates);
        let gone: BTreeSet<u32> = change.remove.iter().copied().collect();
        for one in known.running.iter().filter(|one| gone.contains(&one.id)) {
            dealing.leaves(one);
        }
        for (vertex, agent) in &change.add {
            if let Some(info) = known.agents.iter().find(|info| info.id.name == *agent) {
                dealing.count(*vertex, &info.id.name);
            }
        }
        dealing
    }

    fn count(&mut self, vertex: VertexId, agent: &'a str) {
        let here = self.here.entry(agent).or_default();
        *here.of.entry(vertex).or_default() += 1;
        here.all += 1;
        here.queues += self.known.queues(vertex);
    }

    /// An instance that runs will be gone.
    pub(super) fn leaves(&mut self, one: &Instance) {
        let known = self.known;
        let Some(here) = self.here.get_mut(known.agent_of(one)) else { return };
        let of = here.of.entry(one.vertex).or_default();
        *of = of.saturating_sub(1);
        here.all = here.all.saturating_sub(1);
        here.queues = here.queues.saturating_sub(known.queues(one.vertex));
    }

    /// Puts a new instance on an agent that somebody has chosen.
    pub(super) fn put(&mut self, vertex: VertexId, agent: &str, change: &mut Change) {
        let known = self.known;
        if let Some(info) = known.agents.iter().find(|info| info.id.name == agent) {
            self.count(vertex, &info.id.name);
        }
        change.add.push((vertex, agent.to_owned()));
    }

    /// Puts a new instance on the candidate with the fewest of its vertex, and of those on the one with the fewest in all for
    /// its slots, if it may take one and has room for the queues. An instance that runs may end for it.
    pub(super) fn deal(
        &mut self,
        vertex: VertexId,
        instead: Option<u32>,
        change: &mut Change,
    ) -> Result<(), WireFault> {
        if !self.takers.contains_key(&vertex) {
            let takers = self.known.takers(vertex, &self.candidates, change, instead)?;
            self.takers.insert(vertex, takers);
        }
        let nothing = Here::default();
        let more = self.known.queues(vertex);
        let key = |agent: &&&'a AgentInfo| {
            let here = self.here.get(agent.id.name.as_str()).unwrap_or(&nothing);
            let own = here.of.get(&vertex).copied().unwrap_or(0);
            (own, here.all * 1000 / u64::from(agent.slots.max(1)), agent.id.name.as_str())
        };
        let has_room = |agent: &&&'a AgentInfo| {
            let used = self.here.get(agent.id.name.as_str()).map_or(0, |here| here.queues);
            self.known.queues_held(&agent.id.name).is_none_or(|held| used + more <= held)
        };
        let found = self.takers[&vertex].iter().filter(has_room).min_by_key(key).copied();
        let Some(agent) = found else { return Err(self.no_room(Some(vertex), more, 1, 0)) };
        self.count(vertex, &agent.id.name);
        change.add.push((vertex, agent.id.name.clone()));
        Ok(())
    }

    /// Whether so many more instances of a vertex can be had at all, before any of them is dealt.
    pub(super) fn check(&self, vertex: VertexId, more: u64) -> Result<(), WireFault> {
        let own: u64 = self.here.values().filter_map(|here| here.of.get(&vertex)).sum();
        if own + more > MOST_INSTANCES as u64 {
            let label = self.known.dag.vertex(vertex).label();
            let message = format!("`{label}` would get {} instances, more than {MOST_INSTANCES}", own + more);
            return Err(refused(message));
        }
        self.check_room(Some(vertex), self.known.queues(vertex), more)
    }

    /// Whether so many more instances can be had at all, even if they are of the vertex with the fewest queues.
    pub(super) fn check_any(&self, more: u64) -> Result<(), WireFault> {
        let ids = (0..self.known.dag.vertices.len() as u32).map(VertexId);
        let least = ids.map(|vertex| self.known.queues(vertex)).min().unwrap_or(0);
        self.check_room(None, least, more)
    }

    fn check_room(&self, vertex: Option<VertexId>, queues: u64, more: u64) -> Result<(), WireFault> {
        let nothing = Here::default();
        let room = self.candidates.iter().map(|agent| {
            let used = self.here.get(agent.id.name.as_str()).unwrap_or(&nothing).queues;
            let held = self.known.queues_held(&agent.id.name);
            held.map_or(u64::MAX, |held| held.saturating_sub(used) / queues.max(1))
        });
        let room = room.fold(0, u64::saturating_add);
        if room < more && !self.candidates.is_empty() {
            return Err(self.no_room(vertex, queues, more, room));
        }
        Ok(())
    }

    /// Whether an agent may take an instance beside a change: the candidates are asked about once.
    pub(super) fn may_take(&mut self, vertex: VertexId, agent: &AgentInfo, change: &Change) -> bool {
        if !self.takers.contains_key(&vertex) {
            let Ok(takers) = self.known.takers(vertex, &self.candidates, change, None) else { return false };
            self.takers.insert(vertex, takers);
        }
        self.takers[&vertex].iter().any(|taker| taker.id == agent.id)
    }

    fn no_room(&self, vertex: Option<VertexId>, queues: u64, more: u64, room: u64) -> WireFault {
        let label = vertex
            .map_or_else(|| "any vertex".to_owned(), |id| format!("`{}`", self.known.dag.vertex(id).label()));
        let names: Vec<&str> = self.candidates.iter().take(5).map(|agent| agent.id.name.as_str()).collect();
        let rest = self.candidates.len() - names.len();
        let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        refused(format!(
            "{more} more of {label} are wanted, and there is room for {room} on {}{rest}: each has queues of {} KiB at least \
             ({queues} of them), and those of a job may fill half of what an agent's queues may hold, or the job's `memory`",
            names.join(", "),
            LEAST_QUEUE >> 10
        ))
    }
}

impl Known<'_> {
    /// Of these agents those that may take one more instance of a vertex, beside a change, and instead of another instance if
    /// one is given. Agents that have instances of the same vertices are alike, and one of them is asked about.
    ///
    /// # Errors
    /// With the first reason, if none may.
    pub(super) fn takers<'a>(
        &self,
        vertex: VertexId,
        candidates: &[&'a AgentInfo],
        change: &Change,
        instead: Option<u32>,
    ) -> Result<Vec<&'a AgentInfo>, WireFault> {
        let mut has: HashMap<&str, BTreeSet<VertexId>> = HashMap::new();
        let gone: BTreeSet<u32> = change.remove.iter().copied().chain(instead).collect();
        for one in self.running.iter().filter(|one| !gone.contains(&one.id)) {
            has.entry(self.agent_of(one)).or_default().insert(one.vertex);
        }
        for (vertex, agent) in &change.add {
            has.entry(agent.as_str()).or_default().insert(*vertex);
        }
        let mut answers: HashMap<(BTreeSet<VertexId>, bool), Option<String>> = HashMap::new();
        let (mut takers, mut first) = (Vec::new(), None);
        for agent in candidates {
            let alike = has.get(agent.id.name.as_str()).cloned().unwrap_or_default();
            let may_be_there = reads_on(self.spec, self.dag, vertex, &agent.id.name);
            let why = answers.entry((alike, may_be_there)).or_insert_with(|| {
                let mut more = change.clone();
                more.add.push((vertex, agent.id.name.clone()));
                more.remove.extend(instead);
                self.changed(&more).err().map(|fault| fault.message)
            });
            match why {
                None => takers.push(*agent),
                Some(why) => first = first.or_else(|| Some(why.clone())),
            }
        }
        if takers.is_empty() {
            return Err(refused(first.unwrap_or_else(|| "no agent has a slot to run instances".to_owned())));
        }
        Ok(takers)
    }

    /// See [`Stands`].
    pub(in crate::coordinator) fn stands(&self) -> Stands {
        let open = self.open().map(|agent| (agent.id.name.clone(), agent.slots)).collect();
        (self.job.epoch(), self.job.ended.len(), open)
    }

    /// Vertices of which no instance can be added on any of these agents, and why.
    pub(in crate::coordinator) fn fixed_on(&self, agents: &[&AgentInfo]) -> BTreeMap<VertexId, String> {
        let ids = (0..self.dag.vertices.len() as u32).map(VertexId);
        let none = Change::default();
        ids.filter_map(|id| Some((id, self.takers(id, agents, &none, None).err()?.message))).collect()
    }

    /// Which of a vertex' instances end, so many: those of agents that are drained first, then of agents that have most of
    /// them, where fewest rows wait.
    pub(super) fn to_end(&self, vertex: VertexId, count: usize) -> Vec<u32> {
        let mut on: HashMap<u16, Vec<&Instance>> = HashMap::new();
        for one in self.running.iter().filter(|one| one.vertex == vertex) {
            on.entry(one.agent).or_default().push(one);
        }
        let mut on: Vec<(bool, Vec<&Instance>)> = on
            .into_values()
            .map(|mut own| {
                own.sort_by_cached_key(|one| (Reverse(self.queued(one)), one.number));
                (self.drained.contains(self.agent_of(own[0])), own)
            })
            .collect();
        let mut going = Vec::new();
        while going.len() < count {
            let key = |(drained, own): &(bool, Vec<&Instance>)| {
                let last = own.last().map(|one| (Reverse(self.queued(one)), one.number));
                (!own.is_empty(), *drained, own.len(), last)
            };
            let most = (0..on.len()).max_by_key(|index| key(&on[*index]));
            let Some(one) = most.and_then(|index| on[index].1.pop()) else { break };
            going.push(one.id);
        }
        going
    }
}
