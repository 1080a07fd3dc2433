//! The planner of the `default` setting: the most throughput that the model finds for so many instances.

mod machines;

use super::model::{BUDGET, Model};
use super::simple::{dealt, may_grow};
use super::{Ask, Plan, Planner, Refusal, Removal, TakeAsk, explain, lambda, take};
use crate::scale::fluid::{EQUAL, demand};

/// All ways to deal the slots are tried if there are at most so many.
const ALL: u64 = 4096;

/// Rounds of moving one or two instances elsewhere.
const ROUNDS: usize = 50;

/// Scale-out: the instances with the highest throughput on the model, and of equals the fewest.
///
/// All ways are tried where there are at most 4,096. Beyond that it takes the best of three beginnings, each then filled up by
/// gain (with a look ahead to sets of full vertices) and improved by moving one or two instances: nothing, the search for the
/// largest common share of the sources' rates (which is optimal for one source under
/// back-pressure), and round-robin, so that it is never below that.
///
/// Where machines are known, vertices and machines are chosen together and evaluated on the machines' cores; see `machines`.
///
/// Scale-in: see `take`.
#[derive(Debug, Clone, Copy)]
pub struct Best;

impl Planner for Best {
    fn name(&self) -> &'static str {
        "best"
    }

    fn scale_out(&self, ask: &Ask<'_>) -> Result<Plan, Refusal> {
        if let Some(placement) = ask.placement {
            return Ok(machines::plan(self.name(), ask, placement));
        }
        let (instances, mut model) = without_machines(ask);
        let picks = in_order(&mut model, &instances);
        let left = if model.spent() && picks.len() < ask.slots as usize {
            format!("no gain was found; the search looked at {BUDGET} vertices and edges and ended there")
        } else {
            explain::left(ask, &picks, &[])
        };
        Ok(Plan::of(self.name(), ask, picks, left))
    }

    fn scale_in(&self, ask: &TakeAsk<'_>) -> Result<Removal, Refusal> {
        take::best(ask)
    }
}

/// The best instances where each has a core of its own.
fn without_machines<'a>(ask: &'a Ask<'a>) -> (Vec<u32>, Model<'a>) {
    let mut model = Model::new(ask);
    let instances = match candidates(ask) {
        few if ways(few.len(), ask.slots) <= ALL => all(&mut model, &few),
        _ => searched(&mut model),
    };
    (instances, model)
}

/// The vertices that could limit the job: more may reach them than they take now.
fn candidates(ask: &Ask<'_>) -> Vec<usize> {
    let graph = ask.graph;
    let instances = graph.instances();
    let capacities = graph.capacities(&instances);
    let demand = demand(graph, &capacities);
    let open = (0..graph.len()).any(|v| graph.is_source(v) && graph.vertices()[v].offered.is_none());
    let limits = |v: usize| open || demand[v] > capacities[v] * (1.0 + EQUAL);
    (0..graph.len())
        .filter(|v| limits(*v) && capacities[*v].is_finite() && may_grow(ask, &instances, *v))
        .collect()
}

/// In how many ways at most so many slots can go to so many vertices: slots + vertices over vertices.
fn ways(vertices: usize, slots: u32) -> u64 {
    let mut ways = 1_u64;
    for taken in 1..=vertices as u64 {
        ways = ways.saturating_mul(u64::from(slots) + taken) / taken;
        if ways > ALL {
            return u64::MAX;
        }
    }
    ways
}

/// The better of two, by throughput, and of equals the one with fewer instances; the first one of equals.
struct Record {
    instances: Vec<u32>,
    throughput: f64,
}

impl Record {
    /// True if it is the better one.
    fn offer(&mut self, instances: &[u32], throughput: f64) -> bool {
        let sum = |instances: &[u32]| instances.iter().map(|n| u64::from(*n)).sum::<u64>();
        let more = throughput > self.throughput * (1.0 + EQUAL);
        let same = throughput >= self.throughput * (1.0 - 1e-12);
        let better = more || (same && sum(instances) < sum(&self.instances));
        if better {
            *self = Self { instances: instances.to_vec(), throughput };
        }
        better
    }
}

/// The best of all ways.
fn all(model: &mut Model<'_>, candidates: &[usize]) -> Vec<u32> {
    fn deal(model: &mut Model<'_>, left: &[usize], slots: u32, instances: &mut [u32], record: &mut Record) {
        let Some((vertex, rest)) = left.split_first() else {
            let throughput = model.throughput(instances);
            record.offer(instances, throughput);
            return;
        };
        let before = instances[*vertex];
        for taken in 0..=slots {
            instances[*vertex] = before + taken;
            deal(model, rest, slots - taken, instances, record);
            if !may_grow(model.ask, instances, *vertex) {
                break;
            }
        }
        instances[*vertex] = before;
    }
    let mut instances = model.ask.graph.instances();
    let throughput = model.throughput(&instances);
    let mut record = Record { instances: instances.clone(), throughput };
    deal(model, candidates, model.ask.slots, &mut instances, &mut record);
    record.instances
}

