//! `hosts check`: what each host is, and for each that would fail the cause and the remedy.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::future::join_all;
use tuplane_wire::launch::{AgentConfig, AgentReady, Road};

use super::cause::{Cause, HostFault};
use super::connection::Connection;
use super::lanes::Lanes;
use super::prepare::{self, Binary, DataRule, Place, Sockets, Wanted};
use super::session::Session;
use super::{RemoteAgent, RemotePlan, script};
use crate::launch::LaunchError;

/// How long a probe may take to answer.
const PROBE: Duration = Duration::from_secs(30);

/// Times that the clock is asked for; the quickest answer counts.
const CLOCKS: u32 = 5;

/// What is known of one agent's host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostReport {
    /// The agent's name.
    pub agent: String,
    /// As the file names the host.
    pub host: String,
    /// `user@host port N`, as ssh resolves it.
    pub ssh: String,
    /// `host:port` that the agent would listen on and announce; the system chooses where the port is 0.
    pub data: Option<String>,
    /// Addresses that could be announced, as `interface address`.
    pub candidates: Vec<String>,
    /// `uname -m`.
    pub machine: Option<String>,
    /// `uname -r`.
    pub kernel: Option<String>,
    /// Processors.
    pub processors: Option<u32>,
    /// Bytes.
    pub memory: Option<u64>,
    /// The host's clock less this machine's, and the error of that, ns.
    pub clock_offset_ns: Option<(i64, u64)>,
    /// The agent's binary there: its hash.
    pub binary: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// It was copied by this check.
    pub copied: bool,
    /// What would fail.
    pub fault: Option<HostFault>,
}

/// Looks at all hosts of a plan. The agent's binary is copied where it is not there, as `up` does, and
/// run for a moment: it says which address it would announce, and whether its port is free.
pub async fn check(plan: &RemotePlan, root: &Path) -> Result<Vec<HostReport>, LaunchError> {
    let binary = Binary::read(&plan.binary)?;
    let sockets = Sockets::of_command(root)?;
    let (targets, at) = prepare::machines(plan.agents.iter().map(|agent| &agent.target));
    let lanes = Lanes::new(plan.fan_out, targets.iter());
    let places = prepare::places(&targets, &plan.ssh, &lanes).await;
    let data: Vec<Option<String>> = plan.agents.iter().map(|agent| agent.data.clone()).collect();
    let rules = prepare::data_rules(&data, &at, &places).await;
    let wanted = targets.into_iter().map(|target| Wanted { target, dir: plan.remote_dir.clone() }).collect();
    let logins = prepare::connect(wanted, &plan.ssh, &lanes, &binary.file_name(), &sockets).await;
    let ready = Ready::of(logins, &binary, &format!("check-{}", std::process::id()), &lanes).await;
    let reports = plan
        .agents
        .iter()
        .zip(&at)
        .zip(&rules)
        .map(async |((agent, at), rule)| report(agent, rule, &places[*at], &ready, *at, &binary).await);
    Ok(join_all(reports).await)
}

/// Hosts that were logged in to and got the binary, as far as that went.
#[derive(Debug)]
pub(super) struct Ready {
    /// Of each host the place of its connection, or why there is none.
    pub(super) hosts: Vec<Result<usize, HostFault>>,
    /// To all that let us in.
    pub(super) connections: Vec<Connection>,
    /// Of each connection whether the binary was copied, or why the host cannot be used.
    pub(super) copied: Vec<Result<bool, HostFault>>,
}

impl Ready {
    /// Makes hosts ready, in the order of the logins.
    pub(super) async fn of(
        logins: Vec<Result<Connection, HostFault>>,
        binary: &Binary,
        unique: &str,
        lanes: &Lanes,
    ) -> Self {
        let (mut hosts, mut connections) = (Vec::new(), Vec::new());
        for login in logins {
            hosts.push(login.map(|connection| {
                connections.push(connection);
                connections.len() - 1
            }));
        }
        let copied = prepare::copy_all(&connections, binary, unique, lanes).await;
        Self { hosts, connections, copied }
    }

