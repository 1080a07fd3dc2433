//! Reads one table of a file: typed getters that note faults, and a word on every unknown key.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::model::Text;
use super::tree::{Entry, Node, Value};
use super::units;
use crate::fault::{At, Fault, Spanned, suggestion};
use crate::time::Column;

/// A table that is being read. Every getter takes note of its key; [`Table::finish`] refuses the rest.
pub struct Table<'t> {
    /// Where the table stands.
    pub at: At,
    what: String,
    stage: Option<String>,
    entries: &'t [Entry],
    known: Vec<&'static str>,
    faults: Vec<Fault>,
}

impl<'t> Table<'t> {
    /// A view on `node`, called `what` in faults; a fault if it is no table.
    pub fn new(node: &'t Node, what: impl Into<String>, faults: &mut Vec<Fault>) -> Option<Self> {
        let what = what.into();
        if let Value::Table(entries) = &node.value {
            return Some(Self::over(entries, node.at, what));
        }
        faults.push(Fault::new(node.at, format!("{what} must be a table, not {}", node.value.kind())));
        None
    }

    /// A view on entries that were put together from several places.
    pub fn over(entries: &'t [Entry], at: At, what: impl Into<String>) -> Self {
        Self { at, what: what.into(), stage: None, entries, known: Vec::new(), faults: Vec::new() }
    }

    /// From here on faults name the stage.
    pub fn call(&mut self, id: &str) {
        self.what = format!("stage `{id}`");
        self.stage = Some(id.to_owned());
    }

    /// The table's name in faults.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Notes a fault.
    pub fn fault(&mut self, mut fault: Fault) {
        fault.stage.clone_from(&self.stage);
        self.faults.push(fault);
    }

    /// Notes that a key must be there.
    pub fn missing(&mut self, key: &str, help: impl Into<String>) {
        let fault = Fault::new(self.at, format!("{} has no `{key}`", self.what)).help(help);
        self.fault(fault);
    }

    /// Takes keys as known without reading them.
    pub fn know(&mut self, keys: &[&'static str]) {
        self.known.extend(keys);
    }

    /// The key stands here; that it was asked about makes it no known one.
    pub fn place_of(&self, key: &str) -> Option<At> {
        self.entries.iter().find(|entry| entry.key.value == key).map(|entry| entry.key.at)
    }

    /// `connector`; where it is left out a `path` alone means files.
    pub fn connector(&mut self) -> Option<Text> {
        match (self.node("connector"), self.place_of("path")) {
            (None, Some(at)) => Some(Spanned::new("file".to_owned(), at)),
            _ => self.text("connector"),
        }
    }

    /// Keys that nobody has asked for so far.
    pub fn unknown(&self) -> Vec<&'t str> {
        let keys = self.entries.iter().map(|entry| entry.key.value.as_str());
        keys.filter(|key| !self.known.contains(key)).collect()
    }

    /// A key's value.
    pub fn node(&mut self, key: &'static str) -> Option<&'t Node> {
        self.known.push(key);
        self.entries.iter().find(|entry| entry.key.value == key).map(|entry| &entry.node)
    }

    /// All entries, for a table whose keys are the user's own.
    pub fn entries(&self) -> &'t [Entry] {
        self.entries
    }

    fn wrong(&mut self, key: &str, node: &Node, wanted: &str) {
        let what = &self.what;
        let message = format!("`{key}` of {what} must be {wanted}, not {}", node.value.kind());
        self.fault(Fault::new(node.at, message));
    }

    fn refuse(&mut self, key: &str, at: At, trouble: &str) {
        let message = format!("`{key}` of {} {trouble}", self.what);
        self.fault(Fault::new(at, message));
    }

    /// Text that is not empty.
    pub fn text(&mut self, key: &'static str) -> Option<Text> {
        let node = self.node(key)?;
        self.as_text(key, node)
    }

    fn as_text(&mut self, key: &str, node: &Node) -> Option<Text> {
        match &node.value {
            Value::Text(text) if text.trim().is_empty() => self.refuse(key, node.at, "is empty"),
            Value::Text(text) => return Some(Spanned::new(text.clone(), node.at)),
            _ => self.wrong(key, node, "text"),
        }
        None
    }

    /// One text or a list of texts, none of them empty.
    pub fn texts(&mut self, key: &'static str) -> Option<Vec<Text>> {
        let node = self.node(key)?;
        self.as_texts(key, node)
    }

