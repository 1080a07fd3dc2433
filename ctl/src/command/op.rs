//! `tuplane op`.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use tuplane_wire::message::{ClusterReply, ClusterRequest};
use tuplane_wire::operation::{OperationList, OperationNow};

use crate::args::{Global, whole};
use crate::cluster::{Cluster, unexpected};
use crate::command::scale::drains::Drains;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::output::table::{Align, Table};
use crate::output::time::{parse_span, rfc3339, span};

/// Between two looks at an operation.
const LOOK: Duration = Duration::from_millis(100);

/// Options of `op`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Lists what was asked of the cluster while jobs ran: by whom, when, how far it is, what came of it
    List(ListArgs),
    /// Waits until an operation is over; its exit code says what came of it
    Wait(WaitArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only those that change this job: its name or run id
    job: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 it is done; 1 it failed; 4 it goes on after --within TIME; 6 there is none of this number, or it is not \
remembered any more.")]
struct WaitArgs {
    /// Its number, as `op list` and `scale` show it
    #[arg(value_parser = whole::<u64>(1, u64::MAX))]
    id: u64,
    /// Waits so long at most
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    within: Option<Duration>,
}

/// One operation as a document has it.
#[derive(Debug, Serialize)]
struct OperationView {
    operation: u64,
    what: String,
    by: String,
    job: Option<String>,
    run: Option<u64>,
    plan: Option<u64>,
    asked_at: String,
    ended_at: Option<String>,
    took_ms: Option<u64>,
    /// running, done or failed
    state: &'static str,
    step: Option<&'static str>,
    partitions_moved: Option<u32>,
    partitions: Option<u32>,
    fault: Option<String>,
}

impl From<&OperationNow> for OperationView {
    fn from(now: &OperationNow) -> Self {
        let (one, asked) = (&now.operation, &now.operation.asked);
        Self {
            operation: one.id,
            what: asked.what.clone(),
            by: asked.by.clone(),
            job: one.job.as_ref().map(|(_, name)| name.clone()),
            run: asked.run,
            plan: asked.plan,
            asked_at: rfc3339(asked.at_ms),
            ended_at: one.ended_ms.map(rfc3339),
            took_ms: one.ended_ms.map(|ended| ended.saturating_sub(asked.at_ms)),
            state: match (one.is_open(), &one.fault) {
                (true, _) => "running",
                (false, None) => "done",
                (false, Some(_)) => "failed",
            },
            step: now.step.map(tuplane_wire::scaling::Step::word),
            partitions_moved: now.moved.map(|(moved, _)| moved),
            partitions: now.moved.map(|(_, all)| all),
            fault: one.fault.clone(),
        }
    }
}

impl OperationView {
    /// How far it is, for people.
    fn progress(&self) -> String {
        match (self.partitions_moved, self.partitions, self.step) {
            (Some(moved), Some(all), _) => format!("{moved} of {all} key partitions"),
            (_, _, Some(step)) if self.state == "running" => step.to_owned(),
            _ => "-".to_owned(),
        }
    }
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let cluster = Cluster::find(global, output)?;
    match args.action {
        Action::List(ListArgs { job }) => list(&cluster, job, output).await,
        Action::Wait(args) => wait(&cluster, &args, output).await,
    }
}

async fn operations(cluster: &Cluster, job: Option<String>) -> Outcome<OperationList> {
    match cluster.ask(ClusterRequest::Operations { job }).await? {
        ClusterReply::Operations(list) => Ok(*list),
        other => Err(unexpected(&other)),
    }
}

async fn list(cluster: &Cluster, job: Option<String>, output: &mut Output) -> Outcome {
    let OperationList { all, left_out } = operations(cluster, job).await?;
    let views: Vec<OperationView> = all.iter().map(OperationView::from).collect();
    if !output.is_text() {
        return output.document("operations", &json!({"operations": views, "left_out": left_out}));
    }
    if views.is_empty() {
        return output.text("nothing was asked of it while jobs ran\n");
    }
    let mut out = table(&views, output.room());
    if left_out > 0 {
        out.push_str(&format!("{left_out} older ones are not remembered\n"));
    }
    output.text(&out)
}

fn table(views: &[OperationView], room: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("OP", Align::Right),
        ("JOB", Align::Left),
        ("WHAT", Align::Left),
        ("BY", Align::Left),
        ("AT", Align::Left),
        ("STATE", Align::Left),
        ("PROGRESS", Align::Left),
        ("TOOK", Align::Right),
        ("WHY", Align::Left),
    ])
    .spare(&["WHY", "BY", "AT", "WHAT"]);
    for view in views {
        table.row([
            view.operation.to_string(),
            view.job.clone().unwrap_or_else(|| "-".to_owned()),
            view.what.clone(),
            view.by.clone(),
            view.asked_at.clone(),
            view.state.to_owned(),
            view.progress(),
            view.took_ms.map_or_else(|| "-".to_owned(), span),
            view.fault.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table.render_in(room)
}

async fn wait(cluster: &Cluster, args: &WaitArgs, output: &mut Output) -> Outcome {
    let interrupt = Interrupt::listen()?;
    let view = interrupt.or(until_over(cluster, args, output)).await?;
    if let Some(fault) = &view.fault {
        let message = format!("operation {} ({}) failed: {fault}", view.operation, view.what);
        return Err(Failure::Failed { kind: "agent", message });
    }
    if output.is_text() {
        output.text(&table(&[view], output.room()))
    } else {
        output.document("operation", &view)
    }
}

async fn until_over(cluster: &Cluster, args: &WaitArgs, output: &Output) -> Outcome<OperationView> {
    let (began, mut drains) = (Instant::now(), Drains::new());
    loop {
        let OperationList { all, left_out } = operations(cluster, None).await?;
        let Some(one) = all.iter().find(|one| one.operation.id == args.id) else {
            let why = if args.id <= left_out { "is not remembered any more" } else { "does not exist" };
            return Err(Failure::NotFound(format!("operation {} {why}: see `tuplane op list`", args.id)));
        };
        let view = OperationView::from(one);
        if !one.operation.is_open() {
            return Ok(view);
        }
        if args.within.is_some_and(|within| began.elapsed() >= within) {
            return Err(Failure::TimedOut(format!(
                "operation {} ({}) is not over yet ({}); it goes on",
                args.id,
                view.what,
                view.progress()
            )));
        }
        if let Some(run) = one.operation.asked.run.filter(|_| one.operation.asked.plan.is_some()) {
            drains.say(cluster, run, output).await;
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use tuplane_wire::operation::{Asked, Operation};
    use tuplane_wire::scaling::Step;

    use super::*;

    fn now(ended_ms: Option<u64>, fault: Option<&str>, moved: Option<(u32, u32)>) -> OperationNow {
        let asked = Asked {
            what: "scale set w=3".to_owned(),
            by: "ann@h1".to_owned(),
            at_ms: 1_000,
            run: Some(7),
            plan: Some(2),
            fault: None,
        };
        let fault = fault.map(str::to_owned);
        let operation = Operation { id: 4, asked, job: Some((7, "count".to_owned())), ended_ms, fault };
        OperationNow { operation, step: Some(Step::Committed), moved }
    }

    #[test]
    fn an_operation_says_how_far_it_is_and_what_came_of_it() {
        let of = |now: OperationNow| {
            let view = OperationView::from(&now);
            (view.state, view.progress(), view.took_ms)
        };
        assert_eq!(
            of(now(None, None, Some((3, 16)))),
            ("running", "3 of 16 key partitions".to_owned(), None)
        );
        assert_eq!(of(now(None, None, None)), ("running", Step::Committed.word().to_owned(), None));
        assert_eq!(of(now(Some(3_500), None, None)), ("done", "-".to_owned(), Some(2_500)));
        assert_eq!(of(now(Some(1_001), Some("why"), None)), ("failed", "-".to_owned(), Some(1)));
        let text = table(&[OperationView::from(&now(Some(3_500), Some("agent b is gone"), None))], None);
        for part in ["scale set w=3", "ann@h1", "failed", "2.5s", "agent b is gone", "count"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
