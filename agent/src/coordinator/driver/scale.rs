//! Rescales of running jobs: asked for, prepared on the agents, committed, and carried through.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tuplane_core::cluster::rescale::{Step, newest};
use tuplane_core::cluster::{Command, Job, NewScale};
use tuplane_core::job;
use tuplane_core::plan::{Dag, Room};
use tuplane_wire::message::{AgentId, AgentInfo, ClusterReply, FaultCode, JobPhase, RunPlan, WireFault};
use tuplane_wire::scaling::{JobScalings, ScaleAsk};

use super::{Driver, Note, Turn};
use crate::coordinator::effects::{self, keys};
use crate::coordinator::scaling::{self, Change, Known};

/// A plan is prepared within this time, or fails.
const PREPARE: Duration = Duration::from_secs(20);

/// A plan that was shown holds for so long.
const AGREED: Duration = Duration::from_mins(1);

/// So many of them are kept of a run.
const MOST_SHOWN: usize = 8;

/// Bytes of a history that are sent at once, of the 7 MiB that a reply may have.
const MOST_HISTORY: usize = 4 << 20;

/// A refusal that a moment later need not be one.
fn busy(message: String) -> WireFault {
    WireFault { retryable: true, ..WireFault::new(FaultCode::Refused, message) }
}

impl Driver {
    /// Looks at a request to scale, and begins to carry it out unless it is only asked what it would do.
    pub(super) fn scale(
        &mut self,
        turn: &mut Turn,
        name: &str,
        ask: &ScaleAsk,
        held: Held,
        dry_run: bool,
    ) -> Result<ClusterReply, WireFault> {
        let job = self.running(name)?;
        if let Some(wanted) = held.epoch.filter(|wanted| *wanted != job.epoch()) {
            let message = format!("job {} has plan {}, and not plan {wanted}", job.name, job.epoch());
            return Err(WireFault::new(FaultCode::Stale, message));
        }
        let run = job.run;
        // A planner would choose for a job that is neither the one before nor the one after that plan.
        let what = match ask {
            ScaleAsk::Restarting { ask, .. } => ask,
            live => live,
        };
        let chooses = matches!(what, ScaleAsk::Out { .. } | ScaleAsk::In { agent: None, .. });
        if !dry_run || chooses {
            Self::has_no_plan_under_way(job)?;
        }
        if let ScaleAsk::In { agent: Some(agent), .. } = what {
            self.is_here(agent)?;
        }
        let (spec, dag) = read(job)?;
        let known = self.known(job, &spec, &dag);
        let epoch = job.epoch();
        let shown = self.shown.get(&run).into_iter().flatten().filter(|_| !dry_run);
        let meant = |shown: &&Shown| held.plan.is_none_or(|wanted| shown.id == Some(wanted));
        let change = match shown.rev().filter(meant).find(|shown| shown.is(ask, epoch)) {
            Some(shown) => shown.change.clone(),
            None => scaling::wanted(ask, &known).map_err(|fault| held.or_stale(job, fault))?,
        };
        let (mut plan, new) = known.plan(ask, change.clone())?;
        if plan.is_empty() {
            // It is so now, and would not be once the other plan holds.
            Self::has_no_plan_under_way(job)?;
        }
        if let Some(wanted) = held.plan.filter(|wanted| plan.id != Some(*wanted)) {
            let message = format!(
                "{} would be another plan for job {} now than {wanted:016x}, which was shown: its rates, its agents or what \
                 they hold have changed; look at it again (--dry-run)",
                plan.asked, plan.job
            );
            return Err(WireFault::new(FaultCode::Stale, message));
        }
        if dry_run {
            let shown = self.shown.entry(run).or_default();
            // Another one of the same request stays: somebody else may be about to agree to it.
            shown.retain(|shown| shown.id != plan.id && shown.at.elapsed() < AGREED);
            if shown.len() >= MOST_SHOWN {
                shown.remove(0);
            }
            shown.push(Shown { ask: ask.clone(), epoch, id: plan.id, change, at: Instant::now() });
        }
        if let Some(new) = new.filter(|_| !dry_run) {
            plan.next = Some(self.carry_out(turn, run, new, self.asker())?);
            plan.operation = Some(self.state.operations().last());
        }
        Ok(ClusterReply::Scaled(Box::new(plan)))
    }

