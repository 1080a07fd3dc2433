//! `tuplane-testbed`: the demo of `make demo`, the benchmarks of `make bench`, simulations and experiments.

use std::process::ExitCode;

use tuplane_testbed::sim::Registry;

fn main() -> ExitCode {
    tuplane_testbed::run(&Registry::default())
}
