//! The lookahead window of one spout instance and one successor component (POTUS, equations 2 to 7).
//!
//! Rows are counted by the slot of their arrival, so that first in, first out holds whatever is carried over
//! (potus.md F1, F2). A row of a later slot is there as soon as it is forecast; when its slot comes, the window is
//! told what really arrived, and what was sent in vain is counted (F12).

use std::collections::VecDeque;

use super::options::Admission;

/// A slot of the window: `sent <= expected` until its rows have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    /// Rows that arrive in it: a forecast until it has come, from then on the truth.
    expected: u64,
    /// Rows of it that were sent.
    sent: u64,
}

impl Slot {
    fn left(self) -> u64 {
        self.expected.saturating_sub(self.sent)
    }
}

/// Rows of one slot that [`Window::draw`] took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawn {
    /// The slot in which they arrive.
    pub slot: i64,
    /// Rows of that slot which were sent before: these are the ones from that number on.
    pub first: u64,
    /// So many, at least 1.
    pub rows: u64,
}

/// What became of the forecast of a slot that has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settled {
    /// Rows that arrived and had been sent before.
    pub pre_served: u64,
    /// Rows that were sent before and did not arrive: phantoms.
    pub wasted: u64,
    /// Rows that were forecast, did not arrive, and had not been sent: they are gone from the window.
    pub dropped: u64,
    /// Rows that arrived and stood in no forecast.
    pub unforeseen: u64,
}

/// `Q_rem(t, w)` for `w` = 0 to `W`, and what was carried over from earlier slots.
#[derive(Debug, Clone)]
pub struct Window {
    admission: Admission,
    /// `W`.
    size: usize,
    /// The current slot `t`; before the first [`Window::advance`] the slot before it.
    now: i64,
    /// The slot of `slots[0]`, at most `now`.
    first: i64,
    /// Slots in order, up to `now + W`. Those before `now` are in it while rows of them are left.
    slots: VecDeque<Slot>,
    /// `Q_out`: the sum of what is left.
    left: u64,
    /// Of it the rows that have arrived.
    arrived: u64,
}

impl Window {
    /// A window of `size` slots ahead that is empty: its first slot will be `start`. It can be filled for that
    /// slot and those behind it by [`Window::revise`] before the first [`Window::advance`].
    pub fn new(size: usize, admission: Admission, start: i64) -> Self {
        let slots = std::iter::repeat_n(Slot { expected: 0, sent: 0 }, size + 1).collect();
        Self { admission, size, now: start - 1, first: start - 1, slots, left: 0, arrived: 0 }
    }

    /// `W`.
    pub fn size(&self) -> usize {
        self.size
    }

    /// `Q_out` (equation 3): rows that wait, those of slots to come included.
    pub fn queued(&self) -> u64 {
        self.left
    }

    /// Rows that wait and have arrived: `Q_rem(t, 0)` and what was carried over.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Rows that have to leave in this slot.
    pub fn mandatory(&self) -> u64 {
        match self.admission {
            Admission::Strict => self.arrived,
            Admission::Relaxed => 0,
        }
    }

    /// `Q_rem(t, w)`; rows carried over from earlier slots are not in it.
    pub fn remaining(&self, w: usize) -> u64 {
        self.slots.get(self.index(w)).map_or(0, |slot| slot.left())
    }

    /// The slot of the oldest row that waits.
    pub fn oldest(&self) -> Option<i64> {
        let index = self.slots.iter().position(|slot| slot.left() > 0)?;
        Some(self.first + index as i64)
    }

    /// No row of a slot before this one will be drawn any more; at most the current slot.
    pub fn front(&self) -> i64 {
        self.first
    }

    /// Rows that wait, of this slot and those before it.
    pub fn left_until(&self, slot: i64) -> u64 {
        let slots = usize::try_from(slot - self.first + 1).unwrap_or(0);
        self.slots.iter().take(slots).map(|slot| slot.left()).sum()
    }

