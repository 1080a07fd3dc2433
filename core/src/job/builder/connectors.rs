//! Sources and sinks of a job that is being put together.

use super::{Exprs, TimeSpec, put};
use crate::job::tree::{Entry, Value};

/// Where rows come from: see [`sources`].
#[derive(Debug, Clone)]
#[must_use = "a source does nothing until a pipeline reads it"]
pub struct SourceSpec {
    pub(super) entries: Vec<Entry>,
}

/// Where rows go: see [`sinks`].
#[derive(Debug, Clone)]
#[must_use = "a sink does nothing until a stage writes to it"]
pub struct SinkSpec {
    pub(super) entries: Vec<Entry>,
}

/// The sources that every agent has, and registered ones.
pub mod sources {
    use super::{Exprs, SourceSpec};

    /// Files: paths or globs. Each line is the text column `line` unless a format is named.
    pub fn files(paths: impl Into<Exprs>) -> SourceSpec {
        SourceSpec::new("file").set("path", paths.into())
    }

    /// `value`: 0, 1, 2, ...; without end unless [`SourceSpec::rows`] says how many.
    pub fn sequence() -> SourceSpec {
        SourceSpec::new("generator").set("kind", "sequence")
    }

    /// `line`: made-up words by Zipf's law.
    pub fn words() -> SourceSpec {
        SourceSpec::new("generator").set("kind", "words")
    }

    /// Events of `NEXMark`: bid, auction or person.
    pub fn nexmark(events: &str) -> SourceSpec {
        SourceSpec::new("nexmark").set("events", events)
    }

    /// Numbered rows: `id` from 0 on.
    pub fn ids(rows: u64) -> SourceSpec {
        SourceSpec::new("ids").rows(rows)
    }

    /// Numbered rows at the times that the counts of a csv file give: `id`, `step`.
    pub fn trace(path: &str) -> SourceSpec {
        SourceSpec::new("trace").set("path", path)
    }

    /// A source that the agents' registry names, with its own options.
    pub fn registered(name: &str, with: serde_json::Value) -> SourceSpec {
        SourceSpec::new(name).set("with", with)
    }
}

/// The sinks that every agent has, and registered ones.
pub mod sinks {
    use super::{Exprs, SinkSpec};

    /// Files in a folder, as csv with a header unless another format is named.
    pub fn files(folder: impl Into<Exprs>) -> SinkSpec {
        SinkSpec::new("file").set("path", folder.into())
    }

    /// Standard output of `tuplane run` and `submit --wait`.
    pub fn stdout() -> SinkSpec {
        SinkSpec::new("stdout")
    }

    /// Counts rows and keeps none.
    pub fn count() -> SinkSpec {
        SinkSpec::new("count")
    }

    /// For experiments: which instance took which row when. `id_column` names the rows.
    pub fn ledger(folder: impl Into<Exprs>, id_column: &str) -> SinkSpec {
        SinkSpec::new("ledger").set("path", folder.into()).set("id_column", id_column)
    }

    /// A sink that the agents' registry names, with its own options.
    pub fn registered(name: &str, with: serde_json::Value) -> SinkSpec {
        SinkSpec::new(name).set("with", with)
    }
}

impl SourceSpec {
    fn new(connector: &str) -> Self {
        Self { entries: Vec::new() }.set("connector", connector)
    }

    /// Sets any option that a job file has.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        put(&mut self.entries, key, value.into());
        self
    }

    /// Lines are comma-separated values.
    pub fn csv(self) -> Self {
        self.set("format", "csv")
    }

    /// Lines are JSON objects.
    pub fn jsonl(self) -> Self {
        self.set("format", "jsonl")
    }

    /// A file is a JSON document.
    pub fn json(self) -> Self {
        self.set("format", "json")
    }

    /// Named groups of a pattern become columns.
    pub fn regex(self, pattern: &str) -> Self {
        self.set("format", "regex").set("pattern", pattern)
    }

    /// Columns and their SQL types, in order.
    pub fn columns<'c>(self, columns: impl IntoIterator<Item = (&'c str, &'c str)>) -> Self {
        let columns = columns.into_iter().map(|(name, kind)| super::entry(name, kind)).collect();
        self.set("columns", Value::Table(columns))
    }

    /// The first line of each csv file names its columns.
    pub fn header(self) -> Self {
        self.set("header", true)
    }

    /// So many rows in all, of a source that makes them up.
    pub fn rows(self, n: u64) -> Self {
        self.set("n", n)
    }

    /// Rows per second over all instances.
    pub fn rate(self, rate: f64) -> Self {
        self.set("rate", rate)
    }

    /// Rows of so many slots to come may leave before they arrive, on edges by POTUS; with 0 response times are
    /// measured, and nothing leaves early.
    pub fn window(self, slots: u32) -> Self {
        self.set("window", u64::from(slots))
    }

    /// Event time of its rows.
    pub fn time(self, time: TimeSpec) -> Self {
        self.set("time", time)
    }

    /// One instance in the cluster reads.
    pub fn in_one_place(self) -> Self {
        self.set("distributed", false)
    }

    /// Only these agents read.
    pub fn on(self, agents: impl Into<Exprs>) -> Self {
        self.set("on", agents.into())
    }
}

impl SinkSpec {
    fn new(connector: &str) -> Self {
        Self { entries: Vec::new() }.set("connector", connector)
    }

    /// Sets any option that a job file has.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        put(&mut self.entries, key, value.into());
        self
    }

    /// Rows are written as JSON objects, one a line.
    pub fn jsonl(self) -> Self {
        self.set("format", "jsonl")
    }

    /// By key, within an agent.
    pub fn partitioned(self, key: impl Into<Exprs>) -> Self {
        self.set("type", "partitioned").set("key", key.into())
    }

    /// By key, over all agents.
    pub fn distributed_partitioned(self, key: impl Into<Exprs>) -> Self {
        self.set("type", "distributed_partitioned").set("key", key.into())
    }

    /// One instance in the cluster.
    pub fn total_parallelism_one(self) -> Self {
        self.set("type", "total_parallelism_one")
    }
}
