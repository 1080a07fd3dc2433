//! What the instances of a run on this agent do: sources, operators, sinks, and what those need.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tuplane_core::job::{Files, Op, SourceConnector, Stage, UsingService};
use tuplane_core::place::{Numbering, SourcePlaces, source_number};
use tuplane_core::plan::ahead::ahead;
use tuplane_core::plan::placement::Instance as Placed;
use tuplane_core::plan::{Role, VertexId, keeps_nothing};
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_expr::system::{SystemColumn, SystemColumns, own_columns};
use tuplane_expr::{Program, SortProgram, StateOf, VertexProgram};
use tuplane_wire::message::WireFault;

use super::{Builder, OwnSplits, internal, sink_context, stage_refused};
use crate::engine::calls::Calls;
use crate::engine::handover::Keeps;
use crate::engine::instance::Body;
use crate::engine::operator::{
    Aggregate, ChainOperator, Collect, Keyed, Operator, OperatorError, Pass, Sort, Stamp, Windowed,
};
use crate::engine::routing::RouteTable;
use crate::engine::splits::Splits;
use crate::engine::work::Work;
use crate::service::{Http, Service};
use crate::sink::SinkContext;
use crate::source::SourceContext;

impl Builder<'_> {
    /// How the places of a source's rows are numbered, if the job needs them.
    fn source_places(&self, stage: &Stage, files: Files, output: &SchemaRef) -> Option<SourcePlaces> {
        if !SystemColumns::of(output).has(SystemColumn::At) {
            return None;
        }
        let numbering = match files {
            Files::Shared => Numbering::Cluster,
            Files::Each => Numbering::Agent { agent: self.me, agents: self.plan.first_agents },
        };
        Some(SourcePlaces { source: source_number(&self.job, &stage.id)?, numbering })
    }

    pub(super) fn stage(&self, vertex: VertexId) -> Result<&Stage, WireFault> {
        let id = self.dag.vertex(vertex).stages.last();
        let found = id.and_then(|id| self.job.stages.iter().find(|s| s.id == *id));
        found.ok_or_else(|| internal("the plan names a stage that the job has not"))
    }

    pub(super) fn body(
        &self,
        placed: &Placed,
        program: &VertexProgram,
        routing: &RouteTable,
    ) -> Result<Body, WireFault> {
        let stage = self.stage(placed.vertex)?;
        let peers = self.plan.targets().filter(|i| i.vertex == placed.vertex).count() as u32;
        if let Some(body) = self.registered(stage, placed, program, peers)? {
            return Ok(body);
        }
        let operator: Box<dyn Operator> = match (&stage.op, &program.program) {
            (Op::Source(source), _) if program.role == Role::Whole => {
                let files = match &source.connector {
                    Some(SourceConnector::File(file)) => file.files,
                    _ => Files::Shared,
                };
                let context = SourceContext {
                    stage: stage.id.clone(),
                    instance_number: placed.number,
                    instances: peers,
                    handed: self.plan.coming.contains(&placed.id) && self.plan.is_handed(placed.id),
                    folder: self.shared.folder.clone(),
                    schema: own_columns(&program.output),
                    places: self.source_places(stage, files, entering(program)),
                    ahead: ahead(&self.dag, &self.job, placed.vertex).map(|ahead| routing.lookahead(ahead)),
                };
                let made = crate::source::make(source, context);
                return made.map(Body::Source).map_err(|e| stage_refused(stage, &e.to_string()));
            }
            (Op::Sink(sink), _) => {
                let context = self.sink_context(stage, placed, program)?;
                let made = crate::sink::make(sink, context);
                return made.map(Body::Sink).map_err(|e| stage_refused(stage, &e.to_string()));
            }
            (Op::Work(work), _) => {
                let timer = self.shared.timer.clone();
                return Ok(Body::Work(Work::new(work, placed.number, timer, self.shared.cores.clone())));
            }
            (Op::UsingService(using), Program::Service(calls)) => {
                let service = self.service(stage, using)?;
                return Ok(Body::Calls(Box::new(Calls::new(&stage.id, calls.clone(), using, service))));
            }
            (_, Program::Service(_)) => return Err(internal("a stage that calls nothing has calls to make")),
            (_, Program::Chain(chain)) => Box::new(ChainOperator::new(chain.clone())),
            (_, Program::Aggregate(aggregate)) => {
                let partitions = self.job.options.partitions();
                let made = Aggregate::new(&stage.id, aggregate.clone(), program.role, partitions, peers == 1);
                Box::new(made.map_err(|e| stage_refused(stage, &e.to_string()))?)
            }
            (_, Program::Join(join)) => self.join(stage, program.role, join)?,
            (_, Program::Window(window)) => {
                let partitions = self.job.options.partitions();
                let made = Windowed::new(&stage.id, window.clone(), program.role, partitions);
                Box::new(made.map_err(|e| stage_refused(stage, &e.to_string()))?)
            }
            (_, Program::Stamp(_)) => match self.stamper(stage, program, routing.clock()) {
                Some(stamper) => Box::new(Stamp::new(stamper)),
                None => return Err(internal("rows are to be stamped without a time")),
            },
            (_, Program::Rolling(_) | Program::Stateful(_) | Program::Distinct(_)) => {
                let made = Keyed::new(&stage.id, &program.program, self.job.options.partitions());
                Box::new(made.map_err(|e| stage_refused(stage, &e.to_string()))?)
            }
            (_, Program::Sort(sort)) => self.sort(stage, placed, program, sort)?,
            (_, Program::Pass) => Box::new(Pass::default()),
        };
        Ok(Body::Operator(operator))
    }

    /// What the instances of a vertex keep of the rows that they have worked on.
    pub(super) fn keeps(&self, vertex: VertexId, program: &VertexProgram) -> Result<Keeps, WireFault> {
        let stage = self.stage(vertex)?;
        if let Some(of) = StateOf::of(&self.job, stage, program) {
            return Ok(Keeps::ByKey(of));
        }
        let whole = matches!(program.role, Role::Whole | Role::Merge { .. });
        Ok(if whole && keeps_nothing(&stage.op) { Keeps::Nothing } else { Keeps::Own })
    }

    /// What the instances of a stage call.
    fn service(&self, stage: &Stage, using: &UsingService) -> Result<Arc<dyn Service>, WireFault> {
        let made = Http::new(using, Arc::clone(&self.shared.http));
        let agent = &self.shared.me.name;
        Ok(Arc::new(made.map_err(|e| stage_refused(stage, &format!("on agent {agent}: {e}")))?))
    }

    fn sort(
        &self,
        stage: &Stage,
        placed: &Placed,
        program: &VertexProgram,
        sort: &SortProgram,
    ) -> Result<Box<dyn Operator>, WireFault> {
        let refused = |e: OperatorError| stage_refused(stage, &e.to_string());
        if program.role == Role::Combine {
            let input = self.dag.inputs(placed.vertex).next();
            let channels = input.map_or(0, |(edge, _)| self.lanes(edge, self.me).len());
            return Ok(Box::new(Collect::new(sort.clone(), channels).map_err(refused)?));
        }
        let here = self.plan.instances.iter().filter(|i| i.vertex == placed.vertex && i.agent == self.me);
        let (budget, folder) = (Arc::clone(&self.budget), self.shared.state.clone());
        let made = Sort::new(&stage.id, sort.clone(), budget, here.count() as u64, folder);
        Ok(Box::new(made.map_err(refused)?))
    }

    pub(super) fn sink_context(
        &self,
        stage: &Stage,
        placed: &Placed,
        program: &VertexProgram,
    ) -> Result<SinkContext, WireFault> {
        let schema = program.input.first().ok_or_else(|| internal("a sink without input"))?;
        let (schema, parts) = (own_columns(schema), self.parts.clone());
        Ok(sink_context(self.shared, &self.plan, &self.job, stage, placed.number, schema, parts))
    }

    pub(super) fn sink_schema(&self, placed: &Placed, program: &VertexProgram) -> Option<SchemaRef> {
        let stage = self.stage(placed.vertex).ok()?;
        matches!(stage.op, Op::Sink(_)).then(|| program.input.first().map(own_columns)).flatten()
    }

    pub(super) fn splits(
        &self,
        placed: &Placed,
        own: &mut HashMap<String, OwnSplits>,
    ) -> Result<Splits, WireFault> {
        let stage = self.stage(placed.vertex)?;
        let Op::Source(source) = &stage.op else { return Ok(Splits::None) };
        if self.dag.vertex(placed.vertex).role != Role::Whole {
            return Ok(Splits::None);
        }
        let Some(SourceConnector::File(file)) = &source.connector else { return Ok(Splits::None) };
        if file.files == Files::Shared {
            return Ok(Splits::Shared {
                client: Arc::clone(&self.shared.splits),
                run: self.plan.run,
                stage: stage.id.clone(),
                instance: placed.id,
                have: 0,
            });
        }
        if let Some(splits) = own.get(&stage.id) {
            return Ok(Splits::Own(Arc::clone(&splits.left)));
        }
        let here =
            self.plan.instances.iter().filter(|i| i.vertex == placed.vertex && i.agent == self.me).count();
        let all = crate::source::splits(file, &self.shared.folder, here as u32)
            .map_err(|e| stage_refused(stage, &e.to_string()))?;
        let left = Arc::new(Mutex::new(all.iter().rev().cloned().collect()));
        own.insert(stage.id.clone(), OwnSplits { all, left: Arc::clone(&left) });
        Ok(Splits::Own(left))
    }
}

/// The columns that a source makes, before its rows get their event times.
pub(super) fn entering(program: &VertexProgram) -> &SchemaRef {
    match &program.program {
        Program::Stamp(stamp) => stamp.input(),
        _ => &program.output,
    }
}
