//! Policies of users, and decisions that are kept.

use super::*;

/// A policy of the user's own that does what it is told.
#[derive(Debug)]
struct Own {
    choice: Option<Choice>,
    seen: Arc<std::sync::Mutex<Vec<bool>>>,
}

impl Policy for Own {
    fn name(&self) -> &'static str {
        "own"
    }

    fn reads_queues(&self) -> bool {
        false
    }

    fn begin_slot(&mut self, _: i64, seen: &Seen<'_>) {
        lock(&self.seen).push(seen.rate.is_some() && seen.bounds.is_some());
    }

    fn choose(&mut self, _: &Waiting, _: &Targets) -> Option<Choice> {
        self.choice
    }

    fn sent(&mut self, _: u32) {}
}

type Told = Arc<std::sync::Mutex<Vec<bool>>>;

fn own(choice: Option<Choice>) -> (Policies, Told) {
    let seen = Told::default();
    let (mut policies, of_each) = (Policies::default(), Arc::clone(&seen));
    policies.add("own", move |_, _| Ok(Box::new(Own { choice, seen: Arc::clone(&of_each) })));
    (policies, seen)
}

#[test]
fn what_has_to_leave_goes_where_it_is_cheapest_if_the_users_own_policy_holds_it() {
    let world = World::new(&[2, 1, 1], 1, 1, 1 << 20);
    world.route_by(&own(None).0, 0, "own", json!({}), false);
    world.append(0, 0, 5);
    assert_eq!(world.edges[0].waiting(0), 5);
    world.edges[0].tick(world.later(20_000));
    assert_eq!((world.edges[0].waiting(0), world.routing(0).forced), (0, 5), "max_hold");
    let there = world.there(0);
    assert!(there[0] == 0 && there[1] + there[2] == 5, "{there:?}");
    // With no time that ends it, an end does.
    world.route_by(&own(None).0, 0, "own", json!({ "max_hold": "none" }), false);
    world.append(0, 0, 4);
    world.edges[0].tick(world.later(40_000));
    assert_eq!(world.edges[0].waiting(0), 4);
    world.edges[0].mark(0, Mark::End);
    world.edges[0].tick(world.later(60_000));
    assert!(world.edges[0].is_drained(0));
    assert_eq!((world.routing(0).forced, world.routing(0).deferred), (9, 0));
}