    /// What is known of a job that is to be scaled.
    pub(super) fn known<'a>(&'a self, job: &'a Job, spec: &'a job::Job, dag: &'a Dag) -> Known<'a> {
        let going = job.under_way().filter(|plan| plan.step == Step::Committed);
        let going = going.map_or(&[][..], |plan| &plan.new.going);
        let agents: Vec<_> = self.state.alive().cloned().collect();
        let room = |id: &AgentId| {
            let host = &self.live.agent(id)?.host;
            let (own, others): (Vec<_>, Vec<_>) = host.reserved.iter().partition(|(run, _)| *run == job.run);
            let sum = |of: Vec<(u64, u64)>| of.iter().map(|(_, bytes)| bytes).sum();
            (host.budget > 0).then(|| Room { budget: host.budget, others: sum(others), own: sum(own) })
        };
        let drained = agents.iter().map(|agent| &agent.id.name).filter(|name| self.state.is_drained(name));
        let mut shared = BTreeSet::new();
        for other in self.state.jobs().filter(|other| other.is_live() && other.run != job.run) {
            let on: BTreeSet<u16> = other.standing().map(|one| one.agent).collect();
            let agents = on.into_iter().filter_map(|agent| other.agents.get(usize::from(agent)));
            shared.extend(agents.map(|agent| agent.id.name.clone()));
        }
        Known {
            job,
            spec,
            dag,
            running: job.standing().filter(|one| !going.contains(&one.id)).copied().collect(),
            rooms: agents.iter().filter_map(|a| Some((a.id.name.clone(), room(&a.id)?))).collect(),
            drained: drained.cloned().collect(),
            agents,
            live: self.live.run(job.run),
            planners: self.config.registry.planners(),
            coordinator: &self.config.me.name,
            shared,
        }
    }

    /// One plan of a job is carried out at a time.
    pub(super) fn has_no_plan_under_way(job: &Job) -> Result<(), WireFault> {
        let Some(plan) = job.under_way() else { return Ok(()) };
        let message = format!(
            "job {} is being rescaled: plan {} ({}) is {}; wait for it (`tuplane scale history {}`)",
            job.name,
            plan.new.epoch,
            plan.new.asked,
            plan.step.word(),
            job.name
        );
        Err(busy(message))
    }

    /// Begins to carry out a plan that somebody has asked for; gives its number. It is an operation.
    pub(super) fn carry_out(
        &mut self,
        turn: &mut Turn,
        run: u64,
        new: NewScale,
        by: String,
    ) -> Result<u64, WireFault> {
        let (epoch, what) = (new.epoch, format!("scale {}", new.asked));
        if self.changing.contains_key(&run) {
            // What agents have been told and the log does not have yet would not reach the plan's new instances.
            let name = self.state.run(run).map_or("?", |job| job.name.as_str());
            return Err(busy(format!(
                "an option or a policy of job {name} is being changed; try again in a moment"
            )));
        }
        self.apply(turn, Command::RescaleAsked { run, new: Box::new(new) });
        let taken = self.state.run(run).and_then(Job::under_way);
        if taken.is_none_or(|taken| taken.new.epoch != epoch) {
            let message = match self.state.run(run) {
                Some(job) if job.phase != JobPhase::Running => {
                    format!("job {} is not running any more", job.name)
                }
                _ => "the job or its agents changed while the plan was made; try again".to_owned(),
            };
            return Err(busy(message));
        }
        self.operation(turn, what, by, Some(run), Some(epoch));
        Ok(epoch)
    }

