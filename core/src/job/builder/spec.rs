//! Windows, times, state and services: arguments of several values.

use super::put;
use super::value::Exprs;
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
    /// A registered service, and how it is called.
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
    /// A service that the agents' registry names, with its own options.
    pub fn new(name: &str, with: serde_json::Value) -> Self {
        Self::default().set("service", name).set("with", with)
    }

    /// It blocks, and gets a thread of its own.
    pub fn blocking(self) -> Self {
        self.set("cooperative", false)
    }
}
