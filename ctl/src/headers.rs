//! Names of columns that only the header of a csv file knows, read here so that `check` has them too.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tuplane_core::fault::{Fault, suggestion};
use tuplane_core::job::files::{self, Entry};
use tuplane_core::job::{FileSource, Files, Format, Job, Op, SourceConnector};

/// The header must end within so many bytes of the file's beginning.
const LONGEST: u64 = 1 << 20;

/// What the headers of a job's shared files say.
#[derive(Debug, Default)]
pub(crate) struct Headers {
    /// The names, by the id of the source stage.
    pub(crate) names: BTreeMap<String, Vec<String>>,
    /// Headers that cannot be read, each with its stage.
    pub(crate) unread: Vec<Fault>,
    /// Columns that a header does not have.
    pub(crate) missing: Vec<Fault>,
}

impl Headers {
    /// Looks into the first file of each source that has a header: for its columns' names, or whether it has those
    /// that the job names. Paths must be absolute.
    pub(crate) fn read(job: &Job) -> Self {
        let mut headers = Self::default();
        for stage in &job.stages {
            let Op::Source(source) = &stage.op else { continue };
            let Some(SourceConnector::File(file)) = &source.connector else { continue };
            let Some(path) = file.paths.first().filter(|_| has_header(file)) else { continue };
            match names(&path.value, file.delimiter) {
                Ok(names) if !file.columns.is_empty() => {
                    let missing = file.columns.iter().filter(|(column, _)| !names.contains(&column.value));
                    headers.missing.extend(missing.map(|(column, _)| {
                        let hint = suggestion(&column.value, names.iter().map(String::as_str)).map_or_else(
                            || format!("it has: {}", names.join(", ")),
                            |near| format!("did you mean `{near}`?"),
                        );
                        let message =
                            format!("the header of {} has no column `{}`", path.value, column.value);
                        Fault::new(column.at, message).help(hint).stage(&stage.id)
                    }));
                }
                // The agents may reach what cannot be looked at from here.
                Err(_) if !file.columns.is_empty() => {}
                Ok(names) => {
                    headers.names.insert(stage.id.clone(), names);
                }
                Err(why) => headers.unread.push(
                    Fault::new(path.at, why)
                        .help("or name the columns in the job file: columns = { name = \"type\" }")
                        .stage(&stage.id),
                ),
            }
        }
        headers
    }
}

/// An agent's own files are on its machine and not here.
fn has_header(file: &FileSource) -> bool {
    file.format == Format::Csv && file.header && file.files == Files::Shared
}

/// The fields of a file's first record; `Err` says why they are not known.
fn names(path: &str, delimiter: char) -> Result<Vec<String>, String> {
    if path == "-" {
        return Err("the header of standard input is not known before the job runs".to_owned());
    }
    let file = first(path)?;
    let fail = |cause: io::Error| format!("cannot read the header of {}: {cause}", file.display());
    // Whoever opened a pipe here would wait for its writer, and take what it writes from the job.
    if !fs::metadata(&file).map_err(fail)?.is_file() {
        return Err(format!("{} is no regular file, so its header cannot be looked at", file.display()));
    }
    let mut bytes = Vec::new();
    File::open(&file).and_then(|opened| opened.take(LONGEST).read_to_end(&mut bytes)).map_err(fail)?;
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    if text.is_empty() {
        return Err(format!("{} is empty: it has no header", file.display()));
    }
    let delimiter = u8::try_from(delimiter).map_err(|_| format!("{delimiter:?} is no csv delimiter"))?;
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).delimiter(delimiter).from_reader(text);
    let mut record = csv::ByteRecord::new();
    reader
        .read_byte_record(&mut record)
        .map_err(|cause| format!("cannot read the header of {}: {cause}", file.display()))?;
    Ok(record.iter().map(name).collect())
}

/// A name that is not UTF-8 is taken as Latin-1, as agents do.
fn name(field: &[u8]) -> String {
    match std::str::from_utf8(field) {
        Ok(name) => name.to_owned(),
        Err(_) => field.iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// The file of that name, else the first that matches it as a pattern.
fn first(path: &str) -> Result<PathBuf, String> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Err(format!("{path} is a folder; name files in it: {path}/*")),
        Ok(_) => return Ok(PathBuf::from(path)),
        Err(cause) if !files::is_pattern(path) => {
            return Err(format!("cannot read the header of {path}: {cause}"));
        }
        Err(_) => {}
    }
    let found = files::matching(path, Path::new("/"), list).map_err(|refused| match refused {
        files::NoMatching::Pattern(cause) => format!("`{path}` is not a pattern for files: {cause}"),
        files::NoMatching::Folder(folder, cause) => format!("cannot read {}: {cause}", folder.display()),
    })?;
    found.files.into_iter().next().ok_or_else(|| format!("no file matches `{path}`"))
}

/// What stands in a folder; nothing if it is not there.
fn list(folder: &Path) -> io::Result<Vec<Entry>> {
    let entries = match fs::read_dir(folder) {
        Err(cause) if matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let entry = |entry: fs::DirEntry| {
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        let is_folder = fs::metadata(entry.path()).is_ok_and(|meta| meta.is_dir());
        Entry { name: entry.file_name(), is_folder, is_link }
    };
    Ok(entries.filter_map(Result::ok).map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_file_gives_the_names() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        fs::write(at("b.csv"), "x;y\n").unwrap();
        fs::write(at("a.csv"), b"\xef\xbb\xbfid;\"the; name\";caf\xe9\n1;2;3\n").unwrap();
        fs::write(at("empty"), "").unwrap();
        let named = Ok(vec!["id".to_owned(), "the; name".to_owned(), "caf\u{e9}".to_owned()]);
        assert_eq!(names(&at("*.csv"), ';'), named);
        assert_eq!(names(&at("b.csv"), ','), Ok(vec!["x;y".to_owned()]));
        for (path, why) in [
            ("none.csv", "none.csv"),
            ("*.tsv", "no file matches"),
            ("empty", "is empty"),
            ("", "is a folder"),
        ] {
            let said = names(&at(path), ',').unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        assert!(names("-", ',').unwrap_err().contains("standard input"));
    }
}
