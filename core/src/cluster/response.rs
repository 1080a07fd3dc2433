//! Response times at a sink: from a row's arrival to its writing.

use serde::{Deserialize, Serialize};

/// Response times of the rows that a sink instance has written and whose arrival is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// So many rows.
    pub rows: u64,
    /// Of these the rows that were there before they arrived, and were held until then.
    pub early: u64,
    /// The sum of their response times, in microseconds.
    pub sum_us: u64,
    /// How many rows had which response time: (microseconds, within 1 %; rows), the shortest first.
    pub counts: Vec<(u64, u64)>,
}

impl Response {
    /// Those of another instance too.
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.early += other.early;
        self.sum_us += other.sum_us;
        self.counts.extend_from_slice(&other.counts);
        self.counts.sort_unstable();
        self.counts.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0 };
            same
        });
    }

    /// The mean in microseconds; `None` without rows.
    pub fn mean_us(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.sum_us as f64 / self.rows as f64)
    }

    /// The least time, in microseconds, that at least this part (0 to 1) of the rows had at most.
    pub fn quantile_us(&self, part: f64) -> Option<u64> {
        let all: u64 = self.counts.iter().map(|(_, rows)| rows).sum();
        let wanted = ((all as f64 * part).ceil() as u64).max(1);
        let mut below = 0;
        self.counts.iter().find_map(|(us, rows)| {
            below += rows;
            (below >= wanted).then_some(*us)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_instances_are_added_and_quantiles_are_of_all() {
        let mut all = Response::default();
        assert_eq!((all.mean_us(), all.quantile_us(0.5)), (None, None));
        all.add(&Response { rows: 3, early: 1, sum_us: 30, counts: vec![(5, 2), (20, 1)] });
        all.add(&Response { rows: 7, early: 0, sum_us: 470, counts: vec![(20, 1), (75, 6)] });
        assert_eq!(all, Response { rows: 10, early: 1, sum_us: 500, counts: vec![(5, 2), (20, 2), (75, 6)] });
        assert_eq!(all.mean_us(), Some(50.0));
        assert_eq!(
            [0.0, 0.2, 0.21, 0.4, 0.41, 1.0].map(|q| all.quantile_us(q).unwrap()),
            [5, 5, 20, 20, 75, 75]
        );
    }
}
