//! The decision benchmark: the published loop against the fast form, ten senders of one agent.

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use anyhow::{Result, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tuplane_core::route::{
    Component, Cost, Decision, Order, Rank, Scratch, Target, UNLIMITED, Want, Weight, fast, literal,
};

/// Senders of the agent that share the order of targets.
const SENDERS: usize = 10;
/// Successor components and targets of each, as in potus.md 7.1.
const SIZES: [(usize, u32); 6] = [(1, 4), (3, 4), (3, 16), (5, 16), (5, 64), (5, 256)];
/// The size at which the fast form has to be so many times as fast.
const LARGEST: (usize, u32) = (5, 256);
const LEAST_RATIO: f64 = 50.0;
/// Different slots: few, for an agent decides over the same targets again and again, and they stay in its cache.
const SLOTS: usize = 10;
/// How often each is decided in a round, and rounds of which the median is taken.
const TIMES: usize = 20;
const ROUNDS: usize = 11;

/// Prints a line for each size: nanoseconds a sender for both forms, and their ratio. Both forms get the keys and
/// decide the same, which is checked first; the fast form's time has the search for the first target in it.
pub(super) fn run(out: &mut impl Write) -> Result<()> {
    for (components, targets) in SIZES {
        let slots: Vec<Slot> = (0..SLOTS as u64).map(|seed| Slot::make(components, targets, seed)).collect();
        for slot in &slots {
            let mut decision = Decision::default();
            let mut by_loop = slot.components.clone();
            let mut by_fast = slot.components.clone();
            let mut orders: Vec<Order> = by_fast.iter().map(Order::of).collect();
            for wants in &slot.senders {
                let expected = literal(wants, slot.gamma, &mut by_loop);
                fast(wants, slot.gamma, &mut by_fast, &mut orders, &mut Scratch::default(), &mut decision);
                ensure!(
                    expected.totals() == decision.totals(),
                    "the two forms differ at {components}x{targets}"
                );
            }
        }
        let loop_ns = median(&slots, |slot, components| {
            for wants in &slot.senders {
                black_box(literal(wants, slot.gamma, components));
            }
        });
        let mut orders = vec![Order::default(); components];
        let (mut scratch, mut decision) = (Scratch::default(), Decision::default());
        let fast_ns = median(&slots, |slot, components| {
            for (order, component) in orders.iter_mut().zip(components.iter()) {
                order.reset(component);
            }
            for wants in &slot.senders {
                fast(wants, slot.gamma, components, &mut orders, &mut scratch, &mut decision);
                black_box(&decision);
            }
        });
        let ratio = loop_ns / fast_ns;
        let ok = (components, targets) != LARGEST || ratio >= LEAST_RATIO;
        let line = json!({
            "workload": "decide",
            "components": components,
            "targets": targets,
            "literal_ns": loop_ns.round(),
            "fast_ns": (fast_ns * 10.0).round() / 10.0,
            "ratio": (ratio * 10.0).round() / 10.0,
            "ok": ok,
        });
        writeln!(out, "{line}")?;
        ensure!(ok, "the fast form is {ratio:.1} times as fast as the published loop, not {LEAST_RATIO}");
    }
    Ok(())
}

struct Slot {
    components: Vec<Component>,
    senders: Vec<Vec<Want>>,
    gamma: u64,
}

impl Slot {
    /// Queues and costs as small as a busy system has them, so that prices tie; half of the slots are bound by gamma.
    fn make(components: usize, targets: u32, seed: u64) -> Self {
        let mut lots = SmallRng::seed_from_u64(seed);
        let (v, beta) = (Weight::clamped(1.0), Weight::clamped(4.0));
        let mut id = 0;
        let made = (0..components).map(|_| {
            let of = (0..targets).map(|_| {
                id += 1;
                Target {
                    instance: id,
                    credit: UNLIMITED,
                    queued: lots.random_range(0..32),
                    cost: Cost::new(f64::from(lots.random_range(0..4) * 2)).unwrap_or_default(),
                    rank: Rank::drawn(id, seed as i64, 0),
                }
            });
            Component::new(v, of.collect())
        });
        let components_made: Vec<Component> = made.collect();
        let senders = (0..SENDERS)
            .map(|_| {
                let want = |component| {
                    let q_out = lots.random_range(0..32);
                    Want { component, beta, q_out, mandatory: 0 }
                };
                (0..components).map(want).collect()
            })
            .collect();
        let gamma = if seed.is_multiple_of(2) { UNLIMITED } else { lots.random_range(1..64) };
        Self { components: components_made, senders, gamma }
    }
}

/// Nanoseconds a sender, the median of rounds over all slots. Decisions spend no credit here, so components stay.
fn median(slots: &[Slot], mut decide: impl FnMut(&Slot, &mut [Component])) -> f64 {
    let mut components: Vec<Vec<Component>> = slots.iter().map(|slot| slot.components.clone()).collect();
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            for (slot, components) in slots.iter().zip(&mut components) {
                (0..TIMES).for_each(|_| decide(slot, components));
            }
            begun.elapsed().as_nanos() as f64 / (slots.len() * TIMES * SENDERS) as f64
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    times[ROUNDS / 2]
}
