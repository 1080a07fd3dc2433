//! What was found on the fluid is looked at again with the turns that instances take on cores, and improved.

use std::collections::BTreeSet;

use super::{Place, Search, Site, dealt, more, without_machines};
use crate::scale::machines::Placement;

/// Vertices, edges and instances that this may look at.
const BUDGET: u64 = 3_000_000;

/// An instance that is put elsewhere brings at least this share: turns are found to a part in a million, and measured to a percent.
const PAYS: f64 = 2e-3;

/// All vertices and machines are tried if these are so few pairs.
const ALL: usize = 64;

/// Two that differ by less are the same.
pub(super) const SAME: f64 = 1e-5;

impl Search<'_> {
    /// What a placement is expected to bring out, rows a second.
    pub(super) fn expected(&mut self, placement: &Placement) -> f64 {
        let steady = placement.expected(self.ask.graph, self.ask.engine);
        self.expected_steps += steady.steps;
        steady.throughput
    }

    pub(super) fn has_looked_enough(&self) -> bool {
        self.expected_steps >= BUDGET
    }

    /// The best of a site, of round-robin, of what is best without machines and of nothing; then new instances are put elsewhere, one at
    /// a time, as long as that pays, from the best of these and from nothing.
    pub(super) fn polished(&mut self, site: Site) -> Site {
        let ask = self.ask;
        if self.open.is_empty() || ask.slots == 0 {
            return site;
        }
        let present = ask.graph.instances();
        let nothing = self.site([]);
        let mut best = (self.expected(&site.placement), site);
        let round_robin = self.site(dealt(ask));
        let by_vertices = self.site(more(&present, &without_machines(ask).0));
        for other in [round_robin, by_vertices, nothing.clone()] {
            let expected = self.expected(&other.placement);
            if expected > best.0 * (1.0 + SAME) {
                best = (expected, other);
            }
        }
        let from_nothing = self.climbed_as_expected(nothing);
        let from_best = self.climbed_as_expected(best.1);
        if from_nothing.0 > from_best.0 * (1.0 + PAYS) { from_nothing.1 } else { from_best.1 }
    }

    fn climbed_as_expected(&mut self, mut site: Site) -> (f64, Site) {
        let mut expected = self.expected(&site.placement);
        while !self.has_looked_enough() {
            let Some((more, gone, place)) = self.next_best(&mut site, expected) else { break };
            gone.inspect(|gone| site.remove(*gone));
            site.push(place);
            expected = more;
        }
        (expected, site)
    }

    /// Takes new instances out that bring nothing of what is expected with them.
    pub(super) fn pared(&mut self, site: &mut Site, whole: f64) {
        for number in (0..site.new.len()).rev() {
            if self.has_looked_enough() {
                return;
            }
            let place = site.new[number];
            site.remove(place);
            if self.expected(&site.placement) < whole * (1.0 - SAME) {
                site.push(place);
            }
        }
    }

    /// The one instance that pays most, if it is added, or put where it is instead of somewhere else.
    fn next_best(&mut self, site: &mut Site, expected: f64) -> Option<(f64, Option<Place>, Place)> {
        let now = site.placement.expected(self.ask.graph, self.ask.engine);
        self.expected_steps += now.steps;
        let tries = if self.pairs.len() <= ALL { self.pairs.clone() } else { self.tries(site, &now) };
        let goes: Vec<Option<Place>> = if self.slots(site) > 0 {
            vec![None]
        } else {
            let different: BTreeSet<Place> = site.new.iter().copied().collect();
            different.into_iter().map(Some).collect()
        };
        let mut best: Option<(f64, Option<Place>, Place)> = None;
        for gone in goes {
            gone.inspect(|gone| site.remove(*gone));
            for place in tries.iter().filter(|place| gone != Some(**place)) {
                if self.has_looked_enough() || !self.may_grow(site, place.0) {
                    continue;
                }
                site.push(*place);
                let found = self.expected(&site.placement);
                site.remove(*place);
                if found > best.map_or(expected * (1.0 + PAYS), |(most, ..)| most) {
                    best = Some((found, gone, *place));
                }
            }
            gone.inspect(|gone| site.push(*gone));
        }
        best
    }
}
