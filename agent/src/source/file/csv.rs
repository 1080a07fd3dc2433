//! csv: lines are joined to records where quotes hold line ends, then parsed a batch at a time.

use std::path::Path;

use ::csv::{ReaderBuilder, StringRecord, Terminator};
use tuplane_core::cluster::types::Progress;
use tuplane_core::job::{Encoding, FileSource};

use super::super::columns::Columns;
use super::super::splits::{csv_header, delimiter_byte};
use super::super::{BATCH_BYTES, Rejected, SourceError};
use super::lines::{LineEnd, Lines, Step};
use super::text::decode;

/// What a batch's worth of lines came to.
pub(super) enum Gathered {
    /// The lines that were asked for, or as many as there are for now.
    Some,
    /// No line is left in the split.
    All,
}

/// A line or record that was left out.
pub(super) struct Refusal {
    /// Line within the split.
    pub(super) line: u64,
    /// As [`Rejected`] counts it.
    pub(super) reason: &'static str,
    /// What is wrong with it.
    pub(super) why: String,
}

/// Where the scan of a record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quote {
    /// At a field's first byte: only here does a quote open.
    FieldStart,
    /// In or behind plain text.
    Unquoted,
    /// Within quotes.
    Quoted,
    /// Behind a quote within quotes: their end, or the first of two.
    Closing,
}

/// What a line did to the record in the making.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// Ended it (or was blank, or was refused).
    Whole,
    /// Left its quotes open.
    Open,
    /// Made it longer than a row may be.
    TooLong,
    /// Left its quotes open at the end of the file.
    Unclosed,
}

/// A record whose quotes go on behind a line end.
struct Open {
    line: u64,
    /// Where it begins.
    start: u64,
    /// Where reading goes on if the quotes turn out never to close.
    second_line: (u64, u64),
    state: Quote,
    /// The end of the last line that left them open, and, for a record that is closed and too long, where.
    until: u64,
    closes: Option<u64>,
}

/// How far it is known that quotes do not close. A scan that stands within quotes at a line end goes on from
/// there as any other does: what one came to holds for all records that are open at one of its line ends.
struct Endless {
    /// Every line that ends up to here leaves quotes open.
    until: u64,
    /// Where the next line, without its end, would close them; `None`: the file ends before.
    closes: Option<u64>,
    /// It was looked no further.
    unknown: bool,
}

/// Beyond a record that is given up it is looked for a closing quote at least so far, so that many stray
/// quotes share one look.
const LOOK: u64 = 1 << 20;

/// Reads records of a split.
pub(super) struct Records {
    delimiter: u8,
    encoding: Encoding,
    header: bool,
    quoted_newlines: bool,
    max_row: usize,
    /// Names by place where no header gives them.
    declared: Vec<String>,
    /// Place of each column in a record, and how many fields a record has.
    places: Vec<usize>,
    fields: usize,
    skip_header: bool,
    open: Option<Open>,
    endless: Option<Endless>,
    /// Bytes of the record in the making.
    record: Vec<u8>,
    /// Whole records, each with its line end; where each begins, and its line.
    chunk: String,
    starts: Vec<(usize, u64)>,
}

impl Records {
    /// As the source's options say.
    pub(super) fn new(source: &FileSource, columns: &Columns, max_row: usize) -> Result<Self, SourceError> {
        let declared: Vec<String> = if source.columns.is_empty() {
            columns.schema().fields().iter().map(|field| field.name().clone()).collect()
        } else {
            source.columns.iter().map(|(name, _)| name.value.clone()).collect()
        };
        let mut records = Self {
            delimiter: delimiter_byte(source.delimiter)?,
            encoding: source.encoding,
            header: source.header,
            quoted_newlines: source.quoted_newlines,
            max_row,
            declared: Vec::new(),
            places: Vec::new(),
            fields: 0,
            skip_header: false,
            open: None,
            endless: None,
            record: Vec::new(),
            chunk: String::new(),
            starts: Vec::new(),
        };
        if !source.header {
            records.place(&declared, columns, None)?;
        }
        records.declared = declared;
        Ok(records)
    }

