//! `tuplane up`.

use std::time::Duration;

use serde_json::{Value, json};
use tuplane_testbed::launch::{ClusterFile, LocalCluster, LocalOptions, LocalPlan, runtime_root, start};

use crate::args::{Global, LocalArgs};
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::table::{Align, Table, counted};
use crate::output::{Output, safe};

/// The cluster's name where none is given.
const DEFAULT_NAME: &str = "local";

/// How often the agents are looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Options of `up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Starts N agents as processes on this machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    local: u32,
    #[command(flatten)]
    options: LocalArgs,
    /// Agents go on when this command has ended; `tuplane down` ends them
    #[arg(long)]
    detach: bool,
    /// Says what would be started, and starts nothing
    #[arg(long)]
    dry_run: bool,
}

/// What a command asked for as the launcher takes it.
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

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let name = global.cluster.as_deref().unwrap_or(DEFAULT_NAME);
    let plan = local_options(name, args.local, &args.options, args.detach).plan()?;
    if args.dry_run {
        return dry_run(&plan, output);
    }
    let interrupt = Interrupt::listen()?;
    let root = runtime_root();
    let mut cluster = interrupt.or(async { Ok(start(&plan, &root).await?) }).await?;
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
            output.notice(&format!(
                "agent {name} has ended: {status}; log: {}",
                cluster.folder.log(name).display()
            ));
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
    if owned.is_over() || !owned.folder.file().exists() {
        owned.let_go();
        return owned.remove_folder().map_err(Failure::from);
    }
    let cluster = Cluster::local((owned.folder.clone(), owned.file.clone()), global.timeout)?;
    let stopped = cluster.down().await;
    owned.let_go();
    output.detail(&format!("ended: {stopped:?}"));
    stopped.map(|_| ())
}

fn show(file: &ClusterFile, plan: &LocalPlan, output: &mut Output) -> Outcome {
    if !output.is_text() {
        let agents: Vec<Value> = file
            .agents
            .iter()
            .zip(&plan.agents)
            .map(|(agent, planned)| {
                json!({
                    "agent": agent.name,
                    "address": agent.address,
                    "pid": agent.process.pid,
                    "zone": planned.zone,
                })
            })
            .collect();
        return output.document(
            "up",
            &json!({
                "cluster": file.name,
                "coordinator": file.coordinator,
                "detached": file.detached,
                "slots": plan.slots,
                "cores": plan.cores,
                "agents": agents,
            }),
        );
    }
    let mut text = format!(
        "cluster {}: {}, {} each; {} coordinates at {}\n",
        safe::line(&file.name),
        counted(file.agents.len() as u64, "agent"),
        counted(plan.slots.into(), "slot"),
        file.agents.first().map_or("nobody", |agent| agent.name.as_str()),
        file.coordinator,
    );
    if output.is_quiet() {
        return output.text(&text);
    }
    let mut table = Table::new(&[
        ("AGENT", Align::Left),
        ("ADDRESS", Align::Left),
        ("PID", Align::Right),
        ("ZONE", Align::Left),
    ]);
    for (agent, planned) in file.agents.iter().zip(&plan.agents) {
        let (name, address) = (agent.name.clone(), agent.address.clone());
        table.row([name, address, agent.process.pid.to_string(), planned.zone.clone()]);
    }
    let option = if file.name == DEFAULT_NAME { String::new() } else { format!(" --cluster {}", file.name) };
    let ends = if file.detached { format!("tuplane down{option}") } else { "Ctrl-C".to_owned() };
    text.push_str(&table.render());
    text.push_str(&format!("next: tuplane submit FILE{option}, tuplane status -w{option}; {ends} ends it"));
    output.text(&text)
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
