//! How a run's edges choose their targets here: policies set and changed, and how they stand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use tuplane_core::job::{Job, Op, Settings};
use tuplane_core::plan::ahead::{Ahead, ahead};
use tuplane_core::plan::{EdgeId, Routing as Way};
use tuplane_core::route::{RouteOptions, Setting};
use tuplane_wire::message::RunPlan;
use tuplane_wire::routing::EdgeRouting;

use super::due::DueClock;
use super::run::Run;
use crate::exchange::costs::Costs;
use crate::exchange::edge::{Edge, Foresight, Route};
use crate::exchange::manager::Manager;
use crate::exchange::priced::Slots;
use crate::registry::Registry;
use crate::source::ahead::Lookahead;

/// The policy of an edge that names none.
pub(super) const DEFAULT_POLICY: &str = "round-robin";

/// What the edges of a run that choose their targets have in common.
#[derive(Debug)]
pub(crate) struct RouteTable {
    registry: Arc<Registry>,
    costs: Arc<Costs>,
    slots: Slots,
    /// Where options come from that no edge gives.
    setting: Setting,
    /// What arrivals are told by.
    clock: DueClock,
}

impl RouteTable {
    pub(crate) fn of(plan: &RunPlan, job: &Job, registry: Arc<Registry>, me: u16, clock: DueClock) -> Self {
        let setting = match job.options.settings {
            Settings::Paper => Setting::Paper,
            Settings::Default => Setting::Default,
        };
        Self { registry, costs: Costs::of(plan, me), slots: Slots::begin(), setting, clock }
    }

    /// What arrivals are told by.
    pub(crate) fn clock(&self) -> DueClock {
        self.clock
    }

    /// How far the instances of a vertex look ahead.
    pub(crate) fn lookahead(&self, ahead: Ahead) -> Lookahead {
        Lookahead::new(self.slots.clone(), ahead.slot, ahead.slots)
    }

    /// Slots are counted from here.
    pub(crate) fn began(&self) -> Instant {
        self.slots.began
    }
}

impl Run {
    /// Edges have the policies that the plan gives them.
    pub(crate) fn set_routes(&self) -> Result<(), String> {
        for index in 0..self.dag.edges.len() as u32 {
            let edge = self.dag.edge(EdgeId(index));
            if edge.routing != Way::Unicast {
                continue;
            }
            let name = edge.route.policy.as_ref().map_or(DEFAULT_POLICY, |policy| policy.value.as_str());
            let given = serde_json::to_string(&edge.route.options).unwrap_or_default();
            let set = self.set_route(index, name, &given, &edge.route.options);
            set.map_err(|why| format!("{}: {why}", self.edge_name(index)))?;
        }
        Ok(())
    }

    /// Changes the policy of an edge's senders here, with all its options (a JSON object, or nothing).
    pub(crate) fn route(&self, edge: u32, policy: &str, options: &str) -> Result<(), String> {
        let given = if options.is_empty() { "{}" } else { options };
        let read: BTreeMap<String, Value> =
            serde_json::from_str(given).map_err(|e| format!("the options cannot be read: {e}"))?;
        self.set_route(edge, policy, given, &read)
    }

    fn set_route(
        &self,
        index: u32,
        name: &str,
        given: &str,
        options: &BTreeMap<String, Value>,
    ) -> Result<(), String> {
        let options = RouteOptions::read(options, self.routing.setting)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        let policies = self.routing.registry.policies();
        let reads = policies.make(name, &options, 0).map_err(|e| e.to_string())?.reads_queues();
        let gap = if options.fresh_notes { options.slot / 2 } else { options.slot };
        for local in &self.local {
            local.inbox.keep_fresh(index, reads.then_some(gap));
        }
        let Some(edge) = self.edges.get(&index) else { return Ok(()) };
        let ahead = ahead(&self.dag, &self.job, self.dag.edge(EdgeId(index)).from);
        edge.set_route(&Route {
            policies,
            name,
            options: &options,
            given,
            costs: &self.routing.costs,
            of_source: self.is_source(index),
            me: self.me,
            slots: &self.routing.slots,
            ahead: ahead.map(|ahead| Foresight { slots: ahead.slots, clock: self.routing.clock }),
        })
    }

    fn is_source(&self, edge: u32) -> bool {
        let from = self.dag.vertex(self.dag.edge(EdgeId(edge)).from);
        let of_vertex = self.job.stages.iter().filter(|stage| from.stages.contains(&stage.id));
        of_vertex.map(|stage| &stage.op).any(|op| matches!(op, Op::Source(_)))
    }

    /// What ends slots for its edges here.
    pub(crate) fn manager(&self) -> Manager {
        let mut groups: BTreeMap<u32, Vec<Arc<Edge>>> = BTreeMap::new();
        for index in 0..self.dag.edges.len() as u32 {
            let edge = self.dag.edge(EdgeId(index));
            if let (Way::Unicast, Some(sending)) = (&edge.routing, self.edges.get(&index)) {
                groups.entry(edge.from.0).or_default().push(Arc::clone(sending));
            }
        }
        Manager::new(self.routing.slots.clone(), groups.into_values().collect())
    }

    /// How its edges stand that choose their targets, with the newest decisions in so many bytes.
    pub(crate) fn routings(&self, decisions: u64) -> Vec<EdgeRouting> {
        let unicast = |index: &u32| self.dag.edge(EdgeId(*index)).routing == Way::Unicast;
        let edges = (0..self.dag.edges.len() as u32).filter(unicast);
        let mut left = decisions;
        edges.filter_map(|index| self.edges.get(&index)?.routing(&mut left)).collect()
    }
}
