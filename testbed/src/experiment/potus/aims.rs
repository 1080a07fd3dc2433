//! Tuplane's own aims, and whether the setting `default` reaches them.

use tuplane_core::route::Setting;

use super::claims::{COST, RESPONSE, bound, in_scenes, on_nets, parts, percent, spread};
use super::plan::{Cell, LIGHT, LOAD, PAIRS, Scene};
use super::view::View;
use crate::experiment::{Claim, Verdict};

/// By how much the setting's cost is to be below those of the baselines.
const CHEAPER: f64 = 0.35;
/// By how much its response may be above uniform shuffle's.
const SLOWER: f64 = 0.05;
/// The most that its response may be of round-robin's with unequal instances.
const UNEQUAL: f64 = 0.3;

/// With equal instances: cost and response with the setting's own weights. What other weights give is told beside it
/// and judges nothing: who picks the best of many on the same seeds finds one that is good by chance.
pub(super) fn equal(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let own = Cell::potus(scene, Setting::Default);
        let to = |cell: &Cell, policy: &str, metric: &str| view.rise(cell, &Cell::of(scene, policy), metric);
        let verdict = Verdict::all([
            Verdict::at_most(&to(&own, "shuffle", COST)?, -CHEAPER),
            Verdict::at_most(&to(&own, "round-robin", COST)?, -CHEAPER),
            Verdict::at_most(&to(&own, "shuffle", RESPONSE)?, SLOWER),
        ]);
        let mut told = format!(
            "own weights: cost {} to shuffle, {} to round-robin; response {} to shuffle, {} to round-robin",
            spread(&to(&own, "shuffle", COST)?),
            spread(&to(&own, "round-robin", COST)?),
            spread(&to(&own, "shuffle", RESPONSE)?),
            spread(&to(&own, "round-robin", RESPONSE)?),
        );
        let swept = view.plan.vs.iter().map(|v| (format!("V = {v}"), own.clone().v(*v)));
        let pairs =
            PAIRS.iter().map(|pair| (format!("V = {}, beta = {}", pair.0, pair.1), Cell::pair(scene, *pair)));
        let mut others = Vec::new();
        for (name, cell) in swept.chain(pairs) {
            let (cost, response) = (to(&cell, "shuffle", COST)?.mean, to(&cell, "shuffle", RESPONSE)?.mean);
            others.push(format!("{name} {} and {}", percent(cost), percent(response)));
        }
        told.push_str(&format!(
            ". Other weights, cost and response to shuffle, not judged: {}",
            others.join("; ")
        ));
        Some((verdict, told))
    };
    Claim::new(
        "own-equal",
        &format!(
            "Setting `default` costs at least {} less than shuffle and round-robin and responds at most {} slower than \
             shuffle",
            bound(CHEAPER),
            bound(SLOWER)
        ),
        "Tuplane's own aim",
        &format!(
            "at W = 0, load {LOAD} and equal instances this is so with its own weights, seed by seed, with 95 % \
             confidence"
        ),
        parts(view, of),
    )
    .because(
        "The weights were chosen on the Fat-Tree with Poisson arrivals; another network has other costs and another \
         frontier.",
    )
    .shown_by(in_scenes(view, "frontier"))
}

/// With unequal instances: response.
pub(super) fn unequal(view: &View<'_>) -> Claim {
    let of = |scene: Scene| {
        let cell = |cell: Cell| cell.light().uneven(1);
        let (own, robin) = (cell(Cell::potus(scene, Setting::Default)), cell(Cell::of(scene, "round-robin")));
        let rise = view.rise(&own, &robin, RESPONSE)?;
        let measured = format!(
            "{}{} slots, {:.2} ({:.2} to {:.2}) of round-robin's {}{}",
            view.mean(&own, RESPONSE)?,
            view.grows(&own)?,
            1.0 + rise.mean,
            1.0 + rise.low(),
            1.0 + rise.high(),
            view.mean(&robin, RESPONSE)?,
            view.grows(&robin)?
        );
        Some((Verdict::at_most(&rise, UNEQUAL - 1.0), measured))
    };
    Claim::new(
        "own-unequal",
        "With unequal instances setting `default` responds in under a third of round-robin's time",
        "Tuplane's own aim",
        &format!(
            "at W = 0, load {LIGHT} and d = 1 its response is at most {UNEQUAL} of round-robin's, seed by seed, with \
             95 % confidence"
        ),
        parts(view, of),
    )
    .because(
        "Round-robin gives slow instances more than they can work on, so its response grows with the length of the \
         runs: short ones understate it.",
    )
    .shown_by(on_nets(view, &["uneven-response"]))
}
