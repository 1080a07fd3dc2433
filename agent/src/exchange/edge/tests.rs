//! Senders that fall idle and wake: whatever waits, no row becomes late on its way.

use std::time::Duration;

use proptest::prelude::*;
use tuplane_core::route::{Targets, make_policy};
use tuplane_expr::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, UInt16Array};
use tuplane_expr::arrow::datatypes::Int64Type;

use super::*;
use crate::engine::rows::Budget;
use crate::exchange::credit::Credit;
use crate::exchange::inbox::{Inbox, InputSpec, Taken, Upstream};
use crate::exchange::outlet::{Link, Outlet};

/// Two rows of this length use up a channel's first window.
const LENGTH: usize = 9 << 10;

/// A row with its event time, and the latest watermark at which it may come.
fn row(time: i64, bound: i64, lane: u16, budget: &Arc<Budget>) -> Rows {
    let integer = |x| Arc::new(Int64Array::from(vec![x])) as ArrayRef;
    let text = Arc::new(StringArray::from(vec!["x".repeat(LENGTH)])) as ArrayRef;
    let columns = [("time", integer(time)), ("bound", integer(bound)), ("text", text)];
    Rows::new(RecordBatch::try_from_iter(columns).unwrap(), Some(UInt16Array::from(vec![lane])), budget)
        .unwrap()
}

struct World {
    edge: Arc<Edge>,
    inboxes: Vec<Arc<Inbox>>,
    budget: Arc<Budget>,
    /// Each inbox's watermark, and its rows.
    seen: Vec<(i64, usize)>,
}

impl World {
    /// An edge to two inboxes.
    fn new(senders: u32, lanes: bool, in_order: bool) -> Self {
        let budget = Budget::new(1 << 30);
        let wake = Arc::<Notify>::default();
        let (mut inboxes, mut outlets) = (Vec::new(), Vec::new());
        for instance in 0..2 {
            let credit = Credit::new(Arc::clone(&wake));
            let channels = vec![Upstream::Local(Arc::clone(&credit))];
            let inbox =
                Inbox::new(vec![InputSpec { edge: 0, priority: 0, channels }], 32 << 10, Arc::clone(&budget));
            let link = Link::Local { inbox: Arc::clone(&inbox), channel: 0 };
            outlets.push(Outlet { instance, agent: 0, credit, link, sent_rows: 0, sent_bytes: 0 });
            inboxes.push(inbox);
        }
        let routes = if lanes { Routes::ByPartition(vec![0, 1]) } else { Routes::Any };
        let spec = EdgeSpec { index: 0, barriers_in_order: in_order, deal: 1, routes };
        let edge = Edge::new(spec, Outlets::new(outlets), wake);
        for sender in 0..senders {
            let queue = if lanes {
                OutQueue::lanes(2)
            } else {
                let policy = make_policy("round-robin", 0).unwrap();
                OutQueue::pool(policy, Targets::new([vec![0, 1]]), vec![0, 1])
            };
            edge.add_sender(sender, queue, 1 << 20, Arc::default());
        }
        Self { edge, inboxes, budget, seen: vec![(i64::MIN, 0); 2] }
    }

    fn give(&self, sender: usize, time: i64, bound: i64, lane: u16) {
        self.edge.append(sender, row(time, bound, lane, &self.budget)).unwrap();
    }

    /// What the channels have been told.
    fn told(&self) -> i64 {
        lock(&self.edge.state).least.watermark().unwrap_or(i64::MIN)
    }

    /// The next thing of an inbox; false if it has none.
    fn take(&mut self, inbox: usize) -> bool {
        let (watermark, count) = &mut self.seen[inbox];
        match self.inboxes[inbox].take(1, false).unwrap() {
            Taken::Rows { rows, .. } => {
                let of = |column: usize| rows.batch().column(column).as_primitive::<Int64Type>().value(0);
                assert!(*watermark <= of(1), "a row of {} came at {watermark}, not {}", of(0), of(1));
                *count += rows.len();
            }
            Taken::Watermark(time) => {
                assert!(time >= *watermark);
                *watermark = time;
            }
            Taken::Nothing | Taken::Ended => return false,
            _ => {}
        }
        self.edge.pump();
        true
    }
}

/// A sender more, in the first place that is free.
fn join(world: &World, instance: u32) -> usize {
    let queue =
        OutQueue::pool(make_policy("round-robin", 0).unwrap(), Targets::new([vec![0, 1]]), vec![0, 1]);
    let sender = world.edge.add_sender(instance, queue, 1 << 20, Arc::default());
    world.edge.has_joined();
    sender
}

