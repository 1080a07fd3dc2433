//! Parcels over sessions that break, beside rows of channels; and frames that belong to none.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tuplane_core::plan::Role;
use tuplane_expr::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, UInt16Array};
use tuplane_expr::arrow::datatypes::Int64Type;
use tuplane_expr::{Program, StateOf, partitions};
use tuplane_wire::net::Security;

use super::*;
use crate::engine::handover::tests::{PARTITIONS, stage};
use crate::engine::operator::{Aggregate, Operator};
use crate::exchange::credit::Credit;
use crate::exchange::inbound::{Door, Inbound};
use crate::exchange::inbox::{Inbox, InputSpec, Taken, Upstream};
use crate::exchange::outbound::ChannelKey;
use crate::exchange::torn::{agent, dial_for_ever};

const RUN: u64 = 7;
const TARGET: u32 = 3;
/// The edges of the vertex's inputs.
const EDGES: [u32; 2] = [4, 9];
const MOVED: [u16; 5] = [3, 1, 6, 9, 15];

/// Bytes before a connection breaks: some frames fit.
const MOST: u64 = 600_000;

/// State of which a partition takes more than one frame.
const LONG: &str =
    r#"op = "aggregate", in = "g", compute = ["array_agg(repeat(cast(id as text), 60)) as all"]"#;
const SHORT: &str = r#"op = "aggregate", in = "g", compute = ["sum(id) as total"]"#;

/// An aggregate over so many ids, and what its state is of.
fn aggregate(text: &str, count: i64) -> (Aggregate, StateOf) {
    let (_, program, of) = stage(text);
    let Program::Aggregate(program) = &program.program else { panic!() };
    let mut made = Aggregate::new("x", program.clone(), Role::Whole, PARTITIONS, false).unwrap();
    for from in (0..count).step_by(1000) {
        let ids = from..(from + 1000).min(count);
        let key: ArrayRef = Arc::new(Int64Array::from_iter_values(ids.clone().map(|id| id % 50)));
        let all = partitions(&[key], PARTITIONS).unwrap();
        made.push(0, batch(ids), Some(&all)).unwrap();
    }
    (made, of.unwrap())
}

fn batch(ids: std::ops::Range<i64>) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    RecordBatch::try_from_iter_with_nullable([("id", ids, true)]).unwrap()
}

fn rows(ids: std::ops::Range<i64>, partition: u16, budget: &Arc<Budget>) -> Rows {
    let known = UInt16Array::from_iter_values(ids.clone().map(|_| partition));
    Rows::new(batch(ids), Some(known), budget).unwrap()
}

fn ids(rows: &Rows) -> Vec<i64> {
    rows.batch().column(0).as_primitive::<Int64Type>().values().to_vec()
}

fn cut(of: &mut Aggregate) -> Vec<Unit> {
    of.units().unwrap().cut(&MOVED).unwrap()
}

fn bytes(units: Vec<Unit>, of: &StateOf) -> Vec<Vec<u8>> {
    units.into_iter().flat_map(|unit| unit.into_pieces(of.clone())).map(Result::unwrap).collect()
}

fn address(number: i64) -> Address {
    Address { run: RUN, attempt: 1, epoch: 2, number, target: TARGET, edges: EDGES.to_vec() }
}

fn expected(number: i64) -> Expected {
    let schema = batch(0..1).schema();
    Expected {
        run: RUN,
        attempt: 1,
        epoch: 2,
        number,
        target: TARGET,
        partitions: MOVED.to_vec(),
        inputs: EDGES.iter().map(|edge| (*edge, schema.clone())).collect(),
    }
}

fn outbound() -> Arc<Outbound> {
    let broken = |run, cause| panic!("run {run} is broken: {cause}");
    Outbound::new(agent("a"), agent("b"), "127.0.0.1:1".to_owned(), Security::Insecure, Box::new(broken))
}

fn inbound(budget: &Arc<Budget>) -> Arc<Inbound> {
    let broken = |run, cause| panic!("run {run} is broken: {cause}");
    Inbound::new(Arc::clone(budget), Box::new(broken))
}

