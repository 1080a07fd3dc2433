//! Rolling aggregates, stateful stages and distincts: every row is answered by what its key has seen so far.

use tuplane_expr::arrow::array::{RecordBatch, UInt16Array};
use tuplane_expr::system::Places;
use tuplane_expr::{
    Advanced, DistinctTable, Dropped, EvalError, Program, RollingTable, StatefulTable, Units, UnnestState,
    rows_within,
};

use super::{DROPPED_BY_EXPRESSION, DroppedRows, Operator, OperatorError, Remark};
use crate::engine::rows::own_bytes;

/// Rows of the first piece of input that is worked on: what becomes of a row can be much larger than the row.
const FIRST: usize = 256;
/// A piece has at most so many times the rows of the one before.
const GROWTH: usize = 4;

/// One instance of a rolling aggregate, a stateful stage or a distinct.
pub(crate) struct Keyed {
    stage: String,
    table: Table,
    /// Input that is yet to be worked on, and the number of its first row in its batch.
    waiting: Option<(RecordBatch, Option<UInt16Array>, usize)>,
    places: Places,
    made: Option<Made>,
    /// Rows of the next piece of input.
    piece: usize,
    ended: bool,
    dropped: u64,
    remark: Option<Remark>,
}

enum Table {
    Rolling(RollingTable),
    Stateful(StatefulTable),
    Distinct(DistinctTable),
}

/// Output that has not been pulled.
enum Made {
    Rows(RecordBatch),
    Unnest(Box<UnnestState>),
}

impl Table {
    fn advance(&mut self, batch: &RecordBatch, partitions: Option<&UInt16Array>) -> Result<Made, EvalError> {
        Ok(match self {
            Self::Rolling(table) => Made::Rows(table.advance(batch, partitions)?),
            Self::Distinct(table) => Made::Rows(table.advance(batch, partitions)?),
            Self::Stateful(table) => match table.advance(batch, partitions)? {
                Advanced::Rows(rows) => Made::Rows(rows),
                Advanced::Unnest(state) => Made::Unnest(state),
            },
        })
    }

    fn take_dropped(&mut self) -> Vec<Dropped> {
        match self {
            Self::Rolling(table) => table.take_dropped(),
            Self::Stateful(table) => table.take_dropped(),
            Self::Distinct(table) => table.take_dropped(),
        }
    }

    fn take_last(&mut self) -> Option<Dropped> {
        match self {
            Self::Rolling(table) => table.take_last(),
            Self::Stateful(table) => table.take_last(),
            Self::Distinct(table) => table.take_last(),
        }
    }
}

impl Keyed {
    pub(crate) fn new(stage: &str, program: &Program, partitions: u16) -> Result<Self, OperatorError> {
        let table = match program {
            Program::Rolling(program) => Table::Rolling(RollingTable::new(program.clone(), partitions)?),
            Program::Stateful(program) => Table::Stateful(StatefulTable::new(program.clone(), partitions)?),
            Program::Distinct(program) => Table::Distinct(DistinctTable::new(program.clone(), partitions)?),
            _ => return Err(OperatorError::Other("this stage keeps no state by key".to_owned())),
        };
        Ok(Self {
            stage: stage.to_owned(),
            table,
            waiting: None,
            places: Places::default(),
            made: None,
            piece: FIRST,
            ended: false,
            dropped: 0,
            remark: None,
        })
    }

    /// Works on the next rows of the input; false if there are none.
    fn advance(&mut self, most_rows: usize, most_bytes: usize) -> Result<bool, OperatorError> {
        let Some((batch, partitions, first)) = self.waiting.take() else { return Ok(false) };
        let count = self.piece.min(most_rows).clamp(1, batch.num_rows().max(1)).min(batch.num_rows());
        let rows = batch.slice(0, count);
        let ids = partitions.as_ref().map(|ids| ids.slice(0, count));
        let made = self.table.advance(&rows, ids.as_ref());
        self.dropped += self.table.take_dropped().len() as u64;
        if let Some(last) = self.table.take_last() {
            let place = self.places.of_row(first + last.row);
            self.remark = Some(Remark::of(&self.stage, &last.message, place));
        }
        let made = made.map_err(|error| {
            let error = EvalError { row: error.row.map(|row| first + row), ..error };
            OperatorError::of(&self.stage, error, &self.places)
        })?;
        if count < batch.num_rows() {
            let left = batch.num_rows() - count;
            let ids = partitions.map(|ids| ids.slice(count, left));
            self.waiting = Some((batch.slice(count, left), ids, first + count));
        }
        let fits = match &made {
            Made::Rows(rows) if rows.num_rows() > 0 => {
                most_bytes / (own_bytes(rows) as usize).div_ceil(rows.num_rows()).max(1)
            }
            _ => most_rows,
        };
        self.piece = fits.min(self.piece * GROWTH).clamp(1, most_rows.max(1));
        self.made = Some(made);
        Ok(true)
    }
}

impl Operator for Keyed {
    fn push(
        &mut self,
        _: usize,
        batch: RecordBatch,
        partitions: Option<&UInt16Array>,
    ) -> Result<(), OperatorError> {
        self.places = Places::of(&batch);
        self.waiting = Some((batch, partitions.cloned(), 0));
        Ok(())
    }

    fn pull(&mut self, most_rows: usize, most_bytes: usize) -> Result<Option<RecordBatch>, OperatorError> {
        loop {
            match self.made.take() {
                Some(Made::Rows(rows)) if rows.num_rows() > 0 => {
                    let count = rows_within(&rows, most_rows, most_bytes);
                    if count < rows.num_rows() {
                        self.made = Some(Made::Rows(rows.slice(count, rows.num_rows() - count)));
                    }
                    return Ok(Some(rows.slice(0, count)));
                }
                Some(Made::Unnest(mut state)) => {
                    if let Some(rows) = state.next(most_rows, most_bytes) {
                        self.made = Some(Made::Unnest(state));
                        return Ok(Some(rows?));
                    }
                }
                _ => {}
            }
            if !self.advance(most_rows, most_bytes)? {
                return Ok(None);
            }
        }
    }

    fn watermark(&mut self, time: i64) -> Result<(), OperatorError> {
        match &mut self.table {
            Table::Rolling(_) | Table::Distinct(_) => Ok(()),
            Table::Stateful(table) => Ok(table.expire(time)?),
        }
    }

    fn end(&mut self) -> Result<(), OperatorError> {
        self.ended = true;
        Ok(())
    }

    fn units(&mut self) -> Option<&mut dyn Units> {
        Some(match &mut self.table {
            Table::Rolling(table) => table.units(),
            Table::Stateful(table) => table,
            Table::Distinct(table) => table,
        })
    }

    fn state_bytes(&self) -> usize {
        match &self.table {
            // No row will come that asks for it.
            _ if self.ended => 0,
            Table::Rolling(table) => table.bytes(),
            Table::Stateful(table) => table.bytes(),
            Table::Distinct(table) => table.bytes(),
        }
    }

    fn take_dropped(&mut self) -> DroppedRows {
        match std::mem::take(&mut self.dropped) {
            0 => DroppedRows::new(),
            rows => DroppedRows::from([(DROPPED_BY_EXPRESSION.to_owned(), rows)]),
        }
    }

    fn take_remark(&mut self) -> Option<Remark> {
        self.remark.take()
    }
}
