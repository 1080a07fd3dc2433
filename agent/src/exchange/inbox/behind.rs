//! Channels whose rows are read behind those that have come on others: who sends on them goes on where others have stopped.

use std::collections::{BTreeSet, VecDeque};

use super::{Inbox, State};
use crate::engine::rows::Rows;
use crate::exchange::mark::{Item, Mark};
use crate::sync::lock;

/// What waits on a channel.
#[derive(Debug)]
pub(super) enum Queued {
    Rows(Rows),
    Mark(Mark),
    /// All that is in front of it is read before what another channel has behind [`Queued::Then`] with this number.
    First(u32),
    /// What is behind it is read once [`Queued::First`] has been reached.
    Then(u32),
}

impl From<Item> for Queued {
    fn from(item: Item) -> Self {
        match item {
            Item::Rows(rows) => Self::Rows(rows),
            Item::Mark(mark) => Self::Mark(mark),
        }
    }
}

/// Which channels wait for others. It stands in their queues, so that it is right whatever leaves those with key partitions.
#[derive(Debug, Default)]
pub(super) struct Turns {
    last: u32,
    /// Those that have not been reached.
    open: BTreeSet<u32>,
}

impl Turns {
    /// Whoever has this behind it has to wait.
    pub(super) fn waits(&self, number: u32) -> bool {
        self.open.contains(&number)
    }

    /// What was in front of it has been read.
    pub(super) fn reached(&mut self, number: u32) {
        self.open.remove(&number);
    }

    /// Goes through what waits on all channels, in an order in which it may be read.
    pub(super) fn walk(&self, queues: &mut [VecDeque<Queued>], mut call: impl FnMut(usize, Queued)) {
        let mut open = self.open.clone();
        loop {
            let mut went = false;
            for (channel, queue) in queues.iter_mut().enumerate() {
                while let Some(next) =
                    queue.pop_front_if(|next| !matches!(next, Queued::Then(n) if open.contains(n)))
                {
                    if let Queued::First(number) = next {
                        open.remove(&number);
                    }
                    call(channel, next);
                    went = true;
                }
            }
            if !went {
                return;
            }
        }
    }
}

impl Inbox {
    /// Rows that come on a channel from now on are read when all that have come on another one by now have been.
    pub(crate) fn read_behind(&self, then: usize, first: usize) {
        let mut state = lock(&self.state);
        let State { channels, turns, closed, .. } = &mut *state;
        if *closed || !channels[first].queue.iter().any(|item| matches!(item, Queued::Rows(_))) {
            return;
        }
        turns.last += 1;
        turns.open.insert(turns.last);
        channels[first].append(Queued::First(turns.last));
        channels[then].append(Queued::Then(turns.last));
    }
}
