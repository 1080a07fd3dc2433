//! Sinks into real folders, and what a source makes of the files again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tuplane_core::fault::Spanned;
use tuplane_core::job::{self, BadLine, Encoding, FileSource, Format, SinkConnector, SinkFormat, SinkKind};
use tuplane_expr::arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMillisecondArray, TimestampNanosecondArray,
};
use tuplane_expr::arrow::compute::concat_batches;
use tuplane_wire::message::{SinkFile, Split};

use super::{Parts, Sink, SinkContext, SinkError, make, make_empty, seal};
use crate::source::{self, Polled, SourceContext};

fn sink(connector: SinkConnector) -> job::Sink {
    job::Sink {
        kind: SinkKind::Default,
        key: Vec::new(),
        preferred_parallelism: None,
        connector: Some(connector),
    }
}

fn file(format: SinkFormat) -> job::Sink {
    sink(SinkConnector::File { path: Spanned::nowhere("out/deep".to_owned()), format, shared: true })
}

fn context(folder: &Path, rows: &RecordBatch) -> SinkContext {
    SinkContext {
        job: "job".to_owned(),
        run: 9,
        attempt: 1,
        stage: "out".to_owned(),
        instance_number: 2,
        agent: "a1".to_owned(),
        folder: folder.to_owned(),
        schema: rows.schema(),
        parts: Parts::default(),
    }
}

fn texts(columns: &[(&str, &[Option<&str>])]) -> RecordBatch {
    let column = |values: &[Option<&str>]| Arc::new(StringArray::from(values.to_vec())) as ArrayRef;
    RecordBatch::try_from_iter_with_nullable(
        columns.iter().map(|(name, values)| (*name, column(values), true)),
    )
    .unwrap()
}

fn typed() -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([
        ("n", Arc::new(Int64Array::from(vec![Some(-5), None])) as ArrayRef, true),
        ("t", Arc::new(StringArray::from(vec![Some(""), None])), true),
        ("x", Arc::new(Float64Array::from(vec![Some(0.1), None])), true),
        ("b", Arc::new(BooleanArray::from(vec![Some(true), None])), true),
        ("at", Arc::new(TimestampMillisecondArray::from(vec![Some(1_709_168_523_004), None])), true),
        ("day", Arc::new(Date32Array::from(vec![Some(19_782), None])), true),
        ("raw", Arc::new(BinaryArray::from(vec![Some(b"\x00\xffA".as_slice()), None])), true),
    ])
    .unwrap()
}

