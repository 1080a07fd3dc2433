//! Figures of a run: response times, cost, backlog.

use serde::Serialize;

/// Response times in whole slots: exact, whatever their number.
#[derive(Debug, Clone, Default)]
pub(super) struct Responses {
    /// How many had each response.
    counts: Vec<u64>,
}

/// Response times, in slots from a tuple's arrival to the last completion among its descendants; 0 where that was
/// before its arrival. Null where no tuple was answered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Response {
    /// Mean.
    pub mean: Option<f64>,
    /// Half of the tuples had at most this.
    pub p50: Option<u32>,
    /// 99 of 100 tuples had at most this.
    pub p99: Option<u32>,
    /// The largest.
    pub max: Option<u32>,
    /// Tuples answered that arrived in the measured slots.
    pub answered: u64,
    /// Those among them that were answered before they arrived.
    pub before_arrival: u64,
    /// Tuples that arrived in the measured slots and were not answered when the run ended.
    pub unanswered: u64,
}

impl Responses {
    pub(super) fn add(&mut self, response: u32) {
        let index = response as usize;
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, more)| *mine += more);
    }

    pub(super) fn summary(&self, arrived: u64) -> Response {
        let answered: u64 = self.counts.iter().sum();
        let total: u64 = self.counts.iter().zip(0u64..).map(|(count, response)| count * response).sum();
        let quantile = |share: f64| {
            let rank = (answered as f64 * share).ceil() as u64;
            let mut seen = 0;
            let at = self.counts.iter().position(|count| {
                seen += count;
                seen >= rank.max(1)
            });
            at.map(|at| at as u32)
        };
        Response {
            mean: (answered > 0).then(|| total as f64 / answered as f64),
            p50: quantile(0.5),
            p99: quantile(0.99),
            max: self.counts.iter().rposition(|count| *count > 0).map(|at| at as u32),
            answered,
            before_arrival: self.counts.first().copied().unwrap_or(0),
            unanswered: arrived - answered,
        }
    }
}

/// Queue lengths at the beginnings of slots, in tuples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Backlog {
    /// At the inputs of bolts: the sum of `Q_in`.
    pub q_in: f64,
    /// At the outputs of bolts: the sum of their `Q_out`.
    pub q_out: f64,
    /// At spouts, of tuples that have arrived: `Q_rem(t, 0)` and what was carried over.
    pub q_rem: f64,
    /// At spouts, of tuples that are yet to arrive.
    pub q_ahead: f64,
}

impl Backlog {
    /// Equation 12 without the tuples that are yet to arrive, so that windows of different sizes can be compared
    /// (potus.md F11).
    pub fn weighted(&self, beta: f64) -> f64 {
        self.q_in + beta * (self.q_out + self.q_rem)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.q_in += other.q_in;
        self.q_out += other.q_out;
        self.q_rem += other.q_rem;
        self.q_ahead += other.q_ahead;
    }

    pub(super) fn over(&self, slots: f64) -> Self {
        let part = |sum: f64| if slots > 0.0 { sum / slots } else { 0.0 };
        Self {
            q_in: part(self.q_in),
            q_out: part(self.q_out),
            q_rem: part(self.q_rem),
            q_ahead: part(self.q_ahead),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_least_that_so_many_do_not_exceed() {
        let mut responses = Responses::default();
        for response in 0..100 {
            responses.add(response);
        }
        let summary = responses.summary(103);
        assert_eq!(
            (summary.mean, summary.p50, summary.p99, summary.max),
            (Some(49.5), Some(49), Some(98), Some(99))
        );
        assert_eq!((summary.answered, summary.before_arrival, summary.unanswered), (100, 1, 3));
        let mut one = Responses::default();
        one.add(7);
        responses.merge(&one);
        assert_eq!(responses.summary(101).answered, 101);
        assert_eq!(one.summary(1).p50, Some(7));
    }

    #[test]
    fn of_nothing_there_is_no_mean() {
        let summary = Responses::default().summary(0);
        assert_eq!((summary.mean, summary.p50, summary.max), (None, None, None));
    }
}