    /// How far the records have been read, where lines have been given so far.
    pub(super) fn progress(&self, lines: Option<Progress>) -> Option<Progress> {
        match &self.open {
            // Only blank lines have come.
            _ if self.skip_header => None,
            // Its first line may be the first one of all.
            Some(open) if open.start == 0 => None,
            Some(open) => Some(Progress { offset: open.start, lines: open.line - 1 }),
            None => lines,
        }
    }

    /// Begins a split, perhaps at the start of its file.
    pub(super) fn begin(
        &mut self,
        path: &Path,
        at_start: bool,
        columns: &Columns,
    ) -> Result<(), SourceError> {
        self.open = None;
        self.endless = None;
        self.record.clear();
        self.skip_header = self.header && at_start;
        if self.header {
            let names = csv_header(path, char::from(self.delimiter))?;
            if !names.is_empty() {
                self.place(&names, columns, Some(path))?;
            }
        }
        Ok(())
    }

    fn place(&mut self, names: &[String], columns: &Columns, path: Option<&Path>) -> Result<(), SourceError> {
        let whose =
            || path.map_or("`columns`".to_owned(), |path| format!("{}:1: the header", path.display()));
        let place = |wanted: &String| {
            let mut places = (0..names.len()).filter(|place| names[*place] == *wanted);
            match (places.next(), places.next()) {
                (Some(place), None) => Ok(place),
                (Some(_), Some(_)) => {
                    Err(SourceError::Refused(format!("{} names the column `{wanted}` twice", whose())))
                }
                (None, _) => Err(SourceError::Refused(format!(
                    "{} has no column `{wanted}`; it has: {}",
                    whose(),
                    names.join(", ")
                ))),
            }
        };
        self.places =
            columns.schema().fields().iter().map(|field| place(field.name())).collect::<Result<_, _>>()?;
        self.fields = names.len();
        Ok(())
    }

    /// Goes through at most `max_lines` lines, and appends the rows of the records that end there.
    pub(super) fn read(
        &mut self,
        lines: &mut Lines,
        max_lines: usize,
        columns: &mut Columns,
        refused: &mut Vec<Refusal>,
    ) -> Result<Gathered, SourceError> {
        let mut gathered = Gathered::Some;
        for _ in 0..max_lines {
            match lines.step()? {
                Step::Line(line, end) => match self.take(lines.bytes(line), lines.position(), end, refused) {
                    Taken::Whole | Taken::Open => {}
                    Taken::TooLong => self.give_up(lines, Rejected::TOO_LONG, refused)?,
                    Taken::Unclosed => self.give_up(lines, Rejected::BAD_LINE, refused)?,
                },
                Step::TooLong if self.open.is_some() => {
                    // No record holds a line that is too long.
                    self.open.iter_mut().for_each(|open| open.closes = Some(u64::MAX));
                    self.give_up(lines, Rejected::TOO_LONG, refused)?;
                }
                Step::TooLong => {
                    self.skip_header = false;
                    refused.push(Refusal {
                        line: lines.number(),
                        reason: Rejected::TOO_LONG,
                        why: too_long(self.max_row),
                    });
                }
                Step::Pending => break,
                Step::End if self.open.is_some() => self.give_up(lines, Rejected::BAD_LINE, refused)?,
                Step::End => {
                    gathered = Gathered::All;
                    break;
                }
            }
            if self.chunk.len() >= BATCH_BYTES {
                break;
            }
        }
        self.parse(columns, refused);
        Ok(gathered)
    }

