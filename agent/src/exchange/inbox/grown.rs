//! Queues of an inbox that grow: the memory of the job bounds them, and nothing else (`overflow = "grow"`).

use std::collections::VecDeque;

use super::behind::Queued;
use super::{Channel, Inbox};
use crate::engine::rows::Rows;
use crate::exchange::credit::UNBOUNDED;
use crate::sync::lock;

/// Small pieces of a long queue are joined, so many at a time: a batch of a row takes ten times the memory of its row.
const JOINED: usize = 64;
/// A piece is small that has at most so many rows ...
const SMALL_ROWS: usize = 16;
/// ... and bytes.
const SMALL_BYTES: u64 = 2 << 10;

impl Inbox {
    /// What waits at an input has no bound: its senders have credit without end.
    pub(crate) fn let_grow(&self, input: usize) {
        let mut state = lock(&self.state);
        state.inputs[input].grows = true;
        state.channels.iter_mut().filter(|channel| channel.input == input).for_each(Channel::let_grow);
    }
}

impl Channel {
    /// Its queue has no bound from now on.
    pub(super) fn let_grow(&mut self) {
        (self.limit, self.window) = (UNBOUNDED, UNBOUNDED);
    }

    /// Something has come that waits. In a queue that grows small pieces are joined.
    pub(super) fn append(&mut self, item: Queued) {
        let small =
            matches!(&item, Queued::Rows(rows) if rows.len() <= SMALL_ROWS && rows.bytes() <= SMALL_BYTES);
        self.queue.push_back(item);
        if !self.grows() {
            return;
        }
        // Some may have been taken since.
        self.loose = if small { (self.loose + 1).min(self.queue.len()) } else { 0 };
        if self.loose >= JOINED {
            join_last(&mut self.queue, self.loose);
            self.loose = 0;
        }
    }
}

/// The last so many pieces, all of them rows, become one. Where they cannot be joined they stay as they are.
fn join_last(queue: &mut VecDeque<Queued>, count: usize) {
    let from = queue.len() - count;
    let pieces = queue.range(from..).filter_map(|item| match item {
        Queued::Rows(rows) => Some(rows.clone()),
        _ => None,
    });
    let pieces: Vec<Rows> = pieces.collect();
    if pieces.len() == count
        && let Ok(Some(joined)) = Rows::join(&pieces)
    {
        queue.truncate(from);
        queue.push_back(Queued::Rows(joined));
    }
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests;
