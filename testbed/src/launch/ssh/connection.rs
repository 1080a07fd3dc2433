//! One connection to a host: a master `ssh` that is this process's child, and sessions over it.
//!
//! The master's own session waits for the end of its input, which only this process holds: when this
//! process ends, however it ends, the connection goes, and every session with it.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{ChildStdin, Command};

use super::cause::{self, Cause, HostFault};
use super::group::Group;
use super::{SshOptions, Target, quote, script};
use crate::launch::start::{ANSWER_LIMIT, next_line};

/// What a host takes longer than ssh itself: start-up files of its shell, and the probe.
pub(super) const SHELL: Duration = Duration::from_secs(5);

/// How often a login that sshd dropped is tried.
const TRIES: u32 = 10;

/// First and longest wait between two of them.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));

/// What a host says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// `uname -m`.
    pub(super) machine: String,
    /// `uname -r`.
    pub(super) kernel: String,
    /// Processors that are on line; 0 if unknown.
    pub(super) processors: u32,
    /// Bytes; 0 if unknown.
    pub(super) memory: u64,
    /// Folder for everything, absolute.
    pub(super) folder: String,
    /// Bytes of the agent's binary of the name that was asked for, if it is there.
    pub(super) binary: Option<u64>,
    /// That folder or file, where others could have put something there.
    pub(super) not_alone: Option<String>,
}

impl Facts {
    fn read(said: &HashMap<String, String>) -> Self {
        let text = |key: &str| said.get(key).cloned().unwrap_or_default();
        Self {
            machine: text("machine"),
            kernel: text("kernel"),
            processors: text("processors").parse().unwrap_or(0),
            memory: text("memory").parse::<u64>().unwrap_or(0) * 1024,
            folder: text("folder"),
            binary: text("binary").trim().parse().ok(),
            not_alone: said.get("alone").cloned(),
        }
    }
}

/// A connection that stands. Dropping it ends it, unless it is another process's.
#[derive(Debug)]
pub struct Connection {
    target: Target,
    socket: PathBuf,
    master: Option<Master>,
    pub(super) facts: Facts,
    /// What start-up files printed before the host's first word.
    pub(super) noise: Vec<String>,
}

#[derive(Debug)]
struct Master {
    /// Behind a lock, for it is asked how it ended while sessions go on.
    group: tokio::sync::Mutex<Group>,
    _lifeline: ChildStdin,
    /// What it said on standard error.
    said: Arc<Mutex<String>>,
}

/// The master of a session that failed is looked at for so long: it may be about to end.
const ENDING: Duration = Duration::from_millis(500);

impl Connection {
    /// Logs in, and asks what the host is. A login that sshd drops because too many are under way is
    /// tried again; nothing else is.
    pub(super) async fn open(
        target: &Target,
        options: &SshOptions,
        socket: PathBuf,
        dir: &str,
        binary: &str,
    ) -> Result<Self, HostFault> {
        let mut wait = BACKOFF.0;
        for attempt in 1.. {
            match Self::open_once(target, options, &socket, dir, binary).await {
                Err(fault) if fault.cause == Cause::Busy && attempt < TRIES => {
                    // Between half and all of it, so that logins do not come back together.
                    let spread = 0.5 + tuplane_wire::client::random() / 2.0;
                    tokio::time::sleep(wait.mul_f64(spread)).await;
                    wait = (wait * 2).min(BACKOFF.1);
                }
                Err(fault) if fault.cause == Cause::AuthRefused => {
                    return Err(why_refused(target, options, fault).await);
                }
                other => return other,
            }
        }
        Err(HostFault::new(target.host.clone(), Cause::Busy, "no login came through"))
    }

