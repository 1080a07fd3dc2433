//! Rows that are here before they arrive: a sink, a window or an aggregate takes each when it does.

use std::collections::BTreeMap;
use std::time::Instant;

use tuplane_expr::arrow::array::{Array, TimestampNanosecondArray, UInt32Array};
use tuplane_expr::arrow::error::ArrowError;
use tuplane_expr::system::{arrivals, event_times};

use super::due::DueClock;
use super::rows::Rows;

/// Rows of one batch, in the order of their arrivals.
#[derive(Debug)]
struct Held {
    input: usize,
    rows: Rows,
    /// Their arrivals, from `first` on.
    dues: Vec<i64>,
    first: usize,
}

/// Rows of an instance that have not arrived.
#[derive(Debug)]
pub(crate) struct Hold {
    clock: DueClock,
    /// By the next arrival, and a number that tells equal ones apart.
    held: BTreeMap<(i64, u64), Held>,
    number: u64,
    rows: u64,
    bytes: u64,
    /// Bytes that may be held before the instance takes no more.
    bound: u64,
}

/// Rows of one input.
pub(crate) type Ready = (usize, Rows);

impl Hold {
    pub(crate) fn new(clock: DueClock, bound: u64) -> Self {
        Self { clock, held: BTreeMap::new(), number: 0, rows: 0, bytes: 0, bound }
    }

    /// Takes rows that have come; gives those that have arrived. Rows of which nothing is known have.
    pub(crate) fn take(
        &mut self,
        input: usize,
        rows: Rows,
        now: Instant,
    ) -> Result<Option<Rows>, ArrowError> {
        let Some(dues) = arrivals(rows.batch()) else { return Ok(Some(rows)) };
        let now = self.clock.at(now);
        if early(dues, now) == 0 {
            return Ok(Some(rows));
        }
        let mut order: Vec<u32> = (0..dues.len() as u32).collect();
        let due = |row: &u32| if dues.is_valid(*row as usize) { dues.value(*row as usize) } else { i64::MIN };
        order.sort_by_key(due);
        let mut all: Vec<i64> = order.iter().map(due).collect();
        let mut rows = if order.is_sorted() { rows } else { rows.pick(&UInt32Array::from(order))? };
        let count = all.partition_point(|due| *due <= now);
        let arrived = (count > 0).then(|| rows.cut(count));
        all.drain(..count);
        self.rows += all.len() as u64;
        self.bytes += rows.bytes();
        self.put(Held { input, rows, dues: all, first: 0 });
        Ok(arrived)
    }

    fn put(&mut self, mut held: Held) {
        let Some(next) = held.dues.get(held.first) else { return };
        held.rows.compact(Instant::now());
        self.number += 1;
        self.held.insert((*next, self.number), held);
    }

    /// The next rows that have arrived, those that did so first before others.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Ready> {
        let now = self.clock.at(now);
        let entry = self.held.first_entry().filter(|entry| entry.key().0 <= now)?;
        let mut held = entry.remove();
        let count = held.dues[held.first..].partition_point(|due| *due <= now);
        let rows = if count == held.rows.len() {
            held.rows
        } else {
            let rows = held.rows.cut(count);
            self.put(Held { first: held.first + count, ..held });
            rows
        };
        self.rows -= rows.len() as u64;
        self.bytes -= rows.bytes();
        Some((held.input, rows))
    }

    /// The rows that have an earlier event time than a watermark that has come: the sender held them for arrived, by
    /// a clock that may differ from this one, and behind the watermark they would be late.
    pub(crate) fn before(&mut self, watermark: i64) -> Result<Vec<Ready>, ArrowError> {
        let earlier = |held: &Held| {
            event_times(held.rows.batch()).is_some_and(|times| times.values().iter().any(|t| *t < watermark))
        };
        let keys: Vec<(i64, u64)> =
            self.held.iter().filter(|(_, held)| earlier(held)).map(|(key, _)| *key).collect();
        let mut ready = Vec::new();
        for key in keys {
            let Some(held) = self.held.remove(&key) else { continue };
            self.rows -= held.rows.len() as u64;
            self.bytes -= held.rows.bytes();
            let Some(times) = event_times(held.rows.batch()) else { continue };
            let (early, rest): (Vec<u32>, Vec<u32>) =
                (0..held.rows.len() as u32).partition(|row| times.value(*row as usize) < watermark);
            ready.push((held.input, held.rows.pick(&UInt32Array::from(early))?));
            if !rest.is_empty() {
                let dues = rest.iter().map(|row| held.dues[held.first + *row as usize]).collect();
                let rows = held.rows.pick(&UInt32Array::from(rest))?;
                self.rows += rows.len() as u64;
                self.bytes += rows.bytes();
                self.put(Held { input: held.input, rows, dues, first: 0 });
            }
        }
        Ok(ready)
    }

    /// When the next row arrives.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.held.first_key_value().map(|((due, _), _)| self.clock.instant(*due))
    }

    /// Rows held.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// They are as many as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= self.bound
    }
}

/// How many of these rows arrive later than `now`.
pub(crate) fn early(dues: &TimestampNanosecondArray, now: i64) -> usize {
    let later = |row: &usize| dues.is_valid(*row) && dues.value(*row) > now;
    (0..dues.len()).filter(later).count()
}

#[cfg(test)]
mod tests;
