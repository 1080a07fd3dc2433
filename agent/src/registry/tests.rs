//! The registry: what it says of jobs, and what instances of it do under the engine.
