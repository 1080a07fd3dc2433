//! The benchmarks: POTUS decisions, scaling, the stream manager's slots, moving state, W1 (rebalance over two processes) and W2
//! (word count), one JSON line each.

mod decide;
mod scale;

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::scratch::{Commands, Folder, tuplane};

/// Records of W1, as in its job file.
const RECORDS: u64 = 20_000_000;
/// Bytes of W2's text.
const TEXT: usize = 200 << 20;
/// Different words in it; word k comes as often as 1/k says.
const WORDS: usize = 100_000;
/// Runs of each workload, whose median is the figure.
const RUNS: usize = 3;
/// Agents, with one instance of each stage: two processes, as the peers run.
const AGENTS: usize = 2;
/// The stream manager's slots use less than so much of a core.
const MOST_PERCENT: f64 = 1.5;
/// Clock ticks in a second, by which the system counts a process's time.
const TICKS: f64 = 100.0;

const W1: &str = include_str!("../jobs/bench-rebalance.toml");
const W2: &str = include_str!("../jobs/wordcount.toml");

/// Runs the benchmarks of decisions and both workloads, and prints a line for each.
pub(crate) fn run(out: &mut impl Write) -> Result<()> {
    decide::run(out)?;
    scale::run(out)?;
    stream_manager(out)?;
    of_agent(out, &["bench", "state"])?;
    let commands = Commands { tuplane: tuplane()?, folder: Folder::make("bench")?, cluster: "bench" };
    let bench = Bench(commands);
    let folder = &bench.0.folder;
    let job = folder.write("bench-rebalance.toml", W1)?;
    bench.report(out, "W1", W1, RECORDS, |to| bench.once(&job, &[], to, |rows| Ok(rows == w1_result())))?;

    let (text, truth) = make_text(&folder.path.join("text"))?;
    let job = folder.write("wordcount.toml", W2)?;
    let path = format!("lines.path={}", text.display());
    bench.report(out, "W2", W2, truth.words, |to| {
        bench.once(&job, &["--set", &path], to, |rows| truth.agrees(rows))
    })
}

/// Prints what one of the agent's own benchmarks says.
fn of_agent(out: &mut impl Write, args: &[&str]) -> Result<Value> {
    let agent = tuplane()?.with_file_name("tuplane-agent");
    let said = Command::new(&agent).args(args).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let said = said.with_context(|| format!("cannot run {}", agent.display()))?;
    ensure!(said.status.success(), "`tuplane-agent {}` failed ({})", args.join(" "), said.status);
    out.write_all(&said.stdout)?;
    out.flush()?;
    serde_json::from_slice(&said.stdout).context("the agent's line cannot be read")
}

/// What the slots of edges that price their targets cost.
fn stream_manager(out: &mut impl Write) -> Result<()> {
    let line = of_agent(out, &["bench"])?;
    let least = |key: &str| line[key].as_f64().is_some_and(|percent| percent < MOST_PERCENT);
    ensure!(
        least("held_percent") && least("released_percent") && line["slots_without_rows"] == 0,
        "the stream manager's slots use more than {MOST_PERCENT} % of a core, or are there without rows"
    );
    Ok(())
}

struct Bench(Commands);

/// What one run took.
struct Measured {
    seconds: f64,
    cpu: f64,
    /// Cores that everything else on the machine used meanwhile.
    noise: f64,
    rss_mb: f64,
    /// From the start of the agents to the first row at the sink, to 20 ms.
    first: Option<f64>,
    ok: bool,
}

