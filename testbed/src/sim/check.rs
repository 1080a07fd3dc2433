//! What must hold in every slot (potus.md section 8.3), checked in every run.

use tuplane_core::route::{Cost, Terms, Weight};

use super::decide::{Decided, Queues, Send};
use super::telemetry::Known;
use super::world::World;

/// The rules of the run that decisions are held to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// `gamma`.
    pub(super) gamma: u64,
    /// `beta`.
    pub(super) beta: Weight,
    /// All tuples of a sender for a component go to one instance.
    pub(super) one_target: bool,
}

/// A sender's sends: within the budget (equation 1) and the queue (10), nothing mandatory left behind unless it was
/// counted (4), at prices below 0 but for what is mandatory, to one instance of a component.
pub(super) fn decisions(
    rules: &Rules,
    world: &World,
    queues: &Queues,
    known: &Known,
    decided: &Decided,
) -> Result<(), String> {
    let mut shortfall = 0;
    let mut sent = vec![0u64; world.ports.len()];
    let mut dear = vec![0u64; world.ports.len()];
    let mut target: Vec<Option<usize>> = vec![None; world.ports.len()];
    for send in &decided.sends {
        let Send { port, target: to, rows } = *send;
        if world.instances[to].component != world.ports[port].to {
            return Err(format!("port {port} sent to instance {to}, which is of another component"));
        }
        if rows == 0 {
            return Err(format!("port {port} sent nothing to instance {to}"));
        }
        sent[port] += rows;
        if target[port].replace(to).is_some_and(|other| other != to && rules.one_target) {
            return Err(format!("port {port} sent to two instances"));
        }
        let sender = world.ports[port].instance;
        let container = world.instances[sender].container;
        // Prices only rise within a slot: what was dear when it began was dear when it left.
        if let Some(v) = decided.v[world.edge(container, world.ports[port].to)] {
            let cost = Cost::new(world.cost(sender, to)).unwrap_or_default();
            let there = known.length(container, to, world.instances[to].capacity, queues.inputs[to]);
            let terms = Terms::new(v, cost, there, rules.beta, queues.outputs[port]);
            if !terms.price().is_good() {
                dear[port] += rows;
            }
        }
    }
    for (port, sent) in sent.iter().enumerate() {
        let (q_out, due) = (queues.outputs[port], queues.mandatory[port]);
        if *sent > q_out {
            return Err(format!("port {port} sent {sent} tuples and had {q_out}"));
        }
        if dear[port] > due {
            return Err(format!(
                "port {port} sent {} tuples at a price of 0 or more, and {due} had to leave",
                dear[port]
            ));
        }
        shortfall += due.saturating_sub(*sent);
    }
    if shortfall != decided.deferred {
        return Err(format!(
            "{shortfall} tuples that had to leave did not, and {} were counted",
            decided.deferred
        ));
    }
    for instance in 0..world.instances.len() {
        let all: u64 = world.ports_of(instance).map(|port| sent[port]).sum();
        if all > rules.gamma {
            return Err(format!("instance {instance} sent {all} tuples, over its budget of {}", rules.gamma));
        }
    }
    Ok(())
}

/// Tuples counted where they are made and where they end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ledger {
    /// Sent by spouts.
    pub(super) drawn: u64,
    /// Emitted by bolts.
    pub(super) emitted: u64,
    /// Worked on by bolts.
    pub(super) served: u64,
    /// Tuples from outside that have arrived. (What was drawn, emitted and served counts phantoms too.)
    pub(super) arrived: u64,
    /// Tuples from outside all of whose descendants are completed.
    pub(super) answered: u64,
}

impl Ledger {
    /// What was made is queued or was worked on.
    pub(super) fn balance(&self, q_in: u64, q_out: u64) -> Result<(), String> {
        let (made, there) = (self.drawn + self.emitted, self.served + q_in + q_out);
        if made == there {
            return Ok(());
        }
        Err(format!(
            "{} tuples drawn and {} emitted are not {} worked on, {q_in} at inputs and {q_out} at outputs",
            self.drawn, self.emitted, self.served
        ))
    }

    /// What arrived was answered or is under way.
    pub(super) fn roots(&self, unanswered: u64) -> Result<(), String> {
        if self.arrived == self.answered + unanswered {
            return Ok(());
        }
        Err(format!(
            "{} tuples arrived, {} were answered and {unanswered} are under way",
            self.arrived, self.answered
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::config::Telemetry;
    use super::super::{Registry, load};
    use super::*;

    #[test]
    fn a_price_that_is_not_below_0_is_found_whatever_v_is_and_however_old_the_queue() {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("experiments/potus/fat-tree.toml");
        let config = load(&file, &[], &Registry::default()).unwrap();
        let world = World::new(&config).unwrap();
        let (port, sender) = (0, world.ports[0].instance);
        let to = world.components[world.ports[port].to].instances.start;
        let (container, fed) = (world.instances[sender].container, world.ports[port].to);
        let rules = Rules { gamma: u64::MAX, beta: Weight::clamped(1.0), one_target: false };
        let mut queues = Queues {
            inputs: vec![0; world.instances.len()],
            outputs: vec![0; world.ports.len()],
            mandatory: vec![0; world.ports.len()],
            total: (0.0, 0.0),
        };
        queues.outputs[port] = 5;
        let mut decided = Decided {
            sends: vec![Send { port, target: to, rows: 3 }],
            v: vec![None; world.costs.len() * world.components.len()],
            ..Decided::default()
        };
        decided.v[world.edge(container, fed)] = Some(Weight::clamped(0.0));
        let known = |telemetry: Telemetry, told: u64| {
            let (containers, instances) = (world.costs.len(), world.instances.len());
            let mut known = Known::new(telemetry, false, 0, containers, instances);
            known.begin(0, &vec![told; instances]);
            known
        };
        let fresh = known(Telemetry::FRESH, 0);
        assert_eq!(decisions(&rules, &world, &queues, &fresh, &decided), Ok(()));
        // Five tuples wait here, seven there.
        queues.inputs[to] = 7;
        let said = decisions(&rules, &world, &queues, &fresh, &decided).unwrap_err();
        assert_eq!(said, "port 0 sent 3 tuples at a price of 0 or more, and 0 had to leave");
        // The sender was told of four, and could not know better.
        let old = Telemetry { every: 9, delay: 0, by_slot: false };
        assert_eq!(decisions(&rules, &world, &queues, &known(old, 4), &decided), Ok(()));
        assert!(decisions(&rules, &world, &queues, &known(old, 5), &decided).is_err());
        // Where the policy has no prices none is too high.
        decided.v.fill(None);
        assert_eq!(decisions(&rules, &world, &queues, &fresh, &decided), Ok(()));
    }
}
