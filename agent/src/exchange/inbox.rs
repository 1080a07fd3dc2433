//! The input side of an instance: one queue per channel, read in turn, with credit given back as
//! rows are taken.

mod behind;
mod channel;
mod fresh;
mod grown;
mod held;
mod more;
mod moves;
mod share;

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Notify;
use tuplane_core::time::{Least, Moved, Standing};

use super::credit::Credit;
use super::load::{Load, Notes, Watchers};
use super::mark::{Item, Mark};
use crate::engine::rows::{Budget, Rows};
use crate::sync::{Mutex, lock};
use behind::{Queued, Turns};
use channel::{Channel, PARTS};
pub(crate) use moves::Side;
use moves::{Moves, Room};

/// Where a channel's credit goes when rows have been taken.
#[derive(Debug, Clone)]
pub(crate) enum Upstream {
    /// The sender is on this agent.
    Local(Arc<Credit>),
    /// The sender is on another agent: its session's notes are to be written soon.
    Remote(Arc<Notes>),
}

/// One input of an instance, as planned.
#[derive(Debug)]
pub(crate) struct InputSpec {
    pub(crate) edge: u32,
    pub(crate) priority: i32,
    pub(crate) channels: Vec<Upstream>,
}

/// What an instance gets when it asks for work.
#[derive(Debug)]
pub(crate) enum Taken {
    /// Rows of one input, by one of its channels.
    Rows { input: usize, channel: usize, rows: Rows },
    /// The least watermark of all channels has risen to this.
    Watermark(i64),
    /// All channels are idle.
    Idle,
    /// All channels have passed this barrier.
    Barrier(u64),
    /// All channels of an input have ended.
    InputEnded(usize),
    /// A channel has ended and others of its input have not; said only by an inbox that is read by channel.
    ChannelEnded(usize),
    /// All inputs have ended.
    Ended,
    /// Nothing now.
    Nothing,
}

/// What a note to the sender says of one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) limit: u64,
    pub(crate) window: u64,
    pub(crate) received_rows: u64,
    /// Rows that the instance has to do, over all its open inputs.
    pub(crate) queued_rows: u64,
    /// Thousandths of a row that it does in a second.
    pub(crate) capacity: u64,
}

/// The input side of one instance.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    load: Arc<Load>,
    wake: Notify,
    /// All who send have said that a group of key partitions moves.
    marked: Notify,
    /// Rows that have waited for their state have all been taken.
    caught_up: Notify,
    budget: Arc<Budget>,
}

#[derive(Debug)]
struct State {
    inputs: Vec<Input>,
    channels: Vec<Channel>,
    load: Arc<Load>,
    /// The priority of the inputs whose turn it is.
    open: Option<i32>,
    /// Who prices by this queue's length.
    watchers: Watchers,
    /// Next channel to look at: channels take turns.
    turn: usize,
    /// Bytes that may wait here, over all channels.
    bound: u64,
    /// Mean bytes of a row; 0 while none has come.
    row_bytes: u64,
    least: Least,
    /// There is more to tell: an input has ended, so that those that waited for it at a barrier may go on, or the
    /// watermark has moved.
    recheck: bool,
    /// Channels whose turn has come: their senders are to be told.
    opened: Vec<Grant>,
    /// Key partitions that come or go.
    moves: Moves,
    /// Channels that are read behind others.
    turns: Turns,
    reading: Reading,
    ended: bool,
    closed: bool,
}

/// How channels are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// They take turns.
    InTurn,
    /// The reader merges: a channel that gave rows is not read again before it is asked for.
    ByChannel,
}

#[derive(Debug)]
struct Input {
    edge: u32,
    priority: i32,
    ended: bool,
    /// See [`Inbox::keep_in_step`].
    in_step: bool,
    /// See [`Inbox::let_grow`].
    grows: bool,
    taken_rows: u64,
    dropped_rows: u64,
}

