//! Which key partitions and which keys have most of the rows: counts of an instance that forget, and shares over all
//! instances of a vertex.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

/// A key with less than this share of the rows is not told of.
pub const HEAVY: f64 = 0.01;

/// At most so many keys and partitions are told of.
pub const MOST: usize = 8;

/// Counters of a sketch: a count is too high by at most one in so many.
const COUNTERS: usize = 200;

/// What is kept of a count when a second has passed: a row counts for about ten seconds.
const KEPT: f64 = 0.9;

/// Counts of the most frequent of any number of keys, in bounded memory (space-saving: Metwally, Agrawal, El Abbadi,
/// 2005): of n keys added no count is too high by more than n / 200, and each key with more than that is there.
#[derive(Debug, Clone, Default)]
pub struct Sketch {
    counters: HashMap<String, Counter>,
    added: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Counter {
    count: f64,
    /// So much of it may be of keys that gave way.
    error: f64,
}

impl Sketch {
    /// A key has come once more.
    pub fn add(&mut self, key: &str) {
        self.added += 1.0;
        if let Some(counter) = self.counters.get_mut(key) {
            counter.count += 1.0;
            return;
        }
        let mut error = 0.0;
        if self.counters.len() >= COUNTERS {
            let least = self.counters.iter().min_by(|(_, a), (_, b)| a.count.total_cmp(&b.count));
            if let Some((gives_way, counter)) = least.map(|(key, counter)| (key.clone(), *counter)) {
                self.counters.remove(&gives_way);
                error = counter.count;
            }
        }
        self.counters.insert(key.to_owned(), Counter { count: error + 1.0, error });
    }

    /// How many were added, as far as they are not forgotten.
    pub fn added(&self) -> f64 {
        self.added
    }

    /// Keeps this share of each count.
    fn keep(&mut self, share: f64) {
        self.added *= share;
        self.counters.retain(|_, counter| {
            counter.count *= share;
            counter.error *= share;
            counter.count >= 0.01
        });
    }

    /// Keys that have come this often for sure, at most so many, the most frequent first.
    pub fn most(&self, least: f64, most: usize) -> Vec<(String, f64)> {
        let sure = self.counters.iter().map(|(key, counter)| (key, counter.count - counter.error));
        let mut all: Vec<(&String, f64)> = sure.filter(|(_, count)| *count >= least).collect();
        all.sort_by(|(a, x), (b, y)| y.total_cmp(x).then_with(|| a.cmp(b)));
        all.into_iter().take(most).map(|(key, count)| (key.clone(), count)).collect()
    }
}

/// Rows of one instance by key, those of the last ten seconds or so.
#[derive(Debug, Clone, Default)]
pub struct KeyCounter {
    partitions: Vec<f64>,
    sampled: Sketch,
}

impl KeyCounter {
    /// Rows of these of so many key partitions have come.
    pub fn came(&mut self, ids: &[u16], partitions: u16) {
        let all = usize::from(partitions);
        if self.partitions.len() < all {
            self.partitions.resize(all, 0.0);
        }
        for id in ids {
            if let Some(count) = self.partitions.get_mut(usize::from(*id)) {
                *count += 1.0;
            }
        }
    }

    /// A row of a sample has this key.
    pub fn sampled(&mut self, key: &str) {
        self.sampled.add(key);
    }

    /// So many seconds have passed.
    pub fn passed(&mut self, seconds: u32) {
        let share = KEPT.powi(i32::try_from(seconds).unwrap_or(i32::MAX));
        self.partitions.iter_mut().for_each(|count| *count *= share);
        self.sampled.keep(share);
    }

    /// What is told of it; `None` before the first row.
    pub fn load(&self) -> Option<KeyLoad> {
        if self.partitions.is_empty() {
            return None;
        }
        let mut busiest: Vec<(u16, f64)> = (0..)
            .zip(&self.partitions)
            .map(|(id, rows)| (id, *rows))
            .filter(|(_, rows)| *rows > 0.0)
            .collect();
        busiest.sort_by(|(a, x), (b, y)| y.total_cmp(x).then(a.cmp(b)));
        busiest.truncate(MOST);
        Some(KeyLoad {
            rows: self.partitions.iter().sum(),
            partitions: self.partitions.len() as u16,
            busiest,
            sampled: self.sampled.added(),
            keys: self.sampled.most(HEAVY * self.sampled.added(), MOST),
        })
    }
}

/// What an instance tells of its rows by key: counts of about the last ten seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyLoad {
    /// Rows.
    pub rows: f64,
    /// How many key partitions there are.
    pub partitions: u16,
    /// Those with most rows, with their rows.
    pub busiest: Vec<(u16, f64)>,
    /// Rows that were looked at for their keys.
    pub sampled: f64,
    /// Of these, the most frequent keys, each with its rows.
    pub keys: Vec<(String, f64)>,
}

