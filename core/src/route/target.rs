//! The targets of an edge as a decision sees them.

use std::ops::Range;

use super::price::Cost;
use super::rank::Rank;

/// As [`Target::credit`]: any number of rows.
pub const UNLIMITED: u64 = u64::MAX;

/// A target of an edge, seen from one agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Dense instance id.
    pub instance: u32,
    /// Rows that may be sent to it now: 0 where it is full, dead or silent for too long.
    pub credit: u64,
    /// `Q_in`: rows that wait or are worked on there, and those on their way, as far as they are known.
    pub queued: u64,
    /// `U`: what a row costs on its way there.
    pub cost: Cost,
    /// Its place among targets of the same price.
    pub rank: Rank,
}

impl Target {
    /// An empty target here, with any credit, ranked by its id.
    pub fn new(instance: u32) -> Self {
        Self { instance, credit: UNLIMITED, queued: 0, cost: Cost::default(), rank: Rank::listed(instance) }
    }

    /// It takes rows.
    pub fn is_open(&self) -> bool {
        self.credit > 0
    }

    /// So many rows are on their way to it.
    pub fn take(&mut self, rows: u64) {
        self.queued = self.queued.saturating_add(rows);
        if self.credit != UNLIMITED {
            self.credit = self.credit.saturating_sub(rows);
        }
    }
}

/// The targets of one edge as one agent sees them: grouped by agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Targets {
    list: Vec<Target>,
    groups: Vec<Range<usize>>,
    /// The sender's own agent has targets: they are the first group.
    local: bool,
}

impl Targets {
    /// Targets from groups of instance ids, one group an agent. Empty groups are left out.
    pub fn new(groups: impl IntoIterator<Item = Vec<u32>>) -> Self {
        let mut targets = Self::default();
        for group in groups {
            let start = targets.list.len();
            targets.list.extend(group.into_iter().map(Target::new));
            if targets.list.len() > start {
                targets.groups.push(start..targets.list.len());
            }
        }
        targets
    }

    /// As [`Targets::new`]; the first group are those of the sender's own agent, and may be empty.
    pub fn with_local(groups: impl IntoIterator<Item = Vec<u32>>) -> Self {
        let mut groups = groups.into_iter().peekable();
        let local = groups.peek().is_some_and(|group| !group.is_empty());
        Self { local, ..Self::new(groups) }
    }

    /// How many targets there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// There is no target.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The targets in order.
    pub fn list(&self) -> &[Target] {
        &self.list
    }

    /// The targets, to say what is known of them now.
    pub fn list_mut(&mut self) -> &mut [Target] {
        &mut self.list
    }

    /// Indices by agent.
    pub fn groups(&self) -> &[Range<usize>] {
        &self.groups
    }

    /// Indices of the targets on the sender's own agent.
    pub fn local(&self) -> Range<usize> {
        match self.groups.first() {
            Some(first) if self.local => first.clone(),
            _ => 0..0,
        }
    }

    /// Says whether a target takes rows, as many as there are.
    pub fn set_credit(&mut self, index: usize, credit: bool) {
        self.list[index].credit = if credit { UNLIMITED } else { 0 };
    }

    /// A group has a target that takes rows.
    pub(super) fn has_credit(&self, group: usize) -> bool {
        self.list[self.groups[group].clone()].iter().any(Target::is_open)
    }
}
