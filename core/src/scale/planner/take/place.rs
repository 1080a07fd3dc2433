//! Where the instances of machines that are given back go: where the job then makes most.

use super::super::TakeAsk;
use crate::scale::fluid::{EQUAL, Engine, demand};
use crate::scale::machines::{Placement, Takes};

/// Ways to place instances that are tried at most, over all choices of machines.
const WAYS: usize = 4096;

/// Vertices, edges and instances that the search beyond that may look at, over all choices of machines.
const BUDGET: u64 = 5_000_000;

/// The machines that stay and take what moves; all that stay, if none does.
pub(in crate::scale::planner) fn others(ask: &TakeAsk<'_>, gone: &[usize]) -> Vec<usize> {
    let machines = &ask.placement.machines;
    let stay = || (0..machines.len()).filter(|machine| !gone.contains(machine));
    let open: Vec<usize> = stay().filter(|machine| machines[*machine].takes != Takes::Nothing).collect();
    if open.is_empty() { stay().collect() } else { open }
}

/// What a placement is worth: throughput, and of equals how full the fullest machine would be; less is better.
#[derive(Debug, Clone, Copy)]
struct Worth {
    throughput: f64,
    fullest: f64,
}

impl Worth {
    fn beats(self, other: Self) -> bool {
        self.throughput > other.throughput * (1.0 + EQUAL)
            || (self.throughput >= other.throughput * (1.0 - EQUAL)
                && self.fullest < other.fullest * (1.0 - EQUAL))
    }
}

/// The instances that have to go, where they may go, and what it has cost so far.
struct Search<'a> {
    ask: &'a TakeAsk<'a>,
    /// Vertex and instance; those that ask for most come first.
    moving: Vec<(usize, usize)>,
    stay: Vec<usize>,
    /// What one instance of each vertex asks for of a core.
    wishes: Vec<f64>,
    one_factor: Option<OneFactor>,
    steps: u64,
}

/// A placement without the machines that go: the best of all ways, if these are few enough for one of so many choices of machines.
/// Else each instance goes to the machine that is least full, and then single ones are moved and pairs exchanged as long as that
/// brings something.
pub(super) fn placed(ask: &TakeAsk<'_>, before: &Placement, gone: &[usize], choices: usize) -> Placement {
    let now = before.steady(ask.graph, ask.engine);
    let load = |vertex: usize| {
        let each = now.rates[vertex].input / ask.graph.vertices()[vertex].capacity;
        each / before.on[vertex].len() as f64
    };
    let mut moving: Vec<(usize, usize)> = gone.iter().flat_map(|machine| before.of(*machine)).collect();
    moving.sort_by(|a, b| load(b.0).total_cmp(&load(a.0)));
    let one_factor = OneFactor::of(ask, before);
    let wishes = one_factor.as_ref().map_or_else(|| before.wishes(ask.graph), |one| one.needs.clone());
    let mut search = Search { ask, moving, stay: others(ask, gone), wishes, one_factor, steps: 0 };
    let ways =
        u32::try_from(search.moving.len()).ok().and_then(|moving| search.stay.len().checked_pow(moving));
    if let Some(ways) = ways.filter(|ways| ways.saturating_mul(choices) <= WAYS) {
        return search.everywhere(before.clone(), ways);
    }
    let share = BUDGET / choices.max(1) as u64;
    let after = search.improved(before.clone(), share);
    search.packed(after, share / 8)
}

/// A back-pressured engine with one source has one factor: the smallest of what vertices and machines let through. Then a
/// placement is worth what its machines' loads say, and no flow has to be solved.
struct OneFactor {
    /// How far vertices throttle the source.
    vertices: f64,
    /// What comes out if nothing throttles it.
    whole: f64,
    /// What one instance of each vertex then needs of a core, or of more than one.
    needs: Vec<f64>,
}

impl OneFactor {
    fn of(ask: &TakeAsk<'_>, placement: &Placement) -> Option<Self> {
        let graph = ask.graph;
        let sources = (0..graph.len()).filter(|vertex| graph.is_source(*vertex)).count();
        (sources == 1 && ask.engine == Engine::BackPressured).then(|| {
            let capacities = graph.capacities(&placement.instances());
            let demand = demand(graph, &capacities);
            let needs = demand.iter().zip(&capacities);
            let needs = needs.map(|(rows, most)| if *rows > 0.0 { rows / most } else { 0.0 });
            let needs: Vec<f64> = needs.collect();
            let vertices = needs.iter().fold(1.0, |factor: f64, need| factor.min(1.0 / need));
            let sinks = (0..demand.len()).filter(|vertex| graph.is_sink(*vertex));
            Self { vertices, whole: sinks.map(|vertex| demand[vertex]).sum(), needs }
        })
    }
}

