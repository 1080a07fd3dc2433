//! The columns behind a service call.

use datafusion_common::arrow::datatypes::SchemaRef;
use tuplane_core::fault::Fault;
use tuplane_core::job::{Job, Stage, UsingService};

use crate::program::ServiceProgram;
use crate::sql::Language;
use crate::system::SystemColumns;

/// The columns of its output. A call can always fail.
pub(super) fn output(
    job: &Job,
    stage: &Stage,
    using: &UsingService,
    input: &SchemaRef,
) -> Result<(SchemaRef, bool), Vec<Fault>> {
    let program = program(job, stage, using, input, SystemColumns::NONE)?;
    Ok((SchemaRef::clone(program.output()), true))
}

/// What the stage asks and makes of the answers, copying these system columns.
pub(crate) fn program(
    job: &Job,
    stage: &Stage,
    using: &UsingService,
    input: &SchemaRef,
    system: SystemColumns,
) -> Result<ServiceProgram, Vec<Fault>> {
    let on_error = using.calls.on_error.unwrap_or(job.options.on_error);
    ServiceProgram::compile(Language::of(job), stage, using, input, system, on_error)
}
