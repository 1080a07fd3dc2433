//! Agents that a rescale takes on, and those that it gives back.

use std::collections::BTreeSet;

use tuplane_wire::message::JobPhase;
use tuplane_wire::scaling::ScalePlan;

use crate::args::Global;
use crate::cluster::Cluster;
use crate::command::agents::{add, release};
use crate::command::confirm;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::Output;

/// So many new agents on this machine may be a slip.
const MANY: u32 = 10;

/// Names of the agents that have instances of a job which no rescale has ended.
pub(super) async fn used_by(cluster: &Cluster, job: &str) -> Outcome<BTreeSet<String>> {
    let status = cluster.status(Some(job.to_owned())).await?;
    let standing = status.instances.iter().filter(|one| !status.scale.retired.contains(&one.id));
    let agents = standing.filter_map(|one| status.agents.get(usize::from(one.agent)));
    Ok(agents.map(|agent| agent.id.name.clone()).collect())
}

/// Starts agents where fewer than `wanted` are without an instance of a running job: processes of this machine, or on the
/// next spare hosts; gives their names. Where neither can be the coordinator refuses the plan with the numbers.
pub(super) async fn start_missing(
    cluster: &Cluster,
    job: &str,
    wanted: u32,
    global: &Global,
    output: &Output,
) -> Outcome<Vec<String>> {
    let Some((_, file)) = cluster.home().filter(|_| wanted > 0) else { return Ok(Vec::new()) };
    if cluster.status(Some(job.to_owned())).await?.summary.phase != JobPhase::Running {
        return Ok(Vec::new());
    }
    let used = used_by(cluster, job).await?;
    let agents = cluster.agents().await?;
    let fresh = agents.iter().filter(|agent| {
        agent.alive && !agent.drained && agent.info.slots > 0 && !used.contains(&agent.info.id.name)
    });
    let fresh = fresh.count() as u32;
    let missing = wanted.saturating_sub(fresh);
    if missing == 0 {
        return Ok(Vec::new());
    }
    let options = add::Options::default();
    let added = if file.road.is_none() {
        if missing > add::MOST_LOCAL {
            return Err(Failure::Usage(format!(
                "--agents {wanted}: {fresh} registered agents have no instance of job {job}, and one command starts at most \
                 {} more on this machine",
                add::MOST_LOCAL
            )));
        }
        if missing >= MANY {
            confirm(global, &format!("start {missing} agents on this machine"))?;
        }
        add::start(cluster, missing, &options, &Interrupt::listen()?).await?
    } else {
        let spares = file.spares().len() as u32;
        if spares < missing {
            return Err(Failure::Usage(format!(
                "--agents {wanted}: {fresh} registered agents have no instance of job {job}, and {spares} spare hosts are \
                 left: {} missing; `tuplane agents add HOST` starts an agent on another host",
                missing - spares
            )));
        }
        add::start_spares(cluster, missing, &options, &Interrupt::listen()?).await?
    };
    let names: Vec<String> = added.entries.into_iter().map(|agent| agent.name).collect();
    output.notice(&format!("started: {}", names.join(", ")));
    Ok(names)
}

/// Fewer agents than were asked for, and how there come to be more.
pub(super) fn too_few(cluster: &Cluster, why: &str) -> Failure {
    let how = match cluster.home() {
        None => "more are added on the machine that started the cluster".to_owned(),
        Some((_, file)) if file.road.is_none() => {
            "without --dry-run the missing ones are started on this machine, and with `tuplane agents add --local N` before \
             that the plan can be looked at first"
                .to_owned()
        }
        Some((_, file)) => match file.spares().len() {
            0 => "`tuplane agents add HOST` starts one on another host".to_owned(),
            spares => format!("{spares} spare hosts are left, and without --dry-run the next ones are taken"),
        },
    };
    Failure::TooFewAgents(format!("{why}; {how}"))
}

/// A plan that empties agents goes on, and whoever was to release them waits no longer.
pub(super) fn not_released(failure: Failure) -> Failure {
    match failure {
        Failure::TimedOut(why) => Failure::TimedOut(format!(
            "{why}; the agents that it empties are not released then: `tuplane agents drain NAME` and `tuplane agents release \
             NAME` do that"
        )),
        other => other,
    }
}

