//! Files: splits of them are read a block at a time and become rows by their format.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use tuplane_core::job::{BadLine, Encoding, FileSource, Format, MAX_ROW};
use tuplane_expr::arrow::array::RecordBatch;
use tuplane_expr::arrow::datatypes::DataType;
use tuplane_wire::message::Split;
use tuplane_wire::scaling::{Rest, SourceUnit};

use self::csv::{Gathered, Records, Refusal, too_long};
use self::input::Input;
use self::json::Objects;
use self::lines::{Counted, Lines, Step};
use self::pattern::Pattern;
use super::columns::Columns;
use super::pace::{Pace, Pacing as _};
use super::{BATCH_BYTES, BATCH_ROWS, Polled, Rejected, Schedule, Source, SourceContext, SourceError};
use crate::engine::due::DueClock;

mod csv;
mod input;
mod json;
mod lines;
mod pattern;
mod text;

pub(crate) use lines::lines_before;

#[cfg(test)]
mod tests;

/// How lines become rows.
enum Reading {
    /// The line itself.
    Plain,
    /// An object a line.
    Objects(Objects),
    /// Groups of a pattern.
    Pattern(Pattern),
    /// Records of one or more lines.
    Records(Box<Records>),
    /// The file is one document.
    Document(Objects),
}

/// What an instance does at the moment.
enum State {
    /// It waits for a split.
    Idle,
    /// It reads the lines of one.
    Reading(Box<Lines>),
    /// It reads a document, which is held in memory whole.
    Opening(Box<Held>),
    /// It gives the rows of a document.
    Giving(RecordBatch),
    /// It has read its last split.
    Done,
}

/// The part of a document that was read.
struct Held {
    path: PathBuf,
    input: Input,
    bytes: Vec<u8>,
}

/// An instance of a file source.
pub(super) struct Files {
    reading: Reading,
    state: State,
    columns: Columns,
    encoding: Encoding,
    on_bad_line: BadLine,
    max_row: usize,
    folder: PathBuf,
    pace: Pace,
    rejected: Rejected,
    /// Lines of the file whose bad line was placed last.
    counted: Counted,
    /// What it reads.
    now: Option<Queued>,
    /// What it reads before it asks for another split.
    queue: VecDeque<Queued>,
    /// It has asked for a split, or may have done so before others handed it something.
    asks: bool,
    /// It takes no further split.
    retiring: bool,
}

/// A split that it is to read, or reads.
struct Queued {
    split: Split,
    /// Another instance has begun with it.
    taken: bool,
}

impl Files {
    /// As the source's options say.
    pub(super) fn new(
        source: &FileSource,
        max_row: Option<u64>,
        pace: Pace,
        context: SourceContext,
    ) -> Result<Self, SourceError> {
        let max_row = usize::try_from(max_row.unwrap_or(MAX_ROW)).unwrap_or(usize::MAX / 2);
        let schema = &context.schema;
        let mut columns = match source.format {
            Format::Lines | Format::Csv | Format::Regex { .. } => Columns::from_texts(schema, source)?,
            Format::Jsonl | Format::Json => Columns::from_json(schema, source)?,
        };
        let reading = match &source.format {
            Format::Lines => {
                let fields = schema.fields();
                if fields.len() != 1 || fields[0].data_type() != &DataType::Utf8 {
                    return Err(SourceError::Refused(
                        "format `lines` gives one text column, `line`; for more, use csv, jsonl or regex"
                            .to_owned(),
                    ));
                }
                Reading::Plain
            }
            Format::Csv => Reading::Records(Box::new(Records::new(source, &columns, max_row)?)),
            Format::Jsonl => Reading::Objects(Objects::new(&columns)),
            Format::Json => Reading::Document(Objects::new(&columns)),
            Format::Regex { pattern } => Reading::Pattern(Pattern::new(&pattern.value, &columns)?),
        };
        if let Some(places) = context.places {
            columns.mark(places);
        }
        Ok(Self {
            reading,
            state: State::Idle,
            columns,
            encoding: source.encoding,
            on_bad_line: source.on_bad_line,
            max_row,
            folder: context.folder,
            pace,
            rejected: Rejected::default(),
            counted: Counted::default(),
            now: None,
            queue: VecDeque::new(),
            asks: !context.handed,
            retiring: false,
        })
    }

