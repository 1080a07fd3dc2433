//! Stages: what can be attached to rows, to keyed rows, to windowed rows.
//!
//! A stage here is a view on one of the pipeline's: a clone is the same stage, and what is set on either, at any
//! time before the job is made, is set on it.

#![expect(clippy::return_self_not_must_use, reason = "the pipeline has the stage; a view on it may go")]

use super::connectors::{SinkSpec, SourceSpec};
use super::spec::{ServiceSpec, StateSpec, TimeSpec, WindowSpec};
use super::value::Exprs;
use super::{Shared, entry, put};
use crate::fault::{At, Fault};
use crate::job::tree::{Entry, Value};

/// A stage of a pipeline.
#[derive(Debug, Clone)]
struct Handle {
    draft: Shared,
    at: usize,
}

impl Handle {
    /// A stage that reads this one, and others.
    fn then<'h>(
        &self,
        op: &'static str,
        others: impl IntoIterator<Item = &'h Handle>,
        entries: Vec<Entry>,
    ) -> Self {
        let mut inputs = vec![self.at];
        for other in others {
            if std::rc::Rc::ptr_eq(&other.draft, &self.draft) {
                inputs.push(other.at);
            } else {
                let other = other.draft.borrow().ids().swap_remove(other.at);
                let message = format!("a `{op}` reads `{other}`, which is a stage of another pipeline");
                let fault = Fault::new(At::default(), message);
                let fault = fault.help("make all stages of a job from one pipeline");
                self.draft.borrow_mut().faults.push(fault);
            }
        }
        let at = self.draft.borrow_mut().add(op, inputs, entries);
        Self { draft: self.draft.clone(), at }
    }

    fn one(&self, op: &'static str, entries: Vec<Entry>) -> Self {
        self.then(op, [], entries)
    }

    /// Aggregates by input.
    fn co_aggregate<'h>(
        &self,
        compute: Exprs,
        others: impl IntoIterator<Item = (&'h Handle, Exprs)>,
    ) -> Self {
        let (others, computes): (Vec<&Handle>, Vec<Exprs>) = others.into_iter().unzip();
        let made = self.then("co_aggregate", others, Vec::new());
        let compute = std::iter::once(compute).chain(computes).collect();
        made.draft.borrow_mut().stages[made.at].compute = compute;
        made
    }

    fn stateful(&self, op: &'static str, state: StateSpec, key: &str, then: Exprs) -> Self {
        self.one(op, state.set(key, then).entries)
    }

    fn set(&self, key: &str, value: Value) {
        put(&mut self.draft.borrow_mut().stages[self.at].entries, key, value);
    }

    fn id(&self, id: &str) {
        self.draft.borrow_mut().stages[self.at].id = Some(id.to_owned());
    }
}

/// Defines a kind of stage with what all of them have.
macro_rules! stage {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $name(Handle);

        impl $name {
            /// Gives the stage an id; without one it has its op's name, and a number from the second on.
            /// What it gives back is the same stage: it is set for all clones, and stages that read it know it so.
            pub fn id(self, id: &str) -> Self {
                self.0.id(id);
                self
            }

            /// Sets any option of the stage that a job file has, for all clones of it.
            pub fn set(self, key: &str, value: impl Into<Value>) -> Self {
                self.0.set(key, value.into());
                self
            }
        }
    };
}

stage! {
    /// Rows. Any number of stages may read one.
    Stage
}

stage! {
    /// Rows with a key, from [`Stage::group_by`]: the next stage works by it.
    KeyedStage
}

stage! {
    /// Rows with a window, from [`Stage::window`]: an aggregate comes next, or a key.
    WindowedStage
}

stage! {
    /// Rows with a key and a window: an aggregate comes next.
    KeyedWindowedStage
}

stage! {
    /// Rows have left.
    SinkStage
}

/// Name and number of instances, for stages that run somewhere.
macro_rules! vertex {
    ($name:ident) => {
        impl $name {
            /// A name for people.
            pub fn name(self, name: &str) -> Self {
                self.set("name", name)
            }

            /// Instances on every agent.
            pub fn parallelism(self, instances: u32) -> Self {
                self.set("parallelism", instances)
            }

            /// Instances in all.
            pub fn instances(self, instances: u32) -> Self {
                self.set("instances", instances)
            }
        }
    };
}

vertex!(Stage);
vertex!(SinkStage);

