//! Edges and inboxes without a network: order of marks, windows, priorities, what a ledger counts.

use std::sync::Arc;

use tokio::sync::Notify;
use tuplane_core::route::{Targets, make_policy};
use tuplane_expr::arrow::array::{AsArray, Int64Array, RecordBatch};
use tuplane_expr::arrow::datatypes::{DataType, Field, Int64Type, Schema};

use super::credit::{Credit, LEAST_WINDOW};
use super::edge::{Edge, EdgeSpec};
use super::inbox::{Inbox, InputSpec, Taken, Upstream};
use super::load::Notes;
use super::mark::{Item, Mark};
use super::outlet::{Link, Outlet, Outlets};
use super::outqueue::{OutQueue, Routes};
use crate::engine::rows::{Budget, Rows};

fn rows(ids: std::ops::Range<i64>, budget: &Arc<Budget>) -> Rows {
    let schema = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
    let column = Arc::new(Int64Array::from_iter_values(ids));
    Rows::new(RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap(), None, budget).unwrap()
}

fn ids(rows: &Rows) -> Vec<i64> {
    rows.batch().column(0).as_primitive::<Int64Type>().values().to_vec()
}

/// An inbox whose channels' senders are here, by input: priority and number of channels.
fn inbox(inputs: &[(i32, usize)], bound: u64, budget: &Arc<Budget>) -> (Arc<Inbox>, Vec<Arc<Credit>>) {
    let mut credits = Vec::new();
    let mut specs = Vec::new();
    for (edge, (priority, channels)) in (0..).zip(inputs) {
        let mine: Vec<Arc<Credit>> = (0..*channels).map(|_| Credit::new(Arc::default())).collect();
        let channels = mine.iter().map(|credit| Upstream::Local(Arc::clone(credit))).collect();
        specs.push(InputSpec { edge, priority: *priority, channels });
        credits.extend(mine);
    }
    (Inbox::new(specs, bound, Arc::clone(budget)), credits)
}

/// An edge of `senders` to inboxes of their own, all on this agent.
fn edge(routes: Routes, in_order: bool, senders: u32, inboxes: &[Arc<Inbox>]) -> Arc<Edge> {
    let wake = Arc::<Notify>::default();
    let outlets = (0..).zip(inboxes).map(|(instance, inbox)| Outlet {
        instance,
        agent: 0,
        credit: Credit::new(Arc::clone(&wake)),
        link: Link::Local { inbox: Arc::clone(inbox), channel: 0 },
        sent_rows: 0,
        sent_bytes: 0,
    });
    let pool = matches!(routes, Routes::Any);
    let outlets = Outlets::new(outlets.collect());
    let edge = Edge::new(EdgeSpec { index: 0, barriers_in_order: in_order, deal: 1, routes }, outlets, wake);
    for sender in 0..senders {
        let width = inboxes.len();
        let queue = if pool {
            let targets = Targets::new([(0..width as u32).collect::<Vec<_>>()]);
            OutQueue::pool(make_policy("round-robin", 0).unwrap(), targets, (0..width).collect())
        } else {
            OutQueue::lanes(width)
        };
        edge.add_sender(sender, queue, 1 << 20, Arc::default());
    }
    edge
}

/// Everything that an inbox gives now, rows as their ids.
fn all(inbox: &Inbox) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        match inbox.take(100, false).unwrap() {
            Taken::Rows { rows, .. } => seen.push(format!("{:?}", ids(&rows))),
            Taken::Idle => seen.push("idle".to_owned()),
            Taken::Watermark(time) => seen.push(format!("watermark {time}")),
            Taken::Barrier(number) => seen.push(format!("barrier {number}")),
            Taken::InputEnded(input) => seen.push(format!("input {input} ended")),
            Taken::ChannelEnded(channel) => seen.push(format!("channel {channel} ended")),
            Taken::Ended => {
                seen.push("ended".to_owned());
                return seen;
            }
            Taken::Nothing => return seen,
        }
    }
}

