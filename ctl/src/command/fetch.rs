//! `tuplane fetch`: brings the files of a job's sinks from all agents.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::json;
use tokio::task::JoinSet;
use tuplane_wire::message::{JobPhase, JobStatus, SinkFile};

use crate::args::Global;
use crate::cluster::{AgentClient, Cluster};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::table::{bytes, counted};
use crate::output::{Output, safe};
use crate::report::phase_word;

/// An agent answers with at most so much; less means that the file has ended.
const PIECE: usize = 1 << 20;

/// Options of `fetch`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name or run id
    job: String,
    /// The folder that gets the files; made if it is not there
    dir: PathBuf,
    /// Replaces files that are there
    #[arg(long)]
    force: bool,
}

/// One file to bring.
#[derive(Debug, Clone)]
struct Item {
    file: SinkFile,
    to: PathBuf,
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let cluster = Cluster::find(global, output)?;
    let interrupt = Interrupt::listen()?;
    let status = interrupt.or(cluster.status(Some(args.job.clone()))).await?;
    if !status.summary.phase.is_final() {
        return Err(Failure::Usage(format!(
            "job {} is {}: its files are complete when it has finished",
            status.summary.name,
            phase_word(status.summary.phase)
        )));
    }
    if status.summary.phase != JobPhase::Finished {
        return Err(Failure::Failed {
            kind: "unfinished",
            message: format!(
                "job {} (run {}) did not finish: it {}, so it has no result; what its sinks had written stays \
                 hidden in their folders, in files whose names begin with a dot",
                status.summary.name,
                status.summary.run,
                if status.summary.phase == JobPhase::Cancelled { "was cancelled" } else { "failed" }
            ),
        });
    }
    if status.files.is_empty() {
        return Err(Failure::Usage(format!(
            "job {} (run {}) has no file to fetch: none of its sinks writes files (connector = \"file\" or \"ledger\")",
            status.summary.name, status.summary.run
        )));
    }
    std::fs::create_dir_all(&args.dir).map_err(|cause| Failure::file("make", &args.dir, &cause))?;
    let items = items(&status, &args.dir);
    let there: Vec<String> =
        items.iter().filter(|item| item.to.exists()).map(|item| item.to.display().to_string()).collect();
    if !there.is_empty() && !args.force {
        return Err(Failure::Usage(format!(
            "{} there already: {}; choose another folder, or replace with --force",
            if there.len() == 1 { "a file is" } else { "files are" },
            there.join(", ")
        )));
    }
    let missed = interrupt.or(bring(&cluster, &status, &items)).await?;
    show(&args, &status, &items, &missed, output)?;
    let mut sentences: Vec<String> = missed.iter().map(Missed::sentence).collect();
    sentences.extend(status.summary.pending.iter().map(|pending| format!("not fetched: {pending}")));
    if sentences.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed { kind: "agent", message: sentences.join("\n") })
}

/// Says what was fetched, and in a document also what was not.
fn show(args: &Args, status: &JobStatus, items: &[Item], missed: &[Missed], output: &mut Output) -> Outcome {
    let fetched: Vec<&Item> =
        items.iter().filter(|item| !missed.iter().any(|missed| missed.has(&item.file))).collect();
    if output.is_text() {
        let rows = fetched.iter().map(|item| item.file.rows).sum();
        let size = fetched.iter().map(|item| item.file.bytes).sum();
        return output.text(&format!(
            "{} in {} ({}) in {}",
            counted(rows, "row"),
            counted(fetched.len() as u64, "file"),
            bytes(size),
            safe::line(&args.dir.display().to_string())
        ));
    }
    let files: Vec<_> = fetched
        .iter()
        .map(|item| {
            json!({
                "agent": item.file.agent,
                "stage": item.file.stage,
                "path": item.to.display().to_string(),
                "rows": item.file.rows,
                "bytes": item.file.bytes,
            })
        })
        .collect();
    let missed: Vec<_> = missed
        .iter()
        .map(|missed| {
            json!({"agent": missed.agent, "paths": missed.paths, "message": missed.cause.to_string()})
        })
        .collect();
    let (job, run) = (&status.summary.name, status.summary.run);
    output.document("fetch", &json!({"job": job, "run": run, "files": files, "missed": missed}))
}

/// Where each file goes: its own name, with the agent's before it where two agents have the same.
fn items(status: &JobStatus, dir: &Path) -> Vec<Item> {
    let name = |file: &SinkFile| {
        let name = Path::new(&file.path).file_name().map(|name| name.to_string_lossy().into_owned());
        name.unwrap_or_else(|| file.stage.clone())
    };
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for file in &status.files {
        *times.entry(name(file)).or_default() += 1;
    }
    status
        .files
        .iter()
        .map(|file| {
            let own = name(file);
            let unique = times.get(&own).is_none_or(|times| *times < 2);
            let to = if unique { own } else { format!("{}-{own}", file.agent) };
            Item { file: file.clone(), to: dir.join(to) }
        })
        .collect()
}

