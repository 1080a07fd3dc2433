//! System columns: who makes them, who copies them, and that no expression sees them.

use std::sync::Arc;

use tuplane_core::job::{FileFormat, Job};
use tuplane_core::plan::{Dag, EdgeId, VertexId, plan};
use tuplane_expr::arrow::array::{ArrayRef, AsArray, UInt64Array};
use tuplane_expr::arrow::datatypes::{Schema, UInt64Type};
use tuplane_expr::arrow::record_batch::RecordBatch;
use tuplane_expr::system::{Places, SystemColumn, conform, own_columns};
use tuplane_expr::{Chain, GroupTable, Program, Types, WhenEmpty, edge_key, resolve, vertex_program};

use crate::prelude::*;

/// A csv file with a column of each kind, and these stages behind it.
fn behind_a_file(stages: &str) -> Job {
    let source = r#"
        name = "test"
        [[stage]]
        id = "in"
        op = "source"
        connector = "file"
        path = "in.csv"
        format = "csv"
        columns = { t = "text", n = "bigint", i = "int", f = "double", d = "decimal(10, 2)", b = "boolean" }
    "#;
    parse(&format!("{source}\n{stages}"))
}

fn parse(toml: &str) -> Job {
    Job::parse(toml, FileFormat::Toml).unwrap_or_else(|faults| panic!("{faults:?}"))
}

fn one(op: &str, id: &str, from: &str, more: &str) -> String {
    format!("[[stage]]\nid = \"{id}\"\nop = \"{op}\"\nin = \"{from}\"\n{more}\n")
}

fn sink(from: &str) -> String {
    one("sink", "out", from, "connector = \"count\"")
}

/// The stages from which places go on, in the order of the file.
fn with_places(job: &Job) -> Vec<&str> {
    let types = resolve(job).unwrap_or_else(|faults| panic!("{faults:?}"));
    let has = |id: &str| types.system(id).has(SystemColumn::At);
    job.stages.iter().map(|stage| stage.id.as_str()).filter(|id| has(id)).collect()
}

