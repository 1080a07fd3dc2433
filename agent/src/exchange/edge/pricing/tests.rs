//! Priced edges without a network: what leaves when, and what has to.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;
use tuplane_core::route::{Choice, Policy, Seen, Setting, Targets, Waiting, make_policy};
use tuplane_expr::arrow::array::{Int64Array, RecordBatch, StringArray, TimestampNanosecondArray};
use tuplane_expr::arrow::datatypes::{DataType, Field, Schema};
use tuplane_expr::system::{SystemColumn, with_column};
use tuplane_wire::message::AgentId;
use tuplane_wire::net::Security;
use tuplane_wire::routing::{Decided, EdgeRouting};

use super::*;
use crate::engine::due::DueClock;
use crate::engine::rows::{Budget, Rows};
use crate::exchange::credit::Credit;
use crate::exchange::edge::EdgeSpec;
use crate::exchange::inbox::{Inbox, InputSpec, Taken, Upstream};
use crate::exchange::mark::Mark;
use crate::exchange::outbound::{ChannelKey, Outbound};
use crate::exchange::outlet::{Link, Outlet};
use crate::exchange::outqueue::{OutQueue, Routes};

mod ahead;
mod decided;

/// Slots begin at this machine's start for all edges of a world.
struct World {
    budget: Arc<Budget>,
    slots: Slots,
    costs: Vec<u32>,
    inboxes: Vec<Arc<Inbox>>,
    edges: Vec<Arc<Edge>>,
    quotas: Vec<Arc<Quota>>,
}

/// The way to a target on this machine, and its inbox.
fn local_outlet(
    budget: &Arc<Budget>,
    wake: &Arc<Notify>,
    edge: u32,
    agent: u16,
    instance: u32,
) -> (Outlet, Arc<Inbox>) {
    let credit = Credit::new(Arc::clone(wake));
    let inputs = vec![InputSpec { edge, priority: 0, channels: vec![Upstream::Local(Arc::clone(&credit))] }];
    let inbox = Inbox::new(inputs, 1 << 20, Arc::clone(budget));
    let link = Link::Local { inbox: Arc::clone(&inbox), channel: 0 };
    (Outlet { instance, agent, credit, link, sent_rows: 0, sent_bytes: 0 }, inbox)
}

impl World {
    /// Edges over the same targets, at these costs, of so many senders.
    fn new(costs: &[u32], senders: u32, edges: u32, bound: u64) -> Self {
        let budget = Budget::new(1 << 30);
        let slots = Slots::begin();
        let quotas: Vec<_> = (0..senders).map(|_| Arc::new(Quota::new(slots.began))).collect();
        let mut inboxes = Vec::new();
        let mut made = Vec::new();
        for index in 0..edges {
            let wake = Arc::<Notify>::default();
            let mut outlets = Vec::new();
            for agent in 0..costs.len() {
                let (outlet, inbox) =
                    local_outlet(&budget, &wake, index, agent as u16, index * 100 + agent as u32);
                outlets.push(outlet);
                inboxes.push(inbox);
            }
            let spec = EdgeSpec { index, barriers_in_order: false, deal: 256, routes: Routes::Any };
            let edge = Edge::new(spec, Outlets::new(outlets), wake);
            for sender in 0..senders {
                let targets =
                    Targets::new([(0..costs.len() as u32).map(|n| index * 100 + n).collect::<Vec<_>>()]);
                let policy = make_policy("round-robin", 0).unwrap();
                let queue = OutQueue::pool(policy, targets, (0..costs.len()).collect());
                let number = edge.add_sender(1000 + sender, queue, bound, Arc::default());
                edge.share_quota(number, Arc::clone(&quotas[sender as usize]));
            }
            made.push(edge);
        }
        Self { budget, slots, costs: costs.to_vec(), inboxes, edges: made, quotas }
    }

    fn route(&self, edge: usize, name: &str, options: serde_json::Value, of_source: bool) {
        self.route_fully(&Policies::default(), edge, name, options, of_source, None);
    }

