//! `tuplane check`: every fault of a job file in one pass.

use std::path::PathBuf;

use serde_json::json;

use crate::args::Overrides;
use crate::failure::{Failure, Outcome};
use crate::faults::{self, FaultView};
use crate::jobfile::JobFile;
use crate::output::table::counted;
use crate::output::{Output, safe};

/// Options of `check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job file (TOML or JSON); `-` reads standard input
    file: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Outcome {
    let file = JobFile::read(&args.file, &args.overrides)?;
    let checked = file.check();
    let stages = checked.as_ref().ok().map(|job| job.stages.len());
    let faults = checked.err().unwrap_or_default();
    if output.is_text() {
        match stages {
            Some(stages) => output.text(&format!(
                "{}: ok, {}",
                safe::line(&file.name),
                counted(stages as u64, "stage")
            ))?,
            None => output.text(&faults::render(&file.name, &file.text, &faults, output.colors()))?,
        }
    } else {
        let listed: Vec<FaultView<'_>> = faults.iter().map(FaultView::from).collect();
        let ok = stages.is_some();
        output
            .document("check", &json!({"file": file.name, "ok": ok, "stages": stages, "faults": listed}))?;
    }
    if stages.is_some() { Ok(()) } else { Err(Failure::Shown) }
}
