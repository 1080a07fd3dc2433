//! The sending ends of an edge's channels.

use std::sync::Arc;

use super::credit::Credit;
use super::inbox::Inbox;
use super::mark::{Item, Mark};
use super::outbound::{ChannelKey, Outbound};
use crate::engine::rows::Rows;

/// Where a channel's rows go.
#[derive(Debug, Clone)]
pub(crate) enum Link {
    /// An instance on this agent.
    Local { inbox: Arc<Inbox>, channel: usize },
    /// An instance on another agent.
    Remote { session: Arc<Outbound>, key: ChannelKey },
}

/// The sending end of one channel.
#[derive(Debug)]
pub(crate) struct Outlet {
    /// Dense id of the target instance.
    pub(crate) instance: u32,
    /// Its agent's index in the run.
    pub(crate) agent: u16,
    pub(crate) credit: Arc<Credit>,
    pub(crate) link: Link,
    pub(crate) sent_rows: u64,
    pub(crate) sent_bytes: u64,
}

/// The sending ends of all channels of one edge on one agent: the agent's own targets first.
#[derive(Debug, Default)]
pub(crate) struct Outlets {
    list: Vec<Outlet>,
}

impl Outlets {
    pub(crate) fn new(list: Vec<Outlet>) -> Self {
        Self { list }
    }

    pub(crate) fn list(&self) -> &[Outlet] {
        &self.list
    }

    /// The channel has credit for one frame; if not, the next grant wakes the edge.
    pub(crate) fn open(&self, outlet: usize) -> bool {
        let outlet = &self.list[outlet];
        outlet.credit.allows(outlet.sent_bytes)
    }

    /// Most bytes of the next frame.
    pub(crate) fn frame(&self, outlet: usize) -> u64 {
        self.list[outlet].credit.frame()
    }

    /// Sends rows; there was credit.
    pub(crate) fn send(&mut self, outlet: usize, rows: Rows) {
        let outlet = &mut self.list[outlet];
        outlet.sent_rows += rows.len() as u64;
        outlet.sent_bytes += rows.bytes();
        match &outlet.link {
            Link::Local { inbox, channel } => inbox.push(*channel, Item::Rows(rows)),
            Link::Remote { session, key } => {
                session.send(*key, rows);
                // Without credit nothing can be added to what waits: there is nothing to wait for.
                if !outlet.credit.allows(outlet.sent_bytes) {
                    session.flush();
                }
            }
        }
    }

    /// Sends a mark to every target: one frame per other agent, which fans it out there.
    pub(crate) fn send_mark(&self, mark: Mark) {
        let mut told: Vec<*const Outbound> = Vec::new();
        for outlet in &self.list {
            match &outlet.link {
                Link::Local { inbox, channel } => inbox.push(*channel, Item::Mark(mark)),
                Link::Remote { session, key } => {
                    if !told.contains(&Arc::as_ptr(session)) {
                        told.push(Arc::as_ptr(session));
                        session.send_mark(key.run, key.edge, mark);
                    }
                }
            }
        }
    }

    /// Lets what waits in sessions leave now.
    pub(crate) fn flush(&self) {
        for outlet in &self.list {
            if let Link::Remote { session, .. } = &outlet.link {
                session.flush();
            }
        }
    }
}
