//! An edge whose policy looks at queues, or is the user's own: what its targets look like from here, what is decided, and what came of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tuplane_core::route::{
    Admission, Component, Cost, CostSource, Decision, Dispatch, Heaps, Order, Policy, Price, Rank,
    RouteOptions, Scratch, Seen, Target, Terms, Waiting, Want, Weight, fast, repriced,
};
use tuplane_wire::routing::{Decided, DecidedEdge, DecidedTarget};

use super::costs::{self, Costs};
use super::outlet::Outlets;

/// Measured costs are looked at so often.
const MEASURE: Duration = Duration::from_millis(250);

/// What edges of one run share: when slots began, and who is told that rows are held.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    /// Slots are counted from here.
    pub(crate) began: Instant,
    /// An edge holds rows: they need a slot's end.
    pub(crate) held: Arc<Notify>,
}

impl Slots {
    /// They begin now.
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), held: Arc::default() }
    }

    /// The slot of this length that an instant is in.
    pub(crate) fn number(&self, slot: Duration, now: Instant) -> i64 {
        (now.saturating_duration_since(self.began).as_nanos() / slot.as_nanos().max(1)) as i64
    }

    /// When the next one begins.
    pub(crate) fn next(&self, slot: Duration, now: Instant) -> Instant {
        self.begin_of(slot, self.number(slot, now) + 1)
    }

    /// When the one with this number begins; those before the first begin with it.
    pub(crate) fn begin_of(&self, slot: Duration, number: i64) -> Instant {
        let number = u128::try_from(number).unwrap_or(0);
        self.began + Duration::from_nanos((slot.as_nanos() * number) as u64)
    }
}

/// What an edge has to know to price its targets.
#[derive(Debug)]
pub(crate) struct PricedSpec {
    pub(crate) options: RouteOptions,
    /// Gives `V` and `beta`, if it has them.
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) costs: Arc<Costs>,
    /// The edge's index in the plan.
    pub(crate) edge: u32,
    /// Its senders are sources: under strict admission nothing of them waits.
    pub(crate) of_source: bool,
    /// This agent's index in the run.
    pub(crate) me: u16,
    pub(crate) slots: Slots,
}

/// The state of an edge that prices its targets.
#[derive(Debug)]
pub(crate) struct Priced {
    pub(crate) options: RouteOptions,
    policy: Box<dyn Policy>,
    /// It is POTUS, which core decides for all edges of a sender at once; another policy is asked run by run.
    pub(crate) is_potus: bool,
    /// It looks at queues: their lengths are found out for it.
    reads: bool,
    edge: u32,
    of_source: bool,
    pub(crate) slots: Slots,
    /// It holds rows: what they wait for is this slot's end.
    pub(crate) due: Option<Instant>,
    me: u16,
    costs: Vec<Cost>,
    /// Its table of costs names nobody.
    misnamed: Option<String>,
    measured_at: Option<Instant>,
    component: Component,
    /// Targets that are left out: nothing is heard of their agents.
    masked: Vec<bool>,
    order: Order,
    scratch: Scratch,
    heaps: Heaps,
    decision: Decision,
    slot: Option<i64>,
    /// Mean bytes of a row as the slot began.
    row_bytes: u64,
    v: Weight,
    beta: Weight,
    record: VecDeque<Decided>,
}

/// What has happened on an edge so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Slots in which it decided.
    pub(crate) slots: u64,
    pub(crate) deferred: u64,
    pub(crate) forced: u64,
}

/// What one sender has for an edge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    pub(crate) q_out: u64,
    /// Rows that have to leave: arrivals under strict admission, or by a release rule.
    pub(crate) mandatory: u64,
    /// Of these those that only a release rule lets go.
    pub(crate) forced: u64,
}

/// What an edge's senders have in common.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Here {
    /// Rows that wait, over all of them.
    pub(crate) q_out: u64,
    /// Rows a second of one of them.
    pub(crate) rate: f64,
    /// Bytes that one of them may have waiting; an input queue's bound is the same.
    pub(crate) bound: f64,
    /// Mean bytes of a row.
    pub(crate) row_bytes: u64,
}

/// One sender's part of a decision: what it wants of one edge.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) waits: Waits,
    beta: Weight,
    /// What the decision is made from, where it is to be kept.
    pub(crate) kept: Option<DecidedEdge>,
}

impl Part {
    /// The want, where the edge is the component of this index.
    pub(crate) fn want(&self, component: usize) -> Want {
        Want { component, beta: self.beta, q_out: self.waits.q_out, mandatory: self.waits.mandatory }
    }
}

