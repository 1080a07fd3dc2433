//! The watermark of one source instance, from the event times of its rows. What time it is is an argument.

use crate::job::Time;

/// So many rows in a run confirm that event time has jumped ahead.
pub const CONFIRM: usize = 32;

/// An hour, in nanoseconds.
const MAX_AHEAD: i64 = 3_600_000_000_000;

/// Bounds of a watermark, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatermarkOptions {
    /// A row may be so much earlier than the latest one before it.
    pub lateness: i64,
    /// The watermark rises by multiples of this.
    pub stride: i64,
    /// After so long without a row the instance holds nothing back.
    pub idle: Option<i64>,
    /// A row further ahead moves the watermark only when it has been confirmed.
    pub max_ahead: i64,
}

impl WatermarkOptions {
    /// As `time` says, with the plan's stride in milliseconds.
    pub fn new(time: &Time, stride_ms: u64) -> Self {
        let ns = |duration: std::time::Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        Self {
            lateness: time.lateness.map_or(0, ns),
            stride: i64::try_from(stride_ms.saturating_mul(1_000_000)).unwrap_or(i64::MAX).max(1),
            idle: time.idle.map(ns),
            max_ahead: time.max_ahead.map_or(MAX_AHEAD, ns).max(1),
        }
    }
}

/// What a row says of event time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It is in its time, or earlier.
    InTime,
    /// It is more than `max_ahead` ahead, and moves nothing until it is confirmed.
    Ahead,
}

/// The watermark of one source instance: the latest event time less `lateness`.
///
/// One row that is far ahead moves nothing. 32 rows in a run that are, or one `idle` time without a row that is
/// not, confirm that time has jumped: it goes on from the least of them. In the same way time begins, and goes on in
/// another part of the input, with two rows that are not further from each other than `max_ahead`, so that a wrong
/// stamp on the first row does no harm either.
#[derive(Debug, Clone)]
pub struct WatermarkPolicy {
    options: WatermarkOptions,
    /// The latest event time that is confirmed.
    top: Option<i64>,
    /// Later ones that are not.
    pending: Vec<i64>,
    pending_since: i64,
    last_row: i64,
    told: Option<i64>,
    idle: bool,
    /// The first rows, of all or of a part of the input, have not agreed yet.
    begins: bool,
}

impl WatermarkPolicy {
    /// A policy of an instance that begins at `now`: nanoseconds by a clock that never goes back.
    pub fn new(options: WatermarkOptions, now: i64) -> Self {
        Self {
            options,
            top: None,
            pending: Vec::new(),
            pending_since: now,
            last_row: now,
            told: None,
            idle: false,
            begins: true,
        }
    }

    /// What follows is another part of the input: its rows may be far from those before.
    pub fn begin_part(&mut self) {
        self.begins = true;
        self.pending.clear();
    }

    /// Rows wait that cannot be taken now: that is no silence, and those that are ahead are not confirmed by it.
    pub fn wait(&mut self, now: i64) {
        self.last_row = now;
        self.pending_since = now;
    }

    /// The last watermark that was told.
    pub fn told(&self) -> Option<i64> {
        self.told
    }

    /// It has been without rows for its `idle` time.
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// If the instance is idle: it is not any more. Gives the watermark that says so, to be sent before its rows.
    pub fn wake(&mut self) -> Option<i64> {
        std::mem::take(&mut self.idle).then(|| *self.told.get_or_insert(i64::MIN))
    }

    /// A row with this event time.
    pub fn observe(&mut self, time: i64, now: i64) -> Seen {
        self.last_row = now;
        match self.top {
            Some(top) if time <= top.saturating_add(self.options.max_ahead) => {
                self.top = Some(top.max(time));
                // A row in its time says that those ahead of it are not.
                self.pending.clear();
                self.begins = false;
                return Seen::InTime;
            }
            _ => {}
        }
        if self.pending.is_empty() {
            self.pending_since = now;
        }
        self.pending.push(time);
        let begins = self.begins;
        if let Some(from) = self.agreed(time).filter(|_| begins) {
            self.go_on(from);
        } else if self.pending.len() >= CONFIRM {
            self.confirm();
        }
        if begins { Seen::InTime } else { Seen::Ahead }
    }

    /// The watermark, if it has risen since it was last asked for.
    pub fn watermark(&mut self) -> Option<i64> {
        let watermark = self.top?.saturating_sub(self.options.lateness);
        let watermark = watermark.saturating_sub(watermark.rem_euclid(self.options.stride));
        if self.told.is_some_and(|told| told >= watermark) {
            return None;
        }
        self.told = Some(watermark);
        Some(watermark)
    }

