//! The stream manager's slots: at a slot's end rows that were held are looked at again.
//!
//! Rows leave as they are appended and as credit comes; this is only for those that may not leave then. While no
//! edge holds rows there are no slots' ends here, and nothing wakes but the samples four times a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::edge::{Edge, tick_together};
use super::priced::Slots;

/// Rates, shares and trends are made of samples this far apart.
const SAMPLE: Duration = Duration::from_millis(250);

/// One run's edges on this agent that choose their targets.
#[derive(Debug)]
pub(crate) struct Manager {
    slots: Slots,
    /// By sending vertex, in the order of their indices.
    groups: Vec<Vec<Arc<Edge>>>,
}

impl Manager {
    pub(crate) fn new(slots: Slots, groups: Vec<Vec<Arc<Edge>>>) -> Self {
        Self { slots, groups }
    }

    fn edges(&self) -> impl Iterator<Item = &Arc<Edge>> {
        self.groups.iter().flatten()
    }

    /// Goes on until it is dropped.
    pub(crate) async fn run(self) {
        let mut samples = tokio::time::interval(SAMPLE);
        samples.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let due = self.edges().filter_map(|edge| edge.due()).min();
            let ends = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = ends => self.tick(Instant::now()),
                () = self.slots.held.notified() => {}
                _ = samples.tick() => {
                    let now = Instant::now();
                    self.edges().for_each(|edge| edge.sample(now));
                }
            }
        }
    }

    /// Slots that have ended by now.
    fn tick(&self, now: Instant) {
        for group in &self.groups {
            let ended = |edge: &&Arc<Edge>| edge.due().is_some_and(|due| due <= now);
            for reprice in [true, false] {
                let joint = |edge: &&Arc<Edge>| edge.decides_with() == Some(reprice);
                let together: Vec<Arc<Edge>> = group.iter().filter(ended).filter(joint).cloned().collect();
                if together.len() > 1 {
                    tick_together(&together, now);
                }
            }
            // Those that are left, alone.
            for edge in group {
                edge.tick(now);
            }
        }
    }
}
