//! `tuplane agents add`.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tuplane_testbed::hosts;
use tuplane_testbed::launch::ssh::{self, HostsOptions, RemoteAgent, RemotePlan};
use tuplane_testbed::launch::{AgentEntry, ClusterFile, LocalOptions, LocalPlan, Members, runtime_root};
use tuplane_wire::message::{AgentInfo, ClusterRequest};

use crate::args::{Global, parse_size, whole, zone};
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::table::{Align, Table, counted};
use crate::output::{Output, safe};

/// One command starts at most so many agents on its machine.
pub(in crate::command) const MOST_LOCAL: u32 = 256;

/// The coordinator has heard by then what an agent said before it ended.
const LATE: Duration = Duration::from_millis(100);

/// Options of `agents add`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true).args(["hosts", "spare", "local"])), after_help = "\
In a cluster that was started with `--detach` they run until they are released or the cluster ends. Otherwise they end also \
10 s after the coordinator has gone, whatever became of this command. All of them start, or none.")]
pub(super) struct Args {
    /// For a cluster on named hosts: the name or host of a line that the hosts file has as spare, or another host, written
    /// as a line of a hosts file ('me@n7 data=10.0.0.0/24')
    #[arg(value_name = "HOST")]
    hosts: Vec<String>,
    /// The next N spare hosts of the hosts file
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 4096))]
    spare: Option<u32>,
    /// So many more, as processes of this machine
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, MOST_LOCAL.into()))]
    local: Option<u32>,
    #[command(flatten)]
    options: Options,
}

/// What the new agents are like; as the coordinator is where nothing is said.
#[derive(Debug, Clone, Default, clap::Args)]
pub(in crate::command) struct Options {
    /// Instances per vertex on each new agent [default: as many as the coordinator has; on a named host what its line
    /// says, else its processors]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 1024))]
    slots: Option<u32>,
    /// Most rows in `work` at once on each new agent [default: the coordinator's]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 4096))]
    cores: Option<u32>,
    /// Zones, dealt to the new agents in turn [default: the coordinator's; on a named host what its line says]
    #[arg(long, value_name = "A,B,..", value_delimiter = ',', value_parser = zone)]
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
    /// Of each.
    zones: Vec<String>,
    /// Where all have as many, and that is known here.
    slots: Option<u32>,
    cores: Option<u32>,
}

impl Added {
    fn local(entries: Vec<AgentEntry>, plan: &LocalPlan) -> Self {
        let zones = plan.agents.iter().map(|agent| agent.zone.clone()).collect();
        Self { entries, zones, slots: Some(plan.slots), cores: Some(plan.cores) }
    }

    fn remote(entries: Vec<AgentEntry>, plan: &RemotePlan) -> Self {
        let same = |of: fn(&RemoteAgent) -> Option<u32>| {
            let first = plan.agents.first().and_then(of);
            first.filter(|first| plan.agents.iter().all(|agent| of(agent) == Some(*first)))
        };
        let zones = plan.agents.iter().map(|agent| agent.zone.clone()).collect();
        Self { entries, zones, slots: same(|agent| agent.slots), cores: same(|agent| Some(agent.cores)) }
    }
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let cluster = Cluster::find(global, output)?;
    let interrupt = Interrupt::listen()?;
    let added = match (args.local, args.spare) {
        (Some(agents), _) => start(&cluster, agents, &args.options, &interrupt).await?,
        (None, Some(agents)) => start_spares(&cluster, agents, &args.options, &interrupt).await?,
        (None, None) => start_hosts(&cluster, &args.hosts, &args.options, &interrupt).await?,
    };
    if output.is_text() {
        output.text(&text(&cluster, &added))
    } else {
        output.document("agents-add", &document(&cluster, &added))
    }
}

