//! Where rows go: policies of unicast edges, and key partitions.

pub mod key;
pub mod policy;
pub mod predict;

pub use policy::{
    Choice, DEAL, Policy, PolicyError, Target, Targets, later_policies, make_policy, policy_names,
};
