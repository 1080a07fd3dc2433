//! One job on this agent: its instances, its edges, and its part of the ledger.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tuplane_core::cluster::DROPPED_BY_STOP;
use tuplane_core::fault::suggestion;
use tuplane_core::job::Job;
use tuplane_core::place::{self, RowPlace};
use tuplane_core::plan::placement::Instance as Placed;
use tuplane_core::plan::{Dag, EdgeId, VertexId};
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_wire::message::{
    EdgeLedger, FaultCode, InstanceReport, Peeked, RunPlan, RunReport, Split, WireFault,
};
use tuplane_wire::scaling::MovedRows;

use super::build::JoinTables;
use super::halt::Halt;
use super::handover::Asking;
use super::instance::SetOption;
use super::instance::sourcing::Hand;
use super::ledger::Counters;
use super::moving::Groups;
use super::rescale::Next;
use super::routing::RouteTable;
use super::rows::Budget;
use super::sourcing::Sourcing;
use super::tables::Copies;
use super::tap::Tap;
use super::task::Task;
use crate::exchange::costs::Costs;
use crate::exchange::edge::Edge;
use crate::exchange::inbox::Inbox;
use crate::exchange::lane::edge_of;
use crate::exchange::outbound::{Flight, Outbound, distinct};
use crate::sink::Parts;
use crate::source::pace::SHARERS;

/// Pause between two looks at what is in flight.
const LOOK: Duration = Duration::from_millis(2);

/// What a run is from its beginning to its end.
pub(crate) struct Beginning {
    pub(crate) run: u64,
    pub(crate) job: Arc<Job>,
    pub(crate) me: u16,
    pub(crate) parts: Parts,
    pub(crate) budget: Arc<Budget>,
    pub(crate) start: watch::Sender<bool>,
    pub(crate) routing: RouteTable,
}

/// A run, as the engine holds it.
pub(crate) struct Run {
    pub(crate) run: u64,
    pub(crate) job: Arc<Job>,
    /// This agent's index in the run.
    pub(crate) me: u16,
    pub(crate) start: watch::Sender<bool>,
    /// None once it was stopped: nothing begins any more.
    pub(crate) tasks: Mutex<Option<Vec<Task>>>,
    /// What ends slots for its edges; another one when there are more of them.
    pub(crate) manager: Mutex<Option<Task>>,
    /// Part files that its sinks have made.
    pub(crate) parts: Parts,
    /// What its rows are charged to.
    pub(crate) budget: Arc<Budget>,
    pub(crate) stopped: Mutex<Option<RunReport>>,
    /// What edges that choose their targets have in common.
    pub(crate) routing: RouteTable,
    /// What is there now.
    stand: RwLock<Arc<Stand>>,
    /// What the next plan brings, until it is committed and all rows go by it.
    pub(crate) next: Mutex<Option<Next>>,
    /// Held while a plan is started, or switched to.
    pub(crate) switching: Mutex<()>,
    /// Key partitions that are on their way.
    pub(crate) groups: Groups,
    /// What source instances have not read that end.
    pub(crate) sourcing: Sourcing,
    /// Tables that its last plan copies.
    pub(crate) copies: Copies,
}

/// What a run has on this agent; changed as a whole when a plan brings more.
#[derive(Clone)]
pub(crate) struct Stand {
    pub(crate) dag: Arc<Dag>,
    /// Bytes that its queues here may hold.
    pub(crate) reserved: u64,
    pub(crate) local: Vec<Arc<Local>>,
    /// Sending sides, by edge index.
    pub(crate) edges: HashMap<u32, Arc<Edge>>,
    /// Sessions by agent index, and what each edge (or lane of an ordered one) has in flight on them.
    pub(crate) sessions: HashMap<u16, Arc<Outbound>>,
    pub(crate) flights: HashMap<(u32, u16), Arc<Flight>>,
    /// Splits of sources that read this agent's own files, by stage.
    pub(crate) own_splits: HashMap<String, Vec<Split>>,
    /// Taps of the vertices that have instances here, by vertex index.
    pub(crate) taps: HashMap<u32, Arc<Tap>>,
    /// Costs of rows to other agents.
    pub(crate) costs: Arc<Costs>,
    /// What its joins look into.
    pub(crate) tables: JoinTables,
    /// Rows that instances took which a plan has ended: (taken, dropped) by edge.
    pub(crate) past: BTreeMap<u32, (u64, u64)>,
}

