//! Hosts made ready: all logged in, compared with the agent's build, its binary copied.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::join_all;
use tuplane_core::fingerprint::fingerprint;

use super::cause::{self, Cause, HostFault};
use super::connection::{Connection, resolved};
use super::lanes::Lanes;
use super::{SshOptions, Target, script};
use crate::launch::{LaunchError, ProcessId};

/// How long a copy may take.
const COPY: Duration = Duration::from_mins(10);

/// How long a name may take to be resolved.
const RESOLVE: Duration = Duration::from_secs(2);

/// The longest path of a socket: the kernel takes 108 bytes, and ssh adds 17 while it makes one.
const LONGEST_SOCKET: usize = 88;

/// The agent's binary on this machine.
#[derive(Debug, Clone)]
pub(super) struct Binary {
    pub(super) path: PathBuf,
    pub(super) hash: String,
    pub(super) size: u64,
    /// `uname -m` of the machines it is for, as far as its header says.
    pub(super) machine: Option<&'static str>,
}

impl Binary {
    pub(super) fn read(path: &Path) -> Result<Self, LaunchError> {
        let bytes = std::fs::read(path).map_err(|cause| LaunchError::file("read", path, cause))?;
        Ok(Self {
            path: path.to_owned(),
            hash: fingerprint(&bytes),
            size: bytes.len() as u64,
            machine: machine_of(&bytes),
        })
    }

    /// Its name on a host: another build has another one.
    pub(super) fn file_name(&self) -> String {
        format!("agent-{}", self.hash)
    }
}

/// The machine of an ELF file, by its `e_machine`; `None` for other files.
fn machine_of(bytes: &[u8]) -> Option<&'static str> {
    let header = bytes.get(..20).filter(|header| header.starts_with(b"\x7fELF"))?;
    match u16::from_le_bytes([header[18], header[19]]) {
        0x3e => Some("x86_64"),
        0xb7 => Some("aarch64"),
        0xf3 => Some("riscv64"),
        _ => None,
    }
}

/// Where sockets of connections lie: a folder of the owner's alone, gone with this.
#[derive(Debug)]
pub(super) struct Sockets {
    path: PathBuf,
    next: AtomicU32,
}

