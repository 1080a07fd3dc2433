//! `DataFusion`'s aggregates behind our trait. Reading one consumes it, so what was read is loaded again.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use datafusion_common::arrow::array::{ArrayRef, UInt32Array};
use datafusion_common::arrow::compute::take;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::Accumulator as Theirs;
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;

use super::{Accumulator, Rows};

/// One of `DataFusion`'s accumulators for each group.
pub(super) struct Adapted {
    function: Arc<AggregateFunctionExpr>,
    groups: Vec<RefCell<Group>>,
    /// Of each group that has an accumulator, and of all of them.
    sizes: Vec<Size>,
    bytes: usize,
}

/// Made with its first row.
type Group = Option<Box<dyn Theirs>>;

/// How large an accumulator is. Asking may take it a look at all that it holds, so it is asked again only
/// when as much has come in as it was large: until then what came in counts as kept.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    measured: usize,
    since: usize,
}

impl Size {
    fn bytes(self) -> usize {
        self.measured + self.since
    }

    /// So many bytes have come in.
    fn took(&mut self, bytes: usize, measure: impl FnOnce() -> usize) {
        self.since += bytes;
        if self.since >= self.measured {
            *self = Self { measured: measure(), since: 0 };
        }
    }
}

impl Adapted {
    pub(super) fn new(function: Arc<AggregateFunctionExpr>) -> Self {
        Self { function, groups: Vec::new(), sizes: Vec::new(), bytes: 0 }
    }

    fn loaded(&self, state: &[ScalarValue]) -> Result<Box<dyn Theirs>> {
        let mut group = self.function.create_accumulator()?;
        let state = state.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>>>()?;
        group.merge_batch(&state)?;
        Ok(group)
    }

    /// The state of a group, which stays as it was.
    fn state(&self, group: usize) -> Result<Vec<ScalarValue>> {
        let mut group = self.groups[group].borrow_mut();
        match group.as_mut() {
            None => self.function.create_accumulator()?.state(),
            Some(theirs) => {
                let state = theirs.state()?;
                *group = Some(self.loaded(&state)?);
                Ok(state)
            }
        }
    }

    /// Gives every group its rows in one call.
    fn each_group(
        &mut self,
        columns: &[ArrayRef],
        rows: Rows<'_>,
        give: impl Fn(&mut dyn Theirs, &[ArrayRef]) -> Result<()>,
    ) -> Result<()> {
        let mut pairs: Vec<(u32, u32)> = rows.groups.iter().copied().zip(rows.rows.iter().copied()).collect();
        // Stable: rows of a group keep their order, which first_value and array_agg show.
        pairs.sort_by_key(|(group, _)| *group);
        for run in pairs.chunk_by(|a, b| a.0 == b.0) {
            let indices = UInt32Array::from_iter_values(run.iter().map(|(_, row)| *row));
            let columns =
                columns.iter().map(|column| take(column, &indices, None)).collect::<Result<Vec<_>, _>>()?;
            let group = self.groups[run[0].0 as usize].get_mut();
            let theirs = match group {
                Some(theirs) => theirs,
                None => group.insert(self.function.create_accumulator()?),
            };
            give(theirs.as_mut(), &columns)?;
            let size = &mut self.sizes[run[0].0 as usize];
            self.bytes = self.bytes.saturating_sub(size.bytes());
            size.took(columns.iter().map(|column| column.get_array_memory_size()).sum(), || theirs.size());
            self.bytes += size.bytes();
        }
        Ok(())
    }
}

impl Accumulator for Adapted {
    fn resize(&mut self, groups: usize) {
        self.groups.resize_with(groups, RefCell::default);
        self.sizes.resize_with(groups, Size::default);
    }

    fn update(&mut self, arguments: &[ArrayRef], rows: Rows<'_>) -> Result<()> {
        self.each_group(arguments, rows, datafusion_expr::Accumulator::update_batch)
    }

    fn merge(&mut self, state: &[ArrayRef], rows: Rows<'_>) -> Result<()> {
        self.each_group(state, rows, datafusion_expr::Accumulator::merge_batch)
    }

    fn value(&self, groups: Range<usize>) -> Result<ArrayRef> {
        let values = groups.map(|group| self.loaded(&self.state(group)?)?.evaluate());
        ScalarValue::iter_to_array(values.collect::<Result<Vec<_>>>()?)
    }

    fn save(&self, groups: Range<usize>) -> Result<Vec<ArrayRef>> {
        let parts = self.function.state_fields()?.len();
        let mut columns: Vec<Vec<ScalarValue>> = vec![Vec::new(); parts];
        for group in groups {
            for (column, value) in columns.iter_mut().zip(self.state(group)?) {
                column.push(value);
            }
        }
        columns.into_iter().map(ScalarValue::iter_to_array).collect()
    }

    fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<RefCell<Group>>()
            + self.sizes.capacity() * size_of::<Size>()
            + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_asked_for_rarely_and_counts_what_came_in() {
        // As of array_agg: it keeps all that comes in, and looks at each piece to say how much.
        let (mut size, mut kept, mut looked) = (Size::default(), 0_usize, 0_usize);
        let (calls, piece) = (100_000_usize, 8);
        for call in 1..=calls {
            kept += piece;
            size.took(piece, || {
                looked += call;
                kept
            });
            assert_eq!(size.bytes(), kept);
        }
        assert!(looked <= 4 * calls, "{looked} pieces were looked at for {calls}");
        // One that keeps nothing is never said to be larger than twice what it is, and what came in last.
        let mut size = Size::default();
        for _ in 0..1000 {
            size.took(8, || 100);
            assert!(size.bytes() < 208);
        }
    }
}
