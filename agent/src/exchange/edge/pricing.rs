//! Edges that price their targets: which rows may leave when, which must, and who decides.

use std::sync::Arc;
use std::time::Instant;

use tuplane_core::route::{
    Component, DEAL, Decision, Heaps, Order, Policies, Policy, RouteOptions, Scratch, Want, fast,
    policy_names, repriced,
};
use tuplane_wire::routing::DecidedEdge;

use super::ahead::{Ahead, Foresight};
use super::{Channels, Edge, Sender, State, policy_seed};
use crate::exchange::costs::Costs;
use crate::exchange::outlet::Outlets;
use crate::exchange::priced::{Asking, Here, Part, Priced, PricedSpec, Sends, Slots, Waits};
use crate::exchange::quota::Quota;
use crate::sync::{MutexGuard, lock};

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
    /// Its senders look ahead.
    pub(crate) ahead: Option<Foresight>,
}

/// Why an edge has no policy.
const NO_CHOICE: &str = "only unicast edges have a policy";

/// Its targets are priced. A policy of the user's own may hold rows: release rules and slots' ends are for it too.
fn prices(policy: &dyn Policy, route: &Route<'_>) -> bool {
    policy.reads_queues() || !policy_names().contains(&route.name)
}

impl Sender {
    fn choose_by(
        &mut self,
        policy: Box<dyn Policy>,
        prices: bool,
        edge: u32,
        route: &Route<'_>,
        now: Instant,
    ) {
        self.queue.set_policy(policy);
        self.queue.keep_ages(prices && route.ahead.is_none(), now);
        let (admission, slots) = (route.options.admission, (route.slots.clone(), route.options.slot));
        match (&mut self.ahead, route.ahead) {
            (Some(ahead), _) => ahead.admit(admission),
            (ahead, Some(foresight)) => {
                let waiting = self.queue.rows();
                *ahead = Some(Box::new(Ahead::new(foresight, slots, admission, waiting, now)));
            }
            (None, None) => {}
        }
        if let Some(quota) = &self.quota {
            let limit = route.options.gamma.filter(|_| prices);
            quota.set(edge, limit.map(|rows| (rows, route.options.slot)));
        }
    }
}

impl Edge {
    /// What a sender may send in a slot is counted over all its edges.
    pub(crate) fn share_quota(&self, sender: usize, quota: Arc<Quota>) {
        lock(&self.state).senders[sender].quota = Some(quota);
    }

    /// Gives each sender a new policy, and the edge what that needs.
    pub(crate) fn set_route(&self, route: &Route<'_>) -> Result<(), String> {
        let mut state = lock(&self.state);
        self.set_route_in(&mut state, route)?;
        self.settle(&mut state);
        Ok(())
    }

    /// Gives a sender that has joined the policy that the others have; what those have chosen and learnt stays.
    ///
    /// # Errors
    /// If the policy cannot be made.
    pub(crate) fn set_route_of(&self, sender: usize, route: &Route<'_>) -> Result<(), String> {
        let mut state = lock(&self.state);
        let made = self.policy_of(state.senders[sender].instance, route)?;
        if state.channels == Channels::Own || state.senders[sender].queue.policy().is_none() {
            return Err(NO_CHOICE.to_owned());
        }
        let prices = prices(&*made, route);
        state.senders[sender].choose_by(made, prices, self.index, route, Instant::now());
        Ok(())
    }

    fn policy_of(&self, instance: u32, route: &Route<'_>) -> Result<Box<dyn Policy>, String> {
        let made = route.policies.make(route.name, route.options, policy_seed(self.index, instance));
        made.map_err(|e| e.to_string())
    }

    pub(super) fn set_route_in(&self, state: &mut State, route: &Route<'_>) -> Result<(), String> {
        let mut made = Vec::new();
        for sender in &state.senders {
            made.push(self.policy_of(sender.instance, route)?);
        }
        let own = self.policy_of(u32::MAX, route)?;
        if state.channels == Channels::Own || state.senders.iter().any(|s| s.queue.policy().is_none()) {
            return Err(NO_CHOICE.to_owned());
        }
        let prices = prices(&*own, route);
        let now = Instant::now();
        for (sender, policy) in state.senders.iter_mut().zip(made) {
            sender.choose_by(policy, prices, self.index, route, now);
        }
        let outlets = &state.outlets[0];
        let costs = outlets.list().iter().map(|o| route.costs.to(o.agent, &route.options.cost)).collect();
        let priced = prices.then(|| {
            let spec = PricedSpec {
                options: route.options.clone(),
                policy: own,
                costs: Arc::clone(route.costs),
                edge: self.index,
                of_source: route.of_source,
                me: route.me,
                slots: route.slots.clone(),
            };
            Box::new(Priced::new(spec, outlets))
        });
        state.priced = priced;
        state.samples.costs = costs;
        route.given.clone_into(&mut state.samples.given);
        state.samples.options = route.options.clone();
        // Backlogs under another policy, or weighted by another beta, tell nothing of how this one goes on.
        state.samples.begin_series();
        // What the old policy held may go by the new one.
        for sender in 0..state.senders.len() {
            state.release(sender, self.deal);
        }
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
        self.counts.slots += 1;
        priced.slots.number(priced.options.slot, now) as usize % count
    }

