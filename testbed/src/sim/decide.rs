//! The decisions of all containers in one slot, by the functions that a running agent calls.

use tuplane_core::route::{
    self, BetaRule, Component, Cost, Decision, Heaps, Order, Policies, Policy, Rank, RouteOptions, Scratch,
    Seen, Target, Targets, VRule, Waiting, Want, Weight, beta_in_force, v_in_force,
};

use super::SimError;
use super::config::Config;
use super::telemetry::Known;
use super::world::World;

/// The name of the policy whose edges are decided together.
pub(super) const POTUS: &str = "potus";

/// Queues at the beginning of a slot.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// `Q_in` of each instance.
    pub(super) inputs: Vec<u64>,
    /// `Q_out` of each port.
    pub(super) outputs: Vec<u64>,
    /// Of it what has to leave in this slot.
    pub(super) mandatory: Vec<u64>,
    /// Cost of the last slot, and the weighted backlog at its end.
    pub(super) total: (f64, f64),
}

/// Tuples from one port to one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Send {
    pub(super) port: usize,
    pub(super) target: usize,
    pub(super) rows: u64,
}

/// What was decided in a slot.
#[derive(Debug, Default)]
pub(super) struct Decided {
    /// A sender's sends stand together.
    pub(super) sends: Vec<Send>,
    /// Tuples that had to leave and could not.
    pub(super) deferred: u64,
    /// By port: tuples that had to leave and left at a price of 0 or more.
    pub(super) forced: Vec<u64>,
    /// By [`World::edge`]: `V` in force, where the policy has prices.
    pub(super) v: Vec<Option<Weight>>,
}

/// One container: its senders, and the components that they feed.
struct Site {
    container: usize,
    /// Components that its instances feed.
    downstream: Vec<usize>,
    senders: Vec<Sender>,
    how: How,
}

struct Sender {
    instance: usize,
    /// By port: index into `downstream`.
    wants: Vec<usize>,
}

/// How a container decides.
enum How {
    /// All edges of a sender together, under one budget.
    Potus(Box<Priced>),
    /// Edge by edge, by policies that are asked for one run after the other.
    Edges {
        /// By component that is fed.
        targets: Vec<Targets>,
        /// By sender and port.
        policies: Vec<Vec<Box<dyn Policy>>>,
    },
}

/// What POTUS keeps from slot to slot.
#[derive(Default)]
struct Priced {
    components: Vec<Component>,
    orders: Vec<Order>,
    scratch: Scratch,
    heaps: Heaps,
    wants: Vec<Want>,
    decision: Decision,
}

/// All containers.
pub(super) struct Decider {
    sites: Vec<Site>,
    options: RouteOptions,
    /// `W`, to which ranks are keyed.
    window: u32,
    /// Mean tuples per second from all instances of a component to all of each successor.
    rates: Vec<f64>,
    /// Weights in force in the last slot: sum of `V` over containers and components, how many, and `beta`.
    pub(super) weights: Option<(f64, u64, f64)>,
}

impl Decider {
    pub(super) fn new(config: &Config, world: &World, policies: &Policies) -> Result<Self, SimError> {
        let options = config.routing.options.clone();
        let name = config.routing.policy.as_str();
        // A bad name or option is refused whether or not the policy is asked.
        policies.make(name, &options, 0)?;
        let mut sites = Vec::new();
        for container in 0..world.costs.len() {
            let mut site = Site {
                container,
                downstream: Vec::new(),
                senders: Vec::new(),
                how: How::Edges { targets: Vec::new(), policies: Vec::new() },
            };
            for (instance, at) in world.instances.iter().enumerate() {
                let ports = world.ports_of(instance);
                if at.container != container || ports.is_empty() {
                    continue;
                }
                let wants = ports.map(|port| site.want(world.ports[port].to)).collect();
                site.senders.push(Sender { instance, wants });
            }
            site.how = if name == POTUS {
                How::Potus(Box::new(Priced::new(&site, world)?))
            } else {
                site.edges(config, world, policies)?
            };
            sites.push(site);
        }
        let mut rates = Vec::new();
        let second = config.routing.options.slot.as_secs_f64();
        for app in &config.apps {
            let emitted = app.rates().into_iter().enumerate().map(|(number, rate)| app.emitted(number, rate));
            rates.extend(emitted.map(|rate| rate / second));
        }
        Ok(Self { sites, options, window: config.lookahead.size, rates, weights: None })
    }

