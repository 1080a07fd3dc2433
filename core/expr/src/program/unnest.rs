//! `flat_map`: as many rows as a list has elements, resumable inside a row.

use std::sync::Arc;

use datafusion_common::arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt32Array};
use datafusion_common::arrow::buffer::OffsetBuffer;
use datafusion_common::arrow::compute::{take, take_record_batch};
use datafusion_common::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion_common::arrow::record_batch::RecordBatch;
use datafusion_physical_expr::PhysicalExpr;
use tuplane_core::fault::Fault;
use tuplane_core::job::{OnError, Text};

use super::rows::{Dropped, EvalError, Failed, eval_column};
use crate::sql::{Compiled, Language, can_fail, sql_name};
use crate::system::{SystemColumns, with_system};

/// Bytes that any batch may keep alive beside its own: what says where its columns are.
const SLACK: usize = 4 << 10;

/// A list becomes rows; the other columns are kept.
#[derive(Debug, Clone)]
pub struct Unnest {
    list: Arc<dyn PhysicalExpr>,
    field: FieldRef,
    /// The input columns that are kept.
    keep: Vec<usize>,
    /// System columns of the input, which are copied too.
    carry: Vec<usize>,
    /// The kept columns, then the element, then system columns.
    pub output: SchemaRef,
}

impl Unnest {
    /// `list expr as name`. A column of the input with that name makes way.
    pub fn compile(language: Language, unnest: &Text, input: &SchemaRef) -> Result<Self, Fault> {
        let Compiled { expr, field } = language.compile(unnest, input)?;
        let DataType::List(item) = field.data_type() else {
            let message = format!(
                "`unnest` needs a list, and `{}` is {}",
                unnest.value.trim(),
                sql_name(field.data_type())
            );
            return Err(Fault::new(unnest.at, message)
                .help("`words(text)` and `string_to_array(text, ',')` make lists of text"));
        };
        let element = Arc::new(Field::new(field.name(), item.data_type().clone(), true));
        let keep: Vec<usize> =
            (0..input.fields().len()).filter(|i| input.field(*i).name() != element.name()).collect();
        let output = output(input, &keep, element);
        Ok(Self { list: expr, field, keep, carry: Vec::new(), output })
    }

    /// Keeps only those columns that `used` (indices of the output) names: others need no copies.
    #[must_use]
    pub(crate) fn keeping(mut self, input: &SchemaRef, used: &[usize]) -> Self {
        let element = Arc::clone(&self.output.fields()[self.keep.len()]);
        self.keep = self.keep.iter().enumerate().filter(|(i, _)| used.contains(i)).map(|(_, k)| *k).collect();
        self.output = output(input, &self.keep, element);
        self
    }

    /// Keeps none but the first `width` columns of its input.
    #[must_use]
    pub(crate) fn keeping_first(mut self, input: &SchemaRef, width: usize) -> Self {
        let element = Arc::clone(&self.output.fields()[self.keep.len()]);
        self.keep.retain(|index| *index < width);
        self.output = output(input, &self.keep, element);
        self
    }

    /// Copies system columns, which stand behind `width` columns of its input.
    #[must_use]
    pub(crate) fn carrying(mut self, width: usize, system: SystemColumns) -> Self {
        self.carry = (width..).zip(system.fields()).map(|(index, _)| index).collect();
        self.output = with_system(&self.output, system);
        self
    }

    pub(crate) fn list(&self) -> &Arc<dyn PhysicalExpr> {
        &self.list
    }

    /// Whether some row of `input` can be one that it cannot take.
    pub(crate) fn can_fail(&self, input: &Schema) -> bool {
        can_fail(&self.list, input)
    }

    /// Begins with a batch, or gives the first row that cannot be taken.
    pub fn start(&self, batch: &RecordBatch) -> Result<UnnestState, EvalError> {
        self.start_rows(batch, OnError::Fail).map(|(state, _)| state)
    }

    /// Begins with a batch. A list that is null, also by `on_error = "null"`, makes no rows.
    pub fn start_rows(
        &self,
        batch: &RecordBatch,
        on_error: OnError,
    ) -> Result<(UnnestState, Vec<Dropped>), EvalError> {
        let mut failed = Failed::new(on_error);
        let state = self.start_into(batch, &mut failed)?;
        Ok((state, failed.into_dropped()))
    }

    /// Begins with a batch; rows whose list cannot be made go to `failed`.
    pub(crate) fn start_into(
        &self,
        batch: &RecordBatch,
        failed: &mut Failed,
    ) -> Result<UnnestState, EvalError> {
        let list = eval_column(&self.list, &self.field, batch, failed)?;
        let list = list.as_list::<i32>().clone();
        let columns = |indices: &[usize]| -> Vec<ArrayRef> {
            indices.iter().map(|i| Arc::clone(batch.column(*i))).collect()
        };
        let (kept, carried) = (columns(&self.keep), columns(&self.carry));
        let bytes = kept.iter().chain(&carried).map(RowBytes::of).collect();
        let element_bytes = RowBytes::of(list.values());
        let output = Arc::clone(&self.output);
        Ok(UnnestState { kept, carried, bytes, list, element_bytes, output, row: 0, element: 0 })
    }
}

