//! Jobs' expressions from their text to results.

mod aggregates;
mod chains;
mod faults;
mod keys;
mod support;
mod vertices;
