//! `AGENT check FILE`: the check of `tuplane check`, with this agent's registry.

use std::path::Path;
use std::process::ExitCode;

use tuplane_core::fault::Fault;
use tuplane_core::job::{FileFormat, FileSource, Files, Format, Job, Op, Source, SourceConnector};
use tuplane_expr::resolve_registered;

use crate::registry::Registry;
use crate::source::{csv_header, splits};

/// Says each fault or warning on a line, `FILE:LINE:COLUMN: ..`, and whether the file can run.
pub(super) fn check(file: &str, registry: &Registry) -> ExitCode {
    let read = std::fs::read_to_string(file).and_then(|text| Ok((text, std::path::absolute(file)?)));
    let (text, path) = match read {
        Ok(read) => read,
        Err(cause) => {
            eprintln!("cannot read {file}: {cause}");
            return ExitCode::FAILURE;
        }
    };
    match faults(&text, &path, registry) {
        Ok((stages, warnings)) => {
            for warning in &warnings {
                println!("{} (warning)", said(file, warning));
            }
            println!("{file}: ok, {stages} stages");
            ExitCode::SUCCESS
        }
        Err(faults) => {
            for fault in &faults {
                println!("{}", said(file, fault));
            }
            println!("{file}: {} {}", faults.len(), if faults.len() == 1 { "fault" } else { "faults" });
            ExitCode::from(2)
        }
    }
}

fn said(file: &str, fault: &Fault) -> String {
    if fault.at.line > 0 { format!("{file}:{fault}") } else { format!("{file}: {fault}") }
}

/// The number of stages and what has no effect; or all faults.
pub(super) fn faults(
    text: &str,
    path: &Path,
    registry: &Registry,
) -> Result<(usize, Vec<Fault>), Vec<Fault>> {
    let format = FileFormat::guess(&path.to_string_lossy(), text);
    let mut job = Job::parse(text, format)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    job.rebase(&folder.display().to_string());
    // Of a header that cannot be read, the types say that it is not known.
    let headers = |id: &str| header(&job, id, folder);
    let types = resolve_registered(&job, &headers, &|asked| registry.columns_of(asked)).err();
    let warnings = job.ready(types.unwrap_or_default())?;
    Ok((job.stages.len(), warnings))
}

/// The names in the first line of a source's first file.
fn header(job: &Job, id: &str, folder: &Path) -> Option<Vec<String>> {
    let file = job.stages.iter().find(|stage| stage.id == id).and_then(|stage| match &stage.op {
        Op::Source(Source { connector: Some(SourceConnector::File(file)), .. }) if is_needed(file) => {
            Some(file)
        }
        _ => None,
    })?;
    let first = splits(file, folder, 1).ok()?.into_iter().next()?;
    csv_header(Path::new(&first.path), file.delimiter).ok()
}

fn is_needed(file: &FileSource) -> bool {
    file.format == Format::Csv && file.header && file.columns.is_empty() && file.files == Files::Shared
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::columns;

    #[test]
    fn types_are_known_behind_what_the_registry_has() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("in.csv"), "k,v\na,1\n").unwrap();
        let path = folder.path().join("job.toml");
        let same = |batch: &crate::arrow::array::RecordBatch| Ok(batch.clone());
        let registry = Registry::new().closure("same", 1, &[("a", "text"), ("b", "text")], same);
        let text = |select: &str| {
            format!(
                "name = 'j'\nstage = [{{ id = 's', op = 'source', path = 'in.csv', format = 'csv', header = true }},\n\
                 {{ id = 'm', op = 'map', in = 's', select = ['k', 'v as w'] }},\n\
                 {{ id = 'r', op = 'rebalance', in = 'm' }},\n\
                 {{ id = 'c', op = 'custom_transform', in = 'm', call = 'same' }},\n\
                 {{ id = 'x', op = 'map', in = 'c', select = ['{select}'] }},\n\
                 {{ id = 'o', op = 'sink', in = 'x', connector = 'count' }}]"
            )
        };
        let (stages, warnings) = faults(&text("a"), &path, &registry).unwrap();
        assert_eq!((stages, warnings.len()), (6, 1), "{warnings:?}");
        let found = faults(&text("w"), &path, &registry).unwrap_err();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(said("job.toml", &found[0]).starts_with("job.toml:6:"), "{found:?}");
        let unknown = faults(&text("a"), &path, &Registry::new()).unwrap_err();
        assert!(unknown[0].message.contains("no operator `same`"), "{unknown:?}");
        assert!(columns(&[("a", "text"), ("b", "nothing")]).is_err());
    }
}