    async fn open_once(
        target: &Target,
        options: &SshOptions,
        socket: &Path,
        dir: &str,
        binary: &str,
    ) -> Result<Self, HostFault> {
        let fault = |cause, message: String| HostFault::new(target.host.clone(), cause, message);
        let mut command = ssh();
        command
            .args(target.arguments(options))
            .args([
                "-o",
                "ControlMaster=yes",
                "-o",
                "ControlPersist=no",
                "-o",
                "ClearAllForwardings=yes",
                "-S",
            ])
            .arg(socket_argument(socket))
            .arg(&target.host)
            .arg(quote::command(&script::probe(), &[dir, binary]))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut group = Group::spawn(&mut command).map_err(|cause| {
            fault(Cause::NoSsh, format!("the command ssh cannot be run ({cause})"))
                .remedy("install the OpenSSH client on this machine")
        })?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (group.child.stdin.take(), group.child.stdout.take(), group.child.stderr.take())
        else {
            return Err(fault(Cause::Other, "the input and output of ssh are not there".into()));
        };
        let said = Arc::new(Mutex::new(String::new()));
        let reading = tokio::spawn(keep(stderr, Arc::clone(&said)));
        let errors = || said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut noise = Vec::new();
        let mut words = HashMap::new();
        let answer = async {
            let mut lines = BufReader::new(stdout.take(ANSWER_LIMIT)).split(b'\n');
            while let Ok(Some(line)) = next_line(&mut lines).await {
                match line.strip_prefix(script::MARK).and_then(|rest| rest.split_once(' ')) {
                    Some(("end", _)) => return true,
                    Some((key, value)) => {
                        words.insert(key.to_owned(), value.to_owned());
                    }
                    None if line.trim().is_empty() => {}
                    None => noise.push(line),
                }
            }
            false
        };
        let patience = options.connect() + SHELL;
        match tokio::time::timeout(patience, answer).await {
            Ok(true) => Ok(Self {
                target: target.clone(),
                socket: socket.to_owned(),
                master: Some(Master {
                    group: tokio::sync::Mutex::new(group),
                    _lifeline: stdin,
                    said: Arc::clone(&said),
                }),
                facts: Facts::read(&words),
                noise,
            }),
            Ok(false) => {
                drop(stdin);
                let status = tokio::time::timeout(Duration::from_secs(2), group.wait()).await;
                // Its last words may still be in the pipe.
                let _ = tokio::time::timeout(Duration::from_secs(1), reading).await;
                let status = status.ok().and_then(Result::ok);
                if let Some(status) = status.filter(|status| status.signal().is_some()) {
                    let killed = format!("logging in: its ssh on this machine has ended ({status})");
                    return Err(fault(Cause::Lost, killed));
                }
                let code = status.and_then(|status| status.code());
                if code == Some(255) || code.is_none() {
                    let fault = cause::connecting(target, options, &errors());
                    if fault.cause == Cause::UnknownKey {
                        let resolved = resolved(target, options).await;
                        return Err(cause::unknown_key(target, options, &errors(), &resolved));
                    }
                    return Err(fault);
                }
                let mut all = noise.join("\n");
                all.push('\n');
                all.push_str(&errors());
                Err(cause::on_host(&target.host, "its shell did not run our script", code, &all))
            }
            // ssh itself gives up a host that does not answer it: what takes longer is the login or the shell.
            Err(_) => Err(cause::silent(target, options, patience)),
        }
    }

    /// The connection that another process keeps at this socket, if it stands.
    pub(super) async fn attach(target: &Target, socket: &Path) -> Option<Self> {
        let stands = socket.exists() && answers(target, socket).await;
        stands.then(|| Self {
            target: target.clone(),
            socket: socket.to_owned(),
            master: None,
            facts: Facts::default(),
            noise: Vec::new(),
        })
    }

    /// Sessions can be opened over it, as far as can be seen from here.
    pub(super) async fn stands(&self) -> bool {
        if let Some(master) = &self.master
            && !matches!(master.group.lock().await.has_ended(), Ok(None))
        {
            return false;
        }
        answers(&self.target, &self.socket).await
    }

    /// Where it goes.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Where its socket is.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// A session over it; it never makes a connection of its own.
    fn session(&self) -> Command {
        let mut command = ssh();
        command
            .args([
                "-T",
                "-F",
                "none",
                "-o",
                "BatchMode=yes",
                "-o",
                "LogLevel=ERROR",
                "-o",
                "ControlMaster=no",
            ])
            .args(["-o", "ProxyCommand=/bin/false", "-S"])
            .arg(socket_argument(&self.socket));
        command
    }

    /// A script on the host, ready to be started.
    pub(super) fn script(&self, script: &str, arguments: &[&str]) -> Command {
        let mut command = self.session();
        command.arg(&self.target.host).arg(quote::command(script, arguments));
        command
    }

    /// A script on the host, run to its end.
    pub(super) async fn run(
        &self,
        what: &str,
        script: &str,
        arguments: &[&str],
        patience: Duration,
    ) -> Result<Output, HostFault> {
        let running = self.script(script, arguments).stdin(Stdio::null()).output();
        let fault = |message: String| HostFault::new(self.target.host.clone(), Cause::Other, message);
        match tokio::time::timeout(patience, running).await {
            Ok(Ok(output)) if output.status.success() => Ok(output),
            Ok(Ok(output)) => {
                Err(self.failed(what, output.status, &String::from_utf8_lossy(&output.stderr)).await)
            }
            Ok(Err(cause)) => Err(fault(format!("{what}: ssh cannot be run ({cause})"))),
            Err(_) => Err(fault(format!("{what}: no answer within {} s", patience.as_secs()))),
        }
    }

