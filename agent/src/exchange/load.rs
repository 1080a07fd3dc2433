//! What an instance has to do, as those who send to it see it: queue lengths that are fresh, and who is told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use tokio::sync::Notify;
use tuplane_core::route::reckon;

use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};

/// What one instance has to do. Whoever changes it holds its inbox's lock; anybody may read it.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Rows that wait on inputs whose turn has come.
    waiting: AtomicU64,
    /// Rows that are being worked on.
    working: AtomicU64,
    /// The measured cost of a row; 0 while unknown.
    ns_per_row: AtomicU64,
    /// It waits for room in its output queues.
    blocked: AtomicBool,
}

impl Load {
    /// Rows that wait on inputs whose turn has come.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Rows that wait or are being worked on: `Q_in` of the publication.
    pub(crate) fn queued(&self) -> u64 {
        self.waiting() + self.working()
    }

    /// Rows that are being worked on.
    pub(crate) fn working(&self) -> u64 {
        self.working.load(Ordering::Relaxed)
    }

    /// Thousandths of a row that it does in a second as things are; 0 while it is blocked, or nothing is known.
    pub(crate) fn capacity(&self) -> u64 {
        if self.blocked.load(Ordering::Relaxed) {
            return 0;
        }
        1_000_000_000_000u64.checked_div(self.ns_per_row.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub(super) fn came(&self, rows: u64) {
        self.waiting.fetch_add(rows, Ordering::Relaxed);
    }

    /// Rows are taken out of the queue to be worked on; at no moment are they in neither.
    pub(super) fn taken(&self, rows: u64) {
        self.working.fetch_add(rows, Ordering::Relaxed);
        self.waiting.fetch_sub(rows, Ordering::Relaxed);
    }

    pub(super) fn set_waiting(&self, rows: u64) {
        self.waiting.store(rows, Ordering::Relaxed);
    }

    /// So many rows are done.
    pub(crate) fn done(&self, rows: u64) {
        self.working.fetch_sub(rows, Ordering::Relaxed);
    }

    /// Nothing is being worked on any more; gives what was.
    pub(crate) fn clear(&self) -> u64 {
        self.working.swap(0, Ordering::Relaxed)
    }

    /// A row costs so much.
    pub(crate) fn measured(&self, ns_per_row: u64) {
        self.ns_per_row.store(ns_per_row, Ordering::Relaxed);
    }

    /// It waits for room, or does so no more. True if that is new.
    pub(super) fn set_blocked(&self, blocked: bool) -> bool {
        self.blocked.swap(blocked, Ordering::Relaxed) != blocked
    }
}

/// When the notes to one sending agent are written.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Credit has changed, or an acknowledgement is due: now.
    pub(crate) due: Notify,
    /// A queue's length has changed that the other side prices by: within the gap.
    pub(crate) changed: Notify,
    /// How old lengths may be, for each of those who price by them.
    gaps: Mutex<Vec<Duration>>,
}

impl Notes {
    /// Least time between two such notes: that of whoever wants them freshest.
    pub(crate) fn gap(&self) -> Duration {
        lock(&self.gaps).iter().min().copied().unwrap_or_default()
    }

    /// Waits until a length has changed and the gap since `last` has passed.
    pub(crate) async fn wait_for_change(&self, last: Instant) {
        self.changed.notified().await;
        tokio::time::sleep_until((last + self.gap()).into()).await;
    }
}

/// Somebody on another agent prices by lengths that are so old at most, as long as this is kept.
#[derive(Debug)]
pub(super) struct Watch {
    notes: Arc<Notes>,
    gap: Duration,
}

impl Watch {
    pub(super) fn new(notes: Arc<Notes>, gap: Duration) -> Self {
        lock(&notes.gaps).push(gap);
        Self { notes, gap }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut gaps = lock(&self.notes.gaps);
        if let Some(mine) = gaps.iter().position(|gap| *gap == self.gap) {
            gaps.swap_remove(mine);
        }
    }
}

/// The last that a sender was told of a target on another agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    /// When it came.
    pub(crate) at: Instant,
    /// Rows of the channel that had been received.
    pub(crate) received: u64,
    /// Rows that waited or were being worked on.
    pub(crate) queued: u64,
    /// Thousandths of a row a second.
    pub(crate) capacity: u64,
}

