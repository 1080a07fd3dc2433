//! Requests to the coordinator: each is answered from the state, or becomes a command.

use std::time::Instant;

use tuplane_core::cluster::{Command, Job, NewJob, NextSplit, Presence};
use tuplane_core::fault::shortened;
use tuplane_core::place::{self, RowPlace};
use tuplane_core::plan::ahead::refuses_route;
use tuplane_core::plan::{Dag, Routing};
use tuplane_wire::message::{
    AgentId, AgentInfo, AgentRequest, ClusterReply, ClusterRequest, Event, FaultCode, JobPhase, Report,
    WireFault,
};

use super::scale::Held;
use super::{Driver, Note, Reply, Turn, ids, phase_name, routes, wall_ms, wall_ns};
use crate::coordinator::check::{self, Mixing, Surroundings};
use crate::coordinator::places::{self, Lookup};
use crate::coordinator::{etp, status};

impl Driver {
    /// Answers a request, or has it answered later.
    pub(super) fn asked(&mut self, turn: &mut Turn, request: ClusterRequest, reply: Reply) {
        let result = match request {
            ClusterRequest::Register(info) => self.register(turn, info),
            ClusterRequest::Report(report) => self.report(turn, *report),
            ClusterRequest::Events { agent, events } => self.events(turn, &agent, events),
            ClusterRequest::NextSplit { agent, run, stage, instance, have } => {
                self.next_split(turn, &agent, run, &stage, instance, have)
            }
            ClusterRequest::Submit { job, force } => {
                let mixing = if force { Mixing::Forced } else { Mixing::Refused };
                return self.check(turn, job, mixing, reply);
            }
            ClusterRequest::Check { job } => return self.only_check(job, reply),
            ClusterRequest::Jobs => Ok(ClusterReply::Jobs(self.state.jobs().map(status::summary).collect())),
            ClusterRequest::Status { job } => return self.status(turn, job.as_deref(), reply),
            ClusterRequest::Cancel { job } => self.cancel(turn, &job),
            ClusterRequest::Agents => {
                Ok(ClusterReply::Agents(status::agents(&self.state, &self.live, &self.config.me)))
            }
            ClusterRequest::Set { job, stage, option, value } => match self.settable(&job) {
                Ok((run, agents)) => {
                    let ask = AgentRequest::Set {
                        run,
                        stage: stage.clone(),
                        option: option.clone(),
                        value: value.clone(),
                    };
                    let what = format!("set {stage}.{option}={value}");
                    let command = Command::OptionSet { run, stage, option, value };
                    return self.change(run, what, agents, ask, command, reply);
                }
                Err(fault) => Err(fault),
            },
            ClusterRequest::Route { job, edge: name, policy, options } => {
                match self.routable(&job, &name, &policy, &options) {
                    Ok((run, edge, agents)) => {
                        let ask = AgentRequest::Route {
                            run,
                            edge,
                            policy: policy.clone(),
                            options: options.clone(),
                        };
                        let what = format!("route {name} {policy} {options}").trim_end().to_owned();
                        let command = Command::PolicySet { run, edge, policy, options };
                        return self.change(run, what, agents, ask, command, reply);
                    }
                    Err(fault) => Err(fault),
                }
            }
            ClusterRequest::Routes { job, decisions } => match self.running(&job) {
                Ok(job) => return routes::ask(job, decisions, self.links.clone(), self.notes.clone(), reply),
                Err(fault) => Err(fault),
            },
            ClusterRequest::Scale { job, ask, if_epoch, if_plan, dry_run } => {
                self.scale(turn, &job, &ask, Held { epoch: if_epoch, plan: if_plan }, dry_run)
            }
            ClusterRequest::Scalings { job } => self.scalings(&job),
            ClusterRequest::Etp { job, ratio } => self.etp(&job, ratio),
            ClusterRequest::Drain { agent, undo, dry_run } => self.drain(turn, &agent, undo, dry_run),
            ClusterRequest::Release { agent } => self.release(turn, &agent),
            ClusterRequest::Auto { job, ask } => self.set_automatic(turn, &job, ask),
            ClusterRequest::By { who, request } => {
                self.asked_by(&who);
                self.asked(turn, *request, reply);
                self.asker = None;
                return;
            }
            ClusterRequest::Operations { job } => self.operations(job.as_deref()),
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
            let known = self.state.agents().any(|agent| agent.info.id.name == info.id.name);
            self.apply(turn, Command::AgentRegistered(Box::new(info.clone())));
            // One that joins while jobs run is room for them.
            if !known && self.state.jobs().any(Job::is_live) {
                self.operation(turn, format!("add {}", info.id.name), info.id.name.clone(), None, None);
            }
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
        let away = known.is_none_or(|agent| agent.info.id == *id && agent.presence == Presence::Away);
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
        for run in &runs {
            let Some(job) = self.state.run(*run) else { continue };
            self.live.keep(*run, &|instance| job.lists(instance));
            if self.live.plan_is(*run, job.epoch(), job.under_way().is_some(), now) {
                // The first that is heard of it, by this coordinator.
                etp::read_traces(*run, job.job.clone(), self.config.folder.clone(), self.notes.clone());
            }
        }
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
                    match fault.place {
                        Some(place) => self.locate(run, instance, fault, place),
                        None => self.apply(turn, Command::InstanceFailed { run, instance, fault }),
                    }
                }
                Event::PeerGone { peer, cause } => self.peer_gone(id.clone(), peer, cause),
            }
        }
        Ok(ClusterReply::Done)
    }

    /// An instance failed on a row that has a place: what is logged and shown names it. A job fails once,
    /// however many rows are bad: the others' places need not be looked up.
    fn locate(&mut self, run: u64, instance: u32, mut fault: WireFault, place: RowPlace) {
        let Some(job) = self.state.run(run).filter(|job| job.is_active()) else { return };
        if !self.locating.insert(run) {
            return;
        }
        let lookup = Lookup::new(job, place);
        let (links, counts, notes) = (self.links.clone(), self.counts.clone(), self.notes.clone());
        tokio::spawn(async move {
            let words = lookup.words(&links, &counts, places::FOR_A_FAULT).await;
            fault.message = place::sentence(&fault.message, &words);
            fault.place = None;
            // Without its receiver the coordinator has ended.
            let _ = notes.send(Note::Happened(Command::InstanceFailed { run, instance, fault }));
        });
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

    pub(super) fn apart(&mut self, turn: &mut Turn, ids: &[AgentId; 2], cause: &str) {
        if !ids.iter().all(|id| self.state.is_alive(id)) {
            return;
        }
        let runs: Vec<_> = self
            .state
            .jobs()
            .filter(|job| job.is_active() && ids.iter().all(|id| job.needs(id)))
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

    pub(super) fn surroundings(&self) -> Surroundings {
        Surroundings {
            agents: self.state.open().cloned().collect(),
            folder: self.config.folder.clone(),
            registry: self.config.registry.clone(),
            costs: self.costs.clone(),
        }
    }

    /// Reads files, so not here and now.
    pub(super) fn check(&mut self, turn: &mut Turn, job: String, mixing: Mixing, reply: Reply) {
        if self.state.is_shutting_down() {
            let fault = WireFault::new(FaultCode::Refused, "the cluster is shutting down");
            return turn.answer(reply, Err(fault));
        }
        if let Some(fault) = self.nobody_open() {
            return turn.answer(reply, Err(fault));
        }
        let (around, notes) = (self.surroundings(), self.notes.clone());
        tokio::task::spawn_blocking(move || {
            let result = Box::new(check::check(&job, mixing, &around));
            // Without its receiver the coordinator has ended.
            let _ = notes.send(Note::Checked { result, mixing, reply });
        });
    }

    /// The same without a run: results of earlier ones do not matter.
    fn only_check(&self, job: String, reply: Reply) {
        let (around, notes) = (self.surroundings(), self.notes.clone());
        tokio::task::spawn_blocking(move || {
            let checked = check::check(&job, Mixing::Forced, &around);
            let result = Box::new(checked.map(|_| ClusterReply::Done));
            // Without its receiver the coordinator has ended.
            let _ = notes.send(Note::Answered { reply, result });
        });
    }

    pub(super) fn submit(
        &mut self,
        turn: &mut Turn,
        new: NewJob,
        mixing: Mixing,
    ) -> Result<ClusterReply, WireFault> {
        if mixing == Mixing::Refused {
            // Only here are no two jobs looked at side by side.
            let live = self.state.jobs().filter(|job| job.is_live());
            let live = live.map(|job| (job.name.as_str(), job.job.as_str()));
            check::taken_folders(&new.job, live, &self.config.folder)?;
        }
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

    pub(super) fn find(&self, name: &str) -> Result<&Job, WireFault> {
        self.state.find(name).ok_or_else(|| {
            let names: Vec<_> = self.state.jobs().map(|job| job.name.as_str()).collect();
            let hint = match tuplane_core::fault::suggestion(name, names) {
                Some(close) => format!("; did you mean `{close}`?"),
                None => "; `tuplane jobs` lists them".to_owned(),
            };
            WireFault::new(FaultCode::NotFound, format!("there is no job `{}`{hint}", shortened(name, 100)))
        })
    }

    pub(super) fn running(&self, name: &str) -> Result<&Job, WireFault> {
        let job = self.find(name)?;
        if job.phase == JobPhase::Running && job.waits {
            let message =
                format!("job {} waits for its agents, which have to find the new coordinator", job.name);
            return Err(WireFault { retryable: true, ..WireFault::new(FaultCode::Refused, message) });
        }
        if job.phase == JobPhase::Running {
            return Ok(job);
        }
        let message = format!("job {} is not running: it is {}", job.name, phase_name(job.phase));
        Err(WireFault {
            retryable: job.phase == JobPhase::Starting,
            ..WireFault::new(FaultCode::Refused, message)
        })
    }

    /// A running job whose options may be changed, and its agents.
    fn settable(&self, name: &str) -> Result<(u64, Vec<AgentId>), WireFault> {
        let job = self.running(name)?;
        Self::has_switched(job)?;
        Ok((job.run, ids(job)))
    }

    fn status(&self, turn: &mut Turn, name: Option<&str>, reply: Reply) {
        let none = || WireFault::new(FaultCode::NotFound, "no job was submitted yet");
        let found = if let Some(name) = name {
            self.find(name)
        } else {
            let lives = self.state.jobs().rev().find(|job| job.is_live());
            lives.or_else(|| self.state.jobs().next_back()).ok_or_else(none)
        };
        let job = match found {
            Ok(job) => job,
            Err(fault) => return turn.answer(reply, Err(fault)),
        };
        let mut status = Box::new(status::job(job, &self.live, &self.costs, wall_ms()));
        status.scale.auto = self.thought(job);
        let lookups = places::unlocated(job, &status.counters);
        if lookups.is_empty() {
            return turn.answer(reply, Ok(ClusterReply::Status(status)));
        }
        let (links, counts, notes) = (self.links.clone(), self.counts.clone(), self.notes.clone());
        tokio::spawn(async move {
            places::locate_notes(&mut status.counters, lookups, &links, &counts).await;
            let result = Box::new(Ok(ClusterReply::Status(status)));
            // Without its receiver the coordinator has ended.
            let _ = notes.send(Note::Answered { reply, result });
        });
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

    fn routable(
        &self,
        job: &str,
        edge: &str,
        policy: &str,
        options: &str,
    ) -> Result<(u64, u32, Vec<AgentId>), WireFault> {
        let refused = |message: String| WireFault::new(FaultCode::Refused, message);
        let job = self.running(job)?;
        Self::has_switched(job)?;
        let given =
            routes::check(self.config.registry.policies(), &job.agents, policy, options).map_err(refused)?;
        let unread = |e| WireFault::new(FaultCode::Internal, format!("the plan cannot be read: {e}"));
        let dag: Dag = serde_json::from_str(&job.dag).map_err(unread)?;
        let id = dag.find_edge(edge).map_err(|fault| {
            let code = if edge.contains("..") { FaultCode::NotFound } else { FaultCode::Refused };
            WireFault::new(code, fault.to_string())
        })?;
        let found = dag.edge(id);
        if found.routing != Routing::Unicast {
            return Err(refused(format!("edge {} takes no policy: {}", dag.edge_name(id), found.why)));
        }
        let written: tuplane_core::job::Job = serde_json::from_str(&job.job).map_err(unread)?;
        if let Some(why) = refuses_route(&dag, &written, id, policy, &given) {
            return Err(refused(why));
        }
        Ok((job.run, id.0, ids(job)))
    }
}
