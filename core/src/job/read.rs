//! From a tree with places to a job, with every fault of the file in one pass.

mod op;
mod route;
mod service;
mod sink;
mod source;
mod trace;

use super::check::{self, Seen};
use super::model::{
    Job, OnError, Op, Options, Overflow, Placement, Restart, RouteEntry, Settings, Stage, Text,
};
use super::table::{Table, place};
use super::tree::{DOUBLED, Entry, Node, Value};
use crate::fault::{At, Fault};

/// The most instances anyone can ask for on one agent or in all.
const MAX_INSTANCES: u32 = 4096;

/// The least memory for queued rows on an agent, of a job as of an agent: less would hold no row of any size.
pub const LEAST_MEMORY: u64 = 1 << 20;

/// Name of a job whose file gives none.
const DEFAULT_NAME: &str = "job";

pub(super) use sink::CONNECTORS as SINKS;
pub(super) use source::CONNECTORS as SOURCES;

/// Keys of `[job]`, which the top level takes as well.
const OPTIONS: [&str; 11] = [
    "name",
    "settings",
    "preserve_order",
    "default_parallelism",
    "deterministic",
    "partitions",
    "restart",
    "memory",
    "on_error",
    "overflow",
    "placement",
];

/// Options of a job that the engine's rules name and this version does not have.
const LATER: [&str; 3] = ["snapshot", "notes", "spill"];

/// `on_error`, of a job as of a stage.
const ON_ERROR: [(&str, OnError); 3] =
    [("fail", OnError::Fail), ("drop", OnError::Drop), ("null", OnError::Null)];

/// Reads a job from a tree; `faults` may hold some already, and gets all others, in file order.
pub(super) fn job(root: &Node, faults: &mut Vec<Fault>) -> Option<Job> {
    let job = whole(root, faults)?;
    if faults.is_empty() {
        return Some(job);
    }
    faults.sort_by_key(|fault| fault.at);
    faults.dedup();
    None
}

/// What can be looked at further of a tree with `faults`: the stages that have none, and read none that has.
pub(super) fn sound(root: &Node, faults: &mut Vec<Fault>) -> Option<Job> {
    let mut job = whole(root, faults)?;
    let broken: Vec<&str> = faults.iter().filter_map(|fault| fault.stage.as_deref()).collect();
    let mut sound: Vec<String> = Vec::new();
    job.stages.retain(|stage| {
        let keep = !stage.id.is_empty()
            && !broken.contains(&stage.id.as_str())
            && stage.inputs.iter().all(|input| sound.contains(&input.value));
        sound.extend(keep.then(|| stage.id.clone()));
        keep
    });
    if faults.iter().any(|fault| fault.stage.is_none()) {
        // It may be what could not be read.
        job.options.deterministic = Some(false);
    }
    Some(job)
}

/// All that could be read.
fn whole(root: &Node, faults: &mut Vec<Fault>) -> Option<Job> {
    let mut top = Table::new(root, "the job", faults)?;
    let (name, options) = options(&mut top, faults);
    let Some(drafts) = stages(&mut top, faults) else {
        faults.sort_by_key(|fault| fault.at);
        return None;
    };
    let routes = routes(&mut top, faults);
    top.finish(faults, |key| later(key).or_else(|| is_case(key)));

    let seen: Vec<Seen<'_>> = drafts.iter().map(Draft::seen).collect();
    faults.extend(check::stages(&seen));
    faults.extend(check::routes(&seen, &routes));
    let stages = drafts.into_iter().filter_map(Draft::finish).collect();
    Some(Job { name, options, stages, routes })
}

fn later(key: &str) -> Option<String> {
    LATER.contains(&key).then(|| "this version does not have it yet".to_owned())
}

fn is_case(key: &str) -> Option<String> {
    (key == "pipeline").then(|| "this is a planner case; `plan` takes it, as JSON".to_owned())
}

