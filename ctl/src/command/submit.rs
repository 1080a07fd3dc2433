//! `tuplane submit`.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use crate::args::{Global, Overrides};
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::jobfile::{JobFile, place_own_paths, reads_stdin};
use crate::output::time::parse_span;
use crate::output::{Output, safe};
use crate::wait::until_final;

/// Options of `submit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job file (TOML or JSON)
    file: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
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
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let mut file = JobFile::read(&args.file, &args.overrides)?;
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
    let Some(limit) = args.wait else {
        if output.is_text() {
            let hint =
                if output.is_quiet() { String::new() } else { format!("; see `tuplane status {run}`") };
            return output.text(&format!("job {} is submitted as run {run}{hint}", safe::line(&name)));
        }
        return output.document("submit", &json!({"cluster": cluster.name, "job": name, "run": run}));
    };
    let interrupt = Interrupt::listen()?;
    let waited = interrupt.or(until_final(&cluster, run, limit, output)).await;
    if matches!(waited, Err(Failure::Interrupted)) {
        output.progress_done();
        output.notice(&format!("run {run} goes on: `tuplane status {run}`, `tuplane cancel {run}`"));
    }
    super::run::result(&cluster, &waited?, output).await
}

/// The job as the coordinator takes it.
pub(super) fn encode(job: &tuplane_core::job::Job) -> Outcome<String> {
    serde_json::to_string(job)
        .map_err(|cause| Failure::Internal(format!("the job cannot be written: {cause}")))
}
