//! The receiving half of a data session: frames from one other agent, in order, into inboxes; and
//! acknowledgements and credit back.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::Notify;
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_wire::frame::{ALL, CreditEntry, FLAG_MOVED, FrameKind, HEADER, Header};
use tuplane_wire::net::Stream;

use super::body::{self, Parts};
use super::inbox::{Inbox, Note};
use super::load::Notes;
use super::mark::{Item, Mark};
use super::outbound::ChannelKey;
use super::parcels::{Arrival, Expected, Parcels};
use super::session::{HEARTBEAT, SILENCE, Welcome, write_message};
use crate::engine::rows::Budget;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// Credit totals are sent again this often while anything is open.
const NOTES: Duration = Duration::from_millis(100);

/// The longest frame takes about 4 s over 100 Mbit/s.
const BODY: Duration = Duration::from_secs(10);

/// Where frames for an instance go: its id, its inbox, and the channel there that stands for the sending agent.
pub(crate) type DoorEnd = (u32, Arc<Inbox>, usize);

/// One edge as frames from one agent reach it.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) schema: SchemaRef,
    pub(crate) fingerprint: u64,
    pub(crate) attempt: u32,
    /// What the run's rows are charged to.
    pub(crate) budget: Arc<Budget>,
    pub(crate) targets: Vec<DoorEnd>,
}

/// The receiving half of the session with one peer. It outlives its connections.
pub(crate) struct Inbound {
    broken: Broken,
    budget: Arc<Budget>,
    doors: Mutex<HashMap<(u64, u32), Arc<Door>>>,
    parcels: Parcels,
    position: Mutex<Position>,
    /// Credit has changed, or an acknowledgement is due.
    notes: Arc<Notes>,
    /// The clock of the peer's last heartbeat, to be echoed; 0 for none.
    echo: AtomicU64,
    turn: Notify,
}

/// How far a session has come. One lock over all of it, so that of two connections only the newer
/// one delivers, and each frame is delivered once.
#[derive(Debug, Default)]
struct Position {
    /// The sender's session: a new one counts its frames from 1 again.
    session: u64,
    /// Grows with each connection.
    generation: u64,
    /// The last frame that was delivered.
    received: u64,
    /// The peer is dead: nothing of it is taken any more.
    closed: bool,
}

impl Position {
    fn is_current(&self, generation: u64) -> bool {
        !self.closed && self.generation == generation
    }
}

/// Says that a run cannot go on, and why.
pub(crate) type Broken = Box<dyn Fn(u64, String) + Send + Sync>;

impl Inbound {
    pub(crate) fn new(budget: Arc<Budget>, broken: Broken) -> Arc<Self> {
        Arc::new(Self {
            broken,
            budget,
            doors: Mutex::new(HashMap::new()),
            parcels: Parcels::default(),
            position: Mutex::default(),
            notes: Arc::default(),
            echo: AtomicU64::new(0),
            turn: Notify::new(),
        })
    }

    /// What inboxes notify when they have taken rows of this peer.
    pub(crate) fn notes(&self) -> Arc<Notes> {
        Arc::clone(&self.notes)
    }

    /// Frames of an edge of a run may come.
    /// Gives what was open before.
    pub(crate) fn open(&self, run: u64, edge: u32, door: Door) -> Option<Arc<Door>> {
        let before = lock(&self.doors).insert((run, edge), Arc::new(door));
        self.notes.due.notify_one();
        before
    }

    /// What was open before is so again.
    pub(crate) fn restore(&self, run: u64, edge: u32, before: Option<Arc<Door>>) {
        let mut doors = lock(&self.doors);
        match before {
            Some(before) => doors.insert((run, edge), before),
            None => doors.remove(&(run, edge)),
        };
    }

    /// Key partitions of an instance there are about to come to one here. `None`: they are expected already, or have
    /// come; whoever said so first has them.
    pub(crate) fn expect(&self, expected: Expected) -> Option<Arrival> {
        self.parcels.expect(expected)
    }

