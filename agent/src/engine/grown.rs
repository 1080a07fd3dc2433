//! The end of a run whose queues have grown to what it may hold on this agent.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::mpsc;
use tuplane_core::job::{OVERRUN, Overflow};
use tuplane_wire::message::{Event, FaultCode, WireFault};

use super::budget::MAY_FILL;
use super::run::Run;

/// Ends a run when its rows fill what they may; nothing for one whose queues are bounded.
pub(super) fn watch(
    run: &Arc<Run>,
    agent: String,
    events: mpsc::UnboundedSender<Event>,
) -> Option<impl Future<Output = ()> + Send + 'static> {
    (run.job.options.overflow == Overflow::Grow).then(|| {
        let run = Arc::clone(run);
        async move {
            run.budget.filled().await;
            let fault = WireFault::new(FaultCode::Instance, sentence(&run, &agent));
            // The receiver is this agent's own control side; without it the agent is ending.
            let _ = events.send(Event::InstanceFailed { run: run.run, instance: 0, fault });
        }
    })
}

/// What has happened, where most rows wait, and what helps.
fn sentence(run: &Run, agent: &str) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let (used, limit) = (mib(run.budget.used()), mib(run.budget.limit()));
    let (longest, cure) = longest(run).map_or_else(Default::default, |(vertex, rows)| {
        (format!("; most of them, {rows}, wait before `{vertex}`"), format!(", or scale `{vertex}` out"))
    });
    format!(
        "agent {agent}: {OVERRUN} {used:.1} of {limit:.1} MiB, and may fill {MAY_FILL} %{longest}: take `overflow = \"block\"`, give \
         the job more `memory` or its sources a lower `rate`{cure}"
    )
}

/// The vertex before which most rows wait here: at its instances, at those who send to them, or on their way to it.
fn longest(run: &Run) -> Option<(String, u64)> {
    let stand = run.stand();
    let mut waiting: BTreeMap<u32, u64> = BTreeMap::new();
    for ledger in run.ledger() {
        let to = stand.dag.edges.get(ledger.edge as usize)?.to;
        *waiting.entry(to.0).or_default() += ledger.queued_out + ledger.in_flight + ledger.queued_in;
    }
    let (vertex, rows) = waiting.into_iter().max_by_key(|(_, rows)| *rows).filter(|(_, rows)| *rows > 0)?;
    Some((stand.dag.vertex(tuplane_core::plan::VertexId(vertex)).label(), rows))
}
