//! Values with places: what TOML and JSON text both become before a job is read from it.

use jsonc_parser::ast;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use toml::Spanned as TomlSpanned;
use toml::de::{DeTable, DeValue};

use crate::fault::{At, Fault, Spanned};

/// At most so many syntax errors of one text are reported; the rest follow from the first ones.
const MAX_SYNTAX_FAULTS: usize = 20;

/// An error within so many lines behind another one follows from it.
const FOLLOW_UP_LINES: u32 = 3;

/// What is said of a key that stands twice in one table of TOML.
pub(super) const DOUBLED: &str = "not TOML: duplicate key";

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// TOML 1.1.
    Toml,
    /// Plain JSON: no comments, no trailing commas.
    Json,
}

impl FileFormat {
    /// By the name's extension; without a telling one, by how the text begins.
    pub fn guess(name: &str, text: &str) -> Self {
        match name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase()).as_deref() {
            Some("toml") => return Self::Toml,
            Some("json") => return Self::Json,
            _ => {}
        }
        let mut rest = text.trim_start_matches('\u{feff}').chars().filter(|c| !c.is_whitespace());
        match (rest.next(), rest.next()) {
            (Some('{'), _) | (Some('['), Some('{' | ']')) => Self::Json,
            _ => Self::Toml,
        }
    }
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The place of the whole value.
    pub at: At,
    /// The value.
    pub value: Value,
}

/// What TOML and JSON have in common.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// JSON's `null`.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number that fits 64 bits with a sign.
    Integer(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(String),
    /// TOML's date or time, as RFC 3339 writes it.
    Datetime(String),
    /// A list.
    List(Vec<Node>),
    /// A table, in the order it was written.
    Table(Vec<Entry>),
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: Spanned<String>,
    /// Its value.
    pub node: Node,
}

impl Value {
    /// What kind of value it is, for a fault's sentence.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Boolean(_) => "a boolean",
            Value::Integer(_) | Value::Float(_) => "a number",
            Value::Text(_) => "text",
            Value::Datetime(_) => "a date or time",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }
}

impl Node {
    /// Reads text; a syntax error is pushed with its place. A tree may come with faults (a key
    /// given twice), so that what else is wrong can be told in the same pass.
    pub fn parse(text: &str, format: FileFormat, faults: &mut Vec<Fault>) -> Option<Self> {
        let bare = text.strip_prefix('\u{feff}').unwrap_or(text);
        let places = Places::new(text, text.len() - bare.len());
        match format {
            FileFormat::Toml => from_toml(bare, &places, faults),
            FileFormat::Json => from_json(bare, &places, faults),
        }
    }

    /// The value of a key, if this is a table that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Table(entries) => {
                entries.iter().find(|entry| entry.key.value == key).map(|entry| &entry.node)
            }
            _ => None,
        }
    }

    /// The same value without places.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Boolean(value) => (*value).into(),
            Value::Integer(value) => (*value).into(),
            Value::Float(value) => (*value).into(),
            Value::Text(value) | Value::Datetime(value) => value.as_str().into(),
            Value::List(list) => list.iter().map(Node::to_json).collect(),
            Value::Table(entries) => serde_json::Value::Object(
                entries.iter().map(|entry| (entry.key.value.clone(), entry.node.to_json())).collect(),
            ),
        }
    }
}

/// Turns byte offsets into lines and columns.
struct Places<'t> {
    text: &'t str,
    /// Bytes before the parsers' offset 0 (a byte order mark).
    skipped: usize,
    /// Where each line begins.
    lines: Vec<usize>,
    /// Characters before every `BLOCK`-th byte, so that one long line stays linear.
    chars: Vec<usize>,
}

const BLOCK: usize = 256;

impl<'t> Places<'t> {
    fn new(text: &'t str, skipped: usize) -> Self {
        let mut lines = vec![0];
        lines.extend(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(i, _)| i + 1));
        let mut chars = vec![0];
        let mut count = 0;
        for block in text.as_bytes().chunks(BLOCK) {
            count += count_chars(block);
            chars.push(count);
        }
        Self { text, skipped, lines, chars }
    }

    fn chars_before(&self, offset: usize) -> usize {
        let block = offset / BLOCK;
        self.chars[block] + count_chars(&self.text.as_bytes()[block * BLOCK..offset])
    }

    fn at(&self, start: usize, end: usize) -> At {
        let start = (start + self.skipped).min(self.text.len());
        let end = (end + self.skipped).clamp(start, self.text.len());
        let line = self.lines.partition_point(|line| *line <= start) - 1;
        let from = self.lines[line].max(if line == 0 { self.skipped.min(start) } else { 0 });
        At {
            line: line as u32 + 1,
            column: (self.chars_before(start) - self.chars_before(from)) as u32 + 1,
            offset: start as u32,
            len: (end - start) as u32,
        }
    }
}

/// Counts the bytes that begin a character.
fn count_chars(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| (**byte & 0xC0) != 0x80).count()
}

