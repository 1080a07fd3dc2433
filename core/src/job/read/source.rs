//! Reads sources: where rows come from.

use super::op::time;
use crate::fault::{Fault, Spanned};
use crate::job::model::{
    BadLine, Encoding, FileSource, Files, Format, Generator, GeneratorKind, MAX_ROW, MOST_WINDOW, Nexmark,
    NexmarkEvents, Source, SourceConnector, SourceKind, Split, Text, Timestamps,
};
use crate::job::table::Table;
use crate::job::tree::Value;

/// Connectors that every agent has.
pub(in crate::job) const CONNECTORS: [&str; 5] = ["file", "generator", "nexmark", "ids", "trace"];

const KINDS: [(&str, SourceKind); 2] = [("batch", SourceKind::Batch), ("stream", SourceKind::Stream)];

/// `source` with the options of its connector.
pub(super) fn read(table: &mut Table<'_>) -> Source {
    let connector = table.connector().map(|name| connector(table, name));
    let kind = kind(table, connector.as_ref());
    let timestamps =
        [("none", Timestamps::None), ("source", Timestamps::Source), ("native", Timestamps::Native)];
    Source {
        kind,
        distributed: table.flag("distributed").unwrap_or(true),
        timestamps: table.choice("timestamps", &timestamps).unwrap_or_default(),
        time: time(table),
        on: table.texts("on").unwrap_or_default(),
        rate: table.positive("rate"),
        max_row: max_row(table, connector.as_ref()),
        window: window(table),
        predictor: table.text("predictor"),
        connector,
    }
}

fn window(table: &mut Table<'_>) -> Option<Spanned<u32>> {
    let slots = table.whole_u32("window", 0..=MOST_WINDOW)?;
    Some(Spanned::new(slots, table.place_of("window").unwrap_or(table.at)))
}

/// Rows that are made up have no length that anybody could bound, and registered sources bound their own.
fn max_row(table: &mut Table<'_>, connector: Option<&SourceConnector>) -> Option<u64> {
    if matches!(
        connector,
        Some(
            SourceConnector::Generator(_)
                | SourceConnector::Nexmark(_)
                | SourceConnector::Trace(_)
                | SourceConnector::Registered { .. }
        )
    ) {
        return None;
    }
    table.size_within("max_row", (1, "1 byte"), (MAX_ROW, "16MiB"))
}

/// A generator without `n` never ends, so it is a stream unless the file says otherwise.
fn kind(table: &mut Table<'_>, connector: Option<&SourceConnector>) -> SourceKind {
    let (endless, end) = match connector {
        Some(SourceConnector::Generator(generator)) => {
            // Here `kind` says what is made.
            return if generator.n.is_some() { SourceKind::Batch } else { SourceKind::Stream };
        }
        Some(SourceConnector::Nexmark(nexmark)) => (nexmark.n.is_none(), "`n`"),
        Some(SourceConnector::Trace(trace)) => (trace.is_endless(), "`rows`"),
        _ => (false, ""),
    };
    let by_itself = if endless { SourceKind::Stream } else { SourceKind::Batch };
    if let Some(made) = made_kind(table) {
        // Of a connector that is not known the one fault is that, and its keys are not looked at.
        if !matches!(connector, Some(SourceConnector::Registered { .. })) {
            let at = table.node("kind").map_or(table.at, |node| node.at);
            let message = format!("`kind` of {} cannot be `{made}`", table.what());
            let none = if connector.is_none() { ", and this source has no `connector`" } else { "" };
            let help = format!("`{made}` is a kind of connector = \"generator\"{none}");
            table.fault(Fault::new(at, message).help(help));
        }
        return by_itself;
    }
    let kind = table.choice("kind", &KINDS).unwrap_or(by_itself);
    if endless && kind == SourceKind::Batch {
        let at = table.node("kind").map_or(table.at, |node| node.at);
        let fault =
            Fault::new(at, "a source of kind `batch` has an end, but nothing says how many events there are");
        table.fault(fault.help(format!("add {end}, or set kind = \"stream\"")));
    }
    kind
}

fn connector(table: &mut Table<'_>, name: Text) -> SourceConnector {
    match name.value.as_str() {
        "file" => SourceConnector::File(file(table)),
        "generator" => SourceConnector::Generator(generator(table)),
        "nexmark" => SourceConnector::Nexmark(nexmark(table)),
        "ids" => {
            let n = table.whole("n", 1..=u64::MAX);
            if table.node("n").is_none() {
                table.missing("n", "say how many rows there are");
            }
            let payload = table.whole_u32("payload", 0..=MAX_ROW as u32).unwrap_or_default();
            SourceConnector::Ids { n: n.unwrap_or_default(), payload }
        }
        "trace" => SourceConnector::Trace(super::trace::read(table)),
        _ => SourceConnector::Registered { name, with: table.with() },
    }
}

