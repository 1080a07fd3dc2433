//! The groups of a window's panes, put together some at a time; those of neighbours once for many windows.

use std::collections::BTreeMap;

use datafusion_common::arrow::compute::concat_batches;
use datafusion_common::arrow::datatypes::SchemaRef;
use tuplane_core::time::Panes;

use crate::aggregate::table::{GroupTable, Incoming};
use crate::program::EvalError;

/// So many groups are put together before others have their turn, which takes a millisecond or two.
const MOST_GROUPS: usize = 8_192;

/// Or the groups of so many partitions of panes, where those are few.
const MOST_PIECES: usize = 256;

/// Fewer panes than this are put together for each window anew.
const FEW_PANES: i64 = 16;

/// What is put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// A pane, by its beginning.
    Pane(i64),
    /// All panes of a block, likewise.
    Block(i64),
}

/// What may still be done before others have their turn.
pub(super) struct Share {
    pieces: usize,
    groups: usize,
}

impl Default for Share {
    fn default() -> Self {
        Self { pieces: MOST_PIECES, groups: MOST_GROUPS }
    }
}

/// A table, and what is to come into it.
pub(super) struct Merging {
    pub(super) table: GroupTable,
    /// The last one first.
    rest: Vec<Part>,
    /// The partition of the last of them that is next.
    next: u16,
}

impl Merging {
    /// `parts` in order come into a table.
    pub(super) fn new(table: GroupTable, parts: impl DoubleEndedIterator<Item = Part>) -> Self {
        Self { table, rest: parts.rev().collect(), next: 0 }
    }

    /// Everything is in the table.
    pub(super) fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    /// Puts some more groups into the table: as many as the share allows, and up to a block that is not there.
    fn step(
        &mut self,
        share: &mut Share,
        panes: &BTreeMap<i64, GroupTable>,
        blocks: &BTreeMap<i64, GroupTable>,
        schema: &SchemaRef,
    ) -> Result<(), EvalError> {
        let (mut pieces, mut ids) = (Vec::new(), Vec::<u16>::new());
        while share.pieces > 0
            && share.groups > 0
            && let Some(part) = self.rest.last()
        {
            let table = match part {
                Part::Pane(pane) => panes.get(pane),
                Part::Block(block) => match blocks.get(block) {
                    None => break,
                    made => made,
                },
            };
            let Some(table) = table.filter(|table| self.next < table.partitions) else {
                self.rest.pop();
                self.next = 0;
                continue;
            };
            if let Some(groups) = table.save_partition(self.next) {
                let groups = groups?;
                share.pieces -= 1;
                share.groups = share.groups.saturating_sub(groups.num_rows());
                ids.extend(std::iter::repeat_n(self.next, groups.num_rows()));
                pieces.push(groups);
            }
            self.next += 1;
        }
        let all = concat_batches(schema, &pieces)?;
        self.table.take_in(&all, Some(&ids.into()), &Incoming::Partials)
    }
}

/// Runs of neighbouring panes whose groups have been put together. As long as the root of a window's number of
/// panes, so that a window is made of about twice that many blocks and panes instead of all of them.
pub(super) struct Blocks {
    /// In nanoseconds; `None` where windows have few panes.
    length: Option<i64>,
    made: BTreeMap<i64, GroupTable>,
    making: Option<(i64, Merging)>,
}

impl Blocks {
    pub(super) fn new(panes: &Panes) -> Self {
        let count = panes.count();
        let length = (count >= FEW_PANES).then(|| count.isqrt() * (panes.size() / count));
        Self { length, made: BTreeMap::new(), making: None }
    }

    pub(super) fn bytes(&self) -> usize {
        let making = self.making.iter().map(|(_, merging)| &merging.table);
        self.made.values().chain(making).map(GroupTable::bytes).sum()
    }

    /// A partition's groups have been taken out of all panes.
    pub(super) fn drop_partition(&mut self, partition: u16) {
        for made in self.made.values_mut() {
            made.take_table(partition);
        }
        // What is half made may have read some of them, and not the others.
        self.making = None;
    }

    /// Memory that a partition's groups take.
    pub(super) fn size_of(&self, partition: u16) -> usize {
        self.made.values().map(|made| made.table_bytes(partition)).sum()
    }

    /// A pane has changed, or is gone: the block that it is in is not what it was.
    pub(super) fn forget(&mut self, pane: i64) {
        if let Some(length) = self.length {
            self.made.remove(&begin(pane, length));
            self.making = None;
        }
    }

    /// The panes of a window from `start` to `end` in order, and blocks in the place of those that they hold.
    pub(super) fn parts(&self, inside: &[i64], start: i64, end: i64) -> Vec<Part> {
        let panes = |panes: &[i64]| panes.iter().copied().map(Part::Pane).collect::<Vec<_>>();
        let Some(length) = self.length else { return panes(inside) };
        let block = |one: &[i64]| {
            let first = begin(one[0], length);
            let whole = first >= start && first.checked_add(length).is_some_and(|last| last <= end);
            if whole && one.len() > 1 { vec![Part::Block(first)] } else { panes(one) }
        };
        inside.chunk_by(|a, b| begin(*a, length) == begin(*b, length)).flat_map(block).collect()
    }

    /// Puts some more of a window together, and the blocks before that are not there yet.
    pub(super) fn merge(
        &mut self,
        window: &mut Merging,
        panes: &BTreeMap<i64, GroupTable>,
        fresh: impl Fn() -> Result<GroupTable, EvalError>,
        schema: &SchemaRef,
    ) -> Result<(), EvalError> {
        let mut share = Share::default();
        while share.pieces > 0 && share.groups > 0 {
            if let Some((first, mut merging)) = self.making.take() {
                merging.step(&mut share, panes, &self.made, schema)?;
                if merging.is_done() {
                    self.made.insert(first, merging.table);
                } else {
                    self.making = Some((first, merging));
                }
                continue;
            }
            match (window.rest.last(), self.length) {
                (None, _) => break,
                (Some(Part::Block(first)), Some(length)) if !self.made.contains_key(first) => {
                    let inside = panes.range(*first..first.saturating_add(length));
                    let inside = inside.map(|(pane, _)| Part::Pane(*pane));
                    self.making = Some((*first, Merging::new(fresh()?, inside)));
                }
                _ => window.step(&mut share, panes, &self.made, schema)?,
            }
        }
        Ok(())
    }
}

/// The beginning of the block that a pane is in.
fn begin(pane: i64, length: i64) -> i64 {
    pane.saturating_sub(pane.rem_euclid(length))
}
