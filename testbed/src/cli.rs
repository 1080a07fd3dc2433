//! The commands of `tuplane-testbed`, for the stock program and for one's own.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::experiment::potus::PaperError;
use crate::experiment::stela::StelaError;
use crate::sim::Registry;
use crate::{bench, demo, paper, simulate, what_if};

/// Experiments on clusters of agents.
#[derive(Debug, Parser)]
#[command(name = "tuplane-testbed", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the main job without and with a rebalance, and reports on both
    Demo,
    /// Runs the benchmarks: one JSON line for each workload
    Bench,
    Sim(simulate::Sim),
    #[command(subcommand)]
    Paper(paper::Paper),
    #[command(subcommand)]
    WhatIf(what_if::WhatIf),
}

/// The whole program: reads the command line and does what it says, with these policies, predictors and planners.
/// A `main` of one's own calls it with a registry to which its own were added.
pub fn run(registry: &Registry) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let done = match Cli::parse().command {
        Command::Demo => demo::run(&mut out).map(|()| ExitCode::SUCCESS),
        Command::Bench => bench::run(&mut out).map(|()| ExitCode::SUCCESS),
        Command::Sim(args) => simulate::run(&args, registry, &mut out).map(|()| ExitCode::SUCCESS),
        Command::Paper(paper) => paper::run(&paper, registry, &mut out),
        Command::WhatIf(what) => {
            what_if::run(&what, &registry.planners, &mut out).map(|()| ExitCode::SUCCESS)
        }
    };
    match done {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tuplane-testbed: {error:#}");
            if is_refusal(&error) { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// A file or an option was refused: nothing was done.
fn is_refusal(error: &anyhow::Error) -> bool {
    let of_paper = matches!(
        error.downcast_ref(),
        Some(PaperError::Option(_) | PaperError::SetUp(_) | PaperError::Trace(_))
    );
    let of_stela = matches!(
        error.downcast_ref(),
        Some(StelaError::Option(_) | StelaError::NoCommand(_) | StelaError::Also(_))
    );
    of_paper || of_stela || error.is::<simulate::Refused>()
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
