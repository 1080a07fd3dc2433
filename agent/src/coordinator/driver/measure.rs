//! What came of a rescale: the throughput of a whole window behind it goes into its history, beside what was foretold.

use std::time::Instant;

use tuplane_core::cluster::rescale::{Rescale, Step};
use tuplane_core::cluster::{Command, Job};
use tuplane_core::scale::rates::WindowOptions;
use tuplane_wire::message::JobPhase;

use super::{Driver, Turn};
use crate::coordinator::etp::Seen;

impl Driver {
    /// Notes the throughput of jobs whose last rescale was done a whole window ago.
    pub(super) fn measure(&mut self, turn: &mut Turn, now: Instant) {
        let measured: Vec<Command> = self.state.jobs().filter_map(|job| self.outcome(job, now)).collect();
        for command in measured {
            self.apply(turn, command);
        }
    }

    fn outcome(&self, job: &Job, now: Instant) -> Option<Command> {
        let waits = |entry: &&Rescale| {
            entry.step == Step::Done && entry.measured.is_none() && entry.attempt == job.attempt
        };
        let last = job.rescales().0.last().filter(waits).filter(|last| last.epoch == job.epoch())?;
        let live = self.live.run(job.run).filter(|_| job.phase == JobPhase::Running)?;
        // Before that it is not worth reading the plan.
        if live.rates.window().cut_at()? + WindowOptions::default().span > live.rates.at(now) {
            return None;
        }
        let seen = Seen::of(job, Some(live), now).ok().filter(|seen| seen.rates.full)?;
        let rows_per_second = seen.rates.throughput(&seen.dag).ok()?;
        tracing::info!(run = job.run, epoch = last.epoch, rows_per_second, predicted = last.predicted, "measured");
        Some(Command::RescaleMeasured { run: job.run, epoch: last.epoch, rows_per_second })
    }
}
