//! Policies that look at queues alone: the shortest of all, or of two by lot.

use super::{Choice, Policy, Target, Targets, Waiting};
use crate::route::rank::{Lots, mix};

/// `jsq`: the target with the fewest rows, cost aside. Ties are broken by a lot per choice.
#[derive(Debug)]
pub(super) struct Shortest {
    seed: u64,
    choices: u64,
}

impl Shortest {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, choices: 0 }
    }
}

impl Policy for Shortest {
    fn name(&self) -> &'static str {
        "jsq"
    }

    fn choose(&mut self, waiting: &Waiting, targets: &Targets) -> Option<Choice> {
        self.choices += 1;
        let turn = mix(self.seed ^ self.choices);
        let order = |target: &Target| (target.queued, mix(turn ^ u64::from(target.instance)));
        let open = targets.list().iter().enumerate().filter(|(_, target)| target.is_open());
        let (target, _) = open.min_by_key(|(_, target)| order(target))?;
        Some(Choice { target, rows: until_passed(target, waiting, targets) })
    }

    fn sent(&mut self, _: u32) {}
}

/// `p2c`: of two targets drawn by lot the one with fewer rows.
#[derive(Debug)]
pub(super) struct TwoChoices {
    lots: Lots,
}

impl TwoChoices {
    pub(super) fn new(seed: u64) -> Self {
        Self { lots: Lots(seed) }
    }
}

impl Policy for TwoChoices {
    fn name(&self) -> &'static str {
        "p2c"
    }

    fn choose(&mut self, waiting: &Waiting, targets: &Targets) -> Option<Choice> {
        let open = || targets.list().iter().enumerate().filter(|(_, target)| target.is_open());
        let count = open().count() as u64;
        if count == 0 {
            return None;
        }
        let first = self.lots.below(count);
        // The second is another one, where there is another.
        let second = if count == 1 { first } else { (first + 1 + self.lots.below(count - 1)) % count };
        let drawn = |lot: u64| open().nth(lot as usize);
        let ((one, a), (other, b)) = (drawn(first)?, drawn(second)?);
        let (target, less, more) = if b.queued < a.queued { (other, b, a) } else { (one, a, b) };
        // As far as the other's length, then it is drawn anew.
        let rows = (more.queued - less.queued).max(1).min(waiting.rows).min(u64::from(waiting.deal));
        Some(Choice { target, rows: rows as u32 })
    }

    fn sent(&mut self, _: u32) {}
}

/// Rows until the chosen queue is no longer the shortest.
fn until_passed(chosen: usize, waiting: &Waiting, targets: &Targets) -> u32 {
    let others = targets.list().iter().enumerate().filter(|(index, t)| *index != chosen && t.is_open());
    let next = others.map(|(_, target)| target.queued).min().unwrap_or(u64::MAX);
    let room = next.saturating_sub(targets.list()[chosen].queued).max(1);
    room.min(waiting.rows).min(u64::from(waiting.deal)) as u32
}
