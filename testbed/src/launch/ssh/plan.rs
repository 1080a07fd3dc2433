//! What a cluster on named hosts will be, decided before anybody logs in.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tuplane_core::fault::Spanned;

use super::{SshOptions, Target};
use crate::hosts::{Host, names};
use crate::launch::local::{DEFAULT_MEMORY, DEFAULT_ZONE, read_costs};
use crate::launch::{CostEntry, LaunchError, find_agent};

/// Agents of one host: sshd opens 10 sessions on a connection, and one connection serves a host.
const MOST_PER_HOST: usize = 8;

/// What a person asked for.
#[derive(Debug, Clone, Default)]
pub struct HostsOptions {
    /// The cluster's name.
    pub cluster: String,
    /// Lines of the hosts file.
    pub hosts: Vec<Spanned<Host>>,
    /// Default instances per vertex where a line says nothing; processors over the host's agents unless set.
    pub slots: Option<u32>,
    /// Most rows in `work` at once where a line says nothing; no limit unless set.
    pub cores: Option<u32>,
    /// A file of `zone zone cost` lines.
    pub costs: Option<PathBuf>,
    /// Bytes of queued rows on each.
    pub memory: Option<u64>,
    /// The agent's binary on this machine.
    pub agent: Option<PathBuf>,
    /// No TLS (loopback only).
    pub insecure: bool,
    /// Agents outlive the command that starts them.
    pub detached: bool,
    /// What ssh is told.
    pub ssh: SshOptions,
    /// Where ssh goes through unless a line says otherwise.
    pub jump: Option<String>,
    /// Folder on the hosts, below the home folder unless absolute.
    pub remote_dir: String,
    /// Logins under way at once.
    pub fan_out: usize,
}

/// What will be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemotePlan {
    /// The cluster's name.
    pub cluster: String,
    /// The agent's binary on this machine.
    pub binary: PathBuf,
    /// The agents; the first coordinates.
    pub agents: Vec<RemoteAgent>,
    /// Agents of hosts that are kept back.
    pub spares: Vec<RemoteAgent>,
    /// The cost table.
    pub costs: Vec<CostEntry>,
    /// Bytes of queued rows on each.
    pub memory: u64,
    /// No TLS.
    pub insecure: bool,
    /// Agents outlive the command that starts them.
    pub detached: bool,
    /// What ssh is told.
    pub ssh: SshOptions,
    /// Folder on the hosts.
    pub remote_dir: String,
    /// Logins under way at once.
    pub fan_out: usize,
}

/// One agent to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteAgent {
    /// Its name.
    pub name: String,
    /// Where ssh goes.
    pub target: Target,
    /// Where rows flow, as the line says it.
    pub data: Option<String>,
    /// Port to listen on; the system chooses if 0.
    pub port: u16,
    /// Default instances per vertex; processors over the host's agents if absent.
    pub slots: Option<u32>,
    /// Most rows in `work` at once; 0 for no limit.
    pub cores: u32,
    /// Its zone.
    pub zone: String,
}

impl HostsOptions {
    /// Decides all of it, or says what stands against it.
    pub fn plan(&self) -> Result<RemotePlan, LaunchError> {
        let names = names(&self.hosts);
        let all = self.hosts.iter().map(|host| &host.value).zip(names);
        let (mut agents, mut spares) = (Vec::new(), Vec::new());
        for (host, name) in all {
            let kind = if host.spare { &mut spares } else { &mut agents };
            kind.push(RemoteAgent {
                name,
                target: Target::of(host, self.jump.as_deref()),
                data: host.data.clone(),
                port: host.port,
                slots: host.slots.or(self.slots),
                cores: host.cores.or(self.cores).unwrap_or(0),
                zone: host.zone.clone().unwrap_or_else(|| DEFAULT_ZONE.to_owned()),
            });
        }
        if agents.is_empty() {
            return Err(LaunchError::Refused(
                "every host is spare: a cluster needs at least one agent".into(),
            ));
        }
        for agent in &agents {
            let on_host = agents.iter().filter(|other| other.target == agent.target).count();
            if on_host > MOST_PER_HOST {
                return Err(LaunchError::Refused(format!(
                    "{on_host} agents on host {}: at most {MOST_PER_HOST} are started on one; give more slots= instead",
                    agent.target
                )));
            }
        }
        // Those of spare hosts too: the table stays as it is when a host is kept back.
        let zone = |host: &Spanned<Host>| host.value.zone.clone();
        let mut zones: Vec<String> = agents.iter().map(|agent| agent.zone.clone()).collect();
        zones.extend(self.hosts.iter().filter_map(zone));
        zones.sort();
        zones.dedup();
        let costs = self.costs.as_deref().map_or(Ok(Vec::new()), |path| read_costs(path, &zones))?;
        Ok(RemotePlan {
            cluster: self.cluster.clone(),
            binary: find_agent(self.agent.as_deref())?,
            agents,
            spares,
            costs,
            memory: self.memory.unwrap_or(DEFAULT_MEMORY),
            insecure: self.insecure,
            detached: self.detached,
            ssh: self.ssh.clone(),
            remote_dir: self.remote_dir.clone(),
            fan_out: self.fan_out.max(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(hosts: &str) -> HostsOptions {
        HostsOptions {
            cluster: "t".into(),
            hosts: crate::hosts::parse(hosts).unwrap(),
            slots: Some(3),
            agent: Some(std::env::current_exe().unwrap()),
            ..HostsOptions::default()
        }
    }

    #[test]
    fn a_line_goes_before_the_command_and_spares_are_kept_back() {
        let plan = options("n1 slots=7 zone=x\nn2 spare\nn3 jump=none").plan().unwrap();
        let slots: Vec<(&str, Option<u32>, &str)> =
            plan.agents.iter().map(|a| (a.name.as_str(), a.slots, a.zone.as_str())).collect();
        assert_eq!(slots, [("n1", Some(7), "x"), ("n3", Some(3), "default")]);
        let spares: Vec<(&str, Option<u32>)> =
            plan.spares.iter().map(|a| (a.name.as_str(), a.slots)).collect();
        assert_eq!(spares, [("n2", Some(3))]);
        assert_eq!(plan.agents[1].target.jump, None);
    }

    #[test]
    fn the_cost_table_may_name_zones_of_spare_hosts() {
        let dir = tempfile::tempdir().unwrap();
        let table = |text: &str| {
            let path = dir.path().join("costs");
            std::fs::write(&path, text).unwrap();
            HostsOptions { costs: Some(path), ..options("n1 zone=x\nn2 zone=y spare") }.plan()
        };
        assert_eq!(table("x y 5\n").unwrap().costs.len(), 2);
        let refused = table("x z 5\n").unwrap_err().to_string();
        assert!(refused.contains("zone `z` (zones: x, y)"), "{refused}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(options("n1 spare").plan().unwrap_err().to_string().contains("every host is spare"));
        let many = (0..9).map(|n| format!("n1 name=a{n}\n")).collect::<Vec<_>>().concat();
        assert!(options(&many).plan().unwrap_err().to_string().contains("9 agents on host n1"));
    }
}
