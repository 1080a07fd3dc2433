//! Where an instance's time goes: busy, blocked on output, or idle, to the nanosecond.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;

/// What an instance is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Running its operator, or waiting for one of the agent's cores.
    Busy = 0,
    /// Waiting for room in an output queue.
    Blocked = 1,
    /// Waiting for input.
    Idle = 2,
}

/// Stands in [`Clock::now`] while a stretch moves to the totals.
const CHANGING: u64 = 3;
/// Stands there when the instance has ended.
const ENDED: u64 = 7;

/// The times of one instance. Written by the instance (and ended by whoever stops it), read by anyone: a reading includes the
/// stretch that is under way, so work in progress counts now and not when it ends.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    /// Nanoseconds since `start` at the last change, times 4, plus what began then.
    now: AtomicU64,
    totals: [AtomicU64; 3],
    waiting_core: AtomicU64,
}

/// A reading, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// Includes `waiting_core`.
    pub(crate) busy: u64,
    pub(crate) blocked: u64,
    pub(crate) idle: u64,
    pub(crate) waiting_core: u64,
}

impl Clock {
    pub(crate) fn new(start: Instant) -> Self {
        Self {
            start,
            now: AtomicU64::new(Doing::Idle as u64),
            totals: Default::default(),
            waiting_core: AtomicU64::new(0),
        }
    }

    /// From now on the instance does this.
    pub(crate) fn set(&self, doing: Doing) {
        if self.now.load(Ordering::Relaxed) % 4 != doing as u64 {
            self.change(|elapsed| elapsed * 4 + doing as u64);
        }
    }

    /// The instance has ended: its times stand still.
    pub(crate) fn end(&self) {
        self.change(|_| ENDED);
    }

    fn change(&self, to: impl FnOnce(u64) -> u64) {
        // Two may write: the instance, and whoever stops it while it stands in a call to the system.
        let before = loop {
            let before = self.now.load(Ordering::Relaxed);
            if before == ENDED {
                return;
            }
            if before != CHANGING
                && self.now.compare_exchange(before, CHANGING, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                break before;
            }
            std::hint::spin_loop();
        };
        let elapsed = self.start.elapsed().as_nanos() as u64;
        fence(Ordering::Release);
        self.totals[(before % 4) as usize].fetch_add(elapsed.saturating_sub(before / 4), Ordering::Relaxed);
        self.now.store(to(elapsed), Ordering::Release);
    }

    /// So many nanoseconds of the busy time were spent waiting for a core.
    pub(crate) fn waited_for_core(&self, ns: u64) {
        self.waiting_core.fetch_add(ns, Ordering::Relaxed);
    }

    /// Totals with the stretch under way.
    pub(crate) fn read(&self) -> Times {
        loop {
            let seen = self.now.load(Ordering::Acquire);
            if seen == ENDED {
                return self.totals(0, 0);
            }
            if seen == CHANGING {
                std::hint::spin_loop();
                continue;
            }
            let elapsed = self.start.elapsed().as_nanos() as u64;
            let times = self.totals((seen % 4) as usize, elapsed.saturating_sub(seen / 4));
            // A change in between would count its stretch twice: read again.
            fence(Ordering::Acquire);
            if self.now.load(Ordering::Relaxed) == seen {
                return times;
            }
        }
    }

    fn totals(&self, doing: usize, more: u64) -> Times {
        let mut totals = [0; 3];
        for (total, kept) in totals.iter_mut().zip(&self.totals) {
            *total = kept.load(Ordering::Relaxed);
        }
        totals[doing] += more;
        let [busy, blocked, idle] = totals;
        Times { busy, blocked, idle, waiting_core: self.waiting_core.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn nothing_is_lost_when_an_idle_instance_ends() {
        let clock = Clock::new(Instant::now());
        std::thread::sleep(Duration::from_millis(5));
        clock.end();
        assert!(clock.read().idle >= 5_000_000);
    }

    #[test]
    fn the_three_add_up_to_the_time_that_passed_and_work_in_progress_counts() {
        let start = Instant::now();
        let clock = Clock::new(start);
        std::thread::sleep(Duration::from_millis(5));
        clock.set(Doing::Busy);
        std::thread::sleep(Duration::from_millis(10));
        let during = clock.read();
        assert!(during.busy >= 10_000_000, "{during:?}");
        clock.set(Doing::Blocked);
        std::thread::sleep(Duration::from_millis(5));
        let before = start.elapsed().as_nanos() as u64;
        let times = clock.read();
        let after = start.elapsed().as_nanos() as u64;
        let sum = times.busy + times.blocked + times.idle;
        assert!((before..=after).contains(&sum), "{sum} is not from {before} to {after}");
        assert!(times.idle >= 5_000_000 && times.blocked >= 5_000_000);
        clock.end();
        let last = clock.read();
        assert!(last.blocked >= times.blocked);
        std::thread::sleep(Duration::from_millis(3));
        clock.set(Doing::Busy);
        assert_eq!(clock.read(), last, "times of an ended instance stand still");
    }
}
