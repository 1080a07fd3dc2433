//! What the engine runs for a vertex: chains of row-wise steps, aggregates, and plain passing on.

mod chain;
mod rows;
mod service;
mod sort;
mod stateful;
mod unnest;
mod vertex;

pub use chain::{Chain, ChainRun, LeftOut, Step, rows_within};
pub use rows::{Dropped, EvalError, Filter, Projection};
pub use service::{Answered, Asked, ServiceProgram, answer_columns};
pub use sort::{Merger, Run, SortProgram, Sorter};
pub use stateful::{Advanced, StatefulProgram, StatefulTable, StatefulTexts};
pub use unnest::{Unnest, UnnestState};
pub use vertex::{Program, VertexProgram, edge_key, vertex_program};

pub(crate) use rows::{Failed, column, keep_mask, twice};
pub(crate) use service::question;
