//! The columns of a source.

use std::sync::Arc;

use datafusion_common::arrow::compute::can_cast_types;
use datafusion_common::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use tuplane_core::fault::{Fault, suggestion};
use tuplane_core::job::{
    FileSource, Format, GeneratorKind, NexmarkEvents, Source, SourceConnector, Stage, Text,
};

use super::Headers;
use crate::sql::{sql_name, sql_type};
use crate::system;

const TIME: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

/// The columns of a source; `None` for a registered one, which this build does not know.
pub(super) fn output(
    stage: &Stage,
    source: &Source,
    headers: Headers<'_>,
) -> Result<Option<SchemaRef>, Vec<Fault>> {
    let Some(connector) = &source.connector else {
        let fault = Fault::new(stage.at, "the source has no `connector`");
        return Err(vec![fault.help(
            "say what is read: connector = \"file\", \"generator\", \"nexmark\", \"ids\" or \"trace\"",
        )]);
    };
    let columns = match connector {
        SourceConnector::File(file) => return file_columns(stage, file, headers).map(Some),
        SourceConnector::Generator(generator) => match generator.kind {
            GeneratorKind::Sequence => vec![("value", DataType::Int64)],
            GeneratorKind::Words { .. } => vec![("line", DataType::Utf8)],
        },
        SourceConnector::Nexmark(nexmark) => nexmark_columns(nexmark.events),
        SourceConnector::Ids { payload: 0, .. } => vec![("id", DataType::Int64)],
        SourceConnector::Ids { .. } => vec![("id", DataType::Int64), ("payload", DataType::Utf8)],
        SourceConnector::Trace(trace) => {
            let payload = (trace.payload > 0).then_some(("payload", DataType::Utf8));
            [("id", DataType::Int64), ("step", DataType::Int64)].into_iter().chain(payload).collect()
        }
        SourceConnector::Registered { .. } => return Ok(None),
    };
    Ok(Some(schema(columns)))
}

fn schema<'a>(columns: impl IntoIterator<Item = (&'a str, DataType)>) -> SchemaRef {
    let fields: Vec<Field> = columns.into_iter().map(|(name, kind)| Field::new(name, kind, true)).collect();
    Arc::new(Schema::new(fields))
}

/// The events of `NEXMark`, as the crate `nexmark` makes them.
fn nexmark_columns(events: NexmarkEvents) -> Vec<(&'static str, DataType)> {
    let (integer, text) = (DataType::Int64, DataType::Utf8);
    match events {
        NexmarkEvents::Person => vec![
            ("id", integer),
            ("name", text.clone()),
            ("email_address", text.clone()),
            ("credit_card", text.clone()),
            ("city", text.clone()),
            ("state", text.clone()),
            ("date_time", TIME),
            ("extra", text),
        ],
        NexmarkEvents::Auction => vec![
            ("id", integer.clone()),
            ("item_name", text.clone()),
            ("description", text.clone()),
            ("initial_bid", integer.clone()),
            ("reserve", integer.clone()),
            ("date_time", TIME),
            ("expires", TIME),
            ("seller", integer.clone()),
            ("category", integer),
            ("extra", text),
        ],
        NexmarkEvents::Bid => vec![
            ("auction", integer.clone()),
            ("bidder", integer.clone()),
            ("price", integer),
            ("channel", text.clone()),
            ("url", text.clone()),
            ("date_time", TIME),
            ("extra", text),
        ],
    }
}

fn file_columns(stage: &Stage, file: &FileSource, headers: Headers<'_>) -> Result<SchemaRef, Vec<Fault>> {
    match &file.format {
        Format::Lines => Ok(schema([("line", DataType::Utf8)])),
        Format::Regex { pattern } => regex_columns(&file.format, pattern, &file.columns),
        Format::Csv | Format::Jsonl | Format::Json if !file.columns.is_empty() => {
            typed(&file.format, &file.columns)
        }
        Format::Csv if file.header => {
            let Some(names) = headers(&stage.id) else {
                let fault = Fault::new(stage.at, "the names in the file's header are not known here");
                return Err(vec![fault.help("name the columns: columns = { name = \"type\" }")]);
            };
            header_columns(stage, &names)
        }
        Format::Csv => {
            let fault = Fault::new(stage.at, "csv without a header needs `columns`");
            Err(vec![fault.help("write columns = { name = \"type\" }, or header = true")])
        }
        Format::Jsonl | Format::Json => {
            let fault = Fault::new(stage.at, format!("{} needs `columns`", file.format.name()));
            Err(vec![fault.help("write columns = { name = \"type\" }")])
        }
    }
}