impl Sockets {
    /// In `folder`, or below the system's folder for temporary files where that path is too long.
    pub(super) fn make(folder: &Path) -> Result<Self, LaunchError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let short = folder.as_os_str().len() + 6 <= LONGEST_SOCKET;
        let path = if short {
            folder.to_owned()
        } else {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            std::env::temp_dir().join(format!("tuplane-ssh-{}-{number}", std::process::id()))
        };
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|cause| LaunchError::file("make", &path, cause))?;
        Ok(Self { path, next: AtomicU32::new(0) })
    }

    /// In a folder of this command's own below the runtime folder.
    pub(super) fn of_command(root: &Path) -> Result<Self, LaunchError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        std::fs::DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(root)
            .map_err(|cause| LaunchError::file("make", root, cause))?;
        remove_stale(root);
        let started = ProcessId::current().map_or(0, |own| own.started);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self::make(&root.join(format!(".ssh-{}-{started}-{number}", std::process::id())))
    }

    pub(super) fn next(&self) -> PathBuf {
        self.path.join(self.next.fetch_add(1, Ordering::Relaxed).to_string())
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        // Best effort: what stays is removed by the next command.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Folders of commands that were killed.
fn remove_stale(root: &Path) {
    let Ok(entries) = std::fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let mut words = name.to_str().and_then(|name| name.strip_prefix(".ssh-")).unwrap_or("").split('-');
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
        if let (Some(pid), Some(started)) = (number(words.next()), number(words.next()))
            && !(ProcessId { pid: pid as u32, started }).is_alive()
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// One host to log in to.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) target: Target,
    /// Where its folder is, as the command says it.
    pub(super) dir: String,
}

/// Logs in everywhere, as the lanes allow. Answers come in the order of `wanted`.
pub(super) async fn connect(
    wanted: Vec<Wanted>,
    options: &SshOptions,
    lanes: &Lanes,
    binary: &str,
    sockets: &Sockets,
) -> Vec<Result<Connection, HostFault>> {
    let logins = wanted.iter().map(|host| {
        let login = Connection::open(&host.target, options, sockets.next(), &host.dir, binary);
        lanes.pass(&host.target, login)
    });
    join_all(logins).await
}

/// The host runs what the binary is for, and its folder there is nobody else's.
fn is_fit(connection: &Connection, binary: &Binary) -> Result<(), HostFault> {
    if let Some(path) = &connection.facts.not_alone {
        return Err(cause::not_alone(&connection.target().host, path));
    }
    let found = &connection.facts.machine;
    match binary.machine {
        Some(wanted) if wanted != found => Err(HostFault::new(
            connection.target().host.clone(),
            Cause::Machine,
            format!("it is a {found} machine, the agent's binary is for {wanted}"),
        )
        .remedy("build it there and name it with --agent PATH")),
        _ => Ok(()),
    }
}

/// Brings the binary to a host that can use it, unless it is there: under a name that only it has.
async fn copy(connection: &Connection, binary: &Binary, unique: &str) -> Result<bool, HostFault> {
    is_fit(connection, binary)?;
    if connection.facts.binary == Some(binary.size) {
        return Ok(false);
    }
    let host = &connection.target().host;
    let what = format!("copying the agent to {}", connection.facts.folder);
    let fault = |message: String| HostFault::new(host.clone(), Cause::Other, message);
    let input = File::open(&binary.path)
        .map_err(|cause| fault(format!("{} cannot be read ({cause})", binary.path.display())))?;
    let (name, size) = (binary.file_name(), binary.size.to_string());
    let aside = format!(".{name}-{unique}");
    let running = connection
        .script(&script::copy(), &[&connection.facts.folder, &name, &aside, &size])
        .stdin(Stdio::from(input))
        .output();
    match tokio::time::timeout(COPY, running).await {
        Ok(Ok(output)) if output.status.success() => Ok(true),
        Ok(Ok(output)) => {
            Err(connection.failed(&what, output.status, &String::from_utf8_lossy(&output.stderr)).await)
        }
        Ok(Err(cause)) => Err(fault(format!("{what}: ssh cannot be run ({cause})"))),
        Err(_) => Err(fault(format!("{what}: not done within {} s", COPY.as_secs()))),
    }
}

/// Copies to all, and says of each whether it was copied. One goes first where several need it: hosts that
/// share their home folders then find the file there.
pub(super) async fn copy_all(
    connections: &[Connection],
    binary: &Binary,
    unique: &str,
    lanes: &Lanes,
) -> Vec<Result<bool, HostFault>> {
    let needs = |connection: &Connection| connection.facts.binary != Some(binary.size);
    let first = connections.iter().position(|one| needs(one) && is_fit(one, binary).is_ok());
    let earlier = match first {
        Some(first) => Some(copy(&connections[first], binary, unique).await),
        None => None,
    };
    let rest = connections.iter().enumerate().filter(|(place, _)| Some(*place) != first);
    let rest = rest.map(async |(place, connection)| {
        let unique = format!("{unique}-{place}");
        lanes.pass(connection.target(), copy(connection, binary, &unique)).await
    });
    let mut copied = join_all(rest).await;
    if let (Some(first), Some(earlier)) = (first, earlier) {
        copied.insert(first, earlier);
    }
    copied
}

/// Targets without repeats, in order, and for each agent the place of its own.
pub(super) fn machines<'t>(targets: impl Iterator<Item = &'t Target>) -> (Vec<Target>, Vec<usize>) {
    let mut distinct: Vec<Target> = Vec::new();
    let mut places = Vec::new();
    for target in targets {
        let place = distinct.iter().position(|known| known == target).unwrap_or_else(|| {
            distinct.push(target.clone());
            distinct.len() - 1
        });
        places.push(place);
    }
    (distinct, places)
}

/// What is known of a host before anybody logs in.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    /// `user@host port N`, as ssh resolves it.
    pub(super) shown: String,
    /// Its address, if it is one of this machine's loopback addresses.
    pub(super) loopback: Option<IpAddr>,
}