impl Inbox {
    /// An inbox with a bound of `bound` bytes for each input. Channels are numbered through all inputs in order.
    pub(crate) fn new(inputs: Vec<InputSpec>, bound: u64, budget: Arc<Budget>) -> Arc<Self> {
        let load = Arc::<Load>::default();
        let mut state = State {
            inputs: Vec::new(),
            channels: Vec::new(),
            load: Arc::clone(&load),
            open: None,
            watchers: Watchers::default(),
            turn: 0,
            bound: bound * inputs.len().max(1) as u64,
            row_bytes: 0,
            least: Least::default(),
            recheck: false,
            opened: Vec::new(),
            moves: Moves::default(),
            turns: Turns::default(),
            reading: Reading::InTurn,
            ended: false,
            closed: false,
        };
        for (number, spec) in inputs.into_iter().enumerate() {
            state.inputs.push(Input {
                edge: spec.edge,
                priority: spec.priority,
                ended: spec.channels.is_empty(),
                in_step: false,
                grows: false,
                taken_rows: 0,
                dropped_rows: 0,
            });
            let channels = spec.channels.into_iter();
            state.channels.extend(channels.map(|upstream| Channel::new(number, upstream)));
        }
        state.ended = state.inputs.iter().all(|input| input.ended);
        state.recount();
        // Inputs without channels will never end: those behind them are read from the start.
        let ended = state.inputs.iter().enumerate().filter(|(_, input)| input.ended);
        if let Some((first, _)) = ended.min_by_key(|(_, input)| input.priority) {
            state.open_those_behind(first);
        }
        Arc::new(Self {
            state: Mutex::new(state),
            load,
            wake: Notify::new(),
            marked: Notify::new(),
            caught_up: Notify::new(),
            budget,
        })
    }

    /// All senders of an input are in step: see [`Standing::counted`].
    pub(crate) fn keep_in_step(&self, input: usize) {
        lock(&self.state).inputs[input].in_step = true;
    }

    /// Its reader merges its channels, of which each is in order: it says with [`Inbox::ask`] whose rows it
    /// needs next.
    pub(crate) fn read_by_channel(&self) {
        lock(&self.state).reading = Reading::ByChannel;
    }

    /// A channel that gave rows may give more.
    pub(crate) fn ask(&self, channel: usize) {
        lock(&self.state).channels[channel].held = false;
    }

    /// Something has come on a channel. Whether there was credit is the sender's business.
    pub(crate) fn push(&self, channel: usize, item: Item) {
        let mut state = lock(&self.state);
        if state.closed {
            if let Item::Rows(rows) = &item {
                let input = state.channels[channel].input;
                state.inputs[input].dropped_rows += rows.len() as u64;
            }
            return;
        }
        if let Item::Mark(Mark::Hold) = item {
            state.hold(channel);
            drop(state);
            self.wake.notify_one();
            return;
        }
        let State { channels, inputs, open, load, watchers, moves, bound, .. } = &mut *state;
        let (number, channel) = (channel, &mut channels[channel]);
        if let Item::Rows(rows) = &item {
            let count = rows.len() as u64;
            channel.queued_rows += count;
            channel.received_rows += count;
            if *open == Some(inputs[channel.input].priority) {
                load.came(count);
            }
            watchers.changed();
        }
        let room = Room { bound: *bound, over: self.budget.over() };
        let came = moves.came(number, channel, item, room);
        came.queue.into_iter().for_each(|item| channel.append(item.into()));
        drop(state);
        if let Some(grant) = came.grant {
            grant.say();
        }
        if came.marked {
            self.marked.notify_waiters();
        }
        self.wake.notify_one();
    }

    /// Waits until something has been pushed since the last call that found nothing.
    pub(crate) async fn wait(&self) {
        self.wake.notified().await;
    }

    /// All that it reads has been taken, or the run has stopped.
    pub(crate) fn is_over(&self) -> bool {
        let state = lock(&self.state);
        state.ended || state.closed
    }

    /// Lets a waiting instance look again (an option has changed, the run stops).
    pub(crate) fn nudge(&self) {
        self.wake.notify_one();
    }

    /// The next rows or mark. With `marks_only` (the instance is over its output bound) no rows
    /// are given, but marks that stand at the front are.
    pub(crate) fn take(&self, most_rows: usize, marks_only: bool) -> Result<Taken, String> {
        let mut state = lock(&self.state);
        let over = self.budget.over();
        let was_behind = state.moves.is_behind();
        let (taken, grant) = state.take(most_rows, marks_only, over)?;
        let caught_up = was_behind && !state.moves.is_behind();
        let opened = std::mem::take(&mut state.opened);
        drop(state);
        if caught_up {
            self.caught_up.notify_waiters();
        }
        grant.into_iter().chain(opened).for_each(Grant::say);
        Ok(taken)
    }

    /// Copies slices that have waited for long while they kept much more than themselves alive.
    pub(crate) fn compact(&self, now: Instant) {
        for channel in &mut lock(&self.state).channels {
            for item in &mut channel.queue {
                if let Queued::Rows(rows) = item {
                    rows.compact(now);
                }
            }
        }
    }

