//! The rows of an enriching input, found by their key.

mod units;

use datafusion_common::arrow::array::{Array, ArrayRef, UInt32Array, new_null_array};
use datafusion_common::arrow::compute::{concat, interleave, take, take_record_batch};
use datafusion_common::arrow::datatypes::SchemaRef;
use datafusion_common::arrow::record_batch::RecordBatch;

use super::{JoinProgram, has_null};
use crate::aggregate::{KeyForm, KeyTable};
use crate::key::hash_rows;
use crate::program::rows::{Dropped, EvalError, Failed, kept_rows};
use crate::program::unnest::{RowBytes, kept, slice_bytes};
use crate::system::own_part;

/// Rows are kept in pieces of at least so many rows ...
const CHUNK_ROWS: usize = 64 << 10;
/// ... or bytes: columns of more could not be joined into one.
const CHUNK_BYTES: usize = 16 << 20;

/// Takes in the rows of an enriching input.
pub struct JoinBuilder {
    program: JoinProgram,
    /// Which, from 0.
    input: usize,
    form: KeyForm,
    keys: KeyTable,
    /// The group of each row.
    groups: Vec<u32>,
    chunks: Vec<Chunk>,
    waiting: Vec<RecordBatch>,
    waiting_rows: usize,
    waiting_bytes: usize,
    hashes: Vec<u64>,
    dropped: Vec<Dropped>,
    last: Option<Dropped>,
}

/// The rows of one enriching input. Rows with a null in their key are not in it: they equal none.
#[derive(Debug)]
pub struct JoinTable {
    pub(super) form: KeyForm,
    keys: KeyTable,
    index: Index,
    columns: SchemaRef,
    chunks: Vec<Chunk>,
    /// The number of the first row of each chunk.
    starts: Vec<u32>,
    rows: usize,
}

/// The rows of each group.
#[derive(Debug)]
enum Index {
    /// One each: they have the same number.
    One,
    /// Those of group g are `rows[starts[g]..starts[g + 1]]`.
    Many { starts: Vec<u32>, rows: Vec<u32> },
}

#[derive(Debug)]
struct Chunk {
    columns: Vec<ArrayRef>,
    bytes: Vec<RowBytes>,
}

impl JoinBuilder {
    /// For the enriching input with this number, from 0.
    pub fn new(program: JoinProgram, input: usize) -> Result<Self, EvalError> {
        let Some(enriching) = program.inner.enriching.get(input) else {
            return Err(EvalError { row: None, message: format!("the join has no enriching input {input}") });
        };
        let form = KeyForm::of(enriching.keys.output.fields())?;
        Ok(Self {
            program,
            input,
            form,
            keys: KeyTable::default(),
            groups: Vec::new(),
            chunks: Vec::new(),
            waiting: Vec::new(),
            waiting_rows: 0,
            waiting_bytes: 0,
            hashes: Vec::new(),
            dropped: Vec::new(),
            last: None,
        })
    }

    /// Takes in rows.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<(), EvalError> {
        let mut failed = Failed::new(self.program.inner.on_error);
        let keys = self.program.inner.enriching[self.input].keys.eval_into(batch, &mut failed)?;
        if let Some(last) = failed.last() {
            self.last = Some(last.clone());
        }
        let dropped = failed.into_dropped();
        let own = own_part(batch)?;
        let columns = keys.columns();
        let wanted: Vec<u32> =
            (0..keys.num_rows() as u32).filter(|row| !has_null(columns, *row as usize)).collect();
        if self.groups.len() + wanted.len() > u32::MAX as usize {
            let message = format!("an enriching input of a join has more than {} rows", u32::MAX);
            return Err(EvalError { row: None, message });
        }
        hash_rows(columns, keys.num_rows(), &mut self.hashes)?;
        let mut groups = Vec::new();
        self.keys.assign(&self.form.read(columns)?, &self.hashes, &wanted, &mut groups);
        self.groups.extend(groups);
        let rows = if wanted.len() == own.num_rows() {
            own
        } else {
            let wanted = UInt32Array::from(wanted);
            let wanted = match &dropped[..] {
                [] => wanted,
                dropped => {
                    let origin = kept_rows(batch.num_rows(), dropped);
                    UInt32Array::from_iter_values(
                        wanted.values().iter().map(|row| origin.value(*row as usize)),
                    )
                }
            };
            take_record_batch(&own, &wanted)?
        };
        self.dropped.extend(dropped);
        if rows.num_rows() > 0 {
            self.waiting_rows += rows.num_rows();
            self.waiting_bytes += rows.columns().iter().map(slice_bytes).sum::<usize>();
            self.waiting.push(kept(rows)?);
        }
        if self.waiting_rows >= CHUNK_ROWS || self.waiting_bytes >= CHUNK_BYTES {
            self.settle()?;
        }
        Ok(())
    }

    /// What waits becomes a chunk: a copy, which keeps nothing else alive.
    fn settle(&mut self) -> Result<(), EvalError> {
        let Some(first) = self.waiting.first() else { return Ok(()) };
        let column = |index: usize| {
            let pieces: Vec<&dyn Array> =
                self.waiting.iter().map(|rows| &**rows.column(index) as _).collect();
            concat(&pieces)
        };
        let columns = (0..first.num_columns()).map(column).collect::<Result<Vec<ArrayRef>, _>>()?;
        self.chunks.push(Chunk { bytes: columns.iter().map(RowBytes::of).collect(), columns });
        self.waiting.clear();
        (self.waiting_rows, self.waiting_bytes) = (0, 0);
        Ok(())
    }

    /// All rows are there.
    pub fn finish(mut self) -> Result<JoinTable, EvalError> {
        self.settle()?;
        let (mut starts, mut rows) = (Vec::with_capacity(self.chunks.len()), 0);
        for chunk in &self.chunks {
            starts.push(rows as u32);
            rows += chunk.columns.first().map_or(0, Array::len);
        }
        Ok(JoinTable {
            index: Index::of(&self.groups, self.keys.len()),
            columns: SchemaRef::clone(&self.program.inner.enriching[self.input].columns),
            form: self.form,
            keys: self.keys,
            chunks: self.chunks,
            starts,
            rows,
        })
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.groups.len()
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        self.keys.memory()
            + self.groups.capacity() * size_of::<u32>()
            + self.chunks.iter().map(Chunk::memory).sum::<usize>()
            + self.waiting_bytes
    }

    /// The rows that `on_error = "drop"` left out since the last call; numbers are those of each call's batch.
    pub fn take_dropped(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.dropped)
    }

    /// The last row that was left out, or whose key became null, since the last call.
    pub fn take_last(&mut self) -> Option<Dropped> {
        self.last.take()
    }
}

