//! The sending half of a data session: frames to one other agent, numbered, kept until they are
//! acknowledged, and sent again after a broken connection.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use tuplane_wire::frame::ALL;
use tuplane_wire::message::AgentId;
use tuplane_wire::net::{Kind, NetError, Security, Stream, dial, in_words};

use super::credit::Credit;
use super::inbound::Broken;
use super::mark::Mark;
use crate::engine::rows::Rows;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
use road::Road;

mod road;
mod talk;

/// Rows leave at once when so many bytes wait ...
const FLUSH_BYTES: u64 = 64 << 10;
/// A broken connection is dialled anew after so long.
const REDIAL: Duration = Duration::from_millis(300);
/// ... and a dial may take so long.
const DIAL: Duration = Duration::from_secs(2);

/// The next session's number; with the sender's incarnation no two are the same.
static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

/// A channel, as sessions know it. The sending agent is the session's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ChannelKey {
    pub(crate) run: u64,
    pub(crate) edge: u32,
    pub(crate) target: u32,
}

/// Counters of one edge on one session.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    /// Rows sent and not acknowledged.
    pub(crate) rows: AtomicU64,
    /// Rows ever sent.
    rows_sent: AtomicU64,
    /// Marks sent and not acknowledged.
    pub(crate) marks: AtomicU64,
    /// Marks ever sent.
    marks_sent: AtomicU64,
    /// Bytes on the wire, headers included.
    pub(crate) wire_bytes: AtomicU64,
}

impl Flight {
    /// Rows ever sent.
    pub(crate) fn rows_sent(&self) -> u64 {
        self.rows_sent.load(Ordering::Acquire)
    }

    /// Rows that have arrived, of all that were ever sent: they arrive in their order.
    pub(crate) fn rows_arrived(&self) -> u64 {
        // In this order, so that what is sent meanwhile is not taken for what has arrived.
        let sent = self.rows_sent();
        sent.saturating_sub(self.rows.load(Ordering::Acquire))
    }

    /// Marks ever sent.
    pub(crate) fn marks_sent(&self) -> u64 {
        self.marks_sent.load(Ordering::Acquire)
    }

    /// Marks that have arrived, of all that were ever sent: they arrive in their order.
    pub(crate) fn marks_arrived(&self) -> u64 {
        // In this order, so that one that is sent meanwhile is not taken for one that has arrived.
        let sent = self.marks_sent();
        sent.saturating_sub(self.marks.load(Ordering::Acquire))
    }
}

/// What the sending half needs to know of an edge.
#[derive(Debug, Clone)]
struct EdgeFacts {
    attempt: u32,
    schema: u64,
    flight: Arc<Flight>,
}

/// The sending half of the session with one peer.
pub(crate) struct Outbound {
    broken: Broken,
    me: AgentId,
    peer: AgentId,
    address: String,
    security: Security,
    state: Mutex<State>,
    wake: Notify,
    /// Frames were acknowledged, or none will be: for those who wait to send parcels.
    room: Notify,
    number: u64,
    /// Smoothed round trip in microseconds; 0 while unknown.
    round_trip: AtomicU64,
    /// A connection stands.
    up: AtomicBool,
    started: Instant,
}

#[derive(Debug, Default)]
struct State {
    edges: HashMap<(u64, u32), EdgeFacts>,
    credits: HashMap<ChannelKey, Arc<Credit>>,
    /// What must go first and in this order: rows in front of a mark, and marks.
    ready: VecDeque<Outgoing>,
    /// Rows by channel; channels take turns.
    pending: HashMap<ChannelKey, VecDeque<Rows>>,
    turns: VecDeque<ChannelKey>,
    road: Road,
    waiting_bytes: u64,
    flush: bool,
    unacknowledged: VecDeque<Sent>,
    next: u64,
    dead: bool,
    /// It has been connected once.
    met: bool,
    failure: Option<String>,
}

#[derive(Debug)]
enum Outgoing {
    Rows(ChannelKey, Vec<Rows>),
    /// For one target, or [`ALL`] that the edge has on the peer.
    Mark {
        key: ChannelKey,
        mark: Mark,
    },
}

/// A frame that the peer has not acknowledged.
#[derive(Debug)]
struct Sent {
    sequence: u64,
    bytes: Bytes,
    rows: u64,
    marks: u64,
    flight: Arc<Flight>,
}

/// Why a session has ended for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The peer's process is gone.
    Gone(String),
    /// Its owner closed it.
    Closed,
    /// The two sides do not understand each other.
    Broken(String),
}

