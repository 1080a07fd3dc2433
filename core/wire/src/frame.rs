//! Frames of the data exchange: a fixed header, then the parts that it announces.
//!
//! Behind the header of a `Rows` frame come the partition ids (u16 each, if the flag says so), the
//! batch's Arrow IPC metadata, and its buffers. Schemas are the plan's and are never sent; the
//! fingerprint says that both sides mean the same.
//!
//! Key partitions that move between agents go as a *parcel*: `State` frames with their state, then `Rows` frames
//! (with [`FLAG_MOVED`]) with the rows that had come for them, then a `State` frame with [`FLAG_LAST`]. In all of
//! them `epoch` and `value` are the plan and the group, `target` is the instance that is to hold the partitions, and
//! `from` is the number of the frame in its parcel, from 0. They belong to no channel: neither credit nor a
//! ledger counts them.

use std::fmt;

/// First bytes of every frame.
const MAGIC: u32 = u32::from_le_bytes(*b"tupl");
/// Version of the data format; both sides must have the same.
pub const DATA_VERSION: u16 = 4;
/// Bytes of a header.
pub const HEADER: usize = 96;
/// A frame's parts are never longer than this together: one row of 16 MiB and its overhead.
pub const MOST_BODY: u64 = 40 << 20;
/// As a target: all instances of the target vertex on the receiving agent.
pub const ALL: u32 = u32::MAX;
/// Partition ids follow the header.
pub const FLAG_PARTITIONS: u8 = 1;
/// Rows of a parcel; `edge` is the one by which they had come.
pub const FLAG_MOVED: u8 = 2;
/// A part of a piece of state, which goes on in the next frame.
pub const FLAG_CONTINUES: u8 = 4;
/// The end of a parcel.
pub const FLAG_LAST: u8 = 8;
/// In the end of a parcel: `charge` is the event time (its bits as i64, ns since 1970) that the instance had come to
/// which held the partitions.
pub const FLAG_TIME: u8 = 16;

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Rows.
    Rows = 1,
    /// A watermark; `value` is ns since 1970.
    Watermark = 2,
    /// A barrier; `value` is its number.
    Barrier = 3,
    /// A group of partitions has moved; `value` is the group.
    Moved = 4,
    /// Nothing more follows on the channel.
    End = 5,
    /// Acknowledgement (`sequence`) and credit: 56-byte entries follow. Also the heartbeat.
    Credit = 6,
    /// Heartbeat of the sending half; `value` is its clock, which the next credit frame echoes.
    Note = 7,
    /// The channel is idle: it holds no watermark back until its next one.
    Idle = 8,
    /// State of key partitions that move: a piece of it, or a part of a piece; or the end of a parcel.
    State = 9,
    /// From its arrival on the channel stands where its target stands.
    Hold = 10,
    /// The channel stands again where its last watermark says.
    Resume = 11,
}

/// The fixed part of a frame. All numbers are little-endian on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What it carries.
    pub kind: FrameKind,
    /// [`FLAG_PARTITIONS`] and the others.
    pub flags: u8,
    /// The run.
    pub run: u64,
    /// Its attempt; frames of an older one are refused.
    pub attempt: u32,
    /// The edge's index in the plan.
    pub edge: u32,
    /// The sending instance, or [`ALL`] where a frame joins rows of several; of a parcel's frames its number.
    pub from: u32,
    /// The target instance, or [`ALL`].
    pub target: u32,
    /// Epoch of the sender's partition map.
    pub epoch: u32,
    /// Number of the frame in its session, from 1; in `Credit` the last number received.
    pub sequence: u64,
    /// Rows in the body; entries in `Credit`.
    pub rows: u32,
    /// Fingerprint of the schema.
    pub schema: u64,
    /// Bytes that the frame's rows count against credit.
    pub charge: u64,
    /// The value of a mark or note.
    pub value: i64,
    /// Bytes of partition ids.
    pub ids_len: u32,
    /// Bytes of IPC metadata.
    pub meta_len: u32,
    /// Bytes of buffers or entries.
    pub body_len: u32,
}

