//! Types, SQL expressions and aggregates: the only package that names `DataFusion`.
//!
//! [`resolve`] gives every stage's columns and finds all faults of a job's expressions; [`vertex_program`]
//! and [`edge_key`] turn a planned vertex or edge into what the engine runs. Arrow comes through the
//! re-export here, so that there is one arrow.

pub mod aggregate;
pub mod key;
pub mod program;
pub mod sql;
pub mod types;

pub use aggregate::{AggregateProgram, GroupTable, WhenEmpty};
pub use datafusion_common::arrow;
pub use key::{KeyExprs, partitions};
pub use program::{
    Chain, ChainRun, Dropped, EvalError, Filter, Program, Projection, Step, Unnest, UnnestState,
    VertexProgram, edge_key, rows_within, vertex_program,
};
pub use sql::{Determinism, Language};
pub use types::{StageType, Types, resolve, resolve_with};
