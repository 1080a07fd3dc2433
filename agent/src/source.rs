//! Sources: where rows enter. One trait, and one module per connector.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use tuplane_core::job::{self, SourceConnector};
use tuplane_core::place::SourcePlaces;
use tuplane_expr::arrow::array::RecordBatch;
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_expr::arrow::error::ArrowError;
use tuplane_wire::message::Split;
use tuplane_wire::scaling::SourceUnit;

use crate::engine::due::DueClock;
use crate::engine::rows::{MOST_BYTES, MOST_ROWS};

pub(crate) mod ahead;
mod columns;
mod file;
mod generate;
mod ids;
mod nexmark;
pub(crate) mod pace;
mod splits;
mod trace;
mod words;

#[cfg(test)]
mod tests;

pub(crate) use file::lines_before;
pub use splits::{csv_header, splits};
pub(crate) use trace::schedule as trace_schedule;

/// Most rows of one batch, whatever is asked for.
const BATCH_ROWS: usize = MOST_ROWS;
/// A batch ends with the row that brings it here.
const BATCH_BYTES: usize = MOST_BYTES as usize;

/// What a source instance may produce in one step.
#[derive(Debug)]
pub enum Polled {
    /// Rows, at least one.
    Rows(RecordBatch),
    /// Nothing now; try again at this instant or when woken.
    Wait(Instant),
    /// It needs the next split.
    NeedSplit,
    /// No row will come any more.
    End,
}

/// When the rows of a batch were due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// The first of them.
    pub first: Instant,
    /// Seconds from one to the next.
    pub seconds: f64,
}

/// A running source instance.
pub trait Source: Send {
    /// At most about `max_rows` rows and 1 MiB.
    fn poll(&mut self, max_rows: usize) -> Result<Polled, SourceError>;
    /// The answer to [`Polled::NeedSplit`]; `None`: no split is left.
    fn split(&mut self, split: Option<Split>) -> Result<(), SourceError>;
    /// Gives back what it has not read, so that others go on exactly there. It finishes only what cannot be gone on with in
    /// the middle, and ends.
    ///
    /// # Errors
    /// Nobody else could go on with what it reads.
    fn give_back(&mut self, _clock: &DueClock) -> Result<Vec<SourceUnit>, SourceError> {
        Err(SourceError::Refused("nobody else can go on with what it reads".to_owned()))
    }
    /// Goes on with what another instance has given back: with rows in files before it goes on with its own, with those that
    /// are made in turn with its own. One that had come to its end has not any more.
    ///
    /// # Errors
    /// It is not what this source reads.
    fn take(&mut self, _units: Vec<SourceUnit>, _clock: &DueClock) -> Result<(), SourceError> {
        Err(SourceError::Refused("it cannot go on with what another instance has not read".to_owned()))
    }
    /// The unit that the rows of the last poll belong to; `None`: not one that it has taken.
    fn unit(&self) -> Option<u32> {
        None
    }
    /// Rows of a unit that it has taken may follow, or (`None`) of others.
    fn has(&self, unit: Option<u32>) -> bool {
        unit.is_none()
    }
    /// It may wait for a disk or a pipe, and so needs a thread of its own.
    fn blocks(&self) -> bool {
        false
    }
    /// When the rows were due that the last poll gave, `rows` of them; `None` where there is no schedule.
    fn schedule(&self, _rows: usize) -> Option<Schedule> {
        None
    }
    /// Rows left out so far.
    fn rejected(&self) -> &Rejected;
    /// Changes a live option (`rate`); `Err` says what may be set.
    fn set(&mut self, option: &str, value: &serde_json::Value) -> Result<(), String>;
}

/// Rows that a source left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rejected {
    /// How many, by reason: [`Rejected::BAD_LINE`], [`Rejected::TOO_LONG`].
    pub by_reason: BTreeMap<&'static str, u64>,
    /// The first one, as `file:line: why`.
    pub first: Option<String>,
    /// The last one, likewise.
    pub last: Option<String>,
}

impl Rejected {
    /// A line that its format does not allow.
    pub const BAD_LINE: &'static str = "bad_line";
    /// A line or record over `max_row`.
    pub const TOO_LONG: &'static str = "too_long";

