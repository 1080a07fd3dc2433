//! Jobs by method calls: the same structure as a job file's, and the same faults.
//!
//! ```
//! use tuplane_core::job::builder::{Pipeline, sinks, sources};
//!
//! let pipeline = Pipeline::new("requests-by-status");
//! pipeline
//!     .read(sources::files("access.log").regex(r"(?<status>\d+)"))
//!     .rebalance()
//!     .map(["try_cast(status as int) as status"])
//!     .group_by("status")
//!     .aggregate("count(*) as requests")
//!     .write(sinks::files("out"))
//!     .id("out");
//! let job = pipeline.build().expect("a job without faults");
//! assert_eq!(job.stages.len(), 6);
//! ```
//!
//! A stage is a light view, as in Jet: `rebalance` gives a second one on the same rows, and the first stays
//! usable. What a keyed or a windowed stage does not offer does not compile:
//!
//! ```compile_fail
//! # use tuplane_core::job::builder::{Pipeline, sources};
//! Pipeline::new("j").read(sources::sequence()).group_by("value").rebalance();
//! ```
//!
//! All else that a file would be refused for, [`Pipeline::build`] refuses in the same words.

mod connectors;
mod spec;
mod stage;
mod value;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::tree::{Entry, Node, Value};
use super::{Job, Placement};
use crate::fault::{At, Fault, Spanned};
use crate::plan::plan;

pub use connectors::{SinkSpec, SourceSpec, sinks, sources};
pub use spec::{ServiceSpec, StateSpec, TimeSpec, WindowSpec, windows};
pub use stage::{KeyedStage, KeyedWindowedStage, SinkStage, Stage, WindowedStage};
pub use value::Exprs;

/// A job that is being put together.
#[derive(Debug, Clone)]
pub struct Pipeline {
    draft: Shared,
}

/// The stages made so far, which the pipeline and all views on it share.
type Shared = Rc<RefCell<Draft>>;

#[derive(Debug, Default)]
struct Draft {
    /// The job's name and options.
    options: Vec<Entry>,
    stages: Vec<Drafted>,
    routes: Vec<Vec<Entry>>,
    /// What the calls themselves did wrong.
    faults: Vec<Fault>,
}

/// A stage as it was called.
#[derive(Debug)]
struct Drafted {
    id: Option<String>,
    op: &'static str,
    /// Stages that it reads.
    inputs: Vec<usize>,
    entries: Vec<Entry>,
    /// Aggregates of each input, where the op asks for them by input.
    compute: Vec<Exprs>,
}

impl Pipeline {
    /// A job of this name, without stages.
    pub fn new(name: impl Into<String>) -> Self {
        let draft = Draft { options: vec![entry("name", name.into())], ..Draft::default() };
        Self { draft: Rc::new(RefCell::new(draft)) }
    }

    /// Sets an option of the job, as `[job]` in a file does: `set("on_error", "drop")`.
    #[must_use]
    pub fn set(self, key: &str, value: impl Into<Value>) -> Self {
        put(&mut self.draft.borrow_mut().options, key, value.into());
        self
    }

    /// Edges that would be dealt out within an agent keep their order instead.
    #[must_use]
    pub fn preserve_order(self) -> Self {
        self.set("preserve_order", true)
    }

    /// How instances of stages with `instances` get their agents.
    #[must_use]
    pub fn placement(self, placement: Placement) -> Self {
        self.set("placement", placement.name())
    }

    /// Rows enter.
    pub fn read(&self, source: SourceSpec) -> Stage {
        Stage::first(&self.draft, source)
    }

    /// The rows of all stages leave by one sink.
    pub fn write_all<'s>(&self, stages: impl IntoIterator<Item = &'s Stage>, sink: SinkSpec) -> SinkStage {
        stage::write_all(&self.draft, stages, sink)
    }

    /// The policy of an edge that no rebalance made, named as `from..to` by stage ids; `[[route]]` in a file.
    #[must_use]
    pub fn route<K: AsRef<str>, V: Into<Value>>(
        self,
        edge: &str,
        policy: &str,
        options: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let mut entries = vec![entry("edge", edge), entry("policy", policy)];
        entries.extend(options.into_iter().map(|(key, value)| entry(key.as_ref(), value)));
        self.draft.borrow_mut().routes.push(entries);
        self
    }

    /// The job.
    ///
    /// # Errors
    /// Every fault that a file of the same content has, and the first that planning finds.
    pub fn build(&self) -> Result<Job, Vec<Fault>> {
        let draft = self.draft.borrow();
        let mut faults = draft.faults.clone();
        faults.extend(draft.said_by_calls());
        match Job::from_tree(&draft.tree()) {
            Ok(job) => match plan(&job) {
                Ok(_) if faults.is_empty() => return Ok(job),
                Ok(_) => {}
                Err(error) => faults.push(error.fault),
            },
            Err(found) => faults.extend(found),
        }
        Err(faults)
    }

    /// The job file, as JSON: what [`Pipeline::build`] gives is what this file says.
    ///
    /// # Errors
    /// As [`Pipeline::build`].
    pub fn to_json(&self) -> Result<String, Vec<Fault>> {
        self.build()?;
        Ok(value::json(&self.draft.borrow().tree()))
    }
}

