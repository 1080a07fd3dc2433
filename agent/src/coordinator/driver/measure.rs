//! What came of a rescale: the throughput of a whole window behind it goes into its history, beside what was predicted.

use std::time::{Duration, Instant};

use tuplane_core::cluster::rescale::{Rescale, Step};
use tuplane_core::cluster::{Command, Job};
use tuplane_core::scale::rates::{Figure, WindowOptions};
use tuplane_wire::message::JobPhase;

use super::{Driver, Turn};
use crate::coordinator::etp::Seen;
use crate::coordinator::live::LiveRun;

/// Below this share of the throughput what is worked off does not count.
const STEADY: f64 = 0.03;

/// So long it is waited for that, and for rates at all.
const PATIENCE: Duration = Duration::from_mins(2);

/// Between two looks: each reads the plan and makes all rates.
const LOOK: Duration = Duration::from_secs(1);

impl Driver {
    /// Notes the throughput of jobs whose last rescale was done a whole window ago.
    pub(super) fn measure(&mut self, turn: &mut Turn, now: Instant) {
        if self.measured.is_some_and(|last| now.saturating_duration_since(last) < LOOK) {
            return;
        }
        self.measured = Some(now);
        let measured: Vec<Command> = self.state.jobs().filter_map(|job| self.outcome(job, now)).collect();
        for command in measured {
            self.apply(turn, command);
        }
    }

    fn outcome(&self, job: &Job, now: Instant) -> Option<Command> {
        let last = waits(job)?;
        let live = self.live.run(job.run).filter(|_| job.phase == JobPhase::Running)?;
        // A coordinator that took over has no cut of its own: its window begins with it.
        let since = live.rates.at(now).saturating_sub(live.rates.window().cut_at().unwrap_or_default());
        // Before that it is not worth reading the plan.
        if since < WindowOptions::default().span {
            return None;
        }
        let over = since >= PATIENCE;
        let rows_per_second = match throughput(job, live, now, over) {
            Err(_) if !over => return None,
            known => known,
        };
        tracing::info!(
            run = job.run,
            epoch = last.epoch,
            ?rows_per_second,
            predicted = last.predicted,
            "measured"
        );
        Some(Command::RescaleMeasured { run: job.run, epoch: last.epoch, rows_per_second })
    }

    /// An option of a run is set: what is measured from then on says nothing of the rescale before it.
    pub(super) fn option_was_set(&mut self, turn: &mut Turn, run: u64, now: Instant) {
        if let Some(last) = self.state.run(run).and_then(waits) {
            let (epoch, why) = (last.epoch, "an option was set before a whole window had passed");
            self.apply(turn, Command::RescaleMeasured { run, epoch, rows_per_second: Err(why.to_owned()) });
        }
        self.live.option_set(run, now);
    }
}

/// The last rescale of a job, if the job goes by its plan and it is not known yet what came of it.
fn waits(job: &Job) -> Option<&Rescale> {
    let waits = |last: &&Rescale| {
        last.step == Step::Done
            && last.is_unmeasured()
            && last.attempt == job.attempt
            && last.epoch == job.epoch()
    };
    job.rescales().0.last().filter(waits)
}

/// What the sinks take in a second, once rows that had piled up are worked off: until then more comes out than can go on
/// coming. If it is `over` that is not waited for any more.
fn throughput(job: &Job, live: &LiveRun, now: Instant, over: bool) -> Figure {
    let seen = Seen::of(job, Some(live), now).map_err(|fault| fault.message)?;
    if !seen.rates.full {
        return Err("not every agent has reported for a whole window".to_owned());
    }
    let rows_per_second = seen.rates.throughput(&seen.dag)?;
    if seen.rates.worked_off(&seen.dag)? > rows_per_second * STEADY && !over {
        return Err("rows that had piled up are being worked off".to_owned());
    }
    Ok(rows_per_second)
}