#[test]
fn places_are_made_only_where_an_expression_can_fail() {
    let fails = |expr: &str| {
        let job =
            behind_a_file(&(one("map", "m", "in", &format!("select = [\"{expr} as x\"]")) + &sink("m")));
        !with_places(&job).is_empty()
    };
    let safe = [
        "t",
        "1",
        "t || 'x'",
        "try_cast(t as int)",
        "n > 3 and not b",
        "f / 0.5 + f * f",
        "-f",
        "upper(trim(t))",
        "ascii_lower(t)",
        "words(t)",
        "length(t)",
        "concat(t, n)",
        "coalesce(t, 'x')",
        "t like 'a%'",
        "t in ('a', 'b')",
        "t is null",
        "case when b then t else 'x' end",
        "cast(i as bigint)",
        "cast(n as double)",
        "cast(n as text)",
        "i > n",
    ];
    let others = [
        "cast(t as int)",
        "t > 3",
        "upper(cast(cast(t as date) as text))",
        "n / i",
        "n % 2",
        "n + 1",
        "d / 3",
        "-n",
        "cast(n as int)",
        "cast(f as bigint)",
        "substr(t, 1, i)",
        "split_part(t, ',', i)",
        "to_timestamp(t)",
        "try_cast(repeat(t, n) as int)",
        "case when b then cast(t as int) else 0 end",
    ];
    assert_eq!(safe.into_iter().filter(|expr| fails(expr)).collect::<Vec<_>>(), Vec::<&str>::new());
    assert_eq!(others.into_iter().filter(|expr| !fails(expr)).collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn places_go_as_far_as_the_last_expression_that_can_fail() {
    let stages = [
        one("filter", "kept", "in", "where = \"b\""),
        one("rebalance", "spread", "kept", ""),
        one("map", "parsed", "spread", "select = [\"cast(t as int) as x\", \"t\"]"),
        one("map", "named", "parsed", "select = [\"x\", \"upper(t) as t\"]"),
        sink("named"),
    ];
    assert_eq!(with_places(&behind_a_file(&stages.concat())), ["in", "kept", "spread"]);
    // Another reader that needs nothing changes nothing, and the other way round.
    let both = stages.concat() + &one("sink", "raw", "kept", "connector = \"count\"");
    assert_eq!(with_places(&behind_a_file(&both)), ["in", "kept", "spread"]);
}

#[test]
fn keys_and_arguments_of_aggregates_need_places_and_results_have_none() {
    let by = |key: &str, compute: &str| {
        let stages = [
            one("work", "w", "in", "ms = 0"),
            one("group_by", "g", "w", &format!("key = \"{key}\"")),
            one("aggregate", "a", "g", &format!("compute = [\"{compute}\"]")),
            one("map", "m", "a", "select = [\"cast(x as int) as y\"]"),
            sink("m"),
        ];
        behind_a_file(&stages.concat())
    };
    assert_eq!(with_places(&by("t", "sum(n) as x")), Vec::<&str>::new());
    assert_eq!(with_places(&by("t", "sum(cast(t as int)) as x")), ["in", "w", "g"]);
    assert_eq!(with_places(&by("cast(t as int)", "count(*) as x")), ["in", "w", "g"]);
    let keyed = one("rebalance", "r", "in", "key = \"n % 7\"") + &sink("r");
    assert_eq!(with_places(&behind_a_file(&keyed)), ["in"]);
}

#[test]
fn the_jobs_that_are_measured_carry_nothing() {
    let words = include_str!("../../../testbed/jobs/wordcount.toml");
    let rebalance = include_str!("../../../testbed/jobs/bench-rebalance.toml");
    let file = [("lines.path".to_owned(), "text.txt".to_owned())];
    let of_a_file = Job::parse_with(words, FileFormat::Toml, &file).unwrap();
    for job in [parse(words), of_a_file, parse(rebalance)] {
        assert_eq!(with_places(&job), Vec::<&str>::new(), "{}", job.name);
    }
    // Could fail, but a made-up row has no line.
    assert!(rebalance.contains("value + 42"));
}

#[test]
fn a_column_of_a_system_columns_name_is_refused() {
    let said =
        |job: &Job| resolve(job).unwrap_err().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    for (op, more) in [
        ("map", "select = [\"t as _at\"]"),
        ("map", "select = [\"*\", \"n as _ts\"]"),
        ("flat_map", "unnest = \"words(t) as _due\""),
        ("group_by", "key = \"t as _phantom\""),
    ] {
        let mut stages = one(op, "m", "in", more);
        if op == "group_by" {
            stages += &one("aggregate", "a", "m", "compute = [\"count(*) as n\"]");
        }
        let said = said(&behind_a_file(&stages));
        assert!(said.contains("are kept for the system"), "{more}: {said}");
    }
    let source = |more: &str| {
        parse(&format!(
            "name = \"t\"\n[[stage]]\nid = \"in\"\nop = \"source\"\nconnector = \"file\"\npath = \"x\"\n{more}"
        ))
    };
    for more in
        ["format = \"jsonl\"\ncolumns = { _at = \"int\" }", "format = \"regex\"\npattern = '(?<_ts>.)'"]
    {
        let said = said(&source(more));
        assert!(said.contains("are kept for the system"), "{more}: {said}");
    }
    let header = source("format = \"csv\"\nheader = true");
    let names = vec!["a".to_owned(), "_due".to_owned()];
    let faults = tuplane_expr::resolve_with(&header, &|_| Some(names.clone())).unwrap_err();
    assert!(faults[0].message.contains("`_due`"), "{faults:?}");
    // Where the engine has such a column a job still has none.
    let hidden = one("map", "m", "in", "select = [\"cast(t as int) as x\", \"_at\"]");
    assert!(said(&behind_a_file(&hidden)).contains("no column `_at`"));
}

/// Programs of a job's vertices.
struct Planned {
    job: Job,
    types: Types,
    dag: Dag,
}

impl Planned {
    fn new(job: Job) -> Self {
        let (types, dag) = (resolve(&job).unwrap(), plan(&job).unwrap());
        Self { job, types, dag }
    }

    fn vertex(&self, stage: &str) -> VertexId {
        let found = self.dag.vertices.iter().position(|v| v.stages.iter().any(|s| s == stage));
        VertexId(found.unwrap() as u32)
    }

    fn program(&self, stage: &str) -> tuplane_expr::VertexProgram {
        vertex_program(&self.job, &self.types, &self.dag, self.vertex(stage)).unwrap()
    }

    fn chain(&self, stage: &str) -> Chain {
        match self.program(stage).program {
            Program::Chain(chain) => chain,
            other => panic!("not a chain: {other:?}"),
        }
    }

    fn edge_into(&self, stage: &str) -> EdgeId {
        self.dag.inputs(self.vertex(stage)).next().unwrap().0
    }
}

fn names(schema: &Schema) -> Vec<&str> {
    schema.fields().iter().map(|field| field.name().as_str()).collect()
}

/// Lines with these places.
fn lines(texts: &[&str], places: &[u64]) -> RecordBatch {
    let at: ArrayRef = Arc::new(UInt64Array::from(places.to_vec()));
    batch(vec![("line", some_strings(texts)), ("_at", at)])
}

fn places(batch: &RecordBatch) -> Vec<u64> {
    batch.column_by_name("_at").unwrap().as_primitive::<UInt64Type>().values().to_vec()
}

fn lines_job(stages: &str) -> Job {
    let source =
        "name = \"t\"\n[[stage]]\nid = \"in\"\nop = \"source\"\nconnector = \"file\"\npath = \"in.txt\"\n";
    parse(&format!("{source}{stages}"))
}

#[test]
fn row_wise_steps_copy_the_places_of_their_rows() {
    let stages = [
        one("map", "first", "in", "select = [\"*\", \"'x' as more\"]"),
        one("filter", "some", "first", "where = \"line <> 'skip'\""),
        one("flat_map", "split", "some", "unnest = \"words(line) as word\""),
        one("map", "named", "split", "select = [\"word\"]"),
        one("rebalance", "spread", "named", ""),
        one("map", "parsed", "spread", "select = [\"cast(word as int) as n\"]"),
        sink("parsed"),
    ];
    let planned = Planned::new(lines_job(&stages.concat()));
    assert_eq!(names(&planned.program("in").output), ["line", "_at"]);
    assert_eq!(names(&planned.program("parsed").input[0]), ["word", "_at"]);
    assert_eq!(names(&planned.program("out").input[0]), ["n"]);

    let chain = planned.chain("named");
    assert_eq!(names(chain.output()), ["word", "_at"]);
    let mut run = chain.run(lines(&["1 2", "skip", "", "3"], &[10, 20, 30, 40]));
    let out: Vec<RecordBatch> =
        std::iter::from_fn(|| run.next(8192, 1 << 20)).collect::<Result<_, _>>().unwrap();
    assert_eq!(
        out.iter().flat_map(|b| text_column(b, "word")).flatten().collect::<Vec<_>>(),
        ["1", "2", "3"]
    );
    assert_eq!(out.iter().flat_map(places).collect::<Vec<_>>(), [10, 10, 40]);

    // The last chain needs them for its faults only: it is given rows without, and knows theirs.
    let last = planned.chain("parsed");
    let at: ArrayRef = Arc::new(UInt64Array::from(vec![10, 40]));
    let words = batch(vec![("word", some_strings(&["1", "x"])), ("_at", at)]);
    let mut run = last.run(conform(words.clone(), last.input()).unwrap());
    let error = run.next(8192, 1 << 20).unwrap().unwrap_err();
    assert_eq!((error.row, error.message.as_str()), (Some(1), "cannot cast 'x' to int"));
    assert_eq!(run.failed_stage(), Some("parsed"));
    assert_eq!(Places::of(&words).of_row(1).unwrap().number(), 40);
}

#[test]
fn a_fused_chain_says_which_stage_left_a_row_out() {
    for (on_error, kept) in [("drop", 1), ("null", 2)] {
        let stages = [
            one("map", "first", "in", "select = [\"cast(line as int) as n\"]"),
            one("map", "second", "first", "select = [\"10 / n as x\"]"),
            sink("second"),
        ];
        let job = lines_job(&stages.concat()).with_on_error(on_error);
        let chain = Planned::new(job).chain("second");
        let mut run = chain.run(batch(vec![("line", some_strings(&["5", "0"]))]));
        assert_eq!(run.next(8192, 1 << 20).unwrap().unwrap().num_rows(), kept);
        let last = run.take_last().unwrap();
        assert_eq!((last.stage.as_str(), last.row, last.message.as_str()), ("second", 1, "division by zero"));
        assert_eq!((run.take_last(), run.take_dropped().len()), (None, 2 - kept));
    }
}

trait WithOnError {
    fn with_on_error(self, on_error: &str) -> Self;
}

impl WithOnError for Job {
    fn with_on_error(mut self, on_error: &str) -> Self {
        self.options.on_error = match on_error {
            "drop" => tuplane_core::job::OnError::Drop,
            _ => tuplane_core::job::OnError::Null,
        };
        self
    }
}

#[test]
fn an_aggregate_drops_places_and_names_rows_by_the_numbers_of_their_batch() {
    let stages = [
        one("group_by", "g", "in", "key = \"length(line)\""),
        one("aggregate", "a", "g", "compute = [\"sum(cast(line as int)) as n\"]"),
        sink("a"),
    ];
    let planned = Planned::new(lines_job(&stages.concat()).with_on_error("drop"));
    let program = planned.program("a");
    assert_eq!(names(&program.input[0]), ["line", "_at"]);
    let Program::Aggregate(aggregate) = program.program else { panic!("not an aggregate") };
    assert_eq!(names(&program.output), names(&aggregate.partial_schema()));
    let mut table = GroupTable::new(aggregate, 271, WhenEmpty::Nothing).unwrap();
    table.update(&lines(&["7", "x", "y", "8"], &[1, 2, 3, 4]), None).unwrap();
    let last = table.take_last().unwrap();
    assert_eq!((last.row, last.message.as_str()), (2, "cannot cast 'y' to int"));
    assert_eq!((table.take_last(), table.take_dropped().len()), (None, 2));
    assert_eq!(sorted_rows(&finals(&mut table)), ["1 15"]);
}

#[test]
fn a_merge_of_rows_with_and_without_places_has_the_column() {
    let stages = [
        "[[stage]]\nid = \"made\"\nop = \"source\"\nconnector = \"generator\"\nkind = \"words\"\nn = 5\n"
            .to_owned(),
        "[[stage]]\nid = \"both\"\nop = \"merge\"\nin = [\"in\", \"made\"]\n".to_owned(),
        one("map", "parsed", "both", "select = [\"cast(line as int) as n\"]"),
        sink("parsed"),
    ];
    let planned = Planned::new(lines_job(&stages.concat()));
    let program = planned.program("both");
    assert_eq!(program.input.iter().map(|s| s.fields().len()).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(names(&program.output), ["line", "_at"]);
    let made = batch(vec![("line", some_strings(&["a"]))]);
    let filled = conform(made, &program.output).unwrap();
    assert_eq!(Places::of(&filled).of_row(0), None);
}

#[test]
fn keys_are_compiled_over_a_jobs_own_columns() {
    let stages = [
        one("rebalance", "r", "in", "key = \"cast(line as int)\""),
        one("map", "m", "r", "select = [\"*\"]"),
        sink("m"),
    ];
    let planned = Planned::new(lines_job(&stages.concat()));
    let (job, types, dag) = (&planned.job, &planned.types, &planned.dag);
    let key = edge_key(job, types, dag, planned.edge_into("m")).unwrap().unwrap();
    let rows = lines(&["5", "x", "5"], &[1, 2, 3]);
    assert_eq!(names(&own_columns(&rows.schema())), ["line"]);
    let on_error = tuplane_core::job::OnError::Drop;
    let (ids, dropped, last) = key.partitions_of(&rows, 271, on_error).unwrap();
    assert_eq!((ids.len(), ids.value(0) == ids.value(1)), (2, true));
    assert_eq!((dropped.len(), last.unwrap().row), (1, 1));
    let error = key.partitions_of(&rows, 271, tuplane_core::job::OnError::Fail).unwrap_err();
    assert_eq!(error.row, Some(1));
}
