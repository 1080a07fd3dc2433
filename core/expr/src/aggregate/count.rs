//! `count(*)` and `count(x)`.

use std::ops::Range;
use std::sync::Arc;

use datafusion_common::Result;
use datafusion_common::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion_common::arrow::datatypes::{DataType, Int64Type};

use super::running::each;
use super::{Accumulator, Refused, Rows, Wanted};

/// Counts rows, or rows whose argument is not null.
pub(super) struct Count {
    counts: Vec<i64>,
    what: What,
}

enum What {
    Rows,
    Values,
}

impl Count {
    pub(super) fn rows() -> Self {
        Self { counts: Vec::new(), what: What::Rows }
    }

    pub(super) fn values() -> Self {
        Self { counts: Vec::new(), what: What::Values }
    }
}

impl Accumulator for Count {
    fn resize(&mut self, groups: usize) {
        self.counts.resize(groups, 0);
    }

    fn update(&mut self, arguments: &[ArrayRef], rows: Rows<'_>) -> Result<()> {
        match (&self.what, arguments) {
            (What::Values, [values]) if values.logical_null_count() > 0 => {
                let nulls = values.logical_nulls();
                for (row, group) in rows.pairs() {
                    let valid = nulls.as_ref().is_none_or(|n| n.is_valid(row));
                    self.counts[group] += i64::from(valid);
                }
            }
            _ => {
                for group in rows.groups {
                    self.counts[*group as usize] += 1;
                }
            }
        }
        Ok(())
    }

    fn running(
        &mut self,
        arguments: &[ArrayRef],
        rows: Rows<'_>,
        wanted: Wanted<'_>,
        _: &DataType,
        _: &mut Vec<Refused>,
    ) -> Result<ArrayRef> {
        let nulls = match (&self.what, arguments) {
            (What::Values, [values]) => values.logical_nulls(),
            _ => None,
        };
        let counts = &mut self.counts;
        let values = each(rows, wanted, |wanted, row, group| {
            counts[group] += i64::from(wanted && nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)));
            counts[group]
        });
        Ok(Arc::new(Int64Array::from_iter_values(values)))
    }

    fn merge(&mut self, state: &[ArrayRef], rows: Rows<'_>) -> Result<()> {
        let counts = state[0].as_primitive::<Int64Type>();
        for (row, group) in rows.pairs() {
            self.counts[group] += counts.value(row);
        }
        Ok(())
    }

    fn value(&self, groups: Range<usize>) -> Result<ArrayRef> {
        Ok(Arc::new(Int64Array::from(self.counts[groups].to_vec())))
    }

    fn save(&self, groups: Range<usize>) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.value(groups)?])
    }

    fn bytes(&self) -> usize {
        self.counts.capacity() * size_of::<i64>()
    }
}
