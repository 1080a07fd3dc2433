//! From a planned vertex to what its instances run, and from an edge to its key.

use std::sync::Arc;

use datafusion_common::arrow::datatypes::SchemaRef;
use tuplane_core::fault::{At, Fault};
use tuplane_core::job::{Job, Op, Source, Stage, Text, Time};
use tuplane_core::plan::{Dag, EdgeId, Key, Role, Routing, VertexId};

use super::{
    Chain, DistinctProgram, JoinProgram, ServiceProgram, SortProgram, StampProgram, StatefulProgram,
    whole_row,
};
use crate::aggregate::{AggregateProgram, RollingProgram, WindowProgram};
use crate::key::KeyExprs;
use crate::sql::Language;
use crate::system::{SystemColumns, own_columns};
use crate::types::joined::{self, CoProgram};
use crate::types::{Types, find, group_key, keyed, not_yet, service, window};

/// What the instances of a vertex run.
#[derive(Debug, Clone)]
pub enum Program {
    /// Steps of one row: map, filter, `flat_map`.
    Chain(Chain),
    /// An aggregate, of one input or several; the vertex's role says whether it takes rows or partial results,
    /// and gives partial or final ones.
    Aggregate(AggregateProgram),
    /// A distinct: the same in both of its vertices.
    Distinct(DistinctProgram),
    /// A join; the vertex's role says whether it collects the rows of an enriching input, which it hands over
    /// without sending them, or joins.
    Join(JoinProgram),
    /// A `rolling_aggregate`.
    Rolling(RollingProgram),
    /// A stateful stage.
    Stateful(StatefulProgram),
    /// A sort; the vertex's role says whether it sorts or merges what is sorted.
    Sort(SortProgram),
    /// An aggregate by window; roles as of `Aggregate`.
    Window(WindowProgram),
    /// Rows get their event times: a source that does so itself, or a vertex of its own.
    Stamp(StampProgram),
    /// A service call.
    Service(ServiceProgram),
    /// No expression: sources, merge, work, sinks, and operators of a registry.
    Pass,
}

/// A vertex, ready to run.
#[derive(Debug, Clone)]
pub struct VertexProgram {
    /// The columns of each input, by ordinal, system columns included.
    pub input: Vec<SchemaRef>,
    /// The columns of its output, system columns included.
    pub output: SchemaRef,
    /// What it runs.
    pub program: Program,
    /// Its role in the plan.
    pub role: Role,
}

/// What the instances of a vertex run.
pub fn vertex_program(job: &Job, types: &Types, dag: &Dag, v: VertexId) -> Result<VertexProgram, Fault> {
    let vertex = dag.vertex(v);
    let stages = stages(job, dag, v)?;
    let last = last(&stages, dag, v)?;
    let input: Vec<SchemaRef> =
        dag.inputs(v).map(|(_, edge)| output(job, types, dag, edge.from)).collect::<Result<_, _>>()?;
    let steps =
        stages.iter().all(|s| matches!(s.op, Op::Map { .. } | Op::Filter { .. } | Op::FlatMap { .. }));
    let program = match &last.op {
        Op::Aggregate { .. } => aggregated(job, types, last)?,
        Op::CoAggregate { .. } => match co_aggregate(job, types, last)? {
            CoProgram::Aggregate(program) => Program::Aggregate(program),
            CoProgram::Window(program) => Program::Window(program.carrying(types.system(&last.id))),
        },
        Op::HashJoin { .. } => {
            let (inputs, system) = (inputs(types, last)?, types.system(&last.id));
            let program = joined::join(job, last, &inputs, system);
            Program::Join(program.map_err(|faults| one(faults, last))?)
        }
        Op::Source(Source { time: Some(time), .. }) if !stamped_behind(dag, v) => {
            stamp(job, types, last, time)?
        }
        Op::AddTimestamps { time: Some(time) } => stamp(job, types, last, time)?,
        op if keyed::is_keyed(op) => keyed(job, types, last)?,
        Op::UsingService(using) => {
            let input = last.inputs.first().and_then(|id| types.output(&id.value));
            let (Some(input), Some(answer)) = (input, types.answer(&last.id)) else {
                return Err(unknown(last));
            };
            let made = service::program(job, last, using, (&input, answer), types.system(&last.id));
            Program::Service(made.map_err(|faults| one(faults, last))?)
        }
        _ if steps => {
            let Some(input) = input.first() else {
                return Err(Fault::new(last.at, "nothing flows into this stage").stage(&last.id));
            };
            let leaving = types.system(&last.id);
            let chain = Chain::compile(Language::of(job), &stages, input, leaving, job.options.on_error);
            Program::Chain(chain.map_err(|faults| one(faults, last))?)
        }
        Op::Source(_) | Op::Merge | Op::Work(_) | Op::Sink(_) | Op::CustomTransform { .. } => Program::Pass,
        other => return Err(not_yet(last, other).stage(&last.id)),
    };
    let output = match &program {
        Program::Chain(chain) => Arc::clone(chain.output()),
        _ => output(job, types, dag, v)?,
    };
    Ok(VertexProgram { input, output, program, role: vertex.role })
}

