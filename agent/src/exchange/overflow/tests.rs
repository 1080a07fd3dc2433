//! Rows beyond a queue's bound: in order, on disk, and only until their targets read.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use tuplane_core::route::{Targets, make_policy};
use tuplane_expr::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, UInt16Array};
use tuplane_expr::arrow::datatypes::Int64Type;

use super::*;
use crate::exchange::credit::Credit;
use crate::exchange::edge::{Edge, EdgeSpec};
use crate::exchange::inbox::{Inbox, InputSpec, Taken, Upstream};
use crate::exchange::outlet::{Link, Outlet, Outlets};
use crate::exchange::outqueue::{OutQueue, Routes};

const BOUND: u64 = 16 << 10;

fn schema() -> SchemaRef {
    let fields = [Field::new("id", DataType::Int64, false), Field::new("text", DataType::Utf8, false)];
    Arc::new(Schema::new(fields.to_vec()))
}

pub(super) fn rows(ids: std::ops::Range<i64>, partitioned: bool, budget: &Arc<Budget>) -> Rows {
    let text: StringArray = ids.clone().map(|id| Some("x".repeat((id % 50) as usize))).collect();
    let columns = vec![Arc::new(Int64Array::from_iter_values(ids.clone())) as ArrayRef, Arc::new(text)];
    let partitions = partitioned.then(|| UInt16Array::from_iter_values(ids.map(|id| (id % 2) as u16)));
    Rows::new(RecordBatch::try_new(schema(), columns).unwrap(), partitions, budget).unwrap()
}

fn ids(rows: &Rows) -> Vec<i64> {
    rows.batch().column(0).as_primitive::<Int64Type>().values().to_vec()
}

pub(super) fn spills(folder: &Path, partitioned: bool) -> Spills {
    overflow(folder, partitioned, &Budget::new(0)).spills
}

