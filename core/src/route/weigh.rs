//! The rules that give `V` and `beta` a value from what a sender sees.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::options;
use super::price::{RANGE, Weight};
use super::target::Target;

/// How `V`, the weight of costs against queues, is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VRule {
    /// This number.
    Number(Weight),
    /// The publication's rule: total cost over total backlog. It weighs costs the less the longer queues are, which
    /// looks inverted (potus.md F9); kept for comparison.
    Paper,
    /// So many times the median queue over the median cost that is not 0 (F9): a step of that cost weighs as much as a
    /// typical queue. An empty system counts as one row a queue.
    Balance(Weight),
    /// What a target at the median cost makes wait at its sender, `V * U / (beta * rate)`, is so long.
    Latency(Duration),
}

/// How `beta`, the weight of rows that wait at a sender, is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BetaRule {
    /// This number.
    Number(Weight),
    /// The bound of an input queue over that of the output queue.
    Capacity,
}

/// What rules go by: one sender's edge as it is now.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The edge's targets with their queues and costs.
    pub targets: &'a [Target],
    /// `Q_out`: rows that wait at the sender.
    pub q_out: u64,
    /// Rows that leave the sender in a second, where they were counted.
    pub rate: Option<f64>,
    /// Bounds of a target's input queue and of the sender's output queue, in one unit, where there are any.
    pub bounds: Option<(f64, f64)>,
    /// Communication cost of the last slot and the backlog at its end, over the whole system, where they are known;
    /// else the sender's own targets stand for it.
    pub total: Option<(f64, f64)>,
}

impl<'a> Seen<'a> {
    /// Targets and a queue, and nothing else known.
    pub fn new(targets: &'a [Target], q_out: u64) -> Self {
        Self { targets, q_out, rate: None, bounds: None, total: None }
    }
}

/// The value of a rule for `V` now; `beta` is the one in force.
pub fn v_in_force(rule: VRule, beta: Weight, seen: &Seen<'_>) -> Weight {
    match rule {
        VRule::Number(v) => v,
        VRule::Paper => {
            let of_targets = || {
                let cost: f64 = seen.targets.iter().map(|t| t.cost.value()).sum();
                let queued: f64 = seen.targets.iter().map(|t| t.queued as f64).sum();
                (cost, queued + beta.value() * seen.q_out as f64)
            };
            let (cost, backlog) = seen.total.unwrap_or_else(of_targets);
            Weight::clamped(cost / backlog.max(1.0))
        }
        VRule::Balance(times) => {
            let queue = median(seen.targets.iter().map(|t| t.queued as f64)).unwrap_or(0.0).max(1.0);
            Weight::clamped(typical_cost(seen).map_or(0.0, |cost| times.value() * queue / cost))
        }
        VRule::Latency(wait) => {
            let rows = wait.as_secs_f64() * seen.rate.unwrap_or(0.0);
            Weight::clamped(typical_cost(seen).map_or(0.0, |cost| rows * beta.value() / cost))
        }
    }
}

/// The value of a rule for `beta`; without bounds 1.
pub fn beta_in_force(rule: BetaRule, bounds: Option<(f64, f64)>) -> Weight {
    match (rule, bounds) {
        (BetaRule::Number(beta), _) => beta,
        (BetaRule::Capacity, Some((input, output))) if output > 0.0 => Weight::clamped(input / output),
        (BetaRule::Capacity, _) => Weight::clamped(1.0),
    }
}

/// The median of the costs that are not 0.
fn typical_cost(seen: &Seen<'_>) -> Option<f64> {
    median(seen.targets.iter().filter(|t| !t.cost.is_zero()).map(|t| t.cost.value()))
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        1 => Some(values[middle]),
        _ if values.is_empty() => None,
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// Says what a rule for `V` may be.
fn v_words() -> String {
    format!("is {RANGE}, \"paper\", \"balance\", {{ balance = 2 }} or {{ latency = \"50ms\" }}")
}

/// Says what a rule for `beta` may be.
const BETA: &str = "is a number above 0 (from 1/65536 to 1073741824) or \"capacity\"";

impl VRule {
    /// Reads a rule as a file has it.
    pub(super) fn read(value: &Value) -> Result<Self, String> {
        let refuse = v_words;
        match value {
            Value::Number(number) => {
                number.as_f64().and_then(Weight::new).map(Self::Number).ok_or_else(refuse)
            }
            Value::String(text) => text.parse(),
            Value::Object(rule) => match rule.iter().next() {
                Some((name, value)) if rule.len() == 1 && name == "latency" => {
                    options::duration(value).map(Self::Latency).map_err(|why| format!("with latency {why}"))
                }
                Some((name, value)) if rule.len() == 1 && name == "balance" => {
                    value.as_f64().and_then(Weight::new).map(Self::Balance).ok_or_else(refuse)
                }
                _ => Err(refuse()),
            },
            _ => Err(refuse()),
        }
    }
}

impl FromStr for VRule {
    type Err = String;

    /// As a command has it: `2`, `paper`, `balance`, `balance=2`, `latency=50ms`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.trim().parse().ok().and_then(Weight::new).ok_or_else(v_words);
        match text.split_once('=') {
            None if text == "paper" => Ok(Self::Paper),
            None if text == "balance" => Ok(Self::Balance(Weight::clamped(1.0))),
            Some(("balance", times)) => number(times).map(Self::Balance),
            Some(("latency", wait)) => {
                crate::job::units::duration(wait).map(Self::Latency).ok_or_else(v_words)
            }
            _ => number(text).map(Self::Number),
        }
    }
}

