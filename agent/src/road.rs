//! What an agent does for a launcher that came over ssh: its data address, its pid file, its peers.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use futures::future::join_all;
use sysinfo::Networks;
use tokio::sync::mpsc;
use tuplane_core::fingerprint::Fingerprint;
use tuplane_wire::launch::{AgentReady, KeyPem, LaunchRequest, Peer, PeerFault, Road, StartFault, pid_line};
use tuplane_wire::net::{self, Kind, Security};

use crate::telemetry;

/// How long a peer may take to answer.
const DIAL: Duration = Duration::from_secs(4);

/// Interfaces of containers and virtual machines on this host: nobody else is on them.
const INNER: [&str; 2] = ["docker", "virbr"];

/// One address of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// Bits of the network that it lies in.
    pub prefix: u8,
    /// It can carry packets.
    pub up: bool,
}

impl Interface {
    /// It may carry rows without anybody having said so.
    fn is_candidate(&self) -> bool {
        self.up
            && !self.address.is_loopback()
            && !self.address.is_unspecified()
            && !is_link_local(self.address)
            && !INNER.iter().any(|inner| self.name.starts_with(inner))
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// All addresses of this machine, in a fixed order.
pub fn interfaces() -> Vec<Interface> {
    let Ok(networks) = Networks::new_with_refreshed_list() else { return Vec::new() };
    let mut found: Vec<Interface> = networks
        .iter()
        .flat_map(|(name, data)| {
            let name = name.to_string_lossy().into_owned();
            let up = is_up(&name);
            data.ip_networks().iter().map(move |network| Interface {
                name: name.clone(),
                address: network.addr,
                prefix: network.prefix,
                up,
            })
        })
        .collect();
    found.sort_by(|a, b| (&a.name, a.address).cmp(&(&b.name, b.address)));
    found.dedup();
    found
}

/// The kernel's word; interfaces that have no such state (loopback, tunnels) say `unknown`.
fn is_up(name: &str) -> bool {
    let state = std::fs::read_to_string(format!("/sys/class/net/{name}/operstate"));
    state.map_or(true, |state| matches!(state.trim(), "up" | "unknown" | "dormant"))
}

/// The address that an agent announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data {
    /// The address.
    pub address: IpAddr,
    /// The interface that has it.
    pub interface: String,
}

/// Decides where rows flow, or says in a sentence why that cannot be decided.
pub fn data_address(road: &Road, own: &[Interface]) -> Result<Data, String> {
    let chosen = match road.data.as_deref() {
        None if road.loopback => {
            Interface { name: "lo".to_owned(), address: [127, 0, 0, 1].into(), prefix: 8, up: true }
        }
        None => only_candidate(own)?.clone(),
        Some(data) => asked(road, data, own)?,
    };
    if chosen.address.is_loopback() && !road.loopback {
        let named = road.data.as_deref().unwrap_or_default();
        return Err(format!(
            "data={named} is {} there, a loopback address that no other host reaches; give an address of a \
             network that all hosts share{}",
            chosen.address,
            list(own)
        ));
    }
    Ok(Data { address: chosen.address, interface: chosen.name })
}

fn only_candidate(own: &[Interface]) -> Result<&Interface, String> {
    let candidates: Vec<&Interface> = own.iter().filter(|i| i.is_candidate()).collect();
    match candidates[..] {
        [only] => Ok(only),
        [] => Err("the host has no address that other hosts could reach; say data=..".to_owned()),
        _ => Err(format!(
            "the host has several addresses, and where rows are to flow is not guessed: say data=.. with one \
             of {}",
            candidates.iter().map(|i| format!("{} ({})", i.address, i.name)).collect::<Vec<_>>().join(", ")
        )),
    }
}

/// By address, network, interface, or name, in this order.
fn asked(road: &Road, data: &str, own: &[Interface]) -> Result<Interface, String> {
    if let Ok(address) = data.parse::<IpAddr>() {
        // 127.0.0.0/8 is this machine's as a whole.
        if address.is_loopback() && address.is_ipv4() {
            return Ok(Interface { name: "lo".to_owned(), address, prefix: 8, up: true });
        }
        return own
            .iter()
            .find(|i| i.address == address)
            .cloned()
            .ok_or_else(|| format!("the host has no address {data}{}", list(own)));
    }
    if let Some((network, prefix)) = parse_network(data) {
        let inside: Vec<&Interface> =
            own.iter().filter(|i| i.up && same_network(i.address, network, prefix)).collect();
        return one_of(inside, &format!("in {data}"), own);
    }
    if own.iter().any(|i| i.name == data) {
        let on: Vec<&Interface> =
            own.iter().filter(|i| i.name == data && i.up && !is_link_local(i.address)).collect();
        return one_of(plain(on), &format!("on {data}"), own);
    }
    let (addresses, by) = resolve(road, data)?;
    let mut ours: Vec<&Interface> = own.iter().filter(|i| addresses.contains(&i.address)).collect();
    ours.sort_by_key(|i| i.address);
    ours.dedup_by_key(|i| i.address);
    let loopback = addresses.iter().find(|address| address.is_loopback());
    match (ours.is_empty(), loopback) {
        (false, _) => one_of(plain(ours), &format!("that {data} stands for ({by})"), own),
        (true, Some(address)) => {
            Ok(Interface { name: "lo".to_owned(), address: *address, prefix: 8, up: true })
        }
        (true, None) => Err(format!(
            "data={data} stands for {} ({by}), which is no address of the host{}",
            join(&addresses),
            list(own)
        )),
    }
}

/// Those of IPv4 where there are any: a name with one of them means that one, and IPv6 can be said in full.
fn plain(found: Vec<&Interface>) -> Vec<&Interface> {
    let v4: Vec<&Interface> = found.iter().copied().filter(|i| i.address.is_ipv4()).collect();
    if v4.is_empty() { found } else { v4 }
}

fn one_of(found: Vec<&Interface>, what: &str, own: &[Interface]) -> Result<Interface, String> {
    match found[..] {
        [only] => Ok(only.clone()),
        [] => Err(format!("the host has no address {what} that is up{}", list(own))),
        _ => Err(format!(
            "the host has several addresses {what}: {}; say data=.. with one of them",
            found.iter().map(|i| i.address.to_string()).collect::<Vec<_>>().join(", ")
        )),
    }
}

/// What a name stands for, and who says so.
fn resolve(road: &Road, name: &str) -> Result<(Vec<IpAddr>, &'static str), String> {
    let told: Vec<IpAddr> = road.resolved.iter().filter_map(|address| address.parse().ok()).collect();
    if !told.is_empty() {
        return Ok((told, "as the launcher resolves it"));
    }
    let found = (name, 0u16).to_socket_addrs().map_err(|cause| {
        format!(
            "data={name} is neither an address, a network nor an interface of the host, and no name there \
             ({cause})"
        )
    })?;
    Ok((found.map(|address| address.ip()).collect(), "as that host resolves it"))
}

fn parse_network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let (address, prefix) = (address.parse::<IpAddr>().ok()?, prefix.parse::<u8>().ok()?);
    (prefix <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, prefix))
}

