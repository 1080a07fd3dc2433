//! `tuplane run`: up, submit, wait, result and down in one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::parser::ValueSource;
use serde_json::{Value, json};
use tuplane_core::job::{Job, Op, SinkConnector, SinkFormat};
use tuplane_core::place::STANDARD_INPUT;
use tuplane_testbed::launch::{LocalCluster, runtime_root};
use tuplane_wire::message::{ClusterRequest, JobPhase, JobStatus};

use crate::args::{Global, LocalArgs, Overrides, PlacementArgs, SshArgs, whole};
use crate::cluster::Cluster;
use crate::command::{scale, submit, up};
use crate::failure::{Failure, Outcome, fault_kind};
use crate::interrupt::Interrupt;
use crate::jobfile::{JobFile, is_stdin, place_own_paths, reads_stdin, replace_stdin};
use crate::output::table::counted;
use crate::output::time::parse_span;
use crate::output::{Output, to_value};
use crate::report::{self, FileView, JobView};
use crate::wait::until_final;

/// A cancelled job has so long to stop before its agents are ended anyway.
const CANCEL_GRACE: Duration = Duration::from_secs(3);

/// How the coordinator names lost rows in a cause.
const ROWS_LOST: &str = "; rows lost: ";

/// The most of a sink's rows that a document repeats; files have them all.
const DOCUMENT_ROWS: usize = 16 << 20;

/// Options of `run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Rows of a stdout sink go to standard output, and the summary then to standard error. --cluster names the cluster \
that is started [default: run-PID]. A file source whose path is `-` reads standard input: it is kept as a file in the cluster's folder while the job runs.")]
pub(crate) struct Args {
    /// The job file (TOML or JSON)
    file: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    placement: PlacementArgs,
    /// Agents to start on this machine
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<u32>(1, 256))]
    agents: u32,
    /// Starts an agent on each host of a file, of standard input (`-`), or of a list `h1,h2`, over ssh
    #[arg(long, value_name = "FILE|-|H1,H2", conflicts_with = "agents")]
    hosts: Option<String>,
    #[command(flatten)]
    options: LocalArgs,
    /// Waits at most so long for the job, then cancels it (exit 4)
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    wait: Option<Duration>,
    /// Writes into a folder that holds an earlier run's files
    #[arg(long)]
    force: bool,
    /// Leaves the agents running; `tuplane down` ends them
    #[arg(long)]
    keep: bool,
    /// Turns the job's automatic mode on, as `tuplane scale auto JOB on` does
    #[arg(long)]
    auto: bool,
    #[command(flatten)]
    ssh: SshArgs,
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let file = JobFile::read(&args.file, &args.placement.with(&args.overrides))?;
    let mut job = file.ready(output)?;
    place_own_paths(&mut job)?;
    if reads_stdin(&job).len() > 1 {
        return Err(Failure::Usage(format!(
            "standard input (`-`) can be read by one source, not by {}",
            reads_stdin(&job).join(" and ")
        )));
    }
    if is_stdin(&args.file) && !reads_stdin(&job).is_empty() {
        return Err(Failure::Usage(format!(
            "standard input (`-`) cannot be both the job file and what `{}` reads",
            reads_stdin(&job).join(" and ")
        )));
    }
    // Not TUPLANE_CLUSTER: these agents are this command's own.
    let by_hand = global.cluster_from == Some(ValueSource::CommandLine);
    let name = match global.cluster.as_ref().filter(|_| by_hand) {
        Some(address) if address.contains(':') => {
            return Err(Failure::Usage(format!(
                "`run` starts agents of its own, and --cluster names them: `{address}` is an address; \
                 `tuplane submit` sends a job to a cluster that runs"
            )));
        }
        Some(name) => name.clone(),
        None => format!("run-{}", std::process::id()),
    };
    let plan = match &args.hosts {
        None => up::Plan::local(&name, args.agents, &args.options, args.keep)?,
        Some(_) if !reads_stdin(&job).is_empty() => {
            return Err(Failure::Usage(format!(
                "standard input (`-`), which `{}` reads, does not reach other hosts: put it into a file that they see",
                reads_stdin(&job).join(" and ")
            )));
        }
        Some(hosts) if hosts == "-" && is_stdin(&args.file) => {
            return Err(Failure::Usage(
                "standard input (`-`) cannot be both the job file and the hosts".into(),
            ));
        }
        Some(hosts) => up::Plan::hosts(&name, hosts, &args.options, &args.ssh, args.keep, output)?,
    };
    let interrupt = Interrupt::listen()?;
    let root = runtime_root();
    let owned = plan.start(&root, &interrupt).await?;
    interrupt.guard(&owned.folder, &owned.file.agents);
    for notice in &owned.notices {
        output.notice(notice);
    }
    let outcome = on_agents(&args, &owned, job, &interrupt, global, output)
        .await
        .map_err(|failure| file.locate(failure));
    if args.keep && !matches!(outcome, Err(Failure::Interrupted)) {
        output.notice(&format!("the agents go on; end them with `tuplane down --cluster {name}`"));
        return outcome;
    }
    let ended = up::end(owned, global, output).await;
    outcome.and(ended)
}

