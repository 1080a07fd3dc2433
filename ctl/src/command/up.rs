//! `tuplane up`.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tuplane_testbed::launch::ssh::{self, HostsOptions, RemotePlan};
use tuplane_testbed::launch::{
    ClusterFile, LocalCluster, LocalOptions, LocalPlan, find_clusters, runtime_root, start,
};

use crate::args::{Global, LocalArgs, SshArgs, whole};
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::hostsfile;
use crate::interrupt::Interrupt;
use crate::output::table::{Align, Table, counted};
use crate::output::{Output, safe};

/// The cluster's name where none is given.
const DEFAULT_NAME: &str = "local";

/// The same for one on named hosts.
const DEFAULT_NAME_HOSTS: &str = "hosts";

/// How often the agents are looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Options of `up`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("where").required(true).args(["local", "hosts"])))]
pub(crate) struct Args {
    /// Starts N agents as processes on this machine
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 256))]
    local: Option<u32>,
    /// Starts an agent on each host of a file, of standard input (`-`), or of a list `h1,h2`, over ssh
    #[arg(long, value_name = "FILE|-|H1,H2")]
    hosts: Option<String>,
    #[command(flatten)]
    options: LocalArgs,
    /// Agents go on when this command has ended; `tuplane down` ends them
    #[arg(long)]
    detach: bool,
    /// Says what would be started, and starts nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    ssh: SshArgs,
}

/// What will be started.
#[derive(Debug)]
pub(super) enum Plan {
    /// Processes of this machine.
    Local(LocalPlan),
    /// Agents on named hosts.
    Hosts(Box<RemotePlan>),
}

impl Plan {
    /// N agents here.
    pub(super) fn local(cluster: &str, agents: u32, args: &LocalArgs, detached: bool) -> Outcome<Self> {
        Ok(Self::Local(local_options(cluster, agents, args, detached).plan()?))
    }

    /// Agents on the hosts that `given` names.
    pub(super) fn hosts(
        cluster: &str,
        given: &str,
        args: &LocalArgs,
        ssh: &SshArgs,
        detached: bool,
        output: &mut Output,
    ) -> Outcome<Self> {
        Ok(Self::Hosts(Box::new(remote_plan(cluster, given, args, ssh, detached, output)?)))
    }

    /// Starts it; a signal gives up, and what was started is ended.
    pub(super) async fn start(&self, root: &Path, interrupt: &Interrupt) -> Outcome<LocalCluster> {
        match self {
            Self::Local(plan) => interrupt.or(async { Ok(start(plan, root).await?) }).await,
            Self::Hosts(plan) => Ok(Box::pin(ssh::start(plan, root, interrupt.wait())).await?),
        }
    }
}

/// The options of agents on this machine.
pub(super) fn local_options(cluster: &str, agents: u32, args: &LocalArgs, detached: bool) -> LocalOptions {
    LocalOptions {
        cluster: cluster.to_owned(),
        agents,
        slots: args.slots,
        cores: args.cores,
        zones: args.zones.clone(),
        costs: args.costs.clone(),
        memory: args.memory,
        agent: args.agent.clone(),
        insecure: args.insecure,
        detached,
    }
}

