//! Ending agents on named hosts: by the pid and start time that they recorded, never by name.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;

use super::cause::{Cause, HostFault};
use super::connection::Connection;
use super::lanes::Lanes;
use super::prepare::{self, Sockets, Wanted};
use super::{FAN_OUT, SshOptions, Target, script};
use crate::launch::folder::{AgentEntry, ClusterFile, find_clusters, launcher_of};
use crate::launch::{Ended, LaunchError, Stopped};

/// What the script may take beyond the patience that it is given: two signals and their waits.
const SIGNALS: Duration = Duration::from_secs(15);

/// What `clean` is to do.
#[derive(Debug, Clone, Copy)]
pub struct CleanOptions<'o> {
    /// Folder on the hosts.
    pub dir: &'o str,
    /// Copied binaries of agents go too.
    pub binaries: bool,
    /// Only looks: nothing is ended or removed.
    pub look: bool,
    /// Logins under way at once.
    pub fan_out: usize,
}

/// One thing that `clean` found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// The host.
    pub host: String,
    /// The agent's folder there, or the binary.
    pub path: String,
    /// The agent's recorded pid; 0 if none was.
    pub pid: u32,
    /// What became of it.
    pub how: CleanOutcome,
}

/// What becomes of something that `clean` finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanOutcome {
    /// The agent ended so, and its folder is removed ([`Ended::Stays`]: it is not).
    Ended(Ended),
    /// The agent is left alone, for a cluster that this machine knows has it.
    LeftAlone,
    /// The agent is left alone, for the process of this machine with this pid starts its cluster, or holds it.
    Held(u32),
    /// The agent is left alone, for it was started after the look at what is there.
    New,
    /// The agent runs and would be ended.
    WouldEnd,
    /// The agent has gone; its folder would be removed.
    WouldRemove,
    /// A copied binary, removed.
    BinaryRemoved,
    /// A copied binary that would be removed.
    BinaryWouldGo,
    /// A copied binary that stays, for agents are left there.
    BinaryKept,
}

impl CleanOutcome {
    fn read(word: &str, look: bool) -> Result<Self, &'static str> {
        match word {
            "skipped" => Ok(Self::New),
            "runs" => Ok(Self::WouldEnd),
            "gone" if look => Ok(Self::WouldRemove),
            "removed" => Ok(Self::BinaryRemoved),
            "copy" => Ok(Self::BinaryWouldGo),
            "kept" => Ok(Self::BinaryKept),
            other => how_of(other).map(Self::Ended),
        }
    }

    /// It was only looked at, and would be ended or removed.
    pub fn is_left(self) -> bool {
        matches!(self, Self::WouldEnd | Self::WouldRemove | Self::BinaryWouldGo)
    }

    /// It is a copied binary.
    pub fn is_binary(self) -> bool {
        matches!(self, Self::BinaryRemoved | Self::BinaryWouldGo | Self::BinaryKept)
    }
}

/// Waits so long for agents that were asked to end, then ends them, and removes their folders.
pub(super) async fn folders(
    connection: &Connection,
    folders: Vec<&str>,
    patience: Duration,
) -> Result<Vec<(String, Ended)>, HostFault> {
    if folders.is_empty() {
        return Ok(Vec::new());
    }
    let tenths = (patience.as_millis() / 100).to_string();
    let mut arguments = vec![tenths.as_str()];
    arguments.extend(&folders);
    let limit = (patience + SIGNALS) * folders.len() as u32;
    let output = connection.run("ending agents", &script::end(), &arguments, limit).await?;
    let host = &connection.target().host;
    let mut ended = Vec::new();
    for (how, _, folder) in answers(&output.stdout) {
        match how_of(&how) {
            Ok(how) => ended.push((folder, how)),
            Err(why) => return Err(HostFault::new(host.clone(), Cause::Other, format!("{folder} {why}"))),
        }
    }
    Ok(ended)
}

/// `how pid folder` of each line with the mark.
fn answers(output: &[u8]) -> Vec<(String, u32, String)> {
    let text = String::from_utf8_lossy(output);
    let lines = text.lines().filter_map(|line| line.strip_prefix(script::MARK));
    lines
        .filter_map(|line| {
            let mut words = line.splitn(3, ' ');
            let (how, pid, folder) = (words.next()?, words.next()?, words.next()?);
            Some((how.to_owned(), pid.parse().unwrap_or(0), folder.to_owned()))
        })
        .collect()
}