async fn on_agents(
    args: &Args,
    owned: &LocalCluster,
    mut job: Job,
    interrupt: &Interrupt,
    global: &Global,
    output: &mut Output,
) -> Outcome {
    let cluster = Cluster::local((owned.folder.clone(), owned.file.clone()), global.timeout)?;
    if !reads_stdin(&job).is_empty() {
        let input = owned.folder.path().join(STANDARD_INPUT);
        interrupt.or(spool(&input)).await?;
        replace_stdin(&mut job, &input);
    }
    let (run, _) = interrupt.or(cluster.submit(submit::encode(&job)?, args.force)).await?;
    if args.auto {
        interrupt.or(scale::auto::turn_on(&cluster, run)).await?;
    }
    interrupt.or(submit::remark(&cluster, run, &job, output)).await?;
    let waited = interrupt.or(until_final(&cluster, run, args.wait, output)).await;
    match waited {
        Ok(status) => result(&cluster, &status, output).await,
        Err(failure) => {
            output.progress_done();
            if !args.keep || matches!(failure, Failure::Interrupted) {
                cancel(&cluster, run).await;
            }
            Err(match failure {
                Failure::TimedOut(_) if !args.keep => {
                    Failure::TimedOut(format!("run {run} has not ended in time; it was cancelled"))
                }
                other => other,
            })
        }
    }
}

/// Copies standard input to a file that agents can read.
async fn spool(to: &Path) -> Outcome {
    let path = to.to_owned();
    let copied = tokio::task::spawn_blocking(move || {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
        std::io::copy(&mut std::io::stdin().lock(), &mut file)
    });
    match copied.await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(cause)) => Err(Failure::file("keep standard input in", to, &cause)),
        Err(cause) => Err(Failure::Internal(format!("reading standard input was interrupted: {cause}"))),
    }
}

/// Asks the job to end and gives it a moment; the agents end next in any case.
async fn cancel(cluster: &Cluster, run: u64) {
    let stop = async {
        cluster.tell(ClusterRequest::Cancel { job: run.to_string() }).await?;
        while !cluster.status(Some(run.to_string())).await?.summary.phase.is_final() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Outcome::Ok(())
    };
    // Whether or not it worked, there is nothing else to do.
    let _ = tokio::time::timeout(CANCEL_GRACE, stop).await;
}