    /// The peer is dead: its connection ends, and no other is taken.
    pub(crate) fn close(&self) {
        let mut position = lock(&self.position);
        position.closed = true;
        position.generation += 1;
        drop(position);
        self.parcels.close();
        self.turn.notify_waiters();
    }

    /// Frames of a run that still come are dropped.
    pub(crate) fn forget(&self, run: u64) {
        self.parcels.forget(run);
        lock(&self.doors).retain(|(r, _), _| *r != run);
    }

    /// Serves one connection until it breaks, falls silent, or a newer one takes its place.
    pub(crate) async fn serve(&self, mut stream: Stream, session: u64) -> io::Result<()> {
        let (generation, received) = {
            let mut position = lock(&self.position);
            if position.closed {
                return Err(io::Error::other("the peer counts as dead"));
            }
            if position.session != session {
                (position.session, position.received) = (session, 0);
            }
            position.generation += 1;
            (position.generation, position.received)
        };
        self.turn.notify_waiters();
        write_message(&mut stream, &Welcome::Go { received }).await?;
        let (reader, writer) = split(stream);
        let replaced = async {
            loop {
                let turn = self.turn.notified();
                if !lock(&self.position).is_current(generation) {
                    return;
                }
                turn.await;
            }
        };
        tokio::select! {
            end = self.read_frames(reader, generation) => end,
            end = self.write_notes(writer) => end,
            () = replaced => Ok(()),
        }
    }

