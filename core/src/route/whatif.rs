//! `what-if route`: decisions for recorded queue lengths, in the form of the conformance vectors.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;
use serde_json::Value;

use super::decide::{Component, Decision, Want, literal};
use super::fast::{Order, Scratch, fast};
use super::price::{Cost, RANGE, Terms, Weight};
use super::rank::Rank;
use super::target::{Target, UNLIMITED};
use crate::fields::Fields;
use crate::job::FileFormat;
use crate::job::tree::Node;

/// One sender's slot.
#[derive(Debug, Clone)]
pub struct Case {
    /// The case's name, which the answer carries.
    pub id: String,
    /// The weight of costs.
    pub v: f64,
    /// The weight of rows that wait at the sender.
    pub beta: f64,
    /// The most rows that the sender may send; any number if left out.
    pub gamma: Option<u64>,
    /// What waits, by successor component.
    pub successors: Vec<Successor>,
    /// The right answer, where the file has it.
    pub send: Option<BTreeMap<String, u64>>,
}

/// One successor component.
#[derive(Debug, Clone)]
pub struct Successor {
    /// Its name.
    pub successor: String,
    /// `Q_out`.
    pub q_out: u64,
    /// Rows of it that have to leave.
    pub mandatory: u64,
    /// Its instances, in the order of their ranks.
    pub targets: Vec<Instance>,
}

/// One target.
#[derive(Debug, Clone)]
pub struct Instance {
    /// Its name, the only one in the case.
    pub instance: String,
    /// `Q_in`.
    pub q_in: u64,
    /// `U`.
    pub u: f64,
    /// Rows that it takes; any number if left out, none if it is dead.
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

/// A target of a case and what it costs there, to explain an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Priced {
    /// The component.
    pub successor: String,
    /// The target.
    pub instance: String,
    /// Its price and what it is made of.
    pub terms: Terms,
    /// It takes rows.
    pub open: bool,
}

/// Reads an array of cases, or one case; says which it was (`true`: an array).
///
/// # Errors
/// A sentence for everything that is wrong with any case, each with the case, the successor or target, and the field; or one
/// for a file that is no JSON.
pub fn read(text: &str) -> Result<(Vec<Case>, bool), Vec<String>> {
    read_all(text, case, |case| &case.id)
}

/// The same for cases of any form, which `case` reads: each has an id of its own.
///
/// # Errors
/// What `case` finds in any of them, behind their places in words.
pub(crate) fn read_all<T>(
    text: &str,
    case: impl Fn(&str, &Value, &mut Vec<String>) -> Option<T>,
    id: impl Fn(&T) -> &String,
) -> Result<(Vec<T>, bool), Vec<String>> {
    let (values, is_array) = values(text)?;
    let mut cases = Vec::new();
    let mut faults = Vec::new();
    let mut ids = HashSet::new();
    for (place, value) in &values {
        if let Some(case) = case(place, value, &mut faults) {
            if !ids.insert(id(&case).clone()) {
                faults.push(format!("{place}: another one before it has this id"));
            }
            cases.push(case);
        }
    }
    if faults.is_empty() { Ok((cases, is_array)) } else { Err(faults) }
}

/// One case; `None` if something is wrong with it, which then is among the faults.
fn case(place: &str, value: &Value, faults: &mut Vec<String>) -> Option<Case> {
    let before = faults.len();
    let mut fields = Fields::of(format!("{place}: "), value, faults)?;
    let id = fields.text("id", faults);
    let weighs = |number| Weight::new(number).is_some();
    let v = fields.number("V", weighs, RANGE, faults);
    let beta = fields.number("beta", weighs, RANGE, faults);
    // Not given is no limit.
    let gamma = fields.whole_or("gamma", UNLIMITED, 0..=u64::MAX, faults);
    let send = fields.given("send").map(|send| serde_json::from_value(send.clone()));
    if matches!(send, Some(Err(_))) {
        faults.push(fields.fault("send", "it must be a table of whole numbers by instance"));
    }
    let mut names = HashSet::new();
    let listed = fields.list("successors", faults).unwrap_or_default().iter().zip(1..);
    let successors: Vec<Option<Successor>> =
        listed.map(|(value, number)| successor(place, number, value, &mut names, faults)).collect();
    fields.finish(faults);
    (faults.len() == before).then_some(())?;
    Some(Case {
        id: id?.to_owned(),
        v: v?,
        beta: beta?,
        gamma: gamma.filter(|gamma| *gamma < UNLIMITED),
        successors: successors.into_iter().collect::<Option<_>>()?,
        send: send.and_then(Result::ok),
    })
}

fn successor<'v>(
    place: &str,
    number: usize,
    value: &'v Value,
    names: &mut HashSet<&'v str>,
    faults: &mut Vec<String>,
) -> Option<Successor> {
    let id = value.get("successor").and_then(Value::as_str);
    let path = id.map_or_else(
        || format!("{place}: successor number {number}"),
        |id| format!("{place}: successor `{id}`"),
    );
    let mut fields = Fields::of(path.clone(), value, faults)?;
    let name = fields.text("successor", faults);
    let q_out = fields.whole("q_out", 0..=u64::MAX, faults);
    let mandatory = fields.whole_or("mandatory", 0, 0..=u64::MAX, faults);
    if let (Some(q_out), Some(mandatory)) = (q_out, mandatory)
        && mandatory > q_out
    {
        let what = format_args!("{mandatory} rows have to leave, of {q_out} that wait");
        faults.push(fields.fault("mandatory", what));
    }
    let listed = fields.list("targets", faults).unwrap_or_default().iter().zip(1..);
    let targets: Vec<Option<Instance>> =
        listed.map(|(value, number)| instance(&path, number, value, names, faults)).collect();
    fields.finish(faults);
    Some(Successor {
        successor: name?.to_owned(),
        q_out: q_out?,
        mandatory: mandatory?,
        targets: targets.into_iter().collect::<Option<_>>()?,
    })
}

