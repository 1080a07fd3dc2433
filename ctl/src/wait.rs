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
        self.view_at(Instant::now(), cluster, status)
    }

    fn view_at(&mut self, now: Instant, cluster: &str, status: JobStatus) -> Outcome<JobView> {
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

#[cfg(test)]
/// A job whose source has given out so many rows.
pub(crate) fn look(phase: tuplane_wire::message::JobPhase, attempt: u32, rows_out: u64) -> JobStatus {
    use tuplane_core::job::{FileFormat, Job};
    use tuplane_core::plan::{Instance, VertexId, plan};
    use tuplane_wire::message::{InstanceReport, JobSummary};

    let text = "[[stage]]\nid='a'\nop='source'\nconnector='ids'\nn=9\n[[stage]]\nid='b'\nop='sink'\nconnector='count'\nin='a'\n";
    let job = Job::parse(text, FileFormat::Toml).unwrap();
    let dag = plan(&job).unwrap();
    let summary = JobSummary {
        run: 1,
        name: "j".into(),
        phase,
        attempt,
        submitted_ms: 0,
        ended_ms: None,
        fault: None,
        instances: 1,
        agents: Vec::new(),
        pending: Vec::new(),
    };
    JobStatus {
        summary,
        dag: serde_json::to_string(&dag).unwrap(),
        job: serde_json::to_string(&job).unwrap(),
        instances: vec![Instance { id: 0, vertex: VertexId(0), number: 0, agent: 0 }],
        counters: vec![InstanceReport { rows_out, ..InstanceReport::default() }],
        edges: Vec::new(),
        files: Vec::new(),
        agents: Vec::new(),
        age_ms: 0,
        guarantee: String::new(),
        cost_per_second: 0.0,
        running_ms: Some(20_000),
        earlier_parts: Vec::new(),
        unasked: Vec::new(),
        scale: tuplane_wire::scaling::JobScale::default(),
    }
}

#[cfg(test)]
mod tests {
    use tuplane_wire::message::JobPhase;

    use super::*;

    #[test]
    fn nothing_of_a_job_that_is_over_runs() {
        let phases = [
            (JobPhase::Running, "running"),
            (JobPhase::Cancelled, "stopped"),
            (JobPhase::Failed, "stopped"),
            (JobPhase::Finished, "ended"),
        ];
        for (phase, state) in phases {
            let view = Samples::default().view_at(Instant::now(), "t", look(phase, 1, 9)).unwrap();
            let view = serde_json::to_value(&view).unwrap();
            assert_eq!(view["instance_states"], serde_json::json!({state: 1}), "{phase:?}");
        }
    }

    #[test]
    fn rates_are_means_over_the_window_that_the_ui_has() {
        let begin = Instant::now();
        let mut samples = Samples::default();
        let mut rate = |seconds: u64, phase, attempt, rows| {
            let now = begin + Duration::from_secs(seconds);
            let view = samples.view_at(now, "t", look(phase, attempt, rows)).unwrap();
            (view.rates_over_ms().unwrap(), view.source_rate().unwrap())
        };
        // 1,000 rows a second, and in the report of the eighth second none.
        for second in 0..=8 {
            let found = rate(second, JobPhase::Running, 1, second.min(7) * 1000);
            let expected = match second {
                // Nothing to compare with: over all of its time.
                0 => (20_000, 0.0),
                1..=5 => (second * 1000, 1000.0),
                8 => (5000, 800.0),
                _ => (5000, 1000.0),
            };
            assert_eq!(found, expected, "{second}");
        }
        // Another attempt counts from nothing, and no rate is made of both.
        assert_eq!(rate(9, JobPhase::Running, 2, 10), (20_000, 0.5));
        assert_eq!(rate(10, JobPhase::Running, 2, 40), (1000, 30.0));
        // What has ended is looked at as a whole.
        assert_eq!(rate(11, JobPhase::Finished, 2, 1000), (20_000, 50.0));
    }
}
