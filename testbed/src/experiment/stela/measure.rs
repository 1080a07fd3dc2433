//! What is measured of a run: throughput, convergence and downtime over a series of 1 ms samples.
//!
//! Convergence time and downtime are those of the authors' scripts (elasticity.md, section 1.8), whose samples last 10 s:
//! so does the finest interruption that is published. Here the sample's length is an argument.

use std::ops::Range;

use crate::experiment::{Interval, interval};

/// Rows that left all sinks in each millisecond of a run, from its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// Rows up to the end of each millisecond; one more than there are, the first 0.
    sums: Vec<u64>,
}

/// How a converged level is found.
#[derive(Debug, Clone, PartialEq)]
pub struct Convergence {
    /// The milliseconds whose mean is the converged level.
    pub level: Range<usize>,
    /// Length of the sliding window, ms.
    pub window: usize,
    /// Step by which it slides: a sample's length, ms.
    pub step: usize,
    /// A mean that differs from the level by at most this share of it has converged.
    pub within: f64,
}

impl Convergence {
    /// The published one, for an operation at a millisecond: the level of 400 to 500 s after it, windows of six samples of
    /// 10 s, 5 %.
    pub fn published(at: usize) -> Self {
        Self { level: at + 400_000..at + 500_000, window: 60_000, step: 10_000, within: 0.05 }
    }

    /// Ours, for a run that ends at a millisecond: the level of its last quarter after the operation, and windows as long,
    /// beside the time up to that level, as the published ones, which slide by 1 ms.
    pub fn short(at: usize, end: usize) -> Self {
        let from = end - (end - at) / 4;
        Self { level: from..end, window: ((from - at) * 60 / 400).max(1), step: 1, within: 0.05 }
    }
}

impl Series {
    /// Of the rows of each millisecond.
    pub fn new(rows: impl IntoIterator<Item = u64>) -> Self {
        let mut sums = vec![0];
        let mut sum = 0;
        for rows in rows {
            sum += rows;
            sums.push(sum);
        }
        Self { sums }
    }

    /// Of the milliseconds at which rows left, in any order; those at or after `end` are not counted.
    pub fn of_times(times: impl IntoIterator<Item = u64>, end: usize) -> Self {
        let mut rows = vec![0; end];
        for time in times {
            if let Some(row) = usize::try_from(time).ok().and_then(|time| rows.get_mut(time)) {
                *row += 1;
            }
        }
        Self::new(rows)
    }

    /// Milliseconds.
    pub fn len(&self) -> usize {
        self.sums.len() - 1
    }

    /// It has no millisecond.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows of these milliseconds; none where they are not all in the series.
    fn rows(&self, of: &Range<usize>) -> Option<u64> {
        let (from, to) = (self.sums.get(of.start)?, self.sums.get(of.end)?);
        to.checked_sub(*from)
    }

    /// Rows a second in the mean of these milliseconds; none where they are not all in the series.
    pub fn throughput(&self, of: &Range<usize>) -> Option<f64> {
        let rows = self.rows(of)?;
        (!of.is_empty()).then(|| rows as f64 * 1000.0 / of.len() as f64)
    }

    /// Milliseconds from the operation to the beginning of the first window whose mean is the converged level. None where
    /// no window has it, or nothing comes out in the end.
    pub fn convergence(&self, at: usize, by: &Convergence) -> Option<usize> {
        let level = self.throughput(&by.level).filter(|level| *level > 0.0)?;
        let converged = |from: &usize| {
            let mean = self.throughput(&(*from..*from + by.window));
            mean.is_some_and(|mean| (mean - level).abs() <= by.within * level)
        };
        (at..self.len()).step_by(by.step.max(1)).find(converged).map(|from| from - at)
    }

    /// Milliseconds in samples of this length without a row, as published: whole samples from the operation on.
    pub fn empty_samples(&self, at: usize, sample: usize) -> usize {
        let samples = (at..self.len()).step_by(sample.max(1)).map(|from| from..from + sample.max(1));
        samples.filter(|sample| self.rows(sample) == Some(0)).count() * sample.max(1)
    }

    /// The longest time without a row that lies in these milliseconds, in ms.
    pub fn longest_gap(&self, of: &Range<usize>) -> usize {
        self.gaps(of).max().unwrap_or(0)
    }

    /// The length that at most all but this share of the gaps between two rows have, in ms; rows of the same millisecond
    /// are 0 apart.
    pub fn usual_gap(&self, of: &Range<usize>, share: f64) -> usize {
        let mut gaps: Vec<usize> = self.gaps(of).collect();
        gaps.sort_unstable_by(|a, b| b.cmp(a));
        let rows = self.rows(of).unwrap_or(0) as f64;
        // Of N gaps the share leaves out N (1 - share), the longest.
        let longer = (rows * (1.0 - share)).round() as usize;
        gaps.get(longer).copied().unwrap_or(0)
    }

