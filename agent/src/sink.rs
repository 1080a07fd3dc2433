//! Sinks: where rows leave. One trait, and one module per kind.

use std::io;
use std::path::{Path, PathBuf};

use tuplane_core::job::{self, SinkConnector, SinkFormat};
use tuplane_expr::arrow::array::{RecordBatch, TimestampNanosecondArray};
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_expr::arrow::error::ArrowError;
use tuplane_wire::message::SinkFile;

mod csv;
mod file;
mod jsonl;
mod ledger;
mod part;

#[cfg(test)]
mod tests;

pub(crate) use csv::TIME;
pub(crate) use part::{Part, Place};
pub use part::{Parts, seal};

/// A running sink instance.
pub trait Sink: Send {
    /// Takes rows.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError>;
    /// Takes rows of which it is known when they arrived, in nanoseconds since 1970.
    fn write_arrived(
        &mut self,
        batch: &RecordBatch,
        _arrivals: &TimestampNanosecondArray,
    ) -> Result<(), SinkError> {
        self.write(batch)
    }
    /// It may wait for a disk, and so needs a thread of its own.
    fn blocks(&self) -> bool {
        true
    }
    /// End of input: flushes and syncs; the part files stay hidden.
    fn finish(&mut self) -> Result<Vec<SinkFile>, SinkError>;
}

/// Why a sink cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// A file could not be used: a full disk, a missing permission.
    #[error("cannot {action} {path}: {cause}")]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// Options or columns that this sink cannot serve.
    #[error("{0}")]
    Refused(String),
    /// A value could not be written in the sink's format.
    #[error("rows could not be written: {0}")]
    Arrow(#[from] ArrowError),
}

impl SinkError {
    fn file(action: &'static str, path: &Path, cause: io::Error) -> Self {
        Self::File { action, path: path.display().to_string(), cause }
    }
}

/// What a sink instance has to know of its surroundings.
#[derive(Debug, Clone)]
pub struct SinkContext {
    /// The job's name.
    pub job: String,
    /// The run.
    pub run: u64,
    /// Which attempt of it.
    pub attempt: u32,
    /// The stage's id.
    pub stage: String,
    /// This instance, from 0.
    pub instance_number: u32,
    /// The agent's name.
    pub agent: String,
    /// The agent's working folder: relative paths start here.
    pub folder: PathBuf,
    /// Columns of its rows.
    pub schema: SchemaRef,
    /// Where its run's part files are noted.
    pub parts: Parts,
}

/// Makes an instance of a sink.
pub fn make(sink: &job::Sink, context: SinkContext) -> Result<Box<dyn Sink>, SinkError> {
    match &sink.connector {
        Some(SinkConnector::Count) => Ok(Box::new(Count)),
        Some(SinkConnector::Ledger { path, id }) => Ok(Box::new(ledger::Ledger::new(
            &id.value,
            part::Place::in_folder(&path.value, "csv", &context).make_ready()?,
            &context,
        )?)),
        _ => {
            let (place, format) = target(sink, &context)?;
            Ok(Box::new(file::Rows::new(place.make_ready()?, format, &context)))
        }
    }
}

/// Makes the one file of a sink to which no instance wrote a row: a csv header, or nothing. Asking
/// again gives the same file.
pub fn make_empty(sink: &job::Sink, context: SinkContext) -> Result<Option<SinkFile>, SinkError> {
    let (place, header) = match &sink.connector {
        Some(SinkConnector::Count) => return Ok(None),
        Some(SinkConnector::Ledger { path, .. }) => {
            (part::Place::in_folder(&path.value, "csv", &context), ledger::header())
        }
        _ => {
            let (place, format) = target(sink, &context)?;
            let header = match format {
                SinkFormat::Csv => csv::header(&context.schema),
                SinkFormat::Jsonl => Vec::new(),
            };
            (place, header)
        }
    };
    part::empty(&place, &header).map(Some)
}

/// Place and format of a sink that writes its rows as they are.
fn target(sink: &job::Sink, context: &SinkContext) -> Result<(part::Place, SinkFormat), SinkError> {
    match &sink.connector {
        Some(SinkConnector::File { path, format, .. }) => {
            Ok((part::Place::in_folder(&path.value, extension(*format), context), *format))
        }
        // The command line prints this file: an agent's own output has no reader.
        Some(SinkConnector::Stdout { format }) => {
            Ok((part::Place::stdout(extension(*format), context), *format))
        }
        Some(SinkConnector::Registered { name, .. }) => Err(SinkError::Refused(format!(
            "sink `{}` asks for the connector `{}`, which this agent's registry does not hold",
            context.stage, name.value
        ))),
        Some(SinkConnector::Count | SinkConnector::Ledger { .. }) | None => {
            Err(SinkError::Refused(format!("sink `{}` names no connector", context.stage)))
        }
    }
}

fn extension(format: SinkFormat) -> &'static str {
    match format {
        SinkFormat::Csv => "csv",
        SinkFormat::Jsonl => "jsonl",
    }
}

/// `count`: the engine counts the rows that a sink takes; nothing else is wanted of them.
struct Count;

impl Sink for Count {
    fn blocks(&self) -> bool {
        false
    }

    fn write(&mut self, _batch: &RecordBatch) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(&mut self) -> Result<Vec<SinkFile>, SinkError> {
        Ok(Vec::new())
    }
}
