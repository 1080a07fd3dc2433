//! Real files of every format, every fault, and any way of cutting them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use tuplane_core::fault::Spanned;
use tuplane_core::job::{self, BadLine, Encoding, FileSource, Format, SourceConnector};
use tuplane_expr::arrow::array::{Array, AsArray, RecordBatch};
use tuplane_expr::arrow::compute::concat_batches;
use tuplane_expr::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float64Type, Int32Type, Int64Type, Schema, SchemaRef,
    TimeUnit, TimestampMillisecondType,
};
use tuplane_wire::message::Split;

use super::super::{Polled, Rejected, SourceContext, SourceError, csv_header, make, splits};
use super::csv::{Quote, scan};

mod back;
mod hard;
mod lists;
mod numbers;
mod places;
mod shared;

pub(super) fn options(format: Format) -> FileSource {
    FileSource {
        paths: Vec::new(),
        format,
        encoding: Encoding::Utf8,
        columns: Vec::new(),
        header: false,
        delimiter: ',',
        quoted_newlines: true,
        files: job::Files::Shared,
        split: None,
        on_bad_line: BadLine::Skip,
    }
}

fn regex(pattern: &str) -> Format {
    Format::Regex { pattern: Spanned::nowhere(pattern.to_owned()) }
}

fn source(file: FileSource) -> job::Source {
    job::Source {
        kind: job::SourceKind::Batch,
        distributed: true,
        timestamps: job::Timestamps::None,
        connector: Some(SourceConnector::File(file)),
        time: None,
        on: Vec::new(),
        rate: None,
        max_row: None,
        window: None,
        predictor: None,
    }
}

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let fields = columns.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn texts(names: &[&str]) -> SchemaRef {
    schema(&names.iter().map(|name| (*name, DataType::Utf8)).collect::<Vec<_>>())
}

fn whole(path: &Path) -> Split {
    Split { number: 0, path: path.display().to_string(), start: 0, end: u64::MAX, seen: None, done: None }
}

struct Outcome {
    rows: RecordBatch,
    rejected: Rejected,
    batches: usize,
}

impl Outcome {
    fn column(&self, name: &str) -> Vec<Option<String>> {
        let column = self.rows.column_by_name(name).unwrap().as_string::<i32>();
        column.iter().map(|text| text.map(str::to_owned)).collect()
    }

    fn lines(&self) -> Vec<String> {
        self.column("line").into_iter().map(Option::unwrap).collect()
    }

    fn last(&self) -> &str {
        self.rejected.last.as_deref().unwrap_or("")
    }
}

fn run(
    source: &job::Source,
    schema: &SchemaRef,
    splits: Vec<Split>,
    max: usize,
) -> Result<Outcome, SourceError> {
    let context = SourceContext {
        stage: "in".to_owned(),
        instance_number: 0,
        instances: 1,
        handed: false,
        folder: PathBuf::new(),
        schema: Arc::clone(schema),
        places: None,
        ahead: None,
    };
    let mut source = make(source, context)?;
    let mut splits = splits.into_iter();
    let mut batches = Vec::new();
    loop {
        match source.poll(max)? {
            Polled::Rows(batch) => {
                assert!(batch.num_rows() > 0 && batch.num_rows() <= max);
                batches.push(batch);
            }
            Polled::Wait(_) => {}
            Polled::NeedSplit => source.split(splits.next())?,
            Polled::End => break,
        }
    }
    assert!(matches!(source.poll(max)?, Polled::End), "the end stays the end");
    Ok(Outcome {
        rows: concat_batches(schema, &batches)?,
        rejected: source.rejected().clone(),
        batches: batches.len(),
    })
}

fn read(file: FileSource, schema: &SchemaRef, bytes: impl AsRef<[u8]>) -> Result<Outcome, SourceError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.txt");
    fs::write(&path, bytes).unwrap();
    run(&source(file), schema, vec![whole(&path)], 100)
}

