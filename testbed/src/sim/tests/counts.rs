//! What is counted, what rules go by, and what a slot is held to.

use std::sync::Arc;
use std::time::Duration;

use tuplane_core::job::Placement;
use tuplane_core::route::predict::Predictor;
use tuplane_core::route::{RouteOptions, Setting, VRule};

use super::*;

#[test]
fn only_what_left_at_a_price_that_would_have_held_it_is_forced() {
    let held = [("routing.v", "50"), ("routing.max_hold", "20ms")];
    let outcome = run(&fat_tree(400, &held)).unwrap();
    let sent = outcome.tuples_per_slot * outcome.slots as f64;
    assert!(outcome.forced > 0 && outcome.forced as f64 <= sent, "{} of {sent}", outcome.forced);
    assert_eq!(outcome.deferred, 0);
    // One tuple a slot: nearly all that has to leave stays, and is deferred.
    let narrow = run(&fat_tree(400, &[held[0], held[1], ("routing.gamma", "1")])).unwrap();
    let sent = narrow.tuples_per_slot * narrow.slots as f64;
    assert!(narrow.deferred > 10_000 && narrow.forced as f64 <= sent, "{} of {sent}", narrow.forced);
    // What is admitted strictly has not waited.
    let paper = run(&fat_tree(400, &[("routing.setting", "paper"), ("routing.v", "50")])).unwrap();
    assert_eq!(paper.forced, 0);
}

/// Keeps everything.
#[derive(Debug)]
struct Miser;

impl Policy for Miser {
    fn name(&self) -> &'static str {
        "miser"
    }

    fn choose(&mut self, _: &Waiting, _: &Targets) -> Option<Choice> {
        None
    }

    fn sent(&mut self, _: u32) {}
}

#[test]
fn a_policy_that_holds_what_has_to_leave_ends_the_run() {
    let mut registry = Registry::default();
    registry.policies.add("miser", |_, _| Ok(Box::new(Miser)));
    let mut config = fat_tree(100, &[("routing.setting", "paper")]);
    config.routing.policy = "miser".to_owned();
    let said = run_with(&config, &registry).unwrap_err().to_string();
    assert!(said.starts_with("in slot 0: the policy `miser` holds "), "{said}");
    // What need not leave it may keep, until `max_hold` ends that.
    config.routing.options = RouteOptions::of(Setting::Default);
    let said = run_with(&config, &registry).unwrap_err().to_string();
    assert!(said.starts_with("in slot 20: the policy `miser` holds "), "{said}");
    config.routing.options.max_hold = None;
    assert_eq!(run_with(&config, &registry).unwrap().response.answered, 0);
}

#[test]
fn v_by_the_papers_rule_is_the_last_slots_cost_over_the_backlog_at_its_end() {
    for slots in [20, 33, 60] {
        let last = |slots: u32| {
            let mut config = fat_tree(slots, &[("routing.v", "\"paper\"")]);
            config.warmup = slots - 1;
            run(&config).unwrap()
        };
        let (before, now) = (last(slots - 1), last(slots));
        // The backlog as this slot begins is that at the end of the one before.
        let expected = before.cost_per_slot / now.weighted_backlog;
        let v = now.weights.unwrap().v;
        assert!((v - expected).abs() < 1e-4, "slot {slots}: {v} {expected}");
    }
}

/// Two spouts of different rates feed one bolt, on each of two servers one instance of each.
fn join() -> Config {
    let component =
        |id: &str, kind, inputs: &[usize]| Component { id: id.to_owned(), kind, inputs: inputs.to_vec() };
    let spout = |rate| Kind::Spout { rate, instances: 2 };
    let bolt = Kind::Bolt { capacity: 20, instances: Some(2), selectivity: 1.0 };
    let components = vec![
        component("many", spout(8.0), &[]),
        component("few", spout(2.0), &[]),
        component("both", bolt, &[0, 1]),
    ];
    Config {
        network: Network::Matrix(vec![vec![0.0, 1.0], vec![1.0, 0.0]]),
        apps: vec![App { name: "join".to_owned(), components }],
        placement: Placement::RoundRobin,
        ..fat_tree(200, &[])
    }
}

