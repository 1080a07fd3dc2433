//! Starting a cluster on named hosts: all logged in, all alike, all reach each other, or none runs.

use std::path::Path;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::task::JoinHandle;
use tuplane_wire::launch::{AgentConfig, AgentReady, KeyPem, LaunchRequest, Road, StartFault};
use tuplane_wire::net::{self, Kind, Security};

use super::cause::{self, Cause, HostFault};
use super::check::{self, Ready};
use super::connection::Connection;
use super::lanes::Lanes;
use super::prepare::{self, Binary, DataRule, Sockets, Wanted};
use super::running::{Running, all_well, check_peers, hosts, let_go};
use super::session::{Session, fate};
use super::{RemoteAgent, RemotePlan, end, script};
use crate::launch::folder::{AgentEntry, ClusterFile, ClusterFolder, HostEntry, RoadEntry, SCHEMA, run_name};
use crate::launch::start::{LEASE, generate_key};
use crate::launch::{Ended, LaunchError, LocalCluster, ProcessId};

/// How long an agent may take until it has joined.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// How often one that has not answered is looked at meanwhile.
const LOOK: Duration = Duration::from_secs(4);

/// The same for the coordinator once others could not join it: it has nothing to dial.
const COORDINATOR_WITHIN: Duration = Duration::from_secs(4);

/// A launcher that is not heard of for so long is gone, although nothing closed its connections: its
/// machine sleeps, or its network is down. Longer than any step of a start.
const LAUNCHER_LEASE: Duration = Duration::from_mins(1);

/// How often it is heard of.
const BEAT: Duration = Duration::from_secs(5);

/// How long sessions that were cut may take to end on their hosts.
const SETTLE: Duration = Duration::from_millis(300);

/// How long a coordinator may take that is dialled from here, before it counts as out of reach.
const DIRECT: Duration = Duration::from_millis(1500);

/// What the sessions of a running cluster lie on; dropped, they end.
#[derive(Debug)]
pub struct Held {
    beating: JoinHandle<()>,
    _connections: Vec<Connection>,
    _sockets: Sockets,
}

impl Drop for Held {
    fn drop(&mut self) {
        // With its task the lifelines go.
        self.beating.abort();
    }
}

/// Holds the agents' lifelines, and lets them feel it.
async fn beat(mut lifelines: Vec<ChildStdin>) {
    let mut ticker = tokio::time::interval(BEAT);
    ticker.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticker.tick().await;
        for lifeline in &mut lifelines {
            // One that has ended is noticed by its session; one that does not read must not hold up others.
            let _ = tokio::time::timeout(Duration::from_millis(100), lifeline.write_all(b"\n")).await;
        }
    }
}

/// What has been made on the way. Dropped, it ends sessions and connections; [`Starting::undo`] also
/// removes what lies on the hosts.
#[derive(Debug, Default)]
pub(super) struct Starting {
    pub(super) connections: Vec<Connection>,
    /// Place of the connection, and the agent's folder there.
    pub(super) folders: Vec<(usize, String)>,
    pub(super) running: Vec<Running>,
}

impl Starting {
    /// Ends what was started, and removes its folders; gives the hosts where that failed.
    pub(super) async fn undo(&mut self, plan: &RemotePlan, sockets: &Sockets) -> Vec<HostFault> {
        let lanes = &Lanes::new(plan.fan_out, plan.agents.iter().map(|agent| &agent.target));
        // Closing their input ends the agents: none has let go of it yet.
        self.running.clear();
        if !self.folders.is_empty() {
            // A shell that was just asked for an agent may still start it, only to find its input closed.
            tokio::time::sleep(SETTLE).await;
        }
        let work =
            self.connections.iter().enumerate().map(async |(place, connection)| {
                let own = self.folders.iter().filter(|(at, _)| *at == place);
                let folders: Vec<&str> = own.map(|(_, folder)| folder.as_str()).collect();
                let fault = end_folders(connection, &folders, plan, sockets, lanes).await.err()?;
                let message =
                    format!("agents of this start, or their folders, may be left there ({})", fault.message);
                let left = HostFault::new(fault.host, fault.cause, message);
                Some(left.remedy(
                    "when the host answers again, `tuplane clean --hosts FILE` ends and removes them",
                ))
            });
        let left = join_all(work).await.into_iter().flatten().collect();
        self.connections.clear();
        left
    }
}