/// Asks ssh where each target leads.
pub(super) async fn places(targets: &[Target], options: &SshOptions, lanes: &Lanes) -> Vec<Place> {
    let asked = targets.iter().map(async |target| {
        let found = lanes.pass(target, resolved(target, options)).await;
        let loopback = match found.host.as_str() {
            // What ssh reaches through another host is not this machine.
            _ if target.jump.is_some() || found.is_proxied => None,
            "localhost" => Some(IpAddr::from([127, 0, 0, 1])),
            host => host.parse().ok().filter(IpAddr::is_loopback),
        };
        let shown = if found.host.is_empty() {
            target.to_string()
        } else {
            format!("{}@{} port {}", found.user, found.host, found.port)
        };
        Place { shown, loopback }
    });
    join_all(asked).await
}

/// How an agent's data address is to be found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DataRule {
    pub(super) data: Option<String>,
    pub(super) resolved: Vec<String>,
    pub(super) loopback: bool,
}

/// Decides for each agent what it is told of its data address. Loopback addresses do where all hosts
/// are this machine's, and for a cluster on one host; names are resolved once, here, where they can be.
pub(super) async fn data_rules(data: &[Option<String>], places: &[usize], hosts: &[Place]) -> Vec<DataRule> {
    let all_here = hosts.iter().all(|host| host.loopback.is_some());
    let loopback = all_here || hosts.len() == 1;
    let mut known: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut rules = Vec::new();
    for (data, place) in data.iter().zip(places) {
        let own = hosts.get(*place).and_then(|host| host.loopback).filter(|_| all_here);
        let data = data.clone().or_else(|| own.map(|address| address.to_string()));
        let resolved = match data.as_deref() {
            Some(name) if name.parse::<IpAddr>().is_err() && !name.contains('/') => {
                if !known.contains_key(name) {
                    known.insert(name.to_owned(), resolve(name).await);
                }
                known.get(name).cloned().unwrap_or_default()
            }
            _ => Vec::new(),
        };
        rules.push(DataRule { data, resolved, loopback });
    }
    rules
}

/// Addresses of a name as this machine knows it. A loopback address is this machine's own answer about
/// itself, and says nothing of another.
async fn resolve(name: &str) -> Vec<String> {
    // What nobody knows is most likely an interface: not worth a long wait.
    let found = tokio::time::timeout(RESOLVE, tokio::net::lookup_host((name, 0))).await;
    let addresses = found.into_iter().flatten().flatten().map(|address| address.ip());
    let mut addresses: Vec<String> =
        addresses.filter(|address| !address.is_loopback()).map(|address| address.to_string()).collect();
    addresses.dedup();
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(loopback: Option<&str>) -> Place {
        Place { shown: "h".into(), loopback: loopback.map(|address| address.parse().unwrap()) }
    }

    #[tokio::test]
    async fn loopback_addresses_are_for_one_machine_only() {
        let here = [place(Some("127.0.0.2")), place(Some("127.0.0.3"))];
        let rules = data_rules(&[None, Some("127.0.0.9".into())], &[0, 1], &here).await;
        assert_eq!((rules[0].data.as_deref(), rules[0].loopback), (Some("127.0.0.2"), true));
        assert_eq!(rules[1].data.as_deref(), Some("127.0.0.9"));
        let mixed = [place(Some("127.0.0.2")), place(None)];
        let rules = data_rules(&[None, None], &[0, 1], &mixed).await;
        assert!(rules.iter().all(|rule| rule.data.is_none() && !rule.loopback), "{rules:?}");
        let one = [place(None)];
        let rules = data_rules(&[None, None], &[0, 0], &one).await;
        assert!(rules.iter().all(|rule| rule.data.is_none() && rule.loopback), "{rules:?}");
    }

    #[test]
    fn a_binary_says_what_it_is_for() {
        let own = Binary::read(&std::env::current_exe().unwrap()).unwrap();
        let uname = rustix::system::uname();
        assert_eq!(own.machine, uname.machine().to_str().ok());
        assert_eq!(machine_of(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn sockets_lie_in_a_folder_of_their_own_that_goes_with_them() {
        let dir = tempfile::tempdir().unwrap();
        let stale = dir.path().join(".ssh-4194304-1-0");
        std::fs::create_dir(&stale).unwrap();
        let sockets = Sockets::of_command(dir.path()).unwrap();
        assert!(!stale.exists() && sockets.next() != sockets.next());
        let path = sockets.path.clone();
        drop(sockets);
        assert!(!path.exists());
        let long = dir.path().join("x".repeat(100));
        let sockets = Sockets::make(&long).unwrap();
        assert!(!sockets.path.starts_with(dir.path()));
    }
}
