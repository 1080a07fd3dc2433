//! The lines of a split, read block by block; a line that is too long is passed over, never held.

use std::io::{BufRead, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use tuplane_core::cluster::types::Progress;
use tuplane_wire::message::Split;

use super::super::SourceError;
use super::input::Input;

/// Bytes per read.
const BLOCK: usize = 256 << 10;
/// Blocks per call without a line: a call stays short however long a line is.
const BLOCKS: usize = 4;
/// A file is read again up to here, and no further, to find out a line's number: some seconds.
const MOST_COUNTED: u64 = 1 << 30;
const BOM: &[u8] = b"\xef\xbb\xbf";

/// What ended a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEnd {
    /// A line feed.
    Lf,
    /// Carriage return and line feed.
    CrLf,
    /// The end of the file.
    File,
}

impl LineEnd {
    /// As it stands in the file.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Lf => "\n",
            Self::CrLf => "\r\n",
            Self::File => "",
        }
    }
}

/// One step through a split.
#[derive(Debug)]
pub(super) enum Step {
    /// A line: its bytes (see [`Lines::bytes`]), without what ended it.
    Line(Range<usize>, LineEnd),
    /// A line over `max_row` was passed over.
    TooLong,
    /// Nothing yet: the line goes on, or a pipe's writer has written no more.
    Pending,
    /// No line is left.
    End,
}

/// Why bytes are being passed over up to the next line end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passing {
    /// They are not: a line begins at `start`.
    No,
    /// They belong to the split before.
    Foreign,
    /// They belong to a line that is too long.
    TooLong,
}

/// The lines of a file that stand before a split's own, counted as for a bad line of it. `None` where that
/// would take too long or the file cannot be read any more.
pub(crate) fn lines_before(split: &Split, folder: &Path) -> Option<u64> {
    if split.start > MOST_COUNTED {
        return None;
    }
    let from_its_start = Split { done: None, ..split.clone() };
    let mut lines = Lines::open(&from_its_start, folder, usize::MAX / 2).ok()?;
    // The first step finds where the split's own lines begin.
    while lines.passing == Passing::Foreign && !matches!(lines.step().ok()?, Step::End) {}
    lines.in_file(0, &mut Counted::default()).ok()?
}

/// How many lines stand before some place in a file. The next place in it is counted from there, so that a file of
/// many splits is read once more at most.
#[derive(Debug, Default)]
pub(super) struct Counted {
    path: PathBuf,
    offset: u64,
    lines: u64,
    /// Bytes read.
    #[cfg(test)]
    pub(super) read: u64,
}

impl Counted {
    /// The lines before `offset`; `None` where that is further into the file than is read again.
    pub(super) fn before(&mut self, path: &Path, offset: u64) -> std::io::Result<Option<u64>> {
        if offset > MOST_COUNTED {
            return Ok(None);
        }
        if self.path != path || self.offset > offset {
            (self.path, self.offset, self.lines) = (path.to_owned(), 0, 0);
        }
        let mut file = std::fs::File::open(path)?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut file = file.take(offset - self.offset);
        let mut block = vec![0; BLOCK];
        loop {
            match file.read(&mut block) {
                Ok(0) => return Ok(Some(self.lines)),
                Ok(read) => {
                    self.offset += read as u64;
                    self.lines += block[..read].iter().map(|byte| u64::from(*byte == b'\n')).sum::<u64>();
                    #[cfg(test)]
                    {
                        self.read += read as u64;
                    }
                }
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        }
    }
}

/// Reads the lines that begin in a split.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    file: Input,
    buffer: Vec<u8>,
    /// Where the rest of the buffer begins that was not given yet.
    start: usize,
    /// Up to here the buffer holds no line end.
    scanned: usize,
    /// Offset in the file of `buffer[start]`.
    position: u64,
    /// Lines that begin here or later are the next split's.
    end: u64,
    at_end: bool,
    passing: Passing,
    /// Lines given so far.
    number: u64,
    max_row: usize,
    /// Where counting of lines starts in the file, and the number of the line before.
    split_start: u64,
    before: u64,
    /// Where the line begins that is being passed over since it is too long.
    long: u64,
    /// Bytes read, again ones included.
    #[cfg(test)]
    pub(super) read: u64,
}

