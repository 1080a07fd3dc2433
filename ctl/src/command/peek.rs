//! `tuplane peek`: follows a sample of the rows that leave a stage, from all its instances.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, Value};
use tokio::task::JoinSet;
use tuplane_core::fault::suggestion;
use tuplane_core::job::{Job, Op};
use tuplane_core::plan::{Dag, Role};
use tuplane_wire::message::{JobStatus, PeekRow, Peeked};

use crate::args::{Global, whole};
use crate::cluster::{AgentClient, Cluster};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::table::{count, counted};
use crate::output::{Format, Output, safe};
use crate::report::phase_word;

/// Between two questions to an agent.
const EVERY: Duration = Duration::from_millis(200);
/// Between two looks at the job.
const LOOK: Duration = Duration::from_secs(1);
/// An agent may be silent for so long before the command gives up.
const PATIENCE: Duration = Duration::from_secs(15);
/// The most rows of one JSON document, and the most per second that may be asked for.
const MOST_ROWS: u64 = 10_000;

/// Options of `peek`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Ends after -n rows, with the job, or by Ctrl-C. A stage that runs inside a fused vertex shows what that vertex puts \
out; a sink shows the rows that it takes. With -o jsonl each document holds the rows since the last one; with -o json \
one document at the end holds all, at most 10000.")]
pub(crate) struct Args {
    /// Name or run id
    job: String,
    /// The stage, or `STAGE/prepare` for the first of its two steps
    stage: String,
    /// Ends after so many rows
    #[arg(short = 'n', long, value_name = "ROWS", value_parser = whole::<u64>(1, u64::MAX))]
    rows: Option<u64>,
    /// Rows per second over all instances, at most 10000/s; a busy stage shows a sample
    #[arg(long, value_name = "RATE", default_value = "10/s", value_parser = parse_rate)]
    rate: f64,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix("/s").unwrap_or(text).trim().parse::<f64>().ok();
    match number {
        Some(rate) if rate > 0.0 && rate <= MOST_ROWS as f64 => Ok(rate),
        _ => Err(format!("write rows per second, such as 10/s, at most {MOST_ROWS}/s")),
    }
}

/// What is followed.
#[derive(Debug)]
struct Target {
    vertex: u32,
    label: String,
    stages: Vec<String>,
    /// It is a sink's: shown is what it takes.
    sink: bool,
}

/// One agent with instances of the vertex.
#[derive(Debug)]
struct Source {
    agent: String,
    client: Arc<AgentClient>,
    /// The attempt that `from` belongs to.
    attempt: u32,
    from: u64,
    missed: u64,
    passed: u64,
    ended: bool,
    heard: Instant,
}

/// Rows to be shown, with their agent.
type Rows = Vec<(String, Vec<String>, PeekRow)>;

/// The document.
#[derive(Debug, Serialize)]
struct View {
    job: String,
    run: u64,
    stage: String,
    vertex: String,
    rows: Vec<RowView>,
    shown: u64,
    passed: u64,
    missed: u64,
}

#[derive(Debug, Serialize)]
struct RowView {
    agent: String,
    instance: String,
    row: Value,
    /// Columns whose values were cut.
    cut: Vec<String>,
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let cluster = Cluster::find(global, output)?;
    let interrupt = Interrupt::listen()?;
    let status = interrupt.or(cluster.status(Some(args.job.clone()))).await?;
    if status.summary.phase.is_final() {
        return Err(Failure::Usage(format!(
            "job {} is {}: only the rows of a running job can be followed",
            status.summary.name,
            phase_word(status.summary.phase)
        )));
    }
    let target = target(&status, &args.stage)?;
    let instances = status.instances.iter().filter(|one| one.vertex.0 == target.vertex).count();
    output.notice(&announcement(&args, &target, instances));
    let mut follow = Follow::new(args, target, status, &cluster, output);
    let ended = interrupt.or(follow.run()).await;
    follow.close()?;
    ended
}

