//! The demo: hot items of an auction house, without and with a rebalance, on three agents.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::scratch::{Folder, tuplane};

/// The job as it ships, and the same without its rebalance.
const JOB: (&str, &str) = crate::jobs::HOT_ITEMS;
const PLAIN: (&str, &str) =
    ("nexmark-hot-items-plain.toml", include_str!("../jobs/nexmark-hot-items-plain.toml"));

/// The job that the report ends with, as it lies in the sources.
const WORDCOUNT: &str = "testbed/jobs/wordcount.toml";

/// Agents, and on each so many instances and rows in `work` at once.
const AGENTS: &str = "3";
const CORES: &str = "2";

/// How much of the result is shown.
const TOP: usize = 5;

/// What is read of a run's document.
#[derive(Debug, Deserialize)]
struct Run {
    wall_ms: u64,
    running_ms: Option<u64>,
    guarantee: String,
    vertices: Vec<Vertex>,
    edges: Vec<Edge>,
    files: Vec<File>,
}

#[derive(Debug, Deserialize)]
struct Vertex {
    vertex: String,
    instances: u32,
    rows_in: u64,
    rows_out: u64,
    busy: Option<f64>,
    blocked: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Edge {
    edge: String,
    routing: String,
    policy: Option<String>,
    emitted: u64,
    taken: u64,
    queued_out: u64,
    in_flight: u64,
    queued_in: u64,
    dropped: BTreeMap<String, u64>,
    wire_bytes: u64,
}

#[derive(Debug, Deserialize)]
struct File {
    path: PathBuf,
}

/// An auction of the result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Hot {
    auction: i64,
    bids: i64,
    highest: i64,
}

/// Runs both jobs and prints the report.
pub(crate) fn run(out: &mut impl Write) -> Result<()> {
    let tuplane = tuplane()?;
    let folder = Folder::make("demo")?;
    let job = folder.write(JOB.0, JOB.1)?;
    let plain = folder.write(PLAIN.0, PLAIN.1)?;

    writeln!(
        out,
        "Hot items of an auction house (NEXMark bids), read on one of {AGENTS} agents. Each bid takes 2 ms of a"
    )?;
    writeln!(
        out,
        "core, and each agent has {CORES} of them (--cores {CORES}). First without a rebalance, then with one.\n"
    )?;
    out.flush()?;
    let (without, without_rows) = measure(&tuplane, &plain, &folder.path.join("plain"))?;
    let (with, with_rows) = measure(&tuplane, &job, &folder.path.join("rebalanced"))?;
    ensure!(
        without_rows == with_rows,
        "the two runs differ: {} and {} auctions; this is a defect of Tuplane",
        without_rows.len(),
        with_rows.len()
    );

    let plan = Command::new(&tuplane).arg("plan").arg(&job).stdin(Stdio::null()).output()?;
    ensure!(plan.status.success(), "`tuplane plan` failed: {}", String::from_utf8_lossy(&plan.stderr));
    writeln!(out, "The plan:\n\n{}", indent(&String::from_utf8_lossy(&plan.stdout)))?;

    writeln!(out, "The result (the same {} auctions in both runs), the first {TOP}:\n", with_rows.len())?;
    let mut top = with_rows;
    top.sort_by_key(|hot| (std::cmp::Reverse(hot.bids), hot.auction));
    writeln!(out, "  {:>8} {:>8} {:>12}", "auction", "bids", "highest bid")?;
    for hot in top.iter().take(TOP) {
        writeln!(out, "  {:>8} {:>8} {:>12}", hot.auction, hot.bids, hot.highest)?;
    }

    writeln!(out, "\nStages, with the rebalance:\n")?;
    stages(&with, out)?;
    writeln!(
        out,
        "\nThe ledger, with the rebalance (emitted = taken + queued + in flight + dropped, on every edge):\n"
    )?;
    ledger(&with, out)?;

    let (slow, fast) = (rate(&without)?, rate(&with)?);
    writeln!(out, "\n{}\n", with.guarantee)?;
    writeln!(out, "  without rebalance {slow:>8.0} rows/s")?;
    writeln!(out, "  with rebalance    {fast:>8.0} rows/s   ({:.1} times as many)\n", fast / slow)?;
    let place = if Path::new(WORDCOUNT).is_file() { "" } else { "from the folder of Tuplane's sources; " };
    writeln!(
        out,
        "Count the words of a file of your own ({place}the result is CSV files in the folder `words`):"
    )?;
    writeln!(
        out,
        "{} run {WORDCOUNT} --agents 3 --set lines.path=FILE --set out.path=words",
        shown(&tuplane)
    )?;
    out.flush()?;
    Ok(())
}

/// A path as a reader would type it here.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let relative = here.as_deref().and_then(|here| path.strip_prefix(here).ok());
    relative.unwrap_or(path).display().to_string()
}

