//! The stock agent: it has what every agent has, and nothing of a registry.

use std::process::ExitCode;

use tuplane_agent::Registry;

// glibc's arenas grow by fragmentation, and an agent's memory is promised to be flat.
#[global_allocator]
static ALLOCATOR: tuplane_agent::Allocator = tuplane_agent::Allocator;

fn main() -> ExitCode {
    tuplane_agent::run(Registry::new())
}
