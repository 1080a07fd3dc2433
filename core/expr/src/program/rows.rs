//! Expressions over batches, and the rows that an expression cannot take: found by halving the batch.

use std::sync::Arc;

use datafusion_common::DataFusionError;
use datafusion_common::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Scalar, UInt16Array, UInt32Array, new_null_array,
};
use datafusion_common::arrow::compute::kernels::zip::zip;
use datafusion_common::arrow::compute::{
    CastOptions, cast_with_options, concat, filter, filter_record_batch,
};
use datafusion_common::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, UInt16Type};
use datafusion_common::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::Column;
use tuplane_core::fault::Fault;
use tuplane_core::job::{MAX_ROW, OnError, Text};

use super::unnest::slice_bytes;
use crate::sql::{Compiled, Language, can_fail, plain_message, sql_name};
use crate::system::{SystemColumns, own_width, with_system};

/// A row (or, without a number, a batch) that an expression cannot take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EvalError {
    /// Index of the row in the batch that the caller gave.
    pub row: Option<usize>,
    /// What is wrong with it.
    pub message: String,
}

impl EvalError {
    pub(crate) fn at(row: usize, message: String) -> Self {
        Self { row: Some(row), message }
    }
}

impl From<DataFusionError> for EvalError {
    fn from(error: DataFusionError) -> Self {
        Self { row: None, message: plain_message(&error) }
    }
}

impl From<datafusion_common::arrow::error::ArrowError> for EvalError {
    fn from(error: datafusion_common::arrow::error::ArrowError) -> Self {
        DataFusionError::from(error).into()
    }
}

/// A row left out by `on_error = "drop"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Index of the row in the batch that the caller gave.
    pub row: usize,
    /// Why.
    pub message: String,
}

/// A batch from a batch, row by row.
#[derive(Debug, Clone)]
pub struct Projection {
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    /// The columns it makes, in order.
    pub output: SchemaRef,
}

impl Projection {
    pub(crate) fn new(columns: Vec<Compiled>) -> Self {
        let (exprs, fields): (Vec<_>, Vec<_>) = columns.into_iter().map(|c| (c.expr, c.field)).unzip();
        Self { exprs, output: Arc::new(Schema::new(fields)) }
    }

    /// `select`: expressions and `*`, all faults at once.
    pub fn compile(language: Language, select: &[Text], input: &SchemaRef) -> Result<Self, Vec<Fault>> {
        Self::compile_over(language, select, input, input.fields().len())
    }