/// `[job]` and the same keys at the top level.
fn options(top: &mut Table<'_>, faults: &mut Vec<Fault>) -> (String, Options) {
    let inner = top.node("job");
    let mut entries: Vec<Entry> = Vec::new();
    if let Some(node) = inner {
        // Only for its fault if `job` is no table.
        let table = Table::new(node, "[job]", faults);
        entries.extend(table.iter().flat_map(Table::entries).cloned());
    }
    for entry in top.entries().iter().filter(|entry| OPTIONS.contains(&entry.key.value.as_str())) {
        let key = &entry.key.value;
        if let Some(other) = entries.iter().find(|other| other.key.value == *key) {
            let (first, second) = if other.key.at < entry.key.at { (other, entry) } else { (entry, other) };
            let message = format!("`{key}` stands both in [job] and at the top level");
            let help = format!("keep one; the other stands {}", place(first.key.at));
            faults.push(Fault::new(second.key.at, message).help(help));
        } else {
            entries.push(entry.clone());
        }
    }
    top.know(&OPTIONS);
    let mut job = Table::over(&entries, inner.map_or(top.at, |node| node.at), "[job]");
    let name = job.text("name").map_or_else(|| DEFAULT_NAME.to_owned(), |name| name.value);
    let options = Options {
        settings: job
            .choice("settings", &[("paper", Settings::Paper), ("default", Settings::Default)])
            .unwrap_or_default(),
        preserve_order: job.flag("preserve_order").unwrap_or_default(),
        default_parallelism: job.whole_u32("default_parallelism", 1..=MAX_INSTANCES),
        deterministic: job.flag("deterministic"),
        partitions_at: job.node("partitions").map_or_else(At::default, |node| node.at),
        partitions: job.whole_u32("partitions", 1..=u32::from(u16::MAX)).and_then(|n| u16::try_from(n).ok()),
        restart: job
            .choice("restart", &[("never", Restart::Never), ("from_start", Restart::FromStart)])
            .unwrap_or_default(),
        memory: job.size_within("memory", (LEAST_MEMORY, "1MiB"), (u64::MAX, "")),
        on_error: job.choice("on_error", &ON_ERROR).unwrap_or_default(),
        overflow: job
            .choice("overflow", &[("block", Overflow::Block), ("grow", Overflow::Grow)])
            .unwrap_or_default(),
        placement: job.choice("placement", &Placement::ALL).unwrap_or_default(),
    };
    job.finish(faults, later);
    (name, options)
}

/// A list under one of two names, each a table.
fn list<'t>(
    top: &mut Table<'t>,
    names: [&'static str; 2],
    faults: &mut Vec<Fault>,
) -> Option<(&'t Node, &'t [Node])> {
    let [one, many] = names;
    let node = match (top.node(one), top.node(many)) {
        (Some(first), Some(second)) => {
            let message = format!("the job has both `{one}` and `{many}`");
            faults.push(Fault::new(first.at.max(second.at), message).help("put all of them in one list"));
            first
        }
        (Some(node), None) | (None, Some(node)) => node,
        (None, None) => return None,
    };
    if let Value::List(list) = &node.value {
        return Some((node, list));
    }
    if matches!(node.value, Value::Table(_)) {
        // [stage] written again and again is that one slip, not a key given twice each time.
        faults.retain(|fault| fault.message != DOUBLED);
    }
    let message = format!("`{one}` must be a list of tables, not {}", node.value.kind());
    faults.push(
        Fault::new(node.at, message).help(format!("write [[{one}]] in TOML, \"{many}\": [..] in JSON")),
    );
    None
}

fn routes(top: &mut Table<'_>, faults: &mut Vec<Fault>) -> Vec<RouteEntry> {
    let Some((_, nodes)) = list(top, ["route", "routes"], faults) else { return Vec::new() };
    nodes.iter().filter_map(|node| route::entry(node, faults)).collect()
}

/// The stages; `None` if they are too many to be looked at.
fn stages(top: &mut Table<'_>, faults: &mut Vec<Fault>) -> Option<Vec<Draft>> {
    let Some((node, nodes)) = list(top, ["stage", "stages"], faults) else {
        if top.node("stage").is_none() && top.node("stages").is_none() {
            top.missing("stage", "a job is a list of stages: [[stage]] with `id` and `op`");
        }
        return Some(Vec::new());
    };
    if let Some(fault) = check::too_many(nodes.len(), node.at) {
        faults.push(fault);
        return None;
    }
    if nodes.is_empty() {
        faults.push(Fault::new(node.at, "the job has no stages").help("each needs an `id` and an `op`"));
    }
    Some(nodes.iter().enumerate().filter_map(|(index, node)| stage(node, index + 1, faults)).collect())
}

