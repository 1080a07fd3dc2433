//! Several instances of an operator, each with some of the key partitions, and one that has them all.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tuplane_core::job::{OnError, StatefulShape, Text, Window, WindowKind};
use tuplane_expr::arrow::array::{
    Array, ArrayRef, Int64Array, TimestampNanosecondArray, UInt16Array, UInt32Array,
};
use tuplane_expr::arrow::compute::{take, take_record_batch};
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_expr::arrow::record_batch::RecordBatch;
use tuplane_expr::system::{SystemColumn, SystemColumns, with_column};
use tuplane_expr::{
    Advanced, AggregateInput, AggregateProgram, DistinctProgram, DistinctTable, GroupTable, KeyExprs,
    RollingProgram, RollingTable, StateOf, StatefulProgram, StatefulTable, StatefulTexts, Unit, Units,
    WhenEmpty, WindowPart, WindowProgram, WindowTable,
};

use crate::prelude::*;

/// Key partitions.
pub(super) const PARTITIONS: u16 = 7;

/// Key (negative: null), event time, value.
pub(super) type Row = (i64, i64, i64);

/// What is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Aggregate,
    CoAggregate,
    Combine,
    Tumbling,
    Sliding,
    /// Of so many panes that those of neighbours are put together once.
    ManyPanes,
    Session,
    CombinePanes,
    Rolling,
    Stateful,
    Ttl,
    FlatMap,
    Distinct,
}

pub(super) const KINDS: [Kind; 13] = [
    Kind::Aggregate,
    Kind::CoAggregate,
    Kind::Combine,
    Kind::Tumbling,
    Kind::Sliding,
    Kind::ManyPanes,
    Kind::Session,
    Kind::CombinePanes,
    Kind::Rolling,
    Kind::Stateful,
    Kind::Ttl,
    Kind::FlatMap,
    Kind::Distinct,
];

/// How keys are kept: as integers, texts, or rows of bytes.
pub(super) const KEYS: [&[&str]; 3] = [&["k"], &["cast(k as text) as t"], &["k", "k * 3 as d"]];

const COMPUTE: [&str; 10] = [
    "count(*) as n",
    "sum(x) as total",
    "sum(x) filter (where x > 0) as some",
    "min(x) as least",
    "max(cast(x as text)) as most",
    "avg(cast(x as double)) as mean",
    "count(distinct x) as different",
    "array_agg(x) as all",
    "first_value(x) as first",
    "median(x) as middle",
];

pub(super) fn batch_of(rows: &[Row]) -> RecordBatch {
    let keys: Int64Array = rows.iter().map(|(key, ..)| Some(*key).filter(|key| *key >= 0)).collect();
    let values = integers(&rows.iter().map(|(.., value)| *value).collect::<Vec<_>>());
    let times: ArrayRef =
        std::sync::Arc::new(TimestampNanosecondArray::from_iter_values(rows.iter().map(|r| r.1)));
    with_column(&batch(vec![("k", std::sync::Arc::new(keys)), ("x", values)]), SystemColumn::Ts, times)
        .unwrap()
}

fn own() -> SchemaRef {
    batch(vec![("k", integers(&[])), ("x", integers(&[]))]).schema()
}

fn window(kind: WindowKind, size: u64, slide: Option<u64>) -> Window {
    Window {
        kind,
        size: Some(Duration::from_nanos(size)),
        slide: slide.map(Duration::from_nanos),
        early: None,
    }
}

fn windowed(keys: &[Text], window: &Window) -> WindowProgram {
    WindowProgram::compile(language(), keys, window, &texts(&COMPUTE), &own(), OnError::Fail).unwrap()
}

/// An instance.
pub(super) enum Instance {
    /// Of so many inputs.
    Groups(GroupTable, usize),
    /// Rows come first to a table that prepares them.
    Combine(GroupTable, AggregateProgram),
    Window(WindowTable),
    CombinePanes(WindowTable, WindowProgram),
    Rolling(RollingTable),
    Stateful(StatefulTable),
    Distinct(DistinctTable),
}

