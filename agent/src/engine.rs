//! The engine: runs' instances on the data runtime, and what the control side may ask of them.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tuplane_core::place::{self, RowPlace};
use tuplane_wire::message::{AgentId, Event, FaultCode, Peeked, RunPlan, RunReport, SinkFile, WireFault};
use tuplane_wire::net::{Incoming, Security, in_words};
use tuplane_wire::routing::EdgeRouting;

pub(crate) mod budget;
pub(crate) mod build;
pub(crate) mod calls;
pub(crate) mod clock;
pub(crate) mod cores;
pub mod due;
mod grown;
pub(crate) mod halt;
pub(crate) mod handover;
mod hold;
pub(crate) mod instance;
mod keys;
pub(crate) mod ledger;
mod meter;
mod moving;
pub mod operator;
pub(crate) mod output;
pub(crate) mod rescale;
mod response;
pub(crate) mod routing;
pub mod rows;
pub(crate) mod run;
mod seal;
mod sessions;
pub(crate) mod sourcing;
pub(crate) mod spill;
pub(crate) mod splits;
pub(crate) mod stamp;
mod tables;
pub(crate) mod tap;
pub(crate) mod task;
pub(crate) mod timer;
mod watch;
pub(crate) mod work;

pub use splits::SplitClient;
pub use task::STACK;

use crate::exchange::edge::Edge;
use crate::exchange::inbound::Inbound;
use crate::exchange::outbound::Outbound;
use crate::registry::Registry;
use crate::service::HttpClient;
use build::Ready;
use cores::Cores;
use rows::Budget;
use run::Run;
use task::Task;
use timer::Timer;
pub(crate) use watch::said;
use watch::{compact, watch_edge, watch_instance, watch_manager};

/// What an engine needs to know.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The agent.
    pub me: AgentId,
    /// Bytes of queued rows.
    pub memory: u64,
    /// Most rows in `work` at once; 0 for no limit.
    pub cores: u32,
    /// Relative paths start here.
    pub folder: PathBuf,
    /// The agent's own folder: what does not fit into memory goes here.
    pub state: PathBuf,
    /// How data connections are secured.
    pub security: Security,
    /// Operators, sources and sinks of the user's own.
    pub registry: Arc<Registry>,
}

/// So many runs that were stopped are remembered: a request to begin one that comes late is refused.
const CLOSED: usize = 1024;

/// The engine of one agent.
pub struct Engine {
    shared: Arc<Shared>,
    runs: Mutex<HashMap<u64, Held>>,
    /// Held while a run is built, and while sessions that none needs are closed.
    building: tokio::sync::Mutex<()>,
    /// Runs that are over: none of them begins (again). A run's number is never used twice.
    closed: Mutex<BTreeSet<u64>>,
    /// Visible files by run: what may be read from outside.
    visible: Mutex<HashMap<u64, Vec<SinkFile>>>,
    aborted: rescale::Aborted,
}

/// A run and the plan it came from.
#[derive(Clone)]
struct Held {
    run: Arc<Run>,
    plan: Arc<RunPlan>,
}

/// What all runs of an agent share.
pub(crate) struct Shared {
    pub(crate) me: AgentId,
    pub(crate) budget: Arc<Budget>,
    pub(crate) cores: Option<Arc<Cores>>,
    pub(crate) folder: PathBuf,
    pub(crate) state: PathBuf,
    pub(crate) timer: Timer,
    pub(crate) splits: Arc<dyn SplitClient>,
    /// Connections to the servers that stages call.
    pub(crate) http: Arc<HttpClient>,
    pub(crate) registry: Arc<Registry>,
    security: Security,
    pub(crate) data: Handle,
    events: mpsc::UnboundedSender<Event>,
    outbound: Mutex<HashMap<AgentId, Arc<Outbound>>>,
    inbound: Mutex<HashMap<AgentId, Arc<Inbound>>>,
    /// Instances that wait to be spawned, by run.
    ready: Mutex<HashMap<u64, Vec<Ready>>>,
    /// Nanoseconds that the wall clock here is ahead of the coordinator's, as far as that is known.
    pub(crate) clock_offset: AtomicI64,
}

