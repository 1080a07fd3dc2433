//! State that is moved between instances: what they come to is what one instance comes to that has it all.

mod bytes;
mod cluster;
mod moves;
