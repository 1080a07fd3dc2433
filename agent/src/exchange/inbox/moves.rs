//! Key partitions that leave an instance or come to it: what of its queue goes with them, and what waits for them.

use std::collections::VecDeque;

use tuplane_wire::scaling::{AwayRows, MovedRows};

use super::behind::Queued;
use super::{Channel, Grant, Inbox, State};
use crate::engine::rows::Rows;
use crate::exchange::mark::{Item, Mark};
use crate::exchange::moving::{Group, split};
use crate::sync::lock;

/// Rows that wait for the state of their partitions give their credit back, so that others go on, up to so many bytes
/// or as many as the queue holds: what waits here has to get through the instance before its partitions can move again.
const MOST_HELD: u64 = 32 << 20;

/// What an instance has to do with a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// It holds its partitions, and gives them away.
    Gives,
    /// It is to hold them.
    Takes,
}

/// Rows of an inbox that stand apart from its channels' queues.
#[derive(Debug, Default)]
pub(super) struct Moves {
    group: Option<Moving>,
    /// The last group that is done with.
    done: Option<(u32, u32)>,
    /// Rows that come before all others: they have waited for their state.
    front: VecDeque<Held>,
    /// Bytes that wait apart and keep no credit.
    credited: u64,
    /// More groups may come: it does not end before they have.
    open: bool,
    /// Groups that are not settled: as many times it still has to say that no older rows follow.
    settling: u32,
    /// Inputs that would have ended.
    ends: VecDeque<usize>,
    /// Rows by input that have left with this group, and of which it is not known yet that they have arrived.
    away: Option<((u32, u32), Vec<u64>)>,
    /// The last group that has come and was taken.
    taken: Option<(u32, u32)>,
    /// What cannot be: rows that cannot be told apart by partition.
    failed: Option<String>,
}

#[derive(Debug)]
struct Moving {
    group: Group,
    side: Side,
    /// Channels whose mark has come.
    marked: Vec<bool>,
    held: VecDeque<Held>,
    /// Its rows were taken out of the queue.
    cut: bool,
}

#[derive(Debug)]
struct Held {
    channel: usize,
    rows: Rows,
    /// Its credit was given back, or belongs to another instance's channel.
    credited: bool,
}

impl Inbox {
    /// From now on, until [`Inbox::close_moves`], key partitions may come or go: its input does not end before.
    ///
    /// # Errors
    /// A sentence, if it has ended.
    pub(crate) fn open_moves(&self) -> Result<(), String> {
        let mut state = lock(&self.state);
        if state.ended || state.closed {
            return Err("all that it reads has come to its end".to_owned());
        }
        state.moves.open = true;
        Ok(())
    }

    /// No more partitions come or go.
    pub(crate) fn close_moves(&self) {
        let mut state = lock(&self.state);
        state.moves.open = false;
        drop(state);
        self.nudge();
    }

    /// A group is about to move. The event time of the instance that gives it stands still until its rows are cut:
    /// rows that are sent to the new one from now on must not find their windows given. Has to be known to both its owners before any sender says so. Said a second time it
    /// changes nothing.
    ///
    /// # Errors
    /// If another one is on its way.
    pub(crate) fn begin_group(&self, group: Group, side: Side) -> Result<(), String> {
        let mut state = lock(&self.state);
        let order = group.order();
        if state.moves.done.is_some_and(|done| done >= order) {
            return Ok(());
        }
        match &state.moves.group {
            Some(now) if now.group.order() == order => return Ok(()),
            Some(now) => return Err(format!("group {} is still on its way", now.group.number)),
            None => {}
        }
        state.moves.open = true;
        // Who has ended says nothing any more, and sends nothing.
        let marked = state.channels.iter().map(Channel::is_over).collect();
        state.moves.group = Some(Moving { group, side, marked, held: VecDeque::new(), cut: false });
        Ok(())
    }

    /// Waits until all who send to the instance have said that a group moves. At once for one that has moved, and when
    /// the run stops.
    pub(crate) async fn all_marked(&self, order: (u32, u32)) {
        loop {
            let told = self.marked.notified();
            let waits = {
                let state = lock(&self.state);
                !state.closed && state.moves.waits_for_marks(order)
            };
            if !waits {
                return;
            }
            told.await;
        }
    }

