//! Reads what a stage does, and the options of the ops that are neither source nor sink.

use std::collections::BTreeMap;

use super::service::Form;
use super::{route, service, sink, source};
use crate::fault::{Fault, Spanned};
use crate::job::complete;
use crate::job::live::is_work_ms;
use crate::job::model::{
    JoinKind, Op, Rebalance, Sink, SinkConnector, Source, SourceConnector, Spread, StatefulShape, Text, Time,
    Window, WindowKind, Work, WorkMode,
};
use crate::job::table::{Table, did_you_mean};
use crate::job::tree::{Node, Value};
use crate::time::LONG_SLIDE;

/// All ops, as a job file calls them.
const OPS: [&str; 27] = [
    "source",
    "rebalance",
    "map",
    "filter",
    "flat_map",
    "merge",
    "group_by",
    "window",
    "aggregate",
    "co_aggregate",
    "hash_join",
    "map_stateful",
    "filter_stateful",
    "flat_map_stateful",
    "rolling_aggregate",
    "distinct",
    "sort",
    "map_using_service",
    "map_using_service_async",
    "filter_using_service",
    "filter_using_service_async",
    "flat_map_using_service",
    "flat_map_using_service_async",
    "custom_transform",
    "work",
    "peek",
    "add_timestamps",
];

/// Reads the op called `name` with its options.
pub(super) fn read(name: &Text, table: &mut Table<'_>, inputs: Option<&[Text]>) -> Option<Op> {
    let op = match name.value.as_str() {
        "source" => Op::Source(source::read(table)),
        "rebalance" => rebalance(table),
        "map" => Op::Map { select: list(table, "select") },
        "filter" => Op::Filter { predicate: table.text("where") },
        "flat_map" => Op::FlatMap { unnest: table.text("unnest") },
        "merge" => Op::Merge,
        "group_by" => Op::GroupBy { key: list(table, "key") },
        "window" => Op::Window(window(table)),
        "aggregate" => {
            Op::Aggregate { compute: list(table, "compute"), combine: table.flag("combine").unwrap_or(true) }
        }
        "co_aggregate" => Op::CoAggregate {
            compute: compute_by_input(table, inputs),
            combine: table.flag("combine").unwrap_or(true),
            builder: table.flag("builder").unwrap_or_default(),
        },
        "hash_join" => hash_join(table, inputs),
        "map_stateful" => stateful(table, StatefulShape::Map),
        "filter_stateful" => stateful(table, StatefulShape::Filter),
        "flat_map_stateful" => stateful(table, StatefulShape::FlatMap),
        "rolling_aggregate" => Op::RollingAggregate { compute: list(table, "compute") },
        "distinct" => Op::Distinct { key: list(table, "key") },
        "sort" => Op::Sort { by: list(table, "by") },
        "map_using_service" => service::read(table, StatefulShape::Map, Form::Blocking),
        "map_using_service_async" => service::read(table, StatefulShape::Map, Form::Async),
        "filter_using_service" => service::read(table, StatefulShape::Filter, Form::Blocking),
        "filter_using_service_async" => service::read(table, StatefulShape::Filter, Form::Async),
        "flat_map_using_service" => service::read(table, StatefulShape::FlatMap, Form::Blocking),
        "flat_map_using_service_async" => service::read(table, StatefulShape::FlatMap, Form::Async),
        "custom_transform" => Op::CustomTransform {
            call: table.text("call"),
            with: table.with(),
            cooperative: table.flag("cooperative").unwrap_or(true),
            preferred_parallelism: preferred(table),
        },
        "work" => Op::Work(work(table)),
        "peek" => Op::Peek { sample_per_second: sample(table) },
        "add_timestamps" => Op::AddTimestamps { time: time(table) },
        "sink" => Op::Sink(sink::read(table)),
        other => {
            let words = OPS.into_iter().chain(["sink"]);
            let fault = Fault::new(name.at, format!("there is no op `{other}`"));
            table.fault(fault.help(did_you_mean(other, words)));
            return None;
        }
    };
    Some(op)
}

/// The fault of a connector that is not built in, where keys stand that no registered one has.
pub(super) fn unknown_connector(op: &Op, table: &Table<'_>) -> Option<Fault> {
    let (name, built_in): (_, &[&str]) = match op {
        Op::Source(Source { connector: Some(SourceConnector::Registered { name, .. }), .. }) => {
            (name, &source::CONNECTORS)
        }
        Op::Sink(Sink { connector: Some(SinkConnector::Registered { name, .. }), .. }) => {
            (name, &sink::CONNECTORS)
        }
        _ => return None,
    };
    table.unknown().first().map(|key| complete::unknown_connector(name, built_in, key))
}

