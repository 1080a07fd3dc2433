//! The sending ends of an edge's channels.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::credit::Credit;
use super::inbox::Inbox;
use super::mark::{Item, Mark};
use super::outbound::{ChannelKey, Outbound};
use super::session::SILENCE;
use crate::engine::rows::Rows;

/// What is known of a target is no ground for a choice when it is older: notes come ten times a second.
const OLDEST: Duration = SILENCE.saturating_add(Duration::from_millis(100));

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

impl Outlet {
    /// Says something to this target alone; it follows all rows of the channel so far.
    pub(crate) fn mark(&self, mark: Mark) {
        match &self.link {
            Link::Local { inbox, channel } => inbox.push(*channel, Item::Mark(mark)),
            Link::Remote { session, key } => session.send_mark_to(*key, mark),
        }
    }
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

    /// Rows of this mean size that the channel takes now: at least one while it has credit.
    pub(crate) fn rows_open(&self, outlet: usize, row_bytes: u64) -> u64 {
        if !self.open(outlet) {
            return 0;
        }
        let outlet = &self.list[outlet];
        (outlet.credit.left(outlet.sent_bytes) / row_bytes.max(1)).max(1)
    }

    /// Rows that the target has to do and those on their way to it, as far as they are known here.
    pub(crate) fn queued(&self, outlet: usize, now: Instant, dead_reckoning: bool) -> u64 {
        let outlet = &self.list[outlet];
        match &outlet.link {
            Link::Local { inbox, .. } => inbox.load().queued(),
            Link::Remote { .. } => match outlet.credit.told() {
                Some(told) => told.queued_now(outlet.sent_rows, now, dead_reckoning),
                None => outlet.sent_rows,
            },
        }
    }

    /// Age of what is known of a target on another agent.
    pub(crate) fn age(&self, outlet: usize, now: Instant) -> Option<Duration> {
        self.list[outlet].credit.told().map(|told| told.age(now))
    }

    /// The target's agent is not heard of, or has not spoken of the target for too long.
    pub(crate) fn is_silent(&self, outlet: usize, now: Instant) -> bool {
        match &self.list[outlet].link {
            Link::Local { .. } => false,
            Link::Remote { session, .. } => {
                !session.is_up() || self.age(outlet, now).is_some_and(|age| age > OLDEST)
            }
        }
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

    /// These targets come, and those that are not kept go; gives the latter. The agent's own stay first.
    pub(crate) fn retarget(&mut self, add: Vec<Outlet>, keep: &dyn Fn(u32) -> bool, me: u16) -> Vec<Outlet> {
        let (mut kept, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.list).into_iter().partition(|outlet| keep(outlet.instance));
        kept.extend(add);
        kept.sort_by_key(|outlet| (outlet.agent != me, outlet.agent, outlet.instance));
        self.list = kept;
        gone
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