    /// No row has come until `now`: an `idle` time confirms rows that are ahead, and makes the instance idle.
    /// True if it has just become idle; its watermark is to be sent before.
    pub fn tick(&mut self, now: i64) -> bool {
        let Some(idle) = self.options.idle else { return false };
        if !self.pending.is_empty() && now.saturating_sub(self.pending_since) >= idle {
            self.confirm();
            self.pending_since = now;
        }
        let quiet = now.saturating_sub(self.last_row) >= idle;
        quiet && !std::mem::replace(&mut self.idle, true)
    }

    /// When to call [`tick`](Self::tick) next, if no row comes before.
    pub fn next_tick(&self) -> Option<i64> {
        let idle = self.options.idle?;
        let quiet = (!self.idle).then(|| self.last_row.saturating_add(idle));
        let pending = (!self.pending.is_empty()).then(|| self.pending_since.saturating_add(idle));
        quiet.into_iter().chain(pending).min()
    }

    /// The least of the rows that are near the last one, which is at `time`; `None` if it is alone.
    fn agreed(&self, time: i64) -> Option<i64> {
        let max_ahead = self.options.max_ahead.unsigned_abs();
        let near = self.pending.iter().copied().filter(|other| other.abs_diff(time) <= max_ahead);
        (near.clone().count() >= 2).then(|| near.min()).flatten()
    }

    /// Time goes on from the least row that is ahead.
    fn confirm(&mut self) {
        if let Some(least) = self.pending.iter().min() {
            self.go_on(*least);
        }
    }