/// Two parcels one after the other, and rows of a channel all the while, over a session that breaks at any byte.
async fn all_arrives_once(seed: u64) -> u32 {
    let mut lots = SmallRng::seed_from_u64(seed);
    let (here, there) = (Budget::new(1 << 30), Budget::new(1 << 30));
    let (session, inbound) = (outbound(), inbound(&there));
    let schema = batch(0..1).schema();
    let print = fingerprint(&schema);
    session.add_edge(RUN, 1, 0, print);
    let key = ChannelKey { run: RUN, edge: 0, target: TARGET };
    session.add_channel(key, Credit::new(Arc::default()));
    let input = InputSpec { edge: 0, priority: 0, channels: vec![Upstream::Remote(inbound.notes())] };
    let inbox = Inbox::new(vec![input], 64 << 10, Arc::clone(&there));
    let targets = vec![(TARGET, Arc::clone(&inbox), 0)];
    inbound.open(
        RUN,
        0,
        Door { schema, fingerprint: print, attempt: 1, budget: Arc::clone(&there), targets },
    );
    let breaks = Arc::new(AtomicU32::new(0));
    let dialling = SmallRng::seed_from_u64(lots.random());
    let dialler = tokio::spawn(dial_for_ever(
        Arc::clone(&session),
        Arc::clone(&inbound),
        dialling,
        MOST,
        Arc::clone(&breaks),
    ));
    let (on_channel, of_budget) = (Arc::clone(&session), Arc::clone(&here));
    let channel = tokio::spawn(async move {
        for from in (0..4000).step_by(20) {
            on_channel.send(key, rows(from..from + 20, 0, &of_budget));
            on_channel.flush();
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    });
    let taker = tokio::spawn(async move {
        let mut found = Vec::new();
        while found.len() < 4000 {
            match inbox.take(1000, false).unwrap() {
                Taken::Rows { rows, .. } => found.extend(ids(&rows)),
                Taken::Nothing => inbox.wait().await,
                other => panic!("{other:?}"),
            }
        }
        found
    });
    for (group, text, count) in [(0, LONG, 2000), (1, SHORT, 1000)] {
        let (mut gives, of) = aggregate(text, count);
        let (mut alike, _) = aggregate(text, count);
        let mut takes = aggregate(text, 0).0;
        let arrival = inbound.expect(expected(group)).unwrap();
        assert!(inbound.expect(expected(group)).is_none(), "asked again");
        let came =
            vec![(1, rows(0..70, 9, &here)), (0, rows(70..71, 3, &here)), (1, rows(71..50_000, 15, &here))];
        let given = Given { units: cut(&mut gives), of: Some(of.clone()), rows: came, watermark: Some(-5) };
        let loader = takes.units().unwrap().loader(of.clone()).unwrap();
        let sending = Arc::clone(&session);
        let sent = tokio::spawn(async move { send(&sending, address(group), given).await });
        let parcel = arrival.parcel(Some(loader)).await.unwrap();
        sent.await.unwrap().unwrap();
        assert_eq!(parcel.watermark, Some(-5));
        let mut by_input = [Vec::new(), Vec::new()];
        parcel.rows.iter().for_each(|(input, rows)| by_input[*input].extend(ids(rows)));
        assert_eq!(by_input[0], [70], "seed {seed}");
        assert!(by_input[1] == (0..70).chain(71..50_000).collect::<Vec<_>>(), "seed {seed}");
        assert!(bytes(parcel.units, &of) == bytes(cut(&mut alike), &of), "seed {seed}: the state");
        assert!(inbound.expect(expected(group)).is_none(), "it has come");
    }
    assert!(
        taker.await.unwrap() == (0..4000).collect::<Vec<_>>(),
        "seed {seed}: the channel's rows in order"
    );
    channel.await.unwrap();
    dialler.abort();
    session.close();
    assert_eq!((here.used(), there.used()), (0, 0), "seed {seed}: nothing keeps memory");
    breaks.load(std::sync::atomic::Ordering::Relaxed)
}

#[tokio::test]
async fn a_parcel_arrives_once_and_whole_over_connections_that_break() {
    let mut breaks = 0;
    for seed in 0..6 {
        let one = tokio::time::timeout(Duration::from_mins(1), all_arrives_once(seed)).await;
        breaks += one.unwrap_or_else(|_| panic!("seed {seed}: something is missing"));
    }
    assert!(breaks > 12, "only {breaks} connections broke");
}

#[tokio::test]
async fn who_waits_for_a_parcel_is_told_that_it_does_not_come() {
    let budget = Budget::new(1 << 30);
    let loader = || {
        let (mut takes, of) = aggregate(SHORT, 0);
        takes.units().unwrap().loader(of).unwrap()
    };
    let peer = inbound(&budget);
    let arrival = peer.expect(expected(0)).unwrap();
    peer.forget(RUN);
    assert_eq!(arrival.parcel(Some(loader())).await.unwrap_err().code, FaultCode::Agent);
    let arrival = peer.expect(expected(0)).unwrap();
    peer.close();
    assert_eq!(arrival.parcel(Some(loader())).await.unwrap_err().code, FaultCode::Agent);
    let late = peer.expect(expected(1)).unwrap();
    assert_eq!(late.parcel(Some(loader())).await.unwrap_err().code, FaultCode::Agent);
}

#[tokio::test]
async fn nothing_is_sent_to_a_dead_peer_or_of_a_run_that_has_ended() {
    let given = |count| {
        let (mut gives, of) = aggregate(LONG, count);
        Given { units: cut(&mut gives), of: Some(of), rows: Vec::new(), watermark: None }
    };
    let session = outbound();
    session.close();
    let fault = send(&session, address(0), given(10)).await.unwrap_err();
    assert_eq!(
        (fault.code, &fault.message[..]),
        (FaultCode::Agent, "key partitions cannot move to agent b: it is gone")
    );
    // Nobody acknowledges anything: it waits for room until the run ends here.
    let session = outbound();
    let sending = Arc::clone(&session);
    let sent = tokio::spawn(async move { send(&sending, address(0), given(60_000)).await });
    let on_the_way = || session.is_used();
    while !on_the_way() {
        tokio::task::yield_now().await;
    }
    session.forget(RUN);
    let fault = sent.await.unwrap().unwrap_err();
    assert_eq!(fault.code, FaultCode::NotFound, "{fault:?}");
    assert!(!session.is_used());
}

/// A frame of a parcel as it comes.
fn frame(kind: FrameKind, number: u32, flags: u8, body: &[u8]) -> (Header, Parts) {
    let header = Header { flags, body_len: body.len() as u32, ..address(0).header(kind, number) };
    let mut parts = Parts::for_header(&header);
    parts.body.as_slice_mut().copy_from_slice(body);
    (header, parts)
}

/// What is said of frames that come after each other, and what whoever waits is told.
async fn told(frames: Vec<(Header, Parts)>) -> (Vec<String>, String) {
    let (budget, parcels) = (Budget::new(1 << 30), Parcels::default());
    let arrival = parcels.expect(expected(0)).unwrap();
    let said = frames.into_iter().filter_map(|(header, parts)| {
        parcels.take(&header, parts, &budget, true).err().map(|error| error.to_string())
    });
    let said: Vec<String> = said.collect();
    parcels.forget(RUN);
    let (mut takes, of) = aggregate(SHORT, 0);
    let fault = arrival.parcel(Some(takes.units().unwrap().loader(of).unwrap())).await.unwrap_err();
    assert_eq!(budget.used(), 0, "nothing of it is kept");
    (said, fault.message)
}

/// Rows of a parcel as its sender encodes them.
fn encoded(rows: &Rows, header: Header) -> (Header, Parts) {
    let bytes = body::encode(rows, header).unwrap();
    let header = Header::decode(bytes[..HEADER].try_into().unwrap()).unwrap();
    let mut parts = Parts::for_header(&header);
    let (ids, rest) = bytes[HEADER..].split_at(header.ids_len as usize);
    let (meta, rest) = rest.split_at(header.meta_len as usize);
    parts.ids.copy_from_slice(ids);
    parts.meta.copy_from_slice(meta);
    parts.body.as_slice_mut().copy_from_slice(rest);
    (header, parts)
}

#[tokio::test]
async fn frames_that_belong_to_no_parcel_are_faults_with_a_sentence() {
    let state = FrameKind::State;
    let pieces = {
        let (mut gives, of) = aggregate(SHORT, 100);
        bytes(cut(&mut gives), &of)
    };
    let whole = |number: usize| frame(state, number as u32, 0, &pieces[number]);
    let budget = Budget::new(1 << 30);
    let of_rows = |partition, change: &dyn Fn(&mut Header)| {
        let mut header =
            Header { edge: EDGES[0], flags: FLAG_MOVED, ..address(0).header(FrameKind::Rows, 0) };
        header.schema = fingerprint(batch(0..1).schema_ref());
        change(&mut header);
        encoded(&rows(0..3, partition, &budget), header)
    };
    let other = |change: &dyn Fn(&mut Header)| {
        let (mut header, parts) = whole(0);
        change(&mut header);
        vec![(header, parts)]
    };
    let big = vec![0; MOST_PIECE];
    let mut cut_rows = of_rows(9, &|_| {});
    cut_rows.0.rows = 4;
    let mut without = of_rows(9, &|_| {});
    without.0.flags = FLAG_MOVED;
    let cases: Vec<(Vec<(Header, Parts)>, &str)> = vec![
        (other(&|h| h.value = 1), "group 1 of key partitions of plan 2 was not to come"),
        (other(&|h| h.value = -1), "a table of plan 2 was not to come"),
        (other(&|h| h.epoch = 3), "group 0 of key partitions of plan 3 was not to come"),
        (other(&|h| h.target = 9), "group 0 of key partitions: it came for instance 9, and is for 3"),
        (other(&|h| h.from = 1), "group 0 of key partitions: frame 1 came where 0 was to come"),
        (vec![whole(0), whole(0)], "group 0 of key partitions: frame 0 came where 1 was to come"),
        (
            vec![frame(state, 0, FLAG_CONTINUES, b"half"), frame(state, 1, FLAG_LAST, b"")],
            "group 0 of key partitions: it has ended within a piece of state",
        ),
        (
            vec![frame(state, 0, FLAG_CONTINUES, &big), frame(state, 1, 0, b"x")],
            "group 0 of key partitions: a piece of state has more than 16 MiB",
        ),
        (
            vec![frame(FrameKind::End, 0, FLAG_MOVED, b"")],
            "group 0 of key partitions: a frame of kind End came, which belongs to a channel",
        ),
        (
            vec![of_rows(9, &|h| h.edge = 5)],
            "group 0 of key partitions: rows came by edge 5, which is no input",
        ),
        (
            vec![of_rows(9, &|h| h.schema = 5)],
            "group 0 of key partitions: rows of edge 4 have another schema than the plan's",
        ),
        (
            vec![of_rows(8, &|_| {})],
            "group 0 of key partitions: rows of partition 8 came, which is not of the group",
        ),
        (vec![cut_rows], "group 0 of key partitions: Ipc error: a frame announces 4 rows and holds 3"),
        (vec![without], "group 0 of key partitions: rows came without key partitions"),
    ];
    for (frames, says) in cases {
        let (said, told) = told(frames).await;
        assert_eq!(said, [says], "once");
        let why = says.strip_prefix("group 0 of key partitions: ");
        let why = why.map_or("does not come: its sender is gone", |why| why);
        assert!(told.starts_with("group 0 of key partitions ") && told.ends_with(why), "{told}");
    }
    // What only shows when state is made of it.
    let damaged = frame(state, 0, 0, &pieces[0][1..]);
    for (frames, says) in [
        (vec![damaged], "it does not begin as one: a piece of state was damaged on its way, or is none"),
        (vec![frame(state, 0, 0, &pieces[1])], "partition 1 came where 3 was to come"),
        (vec![whole(0), frame(state, 1, FLAG_LAST, b"")], "it has ended with 1 of 5 partitions"),
    ] {
        let (said, told) = told(frames).await;
        assert_eq!(said, [""; 0]);
        assert_eq!(told, format!("group 0 of key partitions cannot be taken: {says}"));
    }
}

#[test]
fn tables_come_before_groups_in_their_order_and_what_nobody_waits_for_is_forgotten() {
    let (budget, parcels) = (Budget::new(1 << 30), Parcels::default());
    drop(parcels.expect(expected(-1)).unwrap());
    let next = |number| Expected { epoch: 3, ..expected(number) };
    let _arrivals = [-2, -1, 0].map(|number| parcels.expect(next(number)).unwrap());
    assert!(parcels.expect(next(-1)).is_none(), "asked again");
    let last = |number: i64| {
        let (mut header, parts) = frame(FrameKind::State, 0, FLAG_LAST, b"");
        (header.epoch, header.value) = (3, number);
        parcels.take(&header, parts, &budget, true).map_err(|error| error.to_string())
    };
    for number in [-2, -1, 0] {
        assert_eq!(last(number), Ok(()), "{number}");
    }
    let _late = parcels.expect(next(1)).unwrap();
    assert_eq!(last(0).unwrap_err(), "group 0 of key partitions of plan 3 was not to come");
}

#[test]
fn what_comes_of_a_run_that_has_ended_here_or_of_another_attempt_is_dropped() {
    let (budget, parcels) = (Budget::new(1 << 30), Parcels::default());
    let (header, parts) = frame(FrameKind::State, 0, 0, b"x");
    parcels.take(&header, parts, &budget, false).unwrap();
    let _arrival = parcels.expect(expected(0)).unwrap();
    let (mut header, parts) = frame(FrameKind::State, 0, 0, b"x");
    header.attempt = 2;
    parcels.take(&header, parts, &budget, true).unwrap();
    let (header, parts) = frame(FrameKind::State, 0, 0, b"x");
    parcels.take(&header, parts, &budget, true).unwrap();
    assert_eq!(budget.used(), 1);
}

proptest! {
    /// Whatever comes: it is taken or refused with a sentence, and a run takes nothing more after that.
    #[test]
    fn no_frame_is_too_odd(
        frames in prop::collection::vec(
            (prop::sample::select(&[1u8, 2, 5, 9][..]), 0u32..3, any::<u8>(), prop::collection::vec(any::<u8>(), 0..60),
             0u32..5, 0usize..30, 0usize..30),
            1..8,
        ),
    ) {
        let (budget, parcels) = (Budget::new(1 << 30), Parcels::default());
        let arrival = parcels.expect(expected(0)).unwrap();
        let mut failed = false;
        for (kind, number, flags, bytes, rows, ids, meta) in frames {
            let kind = match kind { 1 => FrameKind::Rows, 2 => FrameKind::Watermark, 5 => FrameKind::End, _ => FrameKind::State };
            let (ids, meta) = (ids.min(bytes.len()), meta.min(bytes.len()));
            let mut header = Header { edge: EDGES[0], flags, rows, ..address(0).header(kind, number) };
            header.schema = fingerprint(batch(0..1).schema_ref());
            (header.ids_len, header.meta_len, header.body_len) = (ids as u32, meta as u32, bytes.len() as u32);
            let mut parts = Parts::for_header(&header);
            parts.ids.copy_from_slice(&bytes[..ids]);
            parts.meta.copy_from_slice(&bytes[..meta]);
            parts.body.as_slice_mut().copy_from_slice(&bytes);
            let taken = parcels.take(&header, parts, &budget, true);
            prop_assert!(!(failed && taken.is_err()), "it is said once");
            failed |= taken.is_err();
        }
        drop((parcels, arrival));
        prop_assert_eq!(budget.used(), 0);
    }
}
