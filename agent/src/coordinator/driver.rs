//! The driver: one task that takes notes, applies commands, logs them, and only then answers and acts.

mod act;
mod ask;
mod auto;
mod flow;
mod hold;
mod keys;
mod measure;
mod members;
mod operations;
mod routes;
mod scale;
mod sources;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tuplane_core::cluster::{Asked, Command, Effect, Job, Logged, NewJob, Placed, Presence, SealWork, State};
use tuplane_core::plan::VertexId;
use tuplane_core::scale::rates::Figure;
use tuplane_wire::message::{AgentId, ClusterReply, ClusterRequest, FaultCode, JobPhase, WireFault};
use tuplane_wire::service::Hello;

use super::check::Mixing;
use super::effects::LastWords;
use super::links::Links;
use super::live::{Live, LiveRun};
use super::log::{Log, LogError};
use super::places::Counts;
use super::scaling::Stands;
use super::status::Costs;
use super::{CoordinatorConfig, Ended, OwnAgent};

/// Leases are looked at, and ends waited for, so often.
const TICK: Duration = Duration::from_millis(250);

/// Notes that share one sync of the log.
const BATCH: usize = 256;

type Reply = oneshot::Sender<Result<ClusterReply, WireFault>>;

/// What the driver is told.
#[derive(Debug)]
pub(super) enum Note {
    /// A request.
    Asked { request: Box<ClusterRequest>, reply: Reply },
    /// A submitted job was looked at.
    Checked { result: Box<Result<NewJob, WireFault>>, mixing: Mixing, reply: Reply },
    /// A stopped job was placed again.
    Placed { run: u64, result: Result<Placed, WireFault> },
    /// An effect has ended.
    Happened(Command),
    /// Agents have stopped a run; those that answered, with their last words.
    Stopped { run: u64, last: Vec<LastWords> },
    /// Files of a run were made visible, or could not be.
    Sealed { run: u64, work: SealWork },
    /// The process of an agent is gone.
    Gone { id: AgentId, cause: String },
    /// Two agents that are both there cannot reach each other.
    Apart { ids: [AgentId; 2], cause: String },
    /// An answer that took its time.
    Answered { reply: Reply, result: Box<Result<ClusterReply, WireFault>> },
    /// The traces of a run were read, for their mean rates.
    Means { run: u64, means: BTreeMap<String, Figure> },
    /// Agents have taken a change, or not.
    Changed { run: u64, asked: Asked, command: Command, result: Result<(), WireFault>, reply: Reply },
}

/// What one round of notes leads to, once it is on disk.
#[derive(Default)]
struct Turn {
    entries: Vec<Logged>,
    replies: Vec<(Reply, Result<ClusterReply, WireFault>)>,
    effects: Vec<Effect>,
    /// So many of the entries came of requests to scale, to drain, or about the automatic mode.
    refusable: usize,
}

impl Turn {
    fn answer(&mut self, reply: Reply, result: Result<ClusterReply, WireFault>) {
        self.replies.push((reply, result));
    }
}

/// The driver's own state. All that must outlive it is in `state`, by way of the log.
pub(super) struct Driver {
    config: CoordinatorConfig,
    state: State,
    /// `None`: it could not be opened again, and this ends.
    log: Option<Log>,
    live: Live,
    costs: Costs,
    links: Links,
    counts: Counts,
    /// Runs whose failed row is being looked up.
    locating: HashSet<u64>,
    notes: mpsc::UnboundedSender<Note>,
    /// Runs that are being prepared: a stop ends that first.
    beginning: HashMap<u64, AbortHandle>,
    /// Runs that were sealed and whose ledger is not settled, with the time since.
    settling: HashMap<u64, (Instant, SealWork)>,
    /// Runs with options or policies that agents are being told, and how many of these.
    changing: HashMap<u64, u32>,
    /// The plans of each run that were shown only, one for each request.
    shown: HashMap<u64, Vec<scale::Shown>>,
    /// Vertices of a run that can have no more instances, and what that depends on.
    fixed: HashMap<u64, (Stands, BTreeMap<VertexId, String>)>,
    /// When it was looked last for what came of rescales.
    measured: Option<Instant>,
    autos: auto::Autos,
    hold: hold::Hold,
    /// Who makes the request that is being looked at, if they have said so.
    asker: Option<String>,
    ending: bool,
}

impl Driver {
    pub(super) fn new(
        config: CoordinatorConfig,
        own: OwnAgent,
        notes: mpsc::UnboundedSender<Note>,
        log: Log,
        state: State,
    ) -> Self {
        let hello = Hello::ours(env!("CARGO_PKG_VERSION"), config.registry.fingerprint());
        let links = Links::new(config.me.clone(), own, config.security.clone(), hello, notes.clone());
        Self {
            costs: Costs::new(config.costs.clone()),
            config,
            state,
            log: Some(log),
            live: Live::default(),
            links,
            counts: Counts::default(),
            locating: HashSet::new(),
            notes,
            beginning: HashMap::new(),
            settling: HashMap::new(),
            changing: HashMap::new(),
            shown: HashMap::new(),
            fixed: HashMap::new(),
            measured: None,
            autos: auto::Autos::new(Instant::now(), wall_ms()),
            hold: hold::Hold::from_environment(),
            asker: None,
            ending: false,
        }
    }

