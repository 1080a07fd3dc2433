//! Jobs' expressions from their text to results.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod aggregates;
mod chains;
mod co_aggregates;
mod distinct;
mod edges;
mod faults;
mod joins;
mod keys;
mod prelude;
mod rolling;
mod service;
mod sort;
mod stateful;
mod system;
mod units;
mod vertices;
mod windows;
