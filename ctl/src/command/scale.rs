//! `tuplane scale`.

mod agents;
mod apply;
pub(super) mod auto;
pub(super) mod drains;
mod history;
pub(super) mod show;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tuplane_core::scale::planner::MOST;
use tuplane_wire::message::{ClusterReply, ClusterRequest, JobPhase};
use tuplane_wire::scaling::{JobScalings, Rescale, Restarted, ScaleAsk, ScalePlace, ScalePlan, Step};

use drains::Drains;

use crate::args::{Global, whole};
use crate::cluster::{Cluster, unexpected};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::output::time::parse_span;
use crate::report::phase_word;

/// Between two looks at a rescale. Each brings all that is remembered of the job's rescales.
const LOOK: Duration = Duration::from_millis(250);

/// A vertex that grows by this factor may be a slip.
const GROWTH: u32 = 10;

/// Options of `scale`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Gives a vertex so many instances while the job runs
    Set(SetArgs),
    /// Adds instances where they pay most, on more agents or on those that there are, while the job runs
    Out(OutArgs),
    /// Moves what an agent, or the agents that a planner chooses, have of a job elsewhere while the job runs
    In(InArgs),
    /// Has the cluster itself change the numbers of instances as the load changes; off unless turned on
    Auto(auto::Args),
    /// Carries out a plan that was made elsewhere, instance by instance
    Apply(apply::Args),
    /// Lists the rescales of a job: what was asked, what came of it
    History(history::Args),
}

/// What all changes have in common.
#[derive(Debug, clap::Args)]
struct Carry {
    /// Shows the plan and changes nothing
    #[arg(long)]
    dry_run: bool,
    /// Refused unless the job's plan has this number: 1, then one more with each rescale (`tuplane scale history`)
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1, u64::MAX), allow_hyphen_values = true)]
    if_epoch: Option<u64>,
    /// Refused unless this is the plan that would be carried out: what --dry-run printed as its id
    #[arg(long, value_name = "ID", value_parser = plan_id)]
    if_plan: Option<u64>,
    /// Waits until what ends has been drained, at most TIME
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, value_parser = parse_span)]
    #[expect(clippy::option_option, reason = "clap's shape for an option whose value may be left out")]
    wait: Option<Option<Duration>>,
    /// How: without a pause, or as other systems do it, by stopping the job's part on the agents whose part changes, or
    /// all of it
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    mechanism: Mechanism,
    /// With a restart: how long it is until what is new starts, as starting a process costs
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_span)]
    start_cost: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Mechanism {
    #[default]
    Live,
    RestartMoved,
    RestartAll,
}

impl Carry {
    fn held(&self) -> Held {
        Held { epoch: self.if_epoch, plan: self.if_plan }
    }

    /// What is asked, carried out as these options have it.
    fn with_mechanism(&self, ask: ScaleAsk) -> ScaleAsk {
        let what = match self.mechanism {
            Mechanism::Live => return ask,
            Mechanism::RestartMoved => Restarted::Moved,
            Mechanism::RestartAll => Restarted::All,
        };
        let cost_ms = u64::try_from(self.start_cost.as_millis()).unwrap_or(u64::MAX);
        ScaleAsk::Restarting { ask: Box::new(ask), what, cost_ms }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Growth by ten times or more is asked about first, or needs --yes. Asking for what is there changes nothing.
Several vertices in one plan: `tuplane scale apply`.")]
struct SetArgs {
    /// Name or run id
    job: String,
    /// A stage or vertex and its number of instances in all, such as work=6
    #[arg(value_name = "VERTEX=N", value_parser = assignment)]
    assignment: (String, u32),
    /// Where new instances go: to any agent, or to agents without an instance of the job
    #[arg(long, value_enum, default_value_t, value_name = "WHERE")]
    place: Place,
    #[command(flatten)]
    carry: Carry,
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum Place {
    #[default]
    Anywhere,
    New,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("how_many").required(true).multiple(true).args(["agents", "instances"]), after_help = OUT)]
struct OutArgs {
    /// Name or run id
    job: String,
    /// So many more agents: registered ones without an instance of the job, then new ones (processes of this machine, or
    /// the next spare hosts of the hosts file), with as many instances as the others have in the mean
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 1024))]
    agents: Option<u32>,
    /// So many more instances; without --agents on the agents that have some
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, u64::from(MOST)))]
    instances: Option<u32>,
    /// Who chooses the stages: best, stela, stela-code, ds2, round-robin, storm-default, least-link-load [default: best;
    /// stela in the setting paper]
    #[arg(long, value_name = "NAME")]
    planner: Option<String>,
    /// Where new instances go: to the added agents alone, or to any
    #[arg(long, value_enum, default_value_t = OutPlace::New, value_name = "WHERE")]
    place: OutPlace,
    #[command(flatten)]
    carry: Carry,
}

