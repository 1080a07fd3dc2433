//! The published claims, and whether the runs show them.

use tuplane_core::route::Setting;

use super::figures::{SPAN, file, file_of};
use super::plan::{Cell, ERROR_WINDOW, LOAD, PAIRS, PAPER_V, ROOMY, SETTINGS, Scene, Source, setting_name};
use super::view::View;
use crate::experiment::{Claim, Interval, Line, Part, Verdict, line};
use crate::sim::PERFECT;

/// The least `V` of the fits: below it the cost is not near its floor.
const FIT_FROM: f64 = 1.0;
/// The share of the variance that a fit has to explain.
const FIT: f64 = 0.9;
/// A window that is still mild: 0.16 s at the publication's slot of 20 ms.
const MILD: u32 = 8;
/// What counts as equal, as a share.
const EQUAL: f64 = 0.02;
/// How far the cost of phantoms may be from that of as many real tuples, as a share.
const ALIKE: f64 = 0.05;
/// What Tuplane's own setting is to reach: cost under this share of the baselines', response under this share of
/// uniform shuffle's, and under this share of round-robin's with unequal instances.
const OWN: (f64, f64, f64) = (0.65, 1.05, 0.3);

const RESPONSE: &str = "response_mean";
const COST: &str = "cost_per_slot";

/// All claims, in the order of the page.
pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut claims = vec![
        stable(view),
        cost_gap(view),
        backlog(view),
        window(view),
        mild(view),
        mispredicted(view),
        span(view),
        missed(view),
        phantoms(view),
        cost_shuffle(view),
        response_equal(view),
        response_window(view),
        response_unequal(view),
    ];
    claims.push(everywhere(&claims));
    claims.extend([own_equal(view), own_unequal(view)]);
    claims
}

/// A part for each scene that something was measured in.
fn parts(view: &View<'_>, of: impl Fn(Scene) -> Option<(Verdict, String)>) -> Vec<Part> {
    let part = |scene: Scene| {
        let (verdict, measured) =
            of(scene).unwrap_or((Verdict::NotShown, "not measured, or no tuple was answered".to_owned()));
        Part { scene: view.scene(scene), verdict, measured }
    };
    view.plan.scenes.iter().copied().map(part).collect()
}

fn on_nets(view: &View<'_>, what: &[&str]) -> Vec<String> {
    view.plan.nets().into_iter().flat_map(|net| what.iter().map(move |what| file(what, net))).collect()
}

fn in_scenes(view: &View<'_>, what: &str) -> Vec<String> {
    view.plan.scenes.iter().map(|scene| file_of(what, *scene)).collect()
}

/// As a share with its sign, in percent.
fn percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// `V` and the means of a metric over the sweep of the literal algorithm, from [`FIT_FROM`] on.
fn sweep(view: &View<'_>, scene: Scene, metric: &str) -> Vec<(f64, f64)> {
    let vs = view.plan.vs.iter().copied().filter(|v| *v >= FIT_FROM);
    let mean = |v: f64| Some((v, view.mean(&Cell::potus(scene, Setting::Paper).v(v), metric)?.mean));
    vs.filter_map(mean).collect()
}

fn stable(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let mut growing = Vec::new();
        for v in &view.plan.vs {
            if !view.is_stable(&Cell::potus(scene, Setting::Paper).v(*v))? {
                growing.push(v.to_string());
            }
        }
        let measured = if growing.is_empty() {
            format!("no backlog keeps growing at V = {}", list(&view.plan.vs))
        } else {
            format!("the backlog still grows at V = {}", growing.join(", "))
        };
        Some((Verdict::of(growing.is_empty()), measured))
    };
    Claim::new(
        "stable",
        "Queues are stable at every V",
        "POTUS, abstract and Theorem 1",
        "at each V of the sweep the weighted backlog does not rise by more than 5 % from the third to the last quarter of the measured slots, or by no more than chance explains",
        parts(view, of),
    )
    .because("A larger V fills its queues for longer before they stand still: more slots (`--slots`) tell filling from growing.")
    .shown_by(on_nets(view, &["v-backlog"]))
}

