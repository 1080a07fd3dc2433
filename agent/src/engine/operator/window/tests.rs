//! Windows whose input falls idle while they hold rows: in two stages, and before other windows.

use std::sync::Arc;

use proptest::prelude::*;
use tokio::sync::Notify;
use tuplane_core::job::{OnError, Text, Window, WindowKind};
use tuplane_expr::arrow::array::{ArrayRef, AsArray, Int64Array, TimestampNanosecondArray, UInt16Array};
use tuplane_expr::arrow::datatypes::{Int64Type, TimestampNanosecondType};
use tuplane_expr::system::{SystemColumn, with_column};
use tuplane_expr::{Determinism, Language};

use super::*;
use crate::engine::rows::{Budget, Rows};
use crate::exchange::credit::Credit;
use crate::exchange::edge::{Edge, EdgeSpec};
use crate::exchange::inbox::{Inbox, InputSpec, Taken, Upstream};
use crate::exchange::mark::Mark;
use crate::exchange::outlet::{Link, Outlet, Outlets};
use crate::exchange::outqueue::{OutQueue, Routes};

fn rows(times: &[i64]) -> RecordBatch {
    let x: ArrayRef = Arc::new(Int64Array::from_iter_values(times.iter().copied()));
    let rows = RecordBatch::try_from_iter_with_nullable([("x", x, true)]).unwrap();
    with_column(&rows, SystemColumn::Ts, Arc::new(TimestampNanosecondArray::from(times.to_vec()))).unwrap()
}

fn windowed(role: Role) -> Windowed {
    windowed_with(role, WindowKind::Tumbling, None)
}

fn windowed_with(role: Role, kind: WindowKind, early: Option<Duration>) -> Windowed {
    let size = Some(Duration::from_nanos(10));
    let slide = (kind == WindowKind::Sliding).then(|| Duration::from_nanos(4));
    let window = Window { kind, size, slide, early };
    let compute = [Text::nowhere("count(*) as n".to_owned())];
    let schema = rows(&[]).project(&[0]).unwrap().schema();
    let language = Language::new(Determinism::Required);
    let program = WindowProgram::compile(language, &[], &window, &compute, &schema, OnError::Fail).unwrap();
    Windowed::new("counted", program, role, 13).unwrap()
}

fn pulled(operator: &mut Windowed) -> Vec<RecordBatch> {
    let pieces = std::iter::from_fn(|| operator.pull(100, 1 << 20).unwrap());
    // One without rows says that more has to be put together first.
    pieces.filter(|piece| piece.num_rows() > 0).collect()
}

fn counts(given: &[RecordBatch]) -> Vec<i64> {
    let of =
        |rows: &RecordBatch| rows.column_by_name("n").unwrap().as_primitive::<Int64Type>().values().to_vec();
    given.iter().flat_map(of).collect()
}

#[test]
fn an_instance_that_falls_idle_gives_what_it_holds_first() {
    let (mut idle, mut busy, mut last) =
        (windowed(Role::Prepare), windowed(Role::Prepare), windowed(Role::Combine));
    idle.watermark(105).unwrap();
    idle.push(0, rows(&[105, 106]), None).unwrap();
    busy.push(0, rows(&[101, 102, 103]), None).unwrap();
    idle.idle().unwrap();
    busy.watermark(200).unwrap();
    for partial in pulled(&mut idle).into_iter().chain(pulled(&mut busy)) {
        last.push(0, partial, None).unwrap();
    }
    last.watermark(200).unwrap();
    assert_eq!(counts(&pulled(&mut last)), [5]);
    assert!(last.take_dropped().is_empty());
    // It wakes too late for one row, which stands in a partial result by now.
    idle.push(0, rows(&[107, 108]), None).unwrap();
    idle.end().unwrap();
    for partial in pulled(&mut idle) {
        last.push(0, partial, None).unwrap();
    }
    assert_eq!(last.take_dropped(), DroppedRows::from([(DROPPED_PARTS_AS_LATE.to_owned(), 1)]));
    assert!(last.take_remark().unwrap().message.starts_with("a partial result of rows from"));
}

#[test]
fn a_window_of_one_stage_keeps_what_it_holds_when_it_falls_idle() {
    let mut whole = windowed(Role::Whole);
    whole.push(0, rows(&[105, 106]), None).unwrap();
    whole.idle().unwrap();
    assert!(pulled(&mut whole).is_empty());
    whole.push(0, rows(&[107]), None).unwrap();
    whole.end().unwrap();
    assert_eq!(counts(&pulled(&mut whole)), [3]);
}

