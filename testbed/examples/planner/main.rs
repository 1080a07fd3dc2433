//! A planner of one's own on graphs in a file and beside Stela: docs/own-planners.md walks through it.

mod fullest;

use std::process::ExitCode;

use tuplane_testbed::sim::Registry;

use fullest::Fullest;

fn main() -> ExitCode {
    let mut registry = Registry::default();
    registry.planners.add(Fullest);
    tuplane_testbed::run(&registry)
}
