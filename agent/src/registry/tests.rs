//! The registry: what it says of jobs, and what its instances do under the engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tuplane_core::fault::Spanned;
use tuplane_core::job::{FileFormat, Job, OnError, Text};
use tuplane_expr::arrow::array::{AsArray, Int64Array, StringArray};
use tuplane_expr::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use tuplane_expr::{grouping, resolve_registered};

use super::*;
use crate::engine::operator::Operator as EngineOperator;
use crate::source::{Polled, Source as EngineSource};

fn name(name: &str) -> Text {
    Spanned::nowhere(name.to_owned())
}

fn numbers(range: std::ops::Range<i64>) -> RecordBatch {
    RecordBatch::try_new(
        columns(&[("n", "bigint")]).unwrap(),
        vec![Arc::new(Int64Array::from_iter_values(range))],
    )
    .unwrap()
}

fn values(batch: &RecordBatch) -> Vec<i64> {
    batch.column(0).as_primitive::<Int64Type>().values().to_vec()
}

fn context(output: &SchemaRef) -> Context {
    Context {
        stage: "s".to_owned(),
        with: json!({}),
        input: columns(&[("n", "bigint")]).unwrap(),
        key: Vec::new(),
        output: SchemaRef::clone(output),
        instance: 0,
        instances: 1,
        agent: "a".to_owned(),
        folder: PathBuf::from("/"),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "a registry's closure may fail")]
fn same(batch: &RecordBatch) -> Result<RecordBatch, Failure> {
    Ok(batch.clone())
}

/// Gives the columns that `with.columns` names, from whatever it takes.
struct Declares;

impl OperatorKind for Declares {
    fn output(&self, given: &Given<'_>) -> Result<SchemaRef, Failure> {
        let options: std::collections::BTreeMap<String, Vec<(String, String)>> = given.options()?;
        let named: Vec<_> =
            options["columns"].iter().map(|(name, kind)| (name.as_str(), kind.as_str())).collect();
        columns(&named)
    }

    fn make(&self, _: Context) -> Result<Box<dyn Operator>, Failure> {
        Err("not in this test".into())
    }
}

#[test]
fn a_fingerprint_tells_names_versions_and_types_apart() {
    let n = [("n", "bigint")];
    let one = || Registry::new().closure("a", 1, &n, same).operator("b", 1, Declares);
    let swapped = Registry::new().operator("b", 1, Declares).closure("a", 1, &n, same);
    assert_eq!(one().fingerprint(), swapped.fingerprint());
    let others = [
        Registry::new().closure("a", 2, &n, same).operator("b", 1, Declares),
        Registry::new().closure("c", 1, &n, same).operator("b", 1, Declares),
        Registry::new().closure("a", 1, &[("n", "int")], same).operator("b", 1, Declares),
        Registry::new().closure("a", 1, &n, same),
    ];
    for other in others {
        assert_ne!(other.fingerprint(), one().fingerprint(), "{other:?}");
    }
    // What the stock agent says, and the command line.
    assert_eq!(Registry::new().fingerprint(), 0);
    assert_eq!(one().lines(), ["operator a 1 n bigint", "operator b 1"]);
}

#[test]
#[should_panic(expected = "the registry has two operators called `a`")]
fn a_name_stands_for_one_operator() {
    let _ = Registry::new().closure("a", 1, &[], same).operator("a", 2, Declares);
}

#[test]
#[should_panic(expected = "the columns of closure `a`")]
fn a_closure_declares_types_that_there_are() {
    let _ = Registry::new().closure("a", 1, &[("n", "bigtin")], same);
}

#[test]
fn declared_columns_are_those_of_the_engine() {
    let declared = |kind| given::checked(Arc::new(Schema::new(vec![Field::new("x", kind, false)])));
    assert!(declared(DataType::Utf8).unwrap().field(0).is_nullable());
    for refused in [
        DataType::Utf8View,
        DataType::LargeBinary,
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
        DataType::new_list(DataType::Utf8View, true),
    ] {
        assert!(declared(refused.clone()).unwrap_err().to_string().contains("column `x`"), "{refused}");
    }
}

