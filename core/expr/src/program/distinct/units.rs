//! The keys of a partition that have been seen, on their way from one table to another.

use std::ops::Range;

use datafusion_common::arrow::datatypes::SchemaRef;
use datafusion_common::arrow::record_batch::RecordBatch;

use super::{DistinctProgram, DistinctTable, KeyForm, KeyTable};
use crate::program::EvalError;
use crate::unit::{Home, Loader, State, StateOf, Unit, UnitError, Units, check, check_home};

/// The keys of one partition.
struct Seen {
    program: DistinctProgram,
    form: KeyForm,
    keys: Box<KeyTable>,
}

impl Seen {
    fn new(program: DistinctProgram) -> Result<Self, EvalError> {
        let form = KeyForm::of(program.inner.keys.output.fields())?;
        Ok(Self { program, form, keys: Box::default() })
    }
}

impl State for Seen {
    fn columns(&self) -> SchemaRef {
        SchemaRef::clone(&self.program.inner.keys.output)
    }

    fn rows(&self) -> usize {
        self.keys.len()
    }

    fn bytes(&self) -> usize {
        self.keys.memory()
    }

    fn save(&self, rows: Range<usize>) -> Result<RecordBatch, EvalError> {
        Ok(RecordBatch::try_new(self.columns(), self.keys.columns(&self.form, rows)?)?)
    }

    fn load(&mut self, rows: &RecordBatch, home: Home) -> Result<(), EvalError> {
        self.keys.assign_new(&self.form, rows.columns(), rows.num_rows(), home).map(drop)
    }
}

impl Units for DistinctTable {
    fn partitions(&self) -> u16 {
        self.partitions
    }

    fn cut(&mut self, partitions: &[u16]) -> Result<Vec<Unit>, UnitError> {
        check(partitions, self.partitions)?;
        let blank: Vec<_> =
            partitions.iter().map(|_| Seen::new(self.program.clone())).collect::<Result<_, _>>()?;
        let cut = partitions.iter().zip(blank).map(|(partition, mut seen)| {
            if let Some(keys) = self.tables[usize::from(*partition)].take() {
                seen.keys = keys;
            }
            Unit::new(Home { partition: *partition, partitions: self.partitions }, None, seen)
        });
        Ok(cut.collect())
    }

    fn loader(&self, of: StateOf) -> Result<Loader, UnitError> {
        let program = self.program.clone();
        Ok(Loader::new(of, self.partitions, move || Ok(Seen::new(program.clone())?)))
    }

    fn place(&mut self, unit: Unit) -> Result<(), UnitError> {
        check_home(&unit, self.partitions)?;
        let partition = unit.partition();
        let slot = &mut self.tables[usize::from(partition)];
        if slot.is_some() {
            return Err(UnitError::misplaced(partition, "has state here already"));
        }
        let seen: Seen = unit.open()?;
        *slot = Some(seen.keys).filter(|keys| keys.len() > 0);
        Ok(())
    }

    fn size_of(&self, partition: u16) -> usize {
        self.tables.get(usize::from(partition)).and_then(Option::as_ref).map_or(0, |keys| keys.memory())
    }
}
