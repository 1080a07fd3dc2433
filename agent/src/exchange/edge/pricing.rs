//! Edges that price their targets: which rows may leave when, which must, and who decides.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use tuplane_core::route::{
    Component, Cost, DEAL, Decision, Heaps, Order, Policies, Price, RouteOptions, Scratch, Setting, Want,
    fast, repriced,
};
use tuplane_wire::routing::{DecidedEdge, EdgeRouting, InForce, TargetRouting, Trend};

use super::{Channels, Edge, PACE_WINDOW, Sender, State, policy_seed};
use crate::exchange::costs::Costs;
use crate::exchange::outlet::{Link, Outlets};
use crate::exchange::priced::{Asking, Here, Part, Priced, PricedSpec, Sends, Slots, Waits};
use crate::exchange::quota::Quota;
use crate::sync::{MutexGuard, lock};

/// Samples for rates and shares: two seconds.
const RECENT: usize = 8;
/// Samples for the trend: ten seconds.
const TREND: usize = 40;

/// How an edge is to choose its targets.
#[derive(Debug)]
pub(crate) struct Route<'a> {
    pub(crate) policies: &'a Policies,
    pub(crate) name: &'a str,
    pub(crate) options: &'a RouteOptions,
    /// The options as they were given, as a JSON object.
    pub(crate) given: &'a str,
    pub(crate) costs: &'a Arc<Costs>,
    /// Its senders are sources.
    pub(crate) of_source: bool,
    /// This agent's index in the run.
    pub(crate) me: u16,
    pub(crate) slots: &'a Slots,
}

/// What is shown of an edge beside its counters.
#[derive(Debug, Default)]
pub(super) struct Samples {
    given: String,
    options: RouteOptions,
    costs: Vec<Cost>,
    /// Rows sent by target, and when.
    sent: VecDeque<(Instant, Vec<u64>)>,
    backlogs: VecDeque<f64>,
}

impl Edge {
    /// What a sender may send in a slot is counted over all its edges.
    pub(crate) fn share_quota(&self, sender: usize, quota: Arc<Quota>) {
        lock(&self.state).senders[sender].quota = Some(quota);
    }

    /// Gives each sender a new policy, and the edge what that needs.
    pub(crate) fn set_route(&self, route: &Route<'_>) -> Result<(), String> {
        let make = |instance: u32| {
            let made = route.policies.make(route.name, route.options, policy_seed(self.index, instance));
            made.map_err(|e| e.to_string())
        };
        let mut state = lock(&self.state);
        let mut made = Vec::new();
        for sender in &state.senders {
            made.push(make(sender.instance)?);
        }
        let own = make(u32::MAX)?;
        if state.channels == Channels::Own || state.senders.iter().any(|s| s.queue.policy().is_none()) {
            return Err("only unicast edges have a policy".to_owned());
        }
        let reads = own.reads_queues();
        let now = Instant::now();
        for (sender, policy) in state.senders.iter_mut().zip(made) {
            sender.queue.set_policy(policy);
            sender.queue.keep_ages(reads, now);
            if let Some(quota) = &sender.quota {
                let limit = route.options.gamma.filter(|_| reads);
                quota.set(self.index, limit.map(|rows| (rows, route.options.slot)));
            }
        }
        let outlets = &state.outlets[0];
        let costs = outlets.list().iter().map(|o| route.costs.to(o.agent, &route.options.cost)).collect();
        let priced = reads.then(|| {
            let spec = PricedSpec {
                options: route.options.clone(),
                policy: own,
                costs: Arc::clone(route.costs),
                edge: self.index,
                of_source: route.of_source,
                me: route.me,
                slots: route.slots.clone(),
            };
            let mut priced = Box::new(Priced::new(spec, outlets));
            priced.counts = state.priced.as_ref().map(|old| old.counts).unwrap_or_default();
            priced
        });
        state.priced = priced;
        state.samples.costs = costs;
        route.given.clone_into(&mut state.samples.given);
        state.samples.options = route.options.clone();
        // What the old policy held may go by the new one.
        for sender in 0..state.senders.len() {
            state.release(sender, self.deal);
        }
        self.settle(&mut state);
        Ok(())
    }

