//! Senders that give rows before they arrive: which of the rows that wait have, and what may leave early.

use std::time::{Duration, Instant};

use tuplane_core::route::Admission;
use tuplane_core::route::window::Window;
use tuplane_expr::arrow::array::{Array, TimestampNanosecondArray};

use crate::engine::due::DueClock;
use crate::exchange::priced::{Slots, Waits};

/// How far an edge's senders look ahead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Foresight {
    /// Slots behind the current one.
    pub(crate) slots: u32,
    /// What arrivals are told by.
    pub(crate) clock: DueClock,
}

/// The window over one sender's rows on one edge: counts, in the order in which the rows wait.
#[derive(Debug)]
pub(super) struct Ahead {
    window: Window,
    clock: DueClock,
    slots: Slots,
    slot: Duration,
    /// Rows that left in a slot before their own.
    pub(super) early: u64,
}

impl Ahead {
    /// `waiting` rows are there that have arrived.
    pub(super) fn new(
        foresight: Foresight,
        (slots, slot): (Slots, Duration),
        admission: Admission,
        waiting: u64,
        now: Instant,
    ) -> Self {
        let current = slots.number(slot, now);
        let mut window = Window::new(foresight.slots as usize, admission, current);
        window.turn(current);
        window.add(current, waiting);
        Self { window, clock: foresight.clock, slots, slot, early: 0 }
    }

    /// Options have changed.
    pub(super) fn admit(&mut self, admission: Admission) {
        self.window.admit(admission);
    }

    /// `W`.
    pub(super) fn size(&self) -> u32 {
        self.window.size() as u32
    }

    /// The slot that an instant is in has come.
    pub(super) fn turn(&mut self, now: Instant) {
        self.window.turn(self.slots.number(self.slot, now));
    }

    /// Rows are appended that arrive at these times, each of them now if there are none.
    pub(super) fn came(&mut self, dues: Option<&TimestampNanosecondArray>, rows: u64, now: Instant) {
        self.turn(now);
        let current = self.window.now();
        let Some(dues) = dues else { return self.window.add(current, rows) };
        let slot = |row: usize| {
            let known = dues.is_valid(row).then(|| self.clock.instant(dues.value(row)));
            known.map_or(current, |due| self.slots.number(self.slot, due))
        };
        let mut runs: Vec<(i64, u64)> = Vec::new();
        for slot in (0..dues.len()).map(slot) {
            match runs.last_mut() {
                Some((last, count)) if *last == slot => *count += 1,
                _ => runs.push((slot, 1)),
            }
        }
        for (slot, count) in runs {
            self.window.add(slot, count);
        }
    }

    /// So many rows have left, from the front.
    pub(super) fn left(&mut self, rows: u64) {
        let now = self.window.now();
        let Self { window, early, .. } = self;
        window.draw(rows, |part| *early += if part.slot > now { part.rows } else { 0 });
    }

    /// Rows that wait and have not arrived: the last ones.
    pub(super) fn to_come(&self) -> u64 {
        self.window.queued() - self.window.arrived()
    }

    /// What has to leave. `over`: rows that must because the queue is full; those that have waited for `max_hold` too.
    /// A row that has not arrived never must.
    pub(super) fn waits(&self, over: u64, max_hold: Option<Duration>, now: Instant) -> Waits {
        let arrived = self.window.arrived();
        let limit = max_hold.and_then(|hold| now.checked_sub(hold)).filter(|limit| *limit > self.slots.began);
        let old = limit.map_or(0, |limit| self.window.left_until(self.slots.number(self.slot, limit) - 1));
        let forced = over.max(old).min(arrived);
        Waits { q_out: self.window.queued(), mandatory: self.window.mandatory().max(forced), forced }
    }
}
