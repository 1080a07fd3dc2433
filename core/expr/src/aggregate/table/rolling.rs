//! `rolling_aggregate`: each row with the values of its key's aggregates after it.

use std::sync::Arc;

use datafusion_common::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt16Array, UInt32Array};
use datafusion_common::arrow::compute::{concat, filter, filter_record_batch, take};
use datafusion_common::arrow::datatypes::{FieldRef, Schema, SchemaRef, UInt16Type};
use datafusion_common::arrow::record_batch::RecordBatch;
use tuplane_core::fault::Fault;
use tuplane_core::job::{OnError, Text};

use super::{GroupTable, WhenEmpty, batch, filters};
use crate::aggregate::{AggregateProgram, Refused, Rows, Wanted};
use crate::key::hash_rows;
use crate::program::{Dropped, EvalError, Failed, keep_mask};
use crate::sql::Language;
use crate::system::{SystemColumns, widen, with_system};
use crate::unit::Units;

/// A compiled `rolling_aggregate`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RollingProgram {
    aggregate: AggregateProgram,
    output: SchemaRef,
}

impl RollingProgram {
    /// Compiles `compute` for the groups that `keys` make; no keys make one group of all rows.
    pub fn compile(
        language: Language,
        keys: &[Text],
        compute: &[Text],
        input: &SchemaRef,
        on_error: OnError,
    ) -> Result<Self, Vec<Fault>> {
        let aggregate = AggregateProgram::compile(language, keys, compute, input, on_error)?;
        let computed = aggregate.final_schema().fields()[aggregate.keys()..].to_vec();
        let faults: Vec<Fault> = compute
            .iter()
            .zip(&computed)
            .filter(|(_, field)| input.column_with_name(field.name()).is_some())
            .map(|(text, field)| {
                let message = format!("`{}` is a column of the row, which the result keeps", field.name());
                Fault::new(text.at, message).help("name it otherwise with `as`")
            })
            .collect();
        if !faults.is_empty() {
            return Err(faults);
        }
        let own = input.fields().iter().map(|field| Arc::new(field.as_ref().clone().with_nullable(true)));
        let output = Arc::new(Schema::new(own.chain(computed).collect::<Vec<FieldRef>>()));
        Ok(Self { aggregate, output })
    }

    /// Copies system columns.
    #[must_use]
    pub(crate) fn carrying(mut self, system: SystemColumns) -> Self {
        self.output = with_system(&self.output, system);
        self
    }

    /// What is computed.
    pub(crate) fn aggregate(&self) -> &AggregateProgram {
        &self.aggregate
    }

    /// Whether some row of `input` can be one that an expression cannot take.
    pub(crate) fn can_fail(&self, input: &SchemaRef) -> bool {
        let inner = &self.aggregate.inner;
        // A sum can outgrow its type with any row.
        let grows = inner.aggregates.iter().any(crate::aggregate::Aggregate::can_outgrow);
        self.aggregate.can_fail(input) || inner.output.can_fail(&inner.values) || grows
    }

    /// The row's columns, then the computed ones, then system columns.
    pub fn output(&self) -> &SchemaRef {
        &self.output
    }
}

/// The groups of a rolling aggregate.
pub struct RollingTable {
    output: SchemaRef,
    groups: GroupTable,
}

impl RollingTable {
    /// An empty table for keys in `partitions` partitions.
    pub fn new(program: RollingProgram, partitions: u16) -> Result<Self, EvalError> {
        let groups = GroupTable::new(program.aggregate, partitions, WhenEmpty::Nothing)?;
        Ok(Self { output: program.output, groups })
    }

    /// Takes rows in, in their order, and gives each with the values after it. A row whose key or argument
    /// cannot be computed changes no group; one whose result cannot be has been counted in.
    pub fn advance(
        &mut self,
        batch: &RecordBatch,
        partitions: Option<&UInt16Array>,
    ) -> Result<RecordBatch, EvalError> {
        let (kept, computed) = self.groups.roll(batch, partitions)?;
        let rows = match kept {
            Some(kept) => filter_record_batch(batch, &kept)?,
            None => batch.clone(),
        };
        Ok(widen(&rows, &computed, &self.output)?)
    }

    /// As [`GroupTable::take_dropped`].
    pub fn take_dropped(&mut self) -> Vec<Dropped> {
        self.groups.take_dropped()
    }

    /// As [`GroupTable::take_last`].
    pub fn take_last(&mut self) -> Option<Dropped> {
        self.groups.take_last()
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        self.groups.bytes()
    }

    /// Its state, by key partition.
    pub fn units(&mut self) -> &mut dyn Units {
        &mut self.groups
    }
}