fn file(table: &mut Table<'_>) -> FileSource {
    const FILES: [(&str, Files); 2] = [("shared", Files::Shared), ("each", Files::Each)];
    const SPLITS: [(&str, Split); 2] = [("file", Split::File), ("bytes", Split::Bytes)];
    const BAD_LINES: [(&str, BadLine); 2] = [("skip", BadLine::Skip), ("fail", BadLine::Fail)];
    const ENCODINGS: [(&str, Encoding); 5] = [
        ("utf-8", Encoding::Utf8),
        ("utf8", Encoding::Utf8),
        ("lossy", Encoding::Lossy),
        ("latin-1", Encoding::Latin1),
        ("latin1", Encoding::Latin1),
    ];
    let paths = table.texts("path").unwrap_or_default();
    let format = format(table);
    let columns = if format == Format::Lines { Vec::new() } else { columns(table) };
    let csv = format == Format::Csv;
    let header = csv && table.flag("header").unwrap_or_default();
    let delimiter = if csv { delimiter(table) } else { ',' };
    let quoted_newlines = !csv || table.flag("quoted_newlines").unwrap_or(true);
    let split = table.choice("split", &SPLITS);
    if split == Some(Split::Bytes) {
        let at = table.node("split").map_or(table.at, |node| node.at);
        if csv && quoted_newlines {
            let fault = Fault::new(at, "a csv file whose fields may hold line ends cannot be cut by bytes");
            table.fault(fault.help("add `quoted_newlines = false`, or set split = \"file\""));
        } else if format == Format::Json {
            let fault =
                Fault::new(at, "with format `json` a file is one document and cannot be cut by bytes");
            table.fault(fault.help("set split = \"file\", or format = \"jsonl\" for one object a line"));
        }
    }
    FileSource {
        paths,
        format,
        encoding: table.choice("encoding", &ENCODINGS).unwrap_or_default(),
        columns,
        header,
        delimiter,
        quoted_newlines,
        files: table.choice("files", &FILES).unwrap_or_default(),
        split,
        on_bad_line: table.choice("on_bad_line", &BAD_LINES).unwrap_or_default(),
    }
}

/// Which of the formats, before its own options are known.
#[derive(Clone, Copy)]
enum Named {
    Lines,
    Csv,
    Jsonl,
    Json,
    Regex,
}

fn format(table: &mut Table<'_>) -> Format {
    const FORMATS: [(&str, Named); 5] = [
        ("lines", Named::Lines),
        ("csv", Named::Csv),
        ("jsonl", Named::Jsonl),
        ("json", Named::Json),
        ("regex", Named::Regex),
    ];
    match table.choice("format", &FORMATS) {
        Some(Named::Csv) => Format::Csv,
        Some(Named::Jsonl) => Format::Jsonl,
        Some(Named::Json) => Format::Json,
        Some(Named::Regex) => {
            let pattern = table.text("pattern");
            if table.node("pattern").is_none() {
                table.missing("pattern", "its named groups, (?<name>..), become columns");
            }
            Format::Regex { pattern: pattern.unwrap_or_default() }
        }
        Some(Named::Lines) => Format::Lines,
        None => {
            if table.node("format").is_some() {
                // The format is unreadable: take any format's keys, so that this is one fault.
                table.know(&["pattern", "columns", "header", "delimiter", "quoted_newlines"]);
            }
            Format::Lines
        }
    }
}

fn columns(table: &mut Table<'_>) -> Vec<(Text, Text)> {
    let mut columns = Vec::new();
    let Some(mut inner) = table.table("columns") else { return columns };
    if inner.entries().is_empty() {
        let fault = Fault::new(inner.at, "`columns` is empty");
        inner.fault(fault.help("write columns = { name = \"type\" }"));
    }
    for entry in inner.entries() {
        if entry.key.value.is_empty() {
            inner.fault(Fault::new(entry.key.at, "a column has no name"));
        }
        if let Some(mut types) = inner.as_texts(&entry.key.value, &entry.node) {
            match (types.pop(), types.is_empty()) {
                (Some(kind), true) => {
                    columns.push((Spanned::new(entry.key.value.clone(), entry.key.at), kind));
                }
                _ => inner.fault(Fault::new(
                    entry.node.at,
                    format!("column `{}` must have one type", entry.key.value),
                )),
            }
        }
    }
    table.close_open(inner);
    columns
}