/// What an instance runs, compiled.
#[derive(Clone)]
enum Compiled {
    Groups(AggregateProgram),
    Window(WindowProgram),
    Rolling(RollingProgram),
    Stateful(StatefulProgram),
    Distinct(DistinctProgram),
}

thread_local! {
    /// Compiling takes longer than running.
    static COMPILED: RefCell<HashMap<(Kind, String), Compiled>> = RefCell::default();
}

fn compiled(kind: Kind, keys: &[&str]) -> Compiled {
    let entry = (kind, keys.join(","));
    COMPILED.with_borrow_mut(|all| all.entry(entry).or_insert_with(|| compile(kind, &texts(keys))).clone())
}

fn compile(kind: Kind, keys: &[Text]) -> Compiled {
    let of = |kind, size, slide| Compiled::Window(windowed(keys, &window(kind, size, slide)));
    let (language, compute, own) = (language(), texts(&COMPUTE), own());
    let (fail, system) = (OnError::Fail, SystemColumns::only(SystemColumn::Ts));
    match kind {
        Kind::Aggregate | Kind::Combine => {
            Compiled::Groups(AggregateProgram::compile(language, keys, &compute, &own, fail).unwrap())
        }
        Kind::CoAggregate => {
            let computes = [texts(&["sum(x) as a"]), texts(&["array_agg(x) as b"])];
            let inputs = ["a", "b"].iter().zip(&computes);
            let inputs = inputs.map(|(id, compute)| AggregateInput { id, keys, compute, columns: &own });
            let inputs: Vec<AggregateInput<'_>> = inputs.collect();
            Compiled::Groups(AggregateProgram::compile_several(language, &inputs, fail).unwrap())
        }
        Kind::Tumbling => of(WindowKind::Tumbling, 20, None),
        Kind::Sliding | Kind::CombinePanes => of(WindowKind::Sliding, 30, Some(10)),
        Kind::ManyPanes => of(WindowKind::Sliding, 60, Some(2)),
        Kind::Session => of(WindowKind::Session, 6, None),
        Kind::Rolling => {
            Compiled::Rolling(RollingProgram::compile(language, keys, &compute, &own, fail).unwrap())
        }
        Kind::Stateful | Kind::Ttl | Kind::FlatMap => {
            let (shape, then): (_, &[&str]) = if kind == Kind::FlatMap {
                (StatefulShape::FlatMap, &["l as item"])
            } else {
                (StatefulShape::Map, &["*", "n", "t", "b"])
            };
            let state = texts(&[
                "cast(0 as bigint) as n",
                "'.' as t",
                "true as b",
                "make_array(cast(0 as bigint)) as l",
            ]);
            let update = texts(&[
                "n + x as n",
                "right(t || cast(x as text), 6) as t",
                "not b as b",
                "make_array(x, n) as l",
            ]);
            let of = StatefulTexts { shape, state: &state, update: &update, then: &texts(then) };
            let program = StatefulProgram::compile(language, keys, of, &own, system, fail).unwrap();
            let ttl = (kind == Kind::Ttl).then(|| Duration::from_nanos(12));
            Compiled::Stateful(program.with_ttl(ttl))
        }
        Kind::Distinct => Compiled::Distinct(
            DistinctProgram::compile(language, keys, &own, SystemColumns::NONE, fail).unwrap(),
        ),
    }
}