    /// Milliseconds without a row after an operation. At 1 ms samples are empty by themselves where rows are few:
    /// counted are gaps longer than any in the milliseconds `before`.
    pub fn downtime(&self, before: &Range<usize>, after: &Range<usize>) -> usize {
        let usual = self.longest_gap(before);
        self.gaps(after).filter(|gap| *gap > usual).sum()
    }

    /// Lengths of the times without a row within these milliseconds.
    fn gaps(&self, of: &Range<usize>) -> impl Iterator<Item = usize> {
        let end = of.end.min(self.len());
        let mut at = of.start;
        std::iter::from_fn(move || {
            let empty = |ms: usize| self.sums[ms] == self.sums[ms + 1];
            let from = (at..end).find(|ms| empty(*ms))?;
            let to = (from..end).find(|ms| !empty(*ms)).unwrap_or(end);
            at = to;
            Some(to - from)
        })
    }
}

/// One figure over another, repeat by repeat: downtime of restart-moved over that of restart-all, say. A repeat in which the
/// other is 0 has no such ratio.
pub fn ratio(repeats: impl IntoIterator<Item = (f64, f64)>) -> Option<Interval> {
    let ratios = repeats.into_iter().filter(|(_, other)| *other > 0.0).map(|(this, other)| this / other);
    interval(&ratios.collect::<Vec<_>>())
}

/// What became of numbered rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Rows that were to come, copies counted.
    pub expected: u64,
    /// Of these, rows that did not come.
    pub lost: u64,
    /// Rows that came more often than they were to.
    pub duplicated: u64,
}

