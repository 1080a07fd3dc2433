//! The sending side of one edge on one agent: the output queues of its local senders, and the
//! channels that their rows leave by.

mod ahead;
mod owners;
mod pace;
mod past;
mod pricing;
mod retarget;
mod shown;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tuplane_core::cluster::DROPPED_BY_STOP;
use tuplane_core::route::DEAL;
use tuplane_core::time::{Least, Standing};
use tuplane_expr::system::arrivals;

use super::mark::Mark;
use super::outlet::{Link, Outlets};
use super::outqueue::{OutQueue, Reach, Routes};
use super::overflow::Overflow;
use super::priced::{Counts, Priced};
use super::quota::Quota;
use crate::engine::rows::Rows;
use crate::sync::{Mutex, lock};
use ahead::Ahead;
pub(crate) use ahead::Foresight;
use pace::Pace;
use past::Gone;
pub(crate) use pricing::{Route, tick_together};
pub(crate) use retarget::pool_targets;
use shown::Samples;
pub(crate) use waiting::AppendError;

/// One edge as one agent's senders use it.
#[derive(Debug)]
pub(crate) struct Edge {
    index: u32,
    /// Barriers stand in order here (broadcast and ordered edges).
    barriers_in_order: bool,
    /// The setting's length of a run.
    deal: u32,
    routes: Routes,
    state: Mutex<State>,
    wake: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    senders: Vec<Sender>,
    /// One set of channels for all senders, or one for each.
    outlets: Vec<Outlets>,
    /// Another one whenever outlets or the owners of key partitions change.
    reach: Arc<Reach>,
    /// The last group of key partitions that has another owner.
    moved: Option<(u32, u32)>,
    /// What went to targets that are no more.
    gone: Gone,
    /// Places among the senders whose instances are no more, see [`Edge::free`].
    free: BTreeSet<usize>,
    channels: Channels,
    /// The sender that goes first next time: those who meet at a channel's credit take turns, behind those that end.
    turn: usize,
    /// Senders whose end stands behind their rows and has not left.
    ending: usize,
    least: Least,
    hearing: Hearing,
    /// A barrier has passed: queues that it held may be released.
    repump: bool,
    ended: bool,
    emitted: u64,
    dropped: BTreeMap<&'static str, u64>,
    closed: bool,
    /// Rows that wait on disk cannot be had, or a policy chose what cannot be: why.
    failed: Option<String>,
    pace: Pace,
    /// Its policy looks at queues, or is the user's own.
    priced: Option<Box<Priced>>,
    /// What came of decisions, by whichever policy.
    counts: Counts,
    samples: Samples,
}

/// Whose an edge's channels are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Channels {
    /// All local senders share them.
    Shared,
    /// Each sender has its own: an ordered edge.
    Own,
}

/// What an edge's senders hear of event time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hearing {
    /// Each may hear something else.
    Apart,
    /// See [`Edge::keep_in_step`].
    InStep,
}

/// One local sending instance.
#[derive(Debug)]
struct Sender {
    /// Dense instance id.
    instance: u32,
    queue: OutQueue,
    /// Where rows go that the queue has no room for, if the sender may not be held up.
    overflow: Option<Overflow>,
    /// Bytes that may wait before the instance is blocked.
    bound: u64,
    /// Wakes the instance when there is room again.
    room: Arc<Notify>,
    standing: Standing,
    barrier: Option<u64>,
    /// Its end stands behind its rows.
    ending: bool,
    ended: bool,
    /// So often it was said that older rows may follow, and not taken back: see [`Mark::Hold`].
    holds: u32,
    /// What it may send in a slot, over all its edges.
    quota: Option<Arc<Quota>>,
    /// It gives rows before they arrive.
    ahead: Option<Box<Ahead>>,
}

/// An edge that is yet to be filled with senders.
#[derive(Debug)]
pub(crate) struct EdgeSpec {
    pub(crate) index: u32,
    pub(crate) barriers_in_order: bool,
    pub(crate) deal: u32,
    pub(crate) routes: Routes,
}

