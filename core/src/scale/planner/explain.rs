//! Why a vertex gets an instance, and why slots are left, in words.

use super::simple::may_grow;
use super::{Ask, Engine};
use crate::scale::etp::{Reading, SinkRate, etp};
use crate::scale::fluid::{EQUAL, Steady, demand, steady};

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
    format!("{carries}, limits it at {capacity} rows/s")
}

fn digits(percent: f64) -> String {
    if percent >= 10.0 { format!("{percent:.0}") } else { format!("{percent:.1}") }
}

/// Why slots are left behind these steps. `binding` are the vertices that limit the job after them, if the planner
/// knows; else they are found.
pub(super) fn left(ask: &Ask<'_>, picks: &[(usize, String)], binding: &[usize]) -> String {
    let mut instances = ask.graph.instances();
    picks.iter().for_each(|(vertex, _)| instances[*vertex] += 1);
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
