//! Instances whose rows may come, or leave, before they arrive: what waits until they do.

use std::sync::atomic::Ordering;
use std::time::Instant;

use tuplane_wire::message::WireFault;

use super::{Instance, instance_fault, until_tick};
use crate::engine::clock::Doing;
use crate::engine::hold::Hold;
use crate::engine::rows::Rows;
use crate::engine::stamp::Arrivals;
use crate::engine::timer::Timer;

impl Instance {
    /// Rows that have come: gives those that have arrived, and holds the rest.
    pub(super) fn hold_back(&mut self, input: usize, rows: Rows) -> Result<Option<Rows>, WireFault> {
        let Some(hold) = &mut self.hold else { return Ok(Some(rows)) };
        let arrived = hold.take(input, rows, Instant::now());
        self.counters.held.store(hold.rows(), Ordering::Relaxed);
        let arrived = arrived.map_err(|e| instance_fault(&self.name, &e.to_string()))?;
        if arrived.is_none() {
            self.counters.load.clear();
        }
        Ok(arrived)
    }

    /// Works on rows that were held and have arrived, and on those that a watermark would leave behind.
    pub(super) async fn take_arrived(&mut self, watermark: Option<i64>) -> Result<(), WireFault> {
        while let Some(hold) = &mut self.hold
            && let Some((input, rows)) = hold.next(Instant::now())
        {
            self.counters.held.store(hold.rows(), Ordering::Relaxed);
            self.process(input, rows, true).await?;
        }
        let Some((hold, watermark)) = self.hold.as_mut().zip(watermark) else { return Ok(()) };
        let behind = hold.before(watermark).map_err(|e| instance_fault(&self.name, &e.to_string()))?;
        self.counters.held.store(hold.rows(), Ordering::Relaxed);
        for (input, rows) in behind {
            self.process(input, rows, true).await?;
        }
        Ok(())
    }

    /// Waits until all rows that are held have arrived, and works on them.
    pub(super) async fn take_all(&mut self) -> Result<(), WireFault> {
        while let Some(due) = self.hold.as_ref().and_then(Hold::next_due) {
            self.counters.clock.set(Doing::Idle);
            self.timer.sleep_until(due).await;
            self.take_arrived(None).await?;
        }
        Ok(())
    }

    /// A source's end comes when its last row has arrived, however early that was sent.
    pub(super) async fn wait_for_arrivals(&mut self) -> Result<(), WireFault> {
        self.output.flush();
        self.counters.clock.set(Doing::Idle);
        while let Some(latest) = self.arrivals.as_ref().and_then(Arrivals::latest)
            && latest > Instant::now()
        {
            tokio::select! {
                () = self.timer.sleep_until(latest) => {}
                () = until_tick(self.stamper.as_ref()) => {}
            }
            self.tick_source()?;
            self.output.flush();
        }
        Ok(())
    }
}

/// Until the next row that is held arrives; for ever without one.
pub(super) async fn until_due(timer: &Timer, hold: Option<&Hold>) {
    match hold.and_then(Hold::next_due) {
        Some(due) => timer.sleep_until(due).await,
        None => std::future::pending().await,
    }
}