fn instance<'v>(
    place: &str,
    number: usize,
    value: &'v Value,
    names: &mut HashSet<&'v str>,
    faults: &mut Vec<String>,
) -> Option<Instance> {
    let id = value.get("instance").and_then(Value::as_str);
    let path =
        id.map_or_else(|| format!("{place}, target number {number}"), |id| format!("{place}, target `{id}`"));
    let mut fields = Fields::of(path, value, faults)?;
    let name = fields.text("instance", faults);
    if name.is_some_and(|name| !names.insert(name)) {
        faults.push(fields.fault("instance", "another one of the case has this name"));
    }
    let q_in = fields.whole("q_in", 0..=u64::MAX, faults);
    let u = fields.number("u", |number| Cost::new(number).is_some(), RANGE, faults);
    let credit = fields.whole_or("credit", UNLIMITED, 0..=u64::MAX, faults);
    fields.finish(faults);
    let credit = credit?;
    Some(Instance {
        instance: name?.to_owned(),
        q_in: q_in?,
        u: u?,
        credit: (credit < UNLIMITED).then_some(credit),
    })
}

/// One element of a file, behind its place in words.
type Placed = (String, Value);

/// The elements of an array of cases, or the one case, each with its place in words; and whether it was an array.
///
/// # Errors
/// A sentence for a file that is no JSON.
fn values(text: &str) -> Result<(Vec<Placed>, bool), Vec<String>> {
    let text = text.trim_start_matches('\u{feff}');
    let value: Value = serde_json::from_str(text).map_err(|error| vec![format!("is no JSON: {error}")])?;
    // Of a key that stands twice serde takes the last.
    let mut faults = Vec::new();
    Node::parse(text, FileFormat::Json, &mut faults);
    let twice = faults.iter().filter(|fault| fault.message.contains("is given twice"));
    let twice: Vec<String> =
        twice.map(|fault| format!("line {}: {}", fault.at.line, fault.message)).collect();
    if !twice.is_empty() {
        return Err(twice);
    }
    let (values, is_array) = match value {
        Value::Array(values) => (values, true),
        one => (vec![one], false),
    };
    let place = |(index, value): (usize, Value)| {
        let id = value.get("id").and_then(Value::as_str).map(|id| format!(" ({id})")).unwrap_or_default();
        (format!("case number {}{id}", index + 1), value)
    };
    Ok((values.into_iter().enumerate().map(place).collect(), is_array))
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
    fn refuse(&self, what: &str) -> String {
        format!("case {}: {what}", self.id)
    }

    fn weights(&self) -> Result<(Weight, Weight), String> {
        let weight = |name: &str, value| {
            Weight::new(value).ok_or_else(|| self.refuse(&format!("{name} = {value} is not {RANGE}")))
        };
        Ok((weight("V", self.v)?, weight("beta", self.beta)?))
    }

    /// The price of every target.
    ///
    /// # Errors
    /// As [`Case::decide`].
    pub fn prices(&self) -> Result<Vec<Priced>, String> {
        let (v, beta) = self.weights()?;
        let mut all = Vec::new();
        for successor in &self.successors {
            for target in &successor.targets {
                all.push(Priced {
                    successor: successor.successor.clone(),
                    instance: target.instance.clone(),
                    terms: Terms::new(v, self.cost(target)?, target.q_in, beta, successor.q_out),
                    open: target.credit != Some(0),
                });
            }
        }
        Ok(all)
    }

    fn cost(&self, target: &Instance) -> Result<Cost, String> {
        let Instance { instance, u, .. } = target;
        Cost::new(*u).ok_or_else(|| self.refuse(&format!("u = {u} of {instance} is not {RANGE}")))
    }

    /// What the sender sends: setting `paper`, targets of one price in the order of their listing.
    ///
    /// # Errors
    /// A sentence that names the case, if a number is out of range, more rows have to leave than wait, or two
    /// instances share a name.
    pub fn decide(&self, form: Form) -> Result<Answer, String> {
        let refuse = |what: String| self.refuse(&what);
        let (v, beta) = self.weights()?;
        let mut wants = Vec::new();
        let mut components = Vec::new();
        let mut known = HashSet::new();
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
                let Instance { instance: name, q_in, credit, .. } = instance;
                if !known.insert(name) || targets.len() > u32::MAX as usize {
                    return Err(refuse(format!("two instances are called {name}")));
                }
                let cost = self.cost(instance)?;
                targets.push(Target {
                    instance: place,
                    credit: credit.unwrap_or(UNLIMITED),
                    queued: *q_in,
                    cost,
                    rank: Rank::listed(place),
                });
                place += 1;
            }
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
            let target = &self.successors[sent.want].targets[sent.target];
            *send.entry(target.instance.clone()).or_default() += sent.rows;
        }
        Ok(Answer { id: self.id.clone(), send, deferred: decision.deferred })
    }
}