/// Without what it carries.
impl std::fmt::Debug for Outbound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbound").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Outbound {
    pub(crate) fn new(
        me: AgentId,
        peer: AgentId,
        address: String,
        security: Security,
        broken: Broken,
    ) -> Arc<Self> {
        Arc::new(Self {
            broken,
            me,
            peer,
            address,
            security,
            state: Mutex::new(State { next: 1, ..State::default() }),
            wake: Notify::new(),
            room: Notify::new(),
            number: NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            round_trip: AtomicU64::new(0),
            up: AtomicBool::new(false),
            started: Instant::now(),
        })
    }

    /// The other side.
    pub(crate) fn peer(&self) -> &AgentId {
        &self.peer
    }

    /// Smoothed round trip in microseconds.
    pub(crate) fn round_trip(&self) -> Option<u64> {
        Some(self.round_trip.load(Ordering::Relaxed)).filter(|us| *us > 0)
    }

    /// A connection stands: the peer is not suspected.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// An edge will send here.
    #[cfg(test)]
    pub(crate) fn add_edge(&self, run: u64, attempt: u32, edge: u32, schema: u64) -> Arc<Flight> {
        let flight = Arc::<Flight>::default();
        self.keep_edge(run, attempt, edge, schema, &flight);
        flight
    }

    /// The same, for one that may be known; what it has in flight is counted there. False if it is known.
    pub(crate) fn keep_edge(
        &self,
        run: u64,
        attempt: u32,
        edge: u32,
        schema: u64,
        flight: &Arc<Flight>,
    ) -> bool {
        let mut state = lock(&self.state);
        let Entry::Vacant(place) = state.edges.entry((run, edge)) else { return false };
        place.insert(EdgeFacts { attempt, schema, flight: Arc::clone(flight) });
        true
    }

    /// An edge will not send here after all.
    pub(crate) fn remove_edge(&self, run: u64, edge: u32) {
        lock(&self.state).edges.remove(&(run, edge));
    }

    /// A channel will send here.
    pub(crate) fn add_channel(&self, key: ChannelKey, credit: Arc<Credit>) {
        lock(&self.state).credits.insert(key, credit);
    }

    /// A channel sends no rows here any more, or will not after all.
    pub(crate) fn remove_channel(&self, key: ChannelKey) {
        lock(&self.state).credits.remove(&key);
    }

    /// Nothing is sent any more: the peer is dead, or this agent ends.
    pub(crate) fn is_dead(&self) -> bool {
        lock(&self.state).dead
    }

    /// Some run sends on it.
    pub(crate) fn is_used(&self) -> bool {
        let state = lock(&self.state);
        !state.edges.is_empty() || state.road.is_used()
    }

    /// Nothing of a run is sent any more; what waits is dropped.
    pub(crate) fn forget(&self, run: u64) {
        let mut state = lock(&self.state);
        state.edges.retain(|(r, _), _| *r != run);
        state.credits.retain(|key, _| key.run != run);
        state.road.forget(run);
        state.pending.retain(|key, _| key.run != run);
        state.turns.retain(|key| key.run != run);
        state.ready.retain(|item| match item {
            Outgoing::Rows(key, _) | Outgoing::Mark { key, .. } => key.run != run,
        });
        let pending = state.pending.values().flatten().map(Rows::bytes).sum::<u64>();
        let ready = state.ready.iter().map(|item| match item {
            Outgoing::Rows(_, pieces) => pieces.iter().map(Rows::bytes).sum(),
            Outgoing::Mark { .. } => 0,
        });
        state.waiting_bytes = pending + ready.sum::<u64>();
        // Frames that were sent stay: the numbers must not have gaps, and the peer drops them.
        drop(state);
        self.room.notify_waiters();
    }

    /// Rows for a channel. The caller has checked its credit.
    pub(crate) fn send(&self, key: ChannelKey, rows: Rows) {
        let mut state = lock(&self.state);
        let Some(facts) = state.edges.get(&(key.run, key.edge)) else { return };
        facts.flight.rows.fetch_add(rows.len() as u64, Ordering::AcqRel);
        facts.flight.rows_sent.fetch_add(rows.len() as u64, Ordering::AcqRel);
        if state.dead {
            // They count as in flight for ever, which is what `lost` is made of.
            return;
        }
        let before = state.waiting_bytes;
        state.waiting_bytes += rows.bytes();
        let after = state.waiting_bytes;
        let queue = state.pending.entry(key).or_default();
        queue.push_back(rows);
        if queue.len() == 1 {
            state.turns.push_back(key);
        }
        drop(state);
        if before == 0 || (before < FLUSH_BYTES && after >= FLUSH_BYTES) {
            self.wake.notify_one();
        }
    }

    /// A mark for all targets of an edge on the peer; it follows all rows of the edge so far.
    pub(crate) fn send_mark(&self, run: u64, edge: u32, mark: Mark) {
        self.send_mark_to(ChannelKey { run, edge, target: ALL }, mark);
    }

    /// A mark for one target, or for [`ALL`]; it follows all rows of its channel so far.
    pub(crate) fn send_mark_to(&self, to: ChannelKey, mark: Mark) {
        let mut state = lock(&self.state);
        let State { pending, turns, ready, credits, edges, dead, .. } = &mut *state;
        let Some(facts) = edges.get(&(to.run, to.edge)).filter(|_| !*dead) else { return };
        facts.flight.marks.fetch_add(1, Ordering::Relaxed);
        facts.flight.marks_sent.fetch_add(1, Ordering::Release);
        let before_it = |key: &ChannelKey| {
            key.run == to.run && key.edge == to.edge && (to.target == ALL || key.target == to.target)
        };
        for (key, queue) in pending.iter_mut().filter(|(key, _)| before_it(key)) {
            let most = credits.get(key).map_or(FLUSH_BYTES, |credit| credit.frame());
            while let Some(rows) = next_pieces(queue, most) {
                ready.push_back(Outgoing::Rows(*key, rows));
            }
        }
        turns.retain(|key| !before_it(key));
        ready.push_back(Outgoing::Mark { key: to, mark });
        state.flush = true;
        drop(state);
        self.wake.notify_one();
    }

    /// What waits may leave now: its senders have nothing more to do.
    pub(crate) fn flush(&self) {
        let mut state = lock(&self.state);
        if state.waiting_bytes > 0 && !state.flush {
            state.flush = true;
            drop(state);
            self.wake.notify_one();
        }
    }

    /// The peer is dead, or this agent ends.
    pub(crate) fn close(&self) {
        lock(&self.state).die();
        self.wake.notify_one();
        self.room.notify_waiters();
    }

    /// The first connection has been made; or why it could not be.
    pub(crate) fn met(&self) -> Result<bool, String> {
        let state = lock(&self.state);
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(state.met),
        }
    }

    /// Keeps the session up until it ends for good.
    pub(crate) async fn run(self: Arc<Self>) -> Ended {
        let ended = self.keep_up().await;
        let mut state = lock(&self.state);
        state.die();
        if let Ended::Gone(cause) | Ended::Broken(cause) = &ended {
            state.failure = Some(cause.clone());
        }
        drop(state);
        self.room.notify_waiters();
        ended
    }

    async fn keep_up(&self) -> Ended {
        loop {
            if lock(&self.state).dead {
                return Ended::Closed;
            }
            match self.connect().await {
                Ok(stream) => {
                    if let Err(error) = self.talk(stream).await {
                        let error = in_words(&error);
                        tracing::info!(peer = %self.peer.name, error, "data connection lost; dialling anew");
                    }
                }
                Err(Refusal::Gone(cause)) => return Ended::Gone(cause),
                Err(Refusal::Broken(cause)) => return Ended::Broken(cause),
                Err(Refusal::Later(cause)) => {
                    tracing::info!(peer = %self.peer.name, %cause, "no data connection yet");
                }
            }
            tokio::time::sleep(REDIAL).await;
        }
    }

    async fn connect(&self) -> Result<Stream, Refusal> {
        let stream = match dial(&self.address, Kind::Data, &self.security, DIAL).await {
            Ok(stream) => stream,
            Err(e @ NetError::Refused { .. }) => return Err(Refusal::Gone(e.to_string())),
            Err(e @ (NetError::Auth { .. } | NetError::Version { .. } | NetError::Insecure { .. })) => {
                return Err(Refusal::Broken(e.to_string()));
            }
            Err(e) => return Err(Refusal::Later(e.to_string())),
        };
        self.greet(stream).await
    }
}

