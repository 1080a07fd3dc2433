//! What the engine runs for a vertex: chains of row-wise steps, aggregates, and plain passing on.

mod chain;
mod distinct;
mod join;
mod rows;
mod service;
mod sort;
mod stamp;
mod stateful;
mod unnest;
mod vertex;

pub use chain::{Chain, ChainRun, LeftOut, Step, rows_within};
pub use distinct::{DistinctProgram, DistinctTable};
pub use join::{JoinBuilder, JoinProgram, JoinRun, JoinTable, JoinTexts};
pub use rows::{Dropped, EvalError, Filter, Projection, kept_rows};
pub use service::{Answered, Asked, ServiceProgram, answer_columns};
pub use sort::{Merger, Run, SortProgram, Sorter};
pub use stamp::{StampProgram, Stamped};
pub use stateful::{Advanced, StatefulProgram, StatefulTable, StatefulTexts};
pub use unnest::{Unnest, UnnestState};
pub use vertex::{Program, VertexProgram, edge_key, vertex_program};

pub(crate) use distinct::whole_row;
pub(crate) use join::no_common_type;
pub(crate) use rows::{Failed, column, keep_mask, kept_partitions, twice};
pub(crate) use service::question;
pub(crate) use unnest::slice_bytes;