fn announcement(args: &Args, target: &Target, instances: usize) -> String {
    let what = match (&target.stages[..], target.sink) {
        ([_, _, ..], _) if args.stage != target.label => {
            format!("{} runs inside {}: rows that leave the whole", args.stage, target.label)
        }
        (_, true) => format!("rows that the sink {} takes", target.label),
        _ => format!("rows that leave {}", target.label),
    };
    let of = counted(instances as u64, "instance");
    format!("{what}, of {of}, at most {} a second; Ctrl-C ends", args.rate)
}

/// The vertex that a stage's rows leave.
fn target(status: &JobStatus, stage: &str) -> Outcome<Target> {
    let broken = |what: &str, cause: &serde_json::Error| Failure::Internal(format!("the {what}: {cause}"));
    let dag: Dag = serde_json::from_str(&status.dag).map_err(|e| broken("plan", &e))?;
    let job: Job = serde_json::from_str(&status.job).map_err(|e| broken("job", &e))?;
    let whole = |role: Role| matches!(role, Role::Whole | Role::Combine);
    let by_label = dag.vertices.iter().position(|vertex| vertex.label() == stage && whole(vertex.role));
    let by_label = by_label.or_else(|| dag.vertices.iter().position(|vertex| vertex.label() == stage));
    let by_stage = || {
        dag.vertices.iter().position(|vertex| {
            whole(vertex.role) && vertex.stages.iter().any(|id| id == stage)
                || vertex.peeks.iter().any(|id| id == stage)
        })
    };
    let Some(index) = by_label.or_else(by_stage) else {
        return Err(no_rows(&job, &dag, stage));
    };
    let vertex = &dag.vertices[index];
    let last = vertex.stages.last();
    let sink = job.stages.iter().any(|one| Some(&one.id) == last && matches!(one.op, Op::Sink(_)));
    Ok(Target { vertex: index as u32, label: vertex.label(), stages: vertex.stages.clone(), sink })
}

/// Why nothing leaves a stage of this name.
fn no_rows(job: &Job, dag: &Dag, stage: &str) -> Failure {
    if let Some(found) = job.stages.iter().find(|one| one.id == stage) {
        let before: Vec<&str> = found.inputs.iter().map(|input| input.value.as_str()).collect();
        return Failure::Usage(format!(
            "`{stage}` ({}) has no rows of its own: peek at {}",
            found.op.name(),
            before.join(" or ")
        ));
    }
    let names: Vec<String> = dag.vertices.iter().map(tuplane_core::plan::Vertex::label).collect();
    let hint = suggestion(stage, names.iter().map(String::as_str))
        .map_or_else(String::new, |known| format!("; did you mean `{known}`?"));
    Failure::NotFound(format!("the job has no stage `{stage}`{hint} (it has {})", names.join(", ")))
}

/// A stage that is being followed.
struct Follow<'a> {
    args: Args,
    target: Target,
    job: String,
    run: u64,
    cluster: &'a Cluster,
    output: &'a mut Output,
    /// Who asks, so that an agent knows what this command has seen.
    follower: u64,
    sources: Vec<Source>,
    shown: u64,
    /// Of agents and attempts that are over.
    past: (u64, u64),
    /// Rows that wait for the one document.
    kept: Rows,
}

