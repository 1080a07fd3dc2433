//! Aggregates: rows or partial results in, partial or final results out when the input has ended.

use std::collections::BTreeMap;

use tuplane_core::plan::Role;
use tuplane_expr::arrow::array::{RecordBatch, UInt16Array};
use tuplane_expr::system::Places;
use tuplane_expr::{AggregateProgram, GroupTable, Units, WhenEmpty};

use super::super::rows::own_bytes;
use super::{DROPPED_BY_EXPRESSION, DroppedRows, Operator, OperatorError, Remark};

/// Groups of a first piece, when the size of a result is not known.
const FIRST: usize = 64;

/// How many groups make the next piece of a result.
pub(super) struct Piece(usize);

impl Default for Piece {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Piece {
    /// Groups of the next piece, at most so many.
    pub(super) fn rows(&self, most_rows: usize) -> usize {
        self.0.min(most_rows)
    }

    /// A piece was given: the next has as many rows as would have fitted, but no more than twice as many, since
    /// results differ in size. One without rows says nothing of that: all its results were left out, or are yet to come.
    pub(super) fn gave(&mut self, piece: &RecordBatch, most_bytes: usize) {
        if piece.num_rows() == 0 {
            return;
        }
        let fitting = most_bytes as u64 * piece.num_rows() as u64 / own_bytes(piece).max(1);
        self.0 = (fitting as usize).clamp(1, piece.num_rows() * 2);
    }
}

/// One instance of an aggregate.
pub(crate) struct Aggregate {
    stage: String,
    table: GroupTable,
    role: Role,
    ended: bool,
    piece: Piece,
    remark: Option<Remark>,
}

impl Aggregate {
    /// `alone`: no other instance of the vertex exists, so that an aggregate without a key gives
    /// its one row also when no row came.
    pub(crate) fn new(
        stage: &str,
        program: AggregateProgram,
        role: Role,
        partitions: u16,
        alone: bool,
    ) -> Result<Self, OperatorError> {
        let empty = if alone && role != Role::Prepare { WhenEmpty::OneRow } else { WhenEmpty::Nothing };
        let table = GroupTable::new(program, partitions, empty)?;
        Ok(Self { stage: stage.to_owned(), table, role, ended: false, piece: Piece::default(), remark: None })
    }
}

impl Aggregate {
    /// Remembers the last row, of rows that entered there, that was left out or made null.
    fn note(&mut self, places: &Places) {
        if let Some(last) = self.table.take_last() {
            self.remark = Some(Remark::of(&self.stage, &last.message, places.of_row(last.row)));
        }
    }
}

impl Operator for Aggregate {
    fn push(
        &mut self,
        input: usize,
        batch: RecordBatch,
        partitions: Option<&UInt16Array>,
    ) -> Result<(), OperatorError> {
        if self.role == Role::Combine {
            return Ok(self.table.merge(&batch, partitions)?);
        }
        let places = Places::of(&batch);
        let taken = self.table.update_from(input, &batch, partitions);
        self.note(&places);
        taken.map_err(|error| OperatorError::of(&self.stage, error, &places))
    }

    fn pull(&mut self, most_rows: usize, most_bytes: usize) -> Result<Option<RecordBatch>, OperatorError> {
        if !self.ended {
            return Ok(None);
        }
        let rows = self.piece.rows(most_rows);
        let piece = match self.role {
            Role::Prepare => self.table.emit_partial(rows),
            _ => self.table.emit_final(rows),
        };
        self.note(&Places::default());
        let piece = piece.transpose()?;
        if let Some(piece) = &piece {
            self.piece.gave(piece, most_bytes);
        }
        Ok(piece)
    }

    fn end(&mut self) -> Result<(), OperatorError> {
        self.ended = true;
        Ok(())
    }

    fn units(&mut self) -> Option<&mut dyn Units> {
        Some(&mut self.table)
    }

    fn state_bytes(&self) -> usize {
        self.table.bytes()
    }

    fn take_dropped(&mut self) -> DroppedRows {
        match self.table.take_dropped().len() {
            0 => BTreeMap::new(),
            rows => BTreeMap::from([(DROPPED_BY_EXPRESSION.to_owned(), rows as u64)]),
        }
    }

    fn take_remark(&mut self) -> Option<Remark> {
        self.remark.take()
    }
}