impl Search<'_> {
    fn worth(&mut self, placement: &Placement) -> Worth {
        let loads = placement.loads(&self.wishes);
        let full = || loads.iter().zip(&placement.machines).map(|(asked, machine)| asked / machine.cores);
        let fullest = full().fold(0.0, f64::max);
        self.steps += placement.on.iter().map(Vec::len).sum::<usize>() as u64;
        if let Some(OneFactor { vertices, whole, .. }) = self.one_factor {
            return Worth { throughput: vertices.min(1.0 / fullest) * whole, fullest };
        }
        let now = placement.steady(self.ask.graph, self.ask.engine);
        self.steps += now.steps;
        Worth { throughput: now.throughput, fullest }
    }

    fn everywhere(&mut self, mut after: Placement, ways: usize) -> Placement {
        let mut best: Option<(Worth, Placement)> = None;
        for mut way in 0..ways {
            for (vertex, instance) in &self.moving {
                after.on[*vertex][*instance] = self.stay[way % self.stay.len()];
                way /= self.stay.len();
            }
            let worth = self.worth(&after);
            if best.as_ref().is_none_or(|(most, _)| worth.beats(*most)) {
                best = Some((worth, after.clone()));
            }
        }
        best.map_or(after, |(_, best)| best)
    }

    fn improved(&mut self, mut after: Placement, budget: u64) -> Placement {
        let mut loads = after.loads(&self.wishes);
        for (vertex, instance) in self.moving.clone() {
            let wish = self.wishes[vertex];
            let fullness = |machine: &usize| (loads[*machine] + wish) / after.machines[*machine].cores;
            let emptiest = self.stay.iter().min_by(|a, b| fullness(a).total_cmp(&fullness(b)));
            if let Some(machine) = emptiest.copied() {
                loads[machine] += wish;
                after.on[vertex][instance] = machine;
            }
        }
        let mut best = self.worth(&after);
        loop {
            let mut moved = false;
            for index in 0..self.moving.len() {
                for change in 0..self.stay.len() + index {
                    if self.steps >= budget {
                        return after;
                    }
                    let undo = self.change(&mut after, index, change);
                    let worth = self.worth(&after);
                    if worth.beats(best) {
                        best = worth;
                        moved = true;
                    } else {
                        for ((vertex, instance), machine) in undo {
                            after.on[vertex][instance] = machine;
                        }
                    }
                }
            }
            if !moved {
                return after;
            }
        }
    }

    /// With one factor a placement is a packing: the machine that is fullest decides. Looks for a better one than this by branch
    /// and bound, through so many branches at most; what it finds without coming to that bound is the best there is.
    fn packed(&self, after: Placement, branches: u64) -> Placement {
        let Some(one) = &self.one_factor else { return after };
        let fullness = |loads: &[f64], machine: usize| loads[machine] / after.machines[machine].cores;
        let loads = after.loads(&self.wishes);
        let fullest = self.stay.iter().map(|machine| fullness(&loads, *machine)).fold(0.0, f64::max);
        let cores: f64 = self.stay.iter().map(|machine| after.machines[*machine].cores).sum();
        // No packing is better than one without a gap, and none need be better than the vertices are.
        let whole: f64 = self.stay.iter().map(|machine| loads[*machine]).sum();
        let enough = (whole / cores).max(1.0 / one.vertices);
        let mut items = self.moving.clone();
        items.sort_by(|a, b| self.wishes[b.0].total_cmp(&self.wishes[a.0]).then(a.0.cmp(&b.0)));
        let mut packing = Packing {
            stay: self.stay.iter().map(|machine| (*machine, after.machines[*machine].cores)).collect(),
            items: items.iter().map(|(vertex, _)| (*vertex, self.wishes[*vertex])).collect(),
            loads,
            at: vec![0; items.len()],
            fullest,
            enough,
            found: None,
            branches,
        };
        for (vertex, instance) in &items {
            packing.loads[after.on[*vertex][*instance]] -= self.wishes[*vertex];
        }
        let kept = self.stay.iter().map(|machine| fullness(&packing.loads, *machine)).fold(0.0, f64::max);
        packing.branch(0, kept);
        let Some(found) = packing.found else { return after };
        let mut after = after;
        for ((vertex, instance), place) in items.into_iter().zip(found) {
            after.on[vertex][instance] = self.stay[place];
        }
        after
    }

    /// Moves an instance to a machine that stays, or exchanges it with an earlier one; says where they were.
    fn change(&self, after: &mut Placement, index: usize, change: usize) -> Vec<((usize, usize), usize)> {
        let (vertex, instance) = self.moving[index];
        let at = after.on[vertex][instance];
        let mut undo = vec![((vertex, instance), at)];
        match change.checked_sub(self.stay.len()) {
            None => after.on[vertex][instance] = self.stay[change],
            Some(other) => {
                let (vertex2, instance2) = self.moving[other];
                let at2 = after.on[vertex2][instance2];
                undo.push(((vertex2, instance2), at2));
                after.on[vertex][instance] = at2;
                after.on[vertex2][instance2] = at;
            }
        }
        undo
    }
}

/// A search for machines such that the fullest one is as little full as can be.
struct Packing {
    /// Machines that stay, and their cores.
    stay: Vec<(usize, f64)>,
    /// What has to go somewhere: vertex, and what it asks for; the largest first, those of a vertex one behind the other.
    items: Vec<(usize, f64)>,
    loads: Vec<f64>,
    /// Where the items so far are, by place in `stay`.
    at: Vec<usize>,
    /// The least that was found.
    fullest: f64,
    /// As little as need be.
    enough: f64,
    found: Option<Vec<usize>>,
    branches: u64,
}

impl Packing {
    fn branch(&mut self, item: usize, fullest: f64) {
        if self.branches == 0 || self.fullest <= self.enough * (1.0 + EQUAL) {
            return;
        }
        self.branches -= 1;
        let Some((vertex, load)) = self.items.get(item).copied() else {
            self.fullest = fullest;
            self.found = Some(self.at.clone());
            return;
        };
        // Instances of a vertex are alike: only ascending places are looked at.
        let same = item > 0 && self.items[item - 1].0 == vertex;
        let first = if same { self.at[item - 1] } else { 0 };
        for place in first..self.stay.len() {
            let (machine, cores) = self.stay[place];
            let full = fullest.max((self.loads[machine] + load) / cores);
            if full < self.fullest * (1.0 - EQUAL) {
                self.loads[machine] += load;
                self.at[item] = place;
                self.branch(item + 1, full);
                self.loads[machine] -= load;
            }
        }
    }
}