    /// As [`Projection::compile`]; `*` stands for the first `star` columns.
    pub(crate) fn compile_over(
        language: Language,
        select: &[Text],
        input: &SchemaRef,
        star: usize,
    ) -> Result<Self, Vec<Fault>> {
        let mut columns: Vec<Compiled> = Vec::new();
        let mut faults = Vec::new();
        for text in select {
            let made = if text.value.trim() == "*" {
                Ok((0..star).map(|index| column(input, index)).collect())
            } else {
                language.compile(text, input).map(|one| vec![one])
            };
            match made {
                Ok(made) => {
                    for one in made {
                        if columns.iter().any(|c| c.field.name() == one.field.name()) {
                            faults.push(twice(text, one.field.name()));
                        } else {
                            columns.push(one);
                        }
                    }
                }
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() { Ok(Self::new(columns)) } else { Err(faults) }
    }

    /// The columns of a schema as they are.
    pub(crate) fn columns(input: &SchemaRef, indices: impl IntoIterator<Item = usize>) -> Self {
        Self::new(indices.into_iter().map(|index| column(input, index)).collect())
    }

    pub(crate) fn exprs(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.exprs
    }

    /// Whether some row of `input` can be one that it cannot take.
    pub(crate) fn can_fail(&self, input: &Schema) -> bool {
        self.exprs.iter().any(|expr| can_fail(expr, input))
    }

    /// Copies system columns, which stand behind `width` columns of its input.
    #[must_use]
    pub(crate) fn carrying(mut self, width: usize, system: SystemColumns) -> Self {
        let copies = system.fields().enumerate().map(|(position, field)| {
            Arc::new(Column::new(field.name(), width + position)) as Arc<dyn PhysicalExpr>
        });
        self.exprs.extend(copies);
        self.output = with_system(&self.output, system);
        self
    }

    /// All rows, or the first row that cannot be taken.
    pub fn eval(&self, batch: &RecordBatch) -> Result<RecordBatch, EvalError> {
        self.eval_rows(batch, OnError::Fail).map(|(rows, _)| rows)
    }

    /// The rows that can be taken, and those that `on_error = "drop"` left out.
    pub fn eval_rows(
        &self,
        batch: &RecordBatch,
        on_error: OnError,
    ) -> Result<(RecordBatch, Vec<Dropped>), EvalError> {
        let mut failed = Failed::new(on_error);
        let rows = self.eval_into(batch, &mut failed)?;
        Ok((rows, failed.into_dropped()))
    }

    /// The rows that can be taken; the others go to `failed`.
    pub(crate) fn eval_into(
        &self,
        batch: &RecordBatch,
        failed: &mut Failed,
    ) -> Result<RecordBatch, EvalError> {
        let columns = self
            .exprs
            .iter()
            .zip(self.output.fields())
            .map(|(expr, field)| eval_column(expr, field, batch, failed))
            .collect::<Result<Vec<_>, _>>()?;
        let own = own_width(&self.output);
        let columns = without_large_rows(columns, own, batch.num_rows(), failed)?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let rows = RecordBatch::try_new_with_options(Arc::clone(&self.output), columns, &options)?;
        let dropped = failed.dropped();
        if dropped.is_empty() {
            return Ok(rows);
        }
        Ok(filter_record_batch(&rows, &keep_mask(batch.num_rows(), dropped))?)
    }
}

/// Bytes that a row has beside its values.
const OVERHEAD: usize = 64 << 10;

/// Columns in which rows that are larger than a row may be are null, and refused; the system columns behind the `own`
/// ones stay as they are.
fn without_large_rows(
    mut columns: Vec<ArrayRef>,
    own: usize,
    rows: usize,
    failed: &mut Failed,
) -> Result<Vec<ArrayRef>, EvalError> {
    let most = MAX_ROW as usize + OVERHEAD;
    if columns.iter().map(slice_bytes).sum::<usize>() <= most {
        return Ok(columns);
    }
    let mut fits = vec![true; rows];
    for (row, fits) in fits.iter_mut().enumerate() {
        let bytes: usize = columns.iter().map(|column| slice_bytes(&column.slice(row, 1))).sum();
        if bytes > most {
            *fits = false;
            let message = format!("the row would have {bytes} bytes; {} MiB is the most", MAX_ROW >> 20);
            failed.row(row, message)?;
        }
    }
    if fits.iter().all(|fits| *fits) {
        return Ok(columns);
    }
    let fits = BooleanArray::from(fits);
    for column in columns.iter_mut().take(own) {
        *column = zip(&fits, &*column, &Scalar::new(new_null_array(column.data_type(), 1)))?;
    }
    Ok(columns)
}

/// Keeps rows.
#[derive(Debug, Clone)]
pub struct Filter {
    predicate: Arc<dyn PhysicalExpr>,
    field: FieldRef,
    /// The columns that go in, and come out.
    pub schema: SchemaRef,
}

impl Filter {
    /// `where`: a boolean expression.
    pub fn compile(language: Language, predicate: &Text, input: &SchemaRef) -> Result<Self, Fault> {
        let compiled = language.compile(predicate, input)?;
        if *compiled.field.data_type() != DataType::Boolean {
            let found = sql_name(compiled.field.data_type());
            let message = format!("`where` needs true or false, and `{}` is {found}", predicate.value.trim());
            return Err(Fault::new(predicate.at, message).help("compare it with something"));
        }
        Ok(Self { predicate: compiled.expr, field: compiled.field, schema: Arc::clone(input) })
    }

    pub(crate) fn predicate(&self) -> &Arc<dyn PhysicalExpr> {
        &self.predicate
    }

    /// As [`Projection::carrying`]: a row is kept or left out with all its columns.
    #[must_use]
    pub(crate) fn carrying(mut self, system: SystemColumns) -> Self {
        self.schema = with_system(&self.schema, system);
        self
    }

    /// The rows for which the predicate is true, or the first row that cannot be taken.
    pub fn eval(&self, batch: &RecordBatch) -> Result<RecordBatch, EvalError> {
        let mask = self.mask(batch, &mut Failed::new(OnError::Fail))?;
        Ok(filter_record_batch(batch, &mask)?)
    }

    /// Which rows are kept. A predicate that is null, also by `on_error = "null"`, keeps nothing.
    pub(crate) fn mask(&self, batch: &RecordBatch, failed: &mut Failed) -> Result<BooleanArray, EvalError> {
        Ok(eval_column(&self.predicate, &self.field, batch, failed)?.as_boolean().clone())
    }
}

/// A column of the input as an expression.
pub(crate) fn column(schema: &SchemaRef, index: usize) -> Compiled {
    let field = schema.field(index);
    Compiled {
        expr: Arc::new(Column::new(field.name(), index)),
        field: Arc::new(Field::new(field.name(), field.data_type().clone(), true)),
    }
}

pub(crate) fn twice(text: &Text, name: &str) -> Fault {
    Fault::new(text.at, format!("two columns are called `{name}`")).help("name one of them with `as`")
}

/// True for all rows but the dropped ones.
pub(crate) fn keep_mask(rows: usize, dropped: &[Dropped]) -> BooleanArray {
    let mut kept = vec![true; rows];
    for one in dropped {
        kept[one.row] = false;
    }
    BooleanArray::from(kept)
}

/// Numbers of the rows that were not dropped, in order.
pub fn kept_rows(rows: usize, dropped: &[Dropped]) -> UInt32Array {
    let mut dropped = dropped.iter().map(|one| one.row).peekable();
    (0..rows).filter(|row| dropped.next_if_eq(row).is_none()).map(|row| row as u32).collect::<Vec<_>>().into()
}

/// The key partitions of the rows that were not dropped, where they are known.
pub(crate) fn kept_partitions(
    all: Option<&UInt16Array>,
    dropped: &[Dropped],
) -> Result<Option<UInt16Array>, EvalError> {
    let Some(all) = all else { return Ok(None) };
    if dropped.is_empty() {
        return Ok(Some(all.clone()));
    }
    Ok(Some(filter(all, &keep_mask(all.len(), dropped))?.as_primitive::<UInt16Type>().clone()))
}

/// What became of the rows that an expression could not take.
pub(crate) struct Failed {
    on_error: OnError,
    /// In order, each once, with its first message.
    dropped: Vec<Dropped>,
    /// The last one in which a value became null.
    nulled: Option<Dropped>,
}

impl Failed {
    pub(crate) fn new(on_error: OnError) -> Self {
        Self { on_error, dropped: Vec::new(), nulled: None }
    }

    /// A row cannot be taken.
    pub(crate) fn row(&mut self, row: usize, message: String) -> Result<(), EvalError> {
        match self.on_error {
            OnError::Fail => return Err(EvalError::at(row, message)),
            OnError::Drop => {
                if let Err(place) = self.dropped.binary_search_by_key(&row, |known| known.row) {
                    self.dropped.insert(place, Dropped { row, message });
                }
            }
            OnError::Null => {
                if self.nulled.as_ref().is_none_or(|last| last.row <= row) {
                    self.nulled = Some(Dropped { row, message });
                }
            }
        }
        Ok(())
    }

    /// The dropped rows in order, each once, with its first message.
    pub(crate) fn dropped(&self) -> &[Dropped] {
        &self.dropped
    }

    pub(crate) fn into_dropped(self) -> Vec<Dropped> {
        self.dropped
    }

    /// The last row that was dropped, or in which a value became null.
    pub(crate) fn last(&self) -> Option<&Dropped> {
        self.dropped.last().or(self.nulled.as_ref())
    }
}

/// One column. A row that the expression cannot take is null in it and goes to `failed`.
pub(crate) fn eval_column(
    expr: &Arc<dyn PhysicalExpr>,
    field: &FieldRef,
    batch: &RecordBatch,
    failed: &mut Failed,
) -> Result<ArrayRef, EvalError> {
    match eval_whole(expr, field, batch) {
        Ok(column) => Ok(column),
        Err(error) if batch.num_rows() == 0 => Err(error.into()),
        Err(error) => {
            let mut pieces = Vec::new();
            eval_halves(expr, field, batch, 0, &error, failed, &mut pieces)?;
            let pieces: Vec<&dyn Array> = pieces.iter().map(|p| &**p as &dyn Array).collect();
            Ok(concat(&pieces)?)
        }
    }
}

/// `batch` starts at row `first` and is known to fail with `error`.
fn eval_halves(
    expr: &Arc<dyn PhysicalExpr>,
    field: &FieldRef,
    batch: &RecordBatch,
    first: usize,
    error: &DataFusionError,
    failed: &mut Failed,
    pieces: &mut Vec<ArrayRef>,
) -> Result<(), EvalError> {
    if batch.num_rows() == 1 {
        failed.row(first, plain_message(error))?;
        pieces.push(new_null_array(field.data_type(), 1));
        return Ok(());
    }
    let middle = batch.num_rows() / 2;
    for (start, len) in [(0, middle), (middle, batch.num_rows() - middle)] {
        let half = batch.slice(start, len);
        match eval_whole(expr, field, &half) {
            Ok(column) => pieces.push(column),
            Err(error) => eval_halves(expr, field, &half, first + start, &error, failed, pieces)?,
        }
    }
    Ok(())
}

fn eval_whole(
    expr: &Arc<dyn PhysicalExpr>,
    field: &FieldRef,
    batch: &RecordBatch,
) -> Result<ArrayRef, DataFusionError> {
    let column = expr.evaluate(batch)?.into_array(batch.num_rows())?;
    if column.data_type() == field.data_type() {
        return Ok(column);
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    Ok(cast_with_options(&column, field.data_type(), &options)?)
}
