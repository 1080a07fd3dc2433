//! The slots of a simulation, one after the other.

use std::collections::VecDeque;

use super::check::{self, Ledger, Rules};
use super::config::Config;
use super::decide::{self, Decided, Decider, POTUS, Queues};
use super::forecast::{Errors, Forecast};
use super::measure::{Backlog, Responses};
use super::outcome::{AppOutcome, Foresight, Outcome, Weights};
use super::root::{Answer, RootId, Roots};
use super::series::series;
use super::spout::Spout;
use super::telemetry::Known;
use super::world::World;
use super::{Registry, SimError};

/// Slots between two counts of all tuples under way.
const COUNTED: i64 = 256;

/// A tuple at the output of a bolt.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    root: RootId,
    /// The slot in which it was emitted.
    since: i64,
}

/// Sums over the measured slots.
#[derive(Debug, Default)]
struct Sums {
    slots: u64,
    backlog: Backlog,
    /// Weighted backlogs of the third and the last quarter of the measured slots, to tell growth.
    quarters: [(f64, u64); 4],
    cost: Vec<f64>,
    rows: u64,
    deferred: u64,
    forced: u64,
    foresight: Foresight,
    responses: Vec<Responses>,
    arrived: Vec<u64>,
    v: (f64, u64),
}

/// A simulation under way.
pub(super) struct Run<'c> {
    config: &'c Config,
    world: World,
    rules: Rules,
    decider: Decider,
    known: Known,
    roots: Roots,
    spouts: Vec<Spout>,
    forecasts: Vec<Forecast>,
    /// By instance: its place in `spouts`.
    spout_of: Vec<Option<usize>>,
    /// By instance: tuples at its input.
    inputs: Vec<VecDeque<RootId>>,
    /// By port: tuples at a bolt's output; empty of a spout.
    outputs: Vec<VecDeque<Waiting>>,
    /// By port: what selectivity has left over.
    fractions: Vec<f64>,
    queues: Queues,
    decided: Decided,
    /// By port: what has waited for so long that it has to leave.
    held: Vec<u64>,
    max_hold: Option<i64>,
    start: i64,
    ledger: Ledger,
    sums: Sums,
    /// Every answer, where they are asked for.
    answers: Option<Vec<Answer>>,
}

impl<'c> Run<'c> {
    pub(super) fn new(config: &'c Config, registry: &Registry, keep_answers: bool) -> Result<Self, SimError> {
        let world = World::new(config)?;
        let options = &config.routing.options;
        let decider = Decider::new(config, &world, &registry.policies)?;
        let start = if config.lookahead.early { -i64::from(config.lookahead.size) } else { 0 };
        let all: Vec<(usize, f64)> = world.spouts().collect();
        let mut spouts = Vec::new();
        let mut forecasts = Vec::new();
        let mut spout_of = vec![None; world.instances.len()];
        for (number, &(instance, mean)) in all.iter().enumerate() {
            let size = world.windows[world.app_of(instance)];
            let slots = (config.slots + size) as usize;
            let counts = series(&config.arrivals, config.seed, number, mean, slots)?;
            let successors = world.ports_of(instance).len();
            if successors == 0 {
                return Err(SimError::Config(
                    "a spout feeds nothing: its tuples would stay for ever".to_owned(),
                ));
            }
            spout_of[instance] = Some(number);
            let mut forecast =
                Forecast::new(&config.lookahead, &registry.predictors, config.seed, number, &counts)?;
            let mut spout =
                Spout::new(instance, number as u32, counts, successors, size, options.admission, start);
            forecast.fill(&mut spout, start, config.lookahead.early);
            spouts.push(spout);
            forecasts.push(forecast);
        }
        let potus = config.routing.policy == POTUS;
        let rules = Rules {
            gamma: options.gamma.unwrap_or(u64::MAX),
            beta: decide::beta(options.beta),
            one_target: potus && !options.reprice,
        };
        let apps = config.apps.len();
        let sums = Sums {
            cost: vec![0.0; apps],
            responses: vec![Responses::default(); apps],
            arrived: vec![0; apps],
            ..Sums::default()
        };
        let (instances, ports) = (world.instances.len(), world.ports.len());
        let known = Known::new(config.telemetry, options.dead_reckoning, start, world.costs.len(), instances);
        let queues = Queues {
            inputs: vec![0; instances],
            outputs: vec![0; ports],
            mandatory: vec![0; ports],
            total: (0.0, 0.0),
        };
        Ok(Self {
            config,
            rules,
            decider,
            known,
            roots: Roots::default(),
            spouts,
            forecasts,
            spout_of,
            inputs: vec![VecDeque::new(); instances],
            outputs: vec![VecDeque::new(); ports],
            fractions: vec![0.0; ports],
            queues,
            decided: Decided::default(),
            held: vec![0; ports],
            max_hold: config.routing.max_hold(),
            start,
            ledger: Ledger::default(),
            sums,
            answers: keep_answers.then(Vec::new),
            world,
        })
    }

