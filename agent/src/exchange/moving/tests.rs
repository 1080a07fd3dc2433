//! Two senders, two owners, and a group of key partitions that moves from one to the other at any moment: no row is lost
//! or comes twice, and a key's rows keep the order of their sender.

use std::sync::Arc;

use futures::FutureExt;
use proptest::prelude::*;
use tokio::sync::Notify;
use tuplane_expr::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, UInt16Array};
use tuplane_expr::arrow::datatypes::Int64Type;

use super::*;
use crate::engine::rows::Budget;
use crate::exchange::credit::Credit;
use crate::exchange::edge::{Edge, EdgeSpec};
use crate::exchange::inbox::{Inbox, InputSpec, Side, Taken, Upstream};
use crate::exchange::mark::{Item, Mark};
use crate::exchange::outlet::{Link, Outlet, Outlets};
use crate::exchange::outqueue::{OutQueue, Routes};

/// Key partitions 0 to 3; 0 and 1 are held by instance 0, and so on.
const PARTITIONS: u16 = 4;

/// Rows of one sender with these partitions, numbered from `first`.
fn rows(sender: usize, first: i64, partitions: &[u16], budget: &Arc<Budget>) -> Rows {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((first..).take(partitions.len())));
    let senders: ArrayRef = Arc::new(Int64Array::from_value(sender as i64, partitions.len()));
    let batch = RecordBatch::try_from_iter([("sender", senders), ("number", numbers)]).unwrap();
    Rows::new(batch, Some(UInt16Array::from(partitions.to_vec())), budget).unwrap()
}

/// A sending agent for each sender, and two owners.
struct World {
    edges: Vec<Arc<Edge>>,
    inboxes: Vec<Arc<Inbox>>,
    budget: Arc<Budget>,
    /// How many rows each sender has given.
    given: Vec<i64>,
    /// What each owner has taken: sender, partition, number.
    taken: Vec<Vec<(i64, u16, i64)>>,
    /// The same of all owners, in the order in which it was taken.
    all_taken: Vec<(i64, u16, i64)>,
    /// The last watermark of each owner.
    watermarks: Vec<Option<i64>>,
    ended: Vec<bool>,
    wakes: Vec<Arc<Notify>>,
}

impl World {
    fn new() -> Self {
        let budget = Budget::new(1 << 30);
        let wakes: Vec<Arc<Notify>> = (0..2).map(|_| Arc::default()).collect();
        let credits: Vec<Vec<Arc<Credit>>> =
            (0..2).map(|_| wakes.iter().map(|wake| Credit::new(Arc::clone(wake))).collect()).collect();
        let inbox = |credits: &Vec<Arc<Credit>>| {
            let channels = credits.iter().map(|credit| Upstream::Local(Arc::clone(credit))).collect();
            Inbox::new(vec![InputSpec { edge: 0, priority: 0, channels }], 64 << 10, Arc::clone(&budget))
        };
        let inboxes: Vec<Arc<Inbox>> = credits.iter().map(inbox).collect();
        let edges = (0..2usize)
            .map(|sender| {
                let outlets = (0..2usize).map(|owner| Outlet {
                    instance: owner as u32,
                    agent: 0,
                    credit: Arc::clone(&credits[owner][sender]),
                    link: Link::Local { inbox: Arc::clone(&inboxes[owner]), channel: sender },
                    sent_rows: 0,
                    sent_bytes: 0,
                });
                let routes = Routes::ByPartition(vec![0, 0, 1, 1]);
                let spec = EdgeSpec { index: 0, barriers_in_order: false, deal: 1, routes };
                let edge = Edge::new(spec, Outlets::new(outlets.collect()), Arc::clone(&wakes[sender]));
                edge.add_sender(sender as u32, OutQueue::lanes(2), 1 << 30, Arc::default());
                edge
            })
            .collect();
        Self {
            edges,
            inboxes,
            budget,
            given: vec![0; 2],
            taken: vec![Vec::new(); 2],
            all_taken: Vec::new(),
            watermarks: vec![None; 2],
            ended: vec![false; 2],
            wakes,
        }
    }

