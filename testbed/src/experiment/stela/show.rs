//! What the model predicts as a table, figures, and claims beside what is published.

use super::model::{Choice, DEFAULT, DEFAULT_N, Predicted};
use super::plan::{IN, OUT, Overflow};
use super::topology::{TOPOLOGIES, Topology};
use crate::experiment::{
    Axis, Claim, Columns, Figure, Level, Part, Point, Record, Series, Style, Table, Verdict, rounded,
};

/// What is set, and what the model says, in `model.csv`.
const FACTORS: [&str; 3] = ["topology", "overflow", "planner"];
const METRICS: [&str; 9] = [
    "before",
    "after",
    "slots",
    "moved",
    "over_before",
    "over_default",
    "over_default_n",
    "published_least",
    "published_most",
];

/// Series of a figure stand so far apart, that points of equal height can be told apart.
const APART: f64 = 0.07;

/// All predictions.
pub(super) struct Predictions(pub(super) Vec<Predicted>);

impl Predictions {
    fn of(&self, topology: &Topology, overflow: Overflow) -> impl Iterator<Item = &Predicted> {
        let fits = move |p: &&Predicted| p.topology.key == topology.key && p.overflow == overflow;
        self.0.iter().filter(fits)
    }

    fn find(&self, topology: &Topology, overflow: Overflow, planner: &str) -> Option<&Predicted> {
        self.of(topology, overflow).find(|predicted| predicted.planner == planner)
    }

    /// By how much more comes out than with another planner, as a share of that.
    fn over(&self, predicted: &Predicted, other: &str) -> Option<f64> {
        let other = self.find(predicted.topology, predicted.overflow, other)?;
        more(predicted.choice.after, other.choice.after)
    }

    /// A row for each topology, kind of queue and planner.
    pub(super) fn table(&self) -> Table {
        let columns = Columns { factors: FACTORS.to_vec(), metrics: METRICS.to_vec() };
        let record = |predicted: &Predicted| {
            let Predicted { topology, planner, overflow, choice } = predicted;
            let Choice { before, after, slots, moved, .. } = choice;
            let published = topology.published;
            let metrics: [Option<f64>; METRICS.len()] = [
                Some(*before),
                Some(*after),
                topology.is_scale_out().then_some(f64::from(*slots)),
                Some(*moved as f64),
                more(*after, *before),
                self.over(predicted, DEFAULT),
                self.over(predicted, DEFAULT_N),
                published.map(|published| published.least),
                published.map(|published| published.most),
            ];
            Record {
                factors: [topology.key, overflow.name(), *planner].map(str::to_owned).into(),
                metrics: metrics.into_iter().map(|figure| figure.map(rounded)).collect(),
            }
        };
        Table::new(columns, self.0.iter().map(record).collect())
    }

