//! `sum` and `avg`. Sums of integers and decimals are exact: a total that does not fit is an error.

use std::ops::Range;
use std::sync::Arc;

use datafusion_common::arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int64Array, UInt64Array,
};
use datafusion_common::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, DecimalType, Float64Type, Int64Type, UInt64Type,
};
use datafusion_common::{Result, exec_datafusion_err};

use super::running::each;
use super::{Accumulator, Refused, Rows, Wanted};
use crate::sql::plain_message;

/// A sum kept in 128 bits, and the type of its result.
#[derive(Debug, Clone, Copy)]
pub(super) enum Exact {
    Int64,
    UInt64,
    Decimal { precision: u8, scale: i8 },
}

impl Exact {
    /// For an argument of this type, if its sum is exact.
    pub(super) fn of(argument: &DataType, output: &DataType) -> Option<Self> {
        match (argument, output) {
            (DataType::Int64, DataType::Int64) => Some(Self::Int64),
            (DataType::UInt64, DataType::UInt64) => Some(Self::UInt64),
            (DataType::Decimal128(_, _), DataType::Decimal128(precision, scale)) => {
                Some(Self::Decimal { precision: *precision, scale: *scale })
            }
            _ => None,
        }
    }

    pub(super) fn output(self) -> DataType {
        match self {
            Self::Int64 => DataType::Int64,
            Self::UInt64 => DataType::UInt64,
            Self::Decimal { precision, scale } => DataType::Decimal128(precision, scale),
        }
    }

    pub(super) fn state(self) -> DataType {
        let scale = if let Self::Decimal { scale, .. } = self { scale } else { 0 };
        DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale)
    }
}

/// An exact sum; null for a group without values.
pub(super) struct ExactSum {
    sums: Vec<Option<i128>>,
    exact: Exact,
}

impl ExactSum {
    pub(super) fn new(exact: Exact) -> Self {
        Self { sums: Vec::new(), exact }
    }

    /// A sum that left 128 bits stays at their end, which no type of a result holds.
    fn add(&mut self, group: usize, value: i128) {
        let sum = self.sums[group].unwrap_or(0);
        let lost = sum == i128::MAX || sum == i128::MIN;
        self.sums[group] = Some(if lost { sum } else { sum.saturating_add(value) });
    }

    fn add_all(&mut self, column: &dyn Array, rows: Rows<'_>, value: impl Fn(usize) -> i128) {
        for (row, group) in rows.pairs() {
            if column.is_valid(row) {
                self.add(group, value(row));
            }
        }
    }
}

fn overflow(exact: Exact) -> datafusion_common::DataFusionError {
    let kind = crate::sql::sql_name(&exact.output());
    exec_datafusion_err!("the sum does not fit into {kind}; cast its argument to a wider type")
}

impl Accumulator for ExactSum {
    fn resize(&mut self, groups: usize) {
        self.sums.resize(groups, None);
    }

