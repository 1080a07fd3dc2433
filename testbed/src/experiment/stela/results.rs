//! What runs have shown: figures, and claims beside what is published.

use super::measure::ratio;
use super::model::{DEFAULT, DEFAULT_N};
use super::plan::{Cell, IN, Mechanism, OUT, Overflow, Plan, planners};
use super::show::{percent, published};
use super::topology::{TOPOLOGIES, Topology};
use crate::experiment::{Axis, Claim, Figure, Interval, Level, Part, Point, Series, Style, Table, Verdict};

/// Published: an interruption of this share of that of Storm's rebalance.
const INTERRUPTION: f64 = 0.125;

/// A prediction that is off by no more than this share of it is right.
const RIGHT: f64 = 0.10;

/// So many runs say whether it is.
const ENOUGH: usize = 5;

/// The planner whose predictions are looked at.
const BEST: &str = "best";

/// Series stand so far apart.
const APART: f64 = 0.07;

/// Stela against Storm's default, each with its own way to restart.
const AS_PUBLISHED: &str = "stela, restarted as published";

/// Runs, and the plan that they are of.
pub(super) struct Results<'a> {
    pub(super) plan: &'a Plan,
    pub(super) table: &'a Table,
}

/// What Stela's own planner is for a topology.
fn stela(topology: &Topology) -> &'static str {
    if topology.is_scale_out() { "stela" } else { "etp-sum" }
}

/// How planners' choices are carried out that are compared, and how Storm's default is.
#[derive(Debug, Clone, Copy)]
struct How {
    words: &'static str,
    planner: Mechanism,
    default: Mechanism,
}

/// Both as the product does it.
const LIVE: How = How { words: "live", planner: Mechanism::Live, default: Mechanism::Live };

/// Each as its own system does it.
const PUBLISHED: How =
    How { words: "restarted as published", planner: Mechanism::RestartMoved, default: Mechanism::RestartAll };

impl How {
    fn of(self, planner: &str) -> Mechanism {
        if [DEFAULT, DEFAULT_N].contains(&planner) { self.default } else { self.planner }
    }
}

