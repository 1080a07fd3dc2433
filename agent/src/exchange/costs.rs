//! `U`: what a row costs on its way from this agent to each other one.

use std::sync::Arc;

use tuplane_core::route::{Cost, CostSource};
use tuplane_wire::message::RunPlan;

use super::outlet::{Link, Outlet};

/// Measured costs change by steps of this factor at least: noise must not reorder targets in each slot.
const STEP: f64 = 1.25;

/// Costs from one agent, by the other's index in the run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Costs {
    /// By the cluster's table of zones.
    zones: Vec<u32>,
    /// Name and zone of each agent.
    names: Vec<(String, String)>,
    me: usize,
}

impl Costs {
    /// The costs of a run as the agent of this index sees them.
    pub(crate) fn of(plan: &RunPlan, me: u16) -> Arc<Self> {
        Arc::new(Self {
            zones: (0..plan.agents.len() as u16).map(|to| plan.cost(me, to)).collect(),
            names: plan.agents.iter().map(|agent| (agent.id.name.clone(), agent.zone.clone())).collect(),
            me: usize::from(me),
        })
    }

    /// Costs of this agent, the first, by the other's index.
    pub(crate) fn table(zones: &[u32]) -> Arc<Self> {
        Arc::new(Self { zones: zones.to_vec(), names: Vec::new(), me: 0 })
    }

    /// The cost to an agent: of names before that of zones, and where neither is listed the cluster's. Measured
    /// costs begin with the cluster's.
    pub(crate) fn to(&self, agent: u16, source: &CostSource) -> Cost {
        let to = usize::from(agent);
        let by_zone = || {
            let cost = self.zones.get(to).copied().unwrap_or(u32::from(to != self.me));
            Cost::new(f64::from(cost)).unwrap_or_default()
        };
        let list = match source {
            CostSource::Matrix(list) => list,
            CostSource::Flat(cost) => return if to == self.me { Cost::default() } else { *cost },
            CostSource::Zones | CostSource::Measured => return by_zone(),
        };
        let (Some(from), Some(to)) = (self.names.get(self.me), self.names.get(to)) else { return by_zone() };
        let listed = |a: &str, b: &str| {
            let joins = |(one, other, _): &&(String, String, Cost)| {
                (one == a && other == b) || (one == b && other == a)
            };
            list.iter().find(joins).map(|(.., cost)| *cost)
        };
        let zones = || if from.0 == to.0 { None } else { listed(&from.1, &to.1) };
        listed(&from.0, &to.0).or_else(zones).unwrap_or_else(by_zone)
    }
}

/// The measured cost of a row to a target: milliseconds of the round trip, times KiB of a mean row, at least one.
/// `before` stays where the new one is within a step of it.
pub(crate) fn measured(outlet: &Outlet, before: Cost) -> Cost {
    let Link::Remote { session, .. } = &outlet.link else { return Cost::default() };
    let Some(round_trip) = session.round_trip() else { return before };
    let kib = outlet.sent_bytes as f64 / outlet.sent_rows.max(1) as f64 / 1024.0;
    quantised(round_trip as f64 / 1e3 * kib.max(1.0), before)
}

fn quantised(cost: f64, before: Cost) -> Cost {
    let known = before.value();
    if known > 0.0 && (cost / known).max(known / cost) < STEP {
        return before;
    }
    // Powers of the square root of 2: neighbours are further apart than a step.
    let step = (cost.max(1e-3).log2() * 2.0).round() / 2.0;
    Cost::new(step.exp2()).unwrap_or(before)
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests {
    use super::*;

    fn cost(value: f64) -> Cost {
        Cost::new(value).unwrap()
    }

    #[test]
    fn a_matrix_names_agents_before_zones_and_what_it_leaves_out_costs_what_zones_do() {
        let names = [("a", "x"), ("b", "y"), ("c", "y"), ("d", "x")];
        let names = names.map(|(name, zone)| (name.to_owned(), zone.to_owned())).to_vec();
        let costs = Costs { zones: vec![0, 3, 3, 2], names, me: 0 };
        assert_eq!([0, 1, 2, 3].map(|to| costs.to(to, &CostSource::Zones)), [0.0, 3.0, 3.0, 2.0].map(cost));
        let entry = |a: &str, b: &str, value| (a.to_owned(), b.to_owned(), cost(value));
        let matrix = CostSource::Matrix(vec![entry("y", "x", 7.0), entry("c", "a", 0.5)]);
        assert_eq!([0, 1, 2, 3].map(|to| costs.to(to, &matrix)), [0.0, 7.0, 0.5, 2.0].map(cost));
        let within = CostSource::Matrix(vec![entry("x", "x", 4.0)]);
        assert_eq!([0, 3].map(|to| costs.to(to, &within)), [0.0, 4.0].map(cost), "an agent is not a zone");
        assert_eq!([0, 3].map(|to| costs.to(to, &CostSource::Flat(cost(9.0)))), [0.0, 9.0].map(cost));
    }

    #[test]
    fn measured_costs_stay_until_they_have_changed_by_a_step() {
        let first = quantised(1.1, Cost::default());
        assert_eq!(first, cost(1.0));
        assert_eq!([0.85, 1.2].map(|now| quantised(now, first)), [first; 2]);
        let second = quantised(3.0, first);
        assert!(second > first && quantised(2.7, second) == second);
    }
}