    /// Rows that wait, by edge: (edge, waiting, taken, dropped).
    pub(crate) fn counts(&self) -> Vec<(u32, u64, u64, u64)> {
        let state = lock(&self.state);
        state
            .inputs
            .iter()
            .enumerate()
            .map(|(number, input)| {
                let channels = state.channels.iter().filter(|channel| channel.input == number);
                let waiting: u64 = channels.map(|c| c.queued_rows).sum();
                // When it is closed they count as dropped.
                let away = if state.closed { 0 } else { state.moves.away(number) };
                (input.edge, waiting + away, input.taken_rows, input.dropped_rows)
            })
            .collect()
    }

    /// The run stops: what waits is dropped and counted, and so is what still comes.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.closed, true) {
            return;
        }
        let State { inputs, channels, moves, .. } = &mut *state;
        for (number, input) in inputs.iter_mut().enumerate() {
            input.dropped_rows += moves.away(number);
        }
        moves.clear();
        self.marked.notify_waiters();
        self.caught_up.notify_waiters();
        for channel in channels {
            inputs[channel.input].dropped_rows += channel.queued_rows;
            channel.queue.clear();
            channel.queued_rows = 0;
        }
        state.load.set_waiting(0);
    }
}

#[derive(Debug)]
enum Grant {
    Local(Arc<Credit>, u64, u64),
    Remote(Arc<Notes>),
}

impl Grant {
    fn say(self) {
        match self {
            Self::Local(credit, limit, window) => credit.grant(limit, window),
            Self::Remote(session) => session.due.notify_one(),
        }
    }
}

impl State {
    fn take(
        &mut self,
        most_rows: usize,
        marks_only: bool,
        over: bool,
    ) -> Result<(Taken, Option<Grant>), String> {
        loop {
            if let Some(found) = self.look(most_rows, marks_only, over)? {
                return Ok(found);
            }
            // A mark that other channels must still reach: look at all of them again.
        }
    }

