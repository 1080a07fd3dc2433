//! The command line from outside: help, exit codes, clean output, job files good and bad.

#![expect(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it should be")]

mod cli;
mod files;
mod real;
mod run;
mod ui;
mod what_if;
