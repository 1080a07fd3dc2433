//! Rows of an instance by key: counted by key partition, and a sample of them by key.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tuplane_core::scale::{KeyCounter, KeyLoad};
use tuplane_expr::KeyExprs;
use tuplane_expr::arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use tuplane_expr::arrow::compute::take_record_batch;
use tuplane_expr::arrow::error::ArrowError;
use tuplane_expr::arrow::util::display::{ArrayFormatter, FormatOptions};

use super::rows::Rows;

/// Rows that are looked at for their keys in a second, about: a key takes some microseconds.
const SAMPLE: f64 = 500.0;

/// No more of one batch, however many there are in a second.
const MOST_OF_BATCH: usize = 64;

/// What is kept of a key as text, in characters.
const MOST_TEXT: usize = 100;

const SECOND: Duration = Duration::from_secs(1);

/// What an instance has counted, for whoever asks.
#[derive(Debug, Default)]
pub(crate) struct KeyCounts(Mutex<KeyCounter>);

impl KeyCounts {
    fn lock(&self) -> std::sync::MutexGuard<'_, KeyCounter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is told of it; `None` where no rows have come by key.
    pub(crate) fn load(&self) -> Option<KeyLoad> {
        self.lock().load()
    }
}

/// Counts the rows that an instance takes.
#[derive(Debug)]
pub(crate) struct KeyTap {
    /// The key of each input; `None` of one that does not come by key.
    keys: Vec<Option<KeyExprs>>,
    partitions: u16,
    random: SmallRng,
    /// Rows of which one is looked at.
    every: f64,
    /// Rows to the next one.
    next: usize,
    /// Rows of this second.
    rows: u64,
    second: Instant,
}

impl KeyTap {
    /// For so many key partitions. None where no input comes by key.
    pub(crate) fn new(keys: Vec<Option<KeyExprs>>, partitions: u16, instance: u32) -> Option<Self> {
        keys.iter().any(Option::is_some).then(|| Self {
            keys,
            partitions,
            random: SmallRng::seed_from_u64(u64::from(instance)),
            every: 1.0,
            next: 0,
            rows: 0,
            second: Instant::now(),
        })
    }

    /// Rows of an input were taken.
    pub(crate) fn took(&mut self, input: usize, rows: &Rows, counts: &KeyCounts) {
        let by_key = self.keys.get(input).is_some_and(Option::is_some);
        let Some(ids) = rows.partitions().filter(|_| by_key) else { return };
        let picked = self.pick(rows.len());
        let key = self.keys[input].as_ref();
        // A key that cannot be computed has been told of where it was sent.
        let sampled = key.and_then(|key| texts(key, rows.batch(), &picked).ok()).unwrap_or_default();
        let passed = self.second.elapsed().as_secs();
        let mut counter = counts.lock();
        if passed > 0 {
            counter.passed(u32::try_from(passed).unwrap_or(u32::MAX));
        }
        counter.came(ids.values(), self.partitions);
        for key in &sampled {
            counter.sampled(key);
        }
        drop(counter);
        self.rows += rows.len() as u64;
        if passed > 0 {
            let whole = SECOND.saturating_mul(u32::try_from(passed).unwrap_or(u32::MAX));
            self.every = (self.rows as f64 / passed as f64 / SAMPLE).max(1.0);
            (self.rows, self.second) = (0, self.second + whole);
        }
    }

    /// Which of so many rows are looked at: by chance, since keys may come in turn.
    fn pick(&mut self, rows: usize) -> Vec<u32> {
        let mut picked = Vec::new();
        while self.next < rows {
            if picked.len() < MOST_OF_BATCH {
                picked.push(self.next as u32);
            }
            self.next += 1 + (self.random.random::<f64>() * 2.0 * (self.every - 1.0)).round() as usize;
        }
        self.next -= rows;
        picked
    }
}

/// The keys of these rows as text, their columns one behind the other.
fn texts(key: &KeyExprs, batch: &RecordBatch, rows: &[u32]) -> Result<Vec<String>, ArrowError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let some = take_record_batch(batch, &UInt32Array::from(rows.to_vec()))?;
    let columns: Vec<ArrayRef> =
        key.eval(&some).map_err(|error| ArrowError::ComputeError(error.to_string()))?;
    let options = FormatOptions::new().with_null("null");
    let shown: Vec<ArrayFormatter<'_>> = columns
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
        .collect::<Result<_, _>>()?;
    let text = |row: usize| -> Result<String, ArrowError> {
        let parts: Vec<String> =
            shown.iter().map(|column| column.value(row).try_to_string()).collect::<Result<_, _>>()?;
        Ok(cut(&parts.join(", ")))
    };
    (0..rows.len()).map(text).collect()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_TEXT) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tuplane_core::job::Text;
    use tuplane_core::scale::KeyShares;
    use tuplane_expr::arrow::array::{Int64Array, StringArray, UInt16Array};
    use tuplane_expr::{Determinism, Language};

    use super::*;
    use crate::engine::rows::Budget;

    fn tap(schema: &RecordBatch) -> KeyTap {
        let language = Language::new(Determinism::Required);
        let exprs = ["k % 10 as k", "name"].map(|text| Text::nowhere(text.to_owned()));
        let key = KeyExprs::compile(language, &exprs, &schema.schema()).unwrap();
        KeyTap::new(vec![None, Some(key)], 8, 3).unwrap()
    }

    fn batch(keys: &[i64]) -> RecordBatch {
        let names: ArrayRef =
            Arc::new(keys.iter().map(|key| (key % 2 == 0).then_some("even")).collect::<StringArray>());
        let keys: ArrayRef = Arc::new(Int64Array::from(keys.to_vec()));
        RecordBatch::try_from_iter_with_nullable([("k", keys, true), ("name", names, true)]).unwrap()
    }

    #[test]
    fn rows_are_counted_by_partition_and_a_sample_by_key() {
        let (counts, budget) = (KeyCounts::default(), Budget::new(1 << 30));
        let rows = |keys: &[i64]| {
            let ids: UInt16Array = keys.iter().map(|key| (*key % 8) as u16).collect::<Vec<_>>().into();
            Rows::new(batch(keys), Some(ids), &budget).unwrap()
        };
        let mut tap = tap(&batch(&[1]));
        tap.took(0, &rows(&[1, 2]), &counts);
        assert_eq!(counts.load(), None, "an input that does not come by key");
        tap.took(1, &rows(&[12, 3, 12, 22]), &counts);
        let shares = KeyShares::of(&counts.load()).unwrap();
        assert_eq!((shares.partition, shares.share, shares.partitions), (4, 0.5, 8));
        assert_eq!(shares.keys, [("2, even".to_owned(), 0.75), ("3, null".to_owned(), 0.25)]);
        assert!(KeyTap::new(vec![None], 8, 0).is_none());
    }

    #[test]
    fn at_most_a_bounded_number_of_rows_is_looked_at() {
        let mut tap = tap(&batch(&[1]));
        assert_eq!(tap.pick(3), [0, 1, 2]);
        assert_eq!(tap.pick(1000).len(), MOST_OF_BATCH);
        tap.every = 100.0;
        let picked: usize = (0..1000).map(|_| tap.pick(250).len()).sum();
        assert!((2000..3000).contains(&picked), "{picked} of 250,000");
        assert_eq!(cut(&"ä".repeat(200)).chars().count(), MOST_TEXT + 2);
    }
}
