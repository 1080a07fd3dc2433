//! What runs have shown: figures, and claims beside what is published.

use super::measure::ratio;
use super::model::DEFAULT;
use super::plan::{Cell, IN, Mechanism, OUT, Plan, planners};
use super::show::{percent, published};
use super::topology::{TOPOLOGIES, Topology};
use crate::experiment::{Axis, Claim, Figure, Interval, Level, Part, Point, Series, Style, Table, Verdict};

/// Published: an interruption of this share of that of Storm's rebalance.
const INTERRUPTION: f64 = 0.125;

/// A prediction that is off by no more than this share of it is right.
const RIGHT: f64 = 0.10;

/// The planner whose predictions are looked at.
const BEST: &str = "best";

/// Series stand so far apart.
const APART: f64 = 0.07;

/// Runs, and the plan that they are of.
pub(super) struct Results<'a> {
    pub(super) plan: &'a Plan,
    pub(super) table: &'a Table,
}

/// What Stela's own planner is for a topology.
fn stela(topology: &Topology) -> &'static str {
    if topology.is_scale_out() { "stela" } else { "etp-sum" }
}

impl Results<'_> {
    fn cells(&self, topology: &'static Topology) -> impl Iterator<Item = &Cell> {
        self.plan.cells.iter().filter(move |cell| cell.topology.key == topology.key)
    }

    fn find(&self, topology: &'static Topology, planner: &str, mechanism: Mechanism) -> Option<&Cell> {
        self.cells(topology).find(|cell| cell.planner == planner && cell.mechanism == mechanism)
    }

    fn mean(&self, cell: &Cell, metric: &str) -> Option<Interval> {
        self.table.mean(&cell.factors(), metric)
    }

    fn median(&self, cell: &Cell, metric: &str) -> Option<f64> {
        let cell = cell.factors();
        let mut figures: Vec<f64> = self.table.by_seed(&cell, metric).into_values().collect();
        figures.sort_by(f64::total_cmp);
        let middle = figures.len().checked_sub(1)? / 2;
        Some(f64::midpoint(figures[middle], figures[figures.len() / 2]))
    }

    /// One cell's figure over another's, repeat by repeat.
    fn over(&self, cell: &Cell, other: &Cell, metric: &str) -> Option<Interval> {
        let (cell, other) = (cell.factors(), other.factors());
        let of = self.table.by_seed(&cell, metric);
        let others = self.table.by_seed(&other, metric);
        ratio(others.iter().filter_map(|(repeat, figure)| Some((*of.get(repeat)?, *figure))))
    }

    fn gain(&self, topology: &'static Topology, planner: &str) -> Option<Interval> {
        let (of, default) =
            (self.find(topology, planner, Mechanism::Live)?, self.find(topology, DEFAULT, Mechanism::Live)?);
        let Interval { mean, half, count } = self.over(of, default, "after")?;
        Some(Interval { mean: mean - 1.0, half, count })
    }

    fn topologies(&self) -> impl Iterator<Item = &'static Topology> {
        TOPOLOGIES.iter().filter(|topology| self.cells(topology).next().is_some())
    }

    /// Throughput over that of Storm's default, downtime by mechanism, and measured against predicted throughput; those of
    /// which there is something.
    pub(super) fn figures(&self) -> Vec<Figure> {
        [self.throughput(), self.downtime(), self.predicted()].into_iter().flatten().collect()
    }

    /// A figure with a place for each topology; none if it has no points.
    fn by_topology(
        &self,
        (id, title, y): (&str, &str, Axis),
        names: &[&str],
        levels: Vec<Level>,
        point: impl Fn(&'static Topology, &str) -> Option<Interval>,
    ) -> Option<Figure> {
        let places: Vec<(u32, &'static Topology)> = (1..).zip(self.topologies()).collect();
        let series = names.iter().enumerate().map(|(number, name)| Series {
            name: (*name).to_owned(),
            points: places
                .iter()
                .filter_map(|(place, topology)| {
                    let x = f64::from(*place) + number as f64 * APART;
                    Some(Point::new(x, point(topology, name)?))
                })
                .collect(),
            style: Style::Points,
        });
        let series: Vec<Series> = series.filter(|series| !series.points.is_empty()).collect();
        let across: Vec<String> = places.iter().map(|(place, t)| format!("{place} {}", t.title)).collect();
        (!series.is_empty()).then(|| Figure {
            id: id.to_owned(),
            title: title.to_owned(),
            x: Axis::linear(&across.join(", ")).close(),
            y,
            series,
            levels,
        })
    }

    fn throughput(&self) -> Option<Figure> {
        let mut names: Vec<&str> =
            OUT.iter().chain(&IN).copied().filter(|planner| *planner != DEFAULT).collect();
        names.sort_unstable();
        names.dedup();
        names.push("published (Stela)");
        self.by_topology(
            ("throughput", "Measured: throughput afterwards", Axis::linear("over that of Storm's default")),
            &names,
            vec![Level { name: "Storm's default".to_owned(), at: 1.0, upright: false }],
            |topology, name| match topology.published.filter(|_| name == "published (Stela)") {
                // From the least to the most that is said.
                Some(said) => Some(Interval {
                    mean: 1.0 + f64::midpoint(said.least, said.most),
                    half: Some((said.most - said.least) / 2.0).filter(|half| *half > 0.0),
                    count: 1,
                }),
                None => self.gain(topology, name).map(|gain| Interval { mean: gain.mean + 1.0, ..gain }),
            },
        )
    }

    fn downtime(&self) -> Option<Figure> {
        self.by_topology(
            (
                "downtime",
                "Measured: downtime by mechanism",
                Axis::linear("ms without a row, in gaps longer than any before"),
            ),
            &Mechanism::ALL.map(Mechanism::name),
            Vec::new(),
            |topology, name| {
                let how = Mechanism::ALL.into_iter().find(|how| how.name() == name)?;
                let planner = if how == Mechanism::RestartAll { DEFAULT } else { stela(topology) };
                self.mean(self.find(topology, planner, how)?, "downtime_ms")
            },
        )
    }

    fn predicted(&self) -> Option<Figure> {
        self.by_topology(
            (
                "predicted",
                "Measured throughput afterwards over what was predicted",
                Axis::linear("measured over predicted"),
            ),
            &OUT,
            vec![Level { name: "as predicted".to_owned(), at: 1.0, upright: false }],
            |topology, planner| {
                let error = self.mean(self.find(topology, planner, Mechanism::Live)?, "error")?;
                Some(Interval { mean: 1.0 + error.mean, ..error })
            },
        )
    }

    /// All claims.
    pub(super) fn claims(&self) -> Vec<Claim> {
        let mut claims: Vec<Claim> =
            self.topologies().map(|topology| self.throughput_claim(topology)).collect();
        claims.extend([self.interruption(), self.prediction(), self.rows()]);
        claims
    }

    fn throughput_claim(&self, topology: &'static Topology) -> Claim {
        let (claim, source) = published(topology);
        let least = topology.published.map_or(0.0, |published| published.least);
        let gain = self.gain(topology, stela(topology));
        let measured = Part {
            scene: "queues block".to_owned(),
            verdict: shown(gain, |gain| Verdict::within(gain, least, f64::INFINITY)),
            measured: self.words(topology),
        };
        let mut parts = vec![measured];
        let not_run = self.plan.not_run.iter().find(|cell| cell.topology.key == topology.key);
        if let Some((cell, why)) = not_run.and_then(|cell| Some((cell, cell.why_not()?))) {
            parts.push(Part {
                scene: format!("queues {}", cell.overflow.name()),
                verdict: Verdict::NotShown,
                measured: format!("not run: {why}"),
            });
        }
        Claim::new(
            &format!("throughput-{}", topology.key),
            &claim,
            source,
            "all of the 95 % interval of the gain is at least the published one (above 0 where that is not known), whatever \
             a full queue does",
            parts,
        )
        .because(
            "The published engine has queues that grow, which this one does not have yet: where queues block nothing is \
             congested in the published sense, and Stela's instances go to the first spout.",
        )
        .shown_by(["throughput.svg".to_owned()])
    }

    fn words(&self, topology: &'static Topology) -> String {
        let of = |planner: &str, metric| self.mean(self.find(topology, planner, Mechanism::Live)?, metric);
        let Some(default) = of(DEFAULT, "after") else {
            return format!("not run with `{DEFAULT}`, live");
        };
        let before =
            of(DEFAULT, "before").map_or_else(String::new, |rows| format!("{:.0} before, ", rows.mean));
        let mut words = format!("rows/s: {before}{:.0} with Storm's default", default.mean);
        for planner in planners(topology).iter().filter(|planner| **planner != DEFAULT) {
            let Some(after) = of(planner, "after") else { continue };
            let gain = self.gain(topology, planner);
            let against = gain.map_or_else(String::new, |gain| {
                let half = gain.half.map_or_else(String::new, |half| format!(" ± {:.0}", half * 100.0));
                format!(" ({}{half})", percent(gain.mean))
            });
            words.push_str(&format!("; {planner} {:.0}{against}", after.mean));
        }
        words
    }

    fn interruption(&self) -> Claim {
        let parts = self.topologies().filter_map(|topology| {
            let all = self.find(topology, DEFAULT, Mechanism::RestartAll)?;
            let moved = self.find(topology, stela(topology), Mechanism::RestartMoved)?;
            let ratio = self.over(moved, all, "downtime_ms");
            let ms = |cell: Option<&Cell>| {
                let mean = cell.and_then(|cell| self.mean(cell, "downtime_ms"));
                mean.map_or_else(|| "not run".to_owned(), |mean| format!("{:.0} ms", mean.mean))
            };
            let share = ratio.map_or_else(
                || "restart-all interrupted nothing".to_owned(),
                |ratio| format!("{:.1} %", ratio.mean * 100.0),
            );
            Some(Part {
                scene: topology.title.to_owned(),
                verdict: shown(ratio, |ratio| Verdict::at_most(ratio, INTERRUPTION)),
                measured: format!(
                    "{share}: restart-moved {}, restart-all {}; live {}",
                    ms(Some(moved)),
                    ms(Some(all)),
                    ms(self.find(topology, stela(topology), Mechanism::Live))
                ),
            })
        });
        Claim::new(
            "interruption",
            "Stela's interruption is 12.5 % of that of Storm's rebalance",
            "slides, in samples of 10 s; here downtime at 1 ms",
            "all of the 95 % interval of the ratio of restart-moved to restart-all is at most 12.5 %",
            parts.collect(),
        )
        .shown_by(["downtime.svg".to_owned()])
    }

    fn prediction(&self) -> Claim {
        let parts = self.topologies().filter_map(|topology| {
            let cell = self.find(topology, BEST, Mechanism::Live)?;
            let error = self.median(cell, "error")?;
            let (after, predicted) = (self.median(cell, "after")?, self.median(cell, "predicted_after")?);
            let runs = self.mean(cell, "error").map_or(0, |error| error.count);
            Some(Part {
                scene: topology.title.to_owned(),
                verdict: Verdict::of(error.abs() <= RIGHT),
                measured: format!(
                    "{}: {after:.0} rows/s, predicted {predicted:.0} (medians of {runs})",
                    percent(error)
                ),
            })
        });
        Claim::new(
            "prediction",
            "Throughput after the operation is as the planner's model predicted from rates that were measured before it",
            "ours",
            "the median error of the runs of `best`, live, is at most 10 %",
            parts.collect(),
        )
        .because(
            "The model knows neither queues that run empty for a moment nor senders that wait for the slowest of several receivers; \
             what that costs before the operation is taken off afterwards too (`calibration`), and need not be the same then. Where \
             `cores_used` is near all processors, rows take longer than they are said to, and less comes out.",
        )
        .shown_by(["predicted.svg".to_owned()])
    }

    fn rows(&self) -> Claim {
        let live = self.plan.cells.iter().filter(|cell| cell.mechanism == Mechanism::Live);
        let sum =
            |cell: &Cell, metric| -> f64 { self.table.by_seed(&cell.factors(), metric).into_values().sum() };
        let parts = self.topologies().filter_map(|topology| {
            let of = |metric| -> f64 {
                live.clone().filter(|cell| cell.topology.key == topology.key).map(|cell| sum(cell, metric)).sum()
            };
            // What is not known is not 0.
            let runs = |metric| -> usize {
                let cells = live.clone().filter(|cell| cell.topology.key == topology.key);
                cells.map(|cell| self.table.by_seed(&cell.factors(), metric).len()).sum()
            };
            let known = runs("lost").min(runs("duplicated"));
            let (expected, lost, twice) = (of("expected"), of("lost"), of("duplicated"));
            let dropped: f64 = self.cells(topology).map(|cell| sum(cell, "dropped")).sum();
            (expected > 0.0).then(|| Part {
                scene: topology.title.to_owned(),
                verdict: if lost + twice == 0.0 && known < runs("expected") {
                    Verdict::NotShown
                } else {
                    Verdict::of(lost + twice == 0.0)
                },
                measured: format!(
                    "of {expected:.0} rows {lost:.0} lost, {twice:.0} twice, as {known} of {} runs say; restarts dropped and \
                     counted {dropped:.0}",
                    runs("expected")
                ),
            })
        });
        Claim::new(
            "rows",
            "A live rescale loses no row and doubles none",
            "ours; the published runs did not track rows",
            "no number is missing or comes too often at the sinks, live",
            parts.collect(),
        )
    }
}

/// A verdict takes more than one run.
fn shown(of: Option<Interval>, test: impl Fn(&Interval) -> Verdict) -> Verdict {
    of.filter(|interval| interval.half.is_some()).map_or(Verdict::NotShown, |interval| test(&interval))
}

/// Says what of a plan is not run, and why.
pub(super) fn not_run(plan: &Plan) -> Option<String> {
    let why = plan.not_run.first()?.why_not()?;
    Some(format!("{} configurations are not run: {why}.", plan.not_run.len()))
}

#[cfg(test)]
mod tests {
    use super::super::live::METRICS;
    use super::super::plan::{FACTORS, Options, Set};
    use super::*;
    use crate::experiment::{Columns, Record};

    /// Runs of Star that have these figures, two repeats of each, the second 2 higher.
    fn table(plan: &Plan, figure: impl Fn(&Cell, &str) -> Option<f64>) -> Table {
        let factors = FACTORS.into_iter().chain(["repeat"]).collect();
        let columns = Columns { factors, metrics: METRICS.to_vec() };
        let record = |cell: &Cell, repeat: u32| Record {
            factors: cell.factors().into_iter().chain([repeat.to_string()]).collect(),
            metrics: METRICS
                .iter()
                .map(|metric| Some(figure(cell, metric)? + f64::from(repeat - 1) * 2.0))
                .collect(),
        };
        let records = plan.cells.iter().flat_map(|cell| [record(cell, 1), record(cell, 2)]);
        Table::new(columns, records.collect())
    }

    fn star() -> Plan {
        let options = Options { topologies: vec!["star".to_owned()], ..Options::new(Set::Standard) };
        Plan::new(&options).unwrap()
    }

    fn claim(results: &Results<'_>, id: &str) -> Claim {
        results.claims().into_iter().find(|claim| claim.id == id).unwrap()
    }

    #[test]
    fn claims_have_what_is_published_what_was_measured_and_what_was_not_run() {
        let plan = star();
        let table = table(&plan, |cell, metric| match (metric, cell.planner, cell.mechanism) {
            ("after", "stela", _) => Some(1700.0),
            ("after" | "before" | "expected", ..) => Some(1000.0),
            ("predicted_after", ..) => Some(1010.0),
            ("downtime_ms", _, Mechanism::RestartMoved) => Some(90.0),
            ("downtime_ms", _, Mechanism::RestartAll) => Some(1100.0),
            ("error", ..) => Some(-2.01),
            ("lost", "best", _) => None,
            _ => Some(0.0),
        });
        let results = Results { plan: &plan, table: &table };
        let throughput = claim(&results, "throughput-star");
        let [block, grow] = &throughput.parts[..] else { panic!("{throughput:?}") };
        assert_eq!((block.verdict, grow.verdict), (Verdict::Holds, Verdict::NotShown));
        assert!(
            throughput.claim.contains("+65 %") && block.measured.contains("stela 1701 (+70 % "),
            "{block:?}"
        );
        assert!(grow.measured.starts_with("not run: "), "{grow:?}");
        let interruption = claim(&results, "interruption");
        assert_eq!(interruption.verdict, Verdict::Holds, "{interruption:?}");
        assert!(
            interruption.parts[0]
                .measured
                .starts_with("8.3 %: restart-moved 91 ms, restart-all 1101 ms; live 1 ms")
        );
        // The median of -2.01 and -0.01.
        assert_eq!(claim(&results, "prediction").verdict, Verdict::DoesNotHold);
        assert_eq!(claim(&results, "rows").verdict, Verdict::NotShown, "of some runs it is not known");
        let files: Vec<String> = results.figures().iter().map(Figure::file).collect();
        assert_eq!(files, ["throughput.svg", "downtime.svg", "predicted.svg"]);
        results.figures().iter().for_each(|figure| assert!(figure.svg().is_ok(), "{figure:?}"));
    }

    #[test]
    fn one_run_gives_no_verdict_that_needs_an_interval() {
        let of = |half| Some(Interval { mean: 0.7, half, count: 1 });
        let test = |gain: &Interval| Verdict::within(gain, 0.65, f64::INFINITY);
        assert_eq!(shown(of(None), test), Verdict::NotShown);
        assert_eq!(shown(of(Some(0.01)), test), Verdict::Holds);
        assert_eq!(shown(None, test), Verdict::NotShown);
    }
}
