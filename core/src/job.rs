//! What the user writes: job files, and the checks that need no types.

pub mod builder;
pub mod files;
pub mod model;
pub mod table;
pub mod tree;
pub mod units;

mod check;
mod complete;
mod live;
mod overrides;
mod parse;
mod paths;
mod read;
mod ready;
mod remarks;

pub(crate) use check::takes_group;
pub use live::MAX_WORK_MS;
pub use model::*;
pub use overrides::{name_override, set_keys};
pub use parse::{Case, cases};
pub use read::LEAST_MEMORY;
pub use tree::FileFormat;

/// The connectors that every agent has, of sources and of sinks.
pub fn built_in_connectors() -> [&'static [&'static str]; 2] {
    [&read::SOURCES, &read::SINKS]
}