#[test]
fn v_by_latency_goes_by_the_rate_of_all_components_that_feed_another() {
    let mut config = join();
    config.routing.options.v = VRule::Latency(Duration::from_millis(5));
    let weights = run(&config).unwrap().weights.unwrap();
    // A sender has 5 tuples a slot in the mean, the wait is a slot, the step costs 1.
    assert!((weights.v - 5.0 * weights.beta).abs() < 1e-3, "{weights:?}");
}

/// The last that a policy of one's own was told of a slot.
#[derive(Debug)]
struct Told(Arc<std::sync::Mutex<Vec<f64>>>);

impl Policy for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn begin_slot(&mut self, _: i64, seen: &tuplane_core::route::Seen<'_>) {
        self.0.lock().unwrap().push(seen.rate.unwrap());
    }

    fn choose(&mut self, _: &Waiting, _: &Targets) -> Option<Choice> {
        Some(Choice { target: 0, rows: 1 })
    }

    fn sent(&mut self, _: u32) {}
}

#[test]
fn a_policy_of_ones_own_is_told_its_rate() {
    let rates = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut registry = Registry::default();
    let told = Arc::clone(&rates);
    registry.policies.add("told", move |_, _| Ok(Box::new(Told(Arc::clone(&told)))));
    let mut config = join();
    (config.slots, config.warmup) = (1, 0);
    config.routing.policy = "told".to_owned();
    run_with(&config, &registry).unwrap();
    let mut rates = rates.lock().unwrap().clone();
    rates.sort_unstable_by(f64::total_cmp);
    // A second has 200 slots.
    assert_eq!(rates, [400.0, 400.0, 1600.0, 1600.0]);
}

/// Far off until a slot, then right; and without a forecast of every fourth slot.
#[derive(Debug)]
struct Learner {
    truth: Arc<[u64]>,
    right_from: u64,
    next: u64,
}

impl Predictor for Learner {
    fn name(&self) -> &'static str {
        "learner"
    }

    fn observe(&mut self, slot: u64, _: u64) {
        self.next = slot + 1;
    }

    fn forecast(&mut self, window: usize) -> Vec<f64> {
        if self.next.is_multiple_of(4) {
            return Vec::new();
        }
        let off = if self.next < self.right_from { 1000.0 } else { 0.0 };
        let ahead = self.truth.iter().skip(self.next as usize).take(window);
        ahead.map(|arrived| *arrived as f64 + off).collect()
    }

    fn late(&self) -> u64 {
        2
    }
}

#[test]
fn forecasts_are_scored_in_measured_slots_and_those_that_are_missing_are_counted() {
    let of = |right_from: u64| {
        let mut registry = Registry::default();
        let made = move |setup: &tuplane_core::route::predict::Setup| {
            let truth = setup.truth.clone().unwrap();
            Ok(Box::new(Learner { truth, right_from, next: 0 }) as Box<dyn Predictor>)
        };
        registry.predictors.register("learner", made).unwrap();
        let mut config = fat_tree(100, &[("lookahead.size", "1")]);
        config.lookahead.predictor = "learner".to_owned();
        run_with(&config, &registry).unwrap().foresight
    };
    // Slots 20 to 99 are measured, at 15 spout instances.
    let right = of(20);
    assert_eq!((right.mse, right.missing, right.late), (Some(0.0), 15 * 20, 15 * 2));
    assert!(of(30).mse.unwrap() > 10_000.0);
}

#[test]
fn rules_for_v_and_old_telemetry_are_held_to_their_prices() {
    for v in ["\"paper\"", "\"balance\"", "{ latency = \"20ms\" }"] {
        for (every, setting) in [("1", "paper"), ("7", "default"), ("7", "paper")] {
            let sets = [("routing.setting", setting), ("routing.v", v), ("telemetry.every", every)];
            assert!(run(&fat_tree(300, &sets)).unwrap().cost_per_slot > 0.0, "{sets:?}");
        }
    }
}
