//! What a launcher says to an agent on its standard input, and what the agent answers.

use serde::{Deserialize, Serialize};

/// The word that an agent prints before anything else of its answer, so that a launcher can skip
/// what a shell's start-up files print first. JSON of [`AgentReady`] follows on the same line.
pub const READY_MARKER: &str = "TUPLANE-AGENT-READY ";

/// The first line on an agent's standard input: JSON of this. Afterwards the open input is the
/// agent's lifeline: its end ends the agent. Only [`LaunchRequest::Detach`] cuts it for an agent
/// that is `detached`, and [`LaunchRequest::EndWithCluster`] for one that is not, so that a start which is given up half-way leaves nothing behind. With
/// `road`, lines of other [`LaunchRequest`]s may come before.
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
    /// What only an agent on a named host needs to know; absent on the launcher's own machine.
    #[serde(default)]
    pub road: Option<Road>,
}

/// What an agent is told that was started over ssh. Fields are only appended, with a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Road {
    /// The host as the hosts file names it, for messages.
    pub host: String,
    /// Where rows are to flow: an address, a network (CIDR), the name of an interface, or a host name
    /// that stands for one of the agent's own addresses. If absent the only candidate is taken. It
    /// takes the place of the host in `AgentConfig::listen`.
    pub data: Option<String>,
    /// What the launcher resolved `data` to, where it is a name that it knows.
    pub resolved: Vec<String>,
    /// Nobody else needs to reach this agent from another machine: a loopback address is as good.
    pub loopback: bool,
    /// File for [`pid_line`]; empty for none.
    pub pid_file: String,
    /// Only answer [`AgentReady::Probed`], then one [`AgentReady::Clock`] for each further line, until
    /// the input ends.
    pub probe: bool,
    /// The launcher writes a line, if only an empty one, several times in so many ms; after so long
    /// without any it counts as gone. 0 for never.
    #[serde(default)]
    pub lease_ms: u64,
}

/// A line on an agent's standard input behind its configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LaunchRequest {
    /// Dial these, and answer with [`AgentReady::Peers`].
    Peers(Vec<Peer>),
    /// Outlive this input; the answer is [`AgentReady::Detached`].
    Detach,
    /// To an agent that was added later and is not `detached`: outlive this input, and end when the
    /// coordinator was not reached for a lease.
    EndWithCluster,
}

/// An agent that another one will talk to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// `host:port`.
    pub address: String,
}

/// A peer that could not be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerFault {
    /// Its name.
    pub name: String,
    /// `host:port` that was dialled.
    pub address: String,
    /// What was seen, in a sentence with the address.
    pub cause: String,
}

/// What a pid file holds: the process by pid and start time, and the machine by name and boot, since
/// a folder may be shared by several machines and outlive a start of them.
pub fn pid_line(pid: u32, started: u64, node: &str, boot: &str) -> String {
    format!("{pid} {started} {node} {boot}\n")
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

/// Why an agent could not start, as far as its launcher acts on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartFault {
    /// Anything else.
    #[default]
    Other,
    /// Its port cannot be listened on.
    Port,
    /// Its coordinator cannot be joined.
    Join {
        /// Why.
        cause: String,
    },
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
        /// Fingerprint of the running binary (`tuplane_core::fingerprint`); empty where nobody asked.
        #[serde(default)]
        binary: String,
    },
    /// It could not start.
    Failed {
        /// One sentence.
        message: String,
        /// What a launcher knows a remedy for.
        #[serde(default)]
        kind: StartFault,
    },
    /// To [`LaunchRequest::Peers`]: those that could not be reached.
    Peers(Vec<PeerFault>),
    /// To [`LaunchRequest::Detach`].
    Detached,
    /// To `Road::probe`.
    Probed {
        /// Build version.
        version: String,
        /// Fingerprint of the running binary.
        binary: String,
        /// `host:port` that an agent would announce, the port chosen if it was 0 and bound for the
        /// moment of the probe.
        address: String,
        /// All addresses that could be announced, as `interface address`.
        candidates: Vec<String>,
    },
    /// The wall clock when a line was read, ns since 1970.
    Clock(u64),
}
