//! One line of a hosts file: its words, its host, its keys.

use std::net::Ipv6Addr;
use std::ops::RangeInclusive;

use tuplane_core::fault::{At, Fault, Spanned, suggestion};

use super::range::{self, RangeError};
use super::{Form, Host, KEYS};

/// A line with its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'t> {
    /// Without its end.
    pub(super) text: &'t str,
    /// From 1.
    pub(super) number: u32,
    /// Of the first byte.
    pub(super) offset: usize,
    /// What it is a line of.
    pub(super) form: Form,
}

/// A word of a line, with the byte at which it begins there.
#[derive(Debug, Clone, Copy)]
struct Word<'t> {
    text: &'t str,
    start: usize,
}

impl<'t> Line<'t> {
    /// The place of a part of it.
    fn at(&self, start: usize, len: usize) -> At {
        let before = self.text.get(..start).unwrap_or(self.text);
        At {
            line: self.number,
            column: before.chars().count() as u32 + 1,
            offset: (self.offset + start) as u32,
            len: len as u32,
        }
    }

    fn at_word(&self, word: Word<'_>) -> At {
        self.at(word.start, word.text.len())
    }

    /// Words up to a comment, which begins at a `#` outside a value.
    fn words(&self) -> Vec<Word<'t>> {
        let mut words = Vec::new();
        let mut rest = 0;
        while let Some(begin) = self.text[rest..].find(|c: char| !c.is_whitespace()) {
            let start = rest + begin;
            let end = self.text[start..].find(char::is_whitespace).map_or(self.text.len(), |n| start + n);
            let text = &self.text[start..end];
            rest = end;
            match text.find('#') {
                Some(hash) if !text[..hash].contains('=') => {
                    if hash > 0 {
                        words.push(Word { text: &text[..hash], start });
                    }
                    return words;
                }
                _ => words.push(Word { text, start }),
            }
        }
        words
    }

    /// `[workers]`: accepted, and of no effect. A section of Ansible that holds no hosts is a fault.
    pub(super) fn group(&self) -> Option<Result<(), Fault>> {
        let words = self.words();
        let [word] = words[..] else { return None };
        let inner = word.text.strip_prefix('[')?.strip_suffix(']')?;
        if inner.is_empty() || inner.contains(['[', ']']) || inner.parse::<Ipv6Addr>().is_ok() {
            return None;
        }
        let Some((_, kind)) = inner.split_once(':') else { return Some(Ok(())) };
        let fault = Fault::new(self.at_word(word), format!("a section of {kind} holds no hosts"));
        Some(Err(fault.help("write user, port and keys on each host's own line")))
    }

    /// Reads its hosts, one or a range of them.
    pub(super) fn hosts(&self, hosts: &mut Vec<Spanned<Host>>, faults: &mut Vec<Fault>) {
        let words = self.words();
        let Some((first, keys)) = words.split_first() else { return };
        let before = faults.len();
        if let Some(fault) = self.port_option(&words) {
            faults.push(fault);
            return;
        }
        let expanded = self.expand(*first, faults);
        let mut read = Keys::default();
        for word in keys {
            self.key(*word, &mut read, faults);
        }
        let names = read.name.and_then(|word| self.per_host(word, expanded.len(), faults));
        let data = read.data.and_then(|word| self.per_host(word, expanded.len(), faults));
        if faults.len() > before {
            return;
        }
        let at = self.at_word(*first);
        for (index, target) in expanded.into_iter().enumerate() {
            let mut host = Host { ..read.host.clone() };
            (host.user, host.host, host.ssh_port) = target;
            host.name = names.as_ref().and_then(|names| names.get(index).cloned());
            host.data = data.as_ref().and_then(|data| data.get(index).cloned());
            hosts.push(Spanned::new(host, at));
        }
    }

    /// `-p 22` or `-p22`, as ssh takes a port, is one fault and not one of each word.
    fn port_option(&self, words: &[Word<'_>]) -> Option<Fault> {
        let at = words.iter().position(|word| {
            word.text.strip_prefix("-p").is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
        })?;
        let option = words.get(at)?;
        let attached = option.text.strip_prefix("-p").filter(|port| !port.is_empty());
        let next = words.get(at + 1).filter(|_| attached.is_none());
        let next = next.filter(|word| word.text.bytes().all(|byte| byte.is_ascii_digit()));
        let port = attached.or_else(|| next.map(|word| word.text)).unwrap_or("22");
        let end = next.map_or(option.start + option.text.len(), |word| word.start + word.text.len());
        let shown = self.text.get(option.start..end).unwrap_or(option.text);
        // With the option first, the host comes behind it.
        let behind = if next.is_some() { at + 2 } else { at + 1 };
        let host = if at > 0 { words.first() } else { words.get(behind) };
        let host = match host.map_or("host", |word| word.text) {
            six if six.rsplit('@').next().is_some_and(|host| host.parse::<Ipv6Addr>().is_ok()) => "[address]",
            host => host,
        };
        let fault =
            Fault::new(self.at(option.start, end - option.start), format!("`{shown}` is no key=value"));
        Some(fault.help(format!("write the port of sshd behind the host: {host}:{port}")))
    }

    /// The host's word with its ranges written out.
    fn expand(&self, word: Word<'_>, faults: &mut Vec<Fault>) -> Vec<Target> {
        let (user, rest) = match word.text.rsplit_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, word.text),
        };
        let fault = |message: String| Fault::new(self.at_word(word), message);
        if word.text.contains('=') {
            let help = "write the host first: host key=value";
            faults.push(fault(format!("`{}` stands where a host is expected", word.text)).help(help));
            return Vec::new();
        }
        if let Some(user) = user.filter(|user| !is_word(user)) {
            faults.push(fault(format!("`{user}` is no user's name")));
            return Vec::new();
        }
        match target(rest) {
            Err(message) => {
                faults.push(fault(message));
                Vec::new()
            }
            Ok((host, port)) => {
                let is_v6 = host.parse::<Ipv6Addr>().is_ok();
                let names = if is_v6 { Ok(vec![host]) } else { range::expand(&host) };
                match names {
                    Ok(names) => {
                        if let Some(bad) = names.iter().find(|name| !is_host(name)) {
                            faults.push(fault(format!("`{bad}` is no host's name or address")));
                        }
                        names.into_iter().map(|name| (user.map(str::to_owned), name, port)).collect()
                    }
                    Err(error) => {
                        faults.push(self.range_fault(word, &error));
                        Vec::new()
                    }
                }
            }
        }
    }

    fn range_fault(&self, word: Word<'_>, error: &RangeError) -> Fault {
        let shown: String = word.text.chars().take(64).collect();
        let cut = if shown.len() < word.text.len() { ".." } else { "" };
        let fault = Fault::new(self.at_word(word), format!("`{shown}{cut}`: {}", error.message));
        fault.help("ranges look like node[0-9], node[01:10] or node[1-3,7]")
    }

    /// A value that may have one range, with as many values as the line has hosts.
    fn per_host(&self, word: Word<'_>, hosts: usize, faults: &mut Vec<Fault>) -> Option<Vec<String>> {
        if !word.text.contains('[') {
            if hosts > 1 && word.start > 0 && self.key_of(word) == Some("name") {
                let message = format!("one name for {hosts} hosts");
                faults.push(Fault::new(self.at_word(word), message).help("give a range: name=n[0-9]"));
                return None;
            }
            return Some(vec![word.text.to_owned(); hosts]);
        }
        match range::expand(word.text) {
            Ok(values) if values.len() == hosts => Some(values),
            Ok(values) => {
                let message = format!("{} values for {hosts} hosts", values.len());
                faults.push(Fault::new(self.at_word(word), message));
                None
            }
            Err(error) => {
                faults.push(self.range_fault(word, &error));
                None
            }
        }
    }

    /// The key whose value this word is.
    fn key_of(&self, value: Word<'_>) -> Option<&'t str> {
        self.text.get(..value.start.checked_sub(1)?)?.rsplit(char::is_whitespace).next()
    }

    fn key(&self, word: Word<'t>, read: &mut Keys<'t>, faults: &mut Vec<Fault>) {
        let (key, value) = match word.text.split_once('=') {
            Some((key, value)) => (key, value),
            None if word.text == "spare" => ("spare", "true"),
            None => {
                let fault = Fault::new(self.at_word(word), format!("`{}` is no key=value", word.text));
                faults.push(fault.help(match self.form {
                    Form::File => "one host a line; keys follow it as key=value",
                    Form::List => "keys follow a host as key=value, and a comma parts it from the next",
                }));
                return;
            }
        };
        let at_key = self.at(word.start, key.len());
        if !KEYS.contains(&key) {
            let fault = Fault::new(at_key, format!("unknown key `{key}`"));
            faults.push(fault.help(remedy(key)));
            return;
        }
        if read.seen.contains(&key) {
            faults.push(Fault::new(at_key, format!("`{key}` stands twice on this line")));
            return;
        }
        read.seen.push(key);
        let start = if word.text.contains('=') { word.start + key.len() + 1 } else { word.start };
        let value = Word { text: value, start };
        if let Err(message) = read.set(key, value) {
            let at = if value.text.is_empty() { at_key } else { self.at_word(value) };
            faults.push(Fault::new(at, message));
        }
    }
}