#[test]
fn a_sender_that_ends_goes_before_those_that_have_time() {
    let mut world = World::new(2, false, false);
    for (sender, rows) in [(0, 20), (1, 6)] {
        for _ in 0..rows {
            world.give(sender, 1, i64::MAX, 0);
        }
    }
    assert_eq!(world.edge.waiting(1), 6, "the first has used up what credit there was");
    world.edge.mark(1, Mark::End);
    let waited = world.edge.waiting(0);
    while !world.edge.is_drained(1) {
        assert!((0..2).any(|inbox| world.take(inbox)), "it is stuck");
    }
    assert!(waited - world.edge.waiting(0) < 3, "of {waited} rows {} wait", world.edge.waiting(0));
    world.edge.mark(0, Mark::End);
    while (0..2).any(|inbox| world.take(inbox)) {}
    assert_eq!(
        (world.edge.is_drained(0), world.seen.iter().map(|(_, rows)| rows).sum::<usize>()),
        (true, 26)
    );
}

#[test]
fn senders_that_come_and_go_leave_no_places_behind() {
    let mut world = World::new(1, false, false);
    for instance in 1..=300 {
        let sender = join(&world, instance);
        assert_ne!(sender, 0, "that one goes on");
        world.give(sender, 1, i64::MAX, 0);
        world.edge.free(sender, instance);
        assert_eq!(join(&world, 1000), 2, "it has not ended");
        world.edge.has_left(2);
        world.edge.mark(sender, Mark::End);
        for inbox in 0..2 {
            while world.take(inbox) {}
        }
        assert!(world.edge.is_drained(sender));
        world.edge.free(sender, 1000);
        assert_eq!(join(&world, 1001), 2, "it is another one's");
        world.edge.has_left(2);
        for _ in 0..2 {
            world.edge.free(sender, instance);
        }
    }
    assert_eq!(world.edge.places(), 3);
    assert_eq!(world.seen.iter().map(|(_, rows)| rows).sum::<usize>(), 300);
    // What joins in a place that was another's is not taken for that.
    let sender = join(&world, 500);
    world.give(sender, 1, i64::MAX, 0);
    assert_eq!((world.edge.waiting_of(sender, 300), world.edge.sent().emitted), (0, 301));
    world.edge.mark(sender, Mark::End);
    world.edge.mark(0, Mark::End);
    for inbox in 0..2 {
        while world.take(inbox) {}
    }
    assert!(world.edge.has_ended() && world.edge.is_drained(0));
}

#[test]
fn of_targets_that_are_no_more_the_newest_are_listed_and_the_rest_is_a_sum() {
    let world = World::new(1, false, false);
    let credit = || Credit::new(Arc::default());
    let link = || Link::Local { inbox: Arc::clone(&world.inboxes[0]), channel: 0 };
    let mut state = lock(&world.edge.state);
    for instance in 2..302 {
        let (agent, sent_rows) = ((instance % 2) as u16, u64::from(instance));
        let (credit, link) = (credit(), link());
        state.gone.add(&Outlet { instance, agent, credit, link, sent_rows, sent_bytes: 2 * sent_rows });
    }
    drop(state);
    let sent = world.edge.sent();
    let gone: Vec<_> = sent.targets.iter().filter(|(instance, ..)| *instance > 1).collect();
    assert_eq!((gone.len(), sent.folded.len(), sent.folded[0].0), (64, 2, 0));
    let rows = gone.iter().map(|(.., rows, _)| rows).chain(sent.folded.iter().map(|(_, rows, _)| rows));
    assert_eq!(rows.sum::<u64>(), (2..302).sum::<u64>());
    assert!(sent.folded.iter().all(|(_, rows, bytes)| *bytes == 2 * rows));
}

/// What is done; the first number is the sender.
#[derive(Debug, Clone)]
enum Act {
    Row(usize, i64, u16),
    Watermark(usize, i64),
    Idle(usize),
    Barrier(usize),
    Take(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0_usize..2, 0_i64..20, 0_u16..2).prop_map(|(who, more, lane)| Act::Row(who, more, lane)),
        4 => (0_usize..2, 0_i64..30).prop_map(|(who, step)| Act::Watermark(who, step)),
        3 => (0_usize..2).prop_map(Act::Idle),
        1 => (0_usize..2).prop_map(Act::Barrier),
        6 => (0_usize..2).prop_map(Act::Take),
    ]
}