    fn give(&mut self, sender: usize, partitions: &[u16]) {
        let rows = rows(sender, self.given[sender], partitions, &self.budget);
        self.given[sender] += partitions.len() as i64;
        self.edges[sender].append(0, rows).unwrap();
    }

    fn keep(taken: &mut Vec<(i64, u16, i64)>, rows: &Rows) {
        let of = |column: usize| rows.batch().column(column).as_primitive::<Int64Type>();
        let ids = rows.partitions().unwrap();
        for row in 0..rows.len() {
            taken.push((of(0).value(row), ids.value(row), of(1).value(row)));
        }
    }

    /// The next thing that an owner gets; false if there is none.
    fn take(&mut self, owner: usize, most: usize) -> bool {
        match self.inboxes[owner].take(most, false).unwrap() {
            Taken::Rows { rows, .. } => {
                Self::keep(&mut self.taken[owner], &rows);
                Self::keep(&mut self.all_taken, &rows);
            }
            Taken::Nothing => return false,
            Taken::Watermark(time) => self.watermarks[owner] = Some(time),
            Taken::Ended => {
                self.ended[owner] = true;
                return false;
            }
            other => panic!("{other:?}"),
        }
        self.edges.iter().for_each(|edge| edge.pump());
        true
    }

    fn take_all(&mut self) {
        while (0..self.inboxes.len()).fold(false, |more, owner| self.take(owner, 100) | more) {}
    }

    /// Another owner, which holds nothing, and the way to it from each sender.
    fn join(&mut self) -> Vec<Outlet> {
        let credits: Vec<Arc<Credit>> = self.wakes.iter().map(|wake| Credit::new(Arc::clone(wake))).collect();
        let channels = credits.iter().map(|credit| Upstream::Local(Arc::clone(credit))).collect();
        let spec = InputSpec { edge: 0, priority: 0, channels };
        let inbox = Inbox::new(vec![spec], 64 << 10, Arc::clone(&self.budget));
        let instance = self.inboxes.len() as u32;
        self.inboxes.push(Arc::clone(&inbox));
        self.taken.push(Vec::new());
        self.watermarks.push(None);
        self.ended.push(false);
        let outlet = |(channel, credit)| {
            let link = Link::Local { inbox: Arc::clone(&inbox), channel };
            Outlet { instance, agent: 0, credit, link, sent_rows: 0, sent_bytes: 0 }
        };
        credits.into_iter().enumerate().map(outlet).collect()
    }

    /// Rows that wait somewhere, as the ledger counts them.
    fn waiting(&self) -> u64 {
        let out: u64 = self.edges.iter().map(|edge| edge.sent().queued).sum();
        out + self
            .inboxes
            .iter()
            .flat_map(|inbox| inbox.counts())
            .map(|(_, waiting, ..)| waiting)
            .sum::<u64>()
    }

    fn check(&self) {
        let count = self.all_taken.len();
        assert_eq!(count as i64, self.given.iter().sum::<i64>(), "each row once");
        for sender in 0..2 {
            for partition in 0..PARTITIONS {
                let mine = self.all_taken.iter().filter(|row| (row.0, row.1) == (sender, partition));
                let numbers: Vec<i64> = mine.map(|row| row.2).collect();
                assert!(numbers.is_sorted(), "sender {sender}, partition {partition}: {numbers:?}");
            }
        }
    }

    /// A whole group, at once.
    fn moves(&mut self, moves: &Group) {
        let [from, to] = [moves.from, moves.to].map(|owner| Arc::clone(&self.inboxes[owner as usize]));
        to.begin_group(moves.clone(), Side::Takes).unwrap();
        from.begin_group(moves.clone(), Side::Gives).unwrap();
        self.edges.iter().for_each(|edge| edge.move_group(moves).unwrap());
        to.resume_group(from.cut_group().unwrap()).unwrap();
        from.end_group(moves.order());
    }
}

