//! Answers to `jobs`, `status` and `agents`: the state and the latest reports put together.

use std::time::Instant;

use tuplane_core::cluster::{Job, Presence, State};
use tuplane_core::job::Restart;
use tuplane_wire::message::{
    AgentId, AgentInfo, AgentStatus, HostFacts, InstanceReport, JobPhase, JobStatus, JobSummary,
};
use tuplane_wire::scaling::{JobScale, Step};

use super::live::Live;

/// Costs of a row between agents.
#[derive(Debug, Clone, Default)]
pub(super) struct Costs(Vec<(String, String, u32)>);

impl Costs {
    pub(super) fn new(table: Vec<(String, String, u32)>) -> Self {
        Self(table)
    }

    /// The table's cost of the two zones, in either order; else 0 within an agent, 1 within a
    /// host, 2 within a zone, 3 beyond.
    pub(super) fn of(&self, from: &AgentInfo, to: &AgentInfo) -> u32 {
        if from.id == to.id {
            return 0;
        }
        let joins = |a: &str, b: &str| a == from.zone && b == to.zone;
        let listed = self
            .0
            .iter()
            .find(|(a, b, _)| joins(a, b))
            .or_else(|| self.0.iter().find(|(a, b, _)| joins(b, a)));
        match listed {
            Some((_, _, cost)) => *cost,
            None if from.host == to.host && from.zone == to.zone => 1,
            None if from.zone == to.zone => 2,
            None => 3,
        }
    }
}

impl Costs {
    /// The costs between all of these, from each (row) to each (column).
    pub(super) fn table(&self, agents: &[AgentInfo]) -> Vec<u32> {
        agents.iter().flat_map(|from| agents.iter().map(|to| self.of(from, to))).collect()
    }
}

/// A line of `jobs`.
pub(super) fn summary(job: &Job) -> JobSummary {
    JobSummary {
        run: job.run,
        name: job.name.clone(),
        phase: job.phase,
        attempt: job.attempt,
        submitted_ms: job.submitted_ms,
        ended_ms: job.ended_ms,
        fault: job.fault.clone(),
        instances: job.standing().count() as u32,
        agents: job.agents.iter().map(|agent| agent.id.name.clone()).collect(),
        pending: job.pending.clone(),
    }
}

/// A job in full.
pub(super) fn job(job: &Job, live: &Live, costs: &Costs, wall_ms: u64) -> JobStatus {
    let now = Instant::now();
    let run = live.run(job.run);
    let mut counters = run.map(|run| run.counters.clone()).unwrap_or_default();
    counters.extend(job.ended.iter().map(|(instance, last)| (*instance, last.clone())));
    // Of those that are folded an agent may still speak.
    counters.retain(|id, _| job.lists(*id));
    if !job.is_live() {
        // Nothing waits any more, whatever an agent said before it was lost.
        for last in counters.values_mut() {
            (last.queue_in, last.queue_out, last.state_bytes) = (0, 0, 0);
        }
    }
    let edges = match run {
        _ if !job.ledger.is_empty() => job.ledger.clone(),
        Some(run) => run.ledger(),
        None => Vec::new(),
    };
    let needed = |name: &str| job.agents.iter().any(|agent| agent.id.name == name && job.needs(&agent.id));
    let flowing = job.phase == JobPhase::Running;
    let age = run.filter(|_| job.is_live()).map(|run| run.age(now, needed)).unwrap_or_default();
    let cost =
        run.filter(|_| flowing).map(|run| run.cost_per_second(&job.agents, now, |a, b| costs.of(a, b)));
    JobStatus {
        summary: summary(job),
        dag: job.dag.clone(),
        job: job.job.clone(),
        instances: job.instances.clone(),
        counters: counters.into_values().collect::<Vec<InstanceReport>>(),
        edges,
        files: job.files.clone(),
        agents: job.agents.clone(),
        age_ms: age.as_millis() as u64,
        guarantee: guarantee(job).to_owned(),
        cost_per_second: cost.unwrap_or(0.0),
        running_ms: job
            .started_ms
            .map(|started| job.rows_ended_ms.unwrap_or(wall_ms).saturating_sub(started)),
        earlier_parts: job.earlier_parts.clone(),
        unasked: job.unasked.clone(),
        scale: scale(job),
    }
}