impl Here {
    /// What rules go by, for a sender with so many rows.
    fn seen<'a>(&self, targets: &'a [Target], q_out: u64) -> Seen<'a> {
        Seen { rate: Some(self.rate), bounds: Some((self.bound, self.bound)), ..Seen::new(targets, q_out) }
    }
}

impl Sends {
    /// What a decision has for the edge that had the want of this index; rows for one target together.
    pub(crate) fn of(decision: &Decision, want: usize) -> Self {
        let mut all = Self { rows: Vec::new(), forced: decision.forced.get(want).copied().unwrap_or(0) };
        for send in decision.sends.iter().filter(|send| send.want == want) {
            match all.rows.iter_mut().find(|(target, _)| *target == send.target) {
                Some((_, rows)) => *rows += send.rows,
                None => all.rows.push((send.target, send.rows)),
            }
        }
        all
    }
}

impl Counts {
    /// A sender's decision has been carried out as far as credit went: `left` rows. What did not leave will be decided
    /// again; of forced rows it counts as the last.
    pub(crate) fn add(&mut self, waits: &Waits, sends: &Sends, left: u64, between: bool) {
        let stayed = sends.rows.iter().map(|(_, rows)| rows).sum::<u64>().saturating_sub(left);
        self.forced += sends.forced.min(waits.forced).saturating_sub(stayed);
        if !between {
            self.deferred += waits.mandatory.saturating_sub(left);
        }
    }
}

fn decided(target: &Target) -> DecidedTarget {
    DecidedTarget {
        instance: target.instance,
        queued: target.queued,
        credit: target.credit,
        cost: target.cost.value(),
    }
}

/// Who decides, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking {
    /// The sending instance.
    pub(crate) sender: u32,
    /// Rows that it may send.
    pub(crate) gamma: u64,
    /// Rows of one run at least, where prices follow each row.
    pub(crate) grain: u64,
    /// Between two slots, as rows come.
    pub(crate) between: bool,
    pub(crate) now: Instant,
}

/// What one edge has of a decision.
#[derive(Debug, Default)]
pub(crate) struct Sends {
    /// Rows by target.
    pub(crate) rows: Vec<(usize, u64)>,
    /// Of these the rows that had to leave and whose price was 0 or more.
    pub(crate) forced: u64,
}

impl Priced {
    pub(crate) fn new(spec: PricedSpec, outlets: &Outlets) -> Self {
        let PricedSpec { options, policy, costs, edge, of_source, me, slots } = spec;
        let targets = outlets.list().iter().map(|o| Target::new(o.instance)).collect();
        let component = Component::new(Weight::default(), targets);
        Self {
            is_potus: policy.name() == "potus",
            reads: policy.reads_queues(),
            policy,
            edge,
            of_source,
            slots,
            due: None,
            me,
            misnamed: costs.warning(&options.cost),
            costs: outlets.list().iter().map(|o| costs.to(o.agent, &options.cost)).collect(),
            measured_at: None,
            masked: vec![false; outlets.list().len()],
            order: Order::of(&component),
            component,
            scratch: Scratch::default(),
            heaps: Heaps::default(),
            decision: Decision::default(),
            slot: None,
            row_bytes: 1,
            v: Weight::default(),
            beta: Weight::default(),
            record: VecDeque::new(),
            options,
        }
    }

    /// Its targets as they were seen last.
    pub(crate) fn component(&self) -> &Component {
        &self.component
    }

    /// `V` and `beta` in force, if the policy has them.
    pub(crate) fn weights(&self) -> Option<(Weight, Weight)> {
        self.policy.weights()
    }

    /// The terms of the price of a target for a sender with so many rows.
    pub(crate) fn terms(&self, target: usize, q_out: u64) -> Option<Terms> {
        let waiting = Waiting { rows: q_out.max(1), mandatory: 0, deal: 1 };
        // At an empty sender nothing presses.
        let terms = self.policy.terms(&waiting, &self.component.targets()[target])?;
        Some(if q_out == 0 { Terms { sender: Price::default(), ..terms } } else { terms })
    }

    /// What it holds is looked at again at the end of this slot.
    pub(crate) fn hold(&mut self, now: Instant) {
        if self.due.is_none() {
            self.due = Some(self.slots.next(self.options.slot, now));
            self.slots.held.notify_one();
        }
    }

    /// Under strict admission what a source has leaves in the slot in which it arrived.
    pub(crate) fn admits_all(&self) -> bool {
        self.of_source && self.options.admission == Admission::Strict
    }