fn group(number: u32, partitions: &[u16]) -> Group {
    Group { epoch: 2, number, from: 0, to: 1, partitions: partitions.iter().copied().collect() }
}

fn back(number: u32, partitions: &[u16]) -> Group {
    Group { from: 1, to: 0, ..group(number, partitions) }
}

#[test]
fn parts_have_the_bytes_of_the_whole() {
    let budget = Budget::new(1 << 20);
    let all = rows(0, 0, &[3, 1, 3, 0, 2], &budget);
    let bytes = all.bytes();
    let (others, mine) = split(all.clone(), &[3].into_iter().collect()).unwrap();
    let (others, mine) = (others.unwrap(), mine.unwrap());
    assert_eq!((others.len(), mine.len(), others.bytes() + mine.bytes()), (3, 2, bytes));
    assert_eq!(mine.partitions().unwrap().values(), &[3, 3]);
    let (others, mine) = split(all.clone(), &[9].into_iter().collect()).unwrap();
    assert!(mine.is_none() && others.unwrap().len() == 5);
    let (others, mine) = split(all, &(0..4).collect()).unwrap();
    assert!(others.is_none() && mine.unwrap().len() == 5);
}

#[test]
fn rows_that_wait_follow_their_group_and_each_step_may_be_done_twice() {
    let mut world = World::new();
    world.give(0, &[0, 1, 2]);
    world.give(1, &[1, 1, 3]);
    let moves = group(0, &[1]);
    for _ in 0..2 {
        world.inboxes[0].begin_group(moves.clone(), Side::Gives).unwrap();
        world.inboxes[1].begin_group(moves.clone(), Side::Takes).unwrap();
    }
    assert!(world.inboxes[1].begin_group(group(1, &[0]), Side::Takes).is_err(), "one at a time");
    assert!(world.inboxes[0].cut_group().is_err(), "nobody has said that it moves");
    for edge in &world.edges {
        edge.move_group(&moves).unwrap();
        edge.move_group(&moves).unwrap();
        assert_eq!(edge.owners(), [0, 1, 1, 1]);
    }
    // What comes now waits at the new owner, and holds up no other.
    world.give(0, &[1, 2]);
    world.take_all();
    assert_eq!(world.taken[1].iter().map(|row| row.1).collect::<Vec<_>>(), [2, 3, 2]);
    world.taken[1].clear();
    assert_eq!(world.taken[0].len(), 4, "it was read before it was cut");
    assert_eq!(world.inboxes[0].cut_group().unwrap().len(), 0);
    world.inboxes[1].resume_group(Vec::new()).unwrap();
    world.inboxes[0].end_group(moves.order());
    assert!(world.inboxes[1].is_catching_up());
    world.take_all();
    assert!(!world.inboxes[1].is_catching_up());
    assert_eq!(world.taken[1], [(0, 1, 3)]);
    // It is over: a second word of it changes nothing.
    world.inboxes[0].begin_group(moves.clone(), Side::Gives).unwrap();
    world.edges[0].move_group(&moves).unwrap();
    assert!(world.edges[0].move_group(&group(1, &[3])).unwrap_err().contains("not held by instance 0"));
}

#[test]
fn rows_that_have_not_been_taken_go_on_with_a_later_group() {
    let mut world = World::new();
    world.give(0, &[0, 1, 1]);
    world.give(1, &[1, 2]);
    world.moves(&group(0, &[0, 1]));
    assert!(world.inboxes[1].is_catching_up());
    // Behind these come rows by the new map, and 0 stays where it is.
    world.give(0, &[1, 0]);
    world.moves(&back(1, &[1]));
    world.give(1, &[1]);
    assert_eq!(world.waiting(), 8);
    world.take_all();
    assert!(!world.inboxes.iter().any(|inbox| inbox.is_catching_up()));
    let by_owner =
        |owner: usize, partition| world.taken[owner].iter().filter(|row| row.1 == partition).count();
    assert_eq!((by_owner(0, 1), by_owner(1, 1), by_owner(1, 0)), (5, 0, 2));
    assert_eq!(world.waiting(), 0);
    world.check();
}

