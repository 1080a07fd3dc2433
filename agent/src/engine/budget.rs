//! How many bytes queued rows may keep alive: of an agent, or of one run whose queues grow.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::sync::{AtomicU64, Ordering};

/// Of the memory of a run whose queues grow they may fill so many percent.
pub(crate) const MAY_FILL: u64 = 90;

/// A budget for queued rows.
#[derive(Debug)]
pub struct Budget {
    used: AtomicU64,
    limit: u64,
    /// Where somebody waits for it to be filled: so far.
    mark: Option<u64>,
    filled: Notify,
}

impl Budget {
    /// A budget of `limit` bytes, of an agent: over it senders are slowed down.
    pub fn new(limit: u64) -> Arc<Self> {
        Self::with(limit, None)
    }

    /// The budget of a run whose queues grow: [`Budget::filled`] says when these fill [`MAY_FILL`] percent of it.
    pub(crate) fn to_fill(limit: u64) -> Arc<Self> {
        let mark = u128::from(limit) * u128::from(MAY_FILL) / 100;
        Self::with(limit, Some(mark.max(1) as u64))
    }

    fn with(limit: u64, mark: Option<u64>) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), limit, mark, filled: Notify::new() })
    }

    /// Bytes that queued rows keep alive.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The bound.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// More is alive than allowed: grant one frame per channel, no more.
    pub fn over(&self) -> bool {
        self.used() > self.limit
    }

    /// Waits until it is filled as far as it may be; for ever where that is nobody's matter.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }

    pub(super) fn take(&self, bytes: u64) {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if self.mark.is_some_and(|mark| before < mark && before.saturating_add(bytes) >= mark) {
            self.filled.notify_one();
        }
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn who_waits_is_told_when_nine_tenths_are_filled() {
        let budget = Budget::to_fill(1000);
        let filled = || budget.filled().now_or_never().is_some();
        budget.take(899);
        assert!(!filled());
        budget.take(1);
        assert!(filled());
        assert!(!budget.over(), "there is room until the run has ended");
        let agents = Budget::new(1000);
        agents.take(5000);
        assert!(agents.filled().now_or_never().is_none() && agents.over());
    }
}
