//! Channels whose rows are read behind those that have come on others: who sends on them goes on where others have stopped.

use super::{Channel, Inbox, State};
use crate::sync::lock;

/// Rows of a channel wait until rows of another one have been taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Behind {
    /// Those that have come when so many had.
    from: u64,
    /// The other channel.
    channel: usize,
    /// So many of its rows.
    rows: u64,
}

impl Channel {
    /// Rows that were taken.
    fn taken_rows(&self) -> u64 {
        self.received_rows - self.queued_rows
    }
}

impl Inbox {
    /// Rows that come on a channel from now on are read when all that have come on another one by now have been.
    pub(crate) fn read_behind(&self, then: usize, first: usize) {
        let mut state = lock(&self.state);
        let (from, rows) = (state.channels[then].received_rows, state.channels[first].received_rows);
        if state.channels[first].taken_rows() < rows {
            state.channels[then].behind.push(Behind { from, channel: first, rows });
        }
    }
}

impl State {
    /// The next rows of a channel wait for those of another. What waits is always younger than what it waits for, so that
    /// some channel can be read.
    pub(super) fn waits_for_others(&mut self, index: usize) -> bool {
        if self.channels[index].behind.is_empty() {
            return false;
        }
        let mut behind = std::mem::take(&mut self.channels[index].behind);
        behind.retain(|wait| self.channels[wait.channel].taken_rows() < wait.rows);
        let taken = self.channels[index].taken_rows();
        let waits = behind.iter().any(|wait| taken >= wait.from);
        self.channels[index].behind = behind;
        waits
    }
}
