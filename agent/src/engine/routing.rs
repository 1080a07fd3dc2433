//! How a run's edges choose their targets here: policies set and changed, and how they stand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use tuplane_core::job::{Job, Op, Settings};
use tuplane_core::plan::ahead::{Ahead, ahead};
use tuplane_core::plan::{Dag, EdgeId, Routing as Way};
use tuplane_core::route::{RouteOptions, Setting};
use tuplane_wire::routing::EdgeRouting;

use super::due::DueClock;
use super::run::{Run, Stand};
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
    slots: Slots,
    /// Where options come from that no edge gives.
    setting: Setting,
    /// What arrivals are told by.
    clock: DueClock,
}

impl RouteTable {
    pub(crate) fn of(job: &Job, registry: Arc<Registry>, clock: DueClock) -> Self {
        let setting = match job.options.settings {
            Settings::Paper => Setting::Paper,
            Settings::Default => Setting::Default,
        };
        Self { registry, slots: Slots::begin(), setting, clock }
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

/// How an edge is to choose its targets, as it was given.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    name: String,
    options: RouteOptions,
    /// As a JSON object.
    text: String,
}

impl Run {
    /// Edges have the policies that the plan gives them, or those that were set since the run began.
    pub(crate) fn set_routes(&self, changed: &[(u32, String, String)]) -> Result<(), String> {
        let stand = self.stand();
        for index in 0..stand.dag.edges.len() as u32 {
            if let Some(given) = self.given(&stand, index, changed)? {
                self.set_route(&stand, index, &given)
                    .map_err(|why| format!("{}: {why}", stand.edge_name(index)))?;
            }
        }
        Ok(())
    }

    /// How an edge is to choose its targets: by what was changed since the run began, else by its plan. `None` for one
    /// that has no choice.
    pub(crate) fn given(
        &self,
        stand: &Stand,
        index: u32,
        changed: &[(u32, String, String)],
    ) -> Result<Option<Given>, String> {
        let edge = stand.dag.edge(EdgeId(index));
        if edge.routing != Way::Unicast {
            return Ok(None);
        }
        if let Some((_, policy, options)) = changed.iter().find(|(of, ..)| *of == index) {
            return self.read_given(policy, options).map(Some);
        }
        let name = edge.route.policy.as_ref().map_or(DEFAULT_POLICY, |policy| policy.value.as_str());
        let text = serde_json::to_string(&edge.route.options).unwrap_or_default();
        let given = self.take_given(name, &text, &edge.route.options);
        given.map(Some).map_err(|why| format!("{}: {why}", stand.edge_name(index)))
    }

    fn read_given(&self, policy: &str, options: &str) -> Result<Given, String> {
        let text = if options.is_empty() { "{}" } else { options };
        let read: BTreeMap<String, Value> =
            serde_json::from_str(text).map_err(|e| format!("the options cannot be read: {e}"))?;
        self.take_given(policy, text, &read)
    }

    fn take_given(&self, name: &str, text: &str, read: &BTreeMap<String, Value>) -> Result<Given, String> {
        let options = RouteOptions::read(read, self.routing.setting)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        Ok(Given { name: name.to_owned(), options, text: text.to_owned() })
    }

    /// Changes the policy of an edge's senders here, with all its options (a JSON object, or nothing).
    pub(crate) fn route(&self, edge: u32, policy: &str, options: &str) -> Result<(), String> {
        let given = self.read_given(policy, options)?;
        self.set_route(&self.stand(), edge, &given)
    }

    /// An edge's senders here choose so.
    pub(crate) fn set_route(&self, stand: &Stand, index: u32, given: &Given) -> Result<(), String> {
        self.listen(stand, index, given)?;
        let Some(edge) = stand.edges.get(&index) else { return Ok(()) };
        edge.set_route(&self.as_route(stand, index, given))
    }

    /// Other agents are told of the queues here as often as the edge's policy has need of it.
    pub(crate) fn listen(&self, stand: &Stand, index: u32, given: &Given) -> Result<(), String> {
        let Given { name, options, .. } = given;
        let policies = self.routing.registry.policies();
        let reads = policies.make(name, options, 0).map_err(|e| e.to_string())?.reads_queues();
        let gap = if options.fresh_notes { options.slot / 2 } else { options.slot };
        for local in &stand.local {
            local.inbox.keep_fresh(index, reads.then_some(gap));
        }
        Ok(())
    }

    /// What an edge has to know to choose so.
    pub(crate) fn as_route<'a>(&'a self, stand: &'a Stand, index: u32, given: &'a Given) -> Route<'a> {
        let ahead = ahead(&stand.dag, &self.job, stand.dag.edge(EdgeId(index)).from);
        Route {
            policies: self.routing.registry.policies(),
            name: &given.name,
            options: &given.options,
            given: &given.text,
            costs: &stand.costs,
            of_source: self.is_source(&stand.dag, index),
            me: self.me,
            slots: &self.routing.slots,
            ahead: ahead.map(|ahead| Foresight { slots: ahead.slots, clock: self.routing.clock }),
        }
    }

    fn is_source(&self, dag: &Dag, edge: u32) -> bool {
        let from = dag.vertex(dag.edge(EdgeId(edge)).from);
        let of_vertex = self.job.stages.iter().filter(|stage| from.stages.contains(&stage.id));
        of_vertex.map(|stage| &stage.op).any(|op| matches!(op, Op::Source(_)))
    }

    /// What ends slots for its edges here.
    pub(crate) fn slots_manager(&self) -> Manager {
        let stand = self.stand();
        let mut groups: BTreeMap<u32, Vec<Arc<Edge>>> = BTreeMap::new();
        for index in 0..stand.dag.edges.len() as u32 {
            let edge = stand.dag.edge(EdgeId(index));
            if let (Way::Unicast, Some(sending)) = (&edge.routing, stand.edges.get(&index)) {
                groups.entry(edge.from.0).or_default().push(Arc::clone(sending));
            }
        }
        Manager::new(self.routing.slots.clone(), groups.into_values().collect())
    }

    /// How its edges stand that choose their targets, with the newest decisions in so many bytes.
    pub(crate) fn routings(&self, decisions: u64) -> Vec<EdgeRouting> {
        let stand = self.stand();
        let unicast = |index: &u32| stand.dag.edge(EdgeId(*index)).routing == Way::Unicast;
        let edges = (0..stand.dag.edges.len() as u32).filter(unicast);
        let mut left = decisions;
        edges.filter_map(|index| stand.edges.get(&index)?.routing(&mut left)).collect()
    }
}