/// User, host, port of sshd.
type Target = (Option<String>, String, Option<u16>);

/// What the keys of a line said.
#[derive(Debug, Default)]
struct Keys<'t> {
    seen: Vec<&'t str>,
    host: Host,
    name: Option<Word<'t>>,
    data: Option<Word<'t>>,
}

impl<'t> Keys<'t> {
    fn set(&mut self, key: &str, word: Word<'t>) -> Result<(), String> {
        let value = word.text;
        if value.is_empty() {
            return Err(format!("`{key}=` has no value"));
        }
        match key {
            "name" => {
                let plain: String = value.chars().filter(|c| !matches!(c, '[' | ']' | ',' | ':')).collect();
                if !is_name(&plain) || (plain != value && !value.contains('[')) {
                    return Err(format!(
                        "`{value}` cannot name an agent: use letters, digits, `_`, `-` and `.`, at most 64, a letter \
                         or digit first"
                    ));
                }
                self.name = Some(word);
            }
            "data" => {
                if !value.chars().all(|c| c.is_ascii_alphanumeric() || "._-:/%[],".contains(c)) {
                    return Err(format!("`{value}` is no address, network, interface or name"));
                }
                self.data = Some(word);
            }
            "zone" => {
                if !is_name(value) {
                    return Err(format!("`{value}` cannot name a zone"));
                }
                self.host.zone = Some(value.to_owned());
            }
            "jump" => {
                for hop in value.split(',') {
                    let (user, rest) =
                        hop.rsplit_once('@').map_or((None, hop), |(user, rest)| (Some(user), rest));
                    let (host, _) = target(rest)?;
                    if !is_host(&host) || user.is_some_and(|user| !is_word(user)) {
                        return Err(format!("`{hop}` is no [user@]host[:port]"));
                    }
                }
                self.host.jump = Some(value.to_owned());
            }
            "port" => self.host.port = whole(value, 0..=u32::from(u16::MAX))? as u16,
            "slots" => self.host.slots = Some(whole(value, 0..=1024)?),
            "cores" => self.host.cores = Some(whole(value, 1..=4096)?),
            "spare" => {
                self.host.spare = match value {
                    "true" | "yes" | "1" => true,
                    "false" | "no" | "0" => false,
                    _ => return Err(format!("`{value}` is neither true nor false")),
                }
            }
            _ => return Err(format!("unknown key `{key}`")),
        }
        Ok(())
    }
}

