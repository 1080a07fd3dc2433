//! Input queues that grow hold up nobody, and the others stay at their bound.

use std::sync::Arc;

use proptest::prelude::*;
use tokio::sync::Notify;
use tuplane_core::route::{Targets, make_policy};
use tuplane_expr::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use tuplane_expr::arrow::datatypes::Int64Type;

use super::*;
use crate::engine::rows::Budget;
use crate::exchange::credit::Credit;
use crate::exchange::edge::{Edge, EdgeSpec};
use crate::exchange::inbox::{InputSpec, Taken, Upstream};
use crate::exchange::mark::{Item, Mark};
use crate::exchange::outlet::{Link, Outlet, Outlets};
use crate::exchange::outqueue::{OutQueue, Routes};

/// What an input queue may hold that does not grow.
const BOUND: u64 = 64 << 10;

fn rows(from: i64, count: i64, budget: &Arc<Budget>) -> Rows {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + count));
    Rows::new(RecordBatch::try_from_iter([("id", column)]).unwrap(), None, budget).unwrap()
}

fn ids(rows: &Rows) -> Vec<i64> {
    rows.batch().column(0).as_primitive::<Int64Type>().values().to_vec()
}

/// An inbox of one channel, and its credit.
fn inbox(grows: bool, budget: &Arc<Budget>) -> (Arc<Inbox>, Arc<Credit>) {
    let wake = Arc::<Notify>::default();
    let credit = if grows { Credit::with(wake, UNBOUNDED) } else { Credit::new(wake) };
    let channels = vec![Upstream::Local(Arc::clone(&credit))];
    let inbox = Inbox::new(vec![InputSpec { edge: 0, priority: 0, channels }], BOUND, Arc::clone(budget));
    if grows {
        inbox.let_grow(0);
    }
    (inbox, credit)
}

/// Sends half a mebibyte to an inbox that nobody reads; rows in its queue and in the sender's, and whether that is full.
fn flood(grows: bool) -> (u64, u64, bool) {
    // Far less than comes: over its budget an agent gives credit for a frame at a time.
    let budget = Budget::new(1 << 10);
    let (inbox, credit) = inbox(grows, &budget);
    let link = Link::Local { inbox: Arc::clone(&inbox), channel: 0 };
    let outlet = Outlet { instance: 0, agent: 0, credit, link, sent_rows: 0, sent_bytes: 0 };
    let spec = EdgeSpec { index: 0, barriers_in_order: false, deal: 1, routes: Routes::Any };
    let edge = Edge::new(spec, Outlets::new(vec![outlet]), Arc::default());
    let policy = make_policy("round-robin", 0).unwrap();
    let queue = OutQueue::pool(policy, Targets::new([vec![0]]), vec![0]);
    let sender = edge.add_sender(0, queue, if grows { UNBOUNDED } else { BOUND }, Arc::default());
    for step in 0..64 {
        edge.append(sender, rows(step * 1024, 1024, &budget)).unwrap();
        inbox.adapt(1_000_000, true);
    }
    let waiting = inbox.counts()[0].1;
    assert_eq!(inbox.note(0).queued_rows, waiting, "who sends is told how long the queue is");
    assert_eq!(waiting + edge.waiting(sender), 64 * 1024);
    (waiting, edge.waiting(sender), edge.is_full(sender))
}

#[test]
fn nobody_is_refused_for_want_of_room() {
    assert_eq!(flood(true), (64 * 1024, 0, false));
    let (waiting, held, full) = flood(false);
    assert!(waiting < 16 * 1024 && held > 0 && full, "{waiting} and {held}");
}

#[test]
fn senders_that_join_have_no_bound_either() {
    let budget = Budget::new(1 << 20);
    let (inbox, _) = inbox(true, &budget);
    let upstream = Upstream::Local(Credit::with(Arc::default(), UNBOUNDED));
    let joined = inbox.join(0, upstream).unwrap();
    inbox.begin_small();
    assert_eq!(inbox.note(joined).limit, UNBOUNDED);
}

#[test]
fn single_rows_of_a_long_queue_are_joined() {
    let budget = Budget::new(1 << 20);
    let (inbox, _) = inbox(true, &budget);
    for id in 0..10_000 {
        inbox.push(0, Item::Rows(rows(id, 1, &budget)));
    }
    let pieces = lock(&inbox.state).channels[0].queue.len();
    assert!(pieces < 250, "{pieces} pieces of 10,000 rows");
}

/// What comes, or what the reader does.
#[derive(Debug, Clone)]
enum Step {
    Rows(i64),
    Mark,
    Take(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1i64..3).prop_map(Step::Rows),
        1 => (3i64..400).prop_map(Step::Rows),
        1 => Just(Step::Mark),
        3 => (1usize..60).prop_map(Step::Take),
    ]
}

proptest! {
    #[test]
    fn nothing_is_lost_and_no_mark_passes_a_row(steps in prop::collection::vec(step(), 1..600)) {
        let budget = Budget::to_fill(1 << 30);
        let (inbox, _) = inbox(true, &budget);
        let (mut next, mut read) = (0, 0);
        // Marks say how many rows stand before them.
        let mut take = |most: usize, next: i64| {
            match inbox.take(most, false).unwrap() {
                Taken::Rows { rows, .. } => {
                    let ids = ids(&rows);
                    prop_assert!(ids.len() <= most);
                    prop_assert_eq!(&ids, &(read..read + ids.len() as i64).collect::<Vec<_>>());
                    read += ids.len() as i64;
                }
                Taken::Watermark(before) => prop_assert_eq!(before, read),
                Taken::Nothing => prop_assert_eq!(read, next),
                other => prop_assert!(false, "{:?}", other),
            }
            prop_assert_eq!(inbox.counts()[0].1 as i64, next - read);
            Ok(read)
        };
        for step in steps {
            match step {
                Step::Rows(count) => {
                    inbox.push(0, Item::Rows(rows(next, count, &budget)));
                    next += count;
                }
                Step::Mark => inbox.push(0, Item::Mark(Mark::Watermark(next))),
                Step::Take(most) => drop(take(most, next)?),
            }
        }
        while take(100, next)? < next {}
    }
}
