//! `tuplane jobs`.

use serde_json::json;

use crate::args::Global;
use crate::cluster::Cluster;
use crate::failure::Outcome;
use crate::output::Output;
use crate::output::table::{Align, Table};
use crate::output::time::span;
use crate::report::{PendingView, SummaryView, phase_word};

/// Options of `jobs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(super) async fn run(_: Args, global: &Global, output: &mut Output) -> Outcome {
    let cluster = Cluster::find(global, output)?;
    let jobs: Vec<SummaryView> = cluster.jobs().await?.iter().map(SummaryView::from).collect();
    if !output.is_text() {
        return output.document("jobs", &json!({"cluster": cluster.name, "jobs": jobs}));
    }
    if jobs.is_empty() {
        let hint = if output.is_quiet() { "" } else { "; submit one with `tuplane submit FILE`" };
        return output.text(&format!("no jobs{hint}"));
    }
    let mut table = Table::new(&[
        ("RUN", Align::Right),
        ("JOB", Align::Left),
        ("ATTEMPT", Align::Right),
        ("PHASE", Align::Left),
        ("TIME", Align::Right),
        ("SUBMITTED", Align::Left),
        ("CAUSE", Align::Left),
    ]);
    for job in jobs {
        table.row([
            job.run.to_string(),
            job.job.clone(),
            job.attempt.to_string(),
            phase_word(job.phase).into(),
            span(job.wall_ms),
            job.submitted_at.clone(),
            cause(job),
        ]);
    }
    output.text(&table.render())
}

/// Why a job failed, or what it still lacks.
fn cause(job: SummaryView) -> String {
    match job.fault {
        Some(fault) => fault.message,
        None if job.pending.is_empty() => "-".into(),
        None => job.pending.iter().map(PendingView::sentence).collect::<Vec<_>>().join("; "),
    }
}
