//! What a simulation runs on: instances of all applications, numbered, and the containers they are in.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::SimError;
use super::app::{App, Kind};
use super::config::Config;
use super::place::place;

/// The most instances of a simulation, and the most tuples a slot that a component gets: each tuple is followed.
const MOST_INSTANCES: u64 = 10_000;
const MOST_RATE: f64 = 1e6;

/// One running copy of a component.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instance {
    /// The component, over all applications.
    pub(super) component: usize,
    /// Where it runs.
    pub(super) container: usize,
    /// `mu`; 0 of a spout.
    pub(super) capacity: u32,
    /// Its first port: it has one for each successor of its component, in their order.
    pub(super) port: usize,
}

/// A component among those of all applications.
#[derive(Debug, Clone)]
pub(super) struct Component {
    pub(super) app: usize,
    /// Its instances are these.
    pub(super) instances: std::ops::Range<usize>,
    /// Components that it feeds.
    pub(super) successors: Vec<usize>,
    pub(super) kind: Kind,
}

/// An output queue: of one instance, for one successor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Port {
    pub(super) instance: usize,
    /// The component that it feeds.
    pub(super) to: usize,
}

/// All applications on all servers.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) components: Vec<Component>,
    pub(super) instances: Vec<Instance>,
    pub(super) ports: Vec<Port>,
    /// `U`: cost of a row from one container (outer) to another.
    pub(super) costs: Vec<Vec<f64>>,
    /// `W` of each application.
    pub(super) windows: Vec<u32>,
}

impl World {
    /// Builds it, and places the instances application by application.
    pub(super) fn new(config: &Config) -> Result<Self, SimError> {
        let costs = config.network.costs()?;
        let mut components: Vec<Component> = Vec::new();
        let mut instances = Vec::new();
        let mut ports = Vec::new();
        for (app, model) in config.apps.iter().enumerate() {
            let base = components.len();
            if let Some(rate) = model.rates().into_iter().find(|rate| !(0.0..=MOST_RATE).contains(rate)) {
                return Err(SimError::Config(format!(
                    "a component of `{}` gets {rate} tuples a slot: it is from 0 to {MOST_RATE}",
                    model.name
                )));
            }
            for (number, count) in model.parallelism(config.load).into_iter().enumerate() {
                if instances.len() as u64 + u64::from(count) > MOST_INSTANCES {
                    return Err(SimError::Config(format!(
                        "more than {MOST_INSTANCES} instances: `{}` of `{}` alone has {count} at load {}",
                        model.components[number].id, model.name, config.load
                    )));
                }
                let successors: Vec<usize> = model.successors(number).map(|next| base + next).collect();
                let (first, kind) = (instances.len(), model.components[number].kind);
                for turn in 0..count {
                    let capacity = capacity(model, number, turn, config.uneven)?;
                    let (instance, port) = (instances.len(), ports.len());
                    ports.extend(successors.iter().map(|&to| Port { instance, to }));
                    instances.push(Instance { component: base + number, container: 0, capacity, port });
                }
                components.push(Component { app, instances: first..instances.len(), successors, kind });
            }
        }
        if !components.iter().any(|component| matches!(component.kind, Kind::Spout { .. })) {
            return Err(SimError::Config("there is no spout: nothing would arrive".to_owned()));
        }
        let mut world = Self { components, instances, ports, costs, windows: windows(config) };
        let containers = place(config, &world)?;
        for (instance, container) in world.instances.iter_mut().zip(containers) {
            instance.container = container;
        }
        Ok(world)
    }

    /// Ports of an instance.
    pub(super) fn ports_of(&self, instance: usize) -> std::ops::Range<usize> {
        let Instance { component, port, .. } = self.instances[instance];
        port..port + self.components[component].successors.len()
    }

    /// The number of the edges from a container to a component.
    pub(super) fn edge(&self, container: usize, to: usize) -> usize {
        container * self.components.len() + to
    }

    /// The application of an instance.
    pub(super) fn app_of(&self, instance: usize) -> usize {
        self.components[self.instances[instance].component].app
    }

    /// Tuples that a bolt emits to each successor for each that it worked on.
    pub(super) fn selectivity(&self, instance: usize) -> f64 {
        match self.components[self.instances[instance].component].kind {
            Kind::Bolt { selectivity, .. } => selectivity,
            Kind::Spout { .. } => 0.0,
        }
    }

    /// Instances of spouts, with their mean arrivals per slot.
    pub(super) fn spouts(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        let rate = |component: &Component| match component.kind {
            Kind::Spout { rate, .. } => Some((component.instances.clone(), rate)),
            Kind::Bolt { .. } => None,
        };
        self.components.iter().filter_map(rate).flat_map(|(all, rate)| all.map(move |one| (one, rate)))
    }

    /// Cost of a row from one instance to another.
    pub(super) fn cost(&self, from: usize, to: usize) -> f64 {
        self.costs[self.instances[from].container][self.instances[to].container]
    }
}

fn capacity(app: &App, component: usize, turn: u32, uneven: u32) -> Result<u32, SimError> {
    let Kind::Bolt { capacity, .. } = app.components[component].kind else { return Ok(0) };
    let uneven =
        if turn.is_multiple_of(2) { capacity.checked_sub(uneven) } else { capacity.checked_add(uneven) };
    uneven.filter(|capacity| *capacity > 0).ok_or_else(|| {
        let id = &app.components[component].id;
        SimError::Config(format!(
            "`uneven` leaves instances of `{id}` of `{}` without capacity: take less than {capacity}",
            app.name
        ))
    })
}

fn windows(config: &Config) -> Vec<u32> {
    let ahead = &config.lookahead;
    let mut random = SmallRng::seed_from_u64(config.seed ^ 0x5749_4e44);
    let mut window = || if ahead.spread { random.random_range(0..=2 * ahead.size) } else { ahead.size };
    config.apps.iter().map(|_| window()).collect()
}
