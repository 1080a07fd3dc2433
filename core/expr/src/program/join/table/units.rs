//! The table of an enriching input on its way to an agent that has none: a copy, since every agent has its own.

use std::ops::Range;
use std::sync::Arc;

use datafusion_common::arrow::compute::concat_batches;
use datafusion_common::arrow::datatypes::SchemaRef;
use datafusion_common::arrow::record_batch::RecordBatch;

use super::{JoinBuilder, JoinProgram, JoinTable};
use crate::program::EvalError;
use crate::unit::{Home, Loader, Pieces, State, StateOf, Unit, UnitError, misfit};

/// A replicated state is one partition.
const WHOLE: Home = Home { partition: 0, partitions: 1 };

/// A table, or one in the making.
enum Replica {
    Whole(Arc<JoinTable>),
    Making(Box<JoinBuilder>),
}

impl State for Replica {
    fn columns(&self) -> SchemaRef {
        match self {
            Self::Whole(table) => SchemaRef::clone(&table.columns),
            Self::Making(builder) => {
                SchemaRef::clone(&builder.program.inner.enriching[builder.input].columns)
            }
        }
    }

    fn rows(&self) -> usize {
        match self {
            Self::Whole(table) => table.rows(),
            Self::Making(builder) => builder.rows(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Whole(table) => table.bytes(),
            Self::Making(builder) => builder.bytes(),
        }
    }

    fn save(&self, rows: Range<usize>) -> Result<RecordBatch, EvalError> {
        let Self::Whole(table) = self else {
            return Err(misfit("a table that is not complete cannot be carried".to_owned()));
        };
        let mut pieces = Vec::new();
        for (chunk, first) in table.chunks.iter().zip(&table.starts) {
            let first = *first as usize;
            let all = RecordBatch::try_new(self.columns(), chunk.columns.clone())?;
            let (from, to) = (rows.start.max(first), rows.end.min(first + all.num_rows()));
            if from < to {
                pieces.push(all.slice(from - first, to - from));
            }
        }
        Ok(concat_batches(&self.columns(), &pieces)?)
    }

    fn load(&mut self, rows: &RecordBatch, _: Home) -> Result<(), EvalError> {
        let Self::Making(builder) = self else {
            return Err(misfit("rows came to a table that is complete".to_owned()));
        };
        let before = builder.rows();
        builder.push(rows)?;
        if builder.rows() - before == rows.num_rows() {
            return Ok(());
        }
        Err(misfit("rows of a table came that have no key here".to_owned()))
    }
}

impl JoinTable {
    /// A copy of it as pieces, made as they are asked for.
    pub fn pieces(self: &Arc<Self>, of: StateOf) -> Pieces {
        Unit::new(WHOLE, None, Replica::Whole(Arc::clone(self))).into_pieces(of)
    }

    /// The table that a loader has put together.
    pub fn of_unit(unit: Unit) -> Result<Arc<Self>, UnitError> {
        Ok(match unit.open()? {
            Replica::Whole(table) => table,
            Replica::Making(builder) => Arc::new(builder.finish()?),
        })
    }
}

impl JoinProgram {
    /// Makes the table of an enriching input, from 0, of the pieces of another one.
    pub fn loader(&self, input: usize, of: StateOf) -> Result<Loader, UnitError> {
        // An input that there is not is found now.
        JoinBuilder::new(self.clone(), input)?;
        let program = self.clone();
        Ok(Loader::new(of, WHOLE.partitions, move || {
            Ok(Replica::Making(Box::new(JoinBuilder::new(program.clone(), input)?)))
        }))
    }
}
