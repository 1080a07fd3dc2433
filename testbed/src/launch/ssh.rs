//! Agents on named hosts, started through the machine's own `ssh`.
//!
//! `ssh` is run as a command and not through the crate `openssh`, which drives the same command: that
//! crate takes no `-o` options of the user's, its master connection goes into the background and
//! outlives a launcher that is killed, its children share the terminal's process group, so that Ctrl-C
//! cuts every lifeline before a job can be cancelled, and it has no say in what a jump host may ask.

mod add;
mod carrier;
mod cause;
mod check;
mod connection;
mod end;
mod group;
mod lanes;
mod plan;
mod prepare;
mod quote;
mod running;
mod script;
mod session;
mod start;

pub use add::add;
pub use carrier::SshCarrier;
pub use cause::{Cause, HostFault};
pub use check::{HostReport, check};
pub use connection::Connection;
pub use end::{CleanOptions, CleanOutcome, Cleaned, clean, end};
pub use plan::{HostsOptions, RemoteAgent, RemotePlan};
pub use start::{Held, start};

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::hosts::Host;

/// Logins under way at once.
pub const FAN_OUT: usize = 32;

/// How long ssh may take to connect unless told otherwise, as `--connect-timeout` takes it.
pub const CONNECT: &str = "10s";

/// Where the agent's binary and the run folders lie on a host, below the home folder.
pub const REMOTE_DIR: &str = ".cache/tuplane";

/// What is done about the keys by which hosts prove who they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum HostKeys {
    /// Only known keys.
    Strict,
    /// Unknown hosts are noted, changed keys refused.
    #[default]
    AcceptNew,
    /// Nothing is compared.
    Off,
}

impl fmt::Display for HostKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strict => "strict",
            Self::AcceptNew => "accept-new",
            Self::Off => "off",
        })
    }
}

/// What ssh is told, beside the user's own configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshOptions {
    /// About hosts' keys.
    pub host_keys: HostKeys,
    /// A file of known hosts in place of the user's.
    pub known_hosts: Option<PathBuf>,
    /// A configuration in place of the user's.
    pub config: Option<PathBuf>,
    /// `KEY=VALUE` each, as ssh's `-o` takes them.
    pub options: Vec<String>,
    /// How long connecting may take, in whole seconds.
    pub connect_s: u64,
}

impl SshOptions {
    /// How long connecting may take.
    fn connect(&self) -> Duration {
        Duration::from_secs(self.connect_s.max(1))
    }

    /// Arguments of every connection. What must hold comes before the user's options and what may be
    /// changed behind them, for ssh takes the first value that it finds.
    fn arguments(&self) -> Vec<String> {
        let mut all = vec!["-T".to_owned()];
        if let Some(config) = &self.config {
            all.extend(["-F".to_owned(), config.display().to_string()]);
        }
        let mut option = |text: String| all.extend(["-o".to_owned(), text]);
        for fixed in ["BatchMode=yes", "RemoteCommand=none", "PermitLocalCommand=no", "LogLevel=ERROR"] {
            option(fixed.to_owned());
        }
        match self.host_keys {
            HostKeys::Strict => option("StrictHostKeyChecking=yes".to_owned()),
            HostKeys::AcceptNew => option("StrictHostKeyChecking=accept-new".to_owned()),
            HostKeys::Off => option("StrictHostKeyChecking=no".to_owned()),
        }
        if let Some(file) = &self.known_hosts {
            option(format!("UserKnownHostsFile={}", file.display()));
        } else if self.host_keys == HostKeys::Off {
            option("UserKnownHostsFile=/dev/null".to_owned());
            option("GlobalKnownHostsFile=/dev/null".to_owned());
        }
        for given in &self.options {
            option(given.clone());
        }
        option(format!("ConnectTimeout={}", self.connect_s.max(1)));
        option("ServerAliveInterval=5".to_owned());
        option("ServerAliveCountMax=3".to_owned());
        all
    }
}