#[test]
fn a_group_waits_where_much_is_to_be_caught_up_with() {
    let mut world = World::new();
    let inbox = Arc::clone(&world.inboxes[1]);
    // With each group comes less than the queue holds, and nobody takes it: more than twice that is too much.
    let each = rows(0, 0, &[1; 2000], &world.budget);
    let groups = 1 + (128 << 10) / each.bytes();
    for number in 0..groups as u32 {
        let moves = group(number, &[1]);
        assert!(!inbox.is_far_behind(moves.order()), "{number}");
        inbox.begin_group(moves, Side::Takes).unwrap();
        inbox.resume_group(vec![(0, each.clone())]).unwrap();
    }
    let next = group(groups as u32, &[0]);
    assert!(inbox.is_far_behind(next.order()));
    inbox.begin_group(next.clone(), Side::Takes).unwrap();
    assert!(!inbox.is_far_behind(next.order()), "it is on its way");
    inbox.resume_group(Vec::new()).unwrap();
    world.take_all();
    assert!(!inbox.is_far_behind(group(groups as u32 + 1, &[0]).order()));
}

#[test]
fn an_owner_does_not_end_before_its_partitions_have_come() {
    let mut world = World::new();
    let moves = group(0, &[0, 1]);
    world.inboxes.iter().for_each(|inbox| inbox.open_moves().unwrap());
    world.give(0, &[0, 0]);
    world.inboxes[0].begin_group(moves.clone(), Side::Gives).unwrap();
    world.inboxes[1].begin_group(moves.clone(), Side::Takes).unwrap();
    world.edges.iter().for_each(|edge| edge.mark(0, Mark::End));
    // Senders that have ended say it too.
    world.edges.iter().for_each(|edge| edge.move_group(&moves).unwrap());
    while world.take(1, 100) {}
    assert_eq!(world.ended, [false, false]);
    let cut = world.inboxes[0].cut_group().unwrap();
    assert_eq!(world.waiting(), 2, "they are on their way");
    world.inboxes[1].resume_group(cut).unwrap();
    world.inboxes[0].end_group(moves.order());
    assert_eq!(world.waiting(), 2);
    world.take_all();
    assert_eq!(world.taken[1].len(), 2);
    assert_eq!(world.ended, [false, false]);
    world.inboxes[1].begin_settling();
    world.inboxes.iter().for_each(|inbox| inbox.close_moves());
    world.take_all();
    assert_eq!(world.ended, [true, false], "it has a word to say before its end");
    world.inboxes[1].end_settling();
    world.take_all();
    assert_eq!(world.waiting(), 0);
    assert_eq!(world.ended, [true, true]);
}