    fn route_by(
        &self,
        policies: &Policies,
        edge: usize,
        name: &str,
        options: serde_json::Value,
        of_source: bool,
    ) {
        self.route_fully(policies, edge, name, options, of_source, None);
    }

    fn route_ahead(
        &self,
        edge: usize,
        name: &str,
        options: serde_json::Value,
        of_source: bool,
        ahead: Option<Foresight>,
    ) {
        self.route_fully(&Policies::default(), edge, name, options, of_source, ahead);
    }

    fn route_fully(
        &self,
        policies: &Policies,
        edge: usize,
        name: &str,
        options: serde_json::Value,
        of_source: bool,
        ahead: Option<Foresight>,
    ) {
        self.with_route(policies, name, options, of_source, ahead, |route| self.edges[edge].set_route(route));
    }

    fn with_route(
        &self,
        policies: &Policies,
        name: &str,
        options: serde_json::Value,
        of_source: bool,
        ahead: Option<Foresight>,
        act: impl FnOnce(&Route<'_>) -> Result<(), String>,
    ) {
        let read: BTreeMap<String, serde_json::Value> = serde_json::from_value(options).unwrap();
        let options = RouteOptions::read(&read, Setting::Default).unwrap();
        let costs = Costs::table(&self.costs);
        let slots = &self.slots;
        let route = Route {
            policies,
            name,
            options: &options,
            given: "{}",
            costs: &costs,
            of_source,
            me: 0,
            slots,
            ahead,
        };
        act(&route).unwrap();
    }

    /// Targets of the first edge by agent and instance come, and one goes.
    fn retarget(&self, add: &[(u16, u32)], gone: u32, options: serde_json::Value) {
        let edge = &self.edges[0];
        let outlet =
            |&(agent, instance)| local_outlet(&self.budget, &edge.wake_handle(), 0, agent, instance).0;
        let (policies, add) = (Policies::default(), add.iter().map(outlet).collect());
        self.with_route(&policies, "potus", options, false, None, |route| {
            edge.retarget(add, &|instance| instance != gone, route)
        });
    }

    /// Rows of so many bytes each.
    fn rows(&self, count: usize, bytes: usize) -> Rows {
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("text", DataType::Utf8, false),
        ]);
        let ids = Int64Array::from_iter_values(0..count as i64);
        let texts = StringArray::from(vec!["x".repeat(bytes); count]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(ids), Arc::new(texts)]);
        Rows::new(batch.unwrap(), None, &self.budget).unwrap()
    }

    /// Rows that arrive so many milliseconds after the beginning of the slots.
    fn append_due(&self, clock: DueClock, dues: &[u64]) {
        let rows = self.rows(dues.len(), 4);
        let due = |ms: &u64| clock.at(self.later(*ms));
        let dues = Arc::new(TimestampNanosecondArray::from_iter_values(dues.iter().map(due)));
        let batch = with_column(rows.batch(), SystemColumn::Due, dues).unwrap();
        self.edges[0].append(0, Rows::new(batch, None, &self.budget).unwrap()).unwrap();
    }

    fn append(&self, edge: usize, sender: usize, rows: usize) {
        self.edges[edge].append(sender, self.rows(rows, 4)).unwrap();
    }

    /// Rows that each target has, of the edge.
    fn there(&self, edge: usize) -> Vec<u64> {
        let width = self.costs.len();
        self.inboxes[edge * width..][..width].iter().map(|inbox| inbox.load().queued()).collect()
    }

    fn later(&self, ms: u64) -> Instant {
        self.slots.began + Duration::from_millis(ms)
    }

    fn routing(&self, edge: usize) -> EdgeRouting {
        self.edges[edge].routing(&mut (1 << 20)).unwrap()
    }
}