    /// It holds rows until this slot's end.
    pub(crate) fn due(&self) -> Option<Instant> {
        let state = lock(&self.state);
        state.priced.as_ref().filter(|_| !state.closed)?.due
    }

    /// Its decisions share a quota with those of its senders' other edges, and are made together with those that do so
    /// in the same way: prices follow each row, or not. `None` for one that decides alone.
    pub(crate) fn decides_with(&self) -> Option<bool> {
        let state = lock(&self.state);
        let priced = state.priced.as_ref().filter(|priced| priced.is_potus)?;
        priced.options.gamma.map(|_| priced.options.reprice)
    }

    /// A slot has ended: senders that hold rows take turns.
    pub(crate) fn tick(&self, now: Instant) {
        let mut state = lock(&self.state);
        if state.closed || state.priced.as_ref().is_none_or(|p| p.due.is_none_or(|due| due > now)) {
            return;
        }
        let first = state.begin_tick(now);
        let count = state.senders.len();
        for number in (0..count).map(|step| (first + step) % count) {
            let was_full = state.senders[number].is_queue_full();
            if state.pass_marks(number) && state.senders[number].queue.rows() > 0 {
                state.decide_alone(number, false, now);
            }
            state.end_release(number, was_full, now);
            self.refill(&mut state, number);
        }
        state.outlets.iter().for_each(Outlets::flush);
        self.settle(&mut state);
    }

    /// Four times a second: what rates, shares and the trend are made of.
    pub(crate) fn sample(&self, now: Instant) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        let backlog = state.backlog(now);
        let sent = state.outlets[0].list().iter().map(|o| o.sent_rows).collect();
        let samples = &mut state.samples;
        if samples.sent.len() > RECENT {
            samples.sent.pop_front();
        }
        samples.sent.push_back((now, sent));
        if samples.backlogs.len() >= TREND {
            samples.backlogs.pop_front();
        }
        samples.backlogs.push_back(backlog);
    }

    /// How it stands; `None` for an edge that has no choice. The newest decisions come with it, as many as `bytes`
    /// hold, which they are taken off.
    pub(crate) fn routing(&self, bytes: &mut u64) -> Option<EdgeRouting> {
        let now = Instant::now();
        let state = lock(&self.state);
        let policy = state.senders.first()?.queue.policy()?.to_owned();
        let samples = &state.samples;
        let priced = state.priced.as_deref();
        let (v, beta) = match priced.and_then(Priced::weights) {
            Some((v, beta)) => (
                Some(InForce { rule: samples.options.v.to_string(), value: v.value() }),
                Some(InForce { rule: samples.options.beta.to_string(), value: beta.value() }),
            ),
            None => (None, None),
        };
        let counts = priced.map(|priced| priced.counts).unwrap_or_default();
        let bound = state.senders.iter().map(|s| s.bound).min().unwrap_or(0);
        Some(EdgeRouting {
            edge: self.index,
            policy,
            options: samples.given.clone(),
            setting: match samples.options.setting {
                Setting::Paper => "paper",
                Setting::Default => "default",
            }
            .to_owned(),
            slot_us: samples.options.slot.as_micros() as u64,
            v,
            beta,
            gamma: samples.options.gamma.filter(|_| priced.is_some()),
            queued_out: state.senders.iter().map(Sender::rows).sum(),
            longest_out: state.longest_out(),
            backlog: state.backlog(now),
            backlogs: samples.backlogs.iter().copied().collect(),
            trend: trend(&samples.backlogs),
            slots: counts.slots,
            deferred: counts.deferred,
            forced: counts.forced,
            warnings: priced.and_then(|p| p.warning(bound, state.row_bytes())).into_iter().collect(),
            targets: state.targets(now),
            decisions: priced.map(|priced| priced.newest(bytes)).unwrap_or_default(),
        })
    }
}

impl State {
    /// As [`State::release`], for an edge that prices: what may leave between two slots does, the rest is held.
    pub(super) fn release_priced(&mut self, number: usize) {
        let was_full = self.senders[number].is_queue_full();
        let may = self.pass_marks(number);
        if may && self.senders[number].queue.rows() > 0 {
            let now = Instant::now();
            if self.priced.as_ref().is_some_and(|priced| priced.options.between_slots) {
                self.look(now);
                self.decide_alone(number, true, now);
            }
            self.end_release(number, was_full, now);
        } else if was_full && !self.senders[number].is_queue_full() {
            self.senders[number].room.notify_one();
        }
    }

