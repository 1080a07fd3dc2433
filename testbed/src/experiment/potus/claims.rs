//! The published claims, and whether the runs show them.

use tuplane_core::route::Setting;

use super::figures::{SPAN, file, file_of};
use super::plan::{Cell, ERROR_WINDOW, LIGHT, LOAD, PAPER_V, PREDICTOR_WINDOW, ROOMY, Scene, Source};
use super::view::{RISE, View};
use super::{aims, everywhere};
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

pub(super) const RESPONSE: &str = "response_mean";
pub(super) const COST: &str = "cost_per_slot";

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
    claims.push(everywhere::claim(view, &claims));
    claims.extend([aims::equal(view), aims::unequal(view)]);
    claims
}

/// A part for each scene that something was measured in.
pub(super) fn parts(view: &View<'_>, of: impl Fn(Scene) -> Option<(Verdict, String)>) -> Vec<Part> {
    let part = |scene: Scene| {
        let (verdict, measured) =
            of(scene).unwrap_or((Verdict::NotShown, "not measured, or no tuple was answered".to_owned()));
        Part { scene: view.scene(scene), verdict, measured }
    };
    view.plan.scenes.iter().copied().map(part).collect()
}

pub(super) fn on_nets(view: &View<'_>, what: &[&str]) -> Vec<String> {
    view.plan.nets().into_iter().flat_map(|net| what.iter().map(move |what| file(what, net))).collect()
}

pub(super) fn in_scenes(view: &View<'_>, what: &str) -> Vec<String> {
    view.plan.scenes.iter().map(|scene| file_of(what, *scene)).collect()
}

/// As a share with its sign, in percent.
pub(super) fn percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// A mean share with its interval, in percent.
pub(super) fn spread(share: &Interval) -> String {
    format!("{} ({} to {})", percent(share.mean), percent(share.low()), percent(share.high()))
}

/// A bound of a claim, in percent.
pub(super) fn bound(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// `V` and the means of a metric over the sweep of the literal algorithm, from [`FIT_FROM`] on.
fn sweep(view: &View<'_>, scene: Scene, metric: &str) -> Vec<(f64, f64)> {
    let vs = view.plan.vs.iter().copied().filter(|v| *v >= FIT_FROM);
    let mean = |v: f64| Some((v, view.mean(&Cell::potus(scene, Setting::Paper).v(v), metric)?.mean));
    vs.filter_map(mean).collect()
}

fn stable(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let mut all = Vec::new();
        let mut words: Vec<String> = Vec::new();
        for verdict in [Verdict::Holds, Verdict::NotShown, Verdict::DoesNotHold] {
            let mut vs = Vec::new();
            for v in &view.plan.vs {
                if view.is_stable(&Cell::potus(scene, Setting::Paper).v(*v))? == verdict {
                    vs.push(v.to_string());
                    all.push(verdict);
                }
            }
            let told = match verdict {
                Verdict::Holds => "no backlog keeps growing",
                Verdict::NotShown => "it cannot be told",
                Verdict::DoesNotHold => "the backlog still grows",
            };
            words.extend((!vs.is_empty()).then(|| format!("{told} at V = {}", vs.join(", "))));
        }
        Some((Verdict::all(all), words.join("; ")))
    };
    Claim::new(
        "stable",
        "Queues are stable at every V",
        "POTUS, abstract and Theorem 1",
        &format!(
            "at each V of the sweep the weighted backlog does not rise by more than {} from the third to the last \
             quarter of the measured slots, with 95 % confidence",
            bound(RISE)
        ),
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
        &format!(
            "cost = a + b/V fits with b > 0 and R² of at least {FIT}; a stands for the least possible cost, which is \
             not known"
        ),
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
        &format!("h = a + b V fits from V = {FIT_FROM} on with b > 0 and R² of at least {FIT}"),
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
        let later = |(number, (_, one)): (usize, &(u32, Interval))| {
            responses[number + 1..].iter().any(|(_, other)| one.is_below(other))
        };
        let rises = responses.iter().enumerate().any(later);
        let verdict = if rises { Verdict::DoesNotHold } else { Verdict::below(last, first) };
        let measured: Vec<String> = responses.iter().map(|(w, r)| format!("W = {w}: {r}")).collect();
        Some((verdict, format!("{} slots", measured.join("; "))))
    };
    Claim::new(
        "window",
        "The response falls as spouts look further ahead",
        "POTUS, abstract",
        "no larger window's interval lies above any smaller one's, and the largest one's lies below that of W = 0",
        parts(view, of),
    )
    .shown_by(on_nets(view, &["window-response"]))
}