/// A sender as it sees itself.
#[derive(Debug, Clone, Default)]
struct Told {
    watermark: Option<i64>,
    idle: bool,
    barriers: u64,
    /// The edge's watermark when it woke.
    woke_at: Option<i64>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]
    /// A row of a sender that is awake comes at a watermark of at most its time, or what the others had come to when
    /// the sender woke. Alone, a sender's watermark never passes a row that it gave before, idle or not.
    #[test]
    fn no_row_becomes_late_on_its_way(
        acts in prop::collection::vec(act(), 1..120),
        senders in 1_usize..3,
        lanes: bool,
        in_order: bool,
    ) {
        let mut world = World::new(senders as u32, lanes, in_order);
        let mut told = vec![Told::default(); senders];
        let mut given = 0;
        for act in acts {
            match act {
                Act::Row(who, ..) | Act::Watermark(who, _) | Act::Idle(who) | Act::Barrier(who) if who >= senders => {}
                Act::Row(who, more, lane) => {
                    let of = &told[who];
                    let time = of.watermark.unwrap_or(0) + more;
                    let alone = senders == 1;
                    let bound = if of.idle && !alone { i64::MAX } else { time.max(of.woke_at.unwrap_or(i64::MIN)) };
                    world.give(who, time, bound, lane);
                    given += 1;
                }
                Act::Watermark(who, step) => {
                    let of = &mut told[who];
                    if std::mem::take(&mut of.idle) {
                        of.woke_at = Some(world.told());
                    }
                    let time = of.watermark.map_or(step, |last| last + step);
                    of.watermark = Some(time);
                    world.edge.mark(who, Mark::Watermark(time));
                }
                Act::Idle(who) => {
                    told[who].idle = true;
                    world.edge.mark(who, Mark::Idle);
                }
                Act::Barrier(who) => {
                    // None begins before all have passed the last one.
                    let least = told.iter().map(|of| of.barriers).min().unwrap_or(0);
                    if told[who].barriers == least {
                        told[who].barriers += 1;
                        world.edge.mark(who, Mark::Barrier(least + 1));
                    }
                }
                Act::Take(inbox) => { world.take(inbox); }
            }
        }
        for sender in 0..senders {
            world.edge.mark(sender, Mark::End);
        }
        while (0..2).any(|inbox| world.take(inbox)) {}
        prop_assert_eq!(world.seen.iter().map(|(_, rows)| rows).sum::<usize>(), given);
        prop_assert!((0..senders).all(|sender| world.edge.is_drained(sender)));
    }
}

#[test]
fn a_wake_behind_a_lane_without_credit_is_told_before_rows_of_other_lanes() {
    let mut world = World::new(2, true, false);
    world.edge.mark(0, Mark::Watermark(105));
    world.edge.mark(0, Mark::Idle);
    world.edge.mark(1, Mark::Watermark(110));
    assert_eq!(world.told(), 110);
    // Rows that an idle sender gives by the clock: more than the first lane has credit for.
    for _ in 0..4 {
        world.give(0, 120, i64::MAX, 0);
    }
    world.edge.mark(0, Mark::Watermark(115));
    world.edge.mark(1, Mark::Watermark(200));
    assert_eq!(world.told(), 110, "it is awake, and its watermark is behind rows that wait");
    world.give(0, 116, 116, 1);
    while world.take(1) {}
    assert_eq!(world.seen[1], (110, 1));
    while world.take(0) {}
    assert_eq!((world.told(), world.seen[0]), (115, (115, 4)));
}

#[test]
fn the_pace_is_over_the_time_that_it_was_counted_in() {
    let ms = Duration::from_millis;
    let begin = Instant::now();
    let mut pace = Pace::new(begin);
    for second in 0..5 {
        pace.add(1, begin + ms(1000 * second));
    }
    assert!((pace.rate(begin + ms(4000)) - 1.0).abs() < 1e-9, "{pace:?}");
    // A burst, and nothing after it.
    for step in 0..100 {
        pace.add(100, begin + ms(5000 + 10 * step));
    }
    let end = begin + ms(5990);
    assert!((pace.rate(end) / 10_000.0 - 1.0).abs() < 0.05, "{pace:?}");
    assert!(!pace.is_slow());
    assert!(pace.rate(end + ms(10_000)) < 300.0, "{pace:?}");
    pace.add(1, end + ms(10_000));
    assert!(pace.is_slow() && pace.rate(end + ms(10_000)) < 300.0, "{pace:?}");
}