/// Ends agents and removes their folders, over a new connection where the old one is gone.
async fn end_folders(
    connection: &Connection,
    folders: &[&str],
    plan: &RemotePlan,
    sockets: &Sockets,
    lanes: &Lanes,
) -> Result<(), HostFault> {
    let patience = Duration::from_secs(2);
    let ended = match end::folders(connection, folders.to_vec(), patience).await {
        Err(fault) if fault.cause == Cause::Lost => {
            let (target, socket) = (connection.target(), sockets.next());
            let login = Connection::open(target, &plan.ssh, socket, &plan.remote_dir, "-");
            let again = lanes.pass(target, login).await?;
            end::folders(&again, folders.to_vec(), patience).await?
        }
        ended => ended?,
    };
    match ended.into_iter().find(|(_, how)| *how == Ended::Stays) {
        Some((folder, _)) => {
            let message = format!("the agent of {folder} does not end, not even by SIGKILL");
            Err(HostFault::new(connection.target().host.clone(), Cause::Agent, message))
        }
        None => Ok(()),
    }
}

/// Starts a plan's agents; `cancel` gives up, and everything that was started is ended again.
pub async fn start(
    plan: &RemotePlan,
    root: &Path,
    cancel: impl Future<Output = ()>,
) -> Result<LocalCluster, LaunchError> {
    let launcher = ProcessId::current().ok_or_else(|| {
        LaunchError::Refused("/proc is not readable here; clusters cannot be told apart".into())
    })?;
    let binary = Binary::read(&plan.binary)?;
    let key = if plan.insecure { None } else { Some(generate_key()?) };
    let (folder, notices) = ClusterFolder::create(root, &plan.cluster)?;
    let sockets = Sockets::make(&folder.sockets()).inspect_err(|_| {
        // Best effort: what stays is found stale by the next command.
        let _ = folder.remove();
    })?;
    let mut starting = Starting::default();
    let started = async {
        let mut file = ClusterFile {
            schema: SCHEMA.into(),
            name: plan.cluster.clone(),
            coordinator: String::new(),
            key,
            agents: Vec::new(),
            launcher,
            detached: plan.detached,
            road: Some(road(plan, false)),
        };
        folder.write(&file)?;
        bring_up(plan, &binary, &folder, &sockets, &mut file, &mut starting).await?;
        folder.write(&file)?;
        if plan.detached {
            let_go(&mut starting.running, &LaunchRequest::Detach, &starting.connections).await?;
        }
        Ok(file)
    };
    let outcome = tokio::select! {
        biased;
        () = cancel => Err(LaunchError::Interrupted { left: Vec::new() }),
        outcome = started => outcome,
    };
    match outcome {
        Ok(file) => {
            let connections = std::mem::take(&mut starting.connections);
            if plan.detached {
                // Their sessions end here; the agents stay.
                starting.running.clear();
                drop(connections);
                return Ok(LocalCluster::new(folder, file, notices, Vec::new(), None));
            }
            let mut agents = Vec::new();
            let mut lifelines = Vec::new();
            for running in starting.running.drain(..) {
                agents.push((running.entry.name, running.session.child, None));
                lifelines.push(running.session.stdin);
            }
            let beating = tokio::spawn(beat(lifelines));
            let held = Held { beating, _connections: connections, _sockets: sockets };
            Ok(LocalCluster::new(folder, file, notices, agents, Some(held)))
        }
        Err(cause) => {
            // Over the sockets, which go after it.
            let remains = starting.undo(plan, &sockets).await;
            drop(sockets);
            // Best effort: what stays is found stale by the next command.
            let _ = folder.remove();
            Err(with_remains(cause, remains))
        }
    }
}

/// What went wrong, and what could not be undone.
pub(super) fn with_remains(cause: LaunchError, remains: Vec<HostFault>) -> LaunchError {
    match cause {
        LaunchError::Hosts { faults, .. } => LaunchError::Hosts { faults, left: remains },
        LaunchError::Interrupted { .. } => LaunchError::Interrupted { left: remains },
        other if remains.is_empty() => other,
        other => {
            let own = HostFault::new("this machine", Cause::Other, other.to_string());
            LaunchError::Hosts { faults: vec![own], left: remains }
        }
    }
}