impl Told {
    /// The queue's length now: what has been sent since is added. With `dead_reckoning` what the target has
    /// done since is taken off.
    pub(crate) fn queued_now(&self, sent: u64, now: Instant, dead_reckoning: bool) -> u64 {
        let capacity = if dead_reckoning { self.capacity as f64 / 1e3 } else { 0.0 };
        reckon(self.queued, sent.saturating_sub(self.received), capacity, self.age(now).as_micros() as u64)
    }

    /// How old it is.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }
}

/// Those who are told when a queue's length changes.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    /// By the edge that they price.
    list: SmallVec<[(u32, Watch); 2]>,
    /// They do not know yet that what was taken last is done.
    owed: bool,
}

impl Watchers {
    /// Those of an edge are these from now on.
    pub(super) fn set(&mut self, edge: u32, watchers: impl IntoIterator<Item = Watch>) {
        self.list.retain(|(of, _)| *of != edge);
        self.list.extend(watchers.into_iter().map(|watch| (edge, watch)));
        self.tell();
    }

    /// Rows have come or were taken.
    pub(super) fn changed(&mut self) {
        self.owed = true;
        self.tell();
    }

    /// Nothing is left: what was taken is done.
    pub(super) fn emptied(&mut self) {
        if std::mem::take(&mut self.owed) {
            self.tell();
        }
    }

    /// It does more or less in a second than before.
    pub(super) fn tell(&self) {
        for (_, watch) in &self.list {
            watch.notes.changed.notify_one();
        }
    }
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_since_is_added_and_what_was_done_since_is_taken_off() {
        let at = Instant::now();
        let told = Told { at, received: 10, queued: 4, capacity: 500_000 };
        let later = at + Duration::from_millis(10);
        assert_eq!(told.queued_now(13, later, false), 7);
        assert_eq!(told.queued_now(13, later, true), 2, "500 rows/s do 5 rows in 10 ms");
        assert_eq!(told.queued_now(10, later, true), 0, "no queue is less than empty");
        assert_eq!(told.queued_now(9, at, true), 4, "a note that overtook its rows");
        let stuck = Told { capacity: 0, ..told };
        assert_eq!(stuck.queued_now(13, later, true), 7);
    }

    #[test]
    fn notes_come_as_often_as_those_want_who_are_there() {
        let (notes, ms) = (Arc::<Notes>::default(), Duration::from_millis);
        let watch = |gap| Watch::new(Arc::clone(&notes), gap);
        assert_eq!(notes.gap(), Duration::ZERO);
        let (mut one, mut another) = (Watchers::default(), Watchers::default());
        one.set(0, [watch(ms(20))]);
        another.set(0, [watch(ms(2))]);
        assert_eq!(notes.gap(), ms(2));
        another.set(1, [watch(ms(5))]);
        another.set(0, None);
        assert_eq!(notes.gap(), ms(5), "the edge has another policy");
        drop(another);
        assert_eq!(notes.gap(), ms(20), "the run has ended");
        one.set(0, [watch(ms(30))]);
        assert_eq!(notes.gap(), ms(30));
    }

    #[test]
    fn rows_are_counted_once_from_their_coming_to_their_end() {
        let load = Load::default();
        load.came(5);
        load.taken(2);
        assert_eq!((load.queued(), load.waiting(), load.working()), (5, 3, 2));
        load.done(2);
        assert_eq!(load.queued(), 3);
        assert_eq!(load.capacity(), 0, "nothing is known");
        load.measured(2_000_000);
        assert_eq!(load.capacity(), 500_000, "2 ms a row");
        assert!(load.set_blocked(true) && !load.set_blocked(true));
        assert_eq!(load.capacity(), 0);
    }
}
