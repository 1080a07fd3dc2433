//! `tuplane scale history`.

use serde::Serialize;
use serde_json::{Value, json};
use tuplane_wire::scaling::{Named, Rescale, Step};

use crate::args::Global;
use crate::cluster::Cluster;
use crate::failure::Outcome;
use crate::output::table::{Align, Table, rate};
use crate::output::time::{rfc3339, span};
use crate::output::{Output, number, safe};

use super::show::named;

/// Options of `scale history`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name or run id
    job: String,
}

/// One rescale as a document has it.
#[derive(Debug, Serialize)]
pub(super) struct EntryView {
    epoch: u64,
    attempt: u32,
    asked: String,
    planner: Option<String>,
    step: Step,
    fault: Option<String>,
    started: Vec<Value>,
    stopped: Vec<Value>,
    asked_at: String,
    /// Milliseconds from the request.
    prepared_ms: Option<u64>,
    committed_ms: Option<u64>,
    ended_ms: Option<u64>,
    predicted_per_s: Value,
    /// Why there is none.
    not_predicted: Option<String>,
    measured_per_s: Value,
    /// Why there is none, where there will be none.
    not_measured: Option<String>,
    why: Option<String>,
}

impl From<&Rescale> for EntryView {
    fn from(entry: &Rescale) -> Self {
        let since = |at: Option<u64>| at.map(|at| at.saturating_sub(entry.asked_ms));
        let value = |rate: Option<f64>| rate.map_or(Value::Null, number);
        Self {
            epoch: entry.epoch,
            attempt: entry.attempt,
            asked: entry.asked.clone(),
            planner: entry.planner.clone(),
            step: entry.step,
            fault: entry.fault.clone(),
            started: entry.started.iter().map(named).collect(),
            stopped: entry.stopped.iter().map(named).collect(),
            asked_at: rfc3339(entry.asked_ms),
            prepared_ms: since(entry.prepared_ms),
            committed_ms: since(entry.committed_ms),
            ended_ms: since(entry.ended_ms),
            predicted_per_s: value(entry.predicted),
            not_predicted: entry.unpredicted.clone(),
            measured_per_s: value(entry.measured),
            not_measured: entry.unmeasured.clone(),
            why: entry.why.clone(),
        }
    }
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let cluster = Cluster::find(global, output)?;
    let known = super::scalings(&cluster, args.job).await?;
    if !output.is_text() {
        let history: Vec<EntryView> = known.history.iter().map(EntryView::from).collect();
        return output.document(
            "scalings",
            &json!({
                "job": known.job, "run": known.run, "epoch": known.epoch, "history": history,
                "left_out": known.left_out, "auto": known.auto.as_ref().map(super::auto::document),
            }),
        );
    }
    let mut out = format!("job {} (run {}), plan {}\n", safe::line(&known.job), known.run, known.epoch);
    if let Some(auto) = &known.auto {
        out.push_str(&format!("automatic mode {}", super::auto::state(auto)));
    }
    if known.history.is_empty() {
        out.push_str("it was not rescaled\n");
        return output.text(&out);
    }
    let mut table = Table::new(&[
        ("PLAN", Align::Right),
        ("ASKED", Align::Left),
        ("BY", Align::Left),
        ("AT", Align::Left),
        ("STARTED", Align::Left),
        ("ENDED", Align::Left),
        ("STEP", Align::Left),
        ("TOOK", Align::Right),
        ("PREDICTED/S", Align::Right),
        ("MEASURED/S", Align::Right),
    ])
    .spare(&["BY", "AT", "STARTED", "ENDED"]);
    for entry in &known.history {
        let took = entry.ended_ms.map(|ended| span(ended.saturating_sub(entry.asked_ms)));
        table.row([
            entry.epoch.to_string(),
            entry.asked.clone(),
            entry.planner.clone().unwrap_or_else(|| "-".to_owned()),
            rfc3339(entry.asked_ms),
            names(&entry.started),
            names(&entry.stopped),
            entry.step.word().to_owned(),
            took.unwrap_or_else(|| "-".to_owned()),
            rate(entry.predicted),
            rate(entry.measured),
        ]);
    }
    out.push_str(&table.render_in(output.room()));
    for entry in known.history.iter().filter(|entry| entry.planner.is_some()) {
        if let Some(why) = &entry.why {
            out.push_str(&format!("plan {}: {}\n", entry.epoch, safe::line(why)));
        }
    }
    for entry in &known.history {
        if let Some(fault) = &entry.fault {
            out.push_str(&format!("plan {}: {}\n", entry.epoch, safe::line(fault)));
        }
        if let Some(why) = &entry.unpredicted {
            out.push_str(&format!("plan {}: not predicted: {}\n", entry.epoch, safe::line(why)));
        }
        if let Some(why) = &entry.unmeasured {
            out.push_str(&format!("plan {}: not measured: {}\n", entry.epoch, safe::line(why)));
        }
    }
    if known.left_out > 0 {
        out.push_str(&format!("{} older ones are left out\n", known.left_out));
    }
    output.text(&out)
}

fn names(all: &[Named]) -> String {
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    if names.is_empty() { "-".to_owned() } else { names.join(", ") }
}
