//! One file a command; here they are told apart.

pub(crate) mod agents;
pub(crate) mod cancel;
pub(crate) mod check;
pub(crate) mod clean;
pub(crate) mod down;
pub(crate) mod etp;
pub(crate) mod fetch;
pub(crate) mod hosts;
pub(crate) mod jobs;
pub(crate) mod op;
pub(crate) mod peek;
pub(crate) mod plan;
pub(crate) mod route;
pub(crate) mod routes;
pub(crate) mod run;
pub(crate) mod scale;
pub(crate) mod set;
pub(crate) mod status;
pub(crate) mod submit;
pub(crate) mod tui;
pub(crate) mod up;
mod version;
pub(crate) mod what_if;

use std::io::{IsTerminal, Write};

use crate::args::{Command, Global};
use crate::failure::{Failure, Outcome};
use crate::output::{Format, Output, safe};

/// Runs a command.
pub(crate) async fn run(command: Command, global: &Global, output: &mut Output) -> Outcome {
    if output.format == Format::Dot && !matches!(command, Command::Plan(_)) {
        return Err(Failure::Usage("only `plan` draws dot; use -o text, json or jsonl".into()));
    }
    match command {
        Command::Up(args) => Box::pin(up::run(args, global, output)).await,
        Command::Clean(args) => clean::run(args, global, output).await,
        Command::Hosts(args) => hosts::run(args, output).await,
        Command::Down(args) => down::run(args, global, output).await,
        Command::Agents(args) => Box::pin(agents::run(args, global, output)).await,
        Command::Check(args) => check::run(&args, global, output).await,
        Command::Plan(args) => plan::run(&args, output),
        // By far the largest of them.
        Command::Run(args) => Box::pin(run::run(args, global, output)).await,
        Command::Submit(args) => submit::run(args, global, output).await,
        Command::Jobs(args) => jobs::run(args, global, output).await,
        Command::Status(args) => status::run(args, global, output).await,
        Command::Cancel(args) => cancel::run(args, global, output).await,
        Command::Set(args) => set::run(args, global, output).await,
        Command::Route(args) => route::run(args, global, output).await,
        Command::Routes(args) => routes::run(args, global, output).await,
        Command::Etp(args) => etp::run(args, global, output).await,
        Command::Scale(args) => Box::pin(scale::run(args, global, output)).await,
        Command::Op(args) => op::run(args, global, output).await,
        Command::Fetch(args) => fetch::run(args, global, output).await,
        Command::Peek(args) => peek::run(args, global, output).await,
        Command::Tui(args) => Box::pin(tui::run(args, global, output)).await,
        Command::WhatIf(args) => what_if::run(&args, output),
        Command::Version => version::run(output),
    }
}

/// Asks before something ends; where nobody can be asked the answer is no.
fn confirm(global: &Global, what: &str) -> Outcome {
    if global.yes {
        return Ok(());
    }
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(Failure::NeedsYes(format!("{what}: this needs --yes, for nobody can be asked here")));
    }
    let question = format!("{}? [y/N] ", safe::line(what));
    std::io::stderr().write_all(question.as_bytes())?;
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .map_err(|cause| Failure::NeedsYes(format!("{what}: the answer cannot be read: {cause}")))?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::NeedsYes(format!("{what}: not done"))),
    }
}