    /// Takes the rows of the group that leaves out of what waits here, by input, in the order of each channel; none if no
    /// group leaves. Those that came with an earlier group and were not taken are among them, and are the first. They
    /// still count as waiting here until [`Inbox::end_group`].
    ///
    /// # Errors
    /// If not all senders have said that it moves, or rows carry no partition.
    pub(crate) fn cut_group(&self) -> Result<Vec<(usize, Rows)>, String> {
        let mut state = lock(&self.state);
        let over = self.budget.over();
        let cut = state.cut_group(over);
        let grants = std::mem::take(&mut state.opened);
        drop(state);
        self.caught_up.notify_waiters();
        grants.into_iter().for_each(Grant::say);
        cut
    }

    /// The group that comes has its state: the rows that came with it, by input, and then those that have waited for
    /// it here come before all others. Without rows it changes nothing if no group comes.
    ///
    /// # Errors
    /// If no group comes, and rows have.
    pub(crate) fn resume_group(&self, with_it: Vec<(usize, Rows)>) -> Result<(), String> {
        let mut state = lock(&self.state);
        state.resume_group(with_it)?;
        drop(state);
        self.nudge();
        Ok(())
    }

    /// Rows that have waited for their state have not all been taken.
    pub(crate) fn is_catching_up(&self) -> bool {
        lock(&self.state).moves.is_behind()
    }

    /// Waits until rows that have waited for their state have all been taken, or the run stops.
    pub(crate) async fn caught_up(&self) {
        loop {
            let told = self.caught_up.notified();
            if !self.is_catching_up() {
                return;
            }
            told.await;
        }
    }

    /// Rows that came with groups wait here apart, more than twice what the queue holds: another group had better wait,
    /// since they have given their credit back. One that is on its way does not wait.
    pub(crate) fn is_far_behind(&self, order: (u32, u32)) -> bool {
        let state = lock(&self.state);
        let moves = &state.moves;
        let on_its_way = moves.group.as_ref().is_some_and(|moving| moving.group.order() == order);
        let is_new = !on_its_way && moves.done.is_none_or(|done| done < order);
        is_new && !state.closed && moves.credited > 2 * state.bound
    }

    /// Its instance does not end before [`Inbox::end_settling`]: who takes its results holds event time until it hears that
    /// no older ones follow.
    pub(crate) fn begin_settling(&self) {
        lock(&self.state).moves.settling += 1;
    }

    /// It was said.
    pub(crate) fn end_settling(&self) {
        let mut state = lock(&self.state);
        state.moves.settling = state.moves.settling.saturating_sub(1);
        drop(state);
        self.nudge();
    }

    /// What of its rows may count elsewhere, too.
    pub(crate) fn moved_rows(&self) -> MovedRows {
        let state = lock(&self.state);
        let moves = &state.moves;
        let of = |group: (u32, u32), rows: &[u64]| {
            let inputs = state.inputs.iter().zip(rows).filter(|(_, rows)| **rows > 0);
            let away = inputs.map(|(input, rows)| AwayRows {
                edge: input.edge,
                group,
                rows: *rows,
                dropped: state.closed,
            });
            away.collect()
        };
        let away = moves.away.as_ref().map(|(group, rows)| of(*group, rows)).unwrap_or_default();
        MovedRows { taken: moves.taken, away }
    }

    /// A group has arrived, with all that belongs to it.
    pub(crate) fn end_group(&self, order: (u32, u32)) {
        let mut state = lock(&self.state);
        let moves = &mut state.moves;
        if moves.group.as_ref().is_some_and(|now| now.group.order() == order) {
            moves.group = None;
        }
        moves.done = moves.done.max(Some(order));
        if !state.closed {
            state.moves.away = None;
        }
        // Its time goes on, where that was not cut before.
        state.recheck = true;
        drop(state);
        self.nudge();
    }
}

impl Moving {
    /// All who send have said that it moves.
    fn is_marked(&self) -> bool {
        self.marked.iter().all(|marked| *marked)
    }
}

impl Moves {
    fn waits_for_marks(&self, order: (u32, u32)) -> bool {
        match &self.group {
            Some(moving) if moving.group.order() == order => !moving.is_marked(),
            // One that comes later has not begun yet.
            _ => self.done.is_none_or(|done| done < order),
        }
    }

