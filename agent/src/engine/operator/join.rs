//! Joins: a collector on each agent makes a table of an enriching input, and the joiners there share it.

use std::sync::{Arc, OnceLock};

use tuplane_expr::arrow::array::{RecordBatch, UInt16Array};
use tuplane_expr::system::Places;
use tuplane_expr::{JoinBuilder, JoinProgram, JoinRun, JoinTable};

use super::{DROPPED_BY_EXPRESSION, DroppedRows, Operator, OperatorError, Remark};

/// Where a collector leaves its table for the joiners of its agent. They look into it when its input, which is
/// read before the other one, has ended.
pub(crate) type TableSlot = Arc<OnceLock<Arc<JoinTable>>>;

/// Takes in the rows of an enriching input. It sends none on.
pub(crate) struct Collector {
    stage: String,
    /// Until the input has ended.
    builder: Option<JoinBuilder>,
    slot: TableSlot,
    dropped: u64,
    remark: Option<Remark>,
}

impl Collector {
    /// Of the enriching input with this number, from 0.
    pub(crate) fn new(
        stage: &str,
        program: JoinProgram,
        input: usize,
        slot: TableSlot,
    ) -> Result<Self, OperatorError> {
        let builder = Some(JoinBuilder::new(program, input)?);
        Ok(Self { stage: stage.to_owned(), builder, slot, dropped: 0, remark: None })
    }
}

impl Operator for Collector {
    fn push(&mut self, _: usize, batch: RecordBatch, _: Option<&UInt16Array>) -> Result<(), OperatorError> {
        let Some(builder) = &mut self.builder else {
            return Err(OperatorError::Other("rows came after the end of the input".to_owned()));
        };
        let places = Places::of(&batch);
        let taken = builder.push(&batch);
        self.dropped += builder.take_dropped().len() as u64;
        if let Some(last) = builder.take_last() {
            self.remark = Some(Remark::of(&self.stage, &last.message, places.of_row(last.row)));
        }
        taken.map_err(|error| OperatorError::of(&self.stage, error, &places))
    }

    fn pull(&mut self, _: usize, _: usize) -> Result<Option<RecordBatch>, OperatorError> {
        Ok(None)
    }

    fn end(&mut self) -> Result<(), OperatorError> {
        if let Some(builder) = self.builder.take() {
            let table = Arc::new(builder.finish()?);
            if self.slot.set(table).is_err() {
                return Err(OperatorError::Other("two collectors of one input are on this agent".to_owned()));
            }
        }
        Ok(())
    }

    /// Those of the table that it has left too, which the joiners have until the run ends.
    fn state_bytes(&self) -> usize {
        let left = self.slot.get().map_or(0, |table| table.bytes());
        self.builder.as_ref().map_or(left, JoinBuilder::bytes)
    }

    /// A table of millions of rows grows, and is put in order, in one go.
    fn is_cooperative(&self) -> bool {
        false
    }

    fn take_dropped(&mut self) -> DroppedRows {
        by_expression(std::mem::take(&mut self.dropped))
    }

    fn take_remark(&mut self) -> Option<Remark> {
        self.remark.take()
    }
}

/// Joins rows of the first input with the tables.
pub(crate) struct Joiner {
    stage: String,
    program: JoinProgram,
    slots: Vec<TableSlot>,
    /// Once a row of the first input has come.
    tables: Option<Arc<[Arc<JoinTable>]>>,
    run: Option<JoinRun>,
    dropped: u64,
    remark: Option<Remark>,
}

impl Joiner {
    pub(crate) fn new(stage: &str, program: JoinProgram, slots: Vec<TableSlot>) -> Self {
        Self { stage: stage.to_owned(), program, slots, tables: None, run: None, dropped: 0, remark: None }
    }

    fn tables(&mut self) -> Result<Arc<[Arc<JoinTable>]>, OperatorError> {
        if let Some(tables) = &self.tables {
            return Ok(Arc::clone(tables));
        }
        let all: Option<Vec<Arc<JoinTable>>> = self.slots.iter().map(|slot| slot.get().cloned()).collect();
        let Some(all) = all else {
            return Err(OperatorError::Other(
                "rows came before the tables that they are joined with".to_owned(),
            ));
        };
        Ok(Arc::clone(self.tables.insert(all.into())))
    }
}

impl Operator for Joiner {
    fn push(
        &mut self,
        input: usize,
        batch: RecordBatch,
        _: Option<&UInt16Array>,
    ) -> Result<(), OperatorError> {
        if input > 0 {
            return Err(OperatorError::Other("rows came where a table is handed over whole".to_owned()));
        }
        let (tables, places) = (self.tables()?, Places::of(&batch));
        let mut run = self
            .program
            .run(&batch, &tables)
            .map_err(|error| OperatorError::of(&self.stage, error, &places))?;
        self.dropped += run.take_dropped().len() as u64;
        if let Some(last) = run.take_last() {
            self.remark = Some(Remark::of(&self.stage, &last.message, places.of_row(last.row)));
        }
        self.run = Some(run);
        Ok(())
    }

    fn pull(&mut self, most_rows: usize, most_bytes: usize) -> Result<Option<RecordBatch>, OperatorError> {
        let Some(run) = &mut self.run else { return Ok(None) };
        let next = run.next(most_rows, most_bytes).transpose()?;
        if next.is_none() {
            self.run = None;
        }
        Ok(next)
    }

    fn take_dropped(&mut self) -> DroppedRows {
        by_expression(std::mem::take(&mut self.dropped))
    }

    fn take_remark(&mut self) -> Option<Remark> {
        self.remark.take()
    }
}

fn by_expression(rows: u64) -> DroppedRows {
    match rows {
        0 => DroppedRows::new(),
        rows => DroppedRows::from([(DROPPED_BY_EXPRESSION.to_owned(), rows)]),
    }
}
