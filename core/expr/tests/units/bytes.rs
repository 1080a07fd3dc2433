//! Pieces: their size, what is wrong with one, and what state may not be mixed.

use std::sync::Arc;

use proptest::prelude::*;
use tuplane_core::job::{FileFormat, Job, JoinKind, OnError};
use tuplane_core::plan::{VertexId, plan};
use tuplane_expr::arrow::array::{ArrayRef, RecordBatch, StringArray};
use tuplane_expr::system::SystemColumns;
use tuplane_expr::{
    GroupTable, JoinBuilder, JoinProgram, JoinTable, JoinTexts, MOST_PIECE, StateOf, UnitError, Units,
    WhenEmpty, resolve, vertex_program,
};

use super::cluster::{Instance, KEYS, KINDS, Kind, PARTITIONS, batch_of, of};
use crate::prelude::*;

fn filled(kind: Kind) -> Instance {
    let mut instance = Instance::new(kind, KEYS[0]);
    let rows: Vec<_> = (0..40).map(|n| (n % 9, n, n)).collect();
    instance.push(&batch_of(&rows), None);
    instance
}

/// The pieces of the first partition with state.
fn some_pieces(kind: Kind) -> Vec<Vec<u8>> {
    let mut instance = filled(kind);
    let all: Vec<u16> = (0..PARTITIONS).collect();
    let units = instance.units().cut(&all).unwrap();
    let unit = units.into_iter().find(|unit| unit.rows() > 0).unwrap();
    unit.into_pieces(of()).collect::<Result<_, _>>().unwrap()
}

proptest! {
    /// Whatever becomes of a piece: it is refused with a sentence, and nothing is placed.
    #[test]
    fn damaged_pieces_are_refused(
        kind in 0..KINDS.len(),
        at in any::<prop::sample::Index>(),
        by in 1u8..,
        cut in any::<prop::sample::Index>(),
        more in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let piece = some_pieces(KINDS[kind]).remove(0);
        let mut other = Instance::new(KINDS[kind], KEYS[0]);
        let mut flipped = piece.clone();
        flipped[at.index(piece.len())] ^= by;
        let cut = piece[..cut.index(piece.len())].to_vec();
        let longer: Vec<u8> = piece.iter().chain(&more).copied().collect();
        for bad in [flipped, cut, longer, more] {
            let mut loader = other.units().loader(of()).unwrap();
            let error = loader.load(&bad).unwrap_err();
            prop_assert!(matches!(error, UnitError::Damaged(_) | UnitError::Version { .. }), "{:?}", error);
            prop_assert!(!error.to_string().is_empty());
            // It can begin anew.
            prop_assert!(loader.load(&piece).unwrap().is_some());
        }
        prop_assert_eq!(other.bytes(), 0);
    }
}

#[test]
fn state_of_something_else_is_refused_by_name() {
    let mut instance = Instance::new(Kind::Rolling, KEYS[0]);
    let piece = &some_pieces(Kind::Aggregate)[0];
    let mut loader = instance.units().loader(StateOf::new("s", "op", "k text", "things")).unwrap();
    assert_eq!(
        loader.load(piece).unwrap_err().to_string(),
        "state of another kind came to stage `s`: its key is `k bigint`, and here it is `k text`"
    );
    // A name that lies: the columns tell.
    let mut other = Instance::new(Kind::Distinct, KEYS[0]);
    let error = other.units().loader(of()).unwrap().load(piece).unwrap_err();
    assert_eq!(error.to_string(), "a piece of state has other columns than the state here");
    // And a unit of another kind of table.
    let unit = filled(Kind::Aggregate).units().cut(&[0]).unwrap().remove(0);
    let error = other.units().place(unit).unwrap_err();
    assert_eq!(error.to_string(), "internal: partition 0 is state of another kind of table");
}

