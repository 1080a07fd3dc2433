//! The columns behind stages that read several inputs: joins and co-aggregations.

use datafusion_common::arrow::datatypes::SchemaRef;
use tuplane_core::fault::Fault;
use tuplane_core::job::{Job, Op, Stage};

use super::input_key;
use crate::aggregate::{AggregateInput, AggregateProgram};
use crate::program::{JoinProgram, JoinTexts};
use crate::sql::Language;
use crate::system::SystemColumns;

/// The columns of such a stage's output, and whether its expressions can meet a row that they cannot take;
/// `None` for other ops.
pub(super) fn output(
    job: &Job,
    stage: &Stage,
    inputs: &[SchemaRef],
) -> Option<Result<(SchemaRef, bool), Vec<Fault>>> {
    match &stage.op {
        Op::HashJoin { .. } => Some(join(job, stage, inputs, SystemColumns::NONE).map(|program| {
            let can_fail = inputs.first().is_some_and(|primary| program.can_fail(primary));
            (SchemaRef::clone(program.output()), can_fail)
        })),
        Op::CoAggregate { .. } => Some(co_aggregate(job, stage, inputs).map(|program| {
            let fails = |(input, columns)| program.input_can_fail(input, columns);
            (program.final_schema(), inputs.iter().enumerate().any(fails))
        })),
        _ => None,
    }
}

/// A stage's join, which copies these system columns of its first input.
pub(crate) fn join(
    job: &Job,
    stage: &Stage,
    inputs: &[SchemaRef],
    system: SystemColumns,
) -> Result<JoinProgram, Vec<Fault>> {
    let Op::HashJoin { on, kind, .. } = &stage.op else {
        return Err(vec![Fault::new(stage.at, "this stage joins nothing")]);
    };
    let named = stage.inputs.iter().zip(inputs);
    let named: Vec<(&str, SchemaRef)> =
        named.map(|(input, columns)| (input.value.as_str(), SchemaRef::clone(columns))).collect();
    let texts = JoinTexts { on, kind: *kind, at: stage.at };
    JoinProgram::compile(Language::of(job), texts, &named, system, job.options.on_error)
}

/// A stage's aggregate over several inputs.
pub(crate) fn co_aggregate(
    job: &Job,
    stage: &Stage,
    inputs: &[SchemaRef],
) -> Result<AggregateProgram, Vec<Fault>> {
    let Op::CoAggregate { compute, .. } = &stage.op else {
        return Err(vec![Fault::new(stage.at, "this stage aggregates one input")]);
    };
    let (mut sides, mut faults) = (Vec::new(), Vec::new());
    for (position, (input, columns)) in stage.inputs.iter().zip(inputs).enumerate() {
        let id = input.value.as_str();
        let (keys, window) = input_key(job, stage, position);
        if let Some(window) = window {
            let message = format!(
                "`co_aggregate` behind the window `{}` can be planned, but this version cannot run it",
                window.id
            );
            faults.push(
                Fault::new(stage.at, message).help("aggregate each input by itself, or leave the window out"),
            );
        }
        match compute.get(id) {
            Some(compute) if !compute.is_empty() => sides.push(AggregateInput { id, keys, compute, columns }),
            _ => faults.push(Fault::new(input.at, format!("`compute` says nothing of the input `{id}`"))),
        }
        if stage.inputs[..position].iter().any(|other| other.value == id) {
            let message = format!("the input `{id}` stands twice, and `compute` cannot tell the two apart");
            faults.push(Fault::new(input.at, message).help("put a map stage before one of them"));
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    AggregateProgram::compile_several(Language::of(job), &sides, job.options.on_error)
}
