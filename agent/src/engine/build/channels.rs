//! The channels of a run on this agent: who sends to whom, each inbox's channels, and the doors by which frames
//! of other agents find them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::Notify;
use tuplane_core::plan::placement::{Instance as Placed, targets, targets_of};
use tuplane_core::plan::{EdgeId, Routing, VertexId, in_step};
use tuplane_core::route::make_policy;
use tuplane_expr::VertexProgram;
use tuplane_wire::message::{FaultCode, WireFault};

use super::{Builder, internal};
use crate::engine::lock;
use crate::engine::routing::DEFAULT_POLICY;
use crate::exchange::body::fingerprint;
use crate::exchange::credit::{Credit, FIRST_WINDOW, LEAST_WINDOW, UNBOUNDED};
use crate::exchange::edge::{policy_seed, pool_targets};
use crate::exchange::inbound::{Door, DoorEnd};
use crate::exchange::inbox::{Inbox, InputSpec, Upstream};
use crate::exchange::lane;
use crate::exchange::outlet::Link;
use crate::exchange::outqueue::OutQueue;

/// The input side of an instance here.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) inbox: Arc<Inbox>,
    /// Its channels by the number of the edge (or its lane) and the sending agent.
    pub(super) channels: HashMap<(u32, u16), usize>,
}

/// What has channels of its own on an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) agent: u16,
    /// On an ordered edge: which of that agent's instances, in the order of their ids.
    of_agent: Option<u32>,
}

impl Lane {
    /// That of all senders on an agent.
    pub(super) fn of(agent: u16) -> Self {
        Self { agent, of_agent: None }
    }

    /// Its number between agents.
    pub(super) fn number(self, edge: EdgeId) -> Result<u32, WireFault> {
        let number = lane::number(edge.0, self.of_agent);
        number.ok_or_else(|| internal("an ordered edge has more senders than channels have numbers"))
    }
}

