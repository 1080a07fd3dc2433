//! `trace`: numbered rows at the times that the counts of a csv file give.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use csv::{ByteRecord, ReaderBuilder, Trim};
use tuplane_core::job::TraceSource;
use tuplane_core::time::{MOST_TRACE_STEPS, Trace, TraceStep};
use tuplane_expr::arrow::array::{Int64Array, RecordBatch};
use tuplane_wire::scaling::Paced;

use super::ahead::Lookahead;
use super::generate::{Arranged, Generated, Series, numbers};
use super::ids::{fitting, payloads, text};
use super::pace::{ByNumber, Pacing, run_end};
use super::splits::delimiter_byte;
use super::{Schedule, Source, SourceContext, SourceError};
use crate::engine::due::DueClock;

/// Makes an instance of `connector = "trace"`.
pub(super) fn make(options: &TraceSource, context: &SourceContext) -> Result<Box<dyn Source>, SourceError> {
    let trace = Arc::new(schedule(options, &context.folder)?);
    let columns = Arranged::new(&context.schema, &["id", "step", "payload"])?;
    let wanted = context.schema.column_with_name("payload").is_some();
    let payload = text(if wanted { options.payload as usize } else { 0 });
    let pace = TracePace::new(Arc::clone(&trace), context);
    let rows = trace.rows();
    Ok(Box::new(Generated::new(Traced { trace, columns, payload }, Some(rows), pace, context)))
}

/// When each row is due, by the counts in the file.
pub(crate) fn schedule(options: &TraceSource, folder: &Path) -> Result<Trace, SourceError> {
    let path = folder.join(&options.path.value);
    let counts = counts(options, &path)?;
    Trace::new(&counts, &options.options)
        .map_err(|cause| SourceError::Refused(format!("{}: {cause}", path.display())))
}

/// The counts of a file, in its order.
fn counts(options: &TraceSource, path: &Path) -> Result<Vec<f64>, SourceError> {
    let whole = |why: String| SourceError::Refused(format!("{}: {why}", path.display()));
    let meta = fs::metadata(path).map_err(|cause| SourceError::file("read", path, cause))?;
    if !meta.is_file() {
        // What a pipe gives to one instance it gives to no other.
        return Err(whole("is no regular file; name a csv file that has the counts".to_owned()));
    }
    let file = File::open(path).map_err(|cause| SourceError::file("open", path, cause))?;
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(Trim::All)
        .delimiter(delimiter_byte(options.delimiter)?)
        .from_reader(file);
    let mut records = reader.byte_records().map(|record| {
        record.map_err(|cause| whole(cause.to_string())).map(|record| {
            let line = record.position().map_or(0, csv::Position::line);
            (line, record)
        })
    });
    let Some(first) = records.next().transpose()? else { return Err(whole("it is empty".to_owned())) };
    let has_header = options.header.unwrap_or(true);
    let second = if has_header { records.next().transpose()? } else { None };
    let Some(sample) = (if has_header { second.as_ref() } else { Some(&first) }) else {
        return Err(whole("it has no line of counts behind the names of its columns".to_owned()));
    };
    let names: Vec<_> = first.1.iter().map(String::from_utf8_lossy).collect();
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let index = match &options.column {
        Some(column) => column.index(&names, has_header).map_err(whole)?,
        None => sample.1.iter().rposition(|field| number(field).is_some()).ok_or_else(|| {
            let line = sample.0;
            whole(format!("no column of line {line} is a number; name the `column` that has the counts"))
        })?,
    };
    let at = |line: u64| format!("{}:{line}", path.display());
    if options.header.is_none() && first.1.get(index).is_some_and(|field| number(field).is_some()) {
        return Err(SourceError::Refused(format!(
            "{}: `{}` may be a count or the name of a column; set `header = false` if it is a count, else \
             `header = true`",
            at(first.0),
            names[index]
        )));
    }
    let column = match names.get(index).filter(|_| has_header) {
        Some(name) => format!("column `{name}`"),
        None => format!("column {}", index + 1),
    };
    let begin = if has_header { second } else { Some(first.clone()) };
    let mut counts = Vec::new();
    for record in begin.into_iter().map(Ok).chain(records) {
        let (line, record) = record?;
        if counts.len() == MOST_TRACE_STEPS {
            return Err(whole(format!("more than {MOST_TRACE_STEPS} counts; cut the file")));
        }
        counts.push(count(&record, index).map_err(|why| {
            SourceError::Refused(format!("{}: {column} {why}; write a number, 0 or more", at(line)))
        })?);
    }
    Ok(counts)
}

fn number(field: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(field).ok()?.parse().ok()?;
    number.is_finite().then_some(number)
}

fn count(record: &ByteRecord, index: usize) -> Result<f64, String> {
    let field = record.get(index).ok_or_else(|| format!("is not there: the line has {}", record.len()))?;
    let shown = || String::from_utf8_lossy(field);
    let count = number(field).ok_or_else(|| format!("is `{}`, which is no number", shown()))?;
    if count >= 0.0 { Ok(count) } else { Err(format!("is `{}`, which is less than no row", shown())) }
}

