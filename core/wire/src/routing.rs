//! How edges that choose their targets stand, as their sending agents see it.

use serde::{Deserialize, Serialize};
use tuplane_core::route::{
    Component, Cost, Decision, Dispatch, Heaps, Order, Rank, Scratch, Target, Want, Weight, fast, repriced,
};

/// A weight of a policy: the rule that gives it, and what it is now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InForce {
    /// As in a job file: a number, or the name of a rule.
    pub rule: String,
    /// Its value now.
    pub value: f64,
}

/// How a backlog has moved in the last ten seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trend {
    /// Too little was seen.
    #[default]
    Unknown,
    /// It does not grow.
    Stable,
    /// It grows.
    Growing,
}

/// One edge as one agent sends on it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EdgeRouting {
    /// The edge's index in the plan.
    pub edge: u32,
    /// The policy's name.
    pub policy: String,
    /// The options as they were given, as a JSON object.
    pub options: String,
    /// `paper` or `default`: where the other options come from.
    pub setting: String,
    /// Length of a slot in microseconds.
    pub slot_us: u64,
    /// `V`, where the policy has one.
    pub v: Option<InForce>,
    /// `beta`, where the policy has one.
    pub beta: Option<InForce>,
    /// Rows that a sending instance may send in a slot; `None`: any number.
    pub gamma: Option<u64>,
    /// `Q_out`: rows that wait here, over all sending instances.
    pub queued_out: u64,
    /// `Q_out` of the sending instance with the longest queue: prices are its.
    pub longest_out: u64,
    /// Rows at the targets and `beta` times those that wait here.
    pub backlog: f64,
    /// The backlog four times a second, up to ten seconds, the oldest first.
    pub backlogs: Vec<f64>,
    /// How it has moved.
    pub trend: Trend,
    /// Slots in which it decided.
    pub slots: u64,
    /// Rows that had to leave in a slot and could not, once for each slot.
    pub deferred: u64,
    /// Rows that left by a release rule at a price that alone would have held them.
    pub forced: u64,
    /// What a person should know, in sentences.
    pub warnings: Vec<String>,
    /// Its targets, those on the agent itself first.
    pub targets: Vec<TargetRouting>,
    /// The last decisions, the oldest first, where `record` is set and they were asked for.
    pub decisions: Vec<Decided>,
    /// Slots that its senders look ahead.
    pub window: u32,
    /// Rows that left in a slot before that of their arrival.
    pub early: u64,
    /// Of the rows that wait those that have not arrived.
    pub to_come: u64,
}

/// One target of an edge as one agent sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetRouting {
    /// Dense instance id.
    pub instance: u32,
    /// Its agent's index in the run.
    pub agent: u16,
    /// Rows sent there since the run began.
    pub rows: u64,
    /// Of the rows sent in the last two seconds the part that went there, 0 to 1.
    pub share: f64,
    /// Rows a second in the last two seconds.
    pub rows_per_second: f64,
    /// `U`: the cost of a row on its way there.
    pub cost: f64,
    /// Cost of the rows sent there in a second.
    pub cost_per_second: f64,
    /// `Q_in`: rows there and on their way, as far as they are known.
    pub queued: u64,
    /// Age of the note that says so, in ms; `None` for a target on the agent itself, and before the first note.
    pub age_ms: Option<u64>,
    /// It takes rows.
    pub open: bool,
    /// It is left out: its agent is not heard of.
    pub masked: bool,
    /// The price of a row and its terms `V * U`, `Q_in` and `beta * Q_out`, where the policy has prices.
    pub price: Option<[f64; 4]>,
}

/// A decision, with everything that it was made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// The slot, from the run's start on the sending agent.
    pub slot: i64,
    /// Microseconds since the run's start there.
    pub at_us: u64,
    /// Made between two slots, as rows came.
    pub between: bool,
    /// The sending instance's dense id.
    pub sender: u32,
    /// The sending agent's index: ranks are drawn by it.
    pub agent: u16,
    /// Rows that the sender might send, over all its edges.
    pub gamma: u64,
    /// Prices follow each row; else those of the beginning hold.
    pub reprice: bool,
    /// Rows of one run at least, where prices follow.
    pub grain: u64,
    /// What was decided together: edges of the same sender that share its `gamma`, or one alone.
    pub edges: Vec<DecidedEdge>,
    /// (index among `edges`, index among its targets, rows), in the order in which they were chosen.
    pub sends: Vec<(u32, u32, u64)>,
    /// Rows that had to leave and could not.
    pub deferred: u64,
    /// By index among `edges`: rows that had to leave and left at a price of 0 or more.
    pub forced: Vec<u64>,
    /// The policy that decided.
    pub policy: String,
}

impl Decided {
    /// What was decided, as the functions that decide give it.
    pub fn decision(&self) -> Decision {
        let send = |(want, target, rows): &(u32, u32, u64)| Dispatch {
            want: *want as usize,
            target: *target as usize,
            rows: *rows,
        };
        let sends = self.sends.iter().map(send).collect();
        Decision { sends, deferred: self.deferred, forced: self.forced.clone() }
    }

    /// Decides again from what was kept. `None` if a weight or cost is out of range, and of any policy but POTUS:
    /// others draw lots, or keep what nobody else knows.
    pub fn again(&self) -> Option<Decision> {
        if self.policy != "potus" {
            return None;
        }
        let target = |target: &DecidedTarget| {
            Some(Target {
                instance: target.instance,
                credit: target.credit,
                queued: target.queued,
                cost: Cost::new(target.cost)?,
                rank: Rank::drawn(target.instance, self.slot, self.agent),
            })
        };
        let component = |edge: &DecidedEdge| {
            let targets: Option<Vec<Target>> = edge.targets.iter().map(target).collect();
            Some(Component::new(Weight::new(edge.v)?, targets?))
        };
        let mut components: Vec<Component> = self.edges.iter().map(component).collect::<Option<_>>()?;
        let want = |(component, edge): (usize, &DecidedEdge)| {
            let (q_out, mandatory) = (edge.q_out, edge.mandatory);
            Some(Want { component, beta: Weight::new(edge.beta)?, q_out, mandatory })
        };
        let wants: Vec<Want> = self.edges.iter().enumerate().map(want).collect::<Option<_>>()?;
        let mut decision = Decision::default();
        if self.reprice {
            let mut heaps = Heaps::default();
            repriced(&wants, self.gamma, &mut components, self.grain, &mut heaps, &mut decision);
        } else {
            let mut orders: Vec<Order> = components.iter().map(Order::of).collect();
            let mut scratch = Scratch::default();
            fast(&wants, self.gamma, &mut components, &mut orders, &mut scratch, &mut decision);
        }
        Some(decision)
    }
}

/// One edge's part of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecidedEdge {
    /// The edge's index in the plan.
    pub edge: u32,
    /// `V` in force.
    pub v: f64,
    /// `beta` in force.
    pub beta: f64,
    /// `Q_out` of the sender.
    pub q_out: u64,
    /// Of these the rows that had to leave.
    pub mandatory: u64,
    /// Its targets as they were seen.
    pub targets: Vec<DecidedTarget>,
}

/// One target as a decision saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecidedTarget {
    /// Dense instance id.
    pub instance: u32,
    /// `Q_in`.
    pub queued: u64,
    /// Rows that it would take.
    pub credit: u64,
    /// `U`.
    pub cost: f64,
}