    /// Partitions are on their way out: see [`Inbox::begin_group`].
    pub(super) fn holds_time(&self) -> bool {
        self.group.as_ref().is_some_and(|moving| moving.side == Side::Gives && !moving.cut)
    }

    /// Rows that have waited for their state have not all been taken.
    pub(super) fn is_behind(&self) -> bool {
        !self.front.is_empty()
    }

    fn may_end(&self) -> bool {
        !self.open && self.settling == 0 && self.front.is_empty()
    }

    /// All channels of an input have ended: whether that is for [`Moves::next_end`] to say later.
    pub(super) fn postpones_end(&mut self, input: usize) -> bool {
        let waits = !self.may_end();
        if waits {
            self.ends.push_back(input);
        }
        waits
    }

    /// An input whose end has waited for partitions to come or go, and waits no more.
    pub(super) fn next_end(&mut self) -> Option<usize> {
        if self.may_end() { self.ends.pop_front() } else { None }
    }

    /// Rows of an input that have left and may not have arrived.
    pub(super) fn away(&self, input: usize) -> u64 {
        self.away.as_ref().and_then(|(_, rows)| rows.get(input).copied()).unwrap_or_default()
    }

    /// Why the inbox cannot go on.
    pub(super) fn check(&self) -> Result<(), String> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// The run stops.
    pub(super) fn clear(&mut self) {
        self.front.clear();
        self.credited = 0;
        self.group = None;
    }

    fn fail(&mut self, why: impl ToString) {
        self.failed.get_or_insert_with(|| why.to_string());
    }

    /// Something has come on a channel: what of it goes into the channel's queue; and whether all marks are there now.
    pub(super) fn came(&mut self, number: usize, channel: &mut Channel, item: Item, room: Room) -> Came {
        if let Item::Mark(Mark::Moved { epoch, group }) = item
            && self.done.is_some_and(|done| done >= (epoch, group))
        {
            // To one that comes nobody's word is waited for, nor is that of one that has ended.
            return Came { queue: None, grant: None, marked: false };
        }
        let Some(moving) = &mut self.group else { return Came::queued(item) };
        match item {
            Item::Mark(Mark::Moved { epoch, group }) if (epoch, group) == moving.group.order() => {
                if let Some(marked) = moving.marked.get_mut(number) {
                    *marked = true;
                }
                Came { queue: None, grant: None, marked: moving.is_marked() }
            }
            Item::Mark(Mark::End) => {
                channel.queue.push_back(item.into());
                if let Some(marked) = moving.marked.get_mut(number) {
                    *marked |= channel.is_over();
                }
                Came { queue: None, grant: None, marked: moving.is_marked() }
            }
            Item::Rows(rows) if moving.side == Side::Takes => match split(rows, &moving.group.partitions) {
                Ok((others, mine)) => {
                    let mut grant = None;
                    if let Some(rows) = mine {
                        let credited = self.credited + rows.bytes() <= room.bound.min(MOST_HELD);
                        if credited {
                            self.credited += rows.bytes();
                            grant = channel.give_back(rows.bytes(), room.over);
                        }
                        moving.held.push_back(Held { channel: number, rows, credited });
                    }
                    Came { queue: others.map(Item::Rows), grant, marked: false }
                }
                Err(error) => {
                    self.fail(error);
                    Came { queue: None, grant: None, marked: false }
                }
            },
            other => Came::queued(other),
        }
    }
}

/// What may wait here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Bytes over all channels.
    pub(super) bound: u64,
    /// The agent is over its budget.
    pub(super) over: bool,
}

/// What comes of something that has come.
pub(super) struct Came {
    pub(super) queue: Option<Item>,
    pub(super) grant: Option<Grant>,
    pub(super) marked: bool,
}

impl Came {
    fn queued(item: Item) -> Self {
        Self { queue: Some(item), grant: None, marked: false }
    }
}

impl Channel {
    /// Rows of so many bytes wait here no more: what its sender is to be told.
    fn give_back(&mut self, bytes: u64, over: bool) -> Option<Grant> {
        self.taken_bytes += bytes;
        self.raise(over).then(|| self.grant(over))
    }
}

