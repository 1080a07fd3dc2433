//! How the bound of what waits is divided over the channels.

use std::sync::Arc;

use super::channel::PARTS;
use super::{Inbox, State, Upstream};
use crate::exchange::credit::LEAST_WINDOW;
use crate::sync::lock;

/// In the `default` setting what waits at an instance takes about this long (engine.md section 5).
const QUEUE_TIME_NS: u64 = 100_000_000;

impl Inbox {
    /// Divides the bound over the channels: each 16 KiB, the rest by what was used in the last second
    /// (called ten times in it); less if what waits would take longer than [`QUEUE_TIME_NS`] at `ns_per_row`.
    pub(crate) fn adapt(&self, ns_per_row: u64, queue_time: bool) {
        let mut grants = Vec::new();
        {
            let mut state = lock(&self.state);
            let over = self.budget.over();
            state.divide(ns_per_row, queue_time);
            for channel in &mut state.channels {
                if channel.raise(over)
                    && let Upstream::Local(credit) = &channel.upstream
                {
                    grants.push((Arc::clone(credit), channel.limit, channel.window_now(over)));
                }
            }
        }
        for (credit, limit, window) in grants {
            credit.grant(limit, window);
        }
    }
}

impl State {
    fn divide(&mut self, ns_per_row: u64, queue_time: bool) {
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
