//! Event time of rows as they enter: their stamps, the watermark that follows them, and when they arrived.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tuplane_core::job::Time;
use tuplane_core::plan::Dag;
use tuplane_core::time::{DROPPED_BY_TIME, Moved, Seen, WatermarkOptions, WatermarkPolicy};
use tuplane_expr::arrow::array::{RecordBatch, TimestampNanosecondArray};
use tuplane_expr::arrow::error::ArrowError;
use tuplane_expr::system::{Places, SystemColumn, conform, with_column};
use tuplane_expr::{EvalError, StampProgram};

use super::operator::{DroppedRows, OperatorError, Remark};
use crate::node::wall_ns;
use crate::source::Schedule;

/// Gives the rows of one instance their event times.
pub(crate) struct Stamper {
    stage: String,
    program: StampProgram,
    policy: WatermarkPolicy,
    /// What the policy's clock counts from.
    began: Instant,
    dropped: u64,
    ahead: u64,
    remark: Option<Remark>,
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
            policy: WatermarkPolicy::new(options, 0),
            began: Instant::now(),
            dropped: 0,
            ahead: 0,
            remark: None,
        }
    }

    /// The run begins now, which may be long after the instance was made.
    pub(crate) fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// The rows that follow are of another split.
    pub(crate) fn begin_split(&mut self) {
        self.policy.begin_part();
    }

    fn now(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_nanos()).unwrap_or(i64::MAX)
    }

    /// Stamps rows; those whose time cannot be read are left out, or are an error.
    pub(crate) fn stamp(&mut self, batch: &RecordBatch) -> Result<Given, OperatorError> {
        let places = Places::of(batch);
        let stamped =
            self.program.stamp(batch).map_err(|error| OperatorError::of(&self.stage, error, &places))?;
        if let Some(last) = stamped.dropped.last() {
            self.dropped += stamped.dropped.len() as u64;
            self.remark = Some(Remark::of(&self.stage, &last.message, places.of_row(last.row)));
        }
        let now = self.now();
        let before = if stamped.rows.num_rows() > 0 { self.policy.wake() } else { None };
        let mut ahead = None;
        for (row, time) in stamped.times().values().iter().enumerate() {
            if self.policy.observe(*time, now) == Seen::Ahead {
                self.ahead += 1;
                ahead = Some((row, *time));
            }
        }
        if let Some((row, time)) = ahead {
            let time = tuplane_expr::system::shown_time(time);
            let message =
                format!("the time {time} is beyond `max_ahead`, so the watermark waits for more like it");
            self.remark = Some(Remark::of(&self.stage, &message, Places::of(&stamped.rows).of_row(row)));
        }
        let rows = conform(stamped.rows, self.program.output()).map_err(EvalError::from)?;
        Ok(Given { before: before.map(Moved::Watermark), rows, after: self.watermark() })
    }

    fn watermark(&mut self) -> Option<Moved> {
        self.policy.watermark().map(Moved::Watermark)
    }

    /// What is to be told after a time without rows.
    pub(crate) fn tick(&mut self) -> impl Iterator<Item = Moved> + use<> {
        let idle = self.policy.tick(self.now());
        self.watermark().into_iter().chain(idle.then_some(Moved::Idle))
    }

    /// Rows wait that cannot be taken now.
    pub(crate) fn wait(&mut self) {
        self.policy.wait(self.now());
    }

    /// When to call [`tick`](Self::tick), if no row comes before.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let after = u64::try_from(self.policy.next_tick()?).unwrap_or(0);
        self.began.checked_add(Duration::from_nanos(after))
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

/// When rows arrive, by the wall clock at the beginning and monotonic from there.
pub(crate) struct Arrivals {
    began: Instant,
    wall: i64,
}

impl Arrivals {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), wall: wall_ns() as i64 }
    }

    /// Rows that have just been read, with the column that says when they arrived: now, or as scheduled.
    pub(crate) fn add(
        &self,
        rows: &RecordBatch,
        schedule: Option<Schedule>,
    ) -> Result<RecordBatch, ArrowError> {
        let count = rows.num_rows();
        let column = match schedule {
            None => TimestampNanosecondArray::from_value(self.at(Instant::now()), count),
            Some(Schedule { first, seconds }) => {
                let first = self.at(first);
                (0..count).map(|row| Some(first + (row as f64 * seconds * 1e9) as i64)).collect()
            }
        };
        with_column(rows, SystemColumn::Due, Arc::new(column))
    }

    fn at(&self, instant: Instant) -> i64 {
        match instant.checked_duration_since(self.began) {
            Some(after) => self.wall + after.as_nanos() as i64,
            None => self.wall - self.began.duration_since(instant).as_nanos() as i64,
        }
    }
}
