//! A batch in rounds: the i-th row of each key of the batch is in round i, so that a round meets each key once
//! and is one evaluation over many keys.
//!
//! Keys are ranked by how many rows they have in the batch, the most first. Then the keys of a round are the
//! first ones of the round before, and the state that a round begins with is a slice of what the round before
//! it left: nothing is looked up between rounds.

use std::sync::Arc;

use datafusion_common::arrow::array::{Array, ArrayRef, BooleanArray, Scalar, UInt32Array};
use datafusion_common::arrow::compute::kernels::zip::zip;
use datafusion_common::arrow::compute::{concat, take};
use datafusion_common::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use tuplane_core::job::OnError;

use super::{Inner, Then};
use crate::program::rows::{Dropped, EvalError, Failed, eval_column, keep_mask};

/// Which row is in which round.
pub(super) struct Rounds {
    /// The rows by round, in a round by rank.
    order: UInt32Array,
    /// Where each row stands in `order`.
    places: UInt32Array,
    /// Where each round begins in `order`, and where the last one ends.
    starts: Vec<usize>,
    /// The key of each rank.
    pub(super) keys: UInt32Array,
    /// The rank of each key.
    pub(super) ranks: UInt32Array,
    /// `order` and ranks are the rows and keys as they came.
    in_order: bool,
    /// Whether the state of a row, by place in `order`, begins with the first values; empty if none does.
    anew: Vec<bool>,
}

impl Rounds {
    /// `key_of` gives each row's key, one of `keys`, each of which has a row.
    pub(super) fn new(key_of: &[u32], keys: usize) -> Self {
        let mut counts = vec![0_u32; keys];
        for key in key_of {
            counts[*key as usize] += 1;
        }
        let most = counts.iter().copied().max().unwrap_or(0) as usize;
        // Ranked by counting: keys with as many rows keep their order.
        let mut with = vec![0_usize; most + 1];
        for count in &counts {
            with[*count as usize] += 1;
        }
        let mut next = vec![0_usize; most + 1];
        for count in (0..most).rev() {
            next[count] = next[count + 1] + with[count + 1];
        }
        // `next[c]` keys have more than `c` rows: so many are in round `c`.
        let mut starts = vec![0; most + 1];
        for round in 0..most {
            starts[round + 1] = starts[round] + next[round];
        }
        let (mut ranks, mut ranked) = (vec![0_u32; keys], vec![0_u32; keys]);
        for (key, count) in counts.iter().enumerate() {
            let rank = &mut next[*count as usize];
            ranks[key] = *rank as u32;
            ranked[*rank] = key as u32;
            *rank += 1;
        }
        let (mut order, mut places) = (vec![0_u32; key_of.len()], vec![0_u32; key_of.len()]);
        let mut seen = vec![0_u32; keys];
        let mut in_order = true;
        for (row, key) in key_of.iter().enumerate() {
            let round = &mut seen[*key as usize];
            let place = starts[*round as usize] + ranks[*key as usize] as usize;
            *round += 1;
            order[place] = row as u32;
            places[row] = place as u32;
            in_order &= place == row;
        }
        let keys = ranked.into();
        Self {
            order: order.into(),
            places: places.into(),
            starts,
            keys,
            ranks: ranks.into(),
            in_order,
            anew: Vec::new(),
        }
    }

