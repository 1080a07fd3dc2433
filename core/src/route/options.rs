//! A policy's options: two settings, and each of their differences by name (engine.md section 13).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::policy::{DEAL, policy_names};
use super::price::{Cost, RANGE, Weight};
use super::weigh::{BetaRule, VRule};
use crate::fault::suggestion;
use crate::job::units;

/// The published algorithm to the letter, or what serves an operator best.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// As published.
    Paper,
    /// As measured to be best.
    #[default]
    Default,
}

impl Setting {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Paper, Self::Default];

    /// As options have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Default => "default",
        }
    }

    /// The setting of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.name() == name)
    }
}

/// Whether rows that a source has to send now may wait (potus.md F3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// Actual arrivals leave in the slot in which they arrive, at any price (equation 4).
    Strict,
    /// They wait like all others: back-pressure from end to end.
    #[default]
    Relaxed,
}

/// Where the costs of a row between agents come from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CostSource {
    /// The host file's zones, as `status` counts them.
    #[default]
    Zones,
    /// Round trips and bytes as they are measured, smoothed.
    Measured,
    /// This for every row from one agent to another.
    Flat(Cost),
    /// By two names of agents or zones, in either order; what is not named costs what its zones do.
    Matrix(Vec<(String, String, Cost)>),
}

/// Options of a policy on one edge.
#[expect(clippy::struct_excessive_bools, reason = "each is a named option of its own")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteOptions {
    /// Where the other options come from unless they are given.
    pub setting: Setting,
    /// The period of one decision.
    pub slot: Duration,
    /// Rows that come between two slots may leave at once, along the slot's order.
    pub between_slots: bool,
    /// Queue lengths are taken from every note of a target; else those of the slot's beginning hold.
    pub fresh_notes: bool,
    /// What is sent within a slot counts at its target at once (F5).
    pub reprice: bool,
    /// Old queue lengths are corrected by what was sent since and by the target's capacity (F8).
    pub dead_reckoning: bool,
    /// Whether actual arrivals may wait.
    pub admission: Admission,
    /// A row that has waited so long leaves at any price (F10); `None`: never for that reason.
    pub max_hold: Option<Duration>,
    /// The most rows of one run to one target.
    pub deal: u32,
    /// The weight of costs.
    pub v: VRule,
    /// The weight of a row that waits at its sender.
    pub beta: BetaRule,
    /// The most rows that an instance may send in a slot, over all its edges; `None`: any number.
    pub gamma: Option<u64>,
    /// Where costs come from.
    pub cost: CostSource,
    /// The last so many decisions are kept, to be read with `routes --decisions`.
    pub record: usize,
    /// Options of a policy of the user's own.
    pub with: BTreeMap<String, Value>,
}

impl CostSource {
    /// Names in its table that `known` does not know, each once.
    pub fn unknown(&self, known: impl Fn(&str) -> bool) -> Vec<&str> {
        let Self::Matrix(list) = self else { return Vec::new() };
        let names = list.iter().flat_map(|(a, b, _)| [a.as_str(), b.as_str()]);
        let mut unknown: Vec<&str> = names.filter(|name| !known(name)).collect();
        unknown.sort_unstable();
        unknown.dedup();
        unknown
    }
}

impl Default for RouteOptions {
    fn default() -> Self {
        Self::of(Setting::Default)
    }
}

/// The option of a route is not what it has to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` {message}")]
pub struct OptionError {
    /// The option.
    pub key: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl OptionError {
    /// An option and what is wrong with it.
    pub fn new(key: &str, message: impl Into<String>) -> Self {
        Self { key: key.to_owned(), message: message.into() }
    }
}

/// The names of the options.
pub const OPTIONS: [&str; 15] = [
    "v",
    "beta",
    "gamma",
    "slot",
    "setting",
    "admission",
    "max_hold",
    "cost",
    "deal",
    "reprice",
    "between_slots",
    "dead_reckoning",
    "fresh_notes",
    "record",
    "with",
];

/// The options that a policy takes: those of the user's own take all.
pub fn options_of(policy: &str) -> &'static [&'static str] {
    match policy {
        "round-robin" | "shuffle" | "heron" | "local_first" => &[],
        "jsq" | "p2c" => &["setting", "gamma", "slot", "deal", "dead_reckoning", "fresh_notes", "record"],
        // All but `with`, the last.
        "potus" => {
            let all: &'static [&'static str] = &OPTIONS;
            &all[..all.len() - 1]
        }
        _ => &OPTIONS,
    }
}

