//! The queues under a scheduler that looks for lost wake-ups: two senders, one target, full queues
//! and a mark. It must end, with every row and the mark in its place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shuttle::{future, thread};
use tokio::sync::Notify;
use tuplane_core::route::{Policies, RouteOptions, Setting, Targets, make_policy};
use tuplane_expr::arrow::array::{Int64Array, RecordBatch, StringArray};
use tuplane_expr::arrow::datatypes::{DataType, Field, Schema};

use super::costs::Costs;
use super::credit::Credit;
use super::edge::{Edge, EdgeSpec, Route};
use super::inbox::{Inbox, InputSpec, Taken, Upstream};
use super::mark::Mark;
use super::outlet::{Link, Outlet, Outlets};
use super::outqueue::{OutQueue, Routes};
use super::priced::Slots;
use crate::engine::rows::{Budget, Rows};

/// Two rows of this length fill a channel's window, and three a sender's queue.
const LENGTH: usize = 9 << 10;
const BOUND: u64 = 24 << 10;
const ROWS: i64 = 6;

fn row(id: i64, budget: &Arc<Budget>) -> Rows {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("text", DataType::Utf8, false),
    ]);
    let text = "x".repeat(LENGTH);
    let batch = RecordBatch::try_new(
        Arc::new(schema),
        vec![Arc::new(Int64Array::from(vec![id])), Arc::new(StringArray::from(vec![text]))],
    );
    Rows::new(batch.unwrap(), None, budget).unwrap()
}

/// One sending instance: rows, the barrier, rows again, the end; it waits for room as an instance does.
fn send(edge: &Edge, sender: usize, room: &Notify, budget: &Arc<Budget>, first: i64) {
    for id in 0..ROWS {
        while edge.is_full(sender) {
            future::block_on(room.notified());
        }
        edge.append(sender, row(first + id, budget)).unwrap();
        if id == ROWS / 2 {
            edge.mark(sender, Mark::Barrier(1));
        }
    }
    edge.mark(sender, Mark::End);
    while !edge.is_drained(sender) {
        future::block_on(room.notified());
    }
}

/// How rows leave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Dealt,
    Lane,
    /// By POTUS, at slots' ends only, at a price that never lets a row go.
    Priced,
}

fn price(edge: &Edge) {
    let paper = RouteOptions { v: "1000000".parse().unwrap(), ..RouteOptions::of(Setting::Paper) };
    let route = Route {
        policies: &Policies::default(),
        name: "potus",
        options: &paper,
        given: "{}",
        costs: &Costs::table(&[1]),
        of_source: false,
        me: 0,
        slots: &Slots::begin(),
        ahead: None,
    };
    edge.set_route(&route).unwrap();
}

/// Ends slots until every sender's rows have left.
fn end_slots(edge: &Edge) {
    let mut later = Instant::now() + Duration::from_hours(1);
    while !(0..2).all(|sender| edge.is_drained(sender)) {
        later += Duration::from_secs(1);
        edge.tick(later);
        thread::yield_now();
    }
}

fn two_senders_one_target_full_queues_and_a_mark(kind: Kind, in_order: bool) {
    let lanes = kind == Kind::Lane;
    let budget = Budget::new(1 << 30);
    let wake = Arc::new(Notify::new());
    let credit = Credit::new(Arc::clone(&wake));
    let input = InputSpec { edge: 0, priority: 0, channels: vec![Upstream::Local(Arc::clone(&credit))] };
    let inbox = Inbox::new(vec![input], BOUND, Arc::clone(&budget));
    let link = Link::Local { inbox: Arc::clone(&inbox), channel: 0 };
    let outlet = Outlet { instance: 0, agent: 0, credit, link, sent_rows: 0, sent_bytes: 0 };
    let routes = if lanes { Routes::One } else { Routes::Any };
    let spec = EdgeSpec { index: 0, barriers_in_order: in_order, deal: 1, routes };
    let edge = Edge::new(spec, Outlets::new(vec![outlet]), wake);
    let rooms: Vec<Arc<Notify>> = (0..2).map(|_| Arc::default()).collect();
    for (number, room) in (0..).zip(&rooms) {
        let queue = if lanes {
            OutQueue::lanes(1)
        } else {
            OutQueue::pool(make_policy("round-robin", 0).unwrap(), Targets::new([vec![0]]), vec![0])
        };
        edge.add_sender(number, queue, BOUND, Arc::clone(room));
    }
    let ender = (kind == Kind::Priced).then(|| {
        price(&edge);
        let edge = Arc::clone(&edge);
        thread::spawn(move || end_slots(&edge))
    });
    let mover = thread::spawn({
        let edge = Arc::clone(&edge);
        move || future::block_on(edge.run())
    });
    let senders: Vec<_> = rooms
        .into_iter()
        .enumerate()
        .map(|(sender, room)| {
            let (edge, budget) = (Arc::clone(&edge), Arc::clone(&budget));
            thread::spawn(move || send(&edge, sender, &room, &budget, sender as i64 * 100))
        })
        .collect();
    let (mut rows, mut barriers) = (0, 0);
    loop {
        match inbox.take(1, false).unwrap() {
            Taken::Rows { rows: taken, .. } => rows += taken.len() as i64,
            Taken::Barrier(1) => barriers += 1,
            Taken::Ended => break,
            Taken::Nothing => future::block_on(inbox.wait()),
            other => panic!("{other:?}"),
        }
    }
    for sender in senders {
        sender.join().unwrap();
    }
    if let Some(ender) = ender {
        ender.join().unwrap();
    }
    edge.close("stopped");
    mover.join().unwrap().unwrap();
    assert_eq!((rows, barriers), (2 * ROWS, 1));
    let sent = edge.sent();
    assert_eq!((sent.emitted, sent.queued), (2 * ROWS as u64, 0));
    assert_eq!(budget.used(), 0);
}