/// An edge's counters on its sending side.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    pub(crate) emitted: u64,
    pub(crate) queued: u64,
    pub(crate) dropped: BTreeMap<&'static str, u64>,
    /// (target instance, its agent, rows, bytes)
    pub(crate) targets: Vec<(u32, u16, u64, u64)>,
    /// What went to targets that are no more and are not listed: (agent, rows, bytes).
    pub(crate) folded: Vec<(u16, u64, u64)>,
    pub(crate) policy: Option<String>,
}

impl Edge {
    /// An edge over these outlets. `wake` is what the outlets' credits notify.
    pub(crate) fn new(spec: EdgeSpec, outlets: Outlets, wake: Arc<Notify>) -> Arc<Self> {
        Self::over(spec, vec![outlets], Channels::Shared, wake)
    }

    /// An ordered edge: each sender has channels of its own, in the order in which they are added.
    pub(crate) fn ordered(spec: EdgeSpec, outlets: Vec<Outlets>, wake: Arc<Notify>) -> Arc<Self> {
        Self::over(spec, outlets, Channels::Own, wake)
    }

    fn over(spec: EdgeSpec, outlets: Vec<Outlets>, channels: Channels, wake: Arc<Notify>) -> Arc<Self> {
        let mut routes = spec.routes;
        let reach = routes.reach(outlets.first().map_or(0, |channels| channels.list().len()));
        Arc::new(Self {
            index: spec.index,
            barriers_in_order: spec.barriers_in_order,
            deal: spec.deal,
            routes,
            wake,
            state: Mutex::new(State {
                senders: Vec::new(),
                outlets,
                reach: Arc::new(reach),
                moved: None,
                gone: Gone::default(),
                free: BTreeSet::new(),
                channels,
                turn: 0,
                ending: 0,
                least: Least::default(),
                hearing: Hearing::Apart,
                repump: false,
                ended: false,
                emitted: 0,
                dropped: BTreeMap::new(),
                closed: false,
                failed: None,
                pace: Pace::new(Instant::now()),
                priced: None,
                counts: Counts::default(),
                samples: Samples::default(),
            }),
        })
    }

    /// Index in the plan.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Its senders are in step: see [`Standing::counted`].
    pub(crate) fn keep_in_step(&self) {
        lock(&self.state).hearing = Hearing::InStep;
    }

    /// Adds a sender, in the first place that is free; gives its number here.
    pub(crate) fn add_sender(&self, instance: u32, queue: OutQueue, bound: u64, room: Arc<Notify>) -> usize {
        let mut state = lock(&self.state);
        let sender = Sender {
            instance,
            queue,
            overflow: None,
            bound,
            room,
            standing: Standing::default(),
            barrier: None,
            ending: false,
            ended: false,
            holds: 0,
            quota: None,
            ahead: None,
        };
        if let Some(place) = state.free.pop_first() {
            state.senders[place] = sender;
            return place;
        }
        state.senders.push(sender);
        state.senders.len() - 1
    }

    /// Appends a sender's rows and sends what may leave.
    pub(crate) fn append(&self, sender: usize, rows: Rows) -> Result<(), AppendError> {
        let (spills, reach) = {
            let state = lock(&self.state);
            (state.is_spilling(sender), Arc::clone(&state.reach))
        };
        if spills {
            return self.append_to_overflow(sender, rows);
        }
        let count = rows.len() as u64 * self.routes.copies(reach.width);
        let dues = arrivals(rows.batch()).cloned();
        let again = self.routes.may_change().then(|| rows.clone());
        let mut pieces = self.routes.divide(rows, &reach)?;
        let mut state = lock(&self.state);
        if let Some(rows) = again.filter(|_| !Arc::ptr_eq(&reach, &state.reach)) {
            // Owners have changed meanwhile. It is rare, so that it may take its time under the lock.
            pieces = self.routes.divide(rows, &state.reach)?;
        }
        let State { senders, emitted, dropped, closed, pace, .. } = &mut *state;
        if *closed {
            *emitted += count;
            *dropped.entry(DROPPED_BY_STOP).or_default() += count;
            return Ok(());
        }
        let now = Instant::now();
        pace.add(count, now);
        let Sender { queue, ahead, .. } = &mut senders[sender];
        *emitted += queue.append(pieces)?;
        if let Some(ahead) = ahead {
            ahead.came(dues.as_ref(), count, now);
        }
        state.release_those_that_end(self.deal);
        state.release(sender, self.deal);
        self.settle(&mut state);
        Ok(())
    }

