//! How much the queues of an agent's instances may hold.

use tuplane_core::plan::placement::Instance as Placed;
use tuplane_core::plan::{LEAST_QUEUE, Room};
use tuplane_wire::message::{FaultCode, WireFault};

use super::Builder;

/// No queue's bound is more: a few queues would otherwise hold all of the budget, which helps nobody's rate and
/// makes memory swing by tens of megabytes.
const MOST_BOUND: u64 = 8 << 20;

impl Builder<'_> {
    /// An instance's queues.
    pub(super) fn queues_of(&self, placed: &Placed) -> u64 {
        (self.dag.inputs(placed.vertex).count() + self.dag.outputs(placed.vertex).count()) as u64
    }

    /// The share of the agent's budget of each queue that is new, of what this run has left of its own: see [`Room`].
    pub(super) fn queue_bound(
        &self,
        fresh: &[Placed],
        in_plan: &dyn Fn(u32) -> bool,
    ) -> Result<u64, WireFault> {
        let kept: Vec<_> = self.old().filter(|local| in_plan(local.placed.id)).collect();
        let own = kept.iter().map(|local| local.reserved).sum();
        let room = Room { budget: self.shared.budget.limit(), others: self.reserved, own };
        let memory = self.job.options.memory;
        let queues: u64 = fresh.iter().map(|placed| self.queues_of(placed)).sum();
        let all = queues + kept.iter().map(|local| self.queues_of(&local.placed)).sum::<u64>();
        if queues > 0
            && self.old.is_some()
            && let Some(needed) = room.shortage(memory, all)
        {
            let message = format!(
                "agent {}: {all} queues need {} KiB at least, and this job may hold {} KiB there",
                self.shared.me.name,
                needed >> 10,
                room.may_hold(memory) >> 10
            );
            return Err(WireFault::new(FaultCode::Refused, message));
        }
        let left = room.may_hold(memory) - own;
        Ok((left / queues.max(1)).clamp(LEAST_QUEUE, MOST_BOUND))
    }
}
