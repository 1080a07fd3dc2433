//! Agents of this machine for one run: one process for each machine of the topology, with its cores.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tuplane_core::job::OVERRUN;

use crate::scratch::{Commands, Folder, tuplane};

/// A job is worked off within this time once its operators cost nothing.
const DRAIN: Duration = Duration::from_mins(1);

/// A plan is carried out within this time: where queues grow an instance that goes has much to get through.
const APPLIED: &str = "--wait=120s";

/// Between two looks.
const LOOK: Duration = Duration::from_millis(400);

/// So slow is a source that gives nothing more, rows a second: none is not a rate.
const STANDS_STILL: &str = "0.0001";

/// A cluster, which ends with it.
pub(super) struct Cluster {
    commands: Commands,
    job: String,
    /// Its agents in the order in which they were started.
    pub(super) agents: Vec<String>,
}

/// An instance that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) vertex: String,
    pub(super) number: u64,
    pub(super) agent: String,
    /// Rows that it has given.
    pub(super) rows_out: u64,
}

/// What the counters say when nothing waits any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Counted {
    /// Rows that each source instance has given, by its number.
    pub(super) sent: Vec<u64>,
    /// Rows that instances have left out because they were stopped.
    pub(super) dropped: u64,
}

impl Cluster {
    /// Starts so many agents with so many cores each; without a limit where nothing is said.
    pub(super) fn start(agents: u32, cores: Option<u32>) -> Result<Self> {
        let commands = Commands { tuplane: tuplane()?, folder: Folder::make("stela")?, cluster: "stela" };
        // From here on it is ended with this value, whatever of it has come up.
        let mut cluster = Self { commands, job: String::new(), agents: Vec::new() };
        let (agents, cores) = (agents.to_string(), cores.map(|cores| cores.to_string()));
        let mut up = vec!["up", "--local", &agents, "--slots", "4", "--detach"];
        up.extend(cores.iter().flat_map(|cores| ["--cores", cores.as_str()]));
        cluster.commands.call(&up)?;
        cluster.find_agents()?;
        Ok(cluster)
    }

    /// Starts more agents, which the job does not use yet.
    pub(super) fn add(&mut self, agents: u32) -> Result<()> {
        self.commands.call(&["agents", "add", "--local", &agents.to_string()])?;
        self.find_agents()
    }

    fn find_agents(&mut self) -> Result<()> {
        let known = self.commands.json(&["agents"])?;
        for agent in known["agents"].as_array().context("no agents")? {
            let name = agent["agent"].as_str().context("an agent without a name")?;
            if !self.agents.iter().any(|known| known == name) {
                self.agents.push(name.to_owned());
            }
        }
        Ok(())
    }

    /// Submits a job file, given as text, with these of its options set to something else.
    pub(super) fn submit(&mut self, name: &str, text: &str, sets: &[&str]) -> Result<()> {
        let file = self.commands.folder.write(name, text)?;
        let mut words = vec!["submit", file.to_str().context("an odd path")?];
        words.extend(sets.iter().flat_map(|set| ["--set", *set]));
        let said = self.commands.json(&words)?;
        self.job = said["run"].as_u64().context("a job without a number")?.to_string();
        Ok(())
    }

    /// Where the job's files are that a sink writes into its own folder.
    pub(super) fn files_of(&self, sink: &str) -> Result<Vec<PathBuf>> {
        files(&self.commands.folder.path.join(sink))
    }

    /// Rates, as `tuplane etp` has them.
    pub(super) fn rates(&self) -> Result<Value> {
        self.commands.json(&["etp", &self.job])
    }

    /// Carries out a plan, and waits until it is done; gives when that was asked for.
    pub(super) fn apply(&self, plan: &Value, mechanism: &str) -> Result<Instant> {
        let file = self.commands.folder.write("plan.json", &plan.to_string())?;
        let file = file.to_str().context("an odd path")?;
        let asked = Instant::now();
        self.commands.call(&[
            "scale",
            "apply",
            &self.job,
            file,
            "--mechanism",
            mechanism,
            APPLIED,
            "--yes",
        ])?;
        Ok(asked)
    }

    /// One vertex gets so many instances.
    pub(super) fn scale(&self, vertex: &str, instances: u32) -> Result<Instant> {
        let asked = Instant::now();
        let count = format!("{vertex}={instances}");
        self.commands.call(&["scale", "set", &self.job, &count, "--wait=60s", "--yes"])?;
        Ok(asked)
    }

