//! `tuplane-testbed`: the demo of `make demo`, the benchmarks of `make bench`, simulations.

mod bench;
mod demo;
mod scratch;
mod simulate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
}

fn main() -> ExitCode {
    let mut out = std::io::stdout().lock();
    let done = match Cli::parse().command {
        Command::Demo => demo::run(&mut out),
        Command::Bench => bench::run(&mut out),
        Command::Sim(args) => simulate::run(&args, &mut out),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tuplane-testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
