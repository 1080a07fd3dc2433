//! The columns behind rolling aggregates, stateful stages, sorts and distincts.

use datafusion_common::arrow::datatypes::SchemaRef;
use tuplane_core::fault::{At, Fault};
use tuplane_core::job::{Job, Op, Stage, Text};

use super::group_key;
use crate::aggregate::RollingProgram;
use crate::program::{DistinctProgram, SortProgram, StatefulProgram, StatefulTexts};
use crate::sql::Language;
use crate::system::SystemColumns;

/// The op is one of those here.
pub(crate) fn is_keyed(op: &Op) -> bool {
    matches!(op, Op::RollingAggregate { .. } | Op::Stateful { .. } | Op::Sort { .. } | Op::Distinct { .. })
}

/// The columns of such a stage's output, and whether its expressions can meet a row that they cannot take.
pub(super) fn output(job: &Job, stage: &Stage, input: &SchemaRef) -> Result<(SchemaRef, bool), Vec<Fault>> {
    let none = SystemColumns::NONE;
    Ok(match &stage.op {
        Op::RollingAggregate { .. } => {
            let program = rolling(job, stage, input, none)?;
            (SchemaRef::clone(program.output()), program.can_fail(input))
        }
        Op::Stateful { .. } => {
            let program = stateful(job, stage, input, none)?;
            (SchemaRef::clone(program.output()), program.can_fail(input))
        }
        Op::Distinct { .. } => {
            let program = distinct(job, stage, input, none)?;
            (SchemaRef::clone(program.output()), program.can_fail(input))
        }
        _ => {
            let program = sort(job, stage, input, none)?;
            (SchemaRef::clone(program.output()), program.can_fail(input))
        }
    })
}

fn missing(stage: &Stage, option: &str) -> Vec<Fault> {
    vec![Fault::new(stage.at, format!("`{option}` is missing"))]
}

/// A stage's rolling aggregate, which copies these system columns.
pub(crate) fn rolling(
    job: &Job,
    stage: &Stage,
    input: &SchemaRef,
    system: SystemColumns,
) -> Result<RollingProgram, Vec<Fault>> {
    let compute: &[Text] = if let Op::RollingAggregate { compute } = &stage.op { compute } else { &[] };
    if compute.is_empty() {
        return Err(missing(stage, "compute"));
    }
    let (language, keys) = (Language::of(job), group_key(job, stage));
    let program = RollingProgram::compile(language, keys, compute, input, job.options.on_error)?;
    Ok(program.carrying(system))
}

/// A stage's state, which copies these system columns.
pub(crate) fn stateful(
    job: &Job,
    stage: &Stage,
    input: &SchemaRef,
    system: SystemColumns,
) -> Result<StatefulProgram, Vec<Fault>> {
    let Op::Stateful { shape, state, update, then, ttl } = &stage.op else {
        return Err(missing(stage, "state"));
    };
    let mut faults = Vec::new();
    if state.is_empty() {
        faults.extend(missing(stage, "state"));
    }
    if then.is_empty() {
        faults.extend(missing(stage, shape.option()));
    }
    let texts = StatefulTexts { shape: *shape, state, update, then };
    let keys = group_key(job, stage);
    match StatefulProgram::compile(Language::of(job), keys, texts, input, system, job.options.on_error) {
        Ok(program) if faults.is_empty() => Ok(program.with_ttl(*ttl)),
        Ok(_) => Err(faults),
        Err(found) => {
            faults.extend(found);
            Err(faults)
        }
    }
}

/// A stage's order.
pub(crate) fn sort(
    job: &Job,
    stage: &Stage,
    input: &SchemaRef,
    system: SystemColumns,
) -> Result<SortProgram, Vec<Fault>> {
    let by: &[Text] = if let Op::Sort { by } = &stage.op { by } else { &[] };
    if by.is_empty() {
        return Err(missing(stage, "by"));
    }
    SortProgram::compile(Language::of(job), by, input, system, job.options.on_error)
}

/// A stage's distinct, by the key of a `group_by` before it, its own, or the whole row.
pub(crate) fn distinct(
    job: &Job,
    stage: &Stage,
    input: &SchemaRef,
    system: SystemColumns,
) -> Result<DistinctProgram, Vec<Fault>> {
    let own: &[Text] = if let Op::Distinct { key } = &stage.op { key } else { &[] };
    let key = match group_key(job, stage) {
        [] => own,
        grouped => grouped,
    };
    DistinctProgram::compile(Language::of(job), key, input, system, job.options.on_error)
        .map_err(|faults| faults.into_iter().map(|fault| at(stage, fault)).collect())
}

/// A fault of the stage as a whole stands where that does.
fn at(stage: &Stage, fault: Fault) -> Fault {
    if fault.at == At::default() { Fault { at: stage.at, ..fault } } else { fault }
}
