//! What the queues of a run may hold on this agent.

use std::sync::Arc;

use tuplane_core::job::{Job, Overflow};
use tuplane_core::plan::placement::Instance as Placed;
use tuplane_core::plan::{EdgeId, LEAST_QUEUE as LEAST_BOUND};
use tuplane_wire::message::{FaultCode, WireFault};

use super::Builder;
use crate::engine::Shared;
use crate::engine::rows::Budget;
use crate::exchange::credit::UNBOUNDED;

/// No queue's bound is more: a few queues would otherwise hold all of the budget, which helps nobody's rate and
/// makes memory swing by tens of megabytes.
const MOST_BOUND: u64 = 8 << 20;

/// What a run's rows are charged to: the agent's budget. A run whose queues grow has one of its own beside that, so that
/// other runs are not slowed down by it: as large as its job says, or else as the agent's.
pub(super) fn budget(shared: &Shared, job: &Job) -> Arc<Budget> {
    match job.options.overflow {
        Overflow::Block => Arc::clone(&shared.budget),
        Overflow::Grow => Budget::to_fill(job.options.memory.unwrap_or(shared.budget.limit())),
    }
}

impl Builder<'_> {
    /// The queues of an edge have no bound of their own.
    pub(super) fn grows(&self, edge: EdgeId) -> bool {
        self.grows.get(edge.0 as usize).copied().unwrap_or_default()
    }

    /// The bound of a queue on an edge, if that of those which have one is `bound`.
    pub(super) fn bound_on(&self, edge: EdgeId, bound: u64) -> u64 {
        if self.grows(edge) { UNBOUNDED } else { bound }
    }

    /// The bound of what an instance may hold of its input.
    pub(super) fn bound_of(&self, placed: &Placed, bound: u64) -> u64 {
        self.dag.inputs(placed.vertex).map(|(edge, _)| self.bound_on(edge, bound)).max().unwrap_or(bound)
    }

    /// Bytes of the agent's budget that an instance's queues may hold.
    pub(super) fn reserves(&self, placed: &Placed, bound: u64) -> u64 {
        match self.job.options.overflow {
            Overflow::Block => bound * self.queues_of(placed),
            Overflow::Grow => 0,
        }
    }

    /// An instance's queues.
    fn queues_of(&self, placed: &Placed) -> u64 {
        (self.dag.inputs(placed.vertex).count() + self.dag.outputs(placed.vertex).count()) as u64
    }

    /// The share of the agent's budget of each queue that is new: of half of what earlier runs have left, so that a
    /// job which stands still never holds what the next one needs; and of that only what this run has left itself.
    pub(super) fn queue_bound(&self, fresh: &[Placed]) -> Result<u64, WireFault> {
        if self.job.options.overflow == Overflow::Grow {
            // Of those that block: what waits there is what a source could give later just as well.
            return Ok(LEAST_BOUND);
        }
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
