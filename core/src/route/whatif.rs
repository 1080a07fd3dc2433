//! `what-if route`: decisions for recorded queue lengths, in the form of the conformance vectors.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::decide::{Component, Decision, Want, literal};
use super::fast::{Order, Scratch, fast};
use super::price::{Cost, Weight};
use super::rank::Rank;
use super::target::{Target, UNLIMITED};

/// One sender's slot.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The case's name, which the answer carries.
    pub id: String,
    /// The weight of costs.
    #[serde(rename = "V")]
    pub v: f64,
    /// The weight of rows that wait at the sender.
    pub beta: f64,
    /// The most rows that the sender may send; any number if left out.
    #[serde(default)]
    pub gamma: Option<u64>,
    /// What waits, by successor component.
    pub successors: Vec<Successor>,
    /// The right answer, where the file has it.
    #[serde(default)]
    pub send: Option<BTreeMap<String, u64>>,
}

/// One successor component.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Successor {
    /// Its name.
    pub successor: String,
    /// `Q_out`.
    pub q_out: u64,
    /// Rows of it that have to leave.
    #[serde(default)]
    pub mandatory: u64,
    /// Its instances, in the order of their ranks.
    pub targets: Vec<Instance>,
}

/// One target.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// Its name, the only one in the case.
    pub instance: String,
    /// `Q_in`.
    pub q_in: u64,
    /// `U`.
    pub u: f64,
    /// Rows that it takes; any number if left out, none if it is dead.
    #[serde(default)]
    pub credit: Option<u64>,
}

/// The answer to one case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The case's name.
    pub id: String,
    /// Rows by instance, those without rows left out.
    pub send: BTreeMap<String, u64>,
    /// Rows that had to leave and could not.
    #[serde(skip_serializing_if = "is_zero")]
    pub deferred: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(rows: &u64) -> bool {
    *rows == 0
}

/// The form of the decision that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The published loop.
    Literal,
    /// The fast form.
    Fast,
}

impl Case {
    /// What the sender sends: setting `paper`, targets of one price in the order of their listing.
    ///
    /// # Errors
    /// A sentence that names the case, if a number is out of range, more rows have to leave than wait, or two
    /// instances share a name.
    pub fn decide(&self, form: Form) -> Result<Answer, String> {
        let refuse = |what: String| format!("case {}: {what}", self.id);
        let weight = |name: &str, value| {
            Weight::new(value).ok_or_else(|| refuse(format!("{name} = {value} is not from 0 to 2^30")))
        };
        let (v, beta) = (weight("V", self.v)?, weight("beta", self.beta)?);
        let mut wants = Vec::new();
        let mut components = Vec::new();
        let mut names = Vec::new();
        let mut place = 0;
        for (index, successor) in self.successors.iter().enumerate() {
            if successor.mandatory > successor.q_out {
                let Successor { successor, q_out, mandatory, .. } = successor;
                return Err(refuse(format!(
                    "{mandatory} rows have to leave for {successor}, of {q_out} that wait"
                )));
            }
            let mut targets = Vec::new();
            for instance in &successor.targets {
                let Instance { instance: name, q_in, u, credit } = instance;
                if names.iter().flatten().any(|known| known == name) || targets.len() > u32::MAX as usize {
                    return Err(refuse(format!("two instances are called {name}")));
                }
                let cost = Cost::new(*u)
                    .ok_or_else(|| refuse(format!("u = {u} of {name} is not from 0 to 2^30")))?;
                targets.push(Target {
                    instance: place,
                    credit: credit.unwrap_or(UNLIMITED),
                    queued: *q_in,
                    cost,
                    rank: Rank::listed(place),
                });
                place += 1;
            }
            names.push(successor.targets.iter().map(|t| t.instance.clone()).collect::<Vec<_>>());
            let Successor { q_out, mandatory, .. } = *successor;
            wants.push(Want { component: index, beta, q_out, mandatory });
            components.push(Component::new(v, targets));
        }
        let gamma = self.gamma.unwrap_or(u64::MAX);
        let decision = match form {
            Form::Literal => literal(&wants, gamma, &mut components),
            Form::Fast => {
                let mut orders: Vec<Order> = components.iter().map(Order::of).collect();
                let mut decision = Decision::default();
                fast(&wants, gamma, &mut components, &mut orders, &mut Scratch::default(), &mut decision);
                decision
            }
        };
        let mut send = BTreeMap::new();
        for sent in &decision.sends {
            *send.entry(names[sent.want][sent.target].clone()).or_default() += sent.rows;
        }
        Ok(Answer { id: self.id.clone(), send, deferred: decision.deferred })
    }
}
