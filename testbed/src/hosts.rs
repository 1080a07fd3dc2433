//! Hosts files: one host a line, with where its rows flow and how much it may run.
//!
//! `[user@]host[:sshport] key=value ..`. The `workers` files of Spark and Flink, `host slots=N` of MPI
//! and plain groups of Ansible are valid as they are. All faults of a file are found in one pass.

mod line;
mod range;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub use line::is_name;
use tuplane_core::fault::{At, Fault, Spanned};

/// The most hosts of one file.
pub const MOST: usize = 4096;

/// The keys of a line.
pub const KEYS: [&str; 8] = ["name", "data", "port", "slots", "cores", "zone", "spare", "jump"];

/// ssh's own port.
const SSH_PORT: u16 = 22;

/// One host, or one agent of a host that stands in several lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// Who logs in; ssh decides if absent.
    pub user: Option<String>,
    /// Name, alias of ssh, or address; IPv6 without brackets.
    pub host: String,
    /// Port of sshd; ssh decides if absent.
    pub ssh_port: Option<u16>,
    /// The agent's name; see [`names`].
    pub name: Option<String>,
    /// Where rows flow: an address, a network, the name of an interface, or a host name.
    pub data: Option<String>,
    /// Port that the agent listens on; the system chooses if 0.
    pub port: u16,
    /// Instances per vertex; the command's default if absent.
    pub slots: Option<u32>,
    /// Most rows in `work` at once; the command's default if absent.
    pub cores: Option<u32>,
    /// Zone of the cost table.
    pub zone: Option<String>,
    /// Kept back: no agent is started on it.
    pub spare: bool,
    /// `[user@]host[:port]`, several with commas, through which ssh goes.
    pub jump: Option<String>,
}

impl Host {
    /// `user@host`, as ssh takes it.
    pub fn destination(&self) -> String {
        match &self.user {
            Some(user) => format!("{user}@{}", self.host),
            None => self.host.clone(),
        }
    }

    /// The same machine as far as this file tells.
    pub fn machine(&self) -> (String, u16) {
        (self.host.to_ascii_lowercase(), self.ssh_port.unwrap_or(SSH_PORT))
    }
}

/// The line that reads as this host again.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        if let Some(port) = self.ssh_port {
            write!(f, ":{port}")?;
        }
        let mut text = |key: &str, value: &Option<String>| match value {
            Some(value) => write!(f, " {key}={value}"),
            None => Ok(()),
        };
        text("name", &self.name)?;
        text("data", &self.data)?;
        text("zone", &self.zone)?;
        text("jump", &self.jump)?;
        for (key, value) in [("slots", self.slots), ("cores", self.cores)] {
            if let Some(value) = value {
                write!(f, " {key}={value}")?;
            }
        }
        if self.port > 0 {
            write!(f, " port={}", self.port)?;
        }
        if self.spare { f.write_str(" spare=true") } else { Ok(()) }
    }
}

/// How hosts are given: what a fault calls a place, and what it advises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A file, one host a line.
    File,
    /// A list `h1,h2`; the place of an entry is its number, as a line's.
    List,
}

impl Form {
    /// Two places by name.
    fn both(self, first: At, second: At) -> String {
        let noun = match self {
            Self::File => "lines",
            Self::List => "entries",
        };
        format!("{noun} {} and {}", first.line, second.line)
    }
}

/// Reads a hosts file.
pub fn parse(text: &str) -> Result<Vec<Spanned<Host>>, Vec<Fault>> {
    let mut hosts = Vec::new();
    let mut faults = Vec::new();
    let body = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut offset = text.len() - body.len();
    let mut skipped = None;
    for (number, whole) in (1..).zip(body.split_inclusive('\n')) {
        let content = whole.trim_end_matches(['\n', '\r']);
        let line = line::Line { text: content, number, offset, form: Form::File };
        offset += whole.len();
        match line.group() {
            Some(Ok(())) => skipped = None,
            Some(Err(fault)) => {
                faults.push(fault);
                skipped = Some(());
            }
            // Lines of a section that holds no hosts: its head was a fault.
            None if skipped.is_some() => {}
            None => line.hosts(&mut hosts, &mut faults),
        }
        if hosts.len() > MOST {
            let at = hosts.last().map_or(At::default(), |host| host.at);
            faults.push(Fault::new(at, format!("more than {MOST} hosts")));
            return Err(faults);
        }
    }
    if hosts.is_empty() && faults.is_empty() {
        faults.push(Fault::new(At::default(), "no host stands here").help("write one host a line"));
    }
    finish(hosts, faults, Form::File)
}

