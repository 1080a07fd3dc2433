//! Types, SQL expressions and aggregates: the only package that names `DataFusion`.
//!
//! [`resolve`] gives every stage's columns and finds all faults of a job's expressions; [`vertex_program`]
//! and [`edge_key`] turn a planned vertex or edge into what the engine runs. Arrow comes through the
//! re-export here, so that there is one arrow.

pub mod aggregate;
mod deep;
pub mod key;
pub mod program;
pub mod sql;
pub mod system;
pub mod types;
pub mod unit;

pub use aggregate::{
    AggregateInput, AggregateProgram, GroupTable, RollingProgram, RollingTable, WhenEmpty, WindowPart,
    WindowProgram, WindowTable,
};
pub use datafusion_common::arrow;
pub use key::{KeyExprs, partitions};
pub use program::{
    Advanced, Answered, Asked, Chain, ChainRun, DistinctProgram, DistinctTable, Dropped, EvalError, Filter,
    JoinBuilder, JoinProgram, JoinRun, JoinTable, JoinTexts, LeftOut, Merger, Program, Projection, Run,
    ServiceProgram, SortProgram, Sorter, StampProgram, Stamped, StatefulProgram, StatefulTable,
    StatefulTexts, Step, Unnest, UnnestState, VertexProgram, answer_columns, kept_rows, rows_within,
};
pub use sql::{Determinism, Language};
pub use types::{StageType, Types};
pub use unit::{Loader, MOST_PIECE, Pieces, StateOf, Unit, UnitError, Units};

use std::collections::HashMap;
use std::sync::Arc;

use tuplane_core::fault::Fault;
use tuplane_core::job::{Job, Stage};
use tuplane_core::plan::{Dag, EdgeId, VertexId};

use deep::on_a_deep_stack;

/// The columns of every stage, or all faults of the job's expressions.
pub fn resolve(job: &Job) -> Result<Types, Vec<Fault>> {
    resolve_with(job, &|_| None)
}

/// As [`resolve`]; `headers` gives the names in the header of a csv source's files, by stage id.
pub fn resolve_with(job: &Job, headers: types::Headers<'_>) -> Result<Types, Vec<Fault>> {
    resolve_registered(job, headers, &|_| Ok(None))
}

/// As [`resolve_with`]; `registered` knows the columns of what a registry holds.
pub fn resolve_registered(
    job: &Job,
    headers: types::Headers<'_>,
    registered: types::Registered<'_>,
) -> Result<Types, Vec<Fault>> {
    let known: HashMap<&str, Vec<String>> =
        job.stages.iter().filter_map(|stage| Some((stage.id.as_str(), headers(&stage.id)?))).collect();
    on_a_deep_stack(|| types::resolve(job, &|id| known.get(id).cloned(), registered))
}

/// What the instances of a vertex run.
pub fn vertex_program(job: &Job, types: &Types, dag: &Dag, v: VertexId) -> Result<VertexProgram, Fault> {
    on_a_deep_stack(|| program::vertex_program(job, types, dag, v))
}

/// The key of a partitioned edge; `None` for any other.
pub fn edge_key(job: &Job, types: &Types, dag: &Dag, e: EdgeId) -> Result<Option<KeyExprs>, Fault> {
    on_a_deep_stack(|| program::edge_key(job, types, dag, e))
}

/// The key that a `group_by` before a stage gives it; without columns if there is none.
pub fn grouping(job: &Job, types: &Types, stage: &Stage) -> Result<KeyExprs, Vec<Fault>> {
    let input = stage.inputs.first().and_then(|input| types.output(&input.value));
    let input = input.unwrap_or_else(|| Arc::new(arrow::datatypes::Schema::empty()));
    on_a_deep_stack(|| types::grouping(job, stage, &input))
}
