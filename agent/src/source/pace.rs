//! The schedule of a paced source: row n is due at t0 + n / rate, whatever happened before.

use std::time::{Duration, Instant};

use tuplane_wire::scaling::Paced;

use super::Schedule;
use super::ahead::Lookahead;
use crate::engine::due::DueClock;

/// Above this rate rows are handed over in runs, so that a batch is worth its cost.
const SINGLE_ROWS: f64 = 2000.0;
/// The time between two such runs: half of the millisecond that a paced row may be late by.
const RUN: Duration = Duration::from_micros(500);

/// The option by which the engine tells an instance with how many it shares the rate from now on; a person sets it by scaling.
pub(crate) const SHARERS: &str = "instances";

/// When an instance may give its rows.
pub(crate) trait Pacing: Send {
    /// Rows that may be given now, at most `max`; `Err`: the instant at which there will be one.
    fn due(&mut self, max: usize, now: Instant) -> Result<usize, Instant>;
    /// Notes that rows were given.
    fn gave(&mut self, rows: usize, now: Instant);
    /// When the last `rows` rows were due that were given.
    fn schedule(&self, rows: usize) -> Option<Schedule>;
    /// Sets a live option; `Err` says what may be set.
    fn set(&mut self, option: &str, value: &serde_json::Value) -> Result<(), String>;
    /// How far it has been kept; `None` without a schedule, or before it has begun.
    fn kept(&self, clock: &DueClock) -> Option<Paced>;
}

/// A schedule of rows by their numbers.
pub(super) trait ByNumber: Pacing + Sized {
    /// The schedule of a unit of the same source: every `step`-th row from `next` on, as far as it has been kept.
    fn of(&self, next: u64, step: u64, kept: Option<(Paced, &DueClock)>) -> Self;
}

/// How many rows an instance may give by when.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    /// Rows a second of this instance; `None`: as fast as possible.
    share: Option<f64>,
    /// Rows a second of all instances together.
    rate: Option<f64>,
    instances: u32,
    /// t0: the first poll, or the change of the rate.
    start: Option<Instant>,
    given: u64,
    last: Option<Instant>,
    /// Rows may be given before they are due.
    ahead: Option<Lookahead>,
}

impl Pace {
    /// A schedule for one of `instances` that share `rate`.
    pub(crate) fn new(rate: Option<f64>, instances: u32) -> Result<Self, String> {
        let instances = instances.max(1);
        let mut pace =
            Self { share: None, rate: None, instances, start: None, given: 0, last: None, ahead: None };
        pace.set_rate(rate)?;
        Ok(pace)
    }

    /// Rows may be given as long before they are due as this says.
    pub(super) fn looking(mut self, ahead: Option<Lookahead>) -> Self {
        self.ahead = ahead;
        self
    }

    fn set_rate(&mut self, rate: Option<f64>) -> Result<(), String> {
        if let Some(rate) = rate
            && !(rate.is_finite() && rate > 0.0)
        {
            return Err(format!("`rate` must be above 0 rows per second, not {rate}"));
        }
        self.rate = rate;
        self.share = rate.map(|rate| rate / f64::from(self.instances));
        // A new rate is a new schedule: what the old one owed is not made up for.
        self.start = None;
        self.given = 0;
        Ok(())
    }

    /// Goes on with a schedule that another instance has begun, if it has not begun itself.
    pub(super) fn go_on(&mut self, kept: Paced, clock: &DueClock) {
        if self.share.is_some() && self.start.is_none() {
            self.start = Some(clock.instant(kept.start_ns));
            self.given = kept.given;
        }
    }

    fn run_end(&self, share: f64) -> Option<Instant> {
        // What is given ahead comes by whole slots.
        self.last.filter(|_| self.ahead.is_none()).and_then(|last| run_end(last, share))
    }
}

/// When the run after the one at `last` may begin, for this many rows a second; `None`: rows leave one by one.
pub(super) fn run_end(last: Instant, rate: f64) -> Option<Instant> {
    (rate > SINGLE_ROWS).then(|| last + RUN)
}