fn lines_of(bytes: &[u8], max_row: usize) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.txt");
    fs::write(&path, bytes).unwrap();
    let mut source = source(options(Format::Lines));
    source.max_row = Some(max_row as u64);
    run(&source, &texts(&["line"]), vec![whole(&path)], 100).unwrap()
}

/// A file of the shared test data; where there is none the test says so and ends.
fn data(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(name);
    if path.exists() {
        return Some(path);
    }
    tuplane_testbed::skip::skip("source::file", &format!("../shared/data/{name}"));
    None
}

fn some(values: &[&str]) -> Vec<Option<String>> {
    values.iter().map(|value| Some((*value).to_owned())).collect()
}

#[test]
fn lines_keep_what_stands_in_them() {
    let outcome = lines_of("\u{feff}a\r\n\r\n b \nc\rd\n\nlast".as_bytes(), 100);
    assert_eq!(outcome.lines(), ["a", "", " b ", "c\rd", "", "last"]);
    assert_eq!(outcome.rejected.total(), 0);
    assert_eq!(lines_of(b"", 100).rows.num_rows(), 0);
    assert_eq!(lines_of(b"\n", 100).lines(), [""]);
    assert_eq!(lines_of("\u{feff}".as_bytes(), 100).rows.num_rows(), 0);
}

#[test]
fn a_line_over_the_limit_is_passed_over_and_named() {
    for long in [11, 300_000, 3_000_000] {
        let text = format!("{}\nshort\r\n{}\r\n{}\nend", "x".repeat(10), "y".repeat(10), "z".repeat(long));
        let outcome = lines_of(text.as_bytes(), 10);
        assert_eq!(outcome.lines(), ["xxxxxxxxxx", "short", "yyyyyyyyyy", "end"]);
        assert_eq!(outcome.rejected.by_reason[Rejected::TOO_LONG], 1);
        assert!(outcome.last().contains("in.txt:4: longer than `max_row`, 10 bytes"), "{}", outcome.last());
        let at_end = lines_of(format!("a\n{}", "z".repeat(long)).as_bytes(), 10);
        assert_eq!((at_end.lines(), at_end.rejected.total()), (vec!["a".to_owned()], 1));
    }
}

#[test]
fn batches_end_at_a_mebibyte() {
    let outcome = lines_of(format!("{}\n", "x".repeat(400_000)).repeat(9).as_bytes(), 1 << 20);
    assert_eq!((outcome.rows.num_rows(), outcome.batches), (9, 3));
}

#[test]
fn encodings_differ_in_bytes_that_are_not_utf8() {
    let bytes = b"caf\xe9\nok\nna\xc3\xafve\n";
    let schema = texts(&["line"]);
    let strict = read(options(Format::Lines), &schema, bytes).unwrap();
    assert_eq!(strict.lines(), ["ok", "na\u{ef}ve"]);
    assert!(strict.last().contains("in.txt:1: not UTF-8 at byte 4"), "{}", strict.last());
    let lossy =
        read(FileSource { encoding: Encoding::Lossy, ..options(Format::Lines) }, &schema, bytes).unwrap();
    assert_eq!(lossy.lines(), ["caf\u{fffd}", "ok", "na\u{ef}ve"]);
    let latin =
        read(FileSource { encoding: Encoding::Latin1, ..options(Format::Lines) }, &schema, bytes).unwrap();
    assert_eq!(latin.lines(), ["caf\u{e9}", "ok", "na\u{c3}\u{af}ve"]);
    let every: Vec<u8> = (0..=255).filter(|byte| *byte != b'\n').collect();
    let latin =
        read(FileSource { encoding: Encoding::Latin1, ..options(Format::Lines) }, &schema, &every).unwrap();
    assert_eq!(
        latin.lines()[0].chars().map(|c| c as u32).collect::<Vec<_>>(),
        every.iter().map(|b| u32::from(*b)).collect::<Vec<_>>()
    );
}

