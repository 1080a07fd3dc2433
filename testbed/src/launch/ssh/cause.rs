//! What went wrong on a host: one line with the cause and what to do about it.

use std::fmt;
use std::time::Duration;

use super::connection::Resolved;
use super::{HostKeys, SshOptions, Target, host_and_port, quote, script};

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The name has no address.
    NoSuchHost,
    /// Nobody listens on sshd's port.
    Refused,
    /// Nobody answered in time.
    Timeout,
    /// No way there.
    NoRoute,
    /// The host's key is not known, and unknown ones are not accepted.
    UnknownKey,
    /// The host's key is another one than before.
    ChangedKey,
    /// A key of the user's cannot be read.
    UnusableKey,
    /// A key of the user's has a passphrase, and no agent holds it.
    Passphrase,
    /// The host does not let this user in.
    AuthRefused,
    /// sshd drops logins because too many are under way.
    Busy,
    /// `ssh` itself cannot be run.
    NoSsh,
    /// Another machine than the agent was built for.
    Machine,
    /// The disk is full.
    DiskFull,
    /// The binary cannot be executed there.
    NoExec,
    /// The agent did not come up.
    Agent,
    /// Two agents cannot reach each other.
    Peer,
    /// The connection broke off, or something on this machine ended it.
    Lost,
    /// The folder there is not the user's alone.
    Unsafe,
    /// An agent could not join its coordinator; the message is why.
    Join,
    /// Another build runs there.
    Version,
    /// Anything else.
    Other,
}

impl Cause {
    /// It was ssh that did not get there.
    pub fn is_connection(self) -> bool {
        matches!(
            self,
            Self::NoSuchHost
                | Self::Refused
                | Self::Timeout
                | Self::NoRoute
                | Self::UnknownKey
                | Self::ChangedKey
                | Self::UnusableKey
                | Self::Passphrase
                | Self::AuthRefused
                | Self::Busy
        )
    }
}

/// A host, what failed there, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFault {
    /// As the hosts file names it.
    pub host: String,
    /// The kind.
    pub cause: Cause,
    /// What was seen, without a full stop.
    pub message: String,
    /// What to do, if that is known.
    pub remedy: Option<String>,
}

impl HostFault {
    pub(super) fn new(host: impl Into<String>, cause: Cause, message: impl Into<String>) -> Self {
        Self { host: host.into(), cause, message: message.into(), remedy: None }
    }

    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// `host: what; remedy`, one line.
impl fmt::Display for HostFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.host, self.message)?;
        self.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

/// Reads what ssh said before it gave up.
pub(super) fn connecting(target: &Target, options: &SshOptions, said: &str) -> HostFault {
    let fault = |cause, message: String| HostFault::new(target.host.clone(), cause, message);
    let has = |text: &str| said.contains(text);
    let line = |text: &str| {
        let found = said.lines().map(str::trim).find(|line| line.contains(text)).unwrap_or_default();
        found.trim_start_matches("ssh: ").trim_end_matches(['.', '\r']).to_owned()
    };
    if has("IDENTIFICATION HAS CHANGED")
        || has("and you have requested strict checking") && has("has changed")
    {
        return changed_key(target, options, said);
    }
    if has("Host key verification failed") || has("host key is known for") {
        return unknown_key(target, options, said, &Resolved::default());
    }
    if has("Could not resolve hostname") {
        return fault(Cause::NoSuchHost, "no such host".into())
            .remedy("check the name, or write its address, or an alias of your ssh configuration");
    }
    if let Some(key) = said.lines().find(|l| l.contains("Load key") || l.contains("bad permissions")) {
        let remedy = if has("bad permissions") || has("UNPROTECTED PRIVATE KEY") {
            "close the key's file with chmod 600"
        } else {
            "make the key readable, or name another with --ssh-option IdentityFile=.."
        };
        let shown = key.trim().trim_end_matches('\r').to_owned();
        return fault(
            Cause::UnusableKey,
            format!("the login was refused, and a key cannot be used ({shown})"),
        )
        .remedy(remedy);
    }
    if has("Permission denied (") {
        let methods = line("Permission denied (");
        return fault(Cause::AuthRefused, format!("the login was refused ({})", refusal(target, &methods)))
            .remedy(format!("try it by hand: ssh {}", by_hand(target, options)));
    }
    if has("Too many authentication failures") {
        return fault(Cause::AuthRefused, "too many keys were offered".into())
            .remedy("use --ssh-option IdentitiesOnly=yes and --ssh-option IdentityFile=..");
    }
    if has("Connection refused") {
        return fault(Cause::Refused, without_host(target, line("Connection refused")))
            .remedy("is sshd running there, and is this its port? write host:port");
    }
    if has("timed out") || has("Timeout, server") {
        return timeout(target, options);
    }
    if has("No route to host") || has("Network is unreachable") {
        return fault(Cause::NoRoute, "there is no way to it from here".into())
            .remedy("is the host up? does it need a jump host (jump=..)?");
    }
    if has("kex_exchange_identification") || has("Connection reset by") || has("Connection closed by") {
        return fault(Cause::Busy, "sshd closed the connection before the login".into()).remedy(
            "it drops logins beyond MaxStartups: use a smaller --fan-out, or raise MaxStartups there",
        );
    }
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("ssh said nothing");
    fault(Cause::Other, format!("ssh failed: {last}"))
        .remedy(format!("try it by hand: ssh {}", by_hand(target, options)))
}

