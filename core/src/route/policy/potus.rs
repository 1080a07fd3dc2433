//! POTUS as the policy of one edge: rows go where the price is least, while it is below 0.

use super::{Choice, Policy, Target, Targets, Waiting};
use crate::route::decide::{Component, Decision, Want};
use crate::route::fast::{Order, Scratch, fast};
use crate::route::options::RouteOptions;
use crate::route::price::{Terms, Weight};
use crate::route::reprice::{Heaps, repriced};
use crate::route::weigh::{Seen, VRule, beta_in_force, v_in_force};

/// POTUS for one sending instance on one edge.
///
/// Agents and the simulator take its weights and terms, and decide whole edges at once with
/// [`fast`](crate::route::fast()) and `repriced`. Asked for a choice, as a policy that is
/// built on it may, it gives the first run of that decision.
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
        let want = Want { component: 0, beta: self.beta, q_out: waiting.rows, mandatory: waiting.mandatory };
        let mut components = [Component::new(self.v, targets.list().to_vec())];
        let mut decision = Decision::default();
        if self.options.reprice {
            let heaps = &mut Heaps::default();
            repriced(&[want], u64::from(waiting.deal), &mut components, 1, heaps, &mut decision);
        } else {
            let mut orders = [Order::of(&components[0])];
            fast(&[want], u64::MAX, &mut components, &mut orders, &mut Scratch::default(), &mut decision);
        }
        let first = decision.sends.first()?;
        Some(Choice { target: first.target, rows: u32::try_from(first.rows).unwrap_or(u32::MAX) })
    }

    fn sent(&mut self, _: u32) {}

    fn terms(&self, waiting: &Waiting, target: &Target) -> Option<Terms> {
        Some(self.terms_of(waiting, target))
    }

    fn weights(&self) -> Option<(Weight, Weight)> {
        Some((self.v, self.beta))
    }
}