fn measure(tuplane: &Path, job: &Path, into: &Path) -> Result<(Run, Vec<Hot>)> {
    let output = Command::new(tuplane)
        .arg("run")
        .arg(job)
        .args(["--agents", AGENTS, "--slots", CORES, "--cores", CORES, "-o", "json", "--set"])
        .arg(format!("out.path={}", into.display()))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", tuplane.display()))?;
    ensure!(output.status.success(), "`tuplane run {}` failed ({})", job.display(), output.status);
    let run: Run = serde_json::from_slice(&output.stdout).context("the run's document cannot be read")?;
    let mut rows = Vec::new();
    for file in &run.files {
        let text = std::fs::read_to_string(&file.path)
            .with_context(|| format!("cannot read the result {}", file.path.display()))?;
        rows.extend(text.lines().skip(1).map(hot).collect::<Result<Vec<_>>>()?);
    }
    rows.sort();
    Ok((run, rows))
}

/// A line `auction,bids,highest`.
fn hot(line: &str) -> Result<Hot> {
    let fields: Vec<i64> = line
        .split(',')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .with_context(|| format!("`{line}` is no line of the result"))?;
    match fields[..] {
        [auction, bids, highest] => Ok(Hot { auction, bids, highest }),
        _ => bail!("`{line}` is no line of the result"),
    }
}

/// Rows per second that `work` did over the whole run.
fn rate(run: &Run) -> Result<f64> {
    let work =
        run.vertices.iter().find(|vertex| vertex.vertex == "work").context("the job has no stage `work`")?;
    Ok(work.rows_out as f64 * 1000.0 / run.running_ms.unwrap_or(run.wall_ms).max(1) as f64)
}

fn stages(run: &Run, out: &mut impl Write) -> Result<()> {
    let ms = run.running_ms.unwrap_or(run.wall_ms).max(1) as f64;
    writeln!(
        out,
        "  {:<12} {:>9} {:>9} {:>9} {:>9} {:>6} {:>8}",
        "stage", "instances", "rows in", "rows out", "rows/s", "busy", "blocked"
    )?;
    for vertex in &run.vertices {
        let share =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{:.0}%", value * 100.0));
        writeln!(
            out,
            "  {:<12} {:>9} {:>9} {:>9} {:>9.0} {:>6} {:>8}",
            vertex.vertex,
            vertex.instances,
            vertex.rows_in,
            vertex.rows_out,
            vertex.rows_in.max(vertex.rows_out) as f64 * 1000.0 / ms,
            share(vertex.busy),
            share(vertex.blocked)
        )?;
    }
    Ok(())
}

fn ledger(run: &Run, out: &mut impl Write) -> Result<()> {
    writeln!(
        out,
        "  {:<18} {:<24} {:>8} {:>8} {:>6} {:>9} {:>7} {:>13}",
        "edge", "routing", "emitted", "taken", "queued", "in flight", "dropped", "bytes on wire"
    )?;
    for edge in &run.edges {
        let policy = edge.policy.as_ref().map_or_else(String::new, |policy| format!(" {policy}"));
        let dropped: u64 = edge.dropped.values().sum();
        let (queued, open) = (edge.queued_out + edge.queued_in, edge.in_flight);
        writeln!(
            out,
            "  {:<18} {:<24} {:>8} {:>8} {queued:>6} {open:>9} {dropped:>7} {:>13}",
            edge.edge,
            format!("{}{policy}", edge.routing),
            edge.emitted,
            edge.taken,
            edge.wire_bytes
        )?;
        ensure!(
            edge.emitted == edge.taken + queued + open + dropped,
            "the ledger of {} does not balance; this is a defect of Tuplane",
            edge.edge
        );
    }
    Ok(())
}

fn indent(text: &str) -> String {
    text.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("  {line}\n") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_differ_in_the_rebalance_alone() {
        let table = |text: &str| text.parse::<toml::Table>().unwrap();
        let (mut job, mut plain) = (table(JOB.1), table(PLAIN.1));
        job.remove("name");
        plain.remove("name");
        let stages = job["stage"].as_array_mut().unwrap();
        let spread = stages.iter().position(|stage| stage["op"].as_str() == Some("rebalance")).unwrap();
        let spread = stages.remove(spread);
        for stage in stages {
            if stage.get("in") == spread.get("id") {
                stage["in"] = spread["in"].clone();
            }
        }
        // Each has a folder of its own for its result.
        for table in [&mut job, &mut plain] {
            let stages = table["stage"].as_array_mut().unwrap();
            let out = stages.iter_mut().find(|stage| stage["id"].as_str() == Some("out")).unwrap();
            out.as_table_mut().unwrap().remove("path");
        }
        assert_eq!(job, plain);
    }

    #[test]
    fn a_line_of_the_result_is_three_numbers() {
        assert_eq!(hot("1,2,3").unwrap(), Hot { auction: 1, bids: 2, highest: 3 });
        for bad in ["1,2", "a,2,3", ""] {
            assert!(hot(bad).is_err(), "{bad}");
        }
    }
}
