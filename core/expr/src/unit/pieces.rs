//! From a unit to pieces of bytes, and back.

use datafusion_common::arrow::ipc::reader::StreamReader;
use datafusion_common::arrow::ipc::writer::StreamWriter;
use datafusion_common::arrow::record_batch::RecordBatch;

use super::piece::{HEADER, MOST_PIECE, Piece};
use super::{Home, State, StateOf, Unit, UnitError, misfit};

/// Pieces are about so large where rows allow it: whoever sends them has other things to send between two.
const USUAL: usize = 4 << 20;

/// Rows of a first piece are at most so many, since their size as bytes is not known.
const FIRST: usize = 8_192;

/// A piece has at most so many times the rows of the one before.
const GROWTH: usize = 4;

/// The pieces of a unit, each made when it is asked for, of at most [`MOST_PIECE`] bytes. There is one at least. A
/// row that is larger by itself goes over several.
///
/// A piece that cannot be made leaves the unit as it was: [`Pieces::into_unit`] gives it back.
#[derive(Debug)]
pub struct Pieces {
    unit: Unit,
    of: StateOf,
    /// The first row that is in no piece yet.
    row: usize,
    /// Rows of the next piece.
    fit: usize,
    number: u32,
    /// The rest of a body that is too long for a piece.
    rest: Vec<u8>,
    sent: usize,
    done: bool,
}

impl Pieces {
    pub(super) fn new(unit: Unit, of: StateOf) -> Self {
        let per_row = unit.bytes() / unit.rows().max(1);
        let fit = (USUAL / per_row.max(1)).clamp(1, FIRST);
        Self { unit, of, row: 0, fit, number: 0, rest: Vec::new(), sent: 0, done: false }
    }

    /// Of which partition.
    pub fn partition(&self) -> u16 {
        self.unit.partition()
    }

    /// The unit, whole, whatever pieces of it have been made.
    pub fn into_unit(self) -> Unit {
        self.unit
    }

    /// The most bytes of a body.
    fn room(&self) -> usize {
        let mut name = Vec::new();
        self.of.encode(&mut name);
        MOST_PIECE.saturating_sub(HEADER + name.len()).max(1)
    }

    /// The next rows as an Arrow stream; empty if there is none.
    fn body(&mut self) -> Result<Vec<u8>, UnitError> {
        let left = self.unit.rows() - self.row;
        if left == 0 {
            return Ok(Vec::new());
        }
        let mut rows = self.fit.min(left);
        let body = loop {
            let body = encoded(&self.unit.state.save(self.row..self.row + rows)?)?;
            if body.len() <= self.room() || rows == 1 {
                break body;
            }
            rows = (rows / 2).max(1);
        };
        self.row += rows;
        let fit = USUAL as u64 * rows as u64 / (body.len() as u64).max(1);
        self.fit = (fit as usize).clamp(1, rows * GROWTH);
        Ok(body)
    }

    fn make(&mut self) -> Result<Vec<u8>, UnitError> {
        if self.sent == self.rest.len() {
            self.rest = self.body()?;
            self.sent = 0;
        }
        let end = self.rest.len().min(self.sent + self.room());
        let continues = end < self.rest.len();
        let last = !continues && self.row == self.unit.rows();
        let piece = Piece {
            home: self.unit.home,
            number: self.number,
            last,
            continues,
            watermark: self.unit.watermark,
            answers: self.unit.answers,
            body: &self.rest[self.sent..end],
        };
        let bytes = piece.encode(&self.of);
        (self.sent, self.done) = (end, last);
        self.number += 1;
        Ok(bytes)
    }
}

impl Iterator for Pieces {
    type Item = Result<Vec<u8>, UnitError>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.done).then(|| self.make().inspect_err(|_| self.done = true))
    }
}

fn encoded(rows: &RecordBatch) -> Result<Vec<u8>, UnitError> {
    let mut writer = StreamWriter::try_new(Vec::new(), rows.schema_ref())?;
    writer.write(rows)?;
    Ok(writer.into_inner()?)
}

/// Makes an empty state, which pieces are loaded into.
type Blank = Box<dyn Fn() -> Result<Box<dyn State>, UnitError> + Send>;

/// Makes units of pieces, one after another. Pieces come in their order; what is wrong with one of them undoes those
/// before it of the same unit.
pub struct Loader {
    of: StateOf,
    partitions: u16,
    blank: Blank,
    begun: Option<Begun>,
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader").field("of", &self.of).finish_non_exhaustive()
    }
}

struct Begun {
    unit: Unit,
    next: u32,
    /// Of a body that goes on in the next piece.
    body: Vec<u8>,
}

impl Loader {
    /// For a table of so many partitions.
    pub(crate) fn new<S: State>(
        of: StateOf,
        partitions: u16,
        blank: impl Fn() -> Result<S, UnitError> + Send + 'static,
    ) -> Self {
        let blank = move || Ok(Box::new(blank()?) as Box<dyn State>);
        Self { of, partitions, blank: Box::new(blank), begun: None }
    }

    /// Takes the next piece in; gives the unit whose last one it was.
    pub fn load(&mut self, piece: &[u8]) -> Result<Option<Unit>, UnitError> {
        // Whatever comes of an error, nothing is left half done.
        let begun = self.begun.take();
        let piece = Piece::decode(piece, &self.of)?;
        let mut begun = match begun {
            None if piece.number == 0 => self.begin(&piece)?,
            Some(begun) if begun.unit.home == piece.home && begun.next == piece.number => begun,
            begun => {
                let wanted = begun.map_or("the first one of a unit".to_owned(), |begun| {
                    format!("piece {} of partition {}", begun.next, begun.unit.home.partition)
                });
                return Err(UnitError::Order {
                    partition: piece.home.partition,
                    found: piece.number,
                    wanted,
                });
            }
        };
        begun.next += 1;
        if piece.continues || !begun.body.is_empty() {
            begun.body.extend(piece.body);
            if !piece.continues {
                let body = std::mem::take(&mut begun.body);
                begun.take_in(&body)?;
            }
        } else if !piece.body.is_empty() {
            begun.take_in(piece.body)?;
        }
        if piece.last && !piece.continues {
            return Ok(Some(begun.unit));
        }
        self.begun = Some(begun);
        Ok(None)
    }

    fn begin(&self, piece: &Piece<'_>) -> Result<Begun, UnitError> {
        let Home { partition, partitions } = piece.home;
        if partitions != self.partitions || partition >= partitions {
            let why = format!("of {partitions} came where there are {}", self.partitions);
            return Err(UnitError::misplaced(partition, why));
        }
        let unit = Unit {
            home: piece.home,
            watermark: piece.watermark,
            answers: piece.answers,
            state: (self.blank)()?,
        };
        Ok(Begun { unit, next: 0, body: Vec::new() })
    }
}

impl Begun {
    fn take_in(&mut self, body: &[u8]) -> Result<(), UnitError> {
        let reader = StreamReader::try_new(body, None)?;
        let wanted = self.unit.state.columns();
        let same = |(a, b): (&datafusion_common::arrow::datatypes::FieldRef, _)| {
            let b: &datafusion_common::arrow::datatypes::FieldRef = b;
            a.name() == b.name() && a.data_type() == b.data_type()
        };
        let found = reader.schema();
        if found.fields().len() != wanted.fields().len()
            || !found.fields().iter().zip(wanted.fields()).all(same)
        {
            return Err(misfit("a piece of state has other columns than the state here".to_owned()).into());
        }
        for rows in reader {
            self.unit.state.load(&rows?, self.unit.home)?;
        }
        Ok(())
    }
}
