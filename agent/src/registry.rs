//! Operators, sources and sinks of the user's own, by the names that jobs call them.
//!
//! A [`Registry`] is filled in the user's own `main` and handed to [`run`](crate::run), which makes that
//! program an agent. A job names what it holds: `op = "custom_transform"` with `call`, or the `connector` of a
//! source or a sink; `with` are options of its own, which nobody else looks at.

mod given;
mod operator;
mod service;
mod sink;
mod source;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tuplane_core::fault::{Fault, suggestion};
use tuplane_core::job::{
    HTTP, Job, Op, Sink as SinkStage, SinkConnector, Source as SourceStage, SourceConnector, Text,
    UsingService,
};
use tuplane_core::route::{OptionError, Policies, Policy, RouteOptions};
use tuplane_core::scale::{Planner, Planners};
use tuplane_expr::arrow::array::RecordBatch;
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_expr::types::Asked;
use xxhash_rust::xxh3::xxh3_64;

pub use crate::service::{Again, Answering, CallError, Service};
pub use crate::source::Rejected;
pub use given::{Context, Given, columns};
pub use operator::{Operator, OperatorKind, Out, Taken};
pub use service::ServiceKind;
pub use sink::{PartFile, Sink, SinkFiles, SinkFolder, SinkKind};
pub use source::{Next, Source, SourceKind};
pub use tuplane_wire::message::SinkFile;

pub(crate) use operator::Custom;
pub(crate) use service::OwnService;
pub(crate) use sink::OwnSink;
pub(crate) use source::OwnSource;

use operator::Closure;

/// Why something of the user's cannot go on: any error, or a sentence (`"no such topic".into()`).
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What an agent has beside the operators, sources and sinks that all agents have.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    operators: Named<dyn OperatorKind>,
    sources: Named<dyn SourceKind>,
    sinks: Named<dyn SinkKind>,
    services: Named<dyn ServiceKind>,
    policies: Policies,
    planners: Planners,
    /// Versions of the policies that are not built in.
    own_policies: BTreeMap<String, u32>,
}

/// Things of one sort.
struct Named<T: ?Sized>(BTreeMap<String, Entry<T>>);

/// Not derived: `T` itself is never copied.
impl<T: ?Sized> Clone for Named<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ?Sized> Default for Named<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: ?Sized> std::fmt::Debug for Named<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(name, entry)| (name, entry.version))).finish()
    }
}

struct Entry<T: ?Sized> {
    version: u32,
    kind: Arc<T>,
}

impl<T: ?Sized> Clone for Entry<T> {
    fn clone(&self) -> Self {
        Self { version: self.version, kind: Arc::clone(&self.kind) }
    }
}

impl<T: ?Sized> Named<T> {
    /// A second one of a name would make it unclear which a job gets.
    fn add(&mut self, what: &str, name: &str, version: u32, kind: Arc<T>) {
        let before = self.0.insert(name.to_owned(), Entry { version, kind });
        assert!(before.is_none(), "the registry has two {what}s called `{name}`");
    }

    fn find(&self, what: &str, name: &Text) -> Result<&T, Fault> {
        if let Some(entry) = self.0.get(&name.value) {
            return Ok(&entry.kind);
        }
        let known = || self.0.keys().map(String::as_str);
        let fault = Fault::new(name.at, format!("the agents' registry has no {what} `{}`", name.value));
        Err(match (suggestion(&name.value, known()), self.0.is_empty()) {
            (Some(close), _) => fault.help(format!("did you mean `{close}`?")),
            (None, true) => {
                fault.help(format!("it has no {what} at all: start agents that were built with it"))
            }
            (None, false) => fault.help(format!("it has: {}", known().collect::<Vec<_>>().join(", "))),
        })
    }
}

impl Registry {
    /// An empty one: what the stock agent has.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an operator. `version` is to be raised with every change of what it does: agents whose versions
    /// differ do not run one job together.
    ///
    /// # Panics
    /// If an operator or a closure has that name.
    #[must_use]
    pub fn operator(mut self, name: &str, version: u32, kind: impl OperatorKind + 'static) -> Self {
        self.operators.add("operator", name, version, Arc::new(kind));
        self
    }

