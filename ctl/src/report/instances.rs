//! Instances as documents and text have them: their counters, and where they stand.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use tuplane_core::plan::{Dag, Instance};
use tuplane_wire::message::{InstanceReport, JobPhase, JobStatus};

use super::{EventTime, Shares, keys};
use crate::output::number;

/// One instance.
#[derive(Debug, Serialize)]
pub(super) struct InstanceView {
    pub(super) instance: u32,
    pub(super) vertex: String,
    /// Among the instances of its vertex, from 0.
    pub(super) number: u32,
    pub(super) agent: String,
    pub(super) rows_in: u64,
    pub(super) rows_out: u64,
    pub(super) busy: Value,
    pub(super) blocked: Value,
    pub(super) idle: Value,
    pub(super) queue_in: u64,
    pub(super) queue_out: u64,
    pub(super) state_bytes: u64,
    #[serde(flatten)]
    pub(super) event_time: EventTime,
    pub(super) ended: bool,
    /// running, leaving, retired (by a rescale) or ended
    pub(super) state: &'static str,
    /// Of the job's `partitions`; none where rows come otherwise than by key, or within each agent.
    pub(super) key_partitions: Option<u32>,
    #[serde(skip)]
    pub(super) shares: Shares,
}

pub(super) fn instance_views(dag: &Dag, status: &JobStatus, before: Option<&JobStatus>) -> Vec<InstanceView> {
    let by_id = |status: &JobStatus| -> BTreeMap<u32, InstanceReport> {
        status.counters.iter().map(|report| (report.instance, report.clone())).collect()
    };
    let (now, earlier) = (by_id(status), before.map(by_id).unwrap_or_default());
    let (none, held) = (InstanceReport::default(), keys::held(dag, status));
    let view = |instance: &Instance| {
        let report = now.get(&instance.id).unwrap_or(&none);
        let before = earlier.get(&instance.id).unwrap_or(&none);
        let spent = [
            report.busy_ns.saturating_sub(before.busy_ns),
            report.blocked_ns.saturating_sub(before.blocked_ns),
            report.idle_ns.saturating_sub(before.idle_ns),
        ];
        let all: u64 = spent.iter().sum();
        let [busy, blocked, idle] = spent.map(|ns| (all > 0).then(|| ns as f64 / all as f64));
        let value = |share: Option<f64>| share.map_or(Value::Null, number);
        let agent = status.agents.get(usize::from(instance.agent));
        InstanceView {
            instance: instance.id,
            vertex: dag.vertex(instance.vertex).label(),
            number: instance.number,
            agent: agent.map_or_else(|| "?".to_owned(), |info| info.id.name.clone()),
            rows_in: report.rows_in,
            rows_out: report.rows_out,
            busy: value(busy),
            blocked: value(blocked),
            idle: value(idle),
            queue_in: report.queue_in,
            queue_out: report.queue_out,
            state_bytes: report.state_bytes,
            event_time: EventTime::of(std::iter::once(report)),
            ended: report.ended,
            state: instance_state(status, instance, report),
            key_partitions: held.get(&instance.id).copied(),
            shares: Shares { busy, blocked, idle },
        }
    };
    status.instances.iter().map(view).collect()
}

/// How many instances stand where; those that are coming are not among the others yet.
pub(super) fn instance_states(status: &JobStatus) -> BTreeMap<&'static str, u32> {
    let none = InstanceReport::default();
    let report = |instance: &Instance| status.counters.iter().find(|report| report.instance == instance.id);
    let mut states = BTreeMap::new();
    for instance in &status.instances {
        let state = instance_state(status, instance, report(instance).unwrap_or(&none));
        *states.entry(state).or_default() += 1;
    }
    let folded: u32 = status.scale.folded.values().map(|folded| folded.instances).sum();
    if folded > 0 {
        *states.entry("retired").or_default() += folded;
    }
    if !status.scale.coming.is_empty() {
        states.insert("coming", status.scale.coming.len() as u32);
    }
    states
}

/// Where an instance stands: a rescale makes it come, leave and retire.
fn instance_state(status: &JobStatus, instance: &Instance, report: &InstanceReport) -> &'static str {
    let (scale, phase) = (&status.scale, status.summary.phase);
    match instance.id {
        id if scale.retired.contains(&id) => "retired",
        id if scale.leaving.contains(&id) && !phase.is_final() => "leaving",
        _ if report.ended || phase == JobPhase::Finished => "ended",
        // Nothing of a job that was cancelled or has failed runs on.
        _ if phase.is_final() => "stopped",
        _ => "running",
    }
}