#[test]
fn what_cannot_be_moved_is_refused_and_stays() {
    for kind in KINDS {
        let mut instance = filled(kind);
        let bytes = instance.bytes();
        for wrong in [&[0, 0][..], &[1, PARTITIONS]] {
            let error = instance.units().cut(wrong).unwrap_err().to_string();
            assert!(error.starts_with("internal: partition"), "{error}");
        }
        assert_eq!(instance.bytes(), bytes, "{kind:?}");
        let (mut first, mut second) = (filled(kind), filled(kind));
        for unit in first.units().cut(&(0..PARTITIONS).collect::<Vec<_>>()).unwrap() {
            let (partition, rows) = (unit.partition(), unit.rows());
            let placed = second.units().place(unit);
            assert_eq!(placed.is_err(), rows > 0, "{kind:?}: partition {partition}, {placed:?}");
            if let Err(error) = placed {
                assert_eq!(
                    error.to_string(),
                    format!("internal: partition {partition} has state here already")
                );
            }
        }
        assert_eq!(second.bytes(), bytes, "{kind:?}");
    }
}

#[test]
fn pieces_come_in_their_order_and_of_one_unit() {
    let rows: Vec<_> = (0..400_000).map(|n| (n, 0, n)).collect();
    let mut instance = Instance::new(Kind::Distinct, KEYS[0]);
    instance.push(&batch_of(&rows), None);
    let mut units = instance.units().cut(&[3, 4]).unwrap();
    let other: Vec<Vec<u8>> = units.remove(1).into_pieces(of()).map(Result::unwrap).collect();
    let pieces: Vec<Vec<u8>> = units.remove(0).into_pieces(of()).map(Result::unwrap).collect();
    assert!(pieces.len() > 2);
    let mut loader = instance.units().loader(of()).unwrap();
    for (wrong, says) in [
        (vec![&pieces[1]], "piece 1 of partition 3 came where the first one of a unit was to come"),
        (
            vec![&pieces[0], &pieces[2]],
            "piece 2 of partition 3 came where piece 1 of partition 3 was to come",
        ),
        (
            vec![&pieces[0], &pieces[0]],
            "piece 0 of partition 3 came where piece 1 of partition 3 was to come",
        ),
        (vec![&pieces[0], &other[1]], "piece 1 of partition 4 came where piece 1 of partition 3 was to come"),
    ] {
        let (last, first) = wrong.split_last().unwrap();
        for piece in first {
            assert!(loader.load(piece).unwrap().is_none());
        }
        assert_eq!(loader.load(last).unwrap_err().to_string(), says);
    }
    let loaded = pieces.iter().map(|piece| loader.load(piece).unwrap()).last().unwrap();
    instance.units().place(loaded.unwrap()).unwrap();
}

fn wide(keys: std::ops::Range<usize>, width: usize) -> RecordBatch {
    let k: ArrayRef = Arc::new(keys.clone().map(|n| Some(format!("{n:09}"))).collect::<StringArray>());
    let x: ArrayRef =
        Arc::new(keys.map(|n| Some(format!("{n:09}").repeat(width / 9))).collect::<StringArray>());
    batch(vec![("k", k), ("x", x)])
}

