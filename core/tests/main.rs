//! Tests of what the package offers, in one binary.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

mod job {
    mod ahead;
    mod broken;
    mod builder;
    mod cases;
    mod complete;
    mod options;
    mod overrides;
    mod random;
}

mod route {
    mod decisions;
}

mod scale {
    mod etp;
    mod named;
    mod observed;
    mod on_machines;
    mod own;
    mod planners;
    mod take;
}

mod plan {
    mod cases;
    mod helper;
    mod placement;
    mod properties;
    mod rules;
    mod strategy;
}