impl State {
    /// Nothing is sent any more: what waits is let go, for a run may keep the session for its counters.
    fn die(&mut self) {
        self.dead = true;
        self.ready.clear();
        self.pending.clear();
        self.turns.clear();
        self.road.die();
        self.unacknowledged.clear();
        self.waiting_bytes = 0;
    }

    /// The next channel's rows, as one frame.
    fn next_turn(&mut self) -> Option<Outgoing> {
        let key = self.turns.pop_front()?;
        let most = self.credits.get(&key).map_or(FLUSH_BYTES, |credit| credit.frame());
        let queue = self.pending.get_mut(&key)?;
        let pieces = next_pieces(queue, most)?;
        if queue.is_empty() {
            self.pending.remove(&key);
        } else {
            self.turns.push_back(key);
        }
        Some(Outgoing::Rows(key, pieces))
    }
}

/// The pieces of a channel's next frame: at least one, then as many as fit.
fn next_pieces(queue: &mut VecDeque<Rows>, most: u64) -> Option<Vec<Rows>> {
    let mut pieces = vec![queue.pop_front()?];
    let mut bytes = pieces[0].bytes();
    while let Some(next) = queue.front()
        && bytes + next.bytes() <= most
    {
        bytes += next.bytes();
        pieces.extend(queue.pop_front());
    }
    Some(pieces)
}

/// Why there is no connection.
#[derive(Debug)]
pub(in crate::exchange) enum Refusal {
    Gone(String),
    Broken(String),
    Later(String),
}

/// Sessions that a run uses, each once.
pub(crate) fn distinct(sessions: impl IntoIterator<Item = Arc<Outbound>>) -> Vec<Arc<Outbound>> {
    let mut seen = HashSet::new();
    sessions.into_iter().filter(|s| seen.insert(Arc::as_ptr(s))).collect()
}