#[test]
fn rows_leave_at_once_while_their_price_is_below_zero() {
    let world = World::new(&[0, 1, 1], 1, 1, 1 << 20);
    world.route(0, "potus", json!({ "v": 4, "beta": 1 }), false);
    for _ in 0..3 {
        world.append(0, 0, 1);
    }
    // The second waits for a third: a row there weighs as much as one here.
    assert_eq!(world.there(0), [2, 0, 0]);
    assert_eq!(world.edges[0].waiting(0), 1);
    world.append(0, 0, 20);
    let there = world.there(0);
    assert!(there[0] > there[1] + 3 && there[1].abs_diff(there[2]) <= 1, "{there:?}");
    let routing = world.routing(0);
    let price = routing.targets[1].price.unwrap();
    let held = world.edges[0].waiting(0) as f64;
    let terms = [4.0 + there[1] as f64 - held, 4.0, there[1] as f64, held];
    assert!(
        price.iter().zip(terms).all(|(price, term)| (price - term).abs() < 1e-3),
        "{price:?}, not {terms:?}"
    );
    assert_eq!((routing.v.unwrap().value, routing.beta.unwrap().value), (4.0, 1.0));
    assert!(price[0] >= 0.0);
}

#[test]
fn without_rows_that_are_held_no_slot_ends() {
    let world = World::new(&[0, 1], 1, 1, 1 << 20);
    world.route(0, "potus", json!({ "v": 1000, "beta": 8 }), false);
    assert_eq!(world.edges[0].due(), None);
    world.append(0, 0, 1);
    assert_eq!((world.edges[0].due(), world.there(0)), (None, vec![1, 0]));
    // What waits here weighs as much as eight: the next seven follow; more are held.
    world.append(0, 0, 40);
    assert!(world.edges[0].waiting(0) > 0);
    let due = world.edges[0].due().unwrap();
    world.edges[0].tick(due.checked_sub(Duration::from_millis(1)).unwrap());
    assert_eq!((world.edges[0].due(), world.routing(0).slots), (Some(due), 0), "it has not ended");
    world.edges[0].tick(due);
    assert_eq!(world.routing(0).slots, 1);
}

#[test]
fn a_row_that_no_price_lets_go_leaves_when_it_has_waited_long_enough() {
    // Nothing here: every way costs a million.
    let world = World::new(&[1, 1], 1, 1, 1 << 20);
    world.route(0, "potus", json!({ "v": 1e6, "beta": 8 }), false);
    world.append(0, 0, 1);
    let appended = Instant::now();
    let mut ticks = 0;
    loop {
        let due = world.edges[0].due().expect("it is held");
        world.edges[0].tick(due);
        ticks += 1;
        if world.edges[0].waiting(0) == 0 {
            assert!(
                due + Duration::from_millis(1) >= appended + Duration::from_millis(95),
                "after {ticks} slots"
            );
            break;
        }
        assert!(due < appended + Duration::from_millis(110), "it is stranded");
    }
    let routing = world.routing(0);
    assert_eq!((routing.forced, routing.deferred, world.there(0).iter().sum::<u64>()), (1, 0, 1));
    assert_eq!(world.edges[0].due(), None);
    // In the paper's setting nothing but the end lets it go.
    world.route(0, "potus", json!({ "v": 1e6, "setting": "paper" }), false);
    world.append(0, 0, 1);
    for slot in 100..200 {
        world.edges[0].tick(world.later(slot * 20));
    }
    assert_eq!(world.edges[0].waiting(0), 1);
    world.edges[0].mark(0, Mark::End);
    assert!(!world.edges[0].is_drained(0));
    world.edges[0].tick(world.later(10_000));
    assert!(world.edges[0].is_drained(0));
    assert_eq!(world.routing(0).forced, 2);
}

#[test]
fn a_queue_at_its_bound_moves_in_both_settings() {
    for options in [json!({ "v": 1e6 }), json!({ "v": 1e6, "setting": "paper" })] {
        let world = World::new(&[1, 1], 1, 1, 1 << 20);
        world.route(0, "potus", options.clone(), false);
        let row = world.rows(1, 64 << 10);
        let mut appended = 0;
        while !world.edges[0].is_full(0) && appended < 100 {
            world.edges[0].append(0, row.clone()).unwrap();
            appended += 1;
        }
        // The channels had credit for one row each; what is taken gives it back.
        world.inboxes.iter().for_each(|inbox| drop(inbox.take(100, false)));
        world.edges[0].tick(world.later(10_000));
        assert!(!world.edges[0].is_full(0), "{options}: {appended} rows");
        assert!(world.edges[0].waiting(0) > 0, "{options}: only what is over the bound has to go");
        let left = appended - world.edges[0].waiting(0);
        assert_eq!(
            world.routing(0).forced,
            left,
            "{options}: no price lets a row go, and what stayed is not counted"
        );
        let warnings = world.routing(0).warnings;
        assert!(warnings[0].starts_with("V is larger than this queue can express"), "{warnings:?}");
        let held = if options.get("setting").is_some() { "leave when the" } else { "waited 100 ms or the" };
        assert!(warnings[0].contains(held), "{warnings:?}");
    }
}

