//! `tuplane status`.

use std::time::Duration;

use tuplane_wire::message::JobStatus;

use crate::args::Global;
use crate::cluster::Cluster;
use crate::failure::Outcome;
use crate::interrupt::Interrupt;
use crate::output::{Format, Output};
use crate::report::{self, JobView};
use crate::wait::Samples;

/// Between two looks under `--watch`.
const EVERY: Duration = Duration::from_secs(1);

/// Between the two looks of a running job that one `status` takes, so that rates are present ones: agents
/// report every 250 ms, and over a second or less one report more or less changes a rate by a quarter or more.
const APART: Duration = Duration::from_secs(2);

/// Options of `status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Of a job that runs two looks are taken, 2 s apart: rates and shares are means over that time, under --watch over the \
last 5 s, as in the UI. Of a job that has ended they are means over all of it.")]
pub(crate) struct Args {
    /// Name or run id [default: the newest that runs, else the newest]
    job: Option<String>,
    /// Looks again each second until the job ends; off a terminal one JSON document a line
    #[arg(short, long)]
    watch: bool,
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let cluster = Cluster::find(global, output)?;
    if args.watch {
        let interrupt = Interrupt::listen()?;
        return interrupt.or(watch(&args, &cluster, output)).await;
    }
    let mut samples = Samples::default();
    let first = cluster.status(args.job.clone()).await?;
    let view = if first.summary.phase.is_final() {
        samples.view(&cluster.name, first)?
    } else {
        // By name: a job that starts again gets a new run.
        let name = first.summary.name.clone();
        samples.view(&cluster.name, first)?;
        tokio::time::sleep(APART).await;
        samples.view(&cluster.name, cluster.status(Some(name)).await?)?
    };
    show(view, output)
}

async fn watch(args: &Args, cluster: &Cluster, output: &mut Output) -> Outcome {
    let repaints = output.repaints();
    if output.is_text() && !repaints {
        output.format = Format::Jsonl;
    }
    let mut samples = Samples::default();
    // The newest job stays the one that is watched when another is submitted.
    let mut job = args.job.clone();
    loop {
        let status: JobStatus = cluster.status(job).await?;
        job = Some(status.summary.name.clone());
        let over = status.summary.phase.is_final();
        let view = samples.view(&cluster.name, status)?;
        if repaints {
            output.text(&format!("\x1b[H\x1b[2J{}", whole(&view, output)))?;
        } else {
            show(view, output)?;
        }
        if over {
            return Ok(());
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn show(mut view: JobView, output: &mut Output) -> Outcome {
    if !output.is_text() {
        return output.document("status", &view);
    }
    if output.is_quiet() {
        view.leave_guarantee_out();
    }
    output.text(&whole(&view, output))
}

/// Under `-v` with every instance.
fn whole(view: &JobView, output: &Output) -> String {
    let text = report::text(view, output.room());
    if output.is_verbose() { format!("{text}\n{}", report::instances_text(view)) } else { text }
}
