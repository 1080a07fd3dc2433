//! Counters of a vertex: its instances' reports, added up.

use std::collections::BTreeMap;

use tuplane_core::plan::VertexId;
use tuplane_wire::message::{InstanceReport, JobStatus};

/// Counters of a vertex's instances together.
#[derive(Debug, Default)]
pub(super) struct Sum {
    pub(super) instances: u32,
    pub(super) rows_in: u64,
    pub(super) rows_out: u64,
    pub(super) busy_ns: u64,
    pub(super) waiting_core_ns: u64,
    pub(super) blocked_ns: u64,
    pub(super) idle_ns: u64,
    pub(super) queue_in: u64,
    pub(super) queue_out: u64,
    pub(super) state_bytes: u64,
    pub(super) dropped: BTreeMap<String, u64>,
    pub(super) unanswered: u64,
    pub(super) notes: Vec<String>,
}

/// Counters of a vertex's instances, and of those together that are not listed any more.
pub(super) fn reports(status: &JobStatus, id: VertexId) -> impl Iterator<Item = &InstanceReport> + Clone {
    let listed = status.counters.iter().filter(move |report| {
        status.instances.iter().any(|instance| instance.id == report.instance && instance.vertex == id)
    });
    listed.chain(status.scale.folded.get(&id).map(|folded| &folded.counters))
}

/// Adds up the reports of a vertex's instances.
pub(super) fn sum(status: &JobStatus, id: VertexId) -> Sum {
    let own = status.instances.iter().filter(|instance| instance.vertex == id);
    let standing = own.filter(|instance| !status.scale.retired.contains(&instance.id));
    let mut sum = Sum { instances: standing.count() as u32, ..Sum::default() };
    for report in reports(status, id) {
        sum.rows_in += report.rows_in;
        sum.rows_out += report.rows_out;
        sum.busy_ns += report.busy_ns;
        sum.waiting_core_ns += report.waiting_core_ns;
        sum.blocked_ns += report.blocked_ns;
        sum.idle_ns += report.idle_ns;
        sum.queue_in += report.queue_in;
        sum.queue_out += report.queue_out;
        sum.state_bytes += report.state_bytes;
        for (reason, rows) in &report.dropped {
            *sum.dropped.entry(reason.clone()).or_default() += rows;
        }
        sum.unanswered += report.unanswered;
        // What several instances say in the same words is said once.
        sum.notes.extend(report.note.clone().filter(|note| !sum.notes.contains(note)));
    }
    sum
}
