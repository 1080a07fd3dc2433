//! Policies of unicast edges: which target takes the next rows of one sending instance.

mod potus;
mod queue;
mod turn;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::options::{OptionError, RouteOptions};
use super::price::{Terms, Weight};
use super::target::{Target, Targets};
use super::weigh::Seen;
use crate::fault::suggestion;

pub use potus::Potus;

/// The most rows of one run in the `default` setting (engine.md section 6): two targets with
/// credit never differ by more than this many rows.
pub const DEAL: u32 = 256;

/// The rows that wait at one sender for one edge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    /// `Q_out`: rows that may leave, in this piece and behind it. At least 1.
    pub rows: u64,
    /// Of these the rows that have to leave whatever a policy thinks of it.
    pub mandatory: u64,
    /// A run is at most so many rows.
    pub deal: u32,
}

/// The next rows go to this target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Index into [`Targets::list`].
    pub target: usize,
    /// At most so many rows; at least 1.
    pub rows: u32,
}

impl Choice {
    /// It can be carried out: there is such a target, it takes rows, and there are rows.
    ///
    /// # Errors
    /// A sentence that names the policy, and what it chose.
    pub fn check(&self, policy: &str, targets: &Targets) -> Result<(), String> {
        let Self { target, rows } = *self;
        let why = match targets.list().get(target) {
            None => format!("there are {}", targets.len()),
            Some(found) if !found.is_open() => "which takes none now".to_owned(),
            Some(_) if rows == 0 => {
                "and a choice is of at least 1; where it holds rows it is no choice".to_owned()
            }
            Some(_) => return Ok(()),
        };
        Err(format!("the policy `{policy}` chose {rows} rows for target {target}: {why}"))
    }
}

/// Chooses targets for the rows of one sending instance on one edge.
///
/// A policy is pure: it reads no clock and draws from its seed alone, so that a simulated run and a live edge
/// decide alike. Its driver keeps the targets up to date, adds what was sent to [`Target::queued`], and asks again
/// while rows wait.
pub trait Policy: Send + fmt::Debug {
    /// The policy's name in job files.
    fn name(&self) -> &str;

    /// It reads [`Target::queued`]: a driver that would have to find the lengths out may leave them at 0 if not.
    fn reads_queues(&self) -> bool {
        true
    }

    /// A slot begins; its queues and costs are in `seen`. Slots are counted from the driver's start.
    fn begin_slot(&mut self, slot: i64, seen: &Seen<'_>) {
        let _ = (slot, seen);
    }

    /// Where the next of the waiting rows go. `None` if no target has credit, or if the policy holds them; it may not
    /// hold those that are mandatory while a target has credit. The driver then says what it really sent with
    /// [`Policy::sent`].
    fn choose(&mut self, waiting: &Waiting, targets: &Targets) -> Option<Choice>;

    /// So many rows of the last choice went out (fewer than chosen if a frame was full).
    fn sent(&mut self, rows: u32);

    /// The price of a target and its terms, where the policy has prices.
    fn terms(&self, waiting: &Waiting, target: &Target) -> Option<Terms> {
        let _ = (waiting, target);
        None
    }

    /// `V` and `beta` in force, where it has them.
    fn weights(&self) -> Option<(Weight, Weight)> {
        None
    }
}

/// Makes a policy for one sending instance; the seed feeds those that draw lots.
pub type MakePolicy = Arc<dyn Fn(&RouteOptions, u64) -> Result<Box<dyn Policy>, OptionError> + Send + Sync>;

/// Policies by name: the ones that are built in, and a researcher's own.
#[derive(Clone)]
pub struct Policies {
    makers: BTreeMap<String, MakePolicy>,
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.makers.keys()).finish()
    }
}

impl Default for Policies {
    fn default() -> Self {
        let mut all = Self { makers: BTreeMap::new() };
        all.insert("round-robin", |_, _| Ok(Box::<turn::RoundRobin>::default()));
        all.insert("shuffle", |_, seed| Ok(Box::new(turn::Shuffle::new(seed))));
        all.insert("heron", |_, seed| Ok(Box::new(turn::Heron::new(seed))));
        all.insert("p2c", |_, seed| Ok(Box::new(queue::TwoChoices::new(seed))));
        all.insert("jsq", |_, seed| Ok(Box::new(queue::Shortest::new(seed))));
        all.insert("local_first", |_, seed| Ok(Box::new(turn::LocalFirst::new(seed))));
        all.insert("potus", |options, _| Ok(Box::new(Potus::new(options))));
        all
    }
}

impl Policies {
    /// Adds a policy of one's own; one of one's own of the same name is replaced.
    ///
    /// # Panics
    /// If a built-in policy has that name: what a driver does for it, and the options that it takes, go by its name.
    pub fn add(
        &mut self,
        name: &str,
        make: impl Fn(&RouteOptions, u64) -> Result<Box<dyn Policy>, OptionError> + Send + Sync + 'static,
    ) {
        assert!(!policy_names().contains(&name), "a built-in policy is called `{name}`: choose another name");
        self.insert(name, make);
    }

    fn insert(
        &mut self,
        name: &str,
        make: impl Fn(&RouteOptions, u64) -> Result<Box<dyn Policy>, OptionError> + Send + Sync + 'static,
    ) {
        self.makers.insert(name.to_owned(), Arc::new(make));
    }

    /// Their names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.makers.keys().map(String::as_str)
    }

    /// A policy for one sending instance.
    ///
    /// # Errors
    /// If no policy has that name, or it refuses an option.
    pub fn make(
        &self,
        name: &str,
        options: &RouteOptions,
        seed: u64,
    ) -> Result<Box<dyn Policy>, PolicyError> {
        let Some(make) = self.makers.get(name) else {
            return Err(PolicyError::Unknown {
                name: name.to_owned(),
                close: suggestion(name, self.names()).map(str::to_owned),
                known: self.names().collect::<Vec<_>>().join(", "),
            });
        };
        make(options, seed).map_err(|source| PolicyError::Option { policy: name.to_owned(), source })
    }
}

/// A policy cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No policy has that name.
    #[error("no policy is called `{name}`{}; there are: {known}", did_you_mean(close.as_ref()))]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// A name like it.
        close: Option<String>,
        /// All names.
        known: String,
    },
    /// It refuses an option.
    #[error("the policy `{policy}`: {source}")]
    Option {
        /// Its name.
        policy: String,
        /// What it refuses.
        source: OptionError,
    },
}

fn did_you_mean(close: Option<&String>) -> String {
    close.map_or_else(String::new, |close| format!(" (did you mean `{close}`?)"))
}

/// The names of the policies that are built in.
pub fn policy_names() -> &'static [&'static str] {
    &["heron", "jsq", "local_first", "p2c", "potus", "round-robin", "shuffle"]
}

/// A built-in policy by name with the options of the `default` setting.
///
/// # Errors
/// If no policy has that name.
pub fn make_policy(name: &str, seed: u64) -> Result<Box<dyn Policy>, PolicyError> {
    Policies::default().make(name, &RouteOptions::default(), seed)
}

#[cfg(test)]
mod tests;
