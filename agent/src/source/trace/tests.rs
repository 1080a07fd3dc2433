//! Traces: what a file may hold, and that instances together give every row at its time.

use std::collections::BTreeMap;

use tuplane_core::fault::Spanned;
use tuplane_core::time::{Column, TraceOptions, TraceScale};
use tuplane_expr::arrow::array::AsArray;
use tuplane_expr::arrow::datatypes::{DataType, Field, Int64Type, Schema};

use super::*;
use crate::exchange::priced::Slots;
use crate::source::Polled;

fn options(path: &str, step: Duration) -> TraceSource {
    let scale = TraceScale::Factor(1.0);
    TraceSource {
        path: Spanned::nowhere(path.to_owned()),
        column: None,
        header: None,
        delimiter: ',',
        options: TraceOptions { step, scale, from: 0, rows: None, repeat: false },
        payload: 0,
    }
}

fn context(folder: &Path, number: u32, instances: u32, columns: &[(&str, DataType)]) -> SourceContext {
    let fields: Vec<Field> =
        columns.iter().map(|(name, kind)| Field::new(*name, kind.clone(), true)).collect();
    SourceContext {
        stage: "in".to_owned(),
        instance_number: number,
        instances,
        handed: false,
        folder: folder.to_owned(),
        schema: Arc::new(Schema::new(fields)),
        places: None,
        ahead: None,
    }
}

