//! Parcels: a group of key partitions that moves to an instance of another agent, with its state and the rows that had
//! come for it, or a copy of a join's table, as frames of the session that is there.
//!
//! The session gives each frame once and in order, also over connections that break, so that a parcel arrives
//! whole or the peer is dead. No credit is asked for: one parcel of a job is on its way between two agents at a time.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use tokio::sync::mpsc;
use tuplane_core::route::groups::MOST_SENT;
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_expr::{Loader, MOST_PIECE, Pieces, Unit};
use tuplane_wire::frame::{
    FLAG_CONTINUES, FLAG_LAST, FLAG_MOVED, FLAG_PARTITIONS, FLAG_TIME, FrameKind, HEADER, Header,
};
use tuplane_wire::message::{FaultCode, WireFault};

use super::body::{self, Parts, fingerprint};
use super::moving::Partitions;
use super::outbound::Outbound;
use crate::engine::handover::Given;
use crate::engine::rows::{Budget, Rows, StateCharge};
use crate::sync::{Mutex, lock};

/// Most bytes of a frame, but for a row that is larger: frames of channels take turns with a parcel's.
const FRAME: usize = 256 << 10;

/// Most bytes of a parcel. What moves together is at most 16 MiB, or one key partition or table, which may be large: a plan is
/// refused if one is larger than half of this when it is prepared.
pub(crate) const MOST_PARCEL: u64 = 2 * MOST_SENT;

/// Where a parcel goes.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) run: u64,
    pub(crate) attempt: u32,
    /// The plan.
    pub(crate) epoch: u32,
    /// Its number in the plan: that of a group of key partitions, or a negative one of a table. They come in this order.
    pub(crate) number: i64,
    /// The instance that is to hold it.
    pub(crate) target: u32,
    /// The edge of each of the instance's inputs.
    pub(crate) edges: Vec<u32>,
}

impl Address {
    fn header(&self, kind: FrameKind, number: u32) -> Header {
        Header {
            run: self.run,
            attempt: self.attempt,
            edge: self.edges.first().copied().unwrap_or_default(),
            from: number,
            target: self.target,
            epoch: self.epoch,
            value: self.number,
            ..Header::new(kind)
        }
    }
}

/// Frames of a parcel on their way into a session.
struct Sender<'a> {
    session: &'a Outbound,
    to: Address,
    /// The number of the next frame.
    next: u32,
}

impl Sender<'_> {
    fn header(&mut self, kind: FrameKind) -> Header {
        let header = self.to.header(kind, self.next);
        self.next += 1;
        header
    }

    async fn carry(&self, frame: Vec<u8>) -> Result<(), WireFault> {
        self.session.carry(self.to.run, frame).await
    }

    async fn piece(&mut self, piece: &[u8]) -> Result<(), WireFault> {
        let mut parts = piece.chunks(FRAME).peekable();
        while let Some(part) = parts.next() {
            let mut header = self.header(FrameKind::State);
            header.flags = if parts.peek().is_some() { FLAG_CONTINUES } else { 0 };
            header.body_len = part.len() as u32;
            let mut frame = Vec::with_capacity(HEADER + part.len());
            frame.extend(header.encode());
            frame.extend(part);
            self.carry(frame).await?;
        }
        Ok(())
    }

    async fn unit(&mut self, mut pieces: Pieces) -> Result<(), WireFault> {
        loop {
            // Making bytes takes long, and other things wait on this thread.
            let made = tokio::task::spawn_blocking(move || {
                let piece = pieces.next();
                (pieces, piece)
            });
            let piece;
            (pieces, piece) = made.await.map_err(|e| internal(&e.to_string()))?;
            let Some(piece) = piece else { return Ok(()) };
            let of = Pieces::partition(&pieces);
            let piece = piece.map_err(|e| internal(&format!("key partition {of} cannot be sent: {e}")))?;
            self.piece(&piece).await?;
        }
    }

    async fn end(&mut self, watermark: Option<i64>) -> Result<(), WireFault> {
        let mut end = self.header(FrameKind::State);
        end.flags = FLAG_LAST;
        if let Some(watermark) = watermark {
            end.flags |= FLAG_TIME;
            end.charge = watermark.cast_unsigned();
        }
        self.carry(end.encode().to_vec()).await
    }

    async fn rows(&mut self, input: usize, rows: Rows) -> Result<(), WireFault> {
        let edge = self.to.edges.get(input).copied();
        let edge = edge.ok_or_else(|| internal("rows that move came by an input that the vertex has not"))?;
        let mut left = Some(rows);
        while let Some(mut rows) = left.take() {
            let fit = rows.rows_within(FRAME as u64);
            let head = if fit < rows.len() {
                let head = rows.cut(fit);
                left = Some(rows);
                head
            } else {
                rows
            };
            let mut header = self.header(FrameKind::Rows);
            (header.edge, header.flags) = (edge, FLAG_MOVED);
            header.schema = fingerprint(head.batch().schema_ref());
            let frame = body::encode(&head, header).map_err(|e| internal(&e.to_string()))?;
            self.carry(frame).await?;
        }
        Ok(())
    }
}