/// `user@host: Permission denied (..)` behind a host's name: the host is not said again, a user that the
/// hosts file does not say is. What another host said, one on the way, stays as it is.
fn refusal(target: &Target, line: &str) -> String {
    let own = line.split_once(": ").and_then(|(who, rest)| {
        let (user, host) = who.rsplit_once('@').map_or((None, who), |(user, host)| (Some(user), host));
        (host == plain_host(target)).then_some((user, rest))
    });
    match own {
        Some((Some(user), rest)) if !target.host.contains('@') => format!("{rest} as {user}"),
        Some((_, rest)) => rest.to_owned(),
        None => line.to_owned(),
    }
}

/// `connect to host H port P: ..` behind the name of H.
fn without_host(target: &Target, line: String) -> String {
    let rest = line.strip_prefix("connect to host ").and_then(|rest| rest.strip_prefix(plain_host(target)));
    match rest.and_then(|rest| rest.strip_prefix(' ')) {
        Some(rest) => rest.to_owned(),
        None => line,
    }
}

/// A host's key that is not known, with the line that notes it. `ssh-keyscan` does not read ssh's
/// configuration, so the line names what that stands for; a host behind another one is scanned from there.
pub(super) fn unknown_key(
    target: &Target,
    options: &SshOptions,
    said: &str,
    resolved: &Resolved,
) -> HostFault {
    let fault = |message: String| HostFault::new(target.host.clone(), Cause::UnknownKey, message);
    let (host, port) = match resolved.host.as_str() {
        "" => (plain_host(target), target.port.map(|port| port.to_string())),
        host => (host, Some(resolved.port.clone()).filter(|port| !port.is_empty() && port != "22")),
    };
    // `No ED25519 host key is known for [NAME]:PORT and you have requested strict checking.`
    let named = said.lines().find_map(|line| {
        let (_, rest) = line.split_once("host key is known for ")?;
        rest.split_once(" and you have").map(|(name, _)| name)
    });
    let named = named.map(|name| match name.strip_prefix('[').and_then(|name| name.split_once("]:")) {
        Some((host, port)) => (host, Some(port.to_owned())),
        None => (name, None),
    });
    let is_own = named.as_ref().is_none_or(|(named, _)| named.eq_ignore_ascii_case(host));
    let through = target.jump.as_deref().or(resolved.jump.as_deref());
    let file = match (&options.known_hosts, &resolved.known_hosts) {
        (None, Some(file)) => word(file),
        _ => known_hosts(options),
    };
    let scan = |host: &str, port: Option<&str>| {
        let port = port.map_or_else(String::new, |port| format!(" -p {port}"));
        format!("ssh-keyscan{port} {host}")
    };
    let (message, line) = match (is_own, through, &named) {
        (true, None, _) if !resolved.is_proxied => {
            ("its host key is not known".to_owned(), Some(scan(host, port.as_deref())))
        }
        (true, Some(jump), _) => {
            let (before, last) =
                jump.rsplit_once(',').map_or((None, jump), |(before, last)| (Some(before), last));
            let (gate, gate_port) = host_and_port(last);
            let mut way = before.map_or_else(String::new, |before| format!(" -J {before}"));
            if let Some(port) = gate_port {
                way.push_str(&format!(" -p {port}"));
            }
            let line = format!("ssh{way} {} {}", gate.replace(['[', ']'], ""), scan(host, port.as_deref()));
            ("its host key is not known".to_owned(), Some(line))
        }
        // The key of a host on the way.
        (false, Some(_), Some((named, port))) => (
            format!("the host key of {named}, through which it is reached, is not known"),
            Some(scan(named, port.as_deref())),
        ),
        // Kept under a name of its own (HostKeyAlias), or reached by a command.
        _ => ("its host key is not known".to_owned(), None),
    };
    let remedy = match line {
        Some(line) => format!("check its key and note it: {line} >> {file}, or use --host-keys accept-new"),
        None => "check its key and use --host-keys accept-new once, which notes it".to_owned(),
    };
    fault(message).remedy(remedy)
}

