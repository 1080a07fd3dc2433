//! Starting the agents of a plan: the coordinator first, the rest at once, all or none.

use std::fs::OpenOptions;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinSet;
use tuplane_wire::launch::{AgentConfig, AgentReady, KeyPem, LaunchRequest, READY_MARKER};
use tuplane_wire::net::ClusterKey;

use super::folder::{AgentEntry, ClusterFile, ClusterFolder, SCHEMA};
use super::stop::end_processes;
use super::{AgentPlan, LaunchError, LocalPlan, ProcessId, ssh};

/// How long an agent may take until it listens.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// An agent that the coordinator has not heard of for so long is dead.
pub(super) const LEASE: Duration = Duration::from_secs(10);

/// Said of an agent that cannot answer.
pub(super) const STOPPED: &str = "; its process is stopped (state T), kill -CONT lets it go on";

/// A launcher skips at most so many bytes before the agent's answer.
pub(super) const ANSWER_LIMIT: u64 = 1 << 20;

/// A running cluster that this process started, on this machine or over ssh.
///
/// It holds the agents' lifelines: dropping it ends them, unless they were started detached.
#[derive(Debug)]
pub struct LocalCluster {
    /// The cluster's folder.
    pub folder: ClusterFolder,
    /// What is written there.
    pub file: ClusterFile,
    /// Sentences for the person about what was cleaned up on the way.
    pub notices: Vec<String>,
    /// Agents, or for hosts over ssh the session of each, which ends with its agent.
    children: Vec<(String, Child)>,
    lifelines: Vec<ChildStdin>,
    /// Connections below the sessions.
    held: Option<ssh::Held>,
}

impl LocalCluster {
    pub(super) fn new(
        folder: ClusterFolder,
        file: ClusterFile,
        notices: Vec<String>,
        agents: Vec<(String, Child, Option<ChildStdin>)>,
        held: Option<ssh::Held>,
    ) -> Self {
        let mut cluster = Self { folder, file, notices, children: Vec::new(), lifelines: Vec::new(), held };
        for (name, child, lifeline) in agents {
            cluster.children.push((name, child));
            cluster.lifelines.extend(lifeline);
        }
        cluster
    }

    /// Where an agent's log is, for a message.
    pub fn log_place(&self, agent: &str) -> String {
        let entry = self.file.agents.iter().find(|entry| entry.name == agent);
        match entry.and_then(|entry| entry.host.as_ref()) {
            Some(host) => format!("{}/log on {}", host.folder, host.target),
            None => self.folder.log(agent).display().to_string(),
        }
    }

    /// Agents that have ended since the last call, with how.
    pub fn ended(&mut self) -> Vec<(String, ExitStatus)> {
        let mut ended = Vec::new();
        self.children.retain_mut(|(name, child)| match child.try_wait() {
            Ok(Some(status)) => {
                ended.push((name.clone(), status));
                false
            }
            _ => true,
        });
        ended
    }

    /// No agent is left.
    pub fn is_over(&self) -> bool {
        self.children.is_empty()
    }

    /// Lets go of the lifelines: agents that are not detached end by themselves.
    pub fn let_go(&mut self) {
        self.lifelines.clear();
        self.held = None;
    }

    /// Removes the folder, if it is still this cluster's.
    pub fn remove_folder(&self) -> Result<(), LaunchError> {
        match ClusterFile::read(&self.folder.file()) {
            Ok(file) if file.launcher == self.file.launcher => self.folder.remove(),
            // Somebody else's `down` removed it, and a new cluster may have taken the name.
            _ => Ok(()),
        }
    }
}

/// What has been started so far. Dropped before all is well, it ends that and removes the folder.
struct Starting {
    folder: Option<ClusterFolder>,
    agents: Vec<Started>,
}

/// An agent that came up, and still ends with this process.
pub(super) struct Started {
    pub(super) entry: AgentEntry,
    child: Child,
    lifeline: Option<ChildStdin>,
}

impl Started {
    fn fault(&self, cause: String) -> LaunchError {
        LaunchError::Agent { name: self.entry.name.clone(), address: self.entry.address.clone(), cause }
    }

    /// Cuts its lifeline by an order that does so: it outlives this process.
    pub(super) async fn let_go(&mut self, order: &LaunchRequest) -> Result<(), LaunchError> {
        let fail = |entry: &AgentEntry, cause: String| LaunchError::Agent {
            name: entry.name.clone(),
            address: entry.address.clone(),
            cause: format!("it could not be detached: {cause}"),
        };
        let Some(lifeline) = &mut self.lifeline else { return Ok(()) };
        let mut order = serde_json::to_vec(order).map_err(|cause| fail(&self.entry, cause.to_string()))?;
        order.push(b'\n');
        lifeline.write_all(&order).await.map_err(|cause| fail(&self.entry, cause.to_string()))?;
        lifeline.flush().await.map_err(|cause| fail(&self.entry, cause.to_string()))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        for agent in &mut self.agents {
            // Already gone is as good.
            let _ = agent.child.start_kill();
        }
        if let Some(folder) = &self.folder {
            // Best effort: what stays is found stale by the next command.
            let _ = folder.remove();
        }
    }
}