/// Shows what a job that has ended came to: rows of stdout sinks, files, counters, ledger.
pub(super) async fn result(cluster: &Cluster, status: &JobStatus, output: &mut Output) -> Outcome {
    let view = JobView::new(&cluster.name, status, None)?;
    let finished = status.summary.phase == JobPhase::Finished;
    let printed = stdout_sinks(status);
    let rows = if finished { collect(cluster, status, &printed).await? } else { Vec::new() };
    let files: Vec<FileView> = view
        .files
        .iter()
        .filter(|file| !printed.iter().any(|(stage, _)| *stage == file.stage))
        .cloned()
        .collect();
    let outcome = verdict(&view, status);
    let left_behind = if finished && cluster.is_on_this_machine() { left_behind(&files) } else { None };
    let warnings = if finished { view.left_out_sentences() } else { Vec::new() };
    if output.is_text() {
        for sink in &rows {
            output.bytes(&sink.bytes)?;
        }
        let mut summary = if finished { result_text(&view, &files) } else { String::new() };
        if !output.is_quiet() {
            summary.push_str(if finished { "\n" } else { "" });
            // The parts that a job has left are all there is to be found of it.
            summary
                .push_str(&report::text(&if finished { view.without_files() } else { view }, output.room()));
        }
        // Whoever reads the rows of a stdout sink gets rows or nothing.
        if printed.is_empty() {
            output.text(&summary)?;
        } else if !output.is_quiet() {
            output.aside(&summary);
        }
    } else {
        let mut body = to_value(&view)?;
        body["files"] = to_value(&files)?;
        if finished && let Err(failure) = &outcome {
            body["fault"] = json!({"kind": failure.kind(), "message": failure.to_string()});
        }
        body["lost"] =
            view.lost().into_iter().map(|(edge, rows)| json!({"edge": edge, "rows": rows})).collect();
        body["output"] = rows.iter().map(Rows::document).collect::<Value>();
        output.document("run", &body)?;
    }
    for warning in &warnings {
        output.warning(warning);
    }
    if let Some(left_behind) = left_behind {
        output.notice(&left_behind);
    }
    outcome
}

/// Hidden files beside the result's: of runs that did not finish, or of one that still goes on.
fn left_behind(files: &[FileView]) -> Option<String> {
    let mut folders: Vec<(&Path, &str)> = Vec::new();
    for file in files {
        let folder = Path::new(&file.path).parent().map(|folder| (folder, file.stage.as_str()));
        folders.extend(folder.filter(|folder| !folders.contains(folder)));
    }
    let mut names: Vec<String> = Vec::new();
    for (folder, stage) in folders {
        // A folder that cannot be read has nothing to tell.
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        let is_part = |name: &String| {
            let rest = name.strip_prefix('.').and_then(|name| name.strip_prefix(stage));
            rest.is_some_and(|rest| rest.starts_with('-') && rest.strip_suffix(".part").is_some())
        };
        let found = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        names.extend(found.filter(is_part).map(|name| folder.join(name).display().to_string()));
    }
    names.sort();
    names.dedup();
    let shown = names.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    let more = if names.len() > 3 { ", .." } else { "" };
    (!names.is_empty()).then(|| {
        format!(
            "{} of runs that did not finish in the result's folder, which may be deleted: {shown}{more}",
            counted(names.len() as u64, "hidden file")
        )
    })
}

/// Whether the job did what it was run for.
pub(super) fn verdict(view: &JobView, status: &JobStatus) -> Outcome {
    let name = &status.summary.name;
    let mut lost: Vec<String> =
        view.lost().iter().map(|(edge, rows)| format!("{} lost on {edge}", counted(*rows, "row"))).collect();
    let in_hand = view.in_hand();
    lost.extend(
        in_hand.iter().map(|(vertex, rows)| format!("{} stopped in {vertex}", counted(*rows, "row"))),
    );
    let lost = if lost.is_empty() { "no rows were under way".to_owned() } else { lost.join(", ") };
    match status.summary.phase {
        JobPhase::Finished if status.summary.pending.is_empty() => Ok(()),
        JobPhase::Finished => {
            let pending: Vec<_> = status.summary.pending.iter().map(ToString::to_string).collect();
            let message = format!(
                "job {name} has finished, but not all of its files are visible: {}",
                pending.join("; ")
            );
            Err(Failure::Failed { kind: "agent", message })
        }
        JobPhase::Cancelled => {
            Err(Failure::Failed { kind: "cancelled", message: format!("job {name} was cancelled; {lost}") })
        }
        _ => {
            let (kind, cause) =
                status.summary.fault.as_ref().map_or(("internal", "no cause was recorded"), |fault| {
                    (fault_kind(fault.code), fault.message.as_str())
                });
            // A cause that names the rows lost counts the same rows.
            let lost = if cause.contains(ROWS_LOST) { String::new() } else { format!("; {lost}") };
            Err(Failure::Failed { kind, message: format!("job {name} failed: {cause}{lost}") })
        }
    }
}