    /// Adds a closure over batches: for every batch of rows it gives one with these columns, of any number of
    /// rows. `output` is `&[("name", "SQL type"), ..]`.
    ///
    /// # Panics
    /// If an operator or a closure has that name, or a type is none.
    #[must_use]
    pub fn closure(
        mut self,
        name: &str,
        version: u32,
        output: &[(&str, &str)],
        work: impl Fn(&RecordBatch) -> Result<RecordBatch, Failure> + Send + Sync + 'static,
    ) -> Self {
        let output = columns(output).unwrap_or_else(|why| panic!("the columns of closure `{name}`: {why}"));
        self.operators.add("operator", name, version, Arc::new(Closure::new(output, work)));
        self
    }

    /// Adds a source.
    ///
    /// # Panics
    /// If a source has that name, a built-in one included.
    #[must_use]
    pub fn source(mut self, name: &str, version: u32, kind: impl SourceKind + 'static) -> Self {
        assert!(!is_built_in("source", name), "every agent has a source called `{name}`");
        self.sources.add("source", name, version, Arc::new(kind));
        self
    }

    /// Adds a sink.
    ///
    /// # Panics
    /// If a sink has that name, a built-in one included.
    #[must_use]
    pub fn sink(mut self, name: &str, version: u32, kind: impl SinkKind + 'static) -> Self {
        assert!(!is_built_in("sink", name), "every agent has a sink called `{name}`");
        self.sinks.add("sink", name, version, Arc::new(kind));
        self
    }

    /// Adds a service, for the ops `map_using_service` and their kin.
    ///
    /// # Panics
    /// If a service has that name, the built-in one included.
    #[must_use]
    pub fn service(mut self, name: &str, version: u32, kind: impl ServiceKind + 'static) -> Self {
        assert!(name != HTTP, "every agent has a service called `{name}`");
        self.services.add("service", name, version, Arc::new(kind));
        self
    }

    /// What it holds, a line each: sort, name, version, and types where they are fixed.
    pub fn lines(&self) -> Vec<String> {
        fn of<T: ?Sized>(named: &Named<T>, what: &str, types: impl Fn(&T) -> String) -> Vec<String> {
            let line = |(name, entry): (&String, &Entry<T>)| {
                format!("{what} {name} {} {}", entry.version, types(&entry.kind)).trim_end().to_owned()
            };
            named.0.iter().map(line).collect()
        }
        let mut lines = of(&self.operators, "operator", OperatorKind::types);
        lines.extend(of(&self.sources, "source", SourceKind::types));
        lines.extend(of(&self.sinks, "sink", SinkKind::types));
        lines.extend(of(&self.services, "service", ServiceKind::types));
        lines.extend(self.own_policies.iter().map(|(name, version)| format!("policy {name} {version}")));
        lines
    }

    /// Adds a policy for edges that choose their targets, made anew for each sending instance from the edge's options
    /// and a seed. One of a built-in name takes its place. `version` as with [`Registry::operator`].
    ///
    /// # Panics
    /// If a policy of the user's has that name.
    #[must_use]
    pub fn policy(
        mut self,
        name: &str,
        version: u32,
        make: impl Fn(&RouteOptions, u64) -> Result<Box<dyn Policy>, OptionError> + Send + Sync + 'static,
    ) -> Self {
        self.policies.add(name, make);
        let before = self.own_policies.insert(name.to_owned(), version);
        assert!(before.is_none(), "the registry has two policies called `{name}`");
        self
    }

    /// Policies by name, the built-in ones among them.
    pub(crate) fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Adds a planner, which decides where new instances of a running job go, or which agents are given back
    /// (`tuplane scale out JOB --planner NAME`). One of the same name, a built-in one too, is replaced. It is the coordinator's
    /// registry that counts; agents need not have it.
    #[must_use]
    pub fn planner(mut self, planner: impl Planner + 'static) -> Self {
        self.planners.add(planner);
        self
    }

    /// Planners by name, the built-in ones among them.
    pub(crate) fn planners(&self) -> &Planners {
        &self.planners
    }

    /// Equal for registries with equal names, versions and types; 0 for an empty one.
    pub fn fingerprint(&self) -> u64 {
        match self.lines() {
            lines if lines.is_empty() => 0,
            lines => xxh3_64(lines.join("\n").as_bytes()).max(1),
        }
    }

