//! Following a job until it ends.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tuplane_wire::message::JobStatus;

use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::output::table::{count, rate};
use crate::output::time::span;
use crate::report::{JobView, phase_word};
use crate::window;

/// How often a job is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Calls may fail for so long before the cluster counts as gone: an agent that swaps or a stopped
/// laptop is no reason to give a job up.
const PATIENCE: Duration = Duration::from_secs(15);

/// Waits until the job has ended, at most `limit`; progress goes to a terminal's standard error.
pub(crate) async fn until_final(
    cluster: &Cluster,
    run: u64,
    limit: Option<Duration>,
    output: &Output,
) -> Outcome<JobStatus> {
    let began = Instant::now();
    let mut unheard: Option<(Instant, String)> = None;
    let mut samples = Samples::default();
    loop {
        match cluster.status(Some(run.to_string())).await {
            Ok(status) if status.summary.phase.is_final() => {
                output.progress_done();
                return Ok(status);
            }
            Ok(status) => {
                unheard = None;
                output.progress(&samples.line(&cluster.name, status));
            }
            Err(Failure::Unreachable(message)) => {
                let since = unheard.as_ref().map_or_else(Instant::now, |(since, _)| *since);
                if since.elapsed() > PATIENCE {
                    return Err(lost(run, &message));
                }
                unheard = Some((since, message));
            }
            Err(other) => return Err(other),
        }
        if let Some(limit) = limit.filter(|limit| began.elapsed() >= *limit) {
            output.progress_done();
            if let Some((_, message)) = unheard {
                return Err(lost(run, &message));
            }
            return Err(Failure::TimedOut(format!(
                "run {run} has not ended within {limit:?}; it goes on: `tuplane status {run}`, `tuplane cancel {run}`"
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether a job goes on whose coordinator does not answer, nobody can say.
fn lost(run: u64, message: &str) -> Failure {
    Failure::Unreachable(format!("{message}; it was not seen how run {run} went on"))
}

/// Looks at a job, kept so that two make a rate.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    looks: VecDeque<(Instant, JobStatus)>,
}

impl Samples {
    /// The view of a new look, with rates over the looks of the window before it.
    pub(crate) fn view(&mut self, cluster: &str, status: JobStatus) -> Outcome<JobView> {
        let now = Instant::now();
        let of = |status: &JobStatus| (status.summary.run, status.summary.attempt);
        // Counters of another attempt begin anew.
        if self.looks.back().is_some_and(|(_, last)| of(last) != of(&status)) {
            self.looks.clear();
        }
        if let Some(begin) = now.checked_sub(window::ROWS) {
            window::trim(&mut self.looks, begin, |(at, _)| *at);
        }
        // Of a job that has ended rates are means over all of it.
        let before = self.looks.front().filter(|_| !status.summary.phase.is_final());
        let before = before.map(|(at, status)| (status, now.duration_since(*at).as_millis() as u64));
        let view = JobView::new(cluster, &status, before)?;
        self.looks.push_back((now, status));
        Ok(view)
    }

    /// A new look in one line.
    pub(crate) fn line(&mut self, cluster: &str, status: JobStatus) -> String {
        let phase = phase_word(status.summary.phase);
        match self.view(cluster, status) {
            Ok(view) => {
                let read: u64 = view.sources().map(|vertex| vertex.rows_out).sum();
                format!(
                    "{} {phase}: {} rows read, {} rows/s, {} rows of result, {}",
                    view.summary.job,
                    count(read),
                    rate(view.source_rate()),
                    count(view.result_rows),
                    span(view.summary.wall_ms)
                )
            }
            Err(_) => phase.to_owned(),
        }
    }
}