/// One of this agent's instances.
pub(crate) struct Local {
    pub(crate) placed: Placed,
    pub(crate) counters: Arc<Counters>,
    pub(crate) inbox: Arc<Inbox>,
    /// Its channels by the number of the edge (or its lane) and the sending agent.
    pub(crate) channels: Mutex<HashMap<(u32, u16), usize>>,
    pub(crate) options: mpsc::UnboundedSender<SetOption>,
    /// Asks for its state, when partitions or splits move.
    pub(crate) asking: Asking,
    /// Its inputs: the edge, and its columns.
    pub(crate) inputs: Vec<(u32, SchemaRef)>,
    /// Stops it for a while, or for good.
    pub(crate) halt: Halt,
    /// Of a source: whether it may end.
    pub(crate) hand: Arc<Hand>,
    /// Columns that reach it, if it is a sink.
    pub(crate) sink_schema: Option<SchemaRef>,
    /// (edge index, sender number there)
    pub(crate) exits: Vec<(u32, usize)>,
    /// Bytes that its queues may hold.
    pub(crate) reserved: u64,
}

impl Local {
    /// It has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.counters.ended.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Run {
    /// A run that is ready to start.
    pub(crate) fn new(of: Beginning, stand: Stand) -> Self {
        let Beginning { run, job, me, parts, budget, start, routing } = of;
        Self {
            run,
            job,
            me,
            start,
            tasks: Mutex::new(Some(Vec::new())),
            manager: Mutex::default(),
            parts,
            budget,
            stopped: Mutex::default(),
            routing,
            stand: RwLock::new(Arc::new(stand)),
            next: Mutex::default(),
            switching: Mutex::default(),
            groups: Groups::default(),
            sourcing: Sourcing::default(),
            copies: Copies::default(),
        }
    }