fn mild(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let responses = over_windows(view, scene);
        let (_, none) = *responses.first()?;
        let of = |w: u32| Cell::potus(scene, Setting::Paper).windows(w);
        let mild = view.plan.windows.iter().filter(|w| **w <= MILD);
        let rises: Vec<(u32, Interval)> =
            mild.filter_map(|w| Some((*w, view.rise(&of(*w), &of(0), RESPONSE)?))).collect();
        let verdict = Verdict::any(rises.iter().map(|(_, rise)| Verdict::at_most(rise, -0.5)));
        let (mildest, rise) = rises.last()?;
        let shuffle = view.mean(&Cell::of(scene, "shuffle"), RESPONSE)?;
        let first = |below: f64| responses.iter().find(|(_, r)| r.mean <= below).map(|(w, _)| *w);
        let words = |w: Option<u32>| w.map_or("no window of the sweep".to_owned(), |w| format!("W = {w}"));
        let measured = format!(
            "W = {mildest}: {} to W = 0; {} halves its mean response ({:.2} slots); {} is below uniform shuffle's {:.2}",
            spread(rise),
            words(first(none.mean / 2.0)),
            none.mean,
            words(first(shuffle.mean)),
            shuffle.mean
        );
        Some((verdict, measured))
    };
    Claim::new(
        "mild-window",
        "A mild look into the future is enough",
        "POTUS, abstract",
        &format!(
            "a mean window of at most {MILD} slots ({} s at slots of 20 ms) halves the response of W = 0, seed by \
             seed, with 95 % confidence",
            f64::from(MILD) * 0.02
        ),
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
        let mut verdicts = Vec::new();
        for predictor in &view.plan.predictors {
            let cell = with(Cell::predicted(scene, predictor));
            let rise = view.rise(&cell, &none, RESPONSE)?;
            let grows = view.grows(&cell)?;
            if predictor.name == PERFECT {
                words.push(format!("{PERFECT} {}{grows}", percent(rise.mean)));
                continue;
            }
            verdicts.push(Verdict::at_most(&rise, 0.0));
            words.push(format!("{} {}{grows}", predictor.name, spread(&rise)));
        }
        Some((Verdict::all(verdicts), words.join("; ")))
    };
    let of = |scene: Scene| {
        let ((all, at), (_, roomy)) = (at_load(scene, false)?, at_load(scene, true)?);
        Some((all, format!("response against W = 0, load {LOAD}: {at}. Load {ROOMY}: {roomy}")))
    };
    Claim::new(
        "mis-prediction",
        "Looking ahead shortens responses even when predictions are wrong",
        "POTUS, abstract and the evaluation at W = 1",
        &format!(
            "with each predictor but the perfect one at W = {PREDICTOR_WINDOW} and load {LOAD} the response is below \
             that of W = 0, seed by seed, with 95 % confidence"
        ),
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
        let mut verdicts = Vec::new();
        for predictor in view.plan.predictors.iter().filter(|predictor| predictor.name != PERFECT) {
            let cell = Cell::predicted(scene, predictor);
            let mse = view.mean(&cell, "mse")?;
            verdicts.push(Verdict::within(&mse, SPAN.0, SPAN.1));
            let missing = view.mean(&cell, "missing")?.mean;
            let without =
                if missing > 0.0 { format!(" ({missing:.0} slots without)") } else { String::new() };
            words.push(format!("{} {:.2}{without}", predictor.name, mse.mean));
        }
        let told = scene.source == Source::Trace && view.is_measured;
        let verdict = if told { Verdict::all(verdicts) } else { Verdict::NotShown };
        Some((verdict, format!("MSE {} tuples²", words.join(", "))))
    };
    let mut claim = Claim::new(
        "mse-span",
        &format!("The predictors' mean square errors lie between {} and {}", SPAN.0, SPAN.1),
        "POTUS, evaluation at W = 1",
        "under a measured trace each predictor's mean square error of the next slot is in that span, intervals and all; with \
         drawn arrivals it is given to compare",
        parts(view, of),
    )
    .shown_by(in_scenes(view, "predictors"));
    // Of the scenes in which it can be told.
    let told = claim.parts.iter().zip(&view.plan.scenes).filter(|(_, scene)| scene.source == Source::Trace);
    claim.verdict = Verdict::all(told.map(|(part, _)| part.verdict));
    claim.because(if view.is_measured {
        "The published trace is not known: the errors are those of the arrivals that were used here."
    } else {
        "It takes a trace (`--trace FILE`): the variance of what stands in for one was chosen by this very span, and \
         Poisson counts of this mean have another variance than the published ones can have had."
    })
}