fn output(input: &SchemaRef, keep: &[usize], element: FieldRef) -> SchemaRef {
    let kept = keep.iter().map(|i| Arc::new(input.field(*i).clone().with_nullable(true)));
    Arc::new(Schema::new(kept.chain([element]).collect::<Vec<FieldRef>>()))
}

/// Where an unnest stands in its batch.
#[derive(Debug, Clone)]
pub struct UnnestState {
    kept: Vec<ArrayRef>,
    /// System columns, which follow the element.
    carried: Vec<ArrayRef>,
    bytes: Vec<RowBytes>,
    list: ListArray,
    element_bytes: RowBytes,
    output: SchemaRef,
    row: usize,
    element: usize,
}

impl UnnestState {
    /// The next rows: at most `max_rows`, and no more than `max_bytes` unless one row alone is longer.
    /// `None` at the end of the batch.
    pub fn next(&mut self, max_rows: usize, max_bytes: usize) -> Option<Result<RecordBatch, EvalError>> {
        self.next_rows(max_rows, max_bytes).map(|next| next.map(|(rows, _)| rows))
    }

    /// The next rows, with the row of the batch that each one comes from.
    pub(crate) fn next_rows(
        &mut self,
        max_rows: usize,
        max_bytes: usize,
    ) -> Option<Result<(RecordBatch, UInt32Array), EvalError>> {
        let (first, from) = self.advance(max_rows.max(1), max_bytes);
        if from.is_empty() {
            return None;
        }
        let elements = self.list.values().slice(first, from.len());
        let from = UInt32Array::from(from);
        let copied = |column: &ArrayRef| take(column, &from, None);
        let rows = self
            .kept
            .iter()
            .map(copied)
            .chain([Ok(elements)])
            .chain(self.carried.iter().map(copied))
            .collect::<Result<Vec<_>, _>>()
            .and_then(|columns| RecordBatch::try_new(Arc::clone(&self.output), columns));
        Some(rows.map(|rows| (rows, from)).map_err(EvalError::from))
    }

    /// Moves on: the first element taken, and the row of each one. Elements of one batch are a single run
    /// of the list's values, so that they need no copy.
    fn advance(&mut self, max_rows: usize, max_bytes: usize) -> (usize, Vec<u32>) {
        let offsets = self.list.value_offsets();
        let (mut first, mut from, mut bytes) = (0, Vec::new(), 0);
        while self.row < self.list.len() && from.len() < max_rows {
            let (start, end) = (offsets[self.row] as usize, offsets[self.row + 1] as usize);
            let mut next = start + self.element;
            if self.list.is_null(self.row) || next == end {
                (self.row, self.element) = (self.row + 1, 0);
                continue;
            }
            if from.is_empty() {
                first = next;
            } else if next != first + from.len() {
                break;
            }
            let row_bytes: usize = self.bytes.iter().map(|column| column.at(self.row)).sum();
            while next < end && from.len() < max_rows {
                bytes += row_bytes + self.element_bytes.at(next);
                if bytes > max_bytes && !from.is_empty() {
                    break;
                }
                from.push(self.row as u32);
                next += 1;
            }
            if next < end {
                self.element = next - start;
                break;
            }
            (self.row, self.element) = (self.row + 1, 0);
        }
        (first, from)
    }
}

/// Bytes of a value: exact for text and bytes, which vary; the mean for others.
#[derive(Debug, Clone)]
pub(super) enum RowBytes {
    Offsets(OffsetBuffer<i32>),
    Mean(usize),
}

impl RowBytes {
    pub(super) fn of(column: &ArrayRef) -> Self {
        match column.data_type() {
            DataType::Utf8 => Self::Offsets(column.as_string::<i32>().offsets().clone()),
            DataType::Binary => Self::Offsets(column.as_binary::<i32>().offsets().clone()),
            _ => Self::Mean(slice_bytes(column).div_ceil(column.len().max(1))),
        }
    }

    pub(super) fn at(&self, row: usize) -> usize {
        match self {
            Self::Offsets(offsets) => (offsets[row + 1] - offsets[row]) as usize + 4,
            Self::Mean(bytes) => *bytes,
        }
    }
}

/// A batch that waits for others. A slice that keeps more than four times its own bytes alive is copied.
pub(crate) fn kept(batch: RecordBatch) -> Result<RecordBatch, EvalError> {
    let own: usize = batch.columns().iter().map(slice_bytes).sum();
    if batch.get_array_memory_size() <= 4 * own + SLACK {
        return Ok(batch);
    }
    let all = UInt32Array::from_iter_values(0..batch.num_rows() as u32);
    Ok(take_record_batch(&batch, &all)?)
}

/// The bytes of a slice's own rows.
pub(crate) fn slice_bytes(column: &ArrayRef) -> usize {
    // Of the values of lists, only those that the column has.
    if let Some(lists) = column.as_list_opt::<i32>() {
        let offsets = lists.value_offsets();
        let (first, end) = (offsets[0] as usize, offsets[lists.len()] as usize);
        return size_of_val(offsets) + slice_bytes(&lists.values().slice(first, end - first));
    }
    if let Some(parts) = column.as_struct_opt() {
        return parts.columns().iter().map(slice_bytes).sum();
    }
    column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size())
}