    /// Why a session failed: what it was doing, how its `ssh` ended, and what that said.
    pub(super) async fn failed(&self, what: &str, status: ExitStatus, said: &str) -> HostFault {
        let fault = |message: String| HostFault::new(self.target.host.clone(), Cause::Lost, message);
        // Only what ssh itself says of its end, and a signal, may be the connection's.
        if matches!(status.code(), None | Some(255))
            && let Some(how) = self.broken().await
        {
            return fault(format!("{what}: the connection to it broke off ({how})"));
        }
        if status.signal().is_some() {
            return fault(format!("{what}: its ssh on this machine has ended ({status})"));
        }
        cause::on_host(&self.target.host, what, status.code(), said)
    }

    /// How the connection has ended, if it has.
    pub(super) async fn broken(&self) -> Option<String> {
        let master = self.master.as_ref()?;
        let mut group = master.group.lock().await;
        let status = tokio::time::timeout(ENDING, group.wait()).await.ok()?.ok()?;
        let said = master.said.lock().unwrap_or_else(PoisonError::into_inner);
        let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
        let said = last.map_or_else(String::new, |last| format!(", it said: {last}"));
        Some(format!("its ssh on this machine has ended, {status}{said}"))
    }

    /// Bytes to `host:port`, dialled by the host.
    pub(super) fn forward(&self, address: &str) -> Command {
        let mut command = self.session();
        command.arg("-W").arg(address).arg(&self.target.host);
        command
    }
}

/// The master at this socket answers.
async fn answers(target: &Target, socket: &Path) -> bool {
    let mut command = ssh();
    command.args(["-F", "none", "-O", "check", "-S"]).arg(socket_argument(socket)).arg(&target.host);
    let checked = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let answered = tokio::time::timeout(Duration::from_secs(2), checked).await;
    answered.is_ok_and(|status| status.is_ok_and(|status| status.success()))
}

/// `ssh` in a process group of its own, so that Ctrl-C on the terminal reaches its owner alone, and so
/// that it cannot read from that terminal; in English, for its texts are read.
pub(super) fn ssh() -> Command {
    let mut command = Command::new("ssh");
    command
        .env("LC_ALL", "C")
        .env("SSH_ASKPASS_REQUIRE", "never")
        .env_remove("SSH_ASKPASS")
        .process_group(0)
        .kill_on_drop(true);
    command
}

/// ssh expands `%` in the path of a socket.
fn socket_argument(socket: &Path) -> String {
    socket.display().to_string().replace('%', "%%")
}