fn how_of(word: &str) -> Result<Ended, &'static str> {
    match word {
        "gone" => Ok(Ended::Gone),
        "itself" => Ok(Ended::Itself),
        "term" => Ok(Ended::Terminated),
        "kill" => Ok(Ended::Killed),
        "stays" => Ok(Ended::Stays),
        "elsewhere" => Err("was written by another machine: clean that one"),
        "unreadable" => {
            Err("has a pid file that names no process, as a full disk leaves it: see there whether an \
                             agent still runs (`ls -l /proc/*/cwd` names its folder), end it, and remove the folder")
        }
        _ => Err("cannot be removed"),
    }
}

/// Ends a cluster's agents that were asked to end, after `patience`. All hosts are tried; those that
/// failed are named together.
pub async fn end(file: &ClusterFile, root: &Path, patience: Duration) -> Result<Vec<Stopped>, LaunchError> {
    let ssh = file.road.as_ref().map(|road| road.ssh.clone()).unwrap_or_default();
    let mut by_host: BTreeMap<Target, Vec<&AgentEntry>> = BTreeMap::new();
    for agent in &file.agents {
        if let Some(host) = &agent.host {
            by_host.entry(host.target.clone()).or_default().push(agent);
        }
    }
    let sockets = Sockets::of_command(root)?;
    let fan_out = file.road.as_ref().map_or(FAN_OUT, |road| road.fan_out);
    let lanes = Lanes::new(fan_out, by_host.keys());
    let work = by_host.iter().map(|(target, agents)| {
        let (ssh, sockets, lanes) = (&ssh, &sockets, &lanes);
        async move {
            let socket =
                agents.first().and_then(|agent| agent.host.as_ref()).map(|host| host.socket.as_path());
            let known = match socket {
                Some(socket) => Connection::attach(target, socket).await,
                None => None,
            };
            let connection = match known {
                Some(connection) => connection,
                None => lanes.pass(target, Connection::open(target, ssh, sockets.next(), "", "")).await?,
            };
            let own = agents.iter().filter_map(|agent| agent.host.as_ref());
            let ended =
                folders(&connection, own.map(|host| host.folder.as_str()).collect(), patience).await?;
            let how = |agent: &AgentEntry| {
                let folder = agent.host.as_ref().map(|host| &host.folder);
                ended.iter().find(|(ended, _)| Some(ended) == folder).map_or(Ended::Gone, |(_, how)| *how)
            };
            let stopped = |agent: &&AgentEntry| Stopped { agent: (*agent).clone(), how: how(agent) };
            Ok(agents.iter().map(stopped).collect())
        }
    });
    gather(join_all(work).await)
}