impl Index {
    /// Sorts rows by their group, by counting.
    fn of(groups: &[u32], count: usize) -> Self {
        if groups.len() == count {
            // Groups are numbered as their first rows come.
            return Self::One;
        }
        let mut starts = vec![0_u32; count + 1];
        for group in groups {
            starts[*group as usize + 1] += 1;
        }
        for group in 0..count {
            starts[group + 1] += starts[group];
        }
        let mut next = starts.clone();
        let mut rows = vec![0; groups.len()];
        for (row, group) in groups.iter().enumerate() {
            let place = &mut next[*group as usize];
            rows[*place as usize] = row as u32;
            *place += 1;
        }
        Self::Many { starts, rows }
    }
}

impl Chunk {
    fn memory(&self) -> usize {
        self.columns.iter().map(Array::get_array_memory_size).sum()
    }
}

impl JoinTable {
    /// How many rows it holds.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        let index = match &self.index {
            Index::One => 0,
            Index::Many { starts, rows } => (starts.capacity() + rows.capacity()) * size_of::<u32>(),
        };
        self.keys.memory() + self.chunks.iter().map(Chunk::memory).sum::<usize>() + index
    }

    /// The group that each row of a batch finds by these keys; a key with a null in it finds none.
    pub(super) fn find(&self, keys: &[ArrayRef], rows: usize) -> Result<Vec<Option<u32>>, EvalError> {
        let mut hashes = Vec::new();
        hash_rows(keys, rows, &mut hashes)?;
        let read = self.form.read(keys)?;
        let of = |row| if has_null(keys, row) { None } else { self.keys.find(&read, &hashes, row) };
        Ok((0..rows).map(of).collect())
    }

    /// How many rows a group has.
    pub(super) fn count(&self, group: u32) -> usize {
        match &self.index {
            Index::One => 1,
            Index::Many { starts, .. } => (starts[group as usize + 1] - starts[group as usize]) as usize,
        }
    }

    /// The number of the n-th row of a group.
    pub(super) fn row(&self, group: u32, n: usize) -> u32 {
        match &self.index {
            Index::One => group,
            Index::Many { starts, rows } => rows[starts[group as usize] as usize + n],
        }
    }

    fn place(&self, row: u32) -> (usize, usize) {
        let chunk = self.starts.partition_point(|start| *start <= row) - 1;
        (chunk, (row - self.starts[chunk]) as usize)
    }

    /// About how many bytes a row has.
    pub(super) fn row_bytes(&self, row: u32) -> usize {
        let (chunk, row) = self.place(row);
        self.chunks[chunk].bytes.iter().map(|column| column.at(row)).sum()
    }

    /// Its columns for some of its rows; nulls where there is no row.
    pub(super) fn columns(&self, rows: &[Option<u32>]) -> Result<Vec<ArrayRef>, EvalError> {
        let width = self.columns.fields().len();
        if let [only] = &self.chunks[..] {
            let rows = UInt32Array::from(rows.to_vec());
            return Ok((0..width).map(|c| take(&only.columns[c], &rows, None)).collect::<Result<_, _>>()?);
        }
        // A row of nulls stands behind the last chunk.
        let nothing = (self.chunks.len(), 0);
        let places: Vec<(usize, usize)> =
            rows.iter().map(|row| row.map_or(nothing, |row| self.place(row))).collect();
        let column = |index: usize| {
            let null = new_null_array(self.columns.field(index).data_type(), 1);
            let chunks = self.chunks.iter().map(|chunk| &*chunk.columns[index]);
            let all: Vec<&dyn Array> = chunks.chain([&*null]).collect();
            interleave(&all, &places)
        };
        Ok((0..width).map(column).collect::<Result<_, _>>()?)
    }
}