    /// All rows left out.
    pub fn total(&self) -> u64 {
        self.by_reason.values().sum()
    }

    /// The last one, and the first where that is another.
    pub fn note(&self) -> Option<String> {
        let last = self.last.as_ref()?;
        Some(match self.first.as_ref().filter(|first| *first != last) {
            Some(first) => format!("{last} (the first of this instance: {first})"),
            None => last.clone(),
        })
    }

    /// Counts a row that was left out, under one of a few reasons, and keeps where it stood and why.
    pub fn reject(&mut self, reason: &'static str, place: &str, why: &str) {
        self.count(reason);
        self.show(place, why);
    }

    fn show(&mut self, place: &str, why: &str) {
        let shown = format!("{place}: {why}");
        self.first.get_or_insert_with(|| shown.clone());
        self.last = Some(shown);
    }

    fn count(&mut self, reason: &'static str) {
        *self.by_reason.entry(reason).or_default() += 1;
    }
}

/// Why a source cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A line does not parse, and the source says `on_bad_line = "fail"`.
    #[error("{place}: {why}")]
    Row {
        /// `file:line`.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file could not be used.
    #[error("cannot {action} {path}: {cause}")]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        cause: std::io::Error,
    },
    /// Options, paths or columns that this source cannot serve.
    #[error("{0}")]
    Refused(String),
    /// A batch could not be built.
    #[error("rows could not be built: {0}")]
    Arrow(#[from] ArrowError),
}

impl SourceError {
    fn file(action: &'static str, path: &std::path::Path, cause: std::io::Error) -> Self {
        Self::File { action, path: path.display().to_string(), cause }
    }
}

/// What a source instance has to know of its surroundings.
#[derive(Debug, Clone)]
pub struct SourceContext {
    /// The stage's id.
    pub stage: String,
    /// This instance, from 0.
    pub instance_number: u32,
    /// Instances of this vertex in the cluster.
    pub instances: u32,
    /// It begins with what others have not read, and has no share of its own: it came while the job ran.
    pub handed: bool,
    /// The agent's working folder: relative paths start here.
    pub folder: PathBuf,
    /// The job's own columns of its rows.
    pub schema: SchemaRef,
    /// How its rows' places are numbered, where the job needs them: then the column `_at` follows.
    pub places: Option<SourcePlaces>,
    /// How long before they are due it may give its rows, if it has a schedule and may.
    pub(crate) ahead: Option<ahead::Lookahead>,
}

/// Makes an instance of a source.
pub fn make(source: &job::Source, context: SourceContext) -> Result<Box<dyn Source>, SourceError> {
    if context.instance_number >= context.instances && !context.handed {
        return Err(SourceError::Refused(format!(
            "instance {} of `{}` does not exist: there are {}",
            context.instance_number, context.stage, context.instances
        )));
    }
    let pace = pace::Pace::new(source.rate, context.instances).map_err(SourceError::Refused)?;
    let pace = pace.looking(context.ahead.clone());
    match &source.connector {
        Some(SourceConnector::File(options)) => {
            Ok(Box::new(file::Files::new(options, source.max_row, pace, context)?))
        }
        Some(SourceConnector::Generator(options)) => generate::generator(options, pace, &context),
        Some(SourceConnector::Nexmark(options)) => {
            let events = nexmark::Events::new(options, &context)?;
            let rows = options.n.map(|n| nexmark::rows_among(options.events, n));
            Ok(Box::new(generate::Generated::new(events, rows, pace, &context)))
        }
        Some(SourceConnector::Ids { n, .. }) => {
            // The schema decides on `payload`: it was made from the same options.
            let ids = ids::Ids::new(source, &context)?;
            Ok(Box::new(generate::Generated::new(ids, Some(*n), pace, &context)))
        }
        Some(SourceConnector::Trace(options)) => trace::make(options, &context),
        Some(SourceConnector::Registered { name, .. }) => Err(SourceError::Refused(format!(
            "source `{}` asks for the connector `{}`, which this agent's registry does not hold",
            context.stage, name.value
        ))),
        None => Err(SourceError::Refused(format!("source `{}` names no connector", context.stage))),
    }
}