    /// Where a host cannot be used: what stands against it, and what would fail on the others, in the order of
    /// the plan's agents. Nothing where all can be used.
    pub(super) async fn faults(
        &self,
        plan: &RemotePlan,
        at: &[usize],
        rules: &[DataRule],
        binary: &Binary,
    ) -> Vec<HostFault> {
        if (0..self.hosts.len()).all(|host| self.fit(host).is_ok()) {
            return Vec::new();
        }
        let agents = plan.agents.iter().zip(at).zip(rules).enumerate();
        let asked = agents.map(async |(index, ((agent, host), rule))| match self.fit(*host) {
            Ok(connection) => would_fail(agent, rule, connection, binary).await,
            // Once, however many agents it was to have.
            Err(fault) => (at.iter().position(|other| other == host) == Some(index)).then(|| fault.clone()),
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// The connection to a host that can be used, or what stands against it.
    pub(super) fn fit(&self, host: usize) -> Result<&Connection, &HostFault> {
        let place = *self.hosts[host].as_ref()?;
        self.copied[place].as_ref()?;
        Ok(&self.connections[place])
    }
}

async fn report(
    agent: &RemoteAgent,
    rule: &DataRule,
    place: &Place,
    ready: &Ready,
    at: usize,
    binary: &Binary,
) -> HostReport {
    let mut report = HostReport {
        agent: agent.name.clone(),
        host: agent.target.host.clone(),
        ssh: place.shown.clone(),
        ..HostReport::default()
    };
    let place = match &ready.hosts[at] {
        Ok(place) => *place,
        Err(fault) => {
            report.fault = Some(fault.clone());
            return report;
        }
    };
    let facts = &ready.connections[place].facts;
    report.machine = Some(facts.machine.clone());
    report.kernel = Some(facts.kernel.clone());
    report.processors = Some(facts.processors).filter(|n| *n > 0);
    report.memory = Some(facts.memory).filter(|n| *n > 0);
    report.copied = matches!(ready.copied[place], Ok(true));
    report.fault = match ready.fit(at) {
        Ok(connection) => probe(agent, rule, connection, binary, &mut report).await.err(),
        Err(fault) => Some(fault.clone()),
    };
    report
}

/// What would keep an agent from its address, if anything would.
pub(super) async fn would_fail(
    agent: &RemoteAgent,
    rule: &DataRule,
    connection: &Connection,
    binary: &Binary,
) -> Option<HostFault> {
    probe(agent, rule, connection, binary, &mut HostReport::default()).await.err()
}

async fn probe(
    agent: &RemoteAgent,
    rule: &DataRule,
    connection: &Connection,
    binary: &Binary,
    report: &mut HostReport,
) -> Result<(), HostFault> {
    let fault = |cause, message: String| HostFault::new(agent.target.host.clone(), cause, message);
    let path = format!("{}/{}", connection.facts.folder, binary.file_name());
    let mut session = Session::open(connection, &script::probe_agent(), &[&path])
        .map_err(|cause| fault(Cause::Other, cause))?;
    let config = probe_config(agent, rule);
    let late = || fault(Cause::Agent, format!("the agent did not answer within {} s", PROBE.as_secs()));
    let answer = tokio::time::timeout(PROBE, session.ask(&config)).await.map_err(|_| late())?;
    match answer.map_err(|cause| fault(Cause::Version, cause))? {
        Some(AgentReady::Probed { version, binary, address, candidates }) => {
            // The port of the moment is not the one that an agent will have.
            let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
            report.data = Some(if agent.port == 0 { format!("{host}:0") } else { address });
            report.candidates = candidates;
            report.version = Some(version);
            report.binary = Some(binary);
        }
        Some(AgentReady::Failed { message, .. }) => return Err(fault(Cause::Agent, message)),
        Some(other) => return Err(fault(Cause::Version, format!("the agent answered {other:?}"))),
        None => {
            return Err(session.fault(connection, "running the agent").await);
        }
    }
    for _ in 0..CLOCKS {
        let before = wall_ns();
        let begun = Instant::now();
        let answer = tokio::time::timeout(PROBE, session.ask(&"clock")).await.map_err(|_| late())?;
        let Ok(Some(AgentReady::Clock(theirs))) = answer else { break };
        let half = begun.elapsed().as_nanos() as u64 / 2;
        let offset = theirs as i64 - (before + half) as i64;
        if report.clock_offset_ns.is_none_or(|(_, error)| half < error) {
            report.clock_offset_ns = Some((offset, half));
        }
    }
    let _ = session.end().await;
    Ok(())
}

fn probe_config(agent: &RemoteAgent, rule: &DataRule) -> AgentConfig {
    AgentConfig {
        cluster: String::new(),
        name: agent.name.clone(),
        listen: format!("127.0.0.1:{}", agent.port),
        announce: None,
        coordinator: None,
        key: None,
        slots: 1,
        cores: 0,
        zone: agent.zone.clone(),
        costs: Vec::new(),
        memory: 0,
        lease_ms: 1000,
        state: String::new(),
        folder: String::new(),
        log: None,
        detached: false,
        road: Some(Road {
            host: agent.target.host.clone(),
            data: rule.data.clone(),
            resolved: rule.resolved.clone(),
            loopback: rule.loopback,
            pid_file: String::new(),
            probe: true,
            lease_ms: 0,
        }),
    }
}

fn wall_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