/// A stage as far as it could be read.
struct Draft {
    id: String,
    at: At,
    op: Option<Op>,
    /// `None` where `in` is there and unreadable, which is a fault of its own.
    inputs: Option<Vec<Text>>,
    name: Option<String>,
    parallelism: Option<u32>,
    instances: Option<u32>,
}

impl Draft {
    fn seen(&self) -> Seen<'_> {
        Seen { id: &self.id, at: self.at, op: self.op.as_ref(), inputs: self.inputs.as_deref() }
    }

    fn finish(self) -> Option<Stage> {
        Some(Stage {
            id: self.id,
            at: self.at,
            op: self.op?,
            inputs: self.inputs?,
            name: self.name,
            parallelism: self.parallelism,
            instances: self.instances,
        })
    }
}

fn stage(node: &Node, nth: usize, faults: &mut Vec<Fault>) -> Option<Draft> {
    let mut table = Table::new(node, format!("stage number {nth}"), faults)?;
    let id = table.text("id");
    match &id {
        Some(id) => {
            // The id tells a reader more than the bracket that opens its table.
            table.at = id.at;
            table.call(&id.value);
            if let Some(fault) = check::id(id) {
                table.fault(fault);
            }
        }
        None if table.node("id").is_none() => table.missing("id", "other stages name their inputs by id"),
        None => {}
    }
    let at = table.at;
    let inputs = if table.node("in").is_some() { table.texts("in") } else { Some(Vec::new()) };
    let name = table.text("name").map(|name| name.value);
    let parallelism = table.whole_u32("parallelism", 1..=MAX_INSTANCES);
    let instances = table.whole_u32("instances", 1..=MAX_INSTANCES);
    let op_name = table.text("op");
    if op_name.is_none() && table.node("op").is_none() {
        table.missing("op", "say what the stage does, such as op = \"map\"");
    }
    let op = op_name.as_ref().and_then(|name| op::read(name, &mut table, inputs.as_deref()));
    numbers(&mut table, op.as_ref(), parallelism, instances);
    match &op {
        Some(op) => match op::unknown_connector(op, &table) {
            // Which keys are right depends on the connector, so this is one fault.
            Some(fault) => {
                table.fault(fault);
                table.finish_open(faults);
            }
            None => table.finish(faults, |key| op::belongs(op, key)),
        },
        // Without an op nobody can say which keys are right.
        None => table.finish_open(faults),
    }
    let id = id.map(|id| id.value).unwrap_or_default();
    Some(Draft { id, at, op, inputs, name, parallelism, instances })
}

/// Where `parallelism` and `instances` may stand.
fn numbers(table: &mut Table<'_>, op: Option<&Op>, parallelism: Option<u32>, instances: Option<u32>) {
    let (per_agent, in_all) = (table.node("parallelism"), table.node("instances"));
    if let (Some(first), Some(second)) = (per_agent, in_all) {
        let message = format!("{} has both `parallelism` and `instances`", table.what());
        let help = "`parallelism` counts on every agent, `instances` counts in all; keep one";
        table.fault(Fault::new(first.at.max(second.at), message).help(help));
        return;
    }
    let Some(node) = per_agent.or(in_all) else { return };
    let key = if per_agent.is_some() { "parallelism" } else { "instances" };
    let number = parallelism.or(instances).unwrap_or(1);
    let reason = match op {
        Some(op @ (Op::GroupBy { .. } | Op::Window(_) | Op::Peek { .. })) => {
            format!("`{}` makes no vertex, so it has no instances", op.name())
        }
        Some(Op::AddTimestamps { .. }) if in_all.is_some() => {
            "`add_timestamps` has as many instances as the stage before it".to_owned()
        }
        Some(Op::Source(source)) if !source.distributed && in_all.is_some() && number > 1 => {
            "with `distributed = false` one instance reads, whatever the number".to_owned()
        }
        Some(Op::Sink(sink)) if sink.kind == super::SinkKind::TotalParallelismOne && number > 1 => {
            "a sink of type `total_parallelism_one` has one instance".to_owned()
        }
        _ => return,
    };
    let message = format!("{} cannot have `{key}`: {reason}", table.what());
    table.fault(Fault::new(node.at, message).help(format!("take `{key}` away")));
}
