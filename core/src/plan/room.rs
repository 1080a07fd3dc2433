//! How much room the queues of a job have on an agent: asked before a plan is made, and again by the agent itself.

use super::change::LEAST_QUEUE;

/// What queues may hold on an agent, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// All queues together.
    pub budget: u64,
    /// What the queues of other jobs there may hold.
    pub others: u64,
    /// What those of the job itself may hold that are there.
    pub own: u64,
}

impl Room {
    /// What the job's queues may hold: half of what other jobs have left, so that a job which stands still never holds
    /// what the next one needs, or its `memory`; and not less than they may by now.
    pub fn may_hold(&self, memory: Option<u64>) -> u64 {
        let half = self.budget.saturating_sub(self.others) / 2;
        memory.unwrap_or(half).min(half).max(self.own)
    }

    /// What so many queues of the job need at least, if that is more than they may hold.
    pub fn shortage(&self, memory: Option<u64>, queues: u64) -> Option<u64> {
        let needed = queues.saturating_mul(LEAST_QUEUE);
        (needed > self.may_hold(memory)).then_some(needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_half_of_what_others_leave_or_its_memory_and_keeps_what_it_has() {
        let room = Room { budget: 100 << 20, others: 20 << 20, own: 0 };
        assert_eq!((room.may_hold(None), room.may_hold(Some(1 << 20))), (40 << 20, 1 << 20));
        assert_eq!(room.may_hold(Some(90 << 20)), 40 << 20);
        let full = Room { others: 100 << 20, own: 3 << 20, ..room };
        assert_eq!(full.may_hold(None), 3 << 20);
        assert_eq!((full.shortage(None, 48), full.shortage(None, 49)), (None, Some(49 * LEAST_QUEUE)));
        assert_eq!(Room { others: u64::MAX, ..room }.shortage(None, u64::MAX), Some(u64::MAX));
    }
}