/// Files of one agent that could not be brought.
#[derive(Debug)]
struct Missed {
    agent: String,
    paths: Vec<String>,
    cause: Failure,
}

impl Missed {
    fn has(&self, file: &SinkFile) -> bool {
        self.agent == file.agent && self.paths.contains(&file.path)
    }

    fn sentence(&self) -> String {
        let Self { agent, paths, cause } = self;
        format!("not fetched from agent {agent}: {} ({cause})", paths.join(", "))
    }
}

/// One task an agent; each brings its files one after the other. What cannot be had from one agent
/// keeps nobody from what the others have.
async fn bring(cluster: &Cluster, status: &JobStatus, items: &[Item]) -> Outcome<Vec<Missed>> {
    let mut by_agent: BTreeMap<&str, Vec<Item>> = BTreeMap::new();
    for item in items {
        by_agent.entry(&item.file.agent).or_default().push(item.clone());
    }
    let mut missed = Vec::new();
    let mut tasks = JoinSet::new();
    for (agent, items) in by_agent {
        match client(cluster, status, agent) {
            Ok(client) => {
                tasks.spawn(bring_all(client, status.summary.run, agent.to_owned(), items));
            }
            Err(cause) => missed.push(Missed { agent: agent.to_owned(), paths: paths(items), cause }),
        }
    }
    while let Some(joined) = tasks.join_next().await {
        missed
            .extend(joined.map_err(|cause| Failure::Internal(format!("a fetch was interrupted: {cause}")))?);
    }
    missed.sort_by(|one, other| one.agent.cmp(&other.agent));
    Ok(missed)
}

fn paths(items: impl IntoIterator<Item = Item>) -> Vec<String> {
    items.into_iter().map(|item| item.file.path).collect()
}

async fn bring_all(client: AgentClient, run: u64, agent: String, items: Vec<Item>) -> Vec<Missed> {
    let mut missed = Vec::new();
    let mut items = items.into_iter();
    while let Some(item) = items.next() {
        let Err(cause) = bring_one(&client, run, &item).await else { continue };
        let mut lacking = vec![item.file.path];
        if matches!(cause, Failure::Unreachable(_)) {
            // It will not answer for the next one either.
            lacking.extend(paths(items.by_ref()));
        }
        missed.push(Missed { agent: agent.clone(), paths: lacking, cause });
    }
    missed
}

/// Removes what was written aside unless it was renamed.
struct Aside {
    path: PathBuf,
}

impl Drop for Aside {
    fn drop(&mut self) {
        // After the rename it is not there, which is as it should be.
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn bring_one(client: &AgentClient, run: u64, item: &Item) -> Outcome {
    let folder = item.to.parent().unwrap_or(Path::new("."));
    let name = item.to.file_name().unwrap_or_default().to_string_lossy();
    let aside = Aside { path: folder.join(format!(".{name}.{}.fetch", std::process::id())) };
    let fail = |cause: std::io::Error| Failure::file("write", &item.to, &cause);
    let mut out = std::fs::File::create(&aside.path).map_err(fail)?;
    let mut offset = 0;
    loop {
        let piece = client.read(run, &item.file.path, offset).await?;
        out.write_all(&piece).map_err(fail)?;
        offset += piece.len() as u64;
        if piece.len() < PIECE {
            break;
        }
    }
    if offset != item.file.bytes {
        return Err(Failure::Failed {
            kind: "agent",
            message: format!(
                "{} on agent {} has {offset} bytes, its sink wrote {}",
                item.file.path, item.file.agent, item.file.bytes
            ),
        });
    }
    out.sync_all().map_err(fail)?;
    std::fs::rename(&aside.path, &item.to).map_err(fail)
}

fn client(cluster: &Cluster, status: &JobStatus, agent: &str) -> Outcome<AgentClient> {
    status
        .agents
        .iter()
        .find(|info| info.id.name == agent)
        .map(|info| cluster.agent(&info.address))
        .ok_or_else(|| Failure::NotFound(format!("agent {agent} took no part in run {}", status.summary.run)))
}

/// A sink's file whole.
pub(super) async fn read_file(cluster: &Cluster, status: &JobStatus, file: &SinkFile) -> Outcome<Vec<u8>> {
    let client = client(cluster, status, &file.agent)?;
    let mut bytes = Vec::new();
    loop {
        let piece = client.read(status.summary.run, &file.path, bytes.len() as u64).await?;
        bytes.extend_from_slice(&piece);
        if piece.len() < PIECE {
            return Ok(bytes);
        }
    }
}