impl Header {
    /// A header of this kind with everything else zero.
    pub fn new(kind: FrameKind) -> Self {
        Self {
            kind,
            flags: 0,
            run: 0,
            attempt: 0,
            edge: 0,
            from: ALL,
            target: ALL,
            epoch: 0,
            sequence: 0,
            rows: 0,
            schema: 0,
            charge: 0,
            value: 0,
            ids_len: 0,
            meta_len: 0,
            body_len: 0,
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&MAGIC.to_le_bytes());
        put(&DATA_VERSION.to_le_bytes());
        put(&[self.kind as u8, self.flags]);
        put(&self.run.to_le_bytes());
        for number in [self.attempt, self.edge, self.from, self.target, self.epoch, self.rows] {
            put(&number.to_le_bytes());
        }
        for number in [self.sequence, self.schema, self.charge] {
            put(&number.to_le_bytes());
        }
        put(&self.value.to_le_bytes());
        for number in [self.ids_len, self.meta_len, self.body_len] {
            put(&number.to_le_bytes());
        }
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// If the bytes are no frame of this version, or announce more than [`MOST_BODY`].
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Self, FrameError> {
        let mut at = 0;
        let magic = u32::from_le_bytes(next(bytes, &mut at));
        if magic != MAGIC {
            return Err(FrameError::Magic(magic));
        }
        let version = u16::from_le_bytes(next(bytes, &mut at));
        if version != DATA_VERSION {
            return Err(FrameError::Version(version));
        }
        let [kind, flags] = next(bytes, &mut at);
        let kind = match kind {
            1 => FrameKind::Rows,
            2 => FrameKind::Watermark,
            3 => FrameKind::Barrier,
            4 => FrameKind::Moved,
            5 => FrameKind::End,
            6 => FrameKind::Credit,
            7 => FrameKind::Note,
            8 => FrameKind::Idle,
            9 => FrameKind::State,
            10 => FrameKind::Hold,
            11 => FrameKind::Resume,
            other => return Err(FrameError::Kind(other)),
        };
        let run = u64::from_le_bytes(next(bytes, &mut at));
        let [attempt, edge, from, target, epoch, rows] =
            std::array::from_fn(|_| u32::from_le_bytes(next(bytes, &mut at)));
        let [sequence, schema, charge] = std::array::from_fn(|_| u64::from_le_bytes(next(bytes, &mut at)));
        let value = i64::from_le_bytes(next(bytes, &mut at));
        let [ids_len, meta_len, body_len] = std::array::from_fn(|_| u32::from_le_bytes(next(bytes, &mut at)));
        let header = Self {
            kind,
            flags,
            run,
            attempt,
            edge,
            from,
            target,
            epoch,
            sequence,
            rows,
            schema,
            charge,
            value,
            ids_len,
            meta_len,
            body_len,
        };
        if header.parts() > MOST_BODY {
            return Err(FrameError::TooLong(header.parts()));
        }
        Ok(header)
    }

    /// Bytes that follow the header.
    pub fn parts(&self) -> u64 {
        u64::from(self.ids_len) + u64::from(self.meta_len) + u64::from(self.body_len)
    }
}

fn next<const N: usize>(bytes: &[u8; HEADER], at: &mut usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[*at..*at + N]);
    *at += N;
    part
}

/// Bytes of one entry of a `Credit` frame.
pub const ENTRY: usize = 56;

/// What a receiver says of one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreditEntry {
    /// The run.
    pub run: u64,
    /// The edge.
    pub edge: u32,
    /// The target instance.
    pub target: u32,
    /// Bytes that may have been sent in all.
    pub limit: u64,
    /// The window: half of it bounds a frame.
    pub window: u64,
    /// Rows received so far.
    pub received: u64,
    /// Rows that wait at the target or are being worked on there, over all its inputs whose turn has come.
    pub queued: u64,
    /// Thousandths of a row that the target does in a second as things are; 0 while that is unknown, or it
    /// waits for room itself.
    pub capacity: u64,
}

