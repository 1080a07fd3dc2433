//! A job's automatic mode: turned on and off, and what it has to remember.

use super::Job;
use crate::cluster::automatic::{AutoNote, AutoWhat, Automatic};
use crate::scale::{AutoOptions, Memory};

impl Job {
    /// The number of the newest plan that was asked for, whatever became of it.
    pub fn newest_plan(&self) -> u64 {
        self.next_epoch() - 1
    }

    /// Its automatic mode goes on, or off.
    pub(in crate::cluster) fn set_automatic(&mut self, at_ms: u64, options: Option<AutoOptions>) {
        if self.is_live() {
            let plan = self.newest_plan();
            self.automatic = Some(Automatic::set(self.automatic.take(), options, plan, at_ms));
        }
    }

    /// Its automatic mode has something to remember.
    pub(in crate::cluster) fn automatic_noted(
        &mut self,
        at_ms: u64,
        memory: Memory,
        plan: u64,
        note: Option<(AutoWhat, String, Option<u64>)>,
    ) {
        if let Some(auto) = self.automatic.as_mut().filter(|auto| auto.on) {
            (auto.memory, auto.plan) = (memory, plan);
            if let Some((what, why, plan)) = note {
                auto.note(AutoNote { at_ms, what, why, plan });
            }
        }
    }
}