/// Starts a plan's agents below the runtime folder `root`.
pub async fn start(plan: &LocalPlan, root: &Path) -> Result<LocalCluster, LaunchError> {
    let launcher = ProcessId::current().ok_or_else(|| {
        LaunchError::Refused("/proc is not readable here; agents cannot be told apart".into())
    })?;
    let key = if plan.insecure { None } else { Some(generate_key()?) };
    let (folder, notices) = ClusterFolder::create(root, &plan.cluster)?;
    let mut starting = Starting { folder: Some(folder.clone()), agents: Vec::new() };
    let mut file = ClusterFile {
        schema: SCHEMA.into(),
        name: plan.cluster.clone(),
        coordinator: String::new(),
        key: key.clone(),
        agents: Vec::new(),
        launcher,
        detached: plan.detached,
        road: None,
    };
    folder.write(&file)?;

    let Some((first, rest)) = plan.agents.split_first() else {
        return Err(LaunchError::Refused("a cluster needs at least one agent".into()));
    };
    let coordinator = start_agent(plan, first.clone(), None, key.clone(), &folder).await?;
    let address = coordinator.entry.address.clone();
    starting.agents.push(coordinator);

    let mut others = JoinSet::new();
    for (place, agent) in rest.iter().cloned().enumerate() {
        let (plan, key, folder, address) = (plan.clone(), key.clone(), folder.clone(), address.clone());
        others.spawn(async move { (place, start_agent(&plan, agent, Some(address), key, &folder).await) });
    }
    let mut failed = None;
    let mut came_up = Vec::new();
    let first = &mut starting.agents[0];
    loop {
        let joined = tokio::select! {
            biased;
            joined = others.join_next() => joined,
            // Nobody can join any more: what each of them would say of that is not waited for.
            status = first.child.wait(), if failed.is_none() => {
                let how = status.map_or_else(|cause| cause.to_string(), |status| status.to_string());
                let log = folder.log(&first.entry.name);
                failed = Some(first.fault(format!("it ended ({how}) while the others joined{}", last_words(&log))));
                others.abort_all();
                continue;
            }
        };
        match joined {
            None => break,
            Some(Ok((place, Ok(started)))) => came_up.push((place, started)),
            Some(Ok((_, Err(cause)))) => failed = failed.or(Some(cause)),
            Some(Err(cause)) => {
                failed = failed.or_else(|| {
                    Some(LaunchError::Refused(format!("starting an agent was interrupted: {cause}")))
                });
            }
        }
    }
    // The others then say no more than that they could not join.
    if failed.is_some() && first.entry.process.is_stopped() {
        failed = Some(first.fault(format!("it does not answer the others{STOPPED}")));
    }
    came_up.sort_by_key(|(place, _)| *place);
    starting.agents.extend(came_up.into_iter().map(|(_, started)| started));
    file.agents = starting.agents.iter().map(|started| started.entry.clone()).collect();
    if let Some(cause) = failed {
        end_processes(&file.agents, Duration::ZERO).await;
        return Err(cause);
    }

    file.coordinator = address;
    folder.write(&file)?;
    if plan.detached {
        // Not before its folder names them all: until then they end with this process.
        for agent in &mut starting.agents {
            agent.let_go(&LaunchRequest::Detach).await?;
        }
    }
    starting.folder = None;
    let agents = starting
        .agents
        .drain(..)
        .map(|started| (started.entry.name, started.child, started.lifeline.filter(|_| !plan.detached)));
    Ok(LocalCluster::new(folder, file, notices, agents.collect(), None))
}

pub(super) fn generate_key() -> Result<KeyPem, LaunchError> {
    ClusterKey::generate()
        .map(|key| key.to_pem().clone())
        .map_err(|cause| LaunchError::Refused(format!("cannot make the cluster's key: {cause}")))
}

