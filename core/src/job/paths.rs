//! Relative paths of a job count from the folder of its file.

use super::model::{Files, Job, Op, SinkConnector, SourceConnector};

impl Job {
    /// Puts `folder` before relative paths that all agents share. An agent's own paths, absolute
    /// ones and `-` stay as they are.
    pub fn rebase(&mut self, folder: &str) {
        for stage in &mut self.stages {
            match &mut stage.op {
                Op::Source(source) => match &mut source.connector {
                    Some(SourceConnector::File(file)) if file.files == Files::Shared => {
                        file.paths.iter_mut().for_each(|path| join(folder, &mut path.value));
                    }
                    Some(SourceConnector::Trace(trace)) => join(folder, &mut trace.path.value),
                    _ => {}
                },
                Op::Sink(sink) => {
                    if let Some(
                        SinkConnector::File { path, shared: true, .. } | SinkConnector::Ledger { path, .. },
                    ) = &mut sink.connector
                    {
                        join(folder, &mut path.value);
                    }
                }
                _ => {}
            }
        }
    }
}

fn join(folder: &str, path: &mut String) {
    if folder.is_empty() || folder == "." || path.starts_with('/') || path == "-" {
        return;
    }
    let slash = if folder.ends_with('/') { "" } else { "/" };
    *path = format!("{folder}{slash}{path}");
}