    pub(super) async fn run(
        mut self,
        mut inbox: mpsc::UnboundedReceiver<Note>,
        end: watch::Sender<Option<Ended>>,
    ) {
        let mut turn = Turn::default();
        self.apply(&mut turn, Command::CoordinatorStarted);
        let began = Instant::now();
        let away: Vec<_> = self.state.agents().map(|agent| agent.info.id.clone()).collect();
        for id in away {
            self.live.heard(&id, began);
        }
        let mut ticker = tokio::time::interval(TICK);
        ticker.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last_tick = began;
        loop {
            if let Err(message) = self.finish(std::mem::take(&mut turn)).await {
                tracing::error!(message, "the coordinator ends");
                end.send_replace(Some(Ended::Failed(message)));
                return;
            }
            if self.ending {
                end.send_replace(Some(Ended::Shutdown));
                return;
            }
            tokio::select! {
                note = inbox.recv() => {
                    let Some(note) = note else { return };
                    self.handle(&mut turn, note);
                    for _ in 1..BATCH {
                        let Ok(note) = inbox.try_recv() else { break };
                        self.handle(&mut turn, note);
                    }
                }
                _ = ticker.tick() => {
                    let now = Instant::now();
                    self.tick(&mut turn, now, now.saturating_duration_since(last_tick));
                    last_tick = now;
                }
            }
        }
    }

    fn apply(&mut self, turn: &mut Turn, command: Command) {
        let entry = Logged { at_ms: wall_ms(), command };
        turn.entries.push(entry.clone());
        turn.effects.extend(self.state.apply(entry));
    }

    /// Logs, then answers and acts.
    async fn finish(&mut self, turn: Turn) -> Result<(), String> {
        if !turn.entries.is_empty() {
            let Some(log) = &mut self.log else { return Err("the log is not open".to_owned()) };
            if let Err(error) = log.append(&turn.entries, &self.state).await {
                return self.unwritten(turn, &error);
            }
        }
        self.hold.at(&turn.entries, false).await;
        for (reply, result) in turn.replies {
            // Whoever asked may have given up.
            let _ = reply.send(result);
        }
        for effect in turn.effects {
            self.act(effect).await;
        }
        self.hold.at(&turn.entries, true).await;
        Ok(())
    }

    /// The log cannot be written. Where all that was to be written came of requests to scale and the like these are refused, and
    /// the state is what it was before them. Anything else has happened: a coordinator that went on would not know it after its end.
    fn unwritten(&mut self, turn: Turn, error: &LogError) -> Result<(), String> {
        let log = if turn.refusable == turn.entries.len() { self.log.take() } else { None };
        let (fault, result) = if let Some((log, state)) = log.and_then(|log| log.without_the_last().ok()) {
            tracing::warn!(%error, "a request is refused, and nothing was changed");
            (self.log, self.state) = (Some(log), state);
            let said = format!("nothing was changed: {error}; ask again once there is room");
            (WireFault { retryable: true, ..WireFault::new(FaultCode::Refused, said) }, Ok(()))
        } else {
            let said = format!(
                "what was asked is not done: {error}; the coordinator ends, and nobody steers the cluster's jobs any more: make \
                 room, and start the cluster again (`tuplane down`, `tuplane up`)"
            );
            // It is no defect, but something about the coordinator's host.
            (WireFault::new(FaultCode::Agent, said), Err(error.to_string()))
        };
        for (reply, _) in turn.replies {
            // Whoever asked may have given up.
            let _ = reply.send(Err(fault.clone()));
        }
        result
    }

    fn tick(&mut self, turn: &mut Turn, now: Instant, passed: Duration) {
        // This process was stopped for a while; reports wait in its sockets.
        if passed > TICK * 4 {
            self.live.forgive(passed);
        }
        let lease = self.config.lease;
        let silent: Vec<_> = self
            .state
            .agents()
            .filter(|agent| !matches!(agent.presence, Presence::Dead { .. }))
            .map(|agent| &agent.info.id)
            .filter(|id| **id != self.config.me)
            .filter(|id| {
                self.live.agent(id).is_none_or(|last| now.saturating_duration_since(last.seen) > lease)
            })
            .cloned()
            .collect();
        for id in silent {
            let cause = format!("it was not heard of for {} s", lease.as_secs_f64());
            self.lose(turn, id, cause);
        }
        // A plan may be done with no report since: what was measured while it was carried out is not to count.
        let runs: Vec<u64> = self.state.jobs().filter(|job| job.is_live()).map(|job| job.run).collect();
        for run in runs {
            self.see_plan(run, now);
        }
        self.measure(turn, now);
        self.automatic(turn, now);
        let settled: Vec<_> = self.settling.keys().copied().collect();
        for run in settled {
            self.settle(turn, run, now);
        }
    }

