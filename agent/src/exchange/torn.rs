//! A session whose connection breaks at any byte, again and again: every row arrives once and in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, DuplexStream, copy, duplex, split};
use tokio::sync::Notify;
use tuplane_core::route::{Policies, RouteOptions, Setting, Targets, make_policy};
use tuplane_expr::arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
use tuplane_expr::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use tuplane_wire::message::AgentId;
use tuplane_wire::net::{Security, Stream};

use super::body::fingerprint;
use super::costs::Costs;
use super::credit::Credit;
use super::edge::{Edge, EdgeSpec, Route};
use super::inbound::{Broken, Door, Inbound};
use super::inbox::{Inbox, InputSpec, Taken, Upstream};
use super::manager::Manager;
use super::mark::Mark;
use super::outbound::{ChannelKey, Flight, Outbound};
use super::outlet::{Link, Outlet, Outlets};
use super::outqueue::{OutQueue, Routes};
use super::priced::Slots;
use super::session::{Greeting, read_message};
use crate::engine::rows::{Budget, Rows};

const RUN: u64 = 1;
const BOUND: u64 = 64 << 10;
/// Rows of one sender.
const ROWS: i64 = 6000;
/// What tells one sender's rows from another's.
const SENDER: i64 = 1_000_000;

fn schema() -> SchemaRef {
    let fields = [Field::new("id", DataType::Int64, false), Field::new("text", DataType::Utf8, false)];
    Arc::new(Schema::new(fields.to_vec()))
}

fn rows(ids: std::ops::Range<i64>, budget: &Arc<Budget>) -> Rows {
    let text: StringArray = ids.clone().map(|id| Some("x".repeat((id % 90) as usize))).collect();
    let columns = vec![Arc::new(Int64Array::from_iter_values(ids)) as _, Arc::new(text) as _];
    Rows::new(RecordBatch::try_new(schema(), columns).unwrap(), None, budget).unwrap()
}

pub(super) fn agent(name: &str) -> AgentId {
    AgentId { name: name.to_owned(), incarnation: 1 }
}

/// Carries so many bytes each way, and then both ends are closed.
async fn carry(left: DuplexStream, right: DuplexStream, there: u64, back: u64) {
    let ((from_left, mut to_left), (from_right, mut to_right)) = (split(left), split(right));
    let (mut from_left, mut from_right) = (from_left.take(there), from_right.take(back));
    tokio::select! {
        _ = copy(&mut from_left, &mut to_right) => {}
        _ = copy(&mut from_right, &mut to_left) => {}
    }
}

/// Dials until the other side is told to end; each connection breaks after a number of bytes by lot, less than `most`.
pub(super) async fn dial_for_ever(
    outbound: Arc<Outbound>,
    inbound: Arc<Inbound>,
    mut lots: SmallRng,
    most: u64,
    breaks: Arc<AtomicU32>,
) {
    loop {
        let (ours, left) = duplex(lots.random_range(1..20_000));
        let (right, theirs) = duplex(lots.random_range(1..20_000));
        // From within the greeting to some frames.
        let there = lots.random_range(0..most);
        let back = if lots.random_bool(0.5) { lots.random_range(0..3_000) } else { u64::MAX };
        let carried = tokio::spawn(carry(left, right, there, back));
        let inbound = Arc::clone(&inbound);
        let served = tokio::spawn(async move {
            let mut stream: Stream = Box::new(theirs);
            let greeting: Greeting = read_message(&mut stream).await?;
            inbound.serve(stream, greeting.session).await
        });
        if let Ok(stream) = outbound.greet(Box::new(ours)).await {
            // However it ends, the next one goes on.
            let _ = outbound.talk(stream).await;
        }
        if lots.random_bool(0.5) {
            // Otherwise the old connection is still there when the new one comes.
            let _ = served.await;
        }
        carried.abort();
        breaks.fetch_add(1, Ordering::Relaxed);
    }
}

/// One sending instance.
async fn send(edge: Arc<Edge>, sender: usize, room: Arc<Notify>, budget: Arc<Budget>, mut lots: SmallRng) {
    let first = sender as i64 * SENDER;
    let mut next = 0;
    while next < ROWS {
        while edge.is_full(sender) {
            room.notified().await;
        }
        let count = lots.random_range(1..120).min(ROWS - next);
        edge.append(sender, rows(first + next..first + next + count, &budget)).unwrap();
        next += count;
        if next == ROWS {
            edge.mark(sender, Mark::Watermark(7));
        }
        tokio::task::yield_now().await;
    }
    edge.mark(sender, Mark::End);
    while !edge.is_drained(sender) {
        room.notified().await;
    }
    edge.flush();
}