/// A host that ssh has reached and that does not come to its first word.
pub(super) fn silent(target: &Target, options: &SshOptions, waited: Duration) -> HostFault {
    let message =
        format!("ssh reached it, and neither the login nor its shell answered within {} s", waited.as_secs());
    HostFault::new(target.host.clone(), Cause::Timeout, message).remedy(format!(
        "a slow login needs a longer --connect-timeout, and a start-up file there may wait for input; try it by hand: \
         ssh {}",
        by_hand(target, options)
    ))
}

/// Nobody answered in time.
fn timeout(target: &Target, options: &SshOptions) -> HostFault {
    let message = format!("no answer within {} s", options.connect_s.max(1));
    HostFault::new(target.host.clone(), Cause::Timeout, message)
        .remedy("is the host up, and is that an sshd? --connect-timeout changes the time")
}

fn changed_key(target: &Target, options: &SshOptions, said: &str) -> HostFault {
    // `Offending ED25519 key in FILE:LINE`, `Host key for NAME has changed and ..`.
    let file = said.lines().find_map(|line| {
        let (_, rest) = line.trim().strip_prefix("Offending ")?.split_once(" key in ")?;
        Some(rest.rsplit_once(':').map_or(rest, |(file, _)| file).to_owned())
    });
    let name = said.lines().find_map(|line| {
        let (_, rest) = line.trim().split_once("Host key for ")?;
        rest.split_once(" has changed").map(|(name, _)| name.to_owned())
    });
    let file = file.unwrap_or_else(|| known_hosts(options));
    let name = name.unwrap_or_else(|| match target.port {
        Some(port) => format!("[{}]:{port}", plain_host(target)),
        None => plain_host(target).to_owned(),
    });
    HostFault::new(target.host.clone(), Cause::ChangedKey, "its host key has changed")
        .remedy(format!("if it was set up anew, forget the old key: ssh-keygen -f \"{file}\" -R \"{name}\""))
}

fn plain_host(target: &Target) -> &str {
    target.host.rsplit_once('@').map_or(target.host.as_str(), |(_, host)| host)
}

fn known_hosts(options: &SshOptions) -> String {
    options.known_hosts.as_ref().map_or_else(|| "~/.ssh/known_hosts".into(), |f| f.display().to_string())
}

/// What a person types to see the same.
fn by_hand(target: &Target, options: &SshOptions) -> String {
    let mut words = Vec::new();
    if let Some(config) = &options.config {
        words.push(format!("-F {}", word(&config.display().to_string())));
    }
    if let Some(file) = &options.known_hosts {
        words.push(format!("-o {}", word(&format!("UserKnownHostsFile={}", file.display()))));
    }
    match options.host_keys {
        HostKeys::Strict => words.push("-o StrictHostKeyChecking=yes".into()),
        HostKeys::AcceptNew => {}
        HostKeys::Off => words.push("-o StrictHostKeyChecking=no".into()),
    }
    words.extend(options.options.iter().map(|option| format!("-o {}", word(option))));
    if let Some(jump) = &target.jump {
        words.push(format!("-J {jump}"));
    }
    if let Some(port) = target.port {
        words.push(format!("-p {port}"));
    }
    words.push(target.host.clone());
    words.join(" ")
}

/// A word of a command line, in quotes where a shell would read something else.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "=/._-:@,+%".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { quote::quote(text) }
}

/// A login that was refused, where a key was named whose file is not there.
pub(super) fn missing_key(refused: HostFault, files: &[String]) -> HostFault {
    let (names, are) = match files {
        [_] => ("the key file", "is"),
        _ => ("the key files", "are"),
    };
    let message = format!(
        "the login was refused, and {names} that IdentityFile names {are} not there ({})",
        files.join(", ")
    );
    HostFault::new(refused.host, Cause::UnusableKey, message)
        .remedy("correct IdentityFile in --ssh-option or in your ssh configuration")
}

/// What is done about a folder that is not the user's alone.
const UNSAFE_REMEDY: &str = "who can write there could have the agent replaced: chmod go-w it if it is yours, or use another folder with --remote-dir";

