//! The figures: response, cost and backlog over `V`, response over the window, predictors, phantoms, policies.

use tuplane_core::route::Setting;

use super::plan::{Cell, ERROR_WINDOW, LIGHT, Net, PAPER_V, PREDICTOR_WINDOW, Scene, Source};
use super::view::View;
use crate::experiment::{Axis, Figure, Level, Point, Series, Style};

const RESPONSE: &str = "mean response [slots]";
const COST: &str = "communication cost [hops per slot]";
const BACKLOG: &str = "weighted backlog h [tuples]";

/// The published span of the predictors' errors.
pub(super) const SPAN: (f64, f64) = (10.37, 22.54);

/// All figures of the plan.
pub(super) fn figures(view: &View<'_>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for net in view.plan.nets() {
        figures.extend([
            over_v(view, net, "response_mean", "response", &Axis::log(RESPONSE)),
            over_v(view, net, "cost_per_slot", "cost", &Axis::linear(COST).close()),
            over_v(view, net, "weighted_backlog", "backlog", &Axis::log(BACKLOG)),
            over_window(view, net),
            over_rate(view, net, "response_mean", "response", &Axis::log(RESPONSE)),
            over_rate(view, net, "cost_per_slot", "cost", &Axis::linear(COST)),
            over_uneven(view, net),
        ]);
        figures.extend(view.on(net).map(|scene| predictors(view, scene)));
        figures.extend(view.on(net).map(|scene| frontier(view, scene)));
    }
    figures
}

/// The file of a figure of these names.
pub(super) fn file(what: &str, net: Net) -> String {
    format!("{}.svg", id(what, net))
}

/// The file of a figure of one scene.
pub(super) fn file_of(what: &str, scene: Scene) -> String {
    format!("{}.svg", id_of(what, scene))
}

fn id(what: &str, net: Net) -> String {
    format!("{what}-{}", net.key())
}

fn id_of(what: &str, scene: Scene) -> String {
    let source = if scene.source == Source::Poisson { "poisson" } else { "trace" };
    format!("{what}-{}-{source}", scene.net.key())
}

/// Poisson arrivals have full lines.
fn style(scene: Scene) -> Style {
    if scene.source == Source::Poisson { Style::Line } else { Style::Dashed }
}

/// Points of cells, those without the figure left out.
fn points(view: &View<'_>, metric: &str, cells: impl IntoIterator<Item = (f64, Cell)>) -> Vec<Point> {
    let point = |(x, cell): (f64, Cell)| view.mean(&cell, metric).map(|mean| Point::new(x, mean));
    cells.into_iter().filter_map(point).collect()
}

fn level(name: String, at: Option<f64>) -> Option<Level> {
    at.map(|at| Level { name, at, upright: false })
}

fn over_v(view: &View<'_>, net: Net, metric: &str, what: &str, y: &Axis) -> Figure {
    let (mut series, mut levels) = (Vec::new(), Vec::new());
    for scene in view.on(net) {
        for setting in Setting::ALL {
            let vs = view.plan.vs.iter().copied().filter(|v| *v > 0.0);
            series.push(Series {
                name: format!("potus, {}, {}", setting.name(), view.source(scene.source)),
                points: points(view, metric, vs.map(|v| (v, Cell::potus(scene, setting).v(v)))),
                style: style(scene),
            });
        }
        let shuffle = view.mean(&Cell::of(scene, "shuffle"), metric).map(|mean| mean.mean);
        // Its backlog has another weight.
        if metric != "weighted_backlog" {
            levels.extend(level(format!("shuffle, {}", view.source(scene.source)), shuffle));
        }
    }
    Figure {
        id: id(&format!("v-{what}"), net),
        title: format!("{} over V, {}, W = 0", capital(what), net.title()),
        x: Axis::log("V [tuples per hop]"),
        y: y.clone(),
        series,
        levels,
    }
}

fn over_window(view: &View<'_>, net: Net) -> Figure {
    let (mut series, mut levels) = (Vec::new(), Vec::new());
    for scene in view.on(net) {
        for setting in Setting::ALL {
            let windows = std::iter::once(0).chain(view.plan.windows.iter().copied());
            let cells = windows.map(|w| (f64::from(w), Cell::potus(scene, setting).windows(w)));
            series.push(Series {
                name: format!("potus, {}, {}", setting.name(), view.source(scene.source)),
                points: points(view, "response_mean", cells),
                style: style(scene),
            });
        }
        let shuffle = view.mean(&Cell::of(scene, "shuffle"), "response_mean").map(|mean| mean.mean);
        levels.extend(level(format!("shuffle, W = 0, {}", view.source(scene.source)), shuffle));
    }
    Figure {
        id: id("window-response", net),
        title: format!("Response over the mean window, {} (paper: V = {PAPER_V})", net.title()),
        x: Axis::linear("mean window W [slots]; each application's is drawn from 0 to 2W"),
        y: Axis::linear(RESPONSE),
        series,
        levels,
    }
}