    /// Looks at the channels once, in turn; `None` if only a mark without effect was found.
    fn look(
        &mut self,
        most_rows: usize,
        marks_only: bool,
        over: bool,
    ) -> Result<Option<(Taken, Option<Grant>)>, String> {
        if self.ended {
            return Ok(Some((Taken::Ended, None)));
        }
        self.moves.check()?;
        if !marks_only && let Some((channel, rows, grant)) = self.take_front(most_rows, over) {
            let input = self.channels[channel].input;
            return Ok(Some((Taken::Rows { input, channel, rows }, grant)));
        }
        if let Some(input) = self.moves.next_end() {
            return Ok(Some((self.end_input(input), None)));
        }
        if std::mem::take(&mut self.recheck) {
            // What the ended input held back: a barrier, or the watermark.
            if let Some(taken) = self.freed()? {
                return Ok(Some((taken, None)));
            }
        }
        let open = self.open;
        let count = self.channels.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            let channel = &mut self.channels[index];
            if channel.barrier.is_some() || channel.held || Some(self.inputs[channel.input].priority) != open
            {
                continue;
            }
            match channel.queue.front() {
                None => {}
                Some(Queued::Rows(_)) if marks_only => {}
                Some(Queued::Then(number)) if self.turns.waits(*number) => {}
                Some(Queued::Rows(_)) => {
                    self.turn = (index + 1) % count;
                    return Ok(Some(self.take_rows(index, most_rows, over)));
                }
                Some(Queued::Mark(mark)) => {
                    let mark = *mark;
                    channel.queue.pop_front();
                    return Ok(self.pass(index, mark)?.map(|taken| (taken, None)));
                }
                Some(Queued::First(number) | Queued::Then(number)) => {
                    self.turns.reached(*number);
                    channel.queue.pop_front();
                    return Ok(None);
                }
            }
        }
        self.watchers.emptied();
        Ok(Some((Taken::Nothing, None)))
    }

    fn take_rows(&mut self, index: usize, most_rows: usize, over: bool) -> (Taken, Option<Grant>) {
        let channel = &mut self.channels[index];
        let Some(Queued::Rows(front)) = channel.queue.front_mut() else {
            return (Taken::Nothing, None);
        };
        let most_rows = most_rows.max(1);
        let rows = if front.len() <= most_rows {
            let rows = front.clone();
            channel.queue.pop_front();
            rows
        } else {
            front.cut(most_rows)
        };
        let (count, bytes) = (rows.len() as u64, rows.bytes());
        channel.queued_rows -= count;
        self.load.taken(count);
        channel.used += bytes;
        channel.used_rows += count * PARTS;
        channel.taken_bytes += bytes;
        channel.held = self.reading == Reading::ByChannel;
        let input = channel.input;
        self.inputs[input].taken_rows += count;
        let due = channel.queue.is_empty() || channel.taken_bytes - channel.granted_at >= channel.window / 8;
        let grant = (due && channel.raise(over)).then(|| channel.grant(over));
        self.watchers.changed();
        (Taken::Rows { input, channel: index, rows }, grant)
    }

    /// A mark has been reached on a channel; what the instance should know of it, if anything.
    fn pass(&mut self, index: usize, mark: Mark) -> Result<Option<Taken>, String> {
        match mark {
            Mark::Watermark(time) => {
                self.channels[index].standing.tell(time);
                Ok(self.advance())
            }
            Mark::Idle => {
                self.channels[index].standing.idle = true;
                Ok(self.advance())
            }
            Mark::Barrier(number) => {
                self.channels[index].barrier = Some(number);
                self.align()
            }
            // It was seen when it came.
            Mark::Hold => Ok(None),
            Mark::Resume => Ok(self.resume(index)),
            Mark::Moved { group, .. } => {
                Err(format!("a sender says that group {group} moves, of which nothing is known here"))
            }
            Mark::End => {
                let channel = &mut self.channels[index];
                channel.opens = channel.opens.saturating_sub(1);
                if channel.ended || channel.opens > 0 {
                    return Ok(None);
                }
                channel.ended = true;
                let number = channel.input;
                let all = self.channels.iter().filter(|c| c.input == number).all(|c| c.ended);
                if !all && self.reading == Reading::ByChannel {
                    self.recheck = true;
                    return Ok(Some(Taken::ChannelEnded(index)));
                }
                if !all {
                    // The channel no longer holds back a barrier or the watermark.
                    return self.freed();
                }
                if self.moves.postpones_end(number) {
                    return Ok(None);
                }
                Ok(Some(self.end_input(number)))
            }
        }
    }

    /// All channels of an input have ended.
    fn end_input(&mut self, number: usize) -> Taken {
        self.inputs[number].ended = true;
        self.recount();
        if self.inputs.iter().all(|i| i.ended) {
            self.ended = true;
            return Taken::Ended;
        }
        self.recheck = true;
        self.open_those_behind(number);
        Taken::InputEnded(number)
    }

    /// An input has ended: others may have their turn, and what waits on them counts from now on.
    fn recount(&mut self) {
        self.open = self.inputs.iter().filter(|i| !i.ended).map(|i| i.priority).min();
        let in_turn = |channel: &&Channel| Some(self.inputs[channel.input].priority) == self.open;
        self.load.set_waiting(self.channels.iter().filter(in_turn).map(|channel| channel.queued_rows).sum());
    }

    /// Where an input was the last of its priority, the senders of those that are read next learn of it by
    /// credit: a byte more than any channel has before it is read.
    fn open_those_behind(&mut self, ended: usize) {
        let Some(open) = self.open.filter(|open| *open > self.inputs[ended].priority) else { return };
        for channel in &mut self.channels {
            if self.inputs[channel.input].priority == open {
                channel.limit += 1;
                self.opened.push(match &channel.upstream {
                    Upstream::Local(credit) => {
                        Grant::Local(Arc::clone(credit), channel.limit, channel.window)
                    }
                    Upstream::Remote(session) => Grant::Remote(Arc::clone(session)),
                });
            }
        }
    }

    /// What an ended channel held back: a barrier first, then the watermark.
    fn freed(&mut self) -> Result<Option<Taken>, String> {
        let barrier = self.align()?;
        if barrier.is_some() {
            // The watermark is for the next call.
            self.recheck = true;
            return Ok(barrier);
        }
        Ok(self.advance())
    }

    fn advance(&mut self) -> Option<Taken> {
        if self.moves.holds_time() {
            return None;
        }
        let Self { inputs, channels, least, .. } = self;
        let open = |(number, input): (usize, &Input)| {
            let open = channels.iter().filter(move |c| c.input == number && !c.ended);
            Standing::counted(input.in_step, open.map(Channel::counted))
        };
        let moved = least.next(inputs.iter().enumerate().flat_map(open))?;
        self.recheck = true;
        Some(match moved {
            Moved::Watermark(time) => Taken::Watermark(time),
            Moved::Idle => Taken::Idle,
        })
    }

    fn align(&mut self) -> Result<Option<Taken>, String> {
        let mut open = self.channels.iter().filter(|c| !c.ended).map(|c| c.barrier);
        let Some(Some(number)) = open.next() else { return Ok(None) };
        for other in open {
            match other {
                None => return Ok(None),
                Some(other) if other != number => {
                    return Err(format!("barriers {number} and {other} met at one instance"));
                }
                Some(_) => {}
            }
        }
        for channel in &mut self.channels {
            channel.barrier = None;
        }
        Ok(Some(Taken::Barrier(number)))
    }
}

#[cfg(test)]
mod tests;
