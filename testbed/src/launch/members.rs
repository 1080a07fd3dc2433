//! More agents for a cluster that runs, and fewer: each change is in `cluster.json` before it holds.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::pin::pin;
use std::time::Duration;

use tokio::task::JoinSet;
use tuplane_wire::launch::LaunchRequest;

use super::folder::{AgentEntry, ClusterFile, ClusterFolder};
use super::local::agent_name;
use super::start::{Started, start_agent};
use super::stop::end_processes;
use super::{LaunchError, LocalPlan};

/// The agents of a cluster, while nobody else changes them.
#[derive(Debug)]
pub struct Members {
    pub(super) folder: ClusterFolder,
    /// `cluster.json` as it is.
    pub file: ClusterFile,
    /// Given back when it is dropped.
    _lock: File,
}

impl Members {
    /// Takes hold of a cluster's list of agents.
    ///
    /// # Errors
    /// If another command holds it, or the folder is none of a cluster.
    pub fn hold(folder: &ClusterFolder) -> Result<Self, LaunchError> {
        let path = folder.path().join("agents.lock");
        let lock = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|cause| LaunchError::file("open", &path, cause))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LaunchError::Refused(format!(
                    "another command changes the agents of this cluster ({} is locked); try again when it has ended",
                    path.display()
                )));
            }
            Err(TryLockError::Error(cause)) => return Err(LaunchError::file("lock", &path, cause)),
        }
        Ok(Self { file: ClusterFile::read(&folder.file())?, folder: folder.clone(), _lock: lock })
    }

    /// So many names, none of which an agent of this cluster has or had; `known` are those that its coordinator knows.
    pub fn free_names(&self, known: &[String], count: usize) -> Vec<String> {
        let taken = |name: &String| {
            let listed = self.file.agents.iter().any(|agent| agent.name == *name);
            listed || known.contains(name) || self.folder.agents().join(name).exists()
        };
        (0..).map(agent_name).filter(|name| !taken(name)).take(count).collect()
    }

    /// Starts the agents of a plan, all or none, and lets go of them. In a detached cluster they run until they are
    /// released or the cluster ends; in one that its launcher holds they end also when the coordinator was not reached
    /// for a lease.
    ///
    /// # Errors
    /// If an agent does not start, or `cancel` comes back before all have; those that had are ended again.
    pub async fn add(
        &mut self,
        plan: &LocalPlan,
        cancel: impl Future<Output = ()>,
    ) -> Result<Vec<AgentEntry>, LaunchError> {
        let mut starts = JoinSet::new();
        for (place, agent) in plan.agents.iter().cloned().enumerate() {
            let plan = LocalPlan { detached: self.file.detached, ..plan.clone() };
            let (folder, key) = (self.folder.clone(), self.file.key.clone());
            let coordinator = Some(self.file.coordinator.clone());
            starts.spawn(async move { (place, start_agent(&plan, agent, coordinator, key, &folder).await) });
        }
        let (mut started, mut failed) = (Vec::new(), None);
        let mut cancel = pin!(cancel);
        loop {
            let joined = tokio::select! {
                biased;
                () = &mut cancel, if failed.is_none() => {
                    failed = Some(LaunchError::Interrupted { left: Vec::new() });
                    // Those that are not ready are killed; the others are ended below.
                    starts.abort_all();
                    continue;
                }
                joined = starts.join_next() => joined,
            };
            match joined {
                None => break,
                Some(Ok((place, Ok(agent)))) => started.push((place, agent)),
                Some(Ok((_, Err(cause)))) => failed = failed.or(Some(cause)),
                Some(Err(cause)) => {
                    let cause = LaunchError::Refused(format!("starting an agent was interrupted: {cause}"));
                    failed = failed.or(Some(cause));
                }
            }
        }
        started.sort_by_key(|(place, _)| *place);
        let mut started: Vec<Started> = started.into_iter().map(|(_, agent)| agent).collect();
        let entries: Vec<AgentEntry> = started.iter().map(|agent| agent.entry.clone()).collect();
        let done = match failed {
            Some(cause) => Err(cause),
            None => self.hand_over(&mut started, &entries).await,
        };
        if let Err(cause) = done {
            end_processes(&entries, Duration::ZERO).await;
            self.forget(|agent| entries.contains(agent))?;
            return Err(cause);
        }
        Ok(entries)
    }

    /// Not before the file names them all: until then they end with this process.
    async fn hand_over(
        &mut self,
        started: &mut [Started],
        entries: &[AgentEntry],
    ) -> Result<(), LaunchError> {
        self.extend(entries)?;
        let order = if self.file.detached { LaunchRequest::Detach } else { LaunchRequest::EndWithCluster };
        for agent in started {
            agent.let_go(&order).await?;
        }
        Ok(())
    }

    /// Writes more agents into the file.
    pub(super) fn extend(&mut self, entries: &[AgentEntry]) -> Result<(), LaunchError> {
        self.file.agents.extend_from_slice(entries);
        self.folder.write(&self.file)
    }

    /// Takes agents out of the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn forget(&mut self, which: impl Fn(&AgentEntry) -> bool) -> Result<(), LaunchError> {
        let before = self.file.agents.len();
        self.file.agents.retain(|agent| !which(agent));
        if self.file.agents.len() == before { Ok(()) } else { self.folder.write(&self.file) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::{ProcessId, SCHEMA};

    fn cluster() -> (tempfile::TempDir, ClusterFolder) {
        let root = tempfile::tempdir().unwrap();
        let (folder, _) = ClusterFolder::create(&root.path().join("tuplane"), "t").unwrap();
        let process = ProcessId::current().unwrap();
        let agent =
            |name: &str| AgentEntry { name: name.into(), address: "127.0.0.1:1".into(), process, host: None };
        let file = ClusterFile {
            schema: SCHEMA.into(),
            name: "t".into(),
            coordinator: "127.0.0.1:1".into(),
            key: None,
            agents: vec![agent("a"), agent("b")],
            launcher: process,
            detached: true,
            road: None,
        };
        folder.write(&file).unwrap();
        (root, folder)
    }

    #[test]
    fn one_command_at_a_time_changes_the_agents() {
        let (_root, folder) = cluster();
        let mut members = Members::hold(&folder).unwrap();
        let refused = Members::hold(&folder).unwrap_err().to_string();
        assert!(refused.contains("agents.lock"), "{refused}");
        members.forget(|agent| agent.name == "b").unwrap();
        drop(members);
        let left = Members::hold(&folder).unwrap().file.agents;
        assert_eq!(left.iter().map(|agent| agent.name.as_str()).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn no_name_is_given_twice() {
        let (_root, folder) = cluster();
        std::fs::create_dir(folder.agents().join("d")).unwrap();
        let members = Members::hold(&folder).unwrap();
        assert_eq!(members.free_names(&["c".to_owned(), "f".to_owned()], 3), ["e", "g", "h"]);
    }
}