/// A partition of 60 MB, and one of a single group that is larger than a piece by itself.
#[test]
fn no_piece_is_larger_than_the_bound_whatever_the_groups_are() {
    for (batches, width, keys, least) in [(20, 3_000, 1_000, 15), (20, 1_000_000, 1, 2)] {
        let schema = wide(0..0, width).schema();
        let compute: &[&str] = if keys > 1 { &["max(x) as m"] } else { &["array_agg(x) as m"] };
        let program = program(&["k"], compute, &schema);
        let mut table = GroupTable::new(program.clone(), 1, WhenEmpty::Nothing).unwrap();
        for number in 0..batches {
            let first = if keys > 1 { number * keys } else { 0 };
            table.update(&wide(first..first + keys, width), None).unwrap();
        }
        let (bytes, groups) = (table.bytes(), table.groups());
        let unit = table.cut(&[0]).unwrap().remove(0);
        assert_eq!((table.bytes(), unit.bytes()), (0, bytes));
        let mut pieces = unit.into_pieces(of());
        let mut other = GroupTable::new(program, 1, WhenEmpty::Nothing).unwrap();
        let mut loader = other.loader(of()).unwrap();
        let (mut count, mut loaded) = (0, None);
        for piece in pieces.by_ref() {
            let piece = piece.unwrap();
            assert!(piece.len() <= MOST_PIECE, "{}", piece.len());
            count += 1;
            loaded = loader.load(&piece).unwrap();
        }
        assert!(count >= least, "{count} pieces");
        // What was carried is still there, in case it does not arrive.
        assert_eq!(pieces.into_unit().rows(), groups);
        other.place(loaded.unwrap()).unwrap();
        assert_eq!(other.groups(), groups);
    }
}

#[test]
fn the_one_partition_of_a_global_aggregate_takes_its_answer_along() {
    let schema = batch(vec![("x", integers(&[]))]).schema();
    let program = program(&[], &["count(*) as n", "sum(x) as s"], &schema);
    for rows in [&[][..], &[1, 2]] {
        let mut first = GroupTable::new(program.clone(), 271, WhenEmpty::OneRow).unwrap();
        let mut second = GroupTable::new(program.clone(), 271, WhenEmpty::Nothing).unwrap();
        first.update(&batch(vec![("x", integers(rows))]), None).unwrap();
        let unit = first.cut(&[0]).unwrap().remove(0);
        let mut loader = second.loader(of()).unwrap();
        let loaded =
            unit.into_pieces(of()).map(|piece| loader.load(&piece.unwrap()).unwrap()).last().unwrap();
        second.place(loaded.unwrap()).unwrap();
        assert!(finals(&mut first).is_empty());
        let wanted = if rows.is_empty() { "0 -" } else { "2 3" };
        assert_eq!(sorted_rows(&finals(&mut second)), [wanted]);
    }
}