#[test]
fn on_bad_line_fail_names_the_place() {
    let file = FileSource { on_bad_line: BadLine::Fail, ..options(Format::Lines) };
    let Err(fault) = read(file, &texts(&["line"]), b"a\nb\n\xff\nc\n") else { panic!("must fail") };
    assert!(matches!(&fault, SourceError::Row { place, .. } if place.ends_with("in.txt:3")), "{fault}");
    let mut long = source(FileSource { on_bad_line: BadLine::Fail, ..options(Format::Lines) });
    long.max_row = Some(2);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long");
    fs::write(&path, "abc\n").unwrap();
    let Err(fault) = run(&long, &texts(&["line"]), vec![whole(&path)], 5) else { panic!("must fail") };
    assert!(fault.to_string().contains("long:1: longer than `max_row`"), "{fault}");
}

#[test]
fn csv_types_and_faults() {
    let columns = schema(&[
        ("n", DataType::Int64),
        ("x", DataType::Float64),
        ("day", DataType::Date32),
        ("at", DataType::Timestamp(TimeUnit::Millisecond, None)),
        ("price", DataType::Decimal128(10, 2)),
        ("yes", DataType::Boolean),
        ("name", DataType::Utf8),
    ]);
    let text = "n,x,day,at,price,yes,name\n\
        1,2.5,2024-02-29,2024-02-29T01:02:03.004Z,12.34,true,\"a, \"\"b\"\"\"\n\
        \n\
        x,2.5,2024-02-29,2024-02-29T01:02:03Z,12.34,true,bad number\n\
        2,,,,,,\n\
        3,2.5,2024-02-30,,,,bad day\n\
        4,1,2\n \
        5 ,1e3,2024-03-01,2024-03-01 00:00:00,1,false,\"\"\n";
    let file = FileSource { header: true, ..options(Format::Csv) };
    let outcome = read(file, &columns, text).unwrap();
    let rows = &outcome.rows;
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().values().to_vec(), [1, 2, 5]);
    assert_eq!(
        rows.column(1).as_primitive::<Float64Type>().iter().collect::<Vec<_>>(),
        [Some(2.5), None, Some(1000.0)]
    );
    assert_eq!(rows.column(2).as_primitive::<Date32Type>().value(0), 19_782);
    assert_eq!(rows.column(3).as_primitive::<TimestampMillisecondType>().value(0), 1_709_168_523_004);
    assert_eq!(rows.column(4).as_primitive::<Decimal128Type>().value(0), 1234);
    assert!(rows.column(5).as_boolean().value(0) && rows.column(5).is_null(1));
    assert_eq!(outcome.column("name"), [Some("a, \"b\"".to_owned()), None, Some(String::new())]);
    assert_eq!(outcome.rejected.by_reason[Rejected::BAD_LINE], 3);
    assert!(outcome.last().ends_with("in.txt:7: 3 fields where 7 are expected"), "{}", outcome.last());
    let file = FileSource { header: true, on_bad_line: BadLine::Fail, ..options(Format::Csv) };
    let Err(fault) = read(file, &columns, text) else { panic!("must fail") };
    assert!(fault.to_string().ends_with("in.txt:4: column `n`: `x` is not of type Int64"), "{fault}");
}