/// All faults of a job's types.
fn faults(registry: &Registry, text: &str) -> Vec<String> {
    let job = Job::parse(text, FileFormat::Toml).unwrap_or_else(|faults| panic!("{faults:?}"));
    assert_eq!(job.runnable(), Ok(()));
    let resolved = resolve_registered(&job, &|_| None, &|asked| registry.columns_of(asked));
    resolved.err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

fn job(with: &str, after: &str) -> String {
    format!(
        "stage = [\n{{ id = \"s\", op = \"source\", connector = \"ids\", n = 9 }},\n\
         {{ id = \"c\", op = \"custom_transform\", in = \"s\", call = \"declares\", with = {with} }},\n\
         {{ id = \"m\", op = \"map\", in = \"c\", select = \"{after}\" }},\n\
         {{ id = \"o\", op = \"sink\", in = \"m\", connector = \"count\" }}]"
    )
}

#[test]
fn types_go_on_behind_an_operator_and_its_refusal_is_a_fault_with_a_place() {
    let registry = Registry::new().operator("declares", 1, Declares);
    let with = "{ columns = [[\"a\", \"bigint\"], [\"b\", \"text\"]] }";
    assert_eq!(faults(&registry, &job(with, "a + 1 as c")), Vec::<String>::new());
    let said = faults(&registry, &job(with, "n + 1 as c"));
    assert!(said[0].starts_with("4:") && said[0].contains('n'), "{said:?}");
    let said = faults(&registry, &job("{ columns = 3 }", "a"));
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with("3:55: `declares`: its options under `with`: invalid type"), "{said:?}");
    let said = faults(
        &registry,
        &job("{ columns = [[\"_at\", \"int\"], [\"b\", \"int\"], [\"b\", \"int\"]] }", "b"),
    );
    assert!(said[0].contains("kept for the system"), "{said:?}");
    assert!(said[1].contains("two columns called `b`"), "{said:?}");
    // The closure indexes what is not there: a panic in the coordinator is a refusal.
    let said = faults(&registry, &job("{}", "a"));
    assert!(said[0].contains("`declares`: panicked"), "{said:?}");
    let said = faults(&Registry::new().operator("declared", 1, Declares), &job("{}", "a"));
    assert_eq!(said, ["3:55: the agents' registry has no operator `declares` (did you mean `declared`?)"]);
    let said = faults(&Registry::new(), &job("{}", "a"));
    assert!(said[0].contains("has no operator at all"), "{said:?}");
}

#[test]
fn without_a_registry_types_are_unknown_from_there_on_and_no_fault() {
    let job = Job::parse(&job("{}", "whatever + 1"), FileFormat::Toml).unwrap();
    let types = tuplane_expr::resolve(&job).unwrap();
    assert_eq!(types.unknown(), ["c"]);
    assert!(types.output("s").is_some() && types.output("m").is_none());
}

/// For each row n it gives the numbers from 0 to n, `piece` at a time.
struct Counts {
    waiting: Vec<i64>,
    at: i64,
    piece: i64,
}

impl Operator for Counts {
    fn rows(&mut self, taken: Taken<'_>, out: &mut Out) -> Result<(), Failure> {
        assert!(self.waiting.is_empty(), "it is given rows before it has given all");
        self.waiting = values(taken.batch).into_iter().rev().collect();
        out.leave_out("odd", 2);
        Ok(())
    }

    fn more(&mut self, out: &mut Out) -> Result<bool, Failure> {
        assert!(out.batches.is_empty(), "it is asked for more before what it gave has left");
        let Some(last) = self.waiting.last() else { return Ok(false) };
        let end = (self.at + self.piece).min(*last);
        out.give(numbers(self.at..end));
        if end == *last {
            self.waiting.pop();
            self.at = 0;
        } else {
            self.at = end;
        }
        Ok(true)
    }

    fn watermark(&mut self, ns: i64, out: &mut Out) -> Result<(), Failure> {
        out.give(numbers(ns..ns + 1));
        Ok(())
    }

    fn end(&mut self, out: &mut Out) -> Result<(), Failure> {
        out.give(numbers(-1..0));
        Ok(())
    }
}

fn drain(custom: &mut Custom, most_rows: usize, most_bytes: usize) -> Vec<RecordBatch> {
    std::iter::from_fn(|| custom.pull(most_rows, most_bytes).unwrap()).collect()
}

