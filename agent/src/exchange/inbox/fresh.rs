//! What an inbox says of its instance to those who send to it.

use std::sync::Arc;
use std::time::Duration;

use super::{Channel, Inbox, Note, State, Upstream};
use crate::exchange::load::{Load, Watch};
use crate::sync::lock;

impl Inbox {
    /// What its instance has to do.
    pub(crate) fn load(&self) -> &Arc<Load> {
        &self.load
    }

    /// Its instance waits for room in its output queues, or does so no more.
    pub(crate) fn set_blocked(&self, blocked: bool) {
        if self.load.set_blocked(blocked) {
            lock(&self.state).watchers.tell();
        }
    }

    /// Senders of this edge price by the length of this queue: those on other agents are told of changes
    /// within `gap`; `None`: they do so no more.
    pub(crate) fn keep_fresh(&self, edge: u32, gap: Option<Duration>) {
        let mut state = lock(&self.state);
        let State { watchers, channels, inputs, .. } = &mut *state;
        let of_edge = channels.iter().filter(|channel| inputs[channel.input].edge == edge);
        let remote = |channel: &Channel| match &channel.upstream {
            Upstream::Remote(notes) => Some(Watch::new(Arc::clone(notes), gap?)),
            Upstream::Local(_) => None,
        };
        watchers.set(edge, of_edge.filter_map(remote));
    }

    /// What a note to the sender of a channel says.
    pub(crate) fn note(&self, channel: usize) -> Note {
        let mut state = lock(&self.state);
        let over = self.budget.over();
        let channel = &mut state.channels[channel];
        channel.raise(over);
        Note {
            limit: channel.limit,
            window: channel.window_now(over),
            received_rows: channel.received_rows,
            queued_rows: self.load.queued(),
            capacity: self.load.capacity(),
        }
    }
}