fn same_network(a: IpAddr, b: IpAddr, prefix: u8) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, 4),
        IpAddr::V6(v6) => (u128::from(v6), 6),
    };
    let ((a, family), (b, other)) = (bits(a), bits(b));
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    family == other && a & mask == b & mask
}

/// `; it has 10.0.0.1 (eth0), ..`.
fn list(own: &[Interface]) -> String {
    let candidates: Vec<String> =
        own.iter().filter(|i| i.is_candidate()).map(|i| format!("{} ({})", i.address, i.name)).collect();
    if candidates.is_empty() { String::new() } else { format!("; it has {}", candidates.join(", ")) }
}

fn join(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The chosen address in the place of the host in `host:port`.
pub fn listen_on(address: IpAddr, listen: &str) -> String {
    let port = listen.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok()).unwrap_or(0);
    SocketAddr::new(address, port).to_string()
}

/// A session of its own, so that no hang-up of the one that ssh made reaches the agent. One that
/// leads its session already, as ssh starts it, stays as it is.
pub fn leave_session() {
    let _ = rustix::process::setsid();
}

/// Records this process for `tuplane clean`.
pub fn write_pid(road: &Road) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    if road.pid_file.is_empty() {
        return Ok(());
    }
    let started = telemetry::process_start().unwrap_or(0);
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let line = pid_line(std::process::id(), started, &telemetry::host_name(), boot.trim());
    let path = Path::new(&road.pid_file);
    let aside = path.with_extension("new");
    // Aside, then renamed: on a full disk nothing is left that could be taken for a pid file.
    let write = || {
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
        std::io::Write::write_all(&mut file, line.as_bytes())?;
        std::fs::rename(&aside, path)
    };
    write().with_context(|| format!("cannot write the pid file {}", road.pid_file))
}