#[test]
fn no_row_passes_a_barrier_that_stands_in_order() {
    let budget = Budget::new(1 << 20);
    for (routes, targets) in [(Routes::Every, 2), (Routes::Any, 1), (Routes::One, 1)] {
        let name = format!("{routes:?}");
        let inboxes: Vec<Arc<Inbox>> = (0..targets).map(|_| inbox(&[(0, 1)], 1 << 20, &budget).0).collect();
        let edge = edge(routes, true, 2, &inboxes);
        edge.append(0, rows(0..1, &budget)).unwrap();
        edge.mark(0, Mark::Barrier(1));
        edge.append(0, rows(1..2, &budget)).unwrap();
        edge.mark(0, Mark::Watermark(7));
        for inbox in &inboxes {
            assert_eq!(
                all(inbox),
                ["[0]"],
                "{name}: what stands behind the barrier waits for the other sender"
            );
        }
        edge.append(1, rows(10..11, &budget)).unwrap();
        edge.mark(1, Mark::Barrier(1));
        edge.mark(1, Mark::Watermark(9));
        edge.pump();
        for inbox in &inboxes {
            let after = all(inbox);
            assert_eq!(after[..2], ["[10]", "barrier 1"], "{name}");
            assert_eq!(after[2..], ["[1]", "watermark 7"], "{name}");
        }
    }
}

#[test]
fn a_barrier_of_a_unicast_edge_goes_ahead_of_its_queue() {
    let budget = Budget::new(1 << 30);
    let (inbox, _) = inbox(&[(0, 1)], 1 << 20, &budget);
    let edge = edge(Routes::Any, false, 1, std::slice::from_ref(&inbox));
    // Two pieces use up the first window; the third waits.
    let long = LEAST_WINDOW as i64 / 8;
    for from in [0, long, 2 * long] {
        edge.append(0, rows(from..from + long, &budget)).unwrap();
    }
    let waiting = edge.waiting(0);
    assert!(waiting > 0);
    edge.mark(0, Mark::Barrier(1));
    let taken = all(&inbox);
    assert_eq!(taken.last().map(String::as_str), Some("barrier 1"));
    assert_eq!(edge.waiting(0), waiting, "the rows that the barrier passed are part of the snapshot");
}

#[test]
fn the_watermark_is_not_lost_when_an_ended_channel_frees_a_barrier_too() {
    let budget = Budget::new(1 << 20);
    let (inbox, _) = inbox(&[(0, 3)], 1 << 20, &budget);
    for channel in [0, 1] {
        inbox.push(channel, Item::Mark(Mark::Watermark(5)));
        inbox.push(channel, Item::Mark(Mark::Barrier(1)));
    }
    assert_eq!(all(&inbox), Vec::<String>::new());
    inbox.push(2, Item::Mark(Mark::End));
    assert_eq!(all(&inbox), ["barrier 1", "watermark 5"]);
}

#[test]
fn an_idle_sender_holds_no_watermark_back_and_its_next_one_comes_before_its_rows() {
    let budget = Budget::new(1 << 20);
    let (inbox, _) = inbox(&[(0, 1)], 1 << 20, &budget);
    let edge = edge(Routes::One, false, 2, std::slice::from_ref(&inbox));
    edge.append(0, rows(0..1, &budget)).unwrap();
    edge.mark(0, Mark::Watermark(5));
    assert_eq!(all(&inbox), ["[0]"], "the other sender has said nothing");
    edge.mark(1, Mark::Idle);
    assert_eq!(all(&inbox), ["watermark 5"]);
    edge.mark(1, Mark::Watermark(2));
    edge.append(1, rows(1..2, &budget)).unwrap();
    edge.mark(0, Mark::Watermark(9));
    assert_eq!(all(&inbox), ["[1]"], "it is awake, at 2");
    edge.mark(1, Mark::Watermark(7));
    edge.append(0, rows(2..3, &budget)).unwrap();
    edge.mark(0, Mark::Idle);
    edge.mark(1, Mark::Idle);
    assert_eq!(all(&inbox), ["watermark 7", "[2]", "watermark 9", "idle"]);
    edge.mark(1, Mark::Watermark(3));
    edge.append(1, rows(3..4, &budget)).unwrap();
    edge.mark(0, Mark::End);
    edge.mark(1, Mark::End);
    assert_eq!(all(&inbox), ["watermark 9", "[3]", "ended"]);
}