fn write(sink: &mut dyn Sink, rows: &RecordBatch) -> Vec<SinkFile> {
    sink.write(rows).unwrap();
    sink.finish().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn csv_is_hidden_until_it_is_sealed() {
    let folder = tempfile::tempdir().unwrap();
    let mut out = make(&file(SinkFormat::Csv), context(folder.path(), &typed())).unwrap();
    out.write(&typed().slice(0, 0)).unwrap();
    let at = folder.path().join("out/deep");
    assert!(names(&at).is_empty(), "no row, no file");
    out.write(&typed()).unwrap();
    let parts = write(&mut *out, &typed());
    assert_eq!(names(&at), [".out-2-1-0.csv.part"]);
    let sealed = seal(&parts).unwrap();
    assert_eq!(names(&at), ["out-2-1-0.csv"]);
    assert_eq!(seal(&parts).unwrap(), sealed, "again");
    assert_eq!(seal(&sealed).unwrap(), sealed, "and of what is sealed");
    let row = "-5,\"\",0.1,true,2024-02-29T01:02:03.004Z,2024-02-29,00ff41\n,,,,,,\n";
    let text = fs::read_to_string(&sealed[0].path).unwrap();
    assert_eq!(text, format!("n,t,x,b,at,day,raw\n{row}{row}"));
    assert_eq!((sealed[0].rows, sealed[0].bytes), (4, text.len() as u64));
    assert_eq!((sealed[0].agent.as_str(), sealed[0].stage.as_str()), ("a1", "out"));
}

#[test]
fn a_run_names_or_removes_the_parts_that_are_open() {
    let folder = tempfile::tempdir().unwrap();
    let context = context(folder.path(), &typed());
    let parts = context.parts.clone();
    let mut open = make(&file(SinkFormat::Csv), context.clone()).unwrap();
    assert!(parts.left().is_empty());
    open.write(&typed()).unwrap();
    let sealed = seal(&write(&mut *make(&file(SinkFormat::Csv), context).unwrap(), &typed())).unwrap();
    drop(open);
    let left = parts.left();
    assert_eq!(left.len(), 1, "what is visible is no part any more: {left:?}");
    assert!(left[0].path.ends_with("out/deep/.out-2-1-0.csv.part"), "{left:?}");
    assert_eq!((left[0].rows, left[0].bytes), (2, fs::metadata(&left[0].path).unwrap().len()));
    assert!(left[0].bytes > 0, "what was written before the end is in it");
    assert!(parts.remove().is_empty());
    assert!(parts.left().is_empty());
    assert_eq!(names(&folder.path().join("out/deep")), ["out-2-1-1.csv"]);
    assert!(Path::new(&sealed[0].path).exists());
}

#[test]
fn jsonl_leaves_out_what_has_no_value() {
    let folder = tempfile::tempdir().unwrap();
    let mut out = make(&file(SinkFormat::Jsonl), context(folder.path(), &typed())).unwrap();
    let sealed = seal(&write(&mut *out, &typed())).unwrap();
    assert!(sealed[0].path.ends_with("out/deep/out-2-1-0.jsonl"));
    let text = fs::read_to_string(&sealed[0].path).unwrap();
    let row = r#"{"n":-5,"t":"","x":0.1,"b":true,"at":"2024-02-29T01:02:03.004Z","day":"2024-02-29","raw":"00ff41"}"#;
    assert_eq!(text, format!("{row}\n{{}}\n"));
}

#[test]
fn no_file_of_another_run_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let rows = texts(&[("a", &[Some("x")])]);
    let make = || make(&file(SinkFormat::Csv), context(folder.path(), &rows)).unwrap();
    let first = seal(&write(&mut *make(), &rows)).unwrap();
    let stale = write(&mut *make(), &rows);
    let third = seal(&write(&mut *make(), &rows)).unwrap();
    let at = folder.path().join("out/deep");
    assert_eq!(names(&at), [".out-2-1-1.csv.part", "out-2-1-0.csv", "out-2-1-2.csv"]);
    assert_ne!(first[0].path, third[0].path);
    fs::write(at.join("out-2-1-1.csv"), "theirs").unwrap();
    let fault = seal(&stale).unwrap_err().to_string();
    assert!(fault.contains("out-2-1-1.csv exists already"), "{fault}");
    assert_eq!(fs::read_to_string(at.join("out-2-1-1.csv")).unwrap(), "theirs");
    fs::remove_file(at.join("out-2-1-1.csv")).unwrap();
    fs::remove_file(at.join(".out-2-1-1.csv.part")).unwrap();
    assert!(matches!(seal(&stale), Err(SinkError::File { .. })), "a part that is gone is an error");
}

#[test]
fn an_empty_result_is_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let rows = texts(&[("a b", &[]), ("c,d", &[])]);
    let mut out = make(&file(SinkFormat::Csv), context(folder.path(), &rows)).unwrap();
    assert_eq!(out.finish().unwrap(), []);
    let made = make_empty(&file(SinkFormat::Csv), context(folder.path(), &rows)).unwrap().unwrap();
    assert_eq!(fs::read_to_string(&made.path).unwrap(), "a b,\"c,d\"\n");
    assert_eq!(make_empty(&file(SinkFormat::Csv), context(folder.path(), &rows)).unwrap().unwrap(), made);
    assert_eq!(names(&folder.path().join("out/deep")), ["out-2-1-0.csv"]);
    let made = make_empty(&file(SinkFormat::Jsonl), context(folder.path(), &rows)).unwrap().unwrap();
    assert_eq!(fs::read_to_string(&made.path).unwrap(), "");
    assert!(make_empty(&sink(SinkConnector::Count), context(folder.path(), &rows)).unwrap().is_none());
}

#[test]
fn stdout_is_a_file_in_the_agents_folder() {
    let folder = tempfile::tempdir().unwrap();
    let rows = texts(&[("a", &[Some("x"), None])]);
    let stdout = sink(SinkConnector::Stdout { format: SinkFormat::Csv });
    let mut out = make(&stdout, context(folder.path(), &rows)).unwrap();
    let sealed = seal(&write(&mut *out, &rows)).unwrap();
    assert_eq!(sealed[0].path, folder.path().join("stdout-9-out-2-1-0.csv").display().to_string());
    // A lone missing value is not a blank line: that would not be read as a row.
    assert_eq!(fs::read_to_string(&sealed[0].path).unwrap(), "a\nx\n\"\"\n");
}