impl ByNumber for Pace {
    /// As many units share the rate as the source had instances when the job began.
    fn of(&self, _next: u64, step: u64, kept: Option<(Paced, &DueClock)>) -> Self {
        let instances = u32::try_from(step).unwrap_or(u32::MAX).max(1);
        let share = self.rate.map(|rate| rate / f64::from(instances));
        let mut pace = Self { share, instances, start: None, given: 0, last: None, ..self.clone() };
        if let Some((kept, clock)) = kept {
            pace.go_on(kept, clock);
        }
        pace
    }
}

impl Pacing for Pace {
    fn kept(&self, clock: &DueClock) -> Option<Paced> {
        self.share?;
        Some(Paced { start_ns: clock.at(self.start?), given: self.given })
    }

    fn due(&mut self, max: usize, now: Instant) -> Result<usize, Instant> {
        let Some(share) = self.share else { return Ok(max) };
        let until = self.ahead.as_ref().map_or(now, |ahead| ahead.until(now));
        // A new rate's schedule begins behind what the old one has given.
        let start = *self.start.get_or_insert(if self.last.is_some() { until } else { now });
        let elapsed = until.saturating_duration_since(start).as_secs_f64();
        // Row 0 is due at t0 itself, hence one more than elapsed * share.
        let due = ((elapsed * share).floor() as u64).saturating_add(1);
        let open = due.saturating_sub(self.given);
        if open == 0 {
            let seconds = self.given as f64 / share;
            let next = Duration::try_from_secs_f64(seconds).ok().and_then(|after| start.checked_add(after));
            // Rounding must not name an instant that has already passed: that would spin.
            let next = next.unwrap_or_else(|| now + Duration::from_hours(1));
            let next = self.ahead.as_ref().map_or(next, |ahead| ahead.opens(next));
            return Err(self
                .run_end(share)
                .map_or(next, |end| next.max(end))
                .max(now + Duration::from_nanos(1)));
        }
        if let Some(end) = self.run_end(share)
            && end > now
        {
            return Err(end);
        }
        Ok(max.min(usize::try_from(open).unwrap_or(usize::MAX)))
    }

    fn gave(&mut self, rows: usize, now: Instant) {
        if self.share.is_some() {
            self.given += rows as u64;
            self.last = Some(now);
        }
    }

    fn schedule(&self, rows: usize) -> Option<Schedule> {
        let (share, start) = (self.share?, self.start?);
        let seconds = self.given.saturating_sub(rows as u64) as f64 / share;
        let first = start.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?;
        Some(Schedule { first, seconds: share.recip() })
    }

