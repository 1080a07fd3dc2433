//! `min` and `max` of numbers, times and text. Floats are ordered totally: NaN is the greatest.

use std::ops::Range;
use std::sync::Arc;

use datafusion_common::arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, PrimitiveArray, StringArray,
    downcast_primitive,
};
use datafusion_common::arrow::datatypes::DataType;
use datafusion_common::{Result, not_impl_err};

use super::keys::one_float_form;
use super::running::each;
use super::{Accumulator, Refused, Rows, Wanted};

/// Which one is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Least,
    Greatest,
}

/// Whether columns of this type have an accumulator here.
pub(super) fn supports(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8)
        || data_type.is_primitive() && !matches!(data_type, DataType::Interval(_))
}

/// The accumulator for a type.
pub(super) fn accumulator(side: Side, data_type: &DataType) -> Result<Box<dyn Accumulator>> {
    macro_rules! primitive {
        ($native:ty) => {
            Ok(Box::new(Extreme::<$native> { best: Vec::new(), side, data_type: data_type.clone() }))
        };
    }
    downcast_primitive! {
        data_type => (primitive),
        DataType::Utf8 => Ok(Box::new(ExtremeText { best: Vec::new(), side, bytes: 0 })),
        other => not_impl_err!("min and max of {other}"),
    }
}

fn take_better<N: ArrowNativeTypeOp>(best: &mut Option<N>, value: N, side: Side) {
    let better = best.is_none_or(|best| match side {
        Side::Least => value.is_lt(best),
        Side::Greatest => value.is_gt(best),
    });
    if better {
        *best = Some(value);
    }
}

struct Extreme<T: ArrowPrimitiveType> {
    best: Vec<Option<T::Native>>,
    side: Side,
    data_type: DataType,
}

impl<T: ArrowPrimitiveType> Accumulator for Extreme<T> {
    fn resize(&mut self, groups: usize) {
        self.best.resize(groups, None);
    }

    fn update(&mut self, arguments: &[ArrayRef], rows: Rows<'_>) -> Result<()> {
        let values = one_float_form(&arguments[0]);
        let values = values.as_primitive::<T>();
        for (row, group) in rows.pairs() {
            if values.is_valid(row) {
                take_better(&mut self.best[group], values.value(row), self.side);
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
        let values = one_float_form(&arguments[0]);
        let values = values.as_primitive::<T>();
        let (best, side) = (&mut self.best, self.side);
        let after = each(rows, wanted, |wanted, row, group| {
            if wanted && values.is_valid(row) {
                take_better(&mut best[group], values.value(row), side);
            }
            best[group]
        });
        Ok(Arc::new(after.collect::<PrimitiveArray<T>>().with_data_type(self.data_type.clone())))
    }

    fn merge(&mut self, state: &[ArrayRef], rows: Rows<'_>) -> Result<()> {
        self.update(state, rows)
    }

    fn value(&self, groups: Range<usize>) -> Result<ArrayRef> {
        let best: PrimitiveArray<T> = self.best[groups].iter().copied().collect();
        Ok(Arc::new(best.with_data_type(self.data_type.clone())))
    }

    fn save(&self, groups: Range<usize>) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.value(groups)?])
    }

    fn bytes(&self) -> usize {
        self.best.capacity() * size_of::<Option<T::Native>>()
    }
}

struct ExtremeText {
    best: Vec<Option<Box<str>>>,
    side: Side,
    /// Of the texts.
    bytes: usize,
}

impl Accumulator for ExtremeText {
    fn resize(&mut self, groups: usize) {
        self.best.resize(groups, None);
    }

    fn update(&mut self, arguments: &[ArrayRef], rows: Rows<'_>) -> Result<()> {
        let values = arguments[0].as_string::<i32>();
        for (row, group) in rows.pairs() {
            if values.is_valid(row) {
                let (value, best) = (values.value(row), &mut self.best[group]);
                let better = best.as_deref().is_none_or(|best| match self.side {
                    Side::Least => value < best,
                    Side::Greatest => value > best,
                });
                if better {
                    self.bytes += value.len();
                    self.bytes -= best.as_ref().map_or(0, |old| old.len());
                    *best = Some(value.into());
                }
            }
        }
        Ok(())
    }

    fn merge(&mut self, state: &[ArrayRef], rows: Rows<'_>) -> Result<()> {
        self.update(state, rows)
    }

    fn value(&self, groups: Range<usize>) -> Result<ArrayRef> {
        let best: StringArray = self.best[groups].iter().map(Option::as_deref).collect();
        Ok(Arc::new(best))
    }

    fn save(&self, groups: Range<usize>) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.value(groups)?])
    }

    fn bytes(&self) -> usize {
        self.best.capacity() * size_of::<Option<Box<str>>>() + self.bytes
    }
}