fn over_rate(view: &View<'_>, net: Net, metric: &str, what: &str, y: &Axis) -> Figure {
    let mut series = Vec::new();
    for scene in view.on(net) {
        let rates = || std::iter::once(0.0).chain(view.plan.rates.iter().copied());
        let mut add = |name: &str, cell: fn(Scene, f64) -> Cell| {
            series.push(Series {
                name: format!("{name}, {}", view.source(scene.source)),
                points: points(view, metric, rates().map(|rate| (rate, cell(scene, rate)))),
                style: style(scene),
            });
        };
        add("phantoms", Cell::phantoms);
        add("real tuples", Cell::real);
    }
    Figure {
        id: id(&format!("phantoms-{what}"), net),
        title: format!(
            "{} with false positives, {}, potus paper, W = {ERROR_WINDOW}, load {LIGHT}",
            capital(what),
            net.title()
        ),
        x: Axis::linear("tuples beside the arrivals [share of arrivals]"),
        y: y.clone(),
        series,
        levels: Vec::new(),
    }
}

fn over_uneven(view: &View<'_>, net: Net) -> Figure {
    let mut series = Vec::new();
    for scene in view.on(net) {
        let mut add = |name: &str, cell: Cell| {
            let cells = view.plan.unevens.iter().map(|d| (f64::from(*d), cell.clone().light().uneven(*d)));
            series.push(Series {
                name: format!("{name}, {}", view.source(scene.source)),
                points: points(view, "response_mean", cells),
                style: style(scene),
            });
        };
        for setting in Setting::ALL {
            add(&format!("potus, {}", setting.name()), Cell::potus(scene, setting));
        }
        view.plan.others().for_each(|policy| add(policy, Cell::of(scene, policy)));
    }
    Figure {
        id: id("uneven-response", net),
        title: format!("Response with unequal instances, {}, load {LIGHT}", net.title()),
        x: Axis::linear("d: capacities are mu - d and mu + d [tuples per slot]").close(),
        y: Axis::log(RESPONSE),
        series,
        levels: Vec::new(),
    }
}

fn predictors(view: &View<'_>, scene: Scene) -> Figure {
    let series = view.plan.predictors.iter().map(|predictor| {
        let cell = Cell::predicted(scene, predictor);
        // The perfect one makes no errors and none is counted.
        let error = view.mean(&cell, "mse").map_or(0.0, |mse| mse.mean);
        let points = points(view, "response_mean", [(error, cell)]);
        Series { name: predictor.name.clone(), points, style: Style::Points }
    });
    let w0 = view.mean(&Cell::potus(scene, Setting::Paper), "response_mean").map(|mean| mean.mean);
    let bound = |name: &str, at: f64| Level { name: name.to_owned(), at, upright: true };
    let mut levels: Vec<Level> = level("W = 0".to_owned(), w0).into_iter().collect();
    levels.push(bound("least published error", SPAN.0));
    levels.push(bound("largest published error", SPAN.1));
    Figure {
        id: id_of("predictors", scene),
        title: format!("Predictors at W = {PREDICTOR_WINDOW}, {}", view.scene(scene)),
        x: Axis::linear("mean square error of the forecasts [tuples²]"),
        y: Axis::linear(RESPONSE).close(),
        series: series.collect(),
        levels,
    }
}

fn frontier(view: &View<'_>, scene: Scene) -> Figure {
    let at = |cell: &Cell| {
        let cost = view.mean(cell, "cost_per_slot")?;
        Some(Point::new(cost.mean, view.mean(cell, "response_mean")?))
    };
    let swept = |cell: Cell| view.plan.vs.iter().filter_map(|v| at(&cell.clone().v(*v))).collect::<Vec<_>>();
    let mut series = Vec::new();
    for setting in Setting::ALL {
        let name = format!("potus, {}, over V", setting.name());
        series.push(Series { name, points: swept(Cell::potus(scene, setting)), style: Style::Line });
    }
    let own = Cell::potus(scene, Setting::Default);
    let name = "potus, default, own weights".to_owned();
    series.push(Series { name, points: at(&own).into_iter().collect(), style: Style::Points });
    for policy in view.plan.others() {
        let cell = Cell::of(scene, policy);
        let is_own = view.plan.also.iter().any(|also| also == policy);
        let points = if is_own { swept(cell) } else { at(&cell).into_iter().collect() };
        let style = if is_own { Style::Dashed } else { Style::Points };
        series.push(Series { name: policy.to_owned(), points, style });
    }
    Figure {
        id: id_of("frontier", scene),
        title: format!("Response against cost, {}, W = 0", view.scene(scene)),
        x: Axis::linear(COST).close(),
        y: Axis::log(RESPONSE),
        series,
        levels: Vec::new(),
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