/// Where ssh goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Target {
    /// `[user@]host`.
    pub host: String,
    /// Port of sshd; ssh decides if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// `[user@]host[:port]`, several with commas, to go through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jump: Option<String>,
}

impl Target {
    /// The target of a line, through `jump` unless the line says another way.
    pub fn of(host: &Host, jump: Option<&str>) -> Self {
        let jump = host.jump.clone().or_else(|| jump.map(str::to_owned));
        Self { host: host.destination(), port: host.ssh_port, jump: jump.filter(|jump| jump != "none") }
    }

    /// Arguments that lead there.
    fn arguments(&self, options: &SshOptions) -> Vec<String> {
        let mut all = options.arguments();
        if let Some(jump) = &self.jump {
            all.extend(["-o".to_owned(), format!("ProxyCommand={}", proxy(jump, options))]);
        }
        if let Some(port) = self.port {
            all.extend(["-p".to_owned(), port.to_string()]);
        }
        all
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, " port {port}"))
    }
}

/// `[user@]host[:port]` of a jump host, parted.
fn host_and_port(hop: &str) -> (&str, Option<&str>) {
    match hop.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() && !host.ends_with(':') => (host, Some(port)),
        _ => (hop, None),
    }
}

/// What `-J` would do, with our own options for the jump host too: it must not ask either.
fn proxy(jump: &str, options: &SshOptions) -> String {
    let (before, last) = match jump.rsplit_once(',') {
        Some((before, last)) => (Some(before), last),
        None => (None, jump),
    };
    let (host, port) = host_and_port(last);
    let mut words: Vec<String> = options.arguments();
    if let Some(before) = before {
        words.extend(["-o".to_owned(), format!("ProxyCommand={}", proxy(before, options))]);
    }
    if let Some(port) = port {
        words.extend(["-p".to_owned(), port.to_owned()]);
    }
    let plain = host.replace(['[', ']'], "");
    let words: Vec<String> = words.iter().map(|word| quote::quote(&word.replace('%', "%%"))).collect();
    // Quoted for zsh, which takes brackets for a pattern and insists on a match.
    format!("ssh {} -W '[%h]:%p' {}", words.join(" "), quote::quote(&plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_hold_comes_before_the_users_options() {
        let options = SshOptions {
            options: vec!["BatchMode=no".into(), "ConnectTimeout=3".into()],
            connect_s: 10,
            ..SshOptions::default()
        };
        let all = options.arguments();
        let at = |option: &str| all.iter().position(|a| a == option).unwrap_or_else(|| panic!("{option}"));
        assert!(at("BatchMode=yes") < at("BatchMode=no"));
        assert!(at("ConnectTimeout=3") < at("ConnectTimeout=10"));
        assert!(all.contains(&"StrictHostKeyChecking=accept-new".to_owned()));
    }

    #[test]
    fn keys_that_are_not_compared_are_not_noted_either() {
        let off = SshOptions { host_keys: HostKeys::Off, ..SshOptions::default() };
        assert!(off.arguments().contains(&"UserKnownHostsFile=/dev/null".to_owned()));
        let own = SshOptions { known_hosts: Some("kh".into()), ..off };
        assert!(own.arguments().contains(&"UserKnownHostsFile=kh".to_owned()));
    }

    #[test]
    fn a_jump_host_gets_the_same_options() {
        let target = Target { host: "n".into(), port: Some(2222), jump: Some("me@gate:2022".into()) };
        let all = target.arguments(&SshOptions::default());
        let proxy = all.iter().find(|a| a.starts_with("ProxyCommand=")).unwrap();
        assert!(proxy.contains("'BatchMode=yes'") && proxy.ends_with("-W '[%h]:%p' 'me@gate'"), "{proxy}");
        assert!(proxy.contains("'-p' '2022'"), "{proxy}");
        assert_eq!(all[all.len() - 2..], ["-p", "2222"]);
    }
}
