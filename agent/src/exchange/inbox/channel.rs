//! One channel of an inbox.

use std::collections::VecDeque;

use tuplane_core::time::Standing;

use std::sync::Arc;

use super::behind::Queued;
use super::held::Holding;
use super::{Grant, Upstream};
use crate::exchange::credit::{LEAST_WINDOW, UNBOUNDED};
use crate::exchange::mark::Mark;

/// Parts that a row is counted in: a tenth of few whole rows is none or all of them, and then their mean size is anything.
pub(super) const PARTS: u64 = 1 << 10;

/// What has come on one channel and was not taken, and its credit.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) input: usize,
    pub(super) upstream: Upstream,
    pub(super) queue: VecDeque<Queued>,
    pub(super) queued_rows: u64,
    pub(super) received_rows: u64,
    pub(super) taken_bytes: u64,
    /// `taken_bytes` when credit was last given.
    pub(super) granted_at: u64,
    pub(super) limit: u64,
    pub(super) window: u64,
    /// Bytes taken in the last second or so, and rows, these in [`PARTS`]: each division forgets a tenth.
    pub(super) used: u64,
    pub(super) used_rows: u64,
    pub(super) standing: Standing,
    pub(super) holding: Holding,
    pub(super) barrier: Option<u64>,
    /// Not read now; see [`super::Reading::ByChannel`].
    pub(super) held: bool,
    /// So many ends are still to come: see [`super::Inbox::reopen`].
    pub(super) opens: u32,
    /// So many small pieces stand last in the queue, one behind the other.
    pub(super) loose: usize,
    pub(super) ended: bool,
    /// Nobody has its number any more.
    pub(super) left: bool,
}

impl Channel {
    pub(super) fn new(input: usize, upstream: Upstream) -> Self {
        Self {
            input,
            upstream,
            queue: VecDeque::new(),
            queued_rows: 0,
            received_rows: 0,
            taken_bytes: 0,
            granted_at: 0,
            limit: LEAST_WINDOW,
            window: LEAST_WINDOW,
            used: 0,
            used_rows: 0,
            standing: Standing::default(),
            holding: Holding::default(),
            barrier: None,
            held: false,
            opens: 1,
            loose: 0,
            ended: false,
            left: false,
        }
    }

    /// Its queue has no bound of its own.
    pub(super) fn grows(&self) -> bool {
        self.window == UNBOUNDED
    }

    /// Nothing follows behind what has come.
    pub(super) fn is_over(&self) -> bool {
        let ends = self.queue.iter().filter(|item| matches!(item, Queued::Mark(Mark::End)));
        self.ended || ends.count() as u32 >= self.opens
    }

    /// What the sender cuts its frames by: over the agent's budget they are small, since every channel
    /// may send one.
    pub(super) fn window_now(&self, over: bool) -> u64 {
        if over { self.window.min(LEAST_WINDOW) } else { self.window }
    }

    /// What its sender is to be told of its credit.
    pub(super) fn grant(&self, over: bool) -> Grant {
        match &self.upstream {
            Upstream::Local(credit) => Grant::Local(Arc::clone(credit), self.limit, self.window_now(over)),
            Upstream::Remote(session) => Grant::Remote(Arc::clone(session)),
        }
    }

    /// Raises the limit to what the window allows now. Over the agent's budget only a channel
    /// whose queue is empty may send, and only one frame.
    pub(super) fn raise(&mut self, over: bool) -> bool {
        self.granted_at = self.taken_bytes;
        if self.grows() {
            return false;
        }
        let window = if over { 1 } else { self.window };
        let limit = self.taken_bytes + window;
        let raised = limit > self.limit;
        self.limit = self.limit.max(limit);
        raised
    }
}