    /// A sender passes a mark on.
    pub(crate) fn mark(&self, sender: usize, mark: Mark) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        match mark {
            Mark::Barrier(number) if !self.barriers_in_order => {
                // Ahead of the queue: what waits there is part of the sender's snapshot, and stays
                // until the channel has passed the barrier.
                state.senders[sender].barrier = Some(number);
                state.pass_barrier(number);
            }
            mark => {
                let ends = mark == Mark::End && !std::mem::replace(&mut state.senders[sender].ending, true);
                state.ending += usize::from(ends);
                let of = &mut state.senders[sender];
                match &mut of.overflow {
                    Some(overflow) if !overflow.is_empty() => {
                        if let Err(error) = overflow.mark(mark) {
                            state.fail(error.to_string());
                            self.wake.notify_one();
                        }
                    }
                    _ => of.mark(mark),
                }
                state.release(sender, self.deal);
                self.refill(&mut state, sender);
            }
        }
        self.settle(&mut state);
    }

    fn settle(&self, state: &mut State) {
        if std::mem::take(&mut state.repump) || state.failed.is_some() {
            self.wake.notify_one();
        }
    }

    /// A sender is at its bound: it takes no rows until [`Edge::append`]'s rows have left.
    pub(crate) fn is_full(&self, sender: usize) -> bool {
        let mut state = lock(&self.state);
        let Some(overflow) = &mut state.senders[sender].overflow else {
            return state.senders[sender].is_at_bound();
        };
        overflow.holds_up() || state.senders[sender].is_at_bound() && state.is_read()
    }

    /// Everything that a sender has given has left.
    pub(crate) fn is_drained(&self, sender: usize) -> bool {
        let state = lock(&self.state);
        let sender = &state.senders[sender];
        state.closed || (sender.ended && sender.queue.rows() == 0)
    }

    /// Rows that wait in a sender's queue; none of an instance whose place another one has.
    pub(crate) fn waiting_of(&self, sender: usize, instance: u32) -> u64 {
        let state = lock(&self.state);
        state.senders.get(sender).filter(|of| of.instance == instance).map_or(0, Sender::rows)
    }

    /// Rows that wait in a sender's queue.
    #[cfg(test)]
    pub(crate) fn waiting(&self, sender: usize) -> u64 {
        lock(&self.state).senders[sender].rows()
    }

    /// Sends what may leave of all senders.
    pub(crate) fn pump(&self) {
        let mut state = lock(&self.state);
        if state.closed || state.senders.is_empty() {
            return;
        }
        let count = state.senders.len();
        let first = state.turn % count;
        state.release_those_that_end(self.deal);
        state.turn = (first + 1) % count;
        for step in 0..count {
            let sender = (first + step) % count;
            state.release(sender, self.deal);
            self.refill(&mut state, sender);
        }
        self.settle(&mut state);
    }

    /// Lets what has left go onto the wire at once: the sender has nothing more to do.
    pub(crate) fn flush(&self) {
        lock(&self.state).outlets.iter().for_each(Outlets::flush);
    }

    /// Pumps whenever credit has come, until the run is closed, rows that wait on disk cannot be had, or a
    /// policy chose what cannot be.
    pub(crate) async fn run(self: Arc<Self>) -> Result<(), String> {
        loop {
            {
                let state = lock(&self.state);
                if let Some(cause) = state.failed.as_ref().filter(|_| !state.closed) {
                    return Err(cause.clone());
                }
                if state.closed {
                    return Ok(());
                }
            }
            self.wake.notified().await;
            self.pump();
        }
    }

    /// Copies slices that have waited for long while they kept much more than themselves alive, in
    /// its queues and in those of its targets here.
    pub(crate) fn compact(&self, now: Instant) {
        let mut state = lock(&self.state);
        for sender in &mut state.senders {
            sender.queue.compact(now);
        }
        for outlet in state.outlets.iter().flat_map(Outlets::list) {
            if let Link::Local { inbox, .. } = &outlet.link {
                inbox.compact(now);
            }
        }
    }

    /// The run stops: what waits is dropped for this reason, and so is what still comes.
    pub(crate) fn close(&self, reason: &'static str) {
        let mut state = lock(&self.state);
        state.closed = true;
        let rows: u64 = state.senders.iter_mut().map(Sender::clear).sum();
        if rows > 0 {
            *state.dropped.entry(reason).or_default() += rows;
        }
        for sender in &state.senders {
            sender.room.notify_one();
        }
        self.wake.notify_one();
    }

    /// Its counters.
    pub(crate) fn sent(&self) -> Sent {
        let state = lock(&self.state);
        Sent {
            emitted: state.emitted,
            queued: state.senders.iter().map(Sender::rows).sum(),
            dropped: state.dropped.clone(),
            targets: state
                .outlets
                .iter()
                .flat_map(Outlets::list)
                .map(|o| (o.instance, o.agent, o.sent_rows, o.sent_bytes))
                .chain(state.gone.listed())
                .collect(),
            folded: state.gone.folded(),
            policy: state.senders.first().and_then(|s| s.queue.policy()).map(str::to_owned),
        }
    }
}