fn remedy(key: &str) -> String {
    match key {
        "ansible_host" | "ansible_user" | "ansible_port" => "write [user@]host[:sshport] instead".into(),
        "ansible_ssh_common_args" => "say jump=[user@]host instead".into(),
        "max_slots" => "leave it out: slots= is the number of instances".into(),
        "rack" => "say zone= instead".into(),
        _ => match suggestion(key, KEYS) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the keys are {}", KEYS.join(", ")),
        },
    }
}

fn whole(value: &str, range: RangeInclusive<u32>) -> Result<u32, String> {
    value
        .parse()
        .ok()
        .filter(|n| range.contains(n))
        .ok_or_else(|| format!("`{value}` is not a whole number from {} to {}", range.start(), range.end()))
}

/// `host`, `host:port`, `[v6]`, `[v6]:port`, or a bare IPv6 address; the host's ranges as they are.
fn target(text: &str) -> Result<(String, Option<u16>), String> {
    let port = |text: &str| match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(Some(port)),
        _ => Err(format!("`{text}` is no port of sshd")),
    };
    if let Some(inner) = text.strip_prefix('[')
        && let Some((address, rest)) = inner.split_once(']')
        && address.parse::<Ipv6Addr>().is_ok()
    {
        return match rest.strip_prefix(':') {
            Some(rest) => Ok((address.to_owned(), port(rest)?)),
            None if rest.is_empty() => Ok((address.to_owned(), None)),
            None => Err(format!("`{rest}` stands behind an address")),
        };
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok((text.to_owned(), None));
    }
    // A colon inside a range belongs to it.
    let colon = text.rfind(':').filter(|at| !text[*at..].contains(']'));
    match colon {
        Some(at) => Ok((text[..at].to_owned(), port(&text[at + 1..])?)),
        None => Ok((text.to_owned(), None)),
    }
}

/// What ssh takes for a host, and no option of its own.
fn is_host(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok() || is_word(text)
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 255
        && !text.starts_with('-')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
}

/// A name of an agent or a zone: a word that may be the name of a file as well.
pub fn is_name(text: &str) -> bool {
    is_word(text) && text.len() <= 64 && !text.starts_with('.')
}