impl fmt::Display for VRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(v) => write!(f, "{}", v.value()),
            Self::Paper => f.write_str("paper"),
            Self::Balance(times) if *times == Weight::clamped(1.0) => f.write_str("balance"),
            Self::Balance(times) => write!(f, "balance={}", times.value()),
            Self::Latency(wait) => write!(f, "latency={}ms", wait.as_secs_f64() * 1e3),
        }
    }
}

impl BetaRule {
    /// Reads a rule as a file has it.
    pub(super) fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::String(text) => text.parse(),
            Value::Number(number) => Self::number(number.as_f64()),
            _ => Err(BETA.to_owned()),
        }
    }

    fn number(value: Option<f64>) -> Result<Self, String> {
        let weight = value.filter(|beta| *beta > 0.0).and_then(Weight::new);
        weight.map(Self::Number).ok_or_else(|| BETA.to_owned())
    }
}

impl FromStr for BetaRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "capacity" { Ok(Self::Capacity) } else { Self::number(text.trim().parse().ok()) }
    }
}

impl fmt::Display for BetaRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(beta) => write!(f, "{}", beta.value()),
            Self::Capacity => f.write_str("capacity"),
        }
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these values are exact in fixed point")]
mod tests {
    use super::*;
    use crate::route::price::Cost;

    fn targets(of: &[(u64, f64)]) -> Vec<Target> {
        let target = |(id, (queued, cost)): (u32, &(u64, f64))| Target {
            queued: *queued,
            cost: Cost::new(*cost).unwrap(),
            ..Target::new(id)
        };
        (0..).zip(of).map(target).collect()
    }

    fn weight(value: f64) -> Weight {
        Weight::new(value).unwrap()
    }

    #[test]
    fn balance_sets_a_typical_cost_against_a_typical_queue() {
        let targets = targets(&[(2, 0.0), (6, 2.0), (10, 2.0), (40, 4.0)]);
        let v = v_in_force(VRule::Balance(weight(1.5)), weight(8.0), &Seen::new(&targets, 5));
        // Median queue 8, median cost that is not 0: 2.
        assert_eq!(v.value(), 6.0);
    }

    #[test]
    fn an_empty_system_weighs_a_step_as_one_row_and_one_without_costs_not_at_all() {
        let rule = VRule::Balance(weight(1.0));
        let empty = targets(&[(0, 0.0), (0, 2.0)]);
        assert_eq!(v_in_force(rule, weight(1.0), &Seen::new(&empty, 0)).value(), 0.5);
        let near = targets(&[(3, 0.0), (9, 0.0)]);
        assert_eq!(v_in_force(rule, weight(1.0), &Seen::new(&near, 0)).value(), 0.0);
        assert_eq!(v_in_force(rule, weight(1.0), &Seen::new(&[], 0)).value(), 0.0);
    }

    #[test]
    fn a_latency_is_what_a_row_then_waits_for_a_target_at_the_typical_cost() {
        let targets = targets(&[(0, 0.0), (0, 4.0)]);
        let seen = Seen { rate: Some(1000.0), ..Seen::new(&targets, 0) };
        let v = v_in_force(VRule::Latency(Duration::from_millis(50)), weight(8.0), &seen);
        // V * 4 / (8 * 1000/s) = 50 ms.
        assert_eq!(v.value(), 100.0);
    }

    #[test]
    fn the_papers_rule_is_cost_over_backlog() {
        let targets = targets(&[(3, 1.0), (5, 2.0)]);
        let seen = Seen { total: Some((240.0, 400.0)), ..Seen::new(&targets, 2) };
        assert!((v_in_force(VRule::Paper, weight(1.0), &seen).value() - 0.6).abs() < 1e-4);
        assert!((v_in_force(VRule::Paper, weight(1.0), &Seen::new(&targets, 2)).value() - 0.3).abs() < 1e-4);
    }

    #[test]
    fn beta_by_capacity_is_the_ratio_of_the_bounds() {
        assert_eq!(beta_in_force(BetaRule::Capacity, Some((4.0, 2.0))).value(), 2.0);
        assert_eq!(beta_in_force(BetaRule::Capacity, None).value(), 1.0);
    }

    #[test]
    fn rules_read_back_as_they_are_written() {
        for text in ["0.5", "paper", "balance", "balance=2", "latency=50ms"] {
            assert_eq!(text.parse::<VRule>().unwrap().to_string(), text);
        }
        for text in ["8", "capacity"] {
            assert_eq!(text.parse::<BetaRule>().unwrap().to_string(), text);
        }
        assert!(
            "-1".parse::<VRule>().is_err()
                && "0".parse::<BetaRule>().is_err()
                && "x".parse::<VRule>().is_err()
                && "1e-9".parse::<VRule>().is_err()
                && "1e-9".parse::<BetaRule>().is_err()
        );
    }
}