impl Builder<'_> {
    /// Agents that send on an edge to an instance, by index.
    fn senders(&self, edge: EdgeId, target: &Placed) -> Vec<u16> {
        let planned = self.dag.edge(edge);
        // One that goes is sent to by those alone that did so before, if it does not hold key partitions until then.
        let goes = self.plan.going.contains(&target.id) && !self.plan.moves(target.vertex);
        let distributed = if goes { self.was_distributed(edge) } else { planned.distributed };
        let mut agents: Vec<u16> = self
            .plan
            .instances
            .iter()
            .filter(|i| i.vertex == planned.from && (distributed || i.agent == target.agent))
            .filter(|i| !goes || !self.plan.coming.contains(&i.id))
            .map(|i| i.agent)
            .collect();
        agents.sort_unstable();
        agents.dedup();
        agents
    }

    fn was_distributed(&self, edge: EdgeId) -> bool {
        self.old.as_ref().map_or(self.dag.edge(edge).distributed, |old| old.dag.edge(edge).distributed)
    }

    /// Some instance of a vertex on an agent has sent rows by the plan before.
    pub(super) fn sent_before(&self, vertex: VertexId, agent: u16) -> bool {
        self.plan.senders_before().any(|i| i.vertex == vertex && i.agent == agent)
    }

    /// Instances that take rows of an edge on this agent, those too that go.
    fn takers(&self, edge: EdgeId) -> Vec<Placed> {
        let reached = targets(&self.dag, edge, &self.plan.instances, self.me);
        let all = self.plan.instances.iter();
        all.filter(|i| i.agent == self.me && reached.contains(&i.id)).copied().collect()
    }

    /// What has channels of its own to the targets on an agent: the sending agents, or on an ordered edge
    /// the sending instances. Merged rows that are alike come in this order.
    pub(super) fn lanes(&self, edge: EdgeId, target_agent: u16) -> Vec<Lane> {
        let to = self.dag.edge(edge).to;
        let mut targets = self.plan.instances.iter().filter(|i| i.vertex == to && i.agent == target_agent);
        // An agent may send that has none of them.
        let here = Placed { id: u32::MAX, vertex: to, number: 0, agent: target_agent };
        let stays = targets.find(|i| !self.plan.going.contains(&i.id)).copied();
        self.lanes_to(edge, &stays.unwrap_or(here))
    }

    /// The same, of one instance.
    fn lanes_to(&self, edge: EdgeId, target: &Placed) -> Vec<Lane> {
        let agents = self.senders(edge, target);
        if !self.dag.edge(edge).ordered {
            return agents.into_iter().map(Lane::of).collect();
        }
        let from = self.dag.edge(edge).from;
        let mut lanes = Vec::new();
        for agent in agents {
            let here = self.plan.instances.iter().filter(|i| i.vertex == from && i.agent == agent).count();
            lanes.extend((0..here as u32).map(|number| Lane { agent, of_agent: Some(number) }));
        }
        lanes
    }

    /// The credit of a channel within this agent.
    pub(super) fn local_credit(
        &self,
        edge: EdgeId,
        number: u32,
        target: u32,
        wake: &Arc<Notify>,
    ) -> Arc<Credit> {
        let mut credits = self.credits.borrow_mut();
        let credit = credits.entry((number, target)).or_insert_with(|| self.new_credit(edge, target, wake));
        Arc::clone(credit)
    }

    /// The credit of a channel to an instance that there was, or that joins.
    pub(super) fn new_credit(&self, edge: EdgeId, target: u32, wake: &Arc<Notify>) -> Arc<Credit> {
        let window = match (self.grows(edge), self.plan.coming.contains(&target)) {
            (true, _) => UNBOUNDED,
            (false, true) => FIRST_WINDOW,
            (false, false) => LEAST_WINDOW,
        };
        Credit::with(Arc::clone(wake), window)
    }

    /// Instances whose key partitions this plan moves do not end before that is over.
    pub(super) fn open_moves(
        &self,
        mine: &[Placed],
        inboxes: &HashMap<u32, Inputs>,
    ) -> Result<(), WireFault> {
        for placed in mine.iter().filter(|placed| self.plan.moves(placed.vertex)) {
            let inbox = &inboxes[&placed.id].inbox;
            inbox.open_moves().map_err(|why| self.refusal(placed, &why))?;
            self.undo.moves(inbox);
        }
        Ok(())
    }

    /// Sources that were here do not end while others may hand them what they have not read.
    pub(super) fn expect_units(&self) -> Result<(), WireFault> {
        let gives =
            |id: u32| self.plan.sources.iter().flat_map(|one| &one.givers).any(|giver| giver.instance == id);
        for local in self.old() {
            let placed = &local.placed;
            if gives(placed.id) {
                self.can_give(placed)?;
            } else if self.plan.is_handed(placed.id) {
                local.hand.expect().map_err(|why| self.refusal(placed, &why))?;
                self.undo.hand(local);
            }
        }
        Ok(())
    }

    /// What a source reads of this agent's own files can be gone on with.
    fn can_give(&self, placed: &Placed) -> Result<(), WireFault> {
        let stage = self.stage(placed.vertex)?;
        let own = self.old.as_ref().and_then(|old| old.own_splits.get(&stage.id));
        match own.into_iter().flatten().find(|split| split.seen.is_none()) {
            Some(pipe) => {
                let why = format!(
                    "{} on agent {} is a pipe or a device: what was read from it cannot be read again",
                    pipe.path, self.shared.me.name
                );
                Err(self.refusal(placed, &why))
            }
            None => Ok(()),
        }
    }

    fn refusal(&self, placed: &Placed, why: &str) -> WireFault {
        let name = format!("{}#{}", self.dag.vertex(placed.vertex).label(), placed.number);
        WireFault::new(FaultCode::Refused, format!("{name}: {why}"))
    }

    fn upstream(&self, edge: EdgeId, number: u32, lane: Lane, target: u32, wake: &Arc<Notify>) -> Upstream {
        if lane.agent == self.me {
            return Upstream::Local(self.local_credit(edge, number, target, wake));
        }
        let peer = &self.plan.agents[usize::from(lane.agent)].id;
        Upstream::Remote(self.shared.session_from(peer).notes())
    }

    /// The inboxes of the instances here: of new ones, and of those that there were with channels for senders that
    /// are new to them.
    pub(super) fn inboxes(
        &self,
        mine: &[Placed],
        fresh: &[Placed],
        bound: u64,
        wakes: &HashMap<u32, Arc<Notify>>,
    ) -> Result<HashMap<u32, Inputs>, WireFault> {
        let mut inboxes = HashMap::new();
        let in_step = in_step(&self.dag, &self.job);
        for placed in mine {
            let made = if fresh.iter().any(|new| new.id == placed.id) {
                let made = self.new_inputs(placed, bound, wakes)?;
                for (number, (_, edge)) in self.dag.inputs(placed.vertex).enumerate() {
                    if in_step[edge.from.0 as usize] {
                        made.inbox.keep_in_step(number);
                    }
                }
                made
            } else {
                self.more_inputs(placed, wakes)?
            };
            inboxes.insert(placed.id, made);
        }
        Ok(inboxes)
    }

    fn new_inputs(
        &self,
        placed: &Placed,
        bound: u64,
        wakes: &HashMap<u32, Arc<Notify>>,
    ) -> Result<Inputs, WireFault> {
        let (mut inputs, mut numbers) = (Vec::new(), HashMap::new());
        for (id, edge) in self.dag.inputs(placed.vertex) {
            // To one that joins a run the tables of a join come otherwise.
            let has_table = self.dag.hands_table(edge) && self.plan.coming.contains(&placed.id);
            let takes = !has_table && self.takers(id).iter().any(|t| t.id == placed.id);
            let mut channels = Vec::new();
            for lane in if takes { self.lanes_to(id, placed) } else { Vec::new() } {
                let number = lane.number(id)?;
                numbers.insert((number, lane.agent), numbers.len());
                channels.push(self.upstream(id, number, lane, placed.id, &wakes[&id.0]));
            }
            inputs.push(InputSpec { edge: id.0, priority: edge.priority, channels });
        }
        let inbox = Inbox::new(inputs, bound, Arc::clone(&self.budget));
        for (input, (id, _)) in self.dag.inputs(placed.vertex).enumerate() {
            if self.grows(id) {
                inbox.let_grow(input);
            }
        }
        if self.plan.coming.contains(&placed.id) {
            inbox.begin_small();
        }
        Ok(Inputs { inbox, channels: numbers })
    }

    /// Channels for senders that an instance here has not had, or whose place others take.
    fn more_inputs(&self, placed: &Placed, wakes: &HashMap<u32, Arc<Notify>>) -> Result<Inputs, WireFault> {
        let Some(local) = self.old().find(|local| local.placed.id == placed.id) else {
            return Err(internal("an instance that there was has no inbox"));
        };
        let refused = |why: String| self.refusal(placed, &why);
        for (input, (id, _)) in self.dag.inputs(placed.vertex).enumerate() {
            if !self.takers(id).iter().any(|taker| taker.id == placed.id) {
                continue;
            }
            for lane in self.lanes_to(id, placed) {
                let number = lane.number(id)?;
                let reached = self.was_distributed(id) || lane.agent == placed.agent;
                if reached && self.sent_before(self.dag.edge(id).from, lane.agent) {
                    continue;
                }
                let known = lock(&local.channels).get(&(number, lane.agent)).copied();
                if let Some(channel) = known {
                    local.inbox.reopen(channel).map_err(refused)?;
                    self.undo.channel_in(local, channel, None);
                } else {
                    let upstream = self.upstream(id, number, lane, placed.id, &wakes[&id.0]);
                    let channel = local.inbox.join(input, upstream).map_err(refused)?;
                    lock(&local.channels).insert((number, lane.agent), channel);
                    self.undo.channel_in(local, channel, Some((number, lane.agent)));
                }
            }
        }
        Ok(Inputs { inbox: Arc::clone(&local.inbox), channels: lock(&local.channels).clone() })
    }

    pub(super) fn channel(
        &self,
        target: Placed,
        number: u32,
        inboxes: &HashMap<u32, Inputs>,
    ) -> Result<Link, WireFault> {
        let Inputs { inbox, channels } = &inboxes[&target.id];
        let channel = channels.get(&(number, self.me)).copied();
        let channel = channel.ok_or_else(|| internal("an edge and its target's inputs disagree"))?;
        Ok(Link::Local { inbox: Arc::clone(inbox), channel })
    }

    /// A sender's queue on an edge.
    pub(super) fn out_queue(&self, edge: EdgeId, sender: &Placed) -> Result<OutQueue, WireFault> {
        // The edge's targets now, in the order of its outlets: a plan that changes them changes this too.
        let outlets = match self.old_edge(edge) {
            Some(old) => old.list(),
            None => self.ordered_targets(edge).iter().map(|target| (target.id, target.agent)).collect(),
        };
        if !matches!(self.dag.edge(edge).routing, Routing::Unicast | Routing::Isolated) {
            return Ok(OutQueue::lanes(outlets.len()));
        }
        let senders: Vec<Placed> = self.plan.targets().copied().collect();
        let mine = targets_of(&self.dag, edge, &senders, sender);
        let isolated = self.dag.edge(edge).routing == Routing::Isolated;
        let (view, outlets) = pool_targets(outlets, self.me, &|id| !isolated || mine.contains(&id));
        // The edge's own policy is set once all its senders are there.
        let policy = make_policy(DEFAULT_POLICY, policy_seed(edge.0, sender.id))
            .map_err(|e| internal(&e.to_string()))?;
        Ok(OutQueue::pool(policy, view, outlets))
    }

    /// Frames of an edge from other agents find their inboxes.
    pub(super) fn open_doors(
        &self,
        edge: EdgeId,
        inboxes: &HashMap<u32, Inputs>,
        programs: &HashMap<VertexId, VertexProgram>,
    ) -> Result<(), WireFault> {
        if !self.dag.edge(edge).distributed {
            return Ok(());
        }
        let mut doors: BTreeMap<(u32, u16), Vec<DoorEnd>> = BTreeMap::new();
        for target in self.takers(edge) {
            let Inputs { inbox, channels } = &inboxes[&target.id];
            for lane in self.lanes_to(edge, &target).into_iter().filter(|lane| lane.agent != self.me) {
                let number = lane.number(edge)?;
                let channel = channels.get(&(number, lane.agent)).copied();
                let channel = channel.ok_or_else(|| internal("an edge and its target's inputs disagree"))?;
                doors.entry((number, lane.agent)).or_default().push((target.id, Arc::clone(inbox), channel));
            }
        }
        for ((number, agent), targets) in doors {
            let schema = Arc::clone(&programs[&self.dag.edge(edge).from].output);
            let (fingerprint, budget) = (fingerprint(&schema), Arc::clone(&self.budget));
            let door = Door { fingerprint, schema, budget, attempt: self.plan.attempt, targets };
            let session = self.shared.session_from(&self.plan.agents[usize::from(agent)].id);
            let before = session.open(self.plan.run, number, door);
            self.undo.door(&session, self.plan.run, number, before);
        }
        Ok(())
    }
}
