//! Real agents as real processes, driven by the real command.

mod bounds;
mod failures;
mod jobs;
mod language;
mod owners;
mod results;
mod world;
