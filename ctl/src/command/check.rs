//! `tuplane check`: every fault of a job file in one pass.

use std::path::PathBuf;

use serde_json::json;
use tuplane_core::job::Job;
use tuplane_core::scale::Engine;

use super::submit::encode;
use crate::args::{Global, Overrides};
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::faults::{self, FaultView};
use crate::jobfile::{JobFile, place_own_paths, reads_stdin};
use crate::output::table::counted;
use crate::output::{Output, safe};

/// Options of `check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job file (TOML or JSON); `-` reads standard input
    file: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Asks a running cluster as well: its agents' own operators, sources and sinks, its files, its instances
    #[arg(long)]
    agents: bool,
}

pub(super) async fn run(args: &Args, global: &Global, output: &mut Output) -> Outcome {
    let file = JobFile::read(&args.file, &args.overrides)?;
    let (checked, warnings, faults) = match file.check() {
        Ok(checked) => {
            let mut warnings = checked.warnings;
            if args.agents {
                ask(&file, checked.job.clone(), global, output).await?;
            } else {
                warnings.extend(checked.job.registered());
            }
            warnings.sort_by_key(|warning| warning.at);
            let engine = Engine::from(checked.job.options.overflow);
            (Some((checked.job.stages.len(), engine)), warnings, Vec::new())
        }
        Err(faults) => (None, Vec::new(), faults),
    };
    if output.is_text() {
        match checked {
            Some((stages, engine)) => {
                let grows = if engine == Engine::Queueing { ", queues grow" } else { "" };
                let warned = if warnings.is_empty() {
                    String::new()
                } else {
                    format!(", {}", counted(warnings.len() as u64, "warning"))
                };
                let mut said = String::new();
                for warning in &warnings {
                    said.push_str(&format!(
                        "{}\n",
                        safe::line(&format!("{} (warning)", file.warning(warning)))
                    ));
                }
                let name = safe::line(&file.name);
                output
                    .text(&format!("{said}{name}: ok, {}{grows}{warned}", counted(stages as u64, "stage")))?;
            }
            None => output.text(&faults::render(&file.name, &file.text, &faults, output.colors()))?,
        }
    } else {
        let listed: Vec<FaultView<'_>> = faults.iter().map(FaultView::from).collect();
        let warned: Vec<FaultView<'_>> = warnings.iter().map(FaultView::from).collect();
        let body = json!({
            "file": file.name,
            "ok": checked.is_some(),
            "stages": checked.map(|(stages, _)| stages),
            "engine": checked.map(|(_, engine)| engine.name()),
            "faults": listed,
            "warnings": warned,
        });
        output.document("check", &body)?;
    }
    if checked.is_some() { Ok(()) } else { Err(Failure::Shown) }
}

/// Whether the agents of a cluster would take the job.
async fn ask(file: &JobFile, mut job: Job, global: &Global, output: &Output) -> Outcome {
    if !reads_stdin(&job).is_empty() {
        return Err(Failure::Usage(
            "agents cannot look at standard input (`-`); check without --agents".into(),
        ));
    }
    let cluster = Cluster::find(global, output)?;
    if cluster.is_on_this_machine() {
        place_own_paths(&mut job)?;
    }
    cluster.check(encode(&job)?).await.map_err(|failure| file.locate(failure))
}
