//! `best` where machines are known: what it tries is evaluated on their cores.

mod polish;

use std::collections::BTreeSet;

use self::polish::SAME;
use super::super::{Ask, Moving, Pick, Plan, explain};
use super::{Record, lambda, ways, without_machines};
use crate::scale::fluid::{EQUAL, Engine, Steady, demand};
use crate::scale::machines::{Placement, Takes};
use crate::scale::planner::simple::{dealt, may_grow};
use crate::scale::planner::storm::{deal_anew, moves};

/// All ways to deal the slots are tried if there are at most so many: fewer than without machines, for each costs more.
const ALL: u64 = 1024;

/// Vertices, edges and instances that the search may look at.
const BUDGET: u64 = 3_000_000;

/// Vertices and machines that are tried in one round.
const VERTICES: usize = 64;
const MACHINES: usize = 8;

/// Where a new instance is: vertex and machine.
type Place = (usize, usize);

/// New instances.
type New = Vec<Place>;

/// What a placement is worth: throughput, and of equals how near it is to more.
#[derive(Debug, Clone, Copy)]
struct Worth {
    throughput: f64,
    /// Back-pressured: fewer bounds that are used up. Queueing: shares of what would reach each vertex that it processes.
    /// Two bounds that bind alike bring nothing one by one; this is what then leads from one to the next.
    progress: f64,
}

impl Worth {
    fn beats(self, other: Self) -> bool {
        let more = |a: f64, b: f64| a > b + EQUAL * b.abs();
        more(self.throughput, other.throughput)
            || (!more(other.throughput, self.throughput) && more(self.progress, other.progress))
    }
}

/// A placement with new instances on it, each behind those that were there.
#[derive(Debug, Clone)]
struct Site {
    placement: Placement,
    new: New,
}

impl Site {
    fn push(&mut self, (vertex, machine): (usize, usize)) {
        self.placement.on[vertex].push(machine);
        self.new.push((vertex, machine));
    }

    /// Takes out the last new instance of a vertex on a machine.
    fn remove(&mut self, (vertex, machine): (usize, usize)) {
        if let Some(number) = self.new.iter().rposition(|pair| *pair == (vertex, machine)) {
            self.new.remove(number);
        }
        if let Some(place) = self.placement.on[vertex].iter().rposition(|at| *at == machine) {
            self.placement.on[vertex].remove(place);
        }
    }
}

/// The search, and what it has cost so far.
struct Search<'a> {
    ask: &'a Ask<'a>,
    /// As it is.
    now: &'a Placement,
    demand: Vec<f64>,
    /// Machines that new instances may go to.
    open: Vec<usize>,
    /// The places that there are for new instances.
    pairs: New,
    steps: u64,
    /// The same for what turns are found for.
    expected_steps: u64,
}

/// The plan for a job on these machines.
pub(super) fn plan(name: &str, ask: &Ask<'_>, now: &Placement) -> Plan {
    let open: Vec<usize> =
        (0..now.machines.len()).filter(|machine| now.machines[*machine].takes == Takes::All).collect();
    let demand = demand(ask.graph, &ask.graph.capacities(&ask.graph.instances()));
    let present = ask.graph.instances();
    let known = |vertex: &usize| ask.graph.vertices()[*vertex].capacity.is_finite();
    let grows = (0..ask.graph.len()).filter(|v| known(v) && may_grow(ask, &present, *v));
    let pairs = grows.flat_map(|v| open.iter().map(move |m| (v, *m))).collect();
    let mut search = Search { ask, now, demand, open, pairs, steps: 0, expected_steps: 0 };
    let mut found = search.added();
    let mut moved = Vec::new();
    if let Some(moving) = &ask.moving
        && let Some(with_moves) = search.with_moves(moving, &found)
    {
        let present: Vec<Vec<usize>> =
            now.on.iter().zip(&with_moves.placement.on).map(|(old, on)| on[..old.len()].to_vec()).collect();
        moved = moves(now, &Placement { on: present, ..with_moves.placement.clone() });
        found = with_moves;
    }
    let left = search.left(&found);
    let picks = search.in_order(found.new);
    Plan::placed(name, ask, picks, moved, left)
}