    /// The state of these rows' keys has run out before them.
    #[must_use]
    pub(super) fn beginning_anew(mut self, rows: Vec<u32>) -> Self {
        if !rows.is_empty() {
            self.anew.resize(self.places.len(), false);
        }
        for row in rows {
            self.anew[self.places.value(row as usize) as usize] = true;
        }
        self
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    fn sorted(&self, column: &ArrayRef) -> Result<ArrayRef, EvalError> {
        Ok(if self.in_order { Arc::clone(column) } else { take(column, &self.order, None)? })
    }
}

/// What became of a batch.
pub(super) struct Outcome {
    /// Each row's state after it, in the rows' order; after a row whose update failed the one before it.
    pub(super) after: Vec<ArrayRef>,
    /// Each key's state at the end, by rank.
    pub(super) last: Vec<ArrayRef>,
    /// Rows whose update failed, in order.
    pub(super) failed: Vec<Dropped>,
}

/// Runs a batch. `states` are the keys' states by rank. With `undo` what the stage makes of a row is computed
/// in its round too, and a row for which that fails leaves no trace in its key's state.
pub(super) fn run(
    inner: &Inner,
    batch: &RecordBatch,
    rounds: &Rounds,
    states: Vec<ArrayRef>,
    undo: bool,
) -> Result<Outcome, EvalError> {
    let reads = inner.reads.iter().map(|index| rounds.sorted(batch.column(*index)));
    let reads = reads.collect::<Result<Vec<_>, _>>()?;
    let whole = if undo { batch.columns() } else { &[] };
    let whole = whole.iter().map(|column| rounds.sorted(column)).collect::<Result<Vec<_>, _>>()?;
    let mut before = states;
    let mut after: Vec<Vec<ArrayRef>> = vec![Vec::with_capacity(rounds.count()); before.len()];
    // The states of the keys whose last row is in a round, the last round's first.
    let mut last: Vec<Vec<ArrayRef>> = vec![Vec::new(); before.len()];
    let mut failed = Vec::new();
    for round in 0..rounds.count() {
        let (start, end) = (rounds.starts[round], rounds.starts[round + 1]);
        let keys = end - start;
        for (state, kept) in before.iter_mut().zip(&mut last) {
            if state.len() > keys {
                kept.push(state.slice(keys, state.len() - keys));
                *state = state.slice(0, keys);
            }
        }
        if let Some(anew) = rounds.anew.get(start..end).filter(|anew| anew.contains(&true)) {
            let mask = BooleanArray::from(anew.to_vec());
            for (state, first) in before.iter_mut().zip(&inner.first) {
                *state = zip(&mask, &Scalar::new(Arc::clone(first)), &*state)?;
            }
        }
        let columns: Vec<ArrayRef> = reads.iter().map(|column| column.slice(start, keys)).collect();
        let input = of(&inner.update_input, columns.into_iter().chain(before.iter().cloned()), keys)?;
        let row_of = |place: usize| rounds.order.value(start + place) as usize;
        let mut refused =
            Failed::new(if inner.on_error == OnError::Fail { OnError::Fail } else { OnError::Drop });
        let mut new = Vec::with_capacity(before.len());
        for ((update, field), old) in inner.updates.iter().zip(&inner.states).zip(&before) {
            new.push(match update {
                Some(update) => eval_column(update, field, &input, &mut refused)
                    .map_err(|error| EvalError { row: error.row.map(row_of), ..error })?,
                None => Arc::clone(old),
            });
        }
        let mut kept = refused.into_dropped();
        undone(&mut new, &before, &kept)?;
        for (all, new) in after.iter_mut().zip(&new) {
            all.push(Arc::clone(new));
        }
        failed.extend(kept.iter().map(|one| Dropped { row: row_of(one.row), ..one.clone() }));
        if undo {
            let own = whole.iter().map(|column| column.slice(start, keys));
            let width = inner.then_input.fields().len();
            let input = then_input(inner, own.collect(), &new, width, keys)?;
            let mut refused = Failed::new(OnError::Drop);
            try_then(&inner.then, &input, &mut refused)?;
            kept = refused.into_dropped();
            undone(&mut new, &before, &kept)?;
        }
        before = new;
    }
    let by_row = |pieces: &Vec<ArrayRef>| {
        let column = joined(pieces)?;
        Ok::<_, EvalError>(if rounds.in_order { column } else { take(&column, &rounds.places, None)? })
    };
    let after = after.iter().map(by_row).collect::<Result<Vec<_>, _>>()?;
    let by_rank = |(state, mut kept): (ArrayRef, Vec<ArrayRef>)| {
        kept.push(state);
        kept.reverse();
        joined(&kept)
    };
    let last = before.into_iter().zip(last).map(by_rank).collect::<Result<Vec<_>, _>>()?;
    failed.sort_by_key(|one| one.row);
    Ok(Outcome { after, last, failed })
}

/// The input of `select`, `where` or `unnest`: the row's own columns, the states, and system columns.
/// `columns` are the row's, system columns of the input behind its own ones.
pub(super) fn then_input(
    inner: &Inner,
    mut columns: Vec<ArrayRef>,
    states: &[ArrayRef],
    width: usize,
    rows: usize,
) -> Result<RecordBatch, EvalError> {
    let own = crate::system::own_width(&inner.then_input) - states.len();
    let system = columns.split_off(own);
    debug_assert_eq!(own + states.len() + system.len(), width);
    of(&inner.then_input, columns.into_iter().chain(states.iter().cloned()).chain(system), rows)
}

/// Computes what a stage makes of its rows, for the sake of those that it cannot take.
fn try_then(then: &Then, input: &RecordBatch, refused: &mut Failed) -> Result<(), EvalError> {
    match then {
        Then::Map(projection) => projection.eval_into(input, refused).map(drop),
        Then::Filter(filter) => filter.mask(input, refused).map(drop),
        Then::FlatMap(unnest) => unnest.start_into(input, refused).map(drop),
    }
}

/// Rows that failed get their old state back.
fn undone(new: &mut [ArrayRef], old: &[ArrayRef], failed: &[Dropped]) -> Result<(), EvalError> {
    if failed.is_empty() {
        return Ok(());
    }
    for (new, old) in new.iter_mut().zip(old) {
        let mask: BooleanArray = keep_mask(new.len(), failed);
        *new = zip(&mask, &*new, old)?;
    }
    Ok(())
}

fn of(
    schema: &datafusion_common::arrow::datatypes::SchemaRef,
    columns: impl Iterator<Item = ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, EvalError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns.collect(), &options)?)
}

fn joined(pieces: &[ArrayRef]) -> Result<ArrayRef, EvalError> {
    Ok(match pieces {
        [only] => Arc::clone(only),
        _ => concat(&pieces.iter().map(|piece| &**piece as &dyn Array).collect::<Vec<_>>())?,
    })
}
