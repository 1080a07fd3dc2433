//! A policy of one's own in the simulator and beside POTUS: docs/own-policies.md walks through it.

mod near;

use std::process::ExitCode;

use tuplane_testbed::sim::Registry;

use near::NearOrDrawn;

fn main() -> ExitCode {
    let mut registry = Registry::default();
    registry.policies.add("near_or_drawn", |options, seed| Ok(Box::new(NearOrDrawn::new(options, seed))));
    tuplane_testbed::run(&registry)
}
