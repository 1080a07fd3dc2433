//! Units of keyed state: the state of one key partition, taken out of a table, carried as pieces of bytes, and
//! placed into another table.
//!
//! Taking out and placing move a pointer: what costs time, making bytes of state and state of bytes, is done by
//! [`Pieces`] and [`Loader`], on whatever thread they are on, while the table goes on with its other partitions.
//! Between tables of one process a unit needs no bytes at all.

mod of;
mod piece;
mod pieces;

use std::any::Any;
use std::collections::BTreeSet;
use std::ops::Range;

use datafusion_common::arrow::datatypes::SchemaRef;
use datafusion_common::arrow::record_batch::RecordBatch;
use tuplane_core::route::key::partition;

use crate::program::EvalError;
pub use of::StateOf;
pub use piece::MOST_PIECE;
pub use pieces::{Loader, Pieces};

/// Why state cannot be taken out, carried or placed.
#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    /// Bytes that no piece of state is made of.
    #[error("{0}: a piece of state was damaged on its way, or is none")]
    Damaged(&'static str),
    /// A piece of a format that this build does not read.
    #[error(
        "a piece of state has format {found}, and this build reads {}: all agents must have one version",
        piece::VERSION
    )]
    Version {
        /// Its format.
        found: u16,
    },
    /// State of something else.
    #[error("state of another kind came to stage `{stage}`: {difference}")]
    Foreign {
        /// The stage that it came to.
        stage: String,
        /// The first thing that differs.
        difference: String,
    },
    /// Pieces in a wrong order, or of several units at once.
    #[error("piece {found} of partition {partition} came where {wanted} was to come")]
    Order {
        /// The partition of the piece that came.
        partition: u16,
        /// Its number.
        found: u32,
        /// What was to come.
        wanted: String,
    },
    /// A partition that cannot be moved now, which is a fault of whoever moves it.
    #[error("internal: partition {partition} {why}")]
    Misplaced {
        /// Which.
        partition: u16,
        /// What is wrong.
        why: String,
    },
    /// Expressions, aggregates or arrow.
    #[error(transparent)]
    State(#[from] EvalError),
}

impl From<datafusion_common::arrow::error::ArrowError> for UnitError {
    fn from(error: datafusion_common::arrow::error::ArrowError) -> Self {
        Self::State(error.into())
    }
}

impl UnitError {
    pub(crate) fn misplaced(partition: u16, why: impl Into<String>) -> Self {
        Self::Misplaced { partition, why: why.into() }
    }
}

/// A key partition, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) partition: u16,
    pub(crate) partitions: u16,
}

impl Home {
    /// Fails unless keys with these hashes are all at home here.
    pub(crate) fn check(self, hashes: &[u64]) -> Result<(), EvalError> {
        if hashes.iter().all(|hash| partition(*hash, self.partitions) == self.partition) {
            return Ok(());
        }
        Err(misfit(format!("keys of other partitions came as state of partition {}", self.partition)))
    }
}

/// Rows that are not what the state at hand is made of.
pub(crate) fn misfit(message: String) -> EvalError {
    EvalError { row: None, message }
}

/// What a table keeps of one key partition, as rows: this is the form in which it is carried.
pub(crate) trait State: Any + Send {
    /// The columns of the rows.
    fn columns(&self) -> SchemaRef;

    /// How many rows there are.
    fn rows(&self) -> usize;

    /// Memory in use.
    fn bytes(&self) -> usize;

    /// Some of the rows. It stays as it is, so that a unit that could not be carried can be placed back.
    fn save(&self, rows: Range<usize>) -> Result<RecordBatch, EvalError>;

    /// Adds rows that another one has saved. Their keys must be at home there, and be new.
    fn load(&mut self, rows: &RecordBatch, home: Home) -> Result<(), EvalError>;
}