/// Releases agents that were started for a plan, if that was refused before anything changed.
pub(super) async fn give_back(cluster: &Cluster, started: &[String], why: &Failure, output: &Output) {
    let refused = matches!(
        why,
        Failure::Usage(_)
            | Failure::TooFewAgents(_)
            | Failure::NotFound(_)
            | Failure::Stale(_)
            | Failure::NeedsYes(_)
    );
    give_back_each(cluster, started, refused, output).await;
}

/// Releases those of the agents started for a plan that it has no use for; gives the names of the others.
pub(super) async fn give_back_unused(
    cluster: &Cluster,
    started: Vec<String>,
    plan: &ScalePlan,
    output: &Output,
) -> Vec<String> {
    let (used, unused): (Vec<String>, Vec<String>) = started.into_iter().partition(|name| uses(plan, name));
    let stay = give_back_each(cluster, &unused, true, output).await;
    used.into_iter().chain(stay).collect()
}

/// A plan has something start on an agent.
fn uses(plan: &ScalePlan, agent: &str) -> bool {
    let begins = plan.started.iter().map(|one| &one.instance).chain(plan.moved.iter().map(|moved| &moved.to));
    begins.into_iter().any(|one| one.agent == agent)
}

/// Releases agents, or says why they stay; gives the names of those that do.
async fn give_back_each(
    cluster: &Cluster,
    started: &[String],
    refused: bool,
    output: &Output,
) -> Vec<String> {
    let mut stay = Vec::new();
    for name in started {
        let outcome = if refused { release_one(cluster, name).await } else { Err(kept()) };
        match outcome {
            Ok(()) => output.notice(&format!("released again: {name}")),
            Err(failure) => {
                output.notice(&format!("{name} stays in the cluster: {failure}"));
                stay.push(name.clone());
            }
        }
    }
    stay
}

fn kept() -> Failure {
    Failure::Usage("a plan may have begun to use it (`tuplane agents` lists what is there)".to_owned())
}

/// Releases those of the agents that no job needs any more; gives their names, and says why the others stay.
pub(super) async fn release_idle(
    cluster: &Cluster,
    agents: Vec<String>,
    output: &Output,
) -> Outcome<Vec<String>> {
    let names: BTreeSet<String> = agents.into_iter().collect();
    let mut released = Vec::new();
    for name in names {
        let known = cluster.agents().await?;
        let Some(agent) = known.iter().find(|agent| agent.info.id.name == name) else { continue };
        let stays = if agent.coordinator {
            Some("it coordinates".to_owned())
        } else if agent.instances > 0 {
            Some(format!("{} instances of jobs are there", agent.instances))
        } else {
            release_one(cluster, &name).await.err().map(|failure| failure.to_string())
        };
        if let Some(why) = stays {
            output.notice(&format!("{name} stays in the cluster: {why}"));
        } else {
            output.notice(&format!("released: {name}"));
            released.push(name);
        }
    }
    Ok(released)
}

/// Drains an agent without instances and releases it; where that is refused it is as it was.
async fn release_one(cluster: &Cluster, name: &str) -> Outcome {
    let known = cluster.agents().await?;
    let before = known.iter().any(|agent| agent.info.id.name == name && agent.drained);
    cluster.drain(name, false, false).await?;
    let outcome = release::release(cluster, name).await;
    if outcome.is_err() && !before {
        // Why it was not released says more than that this failed too.
        let _ = cluster.drain(name, true, false).await;
    }
    outcome.map(|_| ())
}

#[cfg(test)]
mod tests {
    use tuplane_wire::scaling::{Named, ScaleInstance, ScaleMove};

    use super::*;

    #[test]
    fn a_plan_uses_the_agents_that_something_starts_on() {
        let on = |agent: &str| Named { id: 0, name: "w#0".to_owned(), agent: agent.to_owned() };
        let plan = ScalePlan {
            started: vec![ScaleInstance { vertex: 0, instance: on("b") }],
            moved: vec![ScaleMove { vertex: 0, from: on("a"), to: on("c") }],
            stopped: vec![ScaleInstance { vertex: 0, instance: on("d") }],
            ..ScalePlan::default()
        };
        let used: Vec<&str> = ["a", "b", "c", "d"].into_iter().filter(|agent| uses(&plan, agent)).collect();
        assert_eq!(used, ["b", "c"]);
    }
}
