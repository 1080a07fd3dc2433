//! The folder of an experiment's results: made new each time, with a manifest that says how they came about.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::clock::Moment;

const SCHEMA: &str = "tuplane/experiment/1";
const MANIFEST: &str = "manifest.json";

/// How far an experiment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It runs; or it was killed, if no process of it is there.
    Running,
    /// All runs are done.
    Complete,
    /// It was interrupted or failed: `why` says which.
    Incomplete,
}

/// What a folder's results are of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// `tuplane/experiment/1`.
    pub schema: String,
    /// The experiment.
    pub name: String,
    /// How far it is.
    pub state: State,
    /// Why it is incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The command line.
    pub command: Vec<String>,
    /// All options, defaults included: with them the experiment can be taken up again.
    pub options: Value,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Programs that had a part in it.
    pub versions: Value,
    /// A number of all that was read: with other files it is another.
    #[serde(default)]
    pub inputs: String,
    /// The machine.
    pub host: Value,
    /// When it began.
    pub started: String,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Runs that are planned.
    pub runs: usize,
    /// Runs that are done.
    pub done: usize,
}

impl Manifest {
    /// Of an experiment that begins now, on this machine.
    pub fn new(name: &str, options: Value, seeds: Vec<u64>, runs: usize) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            name: name.to_owned(),
            state: State::Running,
            why: None,
            command: std::env::args().collect(),
            options,
            seeds,
            versions: versions(),
            inputs: String::new(),
            host: host(),
            started: Moment::now().rfc3339(),
            ended: None,
            runs,
            done: 0,
        }
    }
}

/// A number of some bytes, which others have another of in all likelihood.
pub(super) fn digest(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("{:016x}", hasher.finish())
}

/// This program: its version, and a number of the file that runs, which another build has another of.
fn versions() -> Value {
    let build = std::env::current_exe().and_then(std::fs::read).map(|program| digest(&program));
    serde_json::json!({ "tuplane-testbed": env!("CARGO_PKG_VERSION"), "build": build.ok() })
}

/// What figures that were taken here depend on.
fn host() -> Value {
    let system = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    serde_json::json!({
        "name": text(system.nodename()),
        "system": text(system.sysname()),
        "release": text(system.release()),
        "machine": text(system.machine()),
        "processors": std::thread::available_parallelism().map_or(1, usize::from),
    })
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The system refused.
    #[error("{what} {path}: {cause}", path = path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// There is nothing to go on with.
    #[error("{path}: {why}", path = path.display())]
    Unfit {
        /// Which folder.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_owned();
    move |cause| FolderError::System { what, path, cause }
}

/// A folder of results.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    manifest: Manifest,
}