    /// Begins with a split, where it says that others have stopped.
    fn begin(&mut self, next: Queued) -> Result<(), SourceError> {
        let split = next.split.clone();
        self.now = Some(next);
        self.columns.begin_split(split.number);
        if matches!(self.reading, Reading::Document(_)) {
            let path = self.folder.join(&split.path);
            let input = Input::open(&path, split.seen)?;
            self.state = State::Opening(Box::new(Held { path, input, bytes: Vec::new() }));
            return Ok(());
        }
        let lines = Lines::open(&split, &self.folder, self.max_row)?;
        if let Reading::Records(records) = &mut self.reading {
            records.begin(lines.path(), split.start == 0 && split.done.is_none(), &self.columns)?;
        }
        self.state = State::Reading(Box::new(lines));
        Ok(())
    }

    /// Stops reading its split; gives what is left of it. `None`: it reads none, or a document, whose rows it holds.
    fn put_down(&mut self) -> Result<Option<Queued>, SourceError> {
        let left = match &self.state {
            State::Reading(lines) if lines.is_pipe() => return Err(taken(lines.path())),
            State::Opening(held) if held.input.is_pipe() => return Err(taken(&held.path)),
            State::Idle | State::Done | State::Giving(_) => None,
            State::Opening(_) => self.now.take(),
            State::Reading(lines) => {
                let (lines, now) = (lines.progress(), self.now.take());
                let done = match &self.reading {
                    Reading::Records(records) => records.progress(lines),
                    _ => lines,
                };
                now.map(|Queued { split, taken }| Queued {
                    split: Split { done: done.or(split.done), ..split },
                    taken,
                })
            }
        };
        if left.is_some() {
            self.state = State::Idle;
        }
        Ok(left)
    }

    /// What is to be read next, when a split has been read.
    fn go_on(&mut self) -> Result<Polled, SourceError> {
        Ok(match self.queue.pop_front() {
            Some(next) => {
                self.begin(next)?;
                Polled::Wait(Instant::now())
            }
            None if self.retiring => Polled::End,
            None => Polled::NeedSplit,
        })
    }

    /// Goes through at most `max_lines` lines of the split.
    fn read(&mut self, max_lines: usize) -> Result<Option<RecordBatch>, SourceError> {
        let State::Reading(lines) = &mut self.state else { return Ok(None) };
        let mut refused = Vec::new();
        let gathered = match &mut self.reading {
            Reading::Records(records) => records.read(lines, max_lines, &mut self.columns, &mut refused)?,
            reading => {
                let limits = Limits { lines: max_lines, row: self.max_row };
                read_lines(reading, lines, limits, self.encoding, &mut self.columns, &mut refused)?
            }
        };
        let mut batch = None;
        if self.columns.rows() > 0 {
            let (rows, misfits) = self.columns.finish()?;
            batch = Some(rows).filter(|rows| rows.num_rows() > 0);
            refused.extend(misfits.into_iter().map(|misfit| Refusal {
                line: misfit.line,
                reason: Rejected::BAD_LINE,
                why: misfit.why,
            }));
        }
        refused.sort_by_key(|refusal| refusal.line);
        let last = refused.len().saturating_sub(1);
        let first = self.rejected.first.is_none() || self.on_bad_line == BadLine::Fail;
        for (place, refusal) in refused.into_iter().enumerate() {
            // Only these are shown, and finding a line in the file may cost reading it again.
            if place == last || place == 0 && first {
                let place = lines.place(refusal.line, &mut self.counted)?;
                refuse(&mut self.rejected, self.on_bad_line, refusal.reason, place, refusal.why)?;
            } else {
                self.rejected.count(refusal.reason);
            }
        }
        if matches!(gathered, Gathered::All) {
            self.state = State::Idle;
        }
        Ok(batch)
    }

    /// Gives the next rows of a document.
    fn give(&mut self, max_rows: usize) -> Option<RecordBatch> {
        let State::Giving(rows) = &mut self.state else { return None };
        let total = rows.num_rows();
        let row_bytes = rows.get_array_memory_size() / total.max(1);
        let count = max_rows.min(BATCH_BYTES / row_bytes.max(1)).clamp(1, total);
        let batch = rows.slice(0, count);
        self.state =
            if count == total { State::Idle } else { State::Giving(rows.slice(count, total - count)) };
        Some(batch)
    }

