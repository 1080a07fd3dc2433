//! Where the instances of a simulation go: the planner's strategies, over all applications at once.

use std::collections::BTreeMap;

use tuplane_core::plan::placement::strategy::{Container, Flow, Problem, assign};

use super::SimError;
use super::config::Config;
use super::world::World;

/// The container of each instance.
pub(super) fn place(config: &Config, world: &World) -> Result<Vec<usize>, SimError> {
    let mut flows = Vec::new();
    let mut base = 0;
    for app in &config.apps {
        for (number, rate) in app.rates().into_iter().enumerate() {
            let rate = app.emitted(number, rate);
            flows.extend(app.successors(number).map(|to| Flow { from: base + number, to: base + to, rate }));
        }
        base += app.components.len();
    }
    let instances: Vec<usize> = world.instances.iter().map(|instance| instance.component).collect();
    let problem = Problem {
        instances: &instances,
        standing: &[],
        flows: &flows,
        containers: &vec![Container::default(); world.costs.len()],
        costs: &world.costs,
        within: &BTreeMap::new(),
    };
    assign(config.placement, &problem)
        .map_err(|_| SimError::Config("the containers have no room for all instances".to_owned()))
}
