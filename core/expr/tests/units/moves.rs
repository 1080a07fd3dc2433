//! Moves at any time, of any partitions, between any instances.

use std::time::Duration;

use proptest::prelude::*;
use tuplane_core::job::{OnError, Window, WindowKind};
use tuplane_expr::system::own_part;
use tuplane_expr::{Units, WindowPart, WindowProgram, WindowTable};

use crate::prelude::*;

use super::cluster::{Cluster, Instance, KEYS, KINDS, Kind, PARTITIONS, Row, batch_of, carried};

/// What happens next.
#[derive(Debug, Clone)]
enum Step {
    /// Rows come, this long after the watermark.
    Rows(Vec<(i64, i64, i64)>),
    /// The watermark rises by so much; some instances hear of it only with the next one.
    Watermark(i64, Vec<bool>),
    /// Partitions go to an instance. Rows come for them while they are on their way, and the watermark goes on by so
    /// much at those who have none of them. They may go on to yet another one before these rows are taken in.
    Move {
        partitions: Vec<u16>,
        to: usize,
        on: Option<usize>,
        held: Vec<(i64, i64, i64)>,
        meanwhile: i64,
        as_bytes: bool,
    },
}

fn any_rows(most: usize) -> impl Strategy<Value = Vec<Row>> {
    prop::collection::vec((-1i64..12, 0i64..40, -9i64..9), 0..most)
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any_rows(12).prop_map(Step::Rows),
        2 => (0i64..25, prop::collection::vec(any::<bool>(), 8)).prop_map(|(by, heard)| Step::Watermark(by, heard)),
        3 => (
            prop::sample::subsequence((0..PARTITIONS).collect::<Vec<_>>(), 0..=usize::from(PARTITIONS)),
            0usize..8,
            prop::option::of(0usize..8),
            any_rows(6),
            0i64..25,
            any::<bool>(),
        )
            .prop_map(|(partitions, to, on, held, meanwhile, as_bytes)| Step::Move {
                partitions,
                to,
                on,
                held,
                meanwhile,
                as_bytes,
            }),
    ]
}

