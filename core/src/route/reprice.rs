//! The decision with prices that follow each row (potus.md 7.4): what was sent counts at the target at once.
//!
//! A slot's rows then spread over targets instead of all going to one that was the shortest before it (F5).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::decide::{Component, Decision, Want, fits, total};
use super::price::{self, ONE, Price};
use super::rank::Rank;

/// Row by row: the cheapest target of all takes the next row, its queue grows by one and the sender's shrinks.
/// Targets keep the rows that were sent to them (`queued`), so that the next sender sees them.
///
/// The oracle for [`repriced`].
pub fn repriced_literal(wants: &[Want], gamma: u64, components: &mut [Component]) -> Decision {
    let mut decision = Decision::default();
    decision.clear(wants.len());
    let mut left: Vec<u64> = wants.iter().map(|want| want.q_out).collect();
    let mut due: Vec<u64> = wants.iter().map(|want| want.mandatory.min(want.q_out)).collect();
    let mut budget = gamma;
    while budget > 0 {
        let must = due.iter().any(|rows| *rows > 0);
        let front = |index: usize| {
            let want = &wants[index];
            let component = &components[want.component];
            let target = component.best()?;
            let (key, rank) = component.order(target);
            Some((Price(key - price::pressure(want.beta, left[index]).0), rank, index, target))
        };
        let waits = |index: &usize| if must { due[*index] > 0 } else { left[*index] > 0 };
        let cheapest = (0..wants.len()).filter(waits).filter_map(front).min();
        let Some((price, _, want, target)) = cheapest else {
            if must {
                // No target of these has credit: they stay, and the others go on.
                decision.deferred = total(&due);
                due.fill(0);
                continue;
            }
            break;
        };
        if !must && !price.is_good() {
            break;
        }
        budget -= 1;
        let component = &mut components[wants[want].component];
        component.targets[target].take(1);
        component.keys[target] += ONE;
        decision.send(want, target, 1);
        decision.forced[want] += u64::from(!price.is_good());
        left[want] -= 1;
        due[want] = due[want].saturating_sub(1);
    }
    decision.deferred = decision.deferred.saturating_add(total(&due));
    decision
}

/// What [`repriced`] needs beside its result, kept from one decision to the next.
#[derive(Debug, Default)]
pub struct Heaps {
    /// By component: its open targets, the cheapest on top; empty until it is asked for.
    heaps: Vec<BinaryHeap<Reverse<Entry>>>,
    left: Vec<u64>,
    due: Vec<u64>,
}

/// Key, rank and index of a target.
type Entry = (i64, Rank, u32);

/// As [`repriced_literal`], in runs: as many rows at once as would go to one target anyway. With `grain` above 1 a
/// run is of so many rows where there are so many, which no longer follows the row-by-row rule to the letter.
pub fn repriced(
    wants: &[Want],
    gamma: u64,
    components: &mut [Component],
    grain: u64,
    heaps: &mut Heaps,
    decision: &mut Decision,
) {
    decision.clear(wants.len());
    let Heaps { heaps, left, due } = heaps;
    left.clear();
    left.extend(wants.iter().map(|want| want.q_out));
    due.clear();
    due.extend(wants.iter().map(|want| want.mandatory.min(want.q_out)));
    heaps.resize_with(components.len().max(heaps.len()), BinaryHeap::new);
    for want in wants {
        let component = &components[want.component];
        let open = (0u32..).zip(component.targets()).filter(|(_, target)| target.is_open());
        let mut entries = std::mem::take(&mut heaps[want.component]).into_vec();
        entries.clear();
        entries.extend(
            open.map(|(index, target)| Reverse((component.keys[index as usize], target.rank, index))),
        );
        heaps[want.component] = BinaryHeap::from(entries);
    }
    let grain = grain.max(1);
    let mut fill = Fill { wants, components, heaps, left, due, decision, budget: gamma, grain, must: true };
    fill.serve();
    fill.decision.deferred = total(fill.due);
    fill.must = false;
    fill.serve();
}

struct Fill<'a> {
    wants: &'a [Want],
    components: &'a mut [Component],
    heaps: &'a mut [BinaryHeap<Reverse<Entry>>],
    /// Rows of each want that have not been sent: `Q_out` now.
    left: &'a mut [u64],
    /// Of these the rows that have to leave.
    due: &'a mut [u64],
    decision: &'a mut Decision,
    budget: u64,
    grain: u64,
    /// Rows that have to leave are served, at any price.
    must: bool,
}

