//! `count(distinct x)`.

use std::ops::Range;
use std::sync::Arc;

use datafusion_common::Result;
use datafusion_common::arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, UInt32Array};
use datafusion_common::arrow::buffer::OffsetBuffer;
use datafusion_common::arrow::compute::take;
use datafusion_common::arrow::datatypes::{DataType, Field};
use datafusion_common::arrow::row::{RowConverter, SortField};
use hashbrown::HashSet;

use super::keys::one_float_form;
use super::{Accumulator, Rows};
use crate::key::can_be_key;

/// Values that can be keys can be told apart.
pub(super) fn supports(data_type: &DataType) -> bool {
    can_be_key(data_type)
}

/// The state: the values seen, as a list.
pub(super) fn state(data_type: &DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(data_type.clone(), true)))
}

/// Counts different values. Null is not a value.
pub(super) struct CountDistinct {
    converter: RowConverter,
    item: Arc<Field>,
    seen: Vec<HashSet<Box<[u8]>>>,
    /// Of the values.
    bytes: usize,
}

impl CountDistinct {
    pub(super) fn new(data_type: &DataType) -> Result<Self> {
        Ok(Self {
            converter: RowConverter::new(vec![SortField::new(data_type.clone())])?,
            item: Arc::new(Field::new_list_field(data_type.clone(), true)),
            seen: Vec::new(),
            bytes: 0,
        })
    }

    /// Adds `values[i]` to the group that `group(i)` names.
    fn add(&mut self, values: &ArrayRef, groups: impl Iterator<Item = usize>) -> Result<()> {
        let values = one_float_form(values);
        let rows = self.converter.convert_columns(std::slice::from_ref(&values))?;
        for (index, group) in groups.enumerate() {
            let row = rows.row(index);
            let set = &mut self.seen[group];
            if values.is_valid(index) && !set.contains(row.as_ref()) {
                self.bytes += row.as_ref().len() + 2 * size_of::<Box<[u8]>>();
                set.insert(row.as_ref().into());
            }
        }
        Ok(())
    }
}

impl Accumulator for CountDistinct {
    fn resize(&mut self, groups: usize) {
        self.seen.resize_with(groups, HashSet::new);
    }

    fn update(&mut self, arguments: &[ArrayRef], rows: Rows<'_>) -> Result<()> {
        let values = take(&arguments[0], &UInt32Array::from(rows.rows.to_vec()), None)?;
        self.add(&values, rows.groups.iter().map(|group| *group as usize))
    }

    fn merge(&mut self, state: &[ArrayRef], rows: Rows<'_>) -> Result<()> {
        let lists = take(&state[0], &UInt32Array::from(rows.rows.to_vec()), None)?;
        let lists = lists.as_list::<i32>();
        let first = lists.value_offsets()[0] as usize;
        let groups = lists
            .value_offsets()
            .windows(2)
            .zip(rows.groups)
            .flat_map(|(ends, group)| std::iter::repeat_n(*group as usize, (ends[1] - ends[0]) as usize));
        let values = lists.values().slice(first, lists.values().len() - first);
        self.add(&values, groups)
    }

    fn value(&self, groups: Range<usize>) -> Result<ArrayRef> {
        let counts: Int64Array = self.seen[groups].iter().map(|set| Some(set.len() as i64)).collect();
        Ok(Arc::new(counts))
    }

    fn save(&self, groups: Range<usize>) -> Result<Vec<ArrayRef>> {
        let parser = self.converter.parser();
        let mut rows = Vec::new();
        let mut lengths = Vec::with_capacity(groups.len());
        for set in &self.seen[groups] {
            let start = rows.len();
            rows.extend(set.iter().map(|row| &**row));
            // Sorted, so that the same state is always saved as the same bytes.
            rows[start..].sort_unstable();
            lengths.push(set.len());
        }
        let values = self.converter.convert_rows(rows.into_iter().map(|row| parser.parse(row)))?;
        let offsets = OffsetBuffer::from_lengths(lengths);
        let list = ListArray::try_new(Arc::clone(&self.item), offsets, Arc::clone(&values[0]), None)?;
        Ok(vec![Arc::new(list)])
    }

    fn bytes(&self) -> usize {
        self.seen.capacity() * size_of::<HashSet<Box<[u8]>>>() + self.bytes
    }
}