/// The counts of a file with this text, or the sentence that refuses it, without its folder.
fn read(text: &str, change: impl Fn(&mut TraceSource)) -> Result<Vec<f64>, String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.csv"), text).unwrap();
    let mut options = options("t.csv", Duration::from_secs(1));
    change(&mut options);
    let path = folder.path().join(&options.path.value);
    counts(&options, &path).map_err(|e| e.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

#[test]
fn counts_are_found_by_name_by_place_or_as_the_last_numbers() {
    let text = "time,count,of\n2020-01-01,5,a\n2020-01-02, 2.5 ,b\n";
    assert_eq!(read(text, |_| ()).unwrap(), [5.0, 2.5]);
    let named =
        |name: &'static str| move |o: &mut TraceSource| o.column = Some(Column::Name(name.to_owned()));
    assert_eq!(read(text, named("count")).unwrap(), [5.0, 2.5]);
    assert_eq!(read(text, |o| o.column = Some(Column::Place(2))).unwrap(), [5.0, 2.5]);
    assert_eq!(read("\u{feff}\"n\"\n\n1\n", named("n")).unwrap(), [1.0]);
    let bare = |o: &mut TraceSource| (o.header, o.delimiter) = (Some(false), ';');
    assert_eq!(read("7;x\n8;y\n", bare).unwrap(), [7.0, 8.0]);
    assert_eq!(read("1,2\n3,4\n", |o| o.header = Some(true)).unwrap(), [4.0]);
    assert_eq!(read("5\n", bare).unwrap(), [5.0]);
}

#[test]
fn what_is_no_count_is_named_with_its_place() {
    let named =
        |name: &'static str| move |o: &mut TraceSource| o.column = Some(Column::Name(name.to_owned()));
    for (text, said) in [
        ("", "t.csv: it is empty"),
        ("n\n", "t.csv: it has no line of counts behind the names of its columns"),
        ("a,b\nx,y\n", "t.csv: no column of line 2 is a number; name the `column` that has the counts"),
        ("t,n\n1,2\n1,x\n", "t.csv:3: column `n` is `x`, which is no number; write a number, 0 or more"),
        (
            "t,n\n1,2\n1,-3\n",
            "t.csv:3: column `n` is `-3`, which is less than no row; write a number, 0 or more",
        ),
        ("t,n\n1,2\n1,inf\n", "t.csv:3: column `n` is `inf`, which is no number; write a number, 0 or more"),
        ("t,n\n1,2\n1\n", "t.csv:3: column `n` is not there: the line has 1; write a number, 0 or more"),
        (
            "4\n5\n",
            "t.csv:1: `4` may be a count or the name of a column; set `header = false` if it is a count, else \
             `header = true`",
        ),
    ] {
        assert_eq!(read(text, |_| ()).unwrap_err(), said);
    }
    let said = read("time,count\n1,2\n", named("cuont")).unwrap_err();
    assert_eq!(said, "t.csv: no column is called `cuont`; there are: time, count; did you mean `count`?");
    let said = read("x\ny\n", |o| o.header = Some(false)).unwrap_err();
    assert_eq!(said, "t.csv: no column of line 1 is a number; name the `column` that has the counts");
    assert!(
        read("n\n1\n", |o| o.path.value = "no.csv".to_owned()).unwrap_err().starts_with("cannot read no.csv")
    );
    assert!(read("n\n1\n", |o| o.path.value = ".".to_owned()).unwrap_err().contains("is no regular file"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.csv"), "n\n0\n").unwrap();
    let refused = schedule(&options("t.csv", Duration::from_secs(1)), folder.path()).unwrap_err().to_string();
    assert!(refused.contains("t.csv: every count is 0"), "{refused}");
}

/// Gives an instance's rows at made-up times, a bit late each time: every row with when it was due and given.
fn play(
    trace: &Arc<Trace>,
    (number, instances): (u32, u32),
    late: Duration,
    ahead: Option<(Slots, Duration, u32)>,
) -> BTreeMap<u64, (f64, f64)> {
    let ahead = ahead.map(|(slots, slot, ahead)| Lookahead::new(slots, slot, ahead));
    let context = SourceContext { ahead, ..context(Path::new(""), number, instances, &[]) };
    let mut pace = TracePace::new(Arc::clone(trace), &context);
    let t0 = Instant::now();
    let (mut now, mut next, mut rows) = (t0, u64::from(number), BTreeMap::new());
    while next < trace.rows() {
        match pace.due(100, now) {
            Ok(count) => {
                let left = (trace.rows() - next).div_ceil(u64::from(instances)) as usize;
                let count = count.min(left);
                assert!(count > 0);
                pace.gave(count, now);
                let Schedule { first, seconds } = pace.schedule(count).unwrap();
                for row in 0..count {
                    let due = (first - t0).as_secs_f64() + row as f64 * seconds;
                    assert!(rows.insert(next, (due, (now - t0).as_secs_f64())).is_none());
                    next += u64::from(instances);
                }
            }
            Err(until) => {
                assert!(until > now);
                now = until + late;
            }
        }
    }
    rows
}

#[test]
fn instances_give_every_row_once_when_it_is_due() {
    let counts = [3.0, 0.0, 10.0, 0.5, 0.5, 700.0, 1.0];
    for (step, late) in [(100, 0), (100, 1), (1, 0), (1, 50)] {
        let options = options("", Duration::from_millis(step)).options;
        let trace = Arc::new(Trace::new(&counts, &options).unwrap());
        for instances in [1, 2, 3, 800] {
            let mut rows = BTreeMap::new();
            for number in 0..instances {
                rows.extend(play(&trace, (number, instances), Duration::from_millis(late), None));
            }
            assert_eq!(rows.keys().copied().collect::<Vec<_>>(), (0..715).collect::<Vec<_>>());
            for (row, (due, given)) in rows {
                let expected = trace.step_of(row).unwrap().due(row) as f64 / 1e9;
                assert!((due - expected).abs() < 1e-7, "row {row}: {due} instead of {expected}");
                // At high rates rows leave in runs of half a millisecond.
                let most = expected + late as f64 / 1e3 + 0.0006;
                assert!(given >= due - 1e-7 && given <= most, "row {row}: {given}, due at {due}");
            }
        }
    }
}

#[test]
fn with_a_window_rows_come_as_their_slot_enters_it() {
    let counts = [3.0, 0.0, 10.0, 0.5, 0.5, 700.0, 1.0];
    let slots = Slots::begin();
    for (step, slot, ahead) in [(100, 20, 1), (100, 20, 4), (100, 7, 3), (10, 20, 2)] {
        let options = options("", Duration::from_millis(step)).options;
        let trace = Arc::new(Trace::new(&counts, &options).unwrap());
        let slot_time = Duration::from_millis(slot);
        let mut rows = BTreeMap::new();
        for number in 0..3 {
            let ahead = Some((slots.clone(), slot_time, ahead));
            rows.extend(play(&trace, (number, 3), Duration::ZERO, ahead));
        }
        assert_eq!(rows.keys().copied().collect::<Vec<_>>(), (0..715).collect::<Vec<_>>());
        let slot = slot as f64 / 1e3;
        for (row, (due, given)) in rows {
            let expected = trace.step_of(row).unwrap().due(row) as f64 / 1e9;
            assert!((due - expected).abs() < 1e-7, "row {row}: {due} instead of {expected}");
            // The window reaches to the end of the last of its slots, and begins with the schedule.
            let first = due - f64::from(ahead + 1) * slot;
            let last = (due - f64::from(ahead) * slot).max(0.0);
            assert!(given >= first - 1e-7 && given <= last + 1e-7, "row {row}: {given}, due at {due}");
        }
    }
}

#[test]
fn rows_have_their_number_their_step_and_a_payload() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.csv"), "n\n2\n0\n3\n").unwrap();
    let mut options = options("t.csv", Duration::from_millis(5));
    (options.payload, options.options.repeat, options.options.rows) = (4, true, Some(12));
    let columns = [("step", DataType::Int64), ("id", DataType::Int64), ("payload", DataType::Utf8)];
    let mut rows = BTreeMap::new();
    for number in 0..2 {
        let mut source = make(&options, &context(folder.path(), number, 2, &columns)).unwrap();
        assert!(source.set("rate", &serde_json::json!(1)).unwrap_err().contains("`rate`"));
        loop {
            match source.poll(8192).unwrap() {
                Polled::Rows(batch) => {
                    let column = |place: usize| batch.column(place).as_primitive::<Int64Type>();
                    for row in 0..batch.num_rows() {
                        assert_eq!(batch.column(2).as_string::<i32>().value(row), "abcd");
                        rows.insert(column(1).value(row), column(0).value(row));
                    }
                }
                Polled::Wait(until) => std::thread::sleep(until.saturating_duration_since(Instant::now())),
                Polled::NeedSplit => panic!("it has no splits"),
                Polled::End => break,
            }
        }
    }
    let expected = [0, 0, 2, 2, 2, 0, 0, 2, 2, 2, 0, 0];
    assert_eq!(rows, (0..).zip(expected).collect());
}
