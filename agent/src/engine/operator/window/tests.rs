//! A window in two stages, of which one instance falls idle while it holds rows.

use std::sync::Arc;

use tuplane_core::job::{OnError, Text, Window, WindowKind};
use tuplane_expr::arrow::array::{ArrayRef, AsArray, Int64Array, TimestampNanosecondArray};
use tuplane_expr::arrow::datatypes::Int64Type;
use tuplane_expr::system::{SystemColumn, with_column};
use tuplane_expr::{Determinism, Language};

use super::*;

fn rows(times: &[i64]) -> RecordBatch {
    let x: ArrayRef = Arc::new(Int64Array::from_iter_values(times.iter().copied()));
    let rows = RecordBatch::try_from_iter_with_nullable([("x", x, true)]).unwrap();
    with_column(&rows, SystemColumn::Ts, Arc::new(TimestampNanosecondArray::from(times.to_vec()))).unwrap()
}

fn windowed(role: Role) -> Windowed {
    let size = Some(Duration::from_nanos(10));
    let window = Window { kind: WindowKind::Tumbling, size, slide: None, early: None };
    let compute = [Text::nowhere("count(*) as n".to_owned())];
    let schema = rows(&[]).project(&[0]).unwrap().schema();
    let language = Language::new(Determinism::Required);
    let program = WindowProgram::compile(language, &[], &window, &compute, &schema, OnError::Fail).unwrap();
    Windowed::new("counted", program, role, 13).unwrap()
}

fn pulled(operator: &mut Windowed) -> Vec<RecordBatch> {
    std::iter::from_fn(|| operator.pull(100, 1 << 20).unwrap()).collect()
}

fn counts(given: &[RecordBatch]) -> Vec<i64> {
    let of =
        |rows: &RecordBatch| rows.column_by_name("n").unwrap().as_primitive::<Int64Type>().values().to_vec();
    given.iter().flat_map(of).collect()
}

#[test]
fn an_instance_that_falls_idle_gives_what_it_holds_first() {
    let (mut idle, mut busy, mut last) =
        (windowed(Role::Prepare), windowed(Role::Prepare), windowed(Role::Combine));
    idle.watermark(105).unwrap();
    idle.push(0, rows(&[105, 106]), None).unwrap();
    busy.push(0, rows(&[101, 102, 103]), None).unwrap();
    idle.idle().unwrap();
    busy.watermark(200).unwrap();
    for partial in pulled(&mut idle).into_iter().chain(pulled(&mut busy)) {
        last.push(0, partial, None).unwrap();
    }
    last.watermark(200).unwrap();
    assert_eq!(counts(&pulled(&mut last)), [5]);
    assert!(last.take_dropped().is_empty());
    // It wakes too late for one row, which stands in a partial result by now.
    idle.push(0, rows(&[107, 108]), None).unwrap();
    idle.end().unwrap();
    for partial in pulled(&mut idle) {
        last.push(0, partial, None).unwrap();
    }
    assert_eq!(last.take_dropped(), DroppedRows::from([(DROPPED_PARTS_AS_LATE.to_owned(), 1)]));
    assert!(last.take_remark().unwrap().message.starts_with("a partial result of rows from"));
}

#[test]
fn a_window_of_one_stage_keeps_what_it_holds_when_it_falls_idle() {
    let mut whole = windowed(Role::Whole);
    whole.push(0, rows(&[105, 106]), None).unwrap();
    whole.idle().unwrap();
    assert!(pulled(&mut whole).is_empty());
    whole.push(0, rows(&[107]), None).unwrap();
    whole.end().unwrap();
    assert_eq!(counts(&pulled(&mut whole)), [3]);
}
