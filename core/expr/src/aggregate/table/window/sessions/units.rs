//! The open sessions of a key partition on their way from one table to another.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use datafusion_common::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, TimestampNanosecondArray};
use datafusion_common::arrow::compute::concat;
use datafusion_common::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimestampNanosecondType};
use datafusion_common::arrow::record_batch::RecordBatch;

use super::{Session, SessionTable, Table, WindowProgram, runs};
use crate::aggregate::Rows;
use crate::aggregate::keys::KeyForm;
use crate::aggregate::table::batch;
use crate::aggregate::table::window::{ADDED, CHANGED, TIME};
use crate::program::EvalError;
use crate::unit::{Home, State, misfit};

/// The open sessions of one key partition.
pub(in crate::aggregate::table::window) struct OpenSessions {
    program: WindowProgram,
    form: KeyForm,
    columns: SchemaRef,
    table: Box<Table>,
    /// Key and session of each row, in the order of their slots.
    rows: Vec<(u32, Session)>,
}

impl OpenSessions {
    pub(in crate::aggregate::table::window) fn new(program: &WindowProgram) -> Result<Self, EvalError> {
        let partial = program.aggregate.partial_schema();
        let times = ADDED.map(|name| Arc::new(Field::new(name, TIME, false)));
        let changed = Arc::new(Field::new(CHANGED, DataType::Boolean, false));
        let fields = partial.fields().iter().cloned().chain(times).chain([changed]);
        Ok(Self {
            program: program.clone(),
            form: program.aggregate.key_form()?,
            columns: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            table: Box::new(Table::new(&program.aggregate)?),
            rows: Vec::new(),
        })
    }

    fn holding(&mut self, table: Box<Table>) {
        self.table = table;
        let of_key = |(key, open): (usize, &Vec<Session>)| {
            open.iter().map(move |session| (key as u32, *session)).collect::<Vec<_>>()
        };
        self.rows = self.table.open.iter().enumerate().flat_map(of_key).collect();
        // States that stand side by side are read at once.
        self.rows.sort_unstable_by_key(|(_, session)| session.slot);
    }
}

impl State for OpenSessions {
    fn columns(&self) -> SchemaRef {
        SchemaRef::clone(&self.columns)
    }

    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn bytes(&self) -> usize {
        self.table.bytes()
    }

    fn save(&self, rows: Range<usize>) -> Result<RecordBatch, EvalError> {
        let rows = &self.rows[rows];
        let keys: Vec<u32> = rows.iter().map(|(key, _)| *key).collect();
        let slots: Vec<u32> = rows.iter().map(|(_, session)| session.slot).collect();
        let mut columns = self.table.keys.pick_columns(&self.form, &keys)?;
        for accumulator in &self.table.accumulators {
            let saved = runs(&slots).map(|run| accumulator.save(run)).collect::<Result<Vec<_>, _>>()?;
            for state in 0..saved.first().map_or(0, Vec::len) {
                let pieces: Vec<&dyn Array> = saved.iter().map(|piece| &*piece[state] as _).collect();
                columns.push(concat(&pieces)?);
            }
        }
        let times = |of: fn(&Session) -> i64| -> ArrayRef {
            Arc::new(TimestampNanosecondArray::from_iter_values(rows.iter().map(|(_, session)| of(session))))
        };
        columns.extend([times(|session| session.start), times(|session| session.end)]);
        let changed: BooleanArray = rows.iter().map(|(_, session)| Some(session.changed)).collect();
        columns.push(Arc::new(changed));
        Ok(batch(&self.columns, columns, rows.len())?)
    }

    fn load(&mut self, rows: &RecordBatch, home: Home) -> Result<(), EvalError> {
        let inner = &self.program.aggregate.inner;
        let width = inner.partial.fields().len();
        let time = |column: usize| rows.column(column).as_primitive::<TimestampNanosecondType>();
        let (starts, ends) = (time(width), time(width + 1));
        let changed = rows.column(width + 2).as_boolean();
        let table = &mut self.table;
        let keys = &rows.columns()[..inner.keys];
        let of_row = table.keys.assign_from(&self.form, keys, rows.num_rows(), home)?;
        table.open.resize_with(table.keys.len(), Vec::new);
        let mut slots = Vec::with_capacity(of_row.len());
        for (row, key) in of_row.into_iter().enumerate() {
            let session = Session {
                start: starts.value(row),
                end: ends.value(row),
                slot: table.slots as u32,
                changed: changed.value(row),
            };
            let open = &mut table.open[key as usize];
            let at = open.partition_point(|other| other.end <= session.start);
            if session.start >= session.end || open.get(at).is_some_and(|next| next.start < session.end) {
                return Err(misfit("sessions of a key overlap".to_owned()));
            }
            open.insert(at, session);
            slots.push(session.slot);
            table.deadlines.push(Reverse((session.end, key)));
            table.slots += 1;
            table.live += 1;
            self.rows.push((key, session));
        }
        let all: Vec<u32> = (0..slots.len() as u32).collect();
        let mut first = inner.keys;
        for (accumulator, aggregate) in table.accumulators.iter_mut().zip(&inner.aggregates) {
            accumulator.resize(table.slots);
            let end = first + aggregate.state.len();
            accumulator.merge(&rows.columns()[first..end], Rows { rows: &all, groups: &slots })?;
            first = end;
        }
        Ok(())
    }
}

impl SessionTable {
    /// An empty one of the same kind, whose sessions have been given up to a watermark.
    pub(in crate::aggregate::table::window) fn empty(
        &self,
        watermark: Option<i64>,
    ) -> Result<Self, EvalError> {
        Ok(Self { watermark, ..Self::new(self.program.clone(), self.gap, self.partitions)? })
    }

    pub(in crate::aggregate::table::window) fn program(&self) -> &WindowProgram {
        &self.program
    }

    pub(in crate::aggregate::table::window) fn partitions(&self) -> u16 {
        self.partitions
    }

    /// Some results are to be given yet.
    pub(in crate::aggregate::table::window) fn is_giving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// There are open sessions of a partition.
    pub(in crate::aggregate::table::window) fn has(&self, partition: u16) -> bool {
        self.tables[usize::from(partition)].as_ref().is_some_and(|table| table.live > 0)
    }

    pub(in crate::aggregate::table::window) fn size_of(&self, partition: u16) -> usize {
        self.tables.get(usize::from(partition)).and_then(Option::as_ref).map_or(0, |table| table.bytes())
    }

    /// Takes a partition's sessions out, into an empty state.
    pub(in crate::aggregate::table::window) fn take(&mut self, partition: u16, to: &mut OpenSessions) {
        if let Some(table) = self.tables[usize::from(partition)].take() {
            to.holding(table);
        }
    }

    /// Puts sessions in of a partition that has none here.
    pub(in crate::aggregate::table::window) fn put(&mut self, partition: u16, from: OpenSessions) {
        self.tables[usize::from(partition)] = Some(from.table).filter(|table| table.live > 0);
    }
}