    /// The newest decisions that were kept, as many as so many bytes hold, the oldest first.
    pub(crate) fn newest(&self, bytes: &mut u64) -> Vec<Decided> {
        let mut kept = VecDeque::new();
        for decided in self.record.iter().rev() {
            let targets: usize = decided.edges.iter().map(|edge| edge.targets.len()).sum();
            // At most: numbers are shorter on the wire than here.
            let size = 128 + 64 * decided.edges.len() + 40 * targets + 24 * decided.sends.len();
            let Some(left) = bytes.checked_sub(size as u64) else { break };
            *bytes = left;
            kept.push_front(decided.clone());
        }
        kept.into()
    }

    /// What was decided here, to be kept when other targets take the place of these.
    pub(crate) fn take_record(&mut self) -> VecDeque<Decided> {
        std::mem::take(&mut self.record)
    }

    /// Puts what was decided before in front of what has been decided since, as much of it as is kept.
    pub(crate) fn recall(&mut self, before: VecDeque<Decided>) {
        let room = self.options.record.saturating_sub(self.record.len());
        for decided in before.into_iter().rev().take(room) {
            self.record.push_front(decided);
        }
    }

    /// The slot that an instant is in, if it has not begun here yet.
    pub(crate) fn next_slot(&self, now: Instant) -> Option<i64> {
        Some(self.slots.number(self.options.slot, now)).filter(|slot| self.slot != Some(*slot))
    }

    /// A slot begins: ranks, costs and weights are its own from now on.
    pub(crate) fn turn(&mut self, slot: i64, outlets: &Outlets, here: &Here, now: Instant) {
        self.slot = Some(slot);
        self.row_bytes = here.row_bytes.max(1);
        self.measure(outlets, now);
        let me = self.me;
        for target in self.component.targets_mut() {
            target.rank = Rank::drawn(target.instance, slot, me);
        }
        self.see(outlets, true, now);
        self.policy.begin_slot(slot, &here.seen(self.component.targets(), here.q_out));
        if let Some((v, beta)) = self.policy.weights() {
            (self.v, self.beta) = (v, beta);
            self.component.set_v(v);
            self.component.refresh();
            self.order.reset(&self.component);
        }
    }

    /// Tells a sender's own policy of the slot that has begun.
    pub(crate) fn begin_slot(&self, policy: &mut dyn Policy, slot: i64, q_out: u64, here: &Here) {
        policy.begin_slot(slot, &here.seen(self.component.targets(), q_out));
    }

    /// So many rows went to its targets: where lengths are those of the slot's beginning, they count there at once.
    pub(crate) fn went(&mut self, rows: &[(usize, u64)]) {
        if !self.options.fresh_notes {
            for (target, rows) in rows {
                self.component.targets_mut()[*target].take(*rows);
            }
        }
    }

    fn measure(&mut self, outlets: &Outlets, now: Instant) {
        let due = self.measured_at.is_none_or(|at| now.saturating_duration_since(at) >= MEASURE);
        if self.options.cost != CostSource::Measured || !due {
            return;
        }
        self.measured_at = Some(now);
        for (cost, outlet) in self.costs.iter_mut().zip(outlets.list()) {
            *cost = costs::measured(outlet, *cost);
        }
    }

    /// Looks at the targets: credit now, and queues unless those of the slot's beginning hold.
    pub(crate) fn see(&mut self, outlets: &Outlets, begins: bool, now: Instant) {
        let lengths = self.reads && (begins || self.options.fresh_notes);
        for (index, target) in self.component.targets_mut().iter_mut().enumerate() {
            target.credit = outlets.rows_open(index, self.row_bytes);
            self.masked[index] = outlets.is_silent(index, now);
            target.cost = self.costs[index];
            if lengths {
                target.queued = outlets.queued(index, now, self.options.dead_reckoning);
            }
        }
        // One whose agent is not heard of gets nothing while there is another, be that full: how long its queue is by
        // now nobody knows (F22).
        if self.masked.contains(&false) {
            for (target, masked) in self.component.targets_mut().iter_mut().zip(&self.masked) {
                if *masked {
                    target.credit = 0;
                }
            }
        }
        self.component.refresh();
        self.order.reset(&self.component);
    }

    /// One sender's part of a decision that is about to be made, which some edge keeps or none.
    pub(crate) fn part(&self, waits: Waits, keep: bool) -> Part {
        let targets = self.component.targets();
        let kept = keep.then(|| DecidedEdge {
            edge: self.edge,
            v: self.v.value(),
            beta: self.beta.value(),
            q_out: waits.q_out,
            mandatory: waits.mandatory,
            targets: targets.iter().map(decided).collect(),
        });
        Part { waits, beta: self.beta, kept }
    }

    /// Its decisions are kept.
    pub(crate) fn keeps(&self) -> bool {
        self.options.record > 0
    }