    fn update(&mut self, arguments: &[ArrayRef], rows: Rows<'_>) -> Result<()> {
        let column = &arguments[0];
        match self.exact {
            Exact::Int64 => {
                let values = column.as_primitive::<Int64Type>();
                self.add_all(values, rows, |row| i128::from(values.value(row)));
            }
            Exact::UInt64 => {
                let values = column.as_primitive::<UInt64Type>();
                self.add_all(values, rows, |row| i128::from(values.value(row)));
            }
            Exact::Decimal { .. } => {
                let values = column.as_primitive::<Decimal128Type>();
                self.add_all(values, rows, |row| values.value(row));
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
        refused: &mut Vec<Refused>,
    ) -> Result<ArrayRef> {
        let column = &arguments[0];
        let mut sums = Vec::with_capacity(rows.rows.len());
        for (row, group) in rows.pairs() {
            if wanted.has(row) && column.is_valid(row) {
                self.add(
                    group,
                    match self.exact {
                        Exact::Int64 => i128::from(column.as_primitive::<Int64Type>().value(row)),
                        Exact::UInt64 => i128::from(column.as_primitive::<UInt64Type>().value(row)),
                        Exact::Decimal { .. } => column.as_primitive::<Decimal128Type>().value(row),
                    },
                );
            }
            let fits = |sum: &i128| match self.exact {
                Exact::Int64 => i64::try_from(*sum).is_ok(),
                Exact::UInt64 => u64::try_from(*sum).is_ok(),
                Exact::Decimal { precision, .. } => {
                    Decimal128Type::is_valid_decimal_precision(*sum, precision)
                }
            };
            let sum = self.sums[group];
            if !sum.as_ref().is_none_or(fits) {
                refused.push(Refused { position: sums.len(), message: plain_message(&overflow(self.exact)) });
            }
            sums.push(sum.filter(fits));
        }
        Self { sums, exact: self.exact }.value(0..rows.rows.len())
    }

    fn merge(&mut self, state: &[ArrayRef], rows: Rows<'_>) -> Result<()> {
        let values = state[0].as_primitive::<Decimal128Type>();
        self.add_all(values, rows, |row| values.value(row));
        Ok(())
    }

    fn value(&self, groups: Range<usize>) -> Result<ArrayRef> {
        let sums = self.sums[groups].iter();
        let overflow = || overflow(self.exact);
        Ok(match self.exact {
            Exact::Int64 => {
                let sums = sums.map(|sum| sum.map(i64::try_from).transpose().map_err(|_| overflow()));
                Arc::new(sums.collect::<Result<Int64Array>>()?)
            }
            Exact::UInt64 => {
                let sums = sums.map(|sum| sum.map(u64::try_from).transpose().map_err(|_| overflow()));
                Arc::new(sums.collect::<Result<UInt64Array>>()?)
            }
            Exact::Decimal { precision, scale } => {
                let fits = |sum: &i128| Decimal128Type::is_valid_decimal_precision(*sum, precision);
                if !sums.clone().flatten().all(fits) {
                    return Err(overflow());
                }
                let sums: Decimal128Array = sums.copied().collect();
                Arc::new(sums.with_precision_and_scale(precision, scale)?)
            }
        })
    }

    fn save(&self, groups: Range<usize>) -> Result<Vec<ArrayRef>> {
        let sums: Decimal128Array = self.sums[groups].iter().copied().collect();
        Ok(vec![Arc::new(sums.with_data_type(self.exact.state()))])
    }

    fn bytes(&self) -> usize {
        self.sums.capacity() * size_of::<Option<i128>>()
    }
}

/// A sum of floats; null for a group without values.
#[derive(Default)]
pub(super) struct FloatSum {
    sums: Vec<Option<f64>>,
}

impl Accumulator for FloatSum {
    fn resize(&mut self, groups: usize) {
        self.sums.resize(groups, None);
    }

    fn update(&mut self, arguments: &[ArrayRef], rows: Rows<'_>) -> Result<()> {
        let values = arguments[0].as_primitive::<Float64Type>();
        for (row, group) in rows.pairs() {
            if values.is_valid(row) {
                self.sums[group] = Some(self.sums[group].unwrap_or(0.0) + values.value(row));
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
        let values = arguments[0].as_primitive::<Float64Type>();
        let sums = &mut self.sums;
        let after = each(rows, wanted, |wanted, row, group| {
            if wanted && values.is_valid(row) {
                sums[group] = Some(sums[group].unwrap_or(0.0) + values.value(row));
            }
            sums[group]
        });
        Ok(Arc::new(after.collect::<Float64Array>()))
    }

    fn merge(&mut self, state: &[ArrayRef], rows: Rows<'_>) -> Result<()> {
        self.update(state, rows)
    }

    fn value(&self, groups: Range<usize>) -> Result<ArrayRef> {
        Ok(Arc::new(Float64Array::from(self.sums[groups].to_vec())))
    }

    fn save(&self, groups: Range<usize>) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.value(groups)?])
    }

    fn bytes(&self) -> usize {
        self.sums.capacity() * size_of::<Option<f64>>()
    }
}

/// A mean; null for a group without values.
#[derive(Default)]
pub(super) struct Average {
    sums: Vec<f64>,
    counts: Vec<i64>,
}

impl Accumulator for Average {
    fn resize(&mut self, groups: usize) {
        self.sums.resize(groups, 0.0);
        self.counts.resize(groups, 0);
    }

    fn update(&mut self, arguments: &[ArrayRef], rows: Rows<'_>) -> Result<()> {
        let values = arguments[0].as_primitive::<Float64Type>();
        for (row, group) in rows.pairs() {
            if values.is_valid(row) {
                self.sums[group] += values.value(row);
                self.counts[group] += 1;
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
        let values = arguments[0].as_primitive::<Float64Type>();
        let Self { sums, counts } = self;
        let after = each(rows, wanted, |wanted, row, group| {
            if wanted && values.is_valid(row) {
                sums[group] += values.value(row);
                counts[group] += 1;
            }
            (counts[group] > 0).then(|| sums[group] / counts[group] as f64)
        });
        Ok(Arc::new(after.collect::<Float64Array>()))
    }

    fn merge(&mut self, state: &[ArrayRef], rows: Rows<'_>) -> Result<()> {
        let (sums, counts) = (state[0].as_primitive::<Float64Type>(), state[1].as_primitive::<Int64Type>());
        for (row, group) in rows.pairs() {
            self.sums[group] += sums.value(row);
            self.counts[group] += counts.value(row);
        }
        Ok(())
    }

    fn value(&self, groups: Range<usize>) -> Result<ArrayRef> {
        let pairs = self.sums[groups.clone()].iter().zip(&self.counts[groups]);
        let means: Float64Array =
            pairs.map(|(sum, count)| (*count > 0).then(|| sum / *count as f64)).collect();
        Ok(Arc::new(means))
    }

    fn save(&self, groups: Range<usize>) -> Result<Vec<ArrayRef>> {
        Ok(vec![
            Arc::new(Float64Array::from(self.sums[groups.clone()].to_vec())),
            Arc::new(Int64Array::from(self.counts[groups].to_vec())),
        ])
    }

    fn bytes(&self) -> usize {
        self.sums.capacity() * size_of::<f64>() + self.counts.capacity() * size_of::<i64>()
    }
}