fn cost_gap(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let costs = sweep(view, scene, COST);
        let inverse: Vec<(f64, f64)> = costs.iter().map(|(v, cost)| (1.0 / v, *cost)).collect();
        let Line { intercept, slope, r2 } = line(&inverse)?;
        let measured = format!(
            "cost = {intercept:.1} + {slope:.1} / V hops per slot, R² = {r2:.3}, from V = {FIT_FROM} on"
        );
        Some((Verdict::of(slope > 0.0 && r2 >= FIT), measured))
    };
    Claim::new(
        "cost-gap",
        "The cost is within O(1/V) of the least possible",
        "POTUS, Theorem 1",
        "cost = a + b/V fits with b > 0 and R² of at least 0.9; a stands for the least possible cost, which is not known",
        parts(view, of),
    )
    .shown_by(on_nets(view, &["v-cost"]))
}

fn backlog(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let Line { intercept, slope, r2 } = line(&sweep(view, scene, "weighted_backlog"))?;
        let response = line(&sweep(view, scene, RESPONSE))?;
        let measured = format!(
            "h = {intercept:.0} + {slope:.1} V tuples, R² = {r2:.3}; response = {:.1} + {:.2} V slots, R² = {:.3}",
            response.intercept, response.slope, response.r2
        );
        Some((Verdict::of(slope > 0.0 && r2 >= FIT), measured))
    };
    Claim::new(
        "backlog",
        "The backlog grows as O(V)",
        "POTUS, Theorem 1",
        "h = a + b V fits from V = 1 on with b > 0 and R² of at least 0.9",
        parts(view, of),
    )
    .shown_by(on_nets(view, &["v-backlog", "v-response"]))
}

/// Mean windows, 0 first, and the responses of the literal algorithm.
fn over_windows(view: &View<'_>, scene: Scene) -> Vec<(u32, Interval)> {
    let windows = std::iter::once(0).chain(view.plan.windows.iter().copied());
    let mean = |w: u32| Some((w, view.mean(&Cell::potus(scene, Setting::Paper).windows(w), RESPONSE)?));
    windows.filter_map(mean).collect()
}

fn window(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let responses = over_windows(view, scene);
        let ((_, first), (_, last)) = (responses.first()?, responses.last()?);
        let rises = responses.windows(2).any(|pair| pair[0].1.is_below(&pair[1].1));
        let measured: Vec<String> = responses.iter().map(|(w, r)| format!("W = {w}: {r}")).collect();
        Some((Verdict::of(!rises && last.is_below(first)), format!("{} slots", measured.join("; "))))
    };
    Claim::new(
        "window",
        "The response falls as spouts look further ahead",
        "POTUS, abstract",
        "no larger window has a response above a smaller one's interval, and the largest one's interval lies below that of W = 0",
        parts(view, of),
    )
    .shown_by(on_nets(view, &["window-response"]))
}

fn mild(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let responses = over_windows(view, scene);
        let (_, none) = *responses.first()?;
        let shuffle = view.mean(&Cell::of(scene, "shuffle"), RESPONSE)?;
        let first = |below: f64| responses.iter().find(|(_, r)| r.mean <= below).map(|(w, _)| *w);
        let halves = first(none.mean / 2.0);
        let words = |w: Option<u32>| w.map_or("no window of the sweep".to_owned(), |w| format!("W = {w}"));
        let measured = format!(
            "{} halves the response of W = 0 ({:.2} slots); {} is below uniform shuffle's {:.2}",
            words(halves),
            none.mean,
            words(first(shuffle.mean)),
            shuffle.mean
        );
        Some((Verdict::of(halves.is_some_and(|w| w <= MILD)), measured))
    };
    Claim::new(
        "mild-window",
        "A mild look into the future is enough",
        "POTUS, abstract",
        "a mean window of at most 8 slots (0.16 s at slots of 20 ms) halves the response of W = 0",
        parts(view, of),
    )
    .because(
        "Each slot of window takes about one slot from a response, so the longer a response is for other reasons, \
         bursts or a large V, the larger a window it takes.",
    )
    .shown_by(on_nets(view, &["window-response"]))
}