    fn lose(&mut self, turn: &mut Turn, id: AgentId, cause: String) {
        if id != self.config.me && self.state.agents().any(|agent| agent.info.id == id) {
            tracing::warn!(agent = %id.name, cause, "an agent is lost");
            self.apply(turn, Command::AgentLost { id, cause });
        }
    }

    fn handle(&mut self, turn: &mut Turn, note: Note) {
        match note {
            Note::Asked { request, reply } => {
                // These change nothing but the state, and have agents asked to do something afterwards: refused, they leave no trace.
                let refusable = matches!(
                    request.itself(),
                    ClusterRequest::Scale { .. } | ClusterRequest::Drain { .. } | ClusterRequest::Auto { .. }
                );
                let before = turn.entries.len();
                self.asked(turn, *request, reply);
                if refusable {
                    turn.refusable += turn.entries.len() - before;
                }
            }
            Note::Checked { result, mixing, reply } => {
                let result = match *result {
                    // An agent was lost or drained meanwhile: it is placed again, on those that are left.
                    Ok(new) if !self.takes_all(&new.placed) => {
                        return self.check(turn, new.job, mixing, reply);
                    }
                    Ok(new) => self.submit(turn, new, mixing),
                    Err(fault) => Err(fault),
                };
                turn.answer(reply, result);
            }
            // An agent was drained meanwhile; of one that was lost the state takes care.
            Note::Placed { run, result: Ok(placed) } if self.on_drained(&placed) => {
                turn.effects.push(Effect::Replace { run });
            }
            Note::Placed { run, result: Ok(placed) } => self.apply(turn, Command::Restarted { run, placed }),
            Note::Placed { run, result: Err(fault) } => {
                self.apply(turn, Command::RestartFailed { run, fault });
            }
            Note::Happened(command) => {
                if let Command::Prepared { run } | Command::PrepareFailed { run, .. } = &command {
                    self.beginning.remove(run);
                }
                if let Command::InstanceFailed { run, .. } = &command {
                    self.locating.remove(run);
                }
                self.apply(turn, command.clone());
                self.after_step(turn, &command);
            }
            Note::Stopped { run, last } => {
                let (mut parts, mut answered) = (Vec::new(), Vec::new());
                for (agent, report) in last {
                    if let Some(mut report) = report {
                        parts.append(&mut report.parts);
                        self.live.stopped(&agent, run, report);
                    }
                    answered.push(agent);
                }
                let edges = self.live.run(run).map(LiveRun::ledger).unwrap_or_default();
                self.apply(turn, Command::Stopped { run, edges, parts, answered });
            }
            Note::Sealed { run, work } => {
                let now = Instant::now();
                self.settling.insert(run, (now, work));
                self.settle(turn, run, now);
            }
            Note::Gone { id, cause } => self.lose(turn, id, cause),
            Note::Apart { ids, cause } => self.apart(turn, &ids, &cause),
            Note::Answered { reply, result } => turn.answer(reply, *result),
            Note::Means { run, means } => {
                if self.state.run(run).is_some_and(Job::is_live) {
                    self.live.set_means(run, means);
                }
            }
            Note::Changed { run, asked, command, result, reply } => {
                if let Entry::Occupied(mut under_way) = self.changing.entry(run) {
                    *under_way.get_mut() -= 1;
                    if *under_way.get() == 0 {
                        under_way.remove();
                    }
                }
                if result.is_ok() {
                    if let Command::OptionSet { run, .. } = &command {
                        self.option_was_set(turn, *run, Instant::now());
                    }
                    self.apply(turn, command);
                }
                let fault = result.as_ref().err().map(|fault| fault.message.clone());
                self.apply(turn, Command::Asked(Box::new(Asked { fault, ..asked })));
                turn.answer(reply, result.map(|()| ClusterReply::Done));
            }
        }
    }
}

/// Agents with instances of a job.
fn ids(job: &Job) -> Vec<AgentId> {
    job.agents.iter().map(|agent| agent.id.clone()).filter(|id| job.needs(id)).collect()
}

fn phase_name(phase: JobPhase) -> &'static str {
    match phase {
        JobPhase::Starting => "starting",
        JobPhase::Running => "running",
        JobPhase::Sealing => "making its results visible",
        JobPhase::Stopping => "being stopped",
        JobPhase::Finished => "finished",
        JobPhase::Cancelled => "cancelled",
        JobPhase::Failed => "failed",
    }
}

fn wall_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn wall_ms() -> u64 {
    wall_ns() / 1_000_000
}
