//! What a plan is predicted to bring, whoever has made it: a planner, a person or the automatic mode.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use tuplane_core::plan::VertexId;
use tuplane_core::scale::fluid::steady;
use tuplane_core::scale::observed::{Observed, OnMachines, Running};
use tuplane_core::scale::{FlowGraph, Placement, calibrated};
use tuplane_wire::message::AgentInfo;

use super::{Change, Known};
use crate::coordinator::etp::Seen;

/// Of a job with more instances nothing is predicted: it would take too long while nothing else is answered.
const MOST_INSTANCES: usize = 10_000;

/// A share of the throughput that is none: it is measured to a percent.
const NOTHING: f64 = 0.01;

/// A running job as plans for it are predicted.
pub(in crate::coordinator) struct Model {
    /// Its vertices with as many instances as are placed, capacities corrected by what was measured.
    pub(in crate::coordinator) graph: FlowGraph,
    /// Where its instances are.
    pub(in crate::coordinator) placement: Placement,
    /// Their ids, by vertex and place in the placement.
    pub(super) ids: Vec<Vec<u32>>,
    /// Rows a second at its sinks, before the capacities were corrected.
    pub(in crate::coordinator) modelled: f64,
    /// What has to be known of it, in sentences.
    pub(super) notes: Vec<String>,
}

/// Where an agent says how many cores it has, a wait for one is the placement's matter, and instances are taken as they
/// are alone.
pub(in crate::coordinator) fn binds<'a>(agents: impl IntoIterator<Item = &'a AgentInfo>) -> bool {
    agents.into_iter().any(|agent| agent.cores > 0)
}

impl Known<'_> {
    /// The model of a job that was seen so, with these machines; so many more instances are to come.
    pub(in crate::coordinator) fn model(
        &self,
        running: &Running<'_>,
        observed: &Observed,
        machines: &[&AgentInfo],
        more: u32,
    ) -> Model {
        let (placement, ids) = self.placement(machines, more);
        // What has ended is in the rates, and on no agent.
        let graph = observed.graph.with_instances(&placement.instances());
        let measured = observed.rates.as_deref().ok();
        let calibrated = calibrated(&graph, &placement, running.engine, measured);
        let notes = calibrated.sentence().into_iter().collect();
        Model { modelled: calibrated.modelled, graph: calibrated.graph, placement, ids, notes }
    }

    /// Says of a change what the sinks are expected to take after it, or why nothing is predicted.
    pub(in crate::coordinator) fn foretell(&self, change: &mut Change) {
        if change.is_foretold() {
            return;
        }
        let none = BTreeMap::new();
        let seen = Seen::of(self.job, self.live, Instant::now());
        let said = seen.map_err(|fault| fault.message).and_then(|seen| {
            let running = seen.running(seen.congestion(), &none);
            self.foretell_by(&running, change).map(drop)
        });
        change.unpredicted = said.err();
    }

    /// The same of a job that was seen so. True if it brings nothing for want of cores: with one for each instance more would
    /// come out than before, and with those that there are no more does.
    ///
    /// # Errors
    /// In a sentence, if nothing can be predicted.
    pub(in crate::coordinator) fn foretell_by(
        &self,
        running: &Running<'_>,
        change: &mut Change,
    ) -> Result<bool, String> {
        if change.is_foretold() {
            return Ok(false);
        }
        let all = self.running.len() + change.add.len();
        if all > MOST_INSTANCES {
            return Err(format!("it is about {all} instances, and more than {MOST_INSTANCES} take too long"));
        }
        if let Some(why) = running.nothing_known() {
            return Err(format!("no rates of job {} are known yet: {why}", self.job.name));
        }
        let comes = |agent: &AgentInfo| change.add.iter().any(|(_, name)| *name == agent.id.name);
        let machines: Vec<&AgentInfo> =
            self.agents.iter().filter(|agent| self.is_used(agent) || comes(agent)).collect();
        let running = Running { alone: binds(machines.iter().copied()), ..*running };
        let observed = running.observe()?;
        let model = self.model(&running, &observed, &machines, change.add.len() as u32);
        let expected = |placement: &Placement| placement.expected(&model.graph, running.engine).throughput;
        let placed = model.after(change, &machines);
        let (before, after) = (expected(&model.placement), expected(&placed));
        if !after.is_finite() {
            return Err("what a source could give is not known".to_owned());
        }
        change.predicted = Some(after);
        let mut notes = remarks(&running, &observed);
        notes.extend(model.notes);
        if before.is_finite() {
            notes.push(format!("the model says {before:.0} rows/s before it and {after:.0} after it"));
        }
        notes.retain(|note| !change.notes.contains(note));
        change.notes.extend(notes);
        let graph = &model.graph;
        let free = steady(graph, &graph.capacities(&placed.instances()), running.engine).throughput;
        Ok(after <= before * (1.0 + NOTHING) && after < free * (1.0 - NOTHING))
    }
}

impl Change {
    /// Something is predicted of it already, or there is nothing to predict, for nothing changes.
    fn is_foretold(&self) -> bool {
        self.predicted.is_some() || (self.add.is_empty() && self.remove.is_empty())
    }
}

impl Model {
    /// As what one more instance brings is looked at on it.
    pub(in crate::coordinator) fn on_machines(&self) -> OnMachines<'_> {
        OnMachines { graph: &self.graph, placement: &self.placement, modelled: self.modelled }
    }

    /// Where instances are after a change. What of it is on none of these machines is left out.
    fn after(&self, change: &Change, machines: &[&AgentInfo]) -> Placement {
        let gone: BTreeSet<u32> = change.remove.iter().copied().collect();
        let mut after = self.placement.clone();
        for (on, ids) in after.on.iter_mut().zip(&self.ids) {
            let stays = on.iter().zip(ids).filter(|(_, id)| !gone.contains(id));
            *on = stays.map(|(machine, _)| *machine).collect();
        }
        for (VertexId(vertex), name) in &change.add {
            if let Some(machine) = machines.iter().position(|agent| agent.id.name == *name) {
                after.on[*vertex as usize].push(machine);
            }
        }
        after
    }
}

/// What had to be assumed of a job's rates, in sentences.
pub(super) fn remarks(running: &Running<'_>, observed: &Observed) -> Vec<String> {
    let mut notes = Vec::new();
    match (&running.rates.seconds, running.rates.full) {
        (Ok(seconds), false) => notes.push(format!("rates are means over {seconds:.0} s so far")),
        (Err(why), _) => notes.push(format!("not all rates are known: {why}")),
        _ => {}
    }
    if let Err(why) = &observed.rates {
        notes.push(format!("rates are the model's, for not all are known: {why}"));
    }
    notes.extend(observed.assumed.iter().cloned());
    notes
}