/// How the hosts of a plan are reached.
fn road(plan: &RemotePlan, through_ssh: bool) -> RoadEntry {
    let later = RemotePlan { agents: Vec::new(), ..plan.clone() };
    RoadEntry { ssh: plan.ssh.clone(), through_ssh, fan_out: plan.fan_out, plan: Some(Box::new(later)) }
}

/// Hosts that are logged in to: of each agent the place of its connection, and where its rows flow.
pub(super) struct HostsOf {
    places: Vec<usize>,
    rules: Vec<DataRule>,
}

/// Logs in to all hosts of a plan, and brings the binary there.
pub(super) async fn log_in(
    plan: &RemotePlan,
    binary: &Binary,
    folder: &ClusterFolder,
    sockets: &Sockets,
    launch: &str,
    starting: &mut Starting,
) -> Result<HostsOf, LaunchError> {
    let (targets, places) = prepare::machines(plan.agents.iter().map(|agent| &agent.target));
    let lanes = Lanes::new(plan.fan_out, targets.iter());
    let known = prepare::places(&targets, &plan.ssh, &lanes).await;
    if plan.insecure && !known.iter().all(|place| place.loopback.is_some()) {
        return Err(LaunchError::Refused(
            "--insecure is for loopback addresses only: rows and control would cross the network in the clear"
                .into(),
        ));
    }
    let data: Vec<Option<String>> = plan.agents.iter().map(|agent| agent.data.clone()).collect();
    let rules = prepare::data_rules(&data, &places, &known).await;

    let wanted = |target| Wanted { target, dir: plan.remote_dir.clone() };
    let wanted: Vec<Wanted> = targets.iter().cloned().map(wanted).collect();
    let logins = prepare::connect(wanted, &plan.ssh, &lanes, &binary.file_name(), sockets).await;
    let ready = Ready::of(logins, binary, launch, &lanes).await;
    all_well(ready.faults(plan, &places, &rules, binary).await)?;
    // All hosts are there, so that the places of the connections are those of the hosts.
    starting.connections = ready.connections;
    note_noise(folder, &starting.connections);
    Ok(HostsOf { places, rules })
}

/// What is to be started of a plan.
pub(super) fn jobs<'p>(
    plan: &'p RemotePlan,
    binary: &'p Binary,
    HostsOf { places, rules }: &'p HostsOf,
    connections: &'p [Connection],
    launch: &'p str,
) -> Vec<Job<'p>> {
    let agents = plan.agents.iter().zip(places).zip(rules);
    let job = |((agent, place), rule): ((&'p RemoteAgent, &usize), &'p DataRule)| Job {
        plan,
        agent,
        rule,
        binary,
        place: *place,
        connection: &connections[*place],
        on_host: places.iter().filter(|other| *other == place).count() as u32,
        launch,
    };
    agents.map(job).collect()
}

