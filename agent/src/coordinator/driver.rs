//! The driver: one task that takes notes, applies commands, logs them, and only then answers and acts.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tuplane_core::cluster::{Command, Effect, Job, Logged, NewJob, NextSplit, Placed, State};
use tuplane_core::plan::{Dag, Routing};
use tuplane_core::route::policy_names;
use tuplane_wire::message::{
    AgentId, AgentInfo, AgentRequest, ClusterReply, ClusterRequest, EdgeLedger, Event, FaultCode, JobPhase,
    Report, RunPlan, SinkFile, WireFault,
};
use tuplane_wire::service::Hello;

use super::check::{self, Mixing, Surroundings};
use super::links::Links;
use super::live::Live;
use super::log::Log;
use super::status::{self, Costs};
use super::{CoordinatorConfig, Ended, OwnAgent, effects};

/// Leases are looked at, and ends waited for, so often.
const TICK: Duration = Duration::from_millis(250);

/// Notes that share one sync of the log.
const BATCH: usize = 256;

/// How long a finished run may take until its last rows are accounted for.
const SETTLE: Duration = Duration::from_secs(3);

type Reply = oneshot::Sender<Result<ClusterReply, WireFault>>;

/// What the driver is told.
#[derive(Debug)]
pub(super) enum Note {
    /// A request.
    Asked { request: Box<ClusterRequest>, reply: Reply },
    /// A submitted job was looked at.
    Checked { result: Box<Result<NewJob, WireFault>>, reply: Reply },
    /// A stopped job was placed again.
    Placed { run: u64, result: Result<Placed, WireFault> },
    /// An effect has ended.
    Happened(Command),
    /// Agents have stopped a run.
    Stopped { run: u64, ledgers: Vec<(String, Vec<EdgeLedger>)> },
    /// The files of a run are visible.
    Sealed { run: u64, files: Vec<SinkFile> },
    /// The process of an agent is gone.
    Gone { id: AgentId, cause: String },
    /// Two agents that are both there cannot reach each other.
    Apart { ids: [AgentId; 2], cause: String },
    /// Agents have taken a change, or not.
    Changed { command: Command, result: Result<(), WireFault>, reply: Reply },
}

/// What one round of notes leads to, once it is on disk.
#[derive(Default)]
struct Turn {
    entries: Vec<Logged>,
    replies: Vec<(Reply, Result<ClusterReply, WireFault>)>,
    effects: Vec<Effect>,
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
    log: Log,
    live: Live,
    costs: Costs,
    links: Links,
    notes: mpsc::UnboundedSender<Note>,
    /// Runs that are being prepared: a stop ends that first.
    beginning: HashMap<u64, AbortHandle>,
    /// Runs whose files are visible and whose ledger is not settled, with the time since.
    settling: HashMap<u64, (Instant, Vec<SinkFile>)>,
    ending: bool,
}