#[test]
fn csv_columns_are_found_by_name() {
    let file = FileSource { header: true, delimiter: ';', ..options(Format::Csv) };
    let outcome = read(file.clone(), &texts(&["c", "a"]), "\u{feff}a;b;c\r\n1;2;3\r\n").unwrap();
    assert_eq!((outcome.column("c"), outcome.column("a")), (some(&["3"]), some(&["1"])));
    let Err(fault) = read(file.clone(), &texts(&["d"]), "a;b;c\n1;2;3\n") else { panic!("must fail") };
    assert!(fault.to_string().ends_with("the header has no column `d`; it has: a, b, c"), "{fault}");
    assert_eq!(read(file, &texts(&["d"]), "").unwrap().rows.num_rows(), 0);
    let named = |name: &str| (Spanned::nowhere(name.to_owned()), Spanned::nowhere("text".to_owned()));
    let file = FileSource { columns: vec![named("a"), named("b")], ..options(Format::Csv) };
    let outcome = read(file, &texts(&["b"]), "1,2\n3,4\n").unwrap();
    assert_eq!(outcome.column("b"), some(&["2", "4"]));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("h.csv");
    fs::write(&path, "a,\"b\nc\",d\r\n1,2,3\r\n").unwrap();
    assert_eq!(csv_header(&path, ',').unwrap(), ["a", "b\nc", "d"]);
    let file = FileSource { header: true, ..options(Format::Csv) };
    let Err(fault) = read(file.clone(), &texts(&["a"]), "a,b,a\n") else { panic!("must fail") };
    assert!(fault.to_string().ends_with("the header names the column `a` twice"), "{fault}");
    assert_eq!(read(file, &texts(&["b"]), "a,b,a\n1,2,3\n").unwrap().column("b"), some(&["2"]));
    assert!(csv_header(&path, '\u{e9}').is_err() && csv_header(&path, '"').is_err());
    assert!(csv_header(&folder.path().join("none"), ',').unwrap_err().to_string().contains("none"));
}

#[test]
fn a_stray_quote_costs_one_line_not_the_file() {
    let text = "1,a\n2,\"open\n3,c\n4,d\n5,e\n";
    let outcome = read(options(Format::Csv), &texts(&["n", "t"]), text).unwrap();
    assert_eq!(outcome.column("n"), some(&["1", "3", "4", "5"]));
    assert!(outcome.last().contains("in.txt:2: a quoted field does not end"), "{}", outcome.last());
    let mut limited = source(options(Format::Csv));
    limited.max_row = Some(12);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.csv");
    fs::write(&path, format!("1,\"open\n{}6,\"x\ny\"\n7,a\"b\n", "3,c\n".repeat(5))).unwrap();
    let outcome = run(&limited, &texts(&["n", "t"]), vec![whole(&path)], 100).unwrap();
    assert_eq!(outcome.column("n"), some(&["3", "3", "3", "3", "3", "6", "7"]));
    assert_eq!(outcome.column("t")[5..], some(&["x\ny", "a\"b"]));
    assert!(outcome.last().contains("in.csv:1: ") && outcome.last().contains("`max_row`, 12 bytes"));
    let file = FileSource { quoted_newlines: false, ..options(Format::Csv) };
    let outcome = read(file, &texts(&["n", "t"]), text).unwrap();
    assert_eq!(outcome.column("n"), some(&["1", "3", "4", "5"]));
}

#[test]
fn quotes_over_lines_come_whole_whatever_is_asked_for_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.csv");
    fs::write(&path, "a,b\n\"1\n2\n\n3\",x\n\n4,\"y\"\"\n\"\n").unwrap();
    let file = FileSource { header: true, ..options(Format::Csv) };
    for max in 1..10 {
        let outcome = run(&source(file.clone()), &texts(&["a", "b"]), vec![whole(&path)], max).unwrap();
        assert_eq!(outcome.column("a"), some(&["1\n2\n\n3", "4"]));
        assert_eq!(outcome.column("b"), some(&["x", "y\"\n"]));
        assert_eq!(outcome.rejected, Rejected::default());
    }
}