/// Hands what an instance has given to the session with the agent of its new owner; the session may have much of it
/// still to send then. Not to be given up half-way: what is not sent is lost.
///
/// # Errors
/// If the peer is dead, the run has ended here, or the state cannot be made into bytes; nothing is kept of it then.
pub(crate) async fn send(session: &Arc<Outbound>, to: Address, mut given: Given) -> Result<(), WireFault> {
    session.open_road(to.run);
    let (rows, watermark) = (std::mem::take(&mut given.rows), given.watermark);
    let mut sender = Sender { session, to, next: 0 };
    for pieces in given.into_pieces() {
        sender.unit(pieces).await?;
    }
    for (input, rows) in rows {
        sender.rows(input, rows).await?;
    }
    sender.end(watermark).await
}

/// The same, of a copy of a table.
///
/// # Errors
/// If the peer is dead, the run has ended here, or the table cannot be made into bytes.
pub(crate) async fn send_table(
    session: &Arc<Outbound>,
    to: Address,
    pieces: Pieces,
) -> Result<(), WireFault> {
    session.open_road(to.run);
    let mut sender = Sender { session, to, next: 0 };
    sender.unit(pieces).await?;
    sender.end(None).await
}

/// A parcel that is to come.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) run: u64,
    pub(crate) attempt: u32,
    /// The plan.
    pub(crate) epoch: u32,
    /// See [`Address::number`].
    pub(crate) number: i64,
    /// The instance that it is for.
    pub(crate) target: u32,
    /// The group's partitions, in its order; 0 of a table.
    pub(crate) partitions: Vec<u16>,
    /// Of each input of the instance: its edge, and the columns that come by it.
    pub(crate) inputs: Vec<(u32, SchemaRef)>,
}

/// What has come of key partitions that move here.
#[derive(Debug)]
pub(crate) struct Parcel {
    /// The state of each, in their order; nothing where none is kept.
    pub(crate) units: Vec<Unit>,
    /// Rows that had come to the former owner and were not worked on, by input, in their order.
    pub(crate) rows: Vec<(usize, Rows)>,
    /// The event time (nanoseconds since 1970, UTC) that the former owner had come to.
    pub(crate) watermark: Option<i64>,
}

/// Where a parcel arrives.
#[derive(Debug)]
pub(crate) struct Arrival {
    number: i64,
    partitions: Vec<u16>,
    came: mpsc::UnboundedReceiver<Came>,
}

#[derive(Debug)]
enum Came {
    /// A whole piece of state, and its charge.
    Piece(Vec<u8>, StateCharge),
    Rows(usize, Rows),
    Last(Option<i64>),
    Failed(String),
}

