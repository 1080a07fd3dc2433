//! `tuplane`, the control plane: starts agents, submits jobs, shows and steers what they do.

mod args;
mod cluster;
mod command;
mod failure;
mod faults;
mod headers;
mod hostsfile;
mod interrupt;
mod jobfile;
mod limits;
mod more;
mod output;
mod presence;
mod report;
mod tui;
mod wait;
mod window;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use args::Cli;
use failure::{Failure, Outcome};
use output::{Output, safe};

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(|| "an unknown place".into(), ToString::to_string);
        // Standard error may be closed; there is nobody else to tell.
        let _ = std::io::Write::write_all(
            &mut std::io::stderr(),
            format!("tuplane: this is a defect of Tuplane, at {place}: {}\n", panic_message(panic))
                .as_bytes(),
        );
    }));
    match std::panic::catch_unwind(run) {
        Ok(code) => ExitCode::from(code),
        Err(_) => ExitCode::from(Failure::Internal(String::new()).code()),
    }
}

fn panic_message(panic: &std::panic::PanicHookInfo<'_>) -> String {
    let payload = panic.payload();
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}

fn run() -> u8 {
    let args: Vec<OsString> = args::join_wait(std::env::args_os()).collect();
    let cli = match parse(&args) {
        Ok(cli) => cli,
        Err(usage) => {
            let code = said(&usage);
            if !usage.use_stderr() {
                return code;
            }
            if let Some(format) = args::wants_documents(&args) {
                let mut output = Output::new(format, output::Color::Never, true, false);
                let said = usage.to_string();
                // What was wrong is on standard error; a reader that has gone misses nothing.
                let _ = output.document("error", &failure::document(&Failure::Usage(sentence(&said))));
            }
            return code;
        }
    };
    // Alone on a terminal it is the UI.
    let Some(command) = cli.command.or_else(command::tui::alone) else {
        let _ = std::io::Write::write_all(
            &mut std::io::stderr(),
            Cli::command().render_help().to_string().as_bytes(),
        );
        return Failure::Shown.code();
    };
    let mut output = Output::new(cli.global.output, cli.global.color, cli.global.quiet, cli.global.verbose);
    match on_runtime(command::run(command, &cli.global, &mut output)) {
        Ok(()) => 0,
        Err(failure) => {
            output.error(&failure);
            failure.code()
        }
    }
}

fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = Cli::command().try_get_matches_from(args)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    cli.global.cluster_from = matches.value_source("cluster");
    Ok(cli)
}

/// A usage error's own sentence, with what it lists in the lines under it; what follows an empty line are hints.
fn sentence(said: &str) -> String {
    let mut lines = said.lines().take_while(|line| !line.trim().is_empty());
    let first = lines.next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first).to_owned();
    let listed: Vec<&str> = lines.map(str::trim).collect();
    if listed.is_empty() { first } else { format!("{first} {}", listed.join(", ")) }
}

/// Shows what is wrong with the command line; help and version come this way too.
fn said(usage: &clap::Error) -> u8 {
    let plain = usage.render().to_string();
    if usage.use_stderr() {
        // A closed standard error is no reason for another code.
        let _ = if std::env::args_os().any(|arg| safe::lines(&arg.to_string_lossy()) != arg.to_string_lossy())
        {
            std::io::Write::write_all(&mut std::io::stderr(), safe::lines(&plain).as_bytes())
        } else {
            usage.print()
        };
        return Failure::Shown.code();
    }
    let written = usage.print().and_then(|()| std::io::Write::flush(&mut std::io::stdout()));
    match written.map_err(Failure::from) {
        // A pipe that is closed early takes nothing from it.
        Ok(()) | Err(Failure::BrokenPipe) => 0,
        Err(failure) => {
            Output::new(output::Format::Text, output::Color::Never, false, false).error(&failure);
            failure.code()
        }
    }
}

/// One thread serves a command: it waits for others, mostly.
fn on_runtime(command: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|cause| Failure::Failed { kind: "io", message: format!("cannot start: {cause}") })?;
    let outcome = runtime.block_on(command);
    // A read of standard input may never end; nobody waits for it.
    runtime.shutdown_background();
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usage_error_as_a_document_lists_what_is_missing() {
        let said = |args: &[&str]| {
            let Err(error) = parse(&args.iter().map(OsString::from).collect::<Vec<_>>()) else {
                panic!("{args:?}")
            };
            sentence(&error.to_string())
        };
        assert_eq!(
            said(&["tuplane", "scale", "out", "j"]),
            "the following required arguments were not provided: <--agents <N>|--instances <N>>"
        );
        let two = said(&["tuplane", "scale", "set"]);
        assert_eq!(two, "the following required arguments were not provided: <JOB>, <VERTEX=N>");
        assert_eq!(said(&["tuplane", "nosuch"]), "unrecognized subcommand 'nosuch'");
    }
}
