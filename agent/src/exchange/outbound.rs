//! The sending half of a data session: frames to one other agent, numbered, kept until they are
//! acknowledged, and sent again after a broken connection.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::Notify;
use tuplane_expr::arrow::error::ArrowError;
use tuplane_wire::frame::{ALL, CreditEntry, DATA_VERSION, ENTRY, FrameKind, HEADER, Header};
use tuplane_wire::message::AgentId;
use tuplane_wire::net::{Kind, NetError, Security, Stream, dial, in_words};

use super::body;
use super::credit::Credit;
use super::inbound::Broken;
use super::load::Told;
use super::mark::Mark;
use super::session::{Greeting, HEARTBEAT, SILENCE, Welcome, read_message, write_message};
use crate::engine::rows::Rows;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
use road::Road;

mod road;

/// Rows leave at once when so many bytes wait ...
const FLUSH_BYTES: u64 = 64 << 10;
/// ... or after this time.
const FLUSH_AFTER: Duration = Duration::from_millis(1);
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

    /// Says who calls on a new connection, and learns where the session stands.
    pub(super) async fn greet(&self, mut stream: Stream) -> Result<Stream, Refusal> {
        let greeting = Greeting {
            version: DATA_VERSION,
            from: self.me.clone(),
            session: self.number,
            to: self.peer.clone(),
        };
        let later = |e: io::Error| Refusal::Later(e.to_string());
        write_message(&mut stream, &greeting).await.map_err(later)?;
        match read_message(&mut stream).await.map_err(later)? {
            Welcome::Go { received } => {
                self.acknowledge(received);
                lock(&self.state).met = true;
                Ok(stream)
            }
            Welcome::NotMe(now) => Err(Refusal::Gone(format!(
                "{} at {} was restarted (incarnation {} instead of {})",
                now.name, self.address, now.incarnation, self.peer.incarnation
            ))),
            Welcome::Version(theirs) => {
                Err(Refusal::Broken(format!("{} speaks data format {theirs}", self.peer.name)))
            }
        }
    }

    /// Uses a connection. Either half's end ends it; the session goes on with the next.
    pub(super) async fn talk(&self, stream: Stream) -> io::Result<()> {
        let (reader, writer) = split(stream);
        self.up.store(true, Ordering::Relaxed);
        let why = tokio::select! {
            why = self.read_notes(reader) => why,
            why = self.write_frames(writer) => why,
        };
        self.up.store(false, Ordering::Relaxed);
        why
    }

    /// Sends what is unacknowledged again, then everything new as it comes.
    async fn write_frames(&self, mut to: WriteHalf<Stream>) -> io::Result<()> {
        let again: Vec<Bytes> = {
            let state = lock(&self.state);
            state.unacknowledged.iter().map(|sent| sent.bytes.clone()).collect()
        };
        for frame in again {
            to.write_all(&frame).await?;
        }
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            match self.next_frame() {
                Next::Frame(frame) => to.write_all(&frame).await?,
                Next::Dead => return Ok(()),
                Next::Soon => {
                    to.flush().await?;
                    tokio::select! {
                        () = self.wake.notified() => {}
                        () = tokio::time::sleep(FLUSH_AFTER) => lock(&self.state).flush = true,
                    }
                }
                Next::Nothing => {
                    to.flush().await?;
                    tokio::select! {
                        () = self.wake.notified() => {}
                        _ = heartbeat.tick() => {
                            let value = self.started.elapsed().as_nanos() as i64;
                            to.write_all(&Header { value, ..Header::new(FrameKind::Note) }.encode()).await?;
                        }
                    }
                }
            }
        }
    }

    /// Takes the next frame's worth, and encodes it outside the lock.
    fn next_frame(&self) -> Next {
        let (header, rows, flight) = {
            let mut state = lock(&self.state);
            if state.dead {
                return Next::Dead;
            }
            if let Some((frame, flight)) = state.next_parcel_frame() {
                drop(state);
                return self.numbered(frame, 0, 1, flight);
            }
            let item = match state.ready.pop_front() {
                Some(item) => item,
                None if state.turns.is_empty() => {
                    state.flush = false;
                    state.waiting_bytes = 0;
                    return Next::Nothing;
                }
                None if state.waiting_bytes < FLUSH_BYTES && !state.flush => return Next::Soon,
                None => match state.next_turn() {
                    Some(item) => item,
                    None => return Next::Nothing,
                },
            };
            let (run, edge) = match &item {
                Outgoing::Rows(key, _) | Outgoing::Mark { key, .. } => (key.run, key.edge),
            };
            let Some(facts) = state.edges.get(&(run, edge)).cloned() else { return Next::Soon };
            let mut header = Header::new(FrameKind::Rows);
            (header.run, header.edge) = (run, edge);
            (header.attempt, header.schema) = (facts.attempt, facts.schema);
            let rows = match item {
                Outgoing::Rows(key, pieces) => {
                    let bytes: u64 = pieces.iter().map(Rows::bytes).sum();
                    state.waiting_bytes = state.waiting_bytes.saturating_sub(bytes);
                    header.target = key.target;
                    Some(pieces)
                }
                Outgoing::Mark { mark, key } => {
                    header.target = key.target;
                    (header.kind, header.value) = match mark {
                        Mark::Watermark(time) => (FrameKind::Watermark, time),
                        Mark::Idle => (FrameKind::Idle, 0),
                        Mark::Barrier(number) => (FrameKind::Barrier, number as i64),
                        Mark::Moved { epoch, group } => {
                            header.epoch = epoch;
                            (FrameKind::Moved, i64::from(group))
                        }
                        Mark::Hold => (FrameKind::Hold, 0),
                        Mark::Resume => (FrameKind::Resume, 0),
                        Mark::End => (FrameKind::End, 0),
                    };
                    None
                }
            };
            (header, rows, facts.flight)
        };
        let count = rows.iter().flatten().map(|rows| rows.len() as u64).sum();
        let marks = u64::from(rows.is_none());
        let bytes = match &rows {
            Some(pieces) => match join_and_encode(pieces, header) {
                Ok(bytes) => bytes,
                Err(error) => {
                    // The rows are gone from the queues: their run cannot go on without them.
                    flight.rows.fetch_sub(count, Ordering::Relaxed);
                    (self.broken)(header.run, format!("rows cannot be sent to {}: {error}", self.peer.name));
                    return Next::Soon;
                }
            },
            None => header.encode().to_vec(),
        };
        self.numbered(bytes, count, marks, flight)
    }

    /// Gives a frame its number, and keeps it until it is acknowledged.
    fn numbered(&self, bytes: Vec<u8>, rows: u64, marks: u64, flight: Arc<Flight>) -> Next {
        flight.wire_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let mut state = lock(&self.state);
        let sequence = state.next;
        state.next += 1;
        let bytes = body::number(bytes, sequence);
        state.unacknowledged.push_back(Sent { sequence, bytes: bytes.clone(), rows, marks, flight });
        Next::Frame(bytes)
    }

    /// Reads acknowledgements and credit until the connection breaks or falls silent.
    async fn read_notes(&self, mut from: ReadHalf<Stream>) -> io::Result<()> {
        let mut header = [0; HEADER];
        let mut entries = Vec::new();
        loop {
            tokio::time::timeout(SILENCE, from.read_exact(&mut header))
                .await
                .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the peer has fallen silent"))??;
            let header = Header::decode(&header).map_err(io::Error::other)?;
            if header.kind != FrameKind::Credit || header.body_len as usize != header.rows as usize * ENTRY {
                return Err(io::Error::other("the return half carries something other than credit"));
            }
            entries.resize(header.body_len as usize, 0);
            tokio::time::timeout(SILENCE, from.read_exact(&mut entries))
                .await
                .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "a note stopped half-way"))??;
            self.acknowledge(header.sequence);
            if header.value > 0 {
                self.measure(header.value as u64);
            }
            let grants: Vec<(Arc<Credit>, CreditEntry)> = {
                let state = lock(&self.state);
                entries
                    .as_chunks::<ENTRY>()
                    .0
                    .iter()
                    .map(CreditEntry::decode)
                    .filter_map(|entry| {
                        let key = ChannelKey { run: entry.run, edge: entry.edge, target: entry.target };
                        Some((Arc::clone(state.credits.get(&key)?), entry))
                    })
                    .collect()
            };
            let at = Instant::now();
            for (credit, entry) in grants {
                let CreditEntry { received, queued, capacity, .. } = entry;
                // First, so that whoever is woken by the credit sees it.
                credit.tell(Told { at, received, queued, capacity });
                credit.grant(entry.limit, entry.window);
            }
        }
    }

    fn acknowledge(&self, sequence: u64) {
        let mut state = lock(&self.state);
        while state.unacknowledged.front().is_some_and(|sent| sent.sequence <= sequence) {
            if let Some(Sent { rows, marks, flight, .. }) = state.unacknowledged.pop_front() {
                flight.rows.fetch_sub(rows, Ordering::Relaxed);
                flight.marks.fetch_sub(marks, Ordering::Relaxed);
            }
        }
        drop(state);
        self.room.notify_waiters();
    }

    fn measure(&self, sent_at: u64) {
        let now = self.started.elapsed().as_nanos() as u64;
        let us = (now.saturating_sub(sent_at) / 1000).max(1);
        let before = self.round_trip.load(Ordering::Relaxed);
        let smoothed = if before == 0 { us } else { (before * 7 + us) / 8 };
        self.round_trip.store(smoothed.max(1), Ordering::Relaxed);
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

fn join_and_encode(pieces: &[Rows], header: Header) -> Result<Vec<u8>, ArrowError> {
    let rows = Rows::join(pieces)?;
    let rows = rows.ok_or_else(|| ArrowError::IpcError("a frame of rows without any".into()))?;
    body::encode(&rows, header)
}

enum Next {
    Frame(Bytes),
    /// A little waits: more may come within a millisecond.
    Soon,
    Nothing,
    Dead,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum Refusal {
    Gone(String),
    Broken(String),
    Later(String),
}

/// Sessions that a run uses, each once.
pub(crate) fn distinct(sessions: impl IntoIterator<Item = Arc<Outbound>>) -> Vec<Arc<Outbound>> {
    let mut seen = HashSet::new();
    sessions.into_iter().filter(|s| seen.insert(Arc::as_ptr(s))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::rows::Budget;
    use tuplane_expr::arrow::array::{Int64Array, RecordBatch, StringArray};
    use tuplane_expr::arrow::datatypes::{DataType, Field, Schema};

    fn agent(name: &str) -> AgentId {
        AgentId { name: name.to_owned(), incarnation: 1 }
    }

    #[test]
    fn slices_of_four_rows_cross_in_few_frames() {
        let budget = Budget::new(1 << 30);
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("text", DataType::Utf8, false),
        ]);
        let text: StringArray = (0..8192).map(|_| Some("x".repeat(28))).collect();
        let batch = RecordBatch::try_new(
            Arc::new(schema),
            vec![Arc::new(Int64Array::from_iter_values(0..8192)), Arc::new(text)],
        );
        let mut rows = Rows::new(batch.unwrap(), None, &budget).unwrap();
        let payload = rows.bytes();
        assert_eq!(payload, 8192 * 40);
        let session = Outbound::new(
            agent("a"),
            agent("b"),
            "127.0.0.1:1".to_owned(),
            Security::Insecure,
            Box::new(|_, _| {}),
        );
        let flight = session.add_edge(1, 1, 0, 7);
        let keys = [0, 1].map(|target| ChannelKey { run: 1, edge: 0, target });
        for key in keys {
            session.add_channel(key, Credit::new(Arc::new(Notify::new())));
        }
        let mut turn = 0;
        while rows.len() > 4 {
            session.send(keys[turn % 2], rows.cut(4));
            turn += 1;
        }
        session.send(keys[turn % 2], rows);
        assert_eq!(flight.rows.load(Ordering::Relaxed), 8192);
        session.flush();
        let (mut wire, mut frames) = (0, 0);
        while let Next::Frame(frame) = session.next_frame() {
            wire += frame.len() as u64;
            frames += 1;
        }
        assert!(wire < 3 * payload, "{wire} bytes on the wire for {payload}");
        assert!(frames < 100, "{frames} frames");
        session.acknowledge(frames);
        assert_eq!(flight.rows.load(Ordering::Relaxed), 0);
        assert_eq!(flight.wire_bytes.load(Ordering::Relaxed), wire);
    }
}