    /// Instances that have not ended.
    pub(super) fn running(&self) -> Result<Vec<Running>> {
        instances(&self.commands.json(&["status", &self.job])?)
    }

    /// The job was ended because rows in queues that grow filled the memory that it may hold.
    pub(super) fn is_overrun(&self) -> bool {
        let status = self.commands.json(&["status", &self.job]);
        status.is_ok_and(|status| overran(&status))
    }

    /// Sets an option, `STAGE.OPTION=VALUE`.
    pub(super) fn set(&self, what: &str) -> Result<()> {
        self.commands.call(&["set", &self.job, what]).map(drop)
    }

    /// Bytes that all instances of a vertex keep, as their agents say it.
    pub(super) fn state_of(&self, vertex: &str) -> Result<u64> {
        let status = self.commands.json(&["status", &self.job])?;
        let vertices = status["vertices"].as_array().context("no vertices")?;
        let own = vertices.iter().find(|one| one["vertex"] == vertex);
        own.and_then(|one| one["state_bytes"].as_u64()).with_context(|| format!("no state of `{vertex}`"))
    }

    /// Rows that wait in queues and on their way.
    pub(super) fn waiting(&self) -> Result<u64> {
        Ok(in_hand(&self.commands.json(&["status", &self.job])?)?.0)
    }

    /// Lets what waits come out: sources stand still, and these operators cost nothing any more. Gives what was counted.
    pub(super) fn drain(&self, source: &str, operators: &[String]) -> Result<Counted> {
        self.set(&format!("{source}.rate={STANDS_STILL}"))?;
        operators.iter().try_for_each(|operator| self.set(&format!("{operator}.ms=0")))?;
        let (began, mut before) = (Instant::now(), None);
        loop {
            let status = self.commands.json(&["status", &self.job])?;
            ensure!(status["phase"] == "running", "the job does not run any more: {}", status["fault"]);
            let (waiting, moved) = in_hand(&status)?;
            // Twice the same: what an instance has in hand is in no queue.
            if waiting == 0 && before == Some(moved) {
                return counted(&status, source);
            }
            ensure!(began.elapsed() < DRAIN, "{waiting} rows wait after {} s", DRAIN.as_secs());
            before = Some(moved);
            std::thread::sleep(LOOK);
        }
    }

    /// Ends the job; its sinks' files are whole then.
    pub(super) fn cancel(&self) -> Result<()> {
        self.commands.call(&["cancel", &self.job, "--yes"]).map(drop)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Agents that did not come up are no cluster; those of one that did end, or are said to be left.
        if let Err(why) = self.commands.call(&["down", "--yes"])
            && !self.agents.is_empty()
        {
            eprintln!("tuplane-testbed: agents may be left: {why}");
        }
    }
}

/// Files of a folder, hidden ones included.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    Ok(entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?)
}

fn overran(status: &Value) -> bool {
    status["fault"]["message"].as_str().is_some_and(|cause| cause.contains(OVERRUN))
}

fn instances(status: &Value) -> Result<Vec<Running>> {
    let all = status["per_instance"].as_array().context("no instances")?;
    let there = all.iter().filter(|one| one["ended"] != true && one["state"] != "retired");
    let running = there.map(|one| {
        Some(Running {
            vertex: one["vertex"].as_str()?.to_owned(),
            number: one["number"].as_u64()?,
            agent: one["agent"].as_str()?.to_owned(),
            rows_out: one["rows_out"].as_u64()?,
        })
    });
    running.collect::<Option<_>>().context("an odd status")
}

/// Rows that wait in queues and on their way, and all that have been given and taken so far.
fn in_hand(status: &Value) -> Result<(u64, u64)> {
    let edges = status["edges"].as_array().context("no edges")?;
    let sum = |fields: &[&str]| -> u64 {
        edges.iter().flat_map(|edge| fields.iter().filter_map(|field| edge[*field].as_u64())).sum()
    };
    Ok((sum(&["queued_out", "in_flight", "queued_in"]), sum(&["emitted", "taken"])))
}

fn counted(status: &Value, source: &str) -> Result<Counted> {
    let mut feeds: Vec<Running> = instances(status)?;
    feeds.retain(|one| one.vertex == source);
    feeds.sort_by_key(|one| one.number);
    let vertices = status["vertices"].as_array().context("no vertices")?;
    let dropped = vertices.iter().filter_map(|vertex| vertex["dropped"]["restart"].as_u64()).sum();
    Ok(Counted { sent: feeds.iter().map(|one| one.rows_out).collect(), dropped })
}
