//! Where the instances of machines that are given back go: where the job then makes most.

use super::super::TakeAsk;
use crate::scale::fluid::EQUAL;
use crate::scale::machines::Placement;

/// Ways to place instances that are tried at most, over all choices of machines.
const WAYS: usize = 4096;

/// Vertices and edges that the search beyond that may look at, over all choices of machines.
const BUDGET: u64 = 5_000_000;

/// The machines that stay.
pub(super) fn others(ask: &TakeAsk<'_>, gone: &[usize]) -> Vec<usize> {
    (0..ask.placement.machines.len()).filter(|machine| !gone.contains(machine)).collect()
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
    let mut search = Search { ask, moving, stay: others(ask, gone), steps: 0 };
    let ways =
        u32::try_from(search.moving.len()).ok().and_then(|moving| search.stay.len().checked_pow(moving));
    match ways.filter(|ways| ways.saturating_mul(choices) <= WAYS) {
        Some(ways) => search.everywhere(before.clone(), ways),
        None => search.improved(before.clone(), BUDGET / choices.max(1) as u64),
    }
}

impl Search<'_> {
    fn worth(&mut self, placement: &Placement) -> Worth {
        let now = placement.steady(self.ask.graph, self.ask.engine);
        self.steps += now.steps;
        let loads = placement.asked(self.ask.graph).into_iter().zip(&placement.machines);
        let fullest = loads.map(|(asked, machine)| asked / machine.cores).fold(0.0, f64::max);
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
        for (vertex, instance) in self.moving.clone() {
            let fullness = |after: &mut Placement, machine: usize| {
                after.on[vertex][instance] = machine;
                after.asked(self.ask.graph)[machine] / after.machines[machine].cores
            };
            let shares = self.stay.iter().map(|machine| (fullness(&mut after, *machine), *machine));
            if let Some((_, machine)) = shares.min_by(|a, b| a.0.total_cmp(&b.0)) {
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
