//! `tuplane fetch`: brings the files of a job's sinks from all agents.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use tokio::task::JoinSet;
use tuplane_wire::message::{JobStatus, SinkFile};

use crate::args::Global;
use crate::cluster::{AgentClient, Cluster};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::table::{bytes, count};
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
    interrupt.or(bring(&cluster, &status, &items)).await?;
    let (rows, size): (u64, u64) =
        (items.iter().map(|item| item.file.rows).sum(), items.iter().map(|item| item.file.bytes).sum());
    if output.is_text() {
        return output.text(&format!(
            "{} rows in {} files ({}) in {}",
            count(rows),
            items.len(),
            bytes(size),
            safe::line(&args.dir.display().to_string())
        ));
    }
    let files: Vec<_> = items
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
    output.document("fetch", &json!({"job": status.summary.name, "run": status.summary.run, "files": files}))
}

/// Where each file goes: its own name, with the agent's before it where two agents have the same.
fn items(status: &JobStatus, dir: &Path) -> Vec<Item> {
    let name = |file: &SinkFile| {
        let name = Path::new(&file.path).file_name().map(|name| name.to_string_lossy().into_owned());
        // Parts of a job that did not finish are hidden where they were written.
        name.unwrap_or_else(|| file.stage.clone()).trim_start_matches('.').to_owned()
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

/// One task an agent; each brings its files one after the other.
async fn bring(cluster: &Cluster, status: &JobStatus, items: &[Item]) -> Outcome {
    let mut by_agent: BTreeMap<&str, Vec<Item>> = BTreeMap::new();
    for item in items {
        by_agent.entry(&item.file.agent).or_default().push(item.clone());
    }
    let mut tasks = JoinSet::new();
    for (agent, items) in by_agent {
        let client = Arc::new(client(cluster, status, agent)?);
        let run = status.summary.run;
        tasks.spawn(async move {
            for item in items {
                bring_one(&client, run, &item).await?;
            }
            Outcome::Ok(())
        });
    }
    while let Some(joined) = tasks.join_next().await {
        joined.map_err(|cause| Failure::Internal(format!("a fetch was interrupted: {cause}")))??;
    }
    Ok(())
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