/// The address by which ssh came in, as sshd says it.
fn ssh_address() -> Option<String> {
    std::env::var("SSH_CONNECTION").ok()?.split_whitespace().nth(2).map(str::to_owned)
}

/// The answer that an agent on a named host gives, logged with its addresses.
pub fn confirm(road: &Road, answer: &AgentReady) -> AgentReady {
    let mut answer = answer.clone();
    if let AgentReady::Ready { address, binary, .. } = &mut answer {
        let ssh = ssh_address().unwrap_or_else(|| "unknown".to_owned());
        tracing::info!("listening on {address}, ssh address {ssh}");
        tracing::info!(host = road.host, "started over ssh");
        *binary = own_fingerprint();
    }
    answer
}

/// Of the running binary, read in pieces: an agent's memory is measured.
fn own_fingerprint() -> String {
    let read = || {
        let mut file = std::fs::File::open("/proc/self/exe")?;
        let mut whole = Fingerprint::default();
        let mut piece = [0; 8 << 10];
        loop {
            match std::io::Read::read(&mut file, &mut piece)? {
                0 => return Ok::<_, std::io::Error>(whole.name()),
                read => whole.update(&piece[..read]),
            }
        }
    };
    read().unwrap_or_default()
}

/// Where an agent would listen: the port is bound for a moment, so that one in use is found.
pub fn probe(road: &Road, listen: &str, version: &str) -> Result<AgentReady, String> {
    let own = interfaces();
    let data = data_address(road, &own)?;
    let listen = listen_on(data.address, listen);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|cause| format!("cannot start a runtime: {cause}"))?;
    let address = runtime.block_on(net::bindable(&listen)).map_err(|cause| cause.to_string())?.to_string();
    let candidates =
        own.iter().filter(|i| i.is_candidate()).map(|i| format!("{} {}", i.name, i.address)).collect();
    Ok(AgentReady::Probed { version: version.to_owned(), binary: own_fingerprint(), address, candidates })
}

/// Answers a launcher's orders until its end of the line closes.
pub async fn serve(
    key: Option<KeyPem>,
    mut orders: mpsc::UnboundedReceiver<Option<LaunchRequest>>,
    answer: impl Fn(&AgentReady),
) {
    while let Some(order) = orders.recv().await {
        match order {
            Some(LaunchRequest::Peers(peers)) => {
                let failed = dial_all(key.as_ref(), &peers).await;
                for fault in &failed {
                    tracing::warn!(peer = fault.name, address = fault.address, fault.cause, "unreachable");
                }
                answer(&AgentReady::Peers(failed));
            }
            Some(LaunchRequest::Detach) => {
                tracing::info!("detached: this agent goes on when its launcher has ended");
                answer(&AgentReady::Detached);
            }
            Some(LaunchRequest::EndWithCluster) => {
                tracing::info!(
                    "this agent goes on when its launcher has ended, for as long as there is a coordinator"
                );
                answer(&AgentReady::Detached);
            }
            None => answer(&AgentReady::Failed {
                message: "an order of the launcher is of another version: use one build everywhere".into(),
                kind: StartFault::Other,
            }),
        }
    }
}

/// Those of the peers that cannot be reached.
async fn dial_all(key: Option<&KeyPem>, peers: &[Peer]) -> Vec<PeerFault> {
    let security = Security::from_pem(key);
    let dials = peers.iter().map(async |peer| {
        let cause = match &security {
            Ok(security) => net::dial(&peer.address, Kind::Control, security, DIAL).await.err()?.to_string(),
            Err(cause) => cause.to_string(),
        };
        Some(PeerFault { name: peer.name.clone(), address: peer.address.clone(), cause })
    });
    join_all(dials).await.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
