//! A plan that takes long: what it waits for, said while it is waited for.

use std::time::{Duration, Instant};

use tuplane_wire::message::JobStatus;

use crate::cluster::Cluster;
use crate::output::Output;
use crate::output::table::{count, counted};

/// It is said first when a plan has taken so long, and then each time so long has passed again.
const EACH: Duration = Duration::from_secs(5);

/// When it was said last.
pub(in crate::command) struct Drains {
    said: Instant,
}

impl Drains {
    /// Somebody begins to wait.
    pub(in crate::command) fn new() -> Self {
        Self { said: Instant::now() }
    }

    /// Says what the run's plan waits for, if it is time to. A cluster that does not answer now is somebody else's to tell.
    pub(in crate::command) async fn say(&mut self, cluster: &Cluster, run: u64, output: &Output) {
        if self.said.elapsed() < EACH {
            return;
        }
        self.said = Instant::now();
        if let Ok(status) = cluster.status(Some(run.to_string())).await
            && let Some(sentence) = sentence(&status)
        {
            output.notice(&sentence);
        }
    }
}

/// What leaving instances have left to do; `None`: none are leaving.
fn sentence(status: &JobStatus) -> Option<String> {
    let leaving = &status.scale.leaving;
    if leaving.is_empty() {
        return None;
    }
    let theirs = status.counters.iter().filter(|report| leaving.contains(&report.instance));
    let rows: u64 = theirs.map(|report| report.queue_in + report.queue_out).sum();
    let are = if leaving.len() == 1 { "is" } else { "are" };
    Some(format!(
        "{} of job {} {are} still being drained, {} rows are left there; other plans for the job wait for that",
        counted(leaving.len() as u64, "instance"),
        status.summary.name,
        count(rows)
    ))
}

#[cfg(test)]
mod tests {
    use tuplane_wire::message::{InstanceReport, JobPhase};

    use super::*;
    use crate::wait::look;

    #[test]
    fn rows_that_are_left_are_those_of_what_leaves() {
        let mut status = look(JobPhase::Running, 1, 9);
        assert_eq!(sentence(&status), None);
        let report = |instance, queue_in| InstanceReport {
            instance,
            queue_in,
            queue_out: 5,
            ..InstanceReport::default()
        };
        status.counters = vec![report(0, 12_000), report(1, 7)];
        status.scale.leaving = vec![0];
        let said = sentence(&status).unwrap();
        assert_eq!(
            said,
            "1 instance of job j is still being drained, 12,005 rows are left there; other plans for the job wait for that"
        );
    }
}