impl Bench {
    fn report(
        &self,
        out: &mut impl Write,
        workload: &str,
        job: &str,
        items: u64,
        once: impl Fn(&Path) -> Result<Measured>,
    ) -> Result<()> {
        let mut runs = Vec::new();
        for number in 0..RUNS {
            runs.push(once(&self.0.folder.path.join(format!("{workload}-{number}")))?);
        }
        let rate = |run: &Measured| items as f64 / run.seconds;
        let rates: Vec<f64> = runs.iter().map(|run| rate(run).round()).collect();
        let noise: Vec<f64> = runs.iter().map(|run| (run.noise * 100.0).round() / 100.0).collect();
        let ok = runs.iter().all(|run| run.ok);
        runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let median = &runs[RUNS / 2];
        let loc = job.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).count();
        let line = json!({
            "peer": "tuplane", "workload": workload, "mode": "2proc",
            "rate": rate(median).round(), "rates": rates, "noise": noise,
            "cpu_s": (median.cpu * 100.0).round() / 100.0,
            "per_cpu_s": (items as f64 / median.cpu).round(),
            "rss_mb": median.rss_mb.round(), "start_to_first_s": median.first, "ok": ok, "loc": loc,
        });
        writeln!(out, "{line}")?;
        out.flush()?;
        ensure!(ok, "{workload} gave a wrong result");
        Ok(())
    }

    /// One run on agents of its own.
    fn once(
        &self,
        job: &Path,
        set: &[&str],
        to: &Path,
        check: impl Fn(&[Vec<String>]) -> Result<bool>,
    ) -> Result<Measured> {
        let started = Instant::now();
        let (agents, slots) = (AGENTS.to_string(), "1");
        self.0.call(&["up", "--local", &agents, "--slots", slots, "--detach"])?;
        let measured = self.on_agents(job, set, to, started, check);
        self.0.call(&["down", "--yes"])?;
        measured
    }

    fn on_agents(
        &self,
        job: &Path,
        set: &[&str],
        to: &Path,
        started: Instant,
        check: impl Fn(&[Vec<String>]) -> Result<bool>,
    ) -> Result<Measured> {
        let agents = self.0.json(&["agents"])?;
        let list = agents["agents"].as_array().context("no agents")?;
        let pids: Vec<u64> = list.iter().filter_map(|agent| agent["pid"].as_u64()).collect();
        ensure!(pids.len() == AGENTS, "{} agents instead of {AGENTS}", pids.len());
        let before = (cpu_of(&pids)?, cpu_of_machine()?, Instant::now());
        let sink = format!("out.path={}", to.display());
        let job = job.to_str().context("an odd path")?;
        let mut submit = vec!["submit", job, "--set", &sink];
        submit.extend(set);
        self.0.json(&submit)?;
        let mut first = None;
        let status = loop {
            let status = self.0.json(&["status"])?;
            if first.is_none() && rows_at_sink(&status) > 0 {
                first = Some((started.elapsed().as_secs_f64() * 1e3).round() / 1e3);
            }
            match status["phase"].as_str() {
                Some("finished") => break status,
                Some("starting" | "running" | "sealing") => std::thread::sleep(Duration::from_millis(20)),
                _ => bail!("the job did not finish: {status}"),
            }
        };
        let cpu = cpu_of(&pids)? - before.0;
        let wall = before.2.elapsed().as_secs_f64();
        let others = ((cpu_of_machine()? - before.1 - cpu) / wall).max(0.0);
        let rss: u64 = pids.iter().map(|pid| high_water_kib(*pid)).sum::<Result<u64>>()?;
        let seconds = status["running_ms"].as_f64().context("no running time")? / 1e3;
        let ok = check(&rows_of(&status)?)?;
        Ok(Measured { seconds, cpu, noise: others, rss_mb: rss as f64 / 1024.0, first, ok })
    }
}

/// 3x + 1 over all x below n, and x + 42.
fn w1_result() -> Vec<Vec<String>> {
    let n = RECORDS;
    let sum = n * (n - 1) / 2;
    vec![vec![n.to_string(), (3 * sum + n).to_string(), (sum + 42 * n).to_string()]]
}

fn rows_at_sink(status: &Value) -> u64 {
    let vertices = status["vertices"].as_array().map_or(&[][..], Vec::as_slice);
    vertices.iter().filter(|v| v["vertex"] == "out").filter_map(|v| v["rows_in"].as_u64()).sum()
}