fn mispredicted(view: &View<'_>) -> Claim {
    let at_load = |scene: Scene, roomy: bool| {
        let with = |cell: Cell| if roomy { cell.roomy() } else { cell };
        let none = with(Cell::potus(scene, Setting::Paper));
        let mut words = Vec::new();
        let mut all = true;
        for predictor in &view.plan.predictors {
            let rise = view.rise(&with(Cell::predicted(scene, predictor)), &none, RESPONSE)?;
            if predictor.name == PERFECT {
                words.push(format!("perfect {}", percent(rise.mean)));
                continue;
            }
            all &= rise.high() < 0.0;
            let (low, high) = (percent(rise.low()), percent(rise.high()));
            words.push(format!("{} {} ({low} to {high})", predictor.name, percent(rise.mean)));
        }
        Some((all, words.join("; ")))
    };
    let of = |scene: Scene| {
        let ((all, at), (_, roomy)) = (at_load(scene, false)?, at_load(scene, true)?);
        let measured = format!("response against W = 0, load {LOAD}: {at}. Load {ROOMY}: {roomy}");
        Some((Verdict::of(all), measured))
    };
    Claim::new(
        "mis-prediction",
        "Looking ahead shortens responses even when predictions are wrong",
        "POTUS, abstract and the evaluation at W = 1",
        "with each predictor at W = 1 and load 0.85 the response is below that of W = 0, seed by seed, with 95 % confidence",
        parts(view, of),
    )
    .because(
        "Counts that are nearly independent from slot to slot cannot be predicted better than by their mean, and what \
         is predicted and does not come is worked on all the same: that costs more than one slot of lookahead brings. \
         The publication's load is not known.",
    )
    .shown_by(in_scenes(view, "predictors"))
}

fn span(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let mut words = Vec::new();
        let mut all = true;
        for predictor in view.plan.predictors.iter().filter(|predictor| predictor.name != PERFECT) {
            let mse = view.mean(&Cell::predicted(scene, predictor), "mse")?;
            all &= (SPAN.0..=SPAN.1).contains(&mse.mean);
            words.push(format!("{} {:.2}", predictor.name, mse.mean));
        }
        // Poisson counts of this mean have another variance than the published ones can have had.
        let verdict = match scene.source {
            Source::Poisson => Verdict::NotShown,
            Source::Trace => Verdict::of(all),
        };
        Some((verdict, format!("MSE {} tuples²", words.join(", "))))
    };
    let mut claim = Claim::new(
        "mse-span",
        "The predictors' mean square errors lie between 10.37 and 22.54",
        "POTUS, evaluation at W = 1",
        "each predictor's mean square error of the next slot is in that span; with Poisson arrivals of this mean it cannot be, and is given to compare",
        parts(view, of),
    )
    .shown_by(in_scenes(view, "predictors"));
    // Of the scenes in which it can be told.
    let told = claim.parts.iter().zip(&view.plan.scenes).filter(|(_, scene)| scene.source == Source::Trace);
    claim.verdict = told.map(|(part, _)| part.verdict).max().unwrap_or(Verdict::NotShown);
    claim.because(
        "The published trace is not known: the errors are those of the arrivals that were used here.",
    )
}