/// Says which of these options a built-in policy does not take, and which it does; `None` where it takes them all,
/// and for the user's own.
pub fn not_taken<'a>(policy: &str, mut given: impl Iterator<Item = &'a str>) -> Option<String> {
    let taken = options_of(policy);
    let key = given.find(|key| policy_names().contains(&policy) && !taken.contains(key))?;
    Some(if taken.is_empty() {
        format!("the policy `{policy}` has no options; `{key}` was given")
    } else {
        format!("the policy `{policy}` has no option `{key}`; it has: {}", taken.join(", "))
    })
}

/// The most decisions that are kept.
const MOST_RECORDED: u64 = 100_000;

impl RouteOptions {
    /// The options of a setting.
    pub fn of(setting: Setting) -> Self {
        let paper = setting == Setting::Paper;
        Self {
            setting,
            slot: Duration::from_millis(if paper { 20 } else { 5 }),
            between_slots: !paper,
            fresh_notes: !paper,
            reprice: !paper,
            dead_reckoning: !paper,
            admission: if paper { Admission::Strict } else { Admission::Relaxed },
            max_hold: (!paper).then_some(Duration::from_millis(100)),
            deal: if paper { 1 } else { DEAL },
            v: VRule::Number(Weight::clamped(if paper { 1.0 } else { 1.5 })),
            // The pair that costs least at shuffle's response on the simulated Fat-Tree (docs/simulation.md).
            beta: BetaRule::Number(Weight::clamped(if paper { 1.0 } else { 16.0 })),
            gamma: None,
            cost: CostSource::Zones,
            record: 0,
            with: BTreeMap::new(),
        }
    }

    /// Reads options as a file or a command has them.
    ///
    /// # Errors
    /// All that are not what they have to be.
    pub fn read(given: &BTreeMap<String, Value>, setting: Setting) -> Result<Self, Vec<OptionError>> {
        let mut errors = Vec::new();
        let setting = match given.get("setting").map(|value| value.as_str().map(Setting::named)) {
            None => setting,
            Some(Some(Some(named))) => named,
            Some(_) => {
                errors.push(OptionError::new("setting", "is \"paper\" or \"default\""));
                setting
            }
        };
        let mut options = Self::of(setting);
        for (key, value) in given {
            if let Err(message) = options.set(key, value) {
                errors.push(OptionError { key: key.clone(), message });
            }
        }
        if errors.is_empty() { Ok(options) } else { Err(errors) }
    }

