//! The cores that an agent is said to have: `work` takes them in turns, as threads take those of a machine.
//!
//! Turns are short and in the order in which they are asked for, so that instances share the time evenly, whether they take
//! their rows one by one or many at once. A turn begins when the one before it ended by its schedule: what a timer is late
//! by takes nothing from the machine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::clock::Clock;
use crate::sync::{Mutex, lock};

/// The longest turn.
pub(super) const TURN: Duration = Duration::from_millis(2);

/// The cores of one agent.
#[derive(Debug)]
pub(crate) struct Cores {
    permits: Arc<Semaphore>,
    /// Since when each one that is free has been so.
    free: Mutex<Vec<Instant>>,
}

/// One core, held until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    cores: Arc<Cores>,
    /// Nobody had it from then on: no work on it begins before.
    since: Instant,
    ends: Option<Instant>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Cores {
    /// So many.
    pub(crate) fn new(count: u32) -> Self {
        let permits = Arc::new(Semaphore::new(count as usize));
        Self { permits, free: Mutex::new(vec![Instant::now(); count as usize]) }
    }

    /// A core, once one is free and all who asked before have had one. Notes how long that took.
    pub(super) async fn turn(self: &Arc<Self>, clock: &Clock) -> Turn {
        let asked = Instant::now();
        // Nobody closes it.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        let since = {
            let mut free = lock(&self.free);
            let earliest = (0..free.len()).min_by_key(|core| free[*core]);
            earliest.map(|core| free.swap_remove(core))
        };
        let since = since.unwrap_or(asked);
        clock.waited_for_core(since.saturating_duration_since(asked).as_nanos() as u64);
        Turn { cores: Arc::clone(self), since, ends: None, _permit: permit }
    }
}

impl Turn {
    /// Since when it has been free.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// When it ends by its schedule.
    pub(super) fn until(&mut self, at: Instant) {
        self.ends = Some(at);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // One that is given up ends now.
        let now = Instant::now();
        lock(&self.cores.free).push(self.ends.map_or(now, |ends| ends.min(now)));
    }
}