/// Shares of a vertex's rows by key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyShares {
    /// The busiest key partition.
    pub partition: u16,
    /// Its share of the rows.
    pub share: f64,
    /// How many key partitions there are.
    pub partitions: u16,
    /// Keys with at least [`HEAVY`] of the rows, the heaviest first, with their shares; from a sample.
    pub keys: Vec<(String, f64)>,
}

impl KeyShares {
    /// Over all instances of a vertex; a key or a partition may have moved from one to another. `None` without rows.
    pub fn of<'a>(loads: impl IntoIterator<Item = &'a KeyLoad>) -> Option<Self> {
        let (mut rows, mut partitions) = (0.0, 0);
        let mut by_partition: BTreeMap<u16, f64> = BTreeMap::new();
        let mut by_key: BTreeMap<&str, f64> = BTreeMap::new();
        for load in loads {
            rows += load.rows;
            partitions = load.partitions.max(partitions);
            for (id, count) in &load.busiest {
                *by_partition.entry(*id).or_default() += count;
            }
            // Instances look at different shares of their rows.
            let each = if load.sampled > 0.0 { load.rows / load.sampled } else { 0.0 };
            for (key, count) in &load.keys {
                *by_key.entry(key).or_default() += count * each;
            }
        }
        // What is left after minutes without a row says nothing.
        if rows < 1.0 {
            return None;
        }
        let (partition, count) = by_partition.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let share = |count: f64| (count / rows).min(1.0);
        let keys = by_key.into_iter().map(|(key, count)| (key.to_owned(), share(count)));
        let mut keys: Vec<(String, f64)> = keys.filter(|(_, share)| *share >= HEAVY).collect();
        keys.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        keys.truncate(MOST);
        Some(Self { partition, share: share(count), partitions, keys })
    }

    /// Rows of the busiest key partition over the mean of all.
    pub fn skew(&self) -> f64 {
        self.share * f64::from(self.partitions)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_are_over_all_instances() {
        let (mut one, mut other) = (KeyCounter::default(), KeyCounter::default());
        assert_eq!(one.load(), None);
        one.came(&[0; 60], 4);
        one.came(&[1; 20], 4);
        other.came(&[2; 20], 4);
        // One of ten rows is looked at here, each of them there.
        (0..6).for_each(|_| one.sampled("a"));
        (0..2).for_each(|_| one.sampled("b"));
        (0..20).for_each(|_| other.sampled("c"));
        let shares = KeyShares::of(&[one.load().unwrap(), other.load().unwrap()]).unwrap();
        assert_eq!((shares.partition, shares.share, shares.skew()), (0, 0.6, 2.4));
        let keys: Vec<(&str, f64)> = shares.keys.iter().map(|(key, share)| (key.as_str(), *share)).collect();
        assert_eq!(keys, [("a", 0.6), ("b", 0.2), ("c", 0.2)]);
        // A partition that has moved counts where it was and where it is.
        other.came(&[0; 100], 4);
        let shares = KeyShares::of(&[one.load().unwrap(), other.load().unwrap()]).unwrap();
        assert_eq!((shares.partition, shares.share), (0, 0.8));
    }

    #[test]
    fn old_rows_are_forgotten() {
        let mut counter = KeyCounter::default();
        counter.came(&[3; 100], 8);
        (0..100).for_each(|_| counter.sampled("old"));
        counter.passed(1);
        let load = counter.load().unwrap();
        assert!((load.rows - 90.0).abs() < 1e-9 && (load.keys[0].1 - 90.0).abs() < 1e-9);
        counter.passed(60);
        counter.came(&[1; 50], 8);
        (0..50).for_each(|_| counter.sampled("new"));
        let shares = KeyShares::of(&[counter.load().unwrap()]).unwrap();
        assert!(shares.partition == 1 && shares.share > 0.99, "{shares:?}");
        assert_eq!(shares.keys.len(), 1);
        counter.passed(120);
        assert_eq!(KeyShares::of(&[counter.load().unwrap()]), None);
        assert_eq!(KeyShares::of(&[]), None);
    }

    proptest! {
        #[test]
        fn counts_are_within_their_bound_and_no_frequent_key_is_missed(
            keys in prop::collection::vec(prop_oneof![3 => 0u32..2000, 1 => 0u32..10], 1..3000),
        ) {
            let mut sketch = Sketch::default();
            let mut counts: HashMap<String, f64> = HashMap::new();
            for key in &keys {
                sketch.add(&key.to_string());
                *counts.entry(key.to_string()).or_default() += 1.0;
            }
            prop_assert!(sketch.counters.len() <= COUNTERS);
            let bound = keys.len() as f64 / COUNTERS as f64;
            for (key, Counter { count, error }) in &sketch.counters {
                let real = counts[key];
                prop_assert!(count - error <= real && real <= *count && *error <= bound);
            }
            for (key, count) in counts {
                prop_assert!(count <= bound || sketch.counters.contains_key(&key), "{} of {}", count, key);
            }
        }
    }
}