    fn set(&mut self, key: &str, value: &Value) -> Result<(), String> {
        match key {
            "setting" => {}
            "gamma" if value.as_str() == Some("any") => self.gamma = None,
            "v" => self.v = VRule::read(value)?,
            "beta" => self.beta = BetaRule::read(value)?,
            "gamma" => match count(value, u64::MAX)? {
                0 => return Err("is at least 1: with 0 no row would ever leave".to_owned()),
                gamma => self.gamma = Some(gamma),
            },
            "slot" => {
                self.slot = duration(value)?;
                if !(Duration::from_millis(1)..=Duration::from_secs(10)).contains(&self.slot) {
                    return Err("is shorter than 1ms or longer than 10s".to_owned());
                }
            }
            "admission" => match value.as_str() {
                Some("strict") => self.admission = Admission::Strict,
                Some("relaxed") => self.admission = Admission::Relaxed,
                _ => return Err("is \"strict\" or \"relaxed\"".to_owned()),
            },
            "max_hold" => {
                let none = value.as_str() == Some("none");
                self.max_hold = if none { None } else { Some(duration(value)?) };
            }
            "cost" => self.cost = cost(value)?,
            "deal" => match count(value, u64::from(u32::MAX))? {
                0 => return Err("is at least 1 row".to_owned()),
                deal => self.deal = deal as u32,
            },
            "reprice" => self.reprice = flag(value)?,
            "between_slots" => self.between_slots = flag(value)?,
            "dead_reckoning" => self.dead_reckoning = flag(value)?,
            "fresh_notes" => self.fresh_notes = flag(value)?,
            "record" => self.record = count(value, MOST_RECORDED)? as usize,
            "with" => match value {
                Value::Object(with) => self.with = with.clone().into_iter().collect(),
                _ => return Err("is a table of the policy's own options".to_owned()),
            },
            other => {
                return Err(match suggestion(other, OPTIONS) {
                    Some(close) => format!("is no option of a route (did you mean `{close}`?)"),
                    None => format!("is no option of a route; there are: {}", OPTIONS.join(", ")),
                });
            }
        }
        Ok(())
    }
}

fn flag(value: &Value) -> Result<bool, String> {
    match (value, value.as_str()) {
        (Value::Bool(flag), _) => Ok(*flag),
        (_, Some("on" | "true")) => Ok(true),
        (_, Some("off" | "false")) => Ok(false),
        _ => Err("is true or false".to_owned()),
    }
}

fn count(value: &Value, most: u64) -> Result<u64, String> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let too_much = || if most == u64::MAX { String::new() } else { format!(", at most {most}") };
    number.filter(|n| *n <= most).ok_or_else(|| format!("is a whole number{}", too_much()))
}

pub(super) fn duration(value: &Value) -> Result<Duration, String> {
    let read = match value {
        Value::String(text) => units::duration(text),
        Value::Number(number) => number.as_f64().and_then(units::milliseconds),
        _ => None,
    };
    read.ok_or_else(|| {
        let wrote = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let (why, help) = units::not_a_duration(&wrote);
        format!("{why} ({help})")
    })
}