    /// Reads on in a document, as far as a pipe gives it; `max_row` bounds it.
    fn hold(&mut self) -> Result<(), SourceError> {
        let State::Opening(held) = &mut self.state else { return Ok(()) };
        let Held { path, input, bytes } = &mut **held;
        while input.is_ready(path)? {
            let most = (self.max_row as u64 + 1).saturating_sub(bytes.len() as u64);
            let had = bytes.len();
            // Where a pipe is empty for now, what came before stays.
            match input.file().take(most).read_to_end(bytes) {
                Ok(_) => {
                    input.check(path)?;
                    let (path, bytes) = (std::mem::take(path), std::mem::take(bytes));
                    self.state = State::Idle;
                    return self.open_document(&path, &bytes);
                }
                Err(cause) if cause.kind() == ErrorKind::WouldBlock && bytes.len() > had => {}
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(cause) => return Err(SourceError::file("read", path, cause)),
            }
        }
        input.wait(path)
    }

    /// Turns a document into rows.
    fn open_document(&mut self, path: &Path, bytes: &[u8]) -> Result<(), SourceError> {
        let Reading::Document(objects) = &mut self.reading else { return Ok(()) };
        let place = |line: u64| format!("{}:{line}", path.display());
        if bytes.len() > self.max_row {
            let why = format!("a document {}; write it as jsonl, or raise `max_row`", too_long(self.max_row));
            return refuse(&mut self.rejected, self.on_bad_line, Rejected::TOO_LONG, place(1), why);
        }
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let unfit = match text::decode(bytes, self.encoding) {
            Ok(text) => objects.push_document(&text, &mut self.columns),
            Err(why) => vec![json::Unfit { line: 1, why }],
        };
        let (rows, misfits) = self.columns.finish()?;
        let misfits = misfits.into_iter().map(|misfit| (misfit.line, misfit.why));
        for (line, why) in unfit.into_iter().map(|unfit| (unfit.line, unfit.why)).chain(misfits) {
            refuse(&mut self.rejected, self.on_bad_line, Rejected::BAD_LINE, place(line), why)?;
        }
        if rows.num_rows() > 0 {
            self.state = State::Giving(rows);
        }
        Ok(())
    }
}

impl Source for Files {
    fn blocks(&self) -> bool {
        true
    }

    fn poll(&mut self, max_rows: usize) -> Result<Polled, SourceError> {
        match self.state {
            State::Idle => return self.go_on(),
            State::Done => return Ok(Polled::End),
            State::Opening(_) => {
                self.hold()?;
                return Ok(Polled::Wait(Instant::now()));
            }
            State::Reading(_) | State::Giving(_) => {}
        }
        let now = Instant::now();
        let due = match self.pace.due(max_rows.clamp(1, BATCH_ROWS), now) {
            Ok(due) => due,
            Err(next) => return Ok(Polled::Wait(next)),
        };
        let batch = match self.state {
            State::Giving(_) => self.give(due),
            _ => self.read(due)?,
        };
        Ok(match (batch, &self.state) {
            (Some(batch), _) => {
                self.pace.gave(batch.num_rows(), now);
                Polled::Rows(batch)
            }
            (None, State::Idle) => self.go_on()?,
            // Only blank or bad lines, or a part of a long one, or a pipe that nobody writes to: a step ends
            // all the same.
            (None, _) => {
                if let State::Reading(lines) = &mut self.state {
                    lines.wait()?;
                }
                Polled::Wait(now)
            }
        })
    }

    fn split(&mut self, split: Option<Split>) -> Result<(), SourceError> {
        if !matches!(self.state, State::Idle) {
            return Err(SourceError::Refused(
                "a split was given to a source that did not ask for one".to_owned(),
            ));
        }
        let Some(split) = split else {
            self.state = State::Done;
            return Ok(());
        };
        self.asks = true;
        self.begin(Queued { split, taken: false })
    }

    fn give_back(&mut self, clock: &DueClock) -> Result<Vec<SourceUnit>, SourceError> {
        let left = self.put_down()?;
        self.retiring = true;
        let mut paced = self.pace.kept(clock);
        let all = left.into_iter().chain(std::mem::take(&mut self.queue));
        let unit = |queued: Queued| SourceUnit { rest: Rest::Split(queued.split), paced: paced.take() };
        Ok(all.map(unit).collect())
    }

