//! `tuplane agents drain`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tuplane_wire::members::JobDrain;

use crate::args::Global;
use crate::cluster::Cluster;
use crate::command::scale::{given_up, show, until_done};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::time::parse_span;
use crate::output::{Output, safe};

/// Between two looks at a job that could not be changed yet.
const LOOK: Duration = Duration::from_millis(250);

/// Options of `agents drain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A job that is being started or rescaled is asked again until --wait, or --timeout, has passed. Instances that cannot move \
stay and are named; the agent stays drained, and the same command tries again.")]
pub(super) struct Args {
    /// The agent
    agent: String,
    /// It gets new instances again; nothing moves back
    #[arg(long, conflicts_with_all = ["dry_run", "wait"])]
    undo: bool,
    /// Shows what would move and what would stay, and changes nothing
    #[arg(long)]
    dry_run: bool,
    /// Waits until what moves has been drained, at most TIME
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, value_parser = parse_span)]
    #[expect(clippy::option_option, reason = "clap's shape for an option whose value may be left out")]
    wait: Option<Option<Duration>>,
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let cluster = Cluster::find(global, output)?;
    let interrupt = Interrupt::listen()?;
    let began = Instant::now();
    let patience = match args.wait {
        None => Some(global.timeout),
        Some(limit) => limit,
    };
    let mut jobs: BTreeMap<u64, JobDrain> = BTreeMap::new();
    let drained = loop {
        let answer = interrupt.or(cluster.drain(&args.agent, args.undo, args.dry_run)).await?;
        // What is over by now has nothing there that could move.
        jobs.retain(|run, known| known.plan.is_some() || answer.jobs.iter().any(|job| job.run == *run));
        for job in answer.jobs {
            // What moves already is not looked at again.
            if jobs.get(&job.run).is_none_or(|known| known.plan.is_none()) {
                jobs.insert(job.run, job);
            }
        }
        let again = jobs.values().any(|job| job.again && job.plan.is_none());
        if args.dry_run || !again || patience.is_some_and(|patience| began.elapsed() >= patience) {
            break answer.drained;
        }
        interrupt.or(pause()).await?;
        // To ask again is not to take back what somebody else has said since.
        if !interrupt.or(cluster.drain(&args.agent, false, true)).await?.drained {
            return Err(Failure::Stale(format!(
                "agent {} gets new instances again, by another command: what was left there stays",
                args.agent
            )));
        }
    };
    if output.is_text() {
        output.text(&text(&args, drained, &jobs, output.room()))?;
    }
    if args.wait.is_some() {
        for job in jobs.values() {
            let Some(epoch) = job.plan.as_ref().and_then(|plan| plan.next) else { continue };
            let left = patience.map(|patience| patience.saturating_sub(began.elapsed()));
            let done = interrupt.or(until_done(&cluster, job.run, epoch, left, output)).await?;
            if done.fault.is_some() {
                return Err(given_up(&cluster, &job.job, job.run, &done).await);
            }
        }
    }
    if !output.is_text() {
        let jobs: Vec<Value> = jobs.values().map(document).collect();
        let body = json!({"cluster": cluster.name, "agent": args.agent, "drained": drained, "jobs": jobs});
        output.document("agents-drain", &body)?;
    }
    let late = jobs.values().find(|job| job.again && job.plan.is_none() && !args.dry_run);
    match late {
        Some(job) => {
            // As text it was said above.
            let why = job.why.as_ref().filter(|_| !output.is_text());
            Err(Failure::TimedOut(format!(
                "what job {} has on {} was not moved yet{}: ask again (`tuplane agents drain {}`)",
                job.job,
                args.agent,
                why.map_or_else(String::new, |why| format!(", {why}")),
                args.agent
            )))
        }
        None => Ok(()),
    }
}

async fn pause() -> Outcome {
    tokio::time::sleep(LOOK).await;
    Ok(())
}

fn text(args: &Args, drained: bool, jobs: &BTreeMap<u64, JobDrain>, room: Option<usize>) -> String {
    let agent = safe::line(&args.agent);
    let mut out = match (args.undo, args.dry_run, drained) {
        (true, ..) => format!("agent {agent} gets new instances\n"),
        (_, true, false) => format!("agent {agent} would be drained\n"),
        _ => format!("agent {agent} is drained: it gets no new instances\n"),
    };
    for job in jobs.values() {
        if let Some(plan) = &job.plan {
            out.push_str(&show::text(plan, room));
        }
        for one in &job.stays {
            let name = safe::line(&one.instance.name);
            out.push_str(&format!("job {}: {name} stays: {}\n", safe::line(&job.job), safe::line(&one.why)));
        }
        if let Some(why) = &job.why {
            out.push_str(&format!("job {}: nothing moves: {}\n", safe::line(&job.job), safe::line(why)));
        }
    }
    out
}

fn document(job: &JobDrain) -> Value {
    let plan = job.plan.as_ref().map_or(Value::Null, show::document);
    let list = |name: &str| if plan.is_null() { json!([]) } else { plan[name].clone() };
    json!({
        "job": job.job,
        "run": job.run,
        "next": job.plan.as_ref().and_then(|plan| plan.next),
        "started": list("started"),
        "moved": list("moved"),
        "stopped": list("stopped"),
        "edges": list("edges"),
        "predicted_per_s": plan["predicted_per_s"],
        "not_predicted": plan["not_predicted"],
        "notes": list("notes"),
        "stays": job.stays.iter().map(|one| json!({
            "name": one.instance.name, "instance": one.instance.id, "why": one.why,
        })).collect::<Vec<_>>(),
        "why": job.why,
    })
}
