//! The command `paper stela`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use tuplane_core::scale::Planners;

use super::words;
use crate::experiment::stela::{self, Set, StelaError};
use crate::simulate::Output;

/// Scaling by ETP: what the model predicts for the published topologies, and the runs that would measure it
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Stela {
    /// Predicts throughput on the fluid model: no agents, done at once
    #[arg(long, conflicts_with_all = ["quick", "full", "dry_run"])]
    model: bool,
    /// Three topologies, each configuration once
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Every planner with every mechanism
    #[arg(long)]
    full: bool,
    /// Lists the runs and about how long they take, and runs nothing
    #[arg(long)]
    dry_run: bool,
    /// A planner to compare, one of one's own or a built-in one that is not compared anyway
    #[arg(long, value_name = "NAME", requires = "model")]
    also: Vec<String>,
    /// Makes its folder of results under this one
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Text, or a document: `tuplane/claims/1`, of a dry run `tuplane/stela-plan/1`
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

impl Stela {
    fn set(&self) -> Set {
        match (self.quick, self.full) {
            (true, _) => Set::Quick,
            (_, true) => Set::Full,
            _ => Set::Standard,
        }
    }
}

/// Predicts, or lists.
pub(super) fn run(args: &Stela, planners: &Planners, out: &mut impl Write) -> Result<ExitCode> {
    if args.dry_run {
        let listed = stela::dry_run(args.set());
        if args.output == Output::Json {
            writeln!(out, "{}", serde_json::to_string_pretty(&listed)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        listed.cells.iter().try_for_each(|cell| writeln!(out, "{cell}"))?;
        writeln!(out)?;
        listed.notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
        let (cells, about) = (listed.cells.len(), words(Duration::from_secs(listed.seconds)));
        writeln!(out, "{cells} configurations, {} runs, about {about}", cells * listed.repeats as usize)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !args.model {
        return Err(StelaError::NoRunner.into());
    }
    let (folder, claims) = stela::model(&args.out, &args.also, planners)?;
    eprintln!("results: {}", folder.display());
    if args.output == Output::Json {
        writeln!(out, "{}", serde_json::to_string_pretty(&claims)?)?;
    } else {
        for claim in &claims.claims {
            writeln!(out, "{}", claim.claim)?;
            claim.parts.iter().try_for_each(|part| writeln!(out, "  {}: {}", part.scene, part.measured))?;
        }
        writeln!(out, "\n{}", folder.join("claims.md").display())?;
    }
    Ok(ExitCode::SUCCESS)
}