impl Search<'_> {
    fn solve(&mut self, placement: &Placement) -> Steady {
        let steady = placement.steady(self.ask.graph, self.ask.engine);
        self.steps += steady.steps + placement.on.iter().map(Vec::len).sum::<usize>() as u64;
        steady
    }

    fn worth_of(&self, steady: &Steady) -> Worth {
        let progress = match self.ask.engine {
            Engine::BackPressured => {
                -(steady.tight.iter().map(|tight| tight.vertices.len() + tight.shared.len()).sum::<usize>()
                    as f64)
            }
            Engine::Queueing => {
                let shares = steady.rates.iter().zip(&self.demand).filter(|(_, rows)| **rows > 0.0);
                shares.map(|(rates, rows)| rates.processed / rows).sum()
            }
        };
        Worth { throughput: steady.throughput, progress }
    }

    fn worth(&mut self, placement: &Placement) -> Worth {
        let steady = self.solve(placement);
        self.worth_of(&steady)
    }

    fn spent(&self) -> bool {
        self.steps >= BUDGET
    }

    fn slots(&self, site: &Site) -> usize {
        (self.ask.slots as usize).saturating_sub(site.new.len())
    }

    /// The vertex may have one more instance on a site.
    fn may_grow(&self, site: &Site, vertex: usize) -> bool {
        let instances = u32::try_from(site.placement.on[vertex].len()).unwrap_or(u32::MAX);
        self.ask.graph.vertices()[vertex].max_instances.is_none_or(|most| instances < most)
    }

    /// As it is, with these instances more, each where there is most room.
    fn site(&self, vertices: impl IntoIterator<Item = usize>) -> Site {
        let mut site = Site { placement: self.now.clone(), new: New::new() };
        for vertex in vertices {
            if let Some(machine) = site.placement.emptiest(vertex) {
                site.push((vertex, machine));
            }
        }
        site
    }

    /// The best that new instances alone bring. Where it makes no difference on which machines they are, they are spread.
    fn added(&mut self) -> Site {
        let found = self.chosen();
        let spread = self.site(found.new.iter().map(|(vertex, _)| *vertex));
        let (chosen, even) =
            (self.solve(&found.placement).throughput, self.solve(&spread.placement).throughput);
        let found = if even >= chosen * (1.0 - EQUAL) { spread } else { found };
        self.polished(found)
    }

    /// The best vertices and machines that are found.
    fn chosen(&mut self) -> Site {
        let ask = self.ask;
        let nothing = self.site([]);
        if self.open.is_empty() || ask.slots == 0 {
            return nothing;
        }
        let present = ask.graph.instances();
        if ways(self.pairs.len(), ask.slots) <= ALL {
            return self.everywhere(&self.pairs.clone(), nothing);
        }
        let as_it_is = self.worth(&nothing.placement);
        let mut best = (as_it_is, nothing.clone());
        for begin in [
            self.site(more(&present, &without_machines(ask).0)),
            self.site(lambda::search(ask).picks.into_iter().map(|(vertex, _)| vertex)),
            self.site(dealt(ask)),
            nothing.clone(),
        ] {
            let begun = (self.worth(&begin.placement), begin.clone());
            let climbed = self.climbed(begin);
            for next in [begun, climbed] {
                if next.0.beats(best.0) {
                    best = next;
                }
            }
        }
        let (worth, mut site) = best;
        if worth.throughput <= as_it_is.throughput * (1.0 + EQUAL) {
            return nothing;
        }
        self.trim(&mut site);
        site
    }

    /// The best of all ways to deal the slots.
    fn everywhere(&mut self, pairs: &[(usize, usize)], mut site: Site) -> Site {
        let throughput = self.solve(&site.placement).throughput;
        let mut record = Record { instances: Vec::new(), throughput };
        let mut best = New::new();
        self.deal(pairs, &mut site, &mut |throughput, new| {
            // Record counts instances: of equals the fewest.
            let sum = [u32::try_from(new.len()).unwrap_or(u32::MAX)];
            if record.offer(&sum, throughput) {
                best.clone_from(new);
            }
        });
        let mut site = self.site([]);
        for pair in best {
            site.push(pair);
        }
        site
    }

    fn deal(&mut self, left: &[(usize, usize)], site: &mut Site, offer: &mut impl FnMut(f64, &New)) {
        let Some((pair, rest)) = left.split_first() else {
            let throughput = self.solve(&site.placement).throughput;
            offer(throughput, &site.new);
            return;
        };
        let begin = site.new.len();
        loop {
            self.deal(rest, site, offer);
            if self.slots(site) == 0 || !self.may_grow(site, pair.0) {
                break;
            }
            site.push(*pair);
        }
        while site.new.len() > begin {
            site.remove(*pair);
        }
    }

    /// Adds instances, then puts new ones elsewhere, as long as that brings something.
    fn climbed(&mut self, mut site: Site) -> (Worth, Site) {
        let mut steady = self.solve(&site.placement);
        let mut worth = self.worth_of(&steady);
        while !self.spent() {
            let tries = self.tries(&site, &steady);
            let goes: Vec<Option<Place>> = if self.slots(&site) > 0 {
                vec![None]
            } else {
                let different: BTreeSet<Place> = site.new.iter().copied().collect();
                different.into_iter().map(Some).collect()
            };
            let mut best: Option<(Worth, Option<Place>, Place)> = None;
            for gone in goes {
                gone.inspect(|gone| site.remove(*gone));
                for pair in tries.iter().filter(|pair| gone != Some(**pair)) {
                    if self.spent() || !self.may_grow(&site, pair.0) {
                        continue;
                    }
                    site.push(*pair);
                    let found = self.worth(&site.placement);
                    site.remove(*pair);
                    if found.beats(best.map_or(worth, |(most, ..)| most)) {
                        best = Some((found, gone, *pair));
                    }
                }
                gone.inspect(|gone| site.push(*gone));
            }
            let Some((_, gone, pair)) = best else { break };
            gone.inspect(|gone| site.remove(*gone));
            site.push(pair);
            steady = self.solve(&site.placement);
            worth = self.worth_of(&steady);
        }
        (worth, site)
    }

    /// Where one more instance may bring something: of vertices that are full or share a full machine those that
    /// would free most, on the machines that have most left.
    fn tries(&self, site: &Site, steady: &Steady) -> New {
        let graph = self.ask.graph;
        let placement = &site.placement;
        // Cores that each vertex uses; it frees more on other machines the fewer instances it has.
        let uses: Vec<f64> = (0..graph.len())
            .map(|vertex| steady.rates[vertex].processed / graph.vertices()[vertex].capacity)
            .collect();
        let mut full = vec![false; graph.len()];
        match self.ask.engine {
            Engine::BackPressured => {
                let machines: Vec<usize> =
                    steady.tight.iter().flat_map(|tight| tight.shared.iter().copied()).collect();
                for vertex in steady.tight.iter().flat_map(|tight| &tight.vertices) {
                    full[*vertex] = true;
                }
                for (vertex, on) in placement.on.iter().enumerate() {
                    full[vertex] |= on.iter().any(|machine| machines.contains(machine));
                }
            }
            Engine::Queueing => {
                for (vertex, rates) in steady.rates.iter().enumerate() {
                    full[vertex] =
                        rates.input > rates.processed * (1.0 + EQUAL) || self.ask.is_open_source(vertex);
                }
            }
        }
        let mut vertices: Vec<usize> = (0..graph.len())
            .filter(|v| full[*v] && graph.vertices()[*v].capacity.is_finite() && self.may_grow(site, *v))
            .collect();
        let frees = |vertex: &usize| uses[*vertex] / (placement.on[*vertex].len().max(1) as f64);
        vertices.sort_by(|a, b| frees(b).total_cmp(&frees(a)));
        let mut taken = vec![0.0; placement.machines.len()];
        for (vertex, on) in placement.on.iter().enumerate() {
            for machine in on {
                taken[*machine] += uses[vertex] / on.len() as f64;
            }
        }
        let rest = |machine: &usize| placement.machines[*machine].cores - taken[*machine];
        let mut machines = self.open.clone();
        machines.sort_by(|a, b| rest(b).total_cmp(&rest(a)));
        let machines = &machines[..machines.len().min(MACHINES)];
        let vertices = vertices.into_iter().take(VERTICES);
        vertices.flat_map(|vertex| machines.iter().map(move |machine| (vertex, *machine))).collect()
    }

    /// Takes new instances out that bring nothing.
    fn trim(&mut self, site: &mut Site) {
        let whole = self.solve(&site.placement).throughput;
        for number in (0..site.new.len()).rev() {
            if self.steps > BUDGET + BUDGET / 4 {
                return;
            }
            let pair = site.new[number];
            site.remove(pair);
            if self.solve(&site.placement).throughput < whole * (1.0 - 1e-12) {
                site.push(pair);
            }
        }
    }

    /// The best of what is dealt anew, if that pays, with the fewest moves that it takes.
    fn with_moves(&mut self, moving: &Moving, added: &Site) -> Option<Site> {
        let ask = self.ask;
        let present = ask.graph.instances();
        let base = self.expected(&added.placement);
        let mut best: Option<(f64, Site)> = None;
        for counts in [
            added.placement.instances(),
            instances(&present, dealt(ask)),
            without_machines(ask).0,
            present.clone(),
        ] {
            let anew = deal_anew(self.now, &counts, |vertex| moving.stays.get(vertex) == Some(&true));
            let expected = self.expected(&anew);
            if best.as_ref().is_none_or(|(most, _)| expected > most * (1.0 + SAME)) {
                best = Some((expected, self.kept_in_place(&anew)));
            }
        }
        let (whole, mut site) = best.filter(|(most, _)| *most > base * (1.0 + moving.pays.max(SAME)))?;
        self.pared(&mut site, whole);
        // What need not move goes back.
        for vertex in 0..self.now.on.len() {
            for (instance, at) in self.now.on[vertex].iter().enumerate() {
                let to = site.placement.on[vertex][instance];
                if to == *at || self.has_looked_enough() {
                    continue;
                }
                site.placement.on[vertex][instance] = *at;
                if self.expected(&site.placement) < whole * (1.0 - SAME) {
                    site.placement.on[vertex][instance] = to;
                }
            }
        }
        Some(site)
    }

    /// Instances of a vertex are alike: those that are where one is wanted stay, the new ones go to machines that take
    /// such, and the others move.
    fn kept_in_place(&self, anew: &Placement) -> Site {
        let mut site = Site { placement: self.now.clone(), new: New::new() };
        for (vertex, wanted) in anew.on.iter().enumerate() {
            let mut wanted = wanted.clone();
            let mut leave = Vec::new();
            for (instance, at) in self.now.on[vertex].iter().enumerate() {
                match wanted.iter().position(|machine| machine == at) {
                    Some(place) => drop(wanted.swap_remove(place)),
                    None => leave.push(instance),
                }
            }
            // Those for new instances come last.
            wanted.sort_by_key(|machine| (self.now.machines[*machine].takes == Takes::All, *machine));
            for (instance, machine) in leave.into_iter().zip(wanted.drain(..)) {
                site.placement.on[vertex][instance] = machine;
            }
        }
        for (vertex, wanted) in anew.on.iter().enumerate() {
            let mut wanted = wanted.clone();
            for at in &site.placement.on[vertex] {
                if let Some(place) = wanted.iter().position(|machine| machine == at) {
                    wanted.swap_remove(place);
                }
            }
            for machine in wanted {
                site.push((vertex, machine));
            }
        }
        site
    }

    /// The new instances one by one, in each round the one that brings most at that point, each with why.
    fn in_order(&mut self, mut new: New) -> Vec<Pick> {
        let ask = self.ask;
        let mut site = self.site([]);
        let mut picks = Vec::new();
        while !new.is_empty() {
            let now = self.solve(&site.placement);
            let carried = explain::carried(ask, &now);
            let mut best: Option<(Worth, f64, usize)> = None;
            for (number, pair) in new.iter().enumerate() {
                // With the budget used up, the order is the listing's; the steps are the same.
                if best.is_some() && self.steps > BUDGET + BUDGET / 2 {
                    break;
                }
                if new[..number].contains(pair) {
                    continue;
                }
                site.push(*pair);
                let worth = self.worth(&site.placement);
                site.remove(*pair);
                let share = carried[pair.0];
                let better = best.is_none_or(|(most, most_share, _)| {
                    worth.beats(most) || (!most.beats(worth) && share > most_share * (1.0 + EQUAL))
                });
                if better {
                    best = Some((worth, share, number));
                }
            }
            let Some((worth, _, number)) = best else { break };
            let pair = new.remove(number);
            let gains = worth.throughput > now.throughput * (1.0 + EQUAL);
            let why = explain::pays_on(ask, &site.placement, &now, pair, gains);
            picks.push(Pick { vertex: pair.0, machine: Some(pair.1), why });
            site.push(pair);
        }
        picks
    }

    /// Why slots are left.
    fn left(&mut self, site: &Site) -> String {
        if self.open.is_empty() {
            return "no machine takes new instances".to_owned();
        }
        let now = self.solve(&site.placement);
        if self.spent() {
            return format!(
                "no gain was found; the search looked at {BUDGET} vertices, edges and instances and ended there"
            );
        }
        explain::left_on(self.ask, &site.placement, &now, self.slots(site))
    }
}

/// The vertices of what is planned above what is there, each as often as it has more.
fn more<'a>(present: &'a [u32], planned: &'a [u32]) -> impl Iterator<Item = usize> + 'a {
    let pairs = present.iter().zip(planned).enumerate();
    pairs.flat_map(|(vertex, (old, new))| (*old..*new).map(move |_| vertex))
}

/// What is there, and one more of each of these.
fn instances(present: &[u32], more: impl IntoIterator<Item = usize>) -> Vec<u32> {
    let mut instances = present.to_vec();
    more.into_iter().for_each(|vertex| instances[vertex] += 1);
    instances
}