impl<'a> Follow<'a> {
    fn new(
        args: Args,
        target: Target,
        status: JobStatus,
        cluster: &'a Cluster,
        output: &'a mut Output,
    ) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_nanos() as u64);
        let mut follow = Self {
            args,
            target,
            job: status.summary.name.clone(),
            run: status.summary.run,
            cluster,
            output,
            // Two commands that begin in the same nanosecond differ in their process.
            follower: now ^ (u64::from(std::process::id()) << 32),
            sources: Vec::new(),
            shown: 0,
            past: (0, 0),
            kept: Vec::new(),
        };
        follow.find_sources(&status);
        follow
    }

    /// The agents with instances of the vertex; those that are known stay as they are.
    fn find_sources(&mut self, status: &JobStatus) {
        let mine = status.instances.iter().filter(|one| one.vertex.0 == self.target.vertex);
        let agents: BTreeMap<&str, &str> = mine
            .filter_map(|one| status.agents.get(usize::from(one.agent)))
            .map(|info| (info.id.name.as_str(), info.address.as_str()))
            .collect();
        for gone in self.sources.extract_if(.., |source| !agents.contains_key(source.agent.as_str())) {
            self.past.0 += gone.passed;
            self.past.1 += gone.missed;
        }
        for (agent, address) in agents {
            if self.sources.iter().all(|source| source.agent != agent) {
                self.sources.push(Source {
                    agent: agent.to_owned(),
                    client: Arc::new(self.cluster.agent(address)),
                    attempt: 0,
                    from: 0,
                    missed: 0,
                    passed: 0,
                    ended: false,
                    heard: Instant::now(),
                });
            }
        }
    }

    async fn run(&mut self) -> Outcome {
        let mut looked = Instant::now();
        let mut last = false;
        loop {
            let rows = self.ask().await?;
            self.show(rows)?;
            let all = !self.sources.is_empty() && self.sources.iter().all(|source| source.ended);
            if last || self.left() == 0 || all {
                return Ok(());
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                let status = self.cluster.status(Some(self.run.to_string())).await?;
                // What left since the last question is asked for once more.
                last = status.summary.phase.is_final();
                self.find_sources(&status);
            }
            if !last {
                tokio::time::sleep(EVERY).await;
            }
        }
    }

    /// Rows that may still be shown.
    fn left(&self) -> u64 {
        let most = match self.output.format {
            Format::Json => self.args.rows.unwrap_or(MOST_ROWS).min(MOST_ROWS),
            _ => self.args.rows.unwrap_or(u64::MAX),
        };
        most - self.shown.min(most)
    }

    /// Asks all agents at once.
    async fn ask(&mut self) -> Outcome<Rows> {
        let mut asked = JoinSet::new();
        for (position, source) in self.sources.iter().enumerate() {
            let (client, from) = (Arc::clone(&source.client), source.from);
            let (run, vertex, follower, rate) = (self.run, self.target.vertex, self.follower, self.args.rate);
            asked.spawn(async move { (position, client.peek(run, vertex, follower, rate, from).await) });
        }
        let mut answers: BTreeMap<usize, Outcome<Peeked>> = BTreeMap::new();
        while let Some(joined) = asked.join_next().await {
            let (position, answer) =
                joined.map_err(|cause| Failure::Internal(format!("a question was interrupted: {cause}")))?;
            answers.insert(position, answer);
        }
        let mut rows = Rows::new();
        for (position, answer) in answers {
            match answer {
                Ok(peeked) => self.take(position, peeked, &mut rows),
                // It has not begun there, or is being started again.
                Err(Failure::NotFound(_)) => self.sources[position].heard = Instant::now(),
                Err(Failure::Unreachable(message)) => {
                    let source = &self.sources[position];
                    if source.heard.elapsed() > PATIENCE {
                        let agent = &source.agent;
                        return Err(Failure::Unreachable(format!("agent {agent}: {message}")));
                    }
                }
                Err(other) => return Err(other),
            }
        }
        Ok(rows)
    }

    fn take(&mut self, position: usize, peeked: Peeked, rows: &mut Rows) {
        let source = &mut self.sources[position];
        if source.attempt != peeked.attempt {
            self.past.0 += std::mem::take(&mut source.passed);
            self.past.1 += std::mem::take(&mut source.missed);
            let first = source.attempt == 0;
            source.attempt = peeked.attempt;
            if !first {
                // Its rows are numbered anew: they come with the next question.
                source.from = 0;
                source.ended = false;
                return;
            }
        }
        source.heard = Instant::now();
        if peeked.passed < source.passed {
            // The agent no longer knew who asks: it counts anew.
            self.past.0 += source.passed;
            self.past.1 += source.missed;
        }
        (source.from, source.missed) = (peeked.next, peeked.missed);
        (source.passed, source.ended) = (peeked.passed, peeked.ended);
        let agent = &source.agent;
        rows.extend(peeked.rows.into_iter().map(|row| (agent.clone(), peeked.columns.clone(), row)));
    }

    fn show(&mut self, mut rows: Rows) -> Outcome {
        rows.truncate(self.left().min(usize::MAX as u64) as usize);
        self.shown += rows.len() as u64;
        match self.output.format {
            Format::Json => self.kept.extend(rows),
            Format::Jsonl if rows.is_empty() => {}
            Format::Jsonl => self.document(rows)?,
            Format::Text | Format::Dot => {
                let lines: Vec<String> =
                    rows.iter().map(|(agent, columns, row)| self.line(agent, columns, row)).collect();
                if !lines.is_empty() {
                    self.output.text(&lines.join("\n"))?;
                }
            }
        }
        Ok(())
    }

    fn line(&self, agent: &str, columns: &[String], row: &PeekRow) -> String {
        let values = columns.iter().zip(&row.values).map(|(name, value)| {
            let more = if value.cut > 0 { format!(" (+{} bytes)", count(value.cut)) } else { String::new() };
            format!("{name} = {}{more}", value.json)
        });
        let values = values.collect::<Vec<_>>().join(", ");
        safe::line(&format!("{}#{} on {agent}: {values}", self.target.label, row.instance))
    }

    fn document(&mut self, rows: Rows) -> Outcome {
        let label = &self.target.label;
        let rows = rows.into_iter().map(|(agent, columns, row)| {
            let cut = columns.iter().zip(&row.values).filter(|(_, value)| value.cut > 0);
            let cut = cut.map(|(name, _)| name.clone()).collect();
            let values = columns.iter().cloned().zip(row.values.iter().map(|value| in_document(&value.json)));
            let instance = format!("{label}#{}", row.instance);
            RowView { agent, instance, row: Value::Object(values.collect::<Map<_, _>>()), cut }
        });
        let rows = rows.collect();
        let (passed, missed) = self.totals();
        let view = View {
            job: self.job.clone(),
            run: self.run,
            stage: self.args.stage.clone(),
            vertex: label.clone(),
            rows,
            shown: self.shown,
            passed,
            missed,
        };
        self.output.document("peek", &view)
    }

    /// Rows that went by, and rows that the agents could not keep.
    fn totals(&self) -> (u64, u64) {
        let sum = |of: fn(&Source) -> u64| self.sources.iter().map(of).sum::<u64>();
        (self.past.0 + sum(|source| source.passed), self.past.1 + sum(|source| source.missed))
    }

    /// Says what was shown of how much.
    fn close(&mut self) -> Outcome {
        if self.output.format == Format::Json {
            let kept = std::mem::take(&mut self.kept);
            self.document(kept)?;
        }
        let (passed, missed) = self.totals();
        let lost = if missed > 0 {
            format!("; {} of the sample were not fetched in time", counted(missed, "row"))
        } else {
            String::new()
        };
        let (shown, passed) = (counted(self.shown, "row"), counted(passed, "row"));
        self.output.notice(&format!("{shown} shown, {passed} went by{lost}"));
        Ok(())
    }
}

