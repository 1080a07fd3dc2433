//! What is left of targets and senders of an edge that are no more: sums, and places for others.

use std::collections::{BTreeMap, VecDeque};

use super::{Edge, State};
use crate::exchange::mark::Mark;
use crate::exchange::outlet::{Link, Outlet};
use crate::sync::lock;

/// So many targets that are no more are listed one by one, the newest.
const LISTED: usize = 64;

/// What went to targets that are no more.
#[derive(Debug, Default)]
pub(super) struct Gone {
    /// (target instance, its agent, rows, bytes)
    listed: VecDeque<(u32, u16, u64, u64)>,
    /// What went to older ones, by agent: rows and bytes.
    folded: BTreeMap<u16, (u64, u64)>,
}

impl Gone {
    pub(super) fn add(&mut self, outlet: &Outlet) {
        self.listed.push_back((outlet.instance, outlet.agent, outlet.sent_rows, outlet.sent_bytes));
        if self.listed.len() > LISTED
            && let Some((_, agent, rows, bytes)) = self.listed.pop_front()
        {
            let sum = self.folded.entry(agent).or_default();
            *sum = (sum.0 + rows, sum.1 + bytes);
        }
    }

    pub(super) fn listed(&self) -> impl Iterator<Item = (u32, u16, u64, u64)> {
        self.listed.iter().copied()
    }

    pub(super) fn folded(&self) -> Vec<(u16, u64, u64)> {
        self.folded.iter().map(|(agent, (rows, bytes))| (*agent, *rows, *bytes)).collect()
    }
}

impl State {
    /// Targets leave the list: their last word is the end.
    pub(super) fn let_go(&mut self, gone: Vec<Outlet>) {
        for outlet in gone {
            outlet.mark(Mark::End);
            if let Link::Remote { session, key } = &outlet.link {
                // Nothing more is sent, and so no credit is needed.
                session.remove_channel(*key);
            }
            self.gone.add(&outlet);
        }
    }
}

impl Edge {
    /// The place of a sender that has ended is free for another one. Of an instance all edges must be told so before
    /// another instance joins any of them: its places are the same on all.
    pub(crate) fn free(&self, sender: usize, instance: u32) {
        let mut state = lock(&self.state);
        let known = state.senders.get(sender).is_some_and(|of| of.instance == instance && of.is_over());
        // Senders of an edge in order have channels of their own, which go with their places.
        if known && state.channels == super::Channels::Shared && !state.free.contains(&sender) {
            state.free.insert(sender);
        }
    }

    /// How many places it has for senders.
    #[cfg(test)]
    pub(crate) fn places(&self) -> usize {
        lock(&self.state).senders.len()
    }
}