fn gather<T>(answers: Vec<Result<Vec<T>, HostFault>>) -> Result<Vec<T>, LaunchError> {
    let (mut all, mut faults) = (Vec::new(), Vec::new());
    for answer in answers {
        match answer {
            Ok(some) => all.extend(some),
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() { Ok(all) } else { Err(LaunchError::Hosts { faults, left: Vec::new() }) }
}

/// Ends all that is recorded on these hosts, but for agents of clusters that this machine knows, starts or
/// holds; removes the folders. What failed comes second.
pub async fn clean(
    targets: &[Target],
    ssh: &SshOptions,
    options: CleanOptions<'_>,
    root: &Path,
) -> Result<(Vec<Cleaned>, Vec<HostFault>), LaunchError> {
    let sockets = Sockets::of_command(root)?;
    let (targets, _) = prepare::machines(targets.iter());
    let lanes = Lanes::new(options.fan_out, targets.iter());
    let wanted = targets.into_iter().map(|target| Wanted { target, dir: options.dir.to_owned() }).collect();
    let logins = prepare::connect(wanted, ssh, &lanes, "-", &sockets).await;
    let work = logins.into_iter().map(async |login| {
        let connection = login?;
        clean_one(&connection, options, root).await
    });
    let (mut all, mut faults) = (Vec::new(), Vec::new());
    for answer in join_all(work).await {
        match answer {
            Ok((cleaned, failed)) => {
                all.extend(cleaned);
                faults.extend(failed);
            }
            Err(fault) => faults.push(fault),
        }
    }
    Ok((all, faults))
}

/// One host: looks first and ends second, so that what a launcher begins in between is left alone.
async fn clean_one(
    connection: &Connection,
    options: CleanOptions<'_>,
    root: &Path,
) -> Result<(Vec<Cleaned>, Vec<HostFault>), HostFault> {
    let host = &connection.target().host;
    let ask = async |action: &str, runs: &[&str]| {
        let mut arguments = vec![options.dir, action, if options.binaries { "binaries" } else { "-" }];
        arguments.extend(runs);
        let output = connection.run("cleaning", &script::clean(), &arguments, SIGNALS * 10).await?;
        Ok::<_, HostFault>(answers(&output.stdout))
    };
    let mut found = ask("look", &[]).await?;
    // After the look: whoever began before it is known by now.
    let known =
        known_runs(root).map_err(|cause| HostFault::new(host.clone(), Cause::Other, cause.to_string()))?;
    let whose = |path: &str| whose(&known, path);
    if !options.look {
        let mut runs: Vec<&str> = found
            .iter()
            .filter(|(_, _, path)| whose(path).is_none())
            .filter_map(|(.., path)| run_of(path))
            .collect();
        runs.sort_unstable();
        runs.dedup();
        found = ask("end", &runs).await?;
    }
    let kept = found.iter().any(|(_, _, path)| whose(path).is_some());
    let (mut all, mut faults) = (Vec::new(), Vec::new());
    for (word, pid, path) in found {
        let how = match (whose(&path), CleanOutcome::read(&word, options.look)) {
            (Some(whose), _) => Ok(whose),
            // Agents that are left run it.
            (None, Ok(CleanOutcome::BinaryWouldGo)) if kept => Ok(CleanOutcome::BinaryKept),
            (None, how) => how,
        };
        match how {
            Ok(how) => all.push(Cleaned { host: host.clone(), path, pid, how }),
            Err(why) => faults.push(HostFault::new(host.clone(), Cause::Other, format!("{path} {why}"))),
        }
    }
    Ok((all, faults))
}

/// Runs of clusters that this machine knows, with why they are left alone.
fn known_runs(root: &Path) -> Result<BTreeMap<String, CleanOutcome>, LaunchError> {
    let live = find_clusters(root)?.live;
    let outcome = |file: &ClusterFile| match file.coordinator.as_str() {
        "" => CleanOutcome::Held(file.launcher.pid),
        _ => CleanOutcome::LeftAlone,
    };
    Ok(live.iter().filter_map(|(_, file)| Some((file.run()?, outcome(file)))).collect())
}

/// Why an agent is left alone, by the path of its folder. A launcher that runs here without being known (of
/// another user, or with another runtime folder) counts too: a pid with its start time names one process.
fn whose(known: &BTreeMap<String, CleanOutcome>, path: &str) -> Option<CleanOutcome> {
    let run = run_of(path)?;
    let held = || launcher_of(run).filter(|launcher| launcher.is_alive());
    known.get(run).copied().or_else(|| held().map(|launcher| CleanOutcome::Held(launcher.pid)))
}

/// The run of an agent's folder `.../run/RUN/NAME`; `None` for the path of a binary.
fn run_of(path: &str) -> Option<&str> {
    let mut parts = path.rsplit('/');
    let (_, run, folder) = (parts.next()?, parts.next()?, parts.next()?);
    (folder == "run").then_some(run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::ProcessId;
    use crate::launch::folder::run_name;

    #[test]
    fn answers_are_read_between_noise() {
        let output = b"Welcome\nTUPLANE-HOST term 12 /a b/run/x\nTUPLANE-HOST\nTUPLANE-HOST gone 0 /c\n";
        let read = answers(output);
        assert_eq!(read, [("term".into(), 12, "/a b/run/x".into()), ("gone".into(), 0, "/c".into())]);
        assert_eq!(how_of("kill"), Ok(Ended::Killed));
        assert!(how_of("elsewhere").is_err() && how_of("unreadable").is_err());
        assert_eq!(CleanOutcome::read("gone", false), Ok(CleanOutcome::Ended(Ended::Gone)));
        assert_eq!(CleanOutcome::read("gone", true), Ok(CleanOutcome::WouldRemove));
        assert!(CleanOutcome::read("left", false).is_err());
    }

    #[test]
    fn what_a_process_of_this_machine_starts_or_holds_is_left_alone() {
        let own = ProcessId::current().unwrap();
        let gone = ProcessId { started: own.started + 1, ..own };
        let folder = |run: String| format!("/home/u/.cache/tuplane/run/{run}/a");
        let none = BTreeMap::new();
        assert_eq!(whose(&none, &folder(run_name("t", own))), Some(CleanOutcome::Held(own.pid)));
        assert_eq!(whose(&none, &folder(run_name("t", gone))), None);
        let known = BTreeMap::from([(run_name("t", gone), CleanOutcome::LeftAlone)]);
        assert_eq!(whose(&known, &folder(run_name("t", gone))), Some(CleanOutcome::LeftAlone));
        assert_eq!(whose(&known, "/home/u/.cache/tuplane/agent-0123"), None);
    }
}