    /// The next slot comes (equations 5 and 6): `arrived` rows come in it. The new end of the window expects
    /// none until [`Window::revise`] says otherwise.
    pub fn advance(&mut self, arrived: u64) -> Settled {
        self.now += 1;
        self.slots.push_back(Slot { expected: 0, sent: 0 });
        let index = self.index(0);
        let slot = &mut self.slots[index];
        let (forecast, left) = (slot.expected, slot.left());
        slot.expected = arrived;
        let settled = Settled {
            pre_served: slot.sent.min(arrived),
            wasted: slot.sent.saturating_sub(arrived),
            dropped: forecast.max(slot.sent).saturating_sub(arrived.max(slot.sent)),
            unforeseen: arrived.saturating_sub(forecast.max(slot.sent)),
        };
        self.left = self.left - left + slot.left();
        self.arrived += slot.left();
        self.forget();
        settled
    }

    /// Slots up to this one come, in each of which what is known to arrive in it does: see [`Window::add`].
    pub fn turn(&mut self, slot: i64) {
        if self.left == 0 && slot - self.now > self.slots.len() as i64 {
            // Nothing that was known is of the window that begins.
            *self = Self { now: slot, ..Self::new(self.size, self.admission, slot + 1) };
            return;
        }
        while self.now < slot {
            let known = self.slots.get(self.index(1)).map_or(0, |slot| slot.expected);
            self.advance(known);
        }
    }

    /// Rows are there that arrive in this slot: they are known, not forecast. Those of a slot that has come arrive in
    /// the current one, those of one behind the window in its last one.
    pub fn add(&mut self, slot: i64, rows: u64) {
        let ahead = usize::try_from(slot - self.now).unwrap_or(0).min(self.size);
        let index = self.index(ahead);
        self.slots[index].expected += rows;
        self.left += rows;
        if ahead == 0 {
            self.arrived += rows;
        }
    }

    /// From now on arrivals are admitted so.
    pub fn admit(&mut self, admission: Admission) {
        self.admission = admission;
    }

    /// The current slot.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// Revises the forecast of the slot that is `w` >= 1 ahead: `Q_rem(t, w) = [forecast - sent]^+` (F12).
    /// A forecast beyond the window is not looked at.
    pub fn revise(&mut self, w: usize, forecast: u64) {
        let index = self.index(w);
        if w == 0 || w > self.size {
            return;
        }
        let slot = &mut self.slots[index];
        self.left -= slot.left();
        slot.expected = forecast;
        self.left += slot.left();
    }