#[test]
fn channels_that_are_idle_or_have_ended_hold_no_watermark_back() {
    let budget = Budget::new(1 << 20);
    let (inbox, _) = inbox(&[(0, 2), (0, 1)], 1 << 20, &budget);
    inbox.push(0, Item::Mark(Mark::Watermark(4)));
    inbox.push(1, Item::Mark(Mark::Idle));
    assert_eq!(all(&inbox), Vec::<String>::new());
    inbox.push(2, Item::Mark(Mark::Watermark(8)));
    assert_eq!(all(&inbox), ["watermark 4"]);
    inbox.push(0, Item::Mark(Mark::End));
    assert_eq!(all(&inbox), ["watermark 8"]);
    inbox.push(2, Item::Mark(Mark::Idle));
    assert_eq!(all(&inbox), ["idle"]);
    inbox.push(1, Item::Mark(Mark::Watermark(6)));
    inbox.push(1, Item::Rows(rows(0..1, &budget)));
    assert_eq!(all(&inbox), ["watermark 8", "[0]"]);
}

#[test]
fn only_the_open_inputs_of_the_lowest_priority_are_read() {
    let budget = Budget::new(1 << 20);
    let (inbox, _) = inbox(&[(0, 1), (-1, 1)], 1 << 20, &budget);
    inbox.push(0, Item::Rows(rows(0..1, &budget)));
    inbox.push(1, Item::Rows(rows(5..6, &budget)));
    assert_eq!(all(&inbox), ["[5]"]);
    inbox.push(1, Item::Mark(Mark::End));
    assert_eq!(all(&inbox), ["input 1 ended", "[0]"]);
}

#[test]
fn an_instance_over_its_bound_is_given_marks_and_no_rows() {
    let budget = Budget::new(1 << 20);
    let (inbox, _) = inbox(&[(0, 2)], 1 << 20, &budget);
    inbox.push(0, Item::Mark(Mark::Barrier(3)));
    inbox.push(1, Item::Mark(Mark::Barrier(3)));
    inbox.push(1, Item::Rows(rows(0..1, &budget)));
    assert!(matches!(inbox.take(10, true).unwrap(), Taken::Barrier(3)));
    assert!(matches!(inbox.take(10, true).unwrap(), Taken::Nothing));
    assert!(matches!(inbox.take(10, false).unwrap(), Taken::Rows { .. }));
}

#[test]
fn windows_follow_the_use_of_the_last_second_and_an_idle_channel_keeps_the_least() {
    let budget = Budget::new(1 << 30);
    let bound = 20 * LEAST_WINDOW;
    let (inbox, credits) = inbox(&[(0, 2)], bound, &budget);
    let used = |inbox: &Inbox| {
        inbox.push(0, Item::Rows(rows(0..1000, &budget)));
        all(inbox);
        inbox.adapt(0, false);
    };
    used(&inbox);
    assert_eq!((inbox.note(0).window, inbox.note(1).window), (19 * LEAST_WINDOW, LEAST_WINDOW));
    // A pause of a tenth of a second changes nothing; one of some seconds does.
    inbox.adapt(0, false);
    assert_eq!(inbox.note(0).window, 19 * LEAST_WINDOW);
    for _ in 0..200 {
        inbox.adapt(0, false);
    }
    assert_eq!(inbox.note(0).window, LEAST_WINDOW);
    // 100 ms of rows at 1 ms each: 100 rows of 8 bytes over both channels.
    used(&inbox);
    inbox.adapt(1_000_000, true);
    let notes = [inbox.note(0).window, inbox.note(1).window];
    assert!(notes.iter().sum::<u64>() <= 800 && notes[0] >= notes[1], "{notes:?}");
    assert!(credits.iter().all(|credit| credit.frame() >= 1));
}

#[test]
fn over_the_budget_a_channel_may_send_one_small_frame() {
    let budget = Budget::new(1 << 20);
    let (inbox, _) = inbox(&[(0, 1)], 64 << 20, &budget);
    inbox.push(0, Item::Rows(rows(0..1000, &budget)));
    all(&inbox);
    inbox.adapt(0, false);
    assert!(inbox.note(0).window > LEAST_WINDOW);
    let limit = inbox.note(0).limit;
    let held = rows(0..200_000, &budget);
    assert!(budget.over());
    let note = inbox.note(0);
    assert_eq!((note.window, note.limit), (LEAST_WINDOW, limit), "what was granted stays; frames are small");
    drop(held);
    assert!(inbox.note(0).window > LEAST_WINDOW);
}