pub(super) fn delimiter(table: &mut Table<'_>) -> char {
    let Some(node) = table.node("delimiter") else { return ',' };
    if let Value::Text(text) = &node.value {
        let mut chars = text.chars();
        if let (Some(delimiter), None) = (chars.next(), chars.next())
            && delimiter.is_ascii()
            && !matches!(delimiter, '"' | '\n' | '\r')
        {
            return delimiter;
        }
    }
    let fault = Fault::new(node.at, "`delimiter` must be one ASCII character, and no quote or line end");
    table.fault(fault.help("such as \",\", \";\" or \"\\t\""));
    ','
}

/// Which of the two generators.
#[derive(Clone, Copy)]
enum Made {
    Sequence,
    Words,
}

const MADE: [(&str, Made); 2] = [("sequence", Made::Sequence), ("words", Made::Words)];

/// The `kind` of a source, if only generators have it.
fn made_kind(table: &Table<'_>) -> Option<&'static str> {
    let kind = table.entries().iter().find(|entry| entry.key.value == "kind")?;
    let Value::Text(kind) = &kind.node.value else { return None };
    MADE.iter().map(|(name, _)| *name).find(|name| name == kind)
}

fn generator(table: &mut Table<'_>) -> Generator {
    let kind = table.choice("kind", &MADE);
    if table.node("kind").is_none() {
        table.missing("kind", "kind = \"sequence\" or \"words\"");
    }
    let n = table.whole("n", 1..=u64::MAX);
    let seed = table.whole("seed", 0..=u64::MAX).unwrap_or(42);
    let kind = match kind {
        Some(Made::Sequence) => GeneratorKind::Sequence,
        Some(Made::Words) => GeneratorKind::Words {
            words: table.whole_u32("words", 1..=10_000_000).unwrap_or(10_000),
            exponent: table.number("exponent").map_or(1.0, |exponent| exponent.value),
            per_line: table.whole_u32("per_line", 1..=100_000).unwrap_or(10),
        },
        None => {
            // One fault is enough: which keys belong is unknown.
            table.know(&["words", "exponent", "per_line"]);
            GeneratorKind::Sequence
        }
    };
    Generator { kind, n, seed }
}

fn nexmark(table: &mut Table<'_>) -> Nexmark {
    const EVENTS: [(&str, NexmarkEvents); 3] =
        [("person", NexmarkEvents::Person), ("auction", NexmarkEvents::Auction), ("bid", NexmarkEvents::Bid)];
    Nexmark {
        events: table.choice("events", &EVENTS).unwrap_or_default(),
        n: table.whole("n", 1..=u64::MAX),
        base_time: table.whole("base_time", 0..=u64::MAX).unwrap_or_default(),
    }
}

/// A word on a key that belongs to another connector or format.
pub(super) fn belongs(source: &Source, key: &str) -> Option<String> {
    let of_file = [
        "path",
        "format",
        "pattern",
        "encoding",
        "columns",
        "header",
        "delimiter",
        "quoted_newlines",
        "files",
        "split",
        "on_bad_line",
    ];
    let other = match key {
        "due" => {
            return Some(
                "arrivals come by a `rate`, or by the counts of a trace; a column cannot give them yet"
                    .to_owned(),
            );
        }
        "pattern" => "format = \"regex\"",
        "columns" if matches!(source.connector, Some(SourceConnector::File(_))) => {
            return Some("with format = \"lines\" a row is the one column `line`".to_owned());
        }
        "header" | "delimiter" | "quoted_newlines" => "format = \"csv\"",
        key if of_file.contains(&key) => "connector = \"file\"",
        "n" if matches!(source.connector, Some(SourceConnector::Trace(_))) => {
            return Some("a trace ends after so many `rows`".to_owned());
        }
        "n" => "connector = \"generator\", \"nexmark\" or \"ids\"",
        "seed" => "connector = \"generator\"",
        "words" | "exponent" | "per_line" => "kind = \"words\" of connector = \"generator\"",
        "events" | "base_time" => "connector = \"nexmark\"",
        "payload" => "connector = \"ids\" or \"trace\"",
        "step" | "scale" | "mean" | "column" | "from" | "rows" | "loop" => "connector = \"trace\"",
        "max_row" => "connector = \"file\" or \"ids\"",
        "with" => "a registered connector",
        _ => return None,
    };
    let mut sentence = format!("`{key}` belongs to {other}");
    if source.connector.is_none() {
        sentence.push_str("; this source has no `connector`");
    }
    Some(sentence)
}
