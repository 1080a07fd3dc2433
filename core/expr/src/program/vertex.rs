//! From a planned vertex to what its instances run, and from an edge to its key.

use std::sync::Arc;

use datafusion_common::arrow::datatypes::{FieldRef, SchemaRef};
use tuplane_core::fault::{At, Fault};
use tuplane_core::job::{Job, Op, Stage};
use tuplane_core::plan::{Dag, EdgeId, Key, Role, Routing, VertexId};

use super::{Chain, SortProgram, StatefulProgram};
use crate::aggregate::{AggregateProgram, RollingProgram};
use crate::key::{KeyExprs, can_be_key};
use crate::sql::{Language, sql_name};
use crate::system::own_columns;
use crate::types::{Types, find, group_key, keyed, not_yet};

/// What the instances of a vertex run.
#[derive(Debug, Clone)]
pub enum Program {
    /// Steps of one row: map, filter, `flat_map`.
    Chain(Chain),
    /// An aggregate; the vertex's role says whether it takes rows or partial results, and gives partial or
    /// final ones.
    Aggregate(AggregateProgram),
    /// A `rolling_aggregate`.
    Rolling(RollingProgram),
    /// A stateful stage.
    Stateful(StatefulProgram),
    /// A sort; the vertex's role says whether it sorts or merges what is sorted.
    Sort(SortProgram),
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
        Op::Aggregate { .. } => Program::Aggregate(aggregate(job, types, last)?),
        op if keyed::is_keyed(op) => keyed(job, types, last)?,
        _ if steps => {
            let Some(input) = input.first() else {
                return Err(Fault::new(last.at, "nothing flows into this stage").stage(&last.id));
            };
            let (own, system) = (own_columns(input), types.system(&last.id));
            let chain = Chain::compile(Language::of(job), &stages, &own, system, job.options.on_error);
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
    Ok(Some(match key {
        Key::Exprs(exprs) => {
            KeyExprs::compile(Language::of(job), exprs, &schema).map_err(|faults| one(faults, sender))?
        }
        Key::Entry => match &sender.op {
            Op::Aggregate { .. } => KeyExprs::columns(&schema, aggregate(job, types, sender)?.keys()),
            other => return Err(not_yet(sender, other).stage(&sender.id)),
        },
        Key::WholeItem => {
            let refused: Option<&FieldRef> = schema.fields().iter().find(|f| !can_be_key(f.data_type()));
            if let Some(field) = refused {
                let (name, kind) = (field.name(), sql_name(field.data_type()));
                let message =
                    format!("the whole row is the key, and `{name}` is {kind}, which cannot be one");
                return Err(Fault::new(sender.at, message).help("give a `key`").stage(&sender.id));
            }
            KeyExprs::columns(&schema, schema.fields().len())
        }
    }))
}

/// The columns that leave a vertex, system columns included.
fn output(job: &Job, types: &Types, dag: &Dag, v: VertexId) -> Result<SchemaRef, Fault> {
    let stages = stages(job, dag, v)?;
    let last = last(&stages, dag, v)?;
    match (dag.vertex(v).role, &last.op) {
        (Role::Prepare, Op::Aggregate { .. }) => Ok(aggregate(job, types, last)?.partial_schema()),
        // A chain's own output may have fewer columns inside, never at its end.
        _ => types.edge(&last.id).ok_or_else(|| unknown(last)),
    }
}

/// What a rolling aggregate, a stateful stage or a sort runs.
fn keyed(job: &Job, types: &Types, stage: &Stage) -> Result<Program, Fault> {
    let input = stage.inputs.first().and_then(|id| types.output(&id.value)).ok_or_else(|| unknown(stage))?;
    let system = types.system(&stage.id);
    let program = match &stage.op {
        Op::RollingAggregate { .. } => keyed::rolling(job, stage, &input, system).map(Program::Rolling),
        Op::Stateful { .. } => keyed::stateful(job, stage, &input, system).map(Program::Stateful),
        _ => keyed::sort(job, stage, &input, system).map(Program::Sort),
    };
    program.map_err(|faults| one(faults, stage))
}

fn aggregate(job: &Job, types: &Types, stage: &Stage) -> Result<AggregateProgram, Fault> {
    let Op::Aggregate { compute, .. } = &stage.op else { return Err(not_yet(stage, &stage.op)) };
    let input = stage.inputs.first().and_then(|id| types.output(&id.value)).ok_or_else(|| unknown(stage))?;
    let keys = group_key(job, stage);
    AggregateProgram::compile(Language::of(job), keys, compute, &input, job.options.on_error)
        .map_err(|faults| one(faults, stage))
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
