//! How much the queues of an agent's instances may hold.

use tuplane_core::plan::LEAST_QUEUE as LEAST_BOUND;
use tuplane_core::plan::placement::Instance as Placed;
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

    /// The share of the agent's budget of each queue that is new: of half of what earlier runs have left, so that a
    /// job which stands still never holds what the next one needs; and of that only what this run has left itself.
    pub(super) fn queue_bound(&self, fresh: &[Placed]) -> Result<u64, WireFault> {
        let mine = self.shared.budget.limit().saturating_sub(self.reserved) / 2;
        let memory = self.job.options.memory.unwrap_or(mine).min(mine);
        let queues: u64 = fresh.iter().map(|placed| self.queues_of(placed)).sum();
        let Some(old) = &self.old else {
            return Ok((memory / queues.max(1)).clamp(LEAST_BOUND, MOST_BOUND));
        };
        let all = queues + old.local.iter().map(|local| self.queues_of(&local.placed)).sum::<u64>();
        if queues > 0 && all.saturating_mul(LEAST_BOUND) > memory.max(old.reserved) {
            let message = format!(
                "agent {}: {all} queues need {} KiB at least, and this job may hold {} KiB there",
                self.shared.me.name,
                all * (LEAST_BOUND >> 10),
                memory.max(old.reserved) >> 10
            );
            return Err(WireFault::new(FaultCode::Refused, message));
        }
        let left = memory.saturating_sub(old.reserved);
        Ok((left / queues.max(1)).clamp(LEAST_BOUND, MOST_BOUND))
    }
}