    /// Holds what is left until the slot's end, and says that there is room.
    fn end_release(&mut self, number: usize, was_full: bool, now: Instant) {
        let sender = &self.senders[number];
        if sender.queue.rows() > 0
            && sender.barrier.is_none()
            && let Some(priced) = &mut self.priced
        {
            priced.hold(now);
        }
        if was_full && !sender.is_queue_full() {
            sender.room.notify_one();
        }
    }

    /// A slot's end: its number says who goes first.
    fn begin_tick(&mut self, now: Instant) -> usize {
        self.look(now);
        let count = self.senders.len().max(1);
        let Some(priced) = &mut self.priced else { return 0 };
        priced.due = None;
        priced.counts.slots += 1;
        priced.slots.number(priced.options.slot, now) as usize % count
    }

    /// Looks at the targets, and begins the slot that an instant is in.
    fn look(&mut self, now: Instant) {
        let slot = match &mut self.priced {
            None => return,
            Some(priced) => match priced.next_slot(now) {
                Some(slot) => slot,
                None => return priced.see(&self.outlets[0], false, now),
            },
        };
        let here = Here {
            q_out: self.senders.iter().map(|sender| sender.queue.rows()).sum(),
            rate: self.pace.last as f64 / PACE_WINDOW.as_secs_f64() / self.senders.len().max(1) as f64,
            bound: self.senders.first().map_or(0.0, |sender| sender.bound as f64),
            row_bytes: self.row_bytes(),
        };
        let Self { senders, outlets, priced, .. } = self;
        let Some(priced) = priced else { return };
        priced.turn(slot, &outlets[0], &here, now);
        if priced.is_potus {
            return;
        }
        for sender in senders {
            let rows = sender.queue.rows();
            if let Some(policy) = sender.queue.policy_mut() {
                priced.begin_slot(policy, slot, rows);
            }
        }
    }

    /// Mean bytes of a row: of those that wait, else of those that have left.
    fn row_bytes(&self) -> u64 {
        let (rows, bytes) = self
            .senders
            .iter()
            .fold((0, 0), |(rows, bytes), s| (rows + s.queue.rows(), bytes + s.queue.bytes()));
        if rows > 0 {
            return bytes.div_ceil(rows).max(1);
        }
        let all = self.outlets.iter().flat_map(Outlets::list);
        let (rows, bytes) = all.fold((0, 0), |(rows, bytes), o| (rows + o.sent_rows, bytes + o.sent_bytes));
        bytes.checked_div(rows).unwrap_or(0)
    }

    fn longest_out(&self) -> u64 {
        self.senders.iter().map(|sender| sender.queue.rows()).max().unwrap_or(0)
    }

    /// What a sender has, and what of it must leave (engine.md section 6, Release).
    fn waits(&self, number: usize, priced: &Priced, now: Instant) -> Waits {
        let Sender { queue, bound, ending, .. } = &self.senders[number];
        let q_out = queue.rows();
        let old = || {
            let limit = priced.options.max_hold.and_then(|hold| now.checked_sub(hold));
            limit.map_or(0, |limit| queue.before(limit))
        };
        let forced = if *ending { q_out } else { queue.rows_over(*bound).max(old()).min(q_out) };
        Waits { q_out, forced, mandatory: if priced.admits_all() { q_out } else { forced } }
    }

    fn asking(&self, number: usize, between: bool, priced: &Priced, now: Instant) -> Asking {
        let sender = &self.senders[number];
        let deal = priced.options.deal.clamp(1, DEAL);
        Asking {
            sender: sender.instance,
            gamma: sender.quota.as_ref().map_or(u64::MAX, |quota| quota.left(now)),
            grain: if self.pace.is_slow() { 1 } else { u64::from(deal) },
            between,
            now,
        }
    }

    /// A sender's part of a decision over several edges, if it has rows that may leave.
    fn part(&mut self, number: usize, now: Instant) -> Option<Part> {
        let may = self.pass_marks(number) && self.senders[number].queue.rows() > 0;
        let priced = self.priced.as_ref().filter(|_| may)?;
        Some(priced.part(self.waits(number, priced, now)))
    }