#[test]
fn owners_come_before_they_hold_anything_and_go_when_they_hold_nothing() {
    let mut world = World::new();
    // Rows wait in both lanes.
    for _ in 0..10 {
        world.give(0, &[0, 1, 2, 3].repeat(100));
    }
    world.edges.iter().for_each(|edge| edge.mark(0, Mark::Watermark(5)));
    let outlets = world.join();
    for (edge, outlet) in world.edges.iter().zip(outlets) {
        edge.change_owners(vec![outlet], &|_| true, None, 0).unwrap();
        assert_eq!(edge.owners(), [0, 0, 1, 1]);
        let refused = edge.change_owners(Vec::new(), &|owner| owner != 0, None, 0).unwrap_err();
        assert_eq!(refused, "instance 0 is to go, and still holds a key partition");
    }
    let moves = Group { epoch: 2, number: 0, from: 0, to: 2, partitions: [0, 1].into_iter().collect() };
    world.inboxes[2].begin_group(moves.clone(), Side::Takes).unwrap();
    world.inboxes[0].begin_group(moves.clone(), Side::Gives).unwrap();
    world.edges.iter().for_each(|edge| edge.move_group(&moves).unwrap());
    let cut = world.inboxes[0].cut_group().unwrap();
    assert!(!cut.is_empty() && world.edges[0].waiting(0) > 0);
    world.inboxes[2].resume_group(cut).unwrap();
    world.inboxes[0].end_group(moves.order());
    for edge in &world.edges {
        edge.change_owners(Vec::new(), &|owner| owner != 0, None, 0).unwrap();
        assert_eq!(edge.owners(), [2, 2, 1, 1]);
    }
    world.inboxes.iter().for_each(|inbox| inbox.close_moves());
    world.take_all();
    assert_eq!(world.ended, [true, false, false]);
    assert_eq!((world.taken[0].len(), world.taken[1].len(), world.taken[2].len()), (0, 2000, 2000));
    assert!(world.taken[2].is_sorted_by_key(|row| row.2), "one sender's rows, in its order");
    // The watermark stood behind the rows.
    assert_eq!(world.watermarks[1..], [Some(5), Some(5)]);
    assert_eq!(world.waiting(), 0);
}

#[test]
fn time_stands_still_where_older_rows_may_follow() {
    let mut world = World::new();
    let say = |world: &World, time| world.edges.iter().for_each(|edge| edge.mark(0, Mark::Watermark(time)));
    say(&world, 3);
    world.take_all();
    assert_eq!(world.watermarks, [Some(3); 2]);
    // What waits at the owners is behind the word, which passes it.
    say(&world, 5);
    world.edges[0].hold(0);
    world.edges[0].hold(0);
    world.give(0, &[0, 2]);
    say(&world, 9);
    world.take_all();
    assert_eq!(world.watermarks, [Some(3); 2]);
    assert_eq!((world.taken[0].len(), world.taken[1].len()), (1, 1));
    world.edges[0].mark(0, Mark::Resume);
    world.take_all();
    assert_eq!(world.watermarks, [Some(3); 2], "two groups may follow each other");
    world.give(0, &[0, 2]);
    world.edges[0].mark(0, Mark::Resume);
    for owner in 0..2 {
        assert!(world.take(owner, 100) && world.watermarks[owner] == Some(3), "the rows come first");
    }
    world.take_all();
    assert_eq!(world.watermarks, [Some(9); 2]);
    // One that has ended holds nobody up.
    world.edges[0].hold(0);
    world.edges[0].mark(0, Mark::End);
    world.edges[1].mark(0, Mark::Watermark(11));
    world.take_all();
    assert_eq!(world.watermarks, [Some(11); 2]);
}

#[test]
fn an_idle_channel_that_holds_time_is_awake() {
    let world = World::new();
    for edge in &world.edges {
        edge.mark(0, Mark::Watermark(3));
        edge.mark(0, Mark::Idle);
    }
    world.inboxes[0].take(1, false).unwrap();
    while !matches!(world.inboxes[0].take(1, false).unwrap(), Taken::Idle) {}
    world.edges[1].hold(0);
    world.edges[0].mark(0, Mark::Watermark(8));
    assert!(matches!(world.inboxes[0].take(1, false).unwrap(), Taken::Watermark(3)));
    assert!(matches!(world.inboxes[0].take(1, false).unwrap(), Taken::Nothing));
    world.edges[1].mark(0, Mark::Resume);
    assert!(matches!(world.inboxes[0].take(1, false).unwrap(), Taken::Watermark(8)));
}