#[test]
fn shuttle_unicast() {
    shuttle::check_random(|| two_senders_one_target_full_queues_and_a_mark(Kind::Dealt, false), 300);
}

#[test]
fn shuttle_one_lane() {
    shuttle::check_random(|| two_senders_one_target_full_queues_and_a_mark(Kind::Lane, false), 300);
}

#[test]
fn shuttle_one_lane_with_the_barrier_in_order() {
    shuttle::check_random(|| two_senders_one_target_full_queues_and_a_mark(Kind::Lane, true), 300);
}

#[test]
fn shuttle_with_rare_preemptions() {
    shuttle::check_pct(|| two_senders_one_target_full_queues_and_a_mark(Kind::Dealt, false), 300, 3);
}

#[test]
fn shuttle_priced() {
    shuttle::check_random(|| two_senders_one_target_full_queues_and_a_mark(Kind::Priced, false), 300);
}

/// Targets of an edge change while its queues are full: what goes gets its end behind its rows, what comes gets all
/// that the others do not take.
fn targets_change_under_full_queues(policy: &'static str) {
    let budget = Budget::new(1 << 30);
    let wake = Arc::new(Notify::new());
    let target = |instance: u32| {
        let credit = Credit::new(Arc::clone(&wake));
        let channels = vec![Upstream::Local(Arc::clone(&credit))];
        let inbox =
            Inbox::new(vec![InputSpec { edge: 0, priority: 0, channels }], BOUND, Arc::clone(&budget));
        let link = Link::Local { inbox: Arc::clone(&inbox), channel: 0 };
        (inbox, Outlet { instance, agent: 0, credit, link, sent_rows: 0, sent_bytes: 0 })
    };
    let (inboxes, mut outlets): (Vec<_>, Vec<_>) = (0..3).map(target).unzip();
    let comes = outlets.split_off(2);
    let spec = EdgeSpec { index: 0, barriers_in_order: false, deal: 1, routes: Routes::Any };
    let edge = Edge::new(spec, Outlets::new(outlets), Arc::clone(&wake));
    let rooms: Vec<Arc<Notify>> = (0..2).map(|_| Arc::default()).collect();
    for (number, room) in (0..).zip(&rooms) {
        let (policy, view) = (make_policy("round-robin", 0).unwrap(), Targets::new([vec![0, 1]]));
        edge.add_sender(number, OutQueue::pool(policy, view, vec![0, 1]), BOUND, Arc::clone(room));
    }
    let mover = thread::spawn({
        let edge = Arc::clone(&edge);
        move || future::block_on(edge.run())
    });
    let senders: Vec<_> = rooms
        .into_iter()
        .enumerate()
        .map(|(sender, room)| {
            let (edge, budget) = (Arc::clone(&edge), Arc::clone(&budget));
            thread::spawn(move || {
                for id in 0..ROWS {
                    while edge.is_full(sender) {
                        future::block_on(room.notified());
                    }
                    edge.append(sender, row(id, &budget)).unwrap();
                }
                edge.mark(sender, Mark::End);
                while !edge.is_drained(sender) {
                    future::block_on(room.notified());
                }
            })
        })
        .collect();
    let readers: Vec<_> = inboxes
        .iter()
        .map(|inbox| {
            let inbox = Arc::clone(inbox);
            thread::spawn(move || {
                let mut rows = 0;
                loop {
                    match inbox.take(1, false).unwrap() {
                        Taken::Rows { rows: taken, .. } => rows += taken.len() as u64,
                        Taken::Ended => return rows,
                        Taken::Nothing => future::block_on(inbox.wait()),
                        other => panic!("{other:?}"),
                    }
                }
            })
        })
        .collect();
    let options = RouteOptions::of(Setting::Default);
    let route = Route {
        policies: &Policies::default(),
        name: policy,
        options: &options,
        given: "{}",
        costs: &Costs::table(&[1]),
        of_source: false,
        me: 0,
        slots: &Slots::begin(),
        ahead: None,
    };
    edge.retarget(comes, &|id| id != 1, &route).unwrap();
    for sender in senders {
        sender.join().unwrap();
    }
    // Every target ends, and what it has read is what was sent to it.
    let read: Vec<u64> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    edge.close("stopped");
    mover.join().unwrap().unwrap();
    let sent = edge.sent();
    assert_eq!((sent.emitted, sent.queued), (2 * ROWS as u64, 0));
    for (instance, rows) in (0..).zip(read) {
        let to =
            sent.targets.iter().filter(|(to, ..)| *to == instance).map(|(.., rows, _)| rows).sum::<u64>();
        assert_eq!(rows, to, "target {instance}");
    }
    assert_eq!(sent.targets.iter().map(|(.., rows, _)| rows).sum::<u64>(), 2 * ROWS as u64);
    assert_eq!(budget.used(), 0);
}

#[test]
fn shuttle_targets_change() {
    shuttle::check_random(|| targets_change_under_full_queues("round-robin"), 300);
}

#[test]
fn shuttle_targets_change_with_rare_preemptions() {
    shuttle::check_pct(|| targets_change_under_full_queues("round-robin"), 300, 3);
}

#[test]
fn shuttle_priced_targets_change() {
    shuttle::check_random(|| targets_change_under_full_queues("jsq"), 300);
}