impl State {
    fn cut_group(&mut self, over: bool) -> Result<Vec<(usize, Rows)>, String> {
        let Self { moves, channels, inputs, opened, recheck, turns, .. } = self;
        let moving = moves.group.as_mut().filter(|moving| moving.side == Side::Gives);
        let Some(moving) = moving else { return Ok(Vec::new()) };
        if !moving.is_marked() {
            return Err("not all who send to the instance have said that the group moves".to_owned());
        }
        (moving.cut, *recheck) = (true, true);
        let partitions = &moving.group.partitions;
        let mut cut = Vec::new();
        let mut away = vec![0; inputs.len()];
        // Bytes by channel that wait here no more.
        let mut bytes = vec![0; channels.len()];
        for held in std::mem::take(&mut moves.front) {
            let Held { channel, rows, credited } = held;
            let (others, mine) = split(rows, partitions).map_err(|e| e.to_string())?;
            moves.front.extend(others.map(|rows| Held { channel, rows, credited }));
            if let Some(rows) = mine {
                let (count, of) = (rows.len() as u64, &mut channels[channel]);
                of.queued_rows -= count;
                away[of.input] += count;
                if credited {
                    moves.credited = moves.credited.saturating_sub(rows.bytes());
                } else {
                    bytes[channel] += rows.bytes();
                }
                cut.push((of.input, rows));
            }
        }
        let mut queues: Vec<_> =
            channels.iter_mut().map(|channel| std::mem::take(&mut channel.queue)).collect();
        let mut failed = None;
        // Rows that are to be read behind others stay behind them.
        turns.walk(&mut queues, |number, queued| {
            let channel = &mut channels[number];
            let Queued::Rows(rows) = queued else {
                channel.queue.push_back(queued);
                return;
            };
            match split(rows, partitions) {
                Ok((others, mine)) => {
                    channel.queue.extend(others.map(Queued::Rows));
                    if let Some(rows) = mine {
                        let count = rows.len() as u64;
                        channel.queued_rows -= count;
                        away[channel.input] += count;
                        bytes[number] += rows.bytes();
                        cut.push((channel.input, rows));
                    }
                }
                Err(error) => failed = Some(error.to_string()),
            }
        });
        if let Some(why) = failed {
            return Err(why);
        }
        for (channel, bytes) in channels.iter_mut().zip(bytes) {
            if bytes > 0 {
                opened.extend(channel.give_back(bytes, over));
            }
        }
        moves.away = Some((moving.group.order(), away));
        self.recount();
        Ok(cut)
    }

    fn resume_group(&mut self, with_it: Vec<(usize, Rows)>) -> Result<(), String> {
        let Self { moves, channels, .. } = self;
        let moving = moves.group.as_mut().filter(|moving| moving.side == Side::Takes);
        let Some(moving) = moving else {
            let none = with_it.is_empty();
            return none.then_some(()).ok_or_else(|| "rows came with no group of key partitions".to_owned());
        };
        for (input, rows) in with_it {
            let channel = channels.iter().position(|channel| channel.input == input);
            let channel = channel.ok_or("rows came with a group for an input that the instance has not")?;
            channels[channel].queued_rows += rows.len() as u64;
            moves.credited += rows.bytes();
            moves.front.push_back(Held { channel, rows, credited: true });
        }
        moves.front.append(&mut moving.held);
        moves.done = moves.done.max(Some(moving.group.order()));
        moves.taken = moves.done;
        moves.group = None;
        self.recount();
        Ok(())
    }

    /// The next rows that have waited for their state: at most so many, of the channel with this number. Gives what
    /// its sender is to be told.
    pub(super) fn take_front(
        &mut self,
        most_rows: usize,
        over: bool,
    ) -> Option<(usize, Rows, Option<Grant>)> {
        let front = self.moves.front.front_mut()?;
        let (channel, credited) = (front.channel, front.credited);
        let rows = if front.rows.len() > most_rows.max(1) {
            front.rows.cut(most_rows.max(1))
        } else {
            self.moves.front.pop_front()?.rows
        };
        let (count, of) = (rows.len() as u64, &mut self.channels[channel]);
        of.queued_rows -= count;
        let grant = if credited {
            self.moves.credited = self.moves.credited.saturating_sub(rows.bytes());
            None
        } else {
            of.give_back(rows.bytes(), over)
        };
        self.load.taken(count);
        self.inputs[of.input].taken_rows += count;
        self.watchers.changed();
        Some((channel, rows, grant))
    }
}