    /// Decides a slot.
    pub(super) fn decide(
        &mut self,
        slot: i64,
        world: &World,
        queues: &Queues,
        known: &Known,
        decided: &mut Decided,
    ) -> Result<(), String> {
        decided.sends.clear();
        decided.deferred = 0;
        decided.forced.clear();
        decided.forced.resize(world.ports.len(), 0);
        decided.v.clear();
        decided.v.resize(world.costs.len() * world.components.len(), None);
        let (mut v_sum, mut v_count) = (0.0, 0);
        let beta = beta_in_force(self.options.beta, None);
        for site in &mut self.sites {
            let refresh = |targets: &mut [Target], reads: bool| {
                for target in targets {
                    let instance = target.instance as usize;
                    if reads {
                        let at = &world.instances[instance];
                        target.queued =
                            known.length(site.container, instance, at.capacity, queues.inputs[instance]);
                    }
                    target.rank = Rank::ahead(target.instance, slot, self.window, site.container as u16);
                }
            };
            match &mut site.how {
                How::Potus(priced) => {
                    for (component, to) in priced.components.iter_mut().zip(&site.downstream) {
                        refresh(component.targets_mut(), true);
                        let v = v_of(&self.options, beta, component.targets(), queues, || {
                            let ports = site.senders.iter().flat_map(|s| world.ports_of(s.instance));
                            let mine = || ports.clone().filter(|port| world.ports[*port].to == *to);
                            let waiting: u64 = mine().map(|port| queues.outputs[port]).sum();
                            // Several components may feed it from here, each at its own rate.
                            let rate: f64 = mine().map(|port| rate_of(&self.rates, world, port)).sum();
                            let senders = mine().count().max(1);
                            (waiting / senders as u64, rate / senders as f64)
                        });
                        component.set_v(v);
                        component.refresh();
                        decided.v[world.edge(site.container, *to)] = Some(v);
                        v_sum += v.value();
                        v_count += 1;
                    }
                    priced.decide(&site.senders, &self.options, beta, world, queues, decided);
                }
                How::Edges { targets, policies } => {
                    for (number, targets) in targets.iter_mut().enumerate() {
                        let asked = policies.iter().zip(&site.senders).flat_map(|(policies, sender)| {
                            policies.iter().zip(&sender.wants).filter(|(_, want)| **want == number)
                        });
                        let mut asked = asked.map(|(policy, _)| policy.reads_queues());
                        let reads = asked.next().unwrap_or(false);
                        refresh(targets.list_mut(), reads);
                    }
                    let gamma = self.options.gamma.unwrap_or(u64::MAX);
                    for (sender, policies) in site.senders.iter().zip(policies) {
                        let budget = Budget { slot, gamma, deal: self.options.deal, rates: &self.rates };
                        budget.deal(sender, policies, targets, world, queues, decided)?;
                    }
                }
            }
        }
        if v_count > 0 {
            self.weights = Some((v_sum, v_count, beta.value()));
        }
        Ok(())
    }
}

/// Mean tuples per second from a port.
fn rate_of(rates: &[f64], world: &World, port: usize) -> f64 {
    let from = world.instances[world.ports[port].instance].component;
    rates[from] / world.components[from].instances.len() as f64
}

/// `V` in force for the edges from one container to one component.
fn v_of(
    options: &RouteOptions,
    beta: Weight,
    targets: &[Target],
    queues: &Queues,
    senders: impl FnOnce() -> (u64, f64),
) -> Weight {
    if let VRule::Number(v) = options.v {
        return v;
    }
    let (q_out, rate) = senders();
    let seen = Seen { rate: Some(rate), total: Some(queues.total), ..Seen::new(targets, q_out) };
    v_in_force(options.v, beta, &seen)
}

impl Site {
    /// The index of a component that is fed from here.
    fn want(&mut self, to: usize) -> usize {
        self.downstream.iter().position(|known| *known == to).unwrap_or_else(|| {
            self.downstream.push(to);
            self.downstream.len() - 1
        })
    }

    fn edges(&self, config: &Config, world: &World, policies: &Policies) -> Result<How, SimError> {
        let mut targets = Vec::new();
        for &to in &self.downstream {
            let mut groups = vec![Vec::new(); world.costs.len()];
            for instance in world.components[to].instances.clone() {
                groups[world.instances[instance].container].push(instance as u32);
            }
            // The container's own come first, the others as they follow it.
            groups.rotate_left(self.container);
            let mut targets_of = Targets::with_local(groups);
            for target in targets_of.list_mut() {
                target.cost = self.cost(world, target.instance as usize)?;
            }
            targets.push(targets_of);
        }
        let made = self.senders.iter().map(|sender| {
            let one = |port: usize| {
                // A lot of its own for each port, the same whatever else is configured.
                let seed = config.seed ^ (port as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                policies.make(&config.routing.policy, &config.routing.options, seed)
            };
            world.ports_of(sender.instance).map(one).collect::<Result<Vec<_>, _>>()
        });
        Ok(How::Edges { policies: made.collect::<Result<_, _>>()?, targets })
    }

    fn cost(&self, world: &World, instance: usize) -> Result<Cost, SimError> {
        let cost = world.costs[self.container][world.instances[instance].container];
        Cost::new(cost)
            .ok_or_else(|| SimError::Config(format!("{cost} is no cost of a row: it is {}", route::RANGE)))
    }
}

impl Priced {
    fn new(site: &Site, world: &World) -> Result<Self, SimError> {
        let mut components = Vec::new();
        for &to in &site.downstream {
            let targets = world.components[to].instances.clone().map(|instance| {
                let cost = site.cost(world, instance)?;
                Ok(Target { cost, ..Target::new(instance as u32) })
            });
            components.push(Component::new(Weight::default(), targets.collect::<Result<_, SimError>>()?));
        }
        let orders = vec![Order::default(); components.len()];
        Ok(Self { components, orders, ..Self::default() })
    }

