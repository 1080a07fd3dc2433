//! Reads the tables of a JSON document that a person wrote, and says everything that is wrong, each with its field's path.

use serde_json::{Map, Value};

use crate::fault::suggestion;

/// A table, what has been asked for of it, and where it stands in words.
pub(crate) struct Fields<'v> {
    place: String,
    table: &'v Map<String, Value>,
    known: Vec<&'static str>,
}

/// A table's own place and the field's, as they stand before what is said of it.
fn path(place: &str, field: &str) -> String {
    if place.ends_with(": ") || place.is_empty() {
        format!("{place}{field}")
    } else {
        format!("{place}, {field}")
    }
}

impl<'v> Fields<'v> {
    /// The fields of a value that has to be a table. `place` ends in `: ` where fields begin.
    pub(crate) fn of(place: String, value: &'v Value, faults: &mut Vec<String>) -> Option<Self> {
        match value {
            Value::Object(table) => Some(Self { place, table, known: Vec::new() }),
            other => {
                let place = place.trim_end_matches(": ");
                faults.push(format!("{place}: it is {}, and must be a table of fields", kind(other)));
                None
            }
        }
    }

    /// What is wrong with a field, in words behind its path.
    pub(crate) fn fault(&self, field: &str, what: impl std::fmt::Display) -> String {
        format!("{}: {what}", path(&self.place, field))
    }

    /// A field that may be left out, or be null.
    pub(crate) fn given(&mut self, name: &'static str) -> Option<&'v Value> {
        self.known.push(name);
        self.table.get(name).filter(|value| !value.is_null())
    }

    /// A field that has to be there.
    fn needed(&mut self, name: &'static str, faults: &mut Vec<String>) -> Option<&'v Value> {
        let value = self.given(name);
        if value.is_none() {
            faults.push(self.fault(name, "it is missing"));
        }
        value
    }

    /// A name.
    pub(crate) fn text(&mut self, name: &'static str, faults: &mut Vec<String>) -> Option<&'v str> {
        let value = self.needed(name, faults)?;
        let text = value.as_str();
        if text.is_none() {
            faults.push(self.fault(name, format_args!("it is {}, and must be a text", kind(value))));
        }
        text
    }

    /// An array.
    pub(crate) fn list(&mut self, name: &'static str, faults: &mut Vec<String>) -> Option<&'v [Value]> {
        let value = self.needed(name, faults)?;
        let list = value.as_array().map(Vec::as_slice);
        if list.is_none() {
            faults.push(self.fault(name, format_args!("it is {}, and must be an array", kind(value))));
        }
        list
    }

    /// A table in it.
    pub(crate) fn table(&mut self, name: &'static str, faults: &mut Vec<String>) -> Option<Fields<'v>> {
        let value = self.needed(name, faults)?;
        // Fields of the only table of its kind are told from others without its name.
        match value {
            Value::Object(_) => Fields::of(self.place.clone(), value, faults),
            other => Fields::of(path(&self.place, name), other, faults),
        }
    }

    /// A number that has to be there, and to fit.
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        fits: impl Fn(f64) -> bool,
        rule: &str,
        faults: &mut Vec<String>,
    ) -> Option<f64> {
        self.needed(name, faults)?;
        self.number_or(name, f64::NAN, fits, rule, faults)
    }

    /// A number, another one if it is left out; `None` if it is given and does not fit.
    pub(crate) fn number_or(
        &mut self,
        name: &'static str,
        otherwise: f64,
        fits: impl Fn(f64) -> bool,
        rule: &str,
        faults: &mut Vec<String>,
    ) -> Option<f64> {
        let Some(value) = self.given(name) else { return Some(otherwise) };
        let number = value.as_f64().filter(|number| fits(*number));
        if number.is_none() {
            faults.push(self.fault(name, format_args!("it is {}, and must be {rule}", shown(value))));
        }
        number
    }

    /// A whole number within a range, another one if it is left out; `None` if it is given and does not fit.
    pub(crate) fn whole_or(
        &mut self,
        name: &'static str,
        otherwise: u64,
        range: std::ops::RangeInclusive<u64>,
        faults: &mut Vec<String>,
    ) -> Option<u64> {
        let Some(value) = self.given(name) else { return Some(otherwise) };
        let number = value.as_u64().filter(|number| range.contains(number));
        if number.is_none() {
            let (least, most) = (range.start(), range.end());
            let rule = if *most == u64::MAX {
                format!("a whole number of at least {least}")
            } else {
                format!("a whole number from {least} to {most}")
            };
            faults.push(self.fault(name, format_args!("it is {}, and must be {rule}", shown(value))));
        }
        number
    }

    /// A whole number that has to be there.
    pub(crate) fn whole(
        &mut self,
        name: &'static str,
        range: std::ops::RangeInclusive<u64>,
        faults: &mut Vec<String>,
    ) -> Option<u64> {
        self.needed(name, faults)?;
        self.whole_or(name, 0, range, faults)
    }

    /// Every field that nobody has asked for is a fault.
    pub(crate) fn finish(self, faults: &mut Vec<String>) {
        for name in self.table.keys().filter(|name| !self.known.contains(&name.as_str())) {
            let close = suggestion(name, self.known.iter().copied());
            let close = close.map_or_else(
                || {
                    let mut known = self.known.clone();
                    known.dedup();
                    format!("; there are: {}", known.join(", "))
                },
                |close| format!("; did you mean `{close}`?"),
            );
            faults.push(self.fault(name, format_args!("there is no such field{close}")));
        }
    }
}

/// What a value is, in words.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "a table",
    }
}

/// A number as it was written, or what stands in its place.
fn shown(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        other => kind(other).to_owned(),
    }
}