#[test]
fn a_window_is_idle_to_those_behind_it_when_it_holds_nothing() {
    for (role, holds) in [(Role::Whole, true), (Role::Prepare, false)] {
        let mut window = windowed(role);
        assert!(!window.holds_results());
        window.push(0, rows(&[105, 106]), None).unwrap();
        window.idle().unwrap();
        pulled(&mut window);
        assert_eq!(window.holds_results(), holds, "{role:?}");
        window.watermark(110).unwrap();
        pulled(&mut window);
        assert!(!window.holds_results());
    }
}

/// What is done; the first number is a source, or an instance of the first window.
#[derive(Debug, Clone)]
enum Act {
    Row(usize, i64, u16),
    Watermark(usize, i64),
    Idle(usize),
    Step(usize),
    Early(usize),
    Look,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0_usize..2, 0_i64..12, 0_u16..3).prop_map(|(who, more, lane)| Act::Row(who, more, lane)),
        4 => (0_usize..2, 0_i64..20).prop_map(|(who, step)| Act::Watermark(who, step)),
        4 => (0_usize..2).prop_map(Act::Idle),
        12 => (0_usize..3).prop_map(Act::Step),
        1 => (0_usize..3).prop_map(Act::Early),
        6 => Just(Act::Look),
    ]
}

/// Sources, instances of a window behind them, and the input of a window behind those.
struct World {
    sources: Arc<Edge>,
    inboxes: Vec<Arc<Inbox>>,
    windows: Vec<Windowed>,
    /// By instance: its edge, and its number there.
    exits: Vec<(Arc<Edge>, usize)>,
    last: Arc<Inbox>,
    budget: Arc<Budget>,
    watermark: i64,
    /// Rows that have come to the last window as parts of final results.
    counted: i64,
    early: i64,
    late: u64,
}

fn inbox(credits: Vec<Arc<Credit>>, budget: &Arc<Budget>) -> Arc<Inbox> {
    let channels = credits.into_iter().map(Upstream::Local).collect();
    Inbox::new(vec![InputSpec { edge: 0, priority: 0, channels }], 1 << 20, Arc::clone(budget))
}

/// An edge to each of some channels.
fn edge_to(ends: &[(Arc<Inbox>, usize, Arc<Credit>)], wake: Arc<Notify>) -> Arc<Edge> {
    let outlet = |(instance, (inbox, channel, credit)): (u32, &(Arc<Inbox>, usize, Arc<Credit>))| Outlet {
        instance,
        agent: 0,
        credit: Arc::clone(credit),
        link: Link::Local { inbox: Arc::clone(inbox), channel: *channel },
        sent_rows: 0,
        sent_bytes: 0,
    };
    let routes = Routes::ByPartition((0..ends.len() as u32).collect());
    let spec = EdgeSpec { index: 0, barriers_in_order: false, deal: 1, routes };
    Edge::new(spec, Outlets::new((0..).zip(ends).map(outlet).collect()), wake)
}

impl World {
    /// With the instances of the first window on one agent, or on one each.
    fn new(sources: u32, instances: usize, together: bool, kind: WindowKind) -> Self {
        let budget = Budget::new(1 << 30);
        let wake = Arc::<Notify>::default();
        let credit = |_| Credit::new(Arc::clone(&wake));
        let credits: Vec<Arc<Credit>> = (0..instances).map(credit).collect();
        let inboxes: Vec<_> = credits.iter().map(|one| inbox(vec![Arc::clone(one)], &budget)).collect();
        let ends: Vec<_> = inboxes.iter().cloned().zip(credits).map(|(inbox, one)| (inbox, 0, one)).collect();
        let from = edge_to(&ends, Arc::clone(&wake));
        for sender in 0..sources {
            from.add_sender(sender, OutQueue::lanes(instances), 1 << 20, Arc::default());
        }
        let channels = if together { 1 } else { instances };
        let credits: Vec<Arc<Credit>> = (0..channels).map(credit).collect();
        let last = inbox(credits.clone(), &budget);
        last.keep_in_step(0);
        let edges: Vec<_> = (0..channels)
            .map(|channel| {
                let end = (Arc::clone(&last), channel, Arc::clone(&credits[channel]));
                let edge = edge_to(&[end], Arc::clone(&wake));
                edge.keep_in_step();
                edge
            })
            .collect();
        let exits = (0..instances).map(|instance| {
            let edge = Arc::clone(&edges[instance.min(channels - 1)]);
            let number = edge.add_sender(instance as u32, OutQueue::lanes(1), 1 << 20, Arc::default());
            (edge, number)
        });
        let early = Some(Duration::from_secs(1));
        Self {
            sources: from,
            inboxes,
            windows: (0..instances).map(|_| windowed_with(Role::Whole, kind, early)).collect(),
            exits: exits.collect(),
            last,
            budget,
            watermark: i64::MIN,
            counted: 0,
            early: 0,
            late: 0,
        }
    }

    fn emit(&mut self, instance: usize) {
        let (edge, sender) = &self.exits[instance];
        for piece in pulled(&mut self.windows[instance]) {
            edge.append(*sender, Rows::new(piece, None, &self.budget).unwrap()).unwrap();
        }
        self.late += self.windows[instance].take_dropped().values().sum::<u64>();
    }

