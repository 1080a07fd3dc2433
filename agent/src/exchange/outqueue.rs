//! One sending instance's output queue on one edge: rows and marks that have not left yet.

mod lanes;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use tuplane_core::route::{Policy, Target, Targets, Waiting};
use tuplane_expr::arrow::array::UInt32Array;
use tuplane_expr::arrow::error::ArrowError;

use super::mark::{Item, Mark};
use super::outlet::Outlets;
use super::priced::Sends;
use crate::engine::rows::Rows;

/// Pieces are joined up to so many rows ...
const JOINED: usize = 256;
/// ... and bytes.
const JOINED_BYTES: u64 = 64 << 10;

/// How rows of an edge find their targets.
#[derive(Debug)]
pub(crate) enum Routes {
    /// One of several, by policy.
    Any,
    /// By key partition; gives each partition's outlet, to begin with: see [`Reach`].
    ByPartition(Vec<u32>),
    /// Always the first outlet.
    One,
    /// Every outlet.
    Every,
}

/// The outlets of an edge, which change while it is used.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    /// How many there are.
    pub(crate) width: usize,
    /// Of each key partition, where the edge is partitioned.
    pub(crate) map: Vec<u32>,
}

impl Routes {
    /// What an edge with so many outlets reaches at first.
    pub(crate) fn reach(&mut self, width: usize) -> Reach {
        let map = if let Self::ByPartition(map) = self { std::mem::take(map) } else { Vec::new() };
        Reach { width, map }
    }

    /// Where a row goes may be another place by the time it is there.
    pub(crate) fn may_change(&self) -> bool {
        matches!(self, Self::ByPartition(_))
    }

    /// How often the ledger counts a row of an edge with so many outlets.
    pub(crate) fn copies(&self, outlets: usize) -> u64 {
        if matches!(self, Self::Every) { outlets as u64 } else { 1 }
    }

    /// Rows by the lane that they wait in. Rows are copied where the edge is partitioned, which is why this is done
    /// before the edge is locked.
    pub(crate) fn divide(&self, rows: Rows, to: &Reach) -> Result<SmallVec<[(usize, Rows); 1]>, ArrowError> {
        match self {
            Self::Every => Ok((0..to.width).map(|lane| (lane, rows.clone())).collect()),
            Self::ByPartition(_) if to.width > 1 => divide(&rows, &to.map, to.width),
            _ => Ok(SmallVec::from([(0, rows)])),
        }
    }
}

/// The output queue.
#[derive(Debug)]
pub(crate) struct OutQueue {
    kind: Kind,
    rows: u64,
    bytes: u64,
    /// Rows that were ever appended (a broadcast row once per target).
    appended: u64,
    /// When its rows came, where that is asked for.
    ages: Option<Ages>,
}

#[derive(Debug)]
enum Kind {
    /// In order; a piece of the front may go to any target in `view`, which stands for the outlets
    /// numbered in `outlets`.
    Pool { items: VecDeque<Item>, policy: Box<dyn Policy>, view: Targets, outlets: Vec<usize> },
    /// A lane per outlet, so that one without credit holds up no other. Entries are numbered as
    /// they came, which is how a mark knows that the rows before it have left.
    Lanes { lanes: Vec<VecDeque<(u64, Rows)>>, marks: VecDeque<(u64, Mark)>, next: u64 },
}

impl OutQueue {
    /// A queue whose rows go where the policy says; `outlets` gives the outlet of each target.
    pub(crate) fn pool(policy: Box<dyn Policy>, view: Targets, outlets: Vec<usize>) -> Self {
        Self {
            kind: Kind::Pool { items: VecDeque::new(), policy, view, outlets },
            rows: 0,
            bytes: 0,
            appended: 0,
            ages: None,
        }
    }

    /// A queue with a lane for each outlet.
    pub(crate) fn lanes(outlets: usize) -> Self {
        let lanes = (0..outlets).map(|_| VecDeque::new()).collect();
        Self {
            kind: Kind::Lanes { lanes, marks: VecDeque::new(), next: 0 },
            rows: 0,
            bytes: 0,
            appended: 0,
            ages: None,
        }
    }

