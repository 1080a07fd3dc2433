//! Rows that leave before they arrive.

use super::*;

/// A source's edge with slots of ten seconds, so that a test is done within one, that looks this far ahead.
fn ahead(world: &World, slots: u32, options: serde_json::Value) -> DueClock {
    let clock = DueClock::begin(0);
    let mut all = json!({ "setting": "paper", "slot": "10s", "record": 99 });
    all.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    world.route_ahead(0, "potus", all, true, Some(Foresight { slots, clock }));
    clock
}

#[test]
fn what_has_arrived_must_leave_and_what_is_to_come_goes_by_its_price() {
    // With V = 0 all of it is worth sending, at V = 1000 none.
    for (v, early) in [(0, 4), (1000, 0)] {
        let world = World::new(&[1, 1], 1, 1, 1 << 20);
        let clock = ahead(&world, 2, json!({ "v": v, "admission": "strict" }));
        // Two of this slot, one of the next, four of the last that is seen.
        world.append_due(clock, &[0, 9999, 12_000, 20_000, 20_500, 25_000, 29_999]);
        let seen = world.routing(0);
        assert_eq!((seen.window, seen.queued_out, seen.to_come), (2, 7, 5));
        // The next slot begins: its own rows arrive in it.
        world.edges[0].tick(world.later(10_001));
        assert_eq!(world.there(0).iter().sum::<u64>(), 3 + early);
        let seen = world.routing(0);
        assert_eq!((seen.early, seen.to_come, seen.queued_out), (early, 4 - early, 4 - early));
        assert_eq!((seen.forced, seen.deferred), (0, 0));
        let decided = &seen.decisions[0].edges[0];
        assert_eq!((decided.q_out, decided.mandatory), (7, 3));
        world.edges[0].tick(world.later(20_001));
        assert_eq!((world.there(0).iter().sum::<u64>(), world.edges[0].waiting(0)), (7, 0));
        let seen = world.routing(0);
        assert_eq!((seen.early, seen.decisions.len()), (early, if early > 0 { 1 } else { 2 }));
        seen.decisions.iter().for_each(assert_replays);
    }
}

#[test]
fn no_release_rule_lets_a_row_go_that_has_not_arrived() {
    let world = World::new(&[1, 1], 1, 1, 4 << 10);
    let clock = ahead(&world, 9, json!({ "v": 1e6, "admission": "relaxed", "max_hold": "1s" }));
    // Twenty in each of ten slots.
    let dues: Vec<u64> = (0..200).map(|row| row * 500).collect();
    world.append_due(clock, &dues);
    assert!(world.edges[0].is_full(0), "the queue is at its bound");
    let left = || world.there(0).iter().sum::<u64>();
    world.edges[0].tick(world.later(10_001));
    assert_eq!((left(), world.routing(0).forced), (0, 0), "not those that have arrived are too many");
    // Rows of slots that have passed have waited for longer than `max_hold`, and nobody else's.
    world.edges[0].tick(world.later(21_500));
    assert_eq!((left(), world.routing(0).early), (40, 0));
    // Once all have arrived the bound holds as ever.
    let world = World::new(&[1, 1], 1, 1, 4 << 10);
    let clock = ahead(&world, 9, json!({ "v": 1e6, "admission": "relaxed", "max_hold": "none" }));
    world.append_due(clock, &dues);
    world.edges[0].tick(world.later(95_000));
    let (left, seen) = (world.there(0).iter().sum::<u64>(), world.routing(0));
    assert!(
        (1..100).contains(&left) && seen.forced == left && !world.edges[0].is_full(0),
        "{left}: {seen:?}"
    );
}

#[test]
fn a_watermark_stands_before_the_rows_that_are_to_come() {
    let world = World::new(&[1], 1, 1, 1 << 20);
    let clock = ahead(&world, 3, json!({ "v": 1e6, "admission": "strict" }));
    world.append_due(clock, &[0, 10_000, 20_000]);
    world.edges[0].mark(0, Mark::Watermark(5));
    world.append_due(clock, &[30_000]);
    world.edges[0].mark(0, Mark::Watermark(6));
    world.edges[0].tick(world.later(10_001));
    let mut taken = Vec::new();
    loop {
        match world.inboxes[0].take(100, false).unwrap() {
            Taken::Rows { rows, .. } => taken.push(rows.len() as i64),
            Taken::Watermark(time) => taken.push(-time),
            Taken::Nothing => break,
            other => panic!("{other:?}"),
        }
    }
    // Both watermarks are of the row that had arrived when they were said; the next one has by now.
    assert_eq!(taken, [1, -5, -6, 1]);
    assert_eq!((world.edges[0].waiting(0), world.routing(0).to_come), (2, 2));
    world.edges[0].mark(0, Mark::End);
    world.edges[0].tick(world.later(30_001));
    assert!(world.edges[0].is_drained(0));
}