const OUT: &str = "\
The planner sees the rates of the last 10 s (`tuplane etp JOB`): let a job run that long. A whole window after the rescale \
is done, `tuplane scale history` has what came of it beside what was predicted.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OutPlace {
    New,
    Anywhere,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("who").required(true).args(["agents", "agent"]))]
struct InArgs {
    /// Name or run id
    job: String,
    /// So many agents, which a planner chooses
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 1024))]
    agents: Option<u32>,
    /// This agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Who chooses the agents: best, etp-sum, random, storm-default [default: best; etp-sum in the setting paper]
    #[arg(long, value_name = "NAME", conflicts_with = "agent")]
    planner: Option<String>,
    /// The agents stay in the cluster. Otherwise the command waits until they are empty, and releases those that no other
    /// job uses; it asks first, or needs --yes. What --wait=TIME cuts short releases none
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    carry: Carry,
}

fn assignment(text: &str) -> Result<(String, u32), String> {
    let parts = text.rsplit_once('=').filter(|(vertex, _)| !vertex.is_empty());
    let (vertex, count) = parts.ok_or("write VERTEX=N, such as work=6")?;
    let count = count.parse().map_err(|_| format!("`{count}` is no number of instances"))?;
    Ok((vertex.to_owned(), count))
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    match args.action {
        Action::Set(SetArgs { job, assignment: (vertex, instances), place, carry }) => {
            let cluster = Cluster::find(global, output)?;
            let place = match place {
                Place::Anywhere => ScalePlace::Anywhere,
                Place::New => ScalePlace::OnlyFresh,
            };
            let ask = ScaleAsk::Set { vertex, instances, place };
            let done = carry_out(&cluster, job, ask, &carry, &Ends::None, global, output).await?;
            done.document(json!({}), output)
        }
        Action::Out(OutArgs { job, agents, instances, planner, place, carry }) => {
            let cluster = Cluster::find(global, output)?;
            let ask = ScaleAsk::Out {
                agents: agents.unwrap_or(0),
                instances: instances.unwrap_or(0),
                planner,
                anywhere: place == OutPlace::Anywhere,
            };
            let wanted = agents.unwrap_or(0);
            let asked = request(&job, &carry.with_mechanism(ask.clone()), &carry.held(), true);
            let started = if wanted == 0 {
                Vec::new()
            } else {
                // What is wrong with the request is said before any agent is started for it.
                match planned(&cluster, asked).await {
                    Ok(_) => Vec::new(),
                    Err(Failure::TooFewAgents(why)) if carry.dry_run => {
                        return Err(agents::too_few(&cluster, &why));
                    }
                    Err(Failure::TooFewAgents(_)) => {
                        agents::start_missing(&cluster, &job, wanted, global, output).await?
                    }
                    Err(other) => return Err(other),
                }
            };
            match carry_out(&cluster, job, ask, &carry, &Ends::None, global, output).await {
                Err(Failure::TooFewAgents(why)) => Err(agents::too_few(&cluster, &why)),
                Ok(done) if started.is_empty() => done.document(json!({}), output),
                Ok(done) => {
                    let started = agents::give_back_unused(&cluster, started, &done.plan, output).await;
                    done.document(json!({"agents_started": started}), output)
                }
                Err(failure) => {
                    agents::give_back(&cluster, &started, &failure, output).await;
                    Err(failure)
                }
            }
        }
        Action::In(InArgs { job, agents, agent, planner, keep, carry }) => {
            let cluster = Cluster::find(global, output)?;
            if keep || carry.dry_run {
                let ask = ScaleAsk::In { agents: agents.unwrap_or(1), agent, planner, keep };
                let done = carry_out(&cluster, job, ask, &carry, &Ends::None, global, output).await?;
                return done.document(json!({}), output);
            }
            // Who is not empty cannot be released.
            let carry = Carry { wait: Some(carry.wait.flatten()), ..carry };
            let ask = ScaleAsk::In { agents: agents.unwrap_or(1), agent: agent.clone(), planner, keep };
            let ends = Ends::Emptied { named: agent.clone() };
            let done = carry_out(&cluster, job.clone(), ask, &carry, &ends, global, output).await;
            let done = done.map_err(agents::not_released)?;
            let after = agents::used_by(&cluster, &job).await?;
            // Only those that this plan emptied: another plan may keep what it has emptied meanwhile.
            let left = done.plan.moved.iter().map(|moved| moved.from.agent.clone());
            let emptied: Vec<String> = left.filter(|name| !after.contains(name)).chain(agent).collect();
            let released = agents::release_idle(&cluster, emptied, output).await?;
            done.document(json!({"agents_released": released}), output)
        }
        Action::Auto(args) => auto::run(args, global, output).await,
        Action::Apply(args) => apply::run(args, global, output).await,
        Action::History(args) => history::run(args, global, output).await,
    }
}

