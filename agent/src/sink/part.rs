//! Part files: written hidden, made visible by a rename once the job has finished.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tuplane_wire::message::SinkFile;

use super::{SinkContext, SinkError};

const BUFFER: usize = 256 << 10;
const SUFFIX: &str = ".part";
const SYNC: &str = "write to disk";

/// The part files that sinks of one run have made, so that they can be named when it stops, and the folders
/// that were made for them.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    files: Arc<Mutex<BTreeMap<String, SinkFile>>>,
    folders: Arc<Mutex<Vec<PathBuf>>>,
}

impl Parts {
    fn note(&self, file: SinkFile) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(file.path.clone(), file);
    }

    fn note_folders(&self, made: impl IntoIterator<Item = PathBuf>) {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner).extend(made);
    }

    /// Those that are still there, with their length on disk. Looks at the files.
    pub fn left(&self) -> Vec<SinkFile> {
        let noted = self.files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let left = |file: SinkFile| Some(SinkFile { bytes: fs::metadata(&file.path).ok()?.len(), ..file });
        noted.into_values().filter_map(left).collect()
    }

    /// Removes them, and the folders that are empty without them; gives those that could not be removed.
    pub fn remove(&self) -> Vec<SinkFile> {
        let mut left = self.left();
        left.retain(|file| match fs::remove_file(&file.path) {
            Ok(()) => false,
            Err(error) => {
                tracing::warn!(path = file.path, %error, "a part file cannot be removed");
                true
            }
        });
        for folder in std::mem::take(&mut *self.folders.lock().unwrap_or_else(PoisonError::into_inner)) {
            // One that is not empty has somebody's files, and another instance may have removed it already.
            let _ = fs::remove_dir(folder);
        }
        left
    }
}

/// Folder and name of an instance's files.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    folder: PathBuf,
    /// `NAME-<instance>-<attempt>`.
    name: String,
    extension: &'static str,
    agent: String,
    stage: String,
    parts: Parts,
}

impl Place {
    /// Files of a stage in a folder, relative to the agent's own if it is relative.
    pub(crate) fn in_folder(path: &str, extension: &'static str, context: &SinkContext) -> Self {
        Self::new(context.folder.join(path), &context.stage, extension, context)
    }

    /// Files that stand for standard output.
    pub(super) fn stdout(extension: &'static str, context: &SinkContext) -> Self {
        // The agent's folder is every run's, so the run is in the name.
        let name = format!("stdout-{}-{}", context.run, context.stage);
        Self::new(context.folder.clone(), &name, extension, context)
    }

    fn new(folder: PathBuf, name: &str, extension: &'static str, context: &SinkContext) -> Self {
        Self {
            folder,
            name: format!("{name}-{}-{}", context.instance_number, context.attempt),
            extension,
            agent: context.agent.clone(),
            stage: context.stage.clone(),
            parts: context.parts.clone(),
        }
    }

    /// Makes the folder, and sees that files can be made in it: before the job's rows flow, since an aggregate's
    /// first result may come hours later.
    pub(crate) fn make_ready(self) -> Result<Self, SinkError> {
        if fs::metadata(&self.folder).is_ok_and(|found| !found.is_dir()) {
            let message = format!("{} is a file; a sink writes into a folder", self.folder.display());
            return Err(SinkError::Refused(message));
        }
        let missing = self.folder.ancestors().take_while(|folder| !folder.exists());
        let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        let made = fs::create_dir_all(&self.folder);
        self.parts.note_folders(missing);
        made.map_err(|cause| SinkError::file("make the folder", &self.folder, cause))?;
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        rustix::fs::access(&self.folder, access)
            .map_err(|cause| SinkError::file("write into", &self.folder, cause.into()))?;
        Ok(self)
    }

    fn visible(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{}-{number}.{}", self.name, self.extension))
    }

    fn file(&self, path: &Path, rows: u64, bytes: u64) -> SinkFile {
        let path = path.display().to_string();
        SinkFile { agent: self.agent.clone(), stage: self.stage.clone(), path, rows, bytes }
    }
}

/// The hidden name of a visible file: `.NAME.part` beside it.
fn hidden(visible: &Path) -> PathBuf {
    let name = visible.file_name().unwrap_or_default().to_string_lossy();
    visible.with_file_name(format!(".{name}{SUFFIX}"))
}

/// The visible name of a hidden file, if it is one.
fn unhidden(part: &Path) -> Option<PathBuf> {
    let name = part.file_name()?.to_str()?.strip_prefix('.')?.strip_suffix(SUFFIX)?;
    Some(part.with_file_name(name))
}

