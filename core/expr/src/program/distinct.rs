//! `distinct`: the first row of each key.

mod units;

use std::sync::Arc;

use datafusion_common::arrow::array::{ArrayRef, UInt16Array, UInt32Array};
use datafusion_common::arrow::compute::take_record_batch;
use datafusion_common::arrow::datatypes::{FieldRef, SchemaRef};
use datafusion_common::arrow::record_batch::RecordBatch;
use tuplane_core::fault::{At, Fault};
use tuplane_core::job::{OnError, Text};

use super::rows::{Dropped, EvalError, Failed, Projection, kept_partitions, kept_rows};
use crate::aggregate::{KeyForm, KeyTable, Scratch};
use crate::key::{KeyExprs, can_be_key, hash_rows};
use crate::sql::{Language, sql_name};
use crate::system::{SystemColumns, conform, with_system};

/// A compiled `distinct`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DistinctProgram {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    keys: Projection,
    output: SchemaRef,
    on_error: OnError,
}

impl DistinctProgram {
    /// Compiles a stage for these keys; without one the whole row is the key. `system` columns of the input
    /// are copied, and are never part of the key.
    pub fn compile(
        language: Language,
        keys: &[Text],
        input: &SchemaRef,
        system: SystemColumns,
        on_error: OnError,
    ) -> Result<Self, Vec<Fault>> {
        let keys = if keys.is_empty() {
            whole_row(input).map_err(|fault| vec![fault])?
        } else {
            KeyExprs::compile(language, keys, input)?
        };
        let keys = Projection::new(keys.into_columns());
        Ok(Self { inner: Arc::new(Inner { keys, output: with_system(input, system), on_error }) })
    }

    /// The columns that come out: those that go in, and system columns.
    pub fn output(&self) -> &SchemaRef {
        &self.inner.output
    }

    /// The key's columns.
    pub(crate) fn key_fields(&self) -> &[FieldRef] {
        self.inner.keys.output.fields()
    }

    /// Whether some row of `input` can be one whose key cannot be computed.
    pub(crate) fn can_fail(&self, input: &SchemaRef) -> bool {
        self.inner.keys.can_fail(input)
    }
}

/// All columns of a row as its key.
pub(crate) fn whole_row(schema: &SchemaRef) -> Result<KeyExprs, Fault> {
    let refused: Option<&FieldRef> = schema.fields().iter().find(|f| !can_be_key(f.data_type()));
    if let Some(field) = refused {
        let (name, kind) = (field.name(), sql_name(field.data_type()));
        let message = format!("the whole row is the key, and `{name}` is {kind}, which cannot be one");
        return Err(Fault::new(At::default(), message).help("give a `key`"));
    }
    Ok(KeyExprs::columns(schema, schema.fields().len()))
}

/// The keys seen so far, by key partition.
pub struct DistinctTable {
    program: DistinctProgram,
    form: KeyForm,
    partitions: u16,
    /// Made when the first row comes.
    tables: Vec<Option<Box<KeyTable>>>,
    scratch: Scratch,
    dropped: Vec<Dropped>,
    last: Option<Dropped>,
}

impl DistinctTable {
    /// An empty table for keys in `partitions` partitions.
    pub fn new(program: DistinctProgram, partitions: u16) -> Result<Self, EvalError> {
        let form = KeyForm::of(program.inner.keys.output.fields())?;
        let partitions = partitions.max(1);
        Ok(Self {
            program,
            form,
            partitions,
            tables: (0..partitions).map(|_| None).collect(),
            scratch: Scratch::default(),
            dropped: Vec::new(),
            last: None,
        })
    }

    /// Takes rows in, in their order, and gives those whose key has not been seen before, in the same order.
    pub fn advance(
        &mut self,
        batch: &RecordBatch,
        partitions: Option<&UInt16Array>,
    ) -> Result<RecordBatch, EvalError> {
        let inner = Arc::clone(&self.program.inner);
        let mut failed = Failed::new(inner.on_error);
        let keys = inner.keys.eval_into(batch, &mut failed)?;
        let partitions = kept_partitions(partitions, failed.dropped())?;
        let mut first = self.first_of_their_key(keys.columns(), keys.num_rows(), partitions.as_ref())?;
        first.sort_unstable();
        if let Some(last) = failed.last() {
            self.last = Some(last.clone());
        }
        let dropped = failed.into_dropped();
        if !dropped.is_empty() {
            let origin = kept_rows(batch.num_rows(), &dropped);
            for row in &mut first {
                *row = origin.value(*row as usize);
            }
            self.dropped.extend(dropped);
        }
        let rows = if first.len() == batch.num_rows() {
            batch.clone()
        } else {
            take_record_batch(batch, &UInt32Array::from(first))?
        };
        Ok(conform(rows, &inner.output)?)
    }

    /// The rows that brought a new key.
    fn first_of_their_key(
        &mut self,
        columns: &[ArrayRef],
        rows: usize,
        partitions: Option<&UInt16Array>,
    ) -> Result<Vec<u32>, EvalError> {
        let scratch = &mut self.scratch;
        hash_rows(columns, rows, &mut scratch.hashes)?;
        scratch.sort(self.partitions, partitions)?;
        let keys = self.form.read(columns)?;
        let mut first = Vec::new();
        for (index, slot) in self.tables.iter_mut().enumerate() {
            let (start, end) = (scratch.starts[index] as usize, scratch.starts[index + 1] as usize);
            if start == end {
                continue;
            }
            let rows = &scratch.order[start..end];
            let table = slot.get_or_insert_default();
            let mut next = table.len();
            table.assign(&keys, &scratch.hashes, rows, &mut scratch.groups);
            // Groups are numbered as they come.
            for (row, group) in rows.iter().zip(&scratch.groups) {
                if *group as usize == next {
                    first.push(*row);
                    next += 1;
                }
            }
        }
        Ok(first)
    }

    /// The rows that `on_error = "drop"` left out since the last call; numbers are those of each call's batch.
    pub fn take_dropped(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.dropped)
    }

    /// The last row that was left out, or whose key became null, since the last call.
    pub fn take_last(&mut self) -> Option<Dropped> {
        self.last.take()
    }

    /// How many keys there are.
    pub fn keys_held(&self) -> usize {
        self.tables.iter().flatten().map(|table| table.len()).sum()
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        self.tables.iter().flatten().map(|table| table.memory()).sum()
    }
}
