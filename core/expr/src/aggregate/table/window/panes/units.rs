//! The open panes of a key partition on their way from one table to another.

use std::ops::Range;
use std::sync::Arc;

use datafusion_common::arrow::array::{Array, AsArray, BooleanArray, TimestampNanosecondArray};
use datafusion_common::arrow::compute::concat_batches;
use datafusion_common::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimestampNanosecondType};
use datafusion_common::arrow::record_batch::RecordBatch;

use super::{PaneTable, WindowProgram};
use crate::aggregate::keys::KeyForm;
use crate::aggregate::table::window::CHANGED;
use crate::aggregate::table::{Table, batch};
use crate::program::EvalError;
use crate::unit::{Home, State, misfit};

/// The groups of one key partition in all open panes.
pub(in crate::aggregate::table::window) struct OpenPanes {
    program: WindowProgram,
    form: KeyForm,
    columns: SchemaRef,
    /// In the order of their beginnings.
    panes: Vec<Pane>,
    rows: usize,
}

struct Pane {
    start: i64,
    /// Since its windows were last given early.
    changed: bool,
    table: Box<Table>,
}

impl OpenPanes {
    pub(in crate::aggregate::table::window) fn new(program: &WindowProgram) -> Result<Self, EvalError> {
        let changed = Arc::new(Field::new(CHANGED, DataType::Boolean, false));
        let fields = program.partial.fields().iter().cloned().chain([changed]);
        Ok(Self {
            program: program.clone(),
            form: program.aggregate.key_form()?,
            columns: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            panes: Vec::new(),
            rows: 0,
        })
    }

    /// Rows of one pane.
    fn saved(&self, pane: &Pane, groups: Range<usize>) -> Result<RecordBatch, EvalError> {
        let rows = groups.len();
        let mut columns = pane.table.partials(&self.form, groups)?;
        columns.push(Arc::new(TimestampNanosecondArray::from_value(pane.start, rows)));
        columns.push(Arc::new(BooleanArray::from(vec![pane.changed; rows])));
        Ok(batch(&self.columns, columns, rows)?)
    }
}

impl State for OpenPanes {
    fn columns(&self) -> SchemaRef {
        SchemaRef::clone(&self.columns)
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn bytes(&self) -> usize {
        self.panes.iter().map(|pane| pane.table.bytes()).sum()
    }

    fn save(&self, rows: Range<usize>) -> Result<RecordBatch, EvalError> {
        let (mut first, mut pieces) = (0, Vec::new());
        for pane in &self.panes {
            let end = first + pane.table.keys.len();
            let groups = rows.start.max(first)..rows.end.min(end);
            if !groups.is_empty() {
                pieces.push(self.saved(pane, groups.start - first..groups.end - first)?);
            }
            first = end;
        }
        Ok(concat_batches(&self.columns, &pieces)?)
    }

    fn load(&mut self, rows: &RecordBatch, home: Home) -> Result<(), EvalError> {
        let aggregate = &self.program.aggregate;
        let width = aggregate.inner.partial.fields().len();
        let starts = rows.column(width).as_primitive::<TimestampNanosecondType>();
        let changed = rows.column(width + 1).as_boolean();
        if starts.null_count() > 0 {
            return Err(misfit("state of a window came without its pane".to_owned()));
        }
        let mut from = 0;
        for run in starts.values().chunk_by(|a, b| a == b) {
            let part = rows.slice(from, run.len());
            if self.panes.last().is_none_or(|pane| pane.start < run[0]) {
                let table = Box::new(Table::new(aggregate)?);
                self.panes.push(Pane { start: run[0], changed: changed.value(from), table });
            }
            let Some(pane) = self.panes.last_mut().filter(|pane| pane.start == run[0]) else {
                return Err(misfit("panes of a window came in a wrong order".to_owned()));
            };
            pane.table.load(&aggregate.inner, &self.form, &part.columns()[..width], run.len(), home)?;
            from += run.len();
        }
        self.rows += rows.num_rows();
        Ok(())
    }
}

impl PaneTable {
    /// An empty one of the same kind, whose windows have been given up to a watermark.
    pub(in crate::aggregate::table::window) fn empty(&self, passed: Option<i64>) -> Result<Self, EvalError> {
        let new = Self::new(self.program.clone(), self.panes, self.partitions, self.part)?;
        Ok(Self { passed, ..new })
    }

    pub(in crate::aggregate::table::window) fn program(&self) -> &WindowProgram {
        &self.program
    }

    /// As many as a table of groups has.
    pub(in crate::aggregate::table::window) fn partitions(&self) -> u16 {
        if self.program.keys() == 0 { 1 } else { self.partitions.max(1) }
    }

    /// Some results are to be given yet.
    pub(in crate::aggregate::table::window) fn is_giving(&self) -> bool {
        self.leaving.is_some() || self.due.is_some() || self.all || !self.early.is_empty()
    }

    /// There are groups of a partition.
    pub(in crate::aggregate::table::window) fn has(&self, partition: u16) -> bool {
        self.open.values().any(|pane| pane.has(partition))
    }

    pub(in crate::aggregate::table::window) fn size_of(&self, partition: u16) -> usize {
        self.open.values().map(|pane| pane.table_bytes(partition)).sum::<usize>()
            + self.blocks.size_of(partition)
    }

    /// Takes a partition's groups out, into an empty state.
    pub(in crate::aggregate::table::window) fn take(&mut self, partition: u16, to: &mut OpenPanes) {
        for (start, pane) in &mut self.open {
            if let Some(table) = pane.take_table(partition) {
                to.rows += table.keys.len();
                to.panes.push(Pane { start: *start, changed: self.changed.contains(start), table });
            }
        }
        self.open.retain(|_, pane| pane.groups() > 0);
        self.changed.retain(|start| self.open.contains_key(start));
        self.blocks.drop_partition(partition);
    }

    /// Puts groups in of a partition that has none here.
    pub(in crate::aggregate::table::window) fn put(
        &mut self,
        partition: u16,
        from: OpenPanes,
    ) -> Result<(), EvalError> {
        for pane in from.panes {
            if !self.open.contains_key(&pane.start) {
                self.open.insert(pane.start, self.fresh()?);
            }
            let Some(table) = self.open.get_mut(&pane.start) else { continue };
            table.put_table(partition, pane.table);
            self.blocks.forget(pane.start);
            if pane.changed {
                self.changed.insert(pane.start);
            }
        }
        Ok(())
    }
}