/// What a hosts file and the options come to.
pub(super) fn remote_plan(
    cluster: &str,
    given: &str,
    args: &LocalArgs,
    ssh: &SshArgs,
    detached: bool,
    output: &mut Output,
) -> Outcome<RemotePlan> {
    if !args.zones.is_empty() {
        return Err(Failure::Usage(
            "--zones is for agents on this machine: write zone= in the hosts file".into(),
        ));
    }
    let options = HostsOptions {
        cluster: cluster.to_owned(),
        hosts: hostsfile::read(given, output)?,
        slots: args.slots,
        cores: args.cores,
        costs: args.costs.clone(),
        memory: args.memory,
        agent: args.agent.clone(),
        insecure: args.insecure,
        detached,
        ssh: ssh.options()?,
        jump: ssh.jump.clone(),
        remote_dir: ssh.remote_dir.clone(),
        fan_out: ssh.fan_out,
    };
    Ok(options.plan()?)
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let default = if args.hosts.is_some() { DEFAULT_NAME_HOSTS } else { DEFAULT_NAME };
    let name = global.cluster.as_deref().unwrap_or(default);
    let plan = match (&args.hosts, args.local) {
        (Some(hosts), _) => Plan::hosts(name, hosts, &args.options, &args.ssh, args.detach, output)?,
        (None, agents) => Plan::local(name, agents.unwrap_or(0), &args.options, args.detach)?,
    };
    if args.dry_run {
        return match &plan {
            Plan::Local(plan) => dry_run(plan, output),
            Plan::Hosts(plan) => dry_run_hosts(plan, output),
        };
    }
    let interrupt = Interrupt::listen()?;
    let root = runtime_root();
    let mut cluster = plan.start(&root, &interrupt).await?;
    for notice in &cluster.notices {
        output.notice(notice);
    }
    let shown = show(&cluster.file, &plan, output);
    if args.detach {
        return shown;
    }
    interrupt.guard(&cluster.folder, &cluster.file.agents);
    let outcome = match shown {
        Ok(()) => stay(&mut cluster, &interrupt, output).await,
        Err(failure) => Err(failure),
    };
    end(cluster, global, output).await.and(outcome)
}

/// Until a signal comes or no agent is left.
async fn stay(cluster: &mut LocalCluster, interrupt: &Interrupt, output: &Output) -> Outcome {
    loop {
        tokio::select! {
            () = interrupt.wait() => return Ok(()),
            () = tokio::time::sleep(LOOK) => {}
        }
        let ended = cluster.ended();
        // After `tuplane down` elsewhere nobody needs to hear of each agent.
        let was_ended = !cluster.folder.file().exists();
        for (name, status) in ended.iter().filter(|_| !was_ended) {
            output.notice(&if status.success() {
                format!("agent {name} has ended, as it was asked to")
            } else {
                format!("agent {name} has ended: {status}; log: {}", cluster.log_place(name))
            });
        }
        if cluster.is_over() {
            if was_ended || ended.iter().all(|(_, status)| status.success()) {
                return Ok(());
            }
            return Err(Failure::Failed { kind: "agent", message: "no agent is left".into() });
        }
    }
}

/// Ends what this command owns.
pub(super) async fn end(mut owned: LocalCluster, global: &Global, output: &Output) -> Outcome {
    // Agents on other hosts leave folders there, whatever became of them.
    let nothing_left = owned.is_over() && owned.file.road.is_none();
    if nothing_left || !owned.folder.file().exists() {
        owned.let_go();
        return owned.remove_folder().map_err(Failure::from);
    }
    // With agents that were added since, and without those that were released.
    let file = ClusterFile::read(&owned.folder.file()).unwrap_or_else(|_| owned.file.clone());
    let cluster = Cluster::local((owned.folder.clone(), file), global.timeout)?;
    let stopped = cluster.down().await;
    owned.let_go();
    output.detail(&format!("ended: {stopped:?}"));
    stopped.map(|_| ())
}

/// What the agents of a plan have in common, and their zones and hosts in order.
struct Shown {
    slots: Option<u32>,
    cores: Option<u32>,
    zones: Vec<String>,
    hosts: Option<Vec<String>>,
    host_keys: Option<String>,
}

