//! Rates from differences of counters, over the reports' own time.
//!
//! An instance accounts every nanosecond as busy, blocked or idle, so the sum of the three is the time
//! at which its counters were read, on its own clock. Differences over that time are right however late
//! a report comes, whoever was stopped in between. A counter that went back (a restart) gives no rate.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tuplane_core::plan::Dag;
use tuplane_wire::message::InstanceReport;

use crate::tui::event::{EdgeFacts, JobFacts};
use crate::window;

/// Shares of time are means over about this time.
const WINDOW_NS: u64 = 1_000_000_000;

/// Rows per second are means over about this time.
const ROWS_WINDOW_NS: u64 = window::ROWS.as_secs() * 1_000_000_000;

/// Two readings closer than this give no rate.
const CLOSE_NS: u64 = 50_000_000;

/// What one instance does, per second or as a share of its time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Rates {
    /// Rows taken per second.
    pub(crate) rows_in: f64,
    /// Rows given out per second.
    pub(crate) rows_out: f64,
    /// Shares of time.
    pub(crate) busy: f64,
    pub(crate) blocked: f64,
    pub(crate) idle: f64,
    pub(crate) waiting_core: f64,
}

/// What one edge carries.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct EdgeRates {
    /// Rows taken by targets per second.
    pub(crate) taken: f64,
    /// Of the rows sent in the window, the share that went to another agent.
    pub(crate) across: Option<f64>,
    /// Of the rows sent in the window, the share of each target instance.
    pub(crate) shares: BTreeMap<u32, f64>,
    /// Rows sent to each target instance per second.
    pub(crate) targets: BTreeMap<u32, f64>,
}

/// Readings of one run and what follows from them.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    run: Option<(u64, u32)>,
    instances: BTreeMap<u32, Series<Point>>,
    edges: BTreeMap<u32, Series<EdgePoint>>,
    rates: BTreeMap<u32, Rates>,
    edge_rates: BTreeMap<u32, EdgeRates>,
    /// Costs of a second, with the ms at which they were told.
    costs: VecDeque<(u64, f64)>,
}

trait Reading: Clone {
    /// When it was taken, on the clock of who counts.
    fn time(&self) -> u64;
    /// Nothing in it is less than before.
    fn follows(&self, before: &Self) -> bool;
}

#[derive(Debug, Clone)]
struct Series<T>(VecDeque<T>);

impl<T> Default for Series<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

/// What a new reading makes of a series.
enum Step<T> {
    /// It begins, or begins again.
    Begins,
    /// It is the reading of before, or too near to it.
    Stays,
    /// It goes on from these earlier readings.
    From {
        /// For shares.
        lately: T,
        /// For rows per second.
        rows: T,
    },
}

