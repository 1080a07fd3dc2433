//! What `check`, `run` and `submit` need beyond structure: functions, connectors, ops that run.

use super::live::is_work_ms;
use super::model::{FileSource, Format, Job, Op, Route, Sink, Source, SourceConnector, Stage, Timestamps};
use super::table::did_you_mean;
use crate::fault::{At, Fault};

/// Policies that an edge can have while a job runs.
const POLICIES: [&str; 2] = ["round-robin", "shuffle"];

/// Policies that are named in the engine's rules and not built yet.
const LATER_POLICIES: [&str; 4] = ["potus", "p2c", "jsq", "local_first"];

impl Job {
    /// Whether the job can run, not only be planned; all that is missing, in file order.
    pub fn runnable(&self) -> Result<(), Vec<Fault>> {
        let mut faults: Vec<Fault> = name_refusal(&self.name).into_iter().collect();
        for stage in &self.stages {
            let mut found = Vec::new();
            needs(stage, &mut found);
            faults.extend(found.into_iter().map(|fault| fault.stage(&stage.id)));
        }
        for entry in &self.routes {
            policy(&entry.route, &mut faults);
        }
        if faults.is_empty() {
            return Ok(());
        }
        faults.sort_by_key(|fault| fault.at);
        Err(faults)
    }
}

/// A job is asked for by its name, and digits alone are a run's number; a name is also shown, and typed
/// behind a command's options.
fn name_refusal(name: &str) -> Option<Fault> {
    let why = if name.is_empty() {
        "the empty text"
    } else if name.bytes().all(|byte| byte.is_ascii_digit()) {
        "digits only, which are a run's number"
    } else if name == "." || name == ".." {
        "a folder's name"
    } else if name.starts_with('-') {
        "it begins with `-`, as options do"
    } else if name.contains('/') {
        "it has a `/`"
    } else if name.chars().any(char::is_control) {
        "it has control characters"
    } else {
        return None;
    };
    let message = format!("`{}` cannot name a job: {why}", name.escape_debug());
    Some(Fault::new(At::default(), message).help("choose another `name` in the file, or with --name"))
}

fn needs(stage: &Stage, faults: &mut Vec<Fault>) {
    let mut missing = |key: &str, help: &str| {
        let message = format!("stage `{}` ({}) has no `{key}`", stage.id, stage.op.name());
        faults.push(Fault::new(stage.at, message).help(help));
    };
    match &stage.op {
        Op::Map { select } if select.is_empty() => {
            missing("select", "say the row it makes: [\"*\", \"expr as name\"]");
        }
        Op::Filter { predicate: None } => missing("where", "say which rows it keeps"),
        Op::FlatMap { unnest: None } => missing("unnest", "say the list to unfold: \"words(line) as word\""),
        Op::GroupBy { key } if key.is_empty() => missing("key", "say the expression to group by"),
        Op::Aggregate { compute, .. } if compute.is_empty() => {
            missing("compute", "say what it counts: [\"count(*) as n\"]");
        }
        Op::Work(work) if work.ms.is_empty() => missing("ms", "say how long a row takes"),
        Op::Work(work) if !work.ms.iter().all(|ms| is_work_ms(*ms)) => {
            let message = format!("`ms` of stage `{}` must be 0 to 86400000 (one day)", stage.id);
            faults.push(Fault::new(stage.at, message));
        }
        Op::Source(source) => needs_of_source(stage, source, faults),
        Op::Sink(Sink { connector: None, .. }) => {
            missing("connector", "say where rows go: file, stdout, count, ledger or a registered name");
        }
        Op::Rebalance(rebalance) => policy(&rebalance.route, faults),
        Op::Map { .. }
        | Op::Filter { .. }
        | Op::FlatMap { .. }
        | Op::Merge
        | Op::GroupBy { .. }
        | Op::Aggregate { .. }
        | Op::Work(_)
        | Op::Sink(_) => {}
        other => faults.push(later(stage.at, other.name())),
    }
}

fn later(at: At, what: &str) -> Fault {
    Fault::new(at, format!("`{what}` plans, but this version does not run it yet"))
}

fn needs_of_source(stage: &Stage, source: &Source, faults: &mut Vec<Fault>) {
    if let Some(time) = &source.time {
        faults.push(later(time.column.at, "time"));
    } else if source.timestamps != Timestamps::None {
        faults.push(later(stage.at, "timestamps"));
    }
    let mut missing = |key: &str, help: &str| {
        let message = format!("stage `{}` (source) has no `{key}`", stage.id);
        faults.push(Fault::new(stage.at, message).help(help));
    };
    match &source.connector {
        None => missing("connector", "say what it reads: file, generator, nexmark, ids or a registered name"),
        Some(SourceConnector::File(file)) => {
            if file.paths.is_empty() {
                missing("path", "name a file, a glob or a list of them");
            }
            if needs_columns(file) {
                let help = match file.format {
                    Format::Csv => {
                        "write columns = { name = \"type\" }, or header = true to take all as text"
                    }
                    _ => "write columns = { name = \"type\" }",
                };
                missing("columns", help);
            }
        }
        Some(_) => {}
    }
}

fn needs_columns(file: &FileSource) -> bool {
    file.columns.is_empty()
        && match file.format {
            Format::Csv => !file.header,
            Format::Jsonl | Format::Json => true,
            Format::Lines | Format::Regex { .. } => false,
        }
}

fn policy(route: &Route, faults: &mut Vec<Fault>) {
    let Some(policy) = &route.policy else { return };
    let name = policy.value.as_str();
    if LATER_POLICIES.contains(&name) {
        let fault = Fault::new(policy.at, format!("this version does not run the policy `{name}` yet"));
        faults.push(fault.help(format!("one of: {}", POLICIES.join(", "))));
    } else if !POLICIES.contains(&name) {
        let words = POLICIES.into_iter().chain(LATER_POLICIES);
        let fault = Fault::new(policy.at, format!("there is no policy `{name}`"));
        faults.push(fault.help(did_you_mean(name, words)));
    }
}