    async fn read_frames(&self, from: ReadHalf<Stream>, generation: u64) -> io::Result<()> {
        let mut from = tokio::io::BufReader::with_capacity(64 << 10, from);
        let mut bytes = [0; HEADER];
        loop {
            tokio::time::timeout(SILENCE, from.read_exact(&mut bytes))
                .await
                .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the peer has fallen silent"))??;
            let header = Header::decode(&bytes).map_err(io::Error::other)?;
            if header.kind == FrameKind::Note {
                self.echo.store(header.value.max(0) as u64, Ordering::Release);
                self.notes.due.notify_one();
                continue;
            }
            let mut parts = Parts::for_header(&header);
            let read = async {
                from.read_exact(&mut parts.ids).await?;
                from.read_exact(&mut parts.meta).await?;
                from.read_exact(parts.body.as_slice_mut()).await
            };
            tokio::time::timeout(BODY, read)
                .await
                .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "a frame stopped half-way"))??;
            let mut position = lock(&self.position);
            if !position.is_current(generation) {
                return Ok(());
            }
            let last = position.received;
            if header.sequence <= last {
                continue;
            }
            if header.sequence != last + 1 {
                return Err(io::Error::other(format!("frame {} came after {last}", header.sequence)));
            }
            // A frame that cannot be taken ends its run, not the session: sent again it would be the same.
            if let Err(error) = self.deliver(&header, parts) {
                (self.broken)(header.run, format!("what came from another agent cannot be read: {error}"));
            }
            position.received = header.sequence;
            drop(position);
            if header.sequence.is_multiple_of(16) {
                self.notes.due.notify_one();
            }
        }
    }

    fn deliver(&self, header: &Header, parts: Parts) -> io::Result<()> {
        if header.kind == FrameKind::State || header.flags & FLAG_MOVED != 0 {
            let of_run = lock(&self.doors)
                .iter()
                .find_map(|((run, _), door)| (*run == header.run).then(|| Arc::clone(&door.budget)));
            let (known, budget) = (of_run.is_some(), of_run.as_ref().unwrap_or(&self.budget));
            let taken = self.parcels.take(header, parts, budget, known);
            // A sender waits for room, which its frames have until they are acknowledged.
            self.notes.due.notify_one();
            return taken;
        }
        // A run that has ended here: its frames are acknowledged and dropped.
        let Some(door) = lock(&self.doors).get(&(header.run, header.edge)).cloned() else { return Ok(()) };
        if header.attempt != door.attempt {
            return Ok(());
        }
        let mark = match header.kind {
            FrameKind::Rows => {
                if header.schema != door.fingerprint {
                    return Err(io::Error::other(format!(
                        "rows of edge {} of run {} have another schema than the plan's",
                        header.edge, header.run
                    )));
                }
                let rows =
                    body::decode(header, parts, &door.schema, &door.budget).map_err(io::Error::other)?;
                let target = door.targets.iter().find(|(instance, _, _)| *instance == header.target);
                if let (Some(rows), Some((_, inbox, channel))) = (rows, target) {
                    inbox.push(*channel, Item::Rows(rows));
                }
                return Ok(());
            }
            FrameKind::Watermark => Mark::Watermark(header.value),
            FrameKind::Idle => Mark::Idle,
            FrameKind::Barrier => Mark::Barrier(header.value as u64),
            FrameKind::Moved => Mark::Moved { epoch: header.epoch, group: header.value as u32 },
            FrameKind::Hold => Mark::Hold,
            FrameKind::Resume => Mark::Resume,
            FrameKind::End => Mark::End,
            FrameKind::Credit | FrameKind::Note | FrameKind::State => {
                return Err(io::Error::other("credit came on the sending half"));
            }
        };
        // Senders wait for their last rows to be acknowledged.
        self.notes.due.notify_one();
        for (instance, inbox, channel) in &door.targets {
            if header.target == ALL || header.target == *instance {
                inbox.push(*channel, Item::Mark(mark));
            }
        }
        Ok(())
    }

    /// Writes acknowledgements with the credit that has changed; all of it each 100 ms.
    async fn write_notes(&self, mut to: WriteHalf<Stream>) -> io::Result<()> {
        let mut all = tokio::time::interval(NOTES);
        all.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut told: HashMap<ChannelKey, Note> = HashMap::new();
        let mut spoken = tokio::time::Instant::now();
        let mut written = Instant::now();
        let mut acknowledged = 0;
        loop {
            let again = tokio::select! {
                () = self.notes.due.notified() => false,
                () = self.notes.wait_for_change(written) => false,
                _ = all.tick() => true,
            };
            written = Instant::now();
            let mut body = Vec::new();
            let doors: HashMap<(u64, u32), Arc<Door>> =
                lock(&self.doors).iter().map(|(key, door)| (*key, Arc::clone(door))).collect();
            // Targets that a plan has ended are behind no door any more.
            told.retain(|key, _| {
                let door = doors.get(&(key.run, key.edge));
                door.is_some_and(|door| door.targets.iter().any(|(target, ..)| *target == key.target))
            });
            for ((run, edge), door) in doors {
                for (target, inbox, channel) in &door.targets {
                    let note = inbox.note(*channel);
                    let key = ChannelKey { run, edge, target: *target };
                    if told.insert(key, note) != Some(note) || again {
                        let Note { limit, window, received_rows: received, queued_rows: queued, capacity } =
                            note;
                        CreditEntry { run, edge, target: *target, limit, window, received, queued, capacity }
                            .encode(&mut body);
                    }
                }
            }
            let echo = self.echo.swap(0, Ordering::AcqRel);
            let received = lock(&self.position).received;
            // With nothing open, and nothing that came, a heartbeat is enough.
            if body.is_empty() && echo == 0 && received == acknowledged && spoken.elapsed() < HEARTBEAT {
                continue;
            }
            spoken = tokio::time::Instant::now();
            acknowledged = received;
            let header = Header {
                sequence: received,
                rows: (body.len() / tuplane_wire::frame::ENTRY) as u32,
                value: echo as i64,
                body_len: body.len() as u32,
                ..Header::new(FrameKind::Credit)
            };
            to.write_all(&header.encode()).await?;
            to.write_all(&body).await?;
            to.flush().await?;
        }
    }
}
