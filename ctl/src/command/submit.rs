//! `tuplane submit`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;
use tuplane_core::job::{Job, Op, Overflow, Stage};
use tuplane_core::plan::Instance;
use tuplane_wire::message::JobPhase;

use crate::args::{Global, Overrides, PlacementArgs};
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::jobfile::{JobFile, place_own_paths, reads_stdin};
use crate::output::table::bytes;
use crate::output::time::parse_span;
use crate::output::{Output, safe};
use crate::report::{JobView, phase_word, plan_of};
use crate::wait::until_final;

/// How often a job that starts is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Every agent has reported within this time of its start.
const REPORTED: Duration = Duration::from_secs(1);

/// Options of `submit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --wait the command returns once the job runs, or after --timeout while it is still being started: what comes \
next, such as `tuplane set`, then finds it running. A job that fails while it starts is exit 1.")]
pub(crate) struct Args {
    /// The job file (TOML or JSON)
    file: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    placement: PlacementArgs,
    /// The job's name [default: the file's]
    #[arg(long)]
    name: Option<String>,
    /// Waits until the job ends, at most TIME
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, value_parser = parse_span)]
    #[expect(clippy::option_option, reason = "clap's shape for an option whose value may be left out")]
    wait: Option<Option<Duration>>,
    /// Starts although its results would be mixed with another run's
    #[arg(long)]
    force: bool,
    /// Turns its automatic mode on, as `tuplane scale auto JOB on` does
    #[arg(long)]
    auto: bool,
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let mut file = JobFile::read(&args.file, &args.placement.with(&args.overrides))?;
    file.renamed = args.name;
    let mut job = file.ready(output)?;
    if !reads_stdin(&job).is_empty() {
        return Err(Failure::Usage(
            "a submitted job cannot read standard input (`-`), which ends with this command; use `tuplane run`".into(),
        ));
    }
    let cluster = Cluster::find(global, output)?;
    if cluster.is_on_this_machine() {
        place_own_paths(&mut job)?;
    }
    let (run, name) =
        cluster.submit(encode(&job)?, args.force).await.map_err(|failure| file.locate(failure))?;
    if args.auto {
        super::scale::auto::turn_on(&cluster, run).await?;
    }
    remark(&cluster, run, &job, output).await?;
    let Some(limit) = args.wait else { return started(&cluster, run, &name, global.timeout, output).await };
    let interrupt = Interrupt::listen()?;
    let waited = interrupt.or(until_final(&cluster, run, limit, output)).await;
    if matches!(waited, Err(Failure::Interrupted)) {
        output.progress_done();
        output.notice(&format!("run {run} goes on: `tuplane status {run}`, `tuplane cancel {run}`"));
    }
    super::run::result(&cluster, &waited?, output).await
}

/// Waits until the job runs, so that what comes next finds it so: at most as long as a call may take.
async fn started(cluster: &Cluster, run: u64, name: &str, limit: Duration, output: &mut Output) -> Outcome {
    let until = Instant::now() + limit;
    let status = loop {
        let status = cluster.status(Some(run.to_string())).await?;
        if status.summary.phase != JobPhase::Starting || Instant::now() >= until {
            break status;
        }
        tokio::time::sleep(LOOK).await;
    };
    let phase = status.summary.phase;
    let outcome = match phase {
        JobPhase::Failed | JobPhase::Cancelled => {
            super::run::verdict(&JobView::new(&cluster.name, &status, None)?, &status)
        }
        _ => Ok(()),
    };
    if !output.is_text() {
        let body = json!({"cluster": cluster.name, "job": name, "run": run, "phase": phase_word(phase)});
        return output.document("submit", &body).and(outcome);
    }
    outcome?;
    let hint = match (output.is_quiet(), super::run::stdout_sinks(&status).is_empty(), phase) {
        (true, ..) => String::new(),
        (_, true, _) => format!("; see `tuplane status {run}`"),
        // Nobody sees them otherwise.
        (_, false, JobPhase::Finished) => format!("; `tuplane fetch {run} DIR` brings its rows"),
        (_, false, _) => {
            format!(
                "; see `tuplane status {run}`, and when it has ended `tuplane fetch {run} DIR` brings its rows"
            )
        }
    };
    let state = match phase {
        JobPhase::Starting => "is submitted and has not started yet",
        JobPhase::Finished => "has run to its end",
        _ => "runs",
    };
    output.text(&format!("job {} {state}, as run {run}{hint}", safe::line(name)))
}

/// Says what only the agents decide: times of `work` that are not as many as its instances, and memory that
/// no agent has.
pub(super) async fn remark(cluster: &Cluster, run: u64, job: &Job, output: &Output) -> Outcome {
    let lists = |stage: &Stage| match &stage.op {
        Op::Work(work) => work.ms.len() > 1,
        _ => false,
    };
    if job.stages.iter().any(lists) {
        let status = cluster.status(Some(run.to_string())).await?;
        let dag = plan_of(&status)?;
        for stage in job.stages.iter().filter(|stage| lists(stage) && stage.instances.is_none()) {
            let is_its = |instance: &&Instance| dag.vertex(instance.vertex).stages.contains(&stage.id);
            let instances = status.instances.iter().filter(is_its).count() as u32;
            if let Some(remark) = job.times_of_work(&stage.id, instances) {
                output.notice(&format!("warning: {}", remark.message));
            }
        }
    }
    // Where queues grow it is what the job says, whatever an agent has.
    if let Some(memory) = job.options.memory.filter(|_| job.options.overflow == Overflow::Block) {
        let least = least_budget(cluster).await?;
        if let Some(least) = least.filter(|least| *least < memory) {
            output.notice(&format!(
                "warning: `memory` of the job is {}, more than an agent has for queued rows: {} hold there (`up --memory`)",
                bytes(memory),
                bytes(least)
            ));
        }
    }
    Ok(())
}

/// The least budget for queued rows that a live agent reports. Agents that have just started report in a moment.
async fn least_budget(cluster: &Cluster) -> Outcome<Option<u64>> {
    let until = Instant::now() + REPORTED;
    loop {
        let agents = cluster.agents().await?;
        let budgets: Vec<u64> =
            agents.iter().filter(|agent| agent.alive).map(|agent| agent.host.budget).collect();
        if !budgets.contains(&0) || Instant::now() >= until {
            return Ok(budgets.into_iter().filter(|budget| *budget > 0).min());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The job as the coordinator takes it.
pub(super) fn encode(job: &tuplane_core::job::Job) -> Outcome<String> {
    serde_json::to_string(job)
        .map_err(|cause| Failure::Internal(format!("the job cannot be written: {cause}")))
}