fn missed(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let none = Cell::potus(scene, Setting::Paper);
        let rise = |metric: &str| view.rise(&Cell::unforeseen(scene), &none, metric);
        let (response, cost) = (rise(RESPONSE)?, rise(COST)?);
        let equal = [response, cost].iter().all(|rise| rise.mean.abs() <= EQUAL);
        let measured =
            format!("against W = 0: response {}, cost {}", percent(response.mean), percent(cost.mean));
        Some((Verdict::of(equal), measured))
    };
    Claim::new(
        "all-missed",
        "When no arrival is foreseen it is as without a window",
        "POTUS, evaluation of mis-prediction",
        &format!(
            "with a window of {ERROR_WINDOW} slots and all arrivals missed, response and cost are within 2 % of those of W = 0"
        ),
        parts(view, of),
    )
}

fn phantoms(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let none = Cell::phantoms(scene, 0.0);
        let mut words = Vec::new();
        let mut all = true;
        for rate in &view.plan.rates {
            let (phantom, real) = (Cell::phantoms(scene, *rate), Cell::real(scene, *rate));
            let cost = |cell: &Cell| view.rise(cell, &none, COST).map(|rise| rise.mean);
            let stable = (view.is_stable(&phantom)?, view.is_stable(&real)?);
            let told = |cell: &Cell, stable: bool| {
                let grows = if stable { "" } else { ", backlog growing" };
                Some(format!(
                    "cost {}, response {:.2}{grows}",
                    percent(cost(cell)?),
                    view.mean(cell, RESPONSE)?.mean
                ))
            };
            // Where both are past the capacity, the cost is that of what passes.
            let alike = (cost(&phantom)? - cost(&real)?).abs() <= ALIKE;
            all &= stable.0 == stable.1 && (alike || !stable.0);
            words.push(format!(
                "{:.0} %: {} (as many real tuples: {})",
                rate * 100.0,
                told(&phantom, stable.0)?,
                told(&real, stable.1)?
            ));
        }
        let without = view.mean(&none, RESPONSE)?;
        Some((Verdict::of(all), format!("{}; without: response {:.2} slots", words.join("; "), without.mean)))
    };
    Claim::new(
        "false-positives",
        "False positives cost what they add",
        "POTUS, evaluation of mis-prediction",
        "at each rate the cost is within 5 points of that with as many more real tuples, and the backlog grows in both or in neither; where both grow, costs are not compared",
        parts(view, of),
    )
    .shown_by(on_nets(view, &["phantoms-response", "phantoms-cost"]))
}

/// Both settings against a policy: whether the first (the literal one) is below, and all in words.
fn against(view: &View<'_>, scene: Scene, metric: &str, unit: &str) -> Option<(bool, String)> {
    let shuffle = view.mean(&Cell::of(scene, "shuffle"), metric)?;
    let mut words = Vec::new();
    let mut below = false;
    for setting in SETTINGS {
        let mean = view.mean(&Cell::potus(scene, setting), metric)?;
        if setting == Setting::Paper {
            below = mean.is_below(&shuffle);
        }
        let v = if setting == Setting::Paper { format!("V = {PAPER_V}") } else { "own weights".to_owned() };
        words.push(format!(
            "potus {} ({v}) {mean} ({} to shuffle)",
            setting_name(setting),
            percent(mean.mean / shuffle.mean - 1.0)
        ));
    }
    for policy in view.plan.others() {
        words.push(format!("{policy} {}", view.mean(&Cell::of(scene, policy), metric)?));
    }
    Some((below, format!("{} {unit}", words.join("; "))))
}

fn cost_shuffle(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let (below, measured) = against(view, scene, COST, "hops per slot")?;
        Some((Verdict::of(below), measured))
    };
    Claim::new(
        "cost-shuffle",
        "POTUS communicates less than Shuffle",
        "POTUS, evaluation; GLOBECOM abstract",
        "at W = 0, with equal instances, the cost of setting `paper` lies below uniform shuffle's, intervals apart",
        parts(view, of),
    )
    .shown_by(in_scenes(view, "frontier"))
}