impl Lines {
    /// Opens a split.
    pub(super) fn open(split: &Split, folder: &Path, max_row: usize) -> Result<Self, SourceError> {
        let path = folder.join(&split.path);
        let mut file = Input::open(&path, split.seen)?;
        // A line that begins at `start` itself is ours, and only the byte before it tells. Where somebody has read
        // on before, one begins at that very place.
        let position = split.done.map_or(split.start.saturating_sub(1), |done| done.offset);
        if position > 0 {
            file.file()
                .seek(SeekFrom::Start(position))
                .map_err(|cause| SourceError::file("seek in", &path, cause))?;
        }
        let foreign = split.start > 0 && split.done.is_none();
        let passing = if foreign { Passing::Foreign } else { Passing::No };
        let before = split.done.map_or(0, |done| done.lines);
        Ok(Self {
            path,
            file,
            buffer: Vec::with_capacity(2 * BLOCK),
            start: 0,
            scanned: 0,
            position,
            end: split.end,
            at_end: false,
            passing,
            number: before,
            max_row,
            split_start: split.done.map_or(split.start, |done| done.offset),
            before,
            long: 0,
            #[cfg(test)]
            read: 0,
        })
    }

    /// Goes on to the next line.
    pub(super) fn step(&mut self) -> Result<Step, SourceError> {
        let mut blocks = 0;
        loop {
            if self.passing != Passing::TooLong && self.position >= self.end {
                self.file.check(&self.path)?;
                return Ok(Step::End);
            }
            if let Some(line) = self.find_line() {
                match self.passing {
                    Passing::Foreign => {
                        self.passing = Passing::No;
                        self.split_start = self.position;
                        continue;
                    }
                    Passing::TooLong => self.passing = Passing::No,
                    Passing::No if line.len() <= self.max_row + 1 => {
                        let crlf = self.buffer[line.clone()].ends_with(b"\r");
                        let (end, kind) =
                            if crlf { (line.end - 1, LineEnd::CrLf) } else { (line.end, LineEnd::Lf) };
                        if end - line.start <= self.max_row {
                            self.number += 1;
                            return Ok(Step::Line(line.start..end, kind));
                        }
                    }
                    Passing::No => {}
                }
                self.number += 1;
                return Ok(Step::TooLong);
            }
            if self.passing == Passing::No && self.buffer.len() - self.start > self.max_row + 1 {
                (self.passing, self.long) = (Passing::TooLong, self.position);
            }
            if self.passing != Passing::No {
                self.position += (self.buffer.len() - self.start) as u64;
                self.buffer.clear();
                (self.start, self.scanned) = (0, 0);
            }
            if self.at_end {
                let last = self.last_line();
                if matches!(last, Step::End) {
                    self.file.check(&self.path)?;
                }
                return Ok(last);
            }
            if blocks == BLOCKS {
                return Ok(Step::Pending);
            }
            blocks += 1;
            if !self.fill()? {
                return Ok(Step::Pending);
            }
        }
    }

    /// Waits a moment for a pipe's writer, where the last step found nothing to read. A call is short, so
    /// that whoever ends the job is heard.
    pub(super) fn wait(&mut self) -> Result<(), SourceError> {
        self.file.wait(&self.path)
    }

    /// It cannot be read twice.
    pub(super) fn is_pipe(&self) -> bool {
        self.file.is_pipe()
    }

    /// The bytes of the line that the last step gave.
    pub(super) fn bytes(&self, line: Range<usize>) -> &[u8] {
        &self.buffer[line]
    }

    /// Number within the split of the line that the last step gave, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Where the next line begins: a place for [`Lines::rewind`].
    pub(super) fn position(&self) -> (u64, u64) {
        (self.position, self.number)
    }

    /// How far the lines have been given; `None` if none has.
    pub(super) fn progress(&self) -> Option<Progress> {
        let offset = match self.passing {
            Passing::Foreign => return None,
            // It is counted by whoever reads it to its end.
            Passing::TooLong => self.long,
            Passing::No => self.position,
        };
        (self.number > 0).then_some(Progress { offset, lines: self.number })
    }

