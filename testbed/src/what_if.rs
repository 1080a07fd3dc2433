//! The command `what-if`: what the program's planners say of graphs in a file, one's own among them.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use tuplane_core::scale::whatif::{self, Case};
use tuplane_core::scale::{Engine, Plan, Planners};

use crate::simulate::{Output, Refused};

/// Decisions for graphs in a file, without a cluster
#[derive(Debug, clap::Subcommand)]
pub(crate) enum WhatIf {
    Scale(Scale),
}

/// Which vertices of a graph a planner gives more instances: `tuplane what-if scale`, with the planners of this program
#[derive(Debug, clap::Args)]
pub(crate) struct Scale {
    /// A JSON file with one case or an array of cases, each with `new_instances`; docs/scaling-decisions.md has its form
    file: PathBuf,
    /// `queueing` (rows that a vertex cannot take wait without bound) or `backpressured` (their senders are held back)
    #[arg(long, value_name = "ENGINE")]
    engine: Engine,
    /// Who decides
    #[arg(long, value_name = "NAME", default_value = "best")]
    planner: String,
    /// Text, or the answers that `tuplane what-if scale -o json` gives
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Plans every case.
pub(crate) fn run(what: &WhatIf, planners: &Planners, out: &mut impl Write) -> Result<()> {
    let WhatIf::Scale(args) = what;
    let name = args.file.display();
    let text = std::fs::read_to_string(&args.file).with_context(|| format!("cannot read {name}"))?;
    let refused = |faults: &[String]| Refused::new(format!("{name}: {}", faults.join("\n")));
    let (cases, is_array) = whatif::read(&text).map_err(|faults| refused(&faults))?;
    planners.get(&args.planner).map_err(|unknown| refused(&[unknown.to_string()]))?;
    let planned: Vec<Result<(&Case, Plan), String>> =
        cases.iter().map(|case| Ok((case, case.plan(args.engine, &args.planner, planners)?))).collect();
    let faults: Vec<String> = planned.iter().filter_map(|plan| plan.as_ref().err().cloned()).collect();
    if !faults.is_empty() {
        return Err(refused(&faults).into());
    }
    let planned: Vec<(&Case, Plan)> = planned.into_iter().flatten().collect();
    match args.output {
        Output::Text => planned.iter().try_for_each(|(case, plan)| show(case, plan, out))?,
        Output::Json => {
            let answers: Vec<_> = planned.iter().map(|(case, plan)| case.answer(plan)).collect();
            let text = match &answers[..] {
                [only] if !is_array => serde_json::to_string_pretty(only)?,
                all => serde_json::to_string_pretty(all)?,
            };
            writeln!(out, "{text}")?;
        }
    }
    Ok(())
}

fn show(case: &Case, plan: &Plan, out: &mut impl Write) -> Result<()> {
    let (before, after, more) = (plan.before, plan.after, plan.steps.len());
    writeln!(out, "case {}: {before:.0} rows/s, {after:.0} with {more} more instances", case.id)?;
    for step in &plan.steps {
        let id = &case.graph.vertices()[step.vertex].id;
        writeln!(out, "  {id}, then {:.0} rows/s: {}", step.after, step.why)?;
    }
    if let Some(left) = &plan.left {
        writeln!(out, "  {} not used: {}", left.slots, left.why)?;
    }
    Ok(())
}