/// All steps up to agents that have seen each other.
async fn bring_up(
    plan: &RemotePlan,
    binary: &Binary,
    folder: &ClusterFolder,
    sockets: &Sockets,
    file: &mut ClusterFile,
    starting: &mut Starting,
) -> Result<(), LaunchError> {
    let launch = run_name(&plan.cluster, file.launcher);
    let hosts_of = log_in(plan, binary, folder, sockets, &launch, starting).await?;
    let jobs = jobs(plan, binary, &hosts_of, &starting.connections, &launch);
    starting.folders = jobs.iter().map(|job| (job.place, job.folder())).collect();
    let Some((first, rest)) = jobs.split_first() else {
        return Err(LaunchError::Refused("a cluster needs at least one agent".into()));
    };
    let coordinator = match first.start(None, file.key.clone()).await {
        Ok(coordinator) => coordinator,
        Err(fault) => {
            // Without a coordinator nobody else can be started: they are asked what else would fail.
            let others =
                rest.iter().map(|job| check::would_fail(job.agent, job.rule, job.connection, binary));
            let mut faults = vec![fault];
            faults.extend(join_all(others).await.into_iter().flatten());
            return Err(hosts(faults));
        }
    };
    let address = coordinator.entry.address.clone();
    starting.running.push(coordinator);
    let others = join_all(rest.iter().map(|job| job.start(Some(address.clone()), file.key.clone())));
    let coordinator = &mut starting.running[0];
    let joined = tokio::select! {
        biased;
        joined = others => joined,
        // Nobody can join any more: what each of them would say of that is not waited for.
        fault = coordinator.ended(&starting.connections) => return Err(hosts(vec![fault])),
    };
    let mut faults = Vec::new();
    for other in joined {
        match other {
            Ok(running) => starting.running.push(running),
            Err(fault) => faults.push(fault),
        }
    }
    if !faults.is_empty() {
        // Where it is the coordinator that does not answer, the others have nothing to say.
        let coordinator = &mut starting.running[0];
        let nobody = LaunchRequest::Peers(Vec::new());
        if let Err(fault) = coordinator.ask(&nobody, COORDINATOR_WITHIN, &starting.connections).await {
            faults.retain(|fault| fault.cause != Cause::Join);
            faults.insert(0, fault);
        }
        let first = &plan.agents[0];
        return Err(hosts(faults.into_iter().map(|fault| name_pair(fault, first, &address)).collect()));
    }
    all_well(check_peers(&mut starting.running, &[], &starting.connections).await)?;

    file.agents = starting.running.iter().map(|running| running.entry.clone()).collect();
    file.coordinator = address;
    let security = Security::from_pem(file.key.as_ref())
        .map_err(|cause| LaunchError::Refused(format!("the cluster's key cannot be used: {cause}")))?;
    let direct = net::dial(&file.coordinator, Kind::Control, &security, DIRECT).await.is_ok();
    file.road = Some(road(plan, !direct));
    Ok(())
}

/// What start-up files printed is kept beside the logs: it explains a host that behaves oddly.
fn note_noise(folder: &ClusterFolder, connections: &[Connection]) {
    use std::fmt::Write as _;
    let mut text = String::new();
    for connection in connections {
        for line in &connection.noise {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}: shell noise: {}", connection.target(), line.escape_debug());
        }
    }
    if !text.is_empty() {
        // Nothing depends on it.
        let _ = std::fs::write(folder.log("shell-noise"), text);
    }
}

/// An agent that could not join its coordinator: both are named.
fn name_pair(fault: HostFault, coordinator: &RemoteAgent, address: &str) -> HostFault {
    not_joined(fault, &coordinator.name, &coordinator.target.host, address)
}

/// The same of a coordinator that runs.
pub(super) fn name_joined(fault: HostFault, coordinator: Option<&AgentEntry>, address: &str) -> HostFault {
    let host = coordinator.and_then(|agent| agent.host.as_ref()).map_or("?", |host| &host.target.host);
    not_joined(fault, coordinator.map_or("?", |agent| &agent.name), host, address)
}

fn not_joined(fault: HostFault, name: &str, host: &str, address: &str) -> HostFault {
    if fault.cause != Cause::Join {
        return fault;
    }
    let message = format!("it cannot reach agent {name} on host {host} at {address}: {}", fault.message);
    HostFault::new(fault.host, Cause::Peer, message)
        .remedy("data=.. must name a network that all hosts share, and no firewall may close it")
}

/// One agent to start, with all that it takes.
pub(super) struct Job<'p> {
    plan: &'p RemotePlan,
    agent: &'p RemoteAgent,
    rule: &'p DataRule,
    binary: &'p Binary,
    pub(super) place: usize,
    connection: &'p Connection,
    /// Agents on the same host.
    on_host: u32,
    launch: &'p str,
}