/// The result's rows; neither workload's fields hold a comma or a quote.
fn rows_of(status: &Value) -> Result<Vec<Vec<String>>> {
    let mut rows = Vec::new();
    for file in status["files"].as_array().context("no files")? {
        let path = file["path"].as_str().context("a file without a path")?;
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        rows.extend(text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>()));
    }
    Ok(rows)
}

/// What the words of the text are known to be.
struct Truth {
    words: u64,
    counts: HashMap<String, u64>,
}

impl Truth {
    fn agrees(&self, rows: &[Vec<String>]) -> Result<bool> {
        let mut seen = 0;
        for row in rows {
            let [word, count] = &row[..] else { bail!("a row of {} fields", row.len()) };
            if self.counts.get(word) != Some(&count.parse()?) {
                return Ok(false);
            }
            seen += 1;
        }
        Ok(seen == self.counts.len())
    }
}

/// Writes a text of some 200 MB: words by Zipf's law, short ones frequent, 5 to 15 a line.
fn make_text(path: &Path) -> Result<(PathBuf, Truth)> {
    let mut weight = 0.0;
    let cumulative: Vec<f64> = (1..=WORDS)
        .map(|rank| {
            weight += 1.0 / rank as f64;
            weight
        })
        .collect();
    let mut seed = 7_u64;
    let mut lot = move || {
        // SplitMix64.
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let words: Vec<String> = (0..WORDS).map(word).collect();
    let mut counts = vec![0_u64; WORDS];
    let file = std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut file = std::io::BufWriter::with_capacity(1 << 20, file);
    let (mut bytes, mut total) = (0, 0);
    while bytes < TEXT {
        let in_line = 5 + lot() % 11;
        for number in 0..in_line {
            let at = (lot() >> 11) as f64 / (1_u64 << 53) as f64 * weight;
            let rank = cumulative.partition_point(|sum| *sum < at).min(WORDS - 1);
            counts[rank] += 1;
            file.write_all(words[rank].as_bytes())?;
            file.write_all(if number + 1 == in_line { b"\n" } else { b" " })?;
            bytes += words[rank].len() + 1;
        }
        total += in_line;
    }
    file.flush()?;
    let counts = words.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect();
    Ok((path.to_owned(), Truth { words: total, counts }))
}

/// The word of a rank: letters, shorter for frequent ones, all different.
fn word(rank: usize) -> String {
    let mut left = rank + 26;
    let mut word = String::new();
    while left > 0 {
        word.push(char::from(b'a' + (left % 26) as u8));
        left /= 26;
    }
    word
}

fn cpu_of(pids: &[u64]) -> Result<f64> {
    let mut ticks = 0;
    for pid in pids {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .with_context(|| format!("agent {pid} is gone"))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        for field in [11, 12] {
            ticks += fields.get(field).context("an odd stat file")?.parse::<u64>()?;
        }
    }
    Ok(ticks as f64 / TICKS)
}

pub(crate) fn cpu_of_machine() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("an odd stat file")?;
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|field| ticks.get(*field)).sum();
    Ok(busy as f64 / TICKS)
}

fn high_water_kib(pid: u64) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).context("no VmHWM")?;
    Ok(line.split_whitespace().nth(1).context("an odd status file")?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_different_and_the_first_are_short() {
        let words: std::collections::HashSet<String> = (0..WORDS).map(word).collect();
        assert_eq!(words.len(), WORDS);
        assert!(word(0).len() <= 2 && word(WORDS - 1).len() >= 4);
    }

    #[test]
    fn the_check_sees_a_wrong_count_and_a_missing_word() {
        let truth = Truth { words: 3, counts: HashMap::from([("a".to_owned(), 2), ("b".to_owned(), 1)]) };
        let row = |word: &str, count: &str| vec![word.to_owned(), count.to_owned()];
        assert!(truth.agrees(&[row("a", "2"), row("b", "1")]).unwrap());
        assert!(!truth.agrees(&[row("a", "1"), row("b", "1")]).unwrap());
        assert!(!truth.agrees(&[row("a", "2")]).unwrap());
    }
}
