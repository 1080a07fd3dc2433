//! The agent of Tuplane: hosts instances, moves their rows, and reports; one of them coordinates.
//!
//! What an agent of one's own needs is [`run`], [`Registry`] and [`registry`], [`builder`] and [`arrow`]. Other modules are
//! public for tests alone, and hidden.

mod bench;
#[doc(hidden)]
pub mod coordinator;
#[doc(hidden)]
pub mod engine;
mod exchange;
mod json;
#[doc(hidden)]
pub mod node;
pub mod registry;
#[doc(hidden)]
pub mod road;
#[doc(hidden)]
pub mod service;
#[doc(hidden)]
pub mod sink;
#[doc(hidden)]
pub mod source;
mod start;
mod sync;
#[doc(hidden)]
pub mod telemetry;

/// The allocator that an agent's program names as its global one: the stock agent does, and so should yours.
pub use mimalloc::MiMalloc as Allocator;
pub use registry::Registry;
pub use start::run;
/// Jobs by method calls.
pub use tuplane_core::job::builder;
/// The arrow that rows are in.
pub use tuplane_expr::arrow;