impl Shown {
    fn of(plan: &Plan) -> Self {
        match plan {
            Plan::Local(plan) => Self {
                slots: Some(plan.slots),
                cores: Some(plan.cores),
                zones: plan.agents.iter().map(|agent| agent.zone.clone()).collect(),
                hosts: None,
                host_keys: None,
            },
            Plan::Hosts(plan) => {
                let first = plan.agents.first();
                let same_slots = plan.agents.iter().all(|a| Some(a.slots) == first.map(|f| f.slots));
                let same_cores = plan.agents.iter().all(|a| Some(a.cores) == first.map(|f| f.cores));
                Self {
                    slots: first.and_then(|agent| agent.slots).filter(|_| same_slots),
                    cores: first.map(|agent| agent.cores).filter(|_| same_cores),
                    zones: plan.agents.iter().map(|agent| agent.zone.clone()).collect(),
                    hosts: Some(plan.agents.iter().map(|agent| agent.target.to_string()).collect()),
                    host_keys: Some(plan.ssh.host_keys.to_string()),
                }
            }
        }
    }

    fn host(&self, index: usize) -> Option<&str> {
        self.hosts.as_ref().and_then(|hosts| hosts.get(index)).map(String::as_str)
    }
}

fn show(file: &ClusterFile, plan: &Plan, output: &mut Output) -> Outcome {
    let shown = Shown::of(plan);
    let through_ssh = file.road.as_ref().is_some_and(|road| road.through_ssh);
    if !output.is_text() {
        let agents: Vec<Value> = file
            .agents
            .iter()
            .zip(&shown.zones)
            .enumerate()
            .map(|(index, (agent, zone))| {
                json!({
                    "agent": agent.name,
                    "address": agent.address,
                    "pid": agent.process.pid,
                    "zone": zone,
                    "host": shown.host(index),
                })
            })
            .collect();
        return output.document(
            "up",
            &json!({
                "cluster": file.name,
                "coordinator": file.coordinator,
                "detached": file.detached,
                "slots": shown.slots,
                "cores": shown.cores,
                "host_keys": shown.host_keys,
                "through_ssh": through_ssh,
                "agents": agents,
            }),
        );
    }
    let slots = shown.slots.map_or_else(String::new, |n| format!(", {} each", counted(n.into(), "slot")));
    let mut text = format!(
        "cluster {}: {}{slots}; {} coordinates at {}\n",
        safe::line(&file.name),
        counted(file.agents.len() as u64, "agent"),
        file.agents.first().map_or("nobody", |agent| agent.name.as_str()),
        file.coordinator,
    );
    if let Some(policy) = &shown.host_keys {
        let way = if through_ssh { "; commands reach the agents through ssh" } else { "" };
        text.push_str(&format!("host keys: {policy}{way}\n"));
    }
    if output.is_quiet() {
        return output.text(&text);
    }
    let mut columns =
        vec![("AGENT", Align::Left), ("ADDRESS", Align::Left), ("PID", Align::Right), ("ZONE", Align::Left)];
    if shown.hosts.is_some() {
        columns.push(("HOST", Align::Left));
    }
    let mut table = Table::new(&columns);
    for (index, (agent, zone)) in file.agents.iter().zip(&shown.zones).enumerate() {
        let mut cells =
            vec![agent.name.clone(), agent.address.clone(), agent.process.pid.to_string(), zone.clone()];
        cells.extend(shown.host(index).map(str::to_owned));
        table.row(cells);
    }
    let option =
        if is_found_without(&file.name) { String::new() } else { format!(" --cluster {}", file.name) };
    let ends = if file.detached { format!("tuplane down{option}") } else { "Ctrl-C".to_owned() };
    text.push_str(&table.render());
    text.push_str(&format!("next: tuplane submit FILE{option}, tuplane status -w{option}; {ends} ends it"));
    output.text(&text)
}

/// Other commands find the cluster without its name: it is the only one here, and the environment names
/// no other.
fn is_found_without(name: &str) -> bool {
    match std::env::var_os("TUPLANE_CLUSTER") {
        Some(named) => named == name,
        None => find_clusters(&runtime_root()).is_ok_and(|found| found.live.len() == 1),
    }
}