fn response_equal(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let (below, measured) = against(view, scene, RESPONSE, "slots")?;
        Some((Verdict::of(below), measured))
    };
    Claim::new(
        "response-equal",
        "POTUS responds faster than Shuffle without looking ahead, with equal instances",
        "POTUS, evaluation",
        "at W = 0 the response of setting `paper` lies below uniform shuffle's, intervals apart",
        parts(view, of),
    )
    .because(
        "The literal algorithm holds tuples back until they are worth their cost, and within a slot every sender \
         gives all it has for a component to the one instance that was the shortest when the slot began (potus.md F5). \
         It buys cost with response; it is faster than Shuffle with a window, or with unequal instances.",
    )
    .shown_by(in_scenes(view, "frontier"))
}

fn response_window(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let shuffle = view.mean(&Cell::of(scene, "shuffle"), RESPONSE)?;
        let below = over_windows(view, scene).into_iter().find(|(_, r)| r.is_below(&shuffle));
        let measured = match below {
            Some((w, response)) => format!("W = {w}: {response}, against shuffle {shuffle} slots"),
            None => format!("no window of the sweep is below shuffle's {shuffle} slots"),
        };
        Some((Verdict::of(below.is_some()), measured))
    };
    Claim::new(
        "response-window",
        "POTUS responds faster than Shuffle when it looks ahead",
        "POTUS, abstract: ultra-low response",
        "with some mean window of the sweep the response of setting `paper` lies below uniform shuffle's, intervals apart",
        parts(view, of),
    )
    .shown_by(on_nets(view, &["window-response"]))
}

fn response_unequal(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let mut words = Vec::new();
        let mut all = true;
        for d in view.plan.unevens.iter().copied().filter(|d| *d > 0) {
            let at = |cell: Cell| {
                let cell = cell.light().uneven(d);
                let grows = if view.is_stable(&cell)? { "" } else { " and growing" };
                Some((view.mean(&cell, RESPONSE)?, grows))
            };
            let (paper, paper_grows) = at(Cell::potus(scene, Setting::Paper))?;
            let (shuffle, shuffle_grows) = at(Cell::of(scene, "shuffle"))?;
            all &= paper.is_below(&shuffle) && paper_grows.is_empty();
            words
                .push(format!("d = {d}: potus paper {paper}{paper_grows}; shuffle {shuffle}{shuffle_grows}"));
            for policy in view.plan.others().filter(|policy| *policy != "shuffle") {
                let (mean, grows) = at(Cell::of(scene, policy))?;
                words.push(format!("{policy} {mean}{grows}"));
            }
        }
        Some((Verdict::of(all && !words.is_empty()), format!("{} slots", words.join("; "))))
    };
    Claim::new(
        "response-unequal",
        "POTUS responds faster than Shuffle where instances differ",
        "follows from POTUS' model; the publication has equal instances",
        "at W = 0, load 0.75 and each d above 0 the response of setting `paper` lies below uniform shuffle's, and its backlog does not grow",
        parts(view, of),
    )
    .shown_by(on_nets(view, &["uneven-response"]))
}

fn everywhere(claims: &[Claim]) -> Claim {
    let differ: Vec<&str> = claims
        .iter()
        .filter(|claim| claim.parts.windows(2).any(|pair| pair[0].verdict != pair[1].verdict))
        .map(|claim| claim.id.as_str())
        .collect();
    let scenes = claims.iter().map(|claim| claim.parts.len()).max().unwrap_or(0);
    let measured = format!(
        "{} of {} claims have one verdict in all of {scenes} scenes{}",
        claims.len() - differ.len(),
        claims.len(),
        if differ.is_empty() { String::new() } else { format!("; those that differ: {}", differ.join(", ")) }
    );
    // `mse-span` differs by what it is.
    let alike = differ.iter().all(|id| *id == "mse-span");
    let verdict = if scenes > 1 { Verdict::of(alike) } else { Verdict::NotShown };
    let part = Part { scene: "all scenes".to_owned(), verdict, measured };
    Claim::new(
        "both-networks",
        "It is the same on Fat-Tree and Jellyfish, with measured and with Poisson arrivals",
        "POTUS, evaluation",
        "each claim above but `mse-span` has the same verdict in all scenes",
        vec![part],
    )
}