    /// Adds a line to the record in the making; `after` is where the next line begins.
    fn take(&mut self, line: &[u8], after: (u64, u64), end: LineEnd, refused: &mut Vec<Refusal>) -> Taken {
        if self.open.is_none() && line.is_empty() {
            return Taken::Whole;
        }
        let state = self.open.as_ref().map_or(Quote::FieldStart, |open| open.state);
        let state = scan(line, self.delimiter, state);
        let number = self.open.as_ref().map_or(after.1, |open| open.line);
        self.record.extend_from_slice(line);
        if state == Quote::Quoted {
            if !self.quoted_newlines {
                self.record.clear();
                self.skip_header = false;
                refused.push(Refusal {
                    line: number,
                    reason: Rejected::BAD_LINE,
                    why: "a quoted field does not end on its line (`quoted_newlines` is off)".to_owned(),
                });
                return Taken::Whole;
            }
            self.record.extend_from_slice(end.text().as_bytes());
            let start = after.0 - (self.record.len() as u64).min(after.0);
            let is_first = self.open.is_none();
            let open = self.open.get_or_insert(Open {
                line: number,
                start,
                second_line: after,
                state,
                until: after.0,
                closes: None,
            });
            (open.state, open.until) = (state, after.0);
            if is_first && let Some(reason) = self.is_endless(after.0) {
                return reason;
            }
            return match end {
                _ if self.record.len() > self.max_row => Taken::TooLong,
                LineEnd::File => Taken::Unclosed,
                LineEnd::Lf | LineEnd::CrLf => Taken::Open,
            };
        }
        if self.record.len() > self.max_row
            && let Some(open) = &mut self.open
        {
            open.closes = Some(open.start + self.record.len() as u64);
            return Taken::TooLong;
        }
        self.open = None;
        if std::mem::take(&mut self.skip_header) {
            self.record.clear();
            return Taken::Whole;
        }
        match decode(&self.record, self.encoding) {
            Ok(text) => {
                self.starts.push((self.chunk.len(), number));
                self.chunk.push_str(&text);
                self.chunk.push('\n');
            }
            Err(why) => refused.push(Refusal { line: number, reason: Rejected::BAD_LINE, why }),
        }
        self.record.clear();
        Taken::Whole
    }

    /// Whether an earlier look tells how a record ends whose first line, up to `end`, leaves quotes open.
    fn is_endless(&self, end: u64) -> Option<Taken> {
        let (endless, open) = (self.endless.as_ref()?, self.open.as_ref()?);
        let longest = |end: u64| end.saturating_sub(open.start) > self.max_row as u64;
        match endless.closes {
            _ if end > endless.until => None,
            _ if longest(endless.until) => Some(Taken::TooLong),
            Some(closes) => longest(closes).then_some(Taken::TooLong),
            None if endless.unknown => None,
            None => Some(Taken::Unclosed),
        }
    }

    /// Looks on for a closing quote behind a record that is given up.
    fn look_on(&mut self, lines: &mut Lines, open: &Open) -> Result<(), SourceError> {
        let (mut until, mut closes, mut unknown) = (open.until, open.closes, false);
        let far = until.saturating_add(LOOK.max(self.max_row as u64));
        while closes.is_none() {
            if until >= far {
                unknown = true;
                break;
            }
            match lines.step()? {
                Step::Line(line, end) => {
                    let after = lines.position().0;
                    if scan(lines.bytes(line), self.delimiter, Quote::Quoted) == Quote::Quoted {
                        until = after;
                    } else {
                        closes = Some(after - end.text().len() as u64);
                    }
                }
                // No record holds a line that is too long.
                Step::TooLong => closes = Some(u64::MAX),
                Step::Pending => {}
                Step::End => break,
            }
        }
        self.endless = Some(Endless { until, closes, unknown });
        Ok(())
    }