fn dry_run_hosts(plan: &RemotePlan, output: &mut Output) -> Outcome {
    if !output.is_text() {
        let agents: Vec<Value> = plan
            .agents
            .iter()
            .map(|agent| {
                json!({
                    "agent": agent.name,
                    "host": agent.target.host,
                    "ssh_port": agent.target.port,
                    "jump": agent.target.jump,
                    "data": agent.data,
                    "port": agent.port,
                    "zone": agent.zone,
                    "slots": agent.slots,
                    "cores": agent.cores,
                })
            })
            .collect();
        let costs: Vec<Value> =
            plan.costs.iter().map(|(from, to, cost)| json!({"from": from, "to": to, "cost": cost})).collect();
        return output.document(
            "up-hosts-plan",
            &json!({
                "cluster": plan.cluster,
                "binary": plan.binary.display().to_string(),
                "memory": plan.memory,
                "secure": !plan.insecure,
                "detached": plan.detached,
                "host_keys": plan.ssh.host_keys.to_string(),
                "remote_dir": plan.remote_dir,
                "fan_out": plan.fan_out,
                "agents": agents,
                "spares": plan.spares.iter().map(|spare| &spare.name).collect::<Vec<_>>(),
                "costs": costs,
            }),
        );
    }
    let mut table = Table::new(&[
        ("AGENT", Align::Left),
        ("HOST", Align::Left),
        ("DATA", Align::Left),
        ("PORT", Align::Right),
        ("SLOTS", Align::Right),
        ("ZONE", Align::Left),
    ]);
    for agent in &plan.agents {
        table.row([
            agent.name.clone(),
            agent.target.to_string(),
            agent.data.clone().unwrap_or_else(|| "-".into()),
            if agent.port == 0 { "any".into() } else { agent.port.to_string() },
            agent.slots.map_or_else(|| "-".into(), |slots| slots.to_string()),
            agent.zone.clone(),
        ]);
    }
    let spares: Vec<&str> = plan.spares.iter().map(|spare| spare.name.as_str()).collect();
    let spares = if spares.is_empty() { String::new() } else { format!("; spare: {}", spares.join(", ")) };
    output.text(&format!(
        "would start cluster {} over ssh: {} of {}, {}, host keys {}{}\n{}",
        safe::line(&plan.cluster),
        counted(plan.agents.len() as u64, "agent"),
        safe::line(&plan.binary.display().to_string()),
        if plan.insecure { "without encryption" } else { "TLS" },
        plan.ssh.host_keys,
        safe::line(&spares),
        table.render(),
    ))
}

fn dry_run(plan: &LocalPlan, output: &mut Output) -> Outcome {
    if !output.is_text() {
        let agents: Vec<Value> = plan
            .agents
            .iter()
            .map(|agent| json!({"agent": agent.name, "listen": agent.listen, "zone": agent.zone}))
            .collect();
        let costs: Vec<Value> =
            plan.costs.iter().map(|(from, to, cost)| json!({"from": from, "to": to, "cost": cost})).collect();
        return output.document(
            "up-plan",
            &json!({
                "cluster": plan.cluster,
                "binary": plan.binary.display().to_string(),
                "slots": plan.slots,
                "cores": plan.cores,
                "memory": plan.memory,
                "secure": !plan.insecure,
                "detached": plan.detached,
                "agents": agents,
                "costs": costs,
            }),
        );
    }
    let mut table = Table::new(&[("AGENT", Align::Left), ("LISTENS ON", Align::Left), ("ZONE", Align::Left)]);
    for agent in &plan.agents {
        table.row([agent.name.clone(), agent.listen.clone(), agent.zone.clone()]);
    }
    let cores = if plan.cores == 0 { "no limit of cores".into() } else { counted(plan.cores.into(), "core") };
    output.text(&format!(
        "would start cluster {}: {} of {}, {} and {cores} each, {}\n{}",
        safe::line(&plan.cluster),
        counted(plan.agents.len() as u64, "agent"),
        safe::line(&plan.binary.display().to_string()),
        counted(plan.slots.into(), "slot"),
        if plan.insecure { "without encryption" } else { "TLS" },
        table.render(),
    ))
}
