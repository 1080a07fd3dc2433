//! Instances of what the agent's registry holds.

use std::path::PathBuf;
use std::sync::Arc;

use tuplane_core::job::{Op, Sink, SinkConnector, Source, SourceConnector, Stage};
use tuplane_core::plan::placement::Instance as Placed;
use tuplane_expr::arrow::datatypes::{Schema, SchemaRef};
use tuplane_expr::system::own_columns;
use tuplane_expr::{VertexProgram, grouping};
use tuplane_wire::message::WireFault;

use super::{Body, Builder, refused, stage_refused};
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
                operator.map(|operator| Body::Operator(Box::new(operator.by(key))))
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
            _ => return Ok(None),
        };
        body.map(Some).map_err(|why| stage_refused(stage, &why.to_string()))
    }
}