    /// Refuses the line in which an endless quote opened, and goes on with the next one: else a
    /// single stray quote would swallow the rest of the file.
    fn give_up(
        &mut self,
        lines: &mut Lines,
        reason: &'static str,
        refused: &mut Vec<Refusal>,
    ) -> Result<(), SourceError> {
        self.record.clear();
        self.skip_header = false;
        let Some(open) = self.open.take() else { return Ok(()) };
        let why = match reason {
            Rejected::TOO_LONG => {
                format!("with a quoted field that goes on over lines, {}", too_long(self.max_row))
            }
            _ => "a quoted field does not end before the file does".to_owned(),
        };
        refused.push(Refusal { line: open.line, reason, why });
        if lines.position() == open.second_line {
            return Ok(());
        }
        // A pipe cannot be read again, as the next call says.
        if !lines.is_pipe() {
            self.look_on(lines, &open)?;
        }
        lines.rewind(open.second_line)
    }

    /// Turns the gathered records into rows.
    fn parse(&mut self, columns: &mut Columns, refused: &mut Vec<Refusal>) {
        let mut reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(self.delimiter)
            .terminator(Terminator::Any(b'\n'))
            .from_reader(self.chunk.as_bytes());
        let mut record = StringRecord::new();
        loop {
            let read = reader.read_record(&mut record);
            let at = record.position().map_or(0, |position| position.byte() as usize);
            let place = self.starts.partition_point(|(start, _)| *start <= at).saturating_sub(1);
            let line = self.starts.get(place).map_or(0, |(_, line)| *line);
            match read {
                Ok(false) => break,
                Ok(true) if record.len() == self.fields => {
                    let start = self.starts.get(place).map_or(0, |(start, _)| *start);
                    let end = self.starts.get(place + 1).map_or(self.chunk.len(), |(start, _)| *start);
                    let raw = &self.chunk.as_bytes()[start..end];
                    // Only where there are quotes can an empty field be an empty text rather than no value.
                    let quoted = raw.contains(&b'"').then(|| quoted_fields(raw, self.delimiter));
                    columns.push_texts(
                        line,
                        self.places.iter().map(|place| {
                            let text = &record[*place];
                            let is_text =
                                quoted.as_ref().is_some_and(|quoted| quoted.get(*place) == Some(&true));
                            (!text.is_empty() || is_text).then_some(text)
                        }),
                    );
                }
                Ok(true) => refused.push(Refusal {
                    line,
                    reason: Rejected::BAD_LINE,
                    why: format!("{} fields where {} are expected", record.len(), self.fields),
                }),
                Err(cause) => {
                    refused.push(Refusal { line, reason: Rejected::BAD_LINE, why: cause.to_string() });
                }
            }
        }
        self.chunk.clear();
        self.starts.clear();
    }
}

/// Where a scan stands behind a line: the same rules as the parser's, in which a quote means something
/// only at a field's start.
pub(super) fn scan(line: &[u8], delimiter: u8, mut state: Quote) -> Quote {
    if state != Quote::Quoted && !line.contains(&b'"') {
        return Quote::Unquoted;
    }
    for byte in line {
        state = state.next(*byte, delimiter);
    }
    state
}

impl Quote {
    fn next(self, byte: u8, delimiter: u8) -> Self {
        match self {
            Self::Quoted if byte == b'"' => Self::Closing,
            Self::Quoted => Self::Quoted,
            Self::FieldStart | Self::Closing if byte == b'"' => Self::Quoted,
            _ if byte == delimiter => Self::FieldStart,
            _ => Self::Unquoted,
        }
    }
}

/// For each field of a record whether it is quoted.
fn quoted_fields(record: &[u8], delimiter: u8) -> Vec<bool> {
    let mut fields = Vec::new();
    let mut state = Quote::FieldStart;
    for byte in record {
        if state == Quote::FieldStart {
            fields.push(*byte == b'"');
        }
        state = state.next(*byte, delimiter);
    }
    fields
}

/// Why a row is refused for its length.
pub(super) fn too_long(max_row: usize) -> String {
    format!("longer than `max_row`, {max_row} bytes")
}