/// Agents that end once a plan is done.
enum Ends {
    None,
    /// Those that it empties, and one that was named.
    Emptied {
        named: Option<String>,
    },
}

impl Ends {
    /// Asks before agents are ended, as `agents release` does.
    async fn confirm(&self, cluster: &Cluster, plan: &ScalePlan, global: &Global) -> Outcome {
        let Self::Emptied { named } = self else { return Ok(()) };
        let stays = |agent: &String| plan.moved.iter().any(|moved| moved.to.agent == *agent);
        let left = plan.moved.iter().map(|moved| &moved.from.agent).filter(|agent| !stays(agent));
        let mut names: BTreeSet<&str> = left.chain(named).map(String::as_str).collect();
        for agent in cluster.agents().await?.iter().filter(|agent| agent.coordinator) {
            names.remove(agent.info.id.name.as_str());
        }
        names.retain(|name| !plan.staying.iter().any(|stays| stays == name));
        if names.is_empty() {
            return Ok(());
        }
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        let what = format!("end {names} once nothing is there, and take it out of cluster {}", cluster.name);
        super::confirm(global, &format!("{what} (--keep leaves it)"))
    }
}

/// What must hold for a plan to be carried out: the number of the job's plan, and the id of the one that is made.
#[derive(Debug, Clone, Copy)]
struct Held {
    epoch: Option<u64>,
    plan: Option<u64>,
}

fn request(job: &str, ask: &ScaleAsk, held: &Held, dry_run: bool) -> ClusterRequest {
    let Held { epoch: if_epoch, plan: if_plan } = *held;
    ClusterRequest::Scale { job: job.to_owned(), ask: ask.clone(), if_epoch, if_plan, dry_run }
}

fn plan_id(text: &str) -> Result<u64, String> {
    let digits = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let id = digits.then(|| u64::from_str_radix(text, 16).ok()).flatten();
    id.ok_or_else(|| "an id has 16 hexadecimal digits, as --dry-run prints it".to_owned())
}

/// A plan, and what came of it where that was waited for.
struct Done {
    plan: ScalePlan,
    outcome: Option<Rescale>,
}

impl Done {
    /// As a document, with the members of `more`.
    fn document(&self, more: Value, output: &mut Output) -> Outcome {
        if output.is_text() {
            return Ok(());
        }
        let mut body = show::document(&self.plan);
        if let Some(object) = body.as_object_mut() {
            if let Some(outcome) = &self.outcome {
                object.insert("outcome".to_owned(), json!(history::EntryView::from(outcome)));
            }
            if let Value::Object(more) = more {
                object.extend(more);
            }
        }
        output.document("scale", &body)
    }
}

