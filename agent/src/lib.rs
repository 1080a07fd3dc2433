//! The agent of Tuplane: hosts instances, moves their rows, and reports; one of them coordinates.

pub mod coordinator;
pub mod engine;
mod exchange;
mod json;
pub mod node;
pub mod registry;
pub mod road;
pub mod service;
pub mod sink;
pub mod source;
mod start;
mod sync;
pub mod telemetry;

/// The allocator that an agent's program names as its global one: the stock agent does, and so should yours.
pub use mimalloc::MiMalloc as Allocator;
pub use registry::Registry;
pub use start::run;
/// Jobs by method calls.
pub use tuplane_core::job::builder;
/// The arrow that rows are in.
pub use tuplane_expr::arrow;
