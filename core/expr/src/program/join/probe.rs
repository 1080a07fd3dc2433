//! Rows of the first input and their partners, resumable inside a row: one may have millions.

use std::sync::Arc;

use datafusion_common::arrow::array::{ArrayRef, UInt32Array};
use datafusion_common::arrow::compute::{filter_record_batch, take_record_batch};
use datafusion_common::arrow::record_batch::RecordBatch;
use tuplane_core::job::JoinKind;

use super::{JoinProgram, JoinTable};
use crate::program::rows::{Dropped, EvalError, Failed, keep_mask};
use crate::program::unnest::RowBytes;
use crate::system::widen;

/// A batch of the first input on its way through a join.
#[derive(Debug)]
pub struct JoinRun {
    program: JoinProgram,
    tables: Arc<[Arc<JoinTable>]>,
    /// Without the rows that were left out.
    batch: RecordBatch,
    bytes: Vec<RowBytes>,
    /// By enriching input: the group that each row found.
    found: Vec<Vec<Option<u32>>>,
    /// The row that is next, and of each input the partner that is next to it.
    row: usize,
    partners: Vec<usize>,
    dropped: Vec<Dropped>,
    last: Option<Dropped>,
}

impl JoinProgram {
    /// Begins with a batch of the first input; `tables` are those of the others in order.
    pub fn run(&self, batch: &RecordBatch, tables: &Arc<[Arc<JoinTable>]>) -> Result<JoinRun, EvalError> {
        let inner = &self.inner;
        let mut failed = Failed::new(inner.on_error);
        let keys = inner.keys.eval_into(batch, &mut failed)?;
        let last = failed.last().cloned();
        let dropped = failed.into_dropped();
        let batch = match &dropped[..] {
            [] => batch.clone(),
            dropped => filter_record_batch(batch, &keep_mask(batch.num_rows(), dropped))?,
        };
        let of_input = |(table, one): (&Arc<JoinTable>, &super::Enriching)| {
            table.find(&keys.columns()[one.of_primary.clone()], keys.num_rows())
        };
        let found = tables.iter().zip(&inner.enriching).map(of_input).collect::<Result<Vec<_>, _>>()?;
        Ok(JoinRun {
            program: self.clone(),
            tables: Arc::clone(tables),
            bytes: batch.columns().iter().map(RowBytes::of).collect(),
            batch,
            partners: vec![0; found.len()],
            found,
            row: 0,
            dropped,
            last,
        })
    }
}

/// Rows that are to be made: one of the first input's, and a partner of each other one's.
struct Picked {
    rows: Vec<u32>,
    partners: Vec<Vec<Option<u32>>>,
}

impl JoinRun {
    /// The next rows: at most `max_rows`, and about `max_bytes` at most unless one row alone is longer. `None`
    /// at the end of the batch.
    pub fn next(&mut self, max_rows: usize, max_bytes: usize) -> Option<Result<RecordBatch, EvalError>> {
        let picked = self.pick(max_rows.max(1), max_bytes);
        (!picked.rows.is_empty()).then(|| self.made(picked))
    }

    /// The rows that `on_error = "drop"` left out; their numbers are those of the caller's batch.
    pub fn take_dropped(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.dropped)
    }

    /// The last row that was left out, or of whose keys one became null.
    pub fn take_last(&mut self) -> Option<Dropped> {
        self.last.take()
    }

    fn pick(&mut self, max_rows: usize, max_bytes: usize) -> Picked {
        let mut picked = Picked { rows: Vec::new(), partners: vec![Vec::new(); self.tables.len()] };
        let mut bytes = 0;
        while self.row < self.batch.num_rows() && picked.rows.len() < max_rows {
            let alone = self.found.iter().any(|found| found[self.row].is_none());
            if alone && self.program.inner.kind == JoinKind::Inner {
                self.row += 1;
                continue;
            }
            let own: usize = self.bytes.iter().map(|column| column.at(self.row)).sum();
            loop {
                let mut row_bytes = own;
                for (input, table) in self.tables.iter().enumerate() {
                    let partner =
                        self.found[input][self.row].map(|group| table.row(group, self.partners[input]));
                    row_bytes += partner.map_or(0, |partner| table.row_bytes(partner));
                    picked.partners[input].push(partner);
                }
                if bytes + row_bytes > max_bytes && !picked.rows.is_empty() {
                    picked.partners.iter_mut().for_each(|partners| {
                        partners.pop();
                    });
                    return picked;
                }
                bytes += row_bytes;
                picked.rows.push(self.row as u32);
                if !self.advance() {
                    break;
                }
                if picked.rows.len() >= max_rows {
                    return picked;
                }
            }
        }
        picked
    }

    /// Moves on to the row's next partners, the last input's first; false if that was the row's last.
    fn advance(&mut self) -> bool {
        for (input, table) in self.tables.iter().enumerate().rev() {
            let count = self.found[input][self.row].map_or(1, |group| table.count(group));
            self.partners[input] += 1;
            if self.partners[input] < count {
                return true;
            }
            self.partners[input] = 0;
        }
        self.row += 1;
        false
    }

    fn made(&self, picked: Picked) -> Result<RecordBatch, EvalError> {
        let whole = picked.rows.len() == self.batch.num_rows()
            && picked.rows.iter().enumerate().all(|(place, row)| place == *row as usize);
        let rows = if whole {
            self.batch.clone()
        } else {
            take_record_batch(&self.batch, &UInt32Array::from(picked.rows))?
        };
        let mut enriching: Vec<ArrayRef> = Vec::new();
        for (table, partners) in self.tables.iter().zip(&picked.partners) {
            enriching.extend(table.columns(partners)?);
        }
        Ok(widen(&rows, &enriching, &self.program.inner.output)?)
    }
}