/// A word on a key that belongs to something else than this op.
pub(super) fn belongs(op: &Op, key: &str) -> Option<String> {
    match op {
        Op::Source(source) => return source::belongs(source, key),
        Op::Sink(sink) => return sink::belongs(sink, key),
        Op::Rebalance(rebalance) => return route::belongs(&rebalance.route, key),
        Op::UsingService(using) => {
            if let Some(sentence) = service::belongs(using, key) {
                return Some(sentence);
            }
        }
        _ => {}
    }
    let sentence = match (op, key) {
        (_, "policy" | "v" | "beta" | "gamma" | "slot" | "admission") => {
            "a policy stands on an edge: put it on a `rebalance`, or in [[route]]"
        }
        (Op::GroupBy { .. }, "null_key") => "this version does not have it yet",
        (Op::Aggregate { .. } | Op::RollingAggregate { .. } | Op::CoAggregate { .. }, "key") => {
            "an aggregate takes its key from a `group_by` before it"
        }
        (Op::Map { .. }, "where") => "`where` belongs to op = \"filter\"",
        (Op::Filter { .. }, "select") => "`select` belongs to op = \"map\"",
        (Op::Filter { .. } | Op::Map { .. }, "unnest") => "`unnest` belongs to op = \"flat_map\"",
        (Op::Aggregate { .. }, "select") => "an aggregate says `compute`",
        (Op::Map { .. }, "compute") => "`compute` belongs to op = \"aggregate\"; a map says `select`",
        _ => return None,
    };
    Some(sentence.to_owned())
}

/// One text or several; none where the key is missing.
pub(super) fn list(table: &mut Table<'_>, key: &'static str) -> Vec<Text> {
    table.texts(key).unwrap_or_default()
}

/// What a registered thing prefers.
pub(super) fn preferred(table: &mut Table<'_>) -> Option<u32> {
    table.whole_u32("preferred_parallelism", 1..=super::MAX_INSTANCES)
}

fn rebalance(table: &mut Table<'_>) -> Op {
    let key = list(table, "key");
    let route = route::read(table);
    if let (false, Some(policy)) = (key.is_empty(), &route.policy) {
        let message = format!("{} has both `key` and `policy`", table.what());
        let help = "a key decides where a row goes, so no policy can choose; keep one of them";
        table.fault(Fault::new(policy.at, message).help(help));
    }
    Op::Rebalance(Rebalance { key, route })
}

fn window(table: &mut Table<'_>) -> Window {
    let kinds = [
        (WindowKind::Tumbling.name(), WindowKind::Tumbling),
        (WindowKind::Sliding.name(), WindowKind::Sliding),
        (WindowKind::Session.name(), WindowKind::Session),
    ];
    let kind = table.choice("type", &kinds);
    if table.node("type").is_none() {
        table.missing("type", "type = \"tumbling\", \"sliding\" or \"session\"");
    }
    let mut size = table.positive_duration("size");
    let slide = table.positive_duration("slide");
    let gap = table.positive_duration("gap");
    if let (Some(kind), Some(node)) = (kind, table.node("slide")) {
        if kind != WindowKind::Sliding {
            let fault = Fault::new(node.at, "only a window of type `sliding` has `slide`");
            table.fault(fault.help("set type = \"sliding\", or take `slide` away"));
        } else if let (Some(size), Some(slide)) = (size, slide)
            && slide > size
        {
            let fault = Fault::new(node.at, LONG_SLIDE);
            table.fault(fault.help("make `slide` at most `size`"));
        }
    }
    if let (Some(kind), Some(node)) = (kind, table.node("gap")) {
        if kind != WindowKind::Session {
            let fault = Fault::new(node.at, "only a window of type `session` has `gap`");
            table.fault(fault.help("a tumbling or sliding window has `size`"));
        } else if table.node("size").is_some() {
            table.fault(Fault::new(
                node.at,
                "a session window has `gap` or `size`, which mean the same; keep one",
            ));
        }
        size = size.or(gap);
    }
    let early = table.duration("early_ms").filter(|early| !early.is_zero());
    Window { kind: kind.unwrap_or(WindowKind::Tumbling), size, slide, early }
}