/// The best of three beginnings, filled up and improved.
pub(super) fn searched(model: &mut Model<'_>) -> Vec<u32> {
    let ask = model.ask;
    let present = ask.graph.instances();
    let with = |picks: &mut dyn Iterator<Item = usize>| {
        let mut instances = present.clone();
        picks.for_each(|vertex| instances[vertex] += 1);
        instances
    };
    let by_share = with(&mut lambda::search(ask).picks.into_iter().map(|(vertex, _)| vertex));
    let in_turn = with(&mut dealt(ask).into_iter());
    let throughput = model.throughput(&present);
    let mut record = Record { instances: present.clone(), throughput };
    for mut instances in [by_share, in_turn, present.clone()] {
        let throughput = model.throughput(&instances);
        record.offer(&instances, throughput);
        trim(model, &present, &mut instances);
        let unused = left(ask, &instances);
        model.grow(&mut instances, unused);
        let throughput = model.throughput(&instances);
        record.offer(&instances, throughput);
    }
    for _ in 0..ROUNDS {
        let before = record.throughput;
        for given_up in given_up(&present, &record.instances) {
            let mut instances = record.instances.clone();
            for vertex in given_up {
                instances[vertex] = instances[vertex].saturating_sub(1).max(present[vertex]);
            }
            if model.spent() {
                break;
            }
            let unused = left(ask, &instances);
            model.grow(&mut instances, unused);
            let throughput = model.throughput(&instances);
            record.offer(&instances, throughput);
        }
        if record.throughput <= before {
            break;
        }
    }
    let mut instances = record.instances;
    trim(model, &present, &mut instances);
    instances
}

/// One new instance each of every vertex that has some, then of every two of them: the sets to deal again.
fn given_up(present: &[u32], planned: &[u32]) -> Vec<Vec<usize>> {
    let grown: Vec<usize> = (0..present.len()).filter(|vertex| planned[*vertex] > present[*vertex]).collect();
    let pairs = grown.iter().enumerate();
    let pairs = pairs.flat_map(|(index, a)| grown[index..].iter().map(move |b| vec![*a, *b]));
    grown.iter().map(|vertex| vec![*vertex]).chain(pairs).collect()
}

/// Slots that are not used yet.
fn left(ask: &Ask<'_>, instances: &[u32]) -> u32 {
    let added =
        instances.iter().zip(ask.graph.vertices()).map(|(n, vertex)| n - vertex.instances).sum::<u32>();
    ask.slots.saturating_sub(added)
}

/// Takes instances away that bring nothing.
fn trim(model: &mut Model<'_>, present: &[u32], instances: &mut [u32]) {
    let whole = model.throughput(instances);
    for vertex in (0..present.len()).rev() {
        while instances[vertex] > present[vertex] {
            instances[vertex] -= 1;
            if model.throughput(instances) < whole * (1.0 - 1e-12) {
                instances[vertex] += 1;
                break;
            }
        }
    }
}

/// The new instances one by one, in each round the one that brings most at that point, each with why. Of equals
/// the one that carries more of the output, then the one that is fuller.
fn in_order(model: &mut Model<'_>, planned: &[u32]) -> Vec<(usize, String)> {
    let ask = model.ask;
    let mut instances = ask.graph.instances();
    let mut picks = Vec::new();
    loop {
        let missing: Vec<usize> = (0..planned.len()).filter(|v| planned[*v] > instances[*v]).collect();
        if missing.is_empty() {
            return picks;
        }
        let now = model.solve(&instances);
        let carried = explain::carried(ask, &now);
        let capacities = ask.graph.capacities(&instances);
        let mut best: Option<(f64, f64, f64, usize)> = None;
        for vertex in missing {
            // With the budget used up, the order is the listing's; the steps are the same.
            if best.is_some() && model.steps > BUDGET + BUDGET / 4 {
                break;
            }
            instances[vertex] += 1;
            let gain = model.throughput(&instances) - now.throughput;
            instances[vertex] -= 1;
            let gain = if gain > now.throughput * EQUAL { gain } else { 0.0 };
            let full = now.rates[vertex].processed / capacities[vertex];
            let next = (gain, carried[vertex], full, vertex);
            let equal = |a: f64, b: f64| (a - b).abs() <= EQUAL * a.abs().max(b.abs());
            let better = best.is_none_or(|best| {
                if !equal(gain, best.0) {
                    gain > best.0
                } else if !equal(next.1, best.1) {
                    next.1 > best.1
                } else {
                    next.2 > best.2 * (1.0 + EQUAL)
                }
            });
            if better {
                best = Some(next);
            }
        }
        let Some((gain, _, _, vertex)) = best else { return picks };
        picks.push((vertex, explain::pays(ask, &instances, &now, vertex, gain > 0.0)));
        instances[vertex] += 1;
    }
}

#[cfg(test)]
mod tests;
