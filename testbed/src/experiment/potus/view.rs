//! What was measured, by cell.

use super::plan::{Cell, Net, Plan, Scene, Source};
use crate::experiment::{Interval, Table, interval, rounded};
use crate::sim::Outcome;

/// What is measured in a run.
pub(super) const METRICS: [&str; 24] = [
    "response_mean",
    "response_p50",
    "response_p99",
    "response_max",
    "answered",
    "unanswered",
    "before_arrival",
    "cost_per_slot",
    "tuples_per_slot",
    "q_in",
    "q_out",
    "q_rem",
    "q_ahead",
    "weighted_backlog",
    "growth",
    "deferred",
    "forced",
    "pre_served",
    "wasted",
    "dropped",
    "unforeseen",
    "mse",
    "v_mean",
    "slots",
];

/// The figures of a run, by [`METRICS`].
pub(super) fn metrics(run: &Outcome) -> Vec<Option<f64>> {
    let (response, backlog, ahead) = (&run.response, &run.backlog, &run.foresight);
    let whole = |number: u64| Some(number as f64);
    let figures: [Option<f64>; METRICS.len()] = [
        response.mean,
        response.p50.map(f64::from),
        response.p99.map(f64::from),
        response.max.map(f64::from),
        whole(response.answered),
        whole(response.unanswered),
        whole(response.before_arrival),
        Some(run.cost_per_slot),
        Some(run.tuples_per_slot),
        Some(backlog.q_in),
        Some(backlog.q_out),
        Some(backlog.q_rem),
        Some(backlog.q_ahead),
        Some(run.weighted_backlog),
        Some(run.growth),
        whole(run.deferred),
        whole(run.forced),
        whole(ahead.pre_served),
        whole(ahead.wasted),
        whole(ahead.dropped),
        whole(ahead.unforeseen),
        ahead.mse,
        run.weights.map(|weights| weights.v),
        whole(run.slots),
    ];
    figures.into_iter().map(|figure| figure.map(rounded)).collect()
}

/// A backlog that rises by more than this share of itself in a quarter of the measured slots is not stable.
const RISE: f64 = 0.05;

/// The table as the plan has it.
pub(super) struct View<'a> {
    pub(super) plan: &'a Plan,
    pub(super) table: &'a Table,
    /// What arrives where it is not Poisson's: `trace` or what stands in for it.
    pub(super) trace: &'static str,
}

impl View<'_> {
    /// A metric of a cell over its seeds.
    pub(super) fn mean(&self, cell: &Cell, metric: &str) -> Option<Interval> {
        self.table.mean(&cell.factors(), metric)
    }

    /// By how much one cell's metric is above another's, as a share of the other's, seed by seed.
    pub(super) fn rise(&self, cell: &Cell, over: &Cell, metric: &str) -> Option<Interval> {
        let figures = |cell: &Cell| self.table.figures(&cell.factors(), metric);
        let (these, those) = (figures(cell), figures(over));
        let both = these.iter().zip(&those).filter(|(_, over)| **over != 0.0);
        interval(&both.map(|(this, over)| this / over - 1.0).collect::<Vec<_>>())
    }

    /// The backlog does not keep rising: its rise in the last quarter is not above 0 in all likelihood, or it is
    /// small. None where nothing was measured.
    pub(super) fn is_stable(&self, cell: &Cell) -> Option<bool> {
        let (growth, backlog) = (self.mean(cell, "growth")?, self.mean(cell, "weighted_backlog")?);
        let slots = self.mean(cell, "slots")?.mean / 4.0;
        Some(growth.low() <= 0.0 || growth.mean * slots <= RISE * backlog.mean)
    }

    /// A scene in words.
    pub(super) fn scene(&self, scene: Scene) -> String {
        format!("{}, {}", scene.net.title(), self.source(scene.source))
    }

    pub(super) fn source(&self, source: Source) -> &'static str {
        match source {
            Source::Poisson => "Poisson",
            Source::Trace => self.trace,
        }
    }

    /// The scenes on a network.
    pub(super) fn on(&self, net: Net) -> impl Iterator<Item = Scene> {
        self.plan.scenes.iter().copied().filter(move |scene| scene.net == net)
    }
}
