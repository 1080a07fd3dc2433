//! The columns behind stages that read several inputs: joins and co-aggregations.

use datafusion_common::arrow::datatypes::SchemaRef;
use tuplane_core::fault::Fault;
use tuplane_core::job::{Job, Op, Stage};
use tuplane_core::time::WindowSpec;

use super::{input_key, window};
use crate::aggregate::{AggregateInput, AggregateProgram, WindowProgram};
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
        Op::CoAggregate { .. } => Some(co_aggregate(job, stage, inputs).map(|program| match program {
            CoProgram::Aggregate(program) => {
                let fails = |(input, columns)| program.input_can_fail(input, columns);
                (program.final_schema(), inputs.iter().enumerate().any(fails))
            }
            // Late rows are named by their place.
            CoProgram::Window(program) => (program.final_schema(), true),
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

/// An aggregate over several inputs, perhaps by window.
pub(crate) enum CoProgram {
    Aggregate(AggregateProgram),
    Window(WindowProgram),
}

impl CoProgram {
    /// The aggregate, without its window.
    pub(crate) fn aggregate(&self) -> &AggregateProgram {
        match self {
            Self::Aggregate(program) => program,
            Self::Window(program) => program.aggregate(),
        }
    }
}

/// A stage's aggregate over several inputs. The first window before one of them holds for all.
pub(crate) fn co_aggregate(job: &Job, stage: &Stage, inputs: &[SchemaRef]) -> Result<CoProgram, Vec<Fault>> {
    let Op::CoAggregate { compute, .. } = &stage.op else {
        return Err(vec![Fault::new(stage.at, "this stage aggregates one input")]);
    };
    let (mut sides, mut faults) = (Vec::new(), Vec::new());
    for (position, (input, columns)) in stage.inputs.iter().zip(inputs).enumerate() {
        let id = input.value.as_str();
        let (keys, own) = input_key(job, stage, position);
        if let (Some(window), Some(own)) = (window(job, stage), own)
            && !matches!(&own.op, Op::Window(own) if own == window)
        {
            let message = format!("`{}` is another window than that of an input before `{id}`", own.id);
            let help = "one window holds for all inputs; it need stand before the first one alone";
            faults.push(Fault::new(own.at, message).help(help));
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
    let program = AggregateProgram::compile_several(Language::of(job), &sides, job.options.on_error)?;
    let Some(window) = window(job, stage) else { return Ok(CoProgram::Aggregate(program)) };
    if WindowSpec::new(window).is_err() {
        // The fault was reported at the window.
        return Err(Vec::new());
    }
    let keys = sides.first().map_or(&[][..], |side| side.keys);
    let named = keys.iter().chain(sides.iter().flat_map(|side| side.compute));
    WindowProgram::over(program, window, named).map(CoProgram::Window)
}
