//! Sorted rows of several sources become one order. No more is held than the batch at hand of each source.

use std::cmp::Ordering;

use datafusion_common::arrow::array::RecordBatch;
use datafusion_common::arrow::compute::interleave_record_batch;
use datafusion_common::arrow::row::{RowConverter, Rows};

use super::{Run, SortProgram, sort_keys};
use crate::program::rows::EvalError;
use crate::program::unnest::slice_bytes;

/// Merges sources that are each in order. Rows that are alike come in the order of their sources, and of one
/// source in its own.
pub struct Merger {
    program: SortProgram,
    converter: RowConverter,
    sources: Vec<Source>,
    /// Sources with rows, the one with the least row first: a binary heap.
    heap: Vec<u32>,
    /// Sources that have neither rows nor ended.
    missing: usize,
    /// Of the batches at hand and their keys.
    bytes: usize,
}

#[derive(Default)]
struct Source {
    at_hand: Option<AtHand>,
    ended: bool,
}

struct AtHand {
    batch: RecordBatch,
    keys: Rows,
    order: Option<Vec<u32>>,
    next: usize,
    /// Mean bytes of a row.
    row_bytes: usize,
    /// Bytes of all, keys included.
    bytes: usize,
    /// Its number among the batches of the result that is being made.
    piece: Option<usize>,
}

impl AtHand {
    fn new(batch: RecordBatch, keys: Rows, order: Option<Vec<u32>>) -> Self {
        let bytes: usize = batch.columns().iter().map(slice_bytes).sum();
        let row_bytes = bytes.div_ceil(batch.num_rows().max(1));
        let bytes = bytes + keys.size();
        Self { batch, keys, order, next: 0, row_bytes, bytes, piece: None }
    }

    fn row(&self) -> usize {
        self.order.as_ref().map_or(self.next, |order| order[self.next] as usize)
    }
}

impl Merger {
    /// For so many sources, which have not begun.
    pub fn new(program: SortProgram, sources: usize) -> Result<Self, EvalError> {
        let converter = program.keys()?;
        let all = (0..sources).map(|_| Source::default()).collect();
        Ok(Self {
            program,
            converter,
            sources: all,
            heap: Vec::with_capacity(sources),
            missing: sources,
            bytes: 0,
        })
    }

    /// The next rows of a source, in order; the source is one of [`wants`](Self::wants).
    pub fn push(&mut self, source: usize, batch: RecordBatch) -> Result<(), EvalError> {
        let by = self.program.inner.by.eval_rows(&batch, self.program.inner.on_error)?.0;
        let keys = sort_keys(&self.converter, by.columns())?;
        self.begin(source, AtHand::new(batch, keys, None))
    }

    /// A source that is a run, and nothing else.
    pub fn push_run(&mut self, source: usize, run: Run) -> Result<(), EvalError> {
        self.begin(source, AtHand::new(run.batch, run.keys, run.order))?;
        self.end(source);
        Ok(())
    }

    /// A source gives no more. What it has given stays.
    pub fn end(&mut self, source: usize) {
        let source = &mut self.sources[source];
        if !source.ended {
            source.ended = true;
            self.missing -= usize::from(source.at_hand.is_none());
        }
    }

    /// The sources whose rows must come, or whose end, before it can go on.
    pub fn wants(&self) -> impl Iterator<Item = usize> + '_ {
        let wanted = |source: &Source| !source.ended && source.at_hand.is_none();
        self.sources.iter().enumerate().filter(move |(_, source)| wanted(source)).map(|(number, _)| number)
    }

    /// Bytes of the rows that it holds, and of their keys.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The next rows: at most `most_rows` and about `most_bytes`, at least one. `None` if a source must give
    /// rows first, or everything has come out.
    pub fn next(&mut self, most_rows: usize, most_bytes: usize) -> Option<Result<RecordBatch, EvalError>> {
        let mut pieces: Vec<RecordBatch> = Vec::new();
        let mut rows: Vec<(usize, usize)> = Vec::new();
        let mut bytes = 0;
        while self.missing == 0 && rows.len() < most_rows.max(1) && (bytes < most_bytes || rows.is_empty()) {
            let Some(top) = self.heap.first().copied() else { break };
            let source = &mut self.sources[top as usize];
            let Some(at_hand) = &mut source.at_hand else { break };
            let piece = *at_hand.piece.get_or_insert_with(|| {
                pieces.push(at_hand.batch.clone());
                pieces.len() - 1
            });
            rows.push((piece, at_hand.row()));
            bytes += at_hand.row_bytes;
            at_hand.next += 1;
            if at_hand.next == at_hand.batch.num_rows() {
                self.bytes -= at_hand.bytes;
                source.at_hand = None;
                self.missing += usize::from(!source.ended);
                let last = self.heap.len() - 1;
                self.heap.swap_remove(0);
                if last == 0 {
                    continue;
                }
            }
            self.sink(0);
        }
        for at_hand in self.sources.iter_mut().filter_map(|source| source.at_hand.as_mut()) {
            at_hand.piece = None;
        }
        if rows.is_empty() {
            return None;
        }
        let all: Vec<&RecordBatch> = pieces.iter().collect();
        Some(interleave_record_batch(&all, &rows).map_err(EvalError::from))
    }

    fn begin(&mut self, source: usize, at_hand: AtHand) -> Result<(), EvalError> {
        if self.sources[source].ended || self.sources[source].at_hand.is_some() {
            let message = "rows came from a source whose turn it was not".to_owned();
            return Err(EvalError { row: None, message });
        }
        if at_hand.batch.num_rows() == 0 {
            return Ok(());
        }
        self.bytes += at_hand.bytes;
        self.sources[source].at_hand = Some(at_hand);
        self.missing -= 1;
        self.heap.push(source as u32);
        self.rise(self.heap.len() - 1);
        Ok(())
    }

    /// Whether a source's row comes before another's.
    fn before(&self, a: u32, b: u32) -> bool {
        let row = |source: u32| {
            let at_hand = self.sources[source as usize].at_hand.as_ref();
            at_hand.map(|at_hand| at_hand.keys.row(at_hand.row()))
        };
        match row(a).cmp(&row(b)) {
            Ordering::Less => true,
            Ordering::Equal => a < b,
            Ordering::Greater => false,
        }
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if !self.before(self.heap[at], self.heap[parent]) {
                return;
            }
            self.heap.swap(at, parent);
            at = parent;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut least = at;
            for child in [left, right] {
                if child < self.heap.len() && self.before(self.heap[child], self.heap[least]) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }
}
