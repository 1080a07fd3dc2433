//! What agents and the command line say to each other: messages, codec, frames, authenticated streams.

pub mod client;
pub mod codec;
pub mod etp;
pub mod frame;
pub mod launch;
pub mod members;
pub mod message;
pub mod net;
pub mod operation;
pub mod routing;
pub mod scaling;
pub mod service;
pub mod version;