impl Folder {
    /// Makes `<out>/<name>-<time>`, or with a number behind it where that is taken: what stands there is kept.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn make(out: &Path, manifest: Manifest) -> Result<Self, FolderError> {
        std::fs::create_dir_all(out).map_err(system("cannot make", out))?;
        let name = format!("{}-{}", manifest.name, Moment::now().name());
        for number in 1.. {
            let path = out.join(if number == 1 { name.clone() } else { format!("{name}-{number}") });
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    let folder = Self { path, manifest };
                    folder.save()?;
                    return Ok(folder);
                }
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
                Err(cause) => return Err(system("cannot make", &path)(cause)),
            }
        }
        unreachable!("some number is free")
    }

    /// Opens the folder of an experiment of this name that has not come to its end, and that this build began.
    ///
    /// # Errors
    /// If there is none, it is complete, or another build began it: its runs might have other figures.
    pub fn open(path: &Path, name: &str) -> Result<Self, FolderError> {
        let unfit = |why: String| FolderError::Unfit { path: path.to_owned(), why };
        let manifest = path.join(MANIFEST);
        let text = std::fs::read_to_string(&manifest).map_err(system("cannot read", &manifest))?;
        let manifest: Manifest = serde_json::from_str(&text)
            .map_err(|cause| unfit(format!("its {MANIFEST} cannot be read: {cause}")))?;
        if manifest.schema != SCHEMA {
            return Err(unfit(format!("its {MANIFEST} is of schema {}, not {SCHEMA}", manifest.schema)));
        }
        if manifest.name != name {
            return Err(unfit(format!("it has results of {}, not of {name}", manifest.name)));
        }
        if manifest.state == State::Complete {
            return Err(unfit("all its runs are done: there is nothing to go on with".to_owned()));
        }
        let now = versions();
        if manifest.versions != now {
            return Err(unfit(format!(
                "another build of the program began it ({}; this one is {now}), whose runs may have other figures: go on \
                 with that one, or begin anew",
                manifest.versions
            )));
        }
        Ok(Self { path: path.to_owned(), manifest })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How its results came about.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Says how many runs are planned, and the digest of what they read.
    ///
    /// # Errors
    /// If the manifest cannot be written.
    pub fn plan(&mut self, runs: usize, inputs: String) -> Result<(), FolderError> {
        self.manifest.runs = runs;
        self.manifest.inputs = inputs;
        self.save()
    }

    /// The runs that are left read what those that are there have read.
    ///
    /// # Errors
    /// If it is something else by now.
    pub fn check(&self, inputs: &str) -> Result<(), FolderError> {
        if self.manifest.inputs == inputs {
            return Ok(());
        }
        let why = "the trace or a file of the set-up has changed since it began: put the old one back, or begin anew";
        Err(FolderError::Unfit { path: self.path.clone(), why: why.to_owned() })
    }

    /// Takes the folder away again: nothing came of it.
    pub fn discard(self) {
        // Left behind it says that it is not complete.
        let _ = std::fs::remove_dir_all(&self.path);
    }

    /// Says how far the experiment is.
    ///
    /// # Errors
    /// If the manifest cannot be written.
    pub fn mark(&mut self, state: State, why: Option<String>, done: usize) -> Result<(), FolderError> {
        self.manifest.state = state;
        self.manifest.why = why;
        self.manifest.done = done;
        self.manifest.ended = (state != State::Running).then(|| Moment::now().rfc3339());
        self.save()
    }

    /// Writes a file of results whole: it is the old or the new one at any time.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, contents: &[u8]) -> Result<PathBuf, FolderError> {
        let (path, draft) = (self.path.join(name), self.path.join(format!(".{name}.new")));
        std::fs::write(&draft, contents).map_err(system("cannot write", &draft))?;
        std::fs::rename(&draft, &path).map_err(system("cannot write", &path))?;
        Ok(path)
    }

    /// Opens a file of results to add to it.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn append(&self, name: &str) -> Result<File, FolderError> {
        let path = self.path.join(name);
        File::options().create(true).append(true).open(&path).map_err(system("cannot write", &path))
    }

    fn save(&self) -> Result<(), FolderError> {
        let text = serde_json::to_string_pretty(&self.manifest)
            .map_err(|cause| FolderError::Unfit { path: self.path.clone(), why: cause.to_string() })?;
        let text = format!("{text}\n");
        self.write(MANIFEST, text.as_bytes()).map(drop).or_else(|cause| {
            // A full disk has no room for another file; the one that is there keeps its own.
            let there = File::options().write(true).open(self.path.join(MANIFEST));
            let written = there.and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.set_len(text.len() as u64)
            });
            written.map_err(|_| cause)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest::new("trial", serde_json::json!({ "slots": 5 }), vec![1, 2], 4)
    }

    #[test]
    fn a_folder_is_made_anew_and_what_is_there_stays() {
        let out = tempfile::tempdir().unwrap();
        let one = Folder::make(out.path(), manifest()).unwrap();
        one.write("runs.csv", b"kept").unwrap();
        let other = Folder::make(out.path(), manifest()).unwrap();
        assert_ne!(one.path(), other.path());
        assert_eq!(std::fs::read(one.path().join("runs.csv")).unwrap(), b"kept");
        assert!(!other.path().join("runs.csv").exists());
    }

    #[test]
    fn what_another_build_began_is_not_gone_on_with() {
        let out = tempfile::tempdir().unwrap();
        let mut older = manifest();
        older.versions["build"] = "0123456789abcdef".into();
        let folder = Folder::make(out.path(), older).unwrap();
        let refused = Folder::open(folder.path(), "trial").unwrap_err().to_string();
        assert!(refused.contains("0123456789abcdef") && refused.ends_with("or begin anew"), "{refused}");
    }

    #[test]
    fn what_reads_other_files_by_now_is_not_gone_on_with() {
        let out = tempfile::tempdir().unwrap();
        let mut folder = Folder::make(out.path(), manifest()).unwrap();
        folder.plan(4, digest(b"a trace")).unwrap();
        let again = Folder::open(folder.path(), "trial").unwrap();
        assert!(again.check(&digest(b"a trace")).is_ok());
        let changed = again.check(&digest(b"another")).unwrap_err().to_string();
        assert!(changed.contains("has changed since it began"), "{changed}");
    }

    #[test]
    fn where_no_file_can_be_made_the_manifest_that_is_there_is_written() {
        let out = tempfile::tempdir().unwrap();
        let mut folder = Folder::make(out.path(), manifest()).unwrap();
        // Stands in the way of the draft, as a full disk does.
        std::fs::create_dir(folder.path().join(format!(".{MANIFEST}.new"))).unwrap();
        folder.mark(State::Incomplete, Some("no room".to_owned()), 1).unwrap();
        let again = Folder::open(folder.path(), "trial").unwrap();
        assert_eq!((again.manifest().state, again.manifest().done), (State::Incomplete, 1));
        folder.mark(State::Running, None, 1).unwrap();
        assert_eq!(Folder::open(folder.path(), "trial").unwrap().manifest().why, None);
    }

    #[test]
    fn what_is_incomplete_can_be_gone_on_with_and_what_is_complete_cannot() {
        let out = tempfile::tempdir().unwrap();
        let mut folder = Folder::make(out.path(), manifest()).unwrap();
        folder.mark(State::Incomplete, Some("interrupted".to_owned()), 1).unwrap();
        let mut again = Folder::open(folder.path(), "trial").unwrap();
        assert_eq!((again.manifest().done, again.manifest().why.as_deref()), (1, Some("interrupted")));
        assert_eq!(again.manifest().options["slots"], 5);
        let other = Folder::open(folder.path(), "another").unwrap_err().to_string();
        assert!(other.ends_with("it has results of trial, not of another"), "{other}");
        again.mark(State::Complete, None, 4).unwrap();
        let done = Folder::open(folder.path(), "trial").unwrap_err().to_string();
        assert!(done.ends_with("there is nothing to go on with"), "{done}");
        assert!(Folder::open(out.path(), "trial").is_err());
    }
}
