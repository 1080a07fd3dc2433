//! What was measured, by cell.

use super::plan::{Cell, Net, Plan, Scene, Source};
use crate::experiment::{Interval, Table, Verdict, interval, rounded};
use crate::sim::Outcome;

/// What is measured in a run.
pub(super) const METRICS: [&str; 26] = [
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
    "missing",
    "late",
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
        whole(ahead.missing),
        whole(ahead.late),
        run.weights.map(|weights| weights.v),
        whole(run.slots),
    ];
    figures.into_iter().map(|figure| figure.map(rounded)).collect()
}

/// A backlog that rises by more than this share of itself in a quarter of the measured slots is not stable.
pub(super) const RISE: f64 = 0.05;

/// The table as the plan has it.
pub(super) struct View<'a> {
    pub(super) plan: &'a Plan,
    pub(super) table: &'a Table,
    /// What arrives where it is not Poisson's: `trace` or what stands in for it.
    pub(super) trace: &'static str,
    /// It is a trace: arrivals that were measured somewhere.
    pub(super) is_measured: bool,
}

impl View<'_> {
    /// A metric of a cell over its seeds.
    pub(super) fn mean(&self, cell: &Cell, metric: &str) -> Option<Interval> {
        self.table.mean(&cell.factors(), metric)
    }

    /// By how much one cell's metric is above another's, as a share of the other's, seed by seed: over the seeds that
    /// both have it of.
    pub(super) fn rise(&self, cell: &Cell, over: &Cell, metric: &str) -> Option<Interval> {
        self.gap(cell, over, over, metric)
    }

    /// By how much one cell's metric is above another's, as a share of `base`'s, seed by seed.
    pub(super) fn gap(&self, cell: &Cell, over: &Cell, base: &Cell, metric: &str) -> Option<Interval> {
        let of = |cell: &Cell| self.table.by_seed(&cell.factors(), metric);
        let (these, those, base) = (of(cell), of(over), of(base));
        let share = |(seed, this): (&&str, &f64)| {
            let base = base.get(seed).filter(|base| **base != 0.0)?;
            Some((this - those.get(seed)?) / base)
        };
        interval(&these.iter().filter_map(share).collect::<Vec<_>>())
    }

    /// Whether the backlog does not keep rising: its rise over a quarter of the measured slots is at most [`RISE`] of
    /// it. None where nothing was measured.
    pub(super) fn is_stable(&self, cell: &Cell) -> Option<Verdict> {
        let (growth, backlog) = (self.mean(cell, "growth")?, self.mean(cell, "weighted_backlog")?);
        let slots = self.mean(cell, "slots")?.mean / 4.0;
        Some(Verdict::at_most(&growth, RISE * backlog.mean / slots.max(1.0)))
    }

    /// What has to be said beside a figure of a cell whose backlog may keep rising.
    pub(super) fn grows(&self, cell: &Cell) -> Option<&'static str> {
        Some(match self.is_stable(cell)? {
            Verdict::Holds => "",
            Verdict::NotShown => " and perhaps growing",
            Verdict::DoesNotHold => " and growing",
        })
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
