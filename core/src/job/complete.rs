//! What `check`, `run` and `submit` need beyond structure: functions, connectors, ops that run.

use super::live::is_work_ms;
use super::model::{
    FileSource, Format, Job, Op, Route, Sink, SinkConnector, Source, SourceConnector, Stage, StatefulShape,
    Text, Timestamps,
};
use super::read::{SINKS, SOURCES};
use crate::fault::{At, Fault, suggestion};
use crate::route::{later_policies, policy_names};

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
            faults.extend(policy(&entry.route));
        }
        if faults.is_empty() {
            return Ok(());
        }
        faults.sort_by_key(|fault| fault.at);
        Err(faults)
    }

    /// Stages that name something of a registry. Without one at hand nothing is known of these: whether they
    /// exist, and what columns they give.
    pub fn registered(&self) -> Vec<Fault> {
        let note = |stage: &Stage| {
            let (name, what) = match &stage.op {
                Op::Source(Source { connector: Some(SourceConnector::Registered { name, .. }), .. }) => {
                    (name, format!("is no built-in connector{}", aside(name, &SOURCES)))
                }
                Op::Sink(Sink { connector: Some(SinkConnector::Registered { name, .. }), .. }) => {
                    (name, format!("is no built-in connector{}", aside(name, &SINKS)))
                }
                Op::CustomTransform { call: Some(name), .. } => (name, "is an operator of a registry".into()),
                _ => return None,
            };
            let consequence = match stage.op {
                Op::Sink(_) => "only agents know whether they have it",
                _ => "types are unknown from here on",
            };
            let fault = Fault::new(name.at, format!("`{}` {what}: {consequence}", name.value));
            Some(fault.help("an agent built with it knows: `AGENT check FILE`").stage(&stage.id))
        };
        self.stages.iter().filter_map(note).collect()
    }

    /// Policies that exist nowhere, which not even a plan may name.
    pub fn unknown_policies(&self) -> Vec<Fault> {
        let of_stages = self.stages.iter().filter_map(|stage| match &stage.op {
            Op::Rebalance(rebalance) => Some(&rebalance.route),
            _ => None,
        });
        let routes = of_stages.chain(self.routes.iter().map(|entry| &entry.route));
        let unknown = |route: &&Route| {
            route.policy.as_ref().is_some_and(|policy| !later_policies().contains(&policy.value.as_str()))
        };
        let mut faults: Vec<Fault> = routes.filter(unknown).filter_map(policy).collect();
        faults.sort_by_key(|fault| fault.at);
        faults
    }
}

/// Whether this version runs the op, or only plans it.
pub(super) fn runs(op: &Op) -> bool {
    matches!(
        op,
        Op::Source(_)
            | Op::Rebalance(_)
            | Op::Map { .. }
            | Op::Filter { .. }
            | Op::FlatMap { .. }
            | Op::Merge
            | Op::GroupBy { .. }
            | Op::Aggregate { .. }
            | Op::RollingAggregate { .. }
            | Op::Stateful { .. }
            | Op::Sort { .. }
            | Op::CustomTransform { .. }
            | Op::Work(_)
            | Op::Sink(_)
    )
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
    if !runs(&stage.op) {
        faults.push(later(stage.at, stage.op.name()));
        return;
    }
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
        Op::Aggregate { compute, .. } | Op::RollingAggregate { compute } if compute.is_empty() => {
            missing("compute", "say what it counts: [\"count(*) as n\"]");
        }
        Op::Stateful { shape, state, then, ttl, .. } => {
            if state.is_empty() {
                missing("state", "say what a key begins with: [\"0 as seen\"]");
            }
            match shape {
                _ if !then.is_empty() => {}
                StatefulShape::Map => missing("select", "say the row it makes: [\"*\", \"seen\"]"),
                StatefulShape::Filter => missing("where", "say which rows it keeps: \"seen <= 3\""),
                StatefulShape::FlatMap => {
                    missing("unnest", "say the list to unfold: \"range(0, seen) as i\"");
                }
            }
            if ttl.is_some() {
                faults.push(later(stage.at, "ttl").help("it counts event time, which rows do not have yet"));
            }
        }
        Op::Sort { by } if by.is_empty() => missing("by", "say the order: [\"expr desc\"]"),
        Op::Work(work) if work.ms.is_empty() => missing("ms", "say how long a row takes"),
        Op::Work(work) if !work.ms.iter().all(|ms| is_work_ms(*ms)) => {
            let message = format!("`ms` of stage `{}` must be 0 to 86400000 (one day)", stage.id);
            faults.push(Fault::new(stage.at, message));
        }
        Op::Source(source) => needs_of_source(stage, source, faults),
        Op::Sink(Sink { connector: None, .. }) => {
            missing("connector", "say where rows go: file, stdout, count or ledger");
        }
        Op::CustomTransform { call: None, .. } => {
            missing("call", "name an operator that the agents' registry holds");
        }
        Op::Rebalance(rebalance) => faults.extend(policy(&rebalance.route)),
        _ => {}
    }
}

/// The fault of a connector that is not built in and has keys that no registered one has.
pub(super) fn unknown_connector(name: &Text, built_in: &[&str], key: &str) -> Fault {
    let hint = meant(name, built_in).map_or_else(String::new, |known| format!("; did you mean `{known}`?"));
    let message = format!("there is no connector `{}`{hint}", name.value);
    let fault = Fault::new(name.at, message);
    fault.help(format!(
        "one of: {}; one of your own takes its options in `with`, not as `{key}`",
        built_in.join(", ")
    ))
}

/// A built-in name that may be meant.
fn meant<'n>(name: &Text, built_in: &[&'n str]) -> Option<&'n str> {
    suggestion(&name.value, built_in.iter().copied())
}

fn aside(name: &Text, built_in: &[&str]) -> String {
    meant(name, built_in).map_or_else(String::new, |known| format!(" (did you mean `{known}`?)"))
}

pub(super) fn later(at: At, what: &str) -> Fault {
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
        None => missing("connector", "say what it reads: file, generator, nexmark or ids"),
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

/// What is wrong with an edge's policy.
fn policy(route: &Route) -> Option<Fault> {
    let policy = route.policy.as_ref()?;
    let name = policy.value.as_str();
    if policy_names().contains(&name) {
        return None;
    }
    let (now, later) = (policy_names().join(", "), later_policies().join(", "));
    if later_policies().contains(&name) {
        let fault = Fault::new(policy.at, format!("this version does not run the policy `{name}` yet"));
        return Some(fault.help(format!("one of: {now}")));
    }
    let fault = Fault::new(policy.at, format!("there is no policy `{name}`"));
    let words = policy_names().iter().chain(later_policies()).copied();
    Some(match suggestion(name, words) {
        Some(word) => fault.help(format!("did you mean `{word}`?")),
        None => fault.help(format!("one of: {now}; not yet: {later}")),
    })
}
