//! A channel's credit: an absolute number of bytes that its sender may have sent by now.

use std::sync::Arc;

use tokio::sync::Notify;

use super::load::Told;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};

/// Each channel's window is at least this large unless the queue's bound is smaller still.
pub(crate) const LEAST_WINDOW: u64 = 16 << 10;
/// The first window of an instance that joins a run: how long its rows take is known when it has had some, and until
/// then few wait there, so that it could end again soon. Wide rows come one by one.
pub(crate) const FIRST_WINDOW: u64 = 512;
/// The window of a channel whose queue grows: no total of bytes comes near.
pub(crate) const UNBOUNDED: u64 = u64::MAX >> 1;
/// No frame is larger, unless it is one row.
const MOST_FRAME: u64 = 256 << 10;

/// The credit of one channel as its sender sees it. Whoever learns of new credit (the receiving
/// instance on the same agent, or the session) writes it here and wakes the edge.
#[derive(Debug)]
pub(crate) struct Credit {
    limit: AtomicU64,
    window: AtomicU64,
    /// The last release found no credit: the next grant must wake the edge.
    starved: AtomicBool,
    edge: Arc<Notify>,
    /// The last word of a target on another agent.
    told: Mutex<Option<Told>>,
}

impl Credit {
    pub(crate) fn new(edge: Arc<Notify>) -> Arc<Self> {
        Self::with(edge, LEAST_WINDOW)
    }

    /// With a first window of so many bytes.
    pub(crate) fn with(edge: Arc<Notify>, window: u64) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicU64::new(window),
            window: AtomicU64::new(window),
            starved: AtomicBool::new(false),
            edge,
            told: Mutex::new(None),
        })
    }

    /// A grant: `limit` bytes in all since the channel began. Totals are absolute, so a grant that
    /// comes late or twice does no harm.
    pub(crate) fn grant(&self, limit: u64, window: u64) {
        self.window.store(window, Ordering::Relaxed);
        // Sequentially consistent here and in `allows`: each side writes one of the two and then
        // reads the other, and with less both could read the old value. Repeated grants wake too,
        // so that whatever went wrong heals within 100 ms.
        self.limit.fetch_max(limit, Ordering::SeqCst);
        if self.starved.swap(false, Ordering::SeqCst) {
            self.edge.notify_one();
        }
    }

    /// The target has said how it stands.
    pub(crate) fn tell(&self, told: Told) {
        *lock(&self.told) = Some(told);
    }

    /// The last that the target has said.
    pub(crate) fn told(&self) -> Option<Told> {
        *lock(&self.told)
    }

    /// A sender that has sent `sent` bytes may send one frame more, and overdraw by it. If not,
    /// the next grant wakes the edge.
    pub(crate) fn allows(&self, sent: u64) -> bool {
        if sent < self.limit.load(Ordering::SeqCst) {
            return true;
        }
        self.starved.store(true, Ordering::SeqCst);
        // A grant between the two lines above saw `starved` unset: look again.
        sent < self.limit.load(Ordering::SeqCst)
    }

    /// Bytes that may still be sent, beside the frame that overdraws.
    pub(crate) fn left(&self, sent: u64) -> u64 {
        self.limit.load(Ordering::SeqCst).saturating_sub(sent)
    }

    /// The receiver has said that it reads this channel, or has read some of it.
    pub(crate) fn is_read(&self) -> bool {
        self.limit.load(Ordering::SeqCst) > LEAST_WINDOW
    }

    /// Most bytes of the next frame: half the window, at most 256 KiB.
    pub(crate) fn frame(&self) -> u64 {
        (self.window.load(Ordering::Relaxed) / 2).clamp(1, MOST_FRAME)
    }
}