impl<T: Reading> Series<T> {
    fn take(&mut self, next: T) -> Step<T> {
        if self.0.back().is_some_and(|last| !next.follows(last)) {
            self.0.clear();
        }
        let Some(last) = self.0.back() else {
            self.0.push_back(next);
            return Step::Begins;
        };
        if next.time() < last.time() + CLOSE_NS {
            return Step::Stays;
        }
        let until = |window: u64| next.time().saturating_sub(window);
        window::trim(&mut self.0, until(ROWS_WINDOW_NS), Reading::time);
        let rows = self.0.front().cloned();
        let lately = self.0.iter().rev().find(|point| point.time() <= until(WINDOW_NS)).cloned();
        self.0.push_back(next);
        match (lately.or_else(|| rows.clone()), rows) {
            (Some(lately), Some(rows)) => Step::From { lately, rows },
            _ => Step::Begins,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Point {
    rows_in: u64,
    rows_out: u64,
    busy: u64,
    blocked: u64,
    idle: u64,
    waiting_core: u64,
}

impl From<&InstanceReport> for Point {
    fn from(report: &InstanceReport) -> Self {
        Self {
            rows_in: report.rows_in,
            rows_out: report.rows_out,
            busy: report.busy_ns,
            blocked: report.blocked_ns,
            idle: report.idle_ns,
            waiting_core: report.waiting_core_ns,
        }
    }
}

impl Reading for Point {
    fn time(&self) -> u64 {
        self.busy.saturating_add(self.blocked).saturating_add(self.idle)
    }

    fn follows(&self, before: &Self) -> bool {
        self.rows_in >= before.rows_in && self.rows_out >= before.rows_out && self.time() >= before.time()
    }
}

impl Point {
    fn since(&self, base: &Self, rows: &Self) -> Rates {
        let ns = self.time().saturating_sub(base.time()).max(1) as f64;
        let rows_ns = self.time().saturating_sub(rows.time()).max(1) as f64;
        let share = |now: u64, before: u64| (now.saturating_sub(before) as f64 / ns).min(1.0);
        let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 * 1e9 / rows_ns;
        Rates {
            rows_in: per_second(self.rows_in, rows.rows_in),
            rows_out: per_second(self.rows_out, rows.rows_out),
            busy: share(self.busy, base.busy),
            blocked: share(self.blocked, base.blocked),
            idle: share(self.idle, base.idle),
            waiting_core: share(self.waiting_core, base.waiting_core),
        }
    }
}

#[derive(Debug, Clone)]
struct EdgePoint {
    time: u64,
    taken: u64,
    sent: u64,
    across: u64,
    targets: BTreeMap<u32, u64>,
    /// The target instances whose counters it goes by.
    live: BTreeSet<u32>,
}

impl Reading for EdgePoint {
    fn time(&self) -> u64 {
        self.time
    }

    fn follows(&self, before: &Self) -> bool {
        self.taken >= before.taken && self.sent >= before.sent && self.time >= before.time
    }
}

impl EdgePoint {
    fn new(facts: &EdgeFacts, time: u64, live: BTreeSet<u32>) -> Self {
        let sum = |across: bool| {
            let flows = facts.flows.iter().filter(|flow| !across || flow.from != flow.to);
            flows.map(|flow| flow.rows).sum()
        };
        let targets = facts.targets.clone();
        Self { time, taken: facts.taken, sent: sum(false), across: sum(true), targets, live }
    }

    fn since(&self, base: &Self, mean: &Self) -> EdgeRates {
        let ns = self.time.saturating_sub(mean.time).max(1) as f64;
        let sent = self.sent.saturating_sub(base.sent);
        let new =
            |target: &u32, rows: u64| rows.saturating_sub(base.targets.get(target).copied().unwrap_or(0));
        let dealt: BTreeMap<u32, u64> =
            self.targets.iter().map(|(target, rows)| (*target, new(target, *rows))).collect();
        let all: u64 = dealt.values().sum();
        let per_second = |target: &u32, rows: u64| {
            rows.saturating_sub(mean.targets.get(target).copied().unwrap_or(0)) as f64 * 1e9 / ns
        };
        EdgeRates {
            taken: self.taken.saturating_sub(mean.taken) as f64 * 1e9 / ns,
            across: (sent > 0).then(|| self.across.saturating_sub(base.across) as f64 / sent as f64),
            shares: dealt
                .iter()
                .filter(|_| all > 0)
                .map(|(target, rows)| (*target, *rows as f64 / all as f64))
                .collect(),
            targets: self.targets.iter().map(|(target, rows)| (*target, per_second(target, *rows))).collect(),
        }
    }
}

/// The time of the readings of some instances: that of the one that was read last.
fn time_at(instances: &BTreeMap<u32, Series<Point>>, own: &BTreeSet<u32>) -> u64 {
    let last = own.iter().filter_map(|instance| instances.get(instance)?.0.back());
    last.map(Reading::time).max().unwrap_or(0)
}

impl History {
    /// Takes new readings. Those of another run or attempt begin anew. `live` are the instances that count:
    /// not ended, on agents that were heard of lately.
    pub(crate) fn take(&mut self, at: u64, dag: &Dag, facts: &JobFacts, live: &BTreeSet<u32>) {
        let run = Some((facts.summary.run, facts.summary.attempt));
        if self.run != run {
            *self = Self { run, ..Self::default() };
        }
        self.costs.push_back((at, facts.cost_per_second));
        let begin = at.saturating_sub(window::ROWS.as_millis() as u64);
        self.costs.retain(|(told, _)| *told >= begin);
        for report in &facts.counters {
            let point = Point::from(report);
            match self.instances.entry(report.instance).or_default().take(point) {
                Step::Begins => drop(self.rates.remove(&report.instance)),
                Step::Stays if report.ended => drop(self.rates.remove(&report.instance)),
                Step::Stays => {}
                Step::From { lately, rows } => {
                    self.rates.insert(report.instance, point.since(&lately, &rows));
                }
            }
        }
        for edge in &facts.edges {
            let Some(planned) = dag.edges.get(edge.edge as usize) else { continue };
            let own = facts.instances.iter().filter(|instance| instance.vertex == planned.to);
            let own: BTreeSet<u32> =
                own.map(|instance| instance.id).filter(|instance| live.contains(instance)).collect();
            if own.is_empty() {
                // Nobody takes rows, as far as is known.
                self.edges.remove(&edge.edge);
                self.edge_rates.remove(&edge.edge);
                continue;
            }
            let series = self.edges.entry(edge.edge).or_default();
            let point = EdgePoint::new(edge, time_at(&self.instances, &own), own);
            // Who counts has changed: what an agent did while it was not heard of is no burst. The rate of
            // before stands until the next report.
            if series.0.back().is_some_and(|last| last.live != point.live) {
                series.0.clear();
                series.0.push_back(point);
                continue;
            }
            match series.take(point.clone()) {
                Step::Begins => drop(self.edge_rates.remove(&edge.edge)),
                Step::Stays => {}
                Step::From { lately, rows } => {
                    self.edge_rates.insert(edge.edge, point.since(&lately, &rows));
                }
            }
        }
    }

    /// The cost of a second, the mean over the window that rows per second have.
    pub(crate) fn cost(&self) -> f64 {
        let sum: f64 = self.costs.iter().map(|(_, cost)| cost).sum();
        sum / self.costs.len().max(1) as f64
    }

    /// What an instance does; `None` if that is not known (yet).
    pub(crate) fn rates(&self, instance: u32) -> Option<Rates> {
        self.rates.get(&instance).copied()
    }

    /// What an edge carries.
    pub(crate) fn edge(&self, edge: u32) -> Option<&EdgeRates> {
        self.edge_rates.get(&edge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(ms: u64, rows_in: u64, rows_out: u64) -> Point {
        let (busy, blocked) = (ms * 250_000, ms * 500_000);
        Point { rows_in, rows_out, busy, blocked, idle: ms * 250_000, waiting_core: 0 }
    }

    fn rates(points: &[Point]) -> Option<Rates> {
        let mut series = Series::default();
        let mut found = None;
        for next in points {
            found = match series.take(*next) {
                Step::Begins => None,
                Step::Stays => found,
                Step::From { lately, rows } => Some(next.since(&lately, &rows)),
            };
        }
        found
    }

    #[test]
    fn three_rows_in_and_seven_out() {
        let found = rates(&[point(1000, 0, 0), point(2000, 3, 7)]).unwrap();
        assert!((found.rows_in - 3.0).abs() < 1e-9 && (found.rows_out - 7.0).abs() < 1e-9, "{found:?}");
        assert!((found.busy - 0.25).abs() < 1e-9 && (found.blocked - 0.5).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_pause_of_ten_seconds_makes_no_burst() {
        // The report of before is seen again just after the pause, then all that was done meanwhile.
        let steady = [point(1000, 100, 0), point(2000, 200, 0)];
        let found = rates(&[steady[0], steady[1], steady[1], point(12_000, 1200, 0)]).unwrap();
        assert!((found.rows_in - 100.0).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn a_counter_that_went_back_gives_no_rate() {
        assert_eq!(rates(&[point(1000, 100, 0), point(2000, 200, 0), point(2500, 5, 0)]), None);
        assert_eq!(rates(&[point(1000, 100, 0), point(2000, 200, 0), point(100, 300, 0)]), None);
        let again = rates(&[point(2000, 200, 0), point(100, 5, 0), point(1100, 15, 0)]).unwrap();
        assert!((again.rows_in - 10.0).abs() < 1e-9, "{again:?}");
    }

    #[test]
    fn rates_forget_what_is_older_than_the_window() {
        let mut points: Vec<Point> = (1..=10).map(|i| point(i * 500, i * 500, 0)).collect();
        points.extend((11..=20).map(|i| point(i * 500, 5000, 0)));
        assert!(rates(&points).unwrap().rows_in.abs() < 1e-9);
    }

    #[test]
    fn rows_that_come_in_bursts_have_the_rate_of_their_mean() {
        // 4,000 rows every two seconds, and none in the two reports before the last one.
        let points: Vec<Point> = (1..=23).map(|i| point(i * 500, i / 4 * 4000, 0)).collect();
        let found = rates(&points).unwrap();
        assert!((found.rows_in - 1600.0).abs() < 1e-6, "{found:?}");
        // Shares of time are younger than that.
        let mut busy = points;
        busy.push(Point { busy: 0, blocked: 0, idle: 13_000_000_000, ..point(0, 20_000, 0) });
        assert!(rates(&busy).unwrap().idle > 0.9);
    }
}