#[test]
fn in_the_papers_setting_a_slots_rows_go_at_its_end_to_one_target() {
    let world = World::new(&[0, 1, 1], 2, 1, 1 << 20);
    world.route(0, "potus", json!({ "setting": "paper", "record": 9 }), false);
    world.append(0, 0, 30);
    world.append(0, 1, 20);
    assert_eq!(world.there(0), [0, 0, 0]);
    world.edges[0].tick(world.later(20_000));
    // Both see the lengths of the slot's beginning.
    assert_eq!(world.there(0), [50, 0, 0]);
    world.append(0, 0, 60);
    world.edges[0].tick(world.later(40_000));
    let there = world.there(0);
    assert!(there[0] == 50 && there[1] + there[2] == 60 && there[1] * there[2] == 0, "{there:?}");
    let decisions = world.routing(0).decisions;
    assert_eq!(decisions.len(), 3);
    decisions.iter().for_each(assert_replays);
    let newest = world.edges[0].routing(&mut 600).unwrap().decisions;
    assert_eq!(newest[..], decisions[2..], "as many as there is room for");
}

/// A decision is what core's function makes of what was kept with it.
fn assert_replays(decided: &Decided) {
    let again = decided.again().unwrap();
    assert_eq!(decided.decision(), again, "{decided:?}");
    if !decided.reprice {
        let target = |edge: &DecidedEdge, target: usize| edge.targets[target].clone();
        let prices = decided.sends.iter().map(|(want, to, _)| {
            let edge = &decided.edges[*want as usize];
            let target = target(edge, *to as usize);
            edge.v * target.cost + target.queued as f64 - edge.beta * edge.q_out as f64
        });
        let had_to = decided.edges.iter().any(|edge| edge.mandatory > 0);
        assert!(had_to || prices.into_iter().all(|price| price < 0.0), "{decided:?}");
    }
}

#[test]
fn under_strict_admission_a_source_holds_nothing_that_credit_lets_go() {
    let world = World::new(&[1, 1], 1, 1, 1 << 20);
    let paper = json!({ "v": 1e6, "setting": "paper", "record": 9 });
    world.route(0, "potus", paper.clone(), true);
    world.append(0, 0, 5);
    world.edges[0].tick(world.later(20_000));
    assert_eq!((world.edges[0].waiting(0), world.routing(0).forced), (0, 0));
    // More than the channels take: what has to wait is counted, once in each slot.
    let window = 16 << 10;
    world.edges[0].append(0, world.rows(5, window)).unwrap();
    world.edges[0].tick(world.later(40_000));
    let waiting = world.edges[0].waiting(0);
    assert!(waiting > 0);
    assert_eq!(world.routing(0).deferred, waiting);
    world.edges[0].tick(world.later(60_000));
    assert_eq!(world.routing(0).deferred, 2 * waiting);
    world.routing(0).decisions.iter().for_each(assert_replays);
    // A stage that is no source may hold.
    world.route(0, "potus", paper, false);
    let before = world.edges[0].waiting(0);
    world.append(0, 0, 5);
    world.edges[0].tick(world.later(80_000));
    assert_eq!(world.edges[0].waiting(0), before + 5);
}

