//! What came of a rescale: the throughput of a whole window behind it goes into its history, beside what was foretold.

use std::time::{Duration, Instant};

use tuplane_core::cluster::rescale::{Rescale, Step};
use tuplane_core::cluster::{Command, Job};
use tuplane_core::scale::rates::WindowOptions;
use tuplane_wire::message::JobPhase;

use super::{Driver, Turn};
use crate::coordinator::etp::Seen;

/// Below this share of the throughput what is worked off does not count.
const STEADY: f64 = 0.03;

/// So long it is waited for that.
const PATIENCE: Duration = Duration::from_mins(2);

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
        // A coordinator that took over has no cut of its own: its window begins with it.
        let since = live.rates.at(now).saturating_sub(live.rates.window().cut_at().unwrap_or_default());
        // Before that it is not worth reading the plan.
        if since < WindowOptions::default().span {
            return None;
        }
        let seen = Seen::of(job, Some(live), now).ok().filter(|seen| seen.rates.full)?;
        let rows_per_second = seen.rates.throughput(&seen.dag).ok()?;
        // Rows that had piled up before are worked off: for as long more comes out than can go on coming.
        if seen.rates.worked_off(&seen.dag).ok()? > rows_per_second * STEADY && since < PATIENCE {
            return None;
        }
        tracing::info!(
            run = job.run,
            epoch = last.epoch,
            rows_per_second,
            predicted = last.predicted,
            "measured"
        );
        Some(Command::RescaleMeasured { run: job.run, epoch: last.epoch, rows_per_second })
    }
}
