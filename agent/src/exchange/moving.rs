//! Key partitions that move together from one instance to another, as the queues see them.

use tuplane_expr::arrow::array::UInt32Array;
use tuplane_expr::arrow::error::ArrowError;

use crate::engine::rows::Rows;

/// A set of key partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Partitions(Vec<bool>);

impl Partitions {
    pub(crate) fn has(&self, partition: u16) -> bool {
        self.0.get(usize::from(partition)).copied().unwrap_or(false)
    }
}

impl FromIterator<u16> for Partitions {
    fn from_iter<T: IntoIterator<Item = u16>>(all: T) -> Self {
        let mut set = Vec::new();
        for partition in all {
            let place = usize::from(partition);
            if set.len() <= place {
                set.resize(place + 1, false);
            }
            set[place] = true;
        }
        Self(set)
    }
}

/// A group of key partitions on its way. Groups of a plan move one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// The plan.
    pub(crate) epoch: u32,
    /// Its number in the plan.
    pub(crate) number: u32,
    /// The instance that holds it.
    pub(crate) from: u32,
    /// The instance that is to hold it.
    pub(crate) to: u32,
    pub(crate) partitions: Partitions,
}

impl Group {
    /// Groups come in this order.
    pub(crate) fn order(&self) -> (u32, u32) {
        (self.epoch, self.number)
    }
}

/// Rows of other partitions, and those of these, each in the order they had. Their bytes add up to what they were, so
/// that totals of credit never drift.
pub(crate) fn split(rows: Rows, these: &Partitions) -> Result<(Option<Rows>, Option<Rows>), ArrowError> {
    let Some(ids) = rows.partitions() else {
        return Err(ArrowError::InvalidArgumentError("rows that are to move carry no key partition".into()));
    };
    let (mut others, mut mine) = (Vec::new(), Vec::new());
    for (row, id) in (0u32..).zip(ids.values()) {
        if these.has(*id) { mine.push(row) } else { others.push(row) }
    }
    if mine.is_empty() {
        return Ok((Some(rows), None));
    }
    if others.is_empty() {
        return Ok((None, Some(rows)));
    }
    let (all, count) = (rows.bytes(), others.len() as u64);
    let mine = rows.pick(&UInt32Array::from(mine))?;
    // As `Rows::cut` has it: what is left has a byte a row at least.
    let went = mine.bytes().min(all.saturating_sub(count)).max(1);
    let others = rows.pick(&UInt32Array::from(others))?.counted_as(all.saturating_sub(went).max(count));
    Ok((Some(others), Some(mine.counted_as(went))))
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests;
