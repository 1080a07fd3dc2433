//! Sources of the user's own.

use std::time::{Duration, Instant};

use tuplane_expr::arrow::array::RecordBatch;
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_wire::message::Split;

use super::given::conforming;
use super::{Context, Failure, Given};
use crate::source::pace::Pace;
use crate::source::{Polled, Rejected, Schedule, Source as EngineSource, SourceError};

/// A sort of source: one for the agent, which makes instances of it.
pub trait SourceKind: Send + Sync {
    /// The columns of its rows, from its options. Asked of the coordinator when a job is submitted, and of every
    /// agent.
    ///
    /// # Errors
    /// The job is refused with these words.
    fn output(&self, given: &Given<'_>) -> Result<SchemaRef, Failure>;

    /// An instance: number `instance` of `instances`, which share the work as they see fit.
    ///
    /// # Errors
    /// The job does not start.
    fn make(&self, context: Context) -> Result<Box<dyn Source>, Failure>;

    /// [`Source::next`] may wait for a disk or a network: each instance gets a thread of its own.
    fn blocks(&self) -> bool {
        true
    }

    /// Its columns in words, where they are fixed: part of the registry's fingerprint.
    fn types(&self) -> String {
        String::new()
    }
}

/// What a source has next.
#[derive(Debug)]
#[non_exhaustive]
pub enum Next {
    /// Rows with the declared columns. Fewer than were asked for are sent on at once.
    Rows(RecordBatch),
    /// Nothing now: ask again after this time; `Duration::MAX` is an hour.
    Wait(Duration),
    /// No row will come any more.
    End,
}

/// An instance of a source.
pub trait Source: Send {
    /// Its next rows, about `most` of them. A job's `rate` is kept for it: what it gives too early waits. A job
    /// that is cancelled waits half a second for a call that blocks, and leaves its thread to it.
    ///
    /// # Errors
    /// The job fails with these words.
    fn next(&mut self, most: usize) -> Result<Next, Failure>;

    /// Rows that it has left out so far, for `tuplane status`.
    fn rejected(&self) -> Option<&Rejected> {
        None
    }
}

/// Where a wait is longer than a clock counts, the source is asked again after this time.
const LONGEST: Duration = Duration::from_hours(1);

/// A source of a registry, as the engine runs it.
pub(crate) struct OwnSource {
    name: String,
    source: Box<dyn Source>,
    output: SchemaRef,
    blocks: bool,
    pace: Pace,
    /// Rows that were given and may not leave yet.
    waiting: Option<RecordBatch>,
    /// What was given last was little, so the next call may wait for long.
    little: bool,
    none: Rejected,
}

impl OwnSource {
    pub(super) fn new(
        name: &str,
        source: Box<dyn Source>,
        output: SchemaRef,
        blocks: bool,
        (rate, instances): (Option<f64>, u32),
    ) -> Result<Self, String> {
        let pace = Pace::new(rate, instances)?;
        let (name, waiting, none) = (name.to_owned(), None, Rejected::default());
        Ok(Self { name, source, output, blocks, pace, waiting, little: false, none })
    }

    fn failed(&self, why: &Failure) -> SourceError {
        SourceError::Refused(format!("source `{}`: {why}", self.name))
    }
}

impl EngineSource for OwnSource {
    fn poll(&mut self, max_rows: usize) -> Result<Polled, SourceError> {
        let now = Instant::now();
        if std::mem::take(&mut self.little) {
            return Ok(Polled::Wait(now));
        }
        let most = match self.pace.due(max_rows.max(1), now) {
            Ok(most) => most,
            Err(next) => return Ok(Polled::Wait(next)),
        };
        let batch = match self.waiting.take() {
            Some(batch) => batch,
            None => match self.source.next(most).map_err(|why| self.failed(&why))? {
                Next::Rows(batch) if batch.num_rows() == 0 => return Ok(Polled::Wait(now)),
                Next::Rows(batch) => {
                    self.little = self.blocks && batch.num_rows() < most;
                    conforming(&batch, &self.output).map_err(|why| self.failed(&why))?
                }
                Next::Wait(time) => return Ok(Polled::Wait(now.checked_add(time).unwrap_or(now + LONGEST))),
                Next::End => return Ok(Polled::End),
            },
        };
        let count = most.min(batch.num_rows());
        if count < batch.num_rows() {
            self.waiting = Some(batch.slice(count, batch.num_rows() - count));
        }
        self.pace.gave(count, now);
        Ok(Polled::Rows(batch.slice(0, count)))
    }

    fn split(&mut self, _split: Option<Split>) -> Result<(), SourceError> {
        Err(SourceError::Refused(format!("source `{}` has no splits", self.name)))
    }

    fn blocks(&self) -> bool {
        self.blocks
    }

    fn schedule(&self, rows: usize) -> Option<Schedule> {
        self.pace.schedule(rows)
    }

    fn rejected(&self) -> &Rejected {
        self.source.rejected().unwrap_or(&self.none)
    }

    fn set(&mut self, option: &str, value: &serde_json::Value) -> Result<(), String> {
        self.pace.set(option, value)
    }
}
