//! The channels of a run on this agent: who sends to whom, each inbox's channels, and the doors by which frames
//! of other agents find them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::Notify;
use tuplane_core::plan::placement::{Instance as Placed, targets, targets_of};
use tuplane_core::plan::{EdgeId, Routing, VertexId, in_step};
use tuplane_core::route::{Targets, make_policy};
use tuplane_expr::VertexProgram;
use tuplane_wire::message::WireFault;

use super::{Builder, internal};
use crate::engine::routing::DEFAULT_POLICY;
use crate::exchange::body::fingerprint;
use crate::exchange::credit::Credit;
use crate::exchange::edge::policy_seed;
use crate::exchange::inbound::Door;
use crate::exchange::inbox::{Inbox, InputSpec, Upstream};
use crate::exchange::lane;
use crate::exchange::outlet::Link;
use crate::exchange::outqueue::OutQueue;

/// What has channels of its own on an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) agent: u16,
    /// On an ordered edge: which of that agent's instances, in the order of their ids.
    of_agent: Option<u32>,
}

impl Lane {
    /// Its number between agents.
    pub(super) fn number(self, edge: EdgeId) -> Result<u32, WireFault> {
        let number = lane::number(edge.0, self.of_agent);
        number.ok_or_else(|| internal("an ordered edge has more senders than channels have numbers"))
    }
}

