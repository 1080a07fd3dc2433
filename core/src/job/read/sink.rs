//! Reads sinks: where rows go.

use super::op::preferred;
use crate::fault::{Fault, Spanned};
use crate::job::model::{Sink, SinkConnector, SinkFormat, SinkKind, Text};
use crate::job::table::Table;

/// Connectors that every agent has.
pub(in crate::job) const CONNECTORS: [&str; 4] = ["file", "stdout", "count", "ledger"];

const KINDS: [(&str, SinkKind); 4] = [
    ("default", SinkKind::Default),
    ("partitioned", SinkKind::Partitioned),
    ("distributed_partitioned", SinkKind::DistributedPartitioned),
    ("total_parallelism_one", SinkKind::TotalParallelismOne),
];

const FORMATS: [(&str, SinkFormat); 2] = [("csv", SinkFormat::Csv), ("jsonl", SinkFormat::Jsonl)];

/// `sink` with the options of its connector.
pub(super) fn read(table: &mut Table<'_>) -> Sink {
    let connector = table.connector().map(|name| connector(table, name));
    let kind = table.choice("type", &KINDS);
    let keyed = matches!(kind, Some(SinkKind::Partitioned | SinkKind::DistributedPartitioned));
    let key = table.texts("key").unwrap_or_default();
    match table.node("key") {
        Some(node) if !keyed && (kind.is_some() || table.node("type").is_none()) => {
            let fault = Fault::new(node.at, "only a partitioned sink has a `key`");
            table.fault(
                fault.help("add type = \"partitioned\" or \"distributed_partitioned\", or take `key` away"),
            );
        }
        None if keyed => table.missing("key", "a partitioned sink routes rows by it"),
        _ => {}
    }
    Sink { kind: kind.unwrap_or_default(), key, preferred_parallelism: preferred(table), connector }
}

fn connector(table: &mut Table<'_>, name: Text) -> SinkConnector {
    match name.value.as_str() {
        "file" => {
            let path = path(table);
            let format = table.choice("format", &FORMATS).unwrap_or_default();
            SinkConnector::File { path, format, shared: table.flag("shared").unwrap_or(true) }
        }
        "stdout" => SinkConnector::Stdout { format: table.choice("format", &FORMATS).unwrap_or_default() },
        "count" => SinkConnector::Count,
        "ledger" => {
            let path = path(table);
            // `id` is the stage's own.
            let id = table.text("id_column").unwrap_or_else(|| Spanned::nowhere("id".to_owned()));
            SinkConnector::Ledger { path, id }
        }
        _ => SinkConnector::Registered { name, with: table.with() },
    }
}

fn path(table: &mut Table<'_>) -> Text {
    let path = table.text("path");
    if table.node("path").is_none() {
        table.missing("path", "name the folder that the sink writes into");
    }
    path.unwrap_or_default()
}

/// A word on a key that belongs to another connector.
pub(super) fn belongs(sink: &Sink, key: &str) -> Option<String> {
    let other = match key {
        "path" => "connector = \"file\" or \"ledger\"",
        "format" => "connector = \"file\" or \"stdout\"",
        "shared" => "connector = \"file\"",
        "id_column" => "connector = \"ledger\"",
        "roll" => return Some("this version does not have it yet".to_owned()),
        "with" => "a registered connector",
        _ => return None,
    };
    let mut sentence = format!("`{key}` belongs to {other}");
    if sink.connector.is_none() {
        sentence.push_str("; this sink has no `connector`");
    }
    Some(sentence)
}