#[test]
fn the_time_of_who_gives_stands_still_until_its_rows_are_cut() {
    let mut world = World::new();
    let moves = group(0, &[1]);
    let say = |world: &World, time| world.edges.iter().for_each(|edge| edge.mark(0, Mark::Watermark(time)));
    say(&world, 3);
    world.take_all();
    world.inboxes[1].begin_group(moves.clone(), Side::Takes).unwrap();
    world.inboxes[0].begin_group(moves.clone(), Side::Gives).unwrap();
    world.edges.iter().for_each(|edge| edge.move_group(&moves).unwrap());
    // A row of the group waits at the new owner; its time is 5.
    world.give(0, &[1]);
    say(&world, 7);
    world.take_all();
    assert_eq!(world.watermarks, [Some(3), Some(7)]);
    assert_eq!(world.inboxes[0].cut_group().unwrap().len(), 0);
    world.take_all();
    assert_eq!(world.watermarks[0], Some(7));
}

#[test]
fn who_has_ended_needs_no_word_and_a_late_one_does_no_harm() {
    let mut world = World::new();
    let moves = group(0, &[0]);
    world.inboxes.iter().for_each(|inbox| inbox.open_moves().unwrap());
    world.edges[0].mark(0, Mark::End);
    world.inboxes[1].begin_group(moves.clone(), Side::Takes).unwrap();
    world.inboxes[0].begin_group(moves.clone(), Side::Gives).unwrap();
    world.edges[1].mark(0, Mark::End);
    assert!(world.inboxes[0].cut_group().unwrap().is_empty());
    world.inboxes[1].resume_group(Vec::new()).unwrap();
    world.inboxes[0].end_group(moves.order());
    world.edges.iter().for_each(|edge| edge.move_group(&moves).unwrap());
    world.inboxes.iter().for_each(|inbox| inbox.close_moves());
    world.take_all();
    assert_eq!(world.ended, [true, true]);
    assert!(world.inboxes[0].open_moves().unwrap_err().contains("come to its end"));
}

#[tokio::test]
async fn who_waits_for_all_marks_is_told() {
    let world = World::new();
    let moves = group(0, &[0]);
    world.inboxes[0].begin_group(moves.clone(), Side::Gives).unwrap();
    let inbox = Arc::clone(&world.inboxes[0]);
    let order = moves.order();
    let waits = tokio::spawn(async move { inbox.all_marked(order).await });
    world.edges[0].move_group(&moves).unwrap();
    tokio::task::yield_now().await;
    assert!(!waits.is_finished());
    world.edges[1].move_group(&moves).unwrap();
    waits.await.unwrap();
    world.inboxes[0].all_marked(order).await;
}

/// What is done.
#[derive(Debug, Clone)]
enum Act {
    Give(usize, Vec<u16>),
    Take(usize, usize),
    /// The next step of the group that is on its way, or of the next one.
    Step,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        5 => (0..2usize, prop::collection::vec(0..PARTITIONS, 1..200)).prop_map(|(who, rows)| Act::Give(who, rows)),
        4 => (0..2usize, 1..60usize).prop_map(|(who, most)| Act::Take(who, most)),
        4 => Just(Act::Step),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_row_is_lost_or_comes_twice_and_order_is_kept(acts in prop::collection::vec(act(), 1..120)) {
        let mut world = World::new();
        let (mut step, mut number) = (0, 0);
        let mut cut = Vec::new();
        // There, back before or after all rows were taken, and there again.
        let groups = [group(0, &[1]), group(1, &[0]), back(2, &[1, 2]), group(3, &[2, 1]), back(4, &[0])];
        let mut advance = |world: &mut World| {
            let Some(moves) = groups.get(number) else { return false };
            let [from, to] = [moves.from, moves.to].map(|owner| Arc::clone(&world.inboxes[owner as usize]));
            match step {
                0 => to.begin_group(moves.clone(), Side::Takes).unwrap(),
                1 => from.begin_group(moves.clone(), Side::Gives).unwrap(),
                2 => world.edges[1].move_group(moves).unwrap(),
                3 => world.edges[0].move_group(moves).unwrap(),
                4 => cut = from.cut_group().unwrap(),
                5 => to.resume_group(std::mem::take(&mut cut)).unwrap(),
                _ => {
                    from.end_group(moves.order());
                    (step, number) = (0, number + 1);
                    return true;
                }
            }
            step += 1;
            true
        };
        for act in acts {
            match act {
                Act::Give(who, partitions) => world.give(who, &partitions),
                Act::Take(who, most) => {
                    world.take(who, most);
                }
                Act::Step => {
                    advance(&mut world);
                }
            }
        }
        while advance(&mut world) {}
        world.take_all();
        prop_assert_eq!(world.waiting(), 0);
        world.check();
    }
}