/// Shows the plan, asks where it may be a slip, carries it out and waits if that is wanted.
async fn carry_out(
    cluster: &Cluster,
    job: String,
    ask: ScaleAsk,
    carry: &Carry,
    ends: &Ends,
    global: &Global,
    output: &mut Output,
) -> Outcome<Done> {
    let interrupt = Interrupt::listen()?;
    let ask = carry.with_mechanism(ask);
    if !carry.dry_run
        && let known = interrupt.or(scalings(cluster, job.clone())).await?
        && carry.if_epoch.is_none_or(|wanted| wanted == known.epoch)
        && let Some(why) = under_way(&known)
    {
        return Err(Failure::Usage(why));
    }
    let mut plan = interrupt.or(planned(cluster, request(&job, &ask, &carry.held(), true))).await?;
    if output.is_text() {
        output.text(&show::text(&plan, output.room()))?;
    }
    if !carry.dry_run {
        ends.confirm(cluster, &plan, global).await?;
    }
    if carry.dry_run || plan.is_empty() {
        return Ok(Done { plan, outcome: None });
    }
    confirm_growth(&plan, global)?;
    // What was shown is what is done, or nothing.
    let shown = Held { epoch: Some(plan.epoch), plan: plan.id };
    let begun = interrupt.or(planned(cluster, request(&job, &ask, &shown, false))).await;
    plan = begun.map_err(|failure| match failure {
        // Nobody has named that plan.
        Failure::Stale(why) if carry.if_epoch.is_none() && carry.if_plan.is_none() => Failure::Usage(
            format!("it is not what was shown any more, and nothing was changed: {why}; ask again"),
        ),
        other => other,
    })?;
    let (Some(limit), Some(epoch)) = (carry.wait, plan.next) else {
        if output.is_text() {
            output.notice(&format!(
                "`tuplane scale history {}` shows how far it is{}",
                plan.job,
                plan.operation.map(|id| format!(", `tuplane op wait {id}` waits for it")).unwrap_or_default()
            ));
        }
        return Ok(Done { plan, outcome: None });
    };
    let done = interrupt.or(until_done(cluster, plan.run, epoch, limit, output)).await?;
    if let Step::Failed = done.step {
        return Err(given_up(cluster, &plan.job, plan.run, &done).await);
    }
    if output.is_text() {
        output.text(&show::done(&plan, &done))?;
    }
    Ok(Done { plan, outcome: Some(done) })
}

/// Why no plan is looked at: another one is carried out.
fn under_way(known: &JobScalings) -> Option<String> {
    let plan = known.history.iter().find(|plan| !plan.step.is_final())?;
    Some(format!(
        "job {} is being rescaled: plan {} ({}) is {}; wait for it (`tuplane scale history {}`)",
        known.job,
        plan.epoch,
        plan.asked,
        plan.step.word(),
        known.job
    ))
}

fn confirm_growth(plan: &ScalePlan, global: &Global) -> Outcome {
    let grows = plan.counts.iter().find(|count| count.after >= count.before.max(1).saturating_mul(GROWTH));
    match grows {
        Some(count) => super::confirm(
            global,
            &format!(
                "scale {} of job {} from {} to {} instances",
                count.name, plan.job, count.before, count.after
            ),
        ),
        None => Ok(()),
    }
}

async fn planned(cluster: &Cluster, request: ClusterRequest) -> Outcome<ScalePlan> {
    match cluster.ask(request).await? {
        ClusterReply::Scaled(plan) => Ok(*plan),
        other => Err(unexpected(&other)),
    }
}

async fn scalings(cluster: &Cluster, job: String) -> Outcome<JobScalings> {
    match cluster.ask(ClusterRequest::Scalings { job }).await? {
        ClusterReply::Scalings(scalings) => Ok(*scalings),
        other => Err(unexpected(&other)),
    }
}