fn from_toml(text: &str, places: &Places<'_>, faults: &mut Vec<Fault>) -> Option<Node> {
    let (table, errors) = DeTable::parse_recoverable(text);
    // A doubled key leaves a whole tree; anything else leaves holes that would raise false faults.
    let usable = errors.iter().all(|error| error.message().starts_with("duplicate key"));
    // What cannot be read makes the lines behind it unreadable too: those say nothing new.
    let mut last = None;
    let told = errors.iter().filter_map(|error| {
        let span = error.span().unwrap_or(0..0);
        let at = places.at(span.start, span.end);
        let before = last.replace(at.line);
        let follows = before.is_some_and(|last: u32| at.line <= last + FOLLOW_UP_LINES);
        let doubled = error.message().starts_with("duplicate key");
        (doubled || !follows).then(|| Fault::new(at, format!("not TOML: {}", error.message())))
    });
    faults.extend(told.take(MAX_SYNTAX_FAULTS));
    usable.then(|| {
        let value = table_from_toml(table.into_inner(), places, faults);
        Node { at: places.at(0, 0), value }
    })
}

fn node_from_toml(spanned: TomlSpanned<DeValue<'_>>, places: &Places<'_>, faults: &mut Vec<Fault>) -> Node {
    let span = spanned.span();
    let at = places.at(span.start, span.end);
    let value = match spanned.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(integer) => {
            let digits = integer.as_str().replace('_', "");
            if let Ok(value) = i64::from_str_radix(&digits, integer.radix()) {
                Value::Integer(value)
            } else {
                faults.push(Fault::new(at, format!("{digits} is too large for a number of 64 bits")));
                Value::Integer(i64::MAX)
            }
        }
        DeValue::Float(float) => Value::Float(float.as_str().replace('_', "").parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(value) => Value::Boolean(value),
        DeValue::Datetime(value) => Value::Datetime(value.to_string()),
        DeValue::Array(list) => {
            Value::List(list.into_iter().map(|node| node_from_toml(node, places, faults)).collect())
        }
        DeValue::Table(table) => table_from_toml(table, places, faults),
    };
    Node { at, value }
}

fn table_from_toml(table: DeTable<'_>, places: &Places<'_>, faults: &mut Vec<Fault>) -> Value {
    let mut entries: Vec<Entry> = table
        .into_iter()
        .map(|(key, value)| {
            let span = key.span();
            let key = Spanned::new(key.into_inner().into_owned(), places.at(span.start, span.end));
            Entry { key, node: node_from_toml(value, places, faults) }
        })
        .collect();
    // The library sorts by name; people read faults in the order they wrote.
    entries.sort_by_key(|entry| entry.key.at);
    Value::Table(entries)
}

fn from_json(text: &str, places: &Places<'_>, faults: &mut Vec<Fault>) -> Option<Node> {
    let plain = ParseOptions {
        allow_comments: false,
        allow_loose_object_property_names: false,
        allow_trailing_commas: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    match parse_to_ast(text, &CollectOptions::default(), &plain) {
        Ok(parsed) => {
            if parsed.value.is_none() {
                faults.push(Fault::new(places.at(0, 0), "not JSON: the text is empty"));
            }
            parsed.value.map(|value| node_from_json(value, places, faults))
        }
        Err(error) => {
            let range = error.range();
            let at = places.at(range.start, range.end);
            faults.push(Fault::new(at, format!("not JSON: {}", lower_first(&error.kind().to_string()))));
            None
        }
    }
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

fn node_from_json(value: ast::Value<'_>, places: &Places<'_>, faults: &mut Vec<Fault>) -> Node {
    let place = |range: jsonc_parser::common::Range| places.at(range.start, range.end);
    match value {
        ast::Value::NullKeyword(null) => Node { at: place(null.range), value: Value::Null },
        ast::Value::BooleanLit(boolean) => {
            Node { at: place(boolean.range), value: Value::Boolean(boolean.value) }
        }
        ast::Value::StringLit(text) => {
            Node { at: place(text.range), value: Value::Text(text.value.into_owned()) }
        }
        ast::Value::NumberLit(number) => {
            let value = number
                .value
                .parse()
                .map_or_else(|_| Value::Float(number.value.parse().unwrap_or(f64::NAN)), Value::Integer);
            Node { at: place(number.range), value }
        }
        ast::Value::Array(array) => {
            let list = array.elements.into_iter().map(|node| node_from_json(node, places, faults)).collect();
            Node { at: place(array.range), value: Value::List(list) }
        }
        ast::Value::Object(object) => {
            let at = place(object.range);
            Node { at, value: table_from_json(object, places, faults) }
        }
    }
}

fn table_from_json(object: ast::Object<'_>, places: &Places<'_>, faults: &mut Vec<Fault>) -> Value {
    let mut entries: Vec<Entry> = Vec::with_capacity(object.properties.len());
    let mut seen = std::collections::HashMap::new();
    for property in object.properties {
        let range = match &property.name {
            ast::ObjectPropName::String(name) => name.range,
            ast::ObjectPropName::Word(name) => name.range,
        };
        let at = places.at(range.start, range.end);
        let name = property.name.into_string();
        let node = node_from_json(property.value, places, faults);
        if let Some(line) = seen.insert(name.clone(), at.line) {
            faults.push(Fault::new(at, format!("key `{name}` is given twice; first in line {line}")));
        } else {
            entries.push(Entry { key: Spanned::new(name, at), node });
        }
    }
    Value::Table(entries)
}