/// Runs the steps on instances, and on one that has it all; both come to the same, by key in the same order.
fn same(kind: Kind, keys: &[&str], count: usize, steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut whole, mut spread) = (Cluster::new(kind, keys, 1), Cluster::new(kind, keys, count));
    let mut now = -30;
    // Rows that no instance finds late.
    let on_time =
        |rows: &[Row], now: i64| rows.iter().map(|(k, t, x)| (*k, now + t, *x)).collect::<Vec<Row>>();
    for step in steps {
        match step {
            Step::Rows(rows) => {
                whole.push(&on_time(rows, now));
                spread.push(&on_time(rows, now));
            }
            Step::Watermark(by, heard) => {
                now += by;
                whole.watermark(0, now);
                for at in (0..count).filter(|at| heard[*at]) {
                    spread.watermark(at, now);
                }
            }
            Step::Move { partitions, to, on, held, meanwhile, as_bytes } => {
                let to = to % count;
                let on = on.map(|on| on % count).filter(|on| *on != to);
                let moved: Vec<u16> =
                    partitions.iter().copied().filter(|p| spread.owner[usize::from(*p)] != to).collect();
                let mut units = Vec::new();
                for from in 0..count {
                    let own: Vec<u16> =
                        moved.iter().copied().filter(|p| spread.owner[usize::from(*p)] == from).collect();
                    let before = (spread.instances[from].bytes(), sizes(&mut spread.instances[from], &own));
                    units.extend(spread.instances[from].units().cut(&own).unwrap());
                    prop_assert_eq!(sizes(&mut spread.instances[from], &own), 0);
                    prop_assert_eq!(spread.instances[from].bytes(), before.0 - before.1);
                }
                // Rows that were on their way, before the watermark that all hear of meanwhile.
                let held = on_time(held, now);
                let ids = spread.ids(&batch_of(&held));
                let (waiting, others): (Vec<_>, Vec<_>) =
                    held.iter().zip(ids.values()).partition(|(_, id)| moved.contains(id));
                let rows_of =
                    |some: Vec<(&Row, &u16)>| some.into_iter().map(|(row, _)| *row).collect::<Vec<_>>();
                let (waiting, others) = (rows_of(waiting), rows_of(others));
                whole.push(&others);
                spread.push(&others);
                whole.push(&waiting);
                if *meanwhile > 0 {
                    now += meanwhile;
                    whole.watermark(0, now);
                    (0..count).for_each(|at| spread.watermark(at, now));
                }
                for unit in units {
                    let unit = carried(unit, &mut spread.instances[to], *as_bytes);
                    let partition = unit.partition();
                    spread.instances[to].units().place(unit).unwrap();
                    spread.owner[usize::from(partition)] = to;
                }
                if let Some(on) = on {
                    let units = spread.instances[to].units().cut(&moved).unwrap();
                    prop_assert_eq!(sizes(&mut spread.instances[to], &moved), 0);
                    for unit in units {
                        let unit = carried(unit, &mut spread.instances[on], *as_bytes);
                        let partition = unit.partition();
                        spread.instances[on].units().place(unit).unwrap();
                        spread.owner[usize::from(partition)] = on;
                    }
                }
                spread.push(&waiting);
                for at in [Some(to), on].into_iter().flatten() {
                    let settled = spread.instances[at].settle(&moved);
                    spread.out.extend(settled);
                }
            }
        }
    }
    // Everybody hears of the last one.
    whole.watermark(0, now);
    (0..count).for_each(|at| spread.watermark(at, now));
    whole.end();
    spread.end();
    prop_assert_eq!(spread.instances.iter_mut().map(Instance::late).sum::<u64>(), 0);
    let (mut wanted, mut found) = (whole.by_key(), spread.by_key());
    if matches!(kind, Kind::Session | Kind::Sliding | Kind::Tumbling | Kind::ManyPanes | Kind::CombinePanes) {
        // Windows of one watermark have no order among each other.
        wanted.values_mut().chain(found.values_mut()).for_each(|rows| rows.sort());
    }
    prop_assert_eq!(found, wanted);
    Ok(())
}