impl Arrival {
    /// All of it; state is made of bytes as they come. Without a loader none may.
    ///
    /// # Errors
    /// If it cannot be read, or does not come any more: the peer is dead, or the run has ended here.
    pub(crate) async fn parcel(mut self, mut loader: Option<Loader>) -> Result<Parcel, WireFault> {
        let what = name(self.number);
        let broken = |why: &str| internal(&format!("{what} cannot be taken: {why}"));
        let (mut units, mut rows) = (Vec::<Unit>::new(), Vec::new());
        let all = if loader.is_some() { self.partitions.len() } else { 0 };
        loop {
            match self.came.recv().await {
                Some(Came::Piece(piece, charge)) => {
                    let Some(mut takes) = loader.take() else {
                        return Err(broken("state came for an instance that keeps none"));
                    };
                    let loaded = tokio::task::spawn_blocking(move || {
                        let unit = takes.load(&piece);
                        drop(charge);
                        (takes, unit)
                    });
                    let (takes, unit) = loaded.await.map_err(|e| broken(&e.to_string()))?;
                    loader = Some(takes);
                    let Some(unit) = unit.map_err(|e| broken(&e.to_string()))? else { continue };
                    let wanted = self.partitions.get(units.len()).copied();
                    if wanted != Some(unit.partition()) {
                        let wanted = wanted.map_or("none".to_owned(), |wanted| wanted.to_string());
                        let found = unit.partition();
                        return Err(broken(&format!("partition {found} came where {wanted} was to come")));
                    }
                    units.push(unit);
                }
                Some(Came::Rows(input, came)) => rows.push((input, came)),
                Some(Came::Last(watermark)) if units.len() == all => {
                    return Ok(Parcel { units, rows, watermark });
                }
                Some(Came::Last(_)) => {
                    let came = units.len();
                    return Err(broken(&format!("it has ended with {came} of {all} partitions")));
                }
                Some(Came::Failed(why)) => return Err(broken(&why)),
                None => {
                    let message = format!("{what} does not come: its sender is gone");
                    return Err(WireFault::new(FaultCode::Agent, message));
                }
            }
        }
    }
}

/// What a parcel with this number is.
fn name(number: i64) -> String {
    if number < 0 { "a table".to_owned() } else { format!("group {number} of key partitions") }
}

/// Parcels that a peer may send, of each run.
#[derive(Debug, Default)]
pub(super) struct Parcels {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    runs: HashMap<u64, OfRun>,
    /// The peer is dead.
    closed: bool,
}

#[derive(Debug, Default)]
struct OfRun {
    /// In their order.
    coming: VecDeque<Coming>,
    /// The last one that has come, or can no longer come.
    last: Option<(u32, i64)>,
    /// One could not be taken: the run is about to end, and what comes still is dropped.
    failed: bool,
}

#[derive(Debug)]
struct Coming {
    order: (u32, i64),
    attempt: u32,
    target: u32,
    partitions: Partitions,
    inputs: Vec<(u32, SchemaRef)>,
    /// The number of the next frame.
    next: u32,
    /// What has come of a piece that goes on.
    piece: Vec<u8>,
    bytes: u64,
    to: mpsc::UnboundedSender<Came>,
}

impl Parcels {
    pub(super) fn expect(&self, expected: Expected) -> Option<Arrival> {
        let Expected { run, attempt, epoch, number, target, partitions, inputs } = expected;
        let (to, came) = mpsc::unbounded_channel();
        let mut state = lock(&self.state);
        let arrival = Arrival { number, partitions, came };
        if state.closed {
            return Some(arrival);
        }
        let (of, order) = (state.runs.entry(run).or_default(), (epoch, number));
        // What nobody waits for any more was of a plan that was given up before anything was sent.
        of.coming.retain(|coming| !coming.to.is_closed());
        let known = of.coming.back().map(|coming| coming.order).max(of.last);
        if known.is_some_and(|known| known >= order) {
            return None;
        }
        let partitions = arrival.partitions.iter().copied().collect();
        of.coming.push_back(Coming {
            order,
            attempt,
            target,
            partitions,
            inputs,
            next: 0,
            piece: Vec::new(),
            bytes: 0,
            to,
        });
        Some(arrival)
    }

    pub(super) fn forget(&self, run: u64) {
        lock(&self.state).runs.remove(&run);
    }