    /// The planners of figures: those of the publication's comparison, then others that have predictions.
    fn planners(&self, is_out: bool) -> Vec<&'static str> {
        let mut names = if is_out { OUT.to_vec() } else { IN.to_vec() };
        for predicted in self.0.iter().filter(|predicted| predicted.topology.is_scale_out() == is_out) {
            if !names.contains(&predicted.planner) {
                names.push(predicted.planner);
            }
        }
        names
    }

    /// Throughput over that of Storm's default: of every topology by kind of queue, and of the one that is scaled in.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let out: Vec<&Topology> = TOPOLOGIES.iter().filter(|topology| topology.is_scale_out()).collect();
        let mut figures: Vec<Figure> = Vec::new();
        for overflow in Overflow::ALL {
            let places: Vec<_> = (1u32..).zip(out.iter().map(|topology| (*topology, overflow))).collect();
            let names = out.iter().enumerate().map(|(n, t)| format!("{} {}", n + 1, t.title));
            let names: Vec<String> = names.collect();
            figures.push(self.figure(
                &file_id(true, overflow),
                &format!("Model: scale-out where queues {}", overflow.name()),
                &names.join(", "),
                &self.planners(true),
                &places,
            ));
        }
        let scale_in = TOPOLOGIES.iter().filter(|topology| !topology.is_scale_out());
        for topology in scale_in {
            let places: Vec<_> = (1u32..).zip(Overflow::ALL.map(|overflow| (topology, overflow))).collect();
            let id = file_id(false, Overflow::Grow);
            let machines = topology.machines;
            let title =
                format!("Model: {}, {} machines to {}", topology.title, machines.before, machines.after);
            figures.push(self.figure(
                &id,
                &title,
                "1 queues grow, 2 queues block",
                &self.planners(false),
                &places,
            ));
        }
        figures
    }

    fn figure(
        &self,
        id: &str,
        title: &str,
        across: &str,
        planners: &[&str],
        places: &[(u32, (&'static Topology, Overflow))],
    ) -> Figure {
        let at = |series: usize, place: u32| f64::from(place) + (series as f64) * APART;
        let shown = planners.iter().filter(|planner| **planner != DEFAULT).enumerate();
        let mut series: Vec<Series> = shown
            .map(|(number, planner)| {
                let point = |(place, (topology, overflow)): &(u32, (&'static Topology, Overflow))| {
                    let predicted = self.find(topology, *overflow, planner)?;
                    let y = 1.0 + self.over(predicted, DEFAULT)?;
                    Some(Point { x: at(number, *place), y, half: None })
                };
                let points = places.iter().filter_map(point).collect();
                Series { name: (*planner).to_owned(), points, style: Style::Points }
            })
            .collect();
        let number = series.len();
        let published = places.iter().flat_map(|(place, (topology, _))| {
            let ends = topology.published.map(|published| [published.least, published.most]);
            let mut ends = ends.map(Vec::from).unwrap_or_default();
            ends.dedup();
            let point = |end: f64| Point { x: at(number, *place), y: 1.0 + end, half: None };
            ends.into_iter().map(point).collect::<Vec<_>>()
        });
        let name = "published (Stela)".to_owned();
        series.push(Series { name, points: published.collect(), style: Style::Points });
        Figure {
            id: id.to_owned(),
            title: title.to_owned(),
            x: Axis::linear(across).close(),
            y: Axis::linear("throughput over that of Storm's default"),
            series,
            levels: vec![Level { name: "Storm's default".to_owned(), at: 1.0, upright: false }],
        }
    }

    /// Each topology's published figure beside the model's. None has a verdict: nothing was measured.
    pub(super) fn claims(&self) -> Vec<Claim> {
        TOPOLOGIES.iter().map(|topology| self.claim(topology)).collect()
    }

    fn claim(&self, topology: &'static Topology) -> Claim {
        let (claim, source) = published(topology);
        let parts = Overflow::ALL.map(|overflow| Part {
            scene: format!("queues {}", overflow.name()),
            verdict: Verdict::NotShown,
            measured: self.words(topology, overflow),
        });
        let figure = format!("{}.svg", file_id(topology.is_scale_out(), Overflow::Grow));
        let mut figures = vec![figure];
        if topology.is_scale_out() {
            figures.push(format!("{}.svg", file_id(true, Overflow::Block)));
        }
        Claim::new(
            &format!("throughput-{}", topology.key),
            &claim,
            source,
            "runs with agents show it",
            parts.into(),
        )
        .because("These are predictions; nothing was run.")
        .shown_by(figures)
    }

    /// What the model predicts for one topology, in words.
    fn words(&self, topology: &Topology, overflow: Overflow) -> String {
        let Some(default) = self.find(topology, overflow, DEFAULT) else { return "no prediction".to_owned() };
        let mut words = format!(
            "predicted, rows/s: {:.0} before, {:.0} with Storm's default",
            default.choice.before, default.choice.after
        );
        for predicted in self.of(topology, overflow).filter(|predicted| predicted.planner != DEFAULT) {
            let against = self.over(predicted, DEFAULT).map_or_else(String::new, percent);
            words.push_str(&format!("; {} {:.0} ({against}", predicted.planner, predicted.choice.after));
            words.push_str(&added(&predicted.choice));
            words.push(')');
        }
        words
    }
}

/// What is published of a topology's throughput, in words, and where.
pub(super) fn published(topology: &Topology) -> (String, &'static str) {
    let machines = topology.machines;
    let what = format!(
        "{}, {} machines{} to {}",
        topology.title,
        machines.before,
        if machines.known { "" } else { " (not published)" },
        machines.after
    );
    match topology.published {
        Some(published) => {
            let (least, most) = (percent(published.least), percent(published.most));
            let by = if least == most { least } else { format!("{least} to {most}") };
            (
                format!("{what}: published is a throughput of {by} against that of Storm's default"),
                published.source,
            )
        }
        None => (
            format!("{what}: a figure shows throughput above that of Storm's default"),
            "IC2E figure, whose bars were not recovered",
        ),
    }
}

fn file_id(is_out: bool, overflow: Overflow) -> String {
    if is_out { format!("model-out-{}", overflow.name()) } else { "model-in".to_owned() }
}

/// What is added, in words: `: centre +1, sink1 +2`, or nothing.
pub(super) fn added(choice: &Choice) -> String {
    let added: Vec<String> = choice.added.iter().map(|(id, n)| format!("{id} +{n}")).collect();
    if added.is_empty() { String::new() } else { format!(": {}", added.join(", ")) }
}

/// By how much one is more than the other, as a share of that; none of nothing.
fn more(this: f64, than: f64) -> Option<f64> {
    (than > 0.0).then(|| this / than - 1.0)
}

/// `+65 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{:+.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of topologies that machines are added to; the search for machines to take has its own tests, and takes a while.
    fn of(topologies: std::ops::Range<usize>) -> Predictions {
        let planners = tuplane_core::scale::Planners::default();
        Predictions(super::super::plan::predictions(&TOPOLOGIES[topologies], &[], &planners).unwrap().0)
    }

    #[test]
    fn every_planner_and_queue_has_a_row_a_point_and_a_word() {
        let all = of(0..6);
        assert_eq!(all.table().records().len(), 6 * OUT.len() * Overflow::ALL.len());
        for predicted in &all.0 {
            assert!(predicted.choice.before > 0.0 && predicted.choice.after > 0.0, "{predicted:?}");
            let added: u32 = predicted.choice.added.iter().map(|(_, n)| n).sum();
            assert!(added <= predicted.choice.slots, "{predicted:?}");
        }
        let figures = all.figures();
        figures[..2].iter().for_each(|figure| assert!(figure.svg().unwrap().contains("published (Stela)")));
        let files: Vec<String> = figures.iter().map(Figure::file).collect();
        for claim in all.claims() {
            assert_eq!(claim.verdict, Verdict::NotShown);
            assert!(!claim.figures.is_empty() && claim.figures.iter().all(|figure| files.contains(figure)));
        }
    }

    #[test]
    fn what_the_model_says_where_it_can_be_reckoned_by_hand() {
        let all = of(1..2);
        let of = |key: &str, overflow, planner: &str| {
            let topology = TOPOLOGIES.iter().find(|topology| topology.key == key).unwrap();
            all.find(topology, overflow, planner).unwrap().clone()
        };
        // Linear has one instance of each of the four operators on each machine of two cores. Back-pressured a row
        // costs 5 + 5 + 10 + 5 ms: 80 rows/s on each of six would fill them. But the second bolt, which always asks for a core, meets
        // two or three of the others, which ask for a share `a` of the time and need 0.5 cores for each of its.
        let b = |a: f64| 1.0 - a;
        let bolt = |a: f64| b(a).powi(3) + 3.0 * a * b(a).powi(2) + 2.0 * a.powi(2) * b(a) + a.powi(3) / 2.0;
        let other = |a: f64| b(a).powi(2) + 4.0 / 3.0 * a * b(a) + a.powi(2) / 2.0;
        let asks = (0..1_000_000).map(|part| f64::from(part) / 1e6).find(|a| a * other(*a) >= 0.5 * bolt(*a));
        let rows = 6.0 * 100.0 * bolt(asks.unwrap());
        let blocked = of("linear", Overflow::Block, DEFAULT);
        assert!(rows < 480.0 && (blocked.choice.before - rows).abs() < 1e-2, "{rows} {blocked:?}");
        // Without back-pressure spout and first bolt work for rows that the second bolt cannot take: of the two cores
        // the last bolt gets what it asks for, x/2, and the others x each: 3.5 x = 2.
        let grows = of("linear", Overflow::Grow, DEFAULT);
        assert!((grows.choice.before - 6.0 * (2.0 / 3.5) / 0.01).abs() < 0.1, "{grows:?}");
        // Then the published test finds the second bolt, and all new instances are its.
        assert_eq!(of("linear", Overflow::Grow, "stela").choice.added, [("bolt2".to_owned(), 4)]);
        // Under back-pressure it finds nothing, and the slots go to the first source.
        assert_eq!(of("linear", Overflow::Block, "stela").choice.added, [("spout".to_owned(), 4)]);
    }
}