    /// Runs all slots.
    pub(super) fn finish(mut self) -> Result<(Outcome, Vec<Answer>), SimError> {
        for slot in self.start..i64::from(self.config.slots) {
            self.slot(slot).map_err(|what| SimError::Broken { slot, what })?;
        }
        if let Some(failure) = self.forecasts.iter().find_map(Forecast::failure) {
            return Err(SimError::Predictor(failure.to_owned()));
        }
        let answers = self.answers.take().unwrap_or_default();
        Ok((self.outcome(), answers))
    }

    fn slot(&mut self, slot: i64) -> Result<(), String> {
        let measured = slot >= i64::from(self.config.warmup);
        self.arrive(slot, measured);
        let backlog = self.look(slot);
        let weighted = backlog.weighted(decide::beta(self.config.routing.options.beta).value());
        // What there is now is what the last slot has left.
        self.queues.total.1 = weighted;
        self.known.begin(slot, &self.queues.inputs);
        self.decider.decide(slot, &self.world, &self.queues, &self.known, &mut self.decided)?;
        check::decisions(&self.rules, &self.world, &self.queues, &self.known, &self.decided)?;
        if measured {
            self.count(slot, &backlog, weighted);
        }
        self.send(measured)?;
        self.serve(slot);
        self.answer();
        let q_in = self.inputs.iter().map(|queue| queue.len() as u64).sum();
        let q_out = self.outputs.iter().map(|queue| queue.len() as u64).sum();
        self.ledger.balance(q_in, q_out)?;
        if slot % COUNTED == 0 || slot + 1 == i64::from(self.config.slots) {
            self.ledger.roots(self.roots.unanswered())?;
        }
        Ok(())
    }

    /// Windows move on by a slot.
    fn arrive(&mut self, slot: i64, measured: bool) {
        for (spout, forecast) in self.spouts.iter_mut().zip(&mut self.forecasts) {
            let settled = spout.advance(slot, &mut self.roots);
            let arrived = spout.arrivals(slot);
            self.ledger.arrived += arrived;
            forecast.follow(spout, slot, measured);
            if measured {
                self.sums.arrived[self.world.app_of(spout.instance)] += arrived;
                let foresight = &mut self.sums.foresight;
                foresight.pre_served += settled.pre_served;
                foresight.wasted += settled.wasted;
                foresight.dropped += settled.dropped;
                foresight.unforeseen += settled.unforeseen;
            }
        }
    }

    /// Queue lengths at the beginning of a slot.
    fn look(&mut self, slot: i64) -> Backlog {
        let mut backlog = Backlog::default();
        let Self { queues, world, spouts, held, .. } = self;
        for (length, input) in queues.inputs.iter_mut().zip(&self.inputs) {
            *length = input.len() as u64;
            backlog.q_in += *length as f64;
        }
        for (port, output) in self.outputs.iter().enumerate() {
            let instance = world.ports[port].instance;
            if let Some(spout) = self.spout_of[instance] {
                let window = spouts[spout].window(port - world.instances[instance].port);
                queues.outputs[port] = window.queued();
                // Tuples are in the window from `W` slots before their own on.
                held[port] =
                    self.max_hold.map_or(0, |hold| window.left_until(slot + window.size() as i64 - hold));
                queues.mandatory[port] = window.mandatory().max(held[port]);
                backlog.q_rem += window.arrived() as f64;
                backlog.q_ahead += (window.queued() - window.arrived()) as f64;
            } else {
                queues.outputs[port] = output.len() as u64;
                let waited = |hold: i64| output.iter().take_while(|tuple| slot - tuple.since > hold).count();
                held[port] = self.max_hold.map_or(0, |hold| waited(hold) as u64);
                queues.mandatory[port] = held[port];
                backlog.q_out += output.len() as f64;
            }
        }
        backlog
    }

    fn count(&mut self, slot: i64, backlog: &Backlog, weighted: f64) {
        let sums = &mut self.sums;
        sums.slots += 1;
        sums.backlog.add(backlog);
        let of = u64::from(self.config.slots - self.config.warmup).max(1);
        let quarter = (slot as u64 - u64::from(self.config.warmup)) * 4 / of;
        let (sum, slots) = &mut sums.quarters[(quarter as usize).min(3)];
        *sum += weighted;
        *slots += 1;
        sums.deferred += self.decided.deferred;
        // What leaves at such a price and has waited for less than `max_hold` was admitted strictly.
        let forced = self.decided.forced.iter().zip(&self.held).map(|(forced, held)| forced.min(held));
        sums.forced += forced.sum::<u64>();
        if let Some((v, count, _)) = self.decider.weights {
            sums.v.0 += v;
            sums.v.1 += count;
        }
    }

