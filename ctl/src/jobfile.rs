//! A job file: read, overridden, checked, its paths made absolute.

use std::path::{Path, PathBuf};

use tuplane_core::fault::Fault;
use tuplane_core::job::{FileFormat, Job, Op, SinkConnector, SourceConnector, Text, name_override};
use tuplane_core::plan::plan;

use crate::args::Overrides;
use crate::failure::{Failure, Outcome};
use crate::faults;
use crate::output::Output;

/// The largest job file that is read: anything longer is something else.
const LONGEST: u64 = 16 << 20;

/// A file and what the command line changes in it.
#[derive(Debug)]
pub(crate) struct JobFile {
    /// As it was given.
    pub(crate) name: String,
    /// Its text.
    pub(crate) text: String,
    path: PathBuf,
    sets: Vec<(String, String)>,
}

impl JobFile {
    /// Reads the text.
    pub(crate) fn read(path: &Path, overrides: &Overrides) -> Outcome<Self> {
        let refuse = |what: &str| Failure::Usage(format!("{} {what}", path.display()));
        let meta = std::fs::metadata(path).map_err(|cause| Failure::file("read", path, &cause))?;
        if meta.is_dir() {
            return Err(refuse("is a folder; give a job file"));
        }
        if meta.len() > LONGEST {
            return Err(refuse("is longer than 16 MiB; that is no job file"));
        }
        let bytes = std::fs::read(path).map_err(|cause| Failure::file("read", path, &cause))?;
        let text = String::from_utf8(bytes).map_err(|cause| {
            refuse(&format!("is not UTF-8 text (byte {})", cause.utf8_error().valid_up_to()))
        })?;
        Ok(Self {
            name: path.display().to_string(),
            text,
            path: path.to_owned(),
            sets: overrides.sets.clone(),
        })
    }

    /// The job's structure, its paths absolute.
    pub(crate) fn parse(&self) -> Result<Job, Vec<Fault>> {
        let mut job = Job::parse_with(&self.text, FileFormat::guess(&self.name, &self.text), &self.sets)?;
        self.place_paths(&mut job).map_err(|fault| vec![fault])?;
        Ok(job)
    }

    /// All that a run needs: structure, functions, connectors, plan and types; every fault that
    /// can be found together.
    pub(crate) fn check(&self) -> Result<Job, Vec<Fault>> {
        let job = self.parse()?;
        let mut faults = job.runnable().err().unwrap_or_default();
        // What was said of a place once is not said again by the next check.
        let later = plan(&job).err().map(|error| error.fault).into_iter().chain(types(&job));
        for fault in later {
            if !faults.iter().any(|known| known.at == fault.at) {
                faults.push(fault);
            }
        }
        faults.sort_by_key(|fault| fault.at);
        for fault in &mut faults {
            name_override(fault, &self.sets);
        }
        if faults.is_empty() { Ok(job) } else { Err(faults) }
    }

    /// As [`check`](Self::check), where faults end the command: they are shown on standard error.
    pub(crate) fn ready(&self, output: &mut Output) -> Outcome<Job> {
        self.check().map_err(|faults| self.refuse(&faults, output))
    }

    /// Shows faults on standard error, and in documents as an error's list.
    pub(crate) fn refuse(&self, faults: &[Fault], output: &mut Output) -> Failure {
        output.aside(&faults::render(&self.name, &self.text, faults, output.error_colors()));
        if !output.is_text() {
            let listed: Vec<faults::FaultView<'_>> = faults.iter().map(Into::into).collect();
            let body = serde_json::json!({
                "kind": "refused",
                "message": format!("{} cannot be run as it is", self.name),
                "exit": Failure::Shown.code(),
                "file": self.name,
                "faults": listed,
            });
            if let Err(failure) = output.document("error", &body) {
                return failure;
            }
        }
        Failure::Shown
    }

    /// Paths from the command line count from the present folder, those of the file from its own.
    fn place_paths(&self, job: &mut Job) -> Result<(), Fault> {
        let broken = |cause: std::io::Error| {
            Fault::new(
                tuplane_core::fault::At::default(),
                format!("the present folder cannot be read: {cause}"),
            )
        };
        let own = std::path::absolute(&self.path).map_err(broken)?;
        let present = std::env::current_dir().map_err(broken)?;
        for path in paths(job) {
            // An override has no line but a column.
            let given_here = path.at.line == 0 && path.at.column > 0;
            if given_here && path.value != "-" && !path.value.is_empty() {
                path.value = present.join(&path.value).display().to_string();
            }
        }
        let folder = own.parent().unwrap_or(Path::new("/"));
        job.rebase(&folder.display().to_string());
        Ok(())
    }
}

/// Makes paths that each agent takes for itself absolute, from the present folder: for agents on this
/// machine, whose own folders go when they end.
pub(crate) fn place_own_paths(job: &mut Job) -> Outcome {
    let present = std::env::current_dir()
        .map_err(|cause| Failure::Usage(format!("the present folder cannot be read: {cause}")))?;
    // Shared ones are absolute already.
    for path in paths(job) {
        if path.value != "-" && !path.value.is_empty() {
            path.value = present.join(&path.value).display().to_string();
        }
    }
    Ok(())
}

/// Paths of file sources and sinks.
fn paths(job: &mut Job) -> impl Iterator<Item = &mut Text> {
    job.stages.iter_mut().flat_map(|stage| match &mut stage.op {
        Op::Source(source) => match &mut source.connector {
            Some(SourceConnector::File(file)) => file.paths.iter_mut().collect(),
            _ => Vec::new(),
        },
        Op::Sink(sink) => match &mut sink.connector {
            Some(SinkConnector::File { path, .. } | SinkConnector::Ledger { path, .. }) => vec![path],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    })
}

/// Faults of expressions and types.
fn types(job: &Job) -> Vec<Fault> {
    tuplane_expr::resolve(job).err().unwrap_or_default()
}

/// The stages whose source reads standard input (`path = "-"`).
pub(crate) fn reads_stdin(job: &Job) -> Vec<String> {
    job.stages
        .iter()
        .filter(|stage| match &stage.op {
            Op::Source(source) => match &source.connector {
                Some(SourceConnector::File(file)) => file.paths.iter().any(|path| path.value == "-"),
                _ => false,
            },
            _ => false,
        })
        .map(|stage| stage.id.clone())
        .collect()
}

/// Puts a file in the place of standard input.
pub(crate) fn replace_stdin(job: &mut Job, file: &Path) {
    for path in paths(job) {
        if path.value == "-" {
            path.value = file.display().to_string();
        }
    }
}
