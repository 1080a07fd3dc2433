//! Sorted rows on the agent's disk: one file a run, without a name, so that nothing is left behind.

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

/// Bytes that one instance may write.
const MOST: u64 = 4 << 30;

/// The next file's number in this process.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Why rows could not be kept on disk, or not be read again.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpillError {
    /// The bound is reached.
    #[error(
        "{written} bytes of sorted rows are on this agent's disk, and an instance may keep {most} there; sort \
         fewer rows, or with more instances",
        most = MOST
    )]
    Full { written: u64 },
    /// The disk, or what stands on it.
    #[error("sorted rows cannot be kept in {folder}: {source}")]
    Disk { folder: String, source: ArrowError },
}

/// One instance's files.
pub(super) struct Spills {
    folder: PathBuf,
    schema: SchemaRef,
    written: u64,
}

impl Spills {
    pub(super) fn new(folder: PathBuf, schema: SchemaRef) -> Self {
        Self { folder, schema, written: 0 }
    }

    /// Begins a run.
    pub(super) fn begin(&mut self) -> Result<SpillWriter<'_>, SpillError> {
        if self.written >= MOST {
            return Err(SpillError::Full { written: self.written });
        }
        let made = create(&self.folder)
            .map_err(ArrowError::from)
            .and_then(|file| StreamWriter::try_new(BufWriter::with_capacity(256 << 10, file), &self.schema));
        match made {
            Ok(writer) => Ok(SpillWriter { spills: self, writer }),
            Err(source) => Err(self.disk(source)),
        }
    }

    fn disk(&self, source: ArrowError) -> SpillError {
        SpillError::Disk { folder: self.folder.display().to_string(), source }
    }
}

/// A new file that is gone when it is closed, however that comes about.
fn create(folder: &std::path::Path) -> io::Result<File> {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!(".sort-{}-{number}.run", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// A run that is being written.
pub(super) struct SpillWriter<'a> {
    spills: &'a mut Spills,
    writer: StreamWriter<BufWriter<File>>,
}

impl SpillWriter<'_> {
    pub(super) fn write(&mut self, rows: &RecordBatch) -> Result<(), SpillError> {
        self.writer.write(rows).map_err(|error| self.spills.disk(error))
    }

    pub(super) fn finish(self) -> Result<Spilled, SpillError> {
        let (file, written) = close(self.writer).map_err(|error| self.spills.disk(error))?;
        self.spills.written += written;
        let folder = Arc::from(self.spills.folder.display().to_string());
        Ok(Spilled { state: State::Written(file), folder })
    }
}

/// Everything is in the file: the file, and its length.
fn close(writer: StreamWriter<BufWriter<File>>) -> Result<(File, u64), ArrowError> {
    let mut file = writer.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    let written = file.stream_position()?;
    Ok((file, written))
}

/// A run on disk.
pub(super) struct Spilled {
    state: State,
    folder: Arc<str>,
}

enum State {
    Written(File),
    Read(Box<StreamReader<BufReader<File>>>),
    Done,
}

impl Spilled {
    /// From here on it is read.
    pub(super) fn read(&mut self) -> Result<(), SpillError> {
        let State::Written(mut file) = std::mem::replace(&mut self.state, State::Done) else { return Ok(()) };
        let reader = file
            .seek(SeekFrom::Start(0))
            .map_err(ArrowError::from)
            .and_then(|_| StreamReader::try_new(BufReader::with_capacity(64 << 10, file), None));
        self.state = State::Read(Box::new(reader.map_err(|error| self.disk(error))?));
        Ok(())
    }

    /// Its next rows.
    pub(super) fn next_rows(&mut self) -> Result<Option<RecordBatch>, SpillError> {
        let State::Read(reader) = &mut self.state else { return Ok(None) };
        match reader.next() {
            Some(Ok(rows)) => Ok(Some(rows)),
            Some(Err(error)) => Err(self.disk(error)),
            None => {
                self.state = State::Done;
                Ok(None)
            }
        }
    }

    fn disk(&self, source: ArrowError) -> SpillError {
        SpillError::Disk { folder: self.folder.to_string(), source }
    }
}