    /// Decides for one sender and this edge, and sends.
    fn decide_alone(&mut self, number: usize, between: bool, now: Instant) {
        let Some(mut priced) = self.priced.take() else { return };
        let waits = self.waits(number, &priced, now);
        let asking = self.asking(number, between, &priced, now);
        if priced.is_potus {
            let sends = priced.decide(waits, &asking);
            self.send(number, &sends);
        } else {
            self.send_by_choice(number, &priced, &waits, &asking);
        }
        self.priced = Some(priced);
    }

    /// A policy that is no POTUS chooses run by run.
    fn send_by_choice(&mut self, number: usize, priced: &Priced, waits: &Waits, asking: &Asking) {
        let mut sent = 0;
        while self.pass_marks(number) {
            let (queue, to) = (&mut self.senders[number].queue, &mut self.outlets[0]);
            let mandatory = waits.mandatory.saturating_sub(sent);
            let targets = priced.component().targets();
            sent += queue.release_among(to, targets, mandatory, asking.grain as u32, asking.gamma - sent);
            if !queue.is_at_mark() {
                break;
            }
        }
        self.spend(number, sent);
    }

    /// Sends rows as decided, as far as credit goes. A barrier that is reached holds the rest.
    fn send(&mut self, number: usize, sends: &Sends) {
        let mut all = 0;
        'sends: for (target, rows) in sends {
            let mut left = *rows;
            while left > 0 {
                if !self.pass_marks(number) {
                    break 'sends;
                }
                let queue = &mut self.senders[number].queue;
                let sent = queue.send(&mut self.outlets[0], *target, left);
                (left, all) = (left - sent, all + sent);
                // A mark stands in front, or the channel is full.
                if sent == 0 && !queue.is_at_mark() {
                    break;
                }
            }
        }
        self.pass_marks(number);
        self.spend(number, all);
    }

    fn spend(&self, number: usize, rows: u64) {
        if let Some(quota) = &self.senders[number].quota {
            quota.spend(rows);
        }
    }

    /// Rows at the targets, and `beta` times those that wait here.
    fn backlog(&self, now: Instant) -> f64 {
        let outlets = &self.outlets[0];
        let there: u64 = (0..outlets.list().len()).map(|target| outlets.queued(target, now, true)).sum();
        let here: u64 = self.senders.iter().map(Sender::rows).sum();
        let beta = self.priced.as_ref().and_then(|p| p.weights()).map_or(1.0, |(_, beta)| beta.value());
        there as f64 + beta * here as f64
    }

    fn targets(&self, now: Instant) -> Vec<TargetRouting> {
        let outlets = &self.outlets[0];
        let samples = &self.samples;
        let first = samples.sent.front();
        let span = first.map_or(0.0, |(at, _)| now.saturating_duration_since(*at).as_secs_f64());
        let since = |index: usize| {
            let before = first.and_then(|(_, rows)| rows.get(index)).copied();
            outlets.list()[index].sent_rows.saturating_sub(before.unwrap_or(0))
        };
        let all: u64 = (0..outlets.list().len()).map(since).sum();
        let q_out = self.longest_out();
        let target = |(index, outlet): (usize, &crate::exchange::outlet::Outlet)| {
            let seen = self.priced.as_ref().and_then(|p| Some((p, p.component().targets().get(index)?)));
            let cost = seen.map_or_else(
                || samples.costs.get(index).copied().unwrap_or_default().value(),
                |(_, target)| target.cost.value(),
            );
            let rate = if span > 0.0 { since(index) as f64 / span } else { 0.0 };
            let local = matches!(outlet.link, Link::Local { .. });
            TargetRouting {
                instance: outlet.instance,
                agent: outlet.agent,
                rows: outlet.sent_rows,
                share: if all > 0 { since(index) as f64 / all as f64 } else { 0.0 },
                rows_per_second: rate,
                cost,
                cost_per_second: cost * rate,
                queued: outlets.queued(index, now, true),
                age_ms: outlets.age(index, now).filter(|_| !local).map(|age| age.as_millis() as u64),
                open: outlet.credit.left(outlet.sent_bytes) > 0,
                masked: outlets.is_silent(index, now),
                price: seen
                    .and_then(|(priced, _)| priced.terms(index, q_out))
                    .map(|terms| [terms.price(), terms.way, terms.target, terms.sender].map(Price::value)),
            }
        };
        outlets.list().iter().enumerate().map(target).collect()
    }
}