#[test]
fn ledger_says_where_and_when() {
    let folder = tempfile::tempdir().unwrap();
    let rows =
        RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(vec![7, 8])) as ArrayRef)]).unwrap();
    let ledger = |id: &str| {
        sink(SinkConnector::Ledger {
            path: Spanned::nowhere("ledger".to_owned()),
            id: Spanned::nowhere(id.to_owned()),
        })
    };
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let before = now();
    let lines = |arrivals: Option<TimestampNanosecondArray>| -> Vec<Vec<String>> {
        let mut out = make(&ledger("id"), context(folder.path(), &rows)).unwrap();
        match arrivals {
            Some(arrivals) => out.write_arrived(&rows, &arrivals).unwrap(),
            None => out.write(&rows).unwrap(),
        }
        let sealed = seal(&write(&mut *out, &rows)).unwrap();
        assert_eq!(sealed[0].rows, 4);
        let text = fs::read_to_string(&sealed[0].path).unwrap();
        text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
    };
    let known = lines(Some(TimestampNanosecondArray::from(vec![None, Some(2)])));
    assert_eq!(known[0].join(","), "id,instance,agent,arrival_ns,done_ns");
    assert_eq!(known[2][..4], ["8", "2", "a1", "2"]);
    let done: u128 = known[4][4].parse().unwrap();
    assert!(before <= done + 50_000_000 && done <= now() + 50_000_000);
    for line in [&known[1], &lines(None)[1]] {
        let [arrival, done] = [3, 4].map(|column| line[column].parse::<u128>().unwrap());
        assert!(arrival + 50_000_000 >= before && arrival <= done);
    }
    let Err(fault) = make(&ledger("row"), context(folder.path(), &rows)) else { panic!("must fail") };
    assert_eq!(fault.to_string(), "ledger `out`: there is no column `row`; its rows have: id");
}

#[test]
fn errors_name_path_and_cause() {
    let folder = tempfile::tempdir().unwrap();
    let rows = texts(&[("a", &[Some("x")])]);
    fs::write(folder.path().join("out"), "a file").unwrap();
    let refused = || {
        let Err(fault) = make(&file(SinkFormat::Csv), context(folder.path(), &rows)) else {
            panic!("must fail")
        };
        fault.to_string()
    };
    let fault = refused();
    assert!(fault.starts_with("cannot make the folder ") && fault.contains("out/deep: "), "{fault}");
    fs::remove_file(folder.path().join("out")).unwrap();
    fs::create_dir_all(folder.path().join("out")).unwrap();
    fs::write(folder.path().join("out/deep"), "a file").unwrap();
    let fault = refused();
    assert!(fault.ends_with("out/deep is a file; a sink writes into a folder"), "{fault}");
    fs::remove_file(folder.path().join("out/deep")).unwrap();
    fs::create_dir_all(folder.path().join("out/deep")).unwrap();
    fs::set_permissions(folder.path().join("out/deep"), fs::Permissions::from_mode(0o500)).unwrap();
    if fs::write(folder.path().join("out/deep/probe"), "").is_ok() {
        println!("skipped: this user may write anywhere");
        return;
    }
    let fault = refused();
    assert!(fault.starts_with("cannot write into ") && fault.contains("Permission denied"), "{fault}");
}

#[test]
fn folders_are_there_before_the_first_row_and_go_again_if_the_job_never_began() {
    let folder = tempfile::tempdir().unwrap();
    let rows = texts(&[("a", &[Some("x")])]);
    fs::create_dir(folder.path().join("out")).unwrap();
    let context = context(folder.path(), &rows);
    let mut out = make(&file(SinkFormat::Csv), context.clone()).unwrap();
    assert!(folder.path().join("out/deep").is_dir());
    write(out.as_mut(), &rows);
    assert!(context.parts.remove().is_empty());
    assert!(names(&folder.path().join("out")).is_empty(), "what was there before stays, no more");
}

#[test]
fn a_time_that_no_calendar_has_is_refused_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![Some(5), Some(i64::MAX)]));
    let rows = RecordBatch::try_from_iter_with_nullable([("at", times, true)]).unwrap();
    for format in [SinkFormat::Csv, SinkFormat::Jsonl] {
        let mut out = make(&file(format), context(folder.path(), &rows)).unwrap();
        let fault = out.write(&rows).unwrap_err().to_string();
        assert!(
            fault.starts_with("row 1 of a batch: column `at` cannot be written: "),
            "{format:?}: {fault}"
        );
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let rows = texts(&[("a", &[Some("x")])]);
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
        println!("skipped: there is no /dev/full");
        return;
    };
    drop(full);
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("out/deep")).unwrap();
    let context = context(folder.path(), &rows);
    let place = super::part::Place::in_folder("out/deep", "csv", &context);
    let part = super::part::Part::create_at(&place, Path::new("/dev/full"));
    let mut part = part.unwrap();
    let written = part.append(&vec![b'x'; 1 << 20], 1).and_then(|()| part.finish().map(drop));
    let fault = written.unwrap_err().to_string();
    assert!(fault.contains("/dev/full: No space left"), "{fault}");
}