    /// Takes `rows`, the earliest slot first, and tells each slot's part in turn. Never more than
    /// [`Window::queued`]. Returns how many were taken.
    pub fn draw(&mut self, rows: u64, mut take: impl FnMut(Drawn)) -> u64 {
        let (mut rest, now) = (rows.min(self.left), self.index(0));
        let drawn = rest;
        self.left -= drawn;
        let first = self.first;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if rest == 0 {
                break;
            }
            let rows = slot.left().min(rest);
            if rows == 0 {
                continue;
            }
            take(Drawn { slot: first + index as i64, first: slot.sent, rows });
            slot.sent += rows;
            rest -= rows;
            if index <= now {
                self.arrived -= rows;
            }
        }
        self.forget();
        drawn
    }

    fn index(&self, w: usize) -> usize {
        (self.now - self.first) as usize + w
    }

    /// Drops slots before the current one of which nothing is left.
    fn forget(&mut self) {
        while self.first < self.now && self.slots.front().is_some_and(|slot| slot.left() == 0) {
            self.slots.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain(window: &mut Window, rows: u64) -> Vec<(i64, u64)> {
        let mut drawn = Vec::new();
        window.draw(rows, |part| drawn.push((part.slot, part.rows)));
        drawn
    }

    #[test]
    fn the_earliest_slot_is_drawn_first() {
        let mut window = Window::new(2, Admission::Strict, 0);
        window.advance(3);
        window.revise(1, 2);
        window.revise(2, 4);
        assert_eq!((window.queued(), window.mandatory(), window.remaining(2)), (9, 3, 4));
        assert_eq!(drain(&mut window, 6), [(0, 3), (1, 2), (2, 1)]);
        assert_eq!((window.queued(), window.mandatory(), window.oldest()), (3, 0, Some(2)));
    }

    #[test]
    fn what_could_not_leave_is_carried_over_with_its_slot() {
        let mut window = Window::new(0, Admission::Strict, 7);
        window.advance(5);
        assert_eq!(drain(&mut window, 2), [(7, 2)]);
        window.advance(1);
        assert_eq!((window.mandatory(), window.remaining(0), window.oldest()), (4, 1, Some(7)));
        assert_eq!(drain(&mut window, 9), [(7, 3), (8, 1)]);
        assert_eq!((window.queued(), window.oldest()), (0, None));
    }

    #[test]
    fn relaxed_admission_lets_arrivals_wait() {
        let mut window = Window::new(1, Admission::Relaxed, 0);
        window.advance(5);
        assert_eq!((window.queued(), window.arrived(), window.mandatory()), (5, 5, 0));
    }

    #[test]
    fn a_false_forecast_is_accounted_for() {
        // Forecast 6, sent 4, arrived 3: one phantom was sent, two were not.
        let mut window = Window::new(1, Admission::Strict, 0);
        window.advance(0);
        window.revise(1, 6);
        assert_eq!(drain(&mut window, 4), [(1, 4)]);
        let settled = window.advance(3);
        assert_eq!(settled, Settled { pre_served: 3, wasted: 1, dropped: 2, unforeseen: 0 });
        assert_eq!(window.queued(), 0);

        // Forecast 2, sent 2, arrived 5: three were not foreseen.
        window.revise(1, 2);
        assert_eq!(drain(&mut window, 2), [(2, 2)]);
        let settled = window.advance(5);
        assert_eq!(settled, Settled { pre_served: 2, wasted: 0, dropped: 0, unforeseen: 3 });
        assert_eq!((window.queued(), window.mandatory()), (3, 3));
    }

    #[test]
    fn a_forecast_taken_back_drops_what_was_not_sent() {
        let mut window = Window::new(1, Admission::Strict, 0);
        window.advance(0);
        window.revise(1, 6);
        drain(&mut window, 4);
        window.revise(1, 1);
        assert_eq!(window.queued(), 0);
        // Sent before the forecast fell: pre-served or wasted all the same.
        let settled = window.advance(2);
        assert_eq!(settled, Settled { pre_served: 2, wasted: 2, dropped: 0, unforeseen: 0 });
    }

    #[test]
    fn a_window_can_be_full_at_its_first_slot() {
        let mut window = Window::new(2, Admission::Strict, 0);
        window.revise(1, 3);
        window.revise(2, 4);
        assert_eq!(window.advance(3), Settled::default());
        window.revise(1, 4);
        window.revise(2, 5);
        assert_eq!((window.queued(), window.mandatory()), (12, 3));
    }

    /// Arrivals, forecasts and demands of so many slots.
    fn runs() -> impl Strategy<Value = (usize, Vec<(u64, [u64; 3], u64)>)> {
        (0usize..4, prop::collection::vec((0u64..6, [0u64..6, 0u64..6, 0u64..6], 0u64..12), 1..60))
    }

    proptest! {
        /// Whatever is forecast: every row that arrives is sent or left, and all that was sent arrived or was wasted.
        #[test]
        fn rows_are_conserved((size, run) in runs(), strict: bool) {
            let admission = if strict { Admission::Strict } else { Admission::Relaxed };
            let mut window = Window::new(size, admission, 0);
            let (mut arrived, mut sent, mut wasted, mut served) = (0, 0, 0, 0);
            let mut ahead = std::collections::BTreeMap::new();
            for (slot, (count, forecasts, demand)) in (0i64..).zip(run) {
                let settled = window.advance(count);
                let before = ahead.remove(&slot).unwrap_or(0);
                prop_assert_eq!(settled.pre_served + settled.wasted, before);
                arrived += count;
                wasted += settled.wasted;
                served += settled.pre_served;
                for (w, forecast) in (1..).zip(forecasts) {
                    window.revise(w, forecast);
                }
                let all: u64 = (0..=size).map(|w| window.remaining(w)).sum();
                prop_assert!(all <= window.queued());
                prop_assert!(window.mandatory() <= window.queued());
                let (mut last, mut total) = (i64::MIN, 0);
                let queued = window.queued();
                let drawn = window.draw(demand, |part| {
                    assert!(part.slot > last && part.rows > 0 && part.slot <= slot + size as i64);
                    last = part.slot;
                    total += part.rows;
                    if part.slot > slot {
                        *ahead.entry(part.slot).or_insert(0) += part.rows;
                    }
                });
                prop_assert_eq!((drawn, total), (demand.min(queued), demand.min(queued)));
                sent += drawn;
                let early: u64 = ahead.values().sum();
                prop_assert_eq!(arrived + wasted + early, sent + window.arrived());
            }
            prop_assert!(served <= arrived);
        }

        /// Told of rows as they are read, it is the window that is told each slot's arrivals and true forecasts.
        #[test]
        fn rows_that_are_there_make_the_window_of_a_true_forecast(
            size in 0usize..5,
            run in prop::collection::vec((0u64..6, 0u64..8), 1..60),
            skipped in prop::collection::vec(any::<bool>(), 60),
        ) {
            let arrivals = |slot: i64| usize::try_from(slot).ok().and_then(|slot| run.get(slot)).map_or(0, |run| run.0);
            let mut told = Window::new(size, Admission::Strict, 0);
            let mut live = Window::new(size, Admission::Strict, 0);
            let mut read = 0;
            for (slot, (count, demand)) in (0i64..).zip(&run) {
                told.advance(*count);
                for w in 1..=size {
                    told.revise(w, arrivals(slot + w as i64));
                }
                // Nobody looks at every slot.
                if skipped[slot as usize] {
                    let mut none = Vec::new();
                    told.draw(0, |part| none.push(part));
                    continue;
                }
                live.turn(slot);
                for due in read..=slot + size as i64 {
                    live.add(due, arrivals(due));
                }
                read = slot + size as i64 + 1;
                prop_assert_eq!((live.queued(), live.mandatory()), (told.queued(), told.mandatory()));
                let (mut one, mut other) = (0, 0);
                told.draw(*demand, |part| one += part.rows * part.slot.max(slot) as u64);
                live.draw(*demand, |part| other += part.rows * part.slot.max(slot) as u64);
                prop_assert_eq!(one, other);
            }
        }

        /// A window of 0 is a plain queue.
        #[test]
        fn without_a_window_it_is_a_queue(run in prop::collection::vec((0u64..6, 0u64..8), 1..60), strict: bool) {
            let admission = if strict { Admission::Strict } else { Admission::Relaxed };
            let mut window = Window::new(0, admission, 0);
            let mut queue = VecDeque::new();
            for (slot, (count, demand)) in (0i64..).zip(run) {
                prop_assert_eq!(window.advance(count).pre_served, 0);
                queue.extend(std::iter::repeat_n(slot, count as usize));
                let queued = queue.len() as u64;
                prop_assert_eq!((window.queued(), window.arrived()), (queued, queued));
                prop_assert_eq!(window.mandatory(), if strict { queued } else { 0 });
                let mut drawn = Vec::new();
                window.draw(demand, |part| drawn.extend(std::iter::repeat_n(part.slot, part.rows as usize)));
                let plain: Vec<i64> = queue.drain(..(demand.min(queued)) as usize).collect();
                prop_assert_eq!(drawn, plain);
            }
        }

        /// Relaxed and told the truth, a window of W begun W slots earlier holds and gives what the queue without one
        /// does W slots later (potus.md section 4).
        #[test]
        fn relaxed_it_is_the_queue_shifted(size in 0usize..6, run in prop::collection::vec((0u64..6, 0u64..8), 1..60)) {
            let arrivals = |slot: i64| usize::try_from(slot).ok().and_then(|slot| run.get(slot)).map_or(0, |run| run.0);
            let shift = size as i64;
            let mut plain = Window::new(0, Admission::Relaxed, 0);
            let mut ahead = Window::new(size, Admission::Relaxed, -shift);
            for (slot, (count, demand)) in (0i64..).zip(&run) {
                plain.advance(*count);
                ahead.advance(arrivals(slot - shift));
                for w in 1..=size {
                    ahead.revise(w, arrivals(slot - shift + w as i64));
                }
                prop_assert_eq!(plain.queued(), ahead.queued());
                let (mut one, mut other) = (Vec::new(), Vec::new());
                plain.draw(*demand, |part| one.push(part));
                ahead.draw(*demand, |part| other.push(part));
                prop_assert_eq!(one, other);
            }
        }
    }
}
