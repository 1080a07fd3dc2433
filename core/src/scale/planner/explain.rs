//! Why a vertex gets an instance, and why slots are left, in words.

use super::simple::may_grow;
use super::{Ask, Engine};
use crate::scale::etp::{Reading, SinkRate, etp};
use crate::scale::fluid::{EQUAL, Steady, demand, steady};
use crate::scale::graph::total;
use crate::scale::machines::Placement;

/// A rate, short: whole rows, or three digits below 100.
pub(super) fn rows(rate: f64) -> String {
    match rate {
        rate if rate >= 100.0 || rate.fract() == 0.0 => format!("{rate:.0}"),
        rate if rate >= 10.0 => format!("{rate:.1}"),
        rate => format!("{rate:.2}"),
    }
}

/// The share of the output that came through each vertex, whoever is congested; 0 without output.
pub(super) fn carried(ask: &Ask<'_>, now: &Steady) -> Vec<f64> {
    let none = vec![false; ask.graph.len()];
    etp(ask.graph, &now.rates, &none, Reading::FlowShare, SinkRate::Processed)
        .unwrap_or(vec![0.0; none.len()])
}

/// Why one more instance of a vertex pays, in words that follow its name; `pays` at once, or with what follows.
pub(super) fn pays(ask: &Ask<'_>, instances: &[u32], now: &Steady, vertex: usize, pays: bool) -> String {
    let capacity = rows(f64::from(instances[vertex]) * ask.graph.vertices()[vertex].capacity);
    let share = carried(ask, now)[vertex];
    let carries = if share >= 0.0005 {
        format!("carries {} % of the output", digits(share * 100.0))
    } else {
        "carries nothing that reaches the output yet".to_owned()
    };
    if !pays {
        return format!("{carries}, takes at most {capacity} rows/s: pays together with the steps behind it");
    }
    if let (true, Some(offered)) = (ask.graph.is_source(vertex), ask.graph.vertices()[vertex].offered) {
        return format!("{carries}, limits it at {capacity} of the {} rows/s it is offered", rows(offered));
    }
    format!("{carries}, limits it at {capacity} rows/s that it takes")
}

/// Why one more instance pays on a machine, in words that follow its vertex's name: as [`pays`] where the vertex is full, else
/// for the cores that its others then need less of.
pub(super) fn pays_on(
    ask: &Ask<'_>,
    placement: &Placement,
    now: &Steady,
    (vertex, machine): (usize, usize),
    gains: bool,
) -> String {
    let is_full = match ask.engine {
        Engine::BackPressured => now.tight.iter().any(|tight| tight.vertices.contains(&vertex)),
        Engine::Queueing => {
            let capacity = total(count(placement, vertex), ask.graph.vertices()[vertex].capacity);
            now.rates[vertex].processed >= capacity * (1.0 - EQUAL)
        }
    };
    if is_full {
        return pays(ask, &placement.instances(), now, vertex, gains);
    }
    let share = carried(ask, now)[vertex] * 100.0;
    let to = &placement.machines[machine].name;
    let then = if gains { "" } else { ": pays together with the steps behind it" };
    format!(
        "carries {} % of the output, and leaves more cores to the others with an instance on {to}{then}",
        digits(share)
    )
}

fn count(placement: &Placement, vertex: usize) -> u32 {
    u32::try_from(placement.on[vertex].len()).unwrap_or(u32::MAX)
}

/// Why so many slots are left where machines are known.
pub(super) fn left_on(ask: &Ask<'_>, placement: &Placement, now: &Steady, slots: usize) -> String {
    let graph = ask.graph;
    let needs = demand(graph, &graph.capacities(&placement.instances()));
    let waits = |v: &usize| now.rates[*v].processed < needs[*v] * (1.0 - EQUAL) || ask.is_open_source(*v);
    let uses = |vertex: usize| now.rates[vertex].processed / graph.vertices()[vertex].capacity;
    let mut used = vec![0.0; placement.machines.len()];
    for (vertex, on) in placement.on.iter().enumerate() {
        for machine in on {
            used[*machine] += uses(vertex) / on.len() as f64;
        }
    }
    let is_up = |machine: &usize| used[*machine] >= placement.machines[*machine].cores * (1.0 - EQUAL);
    let up: Vec<usize> = (0..used.len()).filter(is_up).collect();
    if up.is_empty() || !(0..graph.len()).any(|vertex| waits(&vertex)) {
        let more =
            |vertex: usize| count(placement, vertex).saturating_sub(graph.vertices()[vertex].instances);
        let new = (0..graph.len()).flat_map(|vertex| (0..more(vertex)).map(move |_| (vertex, String::new())));
        return left(ask, &new.collect::<Vec<_>>(), &[]);
    }
    let named: Vec<&str> =
        up.iter().take(3).map(|machine| placement.machines[*machine].name.as_str()).collect();
    let others = match up.len() - named.len() {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    format!("no gain from {slots} more: the cores of {}{others} are used up", named.join(", "))
}

fn digits(percent: f64) -> String {
    if percent >= 10.0 { format!("{percent:.0}") } else { format!("{percent:.1}") }
}

/// Why slots are left behind these steps. `binding` are the vertices that limit the job after them, if the planner
/// knows; else they are found.
pub(super) fn left(ask: &Ask<'_>, picks: &[(usize, String)], binding: &[usize]) -> String {
    let mut instances = ask.graph.instances();
    for (vertex, _) in picks {
        instances[*vertex] += 1;
    }
    let slots = (ask.slots as usize).saturating_sub(picks.len());
    let found = if binding.is_empty() { full(ask, &instances) } else { binding.to_vec() };
    let name = |vertex: &usize| format!("`{}`", ask.graph.vertices()[*vertex].id);
    if found.is_empty() {
        let capacities = ask.graph.capacities(&instances);
        let demand = demand(ask.graph, &capacities);
        let offered: f64 = (0..demand.len()).filter(|v| ask.graph.is_source(*v)).map(|v| demand[v]).sum();
        return format!("no gain: the job takes all that its sources offer, {} rows/s", rows(offered));
    }
    if let Some(most) = found.iter().find(|vertex| !may_grow(ask, &instances, **vertex)) {
        return format!(
            "no gain: {} is full and may have no more than {} instances",
            name(most),
            instances[*most]
        );
    }
    let named: Vec<String> = found.iter().take(3).map(name).collect();
    let more = match found.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let are = if found.len() == 1 { "is" } else { "are" };
    format!(
        "no gain from {slots} more: {}{more} {are} full, and that takes more instances at once",
        named.join(", ")
    )
}

/// The vertices that are full: they take less than would reach them.
fn full(ask: &Ask<'_>, instances: &[u32]) -> Vec<usize> {
    let capacities = ask.graph.capacities(instances);
    let now = steady(ask.graph, &capacities, ask.engine);
    match ask.engine {
        Engine::Queueing => {
            let over = |v: &usize| now.rates[*v].input > capacities[*v] * (1.0 + EQUAL);
            (0..capacities.len()).filter(over).collect()
        }
        Engine::BackPressured => {
            let mut full: Vec<usize> = now.tight.into_iter().flat_map(|tight| tight.vertices).collect();
            full.sort_unstable();
            full
        }
    }
}