/// A value in a document: a number with more digits than a double holds is a text of them. So is what an agent of
/// another version may write and we cannot read.
fn in_document(json: &str) -> Value {
    let digits = |number: &str| -> String {
        let mantissa = number.split(['e', 'E']).next().unwrap_or_default();
        let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
        digits.trim_matches('0').to_owned()
    };
    match serde_json::from_str(json) {
        Ok(Value::Number(number)) if digits(&number.to_string()) != digits(json) => Value::from(json),
        Ok(value) => value,
        Err(_) => Value::from(json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_a_document_keeps_its_digits() {
        for same in [
            "1",
            "-1.5",
            "0.0",
            "1e300",
            "100.00",
            "0.1000",
            "12345678901234567",
            "\"1.50\"",
            "[1.5]",
            "null",
        ] {
            let value: Value = serde_json::from_str(same).unwrap();
            assert_eq!(in_document(same), value);
        }
        for text in ["123456789012345678.1234", "-0.12345678901234567890", "99999999999999999999", "soon"] {
            assert_eq!(in_document(text), Value::from(text));
        }
    }

    #[test]
    fn a_rate_is_rows_per_second() {
        assert_eq!(
            (parse_rate("10/s"), parse_rate("2.5"), parse_rate(" 1 /s")),
            (Ok(10.0), Ok(2.5), Ok(1.0))
        );
        for bad in ["0/s", "-1", "fast", "NaN", "10001/s", "1/m", ""] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
    }
}
