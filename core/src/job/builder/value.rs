//! What Rust values are in a job file, and the text of a job file in JSON.

use std::time::Duration;

use super::{entry, node};
use crate::job::tree::{Node, Value};

/// One expression, or several: `"a + b as sum"`, `["a", "b"]`, a `Vec`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exprs(Vec<String>);

impl From<&str> for Exprs {
    fn from(one: &str) -> Self {
        Self(vec![one.to_owned()])
    }
}

impl From<String> for Exprs {
    fn from(one: String) -> Self {
        Self(vec![one])
    }
}

impl<T: Into<String>, const N: usize> From<[T; N]> for Exprs {
    fn from(several: [T; N]) -> Self {
        Self(several.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<String>> From<Vec<T>> for Exprs {
    fn from(several: Vec<T>) -> Self {
        Self(several.into_iter().map(Into::into).collect())
    }
}

impl<T: Clone + Into<String>> From<&[T]> for Exprs {
    fn from(several: &[T]) -> Self {
        several.to_vec().into()
    }
}

/// One is text, several are a list.
impl From<Exprs> for Value {
    fn from(exprs: Exprs) -> Self {
        match <[String; 1]>::try_from(exprs.0) {
            Ok([one]) => one.into(),
            Err(several) => several.into(),
        }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

/// Beyond 63 bits a file has floats alone.
impl From<u64> for Value {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::Float(value as f64), Self::Integer)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

/// In the largest unit that says it exactly.
impl From<Duration> for Value {
    fn from(value: Duration) -> Self {
        let ns = value.as_nanos();
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
        let unit = units.into_iter().find(|(size, _)| ns.is_multiple_of(*size)).unwrap_or((1, "ns"));
        Self::Text(format!("{}{}", ns / unit.0, unit.1))
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(|value| node(value.into())).collect())
    }
}

impl<T: Into<Value>, const N: usize> From<[T; N]> for Value {
    fn from(values: [T; N]) -> Self {
        Self::List(values.into_iter().map(|value| node(value.into())).collect())
    }
}

impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => value.into(),
            serde_json::Value::Number(number) => match number.as_i64() {
                Some(value) => value.into(),
                None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(text) => text.into(),
            serde_json::Value::Array(list) => list.into(),
            serde_json::Value::Object(map) => {
                Self::Table(map.into_iter().map(|(key, value)| entry(&key, value)).collect())
            }
        }
    }
}

/// A tree as JSON text. Not through `serde_json::Value`: the order of columns is theirs to keep, and that
/// sorts keys.
pub(super) fn json(tree: &Node) -> String {
    let mut text = String::new();
    write(tree, 0, &mut text);
    text.push('\n');
    text
}

fn write(tree: &Node, depth: usize, text: &mut String) {
    let quoted = |value: &str| serde_json::Value::from(value).to_string();
    match &tree.value {
        Value::Table(entries) if !entries.is_empty() => {
            let write = |entry: &crate::job::tree::Entry, text: &mut String| {
                text.push_str(&quoted(&entry.key.value));
                text.push_str(": ");
                write(&entry.node, depth + 1, text);
            };
            listed(('{', '}'), entries, depth, text, write);
        }
        Value::List(list) if list.iter().any(|node| matches!(node.value, Value::Table(_))) => {
            listed(('[', ']'), list, depth, text, |node, text| write(node, depth + 1, text));
        }
        // Plain values, and lists of them, stand on one line.
        _ => text.push_str(&tree.to_json().to_string()),
    }
}

/// Elements, each on a line of its own.
fn listed<T>(
    (open, close): (char, char),
    elements: &[T],
    depth: usize,
    text: &mut String,
    mut write: impl FnMut(&T, &mut String),
) {
    text.push(open);
    for (number, element) in elements.iter().enumerate() {
        text.push_str(if number == 0 { "\n" } else { ",\n" });
        text.push_str(&"  ".repeat(depth + 1));
        write(element, text);
    }
    text.push('\n');
    text.push_str(&"  ".repeat(depth));
    text.push(close);
}
