//! What more instances would bring to a job, without that anybody has asked for them: looked at each second while somebody watches.

use tuplane_core::scale::machines::Takes;
use tuplane_core::scale::observed::Running;
use tuplane_core::scale::{Ask, Planners};
use tuplane_wire::etp::{More, MorePlan};
use tuplane_wire::message::AgentInfo;

use super::foretell::binds;
use super::{Known, Model};

/// So many more are looked at.
const LOOKED_AT: [u32; 3] = [1, 2, 4];

/// A job of which instances times vertices and edges, times agents with a bound on their cores, are more is not looked at each
/// second: nothing else is answered meanwhile.
const MOST_LOOKS: usize = 50_000;

impl Known<'_> {
    /// The model on which more instances are looked at: on the agents that the job has, as `scale out --instances` adds them.
    ///
    /// # Errors
    /// In a sentence, if it cannot be made.
    pub(in crate::coordinator) fn more_model(&self, running: &Running<'_>) -> Result<Model, String> {
        if let Some(why) = running.nothing_known() {
            return Err(why);
        }
        let used: Vec<&AgentInfo> = self.used();
        let alone = binds(used.iter().copied());
        let machines = if alone { used.len() } else { 1 };
        let looks = self.running.len() * (self.dag.vertices.len() + self.dag.edges.len()) * machines;
        if looks > MOST_LOOKS {
            return Err("the job is too large to look at it each second".to_owned());
        }
        let running = Running { alone, ..*running };
        let observed = running.observe()?;
        let most = LOOKED_AT.into_iter().max().unwrap_or_default();
        let mut model = self.model(&running, &observed, &used, most);
        for (machine, agent) in model.placement.machines.iter_mut().zip(&used) {
            machine.takes = if self.is_open(agent) { Takes::All } else { Takes::Nothing };
        }
        Ok(model)
    }

    /// What so many more instances bring on it, by the planner that `scale out` asks unless another one is named.
    pub(in crate::coordinator) fn more(&self, running: &Running<'_>, model: Result<Model, String>) -> More {
        let planner = Planners::usual(self.spec.options.settings);
        let none = |why| More { planner: planner.to_owned(), plans: Vec::new(), why: Some(why) };
        let model = match model {
            Ok(model) => model,
            Err(why) => return none(why),
        };
        let is_bound = binds(self.used());
        let rates = running.observe().and_then(|observed| observed.rates);
        let plan = |slots| -> Result<MorePlan, String> {
            let mut ask = Ask::new(&model.graph, running.engine, slots);
            if let Ok(rates) = &rates {
                ask.rates.clone_from(rates);
            }
            ask.congestion = running.congestion;
            // Where no core is counted it makes no difference on which agent an instance is, and planning without is quicker.
            ask.placement = is_bound.then_some(&model.placement);
            let plan = self.planners.scale_out(planner, &ask).map_err(|refusal| refusal.0)?;
            let gain = plan.after - plan.before;
            let mut vertices: Vec<(u32, u32)> = Vec::new();
            for step in &plan.steps {
                let vertex = step.vertex as u32;
                match vertices.iter_mut().find(|(known, _)| *known == vertex) {
                    Some((_, count)) => *count += 1,
                    None => vertices.push((vertex, 1)),
                }
            }
            let unknown = || "what a source could give is not known".to_owned();
            let gain = gain.is_finite().then_some(gain.max(0.0)).ok_or_else(unknown);
            let why = plan.left.map_or_else(|| "all of them are used".to_owned(), |left| left.why);
            Ok(MorePlan { instances: slots, gain, vertices, why })
        };
        match LOOKED_AT.into_iter().map(plan).collect::<Result<Vec<MorePlan>, String>>() {
            Ok(plans) => More { planner: planner.to_owned(), plans, why: None },
            Err(why) => none(why),
        }
    }
}
