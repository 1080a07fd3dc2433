//! `tuplane what-if`: decisions for recorded figures, without a cluster.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Value, json};
use tuplane_core::route::whatif::{self, Answer, Case, Form};
use tuplane_core::scale::whatif::{self as graphs, EtpAnswer, ScaleAnswer};
use tuplane_core::scale::{Congestion, Engine, Plan, Planners, congestion};

use crate::args::Overrides;
use crate::failure::{Failure, Outcome};
use crate::jobfile::JobFile;
use crate::output::table::{Align, Table, counted, percent, rate};
use crate::output::{Format, Output, safe};

/// What is asked.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Where POTUS sends the rows of one sender in one slot, and at what prices
    Route(RouteArgs),
    /// Which vertices of a graph are congested, and what share of its output each carries
    Etp(EtpArgs),
    /// Which vertices of a graph a planner gives more instances, and what comes of it
    Scale(ScaleArgs),
}

/// Options of `what-if scale`.
#[derive(Debug, clap::Args)]
#[command(after_help = GRAPH)]
struct ScaleArgs {
    /// A JSON file with one case or an array of cases, each with `new_instances`; `-` reads standard input
    file: PathBuf,
    /// What happens to rows that a vertex cannot take: `queueing` (they wait without bound) or `backpressured` (their
    /// senders are held back)
    #[arg(long, value_name = "ENGINE")]
    engine: Engine,
    /// Who decides
    #[arg(long, value_name = "NAME", default_value = "best")]
    planner: String,
}

/// Options of `what-if etp`.
#[derive(Debug, clap::Args)]
#[command(after_help = GRAPH)]
struct EtpArgs {
    /// A JSON file with one case or an array of cases; `-` reads standard input
    file: PathBuf,
    /// Congested is what more than RATIO times as much reaches as it processes
    #[arg(long, value_name = "RATIO", value_parser = super::etp::ratio, default_value_t = congestion::PUBLISHED)]
    congestion: f64,
}

const GRAPH: &str = "\
A case: {\"id\", \"graph\": {\"vertices\": [{\"id\", \"instances\", \"capacity_per_instance\", \"selectivity\" (1 if left out),
\"offered\" (rows per second; sources alone), \"max_instances\" (may be left out)}], \"edges\": [[\"from\", \"to\"]]},
\"new_instances\" (for `scale`)}. `etp` has the rates of a queueing engine. An array is answered by an array, one element for each case.";