/// Starts so many agents for a cluster of this machine, all or none; none where a signal comes before all are there.
pub(in crate::command) async fn start(
    cluster: &Cluster,
    agents: u32,
    options: &Options,
    interrupt: &Interrupt,
) -> Outcome<Added> {
    let Some((folder, file)) = cluster.home() else {
        return Err(Failure::Usage(
            "agents are added on the machine that started the cluster; give its name there with --cluster"
                .into(),
        ));
    };
    if file.road.is_some() {
        return Err(Failure::Usage(format!(
            "cluster {} is on named hosts: `tuplane agents add HOST` starts agents there, `--spare N` on spare ones",
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
    match members.add(&plan, interrupt.wait()).await {
        Ok(entries) => Ok(Added::local(entries, &plan)),
        Err(cause) => {
            take_out(cluster, plan.agents.iter().map(|agent| agent.name.as_str())).await;
            Err(cause.into())
        }
    }
}

/// Agents that had joined before another one did not start, and were ended for that, are none of the cluster's.
async fn take_out<'a>(cluster: &Cluster, names: impl Iterator<Item = &'a str>) {
    let names: Vec<&str> = names.collect();
    for look in 0..2 {
        // A word of one that was just ended may have been on its way.
        tokio::time::sleep(LATE * look).await;
        // Why they were not started says more than that this failed too; then they are listed as lost.
        let Ok(known) = cluster.agents().await else { return };
        for name in names.iter().filter(|name| known.iter().any(|agent| agent.info.id.name == ***name)) {
            let _ = cluster.drain(name, false, false).await;
            let _ = cluster.tell(ClusterRequest::Release { agent: (*name).to_owned() }).await;
        }
    }
}

/// Starts agents on the next spare hosts of a cluster on named hosts, all or none.
pub(in crate::command) async fn start_spares(
    cluster: &Cluster,
    agents: u32,
    options: &Options,
    interrupt: &Interrupt,
) -> Outcome<Added> {
    start_there(cluster, options, interrupt, |file, _| {
        let mut spares = file.spares();
        if spares.len() < agents as usize {
            let left: Vec<&str> = spares.iter().map(|spare| spare.name.as_str()).collect();
            return Err(Failure::Usage(format!(
                "{agents} more agents are asked for, and {} spare hosts are left ({}): mark more of them `spare` in the \
                 hosts file, or name a host",
                left.len(),
                if left.is_empty() { "none".to_owned() } else { left.join(", ") }
            )));
        }
        spares.truncate(agents as usize);
        Ok(spares)
    })
    .await
}

/// The same on hosts that are named: as spares of the cluster, or as lines of a hosts file.
async fn start_hosts(
    cluster: &Cluster,
    given: &[String],
    options: &Options,
    interrupt: &Interrupt,
) -> Outcome<Added> {
    start_there(cluster, options, interrupt, |file, names| {
        let spares = file.spares();
        let mut agents: Vec<RemoteAgent> = Vec::new();
        for word in given {
            let is_spare = |spare: &&RemoteAgent| spare.name == *word || spare.target.host == *word;
            if let Some(spare) = spares.iter().find(is_spare) {
                agents.push(spare.clone());
                continue;
            }
            let hosts = hosts::parse_list(word).map_err(|faults| {
                let all: Vec<String> = faults.iter().map(ToString::to_string).collect();
                Failure::Usage(format!("`{word}`: {}", all.join("; ")))
            })?;
            let named: Vec<bool> = hosts.iter().map(|host| host.value.name.is_some()).collect();
            let plan = HostsOptions {
                cluster: file.name.clone(),
                hosts: hosts
                    .into_iter()
                    .map(|mut host| {
                        // Who names a spare host of the file means it.
                        host.value.spare = false;
                        host
                    })
                    .collect(),
                slots: options.slots,
                cores: options.cores,
                agent: options
                    .agent
                    .clone()
                    .or_else(|| file.road.as_ref()?.plan.as_ref().map(|plan| plan.binary.clone())),
                ..HostsOptions::default()
            }
            .plan()?;
            for (mut agent, named) in plan.agents.into_iter().zip(named) {
                let taken =
                    |name: &str| names.is_taken(name) || agents.iter().any(|other| other.name == name);
                if taken(&agent.name) {
                    if named {
                        let message =
                            format!("there is an agent `{}`: give another name= to {word}", agent.name);
                        return Err(Failure::Usage(message));
                    }
                    agent.name = names.free(&|name| agents.iter().any(|other| other.name == name));
                }
                agents.push(agent);
            }
        }
        Ok(agents)
    })
    .await
}

/// Names that agents of a cluster have or had.
struct Names<'a> {
    members: &'a Members,
    known: &'a [String],
}

impl Names<'_> {
    fn is_taken(&self, name: &str) -> bool {
        self.members.file.agents.iter().any(|agent| agent.name == name)
            || self.known.iter().any(|known| known == name)
    }

    /// One that nobody has, nor any of these.
    fn free(&self, taken: &dyn Fn(&str) -> bool) -> String {
        let all = self.members.free_names(self.known, 4096);
        all.into_iter().find(|name| !taken(name)).unwrap_or_default()
    }
}

/// Starts agents on named hosts, all or none; `which` chooses them.
async fn start_there(
    cluster: &Cluster,
    options: &Options,
    interrupt: &Interrupt,
    which: impl FnOnce(&ClusterFile, &Names<'_>) -> Outcome<Vec<RemoteAgent>>,
) -> Outcome<Added> {
    let Some((folder, file)) = cluster.home() else {
        return Err(Failure::Usage(
            "agents are added on the machine that started the cluster; give its name there with --cluster"
                .into(),
        ));
    };
    let Some(road) = &file.road else {
        return Err(Failure::Usage(format!(
            "cluster {} is on this machine: `tuplane agents add --local N` starts more agents",
            cluster.name
        )));
    };
    let Some(like) = road.plan.as_deref() else {
        return Err(Failure::Usage(format!(
            "cluster {} was started by an older build, which has not recorded how: start it anew to add agents",
            cluster.name
        )));
    };
    let known = cluster.agents().await?;
    let known: Vec<String> = known.iter().map(|agent| agent.info.id.name.clone()).collect();
    let mut members = Members::hold(folder)?;
    let mut agents = which(&members.file, &Names { members: &members, known: &known })?;
    for (index, agent) in agents.iter_mut().enumerate() {
        agent.slots = options.slots.or(agent.slots);
        agent.cores = options.cores.unwrap_or(agent.cores);
        if let Some(zone) = options.zones.get(index % options.zones.len().max(1)) {
            agent.zone.clone_from(zone);
        }
    }
    let plan = RemotePlan {
        agents,
        spares: Vec::new(),
        binary: options.agent.clone().unwrap_or_else(|| like.binary.clone()),
        memory: options.memory.unwrap_or(like.memory),
        ..like.clone()
    };
    match ssh::add(&plan, &mut members, &runtime_root(), interrupt.wait()).await {
        Ok(entries) => Ok(Added::remote(entries, &plan)),
        Err(cause) => {
            take_out(cluster, plan.agents.iter().map(|agent| agent.name.as_str())).await;
            Err(cause.into())
        }
    }
}

/// What an agent of this machine runs, unless that was replaced on disk since.
fn binary(agent: &AgentInfo) -> Option<PathBuf> {
    let path = std::fs::read_link(format!("/proc/{}/exe", agent.pid)).ok()?;
    path.is_file().then_some(path)
}

/// Each agent with its zone.
fn zoned(added: &Added) -> impl Iterator<Item = (&AgentEntry, &str)> {
    added.entries.iter().zip(added.zones.iter().map(String::as_str))
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
        "cluster {}: {} more{}\n{}",
        safe::line(&cluster.name),
        counted(added.entries.len() as u64, "agent"),
        added.slots.map_or_else(String::new, |slots| format!(", {} each", counted(slots.into(), "slot"))),
        table.render()
    )
}

fn document(cluster: &Cluster, added: &Added) -> Value {
    let agents: Vec<Value> = zoned(added)
        .map(|(agent, zone)| {
            json!({"agent": agent.name, "address": agent.address, "pid": agent.process.pid, "zone": zone})
        })
        .collect();
    json!({"cluster": cluster.name, "slots": added.slots, "cores": added.cores, "agents": agents})
}