#[test]
fn a_target_that_comes_while_older_rows_may_follow_holds_its_time_too() {
    let mut world = World::new();
    for edge in &world.edges {
        edge.mark(0, Mark::Watermark(10));
    }
    // Two groups have come to the first sender, and it has gone through none of them.
    world.edges[0].hold(0);
    world.edges[0].hold(0);
    for (edge, outlet) in world.edges.clone().iter().zip(world.join()) {
        edge.change_owners(vec![outlet], &|_| true, None, 0).unwrap();
        edge.mark(0, Mark::Watermark(20));
    }
    world.take_all();
    assert_eq!(world.watermarks[2], None, "rows from before 10 may still come");
    world.edges[0].mark(0, Mark::Resume);
    world.take_all();
    assert_eq!(world.watermarks[2], None, "those of the other group too");
    world.edges[0].mark(0, Mark::Resume);
    world.take_all();
    assert_eq!(world.watermarks, vec![Some(20); 3]);
    // One that comes after them hears of the time at once.
    for (edge, outlet) in world.edges.clone().iter().zip(world.join()) {
        edge.change_owners(vec![outlet], &|_| true, None, 0).unwrap();
    }
    world.take_all();
    assert_eq!(world.watermarks[3], Some(20));
}

#[test]
fn a_sender_that_ends_holds_nobodys_time() {
    let mut world = World::new();
    world.edges[0].add_sender(7, OutQueue::lanes(2), 1 << 30, Arc::default());
    for edge in &world.edges {
        edge.mark(0, Mark::Watermark(10));
    }
    world.edges[0].mark(1, Mark::Watermark(10));
    world.edges[0].hold(1);
    for edge in &world.edges {
        edge.mark(0, Mark::Watermark(20));
    }
    world.take_all();
    assert_eq!(world.watermarks, [None, None], "it may have older rows to give");
    world.edges[0].mark(1, Mark::End);
    // Whoever asked it to take it back was too late.
    world.edges[0].mark(1, Mark::Resume);
    world.take_all();
    assert_eq!(world.watermarks, [Some(20), Some(20)]);
}

#[test]
fn whoever_waits_until_rows_that_waited_are_taken_is_told() {
    let mut world = World::new();
    let inbox = Arc::clone(&world.inboxes[1]);
    inbox.begin_group(group(0, &[1]), Side::Takes).unwrap();
    inbox.resume_group(vec![(0, rows(0, 0, &[1, 1], &world.budget))]).unwrap();
    let mut waits = std::pin::pin!(inbox.caught_up());
    assert!(waits.as_mut().now_or_never().is_none());
    assert!(world.take(1, 1) && waits.as_mut().now_or_never().is_none());
    assert!(world.take(1, 1) && waits.as_mut().now_or_never().is_some());
}

#[test]
fn a_channel_that_is_opened_again_does_not_hold_for_those_who_ended() {
    let mut world = World::new();
    let inbox = Arc::clone(&world.inboxes[1]);
    let say = |mark: Mark| (0..2).for_each(|channel| inbox.push(channel, Item::Mark(mark)));
    say(Mark::Watermark(10));
    world.take_all();
    inbox.push(0, Item::Mark(Mark::Hold));
    inbox.push(0, Item::Mark(Mark::End));
    world.take_all();
    inbox.reopen(0).unwrap();
    say(Mark::Watermark(20));
    world.take_all();
    assert_eq!(world.watermarks[1], Some(20));
}
