//! What a source instance that ends has not read, in units that others go on with.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::types::Split;

/// Rows of a source that one instance after the other gives, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceUnit {
    /// Which rows are left.
    pub rest: Rest,
    /// How far a schedule has been kept that it is under.
    pub paced: Option<Paced>,
}

/// Which rows of a unit are left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rest {
    /// Those of a split, from where it says.
    Split(Split),
    /// Rows of a numbered series.
    Rows {
        /// The unit's number: that of its first row.
        number: u32,
        /// From one of its rows to the next.
        step: u64,
        /// The next row.
        next: u64,
    },
}

/// How far a schedule has been kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paced {
    /// When its first row was due: nanoseconds since 1970 by the coordinator's clock.
    pub start_ns: i64,
    /// Rows that were given since.
    pub given: u64,
}

impl SourceUnit {
    /// Its number, which no other unit of its stage has (of an agent's own files: no other one of that agent).
    pub fn number(&self) -> u32 {
        match &self.rest {
            Rest::Split(split) => split.number,
            Rest::Rows { number, .. } => *number,
        }
    }
}

/// What an instance that has ended had not read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceGiven {
    /// Dense id of the instance.
    pub instance: u32,
    /// How many splits it was given by the coordinator; more that it was to be given have not reached it. `None`: all.
    pub have: Option<u32>,
    /// What is left of what it had.
    pub units: Vec<SourceUnit>,
}

/// Units, each with the dense id of the instance that goes on with it.
pub type Handed = BTreeMap<u32, Vec<SourceUnit>>;

/// Deals units to takers, each to the one that has the fewest (`held` says how many one has), the first of them by id
/// where some have as few. Without a taker nothing is dealt.
pub fn deal(units: Vec<SourceUnit>, takers: &[u32], held: &dyn Fn(u32) -> usize, handed: &mut Handed) {
    for unit in units {
        let has = |taker: &u32| held(*taker) + handed.get(taker).map_or(0, Vec::len);
        let Some(taker) = takers.iter().copied().min_by_key(|taker| (has(taker), *taker)) else { return };
        handed.entry(taker).or_default().push(unit);
    }
}