#[test]
fn jsonl_types_and_faults() {
    let columns = schema(&[
        ("n", DataType::Int64),
        ("x", DataType::Float64),
        ("t", DataType::Utf8),
        ("b", DataType::Boolean),
        ("at", DataType::Timestamp(TimeUnit::Millisecond, None)),
        ("small", DataType::Int32),
    ]);
    let text = r#"{"n": 1, "x": 2, "t": "a\u00e9\n", "b": true, "at": "2024-02-29T01:02:03.004Z", "small": 7, "more": {"deep": [1]}}

{"t": null}
{"n": 1.5}
{"n": "1"}
{"t": 5}
{"t": {"x": 1}}
{"t": [1]}
{"n": 9223372036854775808}
{"small": 3000000000}
{"at": "yesterday"}
{"n": 1} x
[1]
"text"
{"n": 1,}
{"x": -1.5e3, "n": 2, "n": 3}
"#;
    let outcome = read(options(Format::Jsonl), &columns, text).unwrap();
    let rows = &outcome.rows;
    assert_eq!(rows.num_rows(), 3, "{:?}", outcome.rejected);
    assert_eq!(
        rows.column(0).as_primitive::<Int64Type>().iter().collect::<Vec<_>>(),
        [Some(1), None, Some(3)]
    );
    assert_eq!(
        rows.column(1).as_primitive::<Float64Type>().iter().collect::<Vec<_>>(),
        [Some(2.0), None, Some(-1500.0)]
    );
    assert_eq!(outcome.column("t"), [Some("a\u{e9}\n".to_owned()), None, None]);
    assert_eq!(rows.column(4).as_primitive::<TimestampMillisecondType>().value(0), 1_709_168_523_004);
    assert_eq!(rows.column(5).as_primitive::<Int32Type>().value(0), 7);
    assert_eq!(outcome.rejected.by_reason[Rejected::BAD_LINE], 12);
    for (line, why) in [
        (
            "{\"n\": 1.5}",
            "column `n`: a number with a fraction or beyond 64 bits where type Int64 is expected",
        ),
        ("{\"t\": {}}", "column `t`: an object where type Utf8 is expected"),
        ("[1]", "a list where an object is expected"),
        ("7", "a number where an object is expected"),
        ("{\"n\": 1,}", "not JSON: trailing comma (column 9)"),
        ("{\"at\": \"yesterday\"}", "column `at`: `yesterday` is not of type Timestamp(ms)"),
    ] {
        let outcome = read(options(Format::Jsonl), &columns, line).unwrap();
        assert_eq!(outcome.last().split_once("in.txt:1: ").unwrap().1, why);
    }
}

#[test]
fn json_documents_are_one_object_or_a_list() {
    let columns = schema(&[("a", DataType::Int64)]);
    let rows = |text: &str| {
        let outcome = read(options(Format::Json), &columns, text).unwrap();
        (outcome.rows.num_rows(), outcome.rejected.total(), outcome.rejected.last.unwrap_or_default())
    };
    assert_eq!(rows("{\"a\": 1}").0, 1);
    assert_eq!(rows("\u{feff}[{\"a\": 1},\n {\"a\": 2}, {}]").0, 3);
    assert_eq!(rows("[]").0, 0);
    let (good, bad, last) = rows("[{\"a\": 1}, 5, {\"a\": \"x\"}]");
    assert_eq!((good, bad), (1, 2));
    assert!(last.ends_with("in.txt:1: element 3: column `a`: a text where type Int64 is expected"), "{last}");
    let (good, bad, last) = rows("[{\"a\": 1},\n {\"a\": 2}\n");
    assert_eq!((good, bad), (0, 1));
    assert!(last.contains("in.txt:3: not JSON: EOF"), "{last}");
    assert_eq!(rows("").1, 1);
    let many = format!("[{}{{}}]", "{\"a\": 1}, ".repeat(1000));
    let outcome = read(options(Format::Json), &columns, many).unwrap();
    assert_eq!((outcome.rows.num_rows(), outcome.batches), (1001, 11));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big.json");
    fs::write(&path, "[{\"a\": 1}, {\"a\": 2}]").unwrap();
    let mut limited = source(options(Format::Json));
    limited.max_row = Some(10);
    let outcome = run(&limited, &columns, vec![whole(&path)], 10).unwrap();
    assert_eq!(outcome.rejected.by_reason[Rejected::TOO_LONG], 1);
}

