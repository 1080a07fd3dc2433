//! Which files a file source reads, and how they are cut into splits.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use tuplane_core::cluster::types::FileState;
use tuplane_core::job::files::{self, Entry, NoMatching};
use tuplane_core::job::{self, FileSource, Format};
use tuplane_wire::message::Split;

use super::SourceError;

/// A smaller byte range costs more to hand out than to read.
const SMALLEST: u64 = 256 << 10;
/// A larger one leaves instances idle at the end.
const LARGEST: u64 = 16 << 20;
/// Ranges per instance, so that a slow one does not hold up the rest.
const PER_INSTANCE: u64 = 4;
/// More files than this are refused: the list travels in control messages.
const MOST_FILES: usize = 100_000;
/// A header that is longer than this is none.
const LONGEST_HEADER: u64 = 1 << 20;

/// The splits of a source as this machine sees its files, for so many instances: all of the cluster's that
/// read them, or with `files = "each"` those of this agent.
pub fn splits(source: &FileSource, folder: &Path, instances: u32) -> Result<Vec<Split>, SourceError> {
    let files = expand(source, folder)?;
    let total: u64 = files.iter().filter_map(|(_, seen)| Some(seen.as_ref()?.bytes)).sum();
    let range = (total / (PER_INSTANCE * u64::from(instances.max(1)))).clamp(SMALLEST, LARGEST);
    let whole = !by_bytes(source);
    let mut splits = Vec::new();
    for (path, seen) in files {
        let path = path
            .into_os_string()
            .into_string()
            .map_err(|path| refused(format!("the name of `{}` is not UTF-8; rename it", path.display())))?;
        let ranges = match seen {
            Some(seen) if !whole => seen.bytes.div_ceil(range).max(1),
            _ => 1,
        };
        for place in 0..ranges {
            // The last range has no end, so that a file that grows meanwhile loses nothing.
            let end = if place + 1 == ranges { u64::MAX } else { (place + 1) * range };
            let number = splits.len() as u32;
            splits.push(Split { number, path: path.clone(), start: place * range, end, seen, done: None });
        }
    }
    Ok(splits)
}

/// A line end is a row's end only where no quotes can hold one.
fn by_bytes(source: &FileSource) -> bool {
    let lines = match source.format {
        Format::Lines | Format::Jsonl | Format::Regex { .. } => true,
        Format::Csv => !source.quoted_newlines,
        Format::Json => false,
    };
    lines && source.split != Some(job::Split::File)
}

/// All files of a source as they are now (`None`: a pipe or device, which has no size), each once.
fn expand(source: &FileSource, folder: &Path) -> Result<Vec<(PathBuf, Option<FileState>)>, SourceError> {
    let mut seen = HashSet::new();
    let mut files = Vec::new();
    for path in &source.paths {
        for path in matches(&path.value, folder)? {
            if !seen.insert(path.clone()) {
                continue;
            }
            if files.len() == MOST_FILES {
                return Err(refused(format!("more than {MOST_FILES} files; read them by several sources")));
            }
            let meta = fs::metadata(&path).map_err(|cause| SourceError::file("read", &path, cause))?;
            // A regular file is opened here so that a missing permission is known at submit; a pipe would block.
            if meta.is_file() {
                File::open(&path).map_err(|cause| SourceError::file("open", &path, cause))?;
            }
            files.push((path, meta.is_file().then(|| state(&meta))));
        }
    }
    Ok(files)
}

/// What tells this file from another one of its name.
fn state(meta: &fs::Metadata) -> FileState {
    FileState { bytes: meta.len(), machine: *MACHINE, device: meta.dev(), inode: meta.ino() }
}

/// This machine since it was started; 0 where it does not say. Agents on other machines see the same paths,
/// not the same devices.
static MACHINE: LazyLock<u64> = LazyLock::new(|| {
    fs::read("/proc/sys/kernel/random/boot_id").map_or(0, |id| xxhash_rust::xxh3::xxh3_64(&id))
});

/// Fails where a file is no more what it was when the job was submitted: it has become shorter, or another
/// one has its name. One that has grown is fine.
pub(super) fn check_unchanged(seen: &FileState, meta: &fs::Metadata, path: &Path) -> Result<(), SourceError> {
    let now = state(meta);
    let same_machine = seen.machine == now.machine && now.machine != 0;
    let replaced = same_machine && (seen.device, seen.inode) != (now.device, now.inode);
    if now.bytes >= seen.bytes && !replaced {
        return Ok(());
    }
    let how = if replaced { ": another file has its name" } else { "" };
    Err(refused(format!(
        "{} has changed while the job read it (was {} bytes, is {}){how}",
        path.display(),
        seen.bytes,
        now.bytes
    )))
}

