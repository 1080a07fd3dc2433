//! `tuplane cancel`.

use std::time::{Duration, Instant};

use tuplane_wire::message::ClusterRequest;

use crate::args::Global;
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, safe};
use crate::report::{JobView, phase_word};

/// Options of `cancel`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name or run id
    job: String,
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let cluster = Cluster::find(global, output)?;
    let status = cluster.status(Some(args.job.clone())).await?;
    let (run, name) = (status.summary.run, status.summary.name.clone());
    if status.summary.phase.is_final() {
        return Err(Failure::Usage(format!(
            "job {name} (run {run}) has ended already: {}",
            phase_word(status.summary.phase)
        )));
    }
    super::confirm(global, &format!("cancel job {name} (run {run}) on cluster {}", cluster.name))?;
    cluster.tell(ClusterRequest::Cancel { job: run.to_string() }).await?;
    let until = Instant::now() + global.timeout;
    let status = loop {
        let status = cluster.status(Some(run.to_string())).await?;
        if status.summary.phase.is_final() {
            break status;
        }
        if Instant::now() >= until {
            return Err(Failure::TimedOut(format!(
                "job {name} (run {run}) is asked to end and has not yet; see `tuplane status {run}`"
            )));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    if output.is_text() {
        output.text(&format!("job {} (run {run}): {}", safe::line(&name), phase_word(status.summary.phase)))
    } else {
        output.document("cancel", &JobView::new(&cluster.name, &status, None)?)
    }
}
