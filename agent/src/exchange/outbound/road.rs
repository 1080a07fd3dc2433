//! Frames on a session that belong to no channel: parcels of key partitions that move to the peer.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tuplane_wire::message::{FaultCode, WireFault};

use super::{Flight, Outbound, State};
use crate::sync::{Ordering, lock};

/// So many frames of a run may be on their way: those that wait and those that are not acknowledged. With frames
/// of 256 KiB this bounds to 2 MiB what a session keeps of a large partition, and what stands before the rows of other
/// partitions in the connection's buffers: 17 ms of 1 Gbit/s.
const MOST_FRAMES: u64 = 8;

/// What waits on a session beside its channels.
#[derive(Debug, Default)]
pub(super) struct Road {
    /// Runs that may send parcels, and what they have on their way: its marks are frames.
    runs: HashMap<u64, Arc<Flight>>,
    waiting: VecDeque<(u64, Vec<u8>)>,
    /// The last frame that left was one of these.
    had_turn: bool,
}

impl Road {
    pub(super) fn is_used(&self) -> bool {
        !self.runs.is_empty()
    }

    pub(super) fn forget(&mut self, run: u64) {
        self.runs.remove(&run);
        self.waiting.retain(|(r, _)| *r != run);
    }

    pub(super) fn die(&mut self) {
        self.waiting.clear();
    }

    /// The next frame, in turn with those of channels: of the latter something is ready, or nothing.
    fn next(&mut self, others: bool) -> Option<(Vec<u8>, Arc<Flight>)> {
        if std::mem::take(&mut self.had_turn) && others {
            return None;
        }
        let (run, frame) = self.waiting.pop_front()?;
        self.had_turn = true;
        let flight = self.runs.get(&run).cloned().unwrap_or_default();
        Some((frame, flight))
    }
}

impl State {
    /// The next frame of a parcel, if it is its turn.
    pub(super) fn next_parcel_frame(&mut self) -> Option<(Vec<u8>, Arc<Flight>)> {
        let others = !self.ready.is_empty() || !self.turns.is_empty();
        let next = self.road.next(others);
        // Few rows wait for more only where nothing else goes: a parcel may take long.
        self.flush |= next.is_none() && !self.road.waiting.is_empty();
        next
    }
}

impl Outbound {
    /// A run may send parcels here: the session stays as long as the run does. False if it has ended.
    pub(crate) fn open_road(&self, run: u64) -> bool {
        let mut state = lock(&self.state);
        if !state.dead {
            state.road.runs.entry(run).or_default();
        }
        !state.dead
    }

    /// A run will send no parcels here after all.
    pub(crate) fn close_road(&self, run: u64) {
        lock(&self.state).road.forget(run);
    }

    /// Sends a frame that belongs to no channel, behind those before it; waits while many are on their way.
    ///
    /// # Errors
    /// If the peer is dead, or the run has ended here.
    pub(crate) async fn carry(&self, run: u64, frame: Vec<u8>) -> Result<(), WireFault> {
        loop {
            let room = self.room.notified();
            {
                let mut state = lock(&self.state);
                if state.dead {
                    let message =
                        format!("key partitions cannot move to agent {}: it is gone", self.peer.name);
                    return Err(WireFault::new(FaultCode::Agent, message));
                }
                let Some(flight) = state.road.runs.get(&run) else {
                    let message = format!("run {run} has ended on this agent: no key partitions of it move");
                    return Err(WireFault::new(FaultCode::NotFound, message));
                };
                if flight.marks.load(Ordering::Relaxed) < MOST_FRAMES {
                    flight.marks.fetch_add(1, Ordering::Relaxed);
                    state.road.waiting.push_back((run, frame));
                    break;
                }
            }
            room.await;
        }
        self.wake.notify_one();
        Ok(())
    }
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::sync::Notify;
    use tuplane_expr::arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use tuplane_wire::frame::{FrameKind, HEADER, Header};
    use tuplane_wire::net::Security;

