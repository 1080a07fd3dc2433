//! Where rows go: what a target costs, who gets the next rows, and key partitions.

pub mod decide;
pub mod fast;
pub mod groups;
pub mod key;
pub mod moves;
pub mod options;
pub mod policy;
pub mod predict;
pub mod price;
pub mod rank;
pub mod reckon;
pub mod reprice;
pub mod target;
pub mod weigh;
pub mod whatif;
pub mod window;

pub use decide::{Component, Decision, Dispatch, Want, literal};
pub use fast::{Order, Scratch, fast};
pub use options::{Admission, CostSource, OptionError, RouteOptions, Setting};
pub use policy::{Choice, DEAL, Policies, Policy, PolicyError, Potus, Waiting, make_policy, policy_names};
pub use price::{Cost, Price, RANGE, Terms, Weight};
pub use rank::Rank;
pub use reckon::{Others, reckon, reckon_by_slot};
pub use reprice::{Heaps, repriced, repriced_literal};
pub use target::{Target, Targets, UNLIMITED};
pub use weigh::{BetaRule, Seen, VRule, beta_in_force, v_in_force};