impl GroupTable {
    /// Which rows are kept, unless all are, and the computed columns of those.
    fn roll(
        &mut self,
        rows: &RecordBatch,
        partitions: Option<&UInt16Array>,
    ) -> Result<(Option<BooleanArray>, Vec<ArrayRef>), EvalError> {
        let program = Arc::clone(&self.program.inner);
        let mut failed = Failed::new(program.on_error);
        let input = program.input.eval_into(rows, &mut failed)?;
        let filtered;
        let partitions = match partitions {
            Some(all) if !failed.dropped().is_empty() => {
                filtered = filter(all, &keep_mask(rows.num_rows(), failed.dropped()))?;
                Some(filtered.as_primitive::<UInt16Type>())
            }
            other => other,
        };
        // The row of the caller's batch behind each row of `input`.
        let origin: Vec<usize> = {
            let mut dropped = failed.dropped().iter().map(|one| one.row).peekable();
            (0..rows.num_rows()).filter(|row| dropped.next_if_eq(row).is_none()).collect()
        };
        if let Some(last) = failed.last() {
            self.last = Some(last.clone());
        }
        let mut dropped = failed.into_dropped();
        let (values, refused) = self.running(&input, partitions)?;
        let mut failed = Failed::new(program.on_error);
        let at_origin = |error: EvalError| EvalError { row: error.row.map(|row| origin[row]), ..error };
        for one in refused {
            failed.row(one.position, one.message).map_err(at_origin)?;
        }
        let results = program.output.eval_into(&values, &mut failed).map_err(at_origin)?;
        let of_origin = |one: Dropped| Dropped { row: origin[one.row], ..one };
        if let Some(last) = failed.last() {
            self.last = Some(of_origin(last.clone()));
        }
        dropped.extend(failed.into_dropped().into_iter().map(of_origin));
        dropped.sort_by_key(|one| one.row);
        let kept = (!dropped.is_empty()).then(|| keep_mask(rows.num_rows(), &dropped));
        self.dropped.extend(dropped);
        Ok((kept, results.columns()[program.keys..].to_vec()))
    }

    /// Key columns and, for each row, the aggregates' values after it; and rows without such a value, by
    /// their number.
    fn running(
        &mut self,
        input: &RecordBatch,
        partitions: Option<&UInt16Array>,
    ) -> Result<(RecordBatch, Vec<Refused>), EvalError> {
        let program = Arc::clone(&self.program.inner);
        let key_columns = &input.columns()[..program.keys];
        if input.num_rows() == 0 {
            return Ok((RecordBatch::new_empty(Arc::clone(&program.values)), Vec::new()));
        }
        self.seen_rows = true;
        let mut scratch = std::mem::take(&mut self.scratch);
        hash_rows(key_columns, input.num_rows(), &mut scratch.hashes)?;
        scratch.sort(self.partitions, partitions)?;
        let keys = self.form.read(key_columns)?;
        let filters = filters(&program.aggregates, input.columns());
        let kinds = &program.values.fields()[program.keys..];
        let mut pieces: Vec<Vec<ArrayRef>> = vec![Vec::new(); kinds.len()];
        let mut refused = Vec::new();
        let mut more = 0;
        for index in 0..self.partitions {
            let place = usize::from(index);
            let (start, end) = (scratch.starts[place] as usize, scratch.starts[place + 1] as usize);
            if start == end {
                continue;
            }
            let rows = &scratch.order[start..end];
            let table = self.table(index)?;
            let before = table.keys.len();
            table.keys.assign(&keys, &scratch.hashes, rows, &mut scratch.groups);
            more += table.keys.len() - before;
            table.resize();
            let groups = &scratch.groups;
            let aggregates = program.aggregates.iter().zip(&filters);
            for (call, (accumulator, (aggregate, filter))) in
                table.accumulators.iter_mut().zip(aggregates).enumerate()
            {
                let arguments = &input.columns()[aggregate.arguments.clone()];
                let mut of_call = Vec::new();
                pieces[call].push(accumulator.running(
                    arguments,
                    Rows { rows, groups },
                    Wanted(*filter),
                    kinds[call].data_type(),
                    &mut of_call,
                )?);
                let of_row = |one: Refused| Refused { position: rows[one.position] as usize, ..one };
                refused.extend(of_call.into_iter().map(of_row));
            }
        }
        refused.sort_by_key(|one| one.position);
        let mut columns = key_columns.to_vec();
        let back = places(&scratch.order);
        for pieces in &pieces {
            let column = concat(&pieces.iter().map(|piece| &**piece as &dyn Array).collect::<Vec<_>>())?;
            columns.push(match &back {
                Some(back) => take(&column, back, None)?,
                None => column,
            });
        }
        self.groups += more;
        self.scratch = scratch.kept();
        Ok((batch(&program.values, columns, input.num_rows())?, refused))
    }
}

/// Where each row stands in `order`; `None` if that is where it stands anyway.
fn places(order: &[u32]) -> Option<UInt32Array> {
    if order.iter().enumerate().all(|(place, row)| place == *row as usize) {
        return None;
    }
    let mut places = vec![0; order.len()];
    for (place, row) in order.iter().enumerate() {
        places[*row as usize] = place as u32;
    }
    Some(places.into())
}