    /// `rate` is the only live option.
    fn set(&mut self, option: &str, value: &serde_json::Value) -> Result<(), String> {
        if option == SHARERS {
            let count = value.as_u64().and_then(|count| u32::try_from(count).ok()).filter(|count| *count > 0);
            let count = count.ok_or_else(|| format!("`{SHARERS}` is a number from 1, not {value}"))?;
            if count != self.instances {
                self.instances = count;
                self.set_rate(self.rate)?;
            }
            return Ok(());
        }
        if option != "rate" {
            return Err(format!("a source has no live option `{option}`; it has `rate`"));
        }
        match (value.as_f64(), value.is_null()) {
            (Some(rate), _) => self.set_rate(Some(rate)),
            (None, true) => self.set_rate(None),
            (None, false) => {
                Err(format!("`rate` is rows per second, or null for as fast as possible, not {value}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_due_and_exact_in_the_long_run() {
        let mut pace = Pace::new(Some(100.0), 2).unwrap();
        let t0 = Instant::now();
        let mut given = 0;
        for ms in 0..10_000 {
            let now = t0 + Duration::from_millis(ms);
            match pace.due(8192, now) {
                Ok(rows) => {
                    pace.gave(rows, now);
                    given += rows;
                }
                Err(next) => assert!(next > now),
            }
            assert!(given as f64 <= ms as f64 * 0.05 + 1.0, "{given} rows after {ms} ms");
        }
        assert_eq!(given, 500);
    }

    #[test]
    fn rows_are_due_by_their_numbers_however_late_they_are_given() {
        let mut pace = Pace::new(Some(10.0), 1).unwrap();
        let t0 = Instant::now();
        assert_eq!(pace.due(5, t0), Ok(1));
        pace.gave(1, t0);
        assert_eq!(pace.schedule(1), Some(Schedule { first: t0, seconds: 0.1 }));
        pace.gave(20, t0 + Duration::from_secs(9));
        assert_eq!(pace.schedule(20).unwrap().first, t0 + Duration::from_millis(100));
        assert_eq!(Pace::new(None, 1).unwrap().schedule(1), None);
    }

    #[test]
    fn waits_for_the_next_row_and_catches_up_after_a_pause() {
        let mut pace = Pace::new(Some(10.0), 1).unwrap();
        let t0 = Instant::now();
        assert_eq!(pace.due(5, t0), Ok(1));
        pace.gave(1, t0);
        let next = pace.due(5, t0).unwrap_err();
        assert_eq!(next - t0, Duration::from_millis(100));
        let late = t0 + Duration::from_secs(3);
        assert_eq!(pace.due(1000, late), Ok(30));
        pace.gave(30, late);
        assert!(pace.due(1000, late).unwrap_err() > late);
    }

    #[test]
    fn high_rates_come_in_runs_and_lose_nothing() {
        let mut pace = Pace::new(Some(1_000_000.0), 1).unwrap();
        let t0 = Instant::now();
        let (mut given, mut batches) = (0, 0);
        let mut now = t0;
        while now - t0 < Duration::from_secs(1) {
            match pace.due(8192, now) {
                Ok(rows) => {
                    pace.gave(rows, now);
                    given += rows;
                    batches += 1;
                }
                Err(next) => {
                    assert!(next > now);
                    now = next;
                }
            }
        }
        assert!((999_000..=1_000_001).contains(&given), "{given}");
        assert!((1_900..=2_001).contains(&batches), "{batches}");
    }

    #[test]
    fn the_rate_is_live() {
        let mut pace = Pace::new(None, 4).unwrap();
        let t0 = Instant::now();
        assert_eq!(pace.due(77, t0), Ok(77));
        pace.set("rate", &serde_json::json!(40)).unwrap();
        assert_eq!(pace.due(77, t0), Ok(1));
        pace.gave(1, t0);
        assert_eq!(pace.due(77, t0 + Duration::from_secs(1)), Ok(10));
        pace.set(SHARERS, &serde_json::json!(8)).unwrap();
        assert_eq!(pace.share, Some(5.0));
        assert!(pace.set(SHARERS, &serde_json::json!(0)).is_err());
        pace.set("rate", &serde_json::Value::Null).unwrap();
        assert_eq!(pace.due(77, t0), Ok(77));
        for bad in [serde_json::json!(0), serde_json::json!(-1.5), serde_json::json!("fast")] {
            assert!(pace.set("rate", &bad).unwrap_err().contains("rate"));
        }
        assert!(pace.set("speed", &serde_json::json!(1)).unwrap_err().contains("`rate`"));
        assert!(Pace::new(Some(f64::NAN), 1).is_err());
    }

    #[test]
    fn with_a_window_a_new_rate_begins_behind_what_was_given() {
        use crate::exchange::priced::Slots;
        let (slots, slot) = (Slots::begin(), Duration::from_millis(10));
        let pace = Pace::new(Some(100.0), 1).unwrap();
        let mut pace = pace.looking(Some(Lookahead::new(slots.clone(), slot, 3)));
        let t0 = slots.begin_of(slot, 5);
        // The slot and three behind it: rows at 0, 10, 20 and 30 ms.
        assert_eq!(pace.due(100, t0), Ok(4));
        pace.gave(4, t0);
        assert_eq!(pace.due(100, t0), Err(slots.begin_of(slot, 6)));
        assert_eq!(pace.schedule(4), Some(Schedule { first: t0, seconds: 0.01 }));
        pace.set("rate", &serde_json::json!(1000)).unwrap();
        let later = slots.begin_of(slot, 6);
        assert_eq!(pace.due(100, later), Ok(1));
        pace.gave(1, later);
        let first = pace.schedule(1).unwrap().first;
        assert!(first > t0 + Duration::from_millis(40) && first <= t0 + Duration::from_millis(50));
        assert_eq!(pace.due(100, slots.begin_of(slot, 7)), Ok(10));
    }
}
