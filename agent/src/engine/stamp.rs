//! Event time of rows as they enter: their stamps, the watermark that follows them, and when they arrived.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tuplane_core::job::Time;
use tuplane_core::plan::Dag;
use tuplane_core::time::{DROPPED_BY_TIME, Moved, Seen, WatermarkOptions, WatermarkPolicy};
use tuplane_expr::arrow::array::{RecordBatch, TimestampNanosecondArray};
use tuplane_expr::arrow::error::ArrowError;
use tuplane_expr::system::{Places, SystemColumn, arrivals, conform, shown_time, with_column};
use tuplane_expr::{EvalError, StampProgram, Stamped};

use super::due::DueClock;
use super::hold::early;
use super::operator::{DroppedRows, OperatorError, Remark};
use crate::source::Schedule;
use parts::Parts;

mod parts;

/// Gives the rows of one instance their event times.
pub(crate) struct Stamper {
    stage: String,
    program: StampProgram,
    options: WatermarkOptions,
    policy: WatermarkPolicy,
    /// Where it goes on with units of others.
    parts: Option<Box<Parts>>,
    /// What the policy's clock counts from.
    began: Instant,
    dropped: u64,
    ahead: u64,
    remark: Option<Remark>,
    /// Where rows may be here before they arrive.
    coming: Option<Coming>,
}

/// Event times of rows that have not arrived: no watermark follows them yet.
struct Coming {
    clock: DueClock,
    /// In the order in which the rows came, but none arrives before the one ahead of it.
    times: VecDeque<ToCome>,
    /// The next row is the first one of another split.
    begins: bool,
}

/// A row that has not arrived.
struct ToCome {
    due: i64,
    time: i64,
    /// It is the first one of another split.
    begins: bool,
}

/// Rows with what is to be told before and after them.
pub(crate) struct Given {
    pub(crate) before: Option<Moved>,
    pub(crate) rows: RecordBatch,
    pub(crate) after: Option<Moved>,
}

impl Stamper {
    pub(crate) fn new(stage: &str, program: StampProgram, time: &Time, dag: &Dag) -> Self {
        let options = WatermarkOptions::new(time, dag.watermark_stride);
        Self {
            stage: stage.to_owned(),
            program,
            options,
            policy: WatermarkPolicy::new(options, 0),
            parts: None,
            began: Instant::now(),
            dropped: 0,
            ahead: 0,
            remark: None,
            coming: None,
        }
    }

    /// Rows may be here before they arrive: their event times count when they do.
    pub(crate) fn looking_ahead(mut self, clock: DueClock) -> Self {
        self.coming = Some(Coming { clock, times: VecDeque::new(), begins: false });
        self
    }

    /// The run begins now, which may be long after the instance was made.
    pub(crate) fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// The rows that follow are of another split.
    pub(crate) fn begin_split(&mut self) {
        match &mut self.coming {
            Some(coming) => coming.begins = true,
            None => self.policy.begin_part(),
        }
    }