impl Engine {
    /// An engine whose instances run on `data`.
    ///
    /// # Errors
    /// If the timer's thread cannot be started.
    pub fn new(
        config: EngineConfig,
        data: Handle,
        events: mpsc::UnboundedSender<Event>,
        splits: Arc<dyn SplitClient>,
    ) -> std::io::Result<Arc<Self>> {
        let shared = Shared {
            me: config.me,
            budget: Budget::new(config.memory),
            cores: (config.cores > 0).then(|| Arc::new(Cores::new(config.cores))),
            folder: config.folder,
            state: config.state,
            timer: Timer::start()?,
            splits,
            http: Arc::default(),
            registry: config.registry,
            security: config.security,
            data,
            events,
            outbound: Mutex::default(),
            inbound: Mutex::default(),
            ready: Mutex::default(),
            clock_offset: AtomicI64::new(0),
        };
        Ok(Arc::new(Self {
            shared: Arc::new(shared),
            runs: Mutex::default(),
            building: tokio::sync::Mutex::default(),
            closed: Mutex::default(),
            visible: Mutex::default(),
            aborted: Mutex::default(),
        }))
    }

    /// Makes the instances, queues and channels of a run. Nothing reads yet.
    pub async fn prepare(self: &Arc<Self>, plan: RunPlan) -> Result<(), WireFault> {
        let engine = Arc::clone(self);
        // A task of its own: a caller that gives up must not leave half a run behind.
        let prepared = self.shared.data.spawn(async move { engine.prepare_whole(plan).await });
        prepared.await.map_err(|e| internal(&format!("preparing a run failed: {e}")))?
    }

    async fn prepare_whole(&self, plan: RunPlan) -> Result<(), WireFault> {
        let _one = self.building.lock().await;
        if self.is_closed(plan.run) {
            return Err(over(plan.run));
        }
        if let Some(held) = self.find(plan.run) {
            // Asked again after a lost answer.
            return if held.plan.attempt == plan.attempt {
                Ok(())
            } else {
                Err(WireFault::new(
                    FaultCode::Stale,
                    format!("run {} is prepared for another attempt", plan.run),
                ))
            };
        }
        let (shared, kept) = (Arc::clone(&self.shared), Arc::new(plan.clone()));
        let live = |held: &&Held| held.run.is_live();
        let reserved = lock(&self.runs).values().filter(live).map(|held| held.run.stand().reserved).sum();
        // Compiling expressions takes a while.
        let built = self.shared.data.spawn_blocking(move || build::build(&shared, plan, reserved)).await;
        let built = match built {
            Ok(Ok(built)) => built,
            Ok(Err(fault)) => {
                self.shared.forget(kept.run);
                self.shared.close_unused();
                return Err(fault);
            }
            Err(panic) => {
                self.shared.forget(kept.run);
                self.shared.close_unused();
                return Err(internal(&format!("preparing a run failed: {panic}")));
            }
        };
        let run = Arc::new(built.run);
        // Whoever ends a run says so first and looks for it then, so one of the two sees the other.
        lock(&self.shared.ready).insert(run.run, built.instances);
        lock(&self.runs).insert(run.run, Held { run, plan: kept.clone() });
        if self.is_closed(kept.run) {
            self.drop_run(kept.run).await;
            self.shared.close_unused();
            return Err(over(kept.run));
        }
        Ok(())
    }

    /// The run is over, whether or not it ever began here.
    fn close_run(&self, run: u64) {
        let mut closed = lock(&self.closed);
        closed.insert(run);
        while closed.len() > CLOSED {
            closed.pop_first();
        }
    }

    /// A coordinator that does not know this agent may use the numbers of runs anew.
    pub fn reopen(&self) {
        lock(&self.closed).clear();
        lock(&self.aborted).clear();
    }

