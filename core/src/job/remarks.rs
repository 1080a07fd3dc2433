//! What a job says that is right and yet not what it seems: options that do less than they promise.

use super::model::{Job, Op, Placement, Settings};
use crate::fault::{At, Fault};

impl Job {
    /// Remarks that need no plan, in file order; none of them keeps a job from running.
    pub fn remarks(&self) -> Vec<Fault> {
        let mut remarks = Vec::new();
        if self.options.settings == Settings::Paper {
            let message = "settings = \"paper\": rows are dealt one by one, policies and planners are as published, and so is what counts as congested";
            remarks.push(Fault::new(At::default(), message));
        }
        let placement = self.options.placement;
        if placement != Placement::default() && self.stages.iter().all(|stage| stage.instances.is_none()) {
            let message =
                format!("placement = \"{}\" has no effect: no stage has `instances`", placement.name());
            remarks.push(Fault::new(At::default(), message));
        }
        for stage in &self.stages {
            if let Some(instances) = stage.instances {
                remarks.extend(self.times_of_work(&stage.id, instances));
            }
        }
        remarks
    }

    /// Says what becomes of a list of times of the `work` stage `id` that has `instances` in all, if they are
    /// not as many.
    pub fn times_of_work(&self, id: &str, instances: u32) -> Option<Fault> {
        let stage = self.stages.iter().find(|stage| stage.id == id)?;
        let Op::Work(work) = &stage.op else { return None };
        let (times, instances) = (work.ms.len(), instances as usize);
        let what = match times {
            0 | 1 => return None,
            less if less < instances => "the last serves the rest",
            more if more > instances => "those at the end are not used",
            _ => return None,
        };
        let message = format!("`ms` of stage `{id}` has {times} values for {instances} instances: {what}");
        Some(Fault::new(stage.at, message).stage(id))
    }
}