#[test]
fn results_come_in_pieces_and_more_is_asked_for_when_they_have_left() {
    let counts = Counts { waiting: Vec::new(), at: 0, piece: 300 };
    let mut custom = Custom::new("counts", Box::new(counts), columns(&[("n", "bigint")]).unwrap(), true);
    for (most_rows, most_bytes, fit) in [(100, 1 << 20, 100), (8192, 8 * 70, 70), (8192, 1, 1)] {
        let rows = Int64Array::from(vec![650, 0, 3]);
        let batch = RecordBatch::try_new(columns(&[("n", "bigint")]).unwrap(), vec![Arc::new(rows)]).unwrap();
        custom.push(0, batch, None).unwrap();
        let pieces = drain(&mut custom, most_rows, most_bytes);
        assert!(pieces.iter().all(|piece| (1..=fit).contains(&piece.num_rows())));
        let all: Vec<i64> = pieces.iter().flat_map(values).collect();
        assert_eq!(all, (0..650).chain(0..3).collect::<Vec<_>>());
        assert_eq!(custom.take_dropped()["odd"], 2);
    }
    custom.watermark(7_000).unwrap();
    assert_eq!(drain(&mut custom, 8, 8).iter().flat_map(values).collect::<Vec<_>>(), [7_000]);
    custom.end().unwrap();
    assert_eq!(drain(&mut custom, 8, 8).iter().flat_map(values).collect::<Vec<_>>(), [-1]);
    assert!(custom.take_dropped().is_empty());
}

#[test]
fn columns_that_were_not_declared_are_refused() {
    let text = |_: &RecordBatch| {
        let texts: StringArray = ["x"].into_iter().map(Some).collect();
        let schema = columns(&[("n", "text")])?;
        Ok(RecordBatch::try_new(schema, vec![Arc::new(texts)])?)
    };
    let output = [("m", "bigint")];
    let registry = Registry::new().closure("same", 1, &output, same).closure("text", 1, &output, text);
    let declared = columns(&output).unwrap();
    let run = |call: &str| {
        let mut custom = registry.make_operator(&name(call), true, context(&declared)).unwrap();
        custom.push(0, numbers(0..2), None).unwrap();
        custom.pull(10, 1000).map(|batch| batch.unwrap())
    };
    // Columns have the names that were declared.
    let made = run("same").unwrap();
    assert_eq!((made.schema(), values(&made)), (declared.clone(), vec![0, 1]));
    let said = run("text").unwrap_err().to_string();
    assert_eq!(said, "operator `text`: it gave columns (text) and declared (bigint)");
}

/// Gives its key.
struct Keys;

impl Operator for Keys {
    fn rows(&mut self, taken: Taken<'_>, out: &mut Out) -> Result<(), Failure> {
        let keys = taken.keys.to_vec();
        assert_eq!(taken.batch.num_columns(), 1, "the job's own columns alone");
        out.give(RecordBatch::try_new(columns(&[("k", "bigint")])?, keys)?);
        Ok(())
    }
}

#[test]
fn a_keyed_operator_gets_its_keys_with_the_rows() {
    let text = "stage = [{ id = 's', op = 'source', connector = 'ids', n = 9 },\n\
                { id = 'g', op = 'group_by', in = 's', key = 'id % 3 as k' },\n\
                { id = 'c', op = 'custom_transform', in = 'g', call = 'keys' },\n\
                { id = 'o', op = 'sink', in = 'c', connector = 'count' }]";
    let job = Job::parse(text, FileFormat::Toml).unwrap();
    let types = tuplane_expr::resolve(&job).unwrap();
    let key = grouping(&job, &types, &job.stages[2]).unwrap();
    assert_eq!(key.fields()[0].name(), "k");
    let mut custom = Custom::new("keys", Box::new(Keys), columns(&[("k", "bigint")]).unwrap(), true).by(key);
    let ids = Int64Array::from_iter_values(0..5);
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("_at", DataType::UInt64, true),
    ]));
    let at = tuplane_expr::arrow::array::UInt64Array::from(vec![None::<u64>; 5]);
    custom.push(0, RecordBatch::try_new(schema, vec![Arc::new(ids), Arc::new(at)]).unwrap(), None).unwrap();
    assert_eq!(values(&custom.pull(10, 1000).unwrap().unwrap()), [0, 1, 2, 0, 1]);
    assert!(grouping(&job, &types, &job.stages[3]).unwrap().fields().is_empty());
}

/// Gives batches of these sizes, then nothing.
struct Sizes(Vec<usize>, i64);

impl Source for Sizes {
    fn next(&mut self, _: usize) -> Result<Next, Failure> {
        if self.0.is_empty() {
            return Ok(Next::End);
        }
        let from = self.1;
        self.1 += self.0.remove(0) as i64;
        Ok(Next::Rows(numbers(from..self.1)))
    }
}

