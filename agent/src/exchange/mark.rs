//! Marks: what stands among the rows of a channel (engine.md section 7).

use tuplane_core::time::Moved;

use crate::engine::rows::Rows;

/// A mark among the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// No row with an earlier event time follows (ns since 1970, UTC).
    Watermark(i64),
    /// No row has come for some time: the watermark is not held back until the next one of this sender, which
    /// comes before its next row.
    Idle,
    /// A snapshot's barrier.
    Barrier(u64),
    /// A group of key partitions has moved to another owner.
    Moved {
        /// The map's epoch.
        epoch: u32,
        /// The group.
        group: u32,
    },
    /// What has been said of event time on this channel counts no more, from the moment when this comes (it passes what
    /// waits): until [`Mark::Resume`] the channel stands where its target stands then. Rows may follow that are older.
    Hold,
    /// Those rows have all been given: the channel stands where its last watermark says.
    Resume,
    /// Nothing follows.
    End,
}

impl From<Moved> for Mark {
    fn from(moved: Moved) -> Self {
        match moved {
            Moved::Watermark(time) => Self::Watermark(time),
            Moved::Idle => Self::Idle,
        }
    }
}

/// What a channel or queue holds.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    /// Rows, at least one.
    Rows(Rows),
    /// A mark.
    Mark(Mark),
}
