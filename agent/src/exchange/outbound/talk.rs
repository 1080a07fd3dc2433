//! What is said on a connection to the peer: the greeting, frames in their order, and what comes back of them.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tuplane_expr::arrow::error::ArrowError;
use tuplane_wire::frame::{CreditEntry, DATA_VERSION, ENTRY, FrameKind, HEADER, Header};
use tuplane_wire::net::Stream;

use super::{ChannelKey, FLUSH_BYTES, Flight, Outbound, Outgoing, Refusal, Sent};
use crate::engine::rows::Rows;
use crate::exchange::body;
use crate::exchange::credit::Credit;
use crate::exchange::load::Told;
use crate::exchange::mark::Mark;
use crate::exchange::session::{Greeting, HEARTBEAT, SILENCE, Welcome, read_message, write_message};
use crate::sync::{Ordering, lock};

/// Rows that wait leave after this time, be they ever so few.
const FLUSH_AFTER: Duration = Duration::from_millis(1);

impl Outbound {
    /// Says who calls on a new connection, and learns where the session stands.
    pub(in crate::exchange) async fn greet(&self, mut stream: Stream) -> Result<Stream, Refusal> {
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
    pub(in crate::exchange) async fn talk(&self, stream: Stream) -> io::Result<()> {
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
    pub(super) fn next_frame(&self) -> Next {
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

    pub(super) fn acknowledge(&self, sequence: u64) {
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

fn join_and_encode(pieces: &[Rows], header: Header) -> Result<Vec<u8>, ArrowError> {
    let rows = Rows::join(pieces)?;
    let rows = rows.ok_or_else(|| ArrowError::IpcError("a frame of rows without any".into()))?;
    body::encode(&rows, header)
}

pub(super) enum Next {
    Frame(Bytes),
    /// A little waits: more may come within a millisecond.
    Soon,
    Nothing,
    Dead,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::rows::Budget;
    use tokio::sync::Notify;
    use tuplane_expr::arrow::array::{Int64Array, RecordBatch, StringArray};
    use tuplane_expr::arrow::datatypes::{DataType, Field, Schema};
    use tuplane_wire::message::AgentId;
    use tuplane_wire::net::Security;

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
