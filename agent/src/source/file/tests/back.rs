//! Splits that are given back in the middle: others go on with exactly the next row.

use tuplane_core::place::{Numbering, SourcePlaces};
use tuplane_wire::scaling::{Rest, SourceUnit};

use super::*;
use crate::engine::due::DueClock;
use crate::source::Source;

/// What it has not read of its split.
fn rest(source: &mut dyn Source) -> Result<Option<Split>, SourceError> {
    let units = source.give_back(&DueClock::begin(0))?;
    assert!(units.len() <= 1, "{units:?}");
    Ok(units.into_iter().next().map(|unit| match unit.rest {
        Rest::Split(split) => split,
        Rest::Rows { .. } => panic!("it reads files"),
    }))
}

/// What is read in the end, by so many polls an instance; every row with its place.
fn relayed(
    source: &job::Source,
    schema: &SchemaRef,
    splits: Vec<Split>,
    (max, polls): (usize, &[usize]),
) -> (Vec<RecordBatch>, u64, usize) {
    let context = || SourceContext {
        stage: "in".to_owned(),
        instance_number: 0,
        instances: 1,
        handed: false,
        folder: PathBuf::new(),
        schema: Arc::clone(schema),
        places: Some(SourcePlaces { source: 0, numbering: Numbering::Cluster }),
        ahead: None,
    };
    let mut left: Vec<Split> = splits.into_iter().rev().collect();
    let (mut batches, mut rejected, mut relays) = (Vec::new(), 0, 0);
    let mut patience = polls.iter().copied().chain(std::iter::repeat(usize::MAX));
    loop {
        let mut reading = make(source, context()).unwrap();
        let mut polls = patience.next().unwrap();
        let ended = loop {
            if polls == 0 {
                let rest = rest(&mut *reading).unwrap();
                relays += usize::from(rest.as_ref().is_some_and(|rest| rest.done.is_some()));
                left.extend(rest);
                polls = usize::MAX;
            }
            polls -= 1;
            match reading.poll(max).unwrap() {
                Polled::Rows(batch) => batches.push(batch),
                Polled::Wait(_) => {}
                Polled::NeedSplit => reading.split(left.pop()).unwrap(),
                Polled::End => break left.is_empty(),
            }
        };
        rejected += reading.rejected().total();
        if ended {
            return (batches, rejected, relays);
        }
    }
}

fn joined(batches: &[RecordBatch]) -> Option<RecordBatch> {
    batches.first().map(|first| concat_batches(&first.schema(), batches).unwrap())
}

