//! An agent that knows the policy of testbed's example: the simulator's code on a live edge (docs/own-policies.md).

#[path = "../../testbed/examples/policy/near.rs"]
mod near;

use std::process::ExitCode;

use tuplane_agent::{Allocator, Registry};

use near::NearOrDrawn;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    let registry = Registry::new();
    tuplane_agent::run(
        registry.policy("near_or_drawn", 1, |options, seed| Ok(Box::new(NearOrDrawn::new(options, seed)))),
    )
}