    fn is_closed(&self, run: u64) -> bool {
        lock(&self.closed).contains(&run)
    }

    /// Rows begin to flow.
    pub fn start(&self, run: u64) -> Result<(), WireFault> {
        let run = self.get(run)?;
        let ready = lock(&self.shared.ready).remove(&run.run).unwrap_or_default();
        self.spawn(&run, run.stand().edges.values().cloned().collect(), ready)?;
        if let Some(tasks) = lock(&run.tasks).as_mut() {
            tasks.push(Task::shared(&self.shared.data, compact(Arc::clone(&run))));
            let (agent, events) = (self.shared.me.name.clone(), self.shared.events.clone());
            tasks.extend(grown::watch(&run, agent, events).map(|w| Task::shared(&self.shared.data, w)));
        }
        run.start.send_replace(true);
        Ok(())
    }

    /// These edges of a run are moved from now on, and these instances of it begin.
    fn spawn(&self, run: &Arc<Run>, edges: Vec<Arc<Edge>>, ready: Vec<Ready>) -> Result<(), WireFault> {
        let mut held = lock(&run.tasks);
        // A stop takes the list away, and what it has not found there must not begin.
        let Some(tasks) = held.as_mut() else { return Err(over(run.run)) };
        tasks.retain_mut(|task| !task.is_over());
        for edge in edges {
            let pump = watch_edge(Arc::clone(run), edge, self.shared.events.clone());
            tasks.push(Task::shared(&self.shared.data, pump));
        }
        let manager =
            Task::shared(&self.shared.data, watch_manager(Arc::clone(run), self.shared.events.clone()));
        if let Some(before) = lock(&run.manager).replace(manager) {
            before.abort();
        }
        for (local, instance) in ready {
            let own = instance.blocks().then(|| instance.name.clone());
            let watched = watch_instance(Arc::clone(run), local, instance, self.shared.events.clone());
            tasks.push(match own {
                Some(name) => Task::own(&name, &self.shared.data, watched)
                    .map_err(|e| internal(&format!("no thread for {name}: {e}")))?,
                None => Task::shared(&self.shared.data, watched),
            });
        }
        Ok(())
    }

    /// All instances stop where they are; gives the counters and the ledger of that moment, and the part
    /// files that stay. With `discard` nothing of the run stays: it had not begun everywhere.
    pub async fn stop(
        self: &Arc<Self>,
        run: u64,
        reason: &str,
        discard: bool,
    ) -> Result<RunReport, WireFault> {
        tracing::info!(run, reason, discard, "run stops");
        let engine = Arc::clone(self);
        // A task of its own: half a stop would leave queues open and lose the ledger.
        let stopped = self.shared.data.spawn(async move { engine.stop_whole(run, discard).await });
        stopped.await.map_err(|e| internal(&format!("stopping a run failed: {e}")))?
    }

    async fn stop_whole(&self, run: u64, discard: bool) -> Result<RunReport, WireFault> {
        self.close_run(run);
        if self.find(run).is_none() {
            // It may just be being built: then it is gone when that is over.
            drop(self.building.lock().await);
        }
        lock(&self.shared.ready).remove(&run);
        let Some(Held { run: held, .. }) = self.find(run) else {
            self.shared.forget(run);
            return Err(no_run(run));
        };
        let mut report = held.stop().await;
        self.shared.forget(run);
        let parts = held.parts.clone();
        let left = tokio::task::spawn_blocking(move || if discard { parts.remove() } else { parts.left() });
        report.parts = left.await.map_err(|e| internal(&format!("naming a run's files failed: {e}")))?;
        if discard {
            drop(held);
            let _one = self.building.lock().await;
            self.drop_run(run).await;
            self.shared.close_unused();
        }
        Ok(report)
    }

    async fn drop_run(&self, run: u64) {
        let held = lock(&self.runs).remove(&run);
        lock(&self.shared.ready).remove(&run);
        if let Some(held) = held {
            held.run.stop().await;
        }
        self.shared.forget(run);
    }

