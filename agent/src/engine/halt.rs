//! Instances that stop while their run goes on: a plan that restarts a part of the job ends them, or holds a source for
//! as long as it is carried out.

use std::sync::atomic::Ordering;

use tokio::sync::watch;
use tuplane_wire::message::WireFault;

use super::clock::{Clock, Doing};
use super::ledger::Counters;
use super::operator::DroppedRows;
use super::rows::Rows;
use super::run::Run;
use super::{Engine, no_run};

/// The reason under which rows are counted that waited for an instance which a restart has stopped.
const DROPPED_BY_RESTART: &str = "restart";

/// What an instance does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It works.
    Goes,
    /// It stands still.
    Stands,
    /// It is over: what comes is dropped, up to its end.
    Discards,
}

/// Stops one instance.
#[derive(Debug)]
pub(crate) struct Halt(watch::Sender<Phase>);

/// The instance's side of it.
#[derive(Debug)]
pub(crate) struct Halted(watch::Receiver<Phase>);

impl Halt {
    /// Of an instance that works.
    pub(crate) fn new() -> (Self, Halted) {
        let (sender, receiver) = watch::channel(Phase::Goes);
        (Self(sender), Halted(receiver))
    }

    /// It finishes what it has in hand, and stands still.
    fn stand(&self) {
        self.0.send_replace(Phase::Stands);
    }

    /// If it stands still it goes on; or it is over, if it is not `kept`.
    fn release(&self, kept: bool) {
        let next = if kept { Phase::Goes } else { Phase::Discards };
        self.0.send_if_modified(|phase| {
            let stands = *phase == Phase::Stands;
            if stands {
                *phase = next;
            }
            stands
        });
    }
}

impl Halted {
    /// Waits while it is to stand still, which is idle time.
    pub(crate) async fn go(&mut self, clock: &Clock) {
        if *self.0.borrow() != Phase::Stands {
            return;
        }
        clock.set(Doing::Idle);
        // Without its other side the run is over.
        let _ = self.0.wait_for(|phase| *phase != Phase::Stands).await;
    }

    /// What comes is to be dropped.
    pub(crate) fn discards(&self) -> bool {
        *self.0.borrow() == Phase::Discards
    }
}

/// Drops rows that came to an instance which is over, and counts them.
pub(super) fn discard(rows: Rows, counters: &Counters) {
    let count = rows.len() as u64;
    counters.add_in(count);
    counters.drop_rows(DroppedRows::from([(DROPPED_BY_RESTART.to_owned(), count)]));
    drop(rows);
    counters.load.clear();
}

impl Run {
    /// What was stopped goes on, or is over if it is among those that go.
    pub(super) fn release(&self, going: &[u32]) {
        for local in &self.stand().local {
            local.halt.release(!going.contains(&local.placed.id));
        }
    }
}

impl Engine {
    /// A plan was committed that stops these instances before it starts others. Asking again changes nothing.
    ///
    /// # Errors
    /// If the run is not here.
    pub fn halt(&self, run: u64, epoch: u64, instances: &[u32]) -> Result<(), WireFault> {
        let held = self.find(run).ok_or_else(|| no_run(run))?;
        if held.plan.epoch >= epoch {
            // Rows go by it already, or all of this agent's part is new.
            return Ok(());
        }
        let stand = held.run.stand();
        for local in stand.local.iter().filter(|local| instances.contains(&local.placed.id)) {
            if !local.counters.ended.load(Ordering::Relaxed) {
                local.halt.stand();
                local.inbox.nudge();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[tokio::test]
    async fn what_stands_still_goes_on_or_drops_what_comes() {
        let clock = Clock::new(Instant::now());
        let (halt, mut halted) = Halt::new();
        halted.go(&clock).await;
        // What was never stopped goes on whether it is kept or not: a live rescale drains it.
        halt.release(false);
        assert!(!halted.discards());
        halt.stand();
        let waiting = tokio::time::timeout(Duration::from_millis(5), halted.go(&clock)).await;
        assert!(waiting.is_err() && !halted.discards());
        halt.release(true);
        halted.go(&clock).await;
        assert!(!halted.discards());
        halt.stand();
        halt.release(false);
        halted.go(&clock).await;
        assert!(halted.discards());
        // It is over for good.
        halt.release(true);
        assert!(halted.discards());
    }
}
