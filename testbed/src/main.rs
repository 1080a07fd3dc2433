//! `tuplane-testbed`: experiments, and the demo of `make demo`.

mod demo;

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
}

fn main() -> ExitCode {
    let Cli { command: Command::Demo } = Cli::parse();
    match demo::run(&mut std::io::stdout().lock()) {
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