    /// Goes back to an earlier place.
    pub(super) fn rewind(&mut self, (position, number): (u64, u64)) -> Result<(), SourceError> {
        self.file
            .file()
            .seek(SeekFrom::Start(position))
            .map_err(|cause| SourceError::file("seek in", &self.path, cause))?;
        self.buffer.clear();
        (self.start, self.scanned, self.at_end, self.passing) = (0, 0, false, Passing::No);
        (self.position, self.number) = (position, number);
        Ok(())
    }

    /// `file:line` of a line of this split.
    pub(super) fn place(&self, number: u64, counted: &mut Counted) -> Result<String, SourceError> {
        let (path, start) = (self.path.display(), self.split_start);
        Ok(match self.in_file(number, counted)? {
            Some(line) => format!("{path}:{line}"),
            None => format!("{path}, line {} after byte {start}", number - self.before),
        })
    }

    /// The number in its file of a line of this split, unless it is too far into it.
    fn in_file(&self, number: u64, counted: &mut Counted) -> Result<Option<u64>, SourceError> {
        let before = match self.split_start {
            // A pipe cannot be opened again.
            0 => Some(0),
            start => counted
                .before(&self.path, start)
                .map_err(|cause| SourceError::file("read", &self.path, cause))?,
        };
        Ok(before.map(|before| before + number - self.before))
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The next complete line in the buffer, which then counts as given.
    fn find_line(&mut self) -> Option<Range<usize>> {
        let mut rest = &self.buffer[self.scanned..];
        // On a slice this cannot fail and is the platform's memchr.
        let passed = rest.skip_until(b'\n').unwrap_or(0);
        let end = self.scanned + passed;
        self.scanned = end;
        if passed == 0 || self.buffer[end - 1] != b'\n' {
            return None;
        }
        let line = self.start..end - 1;
        self.position += (end - self.start) as u64;
        self.start = end;
        Some(line)
    }

    /// What is left when the file has ended.
    fn last_line(&mut self) -> Step {
        let line = self.start..self.buffer.len();
        let passed = std::mem::replace(&mut self.passing, Passing::No);
        match passed {
            Passing::TooLong => {}
            Passing::Foreign => return Step::End,
            Passing::No if line.is_empty() => return Step::End,
            Passing::No => {
                self.position += line.len() as u64;
                (self.start, self.scanned) = (line.end, line.end);
                if line.len() <= self.max_row {
                    self.number += 1;
                    return Step::Line(line, LineEnd::File);
                }
            }
        }
        self.number += 1;
        Step::TooLong
    }

    /// Reads a block; drops what was given. False where a pipe has nothing yet.
    fn fill(&mut self) -> Result<bool, SourceError> {
        self.buffer.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        let at_file_start = self.position == 0 && self.buffer.is_empty();
        loop {
            if !self.file.is_ready(&self.path)? {
                return Ok(false);
            }
            let held = self.buffer.len();
            self.buffer.resize(held + BLOCK, 0);
            let read = self.file.file().read(&mut self.buffer[held..]);
            self.buffer.truncate(held + read.as_ref().map_or(0, |read| *read));
            match read {
                Ok(0) => self.at_end = true,
                Ok(_) => {}
                Err(cause) if cause.kind() == ErrorKind::Interrupted => continue,
                // Another reader of the pipe was faster.
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(cause) => return Err(SourceError::file("read", &self.path, cause)),
            }
            #[cfg(test)]
            {
                self.read += (self.buffer.len() - held) as u64;
            }
            if self.at_end || !at_file_start || self.buffer.len() >= BOM.len() {
                break;
            }
        }
        if at_file_start && self.passing == Passing::No && self.buffer.starts_with(BOM) {
            (self.start, self.scanned) = (BOM.len(), BOM.len());
            self.position = BOM.len() as u64;
            // The first line began with the mark, so it is this split's even if that ends within the mark.
            self.end = self.end.max(self.position + 1);
        }
        Ok(true)
    }
}