impl Job<'_> {
    pub(super) fn folder(&self) -> String {
        format!("{}/run/{}/{}", self.connection.facts.folder, self.launch, self.agent.name)
    }

    fn fault(&self, cause: Cause, message: String) -> HostFault {
        HostFault::new(self.agent.target.host.clone(), cause, message)
    }

    fn config(&self, coordinator: Option<String>, key: Option<KeyPem>) -> AgentConfig {
        let folder = self.folder();
        let processors = self.connection.facts.processors.max(1);
        AgentConfig {
            cluster: self.plan.cluster.clone(),
            name: self.agent.name.clone(),
            // The agent puts its data address in the place of the host.
            listen: format!("127.0.0.1:{}", self.agent.port),
            announce: None,
            coordinator,
            key,
            slots: self.agent.slots.unwrap_or_else(|| (processors / self.on_host.max(1)).max(1)),
            cores: self.agent.cores,
            zone: self.agent.zone.clone(),
            costs: self.plan.costs.clone(),
            memory: self.plan.memory,
            lease_ms: LEASE.as_millis() as u64,
            state: format!("{folder}/state"),
            folder: format!("{folder}/files"),
            log: Some(format!("{folder}/log")),
            detached: self.plan.detached,
            road: Some(Road {
                host: self.agent.target.host.clone(),
                data: self.rule.data.clone(),
                resolved: self.rule.resolved.clone(),
                loopback: self.rule.loopback,
                pid_file: format!("{folder}/pid"),
                probe: false,
                lease_ms: LAUNCHER_LEASE.as_millis() as u64,
            }),
        }
    }

    pub(super) async fn start(
        &self,
        coordinator: Option<String>,
        key: Option<KeyPem>,
    ) -> Result<Running, HostFault> {
        let agent = &self.agent.name;
        let said = |message: String| self.fault(Cause::Agent, format!("agent {agent}: {message}"));
        let folder = self.folder();
        let path = format!("{}/{}", self.connection.facts.folder, self.binary.file_name());
        let mut session =
            Session::open(self.connection, &script::start(), &[&folder, &path]).map_err(&said)?;
        let config = self.config(coordinator, key);
        let answer = match self.answer(&mut session, &config, &folder).await {
            Ok(answer) => answer,
            Err(cause) => return Err(said(cause)),
        };
        let (address, pid, started) = match answer {
            Some(AgentReady::Ready { address, pid, started, version, binary }) => {
                self.same_build(&version, &binary)?;
                (address, pid, started)
            }
            Some(AgentReady::Failed { message, kind }) => {
                let fault =
                    cause::on_host(&self.agent.target.host, &format!("agent {agent}"), None, &message);
                return Err(match kind {
                    StartFault::Port => said(message).remedy("stop what holds the port, or leave port= out"),
                    StartFault::Join { cause } => self.fault(Cause::Join, cause),
                    StartFault::Other if fault.cause == Cause::Other => said(message),
                    StartFault::Other => fault,
                });
            }
            Some(other) => return Err(said(format!("it answered something else: {other:?}"))),
            None => {
                return Err(session
                    .agent_ended(self.connection, agent, &folder, "before it was ready")
                    .await);
            }
        };
        let host = HostEntry {
            target: self.agent.target.clone(),
            folder: folder.clone(),
            socket: self.connection.socket().to_owned(),
        };
        let entry = AgentEntry {
            name: agent.clone(),
            address,
            process: ProcessId { pid, started },
            host: Some(host),
        };
        let host = self.agent.target.host.clone();
        Ok(Running { entry, host, place: self.place, folder, session })
    }

    /// The agent's first answer. One that is seen to be stopped is not waited for to the end.
    async fn answer(
        &self,
        session: &mut Session,
        config: &AgentConfig,
        folder: &str,
    ) -> Result<Option<AgentReady>, String> {
        let mut asked = std::pin::pin!(session.ask(config));
        let began = Instant::now();
        loop {
            tokio::select! {
                answer = &mut asked => return answer,
                () = tokio::time::sleep(LOOK) => {}
            }
            let fate = fate(self.connection, folder).await;
            let waited = began.elapsed();
            if fate.is_stopped || waited >= READY_WITHIN {
                return Err(format!("it was not ready within {} s{}", waited.as_secs(), fate.words));
            }
        }
    }

    /// A stale binary is named, whatever its file is called.
    fn same_build(&self, version: &str, binary: &str) -> Result<(), HostFault> {
        let own = env!("CARGO_PKG_VERSION");
        if version == own && binary == self.binary.hash {
            return Ok(());
        }
        let message = format!(
            "agent {} is another build there: version {version}, binary {binary}, wanted {own}, {}",
            self.agent.name, self.binary.hash
        );
        Err(self.fault(Cause::Version, message).remedy(format!(
            "remove {}/{} on that host, and it is copied anew",
            self.connection.facts.folder,
            self.binary.file_name()
        )))
    }
}
