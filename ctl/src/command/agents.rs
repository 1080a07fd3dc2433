//! `tuplane agents`.

pub(super) mod add;
mod drain;
pub(super) mod release;

use serde::Serialize;
use serde_json::{Value, json};
use tuplane_wire::message::AgentStatus;

use crate::args::Global;
use crate::cluster::Cluster;
use crate::failure::Outcome;
use crate::output::table::{Align, Table, bytes, counted, percent};
use crate::output::time::span;
use crate::output::{Output, number, safe};
use crate::presence;

/// Options of `agents`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Lists the agents
    List,
    /// Starts more agents: on spare hosts, on other ones, or on this machine for a cluster that runs here
    Add(add::Args),
    /// No new instances for an agent; what live jobs have there moves to others, as far as it can
    Drain(drain::Args),
    /// Ends an agent that is drained and that no job needs
    Release(release::Args),
}

/// An agent as documents carry it.
#[derive(Debug, Serialize)]
struct AgentView {
    agent: String,
    address: String,
    host: String,
    pid: u32,
    zone: String,
    slots: u32,
    /// 0: no limit.
    cores: u32,
    version: String,
    alive: bool,
    coordinator: bool,
    drained: bool,
    lost: Option<String>,
    instances: u32,
    report_age_ms: u64,
    machine_cpu: Value,
    processors: u32,
    memory_total: u64,
    memory_used: u64,
    rss_anon: u64,
    cpu_s: Value,
    charged: u64,
    budget: u64,
    os: String,
    clock_offset_ns: Option<i64>,
    clock_error_ns: Option<u64>,
    round_trips_us: std::collections::BTreeMap<String, u64>,
}

impl From<&AgentStatus> for AgentView {
    fn from(status: &AgentStatus) -> Self {
        let (info, host) = (&status.info, &status.host);
        Self {
            agent: info.id.name.clone(),
            address: info.address.clone(),
            host: info.host.clone(),
            pid: info.pid,
            zone: info.zone.clone(),
            slots: info.slots,
            cores: info.cores,
            version: info.version.clone(),
            alive: status.alive,
            coordinator: status.coordinator,
            drained: status.drained,
            lost: status.lost.clone(),
            instances: status.instances,
            report_age_ms: status.age_ms,
            machine_cpu: number(f64::from(host.cpu)),
            processors: host.processors,
            memory_total: host.memory_total,
            memory_used: host.memory_used,
            rss_anon: host.rss_anon,
            cpu_s: number(host.cpu_seconds),
            charged: host.charged,
            budget: host.budget,
            os: host.os.clone(),
            clock_offset_ns: status.clock_offset_ns.map(|(offset, _)| offset),
            clock_error_ns: status.clock_offset_ns.map(|(_, error)| error),
            round_trips_us: status.round_trips.iter().cloned().collect(),
        }
    }
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    match args.action {
        None | Some(Action::List) => list(global, output).await,
        Some(Action::Add(args)) => add::run(args, global, output).await,
        Some(Action::Drain(args)) => drain::run(args, global, output).await,
        Some(Action::Release(args)) => release::run(args, global, output).await,
    }
}

async fn list(global: &Global, output: &mut Output) -> Outcome {
    let cluster = Cluster::find(global, output)?;
    let agents = cluster.agents().await?;
    if output.is_text() {
        return output.text(&text(&cluster.name, &agents));
    }
    let listed: Vec<AgentView> = agents.iter().map(AgentView::from).collect();
    output.document("agents", &json!({"cluster": cluster.name, "agents": listed}))
}

fn text(cluster: &str, agents: &[AgentStatus]) -> String {
    let mut table = Table::new(&[
        ("AGENT", Align::Left),
        ("ADDRESS", Align::Left),
        ("STATE", Align::Left),
        ("ZONE", Align::Left),
        ("SLOTS", Align::Right),
        ("CORES", Align::Right),
        ("INSTANCES", Align::Right),
        ("QUEUED", Align::Right),
        ("RSS", Align::Right),
        ("CPU", Align::Right),
        ("MACHINE", Align::Right),
        ("CLOCK", Align::Right),
        ("AGE", Align::Right),
    ]);
    for status in agents {
        let (info, host) = (&status.info, &status.host);
        let word = presence::word(status, status.age_ms);
        let more = [(status.coordinator, "coordinator"), (status.drained, "drained")];
        let more: Vec<&str> = more.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
        let state = if more.is_empty() { word.into() } else { format!("{word} ({})", more.join(", ")) };
        let clock = status.clock_offset_ns.map_or_else(
            || "-".into(),
            |(offset, error)| format!("{:+.2}ms ±{:.2}", offset as f64 / 1e6, error as f64 / 1e6),
        );
        table.row([
            info.id.name.clone(),
            info.address.clone(),
            state,
            info.zone.clone(),
            info.slots.to_string(),
            if info.cores == 0 { "-".into() } else { info.cores.to_string() },
            status.instances.to_string(),
            bytes(host.charged),
            bytes(host.rss_anon),
            format!("{:.1}s", host.cpu_seconds),
            percent(Some(f64::from(host.cpu))),
            clock,
            span(status.age_ms),
        ]);
    }
    let mut out = format!(
        "cluster {}: {}\n{}",
        safe::line(cluster),
        counted(agents.len() as u64, "agent"),
        table.render()
    );
    for status in agents {
        if let Some(why) = &status.lost {
            out.push_str(&format!("  {}: {}\n", safe::line(&status.info.id.name), safe::line(why)));
        }
    }
    out
}