/// The key of a partitioned edge; `None` for any other.
pub fn edge_key(job: &Job, types: &Types, dag: &Dag, e: EdgeId) -> Result<Option<KeyExprs>, Fault> {
    let edge = dag.edge(e);
    let Routing::Partitioned { key, .. } = &edge.routing else { return Ok(None) };
    let schema = own_columns(&output(job, types, dag, edge.from)?);
    let sender = last(&stages(job, dag, edge.from)?, dag, edge.from)?;
    let target = last(&stages(job, dag, edge.to)?, dag, edge.to)?;
    Ok(Some(match key {
        // The inputs of a co-aggregation meet by the common type of their keys.
        Key::Exprs(_) if matches!(target.op, Op::CoAggregate { .. }) && is_keyed(dag, edge.to) => {
            co_aggregate(job, types, target)?.aggregate().key_of(edge.ordinal as usize)
        }
        Key::Exprs(exprs) => {
            KeyExprs::compile(Language::of(job), exprs, &schema).map_err(|faults| one(faults, sender))?
        }
        Key::Entry => match &sender.op {
            Op::Aggregate { .. } | Op::CoAggregate { .. } => {
                KeyExprs::columns(&schema, group_key(job, sender).len())
            }
            other => return Err(not_yet(sender, other).stage(&sender.id)),
        },
        Key::WholeItem => {
            whole_row(&schema).map_err(|fault| Fault { at: target.at, ..fault }.stage(&target.id))?
        }
    }))
}

/// The columns that leave a vertex, system columns included.
fn output(job: &Job, types: &Types, dag: &Dag, v: VertexId) -> Result<SchemaRef, Fault> {
    let stages = stages(job, dag, v)?;
    let last = last(&stages, dag, v)?;
    match (dag.vertex(v).role, &last.op) {
        (Role::Prepare, Op::Aggregate { .. }) => Ok(match aggregated(job, types, last)? {
            Program::Window(window) => window.partial_schema(),
            Program::Aggregate(aggregate) => aggregate.partial_schema(),
            _ => return Err(unknown(last)),
        }),
        (Role::Prepare, Op::CoAggregate { .. }) => Ok(match co_aggregate(job, types, last)? {
            CoProgram::Aggregate(program) => program.partial_schema(),
            CoProgram::Window(program) => program.partial_schema(),
        }),
        (Role::Collector { input }, _) => {
            let id = last.inputs.get(input as usize);
            id.and_then(|id| types.output(&id.value)).ok_or_else(|| unknown(last))
        }
        (Role::Whole, Op::Source(_)) if stamped_behind(dag, v) => {
            types.before_stamps(&last.id).ok_or_else(|| unknown(last))
        }
        // A chain's own output may have fewer columns inside, never at its end.
        _ => types.edge(&last.id).ok_or_else(|| unknown(last)),
    }
}

/// What a rolling aggregate, a stateful stage, a distinct or a sort runs.
fn keyed(job: &Job, types: &Types, stage: &Stage) -> Result<Program, Fault> {
    let input = stage.inputs.first().and_then(|id| types.output(&id.value)).ok_or_else(|| unknown(stage))?;
    let system = types.system(&stage.id);
    let program = match &stage.op {
        Op::RollingAggregate { .. } => keyed::rolling(job, stage, &input, system).map(Program::Rolling),
        Op::Stateful { .. } => keyed::stateful(job, stage, &input, system).map(Program::Stateful),
        Op::Distinct { .. } => keyed::distinct(job, stage, &input, system).map(Program::Distinct),
        _ => keyed::sort(job, stage, &input, system).map(Program::Sort),
    };
    program.map_err(|faults| one(faults, stage))
}