#[test]
fn gamma_holds_over_all_edges_of_a_sender_which_are_decided_together() {
    let world = World::new(&[0, 1], 1, 3, 1 << 20);
    let options =
        json!({ "setting": "paper", "gamma": 30, "record": 9, "slot": "10s", "admission": "relaxed" });
    world.route(0, "potus", options.clone(), false);
    world.route(1, "potus", options, false);
    // The third goes in turn: it is not held, and counts.
    world.append(2, 0, 6);
    assert_eq!(world.there(2).iter().sum::<u64>(), 6);
    world.append(0, 0, 40);
    world.append(1, 0, 10);
    let edges = [Arc::clone(&world.edges[0]), Arc::clone(&world.edges[1])];
    let first = Instant::now();
    tick_together(&edges, first);
    let sent = |edge: usize| world.there(edge).iter().sum::<u64>();
    // The longer queue presses more: it has all that the third has left.
    assert_eq!((sent(0), sent(1)), (24, 0));
    let decided = world.routing(0).decisions;
    assert_eq!((decided.len(), decided[0].edges.len(), decided[0].gamma), (1, 2, 24));
    decided.iter().for_each(assert_replays);
    tick_together(&edges, first);
    assert_eq!((sent(0), sent(1)), (24, 0), "the same slot");
    tick_together(&edges, first + Duration::from_secs(10));
    assert!(sent(0) + sent(1) <= 54);
    world.routing(1).decisions.iter().for_each(assert_replays);
    drop(world.quotas);
}

#[test]
fn those_who_meet_at_a_targets_credit_take_turns_by_slot() {
    // A row fills the only target.
    let mut firsts = Vec::new();
    for slot in 1005..1009u64 {
        let world = World::new(&[0], 2, 1, 1 << 20);
        world.route(0, "potus", json!({ "setting": "paper", "admission": "relaxed" }), false);
        for sender in 0..2 {
            world.edges[0].append(sender, world.rows(1, 16 << 10)).unwrap();
        }
        world.edges[0].tick(world.later(slot * 20));
        assert_eq!(world.there(0), [1]);
        firsts.push(world.edges[0].waiting(0) == 0);
    }
    assert_eq!(firsts, [false, true, false, true]);
}

#[test]
fn a_barrier_holds_a_queue_whatever_would_have_to_leave() {
    let world = World::new(&[0, 1], 2, 1, 1 << 20);
    world.route(0, "potus", json!({ "v": 1000, "beta": 1 }), false);
    world.edges[0].mark(0, Mark::Barrier(1));
    world.append(0, 0, 9);
    world.edges[0].mark(0, Mark::End);
    assert_eq!(world.edges[0].due(), None, "no slot's end would let it go");
    world.edges[0].tick(world.later(5_000));
    assert_eq!((world.edges[0].waiting(0), world.there(0)), (9, vec![0, 0]));
    world.edges[0].mark(1, Mark::Barrier(1));
    world.edges[0].pump();
    assert!(world.edges[0].is_drained(0));
    assert_eq!(world.there(0).iter().sum::<u64>(), 9);
}

#[test]
fn targets_whose_agent_is_not_heard_of_get_no_rows_while_there_is_another_be_it_full() {
    let agent = |name: &str| AgentId { name: name.to_owned(), incarnation: 1 };
    let session = Outbound::new(
        agent("a"),
        agent("b"),
        "127.0.0.1:1".to_owned(),
        Security::Insecure,
        Box::new(|_, _| {}),
    );
    session.add_edge(1, 1, 0, 7);
    let world = World::new(&[3], 1, 1, 1 << 20);
    {
        // The other target is on an agent to which no connection stands.
        let mut state = lock(&world.edges[0].state);
        let first = &state.outlets[0].list()[0];
        let (instance, credit, link) = (first.instance, Arc::clone(&first.credit), first.link.clone());
        let key = ChannelKey { run: 1, edge: 0, target: 9 };
        session.add_channel(key, Credit::new(Arc::default()));
        let far = Outlet {
            instance: 9,
            agent: 1,
            credit: Credit::new(Arc::default()),
            link: Link::Remote { session, key },
            sent_rows: 0,
            sent_bytes: 0,
        };
        let near = Outlet { instance, agent: 0, credit, link, sent_rows: 0, sent_bytes: 0 };
        state.outlets = vec![Outlets::new(vec![near, far])];
    }
    let dear = World { costs: vec![3, 0], ..world };
    dear.route(0, "potus", json!({ "v": 1, "beta": 64 }), false);
    dear.append(0, 0, 9);
    let routing = dear.routing(0);
    assert_eq!([routing.targets[0].rows, routing.targets[1].rows], [9, 0]);
    assert!(routing.targets[1].masked && !routing.targets[0].masked);
    // The near one is full: what comes waits for it, however long the queue gets, and goes there when it takes rows.
    dear.edges[0].append(0, dear.rows(1, 20 << 10)).unwrap();
    dear.append(0, 0, 40);
    dear.edges[0].mark(0, Mark::End);
    dear.edges[0].tick(dear.later(5_000));
    let routing = dear.routing(0);
    assert_eq!((routing.targets[1].rows, routing.targets[0].open), (0, false));
    assert!(dear.edges[0].waiting(0) >= 40);
    while matches!(dear.inboxes[0].take(100, false), Ok(Taken::Rows { .. })) {
        dear.edges[0].pump();
    }
    assert!(dear.edges[0].is_drained(0));
    assert_eq!(dear.routing(0).targets[1].rows, 0);
}

