//! Event time of rows: what `time` reads, and the rows that carry it.

mod reading;

use std::sync::Arc;

use datafusion_common::arrow::array::{AsArray, TimestampNanosecondArray};
use datafusion_common::arrow::compute::filter_record_batch;
use datafusion_common::arrow::datatypes::{SchemaRef, TimestampNanosecondType};
use datafusion_common::arrow::record_batch::RecordBatch;
use datafusion_physical_expr::utils::collect_columns;
use tuplane_core::fault::Fault;
use tuplane_core::job::{OnError, Time};

use super::rows::{Dropped, EvalError, Failed, eval_column, keep_mask};
use crate::sql::{Compiled, Language};
use crate::system::{SystemColumn, SystemColumns, conform, name_of, with_column, with_system};
use reading::Reading;

/// A compiled `time`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct StampProgram {
    inner: Arc<Inner>,
    input: SchemaRef,
    output: SchemaRef,
}

#[derive(Debug)]
struct Inner {
    column: Compiled,
    reading: Reading,
    on_error: OnError,
}

/// Rows with their event times.
#[derive(Debug)]
pub struct Stamped {
    /// The rows whose time could be read, with the column that holds it.
    pub rows: RecordBatch,
    /// The others, if the job does not fail by them; numbers are those of the batch that was given.
    pub dropped: Vec<Dropped>,
}

impl StampProgram {
    /// Compiles `time` over a job's own columns.
    pub fn compile(
        language: Language,
        time: &Time,
        own: &SchemaRef,
        on_error: OnError,
    ) -> Result<Self, Vec<Fault>> {
        let column = language.with_arrival().compile(&time.column, own).map_err(|fault| vec![fault])?;
        let reading = Reading::new(time, column.field.data_type())?;
        let inner = Arc::new(Inner { column, reading, on_error });
        Ok(Self { inner, input: Arc::clone(own), output: Arc::clone(own) })
    }

    /// Rows come with these system columns, and leave with those.
    #[must_use]
    pub(crate) fn between(
        mut self,
        own: &SchemaRef,
        entering: SystemColumns,
        leaving: SystemColumns,
    ) -> Self {
        self.input = with_system(own, entering);
        self.output = with_system(own, leaving);
        self
    }

    /// It asks when a row arrived.
    pub(crate) fn reads_arrival(&self) -> bool {
        let columns = collect_columns(&self.inner.column.expr);
        columns.iter().any(|column| column.name() == name_of(SystemColumn::Due))
    }

    /// The columns that go in, system columns included.
    pub fn input(&self) -> &SchemaRef {
        &self.input
    }

    /// The columns that somebody behind needs, of those that [`Stamped::rows`] has.
    pub fn output(&self) -> &SchemaRef {
        &self.output
    }

    /// Gives rows their event times. A row whose time cannot be read is an error, or is dropped: with
    /// `on_error = "null"` too, since a row without a time is in no window.
    pub fn stamp(&self, batch: &RecordBatch) -> Result<Stamped, EvalError> {
        let inner = &self.inner;
        let batch = conform(batch.clone(), &self.input)?;
        let mut failed =
            Failed::new(if inner.on_error == OnError::Fail { OnError::Fail } else { OnError::Drop });
        let column = eval_column(&inner.column.expr, &inner.column.field, &batch, &mut failed)?;
        let times = inner.reading.read(&column, &mut failed)?;
        let rows = with_column(&batch, SystemColumn::Ts, Arc::new(times))?;
        let dropped = failed.into_dropped();
        if dropped.is_empty() {
            return Ok(Stamped { rows, dropped });
        }
        let rows = filter_record_batch(&rows, &keep_mask(batch.num_rows(), &dropped))?;
        Ok(Stamped { rows, dropped })
    }
}

impl Stamped {
    /// The rows' event times, in nanoseconds since 1970.
    pub fn times(&self) -> TimestampNanosecondArray {
        let column = self.rows.column_by_name(name_of(SystemColumn::Ts));
        let column = column.and_then(|column| column.as_primitive_opt::<TimestampNanosecondType>());
        column.cloned().unwrap_or_else(|| TimestampNanosecondArray::from(Vec::<i64>::new()))
    }
}
