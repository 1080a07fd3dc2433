//! The program as its users run it.

#![expect(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it should be")]

mod pages;
mod paper;
mod planner;
mod stela;
