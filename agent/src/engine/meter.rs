//! How large an instance's state is, looked at now and then.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::instance::ADAPT;
use super::ledger::Counters;
use super::operator::Operator;

/// When to look how large an operator's state is: for as little of the time as says it soon.
pub(super) struct StateMeter {
    looked: Instant,
    /// What the last look took, many times over.
    pause: Duration,
    /// It may have changed.
    pub(super) changed: bool,
}

impl StateMeter {
    pub(super) fn new() -> Self {
        Self { looked: Instant::now(), pause: ADAPT, changed: false }
    }

    /// When to look next, if there may be something new.
    pub(super) fn due(&self) -> Option<Instant> {
        self.changed.then(|| self.looked + self.pause)
    }

    pub(super) fn look(&mut self, operator: &dyn Operator, counters: &Counters) {
        let began = Instant::now();
        if self.due().is_none_or(|due| due > began) {
            return;
        }
        counters.state_bytes.store(operator.state_bytes() as u64, Ordering::Relaxed);
        // A fiftieth of the time at the most.
        (self.looked, self.changed) = (began, false);
        self.pause = ADAPT.max(began.elapsed() * 50);
    }
}
