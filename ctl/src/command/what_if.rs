//! `tuplane what-if`: decisions for recorded figures, without a cluster.

use std::path::PathBuf;

use serde_json::{Value, json};
use tuplane_core::route::whatif::{self, Answer, Case, Form};

use crate::args::Overrides;
use crate::failure::{Failure, Outcome};
use crate::jobfile::JobFile;
use crate::output::table::{Align, Table};
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
}

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
    }
}

fn route(args: &RouteArgs, output: &mut Output) -> Outcome {
    let file = JobFile::read(&args.file, &Overrides::default())?;
    let refuse = |faults: Vec<String>| {
        let lines: Vec<String> = faults.iter().map(|fault| safe::line(fault)).collect();
        Failure::Usage(format!("{}: {}", safe::line(&file.name), lines.join("\n")))
    };
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
        Format::Json | Format::Jsonl => {
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
        _ => {
            for (case, answer) in cases.iter().zip(&answers) {
                explain(case, answer, output)?;
            }
            Ok(())
        }
    }
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