    /// Tuples leave the senders and are at the targets' inputs, where they are worked on in the next slot at the
    /// earliest (equation 8).
    fn send(&mut self, measured: bool) -> Result<(), String> {
        let mut total = 0.0;
        for send in &self.decided.sends {
            let sender = self.world.ports[send.port].instance;
            let input = &mut self.inputs[send.target];
            if let Some(spout) = self.spout_of[sender] {
                let successor = send.port - self.world.instances[sender].port;
                let drawn = self.spouts[spout]
                    .draw(successor, send.rows, &mut self.roots, |root| input.push_back(root));
                self.ledger.drawn += drawn;
                if drawn != send.rows {
                    return Err(format!("port {} sends {} tuples and drew {drawn}", send.port, send.rows));
                }
            } else {
                let output = &mut self.outputs[send.port];
                input.extend(output.drain(..send.rows as usize).map(|tuple| tuple.root));
            }
            let from = self.world.instances[sender].container;
            self.known.sent(from, send.target, send.rows);
            let cost = self.world.cost(sender, send.target) * send.rows as f64;
            total += cost;
            if measured {
                self.sums.cost[self.world.app_of(sender)] += cost;
                self.sums.rows += send.rows;
            }
        }
        self.queues.total.0 = total;
        Ok(())
    }

    /// Bolts work on what was at their inputs when the slot began.
    fn serve(&mut self, slot: i64) {
        for instance in 0..self.inputs.len() {
            let capacity = u64::from(self.world.instances[instance].capacity);
            let tuples = capacity.min(self.queues.inputs[instance]);
            if tuples == 0 {
                continue;
            }
            let ports = self.world.ports_of(instance);
            let selectivity = self.world.selectivity(instance);
            self.ledger.served += tuples;
            for root in self.inputs[instance].drain(..tuples as usize) {
                let mut emitted = 0;
                for port in ports.clone() {
                    let exact = self.fractions[port] + selectivity;
                    let whole = exact.floor();
                    self.fractions[port] = exact - whole;
                    let output = &mut self.outputs[port];
                    output.extend(std::iter::repeat_n(Waiting { root, since: slot }, whole as usize));
                    emitted += whole as u32;
                }
                self.ledger.emitted += u64::from(emitted);
                self.roots.complete(root, slot, emitted);
            }
        }
    }

    fn answer(&mut self) {
        let measured = i64::from(self.config.warmup)..i64::from(self.config.slots);
        for answer in self.roots.drain() {
            self.ledger.answered += 1;
            if measured.contains(&answer.slot) {
                let app = self.world.app_of(self.spouts[answer.spout as usize].instance);
                self.sums.responses[app].add(answer.response);
            }
            if let Some(answers) = &mut self.answers {
                answers.push(answer);
            }
        }
    }

    fn outcome(&self) -> Outcome {
        let Self { config, world, sums, .. } = self;
        let slots = sums.slots as f64;
        let per_slot = |sum: f64| if slots > 0.0 { sum / slots } else { 0.0 };
        let beta = decide::beta(config.routing.options.beta).value();
        let errors = Errors::sum(self.forecasts.iter().map(Forecast::errors));
        let backlog = sums.backlog.over(slots);
        let mut all = Responses::default();
        sums.responses.iter().for_each(|of_app| all.merge(of_app));
        let quarter = |number: usize| {
            let (sum, slots) = sums.quarters[number];
            if slots > 0 { sum / slots as f64 } else { 0.0 }
        };
        let apps = config.apps.iter().enumerate().map(|(app, model)| AppOutcome {
            name: model.name.clone(),
            window: world.windows[app],
            instances: (0..world.instances.len()).filter(|one| world.app_of(*one) == app).count(),
            response: sums.responses[app].summary(sums.arrived[app]),
            cost_per_slot: per_slot(sums.cost[app]),
        });
        Outcome {
            seed: config.seed,
            instances: world.instances.len(),
            containers: world.costs.len(),
            slots: sums.slots,
            response: all.summary(sums.arrived.iter().sum()),
            cost_per_slot: per_slot(sums.cost.iter().sum()),
            tuples_per_slot: per_slot(sums.rows as f64),
            backlog,
            weighted_backlog: backlog.weighted(beta),
            growth: (quarter(3) - quarter(2)) / (slots / 4.0).max(1.0),
            deferred: sums.deferred,
            forced: sums.forced,
            foresight: Foresight {
                mse: errors.mse(),
                missing: errors.missing,
                late: errors.late,
                ..sums.foresight
            },
            weights: self
                .decider
                .weights
                .map(|(.., beta)| Weights { v: sums.v.0 / sums.v.1.max(1) as f64, beta }),
            apps: apps.collect(),
        }
    }
}
