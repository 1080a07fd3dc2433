//! The command `sim`: runs a simulation file and prints the report.

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::sim::{self, Registry};

/// Runs a simulation of tuple scheduling, slot by slot
#[derive(Debug, clap::Args)]
pub(crate) struct Sim {
    /// The simulation file; testbed/experiments/potus/fat-tree.toml has every option
    file: PathBuf,
    /// Document or text
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// A seed instead of the file's; with several of them a run for each, and their means
    #[arg(long, value_name = "N")]
    seed: Vec<u64>,
    /// An option instead of the file's
    #[arg(long, value_name = "KEY=VALUE", value_parser = set)]
    set: Vec<(String, String)>,
}

/// How a command answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}

fn set(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, or TABLE.KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// A file that cannot be run: nothing was done.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(String);

impl Refused {
    /// With this reason.
    pub(crate) fn new(why: String) -> Self {
        Self(why)
    }
}

/// Runs it for each seed.
pub(crate) fn run(args: &Sim, registry: &Registry, out: &mut impl Write) -> Result<()> {
    let config = sim::load(&args.file, &args.set, registry).map_err(|faults| {
        let mut all = String::from("the simulation cannot be run");
        for fault in faults {
            let _ = write!(all, "\n  {fault}");
        }
        anyhow::Error::from(Refused(all))
    })?;
    let seeds = if args.seed.is_empty() { std::slice::from_ref(&config.seed) } else { &args.seed };
    let mut runs = Vec::new();
    for &seed in seeds {
        let config = sim::Config { seed, ..config.clone() };
        runs.push(sim::run_with(&config, registry).with_context(|| format!("{}, seed {seed}", config.name))?);
    }
    let report = sim::report(&config, runs);
    match args.output {
        Output::Text => write!(out, "{report}")?,
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?,
    }
    Ok(())
}