/// `id`, the step of the trace that it belongs to, and where rows have one, `payload`.
struct Traced {
    trace: Arc<Trace>,
    columns: Arranged,
    payload: Vec<u8>,
}

impl Series for Traced {
    fn rows(&mut self, first: u64, step: u64, count: usize) -> Result<RecordBatch, SourceError> {
        let count = fitting(&self.payload, count);
        let mut steps = Vec::with_capacity(count);
        let mut of: Option<TraceStep> = None;
        for row in (0..count as u64).map(|row| first + row * step) {
            if of.is_none_or(|of| row >= of.end()) {
                of = self.trace.step_of(row);
            }
            steps.push(of.map(|of| of.number as i64));
        }
        let steps = Arc::new(Int64Array::from(steps));
        self.columns.batch(&[numbers(first, step, count), steps, payloads(&self.payload, count)?])
    }
}

/// The schedule of a unit of rows: every row at the trace's time for it, from the first poll on.
#[derive(Clone)]
struct TracePace {
    trace: Arc<Trace>,
    /// The instance's next row.
    next: u64,
    /// From one of its rows to the next: the number of instances.
    stride: u64,
    /// The step of `next`.
    step: Option<TraceStep>,
    /// t0: the first poll.
    start: Option<Instant>,
    /// When rows were given, if that was all that was due.
    last: Option<Instant>,
    given: Option<Schedule>,
    /// Rows may be given before they are due.
    ahead: Option<Lookahead>,
}

impl TracePace {
    fn new(trace: Arc<Trace>, context: &SourceContext) -> Self {
        let (next, stride) = (u64::from(context.instance_number), u64::from(context.instances));
        let step = trace.step_of(next);
        let ahead = context.ahead.clone();
        Self { trace, next, stride, step, start: None, last: None, given: None, ahead }
    }

    /// When the next row is due.
    fn next_due(&self) -> Option<Instant> {
        self.start?.checked_add(Duration::from_nanos(self.step?.due(self.next)))
    }
}

impl ByNumber for TracePace {
    fn of(&self, next: u64, step: u64, kept: Option<(Paced, &DueClock)>) -> Self {
        Self {
            next,
            stride: step,
            step: self.trace.step_of(next),
            start: kept.map(|(kept, clock)| clock.instant(kept.start_ns)),
            last: None,
            given: None,
            ..self.clone()
        }
    }
}

impl Pacing for TracePace {
    fn kept(&self, clock: &DueClock) -> Option<Paced> {
        // Its next row says which were given.
        Some(Paced { start_ns: clock.at(self.start?), given: 0 })
    }

    /// Rows of one step at a time, so that they are equally far apart.
    fn due(&mut self, max: usize, now: Instant) -> Result<usize, Instant> {
        let start = *self.start.get_or_insert(now);
        let far = now + Duration::from_hours(1);
        let Some(step) = self.step else { return Err(far) };
        let until = self.ahead.as_ref().map_or(now, |ahead| ahead.until(now));
        let elapsed = u64::try_from(until.saturating_duration_since(start).as_nanos()).unwrap_or(u64::MAX);
        let open = (step.first + step.due_by(elapsed)).saturating_sub(self.next).div_ceil(self.stride);
        let own_rate = step.rows as f64 * 1e9 / step.length as f64 / self.stride as f64;
        // What is given ahead comes by whole slots.
        let last = self.last.filter(|_| self.ahead.is_none());
        let run_end = last.and_then(|last| run_end(last, own_rate)).filter(|end| *end > now);
        if open == 0 {
            let next = self.next_due().unwrap_or(far);
            let next = self.ahead.as_ref().map_or(next, |ahead| ahead.opens(next));
            return Err(run_end.map_or(next, |end| next.max(end)));
        }
        run_end.map_or(Ok(max.min(usize::try_from(open).unwrap_or(usize::MAX))), Err)
    }

    fn gave(&mut self, rows: usize, now: Instant) {
        let first = self.next_due();
        let apart = self.step.map(|step| step.length as f64 * self.stride as f64 / step.rows as f64 / 1e9);
        self.given = first.zip(apart).map(|(first, seconds)| Schedule { first, seconds });
        self.next += self.stride * rows as u64;
        if self.step.is_some_and(|step| self.next >= step.end()) {
            self.step = self.trace.step_of(self.next);
        }
        self.last = self.next_due().is_none_or(|next| next > now).then_some(now);
    }

    fn schedule(&self, _rows: usize) -> Option<Schedule> {
        self.given
    }

    fn set(&mut self, option: &str, _value: &serde_json::Value) -> Result<(), String> {
        Err(format!("a trace has no live option `{option}`: it keeps its schedule"))
    }
}

#[cfg(test)]
mod tests;
