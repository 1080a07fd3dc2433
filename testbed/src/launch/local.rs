//! What a local cluster will be: names, zones, slots and the agent's binary, decided before any start.

use std::path::{Path, PathBuf};

use super::{CostEntry, LaunchError, parse_costs};

/// The agent's file name.
const AGENT: &str = "tuplane-agent";

/// The zone of agents that were given none.
pub(super) const DEFAULT_ZONE: &str = "default";

/// Bytes of queued rows an agent may hold unless told otherwise.
pub(super) const DEFAULT_MEMORY: u64 = 128 << 20;

/// What a person asked for.
#[derive(Debug, Clone, Default)]
pub struct LocalOptions {
    /// The cluster's name.
    pub cluster: String,
    /// How many agents.
    pub agents: u32,
    /// Default instances per vertex on each; available processors over agents unless set.
    pub slots: Option<u32>,
    /// Most rows in `work` at once on each; no limit unless set.
    pub cores: Option<u32>,
    /// Zones, dealt to the agents in turn.
    pub zones: Vec<String>,
    /// A file of `zone zone cost` lines.
    pub costs: Option<PathBuf>,
    /// Bytes of queued rows on each.
    pub memory: Option<u64>,
    /// The agent's binary.
    pub agent: Option<PathBuf>,
    /// No TLS (loopback only).
    pub insecure: bool,
    /// Agents outlive the command that starts them.
    pub detached: bool,
}

/// What will be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalPlan {
    /// The cluster's name.
    pub cluster: String,
    /// The agent's binary.
    pub binary: PathBuf,
    /// The agents; the first coordinates.
    pub agents: Vec<AgentPlan>,
    /// Most rows in `work` at once on each; 0 for no limit.
    pub cores: u32,
    /// Default instances per vertex on each.
    pub slots: u32,
    /// The cost table.
    pub costs: Vec<CostEntry>,
    /// Bytes of queued rows on each.
    pub memory: u64,
    /// No TLS.
    pub insecure: bool,
    /// Agents outlive the command that starts them.
    pub detached: bool,
}

/// One agent to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPlan {
    /// Its name.
    pub name: String,
    /// `host:port` to listen on; port 0 lets the system choose.
    pub listen: String,
    /// Its zone.
    pub zone: String,
}

impl LocalOptions {
    /// Decides all of it, or says everything that stands against it.
    pub fn plan(&self) -> Result<LocalPlan, LaunchError> {
        if self.agents == 0 {
            return Err(LaunchError::Refused("a cluster needs at least one agent".into()));
        }
        if self.zones.len() > self.agents as usize {
            return Err(LaunchError::Refused(format!(
                "{} zones for {} agents: give at most one zone an agent",
                self.zones.len(),
                self.agents
            )));
        }
        let zones = if self.zones.is_empty() { vec![DEFAULT_ZONE.to_owned()] } else { self.zones.clone() };
        let costs = self.costs.as_deref().map_or(Ok(Vec::new()), |path| read_costs(path, &zones))?;
        let agents = zones
            .iter()
            .cycle()
            .zip(0..self.agents)
            .map(|(zone, index)| AgentPlan {
                name: agent_name(index),
                listen: "127.0.0.1:0".into(),
                zone: zone.clone(),
            })
            .collect();
        Ok(LocalPlan {
            cluster: self.cluster.clone(),
            binary: find_agent(self.agent.as_deref())?,
            agents,
            cores: self.cores.unwrap_or(0),
            slots: self.slots.unwrap_or_else(|| (processors() / self.agents).max(1)),
            costs,
            memory: self.memory.unwrap_or(DEFAULT_MEMORY),
            insecure: self.insecure,
            detached: self.detached,
        })
    }
}

/// Processors that this process may use.
pub fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// The agent's binary: the given one, else the one beside this executable, else the one on PATH.
pub fn find_agent(given: Option<&Path>) -> Result<PathBuf, LaunchError> {
    if let Some(path) = given {
        return match std::fs::metadata(path) {
            Ok(meta) if meta.is_file() => {
                std::path::absolute(path).map_err(|cause| LaunchError::file("find", path, cause))
            }
            Ok(_) => Err(LaunchError::Refused(format!("--agent {} is not a file", path.display()))),
            Err(cause) => Err(LaunchError::file("find the agent", path, cause)),
        };
    }
    let beside = std::env::current_exe().ok().and_then(|exe| {
        // A test's or an example's binary lies one folder below the products.
        let folder = exe.parent()?;
        [Some(folder), folder.parent()]
            .into_iter()
            .flatten()
            .map(|f| f.join(AGENT))
            .find(|path| path.is_file())
    });
    let on_path = || {
        let paths = std::env::var_os("PATH")?;
        std::env::split_paths(&paths).map(|folder| folder.join(AGENT)).find(|path| path.is_file())
    };
    beside.or_else(on_path).ok_or_else(|| {
        LaunchError::Refused(format!(
            "{AGENT} is neither beside this program nor on PATH; give its place with --agent PATH"
        ))
    })
}

pub(super) fn read_costs(path: &Path, zones: &[String]) -> Result<Vec<CostEntry>, LaunchError> {
    let text = std::fs::read_to_string(path).map_err(|cause| LaunchError::file("read", path, cause))?;
    parse_costs(&text, zones).map_err(|faults| {
        LaunchError::Refused(format!("cost table {}: {}", path.display(), faults.join("; ")))
    })
}

/// a, b, .. z, a1, b1, ..
pub(crate) fn agent_name(index: u32) -> String {
    let letter = char::from(b'a' + (index % 26) as u8);
    match index / 26 {
        0 => letter.to_string(),
        round => format!("{letter}{round}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(agents: u32) -> LocalOptions {
        LocalOptions {
            cluster: "t".into(),
            agents,
            agent: Some(std::env::current_exe().unwrap()),
            ..LocalOptions::default()
        }
    }

    #[test]
    fn agents_are_named_in_order_and_zones_dealt_in_turn() {
        let plan = LocalOptions { zones: vec!["x".into(), "y".into()], ..options(28) }.plan().unwrap();
        let named: Vec<(&str, &str)> = plan.agents.iter().map(|a| (&*a.name, &*a.zone)).collect();
        assert_eq!(named[..3], [("a", "x"), ("b", "y"), ("c", "x")]);
        assert_eq!(named[25..], [("z", "y"), ("a1", "x"), ("b1", "y")]);
    }

    #[test]
    fn slots_are_the_processors_over_the_agents_and_at_least_one() {
        assert_eq!(options(1000).plan().unwrap().slots, 1);
        assert_eq!(options(1).plan().unwrap().slots, processors());
        assert_eq!(LocalOptions { slots: Some(7), ..options(1) }.plan().unwrap().slots, 7);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(options(0).plan().unwrap_err().to_string().contains("at least one agent"));
        let zones = LocalOptions { zones: vec!["x".into(), "y".into()], ..options(1) };
        assert!(zones.plan().unwrap_err().to_string().contains("2 zones for 1 agents"));
        let agent = LocalOptions { agent: Some("no/such/agent".into()), ..options(1) };
        assert!(agent.plan().unwrap_err().to_string().contains("no/such/agent"));
    }
}