impl CreditEntry {
    /// Appends its bytes.
    pub fn encode(&self, to: &mut Vec<u8>) {
        to.extend(self.run.to_le_bytes());
        to.extend(self.edge.to_le_bytes());
        to.extend(self.target.to_le_bytes());
        for number in [self.limit, self.window, self.received, self.queued, self.capacity] {
            to.extend(number.to_le_bytes());
        }
    }

    /// Reads one.
    pub fn decode(bytes: &[u8; ENTRY]) -> Self {
        let word = |at: usize| {
            let mut part = [0; 8];
            part.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(part)
        };
        let pair = word(8);
        Self {
            run: word(0),
            edge: pair as u32,
            target: (pair >> 32) as u32,
            limit: word(16),
            window: word(24),
            received: word(32),
            queued: word(40),
            capacity: word(48),
        }
    }
}

/// Bytes that are no frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameError {
    /// The first bytes are something else.
    Magic(u32),
    /// Another version of the data format.
    Version(u16),
    /// No such kind.
    Kind(u8),
    /// It announces so many bytes.
    TooLong(u64),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic(found) => write!(f, "not a data frame (it begins with {found:#010x})"),
            Self::Version(found) => {
                write!(
                    f,
                    "data format {found}, but this agent speaks {DATA_VERSION}: all agents need the same build"
                )
            }
            Self::Kind(found) => write!(f, "no data frame has kind {found}"),
            Self::TooLong(found) => write!(f, "a data frame announces {found} bytes, more than {MOST_BODY}"),
        }
    }
}

impl std::error::Error for FrameError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Header {
        Header {
            flags: FLAG_PARTITIONS,
            run: 0x0102_0304_0506_0708,
            attempt: 3,
            edge: 4,
            from: 5,
            target: ALL,
            epoch: 7,
            sequence: 8,
            rows: 9,
            schema: 10,
            charge: 11,
            value: -12,
            ids_len: 13,
            meta_len: 14,
            body_len: 15,
            ..Header::new(FrameKind::Rows)
        }
    }

    #[test]
    fn a_header_comes_back_and_its_bytes_are_fixed() {
        let bytes = sample().encode();
        assert_eq!(Header::decode(&bytes), Ok(sample()));
        let state = Header { flags: FLAG_LAST | FLAG_TIME, ..Header::new(FrameKind::State) };
        assert_eq!(Header::decode(&state.encode()), Ok(state));
        assert_eq!(&bytes[..16], b"tupl\x04\0\x01\x01\x08\x07\x06\x05\x04\x03\x02\x01");
        assert_eq!(bytes[84..], [0; 12], "room for later fields");
    }

    #[test]
    fn what_is_no_frame_is_refused_by_name() {
        let mut bytes = sample().encode();
        bytes[0] = b'G';
        assert!(matches!(Header::decode(&bytes), Err(FrameError::Magic(_))));
        let mut bytes = sample().encode();
        bytes[4] = 9;
        assert_eq!(Header::decode(&bytes), Err(FrameError::Version(9)));
        let mut bytes = sample().encode();
        for kind in [0, 10] {
            bytes[6] = kind;
            assert_eq!(Header::decode(&bytes), Err(FrameError::Kind(kind)));
        }
        let long = Header { body_len: u32::MAX, ..sample() };
        assert!(matches!(Header::decode(&long.encode()), Err(FrameError::TooLong(_))));
    }

    #[test]
    fn a_credit_entry_comes_back() {
        let entry = CreditEntry {
            run: 1,
            edge: 2,
            target: 3,
            limit: 1 << 40,
            window: 5,
            received: 6,
            queued: 7,
            capacity: 8,
        };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        let bytes: [u8; ENTRY] = bytes.try_into().unwrap();
        assert_eq!(CreditEntry::decode(&bytes), entry);
    }
}
