//! Where the instances of a simulation go: by the planner's strategies, application by application.

use std::collections::BTreeMap;

use tuplane_core::plan::placement::strategy::{Container, Flow, Problem, assign};

use super::SimError;
use super::config::Config;
use super::world::World;

/// The container of each instance. An application finds those before it in place, as in the publication.
pub(super) fn place(config: &Config, world: &World) -> Result<Vec<usize>, SimError> {
    let mut containers = vec![Container::default(); world.costs.len()];
    let mut placed = Vec::with_capacity(world.instances.len());
    let mut base = 0;
    for app in &config.apps {
        let mut flows = Vec::new();
        for (number, rate) in app.rates().into_iter().enumerate() {
            let rate = app.emitted(number, rate);
            flows.extend(app.successors(number).map(|to| Flow { from: base + number, to: base + to, rate }));
        }
        base += app.components.len();
        let of_app = world.instances.iter().map(|instance| instance.component).skip(placed.len());
        let instances: Vec<usize> = of_app.take_while(|component| *component < base).collect();
        let problem = Problem {
            instances: &instances,
            standing: &[],
            flows: &flows,
            containers: &containers,
            costs: &world.costs,
            within: &BTreeMap::new(),
        };
        let found = assign(config.placement, &problem).map_err(|_| {
            SimError::Config(format!("the containers have no room for the instances of `{}`", app.name))
        })?;
        for &container in &found {
            containers[container].taken += 1;
        }
        placed.extend(found);
    }
    Ok(placed)
}