fn missed(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let none = Cell::potus(scene, Setting::Paper);
        let rise = |metric: &str| view.rise(&Cell::unforeseen(scene), &none, metric);
        let (response, cost) = (rise(RESPONSE)?, rise(COST)?);
        let equal = [response, cost].map(|rise| Verdict::within(&rise, -EQUAL, EQUAL));
        let measured = format!("against W = 0: response {}, cost {}", spread(&response), spread(&cost));
        Some((Verdict::all(equal), measured))
    };
    Claim::new(
        "all-missed",
        "When no arrival is foreseen it is as without a window",
        "POTUS, evaluation of mis-prediction",
        &format!(
            "with a window of {ERROR_WINDOW} slots and all arrivals missed, response and cost are within {} of those \
             of W = 0, seed by seed, with 95 % confidence",
            bound(EQUAL)
        ),
        parts(view, of),
    )
}

fn phantoms(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let none = Cell::phantoms(scene, 0.0);
        let mut words = Vec::new();
        let mut verdicts = Vec::new();
        for rate in &view.plan.rates {
            let (phantom, real) = (Cell::phantoms(scene, *rate), Cell::real(scene, *rate));
            let told = |cell: &Cell| {
                let (cost, response) = (view.rise(cell, &none, COST)?, view.mean(cell, RESPONSE)?);
                let grows = view.grows(cell)?;
                Some(format!("cost {}, response {:.2}{grows}", percent(cost.mean), response.mean))
            };
            let gap = view.gap(&phantom, &real, &none, COST)?;
            verdicts.push(match (view.is_stable(&phantom)?, view.is_stable(&real)?) {
                (Verdict::Holds, Verdict::Holds) => Verdict::within(&gap, -ALIKE, ALIKE),
                // Past the capacity the cost is that of what passes.
                (Verdict::DoesNotHold, Verdict::DoesNotHold) => Verdict::Holds,
                (Verdict::NotShown, _) | (_, Verdict::NotShown) => Verdict::NotShown,
                _ => Verdict::DoesNotHold,
            });
            let (phantom, real) = (told(&phantom)?, told(&real)?);
            words.push(format!("{}: {phantom} (as many real tuples: {real})", bound(*rate)));
        }
        let without = view.mean(&none, RESPONSE)?;
        Some((
            Verdict::all(verdicts),
            format!("{}; without: response {:.2} slots", words.join("; "), without.mean),
        ))
    };
    Claim::new(
        "false-positives",
        "False positives cost what they add",
        "POTUS, evaluation of mis-prediction",
        &format!(
            "at each rate the cost is within {:.0} points of that with as many more real tuples, seed by seed, with 95 % \
             confidence, and the backlog grows in both or in neither; where both grow, costs are not compared",
            ALIKE * 100.0
        ),
        parts(view, of),
    )
    .shown_by(on_nets(view, &["phantoms-response", "phantoms-cost"]))
}