/// Aggregates, which every stage but a sink has.
macro_rules! aggregates {
    ($name:ident) => {
        impl $name {
            /// One result per key and window, or one in all: `"count(*) as n"`.
            pub fn aggregate(&self, compute: impl Into<Exprs>) -> Stage {
                Stage(self.0.one("aggregate", vec![entry("compute", compute.into())]))
            }

            /// Aggregates several inputs by one key, each with aggregates of its own; this one is the first.
            pub fn co_aggregate<'s, E: Into<Exprs>>(
                &self,
                compute: impl Into<Exprs>,
                others: impl IntoIterator<Item = (&'s Self, E)>,
            ) -> Stage {
                let others = others.into_iter().map(|(other, compute)| (&other.0, compute.into()));
                Stage(self.0.co_aggregate(compute.into(), others))
            }
        }
    };
}

aggregates!(Stage);
aggregates!(KeyedStage);
aggregates!(WindowedStage);
aggregates!(KeyedWindowedStage);

/// What works by key behind a `group_by`, and over all rows without.
macro_rules! by_key {
    ($name:ident) => {
        impl $name {
            /// The listed columns of the row and the new state.
            pub fn map_stateful(&self, state: StateSpec, select: impl Into<Exprs>) -> Stage {
                Stage(self.0.stateful("map_stateful", state, "select", select.into()))
            }

            /// Keeps rows by a condition over the row and the new state.
            pub fn filter_stateful(&self, state: StateSpec, predicate: impl Into<Exprs>) -> Stage {
                Stage(self.0.stateful("filter_stateful", state, "where", predicate.into()))
            }

            /// A row per element of a list over the row and the new state.
            pub fn flat_map_stateful(&self, state: StateSpec, unnest: impl Into<Exprs>) -> Stage {
                Stage(self.0.stateful("flat_map_stateful", state, "unnest", unnest.into()))
            }

            /// The row plus running aggregates.
            pub fn rolling_aggregate(&self, compute: impl Into<Exprs>) -> Stage {
                Stage(self.0.one("rolling_aggregate", vec![entry("compute", compute.into())]))
            }

            /// The first row of each key; of each whole row without one.
            pub fn distinct(&self) -> Stage {
                Stage(self.0.one("distinct", Vec::new()))
            }

            /// An operator, or a closure over batches, that the agents' registry names. With
            /// `set("cooperative", false)` it gets a thread of its own.
            pub fn custom_transform(&self, call: &str, with: serde_json::Value) -> Stage {
                Stage(self.0.one("custom_transform", vec![entry("call", call), entry("with", with)]))
            }

            /// Takes a known time per row: milliseconds, one for all or a list by instance.
            pub fn work(&self, ms: impl Into<Value>) -> Stage {
                Stage(self.0.one("work", vec![entry("ms", ms)]))
            }

            /// A row from a row, by a call to a service.
            pub fn map_using_service(&self, service: ServiceSpec) -> Stage {
                Stage(self.0.one("map_using_service", service.entries))
            }

            /// The same without waiting for each answer.
            pub fn map_using_service_async(&self, service: ServiceSpec) -> Stage {
                Stage(self.0.one("map_using_service_async", service.entries))
            }

            /// Keeps rows as a service says.
            pub fn filter_using_service(&self, service: ServiceSpec) -> Stage {
                Stage(self.0.one("filter_using_service", service.entries))
            }

            /// The same without waiting for each answer.
            pub fn filter_using_service_async(&self, service: ServiceSpec) -> Stage {
                Stage(self.0.one("filter_using_service_async", service.entries))
            }

            /// Any number of rows from a row, by a call to a service.
            pub fn flat_map_using_service(&self, service: ServiceSpec) -> Stage {
                Stage(self.0.one("flat_map_using_service", service.entries))
            }

            /// The same without waiting for each answer.
            pub fn flat_map_using_service_async(&self, service: ServiceSpec) -> Stage {
                Stage(self.0.one("flat_map_using_service_async", service.entries))
            }
        }
    };
}

by_key!(Stage);
by_key!(KeyedStage);

impl Stage {
    pub(super) fn first(draft: &Shared, source: SourceSpec) -> Self {
        let at = draft.borrow_mut().add("source", Vec::new(), source.entries);
        Self(Handle { draft: draft.clone(), at })
    }

    /// A second view on the same rows: whoever reads it gets them dealt out over all agents in turn.
    pub fn rebalance(&self) -> Self {
        Self(self.0.one("rebalance", Vec::new()))
    }

    /// The same, by key: rows of a key go to one instance.
    pub fn rebalance_by(&self, key: impl Into<Exprs>) -> Self {
        Self(self.0.one("rebalance", vec![entry("key", key.into())]))
    }

    /// The same, as a policy chooses, with its options.
    pub fn rebalance_with<K: AsRef<str>, V: Into<Value>>(
        &self,
        policy: &str,
        options: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let mut entries = vec![entry("policy", policy)];
        entries.extend(options.into_iter().map(|(key, value)| entry(key.as_ref(), value)));
        Self(self.0.one("rebalance", entries))
    }

