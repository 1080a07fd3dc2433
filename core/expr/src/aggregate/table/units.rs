//! The groups of a key partition on their way from one table to another.

use std::ops::Range;

use datafusion_common::arrow::array::ArrayRef;
use datafusion_common::arrow::datatypes::SchemaRef;
use datafusion_common::arrow::record_batch::RecordBatch;

use super::{GroupTable, KeyForm, Rows, Table, WhenEmpty, batch};
use crate::aggregate::{AggregateProgram, Inner};
use crate::program::EvalError;
use crate::unit::{Home, Loader, State, StateOf, Unit, UnitError, Units, check, check_home};

/// The groups of one key partition.
pub(super) struct Groups {
    program: AggregateProgram,
    form: KeyForm,
    table: Box<Table>,
}

impl Groups {
    fn new(program: AggregateProgram, table: Option<Box<Table>>) -> Result<Self, EvalError> {
        let form = program.key_form()?;
        let table = match table {
            Some(table) => table,
            None => Box::new(Table::new(&program)?),
        };
        Ok(Self { program, form, table })
    }
}

impl AggregateProgram {
    /// How its keys are kept.
    pub(super) fn key_form(&self) -> Result<KeyForm, EvalError> {
        Ok(KeyForm::of(&self.inner.partial.fields()[..self.inner.keys])?)
    }
}

impl State for Groups {
    fn columns(&self) -> SchemaRef {
        self.program.partial_schema()
    }

    fn rows(&self) -> usize {
        self.table.keys.len()
    }

    fn bytes(&self) -> usize {
        self.table.bytes()
    }

    fn save(&self, rows: Range<usize>) -> Result<RecordBatch, EvalError> {
        let count = rows.len();
        Ok(batch(&self.columns(), self.table.partials(&self.form, rows)?, count)?)
    }

    fn load(&mut self, rows: &RecordBatch, home: Home) -> Result<(), EvalError> {
        self.table.load(&self.program.inner, &self.form, rows.columns(), rows.num_rows(), home)
    }
}

impl Table {
    /// Takes in saved groups, which are new and at home there.
    pub(super) fn load(
        &mut self,
        program: &Inner,
        form: &KeyForm,
        columns: &[ArrayRef],
        rows: usize,
        home: Home,
    ) -> Result<(), EvalError> {
        let groups = self.keys.assign_new(form, &columns[..program.keys], rows, home)?;
        let all: Vec<u32> = (0..rows as u32).collect();
        Ok(self.merge(program, columns, Rows { rows: &all, groups: &groups })?)
    }
}

impl GroupTable {
    /// Takes a partition's groups out as they are.
    pub(super) fn take_table(&mut self, partition: u16) -> Option<Box<Table>> {
        let table = self.tables.remove(&partition)?;
        self.groups -= table.keys.len();
        Some(table)
    }

    /// Puts a partition's groups in, of which there are none here.
    pub(super) fn put_table(&mut self, partition: u16, table: Box<Table>) {
        if table.keys.len() > 0 {
            self.groups += table.keys.len();
            self.seen_rows = true;
            self.tables.insert(partition, table);
        }
    }

    /// There are groups of a partition.
    pub(super) fn has(&self, partition: u16) -> bool {
        self.tables.contains_key(&partition)
    }

    /// Memory that a partition's groups take.
    pub(super) fn table_bytes(&self, partition: u16) -> usize {
        self.tables.get(&partition).map_or(0, |table| table.bytes())
    }

    fn is_draining(&self) -> bool {
        !self.draining.is_empty()
    }
}

impl Units for GroupTable {
    fn partitions(&self) -> u16 {
        self.partitions
    }

    fn cut(&mut self, partitions: &[u16]) -> Result<Vec<Unit>, UnitError> {
        check(partitions, self.partitions)?;
        if let Some(first) = partitions.first()
            && self.is_draining()
        {
            return Err(UnitError::misplaced(*first, "is on its way out: its results are being given"));
        }
        // Whatever can fail does so before anything is taken out.
        let blank: Vec<_> =
            partitions.iter().map(|_| Groups::new(self.program.clone(), None)).collect::<Result<_, _>>()?;
        let mut units = Vec::with_capacity(partitions.len());
        for (partition, mut groups) in partitions.iter().zip(blank) {
            if let Some(table) = self.take_table(*partition) {
                groups.table = table;
            }
            let home = Home { partition: *partition, partitions: self.partitions };
            let mut unit = Unit::new(home, None, groups);
            if matches!(self.form, KeyForm::Global) {
                // Whoever has the one partition gives its result, if only for no rows.
                unit.answers = self.when_empty == WhenEmpty::OneRow;
                self.when_empty = WhenEmpty::Nothing;
            }
            units.push(unit);
        }
        Ok(units)
    }

    fn loader(&self, of: StateOf) -> Result<Loader, UnitError> {
        let program = self.program.clone();
        Ok(Loader::new(of, self.partitions, move || Ok(Groups::new(program.clone(), None)?)))
    }

    fn place(&mut self, unit: Unit) -> Result<(), UnitError> {
        check_home(&unit, self.partitions)?;
        let (partition, answers) = (unit.partition(), unit.answers);
        if self.has(partition) || self.is_draining() {
            return Err(UnitError::misplaced(partition, "has state here already"));
        }
        let groups: Groups = unit.open()?;
        self.put_table(partition, groups.table);
        if answers {
            self.when_empty = WhenEmpty::OneRow;
        }
        Ok(())
    }

    fn size_of(&self, partition: u16) -> usize {
        self.table_bytes(partition)
    }
}