/// Counts the rows that came to one sink against those that were to come: of each number in `sent` as many as `copies`
/// says. Other numbers are left out: they were sent too late to be there for sure.
pub fn tally(sent: &Range<u64>, copies: impl Fn(u64) -> u32, came: impl IntoIterator<Item = u64>) -> Tally {
    let mut counts = vec![0_u32; usize::try_from(sent.end.saturating_sub(sent.start)).unwrap_or(0)];
    for number in came {
        let place = number.checked_sub(sent.start).and_then(|place| usize::try_from(place).ok());
        if let Some(count) = place.and_then(|place| counts.get_mut(place)) {
            *count = count.saturating_add(1);
        }
    }
    let mut tally = Tally::default();
    for (number, count) in sent.clone().zip(counts) {
        let expected = copies(number);
        tally.expected += u64::from(expected);
        tally.lost += u64::from(expected.saturating_sub(count));
        tally.duplicated += u64::from(count.saturating_sub(expected));
    }
    tally
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parts of so many milliseconds with so many rows in each.
    fn series(parts: &[(usize, u64)]) -> Series {
        Series::new(parts.iter().flat_map(|(length, rows)| std::iter::repeat_n(*rows, *length)))
    }

    #[test]
    fn throughput_is_rows_a_second() {
        let series = series(&[(500, 2), (500, 4)]);
        assert_eq!(series.throughput(&(0..1000)), Some(3000.0));
        assert_eq!(series.throughput(&(500..1000)), Some(4000.0));
        assert_eq!((series.throughput(&(900..1001)), series.throughput(&(7..7))), (None, None));
        let times = [3, 0, 3, 9, 12];
        let series = Series::of_times(times, 10);
        assert_eq!((series.len(), series.throughput(&(0..10))), (10, Some(400.0)));
    }

    #[test]
    fn the_published_definitions_on_a_run_as_published() {
        // 600 s at 5 rows/ms, 25 s of nothing, 40 s at half speed, then 8 rows/ms.
        let run = series(&[(600_000, 5), (25_000, 0), (40_000, 4), (535_000, 8)]);
        let at = 600_000;
        // Of the 10 s samples two are empty; the third has 5 s of rows.
        assert_eq!(run.empty_samples(at, 10_000), 20_000);
        assert_eq!(run.empty_samples(at, 1), 25_000);
        // The window from 660 s has 5 s at half speed, 4.2 % less than the level; that from 650 s has 15 s of it.
        assert_eq!(run.convergence(at, &Convergence::published(at)), Some(60_000));
        assert_eq!(run.throughput(&(1_000_000..1_100_000)), Some(8000.0));
    }

    #[test]
    fn convergence_of_a_short_run() {
        // Operation at 15 s, 300 ms of nothing, then slow for 2 s, then the new level to 35 s.
        let run = series(&[(15_000, 4), (300, 0), (2000, 2), (17_700, 6)]);
        let by = Convergence::short(15_000, 35_000);
        assert_eq!((by.level.clone(), by.window), (30_000..35_000, 2250));
        // 2,300 ms in all; the window may begin in the slow part as long as it is within 5 % of 6 rows/ms: 5.7.
        let slow = (0.05 * 6.0 * 2250.0 / 4.0) as usize;
        assert_eq!(run.convergence(15_000, &by), Some(2300 - slow));
        // Where nothing comes in the end, or the level is never held for a window, there is none.
        assert_eq!(series(&[(15_000, 4), (20_000, 0)]).convergence(15_000, &by), None);
        let wild = Series::new((0..35_000u64).map(|ms| if ms < 30_000 { 0 } else { ms % 3 }));
        let never = Convergence { window: 20_000, ..by };
        assert_eq!(wild.convergence(15_000, &never), None);
    }

    #[test]
    fn downtime_leaves_out_what_is_usual() {
        // A row every 4 ms, then 120 ms of nothing, a row, 2 ms, and on as before.
        let every = |ms: u64| u64::from(ms.is_multiple_of(4));
        let rows = (0..1000).map(every).chain(std::iter::repeat_n(0, 120)).chain((0..1000).map(every));
        let run = Series::new(rows);
        let (before, after) = (0..1000, 1000..2120);
        assert_eq!(run.longest_gap(&before), 3);
        assert_eq!((run.longest_gap(&after), run.downtime(&before, &after)), (120, 120));
        assert_eq!(run.downtime(&before, &(1200..2120)), 0);
        assert_eq!(run.longest_gap(&(5..8)), 3);
        // A run that stops for good is down to its end.
        assert_eq!(series(&[(10, 1), (30, 0)]).downtime(&(0..10), &(10..40)), 30);
        assert_eq!(series(&[(10, 1)]).longest_gap(&(8..20)), 0);
    }

    #[test]
    fn the_usual_gap_leaves_out_the_longest_ones() {
        // 2,000 rows, one each other millisecond, and among them gaps of 30, 20 and 10.
        let every = |rows: usize| std::iter::repeat_n([1, 0], rows).flatten();
        let rows =
            every(500).chain([0; 29]).chain(every(500)).chain([0; 19]).chain(every(1000)).chain([0; 9]);
        let run = Series::new(rows);
        let all = 0..run.len();
        let usual = |share| run.usual_gap(&all, share);
        assert_eq!((usual(1.0), usual(0.9995), usual(0.999), usual(0.9985)), (30, 20, 10, 1));
        assert_eq!(Series::new([]).usual_gap(&(0..0), 0.999), 0);
    }

    #[test]
    fn the_ratio_is_taken_repeat_by_repeat() {
        let shares = ratio([(125.0, 1000.0), (250.0, 1000.0), (9.0, 0.0)]).unwrap();
        assert_eq!((shares.mean, shares.count), (0.1875, 2));
        assert_eq!(ratio([(1.0, 0.0)]), None);
    }

    #[test]
    fn rows_are_lost_and_duplicated_by_their_numbers() {
        // 0 is filtered out and comes all the same, 2 is missing, 3 comes three times instead of twice; 9 is beyond.
        let copies = |number: u64| if number == 0 { 0 } else { 1 + u32::from(number == 3) };
        let counted = tally(&(0..5), copies, [0, 1, 3, 4, 3, 3, 9]);
        assert_eq!(counted, Tally { expected: 5, lost: 1, duplicated: 2 });
        assert_eq!(tally(&(5..5), copies, [5]), Tally::default());
    }

    proptest! {
        #[test]
        fn gaps_and_rows_are_all_of_the_time(rows in prop::collection::vec(0u64..3, 1..200)) {
            let run = Series::new(rows.iter().copied());
            let all = 0..rows.len();
            let empty = rows.iter().filter(|rows| **rows == 0).count();
            prop_assert_eq!(run.gaps(&all).sum::<usize>(), empty);
            prop_assert_eq!(run.empty_samples(0, 1), empty);
            prop_assert!(run.downtime(&(0..0), &all) == empty);
        }

        #[test]
        fn what_comes_as_it_was_sent_is_neither_lost_nor_twice(
            sent in 0u64..300,
            twice in prop::collection::btree_set(0u64..300, 0..9),
        ) {
            let copies = |number: u64| (number % 3) as u32;
            let all = || (0..sent).flat_map(|number| std::iter::repeat_n(number, copies(number) as usize));
            let whole = tally(&(0..sent), copies, all());
            prop_assert_eq!((whole.lost, whole.duplicated), (0, 0));
            let more = tally(&(0..sent), copies, all().chain(twice.iter().copied()));
            prop_assert_eq!((more.lost, more.duplicated), (0, twice.range(..sent).count() as u64));
        }
    }
}