    /// The rescales of a job.
    pub(super) fn scalings(&self, name: &str) -> Result<ClusterReply, WireFault> {
        let job = self.find(name)?;
        let (all, forgotten) = job.rescales();
        let (history, left_out) = newest(all, MOST_HISTORY);
        Ok(ClusterReply::Scalings(Box::new(JobScalings {
            job: job.name.clone(),
            run: job.run,
            epoch: job.epoch(),
            history,
            left_out: forgotten + left_out,
            auto: self.automatic_view(job),
        })))
    }

    /// Options and policies stay as they are until all agents route by a plan that is under way: its new instances and
    /// senders begin with those that held when it was made.
    pub(super) fn has_switched(job: &Job) -> Result<(), WireFault> {
        match job.under_way() {
            Some(plan) if !plan.switched => {
                Err(busy(format!("job {} is being rescaled; try again in a moment", job.name)))
            }
            _ => Ok(()),
        }
    }

    /// The plan of a run as its agents get it: the one that holds, or the one that is under way.
    pub(super) fn run_plan(&self, job: &Job) -> RunPlan {
        let next = job.under_way();
        let agents: Vec<AgentInfo> = job.all_agents().cloned().collect();
        RunPlan {
            run: job.run,
            attempt: job.attempt,
            job: job.job.clone(),
            dag: next.map_or(&job.dag, |plan| &plan.new.dag).clone(),
            costs: self.costs.table(&agents),
            agents,
            instances: job.standing_by_plan().copied().collect(),
            headers: job.headers.clone(),
            epoch: next.map_or(job.epoch(), |plan| plan.new.epoch),
            coming: next.map_or_else(Vec::new, |plan| plan.new.coming.iter().map(|one| one.id).collect()),
            going: next.map_or_else(Vec::new, |plan| plan.new.going.clone()),
            first_agents: job.first_agents,
            options: job.changed_options(),
            policies: job
                .policies()
                .iter()
                .map(|(edge, (name, given))| (*edge, name.clone(), given.clone()))
                .collect(),
            maps: job.maps(),
            moving: next.map_or_else(Vec::new, |plan| plan.new.maps.iter().map(|map| map.vertex).collect()),
            sources: next.map_or_else(Vec::new, |plan| plan.new.sources.clone()),
        }
    }

    /// Agents with an instance of a plan.
    fn agents_in(plan: &RunPlan) -> Vec<AgentId> {
        let has = |index: usize| plan.instances.iter().any(|one| usize::from(one.agent) == index);
        let all = plan.agents.iter().enumerate();
        all.filter(|(index, _)| has(*index)).map(|(_, agent)| agent.id.clone()).collect()
    }

    /// Has a plan prepared by all its agents.
    pub(super) fn extend(&self, run: u64, epoch: u64) {
        let Some(job) = self.state.run(run).filter(|job| at(job, epoch)) else { return };
        let plan = self.run_plan(job);
        let (agents, links, notes) = (Self::agents_in(&plan), self.links.clone(), self.notes.clone());
        let (places, maps) = self.to_move(run, epoch);
        tracing::info!(
            run,
            epoch,
            coming = plan.coming.len(),
            going = plan.going.len(),
            "a plan is prepared"
        );
        tokio::spawn(async move {
            let prepared = async {
                effects::extend(&links, &agents, plan, PREPARE).await?;
                keys::check_sizes(&links, run, epoch, &places, &maps).await
            };
            let prepared = tokio::time::timeout(PREPARE, prepared).await;
            let prepared = prepared.unwrap_or_else(|_| {
                let message = format!("not all agents had prepared it after {} s", PREPARE.as_secs());
                Err(WireFault::new(FaultCode::Agent, message))
            });
            let command = match prepared {
                Ok(()) => Command::RescalePrepared { run, epoch },
                Err(fault) => Command::RescaleFailed { run, epoch, fault },
            };
            // Without its receiver the coordinator has ended.
            let _ = notes.send(Note::Happened(command));
        });
    }