impl Results<'_> {
    fn cells(&self, topology: &'static Topology, overflow: Overflow) -> impl Iterator<Item = &Cell> {
        let of = move |cell: &&Cell| cell.topology.key == topology.key && cell.overflow == overflow;
        self.plan.cells.iter().filter(of)
    }

    fn find(
        &self,
        topology: &'static Topology,
        overflow: Overflow,
        planner: &str,
        mechanism: Mechanism,
    ) -> Option<&Cell> {
        self.cells(topology, overflow).find(|cell| cell.planner == planner && cell.mechanism == mechanism)
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

    /// By how much more comes out afterwards than with Storm's default, as a share of that.
    fn gain(
        &self,
        topology: &'static Topology,
        overflow: Overflow,
        planner: &str,
        how: How,
    ) -> Option<Interval> {
        let of = |planner: &str| self.find(topology, overflow, planner, how.of(planner));
        let Interval { mean, half, count } = self.over(of(planner)?, of(DEFAULT)?, "after")?;
        Some(Interval { mean: mean - 1.0, half, count })
    }

    fn topologies(&self, overflow: Overflow) -> impl Iterator<Item = &'static Topology> {
        TOPOLOGIES.iter().filter(move |topology| self.cells(topology, overflow).next().is_some())
    }

    /// Each topology with each kind of queue that it is run with.
    fn scenes(&self) -> impl Iterator<Item = (&'static Topology, Overflow)> {
        self.plan.overflows().flat_map(|overflow| self.topologies(overflow).map(move |t| (t, overflow)))
    }

    /// Throughput over that of Storm's default, downtime by mechanism, and measured against predicted throughput, of each kind
    /// of queue; those of which there is something.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let of = |overflow| [self.throughput(overflow), self.downtime(overflow), self.predicted(overflow)];
        self.plan.overflows().flat_map(of).flatten().collect()
    }

    /// A figure with a place for each topology; none if it has no points.
    fn by_topology(
        &self,
        (id, title, y): (&str, &str, Axis),
        overflow: Overflow,
        names: &[&str],
        levels: Vec<Level>,
        point: impl Fn(&'static Topology, &str) -> Option<Interval>,
    ) -> Option<Figure> {
        let places: Vec<(u32, &'static Topology)> = (1..).zip(self.topologies(overflow)).collect();
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
            id: format!("{id}-{}", overflow.name()),
            title: format!("Measured, {}: {title}", overflow.words()),
            x: Axis::linear(&across.join(", ")).close(),
            y,
            series,
            levels,
        })
    }

    fn throughput(&self, overflow: Overflow) -> Option<Figure> {
        let mut names: Vec<&str> =
            OUT.iter().chain(&IN).copied().filter(|planner| *planner != DEFAULT).collect();
        names.sort_unstable();
        names.dedup();
        names.extend([AS_PUBLISHED, "published (Stela)"]);
        self.by_topology(
            ("throughput", "throughput afterwards", Axis::linear("over that of Storm's default")),
            overflow,
            &names,
            vec![Level { name: "Storm's default".to_owned(), at: 1.0, upright: false }],
            |topology, name| {
                let published = topology.published.filter(|_| name == "published (Stela)");
                // From the least to the most that is said.
                let said = published.map(|said| Interval {
                    mean: 1.0 + f64::midpoint(said.least, said.most),
                    half: Some((said.most - said.least) / 2.0).filter(|half| *half > 0.0),
                    count: 1,
                });
                said.or_else(|| {
                    let gain = match name {
                        AS_PUBLISHED => self.gain(topology, overflow, stela(topology), PUBLISHED),
                        planner => self.gain(topology, overflow, planner, LIVE),
                    };
                    gain.map(|gain| Interval { mean: gain.mean + 1.0, ..gain })
                })
            },
        )
    }

    fn downtime(&self, overflow: Overflow) -> Option<Figure> {
        self.by_topology(
            (
                "downtime",
                "downtime by mechanism",
                Axis::linear("ms without a row, in gaps longer than any before"),
            ),
            overflow,
            &Mechanism::ALL.map(Mechanism::name),
            Vec::new(),
            |topology, name| {
                let how = Mechanism::ALL.into_iter().find(|how| how.name() == name)?;
                let planner = if how == Mechanism::RestartAll { DEFAULT } else { stela(topology) };
                self.mean(self.find(topology, overflow, planner, how)?, "downtime_ms")
            },
        )
    }

    fn predicted(&self, overflow: Overflow) -> Option<Figure> {
        self.by_topology(
            (
                "predicted",
                "throughput afterwards over what was predicted",
                Axis::linear("measured over predicted"),
            ),
            overflow,
            &OUT,
            vec![Level { name: "as predicted".to_owned(), at: 1.0, upright: false }],
            |topology, planner| {
                let error = self.mean(self.find(topology, overflow, planner, Mechanism::Live)?, "error")?;
                Some(Interval { mean: 1.0 + error.mean, ..error })
            },
        )
    }

    /// All claims.
    pub(super) fn claims(&self) -> Vec<Claim> {
        let is_run = |topology: &&'static Topology| self.scenes().any(|(run, _)| run.key == topology.key);
        let mut claims: Vec<Claim> =
            TOPOLOGIES.iter().filter(is_run).map(|topology| self.throughput_claim(topology)).collect();
        claims.extend([self.interruption(), self.prediction(), self.rows()]);
        claims
    }

    fn throughput_claim(&self, topology: &'static Topology) -> Claim {
        let (claim, source) = published(topology);
        let least = topology.published.map_or(0.0, |published| published.least);
        let part = |overflow: Overflow, how: How| {
            let gain = self.gain(topology, overflow, stela(topology), how);
            Part {
                scene: format!("{}, {}", overflow.words(), how.words),
                verdict: shown(gain, |gain| Verdict::within(gain, least, f64::INFINITY)),
                measured: self.words(topology, overflow, how),
            }
        };
        let scenes = self.scenes().filter(|(run, _)| run.key == topology.key);
        let parts = scenes.flat_map(|(_, overflow)| match overflow {
            Overflow::Grow => vec![part(overflow, PUBLISHED), part(overflow, LIVE)],
            Overflow::Block => vec![part(overflow, LIVE)],
        });
        let figures = self.plan.overflows().map(|overflow| format!("throughput-{}.svg", overflow.name()));
        Claim::new(
            &format!("throughput-{}", topology.key),
            &claim,
            source,
            "all of the 95 % interval of the gain is at least the published one (above 0 where that is not known), whatever \
             a full queue does, and where queues grow also with each planner's own way to restart",
            parts.collect(),
        )
        .because(
            "What operators cost is not published, and the gain depends on it. Where queues block nothing is congested in the \
             published sense, and Stela's instances go to the first spout.",
        )
        .shown_by(figures)
    }

    fn words(&self, topology: &'static Topology, overflow: Overflow, how: How) -> String {
        let of = |planner: &str, metric| {
            self.mean(self.find(topology, overflow, planner, how.of(planner))?, metric)
        };
        let Some(default) = of(DEFAULT, "after") else {
            return format!("not run with `{DEFAULT}`, {}", how.default.name());
        };
        let before =
            of(DEFAULT, "before").map_or_else(String::new, |rows| format!("{:.0} before, ", rows.mean));
        let mut words = format!("rows/s: {before}{:.0} with Storm's default", default.mean);
        for planner in planners(topology).iter().filter(|planner| **planner != DEFAULT) {
            let Some(after) = of(planner, "after") else { continue };
            let gain = self.gain(topology, overflow, planner, how);
            let against = gain.map_or_else(String::new, |gain| {
                let half = gain.half.map_or_else(String::new, |half| format!(" ± {:.0}", half * 100.0));
                format!(" ({}{half})", percent(gain.mean))
            });
            words.push_str(&format!("; {planner} {:.0}{against}", after.mean));
        }
        words
    }

    fn interruption(&self) -> Claim {
        let parts = self.scenes().filter_map(|(topology, overflow)| {
            let find = |planner, mechanism| self.find(topology, overflow, planner, mechanism);
            let all = find(DEFAULT, Mechanism::RestartAll)?;
            let moved = find(stela(topology), Mechanism::RestartMoved)?;
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
                scene: scene(topology, overflow),
                verdict: shown(ratio, |ratio| Verdict::at_most(ratio, INTERRUPTION)),
                measured: format!(
                    "{share}: restart-moved {}, restart-all {}; live {}",
                    ms(Some(moved)),
                    ms(Some(all)),
                    ms(find(stela(topology), Mechanism::Live))
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
        .shown_by(self.plan.overflows().map(|overflow| format!("downtime-{}.svg", overflow.name())))
    }

    fn prediction(&self) -> Claim {
        let parts = self.scenes().filter_map(|(topology, overflow)| {
            let cell = self.find(topology, overflow, BEST, Mechanism::Live)?;
            let error = self.median(cell, "error")?;
            let (after, predicted) = (self.median(cell, "after")?, self.median(cell, "predicted_after")?);
            let runs = self.mean(cell, "error").map_or(0, |error| error.count);
            Some(Part {
                scene: scene(topology, overflow),
                verdict: Verdict::of_enough(runs >= ENOUGH, error.abs() <= RIGHT),
                measured: format!(
                    "{}: {after:.0} rows/s, predicted {predicted:.0} (medians of {runs})",
                    percent(error)
                ),
            })
        });
        Claim::new(
            "prediction",
            "Throughput after the operation is as the planner's model of this engine predicted from rates that were measured \
             before it",
            "ours",
            "the median error of at least five runs (`--repeats 5`) of `best`, live, is at most 10 %",
            parts.collect(),
        )
        .because(
            "The model knows neither queues that run empty for a moment nor senders that wait for the slowest of several receivers; \
             what that costs before the operation is taken off afterwards too (`calibration`), and need not be the same then. Where \
             queues grow, rows that had come before the operation are worked off after it. Where `cores_used` is near all \
             processors, rows take longer than they are said to, and less comes out.",
        )
        .shown_by(self.plan.overflows().map(|overflow| format!("predicted-{}.svg", overflow.name())))
    }

    fn rows(&self) -> Claim {
        let parts = self.scenes().filter_map(|(topology, overflow)| {
            let sum = |cell: &Cell, metric| -> f64 {
                self.table.by_seed(&cell.factors(), metric).into_values().sum()
            };
            let of = |metric| -> f64 {
                let live =
                    self.cells(topology, overflow).filter(|cell| cell.mechanism == Mechanism::Live);
                live.map(|cell| sum(cell, metric)).sum()
            };
            // What is not known is not 0.
            let runs = |metric| -> usize {
                let cells =
                    self.cells(topology, overflow).filter(|cell| cell.mechanism == Mechanism::Live);
                cells.map(|cell| self.table.by_seed(&cell.factors(), metric).len()).sum()
            };
            let known = runs("lost").min(runs("duplicated"));
            let (expected, lost, twice) = (of("expected"), of("lost"), of("duplicated"));
            let dropped: f64 = self.cells(topology, overflow).map(|cell| sum(cell, "dropped")).sum();
            (expected > 0.0).then(|| Part {
                scene: scene(topology, overflow),
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

    /// Says how many runs were ended because queues had filled the memory, and of which configurations.
    pub(super) fn overrun(&self) -> Option<String> {
        let runs = |cell: &&Cell| self.table.by_seed(&cell.factors(), "overrun").into_values().sum::<f64>();
        let of: Vec<(&Cell, f64)> = self.plan.cells.iter().map(|cell| (cell, runs(&cell))).collect();
        let all: f64 = of.iter().map(|(_, runs)| runs).sum();
        let named = of.iter().filter(|(_, runs)| *runs > 0.0).map(|(cell, _)| cell.factors().join(","));
        (all > 0.0).then(|| {
            format!(
                "{all:.0} runs were ended because rows in queues filled 90 % of the memory that the job may hold on an agent, and \
                 count nowhere: {}.",
                named.collect::<Vec<_>>().join("; ")
            )
        })
    }
}

/// A topology and the kind of queue it is run with, in words.
fn scene(topology: &Topology, overflow: Overflow) -> String {
    format!("{}, {}", topology.title, overflow.words())
}

/// A verdict takes more than one run.
fn shown(of: Option<Interval>, test: impl Fn(&Interval) -> Verdict) -> Verdict {
    of.filter(|interval| interval.half.is_some()).map_or(Verdict::NotShown, |interval| test(&interval))
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
    fn claims_have_what_is_published_beside_what_was_measured_on_each_engine() {
        let plan = star();
        let table =
            table(&plan, |cell, metric| match (metric, cell.planner, cell.mechanism, cell.overflow) {
                ("after", "stela", Mechanism::RestartMoved, Overflow::Grow) => Some(2000.0),
                ("after", "stela", ..) => Some(1700.0),
                ("after" | "before" | "expected", ..) => Some(1000.0),
                ("predicted_after", ..) => Some(1010.0),
                ("downtime_ms", _, Mechanism::RestartMoved, _) => Some(90.0),
                ("downtime_ms", _, Mechanism::RestartAll, _) => Some(1100.0),
                ("error", _, _, Overflow::Block) => Some(-2.01),
                ("error", _, _, Overflow::Grow) => Some(-0.96),
                ("lost" | "duplicated" | "overrun", ..) => None,
                _ => Some(0.0),
            });
        let results = Results { plan: &plan, table: &table };
        let throughput = claim(&results, "throughput-star");
        let scenes: Vec<&str> = throughput.parts.iter().map(|part| part.scene.as_str()).collect();
        assert_eq!(
            scenes,
            ["queues grow, restarted as published", "queues grow, live", "queues block, live"]
        );
        assert!(throughput.parts.iter().all(|part| part.verdict == Verdict::Holds), "{throughput:?}");
        assert!(throughput.claim.contains("+65 %"), "{throughput:?}");
        let measured: Vec<&str> = throughput.parts.iter().map(|part| part.measured.as_str()).collect();
        assert!(measured[0].contains("stela 2001 (+100 % ") && !measured[0].contains("best"), "{measured:?}");
        assert!(measured[2].contains("stela 1701 (+70 % ") && measured[2].contains("best"), "{measured:?}");
        let interruption = claim(&results, "interruption");
        assert_eq!((interruption.verdict, interruption.parts.len()), (Verdict::Holds, 2), "{interruption:?}");
        assert!(
            interruption.parts[0]
                .measured
                .starts_with("8.3 %: restart-moved 91 ms, restart-all 1101 ms; live 1 ms")
        );
        // The medians of -0.96 and 1.04, and of -2.01 and -0.01.
        let right = claim(&results, "prediction").parts.into_iter().map(|part| (part.scene, part.verdict));
        assert_eq!(
            right.collect::<Vec<_>>(),
            [
                ("Star, queues grow".to_owned(), Verdict::NotShown),
                ("Star, queues block".to_owned(), Verdict::DoesNotHold)
            ]
        );
        assert_eq!(claim(&results, "rows").verdict, Verdict::NotShown, "of some runs it is not known");
        let files: Vec<String> = results.figures().iter().map(Figure::file).collect();
        let names = ["throughput-grow", "downtime-grow", "predicted-grow"];
        assert_eq!(files[..3], names.map(|name| format!("{name}.svg")));
        assert_eq!((files.len(), files[3].as_str()), (6, "throughput-block.svg"));
        results.figures().iter().for_each(|figure| assert!(figure.svg().is_ok(), "{figure:?}"));
        assert_eq!(results.overrun(), None);
    }

    #[test]
    fn runs_that_were_ended_are_said_and_count_nowhere() {
        let plan = star();
        let table = table(&plan, |cell, metric| match (metric, cell.overflow, cell.planner) {
            ("overrun", Overflow::Grow, "stela") => Some(0.5),
            ("overrun", ..) | (_, Overflow::Grow, "stela") => None,
            _ => Some(1000.0),
        });
        let results = Results { plan: &plan, table: &table };
        let said = results.overrun().unwrap();
        assert!(said.contains("star,stela,live,grow; star,stela,restart-moved,grow"), "{said}");
        let [published, ..] = &claim(&results, "throughput-star").parts[..] else { panic!("no parts") };
        assert_eq!(published.verdict, Verdict::NotShown, "{published:?}");
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
