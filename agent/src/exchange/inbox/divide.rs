//! How the bound of an inbox is divided over its channels: by what they use, and by the time that rows take.

use super::State;
use super::channel::PARTS;
use crate::exchange::credit::LEAST_WINDOW;

/// In the `default` setting what waits at an instance takes about this long (engine.md section 5).
const QUEUE_TIME_NS: u64 = 100_000_000;

impl State {
    /// See [`super::Inbox::adapt`].
    pub(super) fn divide(&mut self, ns_per_row: u64, queue_time: bool) {
        // What grows has no share of the bound.
        let bounded = || self.channels.iter().filter(|c| !c.grows());
        let open = bounded().filter(|c| !c.ended).count() as u64;
        if open == 0 {
            return;
        }
        let parts: u64 = bounded().map(|c| c.used_rows).sum();
        let bytes: u64 = bounded().map(|c| c.used).sum();
        // After a pause the rows are taken to be what they were.
        self.row_bytes = bytes.saturating_mul(PARTS).checked_div(parts).unwrap_or(self.row_bytes);
        let row = self.row_bytes.max(1);
        let mut bound = self.bound;
        if queue_time && ns_per_row > 0 && self.row_bytes > 0 {
            bound = bound.min((QUEUE_TIME_NS / ns_per_row).saturating_mul(row));
        }
        bound = bound.max(2 * row * open);
        let base = LEAST_WINDOW.min(bound / open);
        let rest = bound - base * open;
        for channel in self.channels.iter_mut().filter(|c| !c.grows()) {
            let share = (u128::from(rest) * u128::from(channel.used)).checked_div(u128::from(bytes));
            channel.window = base + share.unwrap_or(0) as u64;
            channel.used -= channel.used.div_ceil(10);
            channel.used_rows -= channel.used_rows.div_ceil(10);
        }
    }
}
