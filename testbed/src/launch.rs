//! Starting and ending agents: the cluster's folder, local processes, hosts over ssh, how they are ended.

mod costs;
mod folder;
mod local;
mod members;
mod process;
pub mod ssh;
mod start;
mod stop;

pub use costs::{CostEntry, parse_costs};
pub use folder::{
    AgentEntry, ClusterFile, ClusterFolder, Found, HostEntry, RoadEntry, SCHEMA, check_name, find_clusters,
    launcher_of, runtime_root,
};
pub(crate) use local::agent_name;
pub use local::{AgentPlan, LocalOptions, LocalPlan, find_agent, processors};
pub use members::Members;
pub use process::{Ended, ProcessId};
pub use start::{LocalCluster, start};
pub use stop::{Stopped, end_processes, wait_until_gone};

use std::path::PathBuf;

/// Why agents could not be started or ended.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// What the person asked for cannot be; nothing was started.
    #[error("{0}")]
    Refused(String),
    /// A file or folder of the cluster.
    #[error("cannot {action} {path}: {cause}", path = path.display())]
    File {
        /// What was tried, as a verb: `read`, `write`.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// An agent did not come up; those that had are ended again.
    #[error("agent {name} ({address}) did not start: {cause}")]
    Agent {
        /// The agent's name.
        name: String,
        /// `host:port` it was to listen on.
        address: String,
        /// Why.
        cause: String,
    },
    /// Hosts on which something failed; what had been started is ended again.
    #[error("{}", lines(faults.iter().chain(left)))]
    Hosts {
        /// One each, in the file's order.
        faults: Vec<ssh::HostFault>,
        /// Hosts on which something may be left of what had been started.
        left: Vec<ssh::HostFault>,
    },
    /// The command was interrupted; what had been started is ended again.
    #[error("interrupted{}{}", if left.is_empty() { "" } else { "\n" }, lines(left))]
    Interrupted {
        /// Hosts on which something may be left of what had been started.
        left: Vec<ssh::HostFault>,
    },
}

fn lines<'f>(faults: impl IntoIterator<Item = &'f ssh::HostFault>) -> String {
    faults.into_iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

impl LaunchError {
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>, cause: std::io::Error) -> Self {
        Self::File { action, path: path.into(), cause }
    }
}