/// One receiving instance: the ids that it takes, in order, and its watermark.
async fn receive(inbox: Arc<Inbox>, mut lots: SmallRng) -> (Vec<i64>, Option<i64>) {
    let (mut ids, mut watermark) = (Vec::new(), None);
    loop {
        match inbox.take(lots.random_range(1..200), false).unwrap() {
            Taken::Rows { rows, .. } => {
                assert_eq!(watermark, None, "a watermark has passed a row");
                ids.extend(rows.batch().column(0).as_primitive::<Int64Type>().values());
            }
            Taken::Watermark(time) => watermark = Some(time),
            Taken::Ended => return (ids, watermark),
            Taken::Nothing => inbox.wait().await,
            other => panic!("{other:?}"),
        }
    }
}

/// How the edge's rows find their targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Dealt,
    Copied,
    /// By POTUS, both targets at a cost, so that rows are held.
    Priced,
}

/// Prices an edge's targets; gives what ends its slots.
fn price(edge: &Arc<Edge>) -> Manager {
    let given = BTreeMap::from([
        ("v".to_owned(), serde_json::json!(60)),
        ("beta".to_owned(), serde_json::json!(1)),
        ("slot".to_owned(), serde_json::json!("1ms")),
        ("max_hold".to_owned(), serde_json::json!("3ms")),
    ]);
    let options = RouteOptions::read(&given, Setting::Default).unwrap();
    let (slots, costs) = (Slots::begin(), Costs::table(&[0, 1]));
    let route = Route {
        policies: &Policies::default(),
        name: "potus",
        options: &options,
        given: "{}",
        costs: &costs,
        of_source: false,
        me: 0,
        slots: &slots,
        ahead: None,
    };
    edge.set_route(&route).unwrap();
    Manager::new(slots, vec![vec![Arc::clone(edge)]])
}