    /// Rows near this one count, later ones are still ahead.
    fn go_on(&mut self, from: i64) {
        let near = from.saturating_add(self.options.max_ahead);
        let top = self.pending.iter().filter(|time| **time <= near).max().copied();
        self.top = self.top.max(top);
        self.begins = false;
        self.pending.retain(|time| *time > near);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: i64 = 1_000_000_000;
    const HOUR: i64 = 3_600 * SECOND;

    fn policy(lateness: i64, idle: Option<i64>) -> WatermarkPolicy {
        let options = WatermarkOptions { lateness, stride: SECOND, idle, max_ahead: HOUR };
        WatermarkPolicy::new(options, 0)
    }

    fn see(policy: &mut WatermarkPolicy, seconds: impl IntoIterator<Item = i64>) -> Vec<Seen> {
        seconds.into_iter().map(|second| policy.observe(second * SECOND, 0)).collect()
    }

    #[test]
    fn it_rises_by_strides_less_the_lateness() {
        let mut policy = policy(5 * SECOND, None);
        see(&mut policy, [100]);
        assert_eq!(policy.watermark(), None, "one row alone may be wrong");
        see(&mut policy, [98]);
        assert_eq!((policy.watermark(), policy.watermark()), (Some(95 * SECOND), None));
        policy.observe(100 * SECOND + SECOND / 2, 0);
        assert_eq!(policy.watermark(), None);
        see(&mut policy, [102, 40]);
        assert_eq!(policy.watermark(), Some(97 * SECOND));
        // Before 1970 too it is rounded down.
        let mut early = super::tests::policy(0, None);
        early.observe(-SECOND / 2, 0);
        early.observe(-SECOND / 2, 0);
        assert_eq!(early.watermark(), Some(-SECOND));
    }

    /// While rows wait for room nothing is confirmed, and there is no hurry to look again.
    #[test]
    fn waiting_rows_put_off_what_an_idle_time_would_do() {
        let mut policy = policy(0, Some(SECOND));
        policy.observe(0, 0);
        policy.observe(1, 0);
        assert_eq!(policy.watermark(), Some(0));
        assert_eq!(policy.observe(2 * HOUR, SECOND / 2), Seen::Ahead);
        for now in [SECOND, 2 * SECOND, 9 * SECOND] {
            policy.wait(now);
            assert_eq!(policy.next_tick(), Some(now + SECOND));
            assert!(!policy.tick(now) && policy.watermark().is_none());
        }
        assert!(policy.tick(10 * SECOND), "now no row has come for a second");
        assert_eq!(policy.watermark(), Some(2 * HOUR));
    }

    #[test]
    fn a_row_far_ahead_moves_nothing() {
        let mut policy = policy(0, None);
        see(&mut policy, 0..10);
        assert_eq!(
            see(&mut policy, [7300, 10, 7300, 11]),
            [Seen::Ahead, Seen::InTime, Seen::Ahead, Seen::InTime]
        );
        assert_eq!(policy.watermark(), Some(11 * SECOND));
        // The bound itself is not beyond it.
        assert_eq!(see(&mut policy, [11 + 3600]), [Seen::InTime]);
        assert_eq!(policy.watermark(), Some(3611 * SECOND));
    }

    #[test]
    fn a_run_of_rows_confirms_a_jump_from_the_least_of_them() {
        let mut policy = policy(0, None);
        see(&mut policy, [0, 1]);
        let jump = 10 * 3600;
        see(&mut policy, [jump + 90_000]);
        see(&mut policy, (0..30).map(|second| jump + second));
        assert_eq!(policy.watermark(), Some(SECOND));
        assert_eq!(see(&mut policy, [jump + 5]), [Seen::Ahead]);
        assert_eq!(policy.watermark(), Some((jump + 29) * SECOND), "not the row that is a day further");
        assert_eq!(see(&mut policy, [jump + 30]), [Seen::InTime]);
    }

    #[test]
    fn a_wrong_stamp_on_the_first_row_does_no_harm() {
        for wrong in [7200, -1_000_000_000] {
            let mut policy = policy(0, None);
            see(&mut policy, [wrong]);
            see(&mut policy, 0..2);
            assert_eq!(policy.watermark(), Some(SECOND), "{wrong}");
            see(&mut policy, 2..100);
            while policy.watermark().is_some() {}
            see(&mut policy, [100]);
            assert_eq!(policy.watermark(), Some(100 * SECOND));
        }
    }

    #[test]
    fn another_part_of_the_input_may_begin_far_ahead() {
        let mut policy = policy(0, None);
        see(&mut policy, [0, 1]);
        policy.begin_part();
        assert_eq!(see(&mut policy, [50_000]), [Seen::InTime]);
        assert_eq!(policy.watermark(), Some(SECOND), "one row alone may be wrong");
        assert_eq!(see(&mut policy, [50_001]), [Seen::InTime]);
        assert_eq!(policy.watermark(), Some(50_001 * SECOND));
        policy.begin_part();
        see(&mut policy, [10, 11]);
        assert_eq!(policy.watermark(), None, "it never falls");
    }

    #[test]
    fn an_idle_time_confirms_and_makes_idle_and_the_next_row_wakes() {
        let mut policy = policy(0, Some(10 * SECOND));
        assert_eq!(policy.next_tick(), Some(10 * SECOND));
        see(&mut policy, [1, 2]);
        assert_eq!(policy.watermark(), Some(2 * SECOND));
        policy.observe(9000 * SECOND, 4 * SECOND);
        assert_eq!(policy.next_tick(), Some(14 * SECOND));
        assert!(!policy.tick(13 * SECOND));
        assert_eq!(policy.watermark(), None);
        assert!(policy.tick(14 * SECOND) && !policy.tick(15 * SECOND));
        assert_eq!(policy.watermark(), Some(9000 * SECOND));
        assert_eq!(policy.next_tick(), None);
        assert_eq!((policy.wake(), policy.wake()), (Some(9000 * SECOND), None));
        policy.observe(9001 * SECOND, 20 * SECOND);
        assert_eq!(policy.next_tick(), Some(30 * SECOND));
        // One whose rows cannot go on is not.
        policy.wait(29 * SECOND);
        assert!(!policy.tick(30 * SECOND));
        assert_eq!(policy.next_tick(), Some(39 * SECOND));
        // One that never had a row is idle too.
        let mut silent = super::tests::policy(0, Some(SECOND));
        assert!(silent.tick(SECOND));
        assert_eq!((silent.watermark(), silent.wake()), (None, Some(i64::MIN)));
    }

    proptest! {
        /// Nothing that comes more than `lateness` behind what was told was in its time; and what is told
        /// never falls, nor rises above the latest row less the lateness.
        #[test]
        fn a_watermark_is_never_above_the_rows(
            rows in prop::collection::vec((0i64..30_000, 0i64..20), 1..300),
            lateness in 0i64..100,
        ) {
            let mut policy = policy(lateness * SECOND, Some(60 * SECOND));
            let (mut now, mut latest, mut told) = (0, i64::MIN, i64::MIN);
            for (time, pause) in rows {
                now += pause * SECOND;
                policy.tick(now);
                if let Some(woken) = policy.wake() {
                    prop_assert!(woken >= told);
                }
                policy.observe(time * SECOND, now);
                latest = latest.max(time * SECOND);
                if let Some(watermark) = policy.watermark() {
                    prop_assert!(watermark > told && watermark <= latest - lateness * SECOND);
                    prop_assert_eq!(watermark.rem_euclid(SECOND), 0);
                    told = watermark;
                }
            }
        }

        /// Rows that are not further apart than `max_ahead` are all in time, and the watermark follows the latest.
        #[test]
        fn rows_in_their_time_move_it_at_once(times in prop::collection::vec(0i64..3_600, 2..100)) {
            let mut policy = policy(0, None);
            prop_assert!(see(&mut policy, times.iter().copied()).iter().all(|seen| *seen == Seen::InTime));
            prop_assert_eq!(policy.watermark(), times.iter().max().map(|time| time * SECOND));
        }
    }
}