impl Draft {
    fn add(&mut self, op: &'static str, inputs: Vec<usize>, entries: Vec<Entry>) -> usize {
        self.stages.push(Drafted { id: None, op, inputs, entries, compute: Vec::new() });
        self.stages.len() - 1
    }

    /// Ids as they were given; the others are the op's name, with a number from the second on.
    fn ids(&self) -> Vec<String> {
        let mut taken: HashSet<String> = self.stages.iter().filter_map(|stage| stage.id.clone()).collect();
        let mut next: HashMap<&str, u32> = HashMap::new();
        let mut free = |op: &'static str| {
            let number = next.entry(op).or_insert(1);
            loop {
                let id = if *number == 1 { op.to_owned() } else { format!("{op}-{number}") };
                *number += 1;
                if taken.insert(id.clone()) {
                    return id;
                }
            }
        };
        self.stages.iter().map(|stage| stage.id.clone().unwrap_or_else(|| free(stage.op))).collect()
    }

    /// Keys that the calls themselves say: set as options they would stand twice in the file.
    fn said_by_calls(&self) -> Vec<Fault> {
        let fault = |whose: &str, key: &str, help: &str| {
            let message = format!("`{key}` of {whose} is said by calls, and cannot be set as an option");
            Fault::new(At::default(), message).help(help.to_owned())
        };
        let of_job = |key: &str| {
            let help = "take it away: stages are made by `read` and what follows it, routes by `route`";
            matches!(key, "stage" | "stages" | "route" | "routes" | "job")
                .then(|| fault("the job", key, help))
        };
        let of_stage = |id: &str, stage: &Drafted, key: &str| {
            let help = match key {
                "id" => "call `id` of the stage instead",
                "op" => "call the method of that op on the stage before",
                "in" => "make the stage from its input, by a method of that",
                "compute" if !stage.compute.is_empty() => "give `co_aggregate` what each input computes",
                _ => return None,
            };
            Some(fault(&format!("stage `{id}`"), key, help))
        };
        let keys =
            |entries: &'_ [Entry]| entries.iter().map(|entry| entry.key.value.clone()).collect::<Vec<_>>();
        let mut faults: Vec<Fault> = keys(&self.options).iter().filter_map(|key| of_job(key)).collect();
        for (stage, id) in self.stages.iter().zip(self.ids()) {
            faults.extend(keys(&stage.entries).iter().filter_map(|key| of_stage(&id, stage, key)));
        }
        faults
    }

    /// The file of the job.
    fn tree(&self) -> Node {
        let ids = self.ids();
        let stages = self.stages.iter().zip(&ids).map(|(stage, id)| {
            let mut entries = vec![entry("id", id.as_str()), entry("op", stage.op)];
            let inputs: Vec<&str> = stage.inputs.iter().map(|input| ids[*input].as_str()).collect();
            match inputs[..] {
                [] => {}
                [only] => entries.push(entry("in", only)),
                _ => entries.push(entry("in", inputs.clone())),
            }
            entries.extend(stage.entries.iter().cloned());
            if !stage.compute.is_empty() {
                let by_input = inputs.iter().zip(&stage.compute);
                let table = by_input.map(|(input, compute)| entry(input, compute.clone())).collect();
                entries.push(entry("compute", Value::Table(table)));
            }
            node(Value::Table(entries))
        });
        let mut entries = self.options.clone();
        entries.push(entry("stage", Value::List(stages.collect())));
        if !self.routes.is_empty() {
            let routes = self.routes.iter().map(|route| node(Value::Table(route.clone())));
            entries.push(entry("route", Value::List(routes.collect())));
        }
        node(Value::Table(entries))
    }
}

/// A value that no file holds.
fn node(value: Value) -> Node {
    Node { at: At::default(), value }
}

fn entry(key: &str, value: impl Into<Value>) -> Entry {
    Entry { key: Spanned::nowhere(key.to_owned()), node: node(value.into()) }
}

/// Sets a key; what it was before is forgotten.
fn put(entries: &mut Vec<Entry>, key: &str, value: Value) {
    match entries.iter_mut().find(|entry| entry.key.value == key) {
        Some(known) => known.node = node(value),
        None => entries.push(entry(key, value)),
    }
}