impl Sender {
    /// It has ended, and nothing of it waits.
    fn is_over(&self) -> bool {
        self.ended && self.rows() == 0
    }

    /// What is said of event time stands behind the rows that have arrived, and before those to come.
    fn mark(&mut self, mark: Mark) {
        match (&mut self.ahead, mark) {
            (Some(ahead), Mark::Watermark(_) | Mark::Idle) => {
                ahead.turn(Instant::now());
                self.queue.mark_before(mark, ahead.to_come());
            }
            _ => self.queue.mark(mark),
        }
    }
}

/// Each sender draws its own lots, the same in every run of the same plan.
pub(crate) fn policy_seed(edge: u32, instance: u32) -> u64 {
    (u64::from(edge) << 32) ^ u64::from(instance) ^ 0x5eed
}

impl State {
    fn release(&mut self, number: usize, deal: u32) {
        if self.priced.is_some() {
            return self.release_priced(number);
        }
        let deal = if self.pace.is_slow() { 1 } else { deal.clamp(1, DEAL) };
        let set = if self.channels == Channels::Own { number } else { 0 };
        let was_full = self.senders[number].is_queue_full();
        let before = self.senders[number].queue.rows();
        while self.pass_marks(number) {
            let sender = &mut self.senders[number];
            sender.queue.release(&mut self.outlets[set], deal);
            if !sender.queue.is_at_mark() {
                break;
            }
        }
        if let Some(quota) = &self.senders[number].quota {
            quota.spend(before - self.senders[number].queue.rows(), Instant::now());
        }
        let sender = &self.senders[number];
        if was_full && !sender.is_queue_full() {
            sender.room.notify_one();
        }
    }

    /// Senders that end go before the others, who have time: a plan is done when the last row of those that it ends has
    /// left. Where rows are priced a slot's end lets go all that such a sender has.
    fn release_those_that_end(&mut self, deal: u32) {
        if self.ending == 0 || self.priced.is_some() {
            return;
        }
        let (first, count) = (self.turn, self.senders.len());
        for number in (0..count).map(|step| (first + step) % count) {
            if self.senders[number].ending && !self.senders[number].ended {
                self.release(number, deal);
            }
        }
    }

