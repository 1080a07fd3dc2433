//! What a launcher says to an agent on its standard input, and what the agent answers.

use serde::{Deserialize, Serialize};

/// The word that an agent prints before anything else of its answer, so that a launcher can skip
/// what a shell's start-up files print first. JSON of [`AgentReady`] follows on the same line.
pub const READY_MARKER: &str = "TUPLANE-AGENT-READY ";

/// The first line on an agent's standard input: JSON of this. Afterwards the open input is the
/// agent's lifeline: its end ends the agent, unless `detached`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentConfig {
    /// The cluster's name.
    pub cluster: String,
    /// The agent's name, unique in the cluster.
    pub name: String,
    /// `host:port` to listen on; port 0 lets the system choose.
    pub listen: String,
    /// The address that others use, without the port; the listening host unless set.
    pub announce: Option<String>,
    /// `host:port` of the coordinator; this agent coordinates if absent.
    pub coordinator: Option<String>,
    /// The cluster's certificate and key (PEM); no TLS if absent, which only loopback addresses allow.
    pub key: Option<KeyPem>,
    /// Default instances per vertex.
    pub slots: u32,
    /// Most rows in `work` at once; 0 for no limit.
    pub cores: u32,
    /// Zone for the cost table.
    pub zone: String,
    /// Cost of a row between zones, `(from, to, cost)`; missing pairs fall back to the default.
    pub costs: Vec<(String, String, u32)>,
    /// Bytes of queued rows.
    pub memory: u64,
    /// Lease of every agent, ms (read by the coordinator).
    pub lease_ms: u64,
    /// Folder for the coordinator's log.
    pub state: String,
    /// The agent's working folder: relative paths of `files = "each"` start here.
    pub folder: String,
    /// Log file; standard error if absent.
    pub log: Option<String>,
    /// The end of standard input does not end the agent.
    pub detached: bool,
}

/// The cluster's key: one certificate, held by every member, in PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPem {
    /// Certificate.
    pub certificate: String,
    /// Private key.
    pub private: String,
}

/// Never prints the key.
impl std::fmt::Debug for KeyPem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyPem(..)")
    }
}

/// The agent's answer on standard output, behind [`READY_MARKER`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentReady {
    /// It listens.
    Ready {
        /// `host:port` that others use.
        address: String,
        /// Its process.
        pid: u32,
        /// Start time of the process in clock ticks since boot (field 22 of its stat file), which
        /// with the pid names the process for ever.
        started: u64,
        /// Build version.
        version: String,
    },
    /// It could not start.
    Failed {
        /// One sentence.
        message: String,
    },
}
