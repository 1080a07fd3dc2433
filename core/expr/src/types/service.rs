//! The columns behind a service call.

use datafusion_common::arrow::datatypes::SchemaRef;
use tuplane_core::fault::Fault;
use tuplane_core::job::{Job, Stage, UsingService};

use super::{Asked, Registered, grouping, named};
use crate::program::{ServiceProgram, answer_columns, question};
use crate::sql::Language;
use crate::system::SystemColumns;

/// What the stage's expressions see of an answer; `None` where only a registry knows.
pub(super) fn answer(
    job: &Job,
    stage: &Stage,
    using: &UsingService,
    input: &SchemaRef,
    registered: Registered<'_>,
) -> Result<Option<SchemaRef>, Vec<Fault>> {
    if using.http.is_some() {
        return Ok(Some(answer_columns()));
    }
    let asked = question(Language::of(job), stage, using, input)?.output;
    // What is wrong with a key was said of its `group_by`.
    let Ok(key) = grouping(job, stage, input) else { return Ok(None) };
    let asked = Asked { stage, input: Some(&asked), key: key.fields() };
    let answer = registered(asked).map_err(|fault| vec![fault])?;
    answer.map(|answer| named(stage, answer)).transpose()
}

/// The columns of its output. A call can always fail.
pub(super) fn output(
    job: &Job,
    stage: &Stage,
    using: &UsingService,
    (input, answer): (&SchemaRef, &SchemaRef),
) -> Result<(SchemaRef, bool), Vec<Fault>> {
    let program = program(job, stage, using, (input, answer), SystemColumns::NONE)?;
    Ok((SchemaRef::clone(program.output()), true))
}

/// What the stage asks and makes of the answers, copying these system columns.
pub(crate) fn program(
    job: &Job,
    stage: &Stage,
    using: &UsingService,
    columns: (&SchemaRef, &SchemaRef),
    system: SystemColumns,
) -> Result<ServiceProgram, Vec<Fault>> {
    let on_error = using.calls.on_error.unwrap_or(job.options.on_error);
    ServiceProgram::compile(Language::of(job), stage, using, columns, system, on_error)
}
