//! Response times that a sink measures: from the arrival of a row to its writing.

use std::sync::{Mutex, PoisonError};

use hdrhistogram::Histogram;
use tuplane_expr::arrow::array::RecordBatch;
use tuplane_expr::system::arrivals;
use tuplane_wire::message::Response;

/// Longer ones count as this, in microseconds: a day.
const MOST_US: u64 = 24 * 60 * 60 * 1_000_000;
/// Digits that are kept.
const DIGITS: u8 = 2;

/// Those of one instance.
#[derive(Debug, Default)]
pub(crate) struct Responses(Mutex<Option<Measured>>);

#[derive(Debug)]
struct Measured {
    times: Histogram<u64>,
    early: u64,
    sum_us: u64,
}

impl Responses {
    /// Rows are written now, in nanoseconds since 1970. `early`: they were there before they arrived.
    pub(crate) fn written(&self, rows: &RecordBatch, early: bool, now: i64) {
        let Some(dues) = arrivals(rows) else { return };
        let mut measured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if measured.is_none() {
            // Bounds that the library takes: it fails for none of these.
            let Ok(times) = Histogram::new_with_bounds(1, MOST_US, DIGITS) else { return };
            *measured = Some(Measured { times, early: 0, sum_us: 0 });
        }
        let Some(measured) = measured.as_mut() else { return };
        for due in dues.iter().flatten() {
            // By two agents' clocks a row may be written before it arrives.
            let us = now.saturating_sub(due).max(0).unsigned_abs() / 1_000;
            measured.times.saturating_record(us);
            measured.sum_us = measured.sum_us.saturating_add(us);
            measured.early += u64::from(early);
        }
    }

    /// What was measured so far.
    pub(crate) fn read(&self) -> Response {
        let measured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Measured { times, early, sum_us }) = measured.as_ref() else { return Response::default() };
        Response {
            rows: times.len(),
            early: *early,
            sum_us: *sum_us,
            counts: times
                .iter_recorded()
                .map(|value| (value.value_iterated_to(), value.count_at_value()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tuplane_expr::arrow::array::{Int64Array, TimestampNanosecondArray};
    use tuplane_expr::arrow::datatypes::{DataType, Field, Schema};
    use tuplane_expr::system::{SystemColumn, with_column};

    use super::*;

    #[test]
    fn times_count_from_the_arrival_and_are_never_below_zero() {
        let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true)]));
        let own = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![1, 2, 3, 4]))]).unwrap();
        let dues =
            TimestampNanosecondArray::from(vec![Some(7_000_000), None, Some(9_000_000), Some(10_000_000)]);
        let rows = with_column(&own, SystemColumn::Due, Arc::new(dues)).unwrap();
        let responses = Responses::default();
        responses.written(&own, false, 9_000_000);
        assert_eq!(responses.read(), Response::default(), "nothing is known of its rows");
        responses.written(&rows, false, 9_000_000);
        responses.written(&rows.slice(3, 1), true, 11_000_000);
        let read = responses.read();
        assert_eq!((read.rows, read.early, read.sum_us), (4, 1, 3_000));
        let least = read.quantile_us(0.5).unwrap();
        let most = read.quantile_us(1.0).unwrap();
        assert!(least <= 1 && (2_000..=2_020).contains(&most), "{read:?}");
        assert_eq!(read.counts.iter().map(|(_, rows)| rows).sum::<u64>(), 4);
    }
}