/// The entries of `host,host,..`; a comma inside brackets is part of one.
pub fn entries(text: &str) -> Vec<&str> {
    range::split_outside_brackets(text).into_iter().map(|(entry, _)| entry).collect()
}

/// Reads `host,host,..`, each as a line of a file. The line of a place is the number of its entry, and
/// its column counts from where that begins.
pub fn parse_list(text: &str) -> Result<Vec<Spanned<Host>>, Vec<Fault>> {
    let mut hosts = Vec::new();
    let mut faults = Vec::new();
    let mut offset = 0;
    for (number, (part, end)) in (1..).zip(range::split_outside_brackets(text)) {
        line::Line { text: part, number, offset, form: Form::List }.hosts(&mut hosts, &mut faults);
        offset = end;
    }
    if hosts.is_empty() && faults.is_empty() {
        faults.push(Fault::new(At::default(), "no host is named").help("write --hosts h1,h2"));
    }
    finish(hosts, faults, Form::List)
}

/// What can only be seen of all lines together.
fn finish(
    hosts: Vec<Spanned<Host>>,
    mut faults: Vec<Fault>,
    form: Form,
) -> Result<Vec<Spanned<Host>>, Vec<Fault>> {
    let mut machines: BTreeMap<(String, u16), Vec<&Spanned<Host>>> = BTreeMap::new();
    let mut named: BTreeMap<&str, At> = BTreeMap::new();
    for host in &hosts {
        let others = machines.entry(host.value.machine()).or_default();
        let same = others
            .iter()
            .find(|other| (&other.value.name, other.value.slots) == (&host.value.name, host.value.slots));
        if let Some(other) = same {
            let (shown, places) = (&host.value.host, form.both(other.at, host.at));
            faults.push(
                Fault::new(host.at, format!("host {shown} stands twice, in {places}"))
                    .help("two agents of one host need different names or slots: add name=.."),
            );
        }
        let taken = others.iter().find(|other| other.value.port > 0 && other.value.port == host.value.port);
        if let Some(other) = taken {
            let message = format!(
                "port {} of host {} is given twice, in {}",
                host.value.port,
                host.value.host,
                form.both(other.at, host.at)
            );
            faults.push(Fault::new(host.at, message).help("leave port= out: each agent then finds one"));
        }
        others.push(host);
        if let Some(name) = &host.value.name
            && let Some(first) = named.insert(name, host.at)
        {
            let message = format!("two agents are named {name}, in {}", form.both(first, host.at));
            faults.push(Fault::new(host.at, message));
        }
    }
    if faults.is_empty() {
        return Ok(hosts);
    }
    faults.sort_by_key(|fault| fault.at);
    faults.dedup();
    Err(faults)
}

/// The name of each host's agent: the one given, else the first label of the host's name where that is
/// nobody else's, else a letter.
pub fn names(hosts: &[Spanned<Host>]) -> Vec<String> {
    let label = |host: &Host| -> Option<String> {
        let is_address = host.host.parse::<std::net::IpAddr>().is_ok();
        let first = host.host.split('.').next().filter(|_| !is_address)?;
        line::is_name(first).then(|| first.to_owned())
    };
    let mut count: BTreeMap<String, u32> = BTreeMap::new();
    for host in hosts {
        if let Some(name) = host.value.name.clone().or_else(|| label(&host.value)) {
            *count.entry(name).or_default() += 1;
        }
    }
    let own = |host: &Spanned<Host>| {
        let free = |name: &String| count.get(name) == Some(&1);
        host.value.name.clone().or_else(|| label(&host.value).filter(free))
    };
    let taken: BTreeSet<String> = hosts.iter().filter_map(own).collect();
    let mut letters = (0..).map(crate::launch::agent_name).filter(|name| !taken.contains(name));
    hosts.iter().filter_map(|host| own(host).or_else(|| letters.next())).collect()
}
