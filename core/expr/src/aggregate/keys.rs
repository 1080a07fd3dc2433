//! The keys of a table: which group a key has, and the keys again as columns.

use std::ops::Range;
use std::sync::Arc;

use datafusion_common::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Int64Array, PrimitiveArray, StringArray, StringBuilder,
};
use datafusion_common::arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use datafusion_common::arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type, Int64Type};
use datafusion_common::arrow::row::{RowConverter, Rows, SortField};
use datafusion_common::{Result, exec_datafusion_err};
use hashbrown::HashTable;

use crate::key::hash_rows;
use crate::program::EvalError;
use crate::unit::{Home, misfit};

/// How keys are kept: one column of text or integers as it is, others as rows of bytes.
#[derive(Debug)]
pub(crate) enum KeyForm {
    /// There is no key: one group in all.
    Global,
    Text,
    Integer,
    Row(RowConverter),
}

impl KeyForm {
    pub(crate) fn of(fields: &[FieldRef]) -> Result<Self> {
        Ok(match fields {
            [] => Self::Global,
            [one] if *one.data_type() == DataType::Utf8 => Self::Text,
            [one] if *one.data_type() == DataType::Int64 => Self::Integer,
            _ => {
                let fields = fields.iter().map(|f| SortField::new(f.data_type().clone())).collect();
                Self::Row(RowConverter::new(fields)?)
            }
        })
    }

    /// The keys of a batch in this form.
    pub(crate) fn read<'a>(&self, columns: &'a [ArrayRef]) -> Result<BatchKeys<'a>> {
        Ok(match self {
            Self::Global => BatchKeys::Global,
            Self::Text => BatchKeys::Text(columns[0].as_string()),
            Self::Integer => BatchKeys::Integer(columns[0].as_primitive()),
            Self::Row(converter) => {
                let columns: Vec<ArrayRef> = columns.iter().map(one_float_form).collect();
                BatchKeys::Row(converter.convert_columns(&columns)?)
            }
        })
    }
}