    /// Ends everything: this agent goes on under another name, or not at all.
    pub fn close(self: &Arc<Self>) {
        let engine = Arc::clone(self);
        self.shared.data.spawn(async move {
            let runs: Vec<u64> = lock(&engine.runs).keys().copied().collect();
            for run in runs {
                engine.forget(run).await;
            }
            for session in lock(&engine.shared.outbound).drain() {
                session.1.close();
            }
            for session in lock(&engine.shared.inbound).drain() {
                session.1.close();
            }
        });
    }

    /// The job has finished: parts become visible, those of other agents of this host too, and sinks
    /// without a row get an empty file. Asking again gives the same answer.
    pub async fn seal(
        &self,
        run: u64,
        parts: Vec<SinkFile>,
        empty: Vec<String>,
    ) -> Result<Vec<SinkFile>, WireFault> {
        let held = self.find(run);
        let shared = Arc::clone(&self.shared);
        // Renaming and syncing files blocks.
        let sealed = self.shared.data.spawn_blocking(move || seal::seal(&shared, run, held, &parts, &empty));
        let files = sealed
            .await
            .map_err(|e| WireFault::new(FaultCode::Internal, format!("sealing failed: {e}")))??;
        let mut visible = lock(&self.visible);
        let known = visible.entry(run).or_default();
        for file in &files {
            if !known.contains(file) {
                known.push(file.clone());
            }
        }
        Ok(files)
    }

    /// Nothing of the run is needed any more.
    pub async fn forget(&self, run: u64) {
        self.close_run(run);
        lock(&self.visible).remove(&run);
        lock(&self.aborted).remove(&run);
        self.drop_run(run).await;
    }

    /// Changes a live option of a stage's instances here.
    pub fn set(&self, run: u64, stage: &str, option: &str, value: &str) -> Result<(), WireFault> {
        let refused = |message: String| WireFault::new(FaultCode::Refused, message);
        let value =
            serde_json::from_str(value).map_err(|e| refused(format!("`{value}` is no value: {e}")))?;
        self.get(run)?.set(stage, option, &value)
    }

    /// Changes the policy of an edge's senders here.
    pub fn route(&self, run: u64, edge: u32, policy: &str, options: &str) -> Result<(), WireFault> {
        let run = self.get(run)?;
        run.route(edge, policy, options)
            .map_err(|e| WireFault::new(FaultCode::Refused, format!("{}: {e}", run.edge_name(edge))))
    }

    /// How the edges of a run stand that choose their targets, as they are sent on from here, with the newest
    /// decisions in so many bytes.
    pub fn routings(&self, run: u64, decisions: u64) -> Result<Vec<EdgeRouting>, WireFault> {
        Ok(self.get(run)?.routings(decisions))
    }

    /// What a follower of a vertex has not seen yet.
    pub fn peek(
        &self,
        run: u64,
        vertex: u32,
        follower: u64,
        rate: f64,
        from: u64,
    ) -> Result<Peeked, WireFault> {
        let held = self.find(run).ok_or_else(|| no_run(run))?;
        let peeked = held.run.peek(vertex, follower, rate, from)?;
        Ok(Peeked { attempt: held.plan.attempt, ..peeked })
    }

    /// An agent is dead: nothing is sent to it any more.
    pub fn peer_lost(&self, id: &AgentId) {
        if let Some(session) = lock(&self.shared.outbound).remove(id) {
            session.close();
        }
        // Kept, so that a late dial of the dead one finds a closed door.
        self.shared.session_from(id).close();
    }

    /// Counters of all runs here.
    pub fn reports(&self) -> Vec<RunReport> {
        let runs: Vec<Arc<Run>> = lock(&self.runs).values().map(|held| Arc::clone(&held.run)).collect();
        // What a stopped run had to say it has said in answer to the stop.
        runs.iter().filter(|run| !run.is_stopped()).map(|run| run.report()).collect()
    }