impl Driver {
    pub(super) fn new(
        config: CoordinatorConfig,
        own: OwnAgent,
        notes: mpsc::UnboundedSender<Note>,
        log: Log,
        entries: Vec<Logged>,
    ) -> Self {
        let mut state = State::default();
        for entry in entries {
            // Effects of the past were carried out, or ended with those who did.
            state.apply(entry);
        }
        let hello = Hello::ours(env!("CARGO_PKG_VERSION"), config.registry);
        let links = Links::new(config.me.clone(), own, config.security.clone(), hello, notes.clone());
        Self {
            costs: Costs::new(config.costs.clone()),
            config,
            state,
            log,
            live: Live::default(),
            links,
            notes,
            beginning: HashMap::new(),
            settling: HashMap::new(),
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
            self.log.append(&turn.entries).await.map_err(|e| e.to_string())?;
        }
        for (reply, result) in turn.replies {
            // Whoever asked may have given up.
            let _ = reply.send(result);
        }
        for effect in turn.effects {
            self.act(effect).await;
        }
        Ok(())
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
            .filter(|agent| !matches!(agent.presence, tuplane_core::cluster::Presence::Dead { .. }))
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
            Note::Asked { request, reply } => self.asked(turn, *request, reply),
            Note::Checked { result, reply } => {
                let result = match *result {
                    Ok(new) => self.submit(turn, new),
                    Err(fault) => Err(fault),
                };
                turn.answer(reply, result);
            }
            Note::Placed { run, result: Ok(placed) } => self.apply(turn, Command::Restarted { run, placed }),
            Note::Placed { run, result: Err(fault) } => {
                self.apply(turn, Command::RestartFailed { run, fault })
            }
            Note::Happened(command) => {
                if let Command::Prepared { run } | Command::PrepareFailed { run, .. } = &command {
                    self.beginning.remove(run);
                }
                self.apply(turn, command);
            }
            Note::Stopped { run, ledgers } => {
                for (agent, edges) in ledgers {
                    self.live.stopped(&agent, run, edges);
                }
                let edges = self.live.run(run).map(super::live::LiveRun::ledger).unwrap_or_default();
                self.apply(turn, Command::Stopped { run, edges });
            }
            Note::Sealed { run, files } => {
                let now = Instant::now();
                self.settling.insert(run, (now, files));
                self.settle(turn, run, now);
            }
            Note::Gone { id, cause } => self.lose(turn, id, cause),
            Note::Apart { ids, cause } => self.apart(turn, &ids, &cause),
            Note::Changed { command, result, reply } => {
                if result.is_ok() {
                    self.apply(turn, command);
                }
                turn.answer(reply, result.map(|()| ClusterReply::Done));
            }
        }
    }

    fn asked(&mut self, turn: &mut Turn, request: ClusterRequest, reply: Reply) {
        let result = match request {
            ClusterRequest::Register(info) => self.register(turn, info),
            ClusterRequest::Report(report) => self.report(turn, *report),
            ClusterRequest::Events { agent, events } => self.events(turn, &agent, events),
            ClusterRequest::NextSplit { agent, run, stage, instance, have } => {
                self.next_split(turn, &agent, run, &stage, instance, have)
            }
            ClusterRequest::Submit { job, force } => return self.check(turn, job, force, reply),
            ClusterRequest::Jobs => Ok(ClusterReply::Jobs(self.state.jobs().map(status::summary).collect())),
            ClusterRequest::Status { job } => self.status(job.as_deref()),
            ClusterRequest::Cancel { job } => self.cancel(turn, &job),
            ClusterRequest::Agents => {
                Ok(ClusterReply::Agents(status::agents(&self.state, &self.live, &self.config.me)))
            }
            ClusterRequest::Set { job, stage, option, value } => {
                match self.running(&job).map(|job| (job.run, ids(job))) {
                    Ok((run, agents)) => {
                        let ask = AgentRequest::Set {
                            run,
                            stage: stage.clone(),
                            option: option.clone(),
                            value: value.clone(),
                        };
                        let command = Command::OptionSet { run, stage, option, value };
                        return self.change(agents, ask, command, reply);
                    }
                    Err(fault) => Err(fault),
                }
            }
            ClusterRequest::Route { job, edge, policy } => match self.routable(&job, &edge, &policy) {
                Ok((run, edge, agents)) => {
                    let ask = AgentRequest::Route { run, edge, policy: policy.clone() };
                    return self.change(agents, ask, Command::PolicySet { run, edge, policy }, reply);
                }
                Err(fault) => Err(fault),
            },
            ClusterRequest::Shutdown => {
                self.apply(turn, Command::ShutdownRequested);
                Ok(ClusterReply::Done)
            }
        };
        turn.answer(reply, result);
    }

    fn register(&mut self, turn: &mut Turn, info: AgentInfo) -> Result<ClusterReply, WireFault> {
        if let Some(fault) = self.state.refuses(&info) {
            return Err(fault);
        }
        self.live.heard(&info.id, Instant::now());
        if !self.state.alive().any(|known| *known == info) {
            let old = self.state.agents().map(|agent| &agent.info.id).find(|id| id.name == info.id.name);
            if let Some(old) = old.filter(|old| **old != info.id).cloned() {
                self.live.forget_agent(&old);
                self.links.remove(&old);
            }
            tracing::info!(agent = %info.id.name, address = info.address, "an agent joined");
            self.apply(turn, Command::AgentRegistered(Box::new(info.clone())));
        }
        self.links.add(&info);
        Ok(ClusterReply::Registered {
            lease_ms: self.config.lease.as_millis() as u64,
            agents: self.state.alive().cloned().collect(),
        })
    }

    /// Whoever is not registered as alive is told how to go on: register, or with a new incarnation.
    fn alive(&self, id: &AgentId) -> Result<(), WireFault> {
        if self.state.is_alive(id) {
            return Ok(());
        }
        let known = self.state.agents().find(|agent| agent.info.id.name == id.name);
        let away = known.is_none_or(|agent| {
            agent.info.id == *id && agent.presence == tuplane_core::cluster::Presence::Away
        });
        Err(if away {
            WireFault::new(FaultCode::NotFound, format!("agent {} is not registered here", id.name))
        } else {
            WireFault::new(FaultCode::Stale, format!("agent {} was replaced or given up", id.name))
        })
    }

    fn report(&mut self, turn: &mut Turn, report: Report) -> Result<ClusterReply, WireFault> {
        let Some(id) = report.agent.clone() else {
            return Err(WireFault::new(FaultCode::Refused, "a report without its agent"));
        };
        self.alive(&id)?;
        let runs = self.state.runs_of(&id);
        let now = Instant::now();
        self.live.report(&id, report, &runs, now);
        for run in &runs {
            self.settle(turn, *run, now);
        }
        Ok(ClusterReply::Reported { now_ns: wall_ns(), runs })
    }

    fn events(
        &mut self,
        turn: &mut Turn,
        id: &AgentId,
        events: Vec<Event>,
    ) -> Result<ClusterReply, WireFault> {
        self.alive(id)?;
        self.live.heard(id, Instant::now());
        for event in events {
            match event {
                Event::InstanceEnded { run, instance, last, edges, files } => {
                    if self.state.run(run).is_none_or(|job| job.forgotten) {
                        continue;
                    }
                    self.live.instance_ended(&id.name, run, (*last).clone(), edges);
                    self.apply(turn, Command::InstanceEnded { run, instance, last, files });
                }
                Event::InstanceFailed { run, instance, fault } => {
                    tracing::warn!(run, instance, agent = %id.name, %fault, "an instance failed");
                    self.apply(turn, Command::InstanceFailed { run, instance, fault });
                }
                Event::PeerGone { peer, cause } => self.peer_gone(id.clone(), peer, cause),
            }
        }
        Ok(ClusterReply::Done)
    }

    /// One agent's word is not enough: the coordinator looks for itself.
    fn peer_gone(&self, reporter: AgentId, peer: AgentId, cause: String) {
        let Some(address) = self.state.alive().find(|info| info.id == peer).map(|info| info.address.clone())
        else {
            return;
        };
        let (links, notes) = (self.links.clone(), self.notes.clone());
        tokio::spawn(async move {
            let note = match links.is_gone(&address).await {
                Some(cause) => Note::Gone { id: peer, cause },
                None => Note::Apart { ids: [reporter, peer], cause },
            };
            // Without its receiver the coordinator has ended.
            let _ = notes.send(note);
        });
    }

    fn apart(&mut self, turn: &mut Turn, ids: &[AgentId; 2], cause: &str) {
        if !ids.iter().all(|id| self.state.is_alive(id)) {
            return;
        }
        let runs: Vec<_> = self
            .state
            .jobs()
            .filter(|job| job.is_active() && ids.iter().all(|id| job.uses(id)))
            .map(|job| job.run)
            .collect();
        for run in runs {
            let message = format!("agent {} cannot reach agent {}: {cause}", ids[0].name, ids[1].name);
            let fault = WireFault::new(FaultCode::Agent, message);
            self.apply(turn, Command::InstanceFailed { run, instance: 0, fault });
        }
    }

    fn next_split(
        &mut self,
        turn: &mut Turn,
        id: &AgentId,
        run: u64,
        stage: &str,
        instance: u32,
        have: u32,
    ) -> Result<ClusterReply, WireFault> {
        self.alive(id)?;
        let unknown =
            || WireFault::new(FaultCode::NotFound, format!("run {run} has no splits for `{stage}`"));
        let job = self.state.run(run).ok_or_else(unknown)?;
        match job.next_split(stage, instance, have) {
            NextSplit::Again(split) => Ok(ClusterReply::Split(Some(split))),
            NextSplit::Exhausted => Ok(ClusterReply::Split(None)),
            NextSplit::Unknown => Err(unknown()),
            NextSplit::Take(split, command) => {
                self.apply(turn, command);
                Ok(ClusterReply::Split(Some(split)))
            }
        }
    }

    fn surroundings(&self) -> Surroundings {
        Surroundings {
            agents: self.state.alive().cloned().collect(),
            folder: self.config.folder.clone(),
            registry: self.config.registry,
        }
    }

    /// Reads files, so not here and now.
    fn check(&mut self, turn: &mut Turn, job: String, force: bool, reply: Reply) {
        if self.state.is_shutting_down() {
            let fault = WireFault::new(FaultCode::Refused, "the cluster is shutting down");
            return turn.answer(reply, Err(fault));
        }
        let (around, notes) = (self.surroundings(), self.notes.clone());
        let mixing = if force { Mixing::Forced } else { Mixing::Refused };
        tokio::task::spawn_blocking(move || {
            let result = Box::new(check::check(&job, mixing, &around));
            // Without its receiver the coordinator has ended.
            let _ = notes.send(Note::Checked { result, reply });
        });
    }

    fn submit(&mut self, turn: &mut Turn, new: NewJob) -> Result<ClusterReply, WireFault> {
        self.apply(turn, Command::Submitted(Box::new(new)));
        let Some(job) = self.state.jobs().next_back() else {
            return Err(WireFault::new(FaultCode::Internal, "the job is not in the state"));
        };
        if let (JobPhase::Failed, Some(fault)) = (&job.phase, &job.fault) {
            Err(fault.clone())
        } else {
            tracing::info!(run = job.run, name = job.name, "a job was accepted");
            Ok(ClusterReply::Submitted { run: job.run, name: job.name.clone() })
        }
    }

    fn find(&self, name: &str) -> Result<&Job, WireFault> {
        self.state.find(name).ok_or_else(|| {
            let names: Vec<_> = self.state.jobs().map(|job| job.name.as_str()).collect();
            let hint = match tuplane_core::fault::suggestion(name, names) {
                Some(close) => format!("; did you mean `{close}`?"),
                None => String::new(),
            };
            WireFault::new(FaultCode::NotFound, format!("there is no job `{name}`{hint}"))
        })
    }

    fn running(&self, name: &str) -> Result<&Job, WireFault> {
        let job = self.find(name)?;
        if job.phase == JobPhase::Running {
            return Ok(job);
        }
        let message = format!("job {} is not running: it is {}", job.name, phase_name(job.phase));
        Err(WireFault {
            retryable: job.phase == JobPhase::Starting,
            ..WireFault::new(FaultCode::Refused, message)
        })
    }

    fn status(&self, name: Option<&str>) -> Result<ClusterReply, WireFault> {
        let job = match name {
            Some(name) => self.find(name)?,
            None => self
                .state
                .jobs()
                .next_back()
                .ok_or_else(|| WireFault::new(FaultCode::NotFound, "no job was submitted yet"))?,
        };
        Ok(ClusterReply::Status(Box::new(status::job(job, &self.live, &self.costs, wall_ms()))))
    }

    fn cancel(&mut self, turn: &mut Turn, name: &str) -> Result<ClusterReply, WireFault> {
        let job = self.find(name)?;
        let (run, phase) = (job.run, job.phase);
        match phase {
            JobPhase::Starting | JobPhase::Running | JobPhase::Stopping => {
                self.apply(turn, Command::CancelRequested { run });
                Ok(ClusterReply::Done)
            }
            JobPhase::Sealing | JobPhase::Finished | JobPhase::Cancelled | JobPhase::Failed => {
                let message = format!("job {} cannot be cancelled: it is {}", job.name, phase_name(phase));
                Err(WireFault::new(FaultCode::Refused, message))
            }
        }
    }

    fn routable(&self, job: &str, edge: &str, policy: &str) -> Result<(u64, u32, Vec<AgentId>), WireFault> {
        let refused = |message: String| WireFault::new(FaultCode::Refused, message);
        let job = self.running(job)?;
        if !policy_names().contains(&policy) {
            return Err(refused(format!(
                "no policy is called `{policy}`; there are: {}",
                policy_names().join(", ")
            )));
        }
        let dag: Dag = serde_json::from_str(&job.dag)
            .map_err(|e| WireFault::new(FaultCode::Internal, format!("the plan cannot be read: {e}")))?;
        let id =
            dag.find_edge(edge).map_err(|fault| WireFault::new(FaultCode::NotFound, fault.to_string()))?;
        let found = dag.edge(id);
        if found.routing != Routing::Unicast {
            return Err(refused(format!("edge {} takes no policy: {}", dag.edge_name(id), found.why)));
        }
        Ok((job.run, id.0, ids(job)))
    }

    fn change(&self, agents: Vec<AgentId>, ask: AgentRequest, command: Command, reply: Reply) {
        let (links, notes) = (self.links.clone(), self.notes.clone());
        tokio::spawn(async move {
            let result = effects::change(&links, &agents, ask).await;
            // Without its receiver the coordinator has ended.
            let _ = notes.send(Note::Changed { command, result, reply });
        });
    }

    /// Ends a run whose files are visible, once all its rows are accounted for.
    fn settle(&mut self, turn: &mut Turn, run: u64, now: Instant) {
        let Some((since, _)) = self.settling.get(&run) else { return };
        let live = self.live.run(run);
        let late = now.saturating_duration_since(*since) > SETTLE;
        if !late && !live.is_some_and(super::live::LiveRun::is_settled) {
            return;
        }
        let edges = live.map(super::live::LiveRun::final_ledger).unwrap_or_default();
        if let Some((_, files)) = self.settling.remove(&run) {
            self.apply(turn, Command::SealDone { run, files, edges });
            if let Some(job) = self.state.run(run) {
                let (links, agents) = (self.links.clone(), ids(job));
                // Its files may still be fetched; its instances and queues are not needed any more.
                let ask = AgentRequest::Stop { run, reason: "finished".to_owned() };
                tokio::spawn(async move { effects::tell(&links, &agents, ask).await });
            }
        }
    }

    async fn act(&mut self, effect: Effect) {
        let (links, notes) = (self.links.clone(), self.notes.clone());
        match effect {
            Effect::Prepare { run } => self.begin(run),
            Effect::Stop { run, agents, reason } => {
                self.settling.remove(&run);
                let beginning = self.beginning.remove(&run);
                tokio::spawn(async move {
                    if let Some(beginning) = beginning {
                        beginning.abort();
                    }
                    let ledgers = effects::stop(&links, run, &agents, &reason).await;
                    let _ = notes.send(Note::Stopped { run, ledgers });
                });
            }
            Effect::Replace { run } => {
                let Some(job) = self.state.run(run) else { return };
                let (job, dag, around) = (job.job.clone(), job.dag.clone(), self.surroundings());
                tokio::task::spawn_blocking(move || {
                    let result = check::place_again(&job, &dag, &around);
                    let _ = notes.send(Note::Placed { run, result });
                });
            }
            Effect::Seal { run, empty } => {
                let Some(job) = self.state.run(run) else { return };
                let agents = ids(job);
                tokio::spawn(async move {
                    let note = match effects::seal(&links, run, &agents, &empty).await {
                        Ok(files) => Note::Sealed { run, files },
                        Err(fault) => Note::Happened(Command::SealFailed { run, fault }),
                    };
                    let _ = notes.send(note);
                });
            }
            Effect::Forget { run, agents } => {
                self.live.forget(run);
                tokio::spawn(
                    async move { effects::tell(&links, &agents, AgentRequest::Forget { run }).await },
                );
            }
            Effect::Set { run, stage, option, value } => {
                self.tell_run(run, AgentRequest::Set { run, stage, option, value });
            }
            Effect::Route { run, edge, policy } => {
                self.tell_run(run, AgentRequest::Route { run, edge, policy });
            }
            Effect::TellPeersLost { id } => {
                self.links.remove(&id);
                let agents: Vec<_> = self.state.alive().map(|info| info.id.clone()).collect();
                tokio::spawn(async move { effects::tell(&links, &agents, AgentRequest::PeerLost(id)).await });
            }
            Effect::EndAgents => {
                let agents: Vec<_> = self
                    .state
                    .alive()
                    .map(|info| info.id.clone())
                    .filter(|id| *id != self.config.me)
                    .collect();
                let told = effects::tell(&links, &agents, AgentRequest::Shutdown);
                // An agent that does not answer ends with its lease.
                let _ = tokio::time::timeout(Duration::from_secs(2), told).await;
                self.ending = true;
            }
        }
    }

    fn begin(&mut self, run: u64) {
        let Some(job) = self.state.run(run) else { return };
        let plan = RunPlan {
            run,
            attempt: job.attempt,
            job: job.job.clone(),
            dag: job.dag.clone(),
            agents: job.agents.clone(),
            instances: job.instances.clone(),
            headers: job.headers.clone(),
        };
        let (links, notes) = (self.links.clone(), self.notes.clone());
        let task = tokio::spawn(async move {
            let command = match effects::begin(&links, plan).await {
                Ok(()) => Command::Prepared { run },
                Err(fault) => Command::PrepareFailed { run, fault },
            };
            let _ = notes.send(Note::Happened(command));
        });
        self.beginning.insert(run, task.abort_handle());
    }

    fn tell_run(&self, run: u64, ask: AgentRequest) {
        let Some(job) = self.state.run(run) else { return };
        let (links, agents) = (self.links.clone(), ids(job));
        tokio::spawn(async move { effects::tell(&links, &agents, ask).await });
    }
}

fn ids(job: &Job) -> Vec<AgentId> {
    job.agents.iter().map(|agent| agent.id.clone()).collect()
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
