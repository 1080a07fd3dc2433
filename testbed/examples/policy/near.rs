//! The policy itself: the agent's example `routing` puts it on a live edge.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tuplane_core::route::{Choice, Policy, RouteOptions, Target, Targets, VRule, Waiting};

/// The nearest target, or one drawn by lot where that is cheaper: rows queued there, and `V` for each unit of cost.
#[derive(Debug)]
pub(crate) struct NearOrDrawn {
    v: f64,
    random: SmallRng,
}

impl NearOrDrawn {
    pub(crate) fn new(options: &RouteOptions, seed: u64) -> Self {
        let v = if let VRule::Number(v) = options.v { v.value() } else { 1.0 };
        Self { v, random: SmallRng::seed_from_u64(seed) }
    }
}

impl Policy for NearOrDrawn {
    fn name(&self) -> &'static str {
        "near_or_drawn"
    }

    fn choose(&mut self, _: &Waiting, targets: &Targets) -> Option<Choice> {
        let open: Vec<(usize, &Target)> =
            targets.list().iter().enumerate().filter(|(_, target)| target.is_open()).collect();
        let price = |target: &Target| target.queued as f64 + self.v * target.cost.value();
        let near = *open.iter().min_by_key(|(_, target)| (target.cost, target.queued, target.rank))?;
        let drawn = open[self.random.random_range(0..open.len())];
        let (target, _) = if price(drawn.1) < price(near.1) { drawn } else { near };
        Some(Choice { target, rows: 1 })
    }

    fn sent(&mut self, _: u32) {}
}