/// The state of one key partition, outside of a table. A partition without keys has one too: it says how far the
/// partition has come.
pub struct Unit {
    pub(crate) home: Home,
    /// What ends by then has been given: windows, and states that run out.
    pub(crate) watermark: Option<i64>,
    /// It is an aggregate without a key, which gives a result though no row came.
    pub(crate) answers: bool,
    pub(crate) state: Box<dyn State>,
}

impl std::fmt::Debug for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unit")
            .field("home", &self.home)
            .field("rows", &self.state.rows())
            .finish_non_exhaustive()
    }
}

impl Unit {
    pub(crate) fn new(home: Home, watermark: Option<i64>, state: impl State) -> Self {
        Self { home, watermark, answers: false, state: Box::new(state) }
    }

    /// Its key partition.
    pub fn partition(&self) -> u16 {
        self.home.partition
    }

    /// The event time (nanoseconds since 1970, UTC) that its windows or its states that run out have been brought
    /// to; `None` without such, or before the first watermark.
    pub fn watermark(&self) -> Option<i64> {
        self.watermark
    }

    /// Rows of its state: keys, open sessions, or keys of open panes.
    pub fn rows(&self) -> usize {
        self.state.rows()
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        self.state.bytes()
    }

    /// It as bytes, piece by piece.
    pub fn into_pieces(self, of: StateOf) -> Pieces {
        Pieces::new(self, of)
    }

    /// Its state as the type that a table keeps.
    pub(crate) fn open<S: State>(self) -> Result<S, UnitError> {
        let state: Box<dyn Any> = self.state;
        let other = |_| UnitError::misplaced(self.home.partition, "is state of another kind of table");
        Ok(*state.downcast::<S>().map_err(other)?)
    }
}

/// A table whose state can be carried elsewhere, by key partition. Nothing of it may be on its way out when it is
/// asked: neither results that are yet to be pulled nor rows that are yet to be worked on.
pub trait Units: Send {
    /// How many key partitions there are: 1 without a key.
    fn partitions(&self) -> u16;

    /// Takes the state of these partitions out: it is gone from here. Gives a unit for each of them, in their order;
    /// where it fails, nothing was taken out. One that is not settled goes on with the watermark that it came with.
    fn cut(&mut self, partitions: &[u16]) -> Result<Vec<Unit>, UnitError>;

    /// What makes units of pieces.
    fn loader(&self, of: StateOf) -> Result<Loader, UnitError>;

    /// Puts a partition's state in. A partition that has state here already is refused.
    ///
    /// What depends on event time stays where it was for this partition until [`settle`](Self::settle), whatever
    /// watermark the table has been told: rows that were on their way while the state was carried are not late, and
    /// meet no state that has run out since.
    fn place(&mut self, unit: Unit) -> Result<(), UnitError>;

    /// All rows that waited for these partitions' state have been taken in: they go on with the table's watermark.
    /// There may be results to take out. Those that have left meanwhile are no matter here.
    fn settle(&mut self, _partitions: &[u16]) -> Result<(), UnitError> {
        Ok(())
    }

    /// Memory that a partition's state takes.
    fn size_of(&self, partition: u16) -> usize;
}

/// Fails unless these are different partitions that there are.
pub(crate) fn check(partitions: &[u16], all: u16) -> Result<(), UnitError> {
    let mut seen = BTreeSet::new();
    for partition in partitions {
        if *partition >= all {
            return Err(UnitError::misplaced(*partition, format!("does not exist: there are {all}")));
        }
        if !seen.insert(*partition) {
            return Err(UnitError::misplaced(*partition, "was asked for twice"));
        }
    }
    Ok(())
}

/// Fails unless a unit belongs among so many partitions.
pub(crate) fn check_home(unit: &Unit, all: u16) -> Result<(), UnitError> {
    let Home { partition, partitions } = unit.home;
    if partitions == all {
        return Ok(());
    }
    Err(UnitError::misplaced(partition, format!("is one of {partitions}, and there are {all} here")))
}