    /// What follows at once from a step of a rescale: a plan that was prepared is committed.
    pub(super) fn after_step(&mut self, turn: &mut Turn, command: &Command) {
        match command {
            Command::RescalePrepared { run, epoch } => {
                let prepared = |job: &&Job| job.under_way().is_some_and(|plan| plan.step == Step::Prepared);
                if self.state.run(*run).as_ref().is_some_and(|job| at(job, *epoch) && prepared(job)) {
                    self.apply(turn, Command::RescaleCommitted { run: *run, epoch: *epoch });
                }
            }
            Command::RescaleFailed { run, epoch, fault } => {
                tracing::warn!(run, epoch, %fault, "a plan could not be prepared; the old one goes on");
            }
            Command::RescaleSwitched { run, epoch } => tracing::info!(run, epoch, "rows go by a new plan"),
            Command::OwnersReleased { run, epoch } => tracing::info!(run, epoch, "key partitions have moved"),
            _ => {}
        }
    }

    /// Carries a committed plan through.
    pub(super) fn switch(&self, run: u64, epoch: u64) {
        let Some(job) = self.state.run(run).filter(|job| at(job, epoch)) else { return };
        let plan = self.run_plan(job);
        let halt = job.under_way().and_then(|plan| plan.new.halt.clone());
        let (agents, links, notes) = (Self::agents_in(&plan), self.links.clone(), self.notes.clone());
        tokio::spawn(async move {
            let command = match effects::switch(&links, &agents, run, epoch, halt).await {
                Ok(()) => Command::RescaleSwitched { run, epoch },
                // A lost agent ends the run or begins it again; anything else is a defect that must not hang.
                Err(fault) => Command::InstanceFailed { run, instance: 0, fault },
            };
            // Without its receiver the coordinator has ended.
            let _ = notes.send(Note::Happened(command));
        });
    }
}

/// What must hold for a request to scale to be carried out.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    /// The job has the plan of this number.
    pub(super) epoch: Option<u64>,
    /// The plan that is made now is this one.
    pub(super) plan: Option<u64>,
}

impl Held {
    /// Why there is no plan. With agents that are yet to be started it is not the one that was shown, for that named all of them.
    fn or_stale(self, job: &Job, fault: WireFault) -> WireFault {
        let Some(wanted) = self.plan.filter(|_| fault.code == FaultCode::TooFewAgents) else { return fault };
        let message = format!(
            "plan {wanted:016x} for job {} was shown with agents that are not there or not free any more: {}; look at it \
             again (--dry-run)",
            job.name, fault.message
        );
        WireFault::new(FaultCode::Stale, message)
    }
}

/// A plan that was shown and not carried out. Rates that a planner sees change from one second to the next: who agrees to
/// what was shown gets that.
pub(super) struct Shown {
    ask: ScaleAsk,
    epoch: u64,
    id: Option<u64>,
    change: Change,
    at: Instant,
}

impl Shown {
    fn is(&self, ask: &ScaleAsk, epoch: u64) -> bool {
        self.ask == *ask && self.epoch == epoch && self.at.elapsed() < AGREED
    }
}

/// A job and its plan, as they were written into the log.
pub(super) fn read(job: &Job) -> Result<(job::Job, Dag), WireFault> {
    let broken =
        |e: serde_json::Error| WireFault::new(FaultCode::Internal, format!("the plan cannot be read: {e}"));
    let spec = serde_json::from_str(&job.job).map_err(broken)?;
    Ok((spec, serde_json::from_str(&job.dag).map_err(broken)?))
}

fn at(job: &Job, epoch: u64) -> bool {
    job.under_way().is_some_and(|plan| plan.new.epoch == epoch)
}