#[test]
fn a_choice_that_cannot_be_ends_the_run_with_the_policys_name() {
    for (target, rows, why) in
        [(0, 0, "a choice is of at least 1"), (7, 1, "there are 2"), (1, 1, "which takes none now")]
    {
        let world = World::new(&[0, 0], 1, 1, 1 << 20);
        if why.starts_with("which") {
            // Both are full.
            world.edges[0].append(0, world.rows(2, 20 << 10)).unwrap();
            assert_eq!(world.there(0), [1, 1]);
        }
        world.route_by(&own(Some(Choice { target, rows })).0, 0, "own", json!({}), false);
        world.append(0, 0, 3);
        let run = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let said = run.block_on(Arc::clone(&world.edges[0]).run()).unwrap_err();
        assert!(
            said.starts_with(&format!("the policy `own` chose {rows} rows for target {target}")),
            "{said}"
        );
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn each_senders_own_policy_sees_what_rules_go_by() {
    let world = World::new(&[0, 1], 2, 1, 1 << 20);
    let (policies, seen) = own(Some(Choice { target: 0, rows: 1 }));
    world.route_by(&policies, 0, "own", json!({}), false);
    world.append(0, 0, 3);
    let seen = lock(&seen).clone();
    assert_eq!(seen, [true; 3], "the edge's and one for each sender");
}

#[test]
fn rows_that_had_to_leave_are_forced_only_where_no_price_would_have_let_them_go() {
    let world = World::new(&[0], 1, 1, 1 << 20);
    world.append(0, 0, 4);
    let options = json!({ "v": 0, "beta": 1, "between_slots": false, "slot": "10s" });
    world.route(0, "potus", options, false);
    world.append(0, 0, 9);
    world.edges[0].mark(0, Mark::End);
    world.edges[0].tick(world.later(20_000));
    assert_eq!(world.there(0), [13]);
    // 4 - 9, 5 - 8, 6 - 7, and then six at 1 and more.
    assert_eq!(world.routing(0).forced, 6);
    // They are of the edge, whatever it goes by.
    world.route(0, "shuffle", json!({}), false);
    assert_eq!((world.routing(0).forced, world.routing(0).slots), (6, 1));
    world.route(0, "jsq", json!({}), false);
    assert_eq!((world.routing(0).forced, world.routing(0).slots), (6, 1));
}

#[test]
fn gamma_holds_over_all_edges_of_a_sender_between_two_slots_too() {
    let world = World::new(&[0, 1], 1, 2, 1 << 20);
    let options = json!({ "gamma": 10, "slot": "10s" });
    world.route(0, "potus", options.clone(), false);
    world.route(1, "potus", options, false);
    let sent = |edge: usize| world.there(edge).iter().sum::<u64>();
    world.append(0, 0, 8);
    // Who comes first has what it needs; the other what is left, until the slot has ended.
    world.append(1, 0, 5);
    assert_eq!((sent(0), sent(1)), (8, 2));
    world.append(0, 0, 5);
    assert_eq!((sent(0), sent(1), world.routing(1).deferred), (8, 2, 0));
    let edges = [Arc::clone(&world.edges[0]), Arc::clone(&world.edges[1])];
    tick_together(&edges, world.later(10_000));
    assert_eq!((sent(0), sent(1)), (13, 5));
}

#[test]
fn where_lengths_are_those_of_the_slots_beginning_the_next_sender_sees_what_one_has_sent() {
    let world = World::new(&[0, 0], 4, 1, 1 << 20);
    world.append(0, 0, 16);
    assert_eq!(world.there(0), [8, 8]);
    while matches!(world.inboxes[0].take(8, false), Ok(Taken::Rows { .. })) {}
    world.inboxes[0].load().clear();
    assert_eq!(world.there(0), [0, 8]);
    world.route(0, "jsq", json!({ "setting": "paper" }), false);
    for sender in 0..4 {
        world.append(0, sender, 4);
    }
    world.edges[0].tick(world.later(20_000));
    assert_eq!(world.there(0), [12, 12]);
}

#[test]
fn decisions_over_several_edges_are_kept_whole_by_those_that_keep_any() {
    let world = World::new(&[0, 1], 1, 2, 1 << 20);
    let options = |record| json!({ "setting": "paper", "gamma": 30, "slot": "10s", "record": record });
    world.route(0, "potus", options(9), false);
    world.route(1, "potus", options(0), false);
    world.append(0, 0, 20);
    world.append(1, 0, 20);
    let edges = [Arc::clone(&world.edges[0]), Arc::clone(&world.edges[1])];
    tick_together(&edges, world.later(10_000));
    let decided = world.routing(0).decisions;
    assert_eq!((decided.len(), decided[0].edges.len()), (1, 2));
    decided.iter().for_each(assert_replays);
    assert!(world.routing(1).decisions.is_empty());
}

#[test]
fn decisions_before_and_after_a_change_of_targets_are_kept_and_can_be_made_again() {
    let targets = |decided: &Decided| -> Vec<u32> {
        decided.edges[0].targets.iter().map(|target| target.instance).collect()
    };
    for options in [
        json!({ "record": 8, "beta": 4, "v": 2 }),
        json!({ "record": 8, "setting": "paper", "gamma": 9, "slot": "10s", "admission": "relaxed" }),
    ] {
        let world = World::new(&[0, 1, 3], 2, 1, 1 << 20);
        world.route(0, "potus", options.clone(), false);
        let go = |sender: usize, slot: u64| {
            world.append(0, sender, 20);
            world.edges[0].tick(world.later(slot * 10_000));
            world.routing(0).decisions
        };
        let before = go(0, 1);
        assert!(!before.is_empty() && before.iter().all(|one| targets(one) == [0, 1, 2]), "{before:?}");
        world.retarget(&[(0, 40), (1, 41)], 1, options.clone());
        assert_eq!(world.routing(0).decisions[..before.len()], before, "they are not lost");
        let after = go(1, 2);
        after.iter().for_each(assert_replays);
        // The agent's own first.
        let other = |one: &Decided| targets(one) == [0, 40, 41, 2] && !one.sends.is_empty();
        assert!(after.iter().any(other), "{after:?}");
        // No more than are kept, and the oldest go.
        let full = (3..12).map(|slot| go(slot as usize % 2, slot)).fold(None, |_, last| Some(last)).unwrap();
        world.retarget(&[], 40, options.clone());
        let kept = world.routing(0).decisions;
        assert_eq!((full.len(), kept.len()), (8, 8));
        assert!(kept.iter().any(|one| *one == full[7]), "{kept:?}");
        let last = go(0, 12);
        last.iter().for_each(assert_replays);
        assert_eq!((last.len(), targets(&last[7])), (8, vec![0, 41, 2]));
    }
}

#[test]
fn another_policy_begins_another_series_of_backlogs() {
    let world = World::new(&[1, 1], 1, 1, 1 << 20);
    assert_eq!(
        (world.routing(0).setting.as_str(), world.routing(0).slot_us),
        ("", 0),
        "round-robin has neither"
    );
    world.route(0, "potus", json!({ "v": 1e6, "beta": 1 }), false);
    assert_eq!((world.routing(0).setting.as_str(), world.routing(0).slot_us), ("default", 5000));
    for step in 0..9 {
        world.edges[0].sample(world.later(250 * step));
    }
    assert_eq!(world.routing(0).backlogs.len(), 9);
    world.route(0, "potus", json!({ "v": 1e6, "beta": 16 }), false);
    assert_eq!(world.routing(0).backlogs.len(), 0);
}

#[test]
fn a_way_that_costs_nothing_does_not_hide_that_the_others_are_too_dear() {
    let world = World::new(&[0, 2], 1, 1, 1 << 20);
    world.route(0, "potus", json!({ "v": 3, "beta": 1 }), false);
    world.append(0, 0, 1);
    assert_eq!(world.routing(0).warnings, [""; 0]);
    world.route(0, "potus", json!({ "v": 1e9, "beta": 1, "max_hold": "none" }), false);
    world.append(0, 0, 1);
    let warnings = world.routing(0).warnings;
    assert!(warnings[0].contains("before any takes a way that costs something"), "{warnings:?}");
}

#[test]
fn decisions_of_policies_that_choose_are_kept_and_what_finds_no_room_is_deferred() {
    for name in ["jsq", "p2c"] {
        let world = World::new(&[0, 1, 1], 1, 1, 1 << 20);
        world.route(0, name, json!({ "record": 9 }), false);
        world.append(0, 0, 30);
        assert_eq!(world.there(0).iter().sum::<u64>(), 30, "{name}");
        let decided = world.routing(0).decisions.remove(0);
        let sent: u64 = decided.sends.iter().map(|(_, _, rows)| rows).sum();
        assert_eq!((decided.policy.as_str(), sent, decided.again()), (name, 30, None));
        assert_eq!((decided.edges[0].q_out, decided.edges[0].targets.len()), (30, 3));
        if name == "jsq" {
            assert!(decided.sends.iter().all(|(_, _, rows)| *rows == 10), "{decided:?}");
        }
        // What waits for credit beyond `max_hold` had to leave.
        world.edges[0].append(0, world.rows(9, 16 << 10)).unwrap();
        let waiting = world.edges[0].waiting(0);
        assert!(waiting > 0 && world.routing(0).deferred == 0);
        world.edges[0].tick(world.later(10_000));
        let seen = world.routing(0);
        assert_eq!((seen.deferred, seen.forced), (waiting, 0), "{name}");
        let last = seen.decisions.last().unwrap();
        assert_eq!((last.deferred, last.between, last.sends.len()), (waiting, false, 0));
    }
}
