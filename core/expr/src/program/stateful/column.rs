//! One state of all keys of a partition: values by group number.

use std::sync::Arc;

use datafusion_common::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray, StringArray,
    downcast_primitive,
};
use datafusion_common::arrow::datatypes::DataType;
use datafusion_common::{Result, ScalarValue};

/// Values of one state. Groups are numbered from 0.
pub(super) trait StateColumn: Send {
    /// Makes room: groups from the old number up have the first value.
    fn resize(&mut self, groups: usize);

    /// The values of some groups, as a column.
    fn get(&self, groups: &[u32]) -> Result<ArrayRef>;

    /// Gives groups new values, a row of `values` each.
    fn set(&mut self, groups: &[u32], values: &ArrayRef) -> Result<()>;

    /// Memory in use.
    fn bytes(&self) -> usize;
}

/// A column whose first value is the one row of `first`.
pub(super) fn state_column(first: &ArrayRef) -> Result<Box<dyn StateColumn>> {
    macro_rules! primitive {
        ($native:ty) => {{
            let typed = first.as_primitive::<$native>();
            Ok(Box::new(Numbers::<$native> {
                first: typed.is_valid(0).then(|| typed.value(0)),
                values: Vec::new(),
                kind: first.data_type().clone(),
            }))
        }};
    }
    downcast_primitive! {
        first.data_type() => (primitive),
        DataType::Utf8 => {
            let typed = first.as_string::<i32>();
            let first = typed.is_valid(0).then(|| typed.value(0).into());
            Ok(Box::new(Texts { first, values: Vec::new(), bytes: 0 }))
        }
        DataType::Boolean => {
            let typed = first.as_boolean();
            let first = typed.is_valid(0).then(|| typed.value(0));
            Ok(Box::new(Flags { first, values: Vec::new() }))
        }
        _ => Ok(Box::new(Others {
            first: ScalarValue::try_from_array(first, 0)?,
            values: Vec::new(),
            bytes: 0,
        })),
    }
}

struct Numbers<T: ArrowPrimitiveType> {
    first: Option<T::Native>,
    values: Vec<Option<T::Native>>,
    /// With its precision, scale or zone.
    kind: DataType,
}

impl<T: ArrowPrimitiveType> StateColumn for Numbers<T> {
    fn resize(&mut self, groups: usize) {
        self.values.resize(groups, self.first);
    }

    fn get(&self, groups: &[u32]) -> Result<ArrayRef> {
        let values: PrimitiveArray<T> = groups.iter().map(|group| self.values[*group as usize]).collect();
        Ok(Arc::new(values.with_data_type(self.kind.clone())))
    }

    fn set(&mut self, groups: &[u32], values: &ArrayRef) -> Result<()> {
        for (group, value) in groups.iter().zip(values.as_primitive::<T>()) {
            self.values[*group as usize] = value;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<Option<T::Native>>()
    }
}

struct Flags {
    first: Option<bool>,
    values: Vec<Option<bool>>,
}

impl StateColumn for Flags {
    fn resize(&mut self, groups: usize) {
        self.values.resize(groups, self.first);
    }

    fn get(&self, groups: &[u32]) -> Result<ArrayRef> {
        let values = groups.iter().map(|group| self.values[*group as usize]);
        Ok(Arc::new(values.collect::<BooleanArray>()))
    }

    fn set(&mut self, groups: &[u32], values: &ArrayRef) -> Result<()> {
        for (group, value) in groups.iter().zip(values.as_boolean()) {
            self.values[*group as usize] = value;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<Option<bool>>()
    }
}

struct Texts {
    first: Option<Box<str>>,
    values: Vec<Option<Box<str>>>,
    /// Of the texts that groups were given.
    bytes: usize,
}

impl StateColumn for Texts {
    fn resize(&mut self, groups: usize) {
        let more = groups.saturating_sub(self.values.len());
        self.bytes += more * self.first.as_ref().map_or(0, |first| first.len());
        self.values.resize(groups, self.first.clone());
    }

    fn get(&self, groups: &[u32]) -> Result<ArrayRef> {
        let values = groups.iter().map(|group| self.values[*group as usize].as_deref());
        Ok(Arc::new(values.collect::<StringArray>()))
    }

    fn set(&mut self, groups: &[u32], values: &ArrayRef) -> Result<()> {
        for (group, value) in groups.iter().zip(values.as_string::<i32>()) {
            let kept = &mut self.values[*group as usize];
            if kept.as_deref() == value {
                continue;
            }
            self.bytes += value.map_or(0, str::len);
            self.bytes -= kept.as_ref().map_or(0, |old| old.len());
            *kept = value.map(Into::into);
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<Option<Box<str>>>() + self.bytes
    }
}

/// Any other type: lists, bytes, structs.
struct Others {
    first: ScalarValue,
    values: Vec<ScalarValue>,
    bytes: usize,
}

impl StateColumn for Others {
    fn resize(&mut self, groups: usize) {
        let more = groups.saturating_sub(self.values.len());
        self.bytes += more * self.first.size();
        self.values.resize(groups, self.first.clone());
    }

    fn get(&self, groups: &[u32]) -> Result<ArrayRef> {
        ScalarValue::iter_to_array(groups.iter().map(|group| self.values[*group as usize].clone()))
    }

    fn set(&mut self, groups: &[u32], values: &ArrayRef) -> Result<()> {
        for (row, group) in groups.iter().enumerate() {
            let mut value = ScalarValue::try_from_array(values, row)?;
            // A slice would keep the whole batch alive.
            value.compact();
            let kept = &mut self.values[*group as usize];
            self.bytes += value.size();
            self.bytes = self.bytes.saturating_sub(kept.size());
            *kept = value;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