    /// Some target takes a row of a sender with so many at a price below 0.
    fn is_worth_it(&self, q_out: u64) -> bool {
        let price =
            |target: &Target| Terms::new(self.v, target.cost, target.queued, self.beta, q_out).price();
        self.component.targets().iter().any(|target| target.is_open() && price(target).is_good())
    }

    /// Decides for one sender and this edge alone.
    pub(crate) fn decide(&mut self, waits: Waits, asking: &Asking) -> Sends {
        if waits.mandatory == 0 && !self.keeps() && !self.is_worth_it(waits.q_out) {
            return Sends::default();
        }
        let mut part = self.part(waits, self.keeps());
        let wants = [part.want(0)];
        let components = std::slice::from_mut(&mut self.component);
        if self.options.reprice {
            repriced(&wants, asking.gamma, components, asking.grain, &mut self.heaps, &mut self.decision);
        } else {
            let orders = std::slice::from_mut(&mut self.order);
            fast(&wants, asking.gamma, components, orders, &mut self.scratch, &mut self.decision);
        }
        let decision = std::mem::take(&mut self.decision);
        if let Some(kept) = part.kept.take() {
            self.note(&decision, asking, vec![kept]);
        }
        let sends = Sends::of(&decision, 0);
        self.decision = decision;
        sends
    }

    /// Keeps a decision, where decisions are kept.
    pub(crate) fn note(&mut self, decision: &Decision, asking: &Asking, edges: Vec<DecidedEdge>) {
        if !self.keeps() {
            return;
        }
        while self.record.len() >= self.options.record {
            self.record.pop_front();
        }
        self.record.push_back(Decided {
            slot: self.slot.unwrap_or_default(),
            at_us: asking.now.saturating_duration_since(self.slots.began).as_micros() as u64,
            between: asking.between,
            sender: asking.sender,
            agent: self.me,
            gamma: asking.gamma,
            reprice: self.options.reprice,
            grain: asking.grain,
            edges,
            sends: decision.sends.iter().map(|s| (s.want as u32, s.target as u32, s.rows)).collect(),
            deferred: decision.deferred,
            forced: decision.forced.clone(),
            policy: self.policy.name().to_owned(),
        });
    }

    /// Keeps what a policy that is no POTUS has done with a sender's rows, where decisions are kept.
    pub(crate) fn took(&mut self, kept: Option<DecidedEdge>, waits: &Waits, sends: &Sends, asking: &Asking) {
        let rows: u64 = sends.rows.iter().map(|(_, rows)| rows).sum();
        let deferred = waits.mandatory.saturating_sub(rows);
        let Some(kept) = kept.filter(|_| rows > 0 || deferred > 0) else { return };
        let send = |(target, rows): &(usize, u64)| Dispatch { want: 0, target: *target, rows: *rows };
        let forced = vec![sends.forced];
        let decision = Decision { sends: sends.rows.iter().map(send).collect(), deferred, forced };
        self.note(&decision, asking, vec![kept]);
    }

    /// Its component, lent out to a decision over several edges.
    pub(crate) fn lend(&mut self) -> (Component, Order) {
        let empty = || Component::new(Weight::default(), Vec::new());
        (std::mem::replace(&mut self.component, empty()), std::mem::take(&mut self.order))
    }

    /// Takes it back.
    pub(crate) fn give_back(&mut self, component: Component, order: Order) {
        (self.component, self.order) = (component, order);
    }

    /// What a person should know: of rows of this mean size, in queues of this bound.
    pub(crate) fn warnings(&self, bound: u64, row_bytes: u64) -> Vec<String> {
        self.too_dear(bound, row_bytes).into_iter().chain(self.misnamed.clone()).collect()
    }

    /// `V * U / beta` rows wait here before any of them takes the cheapest way that costs something: if those of the mean
    /// size pass half of the queue's bound, `V` says more than the queue can hold.
    fn too_dear(&self, bound: u64, row_bytes: u64) -> Option<String> {
        let costs = || self.costs.iter().copied();
        let least = costs().filter(|cost| !cost.is_zero()).min()?;
        let beta = self.beta.value();
        if beta <= 0.0 || row_bytes == 0 {
            return None;
        }
        let rows = self.v.value() * least.value() / beta;
        (rows * row_bytes as f64 > bound as f64 / 2.0).then(|| {
            let any = if costs().any(Cost::is_zero) { "any takes a way that costs something" } else { "any leaves" };
            let released = match self.options.max_hold {
                Some(hold) => format!("when they have waited {} ms or the queue is full", hold.as_millis()),
                None => "when the queue is full".to_owned(),
            };
            format!(
                "V is larger than this queue can express: {rows:.0} rows would have to wait before {any}, and {} fill \
                 it; rows leave {released}, whatever their price",
                bound / row_bytes.max(1)
            )
        })
    }
}
