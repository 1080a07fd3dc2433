//! Four reports a second: they carry counters up, renew the lease, and measure the clock's offset.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tuplane_wire::message::{ClusterReply, ClusterRequest, FaultCode, Report, RunReport, WireFault};

use super::member::Member;
use super::{Farewell, Node, wall_ns};
use crate::telemetry::HostProbe;

const INTERVAL: Duration = Duration::from_millis(250);

/// A report that takes longer is given up; the next one says it all again.
const DEADLINE: Duration = Duration::from_secs(2);

/// Samples among which the one with the least error gives the clock's offset.
const SAMPLES: usize = 32;

/// Reports until the agent ends.
pub(super) async fn report(node: Arc<Node>) {
    let mut ticker = tokio::time::interval(INTERVAL);
    ticker.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut probe = HostProbe::new();
    let mut offsets = Offsets::default();
    let mut last_contact = Instant::now();
    let mut sequence = 0;
    let mut sent: Vec<RunReport> = Vec::new();
    loop {
        ticker.tick().await;
        sequence += 1;
        let member = node.member();
        let all = member.engine.reports();
        let runs = changed(&all, &sent);
        let report = make(&member, sequence, &mut probe, &offsets, runs);
        let result = send(&node, &member, report, &all, &mut offsets).await;
        match result {
            Ok(()) => {
                last_contact = Instant::now();
                sent = all;
            }
            Err(fault) => {
                if let Some(farewell) = recover(&node, &fault, last_contact).await {
                    // Without its receiver the agent is ending already.
                    let _ = node.end.send(farewell);
                    return;
                }
                if matches!(fault.code, FaultCode::Stale | FaultCode::NotFound) {
                    // The coordinator has forgotten what it was told.
                    sent.clear();
                    last_contact = Instant::now();
                }
            }
        }
    }
}

/// Runs whose figures are not those of the last report: one that has ended is not repeated.
fn changed(all: &[RunReport], sent: &[RunReport]) -> Vec<RunReport> {
    all.iter().filter(|run| !sent.contains(run)).cloned().collect()
}

fn make(
    member: &Member,
    sequence: u64,
    probe: &mut HostProbe,
    offsets: &Offsets,
    runs: Vec<RunReport>,
) -> Report {
    let mut host = probe.facts(Instant::now()).clone();
    (host.charged, host.budget) = member.engine.charged();
    Report {
        agent: Some(member.id.clone()),
        sequence,
        now_ns: wall_ns(),
        clock_offset_ns: offsets.best(),
        host,
        runs,
        round_trips: member.engine.round_trips(),
    }
}

async fn send(
    node: &Node,
    member: &Member,
    report: Report,
    all: &[RunReport],
    offsets: &mut Offsets,
) -> Result<(), WireFault> {
    let (begun, before) = (Instant::now(), report.now_ns);
    let reply = node.upstream()?.call(ClusterRequest::Report(Box::new(report)), DEADLINE).await?;
    let ClusterReply::Reported { now_ns, runs } = reply else {
        return Err(WireFault::new(FaultCode::Internal, format!("unexpected answer: {reply:?}")));
    };
    offsets.add(before, now_ns, begun.elapsed());
    // A run that came while the report was under way is none that the coordinator has dropped.
    let fresh = member.engine.reports().into_iter().map(|run| run.run);
    let fresh = fresh.filter(|run| all.iter().all(|known| known.run != *run));
    let keep: Vec<u64> = runs.into_iter().chain(fresh).collect();
    member.engine.retain(&keep);
    Ok(())
}

/// What to do about a report that was not taken; a reason to end, if that is what is left.
async fn recover(node: &Arc<Node>, fault: &WireFault, last_contact: Instant) -> Option<Farewell> {
    let fault = match fault.code {
        FaultCode::Stale | FaultCode::NotFound => match node.register().await {
            Ok(()) => return None,
            Err(fault) => fault,
        },
        _ => fault.clone(),
    };
    let silence = last_contact.elapsed();
    tracing::debug!(%fault, silence_ms = silence.as_millis(), "a report was not taken");
    if node.config.detached || silence < node.lease() {
        return None;
    }
    Some(Farewell::CoordinatorGone(format!(
        "the coordinator was not reached for {} s: {}",
        silence.as_secs(),
        fault.message
    )))
}

/// Offsets of this clock to the coordinator's, in nanoseconds, each with its error.
#[derive(Debug, Default)]
struct Offsets(VecDeque<(i64, u64)>);

impl Offsets {
    /// `before` is our clock as the request left, `theirs` the coordinator's as it took it.
    fn add(&mut self, before: u64, theirs: u64, round_trip: Duration) {
        let half = round_trip.as_nanos() as u64 / 2;
        // Ours at the middle of the round trip, less theirs.
        let offset = (before + half) as i64 - theirs as i64;
        if self.0.len() == SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back((offset, half));
    }

    fn best(&self) -> Option<(i64, u64)> {
        self.0.iter().min_by_key(|(_, error)| *error).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_round_trip_gives_the_offset() {
        let mut offsets = Offsets::default();
        assert_eq!(offsets.best(), None);
        // We are 1,000 ns ahead; the slow sample is skewed.
        offsets.add(1_001_000, 1_000_900, Duration::from_micros(2));
        offsets.add(2_001_000, 2_000_050, Duration::from_nanos(100));
        assert_eq!(offsets.best(), Some((1_000, 50)));
        for _ in 0..SAMPLES {
            offsets.add(3_002_000, 3_000_050, Duration::from_nanos(100));
        }
        assert_eq!(offsets.best(), Some((2_000, 50)), "old samples go");
    }

    #[test]
    fn runs_that_stand_still_are_not_repeated() {
        let run = |run, edge| RunReport {
            run,
            edges: vec![tuplane_wire::message::EdgeLedger { emitted: edge, ..Default::default() }],
            ..RunReport::default()
        };
        let sent = [run(1, 5), run(2, 5)];
        assert_eq!(changed(&[run(1, 5), run(2, 6), run(3, 0)], &sent), [run(2, 6), run(3, 0)]);
    }
}
