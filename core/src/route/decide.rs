//! The decision of one sender in one slot (POTUS, problem 15): what is asked, and the published loop.

use super::price::{self, Price, Weight};
use super::rank::Rank;
use super::target::Target;

/// The targets of one successor component as one agent sees them. Its senders share it: what one takes of a
/// target's credit the next does not have.
#[derive(Debug, Clone)]
pub struct Component {
    pub(super) targets: Vec<Target>,
    v: Weight,
    /// `V * U + Q_in` of each target.
    pub(super) keys: Vec<i64>,
}

impl Component {
    /// Prices the targets of a component.
    pub fn new(v: Weight, targets: Vec<Target>) -> Self {
        let mut component = Self { targets, v, keys: Vec::new() };
        component.refresh();
        component
    }

    /// Prices its targets anew: queues, costs or credit have changed.
    pub fn refresh(&mut self) {
        let Self { targets, v, keys } = self;
        keys.clear();
        // A closed target's key is the largest, so that the search for the least need not look at credits.
        let key = |t: &Target| if t.is_open() { price::key(*v, t.cost, t.queued) } else { i64::MAX };
        keys.extend(targets.iter().map(key));
    }

    /// Its targets.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Its targets, to say what is known of them now; [`Component::refresh`] then prices them.
    pub fn targets_mut(&mut self) -> &mut [Target] {
        &mut self.targets
    }

    /// The weight of its costs.
    pub fn v(&self) -> Weight {
        self.v
    }

    /// Sets the weight of its costs; [`Component::refresh`] then prices its targets by it.
    pub fn set_v(&mut self, v: Weight) {
        self.v = v;
    }

    /// The order in which its targets are taken.
    pub(super) fn order(&self, target: usize) -> (i64, Rank) {
        (self.keys[target], self.targets[target].rank)
    }

    /// The open target of least key and rank.
    pub(super) fn best(&self) -> Option<usize> {
        let mut best: Option<usize> = None;
        let mut least = i64::MAX;
        for (index, key) in self.keys.iter().enumerate() {
            // Nearly all keys are larger than the least so far: the rest of a target is looked at for few.
            if *key > least {
                continue;
            }
            let target = &self.targets[index];
            let first = |b: usize| *key < least || target.rank < self.targets[b].rank;
            if target.is_open() && best.is_none_or(first) {
                (best, least) = (Some(index), *key);
            }
        }
        best
    }

    pub(super) fn spend(&mut self, target: usize, rows: u64) {
        let target = &mut self.targets[target];
        if target.credit != super::target::UNLIMITED {
            target.credit -= rows;
        }
    }
}

/// What one sender has for one successor component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// Index of the component.
    pub component: usize,
    /// `beta`: how much a row that waits here weighs against one that waits there.
    pub beta: Weight,
    /// `Q_out`: rows that wait.
    pub q_out: u64,
    /// Of these the rows that have to leave in this slot whatever the price: actual arrivals under strict
    /// admission (equation 4), and rows that a release rule forces out.
    pub mandatory: u64,
}

/// Rows of one sender to one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dispatch {
    /// Index of the sender's [`Want`].
    pub want: usize,
    /// Index of the target in its component.
    pub target: usize,
    /// So many rows, at least 1.
    pub rows: u64,
}

/// What a sender sends in a slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// What goes where. A target may come twice, once for rows that had to leave.
    pub sends: Vec<Dispatch>,
    /// Rows that had to leave and could not, for want of credit or budget (potus.md F2).
    pub deferred: u64,
    /// By want: rows that had to leave and left at a price of 0 or more, which no price alone would have let go.
    pub forced: Vec<u64>,
}

impl Decision {
    /// Rows that leave.
    pub fn rows(&self) -> u64 {
        self.sends.iter().map(|send| send.rows).sum()
    }

