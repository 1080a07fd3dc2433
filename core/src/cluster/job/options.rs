//! What is changed of a job while it runs: live options of stages, and policies of edges.

use std::collections::BTreeMap;

use super::Job;

impl Job {
    pub(in crate::cluster) fn set_option(&mut self, stage: String, option: String, value: String) {
        if self.is_live() && self.options.insert((stage, option), value.clone()) != Some(value) {
            // Here and not with whoever decides: the next coordinator's must know it, too.
            if let Some(auto) = &mut self.automatic {
                auto.memory.costs_changed();
            }
        }
    }

    pub(in crate::cluster) fn set_policy(&mut self, edge: u32, policy: String, options: String) {
        if self.is_live() {
            self.policies.insert(edge, (policy, options));
        }
    }

    /// Live options that were changed while it ran: stage, option, value as JSON.
    pub fn changed_options(&self) -> Vec<(String, String, String)> {
        let all = self.options.iter();
        all.map(|((stage, option), value)| (stage.clone(), option.clone(), value.clone())).collect()
    }

    /// Policies that were changed while it ran, with their options, by edge.
    pub fn policies(&self) -> &BTreeMap<u32, (String, String)> {
        &self.policies
    }
}