    /// Drops runs that the coordinator no longer knows.
    pub fn retain(self: &Arc<Self>, runs: &[u64]) {
        lock(&self.visible).retain(|run, _| runs.contains(run));
        let gone: Vec<u64> = lock(&self.runs).keys().filter(|run| !runs.contains(run)).copied().collect();
        for run in gone {
            tracing::warn!(run, "the coordinator does not know this run any more: dropped");
            let engine = Arc::clone(self);
            self.shared.data.spawn(async move { engine.forget(run).await });
        }
    }

    /// A file that a sink of the run wrote; no other file may be read from outside.
    pub fn sink_file(&self, run: u64, path: &str) -> Option<PathBuf> {
        let known = lock(&self.visible).get(&run).is_some_and(|files| files.iter().any(|f| f.path == path));
        known.then(|| PathBuf::from(path))
    }

    /// Where a row entered that was read from a file of this agent's own.
    pub async fn locate(&self, run: u64, place: RowPlace) -> Result<String, WireFault> {
        let held = self.find(run).ok_or_else(|| no_run(run))?;
        let agents = held.plan.first_agents;
        let Some(split) = held.run.own_split(place, agents) else {
            let message = format!("run {run} read no such row from a file of this agent");
            return Err(WireFault::new(FaultCode::NotFound, message));
        };
        let folder = self.shared.folder.clone();
        // Lines before it may have to be counted.
        let found = tokio::task::spawn_blocking(move || {
            place::words(&split, place.line(), |split| crate::source::lines_before(split, &folder))
        });
        found.await.map_err(|e| internal(&format!("looking for a row failed: {e}")))
    }

    /// Bytes that queued rows keep alive, and their bound: the agent's, raised for the time of runs whose queues grow.
    pub fn charged(&self) -> (u64, u64) {
        let agents = &self.shared.budget;
        let runs = lock(&self.runs);
        let own = runs.values().map(|held| &held.run).filter(|run| !Arc::ptr_eq(&run.budget, agents));
        own.filter(|run| run.is_live()).fold((agents.used(), agents.limit()), |(used, limit), run| {
            (used.saturating_add(run.budget.used()), limit.saturating_add(run.budget.limit()))
        })
    }

    /// Bytes that the queues of each live run may hold.
    pub fn reserved(&self) -> Vec<(u64, u64)> {
        let runs = lock(&self.runs);
        let live = runs.iter().filter(|(_, held)| held.run.is_live());
        live.map(|(run, held)| (*run, held.run.stand().reserved)).collect()
    }

    /// Round trips to peers, in microseconds.
    pub fn round_trips(&self) -> Vec<(String, u64)> {
        lock(&self.shared.outbound)
            .values()
            .filter_map(|session| Some((session.peer().name.clone(), session.round_trip()?)))
            .collect()
    }

    /// Serves a data connection that another agent has opened, on the data runtime.
    pub fn accept_data(self: &Arc<Self>, incoming: Incoming) {
        let shared = Arc::clone(&self.shared);
        self.shared.data.spawn(async move {
            let peer = incoming.peer();
            if let Err(error) = shared.serve_data(incoming).await {
                tracing::info!(%peer, error = in_words(&error), "data connection ended");
            }
        });
    }

    fn find(&self, run: u64) -> Option<Held> {
        lock(&self.runs).get(&run).cloned()
    }

    fn get(&self, run: u64) -> Result<Arc<Run>, WireFault> {
        self.find(run).map(|held| held.run).ok_or_else(|| no_run(run))
    }
}

fn internal(message: &str) -> WireFault {
    WireFault::new(FaultCode::Internal, message)
}

/// A run that was ended, or was never to begin.
fn over(run: u64) -> WireFault {
    WireFault::new(FaultCode::Stale, format!("run {run} was stopped"))
}

fn no_run(run: u64) -> WireFault {
    WireFault::new(FaultCode::NotFound, format!("this agent has no run {run}"))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
