//! One spout instance: what arrives, what it sees coming, and which tuples leave.

use std::collections::VecDeque;

use tuplane_core::route::Admission;
use tuplane_core::route::window::{Settled, Window};

use super::root::{RootId, Roots};

/// A spout instance.
#[derive(Debug)]
pub(super) struct Spout {
    /// The instance.
    pub(super) instance: usize,
    /// Its number among the spout instances.
    number: u32,
    /// Tuples that arrive in slots 0, 1, ..; none before and none after.
    arrivals: Vec<u64>,
    /// One for each successor.
    windows: Vec<Window>,
    /// The tuples of the slots from `base` on, as far as they are known. A tuple is sent once to each successor.
    tuples: VecDeque<Vec<RootId>>,
    base: i64,
}

impl Spout {
    pub(super) fn new(
        instance: usize,
        number: u32,
        arrivals: Vec<u64>,
        successors: usize,
        size: u32,
        admission: Admission,
        start: i64,
    ) -> Self {
        let window = Window::new(size as usize, admission, start);
        Self {
            instance,
            number,
            arrivals,
            windows: vec![window; successors],
            tuples: VecDeque::new(),
            base: start,
        }
    }

    /// What arrives in a slot.
    pub(super) fn arrivals(&self, slot: i64) -> u64 {
        usize::try_from(slot).ok().and_then(|slot| self.arrivals.get(slot)).copied().unwrap_or(0)
    }

    /// `W`.
    pub(super) fn size(&self) -> usize {
        self.windows.first().map_or(0, Window::size)
    }

    /// The window for the successor of a number.
    pub(super) fn window(&self, successor: usize) -> &Window {
        &self.windows[successor]
    }

    /// Says what is expected in the slot that is `w` >= 1 ahead.
    pub(super) fn expect(&mut self, w: usize, tuples: u64) {
        self.windows.iter_mut().for_each(|window| window.revise(w, tuples));
    }

    /// A slot comes, and with it what arrives. Returns what became of its forecasts, over all successors.
    pub(super) fn advance(&mut self, slot: i64, roots: &mut Roots) -> Settled {
        let arrived = self.arrivals(slot);
        let mut settled = Settled::default();
        let mut sent = Vec::with_capacity(self.windows.len());
        for window in &mut self.windows {
            let one = window.advance(arrived);
            sent.push(one.pre_served + one.wasted);
            settled.pre_served += one.pre_served;
            settled.wasted += one.wasted;
            settled.dropped += one.dropped;
            settled.unforeseen += one.unforeseen;
        }
        let copies = self.windows.len() as u32;
        let index = self.reach(slot);
        let tuples = &mut self.tuples[index];
        for (number, &root) in (0u64..).zip(tuples.iter()) {
            if number < arrived {
                roots.confirm(root);
            } else {
                roots.refute(root, sent.iter().filter(|sent| **sent <= number).count() as u32);
            }
        }
        for number in tuples.len() as u64..arrived {
            tuples.push(roots.add(slot, self.number, number as u32, copies, true));
        }
        self.forget();
        settled
    }

    /// Takes tuples for a successor, those that arrive earliest first, and hands each on. Returns how many.
    pub(super) fn draw(
        &mut self,
        successor: usize,
        rows: u64,
        roots: &mut Roots,
        mut hand: impl FnMut(RootId),
    ) -> u64 {
        let (copies, spout, base) = (self.windows.len() as u32, self.number, self.base);
        let tuples = &mut self.tuples;
        self.windows[successor].draw(rows, |drawn| {
            let index = (drawn.slot - base) as usize;
            if index >= tuples.len() {
                tuples.resize_with(index + 1, Vec::new);
            }
            let tuples = &mut tuples[index];
            for number in drawn.first..drawn.first + drawn.rows {
                if number == tuples.len() as u64 {
                    tuples.push(roots.add(drawn.slot, spout, number as u32, copies, false));
                }
                hand(tuples[number as usize]);
            }
        })
    }

    /// The place of a slot in `tuples`.
    fn reach(&mut self, slot: i64) -> usize {
        let index = (slot - self.base) as usize;
        if index >= self.tuples.len() {
            self.tuples.resize_with(index + 1, Vec::new);
        }
        index
    }

    /// Lets go of slots that no successor will be sent tuples of. Their lists are used again.
    fn forget(&mut self) {
        let front = self.windows.iter().map(Window::front).min().unwrap_or(self.base);
        while self.base < front
            && let Some(mut list) = self.tuples.pop_front()
        {
            list.clear();
            self.tuples.push_back(list);
            self.base += 1;
        }
    }
}