    /// Rows that wait (a broadcast row once per target that has not had it).
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Rows of a pool that wait go to these targets; `outlets` gives the outlet of each.
    pub(crate) fn retarget(&mut self, new: Targets, numbers: Vec<usize>) {
        if let Kind::Pool { view, outlets, .. } = &mut self.kind {
            (*view, *outlets) = (new, numbers);
        }
    }

    /// Changes the policy. Gives `false` where the edge has none.
    pub(crate) fn set_policy(&mut self, new: Box<dyn Policy>) -> bool {
        match &mut self.kind {
            Kind::Pool { policy, .. } => *policy = new,
            Kind::Lanes { .. } => return false,
        }
        true
    }

    /// Its policy, where the edge has one.
    pub(crate) fn policy_mut(&mut self) -> Option<&mut (dyn Policy + 'static)> {
        match &mut self.kind {
            Kind::Pool { policy, .. } => Some(policy.as_mut()),
            Kind::Lanes { .. } => None,
        }
    }

    /// From now on it is known how long rows have waited, or not any more.
    pub(crate) fn keep_ages(&mut self, keep: bool, now: Instant) {
        self.ages = keep.then(|| Ages::of(self.rows, now));
    }

    /// Rows that came before an instant and have not left, where that is known.
    pub(crate) fn before(&self, limit: Instant) -> u64 {
        self.ages.as_ref().map_or(0, |ages| ages.before(limit))
    }

    /// Rows at the front of a pool that have to leave until it holds less than `bound` bytes.
    pub(crate) fn rows_over(&self, bound: u64) -> u64 {
        let Kind::Pool { items, .. } = &self.kind else { return 0 };
        let mut over = (self.bytes + 1).saturating_sub(bound);
        let mut count = 0;
        for item in items {
            let Item::Rows(rows) = item else { continue };
            if over == 0 {
                break;
            }
            if rows.bytes() <= over {
                over -= rows.bytes();
                count += rows.len() as u64;
            } else {
                // Whole rows within the excess, and the one that reaches over it.
                count += (rows.rows_within(over) as u64 + 1).min(rows.len() as u64);
                over = 0;
            }
        }
        count
    }

    /// Sends up to `most` rows of a pool to one outlet: those before the next mark, as far as it has credit. Gives how
    /// many went.
    pub(crate) fn send(&mut self, to: &mut Outlets, outlet: usize, most: u64) -> u64 {
        let Kind::Pool { items, .. } = &mut self.kind else { return 0 };
        let mut sent = 0;
        while sent < most
            && let Some(Item::Rows(rows)) = items.front_mut()
            && to.open(outlet)
        {
            let most = usize::try_from(most - sent).unwrap_or(usize::MAX);
            let count = rows.rows_within(to.frame(outlet)).min(most);
            let piece = take_front(items, count);
            self.rows -= count as u64;
            self.bytes -= piece.as_ref().map_or(0, Rows::bytes);
            sent += count as u64;
            if let Some(piece) = piece {
                to.send(outlet, piece);
            }
        }
        if let Some(ages) = &mut self.ages {
            ages.left(sent);
        }
        sent
    }