    /// Rows by (want, target) in order, each once.
    pub fn totals(&self) -> Vec<Dispatch> {
        let mut all = self.sends.clone();
        all.sort_unstable_by_key(|send| (send.want, send.target));
        all.dedup_by(|next, kept| {
            let same = (next.want, next.target) == (kept.want, kept.target);
            if same {
                kept.rows += next.rows;
            }
            same
        });
        all
    }

    /// Nothing yet, for so many wants.
    pub(super) fn clear(&mut self, wants: usize) {
        self.sends.clear();
        self.deferred = 0;
        self.forced.clear();
        self.forced.resize(wants, 0);
    }

    pub(super) fn send(&mut self, want: usize, target: usize, rows: u64) {
        if rows > 0 {
            self.sends.push(Dispatch { want, target, rows });
        }
    }
}

/// Algorithm 1 of the publication, line by line, each target sought anew: the oracle for
/// [`fast`](super::fast::fast).
///
/// `gamma` is the sender's budget of rows. Rows that have to leave go first, at any price, over all components
/// in the order of their prices (potus.md F2); each target is bounded by its credit (F20).
pub fn literal(wants: &[Want], gamma: u64, components: &mut [Component]) -> Decision {
    let mut decision = Decision::default();
    decision.clear(wants.len());
    let mut budget = gamma;
    let mut left: Vec<u64> = wants.iter().map(|want| want.q_out).collect();
    let mut due: Vec<u64> = wants.iter().map(|want| want.mandatory.min(want.q_out)).collect();
    let price = |want: &Want, target: usize, components: &[Component]| {
        Price(components[want.component].keys[target] - price::pressure(want.beta, want.q_out).0)
    };
    while budget > 0 {
        let found = cheapest(wants, components, |want, _| due[want] > 0, price);
        let Some((cost, want, target)) = found else { break };
        let component = &mut components[wants[want].component];
        let rows = due[want].min(component.targets[target].credit).min(budget);
        component.spend(target, rows);
        if !cost.is_good() {
            decision.forced[want] += rows;
        }
        decision.send(want, target, rows);
        due[want] -= rows;
        left[want] -= rows;
        budget -= rows;
    }
    decision.deferred = total(&due);
    while budget > 0 {
        let good = |want: usize, price: Price| left[want] > 0 && price.is_good();
        let Some((_, want, target)) = cheapest(wants, components, good, price) else { break };
        let component = &mut components[wants[want].component];
        let rows = left[want].min(component.targets[target].credit).min(budget);
        component.spend(target, rows);
        decision.send(want, target, rows);
        left[want] -= rows;
        budget -= rows;
    }
    decision
}

/// All of these rows, or 2^64 - 1 if there are more.
pub(super) fn total(rows: &[u64]) -> u64 {
    rows.iter().fold(0, |sum, rows| sum.saturating_add(*rows))
}

/// All of these rows are within a budget.
pub(super) fn fits(rows: impl IntoIterator<Item = u64>, budget: u64) -> bool {
    rows.into_iter().try_fold(0u64, u64::checked_add).is_some_and(|all| all <= budget)
}

/// The open target of least price and rank among those that may be taken: its price, the want and its index.
fn cheapest(
    wants: &[Want],
    components: &[Component],
    may: impl Fn(usize, Price) -> bool,
    price: impl Fn(&Want, usize, &[Component]) -> Price,
) -> Option<(Price, usize, usize)> {
    let mut best: Option<((Price, Rank), (usize, usize))> = None;
    for (index, want) in wants.iter().enumerate() {
        let component = &components[want.component];
        for (number, target) in component.targets.iter().enumerate() {
            let price = price(want, number, components);
            if !target.is_open() || !may(index, price) {
                continue;
            }
            let order = (price, target.rank);
            if best.is_none_or(|(least, _)| order < least) {
                best = Some((order, (index, number)));
            }
        }
    }
    best.map(|((price, _), (want, target))| (price, want, target))
}
