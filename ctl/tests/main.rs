//! The command line from outside: help, exit codes, clean output, job files good and bad.

mod cli;
mod files;
mod real;
mod run;