/// The plan that holds, and instances that are not simply running.
fn scale(job: &Job) -> JobScale {
    let plan = job.under_way();
    let committed = plan.is_some_and(|plan| plan.step == Step::Committed);
    let coming = plan.filter(|_| !committed);
    let leaving = plan.filter(|_| committed).map_or(&[][..], |plan| &plan.new.going);
    JobScale {
        epoch: job.epoch(),
        step: plan.map(|plan| plan.step),
        coming: coming.map_or_else(Vec::new, |plan| plan.new.coming.iter().map(|one| one.id).collect()),
        leaving: leaving.iter().filter(|id| !job.ended.contains_key(id)).copied().collect(),
        retired: job.retired.iter().copied().collect(),
        maps: job.maps(),
        folded: job.folded.clone(),
        auto: None,
    }
}

fn guarantee(job: &Job) -> &'static str {
    match job.restart {
        Restart::Never => {
            "at most once: if an agent dies the job ends as failed, and rows in its queues are lost"
        }
        Restart::FromStart => {
            "at most once in each attempt: if an agent dies the job starts again from its first row"
        }
    }
}

/// A line of `agents` each.
pub(super) fn agents(state: &State, live: &Live, coordinator: &AgentId) -> Vec<AgentStatus> {
    let now = Instant::now();
    state
        .agents()
        .map(|agent| {
            let id = &agent.info.id;
            let last = live.agent(id);
            AgentStatus {
                info: agent.info.clone(),
                alive: agent.presence == Presence::Alive,
                coordinator: id == coordinator,
                age_ms: last.map_or(0, |last| now.saturating_duration_since(last.seen).as_millis() as u64),
                host: last.map_or_else(HostFacts::default, |last| last.host.clone()),
                clock_offset_ns: last.and_then(|last| last.clock_offset_ns),
                instances: live_instances(state, id),
                lost: match &agent.presence {
                    Presence::Alive => None,
                    Presence::Away => Some("not heard of since the coordinator started".to_owned()),
                    Presence::Dead { cause } => Some(cause.clone()),
                },
                round_trips: last.map(|last| last.round_trips.clone()).unwrap_or_default(),
                drained: state.is_drained(&id.name),
            }
        })
        .collect()
}

fn live_instances(state: &State, id: &AgentId) -> u32 {
    let on = |job: &Job| {
        let placed = job.instances.iter().filter(|instance| {
            job.agents.get(usize::from(instance.agent)).is_some_and(|agent| agent.id == *id)
        });
        placed.filter(|instance| !job.ended.contains_key(&instance.id)).count() as u32
    };
    state.jobs().filter(|job| job.is_active()).map(on).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str, zone: &str, host: &str) -> AgentInfo {
        AgentInfo {
            id: AgentId { name: name.to_owned(), incarnation: 1 },
            address: String::new(),
            slots: 1,
            cores: 0,
            zone: zone.to_owned(),
            pid: 0,
            version: String::new(),
            host: host.to_owned(),
            registry: 0,
        }
    }

    #[test]
    fn costs_follow_the_table_and_fall_back_to_distance() {
        let a = info("a", "x", "h1");
        let (beside, near, far) = (info("b", "x", "h1"), info("c", "x", "h2"), info("d", "y", "h3"));
        let none = Costs::default();
        assert_eq!([&a, &beside, &near, &far].map(|to| none.of(&a, to)), [0, 1, 2, 3]);
        let table =
            Costs::new(vec![("y".to_owned(), "x".to_owned(), 9), ("x".to_owned(), "x".to_owned(), 4)]);
        assert_eq!([&a, &beside, &near, &far].map(|to| table.of(&a, to)), [0, 4, 4, 9]);
        assert_eq!(table.table(&[a, far]), [0, 9, 9, 0]);
    }
}
