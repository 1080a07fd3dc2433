//! One job on this agent: its instances, its edges, and its part of the ledger.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tuplane_core::cluster::DROPPED_BY_STOP;
use tuplane_core::fault::suggestion;
use tuplane_core::job::Job;
use tuplane_core::place::{self, RowPlace};
use tuplane_core::plan::placement::Instance as Placed;
use tuplane_core::plan::{Dag, EdgeId};
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_wire::message::{EdgeLedger, FaultCode, InstanceReport, Peeked, RunReport, Split, WireFault};

use super::instance::SetOption;
use super::ledger::Counters;
use super::routing::RouteTable;
use super::tap::Tap;
use super::task::Task;
use crate::exchange::edge::Edge;
use crate::exchange::inbox::Inbox;
use crate::exchange::lane::edge_of;
use crate::exchange::outbound::{Flight, Outbound};
use crate::sink::Parts;

/// Pause between two looks at what is in flight.
const LOOK: Duration = Duration::from_millis(2);

/// A run, as the engine holds it.
pub(crate) struct Run {
    pub(crate) run: u64,
    pub(crate) job: Arc<Job>,
    pub(crate) dag: Arc<Dag>,
    /// This agent's index in the run.
    pub(crate) me: u16,
    /// Bytes that its queues here may hold.
    pub(crate) reserved: u64,
    pub(crate) local: Vec<Local>,
    /// Sending sides, by edge index.
    pub(crate) edges: HashMap<u32, Arc<Edge>>,
    /// Sessions by agent index, and what each edge (or lane of an ordered one) has in flight on them.
    pub(crate) sessions: HashMap<u16, Arc<Outbound>>,
    pub(crate) flights: HashMap<(u32, u16), Arc<Flight>>,
    pub(crate) start: watch::Sender<bool>,
    /// None once it was stopped: nothing begins any more.
    pub(crate) tasks: Mutex<Option<Vec<Task>>>,
    /// Part files that its sinks have made.
    pub(crate) parts: Parts,
    /// Splits of sources that read this agent's own files, by stage.
    pub(crate) own_splits: HashMap<String, Vec<Split>>,
    pub(crate) stopped: Mutex<Option<RunReport>>,
    /// Taps of the vertices that have instances here, by vertex index.
    pub(crate) taps: HashMap<u32, Arc<Tap>>,
    /// What edges that choose their targets have in common.
    pub(crate) routing: RouteTable,
}

/// One of this agent's instances.
pub(crate) struct Local {
    pub(crate) placed: Placed,
    pub(crate) counters: Arc<Counters>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) options: mpsc::UnboundedSender<SetOption>,
    /// Columns that reach it, if it is a sink.
    pub(crate) sink_schema: Option<SchemaRef>,
    /// (edge index, sender number there)
    pub(crate) exits: Vec<(u32, usize)>,
}

impl Run {
    /// Counters of all instances here.
    pub(crate) fn instance_reports(&self) -> Vec<InstanceReport> {
        self.local.iter().map(|local| self.instance_report(local)).collect()
    }

    /// Counters of one instance.
    pub(crate) fn instance_report(&self, local: &Local) -> InstanceReport {
        use std::sync::atomic::Ordering::Relaxed;
        let counters = &local.counters;
        let times = counters.clock.read();
        let (dropped, note) = counters.rare_facts();
        let queue_out = local
            .exits
            .iter()
            .filter_map(|(edge, sender)| Some(self.edges.get(edge)?.waiting(*sender)))
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
    /// its end means that its rows have arrived. A lost peer ends the run instead.
    pub(crate) async fn wait_until_arrived(&self, local: &Local) {
        use crate::sync::Ordering::Relaxed;
        let on_its_edges = |edge: &u32| local.exits.iter().any(|(exit, _)| exit == edge);
        let flights = self.flights.iter().filter(|((edge, _), _)| on_its_edges(&edge_of(*edge)));
        for (_, flight) in flights {
            while flight.rows.load(Relaxed) > 0 {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// The ledger as this agent sees it.
    pub(crate) fn ledger(&self) -> Vec<EdgeLedger> {
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
                let flow = ledger.flows.entry((self.me, agent)).or_default();
                flow.rows += rows;
                flow.bytes += bytes;
                *ledger.targets.entry(instance).or_default() += rows;
            }
        }
        for ((index, agent), flight) in &self.flights {
            use crate::sync::Ordering::Relaxed;
            let Some(ledger) = ledgers.get_mut(&edge_of(*index)) else { continue };
            ledger.in_flight += flight.rows.load(Relaxed);
            ledger.flows.entry((self.me, *agent)).or_default().wire_bytes += flight.wire_bytes.load(Relaxed);
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
        ledgers.into_values().collect()
    }

    /// Counters and ledger.
    pub(crate) fn report(&self) -> RunReport {
        let (instances, edges) = (self.instance_reports(), self.ledger());
        RunReport { run: self.run, instances, edges, parts: Vec::new() }
    }

    /// It was stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Some instance has not ended.
    pub(crate) fn is_live(&self) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        !self.is_stopped() && self.local.iter().any(|local| !local.counters.ended.load(Relaxed))
    }

    /// Ends everything where it stands; rows that wait are dropped and counted.
    pub(crate) async fn stop(&self) -> RunReport {
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
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
        for edge in self.edges.values() {
            edge.close(DROPPED_BY_STOP);
        }
        for local in &self.local {
            local.inbox.close();
        }
        for local in &self.local {
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
        for local in &self.local {
            let vertex = self.dag.vertex(local.placed.vertex);
            if vertex.stages.iter().any(|s| s == stage) {
                let change = SetOption { option: option.to_owned(), value: value.clone() };
                // An instance that has ended no longer listens, and needs not.
                let _ = local.options.send(change);
                local.inbox.nudge();
            }
        }
        Ok(())
    }

    /// What a follower of a vertex has not seen yet.
    pub(crate) fn peek(&self, vertex: u32, follower: u64, rate: f64, from: u64) -> Result<Peeked, WireFault> {
        use std::sync::atomic::Ordering::Relaxed;
        let Some(tap) = self.taps.get(&vertex) else {
            let message = format!("run {} has no instance of vertex {vertex} on this agent", self.run);
            return Err(WireFault::new(FaultCode::NotFound, message));
        };
        let here = self.local.iter().filter(|local| local.placed.vertex.0 == vertex);
        // Looked at before the rows: what comes in between is fetched by the next question.
        let ended = here.into_iter().all(|local| local.counters.ended.load(Relaxed)) || self.is_stopped();
        tap.ask(follower, rate, from, ended).map_err(|e| WireFault::new(FaultCode::Refused, e))
    }

    /// The split of this agent's own files that a row was read from.
    pub(crate) fn own_split(&self, row: RowPlace, agents: u16) -> Option<&Split> {
        let stage = place::source_stage(&self.job, row.source())?;
        let (agent, number) = place::owner(row.split(), agents);
        self.own_splits.get(&stage.id).filter(|_| agent == self.me)?.get(number as usize)
    }

    /// The name of one of its edges.
    pub(crate) fn edge_name(&self, edge: u32) -> String {
        self.dag.edge_name(EdgeId(edge))
    }
}