impl Fill<'_> {
    /// Rows of a want that are to be served.
    fn share(&self, want: usize) -> u64 {
        if self.must { self.due[want] } else { self.left[want] }
    }

    fn serve(&mut self) {
        let wants = 0..self.wants.len();
        if fits(wants.clone().map(|want| self.share(want)), self.budget) {
            for want in wants {
                while self.share(want) > 0
                    && let Some((price, rank)) = self.front(want)
                    && (self.must || price.is_good())
                {
                    self.run(want, (price, rank), None);
                }
            }
            return;
        }
        while self.budget > 0 {
            // The cheapest and the next after it, which bounds the run.
            let mut best: Option<(Price, Rank, usize)> = None;
            let mut next: Option<(Price, Rank, usize)> = None;
            for want in wants.clone().filter(|want| self.share(*want) > 0) {
                let Some((price, rank)) = self.front(want) else { continue };
                let found = Some((price, rank, want));
                if best.is_none() || found < best {
                    next = best;
                    best = found;
                } else if next.is_none() || found < next {
                    next = found;
                }
            }
            let Some((price, rank, want)) = best else { return };
            if !self.must && !price.is_good() {
                return;
            }
            self.run(want, (price, rank), next);
        }
    }

    fn front(&self, want: usize) -> Option<(Price, Rank)> {
        let Want { component, beta, .. } = self.wants[want];
        let Reverse((key, rank, _)) = self.heaps[component].peek()?;
        Some((Price(key - price::pressure(beta, self.left[want]).0), *rank))
    }

    /// Sends to a want's cheapest target as many rows as would go there one by one.
    fn run(&mut self, want: usize, (price, rank): (Price, Rank), rival: Option<(Price, Rank, usize)>) {
        let Want { component, beta, .. } = self.wants[want];
        let Some(Reverse((key, _, target))) = self.heaps[component].pop() else { return };
        let step = ONE + price::pressure(beta, 1).0;
        let most = self
            .share(want)
            .min(self.components[component].targets()[target as usize].credit)
            .min(self.budget);
        // Rows of this run whose price is below 0.
        let good = if price.is_good() { times_below(price.0, 0, step, false) } else { 0 };
        let may = if self.must { u64::MAX } else { good };
        let peer = self.heaps[component]
            .peek()
            .map_or(u64::MAX, |Reverse((other, of, _))| times_below(key, *other, ONE, rank < *of));
        let rival = rival.map_or(u64::MAX, |(other, of, index)| {
            times_below(price.0, other.0, step, (rank, want) < (of, index))
        });
        let rows = peer.min(rival).max(self.grain).min(may).min(most);
        let key = key.saturating_add(price::rows(rows).0);
        let of = &mut self.components[component];
        of.targets[target as usize].take(rows);
        of.keys[target as usize] = key;
        if of.targets()[target as usize].is_open() {
            self.heaps[component].push(Reverse((key, rank, target)));
        }
        self.decision.send(want, target as usize, rows);
        self.decision.forced[want] += rows.saturating_sub(good);
        self.left[want] -= rows;
        self.due[want] = self.due[want].saturating_sub(rows);
        self.budget -= rows;
    }
}

/// How many of `from`, `from + step`, .. lie below `bound`, the bound itself included where a tie is won; at least
/// 1, for the first was found to be the least.
pub(super) fn times_below(from: i64, bound: i64, step: i64, wins_ties: bool) -> u64 {
    let room = i128::from(bound) - i128::from(from);
    let step = i128::from(step);
    let steps = if room < 0 { 0 } else { room / step + i128::from(room % step != 0 || wins_ties) };
    u64::try_from(steps.max(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::price::Weight;
    use super::super::target::Target;
    use super::*;

    #[test]
    fn of_rows_that_have_to_leave_only_those_past_the_last_good_price_are_forced() {
        let beta = Weight::new(1.0).unwrap();
        let wants = [Want { component: 0, beta, q_out: 9, mandatory: 9 }];
        let component = || Component::new(Weight::default(), vec![Target { queued: 4, ..Target::new(1) }]);
        // Prices are -5, -3, -1 and then 1, 3, ..: the queue there grows while the one here shrinks.
        let by_row = repriced_literal(&wants, 8, &mut [component()]);
        assert_eq!((by_row.rows(), by_row.deferred, by_row.forced), (8, 1, vec![5]));
        for grain in [1, 4, 100] {
            let mut by_run = Decision::default();
            repriced(&wants, 8, &mut [component()], grain, &mut Heaps::default(), &mut by_run);
            assert_eq!((by_run.rows(), by_run.deferred, by_run.forced), (8, 1, vec![5]), "{grain}");
        }
        // None of them has to leave: none leaves at such a price.
        let free = [Want { mandatory: 0, ..wants[0] }];
        let by_row = repriced_literal(&free, 8, &mut [component()]);
        assert_eq!((by_row.rows(), by_row.forced), (3, vec![0]));
    }

    #[test]
    fn a_run_ends_where_a_row_more_would_be_dearer() {
        // 0, 3, 6 are below 7; at a bound of 6 the third ties.
        assert_eq!(times_below(0, 7, 3, false), 3);
        assert_eq!(times_below(0, 6, 3, false), 2);
        assert_eq!(times_below(0, 6, 3, true), 3);
        assert_eq!(times_below(5, 5, 3, true), 1);
        assert_eq!(times_below(5, 2, 3, true), 1);
    }
}