/// Both settings against uniform shuffle: whether the literal one is below, and all in words.
fn against(view: &View<'_>, scene: Scene, metric: &str, unit: &str) -> Option<(Verdict, String)> {
    let shuffle = view.mean(&Cell::of(scene, "shuffle"), metric)?;
    let mut words = Vec::new();
    let mut below = Verdict::NotShown;
    for setting in Setting::ALL {
        let mean = view.mean(&Cell::potus(scene, setting), metric)?;
        if setting == Setting::Paper {
            below = Verdict::below(&mean, &shuffle);
        }
        let v = if setting == Setting::Paper { format!("V = {PAPER_V}") } else { "own weights".to_owned() };
        words.push(format!(
            "potus {} ({v}) {mean} ({} to shuffle)",
            setting.name(),
            percent(mean.mean / shuffle.mean - 1.0)
        ));
    }
    for policy in view.plan.others() {
        words.push(format!("{policy} {}", view.mean(&Cell::of(scene, policy), metric)?));
    }
    Some((below, format!("{} {unit}", words.join("; "))))
}

fn cost_shuffle(view: &View<'_>) -> Claim {
    let of = |scene: Scene| against(view, scene, COST, "hops per slot");
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
    let of = |scene: Scene| against(view, scene, RESPONSE, "slots");
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
        let ahead: Vec<_> = over_windows(view, scene).into_iter().filter(|(w, _)| *w > 0).collect();
        let measured = match ahead.iter().find(|(_, r)| r.is_below(&shuffle)) {
            Some((w, response)) => format!("W = {w}: {response}, against shuffle {shuffle} slots"),
            None => format!("no window of the sweep is below shuffle's {shuffle} slots"),
        };
        Some((Verdict::any(ahead.iter().map(|(_, r)| Verdict::below(r, &shuffle))), measured))
    };
    Claim::new(
        "response-window",
        "POTUS responds faster than Shuffle when it looks ahead",
        "POTUS, abstract: ultra-low response",
        "with some mean window above 0 of the sweep the response of setting `paper` lies below uniform shuffle's, intervals apart",
        parts(view, of),
    )
    .shown_by(on_nets(view, &["window-response"]))
}

fn response_unequal(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let mut words = Vec::new();
        let mut verdicts = Vec::new();
        for d in view.plan.unevens.iter().copied().filter(|d| *d > 0) {
            let at = |cell: Cell| {
                let cell = cell.light().uneven(d);
                Some((view.mean(&cell, RESPONSE)?, view.grows(&cell)?))
            };
            let (paper, paper_grows) = at(Cell::potus(scene, Setting::Paper))?;
            let stable = view.is_stable(&Cell::potus(scene, Setting::Paper).light().uneven(d))?;
            let (shuffle, shuffle_grows) = at(Cell::of(scene, "shuffle"))?;
            verdicts.extend([Verdict::below(&paper, &shuffle), stable]);
            words
                .push(format!("d = {d}: potus paper {paper}{paper_grows}; shuffle {shuffle}{shuffle_grows}"));
            for policy in view.plan.others().filter(|policy| *policy != "shuffle") {
                let (mean, grows) = at(Cell::of(scene, policy))?;
                words.push(format!("{policy} {mean}{grows}"));
            }
        }
        Some((Verdict::all(verdicts), format!("{} slots", words.join("; "))))
    };
    Claim::new(
        "response-unequal",
        "POTUS responds faster than Shuffle where instances differ",
        "follows from POTUS' model; the publication has equal instances",
        &format!(
            "at W = 0, load {LIGHT} and each d above 0 the response of setting `paper` lies below uniform shuffle's, \
             intervals apart, and its backlog does not grow"
        ),
        parts(view, of),
    )
    .shown_by(on_nets(view, &["uneven-response"]))
}

/// Where runs are too few or too short, nothing is shown.
pub(super) fn without_verdicts(claims: &mut [Claim], why: &str) {
    for claim in claims {
        claim.verdict = Verdict::NotShown;
        claim.parts.iter_mut().for_each(|part| part.verdict = Verdict::NotShown);
        claim.why = Some(why.to_owned());
    }
}
