//! Instances of what the agent's registry holds.

use std::path::PathBuf;
use std::sync::Arc;

use tuplane_core::job::{Op, Sink, SinkConnector, Source, SourceConnector, Stage, UsingService};
use tuplane_core::plan::placement::Instance as Placed;
use tuplane_expr::arrow::datatypes::{Schema, SchemaRef};
use tuplane_expr::system::own_columns;
use tuplane_expr::{Program, VertexProgram, grouping};
use tuplane_wire::message::WireFault;

use super::{Body, Builder, refused, stage_refused};
use crate::engine::calls::Calls;
use crate::registry::{Context, Failure, SinkFiles};

impl Builder<'_> {
    /// What a stage's instance runs, if it is the registry's.
    pub(super) fn registered(
        &self,
        stage: &Stage,
        placed: &Placed,
        program: &VertexProgram,
        instances: u32,
    ) -> Result<Option<Body>, WireFault> {
        let registry = &self.shared.registry;
        let columns =
            |schema: Option<&SchemaRef>| schema.map_or_else(|| Arc::new(Schema::empty()), own_columns);
        let context = |with: &serde_json::Value| Context {
            stage: stage.id.clone(),
            with: with.clone(),
            input: columns(program.input.first()),
            key: Vec::new(),
            output: columns(Some(&program.output).filter(|_| !matches!(stage.op, Op::Sink(_)))),
            instance: placed.number,
            instances,
            agent: self.shared.me.name.clone(),
            folder: PathBuf::from(&self.shared.folder),
        };
        let body: Result<Body, Failure> = match &stage.op {
            Op::CustomTransform { call: Some(name), with, cooperative, .. } => {
                let key = grouping(&self.job, &self.types, stage).map_err(|faults| refused(&faults))?;
                let context = Context { key: key.fields().to_vec(), ..context(with) };
                let operator = registry.make_operator(name, *cooperative, context);
                operator.map(|operator| {
                    Body::Operator(Box::new(operator.by(key).at(&stage.id, self.job.options.on_error)))
                })
            }
            Op::Source(Source {
                connector: Some(SourceConnector::Registered { name, with }), rate, ..
            }) => {
                registry.make_source(name, *rate, context(with)).map(|source| Body::Source(Box::new(source)))
            }
            Op::Sink(Sink { connector: Some(SinkConnector::Registered { name, with }), .. }) => {
                let files = SinkFiles::new(self.sink_context(stage, placed, program)?);
                registry.make_sink(name, context(with), files).map(|sink| Body::Sink(Box::new(sink)))
            }
            Op::UsingService(using @ UsingService { service: Some(name), http: None, with, .. }) => {
                let Program::Service(calls) = &program.program else { return Ok(None) };
                let key = grouping(&self.job, &self.types, stage).map_err(|faults| refused(&faults))?;
                let context = Context {
                    input: SchemaRef::clone(calls.asked()),
                    output: SchemaRef::clone(calls.answered()),
                    key: key.fields().to_vec(),
                    ..context(with)
                };
                // It may open connections, which wants the runtime that its calls are on.
                let _runtime = self.shared.data.enter();
                let made = registry.make_service(name, context);
                made.map(|service| {
                    let calls = Calls::new(&stage.id, calls.clone(), using, Arc::new(service));
                    Body::Calls(Box::new(calls))
                })
            }
            _ => return Ok(None),
        };
        body.map(Some).map_err(|why| stage_refused(stage, &why.to_string()))
    }
}
