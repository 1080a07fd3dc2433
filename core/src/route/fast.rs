//! The same decision as the published loop's, at a fraction of its work (potus.md 7.1 and 7.3).

use super::decide::{Component, Decision, Want, fits, total};
use super::price::{self, Price};
use super::rank::Rank;

/// A component's targets as far as they have been put in order: the first by one pass over them, the rest only
/// where a credit ends before the rows do.
#[derive(Debug, Clone, Default)]
pub struct Order {
    /// Open targets by key and rank; only the first, while `sorted` is false.
    targets: Vec<u32>,
    sorted: bool,
    /// Those before it have no credit left.
    next: usize,
}

impl Order {
    /// Finds the first target: one pass for all senders of the agent.
    pub fn of(component: &Component) -> Self {
        let mut order = Self::default();
        order.reset(component);
        order
    }

    /// As [`Order::of`], in place.
    pub fn reset(&mut self, component: &Component) {
        self.targets.clear();
        self.targets.extend(component.best().map(|best| best as u32));
        (self.sorted, self.next) = (false, 0);
    }

    /// The first target that has credit.
    fn first(&mut self, component: &Component) -> Option<usize> {
        loop {
            let target = *self.targets.get(self.next)? as usize;
            if component.targets()[target].is_open() {
                return Some(target);
            }
            if self.sorted {
                self.next += 1;
            } else {
                self.sort(component);
            }
        }
    }

    fn sort(&mut self, component: &Component) {
        let open = (0u32..).zip(component.targets()).filter(|(_, target)| target.is_open());
        self.targets.clear();
        self.targets.extend(open.map(|(index, _)| index));
        self.targets.sort_unstable_by_key(|target| component.order(*target as usize));
        (self.sorted, self.next) = (true, 0);
    }
}

/// What a decision needs beside its result, kept from one to the next.
#[derive(Debug, Default)]
pub struct Scratch {
    left: Vec<u64>,
    due: Vec<u64>,
}

/// What one sender sends in a slot, as [`literal`](super::decide::literal) decides.
///
/// `orders` belong to the components, one each, and are shared by the agent's senders. The wants of one sender
/// have different components.
pub fn fast(
    wants: &[Want],
    gamma: u64,
    components: &mut [Component],
    orders: &mut [Order],
    scratch: &mut Scratch,
    decision: &mut Decision,
) {
    decision.clear(wants.len());
    let Scratch { left, due } = scratch;
    left.clear();
    left.extend(wants.iter().map(|want| want.q_out));
    due.clear();
    due.extend(wants.iter().map(|want| want.mandatory.min(want.q_out)));
    let mut walk = Walk { wants, components, orders, decision, budget: gamma };
    if due.iter().any(|rows| *rows > 0) {
        walk.serve(due, |_| true);
        let deferred = total(due);
        walk.decision.deferred = deferred;
        for send in &walk.decision.sends {
            left[send.want] -= send.rows;
        }
    }
    walk.serve(left, Price::is_good);
}

struct Walk<'a> {
    wants: &'a [Want],
    components: &'a mut [Component],
    orders: &'a mut [Order],
    decision: &'a mut Decision,
    budget: u64,
}

impl Walk<'_> {
    /// Serves the rows that are left at prices that may be paid.
    fn serve(&mut self, left: &mut [u64], may: impl Fn(Price) -> bool) {
        if fits(left.iter().copied(), self.budget) {
            // With budget for all, components do not compete: no order among them.
            for (want, left) in left.iter_mut().enumerate() {
                while *left > 0
                    && let Some((price, _, target)) = self.front(want)
                    && may(price)
                {
                    self.send(want, target, price, left);
                }
            }
            return;
        }
        while self.budget > 0 {
            let mut best: Option<((Price, Rank), usize, usize)> = None;
            for want in (0..left.len()).filter(|want| left[*want] > 0) {
                let Some((price, rank, target)) = self.front(want) else { continue };
                if may(price) && best.is_none_or(|(least, ..)| (price, rank) < least) {
                    best = Some(((price, rank), want, target));
                }
            }
            let Some(((price, _), want, target)) = best else { return };
            self.send(want, target, price, &mut left[want]);
        }
    }

    /// The price, rank and index of a want's cheapest target.
    fn front(&mut self, want: usize) -> Option<(Price, Rank, usize)> {
        let want = &self.wants[want];
        let component = &self.components[want.component];
        let target = self.orders[want.component].first(component)?;
        let (key, rank) = component.order(target);
        Some((Price(key - price::pressure(want.beta, want.q_out).0), rank, target))
    }

    fn send(&mut self, want: usize, target: usize, price: Price, left: &mut u64) {
        let component = &mut self.components[self.wants[want].component];
        let rows = (*left).min(component.targets()[target].credit).min(self.budget);
        component.spend(target, rows);
        self.decision.send(want, target, rows);
        // Only rows that have to leave are sent at such a price.
        if !price.is_good() {
            self.decision.forced[want] += rows;
        }
        *left -= rows;
        self.budget -= rows;
    }
}