#[test]
fn a_broadcast_row_counts_once_for_each_target() {
    let budget = Budget::new(1 << 20);
    let inboxes: Vec<Arc<Inbox>> = (0..3).map(|_| inbox(&[(0, 1)], 1 << 20, &budget).0).collect();
    let edge = edge(Routes::Every, true, 1, &inboxes);
    edge.append(0, rows(0..5, &budget)).unwrap();
    let sent = edge.sent();
    assert_eq!((sent.emitted, sent.queued), (15, 0));
    let taken: u64 = inboxes
        .iter()
        .map(|inbox| {
            all(inbox);
            inbox.counts()[0].2
        })
        .sum();
    assert_eq!(taken, 15);
}

#[test]
fn shares_differ_by_no_more_than_a_run() {
    let budget = Budget::new(1 << 30);
    let inboxes: Vec<Arc<Inbox>> = (0..3).map(|_| inbox(&[(0, 1)], 1 << 20, &budget).0).collect();
    let edge = edge(Routes::Any, false, 1, &inboxes);
    for from in 0..300 {
        edge.append(0, rows(from..from + 1, &budget)).unwrap();
    }
    let shares: Vec<u64> = edge.sent().targets.iter().map(|(_, _, rows, _)| *rows).collect();
    assert_eq!(shares, [100, 100, 100]);
}

#[tokio::test]
async fn those_who_price_by_a_queue_are_told_of_each_change_and_others_of_none() {
    let budget = Budget::new(1 << 20);
    let (here, there) = (Arc::<Notes>::default(), Arc::<Notes>::default());
    let channels = |notes: &Arc<Notes>| vec![Upstream::Remote(Arc::clone(notes))];
    let inputs = vec![
        InputSpec { edge: 0, priority: 0, channels: channels(&here) },
        InputSpec { edge: 1, priority: 0, channels: channels(&there) },
    ];
    let inbox = Inbox::new(inputs, 1 << 20, Arc::clone(&budget));
    let told = |notes: &Notes| futures::FutureExt::now_or_never(notes.changed.notified()).is_some();
    inbox.keep_fresh(0, Some(std::time::Duration::from_millis(1)));
    assert!(told(&here), "what is there already");
    // Rows of the other input count too, and their sender asks for nothing.
    inbox.push(1, Item::Rows(rows(0..3, &budget)));
    assert!(told(&here) && !told(&there));
    assert_eq!((inbox.note(0).queued_rows, inbox.note(0).received_rows), (3, 0));
    assert!(matches!(inbox.take(2, false), Ok(Taken::Rows { .. })));
    assert!(told(&here));
    assert_eq!(inbox.note(0).queued_rows, 3, "two are being worked on");
    inbox.load().clear();
    assert!(matches!(inbox.take(2, false), Ok(Taken::Rows { .. })));
    inbox.load().clear();
    assert!(told(&here));
    assert!(matches!(inbox.take(2, false), Ok(Taken::Nothing)));
    assert!(told(&here), "the last one is done");
    assert_eq!(inbox.note(0).queued_rows, 0);
    assert!(matches!(inbox.take(2, false), Ok(Taken::Nothing)));
    assert!(!told(&here), "nothing has changed");
    inbox.set_blocked(true);
    assert!(told(&here));
    inbox.keep_fresh(0, None);
    inbox.push(0, Item::Rows(rows(0..3, &budget)));
    assert!(!told(&here));
}

#[test]
fn rows_whose_turn_has_not_come_are_no_queue_yet() {
    let budget = Budget::new(1 << 20);
    let (inbox, _) = inbox(&[(0, 1), (-1, 1)], 1 << 20, &budget);
    inbox.push(0, Item::Rows(rows(0..5, &budget)));
    inbox.push(1, Item::Rows(rows(0..2, &budget)));
    assert_eq!(inbox.load().queued(), 2);
    inbox.push(1, Item::Mark(Mark::End));
    assert_eq!(all(&inbox).len(), 3);
    assert_eq!(inbox.load().waiting(), 0);
}