    /// Sends rows of a pool that stand before the next mark, at most `gamma`, as its policy chooses run by run among
    /// these targets. What it has for one target goes there in one piece. Where it holds rows that are mandatory, they
    /// go to the open target of least cost, queue and rank. Gives what went, by outlet; as forced count rows that the
    /// policy would have held.
    ///
    /// # Errors
    /// If the policy chooses what cannot be.
    pub(crate) fn release_among(
        &mut self,
        to: &mut Outlets,
        targets: &[Target],
        mandatory: u64,
        deal: u32,
        gamma: u64,
    ) -> Result<Sends, String> {
        let Kind::Pool { items, policy, view, outlets } = &mut self.kind else { return Ok(Sends::default()) };
        for (mine, outlet) in view.list_mut().iter_mut().zip(&*outlets) {
            *mine = targets[*outlet];
        }
        let before_mark = items.iter().map_while(|item| match item {
            Item::Rows(rows) => Some(rows.len() as u64),
            Item::Mark(_) => None,
        });
        let most = before_mark.sum::<u64>().min(gamma);
        let (mut chosen, mut forced, mut by_target) = (0, 0, vec![0; view.len()]);
        while chosen < most {
            let must = mandatory.saturating_sub(chosen);
            let waiting = Waiting { rows: self.rows - chosen, mandatory: must, deal };
            let (target, count) = if let Some(choice) = policy.choose(&waiting, view) {
                choice.check(policy.name(), view)?;
                let count = u64::from(choice.rows).min(most - chosen);
                policy.sent(count as u32);
                (choice.target, count)
            } else {
                let Some(target) = cheapest(view).filter(|_| must > 0) else { break };
                let count = must.min(most - chosen).min(view.list()[target].credit);
                forced += count;
                (target, count)
            };
            view.list_mut()[target].take(count);
            by_target[target] += count;
            chosen += count;
        }
        let chosen_by: SmallVec<[(usize, u64); 8]> = outlets.iter().copied().zip(by_target).collect();
        let went = |(outlet, rows)| (outlet, self.send(to, outlet, rows));
        let rows = chosen_by.into_iter().filter(|(_, rows)| *rows > 0).map(went);
        let rows: Vec<_> = rows.filter(|(_, rows)| *rows > 0).collect();
        let stayed = chosen - rows.iter().map(|(_, rows)| rows).sum::<u64>();
        Ok(Sends { rows, forced: forced.saturating_sub(stayed) })
    }

    /// The policy's name, where the edge has one.
    pub(crate) fn policy(&self) -> Option<&str> {
        match &self.kind {
            Kind::Pool { policy, .. } => Some(policy.name()),
            Kind::Lanes { .. } => None,
        }
    }

    /// Appends rows by lane, as [`Routes::divide`] gave them. Gives how many the ledger counts: a
    /// broadcast row once per target.
    pub(crate) fn append(&mut self, pieces: SmallVec<[(usize, Rows); 1]>) -> Result<u64, ArrowError> {
        let before = self.rows;
        match &mut self.kind {
            Kind::Pool { items, .. } => {
                for (_, rows) in pieces {
                    self.rows += rows.len() as u64;
                    self.bytes += rows.bytes();
                    match items.back_mut() {
                        Some(Item::Rows(last)) if fits(last, &rows) => join(last, rows)?,
                        _ => items.push_back(Item::Rows(rows)),
                    }
                }
            }
            Kind::Lanes { lanes, next, marks } => {
                let number = *next;
                *next += 1;
                for (lane, piece) in pieces {
                    self.rows += piece.len() as u64;
                    self.bytes += piece.bytes();
                    match lanes[lane].back_mut() {
                        // No mark stands between the two.
                        Some((before, last))
                            if marks.back().is_none_or(|(m, _)| m < before) && fits(last, &piece) =>
                        {
                            join(last, piece)?;
                        }
                        _ => lanes[lane].push_back((number, piece)),
                    }
                }
            }
        }
        self.appended += self.rows - before;
        if let Some(ages) = &mut self.ages {
            ages.came(self.rows - before, Instant::now());
        }
        Ok(self.rows - before)
    }

    /// Appends a mark that stands in order.
    pub(crate) fn mark(&mut self, mark: Mark) {
        match &mut self.kind {
            Kind::Pool { items, .. } => items.push_back(Item::Mark(mark)),
            Kind::Lanes { marks, next, .. } => {
                marks.push_back((*next, mark));
                *next += 1;
            }
        }
    }

    /// Puts a mark before the last `rows` rows of a pool.
    pub(crate) fn mark_before(&mut self, mark: Mark, rows: u64) {
        let Kind::Pool { items, .. } = &mut self.kind else { return self.mark(mark) };
        let (mut at, mut left) = (items.len(), rows as usize);
        while left > 0 && at > 0 {
            at -= 1;
            let Item::Rows(piece) = &mut items[at] else { continue };
            if let Some(before) = piece.len().checked_sub(left).filter(|before| *before > 0) {
                let head = piece.cut(before);
                items.insert(at, Item::Rows(head));
                at += 1;
            }
            left = left.saturating_sub(match &items[at] {
                Item::Rows(piece) => piece.len(),
                Item::Mark(_) => 0,
            });
        }
        items.insert(at, Item::Mark(mark));
    }

