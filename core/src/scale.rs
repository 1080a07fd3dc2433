//! How many instances and where: which vertex limits a job, and what more or fewer instances would bring.

pub mod auto;
pub mod calibrate;
pub mod congestion;
pub mod etp;
pub mod fluid;
pub mod graph;
pub mod keys;
pub mod limit;
pub mod machines;
pub mod observed;
pub mod planner;
pub mod rates;
pub mod whatif;

pub use auto::{Act, Auto, AutoOptions, Bound, Look, Memory};
pub use calibrate::{Calibrated, calibrated};
pub use congestion::Congestion;
pub use etp::{NoOutput, Reading, SinkRate, etp};
pub use fluid::{Engine, Steady, steady};
pub use graph::{FlowEdge, FlowGraph, FlowVertex, GraphError, Rates};
pub use keys::{KeyCounter, KeyLoad, KeyShares};
pub use limit::{Limit, Load, LoadState, limit};
pub use machines::{Machine, Placement};
pub use planner::{Ask, Plan, Planner, Planners, Refusal, Removal, TakeAsk};