/// Keeps what comes, as far as it may be of use, and reads on so that nobody waits.
async fn keep(mut from: impl tokio::io::AsyncRead + Unpin, into: Arc<Mutex<String>>) {
    const MOST: usize = 64 << 10;
    let mut bytes = [0; 4096];
    while let Ok(read) = from.read(&mut bytes).await {
        if read == 0 {
            return;
        }
        let mut text = into.lock().unwrap_or_else(PoisonError::into_inner);
        if text.len() < MOST {
            text.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    }
}

/// A refused login says nothing about keys that were not offered. Those whose file is not there are not,
/// nor those with a passphrase, where no agent holds them.
async fn why_refused(target: &Target, options: &SshOptions, fault: HostFault) -> HostFault {
    let identities = resolved(target, options).await.identities;
    let missing: Vec<String> = identities.iter().filter_map(|file| missing(file)).collect();
    if !missing.is_empty() {
        return cause::missing_key(fault, &missing);
    }
    let mut locked = Vec::new();
    for file in identities {
        let Some(file) = home(&file).filter(|file| file.is_file()) else { continue };
        let mut command = Command::new("ssh-keygen");
        command.args(["-y", "-P", "", "-f"]).arg(&file).env("LC_ALL", "C").stdin(Stdio::null());
        let Ok(output) = command.kill_on_drop(true).output().await else { continue };
        if !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("passphrase") {
            locked.push(file.display().to_string());
        }
    }
    if locked.is_empty() {
        return fault;
    }
    let message = format!(
        "the login was refused, and a key with a passphrase could not be used ({})",
        locked.join(", ")
    );
    HostFault::new(fault.host, Cause::Passphrase, message)
        .remedy(format!("unlock it first: eval $(ssh-agent); ssh-add {}", locked[0]))
}

/// The path of a key that somebody named, if it is not there. ssh lists its own defaults where nobody
/// named one, and paths with `%` or `$` are ssh's to expand.
fn missing(file: &str) -> Option<String> {
    if is_default_key(file) || file.eq_ignore_ascii_case("none") || file.contains(['%', '$']) {
        return None;
    }
    // A key held by an agent may be named by its public half alone.
    let path = home(file)?;
    let public = PathBuf::from(format!("{}.pub", path.display()));
    (!path.exists() && !public.exists()).then(|| path.display().to_string())
}

/// `~/.ssh/id_ed25519` and the like, as `ssh -G` has them.
fn is_default_key(file: &str) -> bool {
    let kinds = ["rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "xmss", "dsa"];
    file.strip_prefix("~/.ssh/id_").is_some_and(|kind| kinds.contains(&kind))
}

fn home(file: &str) -> Option<PathBuf> {
    match file.strip_prefix("~/") {
        Some(rest) => std::env::var_os("HOME").map(|home| Path::new(&home).join(rest)),
        None => Some(PathBuf::from(file)),
    }
}

/// What ssh makes of a target by the user's configuration.
#[derive(Debug, Clone, Default)]
pub(super) struct Resolved {
    pub(super) user: String,
    pub(super) host: String,
    pub(super) port: String,
    /// The hosts that it goes through, as `ProxyJump` names them.
    pub(super) jump: Option<String>,
    /// It goes through another host or a command.
    pub(super) is_proxied: bool,
    /// The first file of known hosts.
    pub(super) known_hosts: Option<String>,
    identities: Vec<String>,
}

/// Asks `ssh -G`. Empty where that fails: the login will say why.
pub(super) async fn resolved(target: &Target, options: &SshOptions) -> Resolved {
    let mut command = ssh();
    command.arg("-G").args(target.arguments(options)).arg(&target.host);
    let Ok(Ok(said)) = tokio::time::timeout(SHELL, Group::output(&mut command)).await else {
        return Resolved::default();
    };
    Resolved::read(&String::from_utf8_lossy(&said))
}

impl Resolved {
    pub(super) fn read(said: &str) -> Self {
        let mut found = Self::default();
        for line in said.lines() {
            match line.split_once(' ') {
                Some(("user", value)) => value.clone_into(&mut found.user),
                Some(("hostname", value)) => value.clone_into(&mut found.host),
                Some(("port", value)) => value.clone_into(&mut found.port),
                Some(("identityfile", value)) => found.identities.push(value.to_owned()),
                Some(("userknownhostsfile", value)) => {
                    found.known_hosts = value.split_whitespace().next().map(str::to_owned);
                }
                Some(("proxyjump", value)) if value != "none" => {
                    found.jump = Some(value.to_owned());
                    found.is_proxied = true;
                }
                Some(("proxycommand", value)) if value != "none" => found.is_proxied = true,
                _ => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_goes_through_is_read_from_its_own_words() {
        let read = |more: &str| Resolved::read(&format!("user u\nhostname 127.0.0.1\nport 22\n{more}\n"));
        let plain = read("userknownhostsfile /h/kh /h/kh2");
        assert_eq!((plain.host.as_str(), plain.is_proxied, plain.jump), ("127.0.0.1", false, None));
        assert_eq!(plain.known_hosts.as_deref(), Some("/h/kh"));
        assert!(read("proxycommand nc gate 22").is_proxied);
        assert!(!read("proxycommand none").is_proxied && !read("proxyjump none").is_proxied);
        let jump = read("proxyjump me@gate:2022");
        assert_eq!((jump.jump.as_deref(), jump.is_proxied), (Some("me@gate:2022"), true));
    }

    #[test]
    fn a_named_key_that_is_not_there_is_told_from_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        for there in ["key", "held.pub"] {
            std::fs::write(path(there), "x").unwrap();
        }
        assert_eq!(missing(&path("none-such")), Some(path("none-such")));
        for good in ["~/.ssh/id_ed25519", "~/.ssh/id_rsa", "none", "%d/.ssh/none-such"] {
            assert_eq!(missing(good), None, "{good}");
        }
        assert_eq!((missing(&path("key")), missing(&path("held"))), (None, None));
        assert!(missing("~/.ssh/tuplane-none-such").is_some_and(|path| !path.contains('~')));
    }
}