impl Builder<'_> {
    /// Agents that send on an edge to instances here or (distributed) anywhere, by index.
    fn senders(&self, edge: EdgeId, target_agent: u16) -> Vec<u16> {
        let edge = self.dag.edge(edge);
        let mut agents: Vec<u16> = self
            .plan
            .instances
            .iter()
            .filter(|i| i.vertex == edge.from && (edge.distributed || i.agent == target_agent))
            .map(|i| i.agent)
            .collect();
        agents.sort_unstable();
        agents.dedup();
        agents
    }

    /// Instances that take rows of an edge on an agent.
    fn takers(&self, edge: EdgeId, agent: u16) -> Vec<Placed> {
        let reached = targets(&self.dag, edge, &self.plan.instances, agent);
        self.plan.instances.iter().filter(|i| i.agent == agent && reached.contains(&i.id)).copied().collect()
    }

    /// What has channels of its own to the targets on an agent: the sending agents, or on an ordered edge
    /// the sending instances. Merged rows that are alike come in this order.
    pub(super) fn lanes(&self, edge: EdgeId, target_agent: u16) -> Vec<Lane> {
        if !self.dag.edge(edge).ordered {
            let agents = self.senders(edge, target_agent).into_iter();
            return agents.map(|agent| Lane { agent, of_agent: None }).collect();
        }
        let from = self.dag.edge(edge).from;
        let mut lanes = Vec::new();
        for agent in self.senders(edge, target_agent) {
            let here = self.plan.instances.iter().filter(|i| i.vertex == from && i.agent == agent).count();
            lanes.extend((0..here as u32).map(|number| Lane { agent, of_agent: Some(number) }));
        }
        lanes
    }

    pub(super) fn local_credits(
        &self,
        wakes: &HashMap<u32, Arc<Notify>>,
    ) -> Result<HashMap<(u32, u32), Arc<Credit>>, WireFault> {
        let mut credits = HashMap::new();
        for (index, wake) in wakes {
            let edge = EdgeId(*index);
            for lane in self.lanes(edge, self.me).into_iter().filter(|lane| lane.agent == self.me) {
                for target in self.takers(edge, self.me) {
                    credits.insert((lane.number(edge)?, target.id), Credit::new(Arc::clone(wake)));
                }
            }
        }
        Ok(credits)
    }

    pub(super) fn inboxes(
        &self,
        local: &[Placed],
        bound: u64,
        credits: &HashMap<(u32, u32), Arc<Credit>>,
    ) -> Result<HashMap<u32, Arc<Inbox>>, WireFault> {
        let mut inboxes = HashMap::new();
        let in_step = in_step(&self.dag, &self.job);
        for placed in local {
            let mut inputs = Vec::new();
            for (id, edge) in self.dag.inputs(placed.vertex) {
                let takes = self.takers(id, self.me).iter().any(|t| t.id == placed.id);
                let lanes = if takes { self.lanes(id, self.me) } else { Vec::new() };
                let mut channels = Vec::new();
                for lane in lanes {
                    channels.push(if lane.agent == self.me {
                        Upstream::Local(Arc::clone(&credits[&(lane.number(id)?, placed.id)]))
                    } else {
                        let peer = &self.plan.agents[usize::from(lane.agent)].id;
                        Upstream::Remote(self.shared.session_from(peer).notes())
                    });
                }
                inputs.push(InputSpec { edge: id.0, priority: edge.priority, channels });
            }
            let inbox = Inbox::new(inputs, bound, Arc::clone(&self.shared.budget));
            for (number, (_, edge)) in self.dag.inputs(placed.vertex).enumerate() {
                if in_step[edge.from.0 as usize] {
                    inbox.keep_in_step(number);
                }
            }
            inboxes.insert(placed.id, inbox);
        }
        Ok(inboxes)
    }

    /// Number of the channel by which a sender's rows of an edge reach an instance here.
    fn channel_number(
        &self,
        edge: EdgeId,
        target: Placed,
        sender: Lane,
        inbox: &Inbox,
    ) -> Result<usize, WireFault> {
        let input = self.dag.inputs(target.vertex).position(|(id, _)| id == edge);
        let among = self.lanes(edge, self.me).iter().position(|lane| *lane == sender);
        match (input, among) {
            (Some(input), Some(among)) => Ok(inbox.first_channel(input) + among),
            _ => Err(internal("an edge and its target's inputs disagree")),
        }
    }

    pub(super) fn channel(
        &self,
        edge: EdgeId,
        target: Placed,
        sender: Lane,
        inboxes: &HashMap<u32, Arc<Inbox>>,
    ) -> Result<Link, WireFault> {
        let inbox = Arc::clone(&inboxes[&target.id]);
        let channel = self.channel_number(edge, target, sender, &inbox)?;
        Ok(Link::Local { inbox, channel })
    }

    /// A sender's queue on an edge.
    pub(super) fn out_queue(&self, edge: EdgeId, sender: &Placed) -> Result<OutQueue, WireFault> {
        let all = self.ordered_targets(edge);
        if !matches!(self.dag.edge(edge).routing, Routing::Unicast | Routing::Isolated) {
            return Ok(OutQueue::lanes(all.len()));
        }
        let mine = targets_of(&self.dag, edge, &self.plan.instances, sender);
        let mut groups: BTreeMap<(u16, u16), Vec<u32>> = BTreeMap::new();
        let mut outlets = Vec::new();
        let count = self.plan.agents.len() as u16;
        for (number, target) in all.iter().enumerate().filter(|(_, t)| mine.contains(&t.id)) {
            outlets.push(number);
            groups
                .entry(((target.agent + count - self.me) % count, target.agent))
                .or_default()
                .push(target.id);
        }
        // The edge's own policy is set once all its senders are there.
        let policy = make_policy(DEFAULT_POLICY, policy_seed(edge.0, sender.id))
            .map_err(|e| internal(&e.to_string()))?;
        let mut groups: Vec<Vec<u32>> = groups.into_values().collect();
        if !outlets.iter().any(|outlet| all[*outlet].agent == self.me) {
            groups.insert(0, Vec::new());
        }
        Ok(OutQueue::pool(policy, Targets::with_local(groups), outlets))
    }

    /// Frames of an edge from other agents find their inboxes.
    pub(super) fn open_doors(
        &self,
        edge: EdgeId,
        inboxes: &HashMap<u32, Arc<Inbox>>,
        programs: &HashMap<VertexId, VertexProgram>,
    ) -> Result<(), WireFault> {
        let takers = self.takers(edge, self.me);
        if takers.is_empty() || !self.dag.edge(edge).distributed {
            return Ok(());
        }
        for sender in self.lanes(edge, self.me).into_iter().filter(|lane| lane.agent != self.me) {
            let mut ends = Vec::new();
            for target in &takers {
                let inbox = Arc::clone(&inboxes[&target.id]);
                let channel = self.channel_number(edge, *target, sender, &inbox)?;
                ends.push((target.id, inbox, channel));
            }
            let schema = Arc::clone(&programs[&self.dag.edge(edge).from].output);
            let door =
                Door { fingerprint: fingerprint(&schema), schema, attempt: self.plan.attempt, targets: ends };
            let peer = &self.plan.agents[usize::from(sender.agent)].id;
            self.shared.session_from(peer).open(self.plan.run, sender.number(edge)?, door);
        }
        Ok(())
    }
}