#[test]
fn what_state_is_of_comes_from_the_job() {
    let job = |key: &str, compute: &str| {
        let text = format!(
            r#"stage = [
{{ id = "s", op = "source", connector = "ids", n = 1 }},
{{ id = "g", op = "group_by", in = "s", key = "{key}" }},
{{ id = "a", op = "aggregate", in = "g", compute = ["{compute}"] }},
{{ id = "o", op = "sink", in = "a", connector = "count" }},
]"#
        );
        let job = Job::parse(&text, FileFormat::Toml).unwrap();
        let (types, dag) = (resolve(&job).unwrap(), plan(&job).unwrap());
        let all = (0..dag.vertices.len() as u32).map(VertexId).filter_map(|v| {
            let stage =
                job.stages.iter().find(|stage| dag.vertex(v).stages.last() == Some(&stage.id)).unwrap();
            let program = vertex_program(&job, &types, &dag, v).unwrap();
            Some((dag.vertex(v).name.clone(), StateOf::of(&job, stage, &program)?))
        });
        all.collect::<Vec<_>>()
    };
    let here = job("id % 7", "count(*) as n");
    // Of the two vertices that an aggregate has, only the second one's state is carried.
    assert_eq!(here.len(), 1, "{here:?}");
    let pieces = |of: &StateOf| {
        let mut instance = filled(Kind::Aggregate);
        let unit = instance.units().cut(&[0]).unwrap().remove(0);
        unit.into_pieces(of.clone()).next().unwrap().unwrap()
    };
    for (key, compute, says) in [
        ("id % 8", "count(*) as n", "its key is `id % 8: "),
        ("cast(id as text)", "count(*) as n", "its key is `cast(id as text): "),
        ("id % 7", "sum(id) as n", "its state is `sum(id) as n: "),
    ] {
        let theirs = pieces(&job(key, compute)[0].1);
        let error =
            filled(Kind::Aggregate).units().loader(here[0].1.clone()).unwrap().load(&theirs).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

fn joined(program: &JoinProgram, table: &Arc<JoinTable>, primary: &RecordBatch) -> Vec<String> {
    let mut run = program.run(primary, &vec![Arc::clone(table)].into()).unwrap();
    std::iter::from_fn(|| run.next(100, 1 << 20)).flat_map(|found| rows(&found.unwrap())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A joiner's table is copied: both give the same, in the same order.
    #[test]
    fn a_joins_table_is_copied(
        enriching in prop::collection::vec((-1i64..9, -9i64..9), 0..60),
        primary in prop::collection::vec(-1i64..9, 0..20),
        left: bool,
        at in any::<prop::sample::Index>(),
    ) {
        let side = |rows: &[(i64, i64)]| {
            let rows: Vec<_> = rows.iter().map(|(k, x)| (*k, 0, *x)).collect();
            tuplane_expr::system::own_part(&batch_of(&rows)).unwrap()
        };
        let primary = side(&primary.iter().map(|k| (*k, 1)).collect::<Vec<_>>());
        let kind = if left { JoinKind::Left } else { JoinKind::Inner };
        let on = texts(&["p.k + 1 = e.k + 1"]);
        let said = JoinTexts { on: &on, kind, at: tuplane_core::fault::At::default() };
        let inputs = [("p", primary.schema()), ("e", primary.schema())];
        let program =
            JoinProgram::compile(language(), said, &inputs, SystemColumns::NONE, OnError::Fail).unwrap();
        let mut builder = JoinBuilder::new(program.clone(), 0).unwrap();
        builder.push(&side(&enriching)).unwrap();
        let table = Arc::new(builder.finish().unwrap());
        let pieces: Vec<Vec<u8>> = table.pieces(of()).map(Result::unwrap).collect();
        let mut loader = program.loader(0, of()).unwrap();
        let loaded = pieces.iter().map(|piece| loader.load(piece).unwrap()).last().unwrap().unwrap();
        let copy = JoinTable::of_unit(loaded).unwrap();
        prop_assert_eq!(copy.rows(), table.rows());
        prop_assert_eq!(joined(&program, &copy, &primary), joined(&program, &table, &primary));
        let mut bad = pieces[0].clone();
        let place = at.index(bad.len());
        bad[place] ^= 1;
        prop_assert!(loader.load(&bad).is_err());
    }
}

#[test]
fn a_large_table_of_a_join_goes_in_bounded_pieces() {
    let primary = wide(5..6, 9);
    let on = texts(&["p.k = e.k"]);
    let said = JoinTexts { on: &on, kind: JoinKind::Inner, at: tuplane_core::fault::At::default() };
    let inputs = [("p", primary.schema()), ("e", primary.schema())];
    let program =
        JoinProgram::compile(language(), said, &inputs, SystemColumns::NONE, OnError::Fail).unwrap();
    let mut builder = JoinBuilder::new(program.clone(), 0).unwrap();
    for number in 0..20 {
        builder.push(&wide(number * 1_000..number * 1_000 + 1_000, 3_000)).unwrap();
    }
    let table = Arc::new(builder.finish().unwrap());
    let (mut loader, mut loaded, mut count) = (program.loader(0, of()).unwrap(), None, 0);
    for piece in table.pieces(of()) {
        let piece = piece.unwrap();
        assert!(piece.len() <= MOST_PIECE);
        loaded = loader.load(&piece).unwrap();
        count += 1;
    }
    assert!(count > 10, "{count}");
    let copy = JoinTable::of_unit(loaded.unwrap()).unwrap();
    assert_eq!(copy.rows(), 20_000);
    assert_eq!(joined(&program, &copy, &primary), joined(&program, &table, &primary));
}