    /// Looks at the targets, and begins the slot that an instant is in.
    fn look(&mut self, now: Instant) {
        self.senders.iter_mut().flat_map(|sender| &mut sender.ahead).for_each(|ahead| ahead.turn(now));
        let slot = match &mut self.priced {
            None => return,
            Some(priced) => match priced.next_slot(now) {
                Some(slot) => slot,
                None => return priced.see(&self.outlets[0], false, now),
            },
        };
        let here = Here {
            q_out: self.senders.iter().map(|sender| sender.queue.rows()).sum(),
            rate: self.pace.rate(now) / self.senders.len().max(1) as f64,
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
                priced.begin_slot(policy, slot, rows, &here);
            }
        }
    }

    /// Mean bytes of a row: of those that wait, else of those that have left.
    pub(super) fn row_bytes(&self) -> u64 {
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

    /// What a sender has, and what of it must leave (engine.md section 6, Release).
    fn waits(&self, number: usize, priced: &Priced, now: Instant) -> Waits {
        let Sender { queue, bound, ending, ahead, .. } = &self.senders[number];
        let q_out = queue.rows();
        if let Some(ahead) = ahead {
            // Rows to come fill no queue that those who have arrived would have to leave for.
            let to_come = ahead.to_come() * queue.bytes() / q_out.max(1);
            let over = if *ending { q_out } else { queue.rows_over(*bound + to_come) };
            return ahead.waits(over, priced.options.max_hold, now);
        }
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

    /// A sender's part of a decision over several edges, of which some keep it or none, if it has rows that may leave.
    fn part(&mut self, number: usize, keep: bool, now: Instant) -> Option<Part> {
        let may = self.pass_marks(number) && self.senders[number].queue.rows() > 0;
        let priced = self.priced.as_ref().filter(|_| may)?;
        Some(priced.part(self.waits(number, priced, now), keep))
    }

    /// Decides for one sender and this edge, and sends.
    fn decide_alone(&mut self, number: usize, between: bool, now: Instant) {
        let Some(mut priced) = self.priced.take() else { return };
        let waits = self.waits(number, &priced, now);
        let asking = self.asking(number, between, &priced, now);
        if priced.is_potus {
            let sends = priced.decide(waits, &asking);
            self.send(number, &waits, &sends, &asking);
        } else {
            let kept = priced.keeps().then(|| priced.part(waits, true).kept).flatten();
            let sends = self.send_by_choice(number, &mut priced, &waits, &asking);
            priced.took(kept, &waits, &sends, &asking);
        }
        self.priced = Some(priced);
    }

    /// A policy that is no POTUS chooses run by run. Gives what went where.
    fn send_by_choice(
        &mut self,
        number: usize,
        priced: &mut Priced,
        waits: &Waits,
        asking: &Asking,
    ) -> Sends {
        let (mut all, mut sent) = (Sends::default(), 0);
        while self.pass_marks(number) {
            let (queue, to) = (&mut self.senders[number].queue, &mut self.outlets[0]);
            let mandatory = waits.mandatory.saturating_sub(sent);
            let targets = priced.component().targets();
            let gamma = asking.gamma.saturating_sub(sent);
            let (more, forced) = match queue.release_among(to, targets, mandatory, asking.grain as u32, gamma)
            {
                Ok(sends) => (sends.rows, sends.forced),
                Err(cause) => {
                    self.fail(cause);
                    break;
                }
            };
            // The rows behind the mark, and the next sender, see what has been sent.
            priced.went(&more);
            priced.see(to, false, asking.now);
            sent += more.iter().map(|(_, rows)| rows).sum::<u64>();
            all.forced += forced;
            for (target, rows) in more {
                match all.rows.iter_mut().find(|(known, _)| *known == target) {
                    Some((_, known)) => *known += rows,
                    None => all.rows.push((target, rows)),
                }
            }
            if !queue.is_at_mark() {
                break;
            }
        }
        self.account(number, waits, &all, sent, asking);
        all
    }

    /// Sends rows as decided, as far as credit goes. A barrier that is reached holds the rest.
    fn send(&mut self, number: usize, waits: &Waits, sends: &Sends, asking: &Asking) {
        let mut all = 0;
        'sends: for (target, rows) in &sends.rows {
            let mut left = *rows;
            while left > 0 {
                if !self.pass_marks(number) {
                    break 'sends;
                }
                let queue = &mut self.senders[number].queue;
                let sent = queue.send(&mut self.outlets[0], *target, left);
                if let Some(ahead) = &mut self.senders[number].ahead {
                    ahead.left(sent);
                }
                let queue = &self.senders[number].queue;
                (left, all) = (left - sent, all + sent);
                // A mark stands in front, or the channel is full.
                if sent == 0 && !queue.is_at_mark() {
                    break;
                }
            }
        }
        self.pass_marks(number);
        self.account(number, waits, sends, all, asking);
    }

    /// So many rows of what was decided have left.
    fn account(&mut self, number: usize, waits: &Waits, sends: &Sends, left: u64, asking: &Asking) {
        self.counts.add(waits, sends, left, asking.between);
        if let Some(quota) = &self.senders[number].quota {
            quota.spend(left, asking.now);
        }
    }
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
    // A sender that joins has done so on all of its edges before it sends.
    let count = states.iter().map(|state| state.senders.len()).min().unwrap_or(0);
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
        // Where one edge keeps decisions, it keeps them whole.
        let keep = states.iter().any(|state| state.priced.as_ref().is_some_and(|priced| priced.keeps()));
        let parts: Vec<Option<Part>> = states.iter_mut().map(|state| state.part(number, keep, now)).collect();
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
            if let Some(priced) = states[index].priced.as_mut().filter(|priced| priced.keeps()) {
                priced.note(decision, &asking, kept.clone());
            }
            states[index].send(number, &part.waits, &Sends::of(decision, want), &asking);
        }
    }
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests;
