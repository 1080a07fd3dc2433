//! Aggregates by window: results when the watermark has passed a window's end, and early ones by the clock.

use std::time::{Duration, Instant};

use tuplane_core::plan::Role;
use tuplane_core::time::{DROPPED_AS_LATE, DROPPED_PARTS_AS_LATE};
use tuplane_expr::arrow::array::{RecordBatch, UInt16Array};
use tuplane_expr::system::Places;
use tuplane_expr::{Units, WindowPart, WindowProgram, WindowTable};

use super::aggregate::Piece;
use super::{DROPPED_BY_EXPRESSION, DroppedRows, Operator, OperatorError, Remark};

/// One instance of it.
pub(crate) struct Windowed {
    stage: String,
    table: WindowTable,
    part: WindowPart,
    early: Option<Early>,
    piece: Piece,
    remark: Option<Remark>,
}

/// When results are given that are not final.
struct Early {
    every: Duration,
    next: Instant,
}

impl Windowed {
    pub(crate) fn new(
        stage: &str,
        program: WindowProgram,
        role: Role,
        partitions: u16,
    ) -> Result<Self, OperatorError> {
        let part = match role {
            Role::Prepare => WindowPart::Prepare,
            Role::Combine => WindowPart::Combine,
            _ => WindowPart::Whole,
        };
        let early = program.early().filter(|_| part == WindowPart::Whole);
        let early = early.map(|every| Early { every, next: Instant::now() + every });
        let table = WindowTable::new(program, partitions, part)?;
        Ok(Self { stage: stage.to_owned(), table, part, early, piece: Piece::default(), remark: None })
    }

    /// Remembers the last row, of rows that entered there, that was left out or made null.
    fn note(&mut self, places: &Places) {
        let last = self.table.take_last_late();
        if let Some(last) = self.table.take_last().or(last) {
            self.remark = Some(Remark::of(&self.stage, &last.message, places.of_row(last.row)));
        }
    }
}

impl Operator for Windowed {
    fn push(
        &mut self,
        input: usize,
        batch: RecordBatch,
        partitions: Option<&UInt16Array>,
    ) -> Result<(), OperatorError> {
        let places = Places::of(&batch);
        let taken = match self.part {
            WindowPart::Combine => self.table.merge(&batch, partitions),
            WindowPart::Whole | WindowPart::Prepare => self.table.update_from(input, &batch, partitions),
        };
        self.note(&places);
        taken.map_err(|error| OperatorError::of(&self.stage, error, &places))
    }

    fn pull(&mut self, most_rows: usize, most_bytes: usize) -> Result<Option<RecordBatch>, OperatorError> {
        let piece = self.table.emit(self.piece.rows(most_rows)).transpose()?;
        self.note(&Places::default());
        if let Some(piece) = &piece {
            self.piece.gave(piece, most_bytes);
        }
        Ok(piece)
    }

    fn watermark(&mut self, time: i64) -> Result<(), OperatorError> {
        self.table.advance(time);
        Ok(())
    }

    fn idle(&mut self) -> Result<(), OperatorError> {
        if self.part == WindowPart::Prepare {
            // Who combines does not wait for it any more: what it holds has to be there before.
            self.table.give_open();
        }
        Ok(())
    }

    fn holds_results(&self) -> bool {
        self.table.holds()
    }

    fn end(&mut self) -> Result<(), OperatorError> {
        self.table.advance(i64::MAX);
        Ok(())
    }

    fn units(&mut self) -> Option<&mut dyn Units> {
        Some(&mut self.table)
    }

    fn state_bytes(&self) -> usize {
        self.table.bytes()
    }

    fn next_tick(&self) -> Option<Instant> {
        self.early.as_ref().map(|early| early.next)
    }

    fn tick(&mut self, now: Instant, _: bool) -> Result<(), OperatorError> {
        if let Some(early) = self.early.as_mut().filter(|early| early.next <= now) {
            // What a busy instance has missed is not made up for.
            early.next = now + early.every;
            self.table.give_early();
        }
        Ok(())
    }

    fn take_dropped(&mut self) -> DroppedRows {
        let (late, expression) = (self.table.take_late(), self.table.take_dropped().len() as u64);
        let reason = if self.part == WindowPart::Combine { DROPPED_PARTS_AS_LATE } else { DROPPED_AS_LATE };
        let all = [(reason, late), (DROPPED_BY_EXPRESSION, expression)];
        all.into_iter()
            .filter(|(_, rows)| *rows > 0)
            .map(|(reason, rows)| (reason.to_owned(), rows))
            .collect()
    }

    fn take_remark(&mut self) -> Option<Remark> {
        self.remark.take()
    }
}

#[cfg(test)]
mod tests;
