//! `tuplane agents add`.

use std::path::PathBuf;

use serde_json::{Value, json};
use tuplane_testbed::launch::{AgentEntry, LocalOptions, LocalPlan, Members};
use tuplane_wire::message::AgentInfo;

use crate::args::{Global, parse_size, whole};
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::table::{Align, Table, counted};
use crate::output::{Output, safe};

/// Options of `agents add`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
In a cluster that was started with `--detach` they run until they are released or the cluster ends. Otherwise they end also \
10 s after the coordinator has gone, whatever became of this command.")]
pub(super) struct Args {
    /// So many more, as processes of this machine
    #[arg(long, value_name = "N", required = true, value_parser = whole::<u32>(1, 256))]
    local: u32,
    #[command(flatten)]
    options: Options,
}

/// What the new agents are like; as the coordinator is where nothing is said.
#[derive(Debug, Clone, Default, clap::Args)]
pub(in crate::command) struct Options {
    /// Instances per vertex on each new agent [default: as many as the coordinator has]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 1024))]
    slots: Option<u32>,
    /// Most rows in `work` at once on each new agent [default: the coordinator's]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 4096))]
    cores: Option<u32>,
    /// Zones, dealt to the new agents in turn [default: the coordinator's]
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    zones: Vec<String>,
    /// Bytes of queued rows on each new agent, such as 64MiB [default: the coordinator's]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// The agent's binary [default: the one that the coordinator runs]
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
}

/// Agents that were started.
#[derive(Debug)]
pub(in crate::command) struct Added {
    pub(in crate::command) entries: Vec<AgentEntry>,
    plan: LocalPlan,
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let cluster = Cluster::find(global, output)?;
    let interrupt = Interrupt::listen()?;
    let added = interrupt.or(start(&cluster, args.local, &args.options)).await?;
    if output.is_text() {
        output.text(&text(&cluster, &added))
    } else {
        output.document("agents-add", &document(&cluster, &added))
    }
}

/// Starts so many agents for a cluster of this machine, all or none.
pub(in crate::command) async fn start(cluster: &Cluster, agents: u32, options: &Options) -> Outcome<Added> {
    let Some((folder, file)) = cluster.home() else {
        return Err(Failure::Usage(
            "agents are added on the machine that started the cluster; give its name there with --cluster"
                .into(),
        ));
    };
    if file.road.is_some() {
        return Err(Failure::Usage(format!(
            "cluster {} is on named hosts: agents can be added to clusters of this machine only",
            cluster.name
        )));
    }
    let known = cluster.agents().await?;
    let Some(like) = known.iter().find(|agent| agent.coordinator) else {
        return Err(Failure::Internal("no agent is the coordinator".into()));
    };
    let names: Vec<String> = known.iter().map(|agent| agent.info.id.name.clone()).collect();
    let mut members = Members::hold(folder)?;
    let zones = vec![like.info.zone.clone()];
    let mut plan = LocalOptions {
        cluster: file.name.clone(),
        agents,
        slots: Some(options.slots.unwrap_or(like.info.slots.max(1))),
        cores: options.cores.or(Some(like.info.cores)),
        zones: if options.zones.is_empty() { zones } else { options.zones.clone() },
        costs: None,
        memory: options.memory.or(Some(like.host.budget).filter(|budget| *budget > 0)),
        agent: options.agent.clone().or_else(|| binary(&like.info)),
        insecure: file.key.is_none(),
        detached: file.detached,
    }
    .plan()?;
    for (agent, name) in plan.agents.iter_mut().zip(members.free_names(&names, agents as usize)) {
        agent.name = name;
    }
    let entries = members.add(&plan).await?;
    Ok(Added { entries, plan })
}

/// What an agent of this machine runs, unless that was replaced on disk since.
fn binary(agent: &AgentInfo) -> Option<PathBuf> {
    let path = std::fs::read_link(format!("/proc/{}/exe", agent.pid)).ok()?;
    path.is_file().then_some(path)
}

/// Each agent with its zone.
fn zoned(added: &Added) -> impl Iterator<Item = (&AgentEntry, &str)> {
    let zones = added.plan.agents.iter().map(|agent| agent.zone.as_str());
    added.entries.iter().zip(zones)
}

fn text(cluster: &Cluster, added: &Added) -> String {
    let mut table = Table::new(&[
        ("AGENT", Align::Left),
        ("ADDRESS", Align::Left),
        ("PID", Align::Right),
        ("ZONE", Align::Left),
    ]);
    for (agent, zone) in zoned(added) {
        let pid = agent.process.pid.to_string();
        table.row([agent.name.clone(), agent.address.clone(), pid, zone.to_owned()]);
    }
    format!(
        "cluster {}: {} more, {} each\n{}",
        safe::line(&cluster.name),
        counted(added.entries.len() as u64, "agent"),
        counted(added.plan.slots.into(), "slot"),
        table.render()
    )
}

fn document(cluster: &Cluster, added: &Added) -> Value {
    let agents: Vec<Value> = zoned(added)
        .map(|(agent, zone)| {
            json!({"agent": agent.name, "address": agent.address, "pid": agent.process.pid, "zone": zone})
        })
        .collect();
    json!({"cluster": cluster.name, "slots": added.plan.slots, "cores": added.plan.cores, "agents": agents})
}