/// Reads csv with a header back.
fn read_back(path: &str, columns: &RecordBatch) -> RecordBatch {
    let source = job::Source {
        kind: job::SourceKind::Batch,
        distributed: true,
        timestamps: job::Timestamps::None,
        connector: Some(job::SourceConnector::File(FileSource {
            paths: Vec::new(),
            format: Format::Csv,
            encoding: Encoding::Utf8,
            columns: Vec::new(),
            header: true,
            delimiter: ',',
            quoted_newlines: true,
            files: job::Files::Shared,
            split: None,
            on_bad_line: BadLine::Fail,
        })),
        time: None,
        on: Vec::new(),
        rate: None,
        max_row: None,
        window: None,
        predictor: None,
    };
    let context = SourceContext {
        stage: "in".to_owned(),
        instance_number: 0,
        instances: 1,
        handed: false,
        folder: PathBuf::new(),
        schema: columns.schema(),
        places: None,
        ahead: None,
    };
    let mut source = source::make(&source, context).unwrap();
    let mut split =
        Some(Split { number: 0, path: path.to_owned(), start: 0, end: u64::MAX, seen: None, done: None });
    let mut batches = Vec::new();
    loop {
        match source.poll(100).unwrap() {
            Polled::Rows(batch) => batches.push(batch),
            Polled::Wait(_) => {}
            Polled::NeedSplit => source.split(split.take()).unwrap(),
            Polled::End => return concat_batches(&columns.schema(), &batches).unwrap(),
        }
    }
}

fn round_trip(rows: &RecordBatch) {
    let folder = tempfile::tempdir().unwrap();
    let mut out = make(&file(SinkFormat::Csv), context(folder.path(), rows)).unwrap();
    let sealed = seal(&write(&mut *out, rows)).unwrap();
    assert_eq!(&read_back(&sealed[0].path, rows), rows);
}

#[test]
fn typed_rows_survive_csv() {
    let rows = typed();
    round_trip(&rows.project(&[0, 1, 2, 3, 4, 5]).unwrap());
}

#[test]
fn naughty_strings_survive_csv() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/text-naughty-strings/blns.json");
    let Ok(text) = fs::read_to_string(path) else {
        tuplane_testbed::skip::skip("naughty_strings", "../shared/data/text-naughty-strings");
        return;
    };
    let strings: Vec<String> = serde_json::from_str(&text).unwrap();
    assert_eq!(strings.len(), 515);
    let values: Vec<Option<&str>> = strings.iter().map(|text| Some(text.as_str())).collect();
    let mut shifted: Vec<Option<&str>> = values.clone();
    shifted.rotate_left(1);
    shifted[7] = None;
    round_trip(&texts(&[("one", &values), ("two\n\"", &shifted)]));
    round_trip(&texts(&[("alone", &values)]));
    let hostile = [
        Some("\r"),
        Some("a\r\nb\n\nc"),
        Some("\""),
        Some(","),
        Some(" pad "),
        Some("\u{feff}"),
        None,
        Some(""),
    ];
    round_trip(&texts(&[("\u{feff}name", &hostile), ("b", &hostile)]));
}

proptest::proptest! {
    #[test]
    fn any_texts_survive_csv(values in proptest::collection::vec(proptest::option::of("[a\",\r\n\\PC]{0,8}"), 2..20)) {
        let left: Vec<Option<&str>> = values.iter().map(Option::as_deref).collect();
        let mut right = left.clone();
        right.reverse();
        round_trip(&texts(&[("l", &left), ("r", &right)]));
    }
}

#[test]
fn text_columns_are_written_as_they_are() {
    let rows = texts(&[("a", &[Some("plain"), Some("q\"q"), Some("c,c"), Some("n\nn")])]);
    let mut text = Vec::new();
    super::csv::push_rows(&rows, &mut text).unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), "plain\n\"q\"\"q\"\n\"c,c\"\n\"n\nn\"\n");
}