impl Instance {
    pub(super) fn new(kind: Kind, keys: &[&str]) -> Self {
        let groups = |program| GroupTable::new(program, PARTITIONS, WhenEmpty::Nothing).unwrap();
        let open = |program, part| WindowTable::new(program, PARTITIONS, part).unwrap();
        match (compiled(kind, keys), kind) {
            (Compiled::Groups(program), Kind::Combine) => Self::Combine(groups(program.clone()), program),
            (Compiled::Groups(program), _) => {
                Self::Groups(groups(program), if kind == Kind::CoAggregate { 2 } else { 1 })
            }
            (Compiled::Window(program), Kind::CombinePanes) => {
                Self::CombinePanes(open(program.clone(), WindowPart::Combine), program)
            }
            (Compiled::Window(program), _) => Self::Window(open(program, WindowPart::Whole)),
            (Compiled::Rolling(program), _) => Self::Rolling(RollingTable::new(program, PARTITIONS).unwrap()),
            (Compiled::Stateful(program), _) => {
                Self::Stateful(StatefulTable::new(program, PARTITIONS).unwrap())
            }
            (Compiled::Distinct(program), _) => {
                Self::Distinct(DistinctTable::new(program, PARTITIONS).unwrap())
            }
        }
    }

    pub(super) fn units(&mut self) -> &mut dyn Units {
        match self {
            Self::Groups(table, _) | Self::Combine(table, _) => table,
            Self::Window(table) | Self::CombinePanes(table, _) => table,
            Self::Rolling(table) => table.units(),
            Self::Stateful(table) => table,
            Self::Distinct(table) => table,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Groups(table, _) | Self::Combine(table, _) => table.bytes(),
            Self::Window(table) | Self::CombinePanes(table, _) => table.bytes(),
            Self::Rolling(table) => table.bytes(),
            Self::Stateful(table) => table.bytes(),
            Self::Distinct(table) => table.bytes(),
        }
    }

    /// Rows of these partitions come; gives what comes out.
    pub(super) fn push(&mut self, rows: &RecordBatch, ids: Option<&UInt16Array>) -> Vec<String> {
        match self {
            Self::Groups(table, inputs) => {
                for input in 0..*inputs {
                    table.update_from(input, rows, ids).unwrap();
                }
                Vec::new()
            }
            Self::Combine(table, program) => {
                let mut prepare = GroupTable::new(program.clone(), PARTITIONS, WhenEmpty::Nothing).unwrap();
                prepare.update(rows, ids).unwrap();
                for partial in partials(&mut prepare) {
                    table.merge(&partial, None).unwrap();
                }
                Vec::new()
            }
            Self::Window(table) => {
                table.update(rows, ids).unwrap();
                emitted(table)
            }
            Self::CombinePanes(table, program) => {
                let mut prepare = WindowTable::new(program.clone(), PARTITIONS, WindowPart::Prepare).unwrap();
                prepare.update(rows, ids).unwrap();
                prepare.give_open();
                while let Some(partial) = prepare.emit(4) {
                    table.merge(&partial.unwrap(), None).unwrap();
                }
                emitted(table)
            }
            Self::Rolling(table) => crate::prelude::rows(&table.advance(rows, ids).unwrap()),
            Self::Stateful(table) => match table.advance(rows, ids).unwrap() {
                Advanced::Rows(made) => crate::prelude::rows(&made),
                Advanced::Unnest(mut state) => {
                    let mut all = Vec::new();
                    while let Some(made) = state.next(3, 1 << 20) {
                        all.extend(crate::prelude::rows(&made.unwrap()));
                    }
                    all
                }
            },
            Self::Distinct(table) => crate::prelude::rows(&table.advance(rows, ids).unwrap()),
        }
    }