fn own_equal(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let mean = |cell: &Cell, metric: &str| view.mean(cell, metric).map(|mean| mean.mean);
        let (shuffle, robin) = (Cell::of(scene, "shuffle"), Cell::of(scene, "round-robin"));
        let own = Cell::potus(scene, Setting::Default);
        let mut best: Option<(f64, String)> = None;
        let mut words = String::new();
        let swept = view.plan.vs.iter().map(|v| (format!("V = {v}"), own.clone().v(*v)));
        let pairs =
            PAIRS.iter().map(|(v, beta)| (format!("V = {v}, beta = {beta}"), Cell::pair(scene, (*v, *beta))));
        for (name, cell) in
            std::iter::once(("its own weights".to_owned(), own.clone())).chain(swept).chain(pairs)
        {
            let (cost, response) = (mean(&cell, COST)?, mean(&cell, RESPONSE)?);
            let (to_shuffle, to_robin) = (cost / mean(&shuffle, COST)?, cost / mean(&robin, COST)?);
            let (slower, than_robin) =
                (response / mean(&shuffle, RESPONSE)?, response / mean(&robin, RESPONSE)?);
            let told = format!(
                "{name}: cost {} to shuffle, {} to round-robin; response {} to shuffle, {} to round-robin",
                percent(to_shuffle - 1.0),
                percent(to_robin - 1.0),
                percent(slower - 1.0),
                percent(than_robin - 1.0)
            );
            if words.is_empty() {
                words.clone_from(&told);
            }
            let worst = to_shuffle.max(to_robin);
            if slower <= OWN.1 && best.as_ref().is_none_or(|(least, _)| worst < *least) {
                best = Some((worst, told));
            }
        }
        let (holds, found) = match best {
            Some((worst, told)) => {
                (worst <= OWN.0, format!("the least cost within the response is at {told}"))
            }
            None => (false, "no V and beta stay within the response".to_owned()),
        };
        Some((Verdict::of(holds), format!("{words}. Of all, {found}")))
    };
    Claim::new(
        "own-equal",
        "Setting `default` costs at least 35 % less than shuffle and round-robin and responds at most 5 % slower than shuffle",
        "Tuplane's own aim",
        "at W = 0, load 0.85 and equal instances this is so for its own weights, for one V of the sweep, or for V = 1 with beta = 12 or V = 1.5 with beta = 16",
        parts(view, of),
    )
    .shown_by(in_scenes(view, "frontier"))
}

fn own_unequal(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let at = |cell: Cell| view.mean(&cell.light().uneven(1), RESPONSE);
        let (own, robin) = (at(Cell::potus(scene, Setting::Default))?, at(Cell::of(scene, "round-robin"))?);
        let share = own.mean / robin.mean;
        Some((Verdict::of(share <= OWN.2), format!("{own} slots, {share:.2} of round-robin's {robin}")))
    };
    Claim::new(
        "own-unequal",
        "With unequal instances setting `default` responds in under a third of round-robin's time",
        "Tuplane's own aim",
        "at W = 0, load 0.75 and d = 1 its response is at most 0.3 of round-robin's",
        parts(view, of),
    )
    .because(
        "Round-robin gives slow instances more than they can work on, so its response grows with the length of the \
         runs: short ones understate it.",
    )
    .shown_by(on_nets(view, &["uneven-response"]))
}

fn list(values: &[f64]) -> String {
    values.iter().map(f64::to_string).collect::<Vec<_>>().join(", ")
}

/// Where runs are too few or too short, nothing is shown.
pub(super) fn without_verdicts(claims: &mut [Claim], why: &str) {
    for claim in claims {
        claim.verdict = Verdict::NotShown;
        claim.parts.iter_mut().for_each(|part| part.verdict = Verdict::NotShown);
        claim.why = Some(why.to_owned());
    }
}
