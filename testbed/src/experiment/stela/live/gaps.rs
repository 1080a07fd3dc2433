//! How long nothing comes out when a job that is loaded to 80 % is rescaled, again and again.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::cluster::Cluster;
use super::{Came, Clock, FEED, SOON, USUAL, wait};
use crate::experiment::Stop;
use crate::experiment::stela::measure::Tally;

/// The job.
const JOB: &str = include_str!("../../../../experiments/stela/gaps.toml");

/// The stage that is scaled, and its numbers of instances in turn; the first is the job file's.
const WORK: &str = "work";
const INSTANCES: [u32; 2] = [4, 5];

/// Agents that there are.
const AGENTS: u32 = 3;

/// Until it is in full swing.
const WARM_UP: Duration = Duration::from_secs(3);

/// The time before a rescale in which gaps are usual.
const BEFORE: Duration = Duration::from_secs(20);

/// How long it takes to start and end, about.
const AROUND: Duration = Duration::from_secs(8);

/// One rescale; all in ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::experiment::stela) struct Gap {
    /// The longest gap in the 2 s after it was asked for.
    pub(in crate::experiment::stela) longest: f64,
    /// The 99.9th percentile of the gaps in the 20 s before.
    pub(in crate::experiment::stela) usual: f64,
    /// Until it was done.
    pub(in crate::experiment::stela) operation: f64,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::experiment::stela) struct Gaps {
    /// One for each rescale, in their order.
    pub(in crate::experiment::stela) gaps: Vec<Gap>,
    /// What became of the rows.
    pub(in crate::experiment::stela) rows: Tally,
    /// Rows a second at the sink.
    pub(in crate::experiment::stela) rate: f64,
}

/// How long so many take, about.
pub(in crate::experiment::stela) fn time(rescales: u32) -> Duration {
    WARM_UP + AROUND + (BEFORE + Duration::from_millis(SOON as u64)).saturating_mul(rescales)
}

/// Rescales a job so often, or until it is to stop.
pub(in crate::experiment::stela) fn gaps(
    rescales: u32,
    stop: &Stop,
    mut progress: impl FnMut(usize),
) -> Result<Gaps> {
    let soon = Duration::from_millis(SOON as u64);
    let mut cluster = Cluster::start(AGENTS, None)?;
    cluster.submit("gaps.toml", JOB, &[])?;
    let mut asked: Vec<(Instant, Duration)> = Vec::new();
    let clock = {
        wait(WARM_UP, stop);
        Clock::start()
    };
    for (done, instances) in (1..).zip(INSTANCES.iter().cycle().skip(1)).take(rescales as usize) {
        if !wait(BEFORE, stop) {
            break;
        }
        let at = cluster.scale(WORK, *instances)?;
        asked.push((at, at.elapsed()));
        std::thread::sleep(soon.saturating_sub(at.elapsed()));
        progress(done);
    }
    let end = Instant::now();
    let counted = cluster.drain(FEED, &[WORK.to_owned()])?;
    cluster.cancel()?;
    let came = Came::read(&cluster, &["out"])?;
    let end = clock.ms(end);
    let series = came.series(&clock, end);
    let gap = |(at, operation): &(Instant, Duration)| {
        let at = clock.ms(*at);
        let before = at.saturating_sub(BEFORE.as_millis() as usize)..at;
        Gap {
            longest: series.longest_gap(&(at..end.min(at + SOON))) as f64,
            usual: series.usual_gap(&before, USUAL) as f64,
            operation: operation.as_millis() as f64,
        }
    };
    Ok(Gaps {
        gaps: asked.iter().map(gap).collect(),
        rows: came.tally(&counted, |_, _| 1),
        rate: series.throughput(&(0..end)).unwrap_or(0.0),
    })
}
