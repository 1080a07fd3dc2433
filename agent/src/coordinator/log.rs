//! The coordinator's log on disk: numbered commands in redb, synced batch by batch.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};
use tuplane_core::cluster::Logged;
use tuplane_wire::codec::Payload;
use tuplane_wire::version::ControlVersion;

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("commands");

/// The log is read once and then only appended to.
const CACHE: usize = 1 << 20;

/// A log that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The folder or file cannot be opened.
    #[error("cannot open the coordinator's log {}: {cause}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// What stands in it cannot be read.
    #[error(
        "the coordinator's log {} cannot be read at entry {entry}: {cause}; move the file away to begin anew",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Which entry.
        entry: u64,
        /// Why.
        cause: String,
    },
    /// It cannot be written.
    #[error("cannot write the coordinator's log {}: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
}

/// An open log.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    database: Arc<Database>,
    next: u64,
}

impl Log {
    /// Opens the log in a folder, or makes it; gives what stands in it.
    pub(super) fn open(folder: &Path) -> Result<(Self, Vec<Logged>), LogError> {
        let path = folder.join("cluster.redb");
        let fault = |cause: String| LogError::Open { path: path.clone(), cause };
        make_private(folder).map_err(|e| fault(e.to_string()))?;
        let database =
            Builder::new().set_cache_size(CACHE).create(&path).map_err(|e| fault(e.to_string()))?;
        let entries = read(&database, &path)?;
        let next = entries.len() as u64;
        Ok((Self { path, database: Arc::new(database), next }, entries))
    }

    /// Appends entries; they are on disk when this returns.
    pub(super) async fn append(&mut self, entries: &[Logged]) -> Result<(), LogError> {
        let fault = |path: &Path, cause: String| LogError::Write { path: path.to_owned(), cause };
        let encoded: Result<Vec<_>, _> =
            entries.iter().map(|entry| Payload::encode(ControlVersion::MAX, entry)).collect();
        let encoded = encoded.map_err(|e| fault(&self.path, e.to_string()))?;
        let (database, first) = (self.database.clone(), self.next);
        self.next += encoded.len() as u64;
        // A sync may take long, and this runtime also serves everybody else.
        let written = tokio::task::spawn_blocking(move || write(&database, first, &encoded)).await;
        written.map_err(|e| fault(&self.path, e.to_string()))?.map_err(|e| fault(&self.path, e.to_string()))
    }
}

#[cfg(unix)]
fn make_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
fn make_private(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

fn read(database: &Database, path: &Path) -> Result<Vec<Logged>, LogError> {
    let fault = |entry: u64, cause: String| LogError::Read { path: path.to_owned(), entry, cause };
    let reading = database.begin_read().map_err(|e| fault(0, e.to_string()))?;
    let table = match reading.open_table(TABLE) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(e) => return Err(fault(0, e.to_string())),
    };
    let mut entries = Vec::new();
    for row in table.iter().map_err(|e| fault(0, e.to_string()))? {
        let expected = entries.len() as u64;
        let (number, bytes) = row.map_err(|e| fault(expected, e.to_string()))?;
        if number.value() != expected {
            return Err(fault(expected, format!("entry {} follows instead", number.value())));
        }
        let payload = Payload::from_bytes(bytes.value().to_vec());
        entries.push(payload.decode().map_err(|e| fault(expected, e.to_string()))?);
    }
    Ok(entries)
}

fn write(database: &Database, first: u64, entries: &[Payload]) -> Result<(), redb::Error> {
    let writing = database.begin_write()?;
    {
        let mut table = writing.open_table(TABLE)?;
        for (number, entry) in (first..).zip(entries) {
            table.insert(number, entry.as_bytes())?;
        }
    }
    writing.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tuplane_core::cluster::Command;

    use super::*;

    fn entries(numbers: std::ops::Range<u64>) -> Vec<Logged> {
        numbers.map(|at_ms| Logged { at_ms, command: Command::Prepared { run: at_ms } }).collect()
    }

    #[tokio::test]
    async fn what_was_appended_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let (mut log, found) = Log::open(folder.path()).unwrap();
        assert!(found.is_empty());
        log.append(&entries(0..3)).await.unwrap();
        log.append(&entries(3..5)).await.unwrap();
        // Two coordinators with one log would each go their own way.
        let error = Log::open(folder.path()).unwrap_err();
        assert!(matches!(error, LogError::Open { .. }), "{error}");
        drop(log);
        let (mut log, found) = Log::open(folder.path()).unwrap();
        assert_eq!(found, entries(0..5));
        log.append(&entries(5..6)).await.unwrap();
        drop(log);
        assert_eq!(Log::open(folder.path()).unwrap().1, entries(0..6));
    }

    #[test]
    fn a_log_that_cannot_be_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cluster.redb"), b"this is no log at all".repeat(400)).unwrap();
        let error = Log::open(folder.path()).unwrap_err();
        assert!(error.to_string().contains("cluster.redb"), "{error}");
    }

    #[test]
    fn an_entry_of_another_format_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (log, _) = Log::open(folder.path()).unwrap();
        let good = Payload::encode(ControlVersion::MAX, &entries(0..1)[0]).unwrap();
        write(&log.database, 0, &[good, Payload::from_bytes(vec![0, 77, 1])]).unwrap();
        drop(log);
        let text = Log::open(folder.path()).unwrap_err().to_string();
        assert!(text.contains("entry 1") && text.contains("version 77"), "{text}");
    }
}
