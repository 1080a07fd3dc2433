//! POTUS as the policy of one edge: rows go where the price is least, while it is below 0.

use super::{Choice, Policy, Target, Targets, Waiting};
use crate::route::options::RouteOptions;
use crate::route::price::{self, ONE, Terms, Weight};
use crate::route::reprice::times_below;
use crate::route::weigh::{Seen, VRule, beta_in_force, v_in_force};

/// POTUS for one sending instance on one edge.
///
/// Between two slots it deals rows one run at a time, each to the cheapest target of that moment
/// (`reprice`), or all to the one that was the cheapest when the slot began. Several edges of one sender that
/// share a budget are decided together: see [`fast`](crate::route::fast()) and [`repriced`](crate::route::repriced).
#[derive(Debug, Clone)]
pub struct Potus {
    options: RouteOptions,
    v: Weight,
    beta: Weight,
}

impl Potus {
    /// With these options; rules have no value before the first slot but that of an empty system.
    pub fn new(options: &RouteOptions) -> Self {
        let v = match options.v {
            VRule::Number(v) => v,
            _ => Weight::clamped(1.0),
        };
        Self { options: options.clone(), v, beta: beta_in_force(options.beta, None) }
    }

    /// Its options.
    pub fn options(&self) -> &RouteOptions {
        &self.options
    }

    fn terms_of(&self, waiting: &Waiting, target: &Target) -> Terms {
        Terms::new(self.v, target.cost, target.queued, self.beta, waiting.rows)
    }
}

impl Policy for Potus {
    fn name(&self) -> &'static str {
        "potus"
    }

    fn begin_slot(&mut self, _: i64, seen: &Seen<'_>) {
        self.beta = beta_in_force(self.options.beta, seen.bounds);
        self.v = v_in_force(self.options.v, self.beta, seen);
    }

    fn choose(&mut self, waiting: &Waiting, targets: &Targets) -> Option<Choice> {
        let open = targets.list().iter().enumerate().filter(|(_, target)| target.is_open());
        let order = |target: &Target| (self.terms_of(waiting, target).key(), target.rank);
        let mut best: Option<(usize, (_, _))> = None;
        let mut next: Option<(_, _)> = None;
        for (index, target) in open {
            let order = order(target);
            match best {
                Some((_, least)) if least <= order => next = Some(next.map_or(order, |n| order.min(n))),
                _ => {
                    next = best.map(|(_, least)| least);
                    best = Some((index, order));
                }
            }
        }
        let (target, (key, rank)) = best?;
        let cheapest = self.terms_of(waiting, &targets.list()[target]).price();
        let must = waiting.mandatory;
        if must == 0 && !cheapest.is_good() {
            return None;
        }
        let most = if must > 0 { must } else { waiting.rows }.min(targets.list()[target].credit);
        let mut rows = most;
        if self.options.reprice {
            if let Some((other, of)) = next {
                rows = rows.min(times_below(key.0, other.0, ONE, rank < of));
            }
            if must == 0 {
                let step = ONE + price::pressure(self.beta, 1).0;
                rows = rows.min(times_below(cheapest.0, 0, step, false));
            }
            rows = rows.min(u64::from(waiting.deal));
        }
        Some(Choice { target, rows: u32::try_from(rows.max(1)).unwrap_or(u32::MAX) })
    }

    fn sent(&mut self, _: u32) {}

    fn terms(&self, waiting: &Waiting, target: &Target) -> Option<Terms> {
        Some(self.terms_of(waiting, target))
    }

    fn weights(&self) -> Option<(Weight, Weight)> {
        Some((self.v, self.beta))
    }
}