fn header_columns(stage: &Stage, names: &[String]) -> Result<SchemaRef, Vec<Fault>> {
    let faults: Vec<Fault> = names
        .iter()
        .enumerate()
        .filter(|(position, name)| names[..*position].contains(name))
        .map(|(_, name)| {
            Fault::new(stage.at, format!("the file's header names `{name}` twice"))
                .help("give the columns names of your own with `columns`, and header = false")
        })
        .chain(names.iter().filter_map(|name| {
            let fault = Fault::new(stage.at, system::refusal(name)?);
            Some(fault.help("give the columns names of your own with `columns`, and header = false"))
        }))
        .collect();
    if faults.is_empty() {
        Ok(schema(names.iter().map(|name| (name.as_str(), DataType::Utf8))))
    } else {
        Err(faults)
    }
}

/// Whether a file of this format can give values of the type: what text can be cast to, and from JSON lists of it.
pub fn is_readable(format: &Format, data_type: &DataType) -> bool {
    match (format, data_type) {
        (Format::Jsonl | Format::Json, DataType::List(item)) => is_readable(&Format::Csv, item.data_type()),
        (_, plain) => !plain.is_nested() && can_cast_types(&DataType::Utf8, plain),
    }
}

/// The type that a job file gives a column, if the format can hold it.
fn column_type(format: &Format, name: &Text, kind: &Text) -> Result<DataType, Fault> {
    let data_type = sql_type(kind)?;
    if is_readable(format, &data_type) {
        return Ok(data_type);
    }
    let (name, written) = (&name.value, sql_name(&data_type));
    let message = format!("column `{name}`: {} cannot be read as {written}", format.name());
    Err(Fault::new(kind.at, message).help(match format {
        Format::Jsonl | Format::Json => "a column is text, a number, boolean, date, time, timestamp or binary, or a list of these (text[])",
        _ => "a column is text, a number, boolean, date, time, timestamp or binary; lists are read from jsonl and json, or made by an expression such as string_to_array(column, ' ')",
    }))
}

/// `columns = { name = "type" }`.
fn typed(format: &Format, columns: &[(Text, Text)]) -> Result<SchemaRef, Vec<Fault>> {
    let mut fields: Vec<Field> = Vec::new();
    let mut faults = Vec::new();
    for (name, kind) in columns {
        if fields.iter().any(|field| *field.name() == name.value) {
            faults.push(Fault::new(name.at, format!("the column `{}` is named twice", name.value)));
        }
        if let Some(message) = system::refusal(&name.value) {
            faults.push(Fault::new(name.at, message));
        }
        match column_type(format, name, kind) {
            Ok(kind) => fields.push(Field::new(&name.value, kind, true)),
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() { Ok(Arc::new(Schema::new(fields))) } else { Err(faults) }
}

/// Named groups become columns, in their order; `columns` gives some of them a type other than text.
fn regex_columns(format: &Format, pattern: &Text, columns: &[(Text, Text)]) -> Result<SchemaRef, Vec<Fault>> {
    let regex = regex::Regex::new(&pattern.value).map_err(|error| {
        // The last line of the message says what is wrong; those before it draw the pattern.
        let message = error.to_string();
        let message = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
        vec![Fault::new(pattern.at, format!("the pattern is no regular expression: {message}"))]
    })?;
    let groups: Vec<&str> = regex.capture_names().flatten().collect();
    if groups.is_empty() {
        let fault = Fault::new(pattern.at, "the pattern has no named group, so there would be no columns");
        return Err(vec![fault.help("name what is wanted: (?<client>\\S+)")]);
    }
    let kept = groups.iter().filter_map(|group| system::refusal(group));
    let mut faults: Vec<Fault> = kept.map(|message| Fault::new(pattern.at, message)).collect();
    let mut kinds = vec![DataType::Utf8; groups.len()];
    for (name, kind) in columns {
        match (groups.iter().position(|group| **group == name.value), column_type(format, name, kind)) {
            (Some(group), Ok(kind)) => kinds[group] = kind,
            (_, Err(fault)) => faults.push(fault),
            (None, _) => {
                let hint = suggestion(&name.value, groups.iter().copied())
                    .map_or(String::new(), |known| format!("; did you mean `{known}`?"));
                let message = format!("the pattern has no group `{}`{hint}", name.value);
                faults.push(Fault::new(name.at, message).help(format!("groups: {}", groups.join(", "))));
            }
        }
    }
    if faults.is_empty() { Ok(schema(groups.into_iter().zip(kinds))) } else { Err(faults) }
}
