//! What `check`, `run` and `submit` need beyond structure: functions, connectors, ops that run.

mod ahead;
mod service;

use super::live::is_work_ms;
use super::model::{
    FileSource, Format, HTTP, Job, Op, Route, Sink, SinkConnector, Source, SourceConnector, Stage,
    StatefulShape, Text, Timestamps, UsingService,
};
use super::read::{SINKS, SOURCES};
use crate::fault::{At, Fault, suggestion};
use crate::route::policy_names;
use crate::time::WindowSpec;

impl Job {
    /// Whether the job can run, not only be planned; all that is missing, in file order.
    pub fn runnable(&self) -> Result<(), Vec<Fault>> {
        let mut faults: Vec<Fault> = name_refusal(&self.name).into_iter().collect();
        for stage in &self.stages {
            let mut found = Vec::new();
            needs(stage, &mut found);
            self.never_joins(stage, &mut found);
            self.looks_ahead(stage, &mut found);
            faults.extend(found.into_iter().map(|fault| fault.stage(&stage.id)));
        }
        if faults.is_empty() {
            return Ok(());
        }
        faults.sort_by_key(|fault| fault.at);
        Err(faults)
    }

    /// A join begins when its enriching inputs have ended, so a source without end cannot be one.
    fn never_joins(&self, stage: &Stage, faults: &mut Vec<Fault>) {
        if !matches!(stage.op, Op::HashJoin { .. }) {
            return;
        }
        for input in stage.inputs.iter().skip(1) {
            let Some((source, end)) = self.endless_source(&input.value) else { continue };
            let message = format!(
                "`{}` joins with rows of `{source}`, which never ends: only its first input may be without end",
                stage.id
            );
            faults.push(Fault::new(input.at, message).help(format!("give `{source}` {end}")));
        }
    }

    /// A source that never ends, of those that a stage reads directly or through others, and what would end it.
    fn endless_source(&self, id: &str) -> Option<(&str, &'static str)> {
        let (mut seen, mut open) = (vec![id], vec![id]);
        while let Some(id) = open.pop() {
            let Some(stage) = self.stages.iter().find(|stage| stage.id == id) else { continue };
            if let Some(end) = missing_end(&stage.op) {
                return Some((&stage.id, end));
            }
            for input in &stage.inputs {
                if !seen.contains(&input.value.as_str()) {
                    seen.push(&input.value);
                    open.push(&input.value);
                }
            }
        }
        None
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
                Op::UsingService(UsingService { service: Some(name), http: None, .. }) => {
                    (name, format!("is no built-in service{}", aside(name, &[HTTP])))
                }
                _ => return None,
            };
            let consequence = match stage.op {
                Op::Sink(_) => "only agents know whether they have it",
                _ => "types are unknown from here on",
            };
            let fault = Fault::new(name.at, format!("`{}` {what}: {consequence}", name.value));
            Some(fault.help("an agent built with it knows: `AGENT check FILE`").stage(&stage.id))
        };
        let mut notes: Vec<Fault> = self.stages.iter().filter_map(note).collect();
        notes.extend(self.registered_policies());
        notes.sort_by_key(|note| note.at);
        notes
    }

    /// Edges whose policy is none of the built-in ones: a registry may have it.
    pub fn registered_policies(&self) -> Vec<Fault> {
        let of_stages = self.stages.iter().filter_map(|stage| match &stage.op {
            Op::Rebalance(rebalance) => Some(&rebalance.route),
            _ => None,
        });
        let routes = of_stages.chain(self.routes.iter().map(|entry| &entry.route));
        let mut notes: Vec<Fault> = routes.filter_map(policy).collect();
        notes.sort_by_key(|note| note.at);
        notes
    }
}

