//! Stages become vertices and edges; instances get agents.

pub mod ahead;
mod attach;
mod build;
mod change;
pub mod dag;
mod dot;
pub mod error;
mod fuse;
mod graph;
mod grow;
mod json;
pub mod placement;
mod room;
mod routes;
mod rules;
mod step;
mod text;
mod whole;

pub use build::plan;
pub use change::{
    After, Before, EdgeChange, Giver, KeyMap, LEAST_QUEUE, MOST_INSTANCES, SourceMove, TableCopy,
    keeps_nothing, reads_on,
};
pub use dag::*;
pub use dot::dot;
pub use error::{Kind, PlanError, When};
pub use grow::grows;
pub use json::{case_error_json, case_json, json};
pub use placement::{AgentSlot, Instance, place, place_at};
pub use room::Room;
pub use routes::unsupported_policies;
pub use step::in_step;
pub use text::text;