/// What it gives until it waits for long, and how often it let others send on.
fn polled(source: &mut OwnSource, most: usize) -> (Vec<usize>, Vec<i64>, usize) {
    let (mut sizes, mut rows, mut waits) = (Vec::new(), Vec::new(), 0);
    loop {
        match source.poll(most).unwrap() {
            Polled::Rows(batch) => {
                sizes.push(batch.num_rows());
                rows.extend(values(&batch));
            }
            Polled::Wait(until) if until > Instant::now() + Duration::from_secs(1) => {
                return (sizes, rows, waits);
            }
            Polled::Wait(_) => waits += 1,
            Polled::End => return (sizes, rows, waits),
            Polled::NeedSplit => panic!("it has no splits"),
        }
    }
}

#[test]
fn a_source_gives_as_many_rows_as_are_asked_for_and_lets_small_batches_leave() {
    let output = columns(&[("n", "bigint")]).unwrap();
    let made = |sizes: &[usize], blocks, rate| {
        OwnSource::new("s", Box::new(Sizes(sizes.to_vec(), 0)), output.clone(), blocks, (rate, 1)).unwrap()
    };
    let (sizes, rows, waits) = polled(&mut made(&[25, 10, 3], true, None), 10);
    assert_eq!((sizes, waits), (vec![10, 10, 5, 10, 3], 1));
    assert_eq!(rows, (0..38).collect::<Vec<_>>());
    // One that never waits has nothing to let go first; an empty batch is no row.
    let (sizes, _, waits) = polled(&mut made(&[3, 0, 3], false, None), 10);
    assert_eq!((sizes, waits), (vec![3, 3], 1));
    // Far below a row a second: one is due now, and the next is not.
    let (sizes, rows, _) = polled(&mut made(&[25], false, Some(0.01)), 10);
    assert_eq!((sizes, rows), (vec![1], vec![0]));
}

#[test]
fn what_a_source_leaves_out_is_counted_and_shown() {
    struct Rejects(Rejected);
    impl Source for Rejects {
        fn next(&mut self, _: usize) -> Result<Next, Failure> {
            self.0.reject(Rejected::BAD_LINE, "topic, offset 7", "no number");
            self.0.reject(Rejected::BAD_LINE, "topic, offset 9", "no number");
            Ok(Next::End)
        }
        fn rejected(&self) -> Option<&Rejected> {
            Some(&self.0)
        }
    }
    let output = columns(&[("n", "bigint")]).unwrap();
    let source = Box::new(Rejects(Rejected::default()));
    let mut source = OwnSource::new("s", source, output, true, (None, 1)).unwrap();
    assert_eq!(source.rejected().total(), 0);
    assert!(matches!(source.poll(1).unwrap(), Polled::End));
    let rejected = source.rejected();
    assert_eq!(rejected.by_reason[Rejected::BAD_LINE], 2);
    let note = "topic, offset 9: no number (the first of this instance: topic, offset 7: no number)";
    assert_eq!(rejected.note().as_deref(), Some(note));
    assert!(source.set("rate", &json!(5)).is_ok() && source.set("pace", &json!(5)).is_err());
}

#[test]
fn who_blocks_gets_a_thread_by_its_own_word_or_the_jobs() {
    struct Waits(bool);
    impl OperatorKind for Waits {
        fn output(&self, _: &Given<'_>) -> Result<SchemaRef, Failure> {
            columns(&[])
        }
        fn make(&self, _: Context) -> Result<Box<dyn Operator>, Failure> {
            Ok(Box::new(Keys))
        }
        fn blocks(&self) -> bool {
            self.0
        }
    }
    let registry = Registry::new().operator("waits", 1, Waits(true)).operator("runs", 1, Waits(false));
    let shares = |call: &str, cooperative| {
        let made = registry.make_operator(&name(call), cooperative, context(&columns(&[]).unwrap()));
        made.unwrap().is_cooperative()
    };
    assert!(shares("runs", true) && !shares("runs", false) && !shares("waits", true));
}

#[test]
fn a_made_up_option_or_a_panic_in_make_is_an_error() {
    struct Panics;
    impl SourceKind for Panics {
        fn output(&self, _: &Given<'_>) -> Result<SchemaRef, Failure> {
            columns(&[("n", "bigint")])
        }
        fn make(&self, _: Context) -> Result<Box<dyn Source>, Failure> {
            panic!("no such device")
        }
    }
    let registry = Registry::new().source("panics", 1, Panics).operator("declares", 1, Declares);
    let context = || context(&columns(&[("n", "bigint")]).unwrap());
    let said = registry.make_source(&name("panics"), None, context()).err().unwrap().to_string();
    assert_eq!(said, "panicked: no such device");
    let said = registry.make_operator(&name("declares"), true, context()).err().unwrap().to_string();
    assert_eq!(said, "not in this test");
    assert!(registry.make_operator(&name("none"), true, context()).is_err());
}

