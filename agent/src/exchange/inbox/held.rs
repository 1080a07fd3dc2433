//! Channels on which older rows may follow: until these have come they stand where their instance stands.

use tuplane_core::time::Standing;

use super::{Channel, State, Taken};

/// See [`crate::exchange::mark::Mark::Hold`].
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// So often it was said and not taken back: groups of key partitions follow each other.
    times: u32,
    /// Where the instance stood when it was said first.
    at: Option<i64>,
}

impl Channel {
    /// Where it counts as standing.
    pub(super) fn counted(&self) -> Standing {
        if self.holding.times == 0 {
            return self.standing;
        }
        Standing { watermark: self.standing.watermark.min(self.holding.at), idle: false }
    }
}

impl State {
    /// Older rows may follow on a channel. It is said ahead of what waits there.
    pub(super) fn hold(&mut self, channel: usize) {
        let now = self.least.watermark();
        let channel = &mut self.channels[channel];
        if channel.ended {
            return;
        }
        if channel.holding.times == 0 {
            channel.holding.at = now;
        }
        channel.holding.times += 1;
        // It may be that all others are idle.
        self.recheck = true;
    }

    /// The older rows of a channel have been taken.
    pub(super) fn resume(&mut self, channel: usize) -> Option<Taken> {
        let holding = &mut self.channels[channel].holding;
        holding.times = holding.times.saturating_sub(1);
        self.advance()
    }
}