    fn give_early(&mut self, instance: usize) {
        let due = self.windows[instance].next_tick().unwrap();
        self.windows[instance].tick(due, true).unwrap();
        let (edge, sender) = &self.exits[instance];
        for piece in pulled(&mut self.windows[instance]) {
            self.early += counts(std::slice::from_ref(&piece)).iter().sum::<i64>();
            edge.append(*sender, Rows::new(piece, None, &self.budget).unwrap()).unwrap();
        }
    }

    /// An instance does what is next; false if there is nothing.
    fn step(&mut self, instance: usize) -> bool {
        let taken = self.inboxes[instance].take(8, false).unwrap();
        let window = &mut self.windows[instance];
        let mut mark = None;
        match taken {
            Taken::Rows { rows, .. } => window.push(0, rows.batch().clone(), None).unwrap(),
            Taken::Watermark(time) => {
                if time > i64::MIN {
                    window.watermark(time).unwrap();
                }
                mark = Some(Mark::Watermark(time));
            }
            Taken::Idle => {
                window.idle().unwrap();
                mark = (!window.holds_results()).then_some(Mark::Idle);
            }
            Taken::Nothing | Taken::Ended => return false,
            other => panic!("{other:?}"),
        }
        self.emit(instance);
        let (edge, sender) = &self.exits[instance];
        if let Some(mark) = mark {
            edge.mark(*sender, mark);
        }
        self.sources.pump();
        true
    }

    /// The last window takes what is next; false if there is nothing.
    fn look(&mut self) -> bool {
        match self.last.take(8, false).unwrap() {
            Taken::Rows { rows, .. } => {
                let ends = rows.batch().column_by_name("window_end").unwrap();
                for end in ends.as_primitive::<TimestampNanosecondType>().values() {
                    assert!(self.watermark < *end, "a result of {} at {}", end - 1, self.watermark);
                }
                self.counted += counts(std::slice::from_ref(rows.batch())).iter().sum::<i64>();
            }
            Taken::Watermark(time) => {
                assert!(time >= self.watermark);
                self.watermark = time;
            }
            Taken::Nothing | Taken::Ended => return false,
            _ => {}
        }
        self.exits.iter().for_each(|(edge, _)| edge.pump());
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    /// However the instances of a window lag behind each other, and whatever falls idle and wakes: no result of theirs,
    /// final or early, is late in a window over it.
    #[test]
    fn results_are_not_late_in_a_window_over_windows(
        acts in prop::collection::vec(act(), 1..200),
        sources in 1_usize..3,
        instances in 1_usize..4,
        together: bool,
        kind in prop_oneof![Just(WindowKind::Tumbling), Just(WindowKind::Sliding), Just(WindowKind::Session)],
    ) {
        let mut world = World::new(sources as u32, instances, together, kind);
        // By source: its watermark, and whether it is idle.
        let mut told = vec![(None::<i64>, false); sources];
        let mut given = 0;
        for act in acts {
            match act {
                Act::Row(who, ..) | Act::Watermark(who, _) | Act::Idle(who) if who >= sources => {}
                Act::Step(who) | Act::Early(who) if who >= instances => {}
                Act::Row(who, more, lane) => {
                    let (watermark, idle) = &mut told[who];
                    if std::mem::take(idle) {
                        let last = watermark.unwrap_or(i64::MIN);
                        world.sources.mark(who, Mark::Watermark(last));
                    }
                    let lane = UInt16Array::from(vec![lane % instances as u16]);
                    let row = rows(&[watermark.unwrap_or(0) + more]);
                    world.sources.append(who, Rows::new(row, Some(lane), &world.budget).unwrap()).unwrap();
                    given += 1;
                }
                Act::Watermark(who, step) => {
                    let time = told[who].0.map_or(step, |last| last + step);
                    told[who] = (Some(time), false);
                    world.sources.mark(who, Mark::Watermark(time));
                }
                Act::Idle(who) => {
                    told[who].1 = true;
                    world.sources.mark(who, Mark::Idle);
                }
                Act::Step(who) => drop(world.step(who)),
                Act::Early(who) => world.give_early(who),
                Act::Look => drop(world.look()),
            }
        }
        (0..sources).for_each(|source| world.sources.mark(source, Mark::End));
        while (0..instances).any(|who| world.step(who)) || world.look() {}
        for who in 0..instances {
            world.windows[who].end().unwrap();
            world.emit(who);
            let (edge, sender) = &world.exits[who];
            edge.mark(*sender, Mark::End);
        }
        while world.look() {}
        if kind != WindowKind::Sliding {
            prop_assert_eq!(world.counted - world.early + world.late as i64, given);
        }
    }
}