    /// The first mark, if no row stands before it.
    pub(crate) fn next_mark(&mut self) -> Option<Mark> {
        if !self.is_at_mark() {
            return None;
        }
        match &mut self.kind {
            Kind::Pool { items, .. } => match items.pop_front() {
                Some(Item::Mark(mark)) => Some(mark),
                _ => None,
            },
            Kind::Lanes { marks, .. } => marks.pop_front().map(|(_, mark)| mark),
        }
    }

    /// No row stands before the first mark: [`OutQueue::next_mark`] has one to give.
    pub(crate) fn is_at_mark(&self) -> bool {
        match &self.kind {
            Kind::Pool { items, .. } => matches!(items.front(), Some(Item::Mark(_))),
            Kind::Lanes { lanes, marks, .. } => marks.front().is_some_and(|(number, _)| {
                lanes.iter().filter_map(VecDeque::front).all(|(row, _)| row > number)
            }),
        }
    }

    /// A watermark waits here, so that a sender that was idle is so no more.
    pub(crate) fn wakes(&self) -> bool {
        let wakes = |mark: &Mark| matches!(mark, Mark::Watermark(_));
        match &self.kind {
            Kind::Pool { items, .. } => {
                items.iter().any(|item| matches!(item, Item::Mark(mark) if wakes(mark)))
            }
            Kind::Lanes { marks, .. } => marks.iter().any(|(_, mark)| wakes(mark)),
        }
    }

    /// Sends rows that may leave, in runs of at most `deal` rows: of a pool those before the next mark, of lanes
    /// all that no barrier holds back. Marks stay: see [`OutQueue::next_mark`].
    pub(crate) fn release(&mut self, to: &mut Outlets, deal: u32) {
        match &mut self.kind {
            Kind::Pool { items, policy, view, outlets } => {
                for (target, outlet) in outlets.iter().enumerate() {
                    view.set_credit(target, to.open(*outlet));
                }
                while let Some(Item::Rows(rows)) = items.front_mut() {
                    let waiting = Waiting { rows: rows.len() as u64, mandatory: 0, deal };
                    let Some(choice) = policy.choose(&waiting, view) else { break };
                    let outlet = outlets[choice.target];
                    let count = rows.rows_within(to.frame(outlet)).min(choice.rows as usize);
                    let piece = if count < rows.len() {
                        rows.cut(count)
                    } else {
                        let piece = rows.clone();
                        items.pop_front();
                        piece
                    };
                    policy.sent(count as u32);
                    self.rows -= count as u64;
                    self.bytes -= piece.bytes();
                    to.send(outlet, piece);
                    view.set_credit(choice.target, to.open(outlet));
                }
            }
            Kind::Lanes { lanes, marks, .. } => {
                let barrier =
                    marks.iter().find(|(_, mark)| matches!(mark, Mark::Barrier(_))).map(|(n, _)| *n);
                for (outlet, lane) in lanes.iter_mut().enumerate() {
                    while let Some((number, rows)) = lane.front_mut() {
                        if barrier.is_some_and(|barrier| barrier < *number) || !to.open(outlet) {
                            break;
                        }
                        let count = rows.rows_within(to.frame(outlet));
                        let piece = if count < rows.len() {
                            rows.cut(count)
                        } else {
                            let piece = rows.clone();
                            lane.pop_front();
                            piece
                        };
                        self.rows -= count as u64;
                        self.bytes -= piece.bytes();
                        to.send(outlet, piece);
                    }
                }
            }
        }
    }