fn sizes(instance: &mut Instance, partitions: &[u16]) -> usize {
    partitions.iter().map(|partition| instance.units().size_of(*partition)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn moves_change_nothing_of_what_comes_out(
        steps in prop::collection::vec(any_step(), 1..14),
        count in 1usize..=8,
        key in 0..KEYS.len(),
    ) {
        for kind in KINDS {
            same(kind, KEYS[key], count, &steps)
                .map_err(|error| TestCaseError::fail(format!("{kind:?}: {error}")))?;
        }
    }

    /// From n instances to m and back: whoever has a partition has all of its state, and nobody else has some.
    #[test]
    fn state_is_all_there_after_n_to_m(
        rows in prop::collection::vec((-1i64..40, 0i64..60, -9i64..9), 1..60),
        n in 1usize..=8,
        m in 1usize..=8,
        as_bytes: bool,
    ) {
        for kind in KINDS {
            let mut cluster = Cluster::new(kind, KEYS[0], n.max(m));
            let before = |p: u16| usize::from(p) % n;
            (0..PARTITIONS).for_each(|p| cluster.owner[usize::from(p)] = before(p));
            cluster.push(&rows);
            let mut one = Cluster::new(kind, KEYS[0], 1);
            one.push(&rows);
            for to in [m, n, 1] {
                for p in 0..PARTITIONS {
                    let (from, to) = (cluster.owner[usize::from(p)], usize::from(p) % to);
                    if from == to {
                        continue;
                    }
                    let mut units = cluster.instances[from].units().cut(&[p]).unwrap();
                    let unit = carried(units.remove(0), &mut cluster.instances[to], as_bytes);
                    cluster.instances[to].units().place(unit).unwrap();
                    let given = cluster.instances[to].settle(&[p]);
                    cluster.out.extend(given);
                    cluster.owner[usize::from(p)] = to;
                }
                let held: Vec<usize> = cluster.instances.iter().map(Instance::bytes).collect();
                for (at, bytes) in held.into_iter().enumerate() {
                    prop_assert!(at < to || bytes == 0, "{:?}: {} bytes at {}", kind, bytes, at);
                }
            }
            prop_assert!(cluster.instances[0].bytes() > 0);
            cluster.end();
            one.end();
            let (mut found, mut wanted) = (cluster.out.clone(), one.out.clone());
            found.sort();
            wanted.sort();
            prop_assert_eq!(found, wanted, "{:?}", kind);
        }
    }

    /// Rows of any age: each is in exactly one result of its tumbling window, or late, and no result comes twice.
    #[test]
    fn no_window_is_given_twice_whoever_is_ahead(
        steps in prop::collection::vec((any_rows(8), prop::collection::vec(0i64..60, 3), 0..PARTITIONS, 0usize..3), 1..10),
    ) {
        let mut cluster = Cluster::new(Kind::Tumbling, KEYS[0], 3);
        let (mut pushed, mut watermarks) = (0, [-50i64; 3]);
        for (rows, by, partition, to) in steps {
            pushed += rows.len() as u64;
            cluster.push(&rows);
            for at in 0..3 {
                watermarks[at] += by[at];
                cluster.watermark(at, watermarks[at]);
            }
            let from = cluster.owner[usize::from(partition)];
            if from != to {
                let unit = cluster.instances[from].units().cut(&[partition]).unwrap().remove(0);
                cluster.instances[to].units().place(unit).unwrap();
                let given = cluster.instances[to].settle(&[partition]);
                cluster.out.extend(given);
                cluster.owner[usize::from(partition)] = to;
            }
        }
        cluster.end();
        let late: u64 = cluster.instances.iter_mut().map(Instance::late).sum();
        let windows: Vec<Vec<&str>> = cluster.out.iter().map(|row| row.split(' ').take(4).collect()).collect();
        let counted: u64 = windows.iter().map(|row| row[3].parse::<u64>().unwrap()).sum();
        prop_assert_eq!(counted + late, pushed);
        let mut seen = std::collections::HashSet::new();
        for row in &windows {
            prop_assert!(seen.insert(row[..3].to_vec()), "{:?} came twice", row);
        }
    }
}

/// What has changed since it was given early is given early by who has it then, and nothing else.
#[test]
fn early_results_go_along() {
    for kind in [WindowKind::Tumbling, WindowKind::Session] {
        let window = Window {
            kind,
            size: Some(Duration::from_nanos(10)),
            slide: None,
            early: Some(Duration::from_nanos(1)),
        };
        let schema = own_part(&batch_of(&[])).unwrap().schema();
        let compute = texts(&["count(*) as n"]);
        let program =
            WindowProgram::compile(language(), &texts(&["k"]), &window, &compute, &schema, OnError::Fail)
                .unwrap();
        let mut tables =
            [(); 2].map(|()| WindowTable::new(program.clone(), PARTITIONS, WindowPart::Whole).unwrap());
        let early = |table: &mut WindowTable| {
            table.give_early();
            std::iter::from_fn(|| table.emit(9)).map(|given| given.unwrap().num_rows()).sum::<usize>()
        };
        let all: Vec<u16> = (0..PARTITIONS).collect();
        let moved = |tables: &mut [WindowTable; 2], from: usize| {
            let units = tables[from].cut(&all).unwrap();
            for unit in units {
                tables[1 - from].place(unit).unwrap();
            }
        };
        tables[0].update(&batch_of(&[(1, 5, 0), (2, 6, 0)]), None).unwrap();
        moved(&mut tables, 0);
        assert_eq!((early(&mut tables[0]), early(&mut tables[1])), (0, 2), "{kind:?}");
        tables[1].settle(&all).unwrap();
        assert_eq!(early(&mut tables[1]), 0, "{kind:?}");
        moved(&mut tables, 1);
        tables[0].settle(&all).unwrap();
        assert_eq!((early(&mut tables[0]), early(&mut tables[1])), (0, 0), "{kind:?}");
        tables[0].update(&batch_of(&[(1, 7, 0)]), None).unwrap();
        assert!(early(&mut tables[0]) >= 1, "{kind:?}");
    }
}
