//! Where the rows of an edge go from this agent: its targets, the channels to them, and what changes of both.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Notify;
use tuplane_core::job::Op;
use tuplane_core::plan::placement::{Instance as Placed, partition_map, targets};
use tuplane_core::plan::{EdgeId, Routing, VertexId};
use tuplane_expr::{KeyExprs, VertexProgram};
use tuplane_wire::message::WireFault;

use super::channels::{Inputs, Lane};
use super::{Builder, Retarget};
use crate::engine::output::ExitKey;
use crate::engine::run::Stand;
use crate::exchange::body::fingerprint;
use crate::exchange::edge::Edge;
use crate::exchange::outbound::ChannelKey;
use crate::exchange::outlet::{Link, Outlet};
use crate::exchange::outqueue::Routes;

impl Builder<'_> {
    /// A channel's sending end, to a target here or on another agent.
    #[expect(clippy::too_many_arguments, reason = "it is one step of `make`, which holds all of this")]
    pub(super) fn outlet(
        &self,
        edge: EdgeId,
        target: Placed,
        lane: Lane,
        stand: &mut Stand,
        inboxes: &HashMap<u32, Inputs>,
        schema: u64,
        wakes: &HashMap<u32, Arc<Notify>>,
    ) -> Result<Outlet, WireFault> {
        let number = lane.number(edge)?;
        let key = ChannelKey { run: self.plan.run, edge: number, target: target.id };
        let (credit, link) = if target.agent == self.me {
            let link = self.channel(target, number, inboxes)?;
            (self.local_credit(edge, number, target.id, &wakes[&edge.0]), link)
        } else {
            let info = &self.plan.agents[usize::from(target.agent)];
            let session = self.shared.session_to(info);
            let flight = stand.flights.entry((number, target.agent)).or_default();
            if session.keep_edge(self.plan.run, self.plan.attempt, number, schema, flight) {
                self.undo.edge_out(&session, self.plan.run, number);
            }
            let credit = self.new_credit(edge, target.id, &wakes[&edge.0]);
            session.add_channel(key, Arc::clone(&credit));
            self.undo.channel_out(&session, key);
            stand.sessions.entry(target.agent).or_insert_with(|| Arc::clone(&session));
            (credit, Link::Remote { session, key })
        };
        Ok(Outlet { instance: target.id, agent: target.agent, credit, link, sent_rows: 0, sent_bytes: 0 })
    }

    /// What changes of the targets of an edge that there was.
    pub(super) fn retarget(
        &self,
        edge: EdgeId,
        old: &Arc<Edge>,
        stand: &mut Stand,
        inboxes: &HashMap<u32, Inputs>,
        programs: &HashMap<VertexId, VertexProgram>,
        wakes: &HashMap<u32, Arc<Notify>>,
    ) -> Result<Option<Retarget>, WireFault> {
        let (planned, before) = (self.dag.edge(edge), old.list());
        let at_start = !self.sent_before(planned.from, self.me);
        if at_start {
            old.reopen();
            self.undo.reopened(old);
        }
        let by_key = matches!(planned.routing, Routing::Partitioned { .. });
        if planned.routing != Routing::Unicast && !(by_key && (at_start || self.plan.moves(planned.to))) {
            return Ok(None);
        }
        let wanted = self.ordered_targets(edge);
        let keep: Vec<u32> = wanted.iter().map(|target| target.id).collect();
        let missing: Vec<Placed> =
            wanted.into_iter().filter(|target| !before.iter().any(|(id, _)| *id == target.id)).collect();
        // While nothing was sent from here, keys may have got other instances.
        let owners = (by_key && at_start).then(|| self.owners(edge));
        if owners.is_none() && missing.is_empty() && before.iter().all(|(id, _)| keep.contains(id)) {
            return Ok(None);
        }
        let (lane, schema) = (Lane::of(self.me), fingerprint(&programs[&planned.from].output));
        let add = missing.into_iter();
        let add: Result<Vec<Outlet>, WireFault> =
            add.map(|target| self.outlet(edge, target, lane, stand, inboxes, schema, wakes)).collect();
        Ok(Some(Retarget { edge: edge.0, by_key, add: add?, keep, owners, at_start }))
    }

    /// Targets of an edge from here: this agent's first, then the others' in turn.
    pub(super) fn ordered_targets(&self, edge: EdgeId) -> Vec<Placed> {
        let count = self.plan.agents.len() as u16;
        // One that goes takes rows as long as it holds key partitions.
        let stays = |i: &&Placed| !self.plan.going.contains(&i.id) || self.plan.moves(i.vertex);
        let all: Vec<Placed> = self.plan.instances.iter().filter(stays).copied().collect();
        let reached = targets(&self.dag, edge, &all, self.me);
        let mut found: Vec<Placed> = all.into_iter().filter(|i| reached.contains(&i.id)).collect();
        found.sort_by_key(|i| ((i.agent + count - self.me) % count, i.number));
        found
    }

    pub(super) fn routes(&self, edge: EdgeId, outlets: &[Outlet]) -> Routes {
        match &self.dag.edge(edge).routing {
            Routing::Unicast | Routing::Isolated => Routes::Any,
            Routing::AllToOne => Routes::One,
            Routing::Broadcast => Routes::Every,
            Routing::Partitioned { .. } => {
                let outlet = |id: &u32| outlets.iter().position(|o| o.instance == *id).unwrap_or(0) as u32;
                Routes::ByPartition(self.owners(edge).iter().map(outlet).collect())
            }
        }
    }

    /// The instance of each key partition of an edge.
    pub(super) fn owners(&self, edge: EdgeId) -> Vec<u32> {
        self.plan.maps.get(&self.dag.edge(edge).to).cloned().unwrap_or_else(|| {
            let all: Vec<Placed> = self.plan.targets().copied().collect();
            partition_map(&self.dag, edge, &all, self.job.options.partitions(), self.me)
        })
    }

    pub(super) fn exit_key(&self, edge: EdgeId, key: KeyExprs) -> ExitKey {
        // The key stands at a view, or at the stage that the rows go to.
        let edge = self.dag.edge(edge);
        let keyed = |id: &&String| match self.job.stages.iter().find(|stage| stage.id == **id).map(|s| &s.op)
        {
            Some(Op::GroupBy { .. }) => true,
            Some(Op::Rebalance(rebalance)) => !rebalance.key.is_empty(),
            _ => false,
        };
        let view = edge.via.iter().find(keyed);
        ExitKey {
            key,
            partitions: self.job.options.partitions(),
            on_error: self.job.options.on_error,
            stage: view.or_else(|| self.dag.vertex(edge.to).stages.first()).cloned().unwrap_or_default(),
        }
    }
}