/// Options of `what-if route`.
#[derive(Debug, clap::Args)]
#[command(after_help = CASE)]
struct RouteArgs {
    /// A JSON file with one case or an array of cases; `-` reads standard input
    file: PathBuf,
    /// The published loop, target by target, or the form that edges use; both decide alike
    #[arg(long, value_enum, default_value_t = FormArg::Fast)]
    form: FormArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FormArg {
    Literal,
    Fast,
}

const CASE: &str = "\
A case: {\"id\", \"V\", \"beta\", \"gamma\" (may be left out), \"successors\": [{\"successor\", \"q_out\", \"mandatory\" (0 if left out),
\"targets\": [{\"instance\", \"q_in\", \"u\", \"credit\" (may be left out)}]}]}.
The setting is `paper`; of targets with one price the one that is listed first is taken.
An array is answered by an array, one element for each case.";

pub(super) fn run(args: &Args, output: &mut Output) -> Outcome {
    match &args.what {
        What::Route(args) => route(args, output),
        What::Etp(args) => etp(args, output),
        What::Scale(args) => scale(args, output),
    }
}

fn route(args: &RouteArgs, output: &mut Output) -> Outcome {
    let file = JobFile::read(&args.file, &Overrides::default())?;
    let refuse = |faults: Vec<String>| refused(&file, &faults);
    let (cases, is_array) = whatif::read(&file.text).map_err(refuse)?;
    let form = match args.form {
        FormArg::Literal => Form::Literal,
        FormArg::Fast => Form::Fast,
    };
    let decided: Vec<Result<Answer, String>> = cases.iter().map(|case| case.decide(form)).collect();
    let faults: Vec<String> = decided.iter().filter_map(|answer| answer.as_ref().err().cloned()).collect();
    if !faults.is_empty() {
        return Err(refuse(faults));
    }
    let answers: Vec<Answer> = decided.into_iter().flatten().collect();
    match output.format {
        Format::Json | Format::Jsonl => documents(&answers, is_array, output),
        _ => {
            for (case, answer) in cases.iter().zip(&answers) {
                explain(case, answer, output)?;
            }
            Ok(())
        }
    }
}

/// The most faults of a file of cases that are said.
const MOST_FAULTS: usize = 20;

fn refused(file: &JobFile, faults: &[String]) -> Failure {
    // The wrong file has faults everywhere.
    let mut lines: Vec<String> = faults.iter().take(MOST_FAULTS).map(|fault| safe::line(fault)).collect();
    if let Some(rest) = faults.len().checked_sub(MOST_FAULTS).filter(|rest| *rest > 0) {
        lines.push(format!("and {rest} more"));
    }
    Failure::Usage(format!("{}: {}", safe::line(&file.name), lines.join("\n")))
}

/// An array is answered by an array.
fn documents(answers: &[impl Serialize], is_array: bool, output: &mut Output) -> Outcome {
    let mut values: Vec<Value> = answers.iter().map(|answer| json!(answer)).collect();
    match values.pop() {
        Some(only) if !is_array => output.value(&only),
        last if output.format == Format::Jsonl => {
            values.iter().chain(&last).try_for_each(|value| output.value(value))
        }
        last => {
            values.extend(last);
            output.value(&Value::Array(values))
        }
    }
}

fn etp(args: &EtpArgs, output: &mut Output) -> Outcome {
    let file = JobFile::read(&args.file, &Overrides::default())?;
    let (cases, is_array) = graphs::read(&file.text).map_err(|faults| refused(&file, &faults))?;
    let answers: Vec<EtpAnswer> =
        cases.iter().map(|case| case.etp(Congestion::Ratio(args.congestion))).collect();
    if !output.is_text() {
        return documents(&answers, is_array, output);
    }
    answers.iter().try_for_each(|answer| output.text(&shares(answer)))
}

fn scale(args: &ScaleArgs, output: &mut Output) -> Outcome {
    let file = JobFile::read(&args.file, &Overrides::default())?;
    let (cases, is_array) = graphs::read(&file.text).map_err(|faults| refused(&file, &faults))?;
    let planners = Planners::default();
    planners.get(&args.planner).map_err(|unknown| Failure::Usage(unknown.to_string()))?;
    let (mut plans, mut faults) = (Vec::new(), Vec::new());
    for case in &cases {
        match case.plan(args.engine, &args.planner, &planners) {
            Ok(plan) => plans.push((case, plan)),
            Err(fault) => faults.push(fault),
        }
    }
    if !faults.is_empty() {
        return Err(refused(&file, &faults));
    }
    if output.is_text() {
        return plans.iter().try_for_each(|(case, plan)| output.text(&steps(case, plan)));
    }
    let answers: Vec<ScaleAnswer> = plans.iter().map(|(case, plan)| case.answer(plan)).collect();
    documents(&answers, is_array, output)
}

/// Every new instance with why, and what the model says comes of it.
fn steps(case: &graphs::Case, plan: &Plan) -> String {
    let mut text = format!(
        "case {}: {} rows/s, {} with {}\n",
        safe::line(&case.id),
        rate(Some(plan.before)),
        rate(Some(plan.after)),
        counted(plan.steps.len() as u64, "more instance")
    );
    // A sentence each: no column is wide enough for the reasons.
    for step in &plan.steps {
        let name = &case.graph.vertices()[step.vertex].id;
        let line = format!("  {name}, then {} rows/s: {}", rate(Some(step.after)), step.why);
        text.push_str(&safe::line(&line));
        text.push('\n');
    }
    if !plan.moves.is_empty() {
        let moves = counted(plan.moves.len() as u64, "instance");
        text.push_str(&format!("{moves} to another machine\n"));
    }
    if let Some(left) = &plan.left {
        text.push_str(&safe::line(&format!("{} not used: {}", left.slots, left.why)));
        text.push('\n');
    }
    text
}

/// Every vertex with its share in the three readings.
fn shares(answer: &EtpAnswer) -> String {
    let mut table = Table::new(&[
        ("VERTEX", Align::Left),
        ("CONGESTED", Align::Left),
        ("PATH", Align::Right),
        ("SINKS", Align::Right),
        ("FLOW", Align::Right),
    ]);
    let congested: BTreeSet<&String> = answer.congested.iter().collect();
    for (vertex, path) in &answer.path {
        let shares = [Some(path), answer.sink_set.get(vertex), answer.flow_share.get(vertex)];
        let mark = if congested.contains(vertex) { "yes" } else { "" };
        let shares = shares.map(|share| percent(share.copied().flatten()));
        table.row([vertex.clone(), mark.to_owned()].into_iter().chain(shares));
    }
    let reason = answer.reason.as_ref().map(|why| format!("{}\n", safe::line(why))).unwrap_or_default();
    format!("case {}\n{}{reason}", safe::line(&answer.id), table.render())
}

/// Every target with its price and what it gets: the least price below 0 is served first.
fn explain(case: &Case, answer: &Answer, output: &mut Output) -> Outcome {
    let mut lines = format!("case {}\n", safe::line(&case.id));
    let mut table = Table::new(&[
        ("TARGET", Align::Left),
        ("PRICE", Align::Right),
        ("V*U", Align::Right),
        ("+ Q_IN", Align::Right),
        ("- BETA*Q_OUT", Align::Right),
        ("ROWS", Align::Right),
    ]);
    for priced in case.prices().map_err(Failure::Usage)? {
        let rows = answer.send.get(&priced.instance).copied().unwrap_or(0);
        let terms = priced.terms;
        let number = |value: f64| format!("{value:.2}");
        table.row([
            safe::line(&format!("{}/{}", priced.successor, priced.instance)),
            number(terms.price().value()),
            number(terms.way.value()),
            number(terms.target.value()),
            number(terms.sender.value()),
            if priced.open { rows.to_string() } else { "no credit".to_owned() },
        ]);
    }
    lines.push_str(&table.render());
    if answer.deferred > 0 {
        lines.push_str(&format!("{} rows had to leave and could not\n", answer.deferred));
    }
    output.text(&lines)
}
