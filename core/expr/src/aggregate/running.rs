//! The value of an aggregate after each row: what a rolling aggregate adds to it.

use std::slice::from_ref;

use datafusion_common::Result;
use datafusion_common::arrow::array::{Array, ArrayRef, BooleanArray, new_null_array};
use datafusion_common::arrow::compute::concat;
use datafusion_common::arrow::datatypes::DataType;

use super::{Accumulator, Rows};
use crate::sql::plain_message;

/// The rows that an aggregate's `filter (where ..)` lets in.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a>(pub(crate) Option<&'a BooleanArray>);

impl Wanted<'_> {
    pub(crate) fn has(self, row: usize) -> bool {
        self.0.is_none_or(|wanted| wanted.is_valid(row) && wanted.value(row))
    }
}

/// A row after which there is no value.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Its position among the rows of the call.
    pub(crate) position: usize,
    pub(crate) message: String,
}

/// What `step` gives for each row: its arguments are whether the row is let in, the row and its group.
pub(super) fn each<'a, T>(
    rows: Rows<'a>,
    wanted: Wanted<'a>,
    mut step: impl FnMut(bool, usize, usize) -> T + 'a,
) -> impl Iterator<Item = T> + 'a {
    let pairs = rows.rows.iter().zip(rows.groups);
    pairs.map(move |(row, group)| step(wanted.has(*row as usize), *row as usize, *group as usize))
}

/// For accumulators that know no better way: a call a row. The cost of a row grows with the state where a
/// function must copy it to read it (`array_agg`, `median`).
pub(super) fn one_by_one<A: Accumulator + ?Sized>(
    accumulator: &mut A,
    arguments: &[ArrayRef],
    rows: Rows<'_>,
    wanted: Wanted<'_>,
    kind: &DataType,
    refused: &mut Vec<Refused>,
) -> Result<ArrayRef> {
    let mut values = Vec::with_capacity(rows.rows.len());
    for (position, (row, group)) in rows.rows.iter().zip(rows.groups).enumerate() {
        if wanted.has(*row as usize) {
            accumulator.update(arguments, Rows { rows: from_ref(row), groups: from_ref(group) })?;
        }
        let group = *group as usize;
        values.push(accumulator.value(group..group + 1).unwrap_or_else(|error| {
            refused.push(Refused { position, message: plain_message(&error) });
            new_null_array(kind, 1)
        }));
    }
    Ok(concat(&values.iter().map(|value| &**value as &dyn Array).collect::<Vec<_>>())?)
}
