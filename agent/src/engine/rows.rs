//! Rows in queues: a slice of a batch, and the charge for the buffers that it keeps alive.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use tuplane_core::job;
use tuplane_expr::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt16Array, UInt32Array};
use tuplane_expr::arrow::buffer::Buffer;
use tuplane_expr::arrow::compute::{concat, concat_batches, take, take_record_batch};
use tuplane_expr::arrow::datatypes::{DataType, Int32Type};
use tuplane_expr::arrow::error::ArrowError;

pub use super::budget::Budget;

/// Most rows in one piece of a source's or operator's output.
pub(crate) const MOST_ROWS: usize = job::BATCH_ROWS as usize;
/// Most bytes in one piece of a source's or operator's output; one row may be more.
pub(crate) const MOST_BYTES: u64 = 1 << 20;
/// A slice that has waited this long may be copied.
const COPY_AFTER: Duration = Duration::from_secs(1);
/// ... if it keeps more than so many times its own size alive.
const COPY_FACTOR: u64 = 4;

/// What a batch's buffers cost, given back when the last slice of it goes.
#[derive(Debug)]
struct Charge {
    bytes: u64,
    budget: Arc<Budget>,
    /// Charges of buffers that it shares, which stay until it goes.
    shared: SmallVec<[Arc<Charge>; 1]>,
}

impl Charge {
    fn new(bytes: u64, budget: &Arc<Budget>) -> Arc<Self> {
        Self::beside(bytes, budget, SmallVec::new())
    }

    fn beside(bytes: u64, budget: &Arc<Budget>, shared: SmallVec<[Arc<Charge>; 1]>) -> Arc<Self> {
        budget.take(bytes);
        Arc::new(Self { bytes, budget: Arc::clone(budget), shared })
    }

    /// Bytes that it keeps alive, shared ones included.
    fn alive(&self) -> u64 {
        self.bytes + self.shared.iter().map(|charge| charge.alive()).sum::<u64>()
    }
}

/// A charge and the buffers that it stands for, so that whatever else shares them is not charged again.
#[derive(Debug, Clone)]
pub(crate) struct Charged {
    charge: Weak<Charge>,
    /// Where they begin, in order.
    buffers: Vec<usize>,
}

/// As [`Charged`], and it keeps the charge.
#[derive(Debug)]
pub(crate) struct Kept {
    charged: Charged,
    _charge: Arc<Charge>,
}