pub(super) async fn start_agent(
    plan: &LocalPlan,
    agent: AgentPlan,
    coordinator: Option<String>,
    key: Option<KeyPem>,
    folder: &ClusterFolder,
) -> Result<Started, LaunchError> {
    let log = folder.log(&agent.name);
    let fail =
        |cause: String| LaunchError::Agent { name: agent.name.clone(), address: agent.listen.clone(), cause };
    let working = folder.agents().join(&agent.name);
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&working)
        .map_err(|cause| LaunchError::file("make", &working, cause))?;
    let config = AgentConfig {
        cluster: plan.cluster.clone(),
        name: agent.name.clone(),
        listen: agent.listen.clone(),
        announce: None,
        coordinator,
        key,
        slots: plan.slots,
        cores: plan.cores,
        zone: agent.zone.clone(),
        costs: plan.costs.clone(),
        memory: plan.memory,
        lease_ms: LEASE.as_millis() as u64,
        state: folder.state().display().to_string(),
        folder: working.display().to_string(),
        log: Some(log.display().to_string()),
        detached: plan.detached,
        road: None,
    };
    let mut line = serde_json::to_vec(&config).map_err(|cause| fail(cause.to_string()))?;
    line.push(b'\n');

    let errors = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&log)
        .map_err(|cause| LaunchError::file("open", &log, cause))?;
    let mut child = Command::new(&plan.binary)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(errors)
        // A group of its own: Ctrl-C on the terminal reaches the owner, which then ends the agents.
        .process_group(0)
        // Until its start is confirmed; a confirmed detached agent is handed on, never dropped here.
        .kill_on_drop(false)
        .spawn()
        .map_err(|cause| fail(format!("{}: {cause}", plan.binary.display())))?;
    let mut kill = KillUnlessReady { pid: child.id().and_then(ProcessId::of) };

    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(fail("its standard input and output are not there".into()));
    };
    let exchange = async {
        // An agent that ends before it reads says why in its log; the answer below tells.
        let _ = stdin.write_all(&line).await;
        let _ = stdin.flush().await;
        read_ready(stdout).await
    };
    let ready = match tokio::time::timeout(READY_WITHIN, exchange).await {
        Ok(Ok(Some(ready))) => ready,
        Ok(Ok(None)) => {
            let status = tokio::time::timeout(Duration::from_secs(1), child.wait()).await;
            let how = match status {
                Ok(Ok(status)) => format!("it ended ({status}) before it was ready"),
                _ => "it closed its output before it was ready".to_owned(),
            };
            return Err(fail(how + &last_words(&log)));
        }
        Ok(Err(cause)) => return Err(fail(cause)),
        Err(_) => {
            let waited = READY_WITHIN.as_secs();
            let stopped = if kill.pid.is_some_and(ProcessId::is_stopped) { STOPPED } else { "" };
            return Err(fail(format!("it was not ready within {waited} s{stopped}{}", last_words(&log))));
        }
    };
    match ready {
        AgentReady::Ready { address, pid, started, .. } => {
            kill.pid = None;
            let entry = AgentEntry {
                name: agent.name.clone(),
                address,
                process: ProcessId { pid, started },
                host: None,
            };
            Ok(Started { entry, child, lifeline: Some(stdin) })
        }
        AgentReady::Failed { message, .. } => Err(fail(message)),
        other => Err(fail(format!("it answered something else: {other:?}"))),
    }
}

/// Ends an agent whose start was given up, also when the future that waits for it is dropped.
struct KillUnlessReady {
    pid: Option<ProcessId>,
}

impl Drop for KillUnlessReady {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            pid.kill();
        }
    }
}

/// The agent's answer; lines before it (a shell's greeting, a library's warning) are skipped.
async fn read_ready(stdout: impl tokio::io::AsyncRead + Unpin) -> Result<Option<AgentReady>, String> {
    let mut lines = BufReader::new(stdout.take(ANSWER_LIMIT)).split(b'\n');
    next_answer(&mut lines, &mut Vec::new()).await
}

/// The next line; a greeting need not be UTF-8.
pub(super) async fn next_line<R: tokio::io::AsyncBufRead + Unpin>(
    lines: &mut tokio::io::Split<R>,
) -> std::io::Result<Option<String>> {
    let line = lines.next_segment().await?;
    Ok(line.map(|line| String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line)).into_owned()))
}

/// The next answer of an agent, `None` at the end of its output; `noise` gets the lines before it.
pub(super) async fn next_answer<R: tokio::io::AsyncBufRead + Unpin>(
    lines: &mut tokio::io::Split<R>,
    noise: &mut Vec<String>,
) -> Result<Option<AgentReady>, String> {
    while let Some(line) =
        next_line(lines).await.map_err(|cause| format!("its answer cannot be read: {cause}"))?
    {
        if let Some(answer) = line.strip_prefix(READY_MARKER) {
            return serde_json::from_str(answer)
                .map(Some)
                .map_err(|cause| format!("its answer is of another version: {cause}"));
        }
        noise.push(line);
    }
    Ok(None)
}

/// The last line of a log.
fn last_words(log: &Path) -> String {
    last_line(&String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()))
}

/// The last line that says something, as `; it said: ..`, or nothing.
pub(super) fn last_line(text: &str) -> String {
    text.lines().rfind(|line| !line.trim().is_empty()).map_or_else(String::new, |line| {
        let shown: String = line.chars().filter(|c| !c.is_control()).take(300).collect();
        format!("; it said: {shown}")
    })
}

#[cfg(test)]
mod tests {
    use tuplane_wire::launch::StartFault;

    use super::*;

    #[tokio::test]
    async fn lines_before_the_answer_are_skipped() {
        let ready = AgentReady::Failed { message: "no".into(), kind: StartFault::Other };
        let text = format!("Welcome\n\n{READY_MARKER}{}\nmore\n", serde_json::to_string(&ready).unwrap());
        assert_eq!(read_ready(text.as_bytes()).await, Ok(Some(ready)));
        assert_eq!(read_ready(&b"Welcome\n"[..]).await, Ok(None));
        let old = format!("{READY_MARKER}{{}}\n");
        assert!(read_ready(old.as_bytes()).await.unwrap_err().contains("another version"));
    }
}
