//! Sinks of the user's own.

use tuplane_expr::arrow::array::RecordBatch;
use tuplane_wire::message::SinkFile;

use super::{Context, Failure, Given};
use crate::sink::{Part, Place, Sink as EngineSink, SinkContext, SinkError};

/// A sort of sink: one for the agent, which makes instances of it.
pub trait SinkKind: Send + Sync {
    /// Whether it takes rows of these columns with these options.
    ///
    /// # Errors
    /// The job is refused with these words.
    fn check(&self, _given: &Given<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// An instance. What it writes to `files` becomes visible when the whole job has finished; what it sends
    /// anywhere else is sent, also by a job that fails.
    ///
    /// # Errors
    /// The job does not start.
    fn make(&self, context: Context, files: SinkFiles) -> Result<Box<dyn Sink>, Failure>;

    /// Its methods may wait for a disk or a network: each instance gets a thread of its own.
    fn blocks(&self) -> bool {
        true
    }

    /// What it takes, in words, where that is fixed: part of the registry's fingerprint.
    fn types(&self) -> String {
        String::new()
    }
}

/// An instance of a sink.
pub trait Sink: Send {
    /// Takes rows.
    ///
    /// # Errors
    /// The job fails with these words.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Failure>;

    /// All rows have come: what was buffered is written. Gives the files that it made, each
    /// [finished](PartFile::finish).
    ///
    /// # Errors
    /// The job fails with these words.
    fn finish(&mut self) -> Result<Vec<SinkFile>, Failure> {
        Ok(Vec::new())
    }
}

/// Makes files that are hidden until the job has finished.
#[derive(Debug)]
pub struct SinkFiles(SinkContext);

impl SinkFiles {
    pub(crate) fn new(context: SinkContext) -> Self {
        Self(context)
    }

    /// Files of this extension in a folder (below the agent's working folder if it is relative). Asked for when the
    /// instance is made, so that a folder that cannot be written is said before the job's rows flow.
    ///
    /// # Errors
    /// The folder cannot be made or written.
    pub fn folder(self, path: &str, extension: &'static str) -> Result<SinkFolder, Failure> {
        Ok(SinkFolder(Place::in_folder(path, extension, &self.0).make_ready()?))
    }
}

/// A folder that a sink's instance writes files into.
#[derive(Debug)]
pub struct SinkFolder(Place);

impl SinkFolder {
    /// A new file, named `STAGE-INSTANCE-ATTEMPT-N.extension` as those of built-in sinks are.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(&self) -> Result<PartFile, Failure> {
        Ok(PartFile(Part::create(&self.0)?))
    }
}

/// A file that is hidden until the job has finished.
#[derive(Debug)]
pub struct PartFile(Part);

impl PartFile {
    /// Appends bytes that hold so many rows.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(&mut self, bytes: &[u8], rows: usize) -> Result<(), Failure> {
        Ok(self.0.append(bytes, rows)?)
    }

    /// Everything is on disk when this returns; the answer is for [`Sink::finish`].
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> Result<SinkFile, Failure> {
        Ok(self.0.finish()?)
    }
}

/// A sink of a registry, as the engine runs it.
pub(crate) struct OwnSink {
    sink: Box<dyn Sink>,
    blocks: bool,
}

impl OwnSink {
    pub(super) fn new(sink: Box<dyn Sink>, blocks: bool) -> Self {
        Self { sink, blocks }
    }
}

fn failed(why: Failure) -> SinkError {
    SinkError::Refused(why.to_string())
}

impl EngineSink for OwnSink {
    fn blocks(&self) -> bool {
        self.blocks
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        self.sink.write(batch).map_err(failed)
    }

    fn finish(&mut self) -> Result<Vec<SinkFile>, SinkError> {
        self.sink.finish().map_err(failed)
    }
}
