//! When rows arrive: instants of this agent's clock as wall times, and back.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Engine;
use crate::node::wall_ns;

/// Looks at the wall clock once and goes on by the monotonic one, so that a step of the wall clock moves nothing.
#[derive(Debug, Clone, Copy)]
pub struct DueClock {
    began: Instant,
    /// Nanoseconds since 1970 then, by the coordinator's clock as far as that is known.
    wall: i64,
}

impl DueClock {
    /// From now on. This agent's wall clock is so many nanoseconds ahead of the coordinator's: all agents tell
    /// arrivals by that one.
    pub(crate) fn begin(offset: i64) -> Self {
        Self { began: Instant::now(), wall: (wall_ns() as i64).saturating_sub(offset) }
    }

    /// An instant as nanoseconds since 1970.
    pub(crate) fn at(&self, instant: Instant) -> i64 {
        match instant.checked_duration_since(self.began) {
            Some(after) => self.wall.saturating_add(after.as_nanos() as i64),
            None => self.wall.saturating_sub(self.began.duration_since(instant).as_nanos() as i64),
        }
    }

    /// Now.
    pub(crate) fn now(&self) -> i64 {
        self.at(Instant::now())
    }

    /// The instant of a wall time; that of the beginning for one that is out of reach.
    pub(crate) fn instant(&self, wall: i64) -> Instant {
        let after = wall.saturating_sub(self.wall);
        let span = Duration::from_nanos(after.unsigned_abs());
        let instant = if after >= 0 { self.began.checked_add(span) } else { self.began.checked_sub(span) };
        instant.unwrap_or(self.began)
    }
}

impl Engine {
    /// The wall clock here is so many nanoseconds ahead of the coordinator's: what runs from now on goes by that one.
    pub(crate) fn clock_is_ahead(&self, offset: i64) {
        self.shared.clock_offset.store(offset, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let clock = DueClock::begin(0);
        for ms in [0, 1, 250, 86_400_000] {
            let instant = Instant::now() + Duration::from_millis(ms);
            assert_eq!(clock.instant(clock.at(instant)), instant);
        }
        let before = clock.began.checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!((clock.at(before), clock.instant(clock.at(before))), (clock.wall - 1_000_000, before));
    }
}