    /// Copies slices that keep much more than themselves alive.
    pub(crate) fn compact(&mut self, now: Instant) {
        let compact = |rows: &mut Rows| rows.compact(now);
        match &mut self.kind {
            Kind::Pool { items, .. } => items.iter_mut().for_each(|item| {
                if let Item::Rows(rows) = item {
                    compact(rows);
                }
            }),
            Kind::Lanes { lanes, .. } => lanes.iter_mut().flatten().for_each(|(_, rows)| compact(rows)),
        }
    }

    /// Drops everything; gives the rows.
    pub(crate) fn clear(&mut self) -> u64 {
        match &mut self.kind {
            Kind::Pool { items, .. } => items.clear(),
            Kind::Lanes { lanes, marks, .. } => {
                lanes.iter_mut().for_each(VecDeque::clear);
                marks.clear();
            }
        }
        self.bytes = 0;
        if let Some(ages) = &mut self.ages {
            ages.0.clear();
        }
        std::mem::take(&mut self.rows)
    }
}

/// The open target of least cost, queue and rank.
fn cheapest(targets: &Targets) -> Option<usize> {
    let open = targets.list().iter().enumerate().filter(|(_, target)| target.is_open());
    open.min_by_key(|(_, target)| (target.cost, target.queued, target.rank)).map(|(index, _)| index)
}

/// Takes rows off the front of a pool that begins with rows.
fn take_front(items: &mut VecDeque<Item>, count: usize) -> Option<Rows> {
    match items.front_mut() {
        Some(Item::Rows(rows)) if count < rows.len() => Some(rows.cut(count)),
        Some(Item::Rows(_)) => match items.pop_front() {
            Some(Item::Rows(rows)) => Some(rows),
            _ => None,
        },
        _ => None,
    }
}

/// Rows that came within this time of each other count as one age.
const AGE_STEP: Duration = Duration::from_millis(1);

/// When rows came that have not left, the oldest first.
#[derive(Debug)]
struct Ages(VecDeque<(Instant, u64)>);

impl Ages {
    fn of(rows: u64, now: Instant) -> Self {
        Self((rows > 0).then_some((now, rows)).into_iter().collect())
    }

    fn came(&mut self, rows: u64, now: Instant) {
        match self.0.back_mut() {
            Some((at, count)) if now.saturating_duration_since(*at) < AGE_STEP => *count += rows,
            _ => self.0.push_back((now, rows)),
        }
    }

    fn left(&mut self, mut rows: u64) {
        while rows > 0
            && let Some((_, count)) = self.0.front_mut()
        {
            let part = rows.min(*count);
            (*count, rows) = (*count - part, rows - part);
            if *count == 0 {
                self.0.pop_front();
            }
        }
    }

    fn before(&self, limit: Instant) -> u64 {
        self.0.iter().take_while(|(at, _)| *at <= limit).map(|(_, rows)| rows).sum()
    }
}

/// Small pieces that wait are joined: a batch of a few rows costs much more than its rows.
fn fits(last: &Rows, more: &Rows) -> bool {
    last.len() + more.len() <= JOINED && last.bytes() + more.bytes() <= JOINED_BYTES
}

fn join(last: &mut Rows, more: Rows) -> Result<(), ArrowError> {
    if let Some(joined) = Rows::join(&[last.clone(), more])? {
        *last = joined;
    }
    Ok(())
}

/// Rows by the outlet that holds their partition.
fn divide(rows: &Rows, map: &[u32], outlets: usize) -> Result<SmallVec<[(usize, Rows); 1]>, ArrowError> {
    let Some(ids) = rows.partitions() else {
        return Err(ArrowError::InvalidArgumentError("rows on a partitioned edge carry no partition".into()));
    };
    let mut indices: Vec<Vec<u32>> = vec![Vec::new(); outlets];
    for (row, id) in ids.values().iter().enumerate() {
        indices[map[usize::from(*id)] as usize].push(row as u32);
    }
    indices
        .into_iter()
        .enumerate()
        .filter(|(_, rows)| !rows.is_empty())
        .map(|(outlet, picked)| {
            let piece = if picked.len() == rows.len() {
                rows.clone()
            } else {
                rows.pick(&UInt32Array::from(picked))?
            };
            Ok((outlet, piece))
        })
        .collect()
}