/// The folder on a host that is not the user's alone.
pub(super) fn not_alone(host: &str, path: &str) -> HostFault {
    let message = format!("{path} {}", script::NOT_ALONE);
    HostFault::new(host, Cause::Unsafe, message).remedy(UNSAFE_REMEDY)
}

/// Reads what a command on the host said before it failed.
pub(super) fn on_host(host: &str, what: &str, code: Option<i32>, said: &str) -> HostFault {
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it said nothing");
    let fault = |cause, message: String| HostFault::new(host, cause, message);
    if said.contains("No space left on device") || said.contains("Disk quota exceeded") {
        return fault(Cause::DiskFull, format!("{what}: the disk is full ({last})"))
            .remedy("free some space there, or use another folder with --remote-dir");
    }
    if code == Some(126) || said.contains("cannot be executed") || said.contains("Exec format error") {
        return fault(Cause::NoExec, format!("{what}: {last}"))
            .remedy("use a folder whose file system is mounted exec with --remote-dir");
    }
    if said.contains(script::NOT_ALONE) {
        return fault(Cause::Unsafe, format!("{what}: {last}")).remedy(UNSAFE_REMEDY);
    }
    if last.starts_with("mkdir:") {
        return fault(Cause::Other, format!("{what}: {last}"))
            .remedy("use a folder that you may write to with --remote-dir");
    }
    // A session without its connection makes none of its own: it is given a way that leads nowhere.
    if code == Some(255) && said.contains("kex_exchange_identification") {
        return fault(Cause::Lost, format!("{what}: the connection to it broke off"));
    }
    if said.contains("Session open refused by peer") {
        return fault(Cause::Busy, format!("{what}: sshd opens no further session on the connection"))
            .remedy("raise MaxSessions there, or start fewer agents on this host");
    }
    fault(Cause::Other, format!("{what}: {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(said: &str) -> HostFault {
        let target = Target { host: "u@n1".into(), port: Some(2222), jump: None };
        connecting(&target, &SshOptions { connect_s: 10, ..SshOptions::default() }, said)
    }

    #[test]
    fn each_text_of_ssh_has_its_cause_and_remedy() {
        use Cause::{
            AuthRefused, Busy, NoRoute, NoSuchHost, Other, Refused, Timeout, UnknownKey, UnusableKey,
        };
        // Texts of OpenSSH 9.2, as seen.
        for (said, cause) in [
            ("ssh: Could not resolve hostname n1: Name or service not known\r\n", NoSuchHost),
            ("ssh: connect to host n1 port 2222: Connection refused\r\n", Refused),
            ("ssh: connect to host n1 port 2222: Connection timed out\r\n", Timeout),
            (
                "Connection timed out during banner exchange\r\nConnection to 127.0.0.2 port 2222 timed out\r\n",
                Timeout,
            ),
            ("ssh: connect to host n1 port 2222: No route to host\r\n", NoRoute),
            (
                "No ED25519 host key is known for [n1]:2222 and you have requested strict checking.\r\nHost key verification failed.\r\n",
                UnknownKey,
            ),
            (
                "Load key \"/x/id\": error in libcrypto\r\nu@n1: Permission denied (publickey).\r\n",
                UnusableKey,
            ),
            ("u@n1: Permission denied (publickey,password).\r\n", AuthRefused),
            (
                "Received disconnect from 127.0.0.1 port 2222:2: Too many authentication failures\r\n",
                AuthRefused,
            ),
            (
                "kex_exchange_identification: read: Connection reset by peer\r\nConnection reset by 127.0.0.1 port 2222\r\n",
                Busy,
            ),
            (
                "kex_exchange_identification: Connection closed by remote host\r\nConnection closed by 127.0.0.1 port 2222\r\n",
                Busy,
            ),
            (
                "gate: Permission denied (publickey).\r\nConnection closed by UNKNOWN port 65535\r\n",
                AuthRefused,
            ),
            ("", Other),
        ] {
            let fault = read(said);
            assert_eq!(fault.cause, cause, "{said} gives {fault}");
            assert!(fault.remedy.is_some() && !fault.to_string().contains('\n'), "{fault}");
        }
    }

    #[test]
    fn an_unknown_key_comes_with_the_line_that_notes_it_by_the_name_that_is_meant() {
        let remedy = |jump: Option<&str>, resolved: &str, name: &str| {
            let target = Target { host: "alias".into(), port: None, jump: jump.map(str::to_owned) };
            let said = format!(
                "No ED25519 host key is known for {name} and you have requested strict checking.\r\n"
            );
            let fault = unknown_key(&target, &SshOptions::default(), &said, &Resolved::read(resolved));
            format!("{}; {}", fault.message, fault.remedy.unwrap())
        };
        let own = "hostname 10.0.0.7\nport 2222\nuserknownhostsfile /h/kh /h/kh2\n";
        let said = remedy(None, own, "[10.0.0.7]:2222");
        assert!(said.contains(": ssh-keyscan -p 2222 10.0.0.7 >> /h/kh, or"), "{said}");
        let plain = remedy(None, "hostname n1.lab\nport 22\n", "n1.lab");
        assert!(plain.contains(": ssh-keyscan n1.lab >> ~/.ssh/known_hosts, or"), "{plain}");
        // Behind another host it is that one which can scan it.
        let behind = "ssh -p 2022 me@gate ssh-keyscan -p 2222 10.0.0.7 >> /h/kh";
        assert!(remedy(Some("me@gate:2022"), own, "[10.0.0.7]:2222").contains(behind));
        assert!(remedy(None, &format!("{own}proxyjump me@gate:2022\n"), "[10.0.0.7]:2222").contains(behind));
        let gate = remedy(Some("gate:2022"), own, "[gate]:2022");
        assert!(
            gate.contains("the host key of gate, through") && gate.contains(": ssh-keyscan -p 2022 gate >>"),
            "{gate}"
        );
        // Under a name of its own, or behind a command, no line would do.
        for said in [
            remedy(None, own, "other-name"),
            remedy(None, &format!("{own}proxycommand x\n"), "[10.0.0.7]:2222"),
        ] {
            assert!(said.contains("accept-new once") && !said.contains("ssh-keyscan"), "{said}");
        }
    }

    #[test]
    fn a_changed_key_comes_with_the_line_that_forgets_it() {
        let said = "@@@@\r\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n\
                    Add correct host key in /tmp/a b/kh to get rid of this message.\r\n\
                    Offending ED25519 key in /tmp/a b/kh:1\r\n\
                    Host key for [n1]:2222 has changed and you have requested strict checking.\r\n\
                    Host key verification failed.\r\n";
        let fault = read(said);
        assert_eq!(fault.cause, Cause::ChangedKey);
        assert!(fault.to_string().ends_with("ssh-keygen -f \"/tmp/a b/kh\" -R \"[n1]:2222\""), "{fault}");
    }

    #[test]
    fn a_host_is_not_said_twice_before_the_line_to_try() {
        let refused = read("u@n1: Permission denied (publickey).\r\n");
        assert_eq!(
            refused.to_string(),
            "u@n1: the login was refused (Permission denied (publickey)); try it by hand: ssh -p 2222 u@n1"
        );
        let target = Target { host: "n1".into(), port: None, jump: None };
        let options = SshOptions::default();
        let said = |text: &str| connecting(&target, &options, text).message;
        assert_eq!(
            said("root@n1: Permission denied (publickey)."),
            "the login was refused (Permission denied (publickey) as root)"
        );
        // Another host than the one that was meant: that is said.
        assert!(
            said("gate: Permission denied (publickey).").contains("(gate: Permission denied (publickey))")
        );
        assert_eq!(
            said("ssh: connect to host n1 port 22: Connection refused"),
            "port 22: Connection refused"
        );
        let other = "connect to host n11 port 22: Connection refused";
        assert_eq!(said(&format!("ssh: {other}")), other);
    }

    #[test]
    fn the_line_to_try_has_all_that_the_login_had() {
        let options = SshOptions {
            known_hosts: Some("/tmp/a b/known".into()),
            config: Some("/dev/null".into()),
            options: vec!["IdentityFile=/k".into()],
            ..SshOptions::default()
        };
        let target = Target { host: "u@n1".into(), port: Some(2222), jump: None };
        let fault = connecting(&target, &options, "u@n1: Permission denied (publickey).\r\n");
        assert_eq!(
            fault.remedy.as_deref(),
            Some(
                "try it by hand: ssh -F /dev/null -o 'UserKnownHostsFile=/tmp/a b/known' -o IdentityFile=/k \
                 -p 2222 u@n1"
            )
        );
    }

    #[test]
    fn a_full_disk_and_a_file_that_does_not_run_are_told_apart() {
        let full = on_host("h", "copying the agent", Some(1), "cat: write error: No space left on device\n");
        assert_eq!(full.cause, Cause::DiskFull);
        assert_eq!(on_host("h", "starting", Some(126), "x: Permission denied").cause, Cause::NoExec);
        let gone = "kex_exchange_identification: Connection closed by remote host\r\n";
        assert_eq!(
            on_host("h", "starting", Some(255), gone).to_string(),
            "h: starting: the connection to it broke off"
        );
    }
}