    use super::super::{ChannelKey, Next};
    use super::*;
    use crate::engine::rows::{Budget, Rows};
    use crate::exchange::credit::Credit;
    use crate::exchange::mark::Mark;
    use crate::exchange::torn::agent;

    const RUN: u64 = 1;

    fn session() -> Arc<Outbound> {
        Outbound::new(
            agent("a"),
            agent("b"),
            "127.0.0.1:1".to_owned(),
            Security::Insecure,
            Box::new(|_, _| {}),
        )
    }

    fn parcel_frame() -> Vec<u8> {
        Header { run: RUN, ..Header::new(FrameKind::State) }.encode().to_vec()
    }

    fn kinds(session: &Outbound) -> Vec<(FrameKind, u64)> {
        let mut kinds = Vec::new();
        while let Next::Frame(frame) = session.next_frame() {
            let header = Header::decode(frame[..HEADER].try_into().unwrap()).unwrap();
            kinds.push((header.kind, header.sequence));
        }
        kinds
    }

    #[test]
    fn frames_of_channels_and_of_a_parcel_take_turns() {
        let session = session();
        session.add_edge(RUN, 1, 0, 7);
        let key = ChannelKey { run: RUN, edge: 0, target: 3 };
        session.add_channel(key, Credit::new(Arc::new(Notify::new())));
        assert!(session.open_road(RUN));
        for _ in 0..4 {
            session.carry(RUN, parcel_frame()).now_or_never().unwrap().unwrap();
        }
        session.send_mark_to(key, Mark::Watermark(1));
        session.send_mark_to(key, Mark::Watermark(2));
        let (state, mark) = (FrameKind::State, FrameKind::Watermark);
        let wanted = [state, mark, state, mark, state, state];
        assert_eq!(kinds(&session), wanted.into_iter().zip(1..).collect::<Vec<_>>());
    }

    #[test]
    fn few_rows_do_not_wait_for_the_end_of_a_parcel() {
        let session = session();
        session.add_edge(RUN, 1, 0, 7);
        let key = ChannelKey { run: RUN, edge: 0, target: 3 };
        session.add_channel(key, Credit::new(Arc::new(Notify::new())));
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        session.send(key, Rows::new(batch, None, &Budget::new(1 << 20)).unwrap());
        assert!(kinds(&session).is_empty(), "more may come");
        session.open_road(RUN);
        for _ in 0..3 {
            session.carry(RUN, parcel_frame()).now_or_never().unwrap().unwrap();
        }
        let (state, rows) = (FrameKind::State, FrameKind::Rows);
        let sent: Vec<FrameKind> = kinds(&session).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(sent, [state, rows, state, state]);
    }

    #[test]
    fn a_parcel_waits_for_room_and_the_session_keeps_so_much_of_it() {
        let session = session();
        assert!(session.carry(RUN, parcel_frame()).now_or_never().unwrap().is_err(), "no road");
        assert!(session.open_road(RUN) && session.is_used());
        for _ in 0..MOST_FRAMES {
            session.carry(RUN, parcel_frame()).now_or_never().unwrap().unwrap();
        }
        let mut more = Box::pin(session.carry(RUN, parcel_frame()));
        assert!(more.as_mut().now_or_never().is_none());
        assert_eq!(kinds(&session).len() as u64, MOST_FRAMES);
        assert!(more.as_mut().now_or_never().is_none(), "they are not acknowledged");
        session.acknowledge(1);
        more.now_or_never().unwrap().unwrap();
        assert_eq!(kinds(&session), [(FrameKind::State, MOST_FRAMES + 1)]);
        let mut more = Box::pin(session.carry(RUN, parcel_frame()));
        assert!(more.as_mut().now_or_never().is_none());
        session.forget(RUN);
        let fault = more.now_or_never().unwrap().unwrap_err();
        assert_eq!(fault.code, FaultCode::NotFound);
        session.close();
        assert!(!session.open_road(RUN));
        let fault = session.carry(RUN, parcel_frame()).now_or_never().unwrap().unwrap_err();
        assert_eq!(fault.code, FaultCode::Agent);
    }
}