#[test]
fn the_pages_excerpts_are_the_examples() {
    let read = |path: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let (page, example) = (read("../docs/own-operators.md"), read("examples/own.rs"));
    let excerpts: Vec<&str> =
        page.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(excerpts.len() >= 4, "{}", excerpts.len());
    for excerpt in excerpts {
        assert!(example.contains(excerpt), "this is not in examples/own.rs:\n{excerpt}");
    }
}

#[test]
fn what_a_job_names_is_told_from_what_every_agent_has() {
    let text = "stage = [{ id = 's', op = 'source', connector = 'kafka' },\n\
                { id = 'c', op = 'custom_transform', in = 's', call = 'declares' },\n\
                { id = 'v', op = 'map_using_service', in = 'c', service = 'geo', select = '*' },\n\
                { id = 'h', op = 'map_using_service', in = 'v', service = 'http', url = 'x', select = '*' },\n\
                { id = 'o', op = 'sink', in = 'h', connector = 'count' }]";
    let job = Job::parse(text, FileFormat::Toml).unwrap();
    let registry = Registry::new().operator("declares", 1, Declares);
    assert_eq!(registry.lacks(&job), ["source `kafka`", "service `geo`"]);
    assert_eq!(named_in(&job).count(), 3);
    let built_in = std::panic::catch_unwind(|| {
        struct Count;
        impl SinkKind for Count {
            fn make(&self, _: Context, _: SinkFiles) -> Result<Box<dyn Sink>, Failure> {
                Err("never".into())
            }
        }
        Registry::new().sink("count", 1, Count)
    });
    assert!(built_in.is_err());
    let policy = std::panic::catch_unwind(|| {
        Registry::new().policy("potus", 1, |_, _| Ok(tuplane_core::route::make_policy("shuffle", 1).unwrap()))
    });
    let said = policy.err().unwrap();
    assert!(crate::engine::said(said.as_ref()).contains("a built-in policy is called `potus`"));
}

#[test]
fn a_source_may_wait_for_ever() {
    struct Waits;
    impl Source for Waits {
        fn next(&mut self, _: usize) -> Result<Next, Failure> {
            Ok(Next::Wait(Duration::MAX))
        }
    }
    let output = columns(&[("n", "bigint")]).unwrap();
    let mut source = OwnSource::new("s", Box::new(Waits), output, true, (None, 1)).unwrap();
    let Polled::Wait(until) = source.poll(1).unwrap() else { panic!("it has rows") };
    assert!(until > Instant::now() + Duration::from_mins(50));
}

/// Gives even numbers and refuses odd ones.
struct Even;

impl Operator for Even {
    fn rows(&mut self, taken: Taken<'_>, out: &mut Out) -> Result<(), Failure> {
        for (row, number) in values(taken.batch).into_iter().enumerate() {
            if number % 2 == 0 {
                out.give(numbers(number..number + 1));
            } else {
                out.refuse(row, format!("{number} is odd"));
            }
        }
        Ok(())
    }
}

/// Refuses a row that it did not get.
struct Wrong;

impl Operator for Wrong {
    fn rows(&mut self, _: Taken<'_>, out: &mut Out) -> Result<(), Failure> {
        out.refuse(9, "no such row");
        Ok(())
    }
}

#[test]
fn a_row_that_an_operator_refuses_goes_by_on_error() {
    let made = |on_error| {
        let output = columns(&[("n", "bigint")]).unwrap();
        Custom::new("even", Box::new(Even), output, true).at("evens", on_error)
    };
    let error = made(OnError::Fail).push(0, numbers(4..8), None).unwrap_err();
    assert_eq!(error.to_string(), "row 1 of a batch: 5 is odd");
    for on_error in [OnError::Drop, OnError::Null] {
        let mut custom = made(on_error);
        custom.push(0, numbers(4..8), None).unwrap();
        assert_eq!(drain(&mut custom, 8, 99).iter().flat_map(values).collect::<Vec<_>>(), [4, 6]);
        assert_eq!(custom.take_dropped()["refused"], 2);
        assert_eq!(custom.take_remark().unwrap().text(), "stage evens: 7 is odd");
        assert!(custom.take_remark().is_none());
    }
    let mut wrong = Custom::new("wrong", Box::new(Wrong), columns(&[("n", "bigint")]).unwrap(), true);
    let error = wrong.push(0, numbers(0..2), None).unwrap_err().to_string();
    assert_eq!(error, "operator `wrong`: it refuses row 9 of a batch of 2");
}