    /// The same for a value that was found already.
    pub fn as_texts(&mut self, key: &str, node: &Node) -> Option<Vec<Text>> {
        match &node.value {
            Value::List(list) if list.is_empty() => self.refuse(key, node.at, "is an empty list"),
            Value::List(list) => {
                // Every element is looked at before giving up, so that each gets its fault.
                let texts: Vec<_> = list.iter().map(|element| self.as_text(key, element)).collect();
                return texts.into_iter().collect();
            }
            Value::Text(_) => return Some(vec![self.as_text(key, node)?]),
            _ => self.wrong(key, node, "text or a list of texts"),
        }
        None
    }

    /// `true` or `false`.
    pub fn flag(&mut self, key: &'static str) -> Option<bool> {
        let node = self.node(key)?;
        if let Value::Boolean(value) = node.value {
            return Some(value);
        }
        self.wrong(key, node, "true or false");
        None
    }

    /// A whole number within bounds.
    pub fn whole(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let node = self.node(key)?;
        let (low, high) = (range.start(), range.end());
        let bounds = if *high == u64::MAX { format!("{low} or more") } else { format!("{low} to {high}") };
        match node.value {
            Value::Integer(value) => match u64::try_from(value) {
                Ok(value) if range.contains(&value) => return Some(value),
                _ => self.refuse(key, node.at, &format!("is {value}; it must be {bounds}")),
            },
            Value::Float(value) => match whole_float(value) {
                Some(value) if range.contains(&value) => return Some(value),
                Some(value) => self.refuse(key, node.at, &format!("is {value}; it must be {bounds}")),
                None => {
                    self.refuse(key, node.at, &format!("is {value}; it must be a whole number, {bounds}"));
                }
            },
            _ => self.wrong(key, node, &format!("a whole number, {bounds}")),
        }
        None
    }

    /// The same in 32 bits.
    pub fn whole_u32(&mut self, key: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        let range = u64::from(*range.start())..=u64::from(*range.end());
        self.whole(key, range).and_then(|value| u32::try_from(value).ok())
    }

    /// A finite number, 0 or more.
    pub fn number(&mut self, key: &'static str) -> Option<Spanned<f64>> {
        let node = self.node(key)?;
        self.as_number(key, node)
    }

    /// The same for a value that was found already.
    pub fn as_number(&mut self, key: &str, node: &Node) -> Option<Spanned<f64>> {
        let value = match node.value {
            Value::Integer(value) => value as f64,
            Value::Float(value) => value,
            _ => {
                self.wrong(key, node, "a number");
                return None;
            }
        };
        if value.is_finite() && value >= 0.0 {
            return Some(Spanned::new(value, node.at));
        }
        self.refuse(key, node.at, &format!("is {value}; it must be 0 or more"));
        None
    }

    /// A finite number over 0.
    pub fn positive(&mut self, key: &'static str) -> Option<f64> {
        let number = self.number(key)?;
        if number.value > 0.0 {
            return Some(number.value);
        }
        self.refuse(key, number.at, "is 0; it must be more");
        None
    }

    /// A duration; a bare number counts milliseconds.
    pub fn duration(&mut self, key: &'static str) -> Option<Duration> {
        let node = self.node(key)?;
        self.as_duration(key, node)
    }

    /// The same for a value that was found already.
    pub fn as_duration(&mut self, key: &str, node: &Node) -> Option<Duration> {
        let duration = match &node.value {
            Value::Text(text) => units::duration(text),
            Value::Integer(value) => units::milliseconds(*value as f64),
            Value::Float(value) => units::milliseconds(*value),
            _ => {
                self.wrong(key, node, "a duration such as \"5ms\"");
                return None;
            }
        };
        if duration.is_none() {
            let wrote = match &node.value {
                Value::Text(text) => text.clone(),
                Value::Integer(value) => value.to_string(),
                Value::Float(value) => value.to_string(),
                _ => String::new(),
            };
            let (why, help) = units::not_a_duration(&wrote);
            self.fault(Fault::new(node.at, format!("`{key}` of {} {why}", self.what)).help(help));
        }
        duration
    }

    /// A duration over 0.
    pub fn positive_duration(&mut self, key: &'static str) -> Option<Duration> {
        let duration = self.duration(key)?;
        if duration.is_zero() {
            let at = self.node(key).map_or(self.at, |node| node.at);
            self.refuse(key, at, "is 0; it must be more");
            return None;
        }
        Some(duration)
    }

    /// A size over 0; a bare number counts bytes.
    pub fn size(&mut self, key: &'static str) -> Option<u64> {
        let node = self.node(key)?;
        let size = match &node.value {
            Value::Text(text) => units::size(text),
            Value::Integer(value) => u64::try_from(*value).ok(),
            Value::Float(value) => whole_float(*value),
            _ => {
                self.wrong(key, node, "a size such as \"64MiB\"");
                return None;
            }
        };
        let size = size.filter(|size| *size > 0);
        if size.is_none()
            && matches!(&node.value, Value::Text(text) if units::size(text).is_none() && units::is_any_size(text))
        {
            self.refuse(key, node.at, "is too large: 10^18 bytes are the most");
        } else if size.is_none() {
            let fault = Fault::new(node.at, format!("`{key}` of {} is not a size", self.what))
                .help("write a number and B, kB, MB, GB, KiB, MiB, GiB or TiB: \"64MiB\"");
            self.fault(fault);
        }
        size
    }