/// What would end a source that never ends.
fn missing_end(op: &Op) -> Option<&'static str> {
    let Op::Source(Source { connector: Some(connector), .. }) = op else { return None };
    match connector {
        SourceConnector::Generator(made) if made.n.is_none() => Some("an `n`"),
        SourceConnector::Nexmark(made) if made.n.is_none() => Some("an `n`"),
        SourceConnector::Trace(trace) if trace.is_endless() => Some("`rows`"),
        _ => None,
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
        Op::Aggregate { compute, .. } | Op::RollingAggregate { compute } if compute.is_empty() => {
            missing("compute", "say what it counts: [\"count(*) as n\"]");
        }
        Op::CoAggregate { compute, .. } => {
            let computed = |id: &Text| compute.get(&id.value).is_some_and(|list| !list.is_empty());
            for input in stage.inputs.iter().filter(|input| !computed(input)) {
                let id = &input.value;
                missing(
                    &format!("compute.{id}"),
                    &format!("say what of `{id}` it counts: {{ {id} = [\"count(*) as n\"] }}"),
                );
            }
        }
        Op::HashJoin { on, .. } if stage.inputs.len() != on.len() + 1 => {
            missing("on", "write one \"primary expr = enriching expr\" for each input after the first");
        }
        Op::AddTimestamps { time: None } => missing("time", "say which column holds it: time = \"at\""),
        Op::Window(window) => {
            if let Err(message) = WindowSpec::new(window) {
                let help = "tumbling: size; sliding: size and slide; session: gap";
                faults.push(Fault::new(stage.at, message).help(help));
            }
        }
        Op::Stateful { shape, state, then, .. } => {
            if state.is_empty() {
                missing("state", "say what a key begins with: [\"0 as seen\"]");
            }
            if then.is_empty() {
                let help = match shape {
                    StatefulShape::Map => "say the row it makes: [\"*\", \"seen\"]",
                    StatefulShape::Filter => "say which rows it keeps: \"seen <= 3\"",
                    StatefulShape::FlatMap => "say the list to unfold: \"range(0, seen) as i\"",
                };
                missing(shape.option(), help);
            }
        }
        Op::Sort { by } if by.is_empty() => missing("by", "say the order: [\"expr desc\"]"),
        Op::Work(work) if work.ms.is_empty() => missing("ms", "say how long a row takes"),
        Op::Work(work) if !work.ms.iter().all(|ms| is_work_ms(*ms)) => {
            let message = format!("`ms` of stage `{}` must be 0 to 86400000 (one day)", stage.id);
            faults.push(Fault::new(stage.at, message));
        }
        Op::Source(source) => needs_of_source(stage, source, faults),
        Op::UsingService(using) => service::needs(stage, using, faults),
        Op::Sink(Sink { connector: None, .. }) => {
            missing("connector", "say where rows go: file, stdout, count or ledger");
        }
        Op::CustomTransform { call: None, .. } => {
            missing("call", "name an operator that the agents' registry holds");
        }
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

fn needs_of_source(stage: &Stage, source: &Source, faults: &mut Vec<Fault>) {
    if source.time.is_none() && source.timestamps != Timestamps::None {
        let message = format!("stage `{}` says `timestamps`, and no `time` says where they stand", stage.id);
        faults.push(Fault::new(stage.at, message).help("write time = \"column\""));
    }
    let mut missing = |key: &str, help: &str| {
        let message = format!("stage `{}` (source) has no `{key}`", stage.id);
        faults.push(Fault::new(stage.at, message).help(help));
    };
    match &source.connector {
        None => missing("connector", "say what it reads: file, generator, nexmark, ids or trace"),
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

/// A policy that a registry has to have.
fn policy(route: &Route) -> Option<Fault> {
    let policy = route.policy.as_ref()?;
    let name = policy.value.as_str();
    if policy_names().contains(&name) {
        return None;
    }
    let aside = aside(policy, policy_names());
    let message = format!("`{name}` is no built-in policy{aside}: only agents know whether they have it");
    Some(Fault::new(policy.at, message).help("an agent built with it knows: `AGENT check FILE`"))
}