impl Kept {
    pub(crate) fn charged(&self) -> &Charged {
        &self.charged
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// What an operator's state costs: counted in the budget as queued rows are, and given back with it.
#[derive(Debug)]
pub(crate) struct StateCharge {
    bytes: u64,
    budget: Arc<Budget>,
}

impl StateCharge {
    /// Nothing yet.
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self { bytes: 0, budget }
    }

    /// The state has so many bytes now.
    pub(crate) fn set(&mut self, bytes: u64) {
        if bytes >= self.bytes {
            self.budget.take(bytes - self.bytes);
        } else {
            self.budget.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for StateCharge {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Rows on their way: never none.
#[derive(Debug, Clone)]
pub struct Rows {
    batch: RecordBatch,
    partitions: Option<UInt16Array>,
    bytes: u64,
    charge: Arc<Charge>,
    since: Instant,
}

impl Rows {
    /// Takes a batch into the engine's books. `None` for a batch without rows: those are neither
    /// queued nor sent.
    pub fn new(batch: RecordBatch, partitions: Option<UInt16Array>, budget: &Arc<Budget>) -> Option<Self> {
        if batch.num_rows() == 0 {
            return None;
        }
        let ids = partitions.as_ref().map_or(0, Array::get_array_memory_size);
        let bytes = own_bytes(&batch);
        let charge = Charge::new(alive_bytes(&batch) + ids as u64, budget);
        Some(Self { batch, partitions, bytes, charge, since: Instant::now() })
    }

    /// As [`Rows::new`] for an operator's output: buffers that `known` charges stand for are not
    /// charged again, and their charges stay as long as these rows.
    pub(crate) fn derived<'a>(
        batch: RecordBatch,
        known: impl Iterator<Item = &'a Charged>,
        budget: &Arc<Budget>,
    ) -> Option<Self> {
        if batch.num_rows() == 0 {
            return None;
        }
        let known: SmallVec<[(Arc<Charge>, &[usize]); 2]> =
            known.filter_map(|known| Some((known.charge.upgrade()?, &known.buffers[..]))).collect();
        let (mut bytes, mut shared) = (0, SmallVec::<[Arc<Charge>; 1]>::new());
        for (start, size) in buffers(&batch) {
            match known.iter().find(|(_, buffers)| buffers.binary_search(&start).is_ok()) {
                None => bytes += size,
                Some((charge, _)) if shared.iter().any(|had| Arc::ptr_eq(had, charge)) => {}
                Some((charge, _)) => shared.push(Arc::clone(charge)),
            }
        }
        let charge = match &shared[..] {
            [only] if bytes == 0 => Arc::clone(only),
            _ => Charge::beside(bytes, budget, shared),
        };
        Some(Self { bytes: own_bytes(&batch), batch, partitions: None, charge, since: Instant::now() })
    }

    /// What stands for its buffers, as long as somebody else keeps them.
    pub(crate) fn charged(&self) -> Charged {
        let buffers = buffers(&self.batch).map(|(start, _)| start).collect();
        Charged { charge: Arc::downgrade(&self.charge), buffers }
    }

    /// What stands for its buffers, and keeps their charge.
    pub(crate) fn kept(&self) -> Kept {
        Kept { charged: self.charged(), _charge: Arc::clone(&self.charge) }
    }

    /// The rows.
    pub fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    /// Key partition of each row, where the edge is partitioned.
    pub fn partitions(&self) -> Option<&UInt16Array> {
        self.partitions.as_ref()
    }

    /// How many rows.
    #[expect(clippy::len_without_is_empty, reason = "there is always a row")]
    pub fn len(&self) -> usize {
        self.batch.num_rows()
    }

    /// The slice's own bytes: what bounds and credits count.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Cuts off the first `rows` rows (all but one at most); both parts share the charge, and their
    /// bytes add up to what they were, so that totals of credit never drift.
    #[must_use]
    pub fn cut(&mut self, rows: usize) -> Self {
        let rest = self.len() - rows;
        let batch = self.batch.slice(0, rows);
        // Bytes of null and boolean buffers round up, so that parts may count more than the whole:
        // what is left must have at least a byte a row.
        let bytes = own_bytes(&batch).min(self.bytes.saturating_sub(rest as u64)).max(1);
        let head = Self {
            partitions: self.partitions.as_ref().map(|p| p.slice(0, rows)),
            batch,
            bytes,
            charge: Arc::clone(&self.charge),
            since: self.since,
        };
        self.batch = self.batch.slice(rows, rest);
        self.partitions = self.partitions.as_ref().map(|p| p.slice(rows, rest));
        self.bytes = self.bytes.saturating_sub(bytes).max(rest as u64);
        head
    }

    /// The same rows with their key partitions.
    #[must_use]
    pub fn with_partitions(mut self, partitions: UInt16Array) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// The same rows under the bytes that their sender counted.
    #[must_use]
    pub fn counted_as(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// How many rows from the front fit in `bytes`; at least one.
    pub fn rows_within(&self, bytes: u64) -> usize {
        if self.bytes <= bytes {
            return self.len();
        }
        let mean = (self.bytes / self.len() as u64).max(1);
        ((bytes / mean) as usize).clamp(1, self.len())
    }

    /// The rows at `indices`, copied; a charge of their own.
    pub fn pick(&self, indices: &UInt32Array) -> Result<Self, ArrowError> {
        let batch = take_record_batch(&self.batch, indices)?;
        let partitions = match &self.partitions {
            Some(p) => Some(take(p, indices, None)?.as_primitive().clone()),
            None => None,
        };
        Ok(self.replaced(batch, partitions))
    }

    /// Copies a slice that has waited for long while it kept much more than itself alive.
    pub fn compact(&mut self, now: Instant) {
        let old = now.saturating_duration_since(self.since) >= COPY_AFTER;
        if old && self.charge.alive() > self.bytes.saturating_mul(COPY_FACTOR).max(4096) {
            let indices = UInt32Array::from_iter_values(0..self.len() as u32);
            if let Ok(copy) = self.pick(&indices) {
                *self = copy.counted_as(self.bytes);
            }
        }
    }

    /// Several pieces as one.
    pub fn join(pieces: &[Self]) -> Result<Option<Self>, ArrowError> {
        let [first, rest @ ..] = pieces else { return Ok(None) };
        if rest.is_empty() {
            return Ok(Some(first.clone()));
        }
        let batch = concat_batches(&first.batch.schema(), pieces.iter().map(|p| &p.batch))?;
        let ids: Option<Vec<&dyn Array>> =
            pieces.iter().map(|p| p.partitions.as_ref().map(|p| p as &dyn Array)).collect();
        let partitions = match ids {
            Some(ids) => Some(concat(&ids)?.as_primitive().clone()),
            None => None,
        };
        let bytes = pieces.iter().map(|p| p.bytes).sum();
        Ok(Some(first.replaced(batch, partitions).counted_as(bytes)))
    }

    fn replaced(&self, batch: RecordBatch, partitions: Option<UInt16Array>) -> Self {
        let ids = partitions.as_ref().map_or(0, Array::get_array_memory_size);
        Self {
            bytes: own_bytes(&batch),
            charge: Charge::new(alive_bytes(&batch) + ids as u64, &self.charge.budget),
            batch,
            partitions,
            since: self.since,
        }
    }
}

/// Bytes of the buffers that a batch keeps alive.
fn alive_bytes(batch: &RecordBatch) -> u64 {
    buffers(batch).map(|(_, bytes)| bytes).sum()
}

/// The buffers that a batch keeps alive, each once and in order: where it begins, and its bytes. The
/// columns of a frame that was received all lie in one.
fn buffers(batch: &RecordBatch) -> impl Iterator<Item = (usize, u64)> {
    let mut seen: Vec<(usize, u64)> = Vec::with_capacity(batch.num_columns() * 2);
    let mut count = |buffer: &Buffer| {
        seen.push((buffer.data_ptr().as_ptr() as usize, buffer.capacity() as u64));
    };
    let mut arrays: Vec<_> = batch.columns().iter().map(tuplane_expr::arrow::array::Array::to_data).collect();
    while let Some(array) = arrays.pop() {
        array.buffers().iter().for_each(&mut count);
        if let Some(nulls) = array.nulls() {
            count(nulls.buffer());
        }
        arrays.extend_from_slice(array.child_data());
    }
    seen.sort_unstable();
    seen.dedup_by_key(|(start, _)| *start);
    seen.into_iter()
}

/// The bytes that the rows of a batch occupy, whatever buffers they share. At least one a row.
pub(crate) fn own_bytes(batch: &RecordBatch) -> u64 {
    let bytes: usize = batch.columns().iter().map(array_bytes).sum();
    (bytes as u64).max(batch.num_rows() as u64)
}

fn array_bytes(array: &ArrayRef) -> usize {
    let nulls = if array.nulls().is_some() { array.len().div_ceil(8) } else { 0 };
    nulls
        + match array.data_type() {
            DataType::Boolean => array.len().div_ceil(8),
            DataType::Utf8 => {
                let text = array.as_string::<i32>();
                span(text.value_offsets()) + 4 * text.len()
            }
            DataType::Binary => {
                let bytes = array.as_binary::<i32>();
                span(bytes.value_offsets()) + 4 * bytes.len()
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let (offsets, len) = (list.value_offsets(), list.len());
                let inner = list.values().slice(offsets[0] as usize, span(offsets));
                array_bytes(&inner) + 4 * len
            }
            DataType::Dictionary(_, _) => {
                array.as_any_dictionary_opt().map_or(0, |d| d.keys().len() * size_of::<Int32Type>())
            }
            other => match other.primitive_width() {
                Some(width) => width * array.len(),
                None => array.to_data().get_slice_memory_size().unwrap_or(0),
            },
        }
}

fn span(offsets: &[i32]) -> usize {
    match (offsets.first(), offsets.last()) {
        (Some(first), Some(last)) => (last - first) as usize,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tuplane_expr::arrow::array::{BooleanArray, Int64Array, StringArray};
    use tuplane_expr::arrow::datatypes::{Field, Schema};

    fn batch(n: i64) -> RecordBatch {
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("text", DataType::Utf8, false),
        ]);
        let text: Vec<String> = (0..n).map(|i| format!("row {i:06}")).collect();
        RecordBatch::try_new(
            Arc::new(schema),
            vec![Arc::new(Int64Array::from_iter_values(0..n)), Arc::new(StringArray::from(text))],
        )
        .unwrap()
    }

    #[test]
    fn a_charge_is_counted_once_and_given_back_with_the_last_slice() {
        let budget = Budget::new(1 << 20);
        let rows = Rows::new(batch(1000), None, &budget).unwrap();
        let charged = budget.used();
        assert!(charged >= 1000 * 22);
        let mut rest = rows.clone();
        let slices: Vec<Rows> = (0..9).map(|_| rest.cut(100)).collect();
        assert_eq!(budget.used(), charged);
        assert_eq!(slices.iter().map(Rows::bytes).sum::<u64>() + rest.bytes(), rows.bytes());
        drop((rows, rest));
        assert_eq!(budget.used(), charged);
        drop(slices);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_shares_buffers_is_not_charged_again_and_keeps_their_charge() {
        let budget = Budget::new(1 << 30);
        let input = Rows::new(batch(8192), None, &budget).unwrap();
        let charged = budget.used();
        let kept = input.kept();
        let pieces: Vec<Rows> = (0..100)
            .map(|n| Rows::derived(input.batch().slice(n, 2), [kept.charged()].into_iter(), &budget).unwrap())
            .collect();
        assert_eq!(budget.used(), charged, "slices of the input");
        let columns =
            vec![Arc::clone(input.batch().column(0)), Arc::new(Int64Array::from(vec![1; 8192])) as _];
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("one", DataType::Int64, false),
        ]);
        let mixed = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
        let mixed = Rows::derived(mixed, [kept.charged()].into_iter(), &budget).unwrap();
        assert_eq!(budget.used(), charged + 8192 * 8, "one column is new");
        // Another slice of the same output, as a source gives a document by pieces.
        let last = mixed.charged();
        let next = Rows::derived(mixed.batch().slice(5, 5), [&last].into_iter(), &budget).unwrap();
        assert_eq!(budget.used(), charged + 8192 * 8);
        drop((input, kept, pieces, mixed));
        assert_eq!(budget.used(), charged + 8192 * 8, "all buffers are alive");
        drop(next);
        assert_eq!(budget.used(), 0);
        let gone = Rows::derived(batch(10), [&last].into_iter(), &budget).unwrap();
        assert!(budget.used() > 0, "a charge that is gone stands for nothing");
        drop(gone);
    }

    #[test]
    fn a_small_slice_of_a_large_batch_is_copied_once_it_has_waited() {
        let budget = Budget::new(1 << 20);
        let mut rest = Rows::new(batch(8192), None, &budget).unwrap();
        drop(rest.cut(4000));
        let mut slice = rest.cut(4);
        drop(rest);
        let before = budget.used();
        slice.compact(Instant::now());
        assert_eq!(budget.used(), before);
        slice.compact(Instant::now() + Duration::from_secs(2));
        assert!(budget.used() < 4096, "{}", budget.used());
        assert_eq!(slice.batch(), &batch(8192).slice(4000, 4));
    }

    proptest! {
        /// Whatever is cut off, the parts' bytes add up and no part has fewer bytes than rows.
        #[test]
        fn bytes_of_parts_add_up(values in prop::collection::vec(prop::option::of(any::<i64>()), 1..1200), cuts in prop::collection::vec(1usize..40, 0..1200)) {
            let flags: BooleanArray = values.iter().map(|v| v.map(|v| v % 2 == 0)).collect();
            let schema = Schema::new(vec![
                Field::new("n", DataType::Int64, true),
                Field::new("flag", DataType::Boolean, true),
            ]);
            let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(values)), Arc::new(flags)];
            let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
            let mut rest = Rows::new(batch, None, &Budget::new(1 << 20)).unwrap();
            let (whole, mut parts) = (rest.bytes(), 0);
            for cut in cuts {
                if cut >= rest.len() {
                    break;
                }
                let head = rest.cut(cut);
                prop_assert!(head.bytes() >= 1 && rest.bytes() >= rest.len() as u64);
                parts += head.bytes();
            }
            prop_assert_eq!(parts + rest.bytes(), whole);
        }
    }

    #[test]
    fn empty_batches_are_not_rows() {
        assert!(Rows::new(batch(0), None, &Budget::new(1)).is_none());
    }

    #[test]
    fn joined_slices_equal_the_whole() {
        let budget = Budget::new(1 << 20);
        let ids = UInt16Array::from_iter_values((0..100).map(|i| i % 7));
        let rows = Rows::new(batch(100), Some(ids), &budget).unwrap();
        let mut rest = rows.clone();
        let mut pieces: Vec<Rows> = (0..24).map(|_| rest.cut(4)).collect();
        pieces.push(rest);
        let joined = Rows::join(&pieces).unwrap().unwrap();
        assert_eq!(joined.batch(), rows.batch());
        assert_eq!(joined.partitions(), rows.partitions());
    }
}
