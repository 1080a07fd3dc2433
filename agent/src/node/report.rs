//! Four reports a second: they carry counters up, renew the lease, and measure the clock's offset.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tuplane_wire::codec;
use tuplane_wire::message::{ClusterReply, ClusterRequest, FaultCode, Report, RunReport, WireFault};

use super::member::Member;
use super::{Farewell, Node, wall_ns};
use crate::telemetry::HostProbe;

const INTERVAL: Duration = Duration::from_millis(250);

/// A report that takes longer is given up; the next one says it all again.
const DEADLINE: Duration = Duration::from_secs(2);

/// Most bytes of the runs of one report, with room to spare below what a message may have: a report
/// that is refused renews no lease.
const MOST: usize = 5 << 20;

/// Samples among which the one with the least error gives the clock's offset.
const SAMPLES: usize = 32;

/// An offset beyond its error by less than this counts as none: making a report takes time too.
const DOUBT_NS: u64 = 1_000_000;

/// Reports until the agent ends.
pub(super) async fn report(node: Arc<Node>) {
    let mut ticker = tokio::time::interval(INTERVAL);
    ticker.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut probe = HostProbe::new();
    let mut offsets = Offsets::default();
    let mut last_contact = Instant::now();
    let mut sequence = 0;
    let mut sent = Sent::default();
    loop {
        ticker.tick().await;
        sequence += 1;
        let member = node.member();
        let all = member.engine.reports();
        let runs = sent.next(&all, MOST);
        let report = make(&member, sequence, &mut probe, &offsets, runs.clone());
        let result = send(&node, &member, report, &all, &mut offsets).await;
        match result {
            Ok(()) => {
                last_contact = Instant::now();
                sent.note(sequence, runs, &all);
            }
            Err(fault) => {
                if let Some(farewell) = recover(&node, &fault, last_contact).await {
                    // Without its receiver the agent is ending already.
                    let _ = node.end.send(farewell);
                    return;
                }
                if matches!(fault.code, FaultCode::Stale | FaultCode::NotFound) {
                    // The coordinator has forgotten what it was told.
                    sent = Sent::default();
                    member.engine.reopen();
                    last_contact = Instant::now();
                }
            }
        }
    }
}

/// What the coordinator was told last of each run, and in which report.
#[derive(Debug, Default)]
struct Sent(HashMap<u64, (u64, RunReport)>);

impl Sent {
    /// Runs whose figures are not those that were told last, as many as `most` bytes hold. Those that
    /// had to wait longest come first, so that each has its turn.
    fn next(&self, all: &[RunReport], most: usize) -> Vec<RunReport> {
        let mut waiting: Vec<(u64, &RunReport)> = all
            .iter()
            .filter_map(|run| match self.0.get(&run.run) {
                Some((_, told)) if told == run => None,
                Some((sequence, _)) => Some((*sequence, run)),
                None => Some((0, run)),
            })
            .collect();
        waiting.sort_by_key(|(sequence, _)| *sequence);
        let (mut runs, mut bytes) = (Vec::new(), 0usize);
        for (_, run) in waiting {
            // One that cannot be encoded has no place in a report.
            let length = codec::encode(run).map_or(usize::MAX, |encoded| encoded.len());
            if length > most {
                tracing::debug!(run = run.run, length, "a run's figures are too long for a report");
            } else if bytes + length <= most {
                bytes += length;
                runs.push(run.clone());
            }
        }
        runs
    }

    /// The coordinator has taken `runs`; of those that are not in `all` nothing needs to be known.
    fn note(&mut self, sequence: u64, runs: Vec<RunReport>, all: &[RunReport]) {
        self.0.retain(|run, _| all.iter().any(|known| known.run == *run));
        self.0.extend(runs.into_iter().map(|run| (run.run, (sequence, run))));
    }
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
    host.reserved = member.engine.reserved();
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
    member.engine.clock_is_ahead(offsets.certain());
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
            // Nothing of a job is here any more.
            Err(fault) if fault.code == FaultCode::Refused => {
                tracing::info!(%fault, "the cluster does not take this agent back");
                return Some(Farewell::Shutdown);
            }
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

    /// The best one, 0 where it may be: agents of one machine have one clock.
    fn certain(&self) -> i64 {
        let best = self.best().filter(|(offset, error)| offset.unsigned_abs() > error + DOUBT_NS);
        best.map_or(0, |(offset, _)| offset)
    }

    fn best(&self) -> Option<(i64, u64)> {
        self.0.iter().min_by_key(|(_, error)| *error).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tuplane_wire::message::{EdgeLedger, InstanceReport};

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
        assert_eq!(offsets.certain(), 0, "it may be none");
        offsets.add(9_000_000, 4_000_000, Duration::from_nanos(20));
        assert_eq!(offsets.certain(), 5_000_010);
    }

    fn run(number: u64, rows: u64) -> RunReport {
        let instance = |instance| InstanceReport {
            instance,
            rows_in: rows,
            busy_ns: rows * 1_000,
            idle_ns: 5,
            ..InstanceReport::default()
        };
        RunReport {
            run: number,
            instances: (0..3).map(instance).collect(),
            edges: vec![EdgeLedger { emitted: rows, ..EdgeLedger::default() }],
            ..RunReport::default()
        }
    }

    #[test]
    fn runs_that_stand_still_are_not_repeated() {
        let mut sent = Sent::default();
        let all = [run(1, 5), run(2, 5)];
        sent.note(1, sent.next(&all, MOST), &all);
        assert_eq!(sent.next(&all, MOST), []);
        let mut idle = run(2, 5);
        idle.instances[1].idle_ns += 1;
        let all = [run(1, 5), idle.clone(), run(3, 0)];
        assert_eq!(sent.next(&all, MOST), [run(3, 0), idle], "a clock that runs on is a change");
        sent.note(2, vec![], &[run(3, 0)]);
        assert_eq!(sent.next(&[run(1, 5)], MOST), [run(1, 5)], "it is not known any more");
    }

    #[test]
    fn a_report_is_bounded_and_each_run_has_its_turn() {
        let most = codec::encode(&run(1, 5)).unwrap().len() * 2;
        let mut sent = Sent::default();
        let mut told = Vec::new();
        for sequence in 1..=4 {
            // All four change all the time.
            let all: Vec<_> = (1..=4).map(|number| run(number, sequence)).collect();
            let runs = sent.next(&all, most);
            told.extend(runs.iter().map(|run| run.run));
            sent.note(sequence, runs, &all);
        }
        assert_eq!(told, [1, 2, 3, 4, 1, 2, 3, 4]);
        assert_eq!(sent.next(&[run(9, 5)], 3), [], "one that is too long is left out");
    }
}