    /// What is there now.
    pub(crate) fn stand(&self) -> Arc<Stand> {
        Arc::clone(&self.stand.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// There is something else from now on.
    pub(crate) fn set_stand(&self, stand: Arc<Stand>) {
        *self.stand.write().unwrap_or_else(PoisonError::into_inner) = stand;
    }

    /// Sessions on which it sends, or will by its next plan: agents that have no part in that may be gone.
    pub(crate) fn sessions(&self) -> Vec<Arc<Outbound>> {
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let stand = next.as_ref().map_or_else(|| self.stand(), |next| Arc::clone(&next.stand));
        distinct(stand.sessions.values().cloned())
    }

    /// Counters of all instances here.
    pub(crate) fn instance_reports(&self) -> Vec<InstanceReport> {
        let stand = self.stand();
        stand.local.iter().map(|local| stand.instance_report(local)).collect()
    }

    /// Counters of one instance.
    pub(crate) fn instance_report(&self, local: &Local) -> InstanceReport {
        self.stand().instance_report(local)
    }
}

impl Stand {
    fn instance_report(&self, local: &Local) -> InstanceReport {
        use std::sync::atomic::Ordering::Relaxed;
        let counters = &local.counters;
        let times = counters.clock.read();
        let (dropped, note) = counters.rare_facts();
        let queue_out = local
            .exits
            .iter()
            .filter_map(|(edge, sender)| Some(self.edges.get(edge)?.waiting_of(*sender, local.placed.id)))
            .sum();
        InstanceReport {
            instance: local.placed.id,
            rows_in: counters.rows_in.load(Relaxed),
            rows_out: counters.rows_out.load(Relaxed),
            dropped,
            busy_ns: times.busy,
            waiting_core_ns: times.waiting_core,
            blocked_ns: times.blocked,
            idle_ns: times.idle,
            queue_in: local.inbox.load().queued() + counters.held.load(Relaxed),
            queue_out,
            note_place: note.as_ref().and_then(|(_, place)| *place),
            note: note.map(|(text, _)| text),
            ended: counters.ended.load(Relaxed),
            watermark: counters.watermark(),
            ahead: counters.ahead.load(Relaxed),
            unanswered: counters.unanswered.load(Relaxed),
            state_bytes: counters.state_bytes.load(Relaxed),
            response: counters.responses.read(),
        }
    }

    /// Waits until everything that went out on an instance's edges has been acknowledged, so that
    /// its end means that its rows have arrived, and the end of an edge too. What others send meanwhile is not waited for:
    /// that need not end. A lost peer that is needed ends the run instead.
    async fn wait_until_arrived(&self, local: &Local) {
        use crate::sync::Ordering::Relaxed;
        let on_its_edges = |edge: &u32| local.exits.iter().any(|(exit, _)| exit == edge);
        let flights = self.flights.iter().filter(|((edge, _), _)| on_its_edges(&edge_of(*edge)));
        for ((number, agent), flight) in flights {
            let session = self.sessions.get(agent);
            let has_ended = || self.edges.get(&edge_of(*number)).is_some_and(|edge| edge.has_ended());
            let sent = flight.rows_sent();
            while flight.rows_arrived() < sent || flight.marks.load(Relaxed) > 0 && has_ended() {
                // Without a session its agent has nothing of the run any more.
                if session.is_none_or(|session| session.is_dead()) {
                    break;
                }
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// Waits until what was said on an instance's edges so far has arrived on other agents.
    pub(crate) async fn until_heard(&self, local: &Local) {
        let on_its_edges = |number: &u32| local.exits.iter().any(|(exit, _)| *exit == edge_of(*number));
        let flights = self.flights.iter().filter(|((number, _), _)| on_its_edges(number));
        let sent: Vec<_> = flights.map(|((_, agent), flight)| (agent, flight, flight.marks_sent())).collect();
        for (agent, flight, sent) in sent {
            let session = self.sessions.get(agent);
            while flight.marks_arrived() < sent && !session.is_some_and(|session| session.is_dead()) {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// The ledger as this agent sees it.
    fn ledger(&self, me: u16) -> Vec<EdgeLedger> {
        let mut ledgers: BTreeMap<u32, EdgeLedger> = BTreeMap::new();
        for index in 0..self.dag.edges.len() as u32 {
            ledgers.insert(index, EdgeLedger { edge: index, ..EdgeLedger::default() });
        }
        for (index, edge) in &self.edges {
            let sent = edge.sent();
            let Some(ledger) = ledgers.get_mut(index) else { continue };
            ledger.emitted = sent.emitted;
            ledger.queued_out = sent.queued;
            ledger.policy = sent.policy;
            for (reason, rows) in sent.dropped {
                *ledger.dropped.entry(reason.to_owned()).or_default() += rows;
            }
            for (instance, agent, rows, bytes) in sent.targets {
                let flow = ledger.flows.entry((me, agent)).or_default();
                flow.rows += rows;
                flow.bytes += bytes;
                *ledger.targets.entry(instance).or_default() += rows;
            }
            for (agent, rows, bytes) in sent.folded {
                let flow = ledger.flows.entry((me, agent)).or_default();
                flow.rows += rows;
                flow.bytes += bytes;
            }
        }
        for ((index, agent), flight) in &self.flights {
            use crate::sync::Ordering::Relaxed;
            let Some(ledger) = ledgers.get_mut(&edge_of(*index)) else { continue };
            ledger.in_flight += flight.rows.load(Relaxed);
            ledger.flows.entry((me, *agent)).or_default().wire_bytes += flight.wire_bytes.load(Relaxed);
        }
        for local in &self.local {
            for (index, waiting, taken, dropped) in local.inbox.counts() {
                let Some(ledger) = ledgers.get_mut(&index) else { continue };
                ledger.queued_in += waiting;
                ledger.taken += taken;
                if dropped > 0 {
                    *ledger.dropped.entry(DROPPED_BY_STOP.to_owned()).or_default() += dropped;
                }
            }
        }
        for (index, (taken, dropped)) in &self.past {
            let Some(ledger) = ledgers.get_mut(index) else { continue };
            ledger.taken += taken;
            if *dropped > 0 {
                *ledger.dropped.entry(DROPPED_BY_STOP.to_owned()).or_default() += dropped;
            }
        }
        ledgers.into_values().collect()
    }

    /// Sessions to agents that have no part in a plan.
    pub(crate) fn left_by(&self, plan: &RunPlan) -> Vec<Arc<Outbound>> {
        let left = self.sessions.iter().filter(|(agent, _)| !plan.has_part(**agent));
        left.map(|(_, session)| Arc::clone(session)).collect()
    }

    /// Takes out instances that are not kept, which have ended, and keeps what they counted.
    pub(crate) fn retire(&mut self, keep: &dyn Fn(u32) -> bool) {
        let all = std::mem::take(&mut self.local);
        let (kept, gone): (Vec<_>, Vec<_>) = all.into_iter().partition(|local| keep(local.placed.id));
        self.local = kept;
        for local in gone {
            self.reserved = self.reserved.saturating_sub(local.reserved);
            for (edge, _, taken, dropped) in local.inbox.counts() {
                let past = self.past.entry(edge).or_default();
                *past = (past.0 + taken, past.1 + dropped);
            }
            for (edge, sender) in &local.exits {
                if let Some(edge) = self.edges.get(edge) {
                    edge.free(*sender, local.placed.id);
                }
            }
        }
    }

    /// The name of one of its edges.
    pub(crate) fn edge_name(&self, edge: u32) -> String {
        self.dag.edge_name(EdgeId(edge))
    }
}

impl Run {
    /// See [`Stand::wait_until_arrived`].
    pub(crate) async fn wait_until_arrived(&self, local: &Local) {
        self.stand().wait_until_arrived(local).await;
    }

    /// The ledger as this agent sees it.
    pub(crate) fn ledger(&self) -> Vec<EdgeLedger> {
        self.stand().ledger(self.me)
    }

    /// Counters and ledger.
    pub(crate) fn report(&self) -> RunReport {
        let stand = self.stand();
        let mut moved = MovedRows::default();
        for local in &stand.local {
            let MovedRows { taken, away } = local.inbox.moved_rows();
            moved.taken = moved.taken.max(taken);
            moved.away.extend(away);
        }
        let keys =
            stand.local.iter().filter_map(|local| Some((local.placed.id, local.counters.keys.load()?)));
        RunReport {
            run: self.run,
            instances: self.instance_reports(),
            edges: self.ledger(),
            parts: Vec::new(),
            keys: keys.collect(),
            moved,
        }
    }

    /// It was stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Some instance has not ended.
    pub(crate) fn is_live(&self) -> bool {
        !self.is_stopped() && self.stand().local.iter().any(|local| !local.has_ended())
    }

    /// Ends everything where it stands; rows that wait are dropped and counted.
    pub(crate) async fn stop(&self) -> RunReport {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
        tasks.extend(self.manager.lock().unwrap_or_else(PoisonError::into_inner).take());
        // What was to come has not begun, and has taken nothing.
        drop(self.next.lock().unwrap_or_else(PoisonError::into_inner).take());
        for task in &tasks {
            task.abort();
        }
        let ended = futures::future::join_all(tasks.into_iter().map(Task::ended)).await;
        let stuck = ended.iter().filter(|ended| !**ended).count();
        if stuck > 0 {
            tracing::warn!(
                run = self.run,
                stuck,
                "instances stand in calls to the system; they end when those return"
            );
        }
        let stand = self.stand();
        for edge in stand.edges.values() {
            edge.close(DROPPED_BY_STOP);
        }
        for local in &stand.local {
            local.inbox.close();
        }
        for local in &stand.local {
            local.counters.clock.end();
            local.counters.drop_in_hand();
        }
        let report = self.report();
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(report).clone()
    }

    /// Changes a live option of a stage's instances here.
    pub(crate) fn set(&self, stage: &str, option: &str, value: &serde_json::Value) -> Result<(), WireFault> {
        let Some(found) = self.job.stages.iter().find(|s| s.id == stage) else {
            let ids = self.job.stages.iter().map(|s| s.id.as_str());
            let hint = suggestion(stage, ids).map(|id| format!("; did you mean `{id}`?")).unwrap_or_default();
            return Err(WireFault::new(FaultCode::NotFound, format!("the job has no stage `{stage}`{hint}")));
        };
        let value = found
            .op
            .live(option, value)
            .map_err(|e| WireFault::new(FaultCode::Refused, format!("{stage}.{option}: {e}")))?;
        let stand = self.stand();
        for local in &stand.local {
            let vertex = stand.dag.vertex(local.placed.vertex);
            if vertex.stages.iter().any(|s| s == stage) {
                let change = SetOption { option: option.to_owned(), value: value.clone() };
                // An instance that has ended no longer listens, and needs not.
                let _ = local.options.send(change);
                local.inbox.nudge();
            }
        }
        Ok(())
    }

    /// Tells the instances of sources here of which a plan has more or fewer how many there are: they share their source's
    /// rate.
    pub(crate) fn share_rates(&self, before: &RunPlan, after: &RunPlan) {
        let stand = self.stand();
        let count = |plan: &RunPlan, vertex: VertexId| {
            plan.instances.iter().filter(|one| one.vertex == vertex && !plan.going.contains(&one.id)).count()
        };
        let is_source = |vertex: VertexId| stand.dag.inputs(vertex).next().is_none();
        for local in stand.local.iter().filter(|local| is_source(local.placed.vertex)) {
            let (was, is) = (count(before, local.placed.vertex), count(after, local.placed.vertex));
            if was == is {
                continue;
            }
            let change = SetOption { option: SHARERS.to_owned(), value: is.into() };
            // An instance that has ended gives no more rows.
            let _ = local.options.send(change);
            local.inbox.nudge();
        }
    }

    /// What a follower of a vertex has not seen yet.
    pub(crate) fn peek(&self, vertex: u32, follower: u64, rate: f64, from: u64) -> Result<Peeked, WireFault> {
        let stand = self.stand();
        let Some(tap) = stand.taps.get(&vertex) else {
            let message = format!("run {} has no instance of vertex {vertex} on this agent", self.run);
            return Err(WireFault::new(FaultCode::NotFound, message));
        };
        let here = stand.local.iter().filter(|local| local.placed.vertex.0 == vertex);
        // Looked at before the rows: what comes in between is fetched by the next question.
        let ended = here.into_iter().all(|local| local.has_ended()) || self.is_stopped();
        tap.ask(follower, rate, from, ended).map_err(|e| WireFault::new(FaultCode::Refused, e))
    }

    /// The split of this agent's own files that a row was read from.
    pub(crate) fn own_split(&self, row: RowPlace, agents: u16) -> Option<Split> {
        let stage = place::source_stage(&self.job, row.source())?;
        let (agent, number) = place::owner(row.split(), agents);
        self.stand().own_splits.get(&stage.id).filter(|_| agent == self.me)?.get(number as usize).cloned()
    }

    /// The name of one of its edges.
    pub(crate) fn edge_name(&self, edge: u32) -> String {
        self.stand().edge_name(edge)
    }
}