    /// The peer is dead: what has not come does not come.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.runs.clear();
    }

    /// Takes a frame of a parcel. `known`: something of its run is open to the peer.
    ///
    /// # Errors
    /// If it is none that is to come next: once for a run, since nothing more of it is taken.
    pub(super) fn take(
        &self,
        header: &Header,
        parts: Parts,
        budget: &Arc<Budget>,
        known: bool,
    ) -> io::Result<()> {
        let mut state = lock(&self.state);
        if !known && !state.runs.contains_key(&header.run) {
            // A run that has ended here.
            return Ok(());
        }
        let of = state.runs.entry(header.run).or_default();
        if of.failed {
            return Ok(());
        }
        let order = (header.epoch, header.value);
        let Some(coming) = of.coming.front_mut().filter(|coming| coming.order == order) else {
            of.failed = true;
            let (epoch, what) = (header.epoch, name(header.value));
            return Err(io::Error::other(format!("{what} of plan {epoch} was not to come")));
        };
        if header.attempt != coming.attempt {
            return Ok(());
        }
        match coming.take(header, parts, budget) {
            Ok(false) => {}
            Ok(true) => {
                of.last = Some(order);
                of.coming.pop_front();
            }
            Err(why) => {
                of.failed = true;
                // Whoever waits for it may have gone.
                let _ = coming.to.send(Came::Failed(why.clone()));
                of.coming.clear();
                return Err(io::Error::other(format!("{}: {why}", name(order.1))));
            }
        }
        Ok(())
    }
}

impl Coming {
    /// Takes the next frame; true if it was the last.
    fn take(&mut self, header: &Header, parts: Parts, budget: &Arc<Budget>) -> Result<bool, String> {
        if header.target != self.target {
            return Err(format!("it came for instance {}, and is for {}", header.target, self.target));
        }
        if header.from != self.next {
            return Err(format!("frame {} came where {} was to come", header.from, self.next));
        }
        self.next += 1;
        self.bytes += HEADER as u64 + header.parts();
        if self.bytes > MOST_PARCEL {
            return Err(format!("it has more than {} MiB", MOST_PARCEL >> 20));
        }
        let came = match header.kind {
            FrameKind::Rows => self.rows(header, parts, budget)?,
            FrameKind::State if header.flags & FLAG_LAST != 0 => {
                if !self.piece.is_empty() {
                    return Err("it has ended within a piece of state".to_owned());
                }
                let watermark = header.flags & FLAG_TIME != 0;
                Came::Last(watermark.then_some(header.charge.cast_signed()))
            }
            FrameKind::State => {
                self.piece.extend(parts.body.as_slice());
                if self.piece.len() > MOST_PIECE {
                    return Err(format!("a piece of state has more than {} MiB", MOST_PIECE >> 20));
                }
                if header.flags & FLAG_CONTINUES != 0 {
                    return Ok(false);
                }
                let piece = std::mem::take(&mut self.piece);
                let mut charge = StateCharge::new(Arc::clone(budget));
                charge.set(piece.len() as u64);
                Came::Piece(piece, charge)
            }
            other => return Err(format!("a frame of kind {other:?} came, which belongs to a channel")),
        };
        let last = matches!(came, Came::Last(_));
        // Whoever waits for it may have gone: its run is about to end.
        let _ = self.to.send(came);
        Ok(last)
    }

    fn rows(&self, header: &Header, parts: Parts, budget: &Arc<Budget>) -> Result<Came, String> {
        let input = self.inputs.iter().position(|(edge, _)| *edge == header.edge);
        let input = input.ok_or_else(|| format!("rows came by edge {}, which is no input", header.edge))?;
        let schema = &self.inputs[input].1;
        if header.schema != fingerprint(schema) {
            return Err(format!("rows of edge {} have another schema than the plan's", header.edge));
        }
        if header.flags & FLAG_PARTITIONS == 0 {
            return Err("rows came without key partitions".to_owned());
        }
        let rows = body::decode(header, parts, schema, budget).map_err(|e| e.to_string())?;
        let rows = rows.ok_or("a frame of rows has none")?;
        let foreign =
            rows.partitions().and_then(|ids| ids.values().iter().find(|id| !self.partitions.has(**id)));
        if let Some(partition) = foreign {
            return Err(format!("rows of partition {partition} came, which is not of the group"));
        }
        Ok(Came::Rows(input, rows))
    }
}

fn internal(message: &str) -> WireFault {
    WireFault::new(FaultCode::Internal, message)
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests;
