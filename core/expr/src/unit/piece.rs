//! A piece of state as bytes: a header with what the state belongs to, a checksum, and a part of an Arrow stream.

use tuplane_core::fingerprint::checksum;

use super::{Home, StateOf, UnitError};

/// Most bytes of a piece, header included.
pub const MOST_PIECE: usize = 16 << 20;

/// The format, which is part of the wire's and of snapshots'.
pub(super) const VERSION: u16 = 1;

const MAGIC: [u8; 4] = *b"TPUN";

/// Magic, version, flags, partition, partitions, number, watermark, length of the name, length of the body, checksum.
pub(super) const HEADER: usize = 4 + 2 + 2 + 2 + 2 + 4 + 8 + 4 + 4 + 8;

/// The checksum is the last thing in the header, and over all else.
const SUM: usize = HEADER - 8;

const LAST: u16 = 1;
const CONTINUES: u16 = 2;
const WATERMARK: u16 = 4;
const ANSWERS: u16 = 8;

/// A piece, as it is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    pub(super) home: Home,
    /// From 0.
    pub(super) number: u32,
    /// No other follows.
    pub(super) last: bool,
    /// The body goes on in the next one.
    pub(super) continues: bool,
    pub(super) watermark: Option<i64>,
    pub(super) answers: bool,
    /// A part of an Arrow stream; empty where there are no rows.
    pub(super) body: &'a [u8],
}

impl<'a> Piece<'a> {
    pub(super) fn encode(&self, of: &StateOf) -> Vec<u8> {
        let mut name = Vec::new();
        of.encode(&mut name);
        let set = |flag: u16, is: bool| if is { flag } else { 0 };
        let flags = set(LAST, self.last)
            | set(CONTINUES, self.continues)
            | set(WATERMARK, self.watermark.is_some())
            | set(ANSWERS, self.answers);
        let mut bytes = Vec::with_capacity(HEADER + name.len() + self.body.len());
        bytes.extend(MAGIC);
        for short in [VERSION, flags, self.home.partition, self.home.partitions] {
            bytes.extend(short.to_le_bytes());
        }
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.watermark.unwrap_or(0).to_le_bytes());
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend((self.body.len() as u32).to_le_bytes());
        let sum = checksum(&[&bytes, &name, self.body]);
        bytes.extend(sum.to_le_bytes());
        bytes.extend(&name);
        bytes.extend(self.body);
        bytes
    }

    /// Reads a piece of state that belongs there.
    pub(super) fn decode(bytes: &'a [u8], of: &StateOf) -> Result<Self, UnitError> {
        let (header, rest) = bytes.split_at_checked(HEADER).ok_or(UnitError::Damaged("it is too short"))?;
        if header[..4] != MAGIC {
            return Err(UnitError::Damaged("it does not begin as one"));
        }
        let mut fields = &header[4..];
        let version = u16::from_le_bytes(next(&mut fields));
        if version != VERSION {
            return Err(UnitError::Version { found: version });
        }
        let flags = u16::from_le_bytes(next(&mut fields));
        let home = Home {
            partition: u16::from_le_bytes(next(&mut fields)),
            partitions: u16::from_le_bytes(next(&mut fields)),
        };
        let number = u32::from_le_bytes(next(&mut fields));
        let watermark = i64::from_le_bytes(next(&mut fields));
        let name_len = u32::from_le_bytes(next(&mut fields)) as usize;
        let body_len = u32::from_le_bytes(next(&mut fields)) as usize;
        let sum = u64::from_le_bytes(next(&mut fields));
        if rest.len() as u64 != name_len as u64 + body_len as u64 || bytes.len() > MOST_PIECE {
            return Err(UnitError::Damaged("it does not have the length that it says"));
        }
        if checksum(&[&header[..SUM], rest]) != sum {
            return Err(UnitError::Damaged("its checksum is wrong"));
        }
        let (name, body) = rest.split_at(name_len);
        let theirs = StateOf::decode(name).ok_or(UnitError::Damaged("it does not say what it is of"))?;
        if let Some(difference) = of.difference(&theirs) {
            return Err(UnitError::Foreign { stage: of.stage().to_owned(), difference });
        }
        Ok(Self {
            home,
            number,
            last: flags & LAST != 0,
            continues: flags & CONTINUES != 0,
            watermark: (flags & WATERMARK != 0).then_some(watermark),
            answers: flags & ANSWERS != 0,
            body,
        })
    }
}

/// The next bytes of a header, of which so many are left.
fn next<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[..N]);
    *bytes = &bytes[N..];
    field
}
