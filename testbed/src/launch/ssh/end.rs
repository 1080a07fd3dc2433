//! Ending agents on named hosts: by the pid and start time that they recorded, never by name.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;

use super::cause::{Cause, HostFault};
use super::connection::Connection;
use super::prepare::{self, Sockets, Wanted};
use super::{FAN_OUT, SshOptions, Target, script};
use crate::launch::folder::{AgentEntry, ClusterFile};
use crate::launch::{Ended, LaunchError, Stopped};

/// What the script may take beyond the patience that it is given: two signals and their waits.
const SIGNALS: Duration = Duration::from_secs(15);

/// One agent that `clean` found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// The host.
    pub host: String,
    /// The agent's folder there.
    pub folder: String,
    /// Its recorded pid; 0 if none was.
    pub pid: u32,
    /// How it ended; `None` if it was left alone, for a cluster that this machine knows has it.
    pub how: Option<Ended>,
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
    let work = by_host.into_iter().map(|(target, agents)| {
        let (ssh, sockets) = (&ssh, &sockets);
        async move {
            let socket =
                agents.first().and_then(|agent| agent.host.as_ref()).map(|host| host.socket.as_path());
            let known = match socket {
                Some(socket) => Connection::attach(&target, socket).await,
                None => None,
            };
            let connection = match known {
                Some(connection) => connection,
                None => Connection::open(&target, ssh, sockets.next(), "", "").await?,
            };
            let own = agents.iter().filter_map(|agent| agent.host.as_ref());
            let ended =
                folders(&connection, own.map(|host| host.folder.as_str()).collect(), patience).await?;
            let how = |agent: &AgentEntry| {
                let folder = agent.host.as_ref().map(|host| &host.folder);
                ended.iter().find(|(ended, _)| Some(ended) == folder).map_or(Ended::Gone, |(_, how)| *how)
            };
            Ok(agents.into_iter().map(|agent| Stopped { agent: agent.clone(), how: how(agent) }).collect())
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
    if faults.is_empty() { Ok(all) } else { Err(LaunchError::Hosts { faults }) }
}

/// Ends all that is recorded in `dir` on these hosts, but for runs of `keep`; removes the folders. Hosts
/// that failed come second.
pub async fn clean(
    targets: &[Target],
    ssh: &SshOptions,
    dir: &str,
    keep: &[String],
    root: &Path,
) -> Result<(Vec<Cleaned>, Vec<HostFault>), LaunchError> {
    let sockets = Sockets::of_command(root)?;
    let (targets, _) = prepare::machines(targets.iter());
    let wanted = targets.into_iter().map(|target| Wanted { target, dir: dir.to_owned() }).collect();
    let logins = prepare::connect(wanted, ssh, FAN_OUT, "-", &sockets).await;
    let work = logins.into_iter().map(async |login| {
        let connection = login?;
        let mut arguments = vec![dir];
        arguments.extend(keep.iter().map(String::as_str));
        let output = connection.run("cleaning", &script::clean(), &arguments, SIGNALS * 10).await?;
        let host = connection.target().host.clone();
        let cleaned = answers(&output.stdout).into_iter().map(|(how, pid, folder)| {
            let how = if how == "skipped" { Ok(None) } else { how_of(&how).map(Some) };
            match how {
                Ok(how) => Ok(Cleaned { host: host.clone(), folder, pid, how }),
                Err(why) => Err(HostFault::new(host.clone(), Cause::Other, format!("{folder} {why}"))),
            }
        });
        cleaned.collect::<Result<Vec<_>, HostFault>>()
    });
    let (mut all, mut faults) = (Vec::new(), Vec::new());
    for answer in join_all(work).await {
        match answer {
            Ok(some) => all.extend(some),
            Err(fault) => faults.push(fault),
        }
    }
    Ok((all, faults))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_between_noise() {
        let output = b"Welcome\nTUPLANE-HOST term 12 /a b/run/x\nTUPLANE-HOST\nTUPLANE-HOST gone 0 /c\n";
        let read = answers(output);
        assert_eq!(read, [("term".into(), 12, "/a b/run/x".into()), ("gone".into(), 0, "/c".into())]);
        assert_eq!(how_of("kill"), Ok(Ended::Killed));
        assert!(how_of("elsewhere").is_err());
    }
}
