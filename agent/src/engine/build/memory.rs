//! What the queues of a run may hold on this agent.

use std::sync::Arc;

use tuplane_core::job::{Job, Overflow};
use tuplane_core::plan::placement::Instance as Placed;
use tuplane_core::plan::{EdgeId, LEAST_QUEUE, Room};
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

    /// The share of the agent's budget of each queue that is new, of what this run has left of its own: see [`Room`].
    pub(super) fn queue_bound(
        &self,
        fresh: &[Placed],
        in_plan: &dyn Fn(u32) -> bool,
    ) -> Result<u64, WireFault> {
        if self.job.options.overflow == Overflow::Grow {
            // Of those that block: what waits there is what a source could give later just as well.
            return Ok(LEAST_QUEUE);
        }
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
