//! Making the files of a job that has finished visible.

use std::sync::Arc;

use tuplane_core::job::Op;
use tuplane_wire::message::{FaultCode, SinkFile, WireFault};

use super::{Held, Shared, build, internal, no_run, run};
use crate::sink::SinkError;

/// Renames parts, whoever wrote them, and makes an empty file for each sink in `empty`.
pub(super) fn seal(
    shared: &Shared,
    run: u64,
    held: Option<Held>,
    parts: &[SinkFile],
    empty: &[String],
) -> Result<Vec<SinkFile>, WireFault> {
    let fault = |e: SinkError| WireFault::new(FaultCode::Instance, e.to_string());
    let mut files = crate::sink::seal(parts).map_err(fault)?;
    for file in &mut files {
        // Whoever has renamed it is asked for it.
        file.agent.clone_from(&shared.me.name);
    }
    for id in empty {
        let held = held.as_ref().ok_or_else(|| no_run(run))?;
        let made = empty_file(shared, held, id).map_err(fault)?;
        let none =
            || internal(&format!("this agent has no instance of `{id}` that could make an empty file"));
        files.push(made.ok_or_else(none)?);
    }
    Ok(files)
}

/// The one file of a sink to which no instance of the job wrote a row; it has the name of instance 0's.
fn empty_file(shared: &Shared, held: &Held, id: &str) -> Result<Option<SinkFile>, SinkError> {
    let run = &held.run;
    let stand = run.stand();
    let writes = |local: &&Arc<run::Local>| {
        local.sink_schema.is_some()
            && stand.dag.vertex(local.placed.vertex).stages.last().is_some_and(|last| last == id)
    };
    let Some(schema) = stand.local.iter().find(writes).and_then(|local| local.sink_schema.clone()) else {
        return Ok(None);
    };
    let Some(stage) = run.job.stages.iter().find(|s| s.id == id) else { return Ok(None) };
    let Op::Sink(sink) = &stage.op else { return Ok(None) };
    let parts = run.parts.clone();
    let context = build::sink_context(shared, &held.plan, &run.job, stage, 0, schema, parts);
    crate::sink::make_empty(sink, context)
}
