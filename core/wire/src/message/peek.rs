//! Rows of a sample, on their way to who follows it.

use serde::{Deserialize, Serialize};

/// Rows of a sample, as text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Peeked {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows that were not fetched yet; they stay until they are acknowledged by `from`.
    pub rows: Vec<PeekRow>,
    /// The number of the row that comes next.
    pub next: u64,
    /// Rows of the sample that had to go before they were fetched.
    pub missed: u64,
    /// Rows that went by since the follower began.
    pub passed: u64,
    /// The attempt of the run; another one numbers its rows from 0.
    pub attempt: u32,
    /// All instances of the vertex here have ended: nothing more comes.
    pub ended: bool,
}

/// One row of a sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeekRow {
    /// The instance's number among those of its vertex.
    pub instance: u32,
    /// A value each column.
    pub values: Vec<PeekValue>,
}

/// One value of a row of a sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeekValue {
    /// JSON; of a value that was cut it is a text.
    pub json: String,
    /// Bytes of its text that were cut off.
    pub cut: u64,
}
