//! Agents that are drained and released.

use tuplane_core::cluster::{Command, Held, Job, Placed, Presence};
use tuplane_core::fault::suggestion;
use tuplane_wire::members::{AgentDrain, JobDrain};
use tuplane_wire::message::{AgentId, ClusterReply, FaultCode, JobPhase, WireFault};
use tuplane_wire::scaling::ScaleAsk;

use super::scale::read;
use super::{Driver, Turn, phase_name};

impl Driver {
    /// No new instances for an agent, and none of those that can move stays there.
    pub(super) fn drain(
        &mut self,
        turn: &mut Turn,
        name: &str,
        undo: bool,
        dry_run: bool,
    ) -> Result<ClusterReply, WireFault> {
        let (id, _) = self.member(name)?;
        if !dry_run && self.state.is_drained(name) == undo {
            self.apply(turn, Command::AgentDrained { name: name.to_owned(), drained: !undo });
            let what = format!("drain {name}{}", if undo { " --undo" } else { "" });
            self.operation(turn, what, self.asker(), None, None);
            // They may have had new instances there.
            self.shown.clear();
        }
        let held = if undo { Vec::new() } else { self.state.held_by(&id) };
        let held = held.into_iter().filter(|held| !held.instances.is_empty() || held.prepares);
        let runs: Vec<u64> = held.map(|held| held.job.run).collect();
        let jobs = runs.into_iter().filter_map(|run| self.drain_job(turn, run, name, dry_run)).collect();
        let drained = self.state.is_drained(name);
        Ok(ClusterReply::Drained(Box::new(AgentDrain { agent: name.to_owned(), drained, jobs })))
    }

    fn drain_job(&mut self, turn: &mut Turn, run: u64, agent: &str, dry_run: bool) -> Option<JobDrain> {
        let job = self.state.run(run)?;
        let mut answer = JobDrain {
            job: job.name.clone(),
            run,
            plan: None,
            stays: Vec::new(),
            why: None,
            // These end by themselves.
            again: matches!(job.phase, JobPhase::Stopping | JobPhase::Sealing),
        };
        if let Err(fault) = self.move_away(turn, run, agent, dry_run, &mut answer) {
            answer.again |= fault.retryable;
            answer.why = Some(fault.message);
        }
        Some(answer)
    }

    fn move_away(
        &mut self,
        turn: &mut Turn,
        run: u64,
        agent: &str,
        dry_run: bool,
        answer: &mut JobDrain,
    ) -> Result<(), WireFault> {
        let job = self.running(&run.to_string())?;
        Self::has_no_plan_under_way(job)?;
        let (spec, dag) = read(job)?;
        let known = self.known(job, &spec, &dag);
        let (mut change, stays) = known.evacuate(agent);
        answer.stays = stays;
        let ask = ScaleAsk::In { agents: 1, agent: Some(agent.to_owned()), planner: None, keep: true };
        if change.remove.is_empty() {
            return Ok(());
        }
        change.why = Some(format!("{agent} is drained: all that can moves to other agents"));
        known.foretell(&mut change);
        let (mut plan, new) = known.plan(&ask, change)?;
        if let Some(new) = new.filter(|_| !dry_run) {
            plan.next = Some(self.carry_out(turn, run, new, self.asker())?);
            plan.operation = Some(self.state.operations().last());
        }
        answer.plan = Some(plan);
        Ok(())
    }

    /// An agent leaves the cluster, if nothing is there that a job needs.
    pub(super) fn release(&mut self, turn: &mut Turn, name: &str) -> Result<ClusterReply, WireFault> {
        let refused = |message: String| Err(WireFault::new(FaultCode::Refused, message));
        let (id, dead) = self.member(name)?;
        if id == self.config.me {
            return refused(format!("{name} coordinates: the cluster ends with it (`tuplane down`)"));
        }
        let held = self.state.held_by(&id);
        if !held.is_empty() {
            let all: Vec<String> = held.iter().map(is_there).collect();
            return refused(format!("{name} is needed: {}", all.join("; ")));
        }
        if !dead && !self.state.is_drained(name) {
            return refused(format!("{name} is not drained: `tuplane agents drain {name}` first"));
        }
        tracing::info!(agent = name, "an agent is released");
        self.apply(turn, Command::AgentReleased { id: id.clone() });
        self.operation(turn, format!("release {name}"), self.asker(), None, None);
        self.live.forget_agent(&id);
        Ok(ClusterReply::Done)
    }

    /// An agent of this name is known and was not lost.
    pub(super) fn is_here(&self, name: &str) -> Result<(), WireFault> {
        if self.member(name)?.1 {
            let message = format!(
                "agent {name} is lost, and all that it had with it: nothing can be moved from there (`tuplane agents \
                 release {name}` takes it out of the cluster)"
            );
            return Err(WireFault::new(FaultCode::Refused, message));
        }
        Ok(())
    }

    /// An agent of this name, and whether it is dead.
    fn member(&self, name: &str) -> Result<(AgentId, bool), WireFault> {
        if let Some(agent) = self.state.agents().find(|agent| agent.info.id.name == name) {
            return Ok((agent.info.id.clone(), matches!(agent.presence, Presence::Dead { .. })));
        }
        let names: Vec<&str> = self.state.agents().map(|agent| agent.info.id.name.as_str()).collect();
        // Of two short names one is as close to a third as the other.
        let close = suggestion(name, names.iter().copied()).filter(|close| close.len() > 3);
        let hint = match close {
            Some(close) => format!("did you mean `{close}`?"),
            None => format!("there are {}", names.join(", ")),
        };
        Err(WireFault::new(FaultCode::NotFound, format!("there is no agent `{name}`; {hint}")))
    }

    /// All agents are there, and none is drained.
    pub(super) fn takes_all(&self, placed: &Placed) -> bool {
        placed.agents.iter().all(|info| self.state.is_alive(&info.id)) && !self.on_drained(placed)
    }

    /// An agent of these is drained.
    pub(super) fn on_drained(&self, placed: &Placed) -> bool {
        placed.agents.iter().any(|info| self.state.is_drained(&info.id.name))
    }

    /// Why no job can begin, where all agents are drained.
    pub(super) fn nobody_open(&self) -> Option<WireFault> {
        let all = self.state.alive().count();
        (all > 0 && self.state.open().next().is_none()).then(|| {
            let message = format!(
                "all {all} agents are drained: `tuplane agents drain NAME --undo` takes that back, \
                 `tuplane agents add` starts more"
            );
            WireFault::new(FaultCode::Refused, message)
        })
    }
}

/// What a job has on an agent, in words.
fn is_there(held: &Held<'_>) -> String {
    let mut what: Vec<String> = Vec::new();
    if !held.instances.is_empty() {
        what.push(instances(held.job, held));
    }
    if held.prepares {
        what.push("a plan that is being prepared".to_owned());
    }
    if held.files {
        what.push("files that become visible when it has ended".to_owned());
    }
    format!("job {} ({}) has {} there", held.job.name, phase_name(held.job.phase), what.join(", "))
}

/// Names of a job's instances, or their number where the plan does not say.
fn instances(job: &Job, held: &Held<'_>) -> String {
    let Ok((_, dag)) = read(job) else { return format!("{} instances", held.instances.len()) };
    let names = held.instances.iter().map(|one| format!("{}#{}", dag.vertex(one.vertex).label(), one.number));
    names.collect::<Vec<_>>().join(", ")
}