/// What came out, and whether all that was to be read went in.
fn result_text(view: &JobView, files: &[FileView]) -> String {
    let into =
        if files.is_empty() { String::new() } else { format!(" in {}", counted(files.len() as u64, "file")) };
    let left_out = if view.left_out == 0 {
        String::new()
    } else {
        format!("; {} of the input left out", counted(view.left_out, "line"))
    };
    let mut out = format!("result: {}{into}{left_out}\n", counted(view.result_rows, "row"));
    if !files.is_empty() {
        out.push_str(&report::files_text(files));
    }
    out
}

/// Rows of one stdout sink.
struct Rows {
    stage: String,
    format: SinkFormat,
    bytes: Vec<u8>,
}

impl Rows {
    fn document(&self) -> Value {
        let text = String::from_utf8_lossy(&self.bytes[..self.bytes.len().min(DOCUMENT_ROWS)]);
        json!({
            "stage": self.stage,
            "format": format_word(self.format),
            "text": text,
            "complete": self.bytes.len() <= DOCUMENT_ROWS,
        })
    }
}

fn format_word(format: SinkFormat) -> &'static str {
    match format {
        SinkFormat::Csv => "csv",
        SinkFormat::Jsonl => "jsonl",
    }
}

/// Stages whose sink prints.
pub(super) fn stdout_sinks(status: &JobStatus) -> Vec<(String, SinkFormat)> {
    let Ok(job) = serde_json::from_str::<Job>(&status.job) else { return Vec::new() };
    job.stages
        .into_iter()
        .filter_map(|stage| match stage.op {
            Op::Sink(sink) => match sink.connector {
                Some(SinkConnector::Stdout { format }) => Some((stage.id, format)),
                _ => None,
            },
            _ => None,
        })
        .collect()
}

/// Bytes of a csv text's first record, its line end included: a name of a column may hold line ends too.
fn header_bytes(csv: &[u8]) -> usize {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(csv);
    match reader.read_byte_record(&mut csv::ByteRecord::new()) {
        Ok(_) => reader.position().byte() as usize,
        // From memory nothing fails to be read.
        Err(_) => csv.len(),
    }
}

/// Reads the parts of stdout sinks from their agents; a csv header is kept once.
async fn collect(
    cluster: &Cluster,
    status: &JobStatus,
    sinks: &[(String, SinkFormat)],
) -> Outcome<Vec<Rows>> {
    let mut collected = Vec::new();
    for (stage, format) in sinks {
        let mut bytes = Vec::new();
        let mut header: Option<Vec<u8>> = None;
        for file in status.files.iter().filter(|file| file.stage == *stage) {
            let mut part = super::fetch::read_file(cluster, status, file).await?;
            if *format == SinkFormat::Csv {
                let first = header_bytes(&part);
                match &header {
                    Some(header) if part[..first] == header[..] => {
                        part.drain(..first);
                    }
                    Some(_) => {}
                    None => header = Some(part[..first].to_vec()),
                }
            }
            bytes.append(&mut part);
        }
        collected.push(Rows { stage: stage.clone(), format: *format, bytes });
    }
    Ok(collected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_a_record_and_not_a_line() {
        for header in ["a,b\n", "\"a\nb\",\"c\"\"\n\"\n"] {
            let csv = format!("{header}1,2\n3,4\n");
            assert_eq!(header_bytes(csv.as_bytes()), header.len(), "{header:?}");
            assert_eq!(header_bytes(header.trim_end().as_bytes()), header.trim_end().len());
        }
    }
}
