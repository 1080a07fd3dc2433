//! A job file: read, overridden, checked, its paths made absolute.

use std::io::Read;
use std::path::{Path, PathBuf};

use tuplane_core::fault::Fault;
use tuplane_core::job::{FileFormat, Job, Op, SinkConnector, SourceConnector, Text, name_override};

use crate::args::Overrides;
use crate::failure::{Failure, Outcome};
use crate::faults;
use crate::headers::Headers;
use crate::output::Output;

/// The largest job file that is read: anything longer is something else.
const LONGEST: u64 = 16 << 20;

/// A job that can run, and what its file says in vain.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The job.
    pub(crate) job: Job,
    /// Options and stages that have no effect.
    pub(crate) warnings: Vec<Fault>,
}

/// A file and what the command line changes in it.
#[derive(Debug)]
pub(crate) struct JobFile {
    /// As it was given.
    pub(crate) name: String,
    /// Its text.
    pub(crate) text: String,
    path: PathBuf,
    sets: Vec<(String, String)>,
    /// In place of the name in the file.
    pub(crate) renamed: Option<String>,
}

impl JobFile {
    /// Reads the text; `-` is standard input.
    pub(crate) fn read(path: &Path, overrides: &Overrides) -> Outcome<Self> {
        let name = if is_stdin(path) { "<stdin>".to_owned() } else { path.display().to_string() };
        let refuse = |what: &str| Failure::Usage(format!("{name} {what}"));
        let too_long = || refuse("is longer than 16 MiB, which is the most that is read");
        let fail = |cause: std::io::Error| Failure::file("read", Path::new(&name), &cause);
        let mut bytes = Vec::new();
        if is_stdin(path) {
            std::io::stdin().lock().take(LONGEST + 1).read_to_end(&mut bytes).map_err(fail)?;
        } else {
            let meta = std::fs::metadata(path).map_err(fail)?;
            if meta.is_dir() {
                return Err(refuse("is a folder; give a file"));
            }
            if meta.len() > LONGEST {
                return Err(too_long());
            }
            // A device says nothing of its length.
            let file = std::fs::File::open(path).map_err(fail)?;
            file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(fail)?;
        }
        if bytes.len() as u64 > LONGEST {
            return Err(too_long());
        }
        let text = String::from_utf8(bytes).map_err(|cause| {
            refuse(&format!("is not UTF-8 text (byte {})", cause.utf8_error().valid_up_to()))
        })?;
        Ok(Self { name, text, path: path.to_owned(), sets: overrides.sets.clone(), renamed: None })
    }

    /// The job's structure as far as planning needs it, its paths absolute.
    pub(crate) fn parse(&self) -> Result<Job, Vec<Fault>> {
        let mut job = Job::parse_with(&self.text, FileFormat::guess(&self.name, &self.text), &self.sets)?;
        if let Some(name) = &self.renamed {
            job.name.clone_from(name);
        }
        self.place_paths(&mut job).map_err(|fault| vec![fault])?;
        Ok(job)
    }

    /// All that a run needs: structure, functions, connectors, plan and types; every fault that
    /// can be found together.
    pub(crate) fn check(&self) -> Result<Checked, Vec<Fault>> {
        let job = self.parse().map_err(|faults| self.and_of_the_rest(faults))?;
        let warnings = job.ready(types(&job)).map_err(|mut faults| {
            for fault in &mut faults {
                name_override(fault, &self.sets);
            }
            faults
        })?;
        Ok(Checked { job, warnings })
    }

    /// Adds to the faults of a file's structure those of the stages that have none: one pass names all.
    fn and_of_the_rest(&self, mut faults: Vec<Fault>) -> Vec<Fault> {
        let format = FileFormat::guess(&self.name, &self.text);
        let Some(mut part) = Job::sound_part(&self.text, format, &self.sets) else { return faults };
        if self.place_paths(&mut part).is_err() {
            return faults;
        }
        let mut more = part.runnable().err().unwrap_or_default();
        more.extend(types(&part));
        for mut fault in more {
            name_override(&mut fault, &self.sets);
            // Without a place they are told apart by what they say.
            let said =
                |known: &Fault| known.at == fault.at && (fault.at.line > 0 || known.message == fault.message);
            if !faults.iter().any(said) {
                faults.push(fault);
            }
        }
        faults.sort_by_key(|fault| fault.at);
        faults
    }

    /// A warning in one line, with its place.
    pub(crate) fn warning(&self, warning: &Fault) -> String {
        match warning.at.line {
            0 => format!("{}: {}", self.name, warning.message),
            line => format!("{}:{line}: {}", self.name, warning.message),
        }
    }

    /// As [`check`](Self::check), where faults end the command: they are shown on standard error.
    pub(crate) fn ready(&self, output: &mut Output) -> Outcome<Job> {
        let checked = self.check().map_err(|faults| self.refuse(&faults, output))?;
        for warning in &checked.warnings {
            output.notice(&format!("warning: {}", self.warning(warning)));
        }
        Ok(checked.job)
    }

    /// Shows faults on standard error, and in documents as an error's list.
    pub(crate) fn refuse(&self, faults: &[Fault], output: &mut Output) -> Failure {
        let mut faults = faults.to_vec();
        for fault in &mut faults {
            name_override(fault, &self.sets);
        }
        output.aside(&faults::render(&self.name, &self.text, &faults, output.error_colors()));
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

    /// A refusal of the coordinator's, which knows places of the file but not its name.
    pub(crate) fn locate(&self, failure: Failure) -> Failure {
        let Failure::Usage(message) = failure else { return failure };
        let lines = message.lines().map(|line| {
            if begins_with_place(line) { format!("{}:{line}", self.name) } else { line.to_owned() }
        });
        Failure::Usage(lines.collect::<Vec<_>>().join("\n"))
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
            if path.at.is_override() && path.value != "-" && !path.value.is_empty() {
                path.value = present.join(&path.value).display().to_string();
            }
        }
        let folder = own.parent().unwrap_or(Path::new("/"));
        job.rebase(&folder.display().to_string());
        Ok(())
    }
}

/// The path of a job file that is read from standard input.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// `LINE:COLUMN: ..`.
fn begins_with_place(line: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = line.splitn(3, ':');
    parts.next().is_some_and(is_number) && parts.next().is_some_and(is_number) && parts.next().is_some()
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
            Some(SourceConnector::Trace(trace)) => vec![&mut trace.path],
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
pub(crate) fn types(job: &Job) -> Vec<Fault> {
    let Headers { names, unread: mut faults, missing } = Headers::read(job);
    let found = tuplane_expr::resolve_with(job, &|stage| names.get(stage).cloned()).err().unwrap_or_default();
    // What is wrong with a header was said where it was read.
    let unread: Vec<Option<String>> = faults.iter().map(|fault| fault.stage.clone()).collect();
    faults.extend(found.into_iter().filter(|fault| !unread.contains(&fault.stage)));
    faults.extend(missing);
    faults
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_a_refusal_get_the_file_before_them() {
        let file = JobFile {
            name: "a.toml".into(),
            text: String::new(),
            path: "a.toml".into(),
            sets: Vec::new(),
            renamed: None,
        };
        let located = file.locate(Failure::Usage("42:8: the folder\nno place: 1:2".into()));
        assert_eq!(located.to_string(), "a.toml:42:8: the folder\nno place: 1:2");
        let other = file.locate(Failure::NotFound("42:8: no".into()));
        assert_eq!(other.to_string(), "42:8: no");
    }
}