    /// The same within bounds; `least` and `most` are how a person writes them.
    pub fn size_within(
        &mut self,
        key: &'static str,
        (least, least_word): (u64, &str),
        (most, most_word): (u64, &str),
    ) -> Option<u64> {
        let size = self.size(key)?;
        if (least..=most).contains(&size) {
            return Some(size);
        }
        let at = self.node(key).map_or(self.at, |node| node.at);
        let bounds =
            if size < least { format!("at least {least_word}") } else { format!("at most {most_word}") };
        self.refuse(key, at, &format!("is {size} bytes; it must be {bounds}"));
        None
    }

    /// One of several words.
    pub fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text(key)?;
        let found = choices.iter().find(|(word, _)| *word == text.value).map(|(_, value)| *value);
        if found.is_none() {
            let words = choices.iter().map(|(word, _)| *word);
            let fault = Fault::new(text.at, format!("`{key}` of {} cannot be `{}`", self.what, text.value))
                .help(did_you_mean(&text.value, words));
            self.fault(fault);
        }
        found
    }

    /// A column of a CSV file: its name, or its place from 1.
    pub fn column(&mut self, key: &'static str) -> Option<Column> {
        let node = self.node(key)?;
        match &node.value {
            Value::Text(name) => Some(Column::Name(name.clone())),
            Value::Integer(place) if *place > 0 => usize::try_from(*place).ok().map(Column::Place),
            _ => {
                let message = format!("`{key}` must be a column's name, or its place from 1");
                self.fault(Fault::new(node.at, message));
                None
            }
        }
    }

    /// A table within this one, to be finished into this one.
    pub fn table(&mut self, key: &'static str) -> Option<Table<'t>> {
        let node = self.node(key)?;
        let Value::Table(entries) = &node.value else {
            self.wrong(key, node, "a table");
            return None;
        };
        let mut table = Table::over(entries, node.at, format!("`{key}` of {}", self.what));
        table.stage.clone_from(&self.stage);
        Some(table)
    }

    /// Takes over the faults of a table within this one.
    pub fn close(&mut self, inner: Table<'_>) {
        inner.finish(&mut self.faults, |_| None);
    }

    /// The same for a table whose keys are the user's own.
    pub fn close_open(&mut self, inner: Table<'_>) {
        inner.finish_open(&mut self.faults);
    }

    /// Options of a registered thing, as they are.
    pub fn with(&mut self) -> serde_json::Value {
        let Some(node) = self.node("with") else { return serde_json::Value::Object(serde_json::Map::new()) };
        if !matches!(node.value, Value::Table(_)) {
            self.wrong("with", node, "a table");
        }
        node.to_json()
    }

    /// Ends reading: every key that nobody asked for is a fault. `belongs` may know where it belongs.
    pub fn finish(mut self, faults: &mut Vec<Fault>, belongs: impl Fn(&str) -> Option<String>) {
        self.known.sort_unstable();
        self.known.dedup();
        for entry in self.entries {
            let key = entry.key.value.as_str();
            if self.known.binary_search(&key).is_err() {
                let help = belongs(key).unwrap_or_else(|| did_you_mean(key, self.known.iter().copied()));
                let fault = Fault::new(entry.key.at, format!("unknown key `{key}` in {}", self.what));
                self.fault(fault.help(help));
            }
        }
        faults.append(&mut self.faults);
    }

    /// Ends reading where nobody can say which keys are right.
    pub fn finish_open(mut self, faults: &mut Vec<Fault>) {
        faults.append(&mut self.faults);
    }
}

/// `1e3` is as whole as 1000. Beyond 2^53 a float no longer tells which whole number is meant.
fn whole_float(value: f64) -> Option<u64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (value.fract() == 0.0 && (0.0..=EXACT).contains(&value)).then_some(value as u64)
}

/// The closest word if one is close, else all of them.
pub fn did_you_mean<'a>(wrote: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    if let Some(word) = suggestion(wrote, known.clone()) {
        return format!("did you mean `{word}`?");
    }
    let words: Vec<&str> = known.collect();
    format!("one of: {}", words.join(", "))
}

/// A place in words, for a sentence about another place.
pub fn place(at: At) -> String {
    if at.line > 0 { format!("in line {}", at.line) } else { "outside the file".to_owned() }
}