fn cost(value: &Value) -> Result<CostSource, String> {
    let wanted =
        || format!("is \"zones\", \"measured\", {RANGE} or a table such as {{ \"rack1..rack2\" = 3 }}");
    match (value, value.as_str()) {
        (_, Some("zones")) => Ok(CostSource::Zones),
        (_, Some("measured")) => Ok(CostSource::Measured),
        (Value::Number(number), _) => {
            number.as_f64().and_then(Cost::new).map(CostSource::Flat).ok_or_else(wanted)
        }
        (Value::Object(table), _) => {
            let entry = |(pair, cost): (&String, &Value)| {
                let (a, b) = pair.split_once("..").ok_or_else(wanted)?;
                let [a, b] = [a, b].map(|name| name.trim().to_owned());
                if a.is_empty() || b.is_empty() || b.contains("..") {
                    return Err(format!(
                        "has `{pair}`, which is no pair: it is two agents or two zones, such as a..b"
                    ));
                }
                let cost = cost.as_f64().and_then(Cost::new);
                let cost = cost.ok_or_else(|| format!("has no cost for {pair}: it is {RANGE}"))?;
                Ok((a, b, cost))
            };
            let entries = table.iter().map(entry).collect::<Result<Vec<_>, String>>()?;
            let same = |(a, b, _): &(String, String, Cost), (c, d, _): &(String, String, Cost)| {
                (a, b) == (c, d) || (a, b) == (d, c)
            };
            for (number, one) in entries.iter().enumerate() {
                if entries[..number].iter().any(|other| same(one, other)) {
                    return Err(format!(
                        "has {} and {} twice; a pair holds in both directions",
                        one.0, one.1
                    ));
                }
            }
            Ok(CostSource::Matrix(entries))
        }
        _ => Err(wanted()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Result<RouteOptions, Vec<OptionError>> {
        RouteOptions::read(&serde_json::from_value(value).unwrap(), Setting::Default)
    }

    #[test]
    fn a_setting_is_the_ground_and_options_stand_on_it() {
        let options = read(json!({ "setting": "paper", "v": 2, "max_hold": "50ms", "gamma": 7 })).unwrap();
        let paper = RouteOptions::of(Setting::Paper);
        assert_eq!(options.max_hold, Some(Duration::from_millis(50)));
        assert_eq!((options.gamma, options.slot, options.reprice), (Some(7), paper.slot, false));
        assert_eq!(options.v, VRule::Number(Weight::new(2.0).unwrap()));
        assert_eq!(read(json!({})).unwrap(), RouteOptions::default());
        assert_eq!(read(json!({ "gamma": "any" })).unwrap().gamma, None);
        assert_eq!(read(json!({ "deal": 0 })).unwrap_err()[0].to_string(), "`deal` is at least 1 row");
        let large = read(json!({ "v": 1e10 })).unwrap_err()[0].to_string();
        assert!(large.contains("to 1073741824"), "{large}");
        let taken = not_taken("potus", ["v", "with"].into_iter()).unwrap();
        assert!(taken.starts_with("the policy `potus` has no option `with`; it has: v, "), "{taken}");
    }

    #[test]
    fn costs_are_named_or_a_table_of_pairs() {
        let options = read(json!({ "cost": { "a..b": 3, "a .. c": 0.5 } })).unwrap();
        let cost = |c| Cost::new(c).unwrap();
        let expected = vec![("a".into(), "b".into(), cost(3.0)), ("a".into(), "c".into(), cost(0.5))];
        let CostSource::Matrix(mut found) = options.cost else { panic!("no matrix") };
        found.sort();
        assert_eq!(found, expected);
        assert_eq!(read(json!({ "cost": "measured" })).unwrap().cost, CostSource::Measured);
        let known = |name: &str| ["a", "b"].contains(&name);
        let of = |cost: Value| read(json!({ "cost": cost })).map(|o| o.cost).map_err(|e| e[0].to_string());
        assert_eq!(of(json!({ "a..b": 3, "z..a": 1, "c..z": 1 })).unwrap().unknown(known), ["c", "z"]);
        assert_eq!(of(json!("zones")).unwrap().unknown(known), [""; 0]);
        for (table, why) in [
            (json!({ "a..b": 3, "b..a": 3 }), "twice; a pair holds in both directions"),
            (json!({ "a..b": 3, "a .. b": 4 }), "twice"),
            (json!({ "..b": 3 }), "`cost` has `..b`, which is no pair"),
            (json!({ "a..b..c": 3 }), "`cost` has `a..b..c`, which is no pair"),
            (json!({ "a..b": 2e9 }), "has no cost for a..b: it is a number of at least 0"),
            (json!(-1), "a number of at least 0 (0, or from 1/65536 to 1073741824)"),
        ] {
            assert!(of(table.clone()).unwrap_err().contains(why), "{table}: {:?}", of(table.clone()));
        }
    }

    #[test]
    fn every_option_that_is_wrong_is_named() {
        let errors = read(json!({
            "v": "quick", "beta": -1, "gamma": "x", "slot": "1us", "setting": "papers", "admission": 1, "max_hold": true,
            "cost": { "a-b": 1 }, "deal": -1, "reprice": 3, "records": 4, "with": 1,
        }));
        let errors = errors.unwrap_err();
        assert_eq!(errors.len(), 12, "{errors:?}");
        let said = |key: &str| errors.iter().find(|e| e.key == key).unwrap().to_string();
        assert_eq!(said("records"), "`records` is no option of a route (did you mean `record`?)");
        let none = read(json!({ "gamma": 0 })).unwrap_err();
        assert_eq!(none[0].to_string(), "`gamma` is at least 1: with 0 no row would ever leave");
        assert_eq!(said("admission"), "`admission` is \"strict\" or \"relaxed\"");
    }
}