async fn every_row_arrives_once(seed: u64, kind: Kind) -> u32 {
    let lanes = kind == Kind::Copied;
    let mut lots = SmallRng::seed_from_u64(seed);
    let (here, there) = (Budget::new(1 << 30), Budget::new(1 << 30));
    let broken = || -> Broken {
        Box::new(move |run, cause| {
            let said = format!("seed {seed}: run {run} is broken: {cause}");
            assert!(cause.is_empty(), "{said}");
        })
    };
    let outbound =
        Outbound::new(agent("a"), agent("b"), "127.0.0.1:1".to_owned(), Security::Insecure, broken());
    let inbound = Inbound::new(Arc::clone(&there), broken());
    let fingerprint = fingerprint(&schema());
    let flight: Arc<Flight> = outbound.add_edge(RUN, 1, 0, fingerprint);
    let wake = Arc::new(Notify::new());
    let (mut outlets, mut ends, mut inboxes) = (Vec::new(), Vec::new(), Vec::new());
    for instance in [10, 11] {
        let credit = Credit::new(Arc::clone(&wake));
        let key = ChannelKey { run: RUN, edge: 0, target: instance };
        outbound.add_channel(key, Arc::clone(&credit));
        let link = Link::Remote { session: Arc::clone(&outbound), key };
        outlets.push(Outlet { instance, agent: 1, credit, link, sent_rows: 0, sent_bytes: 0 });
        let input = InputSpec { edge: 0, priority: 0, channels: vec![Upstream::Remote(inbound.notes())] };
        let inbox = Inbox::new(vec![input], BOUND, Arc::clone(&there));
        ends.push((instance, Arc::clone(&inbox), 0));
        inboxes.push(inbox);
    }
    inbound.open(
        RUN,
        0,
        Door { schema: schema(), fingerprint, attempt: 1, budget: Arc::clone(&there), targets: ends },
    );
    let routes = if lanes { Routes::Every } else { Routes::Any };
    let spec = EdgeSpec { index: 0, barriers_in_order: false, deal: 16, routes };
    let edge = Edge::new(spec, Outlets::new(outlets), wake);
    let mut senders = Vec::new();
    for number in 0..2 {
        let room = Arc::new(Notify::new());
        let queue = if lanes {
            OutQueue::lanes(2)
        } else {
            let policy = make_policy("round-robin", seed).unwrap();
            OutQueue::pool(policy, Targets::new([vec![10, 11]]), vec![0, 1])
        };
        let sender = edge.add_sender(number, queue, BOUND, Arc::clone(&room));
        let lots = SmallRng::seed_from_u64(lots.random());
        senders.push(tokio::spawn(send(Arc::clone(&edge), sender, room, Arc::clone(&here), lots)));
    }
    let breaks = Arc::new(AtomicU32::new(0));
    let dialling = SmallRng::seed_from_u64(lots.random());
    let dialler = tokio::spawn(dial_for_ever(
        Arc::clone(&outbound),
        Arc::clone(&inbound),
        dialling,
        60_000,
        Arc::clone(&breaks),
    ));
    let mover = tokio::spawn(Arc::clone(&edge).run());
    let manager = (kind == Kind::Priced).then(|| {
        for inbox in &inboxes {
            inbox.keep_fresh(0, Some(Duration::from_millis(1)));
        }
        tokio::spawn(price(&edge).run())
    });
    let takers: Vec<_> = inboxes
        .iter()
        .map(|inbox| tokio::spawn(receive(Arc::clone(inbox), SmallRng::seed_from_u64(lots.random()))))
        .collect();
    let mut all = Vec::new();
    for taker in takers {
        let (ids, watermark) = taker.await.unwrap();
        assert_eq!(watermark, Some(7), "seed {seed}");
        for sender in 0..2 {
            let of_one: Vec<_> = ids.iter().filter(|id| **id / SENDER == sender).collect();
            assert!(of_one.is_sorted_by(|a, b| a < b), "seed {seed}: a channel's rows out of order");
        }
        all.push(ids);
    }
    for sender in senders {
        sender.await.unwrap();
    }
    let expected: Vec<i64> =
        (0..2).flat_map(|sender| (0..ROWS).map(move |id| sender * SENDER + id)).collect();
    let copies = if lanes { all.iter().map(|ids| vec![ids.clone()]).collect() } else { vec![all.clone()] };
    for copy in copies {
        let mut ids = copy.concat();
        ids.sort_unstable();
        assert_eq!(ids, expected, "seed {seed}: each row once");
    }
    // The last acknowledgement may still be under way.
    let mut waited = 0;
    while flight.rows.load(Ordering::Relaxed) > 0 {
        waited += 1;
        assert!(waited < 1000, "seed {seed}: rows stay in flight");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let sent = edge.sent();
    let taken: u64 = inboxes.iter().flat_map(|inbox| inbox.counts()).map(|(_, _, taken, _)| taken).sum();
    let waiting: u64 = inboxes.iter().flat_map(|inbox| inbox.counts()).map(|(_, waiting, ..)| waiting).sum();
    assert_eq!((sent.emitted, sent.queued, waiting), (taken, 0, 0), "seed {seed}: the ledger");
    assert_eq!(sent.emitted, all.iter().map(|ids| ids.len() as u64).sum::<u64>(), "seed {seed}");
    assert_eq!(sent.targets.iter().map(|(_, _, rows, _)| rows).sum::<u64>(), taken, "seed {seed}");
    dialler.abort();
    if let Some(manager) = manager {
        manager.abort();
    }
    edge.close("stopped");
    mover.await.unwrap().unwrap();
    assert_eq!((here.used(), there.used()), (0, 0), "seed {seed}: nothing keeps memory");
    breaks.load(Ordering::Relaxed)
}

/// Several sessions, each with its own lots.
async fn campaign(kind: Kind) {
    let mut breaks = 0;
    let seeds = if std::env::var_os("TUPLANE_LONG").is_some() { 300 } else { 40 };
    for seed in 0..seeds {
        let one = tokio::time::timeout(Duration::from_mins(1), every_row_arrives_once(seed, kind)).await;
        breaks += one.unwrap_or_else(|_| panic!("seed {seed}: rows are missing"));
    }
    assert!(breaks > 5 * seeds as u32, "only {breaks} connections broke");
}

#[tokio::test]
async fn dealt_rows_arrive_once_over_connections_that_break() {
    campaign(Kind::Dealt).await;
}

#[tokio::test]
async fn copied_rows_arrive_once_over_connections_that_break() {
    campaign(Kind::Copied).await;
}

#[tokio::test]
async fn priced_rows_arrive_once_over_connections_that_break() {
    campaign(Kind::Priced).await;
}
