//! Aggregates: rows or partial results in, partial or final results out when the input has ended.

use std::collections::BTreeMap;

use tuplane_core::plan::Role;
use tuplane_expr::arrow::array::{RecordBatch, UInt16Array};
use tuplane_expr::{AggregateProgram, GroupTable, WhenEmpty};

use super::{DroppedRows, Operator, OperatorError};

/// One instance of an aggregate.
pub(crate) struct Aggregate {
    table: GroupTable,
    role: Role,
    ended: bool,
}

impl Aggregate {
    /// `alone`: no other instance of the vertex exists, so that an aggregate without a key gives
    /// its one row also when no row came.
    pub(crate) fn new(
        program: AggregateProgram,
        role: Role,
        partitions: u16,
        alone: bool,
    ) -> Result<Self, OperatorError> {
        let empty = if alone && role != Role::Prepare { WhenEmpty::OneRow } else { WhenEmpty::Nothing };
        Ok(Self { table: GroupTable::new(program, partitions, empty)?, role, ended: false })
    }
}

impl Operator for Aggregate {
    fn push(
        &mut self,
        _: usize,
        batch: RecordBatch,
        partitions: Option<&UInt16Array>,
    ) -> Result<(), OperatorError> {
        let _: () = match self.role {
            Role::Combine => self.table.merge(&batch, partitions)?,
            _ => self.table.update(&batch, partitions)?,
        };
        Ok(())
    }

    fn pull(&mut self, most_rows: usize, _: usize) -> Result<Option<RecordBatch>, OperatorError> {
        if !self.ended {
            return Ok(None);
        }
        let next = match self.role {
            Role::Prepare => self.table.emit_partial(most_rows),
            _ => self.table.emit_final(most_rows),
        };
        Ok(next.transpose()?)
    }

    fn end(&mut self) -> Result<(), OperatorError> {
        self.ended = true;
        Ok(())
    }

    fn take_dropped(&mut self) -> DroppedRows {
        match self.table.take_dropped().len() {
            0 => BTreeMap::new(),
            rows => BTreeMap::from([("expression".to_owned(), rows as u64)]),
        }
    }
}