    /// Marks first: no row may leave before what stands in front of it has been said. False if none may leave now.
    fn pass_marks(&mut self, number: usize) -> bool {
        while self.senders[number].barrier.is_none()
            && let Some(mark) = self.senders[number].queue.next_mark()
        {
            self.reach(number, mark);
            if mark == Mark::End {
                self.senders[number].room.notify_one();
            }
        }
        self.wake(number);
        self.senders[number].barrier.is_none()
    }

    /// An idle sender's next watermark waits, behind a barrier or the rows of a lane without credit: that it is
    /// awake is said at once, so that time does not run on, and before rows of other lanes leave. Its old watermark
    /// says so, which no row that waits is behind.
    fn wake(&mut self, number: usize) {
        let sender = &mut self.senders[number];
        if !sender.standing.idle || !sender.queue.wakes() {
            return;
        }
        let last = sender.standing.watermark.unwrap_or(i64::MIN);
        self.reach(number, Mark::Watermark(last));
    }

    /// A sender's rows before this mark have all left.
    fn reach(&mut self, number: usize, mark: Mark) {
        let sender = &mut self.senders[number];
        match mark {
            // It is awake again by now, and rows behind its next watermark may have left already.
            Mark::Idle if sender.is_woken() => return,
            Mark::Idle => sender.standing.idle = true,
            Mark::Watermark(time) => sender.standing.tell(time),
            // Its end has taken it back.
            Mark::Resume if sender.holds == 0 => return,
            Mark::Resume => sender.holds -= 1,
            // Nothing follows, so nothing older: its channels may be others' too, and go on.
            Mark::End => {
                self.ending -= usize::from(!sender.ended);
                self.take_back_holds(number);
            }
            _ => {}
        }
        if self.channels == Channels::Own {
            // Its channels are its own: no other sender has to pass the mark too.
            self.senders[number].ended |= mark == Mark::End;
            self.ended = self.senders.iter().all(|s| s.ended);
            self.outlets[number].send_mark(mark);
            self.outlets[number].flush();
            return;
        }
        match mark {
            Mark::Watermark(_) | Mark::Idle => self.advance(),
            Mark::End => {
                self.senders[number].ended = true;
                if self.senders.iter().all(|s| s.ended) {
                    self.ended = true;
                    self.send_mark(Mark::End);
                    self.outlets.iter().for_each(Outlets::flush);
                    return;
                }
                self.advance();
                if let Some(number) = self.senders.iter().find_map(|s| s.barrier) {
                    self.pass_barrier(number);
                }
            }
            Mark::Barrier(barrier) => {
                self.senders[number].barrier = Some(barrier);
                self.pass_barrier(barrier);
            }
            Mark::Moved { .. } | Mark::Hold | Mark::Resume => self.send_mark(mark),
        }
    }

    fn send_mark(&self, mark: Mark) {
        self.outlets.iter().for_each(|outlets| outlets.send_mark(mark));
    }

    /// The channels' watermark is the least of their senders'.
    fn advance(&mut self) {
        let Self { senders, least, hearing, .. } = self;
        let in_step = *hearing == Hearing::InStep;
        let open = senders.iter().filter(|s| !s.ended).map(|s| s.standing);
        let mut told = SmallVec::<[Mark; 2]>::new();
        while let Some(moved) = least.next(Standing::counted(in_step, open.clone())) {
            told.push(moved.into());
        }
        told.into_iter().for_each(|mark| self.send_mark(mark));
    }

    /// The channels pass a barrier once, when the last sender has.
    fn pass_barrier(&mut self, barrier: u64) {
        if self.senders.iter().any(|s| !s.ended && s.barrier != Some(barrier)) {
            return;
        }
        self.repump = true;
        self.send_mark(Mark::Barrier(barrier));
        self.outlets.iter().for_each(Outlets::flush);
        for sender in &mut self.senders {
            sender.barrier = None;
        }
    }
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests;