    /// The listed columns: `["*", "a + b as sum"]`.
    pub fn map(&self, select: impl Into<Exprs>) -> Self {
        Self(self.0.one("map", vec![entry("select", select.into())]))
    }

    /// Keeps the rows for which this holds.
    pub fn filter(&self, predicate: impl Into<Exprs>) -> Self {
        Self(self.0.one("filter", vec![entry("where", predicate.into())]))
    }

    /// A row per element of a list: `"words(line) as word"`.
    pub fn flat_map(&self, unnest: impl Into<Exprs>) -> Self {
        Self(self.0.one("flat_map", vec![entry("unnest", unnest.into())]))
    }

    /// Its rows and another's.
    pub fn merge(&self, other: &Self) -> Self {
        self.merge_all([other])
    }

    /// Its rows and those of several others.
    pub fn merge_all<'s>(&self, others: impl IntoIterator<Item = &'s Self>) -> Self {
        Self(self.0.then("merge", others.into_iter().map(|other| &other.0), Vec::new()))
    }

    /// Gives the next stage a key.
    pub fn group_by(&self, key: impl Into<Exprs>) -> KeyedStage {
        KeyedStage(self.0.one("group_by", vec![entry("key", key.into())]))
    }

    /// Gives the next stage a window.
    pub fn window(&self, window: WindowSpec) -> WindowedStage {
        WindowedStage(self.0.one("window", window.entries))
    }

    /// Rows with their partners in the enriching stages, by one `"primary expr = enriching expr"` each; those
    /// without a partner are dropped.
    pub fn hash_join<'s>(&self, enriching: impl IntoIterator<Item = (&'s Self, &'s str)>) -> Self {
        let (stages, on): (Vec<&Handle>, Vec<&str>) =
            enriching.into_iter().map(|(stage, on)| (&stage.0, on)).unzip();
        Self(self.0.then("hash_join", stages, vec![entry("on", Exprs::from(on))]))
    }

    /// The same; those without a partner are kept, with nulls.
    pub fn left_hash_join<'s>(&self, enriching: impl IntoIterator<Item = (&'s Self, &'s str)>) -> Self {
        let joined = self.hash_join(enriching);
        joined.0.set("kind", "left".into());
        joined
    }

    /// The first row of each key.
    pub fn distinct_by(&self, key: impl Into<Exprs>) -> Self {
        Self(self.0.one("distinct", vec![entry("key", key.into())]))
    }

    /// All rows in order, at the end of input: `["score desc", "name"]`.
    pub fn sort(&self, by: impl Into<Exprs>) -> Self {
        Self(self.0.one("sort", vec![entry("by", by.into())]))
    }

    /// A tap.
    pub fn peek(&self) -> Self {
        Self(self.0.one("peek", Vec::new()))
    }

    /// A tap of at most so many rows a second.
    pub fn peek_sampled(&self, rows_per_second: f64) -> Self {
        Self(self.0.one("peek", vec![entry("sample", rows_per_second)]))
    }

    /// Gives rows their event time.
    pub fn add_timestamps(&self, time: TimeSpec) -> Self {
        Self(self.0.one("add_timestamps", vec![entry("time", time)]))
    }

    /// Rows leave.
    pub fn write(&self, sink: SinkSpec) -> SinkStage {
        SinkStage(self.0.one("sink", sink.entries))
    }
}

impl KeyedStage {
    /// Gives the next stage a window as well.
    pub fn window(&self, window: WindowSpec) -> KeyedWindowedStage {
        KeyedWindowedStage(self.0.one("window", window.entries))
    }
}

impl WindowedStage {
    /// Gives the next stage a key as well.
    pub fn group_by(&self, key: impl Into<Exprs>) -> KeyedWindowedStage {
        KeyedWindowedStage(self.0.one("group_by", vec![entry("key", key.into())]))
    }
}

/// Several stages leave by one sink.
pub(super) fn write_all<'s>(
    draft: &Shared,
    stages: impl IntoIterator<Item = &'s Stage>,
    sink: SinkSpec,
) -> SinkStage {
    let mut stages = stages.into_iter().map(|stage| &stage.0);
    let Some(first) = stages.next() else {
        let at = draft.borrow_mut().add("sink", Vec::new(), sink.entries);
        return SinkStage(Handle { draft: draft.clone(), at });
    };
    if !std::rc::Rc::ptr_eq(&first.draft, draft) {
        let message = "a sink of this pipeline reads a stage of another pipeline";
        draft.borrow_mut().faults.push(Fault::new(At::default(), message));
    }
    SinkStage(first.then("sink", stages, sink.entries))
}