/// Over at least five seconds: the last third of them against the first.
fn trend(backlogs: &VecDeque<f64>) -> Trend {
    let third = backlogs.len() / 3;
    if backlogs.len() < TREND / 2 {
        return Trend::Unknown;
    }
    let mean = |part: &mut dyn Iterator<Item = &f64>| part.take(third).sum::<f64>() / third as f64;
    let (first, last) = (mean(&mut backlogs.iter()), mean(&mut backlogs.iter().rev()));
    if last > first * 1.25 + 10.0 { Trend::Growing } else { Trend::Stable }
}

/// A slot's end for edges whose senders share their quotas: decided over all edges of a sender at once. The edges
/// are those of one vertex, in the order of their indices: nobody else holds two of them.
pub(crate) fn tick_together(edges: &[Arc<Edge>], now: Instant) {
    let mut states: Vec<_> = edges.iter().map(|edge| lock(&edge.state)).collect();
    if states.iter().any(|state| state.closed || state.priced.is_none()) {
        return;
    }
    let first = states.iter_mut().map(|state| state.begin_tick(now)).last().unwrap_or(0);
    let mut decider = Decider::default();
    let count = states.first().map_or(0, |state| state.senders.len());
    for number in (0..count).map(|step| (first + step) % count) {
        let full: Vec<bool> = states.iter().map(|state| state.senders[number].is_queue_full()).collect();
        decider.decide(&mut states, number, now);
        for ((edge, state), was_full) in edges.iter().zip(&mut states).zip(full) {
            state.end_release(number, was_full, now);
            edge.refill(state, number);
        }
    }
    for (edge, state) in edges.iter().zip(&mut states) {
        state.outlets.iter().for_each(Outlets::flush);
        edge.settle(state);
    }
}

/// Decides for one sender over several edges.
#[derive(Default)]
struct Decider {
    heaps: Heaps,
    scratch: Scratch,
    decision: Decision,
}

impl Decider {
    fn decide(&mut self, states: &mut [MutexGuard<'_, State>], number: usize, now: Instant) {
        let parts: Vec<Option<Part>> = states.iter_mut().map(|state| state.part(number, now)).collect();
        let wants: Vec<Want> =
            parts.iter().enumerate().filter_map(|(index, part)| Some(part.as_ref()?.want(index))).collect();
        let Some(priced) = states.first().and_then(|state| state.priced.as_ref()) else { return };
        if wants.is_empty() {
            return;
        }
        let (reprice, asking) = (priced.options.reprice, states[0].asking(number, false, priced, now));
        let grain =
            states.iter().filter_map(|s| Some(s.asking(number, false, s.priced.as_ref()?, now).grain)).min();
        let asking = Asking { grain: grain.unwrap_or(1), ..asking };
        let lent = states.iter_mut().filter_map(|state| state.priced.as_mut()).map(|priced| priced.lend());
        let (mut components, mut orders): (Vec<Component>, Vec<Order>) = lent.unzip();
        let Self { heaps, scratch, decision } = self;
        if reprice {
            repriced(&wants, asking.gamma, &mut components, asking.grain, heaps, decision);
        } else {
            fast(&wants, asking.gamma, &mut components, &mut orders, scratch, decision);
        }
        let owners = states.iter_mut().filter_map(|state| state.priced.as_mut());
        for (priced, (component, order)) in owners.zip(components.into_iter().zip(orders)) {
            priced.give_back(component, order);
        }
        let kept: Vec<DecidedEdge> = parts.iter().flatten().filter_map(|part| part.kept.clone()).collect();
        let asked = parts.iter().enumerate().filter_map(|(index, part)| Some((index, part.as_ref()?)));
        for (want, (index, part)) in asked.enumerate() {
            let Some(priced) = &mut states[index].priced else { continue };
            if part.kept.is_some() && kept.len() == wants.len() {
                priced.note(decision, &asking, kept.clone());
            }
            let sends = priced.take(want, part, decision, &asking);
            states[index].send(number, &sends);
        }
    }
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests;
