//! An agent that knows the policy and the planner of testbed's examples: the simulator's code on a live edge, and a model's on a
//! running job (docs/own-policies.md, docs/own-planners.md).

#[path = "../../testbed/examples/planner/fullest.rs"]
mod fullest;
#[path = "../../testbed/examples/policy/near.rs"]
mod near;

use std::process::ExitCode;

use tuplane_agent::{Allocator, Registry};

use fullest::Fullest;
use near::NearOrDrawn;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    let registry = Registry::new().planner(Fullest);
    tuplane_agent::run(
        registry.policy("near_or_drawn", 1, |options, seed| Ok(Box::new(NearOrDrawn::new(options, seed)))),
    )
}
