//! Whatever comes when: a row is given once, never before it arrives, and as soon as it has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tuplane_expr::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use tuplane_expr::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use tuplane_expr::system::{SystemColumn, with_column};

use super::*;
use crate::engine::rows::Budget;

/// Numbered rows with their arrivals, and their event times if there are any.
fn rows(budget: &Arc<Budget>, ids: &[i64], dues: &[Option<i64>], times: Option<&[i64]>) -> Rows {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true)]));
    let ids: ArrayRef = Arc::new(Int64Array::from(ids.to_vec()));
    let dues = Arc::new(TimestampNanosecondArray::from(dues.to_vec()));
    let mut batch = RecordBatch::try_new(schema, vec![ids]).unwrap();
    batch = with_column(&batch, SystemColumn::Due, dues).unwrap();
    if let Some(times) = times {
        let times = Arc::new(TimestampNanosecondArray::from(times.to_vec()));
        batch = with_column(&batch, SystemColumn::Ts, times).unwrap();
    }
    Rows::new(batch, None, budget).unwrap()
}

fn ids(rows: &Rows) -> Vec<i64> {
    rows.batch().column(0).as_primitive::<Int64Type>().values().to_vec()
}

proptest! {
    #[test]
    fn each_row_is_given_once_and_when_it_has_arrived(
        batches in prop::collection::vec((0u64..40, prop::collection::vec(prop::option::of(0i64..60), 1..9)), 1..12),
    ) {
        let (clock, budget) = (DueClock::begin(0), Budget::new(1 << 30));
        let mut hold = Hold::new(clock, 1 << 20);
        let start = Instant::now() + Duration::from_secs(1);
        let at = |ms: i64| clock.at(start) + ms * 1_000_000;
        let (mut given, mut due, mut next_id) = (Vec::new(), BTreeMap::new(), 0i64);
        for ms in 0..100u64 {
            let now = start + Duration::from_millis(ms);
            for (_, dues) in batches.iter().filter(|(come, _)| *come == ms) {
                let numbers: Vec<i64> = (next_id..).take(dues.len()).collect();
                next_id += dues.len() as i64;
                for (id, ms) in numbers.iter().zip(dues) {
                    due.insert(*id, *ms);
                }
                let dues: Vec<Option<i64>> = dues.iter().map(|due| due.map(at)).collect();
                let arrived = hold.take(0, rows(&budget, &numbers, &dues, None), now).unwrap();
                given.extend(arrived.iter().flat_map(ids).map(|id| (id, ms)));
            }
            while let Some((_, rows)) = hold.next(now) {
                given.extend(ids(&rows).into_iter().map(|id| (id, ms)));
            }
            // Nothing that has arrived stays, and what stays is known.
            let later = due.iter().filter(|(_, due)| due.is_some_and(|due| due > ms as i64));
            prop_assert_eq!(hold.rows(), later.clone().count() as u64);
            let next = later.filter_map(|(_, due)| *due).min();
            prop_assert_eq!(hold.next_due(), next.map(|ms| start + Duration::from_millis(ms as u64)));
            prop_assert_eq!(hold.rows() == 0, hold.bytes == 0);
        }
        for (id, ms) in &given {
            prop_assert!(due[id].is_none_or(|due| due <= *ms as i64), "row {id} at {ms}");
        }
        let mut all: Vec<i64> = given.into_iter().map(|(id, _)| id).collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..next_id).collect::<Vec<_>>());
        drop(hold);
        prop_assert_eq!(budget.used(), 0);
    }
}

#[test]
fn rows_before_a_watermark_are_given_though_they_have_not_arrived() {
    let (clock, budget) = (DueClock::begin(0), Budget::new(1 << 30));
    let mut hold = Hold::new(clock, 1);
    let now = Instant::now();
    let dues: Vec<Option<i64>> =
        [3, 1, 2].into_iter().map(|s| Some(clock.at(now + Duration::from_secs(s)))).collect();
    assert!(!hold.is_full());
    assert!(hold.take(1, rows(&budget, &[7, 8, 9], &dues, Some(&[30, 10, 20])), now).unwrap().is_none());
    assert!(hold.is_full());
    assert!(hold.before(10).unwrap().is_empty());
    let ready = hold.before(20).unwrap();
    assert_eq!(ready.iter().map(|(input, rows)| (*input, ids(rows))).collect::<Vec<_>>(), [(1, vec![8])]);
    assert_eq!((hold.rows(), hold.next_due()), (2, Some(now + Duration::from_secs(2))));
    let (_, rest) = hold.next(now + Duration::from_secs(3)).unwrap();
    assert_eq!(ids(&rest), [9, 7]);
    assert!(hold.next(now + Duration::from_secs(9)).is_none());
}