#[test]
fn regex_groups_become_columns() {
    let columns = schema(&[("status", DataType::Int64), ("path", DataType::Utf8), ("extra", DataType::Utf8)]);
    let pattern = r"^GET (?<path>\S+) (?<status>\S+)(?: (?<extra>\w+))?$";
    let text = "GET /a 200\n\nPUT /b 200\nGET /c x\nGET /d 404 more\n";
    let outcome = read(options(regex(pattern)), &columns, text).unwrap();
    assert_eq!(outcome.rows.column(0).as_primitive::<Int64Type>().values().to_vec(), [200, 404]);
    assert_eq!(outcome.column("path"), some(&["/a", "/d"]));
    assert_eq!(outcome.column("extra"), [None, Some("more".to_owned())]);
    assert_eq!(outcome.rejected.by_reason[Rejected::BAD_LINE], 2);
    assert!(outcome.last().contains(":4: column `status`: `x` is not of type Int64"), "{}", outcome.last());
    let Err(fault) = read(options(regex("(?<a>.)")), &columns, "") else { panic!("must fail") };
    assert!(fault.to_string().contains("no group `(?<status>...)`; its groups are: a"), "{fault}");
    let Err(fault) = read(options(regex("(")), &columns, "") else { panic!("must fail") };
    assert!(fault.to_string().contains("not a regular expression"), "{fault}");
}

#[test]
fn line_numbers_hold_in_any_split() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.jsonl");
    let text = "{}\n{}\r\n\n{}\nbad\n{}\n";
    fs::write(&path, text).unwrap();
    let (bad, columns) = (text.find("bad").unwrap() as u64, schema(&[("a", DataType::Int64)]));
    for start in 0..=bad {
        let split = Split { start, ..whole(&path) };
        let outcome = run(&source(options(Format::Jsonl)), &columns, vec![split], 3).unwrap();
        assert!(outcome.last().contains("in.jsonl:5: not JSON"), "from {start}: {}", outcome.last());
    }
}

#[test]
fn paths_become_splits() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("sub")).unwrap();
    for (name, size) in
        [("b.txt", 3), ("a.txt", 600_000), (".hidden.txt", 5), ("[x].txt", 0), ("sub/c.txt", 7)]
    {
        fs::write(at.join(name), vec![b'\n'; size]).unwrap();
    }
    let split = |paths: &[&str], format: Format, instances| {
        let paths = paths.iter().map(|path| Spanned::nowhere((*path).to_owned())).collect();
        splits(&FileSource { paths, ..options(format) }, at, instances)
    };
    let names = |splits: Vec<Split>| -> Vec<(String, u64, u64)> {
        let name = |path: &str| Path::new(path).strip_prefix(at).unwrap().display().to_string();
        assert!(splits.iter().enumerate().all(|(place, split)| split.number as usize == place));
        splits.iter().map(|split| (name(&split.path), split.start, split.end)).collect()
    };
    let (quarter, max) = (256 << 10, u64::MAX);
    assert_eq!(
        names(split(&["*.txt"], Format::Lines, 2).unwrap()),
        [
            ("[x].txt".to_owned(), 0, max),
            ("a.txt".to_owned(), 0, quarter),
            ("a.txt".to_owned(), quarter, 2 * quarter),
            ("a.txt".to_owned(), 2 * quarter, max),
            ("b.txt".to_owned(), 0, max),
        ]
    );
    assert_eq!(names(split(&["a.txt"], Format::Csv, 2).unwrap()).len(), 1);
    assert_eq!(names(split(&["[x].txt", "*/c.txt"], Format::Lines, 1).unwrap())[1].0, "sub/c.txt");
    assert_eq!(split(&["b.txt", "?.txt"], Format::Json, 1).unwrap().len(), 2);
    for (paths, message) in [
        (["none.txt"], "none.txt: No such file"),
        (["*.csv"], "no file matches"),
        (["sub"], "is a folder; name files in it"),
        (["s*"], "no file matches"),
        (["a[.txt"], "is not a pattern for files"),
    ] {
        let fault = split(&paths, Format::Lines, 1).unwrap_err().to_string();
        assert!(fault.contains(message), "{fault}");
    }
    let file = FileSource { split: Some(job::Split::File), ..options(Format::Lines) };
    let paths = vec![Spanned::nowhere("a.txt".to_owned())];
    assert_eq!(splits(&FileSource { paths, ..file }, at, 9).unwrap().len(), 1);
}

