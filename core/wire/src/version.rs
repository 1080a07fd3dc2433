//! Versions of what crosses the wire. Control speaks the last two; data must be equal on both sides.

/// Versions of the control protocol: the messages inside a [`crate::codec::Payload`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum ControlVersion {
    /// The first one: jobs, agents, splits, live options.
    V1 = 1,
}

impl ControlVersion {
    /// The oldest one that this build reads.
    pub const MIN: Self = Self::V1;
    /// The newest one that this build reads.
    pub const MAX: Self = Self::V1;

    /// The version with this number, if this build reads it.
    pub fn from_number(number: u16) -> Option<Self> {
        match number {
            1 => Some(Self::V1),
            _ => None,
        }
    }

    /// Its number on the wire.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The newest version that both this build and a peer that reads `min` to `max` read.
    pub fn agree(min: u16, max: u16) -> Option<Self> {
        let newest = max.min(Self::MAX.number());
        if newest < min { None } else { Self::from_number(newest) }
    }
}

pub use crate::frame::DATA_VERSION;

/// Version of a connection's first bytes and of its TLS profile.
pub const PREFACE_VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agreement_is_the_newest_common_version() {
        assert_eq!(ControlVersion::agree(1, 1), Some(ControlVersion::V1));
        assert_eq!(ControlVersion::agree(1, 9), Some(ControlVersion::V1));
        assert_eq!(ControlVersion::agree(2, 9), None);
        assert_eq!(ControlVersion::agree(0, 0), None);
    }
}