proptest! {
    #[test]
    fn no_row_is_lost_or_read_twice_by_those_who_go_on(
        format in 0..4usize,
        lines in prop::collection::vec(("[ab\",{}:1 ]{0,9}", 0..4usize), 0..30),
        marked: bool,
        header: bool,
        size in 4u64..200,
        max in 1usize..5,
        polls in prop::collection::vec(0usize..6, 0..12),
    ) {
        let mut text = if marked { "\u{feff}".to_owned() } else { String::new() };
        if header && format == 2 {
            text.push_str("\na,b\n");
        }
        for (line, kind) in &lines {
            match kind {
                0 => text.push_str("\"a\nb\",1"),
                1 => text.push_str("{\"a\":\"x\",\"b\":\"1\"}"),
                2 => text.push_str("a,b"),
                _ => text.push_str(line),
            }
            text.push_str(if kind % 2 == 0 { "\r\n" } else { "\n" });
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.txt");
        fs::write(&path, &text).unwrap();
        let (file, schema) = match format {
            0 => (options(Format::Lines), texts(&["line"])),
            1 => (options(Format::Jsonl), texts(&["a", "b"])),
            2 => (FileSource { header, ..options(Format::Csv) }, texts(&["a", "b"])),
            _ => (FileSource { quoted_newlines: false, ..options(Format::Csv) }, texts(&["a", "b"])),
        };
        let mut made = source(file);
        made.max_row = Some(14);
        let splits = if format == 2 { vec![whole(&path)] } else { cut(&path, size) };
        let (wanted, refused, _) = relayed(&made, &schema, splits.clone(), (max, &[]));
        let (found, rejected, _) = relayed(&made, &schema, splits, (max, &polls));
        prop_assert_eq!(joined(&found), joined(&wanted));
        prop_assert_eq!(rejected, refused);
    }
}

#[test]
fn a_line_that_is_passed_over_is_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.txt");
    fs::write(&path, format!("a\n{}\nb\n{}\n", "z".repeat(5 << 20), "y".repeat(3 << 20))).unwrap();
    let mut made = source(options(Format::Lines));
    made.max_row = Some(10);
    for polls in 0..12 {
        let (rows, rejected, relays) =
            relayed(&made, &texts(&["line"]), vec![whole(&path)], (1, &[polls, 1, 2]));
        let lines: Vec<String> = rows
            .iter()
            .flat_map(|rows| {
                rows.column(0).as_string::<i32>().iter().flatten().map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!((lines, rejected), (vec!["a".to_owned(), "b".to_owned()], 2), "{polls}");
        assert!(relays > 0 || polls < 2, "{polls}");
    }
}

#[test]
fn a_document_is_given_back_before_it_is_read_and_finished_after() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.json");
    fs::write(&path, r#"[{"a":"1"},{"a":"2"},{"a":"3"}]"#).unwrap();
    let made = source(options(Format::Json));
    for polls in 0..6 {
        let (rows, ..) = relayed(&made, &texts(&["a"]), vec![whole(&path)], (1, &[polls]));
        assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 3, "{polls}");
    }
}

#[test]
fn what_nobody_else_can_go_on_with_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
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
    let mut reading = make(&source(options(Format::Lines)), context).unwrap();
    reading.split(Some(whole(&path))).unwrap();
    let error = rest(&mut *reading).unwrap_err().to_string();
    assert!(error.contains("is a pipe: what was read from it cannot be read again"), "{error}");
    // It goes on as if nothing had been asked.
    let writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::io::Write::write_all(&mut &writer, b"a\n").unwrap();
    drop(writer);
    let rows = loop {
        match reading.poll(10).unwrap() {
            Polled::Rows(rows) => break rows.num_rows(),
            Polled::Wait(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(rows, 1);
}

/// Of two readers one takes what the other has not read, at any moment: it reads that before it goes on with its own.
#[test]
fn who_takes_a_split_reads_it_first_and_goes_on_with_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.txt");
    let lines: Vec<String> = (0..40).map(|n| format!("{n}\n")).collect();
    fs::write(&path, lines.concat()).unwrap();
    let made = source(options(Format::Lines));
    let context = |handed| SourceContext {
        stage: "in".to_owned(),
        instance_number: u32::from(handed),
        instances: 1,
        handed,
        folder: PathBuf::new(),
        schema: texts(&["line"]),
        places: None,
        ahead: None,
    };
    let lines = |rows: &RecordBatch| -> Vec<u32> {
        rows.column(0).as_string::<i32>().iter().flatten().map(|line| line.parse().unwrap()).collect()
    };
    for (first, second) in [(0, 0), (1, 3), (3, 1), (9, 9)] {
        for handed in [false, true] {
            let clock = DueClock::begin(0);
            let splits = cut(&path, 55);
            let mut waiting: Vec<Split> = splits.into_iter().rev().collect();
            let (mut giver, mut taker) =
                (make(&made, context(false)).unwrap(), make(&made, context(handed)).unwrap());
            assert_eq!((taker.has(None), taker.has(Some(0))), (!handed, false));
            let mut found = Vec::new();
            let mut read = |source: &mut Box<dyn Source>, found: &mut Vec<u32>, polls: usize| {
                for _ in 0..polls {
                    match source.poll(2).unwrap() {
                        Polled::Rows(rows) => found.extend(lines(&rows)),
                        Polled::Wait(_) => {}
                        Polled::NeedSplit => source.split(waiting.pop()).unwrap(),
                        Polled::End => return,
                    }
                }
            };
            read(&mut giver, &mut found, first);
            if !handed {
                read(&mut taker, &mut found, second);
            }
            let units: Vec<SourceUnit> = giver.give_back(&clock).unwrap();
            let numbers: Vec<u32> = units.iter().map(SourceUnit::number).collect();
            assert!(units.len() <= 1, "{units:?}");
            assert!(matches!(giver.poll(2).unwrap(), Polled::End));
            taker.take(units, &clock).unwrap();
            if let [number] = numbers[..] {
                assert!(taker.has(Some(number)));
                let mut next = Vec::new();
                while next.is_empty() {
                    read(&mut taker, &mut next, 1);
                }
                assert_eq!(taker.unit(), Some(number));
                found.extend(next);
            }
            read(&mut taker, &mut found, 1000);
            assert!(numbers.iter().all(|number| !taker.has(Some(*number))));
            found.sort_unstable();
            assert_eq!(found, (0..40).collect::<Vec<u32>>(), "{first} {second} {handed}");
        }
    }
}