/// The keys of a batch.
pub(crate) enum BatchKeys<'a> {
    Global,
    Text(&'a StringArray),
    Integer(&'a Int64Array),
    Row(Rows),
}

/// The keys of one table, numbered in the order they came.
#[derive(Debug, Default)]
pub(crate) struct KeyTable {
    slots: HashTable<Slot>,
    len: usize,
    /// The null key of a `Text` or `Integer` table.
    null: Option<u32>,
    /// Text and rows: bytes one after another, and where each one ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    integers: Vec<i64>,
}

#[derive(Debug)]
struct Slot {
    hash: u64,
    group: u32,
}

impl KeyTable {
    /// How many groups there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The groups of some rows of a batch; new keys become new groups.
    pub(crate) fn assign(
        &mut self,
        keys: &BatchKeys<'_>,
        hashes: &[u64],
        rows: &[u32],
        groups: &mut Vec<u32>,
    ) {
        groups.clear();
        groups.reserve(rows.len());
        let rows = rows.iter().map(|row| *row as usize);
        match keys {
            BatchKeys::Global => {
                self.len = 1;
                groups.extend(rows.map(|_| 0));
            }
            BatchKeys::Text(text) => groups.extend(rows.map(|row| {
                if text.is_null(row) {
                    self.null()
                } else {
                    self.bytes(text.value(row).as_bytes(), hashes[row])
                }
            })),
            BatchKeys::Integer(integers) => groups.extend(rows.map(|row| {
                if integers.is_null(row) {
                    self.null()
                } else {
                    self.integer(integers.value(row), hashes[row])
                }
            })),
            BatchKeys::Row(keys) => {
                groups.extend(rows.map(|row| self.bytes(keys.row(row).as_ref(), hashes[row])));
            }
        }
    }

    /// The groups of keys that came from elsewhere, which must be at home there; new keys become new groups.
    pub(crate) fn assign_from(
        &mut self,
        form: &KeyForm,
        columns: &[ArrayRef],
        rows: usize,
        home: Home,
    ) -> Result<Vec<u32>, EvalError> {
        let (mut hashes, mut groups) = (Vec::new(), Vec::new());
        hash_rows(columns, rows, &mut hashes)?;
        home.check(&hashes)?;
        let all: Vec<u32> = (0..rows as u32).collect();
        self.assign(&form.read(columns)?, &hashes, &all, &mut groups);
        Ok(groups)
    }

    /// As [`KeyTable::assign_from`], of keys that must all be new.
    pub(crate) fn assign_new(
        &mut self,
        form: &KeyForm,
        columns: &[ArrayRef],
        rows: usize,
        home: Home,
    ) -> Result<Vec<u32>, EvalError> {
        let before = self.len;
        let groups = self.assign_from(form, columns, rows, home)?;
        if self.len - before == rows { Ok(groups) } else { Err(misfit("state has a key twice".to_owned())) }
    }

    /// The one group of a table without a key.
    pub(super) fn ensure_global(&mut self) {
        self.len = 1;
    }

    fn null(&mut self) -> u32 {
        if let Some(group) = self.null {
            return group;
        }
        let group = self.len as u32;
        self.len += 1;
        self.ends.push(self.bytes.len());
        self.integers.push(0);
        self.null = Some(group);
        group
    }

    /// The group of a row's key, if it has one. A key of a `Text` or `Integer` table that is null, or no key
    /// at all, is not looked for.
    pub(crate) fn find(&self, keys: &BatchKeys<'_>, hashes: &[u64], row: usize) -> Option<u32> {
        let hash = table_hash(hashes[row]);
        match keys {
            BatchKeys::Global => None,
            BatchKeys::Text(text) => self.find_bytes(text.value(row).as_bytes(), hash),
            BatchKeys::Integer(integers) => self.find_integer(integers.value(row), hash),
            BatchKeys::Row(keys) => self.find_bytes(keys.row(row).as_ref(), hash),
        }
    }

    fn find_bytes(&self, key: &[u8], hash: u64) -> Option<u32> {
        let (bytes, ends) = (&self.bytes, &self.ends);
        let same = |slot: &Slot| slot.hash == hash && part(bytes, ends, slot.group as usize) == key;
        self.slots.find(hash, same).map(|slot| slot.group)
    }

    fn find_integer(&self, key: i64, hash: u64) -> Option<u32> {
        let integers = &self.integers;
        let same = |slot: &Slot| slot.hash == hash && integers[slot.group as usize] == key;
        self.slots.find(hash, same).map(|slot| slot.group)
    }

    fn bytes(&mut self, key: &[u8], hash: u64) -> u32 {
        let hash = table_hash(hash);
        if let Some(group) = self.find_bytes(key, hash) {
            return group;
        }
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
        // Only a table of integers reads it, but a null key counts in both.
        self.insert(hash)
    }

    fn integer(&mut self, key: i64, hash: u64) -> u32 {
        let hash = table_hash(hash);
        if let Some(group) = self.find_integer(key, hash) {
            return group;
        }
        self.integers.push(key);
        self.insert(hash)
    }

    fn insert(&mut self, hash: u64) -> u32 {
        let group = self.len as u32;
        self.len += 1;
        self.slots.insert_unique(hash, Slot { hash, group }, |slot| slot.hash);
        group
    }

    /// The keys of some groups, as columns.
    pub(crate) fn columns(&self, form: &KeyForm, groups: Range<usize>) -> Result<Vec<ArrayRef>> {
        let null = self.null.map(|group| group as usize).filter(|group| groups.contains(group));
        let nulls = null.map(|group| groups.clone().map(|g| g != group).collect::<NullBuffer>());
        Ok(match form {
            KeyForm::Global => Vec::new(),
            KeyForm::Text => {
                let start = if groups.start == 0 { 0 } else { self.ends[groups.start - 1] };
                let ends = &self.ends[groups];
                let bytes = self.bytes[start..ends.last().copied().unwrap_or(start)].to_vec();
                let offsets: Vec<i32> =
                    std::iter::once(0).chain(ends.iter().map(|end| (end - start) as i32)).collect();
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                vec![Arc::new(StringArray::try_new(offsets, Buffer::from_vec(bytes), nulls)?)]
            }
            KeyForm::Integer => {
                let values = ScalarBuffer::from(self.integers[groups].to_vec());
                vec![Arc::new(PrimitiveArray::<Int64Type>::try_new(values, nulls)?)]
            }
            KeyForm::Row(converter) => {
                let parser = converter.parser();
                let rows = groups.map(|group| parser.parse(part(&self.bytes, &self.ends, group)));
                converter.convert_rows(rows)?
            }
        })
    }

    /// The keys of these groups, as columns.
    pub(crate) fn pick_columns(&self, form: &KeyForm, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        let is_null = |group: &u32| self.null == Some(*group);
        let bytes = |group: &u32| part(&self.bytes, &self.ends, *group as usize);
        Ok(match form {
            KeyForm::Global => Vec::new(),
            KeyForm::Text => {
                let mut texts = StringBuilder::new();
                for group in groups {
                    let text = std::str::from_utf8(bytes(group)).map_err(|e| exec_datafusion_err!("{e}"))?;
                    texts.append_option((!is_null(group)).then_some(text));
                }
                vec![Arc::new(texts.finish())]
            }
            KeyForm::Integer => {
                let value = |group: &u32| (!is_null(group)).then(|| self.integers[*group as usize]);
                vec![Arc::new(groups.iter().map(value).collect::<Int64Array>())]
            }
            KeyForm::Row(converter) => {
                let parser = converter.parser();
                converter.convert_rows(groups.iter().map(|group| parser.parse(bytes(group))))?
            }
        })
    }

    /// A table of these groups alone, numbered in this order.
    pub(crate) fn pick(&self, groups: &[u32]) -> Self {
        let mut hashes = vec![0; self.len];
        for slot in &self.slots {
            hashes[slot.group as usize] = slot.hash;
        }
        let mut new = Self::default();
        for group in groups {
            let place = *group as usize;
            if self.null == Some(*group) {
                new.null();
            } else if self.integers.len() == self.len {
                new.integers.push(self.integers[place]);
                new.insert(hashes[place]);
            } else if self.ends.len() == self.len {
                new.bytes.extend_from_slice(part(&self.bytes, &self.ends, place));
                new.ends.push(new.bytes.len());
                new.insert(hashes[place]);
            } else {
                new.ensure_global();
            }
        }
        new
    }

    /// Memory in use.
    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * (size_of::<Slot>() + 1)
            + self.bytes.capacity()
            + self.ends.capacity() * size_of::<usize>()
            + self.integers.capacity() * size_of::<i64>()
    }
}

/// A partition's hashes have their upper bits in common, and those are the ones a hash table tells slots
/// apart by: the halves change places.
fn table_hash(hash: u64) -> u64 {
    hash.rotate_left(32)
}

fn part<'a>(bytes: &'a [u8], ends: &[usize], group: usize) -> &'a [u8] {
    let start = if group == 0 { 0 } else { ends[group - 1] };
    &bytes[start..ends[group]]
}

/// Floats with one zero and one NaN, as the key's hash has them; other columns as they are.
pub(crate) fn one_float_form(column: &ArrayRef) -> ArrayRef {
    fn of<T: ArrowPrimitiveType>(column: &ArrayRef, one: impl Fn(T::Native) -> T::Native) -> ArrayRef {
        Arc::new(column.as_primitive::<T>().unary::<_, T>(one))
    }
    match column.data_type() {
        DataType::Float32 => of::<Float32Type>(column, |value| match value {
            value if value.is_nan() => f32::NAN,
            // Turns a negative zero into a positive one.
            value => value + 0.0,
        }),
        DataType::Float64 => of::<Float64Type>(column, |value| match value {
            value if value.is_nan() => f64::NAN,
            value => value + 0.0,
        }),
        _ => Arc::clone(column),
    }
}
