//! Windows, times, state and services: arguments of several values.

use super::value::Exprs;
use super::{entry, put};
use crate::job::model::{HTTP, HttpMethod};
use crate::job::tree::{Entry, Value};

/// Defines a bundle of options with a setter for any of them.
macro_rules! spec {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default)]
        #[must_use = "it does nothing until a stage takes it"]
        pub struct $name {
            pub(super) entries: Vec<Entry>,
        }

        impl $name {
            /// Sets any option that a job file has.
            pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
                put(&mut self.entries, key, value.into());
                self
            }
        }
    };
}

spec! {
    /// A window: see [`windows`].
    WindowSpec
}

spec! {
    /// Where the event time of rows stands.
    TimeSpec
}

spec! {
    /// What a stateful stage carries from row to row.
    StateSpec
}

spec! {
    /// A registered service or requests by HTTP, and how they are called.
    ServiceSpec
}

/// The kinds of window. Lengths are a `Duration`, or text such as `"10s"`.
pub mod windows {
    use super::WindowSpec;
    use crate::job::tree::Value;

    /// Windows of this length, one after another.
    pub fn tumbling(size: impl Into<Value>) -> WindowSpec {
        WindowSpec::default().set("type", "tumbling").set("size", size)
    }

    /// Windows of this length, one for each step.
    pub fn sliding(size: impl Into<Value>, slide: impl Into<Value>) -> WindowSpec {
        WindowSpec::default().set("type", "sliding").set("size", size).set("slide", slide)
    }

    /// Windows that end after a gap without rows.
    pub fn session(gap: impl Into<Value>) -> WindowSpec {
        WindowSpec::default().set("type", "session").set("gap", gap)
    }
}

impl WindowSpec {
    /// Results before the window has ended, at this interval.
    pub fn early(self, interval: impl Into<Value>) -> Self {
        self.set("early_ms", interval)
    }
}

impl TimeSpec {
    /// The column, or an expression.
    pub fn column(column: &str) -> Self {
        Self::default().set("column", column)
    }

    /// How text is read as a time.
    pub fn format(self, format: &str) -> Self {
        self.set("format", format)
    }

    /// How late a row may be.
    pub fn lateness(self, lateness: impl Into<Value>) -> Self {
        self.set("lateness", lateness)
    }

    /// After so long without a row an instance no longer holds the watermark back.
    pub fn idle(self, idle: impl Into<Value>) -> Self {
        self.set("idle", idle)
    }
}

impl From<TimeSpec> for Value {
    fn from(time: TimeSpec) -> Self {
        Self::Table(time.entries)
    }
}

impl StateSpec {
    /// The state that a key begins with: `["0 as seen"]`.
    pub fn new(state: impl Into<Exprs>) -> Self {
        Self::default().set("state", state.into())
    }

    /// New values over the row and the old state: `["seen + 1 as seen"]`.
    pub fn update(self, update: impl Into<Exprs>) -> Self {
        self.set("update", update.into())
    }

    /// State of a key that saw no row for so long is dropped.
    pub fn ttl(self, ttl: impl Into<Value>) -> Self {
        self.set("ttl", ttl)
    }
}

impl ServiceSpec {
    /// A service that the agents' registry names, with its own options. The built-in one is made by
    /// [`ServiceSpec::http`].
    pub fn new(name: &str, with: serde_json::Value) -> Self {
        Self::default().set("service", name).set("with", with)
    }

    /// Requests to the address that an expression makes: `"'http://inventory:8080/items/' || item"`.
    pub fn http(url: &str) -> Self {
        Self::default().set("service", HTTP).set("url", url)
    }

    /// The method of a request; GET unless it is set.
    pub fn method(self, method: HttpMethod) -> Self {
        self.set("method", method.name())
    }

    /// An expression that makes the body of a request.
    pub fn body(self, body: &str) -> Self {
        self.set("body", body)
    }

    /// A header of a request: an expression, or `env:NAME` for a variable of the agent's environment.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Some(Entry { node, .. }) = self.entries.iter_mut().find(|entry| entry.key.value == "headers")
            && let Value::Table(headers) = &mut node.value
        {
            put(headers, name, value.into());
            return self;
        }
        let headers = Value::Table(vec![entry(name, value)]);
        self.set("headers", headers)
    }

    /// What a `map` makes of a row and its answer: `["*", "response as item"]`.
    pub fn select(self, select: impl Into<Exprs>) -> Self {
        self.set("select", select.into())
    }

    /// Which rows a `filter` keeps, by their answers: `"status = 200"`.
    pub fn keep(self, predicate: &str) -> Self {
        self.set("where", predicate)
    }

    /// The list that a `flat_map` makes rows of: `"words(response) as word"`.
    pub fn unnest(self, list: &str) -> Self {
        self.set("unnest", list)
    }

    /// It blocks, and gets a thread of its own.
    pub fn blocking(self) -> Self {
        self.set("cooperative", false)
    }
}
