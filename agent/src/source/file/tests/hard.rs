//! Pipes without a writer, files that change, quotes that never close, numbers that are too large.

use std::io::Write;
use std::time::{Duration, Instant};

use super::super::csv::Records;
use super::super::lines::Lines;
use super::*;
use crate::source::Source;
use crate::source::columns::Columns;

fn files(file: FileSource, schema: &SchemaRef) -> Box<dyn Source> {
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
    make(&source(file), context).unwrap()
}

fn pipe() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    (folder, path)
}

/// Polls that must each be short and give nothing.
fn gives_nothing(source: &mut dyn Source) {
    for _ in 0..5 {
        let start = Instant::now();
        assert!(matches!(source.poll(100).unwrap(), Polled::Wait(_)));
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
}

/// Rows up to the end of the split.
fn drain(source: &mut dyn Source) -> usize {
    let (mut rows, start) = (0, Instant::now());
    loop {
        assert!(start.elapsed() < Duration::from_secs(20));
        match source.poll(100).unwrap() {
            Polled::Rows(batch) => rows += batch.num_rows(),
            Polled::Wait(_) => {}
            Polled::NeedSplit | Polled::End => return rows,
        }
    }
}

#[test]
fn a_pipe_is_not_waited_for_and_what_is_written_later_is_all_there() {
    let (_folder, path) = pipe();
    let schema = texts(&["line"]);
    let mut cancelled = files(options(Format::Lines), &schema);
    cancelled.split(Some(whole(&path))).unwrap();
    gives_nothing(&mut *cancelled);
    drop(cancelled);
    let mut next = files(options(Format::Lines), &schema);
    next.split(Some(whole(&path))).unwrap();
    gives_nothing(&mut *next);
    let mut writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
    // A writer that has written nothing yet is no end either.
    gives_nothing(&mut *next);
    let writing = std::thread::spawn(move || {
        for number in 0..1000 {
            writeln!(writer, "{number} {}", "x".repeat(300)).unwrap();
        }
    });
    assert_eq!(drain(&mut *next), 1000);
    writing.join().unwrap();
}

#[test]
fn a_document_may_come_through_a_pipe() {
    let (_folder, path) = pipe();
    let schema = schema(&[("n", DataType::Int64)]);
    let file = FileSource {
        columns: vec![(Spanned::nowhere("n".to_owned()), Spanned::nowhere("bigint".to_owned()))],
        ..options(Format::Json)
    };
    let mut document = files(file, &schema);
    document.split(Some(whole(&path))).unwrap();
    gives_nothing(&mut *document);
    let mut writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
    writer.write_all(b"[{\"n\": 1},").unwrap();
    gives_nothing(&mut *document);
    writer.write_all(b" {\"n\": 2}]").unwrap();
    drop(writer);
    assert_eq!(drain(&mut *document), 2);
}

#[test]
fn the_header_of_a_pipe_is_not_looked_at() {
    let (_folder, path) = pipe();
    let said = csv_header(&path, ',').unwrap_err().to_string();
    assert!(said.contains("no regular file"), "{said}");
}

#[test]
fn a_file_that_was_cut_or_replaced_since_submit_is_no_whole_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.txt");
    let text = "line\n".repeat(100_000);
    let mut file = options(Format::Lines);
    file.paths = vec![Spanned::nowhere(path.display().to_string())];
    let splits = || {
        fs::write(&path, &text).unwrap();
        splits(&file, Path::new("/"), 1).unwrap()
    };
    let schema = texts(&["line"]);
    // One that grows is fine.
    let made = splits();
    assert!(made.len() > 1);
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"more\n").unwrap();
    let rows = run(&source(file.clone()), &schema, made, 100).unwrap().rows.num_rows();
    assert_eq!(rows, 100_001);
    let changed = format!("{} has changed while the job read it (was 500000 bytes, is ", path.display());
    // Cut before it is opened.
    let made = splits();
    fs::write(&path, "line\n").unwrap();
    let said = run(&source(file.clone()), &schema, made, 100).err().unwrap().to_string();
    assert_eq!(said, format!("{changed}5)"));
    // Cut while it is read.
    let made = splits();
    let mut reading = files(file.clone(), &schema);
    reading.split(Some(Split { end: u64::MAX, ..made[0].clone() })).unwrap();
    assert!(matches!(reading.poll(10).unwrap(), Polled::Rows(_)));
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5).unwrap();
    let said = loop {
        match reading.poll(8192) {
            Ok(Polled::NeedSplit) => panic!("it ended"),
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    assert_eq!(said, format!("{changed}5)"));
    // Another file of the same length.
    let made = splits();
    fs::write(folder.path().join("new"), &text).unwrap();
    fs::rename(folder.path().join("new"), &path).unwrap();
    let said = run(&source(file.clone()), &schema, made, 100).err().unwrap().to_string();
    assert_eq!(said, format!("{changed}500000): another file has its name"));
    // What a file is called by on another machine says nothing.
    let mut made = splits();
    for split in &mut made {
        let seen = split.seen.as_mut().unwrap();
        (seen.machine, seen.inode) = (seen.machine ^ 1, 0);
    }
    assert_eq!(run(&source(file), &schema, made, 100).unwrap().rows.num_rows(), 100_000);
}

#[test]
fn a_name_that_is_not_utf8_is_named_and_a_shut_folder_is_passed_over() {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let mut file = options(Format::Lines);
    let pattern = |text: &str| vec![Spanned::nowhere(format!("{}/{text}", folder.path().display()))];
    fs::write(folder.path().join("a.x"), "a\n").unwrap();
    let shut = folder.path().join("shut");
    fs::create_dir(&shut).unwrap();
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o000)).unwrap();
    for text in ["*.x", "**/*.x"] {
        file.paths = pattern(text);
        assert_eq!(splits(&file, Path::new("/"), 1).unwrap().len(), 1, "{text}");
    }
    fs::write(folder.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9.x")), "b\n").unwrap();
    for text in ["*.x", "**/*.x"] {
        file.paths = pattern(text);
        let said = splits(&file, Path::new("/"), 1).unwrap_err().to_string();
        assert!(said.contains("is not UTF-8; rename it"), "{said}");
    }
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_number_that_is_too_large_for_its_type_is_a_bad_line() {
    let column =
        |name: &str, named: &str| (Spanned::nowhere(name.to_owned()), Spanned::nowhere(named.to_owned()));
    let file =
        FileSource { columns: vec![column("d", "double"), column("f", "real")], ..options(Format::Csv) };
    let schema = schema(&[("d", DataType::Float64), ("f", DataType::Float32)]);
    let text = "1e400,1\n1,1e39\ninf,-Infinity\n1e308,1e38\n-1e999,\nNaN,0\n,1\n";
    let outcome = read(file, &schema, text).unwrap();
    assert_eq!(outcome.rows.num_rows(), 4);
    assert_eq!(outcome.rejected.total(), 3);
    assert!(
        outcome.last().contains("in.txt:5: column `d`: `-1e999` is not of type double"),
        "{}",
        outcome.last()
    );
    let file = FileSource { columns: vec![column("d", "double")], ..options(Format::Jsonl) };
    let schema = self::schema(&[("d", DataType::Float64)]);
    let outcome = read(file, &schema, "{\"d\": 1e400}\n{\"d\": 1}\n").unwrap();
    assert_eq!((outcome.rows.num_rows(), outcome.rejected.total()), (1, 1));
}

/// Reads a csv file of two text columns: the records' first fields, the lines refused, the bytes read.
fn quotes(text: &str, max_row: usize) -> (Vec<String>, Vec<(u64, &'static str)>, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.csv");
    fs::write(&path, text).unwrap();
    let file = options(Format::Csv);
    let mut columns = Columns::from_texts(&texts(&["a", "b"]), &file).unwrap();
    let mut records = Records::new(&file, &columns, max_row).unwrap();
    let mut lines = Lines::open(&whole(&path), Path::new("/"), max_row).unwrap();
    records.begin(&path, true, &columns).unwrap();
    let (mut refused, mut first) = (Vec::new(), Vec::new());
    loop {
        let all = records.read(&mut lines, 1000, &mut columns, &mut refused).unwrap();
        if columns.rows() > 0 {
            let batch = columns.finish().unwrap().0;
            first.extend(batch.column(0).as_string::<i32>().iter().map(|text| text.unwrap_or("").to_owned()));
        }
        if matches!(all, super::super::csv::Gathered::All) {
            let refused = refused.into_iter().filter(|refusal| !refusal.why.contains("expected"));
            return (first, refused.map(|refusal| (refusal.line, refusal.reason)).collect(), lines.read);
        }
    }
}

/// Leaves quotes open at its end, whether it begins within quotes or not.
const OPENS: &str = "x\"x,\"y\n";

#[test]
fn quotes_that_never_close_cost_a_few_looks_and_not_one_each() {
    // A stray quote in every line: to the end of the file, and to the longest row.
    let text = OPENS.repeat(200_000);
    for max_row in [16 << 20, 10_000, 100_000] {
        let (rows, refused, read) = quotes(&text, max_row);
        assert_eq!((rows.len(), refused.len()), (0, 200_000));
        assert!(read < 12 * text.len() as u64, "{read} bytes of {} were read", text.len());
    }
    // The one that closes them all stands at the end.
    let text = format!("{}1,x\"\n2,y\n", OPENS.repeat(100_000));
    for max_row in [10_000, 100_000] {
        let (rows, refused, read) = quotes(&text, max_row);
        assert_eq!(rows.last().map(String::as_str), Some("2"));
        assert!(refused.len() > 70_000, "{}", refused.len());
        assert!(read < 14 * text.len() as u64, "{read} bytes of {} were read", text.len());
    }
}

/// What comes of a text by the rule alone: each opening is followed to its end.
fn by_the_rule(text: &str, max_row: usize) -> (Vec<String>, Vec<(u64, &'static str)>) {
    let ended = text.ends_with('\n') || text.is_empty();
    let mut lines: Vec<&str> = text.split('\n').collect();
    if ended {
        lines.pop();
    }
    let (mut whole, mut refused, mut at) = (Vec::new(), Vec::new(), 0);
    while at < lines.len() {
        let number = at as u64 + 1;
        if lines[at].len() > max_row {
            refused.push((number, Rejected::TOO_LONG));
            at += 1;
            continue;
        }
        let (mut record, mut state, mut next) = (String::new(), Quote::FieldStart, at);
        let verdict = loop {
            let Some(line) = lines.get(next) else { break Some(Rejected::BAD_LINE) };
            if line.len() > max_row {
                break Some(Rejected::TOO_LONG);
            }
            if next == at && line.is_empty() {
                next += 1;
                break None;
            }
            state = scan(line.as_bytes(), b',', state);
            record.push_str(line);
            next += 1;
            if state != Quote::Quoted {
                break (record.len() > max_row && next > at + 1).then_some(Rejected::TOO_LONG);
            }
            if next < lines.len() || ended {
                record.push('\n');
            }
            if record.len() > max_row {
                break Some(Rejected::TOO_LONG);
            }
        };
        if let Some(reason) = verdict {
            refused.push((number, reason));
            at += 1;
            continue;
        }
        if !record.is_empty() {
            whole.push(record);
        }
        at = next;
    }
    (whole, refused)
}

proptest! {
    #[test]
    fn what_was_looked_up_once_changes_no_result(text in "[a\",\n]{0,120}", max_row in 1_usize..40) {
        let (rows, refused, _) = quotes(&text, max_row);
        let (whole, expected) = by_the_rule(&text, max_row);
        prop_assert_eq!(refused, expected);
        let two = whole.iter().filter_map(|record| {
            let mut reader = ::csv::ReaderBuilder::new().has_headers(false).from_reader(record.as_bytes());
            let mut parsed = ::csv::StringRecord::new();
            (reader.read_record(&mut parsed).unwrap() && parsed.len() == 2).then(|| parsed[0].to_owned())
        });
        prop_assert_eq!(rows, two.collect::<Vec<_>>());
    }
}