/// Waits for what another thread does.
fn soon(mut done: impl FnMut() -> bool) {
    while !done() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn overflow(folder: &Path, partitioned: bool, budget: &Arc<Budget>) -> Overflow {
    Overflow::new("a..j".to_owned(), folder.to_owned(), &schema(), partitioned, Arc::clone(budget))
}

/// What is done with it.
#[derive(Debug, Clone)]
enum Act {
    Push(i64),
    Mark(i64),
    Next,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (1_i64..6000).prop_map(Act::Push),
        1 => (0_i64..100).prop_map(Act::Mark),
        3 => Just(Act::Next),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_goes_in_comes_out_in_order(acts in prop::collection::vec(act(), 1..40), partitioned: bool) {
        let folder = tempfile::tempdir().unwrap();
        let budget = Budget::new(1 << 30);
        let mut overflow = overflow(folder.path(), partitioned, &budget);
        // Ids, and in their order marks as negative numbers. Watermarks side by side are one.
        let (mut given, mut got, mut last, mut watermark) = (Vec::new(), Vec::new(), 0, 0);
        let take = |overflow: &mut Overflow, got: &mut Vec<i64>| match overflow.next().unwrap() {
            Some(Item::Rows(rows)) => {
                assert_eq!(rows.partitions().is_some(), partitioned);
                for (id, partition) in ids(&rows).into_iter().zip(rows.partitions().into_iter().flatten()) {
                    assert_eq!(partition, Some((id % 2) as u16));
                }
                got.extend(ids(&rows));
            }
            Some(Item::Mark(Mark::Watermark(time))) => got.push(-time),
            Some(Item::Mark(_)) => got.push(-1_000_000),
            // Or it is being read.
            None => std::thread::yield_now(),
        };
        for act in acts {
            match act {
                Act::Push(count) => {
                    overflow.push(rows(last..last + count, partitioned, &budget), overflow.on_disk()).unwrap();
                    given.extend(last..last + count);
                    last += count;
                }
                Act::Mark(step) => {
                    watermark += step + 1;
                    overflow.mark(Mark::Watermark(watermark)).unwrap();
                    given.push(-watermark);
                }
                Act::Next => take(&mut overflow, &mut got),
            }
            let waiting = given.iter().filter(|id| **id >= 0).count() - got.iter().filter(|id| **id >= 0).count();
            assert_eq!(overflow.rows(), waiting as u64);
        }
        overflow.mark(Mark::End).unwrap();
        given.push(-1_000_000);
        while !overflow.is_empty() {
            take(&mut overflow, &mut got);
        }
        // Of marks side by side the last one stands for all.
        let kept = |marks: &[i64]| -> Vec<i64> {
            let next = marks.iter().skip(1).map(Some).chain([None]);
            let merged = |(mark, next): &(&i64, Option<&i64>)| {
                !(**mark < 0 && **mark > -1_000_000 && next.is_some_and(|next| *next < 0 && *next > -1_000_000))
            };
            marks.iter().zip(next).filter(merged).map(|(mark, _)| *mark).collect()
        };
        prop_assert_eq!(kept(&got), kept(&given));
        prop_assert_eq!((overflow.rows(), overflow.on_disk(), budget.used()), (0, 0, 0));
        prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

/// An inbox, and the credit of its first channel with what that wakes.
type Target = (Arc<Inbox>, Arc<Credit>, Arc<Notify>);

/// One that reads a build side, its other channel, first.
fn waiting_inbox(budget: &Arc<Budget>) -> Target {
    let wake = Arc::<Notify>::default();
    let credit = Credit::new(Arc::clone(&wake));
    let one = |edge, priority, credit| InputSpec { edge, priority, channels: vec![Upstream::Local(credit)] };
    let inputs = vec![one(0, 0, Arc::clone(&credit)), one(1, -1, Credit::new(Arc::default()))];
    (Inbox::new(inputs, 1 << 20, Arc::clone(budget)), credit, wake)
}

fn edge_to(inboxes: &[Target], routes: Routes, queue: OutQueue) -> Arc<Edge> {
    let outlet = |(instance, (inbox, credit, _)): (u32, &Target)| Outlet {
        instance,
        agent: 0,
        credit: Arc::clone(credit),
        link: Link::Local { inbox: Arc::clone(inbox), channel: 0 },
        sent_rows: 0,
        sent_bytes: 0,
    };
    let outlets = Outlets::new((0..).zip(inboxes).map(outlet).collect());
    let spec = EdgeSpec { index: 0, barriers_in_order: false, deal: 1, routes };
    let edge = Edge::new(spec, outlets, Arc::clone(&inboxes[0].2));
    edge.add_sender(7, queue, BOUND, Arc::default());
    edge
}

/// Ids, and "end", that an inbox gives now.
fn taken(inbox: &Inbox) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        match inbox.take(8192, false).unwrap() {
            Taken::Rows { rows, .. } => seen.extend(ids(&rows).iter().map(i64::to_string)),
            Taken::Nothing => return seen,
            Taken::Ended => {
                seen.push("end".to_owned());
                return seen;
            }
            Taken::InputEnded(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_sender_is_not_held_up_before_all_its_targets_read() {
    let folder = tempfile::tempdir().unwrap();
    let budget = Budget::new(64 << 20);
    for partitioned in [false, true] {
        let inboxes = [waiting_inbox(&budget), waiting_inbox(&budget)];
        let (routes, queue) = if partitioned {
            (Routes::ByPartition(vec![0, 1]), OutQueue::lanes(2))
        } else {
            let policy = make_policy("round-robin", 0).unwrap();
            (Routes::Any, OutQueue::pool(policy, Targets::new([vec![0, 1]]), vec![0, 1]))
        };
        let edge = edge_to(&inboxes, routes, queue);
        edge.let_spill(0, overflow(folder.path(), partitioned, &budget));
        let mut next = 0;
        let mut append = |edge: &Edge| {
            edge.append(0, rows(next..next + 1000, partitioned, &budget)).unwrap();
            next += 1000;
        };
        for _ in 0..100 {
            append(&edge);
            soon(|| !edge.is_full(0));
        }
        soon(|| budget.used() < 1 << 20);
        assert_eq!(edge.sent().emitted, 100_000);
        assert!(inboxes.iter().all(|(inbox, _, _)| taken(inbox).is_empty()), "read before its turn");
        assert_eq!(inboxes[0].0.load().waiting(), 0, "what is not to be read yet does not count as a queue");
        // One target reads, the other one does not.
        inboxes[0].0.push(1, Item::Mark(Mark::End));
        let mut found = taken(&inboxes[0].0);
        assert!(!found.is_empty());
        soon(|| !edge.is_full(0));
        append(&edge);
        inboxes[1].0.push(1, Item::Mark(Mark::End));
        found.extend(taken(&inboxes[1].0));
        assert!(edge.is_full(0), "from here on a slow reader holds up its sender");
        edge.mark(0, Mark::End);
        let mut ended = 0;
        while ended < 2 {
            edge.pump();
            for (inbox, _, _) in &inboxes {
                let more = taken(inbox);
                ended += more.iter().filter(|one| *one == "end").count();
                found.extend(more.into_iter().filter(|one| one != "end"));
            }
        }
        assert!(edge.is_drained(0));
        let mut found: Vec<i64> = found.iter().map(|id| id.parse().unwrap()).collect();
        found.sort_unstable();
        assert!(found.into_iter().eq(0..101_000), "each row once");
        let sent = edge.sent();
        assert_eq!((sent.emitted, sent.queued, budget.used()), (101_000, 0, 0));
    }
}

#[test]
fn what_cannot_wait_on_disk_says_so() {
    let budget = Budget::new(64 << 20);
    let folder = tempfile::tempdir().unwrap();
    let mut full = overflow(folder.path(), false, &budget);
    let error = full.push(rows(0..10, false, &budget), MOST).unwrap_err().to_string();
    assert!(
        error.starts_with("rows on a..j wait until the join's other side has ended: 4294967296 bytes"),
        "{error}"
    );
    assert!(error.ends_with("make the other side shorter, or read the two sides from sources of their own"));
    let mut nowhere = overflow(Path::new("/nonexistent"), false, &budget);
    let mut error = None;
    soon(|| {
        error = nowhere.push(rows(0..1000, false, &budget), 0).err();
        error.is_some()
    });
    let error = error.unwrap().to_string();
    assert!(error.contains("rows cannot be kept in /nonexistent"), "{error}");
    assert_eq!(nowhere.next().unwrap_err().to_string(), error);
    assert_eq!(nowhere.mark(Mark::End).unwrap_err().to_string(), error);
}

#[tokio::test]
async fn an_edge_whose_rows_cannot_wait_ends_with_the_reason() {
    let budget = Budget::new(64 << 20);
    let inboxes = [waiting_inbox(&budget)];
    let queue = OutQueue::pool(make_policy("round-robin", 0).unwrap(), Targets::new([vec![0]]), vec![0]);
    let edge = edge_to(&inboxes, Routes::Any, queue);
    edge.let_spill(0, overflow(Path::new("/nonexistent"), false, &budget));
    for n in 0..5 {
        edge.append(0, rows(n * 1000..n * 1000 + 1000, false, &budget)).unwrap();
    }
    // What is in memory is written before a mark.
    edge.mark(0, Mark::End);
    let error = edge.run().await.unwrap_err();
    assert!(error.contains("rows on a..j wait") && error.contains("/nonexistent"), "{error}");
}

#[test]
fn a_run_that_stops_drops_what_waits_on_disk_and_counts_it() {
    let folder = tempfile::tempdir().unwrap();
    let budget = Budget::new(64 << 20);
    let inboxes = [waiting_inbox(&budget)];
    let queue = OutQueue::pool(make_policy("round-robin", 0).unwrap(), Targets::new([vec![0]]), vec![0]);
    let edge = edge_to(&inboxes, Routes::Any, queue);
    edge.let_spill(0, overflow(folder.path(), false, &budget));
    for n in 0..20 {
        edge.append(0, rows(n * 1000..n * 1000 + 1000, false, &budget)).unwrap();
    }
    assert!(edge.waiting(0) > 19_000);
    edge.close("stopped");
    inboxes[0].0.close();
    let (_, _, taken, dropped) = inboxes[0].0.counts()[0];
    let sent = edge.sent();
    assert_eq!((sent.queued, taken, sent.dropped["stopped"] + dropped), (0, 0, 20_000));
    soon(|| budget.used() == 0);
}

#[test]
fn a_broadcast_row_counts_once_for_each_target_wherever_it_waits() {
    let folder = tempfile::tempdir().unwrap();
    let budget = Budget::new(64 << 20);
    for stops in [false, true] {
        let inboxes = [waiting_inbox(&budget), waiting_inbox(&budget), waiting_inbox(&budget)];
        let edge = edge_to(&inboxes, Routes::Every, OutQueue::lanes(3));
        edge.let_spill(0, overflow(folder.path(), false, &budget));
        let counts = || {
            let taken = inboxes.iter().map(|(inbox, _, _)| inbox.counts()[0]);
            taken.fold((0, 0, 0), |sum, (_, queued, taken, dropped)| {
                (sum.0 + queued, sum.1 + taken, sum.2 + dropped)
            })
        };
        let balances = |emitted| {
            let (sent, (queued, taken, dropped)) = (edge.sent(), counts());
            let stopped: u64 = sent.dropped.values().sum();
            assert_eq!((sent.emitted, sent.queued + queued + taken + dropped + stopped), (emitted, emitted));
            (taken, dropped + stopped)
        };
        for n in 0..20_u64 {
            let from = n as i64 * 1000;
            edge.append(0, rows(from..from + 1000, false, &budget)).unwrap();
            balances((n + 1) * 3000);
        }
        if stops {
            edge.close("stopped");
            edge.append(0, rows(0..10, false, &budget)).unwrap();
            for (inbox, _, _) in &inboxes {
                inbox.close();
            }
            assert_eq!(balances(60_030), (0, 60_030));
            continue;
        }
        for (inbox, _, _) in &inboxes {
            inbox.push(1, Item::Mark(Mark::End));
        }
        edge.mark(0, Mark::End);
        let mut found = vec![Vec::new(); 3];
        while found.iter().any(|seen| seen.last().is_none_or(|last| last != "end")) {
            edge.pump();
            for ((inbox, _, _), seen) in inboxes.iter().zip(&mut found) {
                seen.extend(taken(inbox));
                balances(60_000);
            }
        }
        let all: Vec<String> = (0..20_000).map(|id| id.to_string()).chain(["end".to_owned()]).collect();
        assert!(found.iter().all(|seen| *seen == all), "each row at each target, in order");
        assert_eq!(balances(60_000), (60_000, 0));
    }
}