/// A plan that failed, and what goes on.
pub(super) async fn given_up(cluster: &Cluster, job: &str, run: u64, plan: &Rescale) -> Failure {
    let status = cluster.status(Some(run.to_string())).await;
    let phase = status.ok().map(|status| status.summary.phase);
    Failure::Failed { kind: "agent", message: what_became(job, phase, plan) }
}

/// The same in words; the phase is the job's, where that is known.
fn what_became(job: &str, phase: Option<JobPhase>, plan: &Rescale) -> String {
    let holds = plan.committed_ms.is_some();
    let rest = match phase {
        Some(JobPhase::Running) if holds => "and the job has begun again by it".to_owned(),
        Some(JobPhase::Running) => "and the old one goes on".to_owned(),
        Some(phase) => format!("and the job is {}", phase_word(phase)),
        None => "and what became of the job is not known".to_owned(),
    };
    let what = if holds { "held when its attempt ended" } else { "was given up" };
    let why = plan.fault.as_deref().unwrap_or("no reason was kept");
    format!("plan {} of job {job} {what}, {rest}: {why}", plan.epoch)
}

/// Waits until a plan is done, or was given up.
pub(super) async fn until_done(
    cluster: &Cluster,
    run: u64,
    epoch: u64,
    limit: Option<Duration>,
    output: &Output,
) -> Outcome<Rescale> {
    let (began, mut drains) = (Instant::now(), Drains::new());
    loop {
        let known = scalings(cluster, run.to_string()).await?;
        match known.history.into_iter().find(|entry| entry.epoch == epoch) {
            Some(entry) if entry.step.is_final() => return Ok(entry),
            Some(_) => {}
            None => return Err(Failure::NotFound(format!("plan {epoch} of run {run} is not remembered"))),
        }
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            return Err(Failure::TimedOut(format!(
                "plan {epoch} of job {} is not done yet; it goes on: `tuplane scale history {}`",
                known.job, known.job
            )));
        }
        drains.say(cluster, run, output).await;
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vertex_may_have_an_equals_sign_and_its_number_is_a_number() {
        assert_eq!(assignment("work=6"), Ok(("work".to_owned(), 6)));
        assert_eq!(assignment("fused(a=b)=2"), Ok(("fused(a=b)".to_owned(), 2)));
        for wrong in ["work", "=3", "work=", "work=-1", "work=two"] {
            assert!(assignment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_plan_that_is_under_way_is_waited_for() {
        let known = |step| JobScalings {
            job: "j".to_owned(),
            run: 1,
            epoch: 2,
            history: vec![Rescale { step, ..given_up_after(None) }],
            left_out: 0,
            auto: None,
        };
        assert_eq!(under_way(&known(Step::Done)), None);
        let said = under_way(&known(Step::Committed)).unwrap();
        assert!(
            said.starts_with("job j is being rescaled: plan 4 (set w=6) is committed; wait for it"),
            "{said}"
        );
    }

    fn given_up_after(committed_ms: Option<u64>) -> Rescale {
        Rescale {
            epoch: 4,
            attempt: 1,
            asked: "set w=6".into(),
            planner: None,
            step: Step::Failed,
            fault: Some("agent c was lost".into()),
            started: Vec::new(),
            stopped: Vec::new(),
            asked_ms: 1,
            prepared_ms: Some(2),
            committed_ms,
            ended_ms: Some(9),
            predicted: None,
            unpredicted: None,
            measured: None,
            unmeasured: None,
            why: None,
        }
    }

    #[test]
    fn a_plan_that_held_was_not_given_up() {
        let said = |committed_ms, phase| what_became("j", phase, &given_up_after(committed_ms));
        assert_eq!(
            said(None, Some(JobPhase::Running)),
            "plan 4 of job j was given up, and the old one goes on: agent c was lost"
        );
        assert_eq!(
            said(Some(3), Some(JobPhase::Running)),
            "plan 4 of job j held when its attempt ended, and the job has begun again by it: agent c was lost"
        );
        assert_eq!(
            said(Some(3), Some(JobPhase::Failed)),
            "plan 4 of job j held when its attempt ended, and the job is failed: agent c was lost"
        );
    }
}