fn cut(path: &Path, size: u64) -> Vec<Split> {
    let length = fs::metadata(path).unwrap().len();
    let ranges = length.div_ceil(size).max(1);
    (0..ranges)
        .map(|place| {
            let end = if place + 1 == ranges { u64::MAX } else { (place + 1) * size };
            Split {
                number: place as u32,
                path: path.display().to_string(),
                start: place * size,
                end,
                seen: None,
                done: None,
            }
        })
        .collect()
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_lines(
        lines in prop::collection::vec(("[ab\u{e9}\r]{0,12}", any::<bool>()), 0..12),
        ended in any::<bool>(),
        marked in any::<bool>(),
        size in 1_u64..40,
        max in 1_usize..5,
    ) {
        let mut text = if marked { "\u{feff}".to_owned() } else { String::new() };
        for (line, crlf) in &lines {
            text.push_str(line);
            text.push_str(if *crlf { "\r\n" } else { "\n" });
        }
        if !ended {
            text.truncate(text.trim_end_matches(['\r', '\n']).len());
        }
        let body = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let expected: Vec<String> = body
            .split_inclusive('\n')
            .map(|line| match line.strip_suffix('\n') {
                Some(line) => line.strip_suffix('\r').unwrap_or(line).to_owned(),
                None => line.to_owned(),
            })
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.txt");
        fs::write(&path, &text).unwrap();
        let outcome = run(&source(options(Format::Lines)), &texts(&["line"]), cut(&path, size), max).unwrap();
        prop_assert_eq!(outcome.lines(), expected);
    }

    #[test]
    fn csv_reads_as_the_csv_crate_does(text in "[a\",\n ]{0,40}", max in 1_usize..6) {
        // Endless quotes are another test's.
        let end = text.split('\n').fold(Quote::FieldStart, |state, line| match state {
            Quote::Quoted => scan(line.as_bytes(), b',', Quote::Quoted),
            _ => scan(line.as_bytes(), b',', Quote::FieldStart),
        });
        prop_assume!(end != Quote::Quoted);
        let mut reader = ::csv::ReaderBuilder::new().has_headers(false).flexible(true)
            .terminator(::csv::Terminator::Any(b'\n')).from_reader(text.as_bytes());
        let records: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.csv");
        fs::write(&path, &text).unwrap();
        let outcome = run(&source(options(Format::Csv)), &texts(&["a", "b"]), vec![whole(&path)], max).unwrap();
        let expected: Vec<[&str; 2]> =
            records.iter().filter(|record| record.len() == 2).map(|record| [&record[0], &record[1]]).collect();
        let (a, b) = (outcome.column("a"), outcome.column("b"));
        let rows: Vec<[&str; 2]> = a.iter().zip(&b)
            .map(|(a, b)| [a.as_deref().unwrap_or(""), b.as_deref().unwrap_or("")]).collect();
        prop_assert_eq!(rows, expected);
        prop_assert_eq!(outcome.rejected.total() as usize, records.iter().filter(|record| record.len() != 2).count());
    }
}

#[test]
fn every_line_of_a_file_of_many_blocks_comes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.txt");
    let text = "the quick brown fox jumps over the lazy dog and runs\n".repeat(100_000);
    fs::write(&path, &text).unwrap();
    let context = SourceContext {
        stage: "in".to_owned(),
        instance_number: 0,
        instances: 1,
        handed: false,
        folder: PathBuf::new(),
        schema: texts(&["line"]),
        places: None,
        ahead: None,
    };
    let mut made = make(&source(options(Format::Lines)), context).unwrap();
    let (mut rows, mut given) = (0, false);
    loop {
        match made.poll(8192).unwrap() {
            Polled::Rows(batch) => rows += batch.num_rows(),
            Polled::Wait(_) => {}
            Polled::NeedSplit => {
                made.split((!given).then(|| whole(&path))).unwrap();
                given = true;
            }
            Polled::End => break,
        }
    }
    assert_eq!(rows, 100_000);
}
