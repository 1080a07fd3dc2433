//! Rows on the agent's disk, in files without a name, so that nothing is left behind.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tuplane_expr::arrow::array::RecordBatch;
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_expr::arrow::error::ArrowError;
use tuplane_expr::arrow::ipc::reader::StreamReader;
use tuplane_expr::arrow::ipc::writer::StreamWriter;

/// Bytes that one instance, or one edge's senders, may keep there.
pub(crate) const MOST: u64 = 4 << 30;

/// The next file's number in this process.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Why rows could not be kept on disk, or not be read again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpillError {
    /// The bound is reached.
    #[error("{written} bytes of rows are on this agent's disk, and {most} may be kept there", most = MOST)]
    Full { written: u64 },
    /// The disk, or what stands on it.
    #[error("rows cannot be kept in {folder}: {source}")]
    Disk { folder: String, source: ArrowError },
}

/// Where files are made, and the columns of what they hold.
#[derive(Debug, Clone)]
pub(crate) struct Spills {
    folder: PathBuf,
    schema: SchemaRef,
}

impl Spills {
    pub(crate) fn new(folder: PathBuf, schema: SchemaRef) -> Self {
        Self { folder, schema }
    }

    /// The columns.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Begins a file.
    pub(crate) fn begin(&self) -> Result<SpillWriter, SpillError> {
        let folder: Arc<str> = Arc::from(self.folder.display().to_string());
        let made = create(&self.folder)
            .map_err(ArrowError::from)
            .and_then(|file| StreamWriter::try_new(BufWriter::with_capacity(256 << 10, file), &self.schema));
        match made {
            Ok(writer) => Ok(SpillWriter { folder, writer }),
            Err(source) => Err(disk(&folder, source)),
        }
    }
}

fn disk(folder: &str, source: ArrowError) -> SpillError {
    SpillError::Disk { folder: folder.to_owned(), source }
}

/// A new file that is gone when it is closed, however that comes about.
fn create(folder: &std::path::Path) -> io::Result<File> {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!(".rows-{}-{number}.run", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// A file that is being written.
pub(crate) struct SpillWriter {
    folder: Arc<str>,
    writer: StreamWriter<BufWriter<File>>,
}

impl std::fmt::Debug for SpillWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpillWriter").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl SpillWriter {
    pub(crate) fn write(&mut self, rows: &RecordBatch) -> Result<(), SpillError> {
        self.writer.write(rows).map_err(|error| disk(&self.folder, error))
    }

    /// Bytes of the file so far.
    pub(crate) fn written(&self) -> Result<u64, SpillError> {
        let buffered = self.writer.get_ref();
        let mut file = buffered.get_ref();
        let position = file.stream_position().map_err(|error| disk(&self.folder, error.into()))?;
        Ok(position + buffered.buffer().len() as u64)
    }

    /// All rows are in it: the file, and its bytes.
    pub(crate) fn finish(self) -> Result<(Spilled, u64), SpillError> {
        let (file, written) = close(self.writer).map_err(|error| disk(&self.folder, error))?;
        Ok((Spilled { state: State::Written(file), folder: self.folder }, written))
    }
}

/// Everything is in the file: the file, and its length.
fn close(writer: StreamWriter<BufWriter<File>>) -> Result<(File, u64), ArrowError> {
    let mut file = writer.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    let written = file.stream_position()?;
    Ok((file, written))
}

/// A file of rows.
pub(crate) struct Spilled {
    state: State,
    folder: Arc<str>,
}

enum State {
    Written(File),
    Read(Box<StreamReader<BufReader<File>>>),
    Done,
}

impl std::fmt::Debug for Spilled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spilled").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Spilled {
    /// From here on it is read.
    pub(crate) fn read(&mut self) -> Result<(), SpillError> {
        let State::Written(mut file) = std::mem::replace(&mut self.state, State::Done) else { return Ok(()) };
        let reader = file
            .seek(SeekFrom::Start(0))
            .map_err(ArrowError::from)
            .and_then(|_| StreamReader::try_new(BufReader::with_capacity(64 << 10, file), None));
        self.state = State::Read(Box::new(reader.map_err(|error| disk(&self.folder, error))?));
        Ok(())
    }

    /// Its next rows.
    pub(crate) fn next_rows(&mut self) -> Result<Option<RecordBatch>, SpillError> {
        let State::Read(reader) = &mut self.state else { return Ok(None) };
        match reader.next() {
            Some(Ok(rows)) => Ok(Some(rows)),
            Some(Err(error)) => Err(disk(&self.folder, error)),
            None => {
                self.state = State::Done;
                Ok(None)
            }
        }
    }
}