#[test]
fn a_policy_that_takes_the_place_of_another_has_what_that_one_held() {
    let world = World::new(&[1, 1], 1, 1, 1 << 20);
    world.route(0, "potus", json!({ "v": 1e6 }), false);
    world.append(0, 0, 9);
    assert_eq!(world.edges[0].waiting(0), 9);
    world.route(0, "jsq", json!({}), false);
    assert_eq!(world.edges[0].waiting(0), 0);
    let there = world.there(0);
    assert!(there[0].abs_diff(there[1]) <= 1, "{there:?}");
    world.route(0, "p2c", json!({}), false);
    world.append(0, 0, 9);
    world.route(0, "local_first", json!({}), false);
    world.append(0, 0, 9);
    assert_eq!(world.there(0).iter().sum::<u64>(), 27);
    assert_eq!(world.edges[0].due(), None);
    assert_eq!(world.routing(0).policy, "local_first");
}

#[test]
fn a_watermark_stays_behind_the_rows_that_a_slot_lets_go() {
    let world = World::new(&[0], 1, 1, 1 << 20);
    world.route(0, "potus", json!({ "setting": "paper" }), false);
    world.append(0, 0, 2);
    world.edges[0].mark(0, Mark::Watermark(7));
    world.append(0, 0, 3);
    world.edges[0].mark(0, Mark::Watermark(9));
    assert!(matches!(world.inboxes[0].take(9, false), Ok(Taken::Nothing)));
    world.edges[0].tick(world.later(20_000));
    let mut seen = Vec::new();
    loop {
        match world.inboxes[0].take(9, false).unwrap() {
            Taken::Rows { rows, .. } => seen.push(rows.len() as i64),
            Taken::Watermark(time) => seen.push(-time),
            Taken::Nothing => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, [2, -7, 3, -9]);
}

/// Nanoseconds that this thread has run.
fn ran_for() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// What a second of slots of 5 ms costs where 64 senders hold rows for 64 targets, less what it costs to count them
/// out with nothing held.
#[test]
fn slots_of_64_senders_and_targets_cost_little() {
    let costs = vec![1; 64];
    let world = World::new(&costs, 64, 1, 1 << 20);
    world.route(0, "potus", json!({ "v": 1e6, "max_hold": "none" }), false);
    let tick_for_a_second = |from: u64| {
        let before = ran_for();
        for slot in from..from + 200 {
            world.edges[0].tick(world.later(slot * 5));
        }
        ran_for() - before
    };
    let empty = tick_for_a_second(1_000);
    for sender in 0..64 {
        world.append(0, sender, 10);
    }
    let full = tick_for_a_second(2_000);
    assert_eq!((world.routing(0).slots, world.routing(0).queued_out), (200, 640));
    let share = full.saturating_sub(empty) as f64 / 1e9;
    println!("{:.2} % of a core", share * 100.0);
    // Measured in the release build: under 1.5 %. Builds that do not optimise are ten times slower.
    assert!(share < 0.2, "{share}");
}
