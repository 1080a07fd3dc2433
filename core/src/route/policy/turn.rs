//! Policies that look at no queue: in turn, by lot, near before far.

use super::{Choice, Policy, Target, Targets, Waiting};
use crate::route::rank::Lots;

/// A run of rows that is under way.
#[derive(Debug, Clone, Copy)]
struct Run {
    target: usize,
    left: u32,
}

impl Run {
    /// The run goes on if its target still has credit.
    fn resume(run: &mut Option<Run>, waiting: &Waiting, targets: &Targets) -> Option<Choice> {
        let run = run.as_mut()?;
        // Runs have become shorter: what is left of this one too.
        run.left = run.left.min(waiting.deal);
        let usable = run.left > 0 && targets.list().get(run.target).is_some_and(Target::is_open);
        usable.then(|| Choice { target: run.target, rows: at_most(run.left, waiting) })
    }

    fn begin(run: &mut Option<Run>, target: usize, waiting: &Waiting) -> Choice {
        *run = Some(Run { target, left: waiting.deal });
        Choice { target, rows: at_most(waiting.deal, waiting) }
    }

    fn spend(run: &mut Option<Run>, rows: u32) {
        if let Some(run) = run {
            run.left = run.left.saturating_sub(rows);
        }
    }
}

fn at_most(rows: u32, waiting: &Waiting) -> u32 {
    u64::from(rows).min(waiting.rows) as u32
}

/// Round-robin in two levels that skips a full receiver (Jet's distributed edge; rebalance.md 10.3).
///
/// First over agents, weighted by how many targets each holds, then over the agent's targets.
/// With equal numbers that is Jet's turn exactly.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    /// Smooth weighted turn: each group with credit gains its weight, the richest pays the sum.
    balance: Vec<i64>,
    /// Next target within each group.
    within: Vec<usize>,
    run: Option<Run>,
}

impl Policy for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn reads_queues(&self) -> bool {
        false
    }

    fn choose(&mut self, waiting: &Waiting, targets: &Targets) -> Option<Choice> {
        if let Some(choice) = Run::resume(&mut self.run, waiting, targets) {
            return Some(choice);
        }
        self.balance.resize(targets.groups().len(), 0);
        self.within.resize(targets.groups().len(), 0);
        let mut best: Option<usize> = None;
        let mut paid = 0;
        for (group, range) in targets.groups().iter().enumerate() {
            if !targets.has_credit(group) {
                continue;
            }
            let weight = range.len() as i64;
            self.balance[group] += weight;
            paid += weight;
            if best.is_none_or(|b| self.balance[group] > self.balance[b]) {
                best = Some(group);
            }
        }
        let group = best?;
        self.balance[group] -= paid;
        let range = targets.groups()[group].clone();
        let (start, len) = (range.start, range.len());
        let open = |k: &usize| targets.list()[start + (self.within[group] + k) % len].is_open();
        let step = (0..len).find(open)?;
        let local = (self.within[group] + step) % len;
        self.within[group] = (local + 1) % len;
        Some(Run::begin(&mut self.run, start + local, waiting))
    }

    fn sent(&mut self, rows: u32) {
        Run::spend(&mut self.run, rows);
    }
}

/// Uniform choice over the targets with credit, a new lot for each run: POTUS's baseline as the publication
/// describes it.
#[derive(Debug)]
pub(super) struct Shuffle {
    lots: Lots,
    run: Option<Run>,
}

impl Shuffle {
    pub(super) fn new(seed: u64) -> Self {
        Self { lots: Lots(seed), run: None }
    }
}

impl Policy for Shuffle {
    fn name(&self) -> &'static str {
        "shuffle"
    }

    fn reads_queues(&self) -> bool {
        false
    }

    fn choose(&mut self, waiting: &Waiting, targets: &Targets) -> Option<Choice> {
        if let Some(choice) = Run::resume(&mut self.run, waiting, targets) {
            return Some(choice);
        }
        let target = by_lot(&mut self.lots, targets, 0..targets.len())?;
        Some(Run::begin(&mut self.run, target, waiting))
    }

    fn sent(&mut self, rows: u32) {
        Run::spend(&mut self.run, rows);
    }
}

/// One of the targets with credit within a range, each as likely as the others.
fn by_lot(lots: &mut Lots, targets: &Targets, among: std::ops::Range<usize>) -> Option<usize> {
    let open = || among.clone().filter(|target| targets.list()[*target].is_open());
    let count = open().count();
    if count == 0 {
        return None;
    }
    open().nth(lots.below(count as u64) as usize)
}

/// Shuffle as Heron's code has it: a random first target, then one after the other (potus.md F16).
#[derive(Debug)]
pub(super) struct Heron {
    lots: Lots,
    next: Option<usize>,
    run: Option<Run>,
}

impl Heron {
    pub(super) fn new(seed: u64) -> Self {
        Self { lots: Lots(seed), next: None, run: None }
    }
}

impl Policy for Heron {
    fn name(&self) -> &'static str {
        "heron"
    }

    fn reads_queues(&self) -> bool {
        false
    }

    fn choose(&mut self, waiting: &Waiting, targets: &Targets) -> Option<Choice> {
        if let Some(choice) = Run::resume(&mut self.run, waiting, targets) {
            return Some(choice);
        }
        let len = targets.len();
        if len == 0 {
            return None;
        }
        let first = self.next.unwrap_or_else(|| self.lots.below(len as u64) as usize);
        let target = (0..len).map(|k| (first + k) % len).find(|t| targets.list()[*t].is_open())?;
        self.next = Some((target + 1) % len);
        Some(Run::begin(&mut self.run, target, waiting))
    }

    fn sent(&mut self, rows: u32) {
        Run::spend(&mut self.run, rows);
    }
}

/// Storm's local-or-shuffle: a target on the sender's own agent, by lot, while one there has credit; else any.
#[derive(Debug)]
pub(super) struct LocalFirst {
    lots: Lots,
    run: Option<Run>,
}

impl LocalFirst {
    pub(super) fn new(seed: u64) -> Self {
        Self { lots: Lots(seed), run: None }
    }
}

impl Policy for LocalFirst {
    fn name(&self) -> &'static str {
        "local_first"
    }

    fn reads_queues(&self) -> bool {
        false
    }

    fn choose(&mut self, waiting: &Waiting, targets: &Targets) -> Option<Choice> {
        if let Some(choice) = Run::resume(&mut self.run, waiting, targets) {
            return Some(choice);
        }
        let near = by_lot(&mut self.lots, targets, targets.local());
        let target = near.or_else(|| by_lot(&mut self.lots, targets, 0..targets.len()))?;
        Some(Run::begin(&mut self.run, target, waiting))
    }

    fn sent(&mut self, rows: u32) {
        Run::spend(&mut self.run, rows);
    }
}
