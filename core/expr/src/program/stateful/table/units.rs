//! The states of a key partition on their way from one table to another.

use std::ops::Range;
use std::sync::Arc;

use datafusion_common::arrow::array::{AsArray, Int64Array};
use datafusion_common::arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema, SchemaRef};
use datafusion_common::arrow::record_batch::RecordBatch;

use super::{KeyForm, StatefulProgram, StatefulTable, Table, Until};
use crate::program::rows::EvalError;
use crate::unit::{Home, Loader, State, StateOf, Unit, UnitError, Units, check, check_home};

/// The column of when a state was last used, in event time.
const SEEN: &str = "#seen";

/// The states of one key partition.
struct States {
    program: StatefulProgram,
    form: KeyForm,
    columns: SchemaRef,
    table: Box<Table>,
}

impl States {
    fn new(program: StatefulProgram) -> Result<Self, EvalError> {
        let inner = &program.inner;
        let seen: FieldRef = Arc::new(Field::new(SEEN, DataType::Int64, false));
        let states = inner.states.iter().map(|f| Arc::new(f.as_ref().clone().with_nullable(true)));
        let fields = inner.keys.output.fields().iter().cloned().chain(states);
        let fields = fields.chain(program.ttl.map(|_| seen));
        let columns = Arc::new(Schema::new(fields.collect::<Vec<FieldRef>>()));
        let form = KeyForm::of(inner.keys.output.fields())?;
        let table = Table::new(inner)?;
        Ok(Self { program, form, columns, table })
    }
}

impl State for States {
    fn columns(&self) -> SchemaRef {
        SchemaRef::clone(&self.columns)
    }

    fn rows(&self) -> usize {
        self.table.keys.len()
    }

    fn bytes(&self) -> usize {
        self.table.bytes()
    }

    fn save(&self, rows: Range<usize>) -> Result<RecordBatch, EvalError> {
        let mut columns = self.table.keys.columns(&self.form, rows.clone())?;
        let groups: Vec<u32> = (rows.start as u32..rows.end as u32).collect();
        for state in &self.table.states {
            columns.push(state.get(&groups)?);
        }
        if self.program.ttl.is_some() {
            columns.push(Arc::new(Int64Array::from(self.table.seen[rows].to_vec())));
        }
        Ok(RecordBatch::try_new(self.columns(), columns)?)
    }

    fn load(&mut self, rows: &RecordBatch, home: Home) -> Result<(), EvalError> {
        let (keys, rest) = rows.columns().split_at(self.program.inner.keys.output.fields().len());
        let groups = self.table.keys.assign_new(&self.form, keys, rows.num_rows(), home)?;
        for (state, values) in self.table.states.iter_mut().zip(rest) {
            state.resize(self.table.keys.len());
            state.set(&groups, values)?;
        }
        if self.program.ttl.is_some()
            && let Some(seen) = rest.last().and_then(|seen| seen.as_primitive_opt::<Int64Type>())
        {
            // New groups are numbered in the order of the rows.
            self.table.seen.extend(seen.values());
        }
        Ok(())
    }
}

impl Table {
    pub(super) fn bytes(&self) -> usize {
        self.keys.memory()
            + self.states.iter().map(|state| state.bytes()).sum::<usize>()
            + self.seen.capacity() * size_of::<i64>()
    }

    /// States that have run out are as if they had never been.
    fn forget(&mut self, program: &StatefulProgram, until: Until, now: i64) -> Result<(), EvalError> {
        for (group, seen) in self.seen.iter_mut().enumerate() {
            if until.has_passed(*seen, now) {
                *seen = i64::MIN;
                for (state, first) in self.states.iter_mut().zip(&program.inner.first) {
                    state.set(&[group as u32], first)?;
                }
            }
        }
        Ok(())
    }
}

impl Units for StatefulTable {
    fn partitions(&self) -> u16 {
        self.partitions
    }

    fn cut(&mut self, partitions: &[u16]) -> Result<Vec<Unit>, UnitError> {
        check(partitions, self.partitions)?;
        let mut units = Vec::with_capacity(partitions.len());
        for partition in partitions {
            let states = States::new(self.program.clone())?;
            // One that has not caught up is as far as it was when it came.
            let watermark = self.unsettled.get(partition).copied().unwrap_or(self.watermark);
            if let Some(ttl) = self.program.ttl
                && let Some(now) = watermark
                && let Some(table) = &mut self.tables[usize::from(*partition)]
            {
                table.forget(&self.program, Until { ttl, watermark }, now)?;
            }
            units.push((states, watermark));
        }
        // They are taken when nothing can fail any more.
        let cut = partitions.iter().zip(units).map(|(partition, (mut states, watermark))| {
            if let Some(table) = self.tables[usize::from(*partition)].take() {
                states.table = table;
            }
            self.unsettled.remove(partition);
            let home = Home { partition: *partition, partitions: self.partitions };
            Unit::new(home, watermark.filter(|_| self.program.ttl.is_some()), states)
        });
        Ok(cut.collect())
    }

    fn loader(&self, of: StateOf) -> Result<Loader, UnitError> {
        let program = self.program.clone();
        Ok(Loader::new(of, self.partitions, move || Ok(States::new(program.clone())?)))
    }

    fn place(&mut self, unit: Unit) -> Result<(), UnitError> {
        check_home(&unit, self.partitions)?;
        let (partition, watermark) = (unit.partition(), unit.watermark);
        let slot = &mut self.tables[usize::from(partition)];
        if slot.is_some() || self.unsettled.contains_key(&partition) {
            return Err(UnitError::misplaced(partition, "has state here already"));
        }
        let states: States = unit.open()?;
        *slot = Some(states.table).filter(|table| table.keys.len() > 0);
        if self.program.ttl.is_some() {
            self.unsettled.insert(partition, watermark);
        }
        Ok(())
    }

    fn settle(&mut self, partitions: &[u16]) -> Result<(), UnitError> {
        check(partitions, self.partitions)?;
        self.unsettled.retain(|partition, _| !partitions.contains(partition));
        Ok(())
    }

    fn size_of(&self, partition: u16) -> usize {
        self.tables.get(usize::from(partition)).and_then(Option::as_ref).map_or(0, |table| table.bytes())
    }
}