fn compute_by_input(table: &mut Table<'_>, inputs: Option<&[Text]>) -> BTreeMap<String, Vec<Text>> {
    let mut by_input = BTreeMap::new();
    let Some(mut compute) = table.table("compute") else { return by_input };
    for entry in compute.entries() {
        let id = &entry.key.value;
        if let Some(inputs) = inputs
            && !inputs.iter().any(|input| input.value == *id)
        {
            let words = inputs.iter().map(|input| input.value.as_str());
            let fault =
                Fault::new(entry.key.at, format!("`compute` names `{id}`, which is no input of the stage"));
            compute.fault(fault.help(did_you_mean(id, words)));
        }
        let list = compute.as_texts(id, &entry.node).unwrap_or_default();
        by_input.insert(id.clone(), list);
    }
    // The keys were the user's own, so nothing in this table is unknown.
    table.close_open(compute);
    by_input
}

fn hash_join(table: &mut Table<'_>, inputs: Option<&[Text]>) -> Op {
    let on = list(table, "on");
    if let (Some(inputs), Some(first)) = (inputs, on.first())
        && inputs.len() > 1
        && on.len() != inputs.len() - 1
    {
        let message = format!("`on` has {} entries for {} enriching inputs", on.len(), inputs.len() - 1);
        let help = "one \"primary expr = enriching expr\" per input after the first";
        table.fault(Fault::new(first.at, message).help(help));
    }
    let kind = table.choice("kind", &[("inner", JoinKind::Inner), ("left", JoinKind::Left)]);
    let builder = table.flag("builder").unwrap_or_default();
    Op::HashJoin { on, kind: kind.unwrap_or_default(), builder }
}

fn stateful(table: &mut Table<'_>, shape: StatefulShape) -> Op {
    Op::Stateful {
        shape,
        state: list(table, "state"),
        update: list(table, "update"),
        then: list(table, shape.option()),
        ttl: table.positive_duration("ttl"),
    }
}

fn work(table: &mut Table<'_>) -> Work {
    let mut ms = Vec::new();
    if let Some(node) = table.node("ms") {
        match &node.value {
            Value::List(list) if list.is_empty() => {
                table.fault(
                    Fault::new(node.at, "`ms` is an empty list")
                        .help("one number for all, or one per instance"),
                );
            }
            Value::List(list) => ms.extend(list.iter().filter_map(|node| work_ms(table, node))),
            _ => ms.extend(work_ms(table, node)),
        }
    }
    let spread =
        table.choice("spread", &[("none", Spread::None), ("exp", Spread::Exp), ("pareto", Spread::Pareto)]);
    let mode = table.choice("mode", &[("sleep", WorkMode::Sleep), ("spin", WorkMode::Spin)]);
    Work { ms, spread: spread.unwrap_or_default(), mode: mode.unwrap_or_default() }
}

/// A time within the bounds that hold while a job runs, too: milliseconds, or a duration such as "5ms".
fn work_ms(table: &mut Table<'_>, node: &Node) -> Option<f64> {
    let ms = match &node.value {
        Value::Text(_) => Spanned::new(table.as_duration("ms", node)?.as_secs_f64() * 1e3, node.at),
        _ => table.as_number("ms", node)?,
    };
    if is_work_ms(ms.value) {
        return Some(ms.value);
    }
    let message = format!("`ms` of {} is {}, longer than a day for one row", table.what(), ms.value);
    table.fault(Fault::new(ms.at, message).help("at most 86400000 milliseconds"));
    None
}

/// `"10/s"`, or a number that means the same.
fn sample(table: &mut Table<'_>) -> Option<f64> {
    let node = table.node("sample")?;
    let Value::Text(text) = &node.value else { return table.positive("sample") };
    let rate = text.trim().strip_suffix("/s").and_then(|rate| rate.trim_end().parse::<f64>().ok());
    let rate = rate.filter(|rate| rate.is_finite() && *rate > 0.0);
    if rate.is_none() {
        let fault = Fault::new(node.at, format!("`sample` cannot be `{text}`"));
        table.fault(fault.help("rows per second, such as \"10/s\""));
    }
    rate
}

/// `time`: a column or expression, or a table with more.
pub(super) fn time(table: &mut Table<'_>) -> Option<Time> {
    let node = table.node("time")?;
    if let Value::Text(_) = node.value {
        let column = table.text("time")?;
        return Some(Time { column, format: None, zone: None, lateness: None, idle: None, max_ahead: None });
    }
    let mut inner = table.table("time")?;
    let column = inner.text("column");
    if inner.node("column").is_none() {
        inner.missing("column", "the column or expression that holds the time");
    }
    let time = Time {
        column: column.unwrap_or_default(),
        format: inner.text("format"),
        zone: inner.text("zone"),
        lateness: inner.duration("lateness"),
        idle: inner.positive_duration("idle"),
        max_ahead: inner.positive_duration("max_ahead"),
    };
    table.close(inner);
    Some(time)
}
