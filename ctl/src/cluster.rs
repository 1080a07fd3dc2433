//! Finding a cluster and talking to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tuplane_testbed::launch::ssh::{self, SshCarrier};
use tuplane_testbed::launch::{
    ClusterFile, ClusterFolder, Ended, Stopped, check_name, end_processes, find_clusters, runtime_root,
};
use tuplane_wire::client::{CallError, Carrier, Client, LinkState};
use tuplane_wire::etp::JobFlow;
use tuplane_wire::members::AgentDrain;
use tuplane_wire::message::{
    AgentReply, AgentRequest, AgentStatus, ClusterReply, ClusterRequest, JobRoutes, JobStatus, JobSummary,
    Peeked,
};
use tuplane_wire::net::Security;
use tuplane_wire::service::Hello;

use crate::args::Global;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// How long a cluster that was asked to end may take before its agents are ended by signals.
const DOWN_PATIENCE: Duration = Duration::from_secs(5);

/// A submit is waited for at least so long.
const SUBMIT: Duration = Duration::from_mins(1);

/// Who runs this command, as `user@host`.
fn me() -> String {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let user = user.filter(|user| !user.is_empty());
    let user = user.unwrap_or_else(|| format!("user {}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
}

/// A cluster that can be asked.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// Its name, or the coordinator's address.
    pub(crate) name: String,
    /// Its folder and file, where it was started on this machine.
    local: Option<(ClusterFolder, ClusterFile)>,
    client: Client,
    security: Security,
    timeout: Duration,
    /// Ways through ssh, by the address of the agent, where agents cannot be dialled from here.
    carriers: Vec<(String, Arc<SshCarrier>)>,
}

impl Cluster {
    /// By `--cluster`, else `TUPLANE_CLUSTER` (clap reads it), else the only one there is.
    pub(crate) fn find(global: &Global, output: &Output) -> Outcome<Self> {
        Self::find_saying(global, |notice| output.notice(notice))
    }

    /// The same, saying what is to be said by the way; the UI has nowhere to print.
    pub(crate) fn find_saying(global: &Global, say: impl Fn(&str)) -> Outcome<Self> {
        Self::find_or(global, say, |more| format!("; `tuplane up --local 3{more}` starts one"))
    }

    /// The same for who wants to end it: nobody is told to start one.
    pub(crate) fn find_to_end(global: &Global, output: &Output) -> Outcome<Self> {
        Self::find_or(global, |notice| output.notice(notice), |_| ": there is nothing to end".to_owned())
    }

    /// `advice` is said where there is none, given the options that name it.
    fn find_or(global: &Global, say: impl Fn(&str), advice: impl Fn(String) -> String) -> Outcome<Self> {
        match global.cluster.as_deref() {
            Some(address) if address.contains(':') => return Self::at_address(address, global),
            Some(name) => check_name(name)?,
            None => {}
        }
        let root = runtime_root();
        let mut found = find_clusters(&root)?;
        for notice in &found.notices {
            say(notice);
        }
        if let Some(name) = &global.cluster {
            let names = names(&found.live);
            let Some(index) = found.live.iter().position(|(_, file)| file.name == *name) else {
                let known = if names.is_empty() { "none runs".into() } else { format!("running: {names}") };
                return Err(Failure::Unreachable(format!(
                    "no cluster named {name} runs here ({known}){}",
                    advice(format!(" --cluster {name}"))
                )));
            };
            return Self::local(found.live.swap_remove(index), global.timeout);
        }
        match found.live.len() {
            0 => Err(Failure::Unreachable(format!("no cluster runs here{}", advice(String::new())))),
            1 => Self::local(found.live.swap_remove(0), global.timeout),
            _ => Err(Failure::Usage(format!(
                "several clusters run here: {}; choose one with --cluster or TUPLANE_CLUSTER",
                names(&found.live)
            ))),
        }
    }

    /// A cluster of this machine.
    pub(crate) fn local(local: (ClusterFolder, ClusterFile), timeout: Duration) -> Outcome<Self> {
        let file = &local.1;
        if file.coordinator.is_empty() {
            return Err(Failure::Unreachable(format!(
                "cluster {} is just being started; try again",
                file.name
            )));
        }
        let security = security(file)?;
        let carriers = carriers(file);
        Ok(Self {
            name: file.name.clone(),
            client: over(client(&file.coordinator, &security), &carriers),
            security,
            timeout,
            carriers,
            local: Some(local),
        })
    }

    fn at_address(address: &str, global: &Global) -> Outcome<Self> {
        if !is_address(address) {
            return Err(Failure::Usage(format!(
                "`{}` names no cluster: an address is HOST:PORT, with a port from 1 to 65535",
                address.escape_debug()
            )));
        }
        let Some(key) = &global.key else {
            return Err(Failure::Usage(format!(
                "{address} is reached with the cluster's key: give its cluster.json with --key or TUPLANE_KEY_FILE"
            )));
        };
        let security = security(&ClusterFile::read(key)?)?;
        Ok(Self {
            name: address.to_owned(),
            client: client(address, &security),
            security,
            timeout: global.timeout,
            carriers: Vec::new(),
            local: None,
        })
    }

    /// The same, where one call may take at most so long.
    pub(crate) fn with_patience(self, patience: Duration) -> Self {
        Self { timeout: self.timeout.min(patience), ..self }
    }

    /// Its folder and file, where it was started on this machine.
    pub(crate) fn home(&self) -> Option<(&ClusterFolder, &ClusterFile)> {
        self.local.as_ref().map(|(folder, file)| (folder, file))
    }

    /// Its agents are processes of this machine.
    pub(crate) fn is_on_this_machine(&self) -> bool {
        self.local.as_ref().is_some_and(|(_, file)| file.road.is_none())
    }

    /// Without a connection: attempts to connect that failed, and when the next one is made.
    pub(crate) fn outage(&self) -> Option<(u32, Instant)> {
        match &*self.client.watch().borrow() {
            LinkState::Disconnected(outage) if outage.attempt > 0 => Some((outage.attempt, outage.retry_at)),
            _ => None,
        }
    }

    /// Asks the coordinator.
    pub(crate) async fn ask(&self, request: ClusterRequest) -> Outcome<ClusterReply> {
        // Who changes something is noted with it.
        let request = match request {
            change if change.is_change() => ClusterRequest::By { who: me(), request: Box::new(change) },
            other => other,
        };
        self.client.cluster(request, self.timeout).await.map_err(|error| self.explain(error))
    }

    fn explain(&self, error: CallError) -> Failure {
        let is_late = matches!(error, CallError::Timeout { .. });
        let has_died = matches!(error, CallError::Unreachable { refused: true, .. }) && self.local.is_some();
        match Failure::from(error) {
            Failure::Unreachable(message) if is_late => Failure::Unreachable(format!(
                "cluster {}: {message}; what was asked may still be done (--timeout says how long to wait)",
                self.name
            )),
            Failure::Unreachable(message) => {
                let advice = if has_died {
                    format!(
                        "; if it has died, `tuplane down --cluster {}` ends what is left and forgets it",
                        self.name
                    )
                } else {
                    String::new()
                };
                Failure::Unreachable(format!("cluster {} is not reachable: {message}{advice}", self.name))
            }
            other => other,
        }
    }

    /// Asks, where the reply says only that it was done.
    pub(crate) async fn tell(&self, request: ClusterRequest) -> Outcome {
        match self.ask(request).await? {
            ClusterReply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Submits a job: its run and the name it got.
    pub(crate) async fn submit(&self, job: String, force: bool) -> Outcome<(u64, String)> {
        // Checking reads files and folds constants: giving up early would leave it open whether the job runs.
        let patience = self.timeout.max(SUBMIT);
        let reply = self.client.cluster(ClusterRequest::Submit { job, force }, patience).await;
        match reply.map_err(|error| self.explain(error))? {
            ClusterReply::Submitted { run, name } => Ok((run, name)),
            other => Err(unexpected(&other)),
        }
    }

    /// Whether the agents would take a job.
    pub(crate) async fn check(&self, job: String) -> Outcome {
        let patience = self.timeout.max(SUBMIT);
        let reply = self.client.cluster(ClusterRequest::Check { job }, patience).await;
        match reply.map_err(|error| self.explain(error))? {
            ClusterReply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// One job in full, the newest where no name is given.
    pub(crate) async fn status(&self, job: Option<String>) -> Outcome<JobStatus> {
        match self.ask(ClusterRequest::Status { job }).await? {
            ClusterReply::Status(status) => Ok(*status),
            other => Err(unexpected(&other)),
        }
    }

    /// All jobs.
    pub(crate) async fn jobs(&self) -> Outcome<Vec<JobSummary>> {
        match self.ask(ClusterRequest::Jobs).await? {
            ClusterReply::Jobs(jobs) => Ok(jobs),
            other => Err(unexpected(&other)),
        }
    }

    /// How the edges of a job stand that choose their targets.
    pub(crate) async fn routes(&self, job: String, decisions: bool) -> Outcome<JobRoutes> {
        match self.ask(ClusterRequest::Routes { job, decisions }).await? {
            ClusterReply::Routes(routes) => Ok(*routes),
            other => Err(unexpected(&other)),
        }
    }

    /// What a running job does in a second, and what its vertices carry.
    pub(crate) async fn etp(&self, job: String, ratio: Option<f64>) -> Outcome<JobFlow> {
        match self.ask(ClusterRequest::Etp { job, ratio }).await? {
            ClusterReply::Etp(flow) => Ok(*flow),
            other => Err(unexpected(&other)),
        }
    }

    /// All agents.
    pub(crate) async fn agents(&self) -> Outcome<Vec<AgentStatus>> {
        match self.ask(ClusterRequest::Agents).await? {
            ClusterReply::Agents(agents) => Ok(agents),
            other => Err(unexpected(&other)),
        }
    }

    /// No new instances for an agent, or some again; what moves away, and what stays.
    pub(crate) async fn drain(&self, agent: &str, undo: bool, dry_run: bool) -> Outcome<AgentDrain> {
        match self.ask(ClusterRequest::Drain { agent: agent.to_owned(), undo, dry_run }).await? {
            ClusterReply::Drained(drain) => Ok(*drain),
            other => Err(unexpected(&other)),
        }
    }

    /// A client of one agent.
    pub(crate) fn agent(&self, address: &str) -> AgentClient {
        AgentClient { client: over(client(address, &self.security), &self.carriers), timeout: self.timeout }
    }

    /// Ends jobs and agents. Agents that do not end as asked are ended by pid and start time, on their
    /// hosts where they are on others, and their folders are removed.
    pub(crate) async fn down(&self) -> Outcome<Vec<Stopped>> {
        let agents = self.local.as_ref().map_or(&[][..], |(_, file)| file.agents.as_slice());
        let gone: Vec<bool> = agents.iter().map(|agent| !agent.is_alive_here()).collect();
        let asked = self.tell(ClusterRequest::Shutdown).await;
        let Some((folder, file)) = &self.local else {
            asked?;
            return Ok(Vec::new());
        };
        // Without an answer: it may have ended before the answer left, or be past answering.
        let patience = if asked.is_ok() { DOWN_PATIENCE } else { Duration::from_millis(500) };
        let stopped = if file.road.is_some() {
            let mut stopped = ssh::end(file, &runtime_root(), patience).await?;
            // Who had gone when it was looked at had been asked to, a moment before.
            for agent in stopped.iter_mut().filter(|agent| asked.is_ok() && agent.how == Ended::Gone) {
                agent.how = Ended::Itself;
            }
            stopped
        } else {
            let mut stopped = end_processes(&file.agents, patience).await;
            for (agent, gone) in stopped.iter_mut().zip(gone) {
                if gone {
                    agent.how = Ended::Gone;
                }
            }
            stopped
        };
        if let Some(stays) = stopped.iter().find(|agent| agent.how == Ended::Stays) {
            return Err(Failure::Failed {
                kind: "agent",
                message: format!(
                    "agent {} (pid {}) of cluster {} does not end, not even by SIGKILL",
                    stays.agent.name, stays.agent.process.pid, self.name
                ),
            });
        }
        folder.remove()?;
        Ok(stopped)
    }
}

/// One agent that can be asked.
#[derive(Debug)]
pub(crate) struct AgentClient {
    client: Client,
    timeout: Duration,
}

impl AgentClient {
    /// Reads one piece of a sink's file.
    pub(crate) async fn read(&self, run: u64, path: &str, offset: u64) -> Outcome<Vec<u8>> {
        let request = AgentRequest::ReadFile { run, path: path.to_owned(), offset };
        match self.client.agent(request, self.timeout).await? {
            AgentReply::Bytes(bytes) => Ok(bytes),
            other => Err(unexpected(&other)),
        }
    }
}

impl AgentClient {
    /// What a follower of a vertex has not seen yet.
    pub(crate) async fn peek(
        &self,
        run: u64,
        vertex: u32,
        follower: u64,
        rate: f64,
        from: u64,
    ) -> Outcome<Peeked> {
        let request = AgentRequest::Peek { run, vertex, follower, rate, from };
        match self.client.agent(request, self.timeout).await? {
            AgentReply::Peeked(peeked) => Ok(*peeked),
            other => Err(unexpected(&other)),
        }
    }
}

/// `HOST:PORT`; an IPv6 host stands in brackets.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let named = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_')),
    };
    named && port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// The command line has no registry of operators; agents compare theirs among themselves.
fn client(address: &str, security: &Security) -> Client {
    Client::new(address, security.clone(), Hello::ours(env!("CARGO_PKG_VERSION"), 0))
}

/// One way through ssh for each agent, shared by those of one host.
fn carriers(file: &ClusterFile) -> Vec<(String, Arc<SshCarrier>)> {
    let Some(road) = file.road.as_ref().filter(|road| road.through_ssh) else { return Vec::new() };
    let mut ways = Vec::new();
    let mut made: Vec<(&ssh::Target, Arc<SshCarrier>)> = Vec::new();
    for agent in &file.agents {
        let Some(host) = &agent.host else { continue };
        let known = made.iter().find(|(target, _)| *target == &host.target).map(|(_, way)| Arc::clone(way));
        let way = known.unwrap_or_else(|| {
            let way = SshCarrier::new(host.clone(), road.ssh.clone(), runtime_root());
            made.push((&host.target, Arc::clone(&way)));
            way
        });
        ways.push((agent.address.clone(), way));
    }
    ways
}

fn over(client: Client, carriers: &[(String, Arc<SshCarrier>)]) -> Client {
    match carriers.iter().find(|(address, _)| address == client.address()) {
        Some((_, way)) => client.over(Arc::clone(way) as Arc<dyn Carrier>),
        None => client,
    }
}

fn security(file: &ClusterFile) -> Outcome<Security> {
    Security::from_pem(file.key.as_ref())
        .map_err(|cause| Failure::Usage(format!("the key of cluster {} cannot be used: {cause}", file.name)))
}

fn names(live: &[(ClusterFolder, ClusterFile)]) -> String {
    live.iter().map(|(_, file)| file.name.as_str()).collect::<Vec<_>>().join(", ")
}

pub(crate) fn unexpected(reply: &impl std::fmt::Debug) -> Failure {
    let mut shown = format!("{reply:?}");
    shown.truncate(shown.char_indices().nth(80).map_or(shown.len(), |(at, _)| at));
    Failure::Internal(format!("an answer that does not fit the question: {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["127.0.0.1:4000", "host-1.example:1", "[::1]:65535"] {
            assert!(is_address(good), "{good}");
        }
        for bad in ["127.0.0.1:99999", "h:0", ":4000", "h:", "h:+1", "::1:4000", "a/b:1", "[x]:1", "h:1:2"] {
            assert!(!is_address(bad), "{bad}");
        }
    }
}
