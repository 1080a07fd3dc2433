//! Lanes whose targets change, and key partitions that go from one lane to another.

use std::collections::VecDeque;

use tuplane_expr::arrow::error::ArrowError;

use super::{Kind, OutQueue};
use crate::engine::rows::Rows;
use crate::exchange::moving::{Partitions, split};

impl OutQueue {
    /// The lanes are these from now on: each the one that had this number, or a new one. Nothing may wait in one that
    /// goes.
    pub(crate) fn relane(&mut self, former: &[Option<usize>]) {
        if let Kind::Lanes { lanes, .. } = &mut self.kind {
            let mut old = std::mem::take(lanes);
            let lane =
                |number: &Option<usize>| number.and_then(|number| old.get_mut(number)).map(std::mem::take);
            *lanes = former.iter().map(lane).map(Option::unwrap_or_default).collect();
        }
    }

    /// The end of the queue as it is now, for [`OutQueue::has_passed`].
    pub(crate) fn place(&self) -> u64 {
        match &self.kind {
            Kind::Pool { .. } => self.appended,
            Kind::Lanes { next, .. } => *next,
        }
    }

    /// All rows that stood before a place have left.
    pub(crate) fn has_passed(&self, place: u64) -> bool {
        match &self.kind {
            Kind::Pool { .. } => self.appended - self.rows >= place,
            // A lane may be held up while others go on.
            Kind::Lanes { lanes, .. } => {
                lanes.iter().filter_map(VecDeque::front).all(|(number, _)| *number >= place)
            }
        }
    }

    /// Rows of these partitions that wait in one lane wait in another from now on, where they stood: none of them
    /// passes a mark or another of its partition.
    ///
    /// # Errors
    /// If they carry no partitions. Nothing has moved then.
    pub(crate) fn move_partitions(
        &mut self,
        these: &Partitions,
        from: usize,
        to: usize,
    ) -> Result<(), ArrowError> {
        let Kind::Lanes { lanes, .. } = &mut self.kind else { return Ok(()) };
        let (mut stay, mut go) = (VecDeque::new(), VecDeque::new());
        for (number, rows) in &lanes[from] {
            let (others, mine) = split(rows.clone(), these)?;
            stay.extend(others.map(|rows| (*number, rows)));
            go.extend(mine.map(|rows| (*number, rows)));
        }
        lanes[from] = stay;
        let there = std::mem::take(&mut lanes[to]);
        lanes[to] = merge(there, go);
        self.bytes = lanes.iter().flatten().map(|(_, rows)| rows.bytes()).sum();
        Ok(())
    }
}

/// Two lanes as one, by number.
fn merge(mut a: VecDeque<(u64, Rows)>, mut b: VecDeque<(u64, Rows)>) -> VecDeque<(u64, Rows)> {
    let mut all = VecDeque::with_capacity(a.len() + b.len());
    loop {
        let first = match (a.front(), b.front()) {
            (Some((x, _)), Some((y, _))) if y < x => &mut b,
            (Some(_), _) => &mut a,
            (None, _) => &mut b,
        };
        match first.pop_front() {
            Some(entry) => all.push_back(entry),
            None => return all,
        }
    }
}