/// An open part file.
#[derive(Debug)]
pub(crate) struct Part {
    place: Place,
    path: PathBuf,
    writer: BufWriter<File>,
    rows: u64,
    bytes: u64,
}

impl Part {
    /// Opens the first part whose names are free: neither another run's results nor another's part
    /// is ever written to.
    pub(crate) fn create(place: &Place) -> Result<Self, SinkError> {
        fs::create_dir_all(&place.folder)
            .map_err(|cause| SinkError::file("make the folder", &place.folder, cause))?;
        let mut number = 0;
        loop {
            let visible = place.visible(number);
            let path = hidden(&visible);
            number += 1;
            if exists(&visible)? {
                continue;
            }
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    let writer = BufWriter::with_capacity(BUFFER, file);
                    place.parts.note(place.file(&path, 0, 0));
                    return Ok(Self { place: place.clone(), path, writer, rows: 0, bytes: 0 });
                }
                Err(cause) if cause.kind() == ErrorKind::AlreadyExists => {}
                Err(cause) => return Err(SinkError::file("create", &path, cause)),
            }
        }
    }

    /// Opens an existing file in the place of a new part.
    #[cfg(test)]
    pub(super) fn create_at(place: &Place, path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).open(path)?;
        let writer = BufWriter::with_capacity(BUFFER, file);
        Ok(Self { place: place.clone(), path: path.to_owned(), writer, rows: 0, bytes: 0 })
    }

    /// Appends bytes that hold so many rows.
    pub(crate) fn append(&mut self, bytes: &[u8], rows: usize) -> Result<(), SinkError> {
        self.writer.write_all(bytes).map_err(|cause| SinkError::file("write to", &self.path, cause))?;
        self.rows += rows as u64;
        self.bytes += bytes.len() as u64;
        self.place.parts.note(self.place.file(&self.path, self.rows, self.bytes));
        Ok(())
    }

    /// Everything is on disk when this returns.
    pub(crate) fn finish(mut self) -> Result<SinkFile, SinkError> {
        self.writer
            .flush()
            .and_then(|()| self.writer.get_ref().sync_all())
            .map_err(|cause| SinkError::file(SYNC, &self.path, cause))?;
        Ok(self.place.file(&self.path, self.rows, self.bytes))
    }
}

/// Renames finished parts to their visible names and returns the visible files. Doing it again
/// changes nothing and returns the same.
pub fn seal(parts: &[SinkFile]) -> Result<Vec<SinkFile>, SinkError> {
    let mut sealed = Vec::with_capacity(parts.len());
    let mut folders: Vec<PathBuf> = Vec::new();
    for part in parts {
        let path = Path::new(&part.path);
        let visible = match unhidden(path) {
            Some(visible) => visible,
            None => path.to_owned(),
        };
        if visible != path && exists(path)? {
            if exists(&visible)? {
                return Err(SinkError::Refused(format!(
                    "{} exists already: its rows are another run's and are kept; this run's are in {}",
                    visible.display(),
                    part.path
                )));
            }
            fs::rename(path, &visible).map_err(|cause| SinkError::file("rename", path, cause))?;
            folders.extend(visible.parent().map(Path::to_owned));
        } else if !exists(&visible)? {
            let cause = io::Error::from(ErrorKind::NotFound);
            return Err(SinkError::file("make visible", path, cause));
        }
        sealed.push(SinkFile { path: visible.display().to_string(), ..part.clone() });
    }
    folders.sort();
    folders.dedup();
    for folder in folders {
        sync_folder(&folder)?;
    }
    Ok(sealed)
}

/// Makes a visible file that holds `header` and no row.
pub(super) fn empty(place: &Place, header: &[u8]) -> Result<SinkFile, SinkError> {
    let mut number = 0;
    while let visible = place.visible(number)
        && exists(&visible)?
    {
        let is = fs::read(&visible).map_err(|cause| SinkError::file("read", &visible, cause))?;
        if is == header {
            return Ok(place.file(&visible, 0, header.len() as u64));
        }
        number += 1;
    }
    let mut part = Part::create(place)?;
    part.append(header, 0)?;
    let mut sealed = seal(&[part.finish()?])?;
    sealed.pop().ok_or_else(|| SinkError::Refused("no file was made visible".to_owned()))
}

fn exists(path: &Path) -> Result<bool, SinkError> {
    path.try_exists().map_err(|cause| SinkError::file("look at", path, cause))
}

/// A rename is on disk only when its folder is.
fn sync_folder(folder: &Path) -> Result<(), SinkError> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|cause| SinkError::file(SYNC, folder, cause))
}
