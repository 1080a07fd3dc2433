//! Whether the claims have one verdict in all scenes.

use super::view::View;
use crate::experiment::{Claim, Part, Verdict};

/// Scenes that networks and arrivals make, two of each: in fewer a difference has more than one reason.
const SCENES: usize = 4;

/// The claim that it is the same on both networks and with both arrivals. `mse-span` is left out: it differs by what it
/// is.
pub(super) fn claim(view: &View<'_>, claims: &[Claim]) -> Claim {
    let compared: Vec<&Claim> = claims.iter().filter(|claim| claim.id != "mse-span").collect();
    let with = |claim: &Claim, verdict: Verdict| claim.parts.iter().any(|part| part.verdict == verdict);
    let ids = |of: &dyn Fn(&Claim) -> bool| {
        compared.iter().filter(|claim| of(claim)).map(|claim| claim.id.as_str()).collect::<Vec<_>>()
    };
    let differ = ids(&|claim| with(claim, Verdict::Holds) && with(claim, Verdict::DoesNotHold));
    let open = ids(&|claim| {
        with(claim, Verdict::NotShown) && claim.parts.iter().any(|part| part.verdict != Verdict::NotShown)
    });
    let same = ids(&|claim| claim.parts.windows(2).all(|pair| pair[0].verdict == pair[1].verdict));
    let scenes = view.plan.scenes.len();
    let mut measured =
        format!("{} of {} claims have one verdict in all of {scenes} scenes", same.len(), compared.len());
    for (words, ids) in [("those that differ", &differ), ("not shown in some", &open)] {
        if !ids.is_empty() {
            measured.push_str(&format!("; {words}: {}", ids.join(", ")));
        }
    }
    let verdict = if !view.is_measured || scenes < SCENES {
        Verdict::NotShown
    } else if !differ.is_empty() {
        Verdict::DoesNotHold
    } else if !open.is_empty() {
        Verdict::NotShown
    } else {
        Verdict::Holds
    };
    let why = match (view.is_measured, scenes < SCENES) {
        (false, _) => "It takes measured arrivals (`--trace FILE`) and all four scenes (not `--quick`).",
        (true, true) => {
            "It takes all four scenes (not `--quick`): two differ in network and in arrivals at once."
        }
        (true, false) => "A verdict that differs is that of the arrivals and networks that were used here.",
    };
    let part = Part { scene: "all scenes".to_owned(), verdict, measured };
    Claim::new(
        "both-networks",
        "It is the same on Fat-Tree and Jellyfish, with measured and with Poisson arrivals",
        "POTUS, evaluation",
        "each claim above but `mse-span` has the same verdict in all four scenes, two of which have a measured trace",
        vec![part],
    )
    .because(why)
}