    fn take(&mut self, units: Vec<SourceUnit>, clock: &DueClock) -> Result<(), SourceError> {
        if units.is_empty() {
            return Ok(());
        }
        // What others have begun with comes first: event time waits for it.
        if let Some(own) = self.put_down()? {
            self.queue.push_front(own);
        }
        for SourceUnit { rest, paced } in units.into_iter().rev() {
            let Rest::Split(split) = rest else {
                return Err(SourceError::Refused("a source of files reads splits".to_owned()));
            };
            if let Some(paced) = paced {
                self.pace.go_on(paced, clock);
            }
            self.queue.push_front(Queued { split, taken: true });
        }
        if matches!(self.state, State::Done) {
            self.state = State::Idle;
        }
        Ok(())
    }

    fn unit(&self) -> Option<u32> {
        self.now.as_ref().filter(|now| now.taken).map(|now| now.split.number)
    }

    fn has(&self, unit: Option<u32>) -> bool {
        let reads = !matches!(self.state, State::Idle | State::Done);
        let mut all = self.now.iter().filter(|_| reads).chain(&self.queue);
        match unit {
            // Whichever it is given next.
            None => self.asks,
            Some(number) => all.any(|one| one.taken && one.split.number == number),
        }
    }

    fn schedule(&self, rows: usize) -> Option<Schedule> {
        self.pace.schedule(rows)
    }

    fn rejected(&self) -> &Rejected {
        &self.rejected
    }

    fn set(&mut self, option: &str, value: &serde_json::Value) -> Result<(), String> {
        self.pace.set(option, value)
    }
}

fn taken(pipe: &Path) -> SourceError {
    SourceError::Refused(format!(
        "{} is a pipe: what was read from it cannot be read again, so that only this instance can go on with it",
        pipe.display()
    ))
}

/// Bounds of one step.
#[derive(Clone, Copy)]
struct Limits {
    /// Lines to go through.
    lines: usize,
    /// Bytes of a row.
    row: usize,
}

/// Appends the rows of formats in which a line is a row.
fn read_lines(
    reading: &mut Reading,
    lines: &mut Lines,
    limits: Limits,
    encoding: Encoding,
    columns: &mut Columns,
    refused: &mut Vec<Refusal>,
) -> Result<Gathered, SourceError> {
    let from = lines.position().0;
    for _ in 0..limits.lines {
        let line = match lines.step()? {
            Step::Line(line, _) => line,
            Step::TooLong => {
                let why = too_long(limits.row);
                refused.push(Refusal { line: lines.number(), reason: Rejected::TOO_LONG, why });
                continue;
            }
            Step::Pending => break,
            Step::End => return Ok(Gathered::All),
        };
        let number = lines.number();
        let pushed = text::decode(lines.bytes(line), encoding).and_then(|text| match reading {
            Reading::Plain => {
                columns.push_texts(number, std::iter::once(Some(&*text)));
                Ok(())
            }
            // Blank lines mean nothing in these formats.
            _ if text.trim_ascii().is_empty() => Ok(()),
            Reading::Objects(objects) => objects.push(&text, number, columns),
            Reading::Pattern(pattern) => pattern.push(&text, number, columns),
            Reading::Records(_) | Reading::Document(_) => Ok(()),
        });
        if let Err(why) = pushed {
            refused.push(Refusal { line: number, reason: Rejected::BAD_LINE, why });
        }
        if columns.bytes() >= BATCH_BYTES || lines.position().0 - from >= 4 * BATCH_BYTES as u64 {
            break;
        }
    }
    Ok(Gathered::Some)
}

/// Counts a row that is left out, or fails, as the source says.
fn refuse(
    rejected: &mut Rejected,
    on_bad_line: BadLine,
    reason: &'static str,
    place: String,
    why: String,
) -> Result<(), SourceError> {
    match on_bad_line {
        BadLine::Fail => Err(SourceError::Row { place, why }),
        BadLine::Skip => {
            rejected.count(reason);
            rejected.show(&place, &why);
            Ok(())
        }
    }
}