    fn decide(
        &mut self,
        senders: &[Sender],
        options: &RouteOptions,
        beta: Weight,
        world: &World,
        queues: &Queues,
        decided: &mut Decided,
    ) {
        let Self { components, orders, scratch, heaps, wants, decision } = self;
        if !options.reprice {
            orders.iter_mut().zip(&*components).for_each(|(order, component)| order.reset(component));
        }
        let gamma = options.gamma.unwrap_or(u64::MAX);
        for sender in senders {
            let ports = world.ports_of(sender.instance);
            wants.clear();
            wants.extend(ports.clone().zip(&sender.wants).map(|(port, &component)| Want {
                component,
                beta,
                q_out: queues.outputs[port],
                mandatory: queues.mandatory[port],
            }));
            if wants.iter().all(|want| want.q_out == 0) {
                continue;
            }
            if options.reprice {
                route::repriced(wants, gamma, components, 1, heaps, decision);
            } else {
                route::fast(wants, gamma, components, orders, scratch, decision);
            }
            decided.deferred += decision.deferred;
            for (port, forced) in ports.clone().zip(&decision.forced) {
                decided.forced[port] += forced;
            }
            let place = |send: &route::Dispatch| {
                let target = components[wants[send.want].component].targets()[send.target].instance as usize;
                Send { port: ports.start + send.want, target, rows: send.rows }
            };
            decided.sends.extend(decision.sends.iter().map(place));
        }
    }
}

/// What a sender may send in a slot where its edges are decided one by one.
struct Budget<'a> {
    slot: i64,
    gamma: u64,
    deal: u32,
    /// As [`Decider`] has them.
    rates: &'a [f64],
}

impl Budget<'_> {
    /// Asks the edges' policies in turn, another first in each slot; what has to leave goes before the rest.
    fn deal(
        self,
        sender: &Sender,
        policies: &mut [Box<dyn Policy>],
        targets: &mut [Targets],
        world: &World,
        queues: &Queues,
        decided: &mut Decided,
    ) -> Result<(), String> {
        let ports = world.ports_of(sender.instance);
        let mut budget = self.gamma;
        let count = sender.wants.len();
        let mut left: Vec<u64> = ports.clone().map(|port| queues.outputs[port]).collect();
        let mut due: Vec<u64> = ports.clone().map(|port| queues.mandatory[port]).collect();
        for (edge, policy) in policies.iter_mut().enumerate() {
            let seen = Seen {
                rate: Some(rate_of(self.rates, world, ports.start + edge)),
                total: Some(queues.total),
                ..Seen::new(targets[sender.wants[edge]].list(), left[edge])
            };
            policy.begin_slot(self.slot, &seen);
        }
        for must in [true, false] {
            for turn in 0..count {
                let edge = (turn + self.slot.rem_euclid(count as i64) as usize) % count;
                let targets = &mut targets[sender.wants[edge]];
                loop {
                    let rows = if must { due[edge] } else { left[edge] }.min(budget);
                    if rows == 0 {
                        break;
                    }
                    let waiting = Waiting { rows: left[edge], mandatory: due[edge], deal: self.deal };
                    let Some(choice) = policies[edge].choose(&waiting, targets) else {
                        if must && targets.list().iter().any(Target::is_open) {
                            return Err(format!(
                                "the policy `{}` holds {} tuples that have to leave, and a target takes them",
                                policies[edge].name(),
                                due[edge]
                            ));
                        }
                        break;
                    };
                    choice.check(policies[edge].name(), targets)?;
                    let rows = rows.min(u64::from(choice.rows));
                    let target = &mut targets.list_mut()[choice.target];
                    target.take(rows);
                    policies[edge].sent(rows as u32);
                    decided.sends.push(Send {
                        port: ports.start + edge,
                        target: target.instance as usize,
                        rows,
                    });
                    budget -= rows;
                    left[edge] -= rows;
                    due[edge] = due[edge].saturating_sub(rows);
                }
            }
        }
        decided.deferred += due.iter().sum::<u64>();
        Ok(())
    }
}

/// `beta` in force: queues have no bounds here.
pub(super) fn beta(rule: BetaRule) -> Weight {
    beta_in_force(rule, None)
}