fn aggregated(job: &Job, types: &Types, stage: &Stage) -> Result<Program, Fault> {
    let Op::Aggregate { compute, .. } = &stage.op else { return Err(not_yet(stage, &stage.op)) };
    let input = stage.inputs.first().and_then(|id| types.output(&id.value)).ok_or_else(|| unknown(stage))?;
    let (language, keys, on_error) = (Language::of(job), group_key(job, stage), job.options.on_error);
    let program = match window(job, stage) {
        Some(window) => WindowProgram::compile(language, keys, window, compute, &input, on_error)
            .map(|program| Program::Window(program.carrying(types.system(&stage.id)))),
        None => AggregateProgram::compile(language, keys, compute, &input, on_error).map(Program::Aggregate),
    };
    program.map_err(|faults| one(faults, stage))
}

fn co_aggregate(job: &Job, types: &Types, stage: &Stage) -> Result<CoProgram, Fault> {
    let program = joined::co_aggregate(job, stage, &inputs(types, stage)?);
    program.map_err(|faults| one(faults, stage))
}

/// The job's own columns of each of a stage's inputs.
fn inputs(types: &Types, stage: &Stage) -> Result<Vec<SchemaRef>, Fault> {
    let of = |id: &Text| types.output(&id.value).ok_or_else(|| unknown(stage));
    stage.inputs.iter().map(of).collect()
}

/// A vertex whose inputs have a grouping key.
fn is_keyed(dag: &Dag, v: VertexId) -> bool {
    dag.vertex(v).keys.iter().any(|key| !key.is_empty())
}

/// Another vertex gives a source's rows their event times.
fn stamped_behind(dag: &Dag, v: VertexId) -> bool {
    let vertex = dag.vertex(v);
    vertex.role == Role::Whole && dag.outputs(v).any(|(_, edge)| dag.vertex(edge.to).role == Role::Timestamps)
}

fn stamp(job: &Job, types: &Types, stage: &Stage, time: &Time) -> Result<Program, Fault> {
    let own = types.output(&stage.id).ok_or_else(|| unknown(stage))?;
    let entering = match (&stage.op, stage.inputs.first()) {
        (Op::Source(_), _) => types.before_stamps(&stage.id),
        (_, Some(input)) => types.edge(&input.value),
        _ => None,
    };
    let entering = SystemColumns::of(&*entering.ok_or_else(|| unknown(stage))?);
    let program = StampProgram::compile(Language::of(job), time, &own, job.options.on_error);
    let program = program.map_err(|faults| one(faults, stage))?;
    Ok(Program::Stamp(program.between(&own, entering, types.system(&stage.id))))
}

fn stages<'a>(job: &'a Job, dag: &Dag, v: VertexId) -> Result<Vec<&'a Stage>, Fault> {
    let stage = |id: &String| {
        find(job, id).ok_or_else(|| {
            Fault::new(At::default(), format!("the plan names a stage `{id}` that the job has not"))
        })
    };
    dag.vertex(v).stages.iter().map(stage).collect()
}

fn last<'a>(stages: &[&'a Stage], dag: &Dag, v: VertexId) -> Result<&'a Stage, Fault> {
    stages.last().copied().ok_or_else(|| {
        Fault::new(At::default(), format!("the plan's vertex `{}` was made of no stage", dag.vertex(v).name))
    })
}

fn unknown(stage: &Stage) -> Fault {
    Fault::new(stage.at, format!("the columns of `{}` are not known here", stage.id)).stage(&stage.id)
}

/// The first of several faults; `resolve` has reported them all.
fn one(faults: Vec<Fault>, stage: &Stage) -> Fault {
    let first = faults.into_iter().next();
    first.unwrap_or_else(|| Fault::new(stage.at, "this stage cannot be compiled")).stage(&stage.id)
}