    /// What it says of a stage, for types.
    pub(crate) fn columns_of(&self, asked: Asked<'_>) -> Result<Option<SchemaRef>, Fault> {
        let none = given::no_columns();
        let given = |with| Given { input: asked.input.unwrap_or(&none), key: asked.key, with };
        let (name, said) = match &asked.stage.op {
            Op::CustomTransform { call: Some(name), with, .. } => {
                let kind = self.operators.find("operator", name)?;
                (name, guarded(|| kind.output(&given(with)).and_then(given::checked)).map(Some))
            }
            Op::Source(SourceStage {
                connector: Some(SourceConnector::Registered { name, with }), ..
            }) => {
                let kind = self.sources.find("source", name)?;
                (name, guarded(|| kind.output(&given(with)).and_then(given::checked)).map(Some))
            }
            Op::Sink(SinkStage { connector: Some(SinkConnector::Registered { name, with }), .. }) => {
                let kind = self.sinks.find("sink", name)?;
                (name, guarded(|| kind.check(&given(with))).map(|()| None))
            }
            Op::UsingService(UsingService { service: Some(name), http: None, with, .. }) => {
                let kind = self.services.find("service", name)?;
                (name, guarded(|| kind.output(&given(with)).and_then(given::checked)).map(Some))
            }
            _ => return Ok(None),
        };
        said.map_err(|why| Fault::new(name.at, format!("`{}`: {why}", name.value)))
    }

    /// An instance of an operator.
    pub(crate) fn make_operator(
        &self,
        name: &Text,
        cooperative: bool,
        context: Context,
    ) -> Result<Custom, Failure> {
        let kind = self.operators.find("operator", name).map_err(|fault| fault.to_string())?;
        let output = context.output.clone();
        let operator = guarded(|| kind.make(context))?;
        Ok(Custom::new(&name.value, operator, output, cooperative && !kind.blocks()))
    }

    /// An instance of a source.
    pub(crate) fn make_source(
        &self,
        name: &Text,
        rate: Option<f64>,
        context: Context,
    ) -> Result<OwnSource, Failure> {
        let kind = self.sources.find("source", name).map_err(|fault| fault.to_string())?;
        let (output, instances) = (context.output.clone(), context.instances);
        let source = guarded(|| kind.make(context))?;
        Ok(OwnSource::new(&name.value, source, output, kind.blocks(), (rate, instances))?)
    }

    /// An instance of a sink.
    pub(crate) fn make_sink(
        &self,
        name: &Text,
        context: Context,
        files: SinkFiles,
    ) -> Result<OwnSink, Failure> {
        let kind = self.sinks.find("sink", name).map_err(|fault| fault.to_string())?;
        let sink = guarded(|| kind.make(context, files))?;
        Ok(OwnSink::new(sink, kind.blocks()))
    }

    /// The service of an instance.
    pub(crate) fn make_service(&self, name: &Text, context: Context) -> Result<OwnService, Failure> {
        let kind = self.services.find("service", name).map_err(|fault| fault.to_string())?;
        let answer = SchemaRef::clone(&context.output);
        Ok(OwnService::new(guarded(|| kind.make(context))?, answer))
    }

    /// What a job names of a registry and this one does not have, as `operator dedup`.
    pub(crate) fn lacks(&self, job: &Job) -> Vec<String> {
        let lacking = named_in(job).filter(|(what, name)| match *what {
            "operator" => !self.operators.0.contains_key(&name.value),
            "source" => !self.sources.0.contains_key(&name.value),
            "service" => !self.services.0.contains_key(&name.value),
            _ => !self.sinks.0.contains_key(&name.value),
        });
        lacking.map(|(what, name)| format!("{what} `{}`", name.value)).collect()
    }
}

/// What a job names of a registry: sort and name.
pub(crate) fn named_in(job: &Job) -> impl Iterator<Item = (&'static str, &Text)> {
    job.stages.iter().filter_map(|stage| match &stage.op {
        Op::CustomTransform { call: Some(name), .. } => Some(("operator", name)),
        Op::Source(SourceStage { connector: Some(SourceConnector::Registered { name, .. }), .. }) => {
            Some(("source", name))
        }
        Op::Sink(SinkStage { connector: Some(SinkConnector::Registered { name, .. }), .. }) => {
            Some(("sink", name))
        }
        Op::UsingService(UsingService { service: Some(name), http: None, .. }) => Some(("service", name)),
        _ => None,
    })
}

fn is_built_in(what: &str, name: &str) -> bool {
    let [sources, sinks] = tuplane_core::job::built_in_connectors();
    if what == "source" { sources.contains(&name) } else { sinks.contains(&name) }
}

/// Runs the user's code where a panic would end more than an instance.
fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(format!("panicked: {}", crate::engine::said(panic.as_ref())).into()))
}
