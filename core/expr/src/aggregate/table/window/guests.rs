//! Partitions that came from elsewhere: they keep their own watermark until they have caught up, so that no row
//! is late, and no window is given twice, for the move's sake.

use std::collections::BTreeSet;

use datafusion_common::arrow::array::{AsArray, UInt16Array, UInt32Array};
use datafusion_common::arrow::compute::{take, take_record_batch};
use datafusion_common::arrow::datatypes::UInt16Type;
use datafusion_common::arrow::record_batch::RecordBatch;
use tuplane_core::job::OnError;

use super::{Late, Open, WindowTable};
use crate::key::partitions;
use crate::program::{Dropped, EvalError};
use crate::unit::UnitError;

/// The open windows of some partitions, apart from those of the others.
pub(super) struct Guest {
    pub(super) open: Open,
    pub(super) partitions: BTreeSet<u16>,
    /// Rows that waited for the state have been taken in: the table's watermark is theirs too.
    pub(super) settled: bool,
}

impl WindowTable {
    /// The key partition of each row of an input.
    pub(super) fn ids_of_rows(
        &self,
        input: usize,
        batch: &RecordBatch,
        known: Option<&UInt16Array>,
    ) -> Result<UInt16Array, EvalError> {
        let (program, all) = (self.open.program(), self.open.partitions());
        Ok(match known {
            _ if program.keys() == 0 => vec![0; batch.num_rows()].into(),
            Some(known) => known.clone(),
            // A row whose key cannot be computed is no matter here: whichever table it comes to leaves it out.
            None => program.aggregate().key_of(input).partitions_of(batch, all, OnError::Null)?.0,
        })
    }

    /// The key partition of each partial result.
    pub(super) fn ids_of_partials(
        &self,
        batch: &RecordBatch,
        known: Option<&UInt16Array>,
    ) -> Result<UInt16Array, EvalError> {
        let keys = self.open.program().keys();
        match known {
            _ if keys == 0 => Ok(vec![0; batch.num_rows()].into()),
            Some(known) => Ok(known.clone()),
            None => partitions(&batch.columns()[..keys], self.open.partitions()),
        }
    }

    /// Gives each table the rows of its partitions, in their order.
    pub(super) fn spread(
        &mut self,
        batch: &RecordBatch,
        ids: &UInt16Array,
        give: impl Fn(&mut Open, &RecordBatch, &UInt16Array, &mut Late) -> Result<(), EvalError>,
    ) -> Result<(), EvalError> {
        let Self { open, guests, late, .. } = self;
        let mut rest: Vec<u32> = (0..batch.num_rows() as u32).collect();
        for guest in guests {
            let mine = |row: &mut u32| guest.partitions.contains(&ids.value(*row as usize));
            let rows: Vec<u32> = rest.extract_if(.., mine).collect();
            give_some(&mut guest.open, batch, ids, rows, late, &give)?;
        }
        give_some(open, batch, ids, rest, late, &give)
    }

    /// Guests that have caught up become part of the table.
    pub(super) fn absorb(&mut self) -> Result<(), EvalError> {
        let watermark = self.open.watermark();
        let caught_up = |guest: &mut Guest| guest.settled && guest.open.watermark() <= watermark;
        let ready: Vec<Guest> = self.guests.extract_if(.., caught_up).collect();
        for guest in ready {
            self.open.absorb(guest.open, &guest.partitions)?;
        }
        Ok(())
    }

    /// These partitions go on with the table's watermark.
    pub(super) fn settle_guests(&mut self, partitions: &[u16]) -> Result<(), UnitError> {
        let watermark = self.open.watermark();
        let mut split = Vec::new();
        for guest in self.guests.iter_mut().filter(|guest| !guest.settled) {
            let (settling, others): (BTreeSet<u16>, BTreeSet<u16>) =
                guest.partitions.iter().partition(|one| partitions.contains(one));
            if settling.is_empty() {
                continue;
            }
            if !others.is_empty() {
                let mut open = guest.open.empty(guest.open.watermark())?;
                open.absorb_some(&mut guest.open, &others)?;
                split.push(Guest { open, partitions: others, settled: false });
            }
            (guest.partitions, guest.settled) = (settling, true);
            if let Some(watermark) = watermark {
                guest.open.advance(watermark);
            }
        }
        self.guests.extend(split);
        Ok(())
    }
}

/// Gives a table some rows of a batch; what it says of rows it says by their numbers in the batch.
fn give_some(
    open: &mut Open,
    batch: &RecordBatch,
    ids: &UInt16Array,
    rows: Vec<u32>,
    late: &mut Late,
    give: &impl Fn(&mut Open, &RecordBatch, &UInt16Array, &mut Late) -> Result<(), EvalError>,
) -> Result<(), EvalError> {
    if rows.is_empty() {
        return Ok(());
    }
    if rows.len() == batch.num_rows() {
        return give(open, batch, ids, late);
    }
    let rows = UInt32Array::from(rows);
    let some = take_record_batch(batch, &rows)?;
    let ids = take(ids, &rows, None)?;
    let origin = |row: usize| rows.values().get(row).map_or(row, |row| *row as usize);
    let (before, last, last_late) = (open.noted().0.len(), open.noted().1.take(), late.last.take());
    let given = give(open, &some, ids.as_primitive::<UInt16Type>(), late);
    let (dropped, new) = open.noted();
    dropped[before..].iter_mut().for_each(|one| one.row = origin(one.row));
    *new = new.take().map(|one| Dropped { row: origin(one.row), ..one }).or(last);
    if let Some(one) = &mut late.last {
        one.row = origin(one.row);
    }
    late.last = late.last.or(last_late);
    given.map_err(|error| EvalError { row: error.row.map(origin), ..error })
}