/// The files that one path of a job means: itself if there is such a file, else what it matches as a pattern.
fn matches(text: &str, folder: &Path) -> Result<Vec<PathBuf>, SourceError> {
    let path = folder.join(text);
    match fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => {
            return Err(refused(format!(
                "`{}` is a folder; name files in it, for example `{}`",
                path.display(),
                path.join("*").display()
            )));
        }
        Ok(_) => return Ok(vec![path]),
        Err(cause) if !files::is_pattern(text) => {
            return Err(SourceError::file("read", &path, cause));
        }
        Err(_) => {}
    }
    let found = files::matching(text, folder, list).map_err(|why| match why {
        NoMatching::Pattern(cause) => refused(format!("`{text}` is not a pattern for files: {cause}")),
        NoMatching::Folder(folder, cause) => SourceError::file("read", &folder, cause),
    })?;
    for (folder, cause) in found.unreadable {
        tracing::warn!(folder = %folder.display(), %cause, pattern = text, "passed over: it cannot be read");
    }
    if found.files.is_empty() {
        return Err(refused(format!("no file matches `{}`", path.display())));
    }
    Ok(found.files.into_iter().collect())
}

/// What stands in a folder; nothing if it is not there or is none.
fn list(folder: &Path) -> io::Result<Vec<Entry>> {
    let entries = match fs::read_dir(folder) {
        Err(cause) if matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let entry = |entry: io::Result<fs::DirEntry>| {
        let entry = entry?;
        let kind = entry.file_type()?;
        let is_link = kind.is_symlink();
        let is_folder =
            if is_link { fs::metadata(entry.path()).is_ok_and(|meta| meta.is_dir()) } else { kind.is_dir() };
        Ok(Entry { name: entry.file_name(), is_folder, is_link })
    };
    entries.map(entry).collect()
}

/// The names in the first line of a csv file; none if it is empty.
pub fn csv_header(path: &Path, delimiter: char) -> Result<Vec<String>, SourceError> {
    let meta = fs::metadata(path).map_err(|cause| SourceError::file("open", path, cause))?;
    if !meta.is_file() {
        // Whoever read it here would wait for its writer, and take what it writes from the job.
        return Err(refused(format!(
            "{} is no regular file, so its header cannot be looked at; name the columns, without `header`",
            path.display()
        )));
    }
    let file = File::open(path).map_err(|cause| SourceError::file("open", path, cause))?;
    let mut bytes = Vec::new();
    // One block is nearly always enough; a long header is read on.
    let mut limited = file.take(64 << 10);
    loop {
        let read = limited.read_to_end(&mut bytes).map_err(|cause| SourceError::file("read", path, cause))?;
        if read == 0 || bytes.contains(&b'\n') || bytes.len() as u64 >= LONGEST_HEADER {
            break;
        }
        limited.set_limit(LONGEST_HEADER - bytes.len() as u64);
    }
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter_byte(delimiter)?)
        .from_reader(text);
    let mut record = csv::ByteRecord::new();
    let unreadable = |why: String| refused(format!("{}:1: the header cannot be read: {why}", path.display()));
    reader.read_byte_record(&mut record).map_err(|cause| unreadable(cause.to_string()))?;
    let mut names: Vec<String> = Vec::with_capacity(record.len());
    for field in &record {
        // A header that is not UTF-8 is taken as Latin-1, which any bytes are.
        let name = match std::str::from_utf8(field) {
            Ok(name) => name.to_owned(),
            Err(_) => field.iter().map(|byte| char::from(*byte)).collect(),
        };
        names.push(name);
    }
    Ok(names)
}

/// A csv delimiter as the byte that the format needs.
pub(super) fn delimiter_byte(delimiter: char) -> Result<u8, SourceError> {
    match u8::try_from(delimiter) {
        Ok(byte) if byte.is_ascii() && !b"\"\r\n".contains(&byte) => Ok(byte),
        _ => Err(refused(format!(
            "{delimiter:?} cannot be a csv delimiter; take an ASCII character other than a quote or a line end"
        ))),
    }
}

fn refused(message: String) -> SourceError {
    SourceError::Refused(message)
}
