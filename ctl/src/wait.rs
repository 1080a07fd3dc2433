//! Following a job until it ends.

use std::time::{Duration, Instant};

use tuplane_wire::message::JobStatus;

use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::output::table::{count, rate};
use crate::output::time::span;
use crate::report::{JobView, phase_word};

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
    let mut unheard: Option<Instant> = None;
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
                let since = *unheard.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
                    return Err(Failure::Unreachable(message));
                }
            }
            Err(other) => return Err(other),
        }
        if let Some(limit) = limit.filter(|limit| began.elapsed() >= *limit) {
            output.progress_done();
            return Err(Failure::TimedOut(format!(
                "run {run} has not ended within {limit:?}; it goes on: `tuplane status {run}`, `tuplane cancel {run}`"
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The last look at a job, kept so that two make a rate.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    last: Option<(Instant, JobStatus)>,
}

impl Samples {
    /// The view of a new look, with rates since the one before.
    pub(crate) fn view(&mut self, cluster: &str, status: JobStatus) -> Outcome<JobView> {
        let now = Instant::now();
        let before =
            self.last.as_ref().map(|(at, status)| (status, now.duration_since(*at).as_millis() as u64));
        let view = JobView::new(cluster, &status, before)?;
        self.last = Some((now, status));
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
