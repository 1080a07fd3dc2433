//! Rows of an edge that wait for more than room: senders that are not held up before their targets read.

use std::sync::Arc;
use std::time::Instant;

use tuplane_core::cluster::DROPPED_BY_STOP;
use tuplane_expr::arrow::error::ArrowError;

use super::{Edge, Sender, State};
use crate::engine::rows::Rows;
use crate::exchange::mark::Item;
use crate::exchange::outlet::Outlets;
use crate::exchange::overflow::{Overflow, OverflowError};
use crate::sync::lock;

/// Why rows cannot be appended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppendError {
    #[error(transparent)]
    Rows(#[from] ArrowError),
    #[error(transparent)]
    Overflow(#[from] OverflowError),
}

impl Edge {
    /// A sender's rows for which its queue has no room go there: it is not held up by a target before all of them
    /// have begun to read, but by a disk that is slower than itself.
    pub(crate) fn let_spill(&self, sender: usize, overflow: Overflow) {
        let mut state = lock(&self.state);
        let copies = self.routes.copies(state.reach.width);
        state.senders[sender].overflow = Some(overflow.on_edge(copies, Arc::clone(&self.wake)));
    }

    /// Only the sender itself appends, so that what was full before may be empty by now, but not the other
    /// way round.
    pub(super) fn append_to_overflow(&self, sender: usize, rows: Rows) -> Result<(), AppendError> {
        let mut state = lock(&self.state);
        let count = rows.len() as u64 * self.routes.copies(state.reach.width);
        state.emitted += count;
        if state.closed {
            *state.dropped.entry(DROPPED_BY_STOP).or_default() += count;
            return Ok(());
        }
        state.pace.add(count, Instant::now());
        let on_disk = state.senders.iter().flat_map(|s| &s.overflow).map(Overflow::on_disk).sum();
        if let Some(overflow) = &mut state.senders[sender].overflow {
            overflow.push(rows, on_disk)?;
        }
        self.refill(&mut state, sender);
        self.settle(&mut state);
        Ok(())
    }

    /// Rows and marks that wait beyond the queue's bound go into it as far as there is room.
    pub(super) fn refill(&self, state: &mut State, number: usize) {
        let (mut moved, reach) = (false, Arc::clone(&state.reach));
        loop {
            let sender = &mut state.senders[number];
            let full = sender.is_queue_full();
            let Some(overflow) = &mut sender.overflow else { return };
            let next = match overflow.check().map(|()| !full && !overflow.is_empty()) {
                Ok(true) => overflow.next(),
                Ok(false) => break,
                Err(error) => Err(error),
            };
            let next = match next {
                Ok(Some(Item::Rows(rows))) => {
                    let pieces = self.routes.divide(rows, &reach);
                    pieces.and_then(|pieces| sender.queue.append(pieces)).map(drop).map_err(|e| e.to_string())
                }
                Ok(Some(Item::Mark(mark))) => {
                    sender.queue.mark(mark);
                    Ok(())
                }
                // What comes next is being read.
                Ok(None) => break,
                Err(error) => Err(error.to_string()),
            };
            if let Err(cause) = next {
                state.fail(cause);
                self.wake.notify_one();
                return;
            }
            moved = true;
            state.release(number, self.deal);
        }
        let sender = &mut state.senders[number];
        let caught_up = sender.overflow.as_mut().is_some_and(Overflow::has_caught_up);
        if caught_up || moved && !sender.is_at_bound() {
            sender.room.notify_one();
        }
    }
}

impl Sender {
    /// Rows that wait.
    pub(super) fn rows(&self) -> u64 {
        self.queue.rows() + self.overflow.as_ref().map_or(0, Overflow::rows)
    }

    /// What waits in memory is as much as may.
    pub(super) fn is_queue_full(&self) -> bool {
        self.queue.bytes() >= self.bound
    }

    /// Its next watermark waits.
    pub(super) fn is_woken(&self) -> bool {
        self.queue.wakes() || self.overflow.as_ref().is_some_and(Overflow::wakes)
    }

    pub(super) fn is_at_bound(&self) -> bool {
        self.is_queue_full() || self.overflow.as_ref().is_some_and(|o| !o.is_empty())
    }

    /// Drops what waits; gives the rows.
    pub(super) fn clear(&mut self) -> u64 {
        self.queue.clear() + self.overflow.as_mut().map_or(0, Overflow::clear)
    }
}

impl State {
    /// A sender's next rows go to its overflow.
    pub(super) fn is_spilling(&self, sender: usize) -> bool {
        let sender = &self.senders[sender];
        sender.overflow.is_some() && sender.is_at_bound()
    }

    /// Every target reads its channel: nothing that they wait for is held up by a sender that waits.
    pub(super) fn is_read(&self) -> bool {
        self.outlets.iter().flat_map(Outlets::list).all(|outlet| outlet.credit.is_read())
    }

    pub(super) fn fail(&mut self, cause: String) {
        self.failed.get_or_insert(cause);
    }
}