    pub(super) fn watermark(&mut self, time: i64) -> Vec<String> {
        match self {
            Self::Window(table) | Self::CombinePanes(table, _) => {
                table.advance(time);
                emitted(table)
            }
            Self::Stateful(table) => {
                table.expire(time).unwrap();
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// What came of the move may be taken out.
    pub(super) fn settle(&mut self, partitions: &[u16]) -> Vec<String> {
        self.units().settle(partitions).unwrap();
        match self {
            Self::Window(table) | Self::CombinePanes(table, _) => emitted(table),
            _ => Vec::new(),
        }
    }

    pub(super) fn end(&mut self) -> Vec<String> {
        match self {
            Self::Groups(table, _) | Self::Combine(table, _) => {
                finals(table).iter().flat_map(crate::prelude::rows).collect()
            }
            other => other.watermark(i64::MAX),
        }
    }

    pub(super) fn late(&mut self) -> u64 {
        match self {
            Self::Window(table) | Self::CombinePanes(table, _) => table.take_late(),
            _ => 0,
        }
    }
}

fn emitted(table: &mut WindowTable) -> Vec<String> {
    std::iter::from_fn(|| table.emit(5)).flat_map(|given| rows(&given.unwrap())).collect()
}

pub(super) fn of() -> StateOf {
    StateOf::new("s", "op", "k bigint", "things")
}

/// Sends a unit to an instance as bytes, or as it is.
pub(super) fn carried(unit: Unit, to: &mut Instance, as_bytes: bool) -> Unit {
    if !as_bytes {
        return unit;
    }
    let (partition, count) = (unit.partition(), unit.rows());
    let mut loader = to.units().loader(of()).unwrap();
    let mut loaded = None;
    for piece in unit.into_pieces(of()) {
        assert!(loaded.is_none(), "a piece came behind the last one");
        loaded = loader.load(&piece.unwrap()).unwrap();
    }
    let loaded = loaded.unwrap();
    assert_eq!((loaded.partition(), loaded.rows()), (partition, count));
    loaded
}

/// Several instances, and who has which partition.
pub(super) struct Cluster {
    pub(super) instances: Vec<Instance>,
    pub(super) owner: Vec<usize>,
    key: KeyExprs,
    /// What has come out, by key.
    pub(super) out: Vec<String>,
}

impl Cluster {
    pub(super) fn new(kind: Kind, keys: &[&str], count: usize) -> Self {
        Self {
            instances: (0..count).map(|_| Instance::new(kind, keys)).collect(),
            owner: (0..usize::from(PARTITIONS)).map(|partition| partition % count).collect(),
            key: KeyExprs::compile(language(), &texts(keys), &own()).unwrap(),
            out: Vec::new(),
        }
    }

    pub(super) fn ids(&self, rows: &RecordBatch) -> UInt16Array {
        self.key.partitions(rows, PARTITIONS).unwrap()
    }

    /// Gives every instance its rows, in their order.
    pub(super) fn push(&mut self, rows: &[Row]) {
        let all = batch_of(rows);
        let ids = self.ids(&all);
        for at in 0..self.instances.len() {
            let mine =
                (0..ids.len() as u32).filter(|row| self.owner[usize::from(ids.value(*row as usize))] == at);
            let mine = UInt32Array::from_iter_values(mine);
            if mine.is_empty() {
                continue;
            }
            let some = take_record_batch(&all, &mine).unwrap();
            let ids = take(&ids, &mine, None).unwrap();
            let ids = ids.as_any().downcast_ref::<UInt16Array>().unwrap();
            // Ids are as often computed as known.
            let known = some.num_rows().is_multiple_of(2).then_some(ids);
            self.out.extend(self.instances[at].push(&some, known));
        }
    }

    pub(super) fn watermark(&mut self, at: usize, time: i64) {
        self.out.extend(self.instances[at].watermark(time));
    }

    pub(super) fn end(&mut self) {
        for instance in &mut self.instances {
            self.out.extend(instance.end());
        }
    }

    /// Of each key what came out, in order: a key is the first word of a row.
    pub(super) fn by_key(&self) -> BTreeMap<String, Vec<String>> {
        let mut all = BTreeMap::<String, Vec<String>>::new();
        for row in &self.out {
            all.entry(row.split(' ').next().unwrap().to_owned()).or_default().push(row.clone());
        }
        all
    }
}