    fn now(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_nanos()).unwrap_or(i64::MAX)
    }

    /// Stamps rows of a unit that the instance has taken (`None`: of another one); those whose time cannot be read are left out, or are an error.
    pub(crate) fn stamp(&mut self, batch: &RecordBatch, unit: Option<u32>) -> Result<Given, OperatorError> {
        let places = Places::of(batch);
        let stamped =
            self.program.stamp(batch).map_err(|error| OperatorError::of(&self.stage, error, &places))?;
        if let Some(last) = stamped.dropped.last() {
            self.dropped += stamped.dropped.len() as u64;
            self.remark = Some(Remark::of(&self.stage, &last.message, places.of_row(last.row)));
        }
        if self.comes(&stamped) {
            let rows = conform(stamped.rows, self.program.output()).map_err(EvalError::from)?;
            return Ok(Given { before: None, rows, after: None });
        }
        let before = if stamped.rows.num_rows() > 0 { self.wakes(unit) } else { None };
        let ahead = self.observe(stamped.times().values(), unit);
        if let Some((row, time)) = ahead {
            let message = beyond(time);
            self.remark = Some(Remark::of(&self.stage, &message, Places::of(&stamped.rows).of_row(row)));
        }
        let rows = conform(stamped.rows, self.program.output()).map_err(EvalError::from)?;
        Ok(Given { before, rows, after: self.risen(unit) })
    }

    /// Event times of rows that have arrived; gives the last one that is far ahead, with its row's number.
    fn observe(&mut self, times: &[i64], unit: Option<u32>) -> Option<(usize, i64)> {
        let (now, mut ahead) = (self.now(), None);
        for (row, time) in times.iter().enumerate() {
            if self.policy_of(unit).observe(*time, now) == Seen::Ahead {
                self.ahead += 1;
                ahead = Some((row, *time));
            }
        }
        ahead
    }

    /// Keeps the event times of rows of which some have not arrived, or stand behind such rows.
    fn comes(&mut self, stamped: &Stamped) -> bool {
        let Some(coming) = &mut self.coming else { return false };
        let times = stamped.times();
        let dues = arrivals(&stamped.rows).filter(|_| !times.is_empty());
        let later = dues.filter(|dues| !coming.times.is_empty() || early(dues, coming.clock.now()) > 0);
        let Some(dues) = later else {
            if !times.is_empty() && std::mem::take(&mut coming.begins) {
                self.policy.begin_part();
            }
            return false;
        };
        for (due, time) in dues.iter().zip(times.values()) {
            let before = coming.times.back().map_or(i64::MIN, |last| last.due);
            let due = due.unwrap_or(before).max(before);
            coming.times.push_back(ToCome { due, time: *time, begins: std::mem::take(&mut coming.begins) });
        }
        true
    }

    /// What is to be told of rows that were here before they arrived, and have by now.
    pub(crate) fn arrive(&mut self) -> Vec<Moved> {
        let Some(coming) = &mut self.coming else { return Vec::new() };
        let now = coming.clock.now();
        let arrived = coming.times.partition_point(|row| row.due <= now);
        if arrived == 0 {
            return Vec::new();
        }
        let arrived: Vec<ToCome> = coming.times.drain(..arrived).collect();
        let woken = self.policy.wake().map(Moved::Watermark);
        for row in arrived {
            if row.begins {
                self.policy.begin_part();
            }
            if let Some((_, time)) = self.observe(&[row.time], None) {
                self.remark = Some(Remark::of(&self.stage, &beyond(time), None));
            }
        }
        woken.into_iter().chain(self.risen(None)).collect()
    }

    /// What is to be told after a time without rows, or of rows that have arrived since they came.
    pub(crate) fn tick(&mut self) -> impl Iterator<Item = Moved> + use<> {
        let arrived = self.arrive();
        arrived.into_iter().chain(self.silence())
    }

    /// Rows wait that cannot be taken now.
    pub(crate) fn wait(&mut self) {
        let now = self.now();
        self.policies().for_each(|policy| policy.wait(now));
    }

    /// When to call [`tick`](Self::tick), if no row comes before.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let after = self.next_of_parts().map(|after| u64::try_from(after).unwrap_or(0));
        let idle = after.and_then(|after| self.began.checked_add(Duration::from_nanos(after)));
        let coming = self.coming.as_ref();
        let coming = coming.and_then(|coming| Some(coming.clock.instant(coming.times.front()?.due)));
        idle.into_iter().chain(coming).min()
    }

    /// Rows left out since the last call.
    pub(crate) fn take_dropped(&mut self) -> DroppedRows {
        match std::mem::take(&mut self.dropped) {
            0 => DroppedRows::new(),
            rows => DroppedRows::from([(DROPPED_BY_TIME.to_owned(), rows)]),
        }
    }

    /// Rows far ahead of the others since the last call.
    pub(crate) fn take_ahead(&mut self) -> u64 {
        std::mem::take(&mut self.ahead)
    }

    /// About the last row since the last call that was left out or far ahead.
    pub(crate) fn take_remark(&mut self) -> Option<Remark> {
        self.remark.take()
    }
}

fn beyond(time: i64) -> String {
    let time = shown_time(time);
    format!("the time {time} is beyond `max_ahead`, so the watermark waits for more like it")
}

/// When the rows of a source arrive.
pub(crate) struct Arrivals {
    clock: DueClock,
    /// When the last row arrives that was given.
    latest: Option<Instant>,
}

impl Arrivals {
    pub(crate) fn new(clock: DueClock) -> Self {
        Self { clock, latest: None }
    }

    /// Rows that have just been read, with the column that says when they arrive: now, or as scheduled.
    pub(crate) fn add(
        &mut self,
        rows: &RecordBatch,
        schedule: Option<Schedule>,
    ) -> Result<RecordBatch, ArrowError> {
        let count = rows.num_rows();
        let column = match schedule {
            None => TimestampNanosecondArray::from_value(self.clock.now(), count),
            Some(Schedule { first, seconds }) => {
                let first = self.clock.at(first);
                let due = |row: usize| first + (row as f64 * seconds * 1e9) as i64;
                let last = self.clock.instant(due(count.saturating_sub(1)));
                self.latest = self.latest.max(Some(last));
                (0..count).map(|row| Some(due(row))).collect()
            }
        };
        with_column(rows, SystemColumn::Due, Arc::new(column))
    }

    /// When the last row arrives that was given.
    pub(crate) fn latest(&self) -> Option<Instant> {
        self.latest
    }
}

#[cfg(test)]
mod tests;
