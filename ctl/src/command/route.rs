//! `tuplane route`.

use serde_json::{Map, Value, json};
use tuplane_wire::message::ClusterRequest;

use crate::args::Global;
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, safe};

/// Options of `route`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The policy holds from now on with these options alone: what is not given is as the setting has it. Round-robin, \
shuffle, heron and local_first have none.")]
pub(crate) struct Args {
    /// Name or run id
    job: String,
    /// The edge, such as lines..work (see `tuplane status`)
    edge: String,
    /// The policy: round-robin, shuffle, heron, `local_first`, p2c, jsq, potus, or one that the agents were built
    /// with
    policy: String,
    /// The weight of costs: a number, paper, balance, balance=X or latency=50ms
    #[arg(long, value_name = "X|RULE", allow_negative_numbers = true)]
    v: Option<String>,
    /// The weight of rows that wait at their sender: a number or capacity
    #[arg(long, value_name = "X|RULE", allow_negative_numbers = true)]
    beta: Option<String>,
    /// The most rows that an instance sends in a slot, over all its edges, or any
    #[arg(long, value_name = "ROWS", allow_negative_numbers = true)]
    gamma: Option<String>,
    /// The time between two decisions
    #[arg(long, value_name = "TIME")]
    slot: Option<String>,
    /// What options that are not given are: as published, or as measured to be best
    #[arg(long, value_name = "paper|default")]
    setting: Option<String>,
    /// Whether what arrives at a source may wait there
    #[arg(long, value_name = "strict|relaxed")]
    admission: Option<String>,
    /// A row that has waited so long leaves at any price
    #[arg(long, value_name = "TIME|none")]
    max_hold: Option<String>,
    /// Where costs of a row come from: zones, measured, a number for all agents, or pairs of agents or zones such as
    /// a..b=3,a..c=1
    #[arg(long, value_name = "COSTS", allow_negative_numbers = true, value_parser = costs)]
    cost: Option<Value>,
    /// Keeps the last so many decisions, for `routes --decisions`
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    record: Option<String>,
    /// Any other option, such as `deal=1`, `reprice=off`, `between_slots=off` or `with={"depth":2}`
    #[arg(long = "option", value_name = "KEY=VALUE", value_parser = assignment)]
    others: Vec<(String, Value)>,
}

/// The value is JSON where it reads as such, else text; costs may be written as for `--cost`.
pub(crate) fn assignment(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some(("cost", value)) if !value.starts_with('{') => Ok(("cost".to_owned(), costs(value)?)),
        Some((key, value)) if !key.is_empty() => {
            Ok((key.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
        }
        _ => Err("write KEY=VALUE".into()),
    }
}

/// Pairs become a table, each once; a number or a word stays one.
fn costs(text: &str) -> Result<Value, String> {
    let pair = |part: &str| {
        let (names, cost) = part.split_once('=')?;
        let cost: f64 = cost.trim().parse().ok()?;
        Some((names.trim().to_owned(), json!(cost)))
    };
    if let Ok(Value::Number(flat)) = serde_json::from_str(text) {
        return Ok(Value::Number(flat));
    }
    let Some(pairs) = text.split(',').map(pair).collect::<Option<Vec<_>>>() else {
        return Ok(Value::String(text.to_owned()));
    };
    let mut table = Map::new();
    for (names, cost) in pairs {
        if table.contains_key(&names) {
            return Err(format!("{names} is given twice"));
        }
        table.insert(names, cost);
    }
    Ok(Value::Object(table))
}

impl Args {
    /// The options that are given, or one that is given twice.
    fn options(&self) -> Result<Map<String, Value>, String> {
        let words = [
            ("v", &self.v),
            ("beta", &self.beta),
            ("gamma", &self.gamma),
            ("slot", &self.slot),
            ("setting", &self.setting),
            ("admission", &self.admission),
            ("max_hold", &self.max_hold),
            ("record", &self.record),
        ];
        // A number is shown as one; the agents read either.
        let value = |text: &String| match serde_json::from_str(text) {
            Ok(Value::Number(number)) => Value::Number(number),
            _ => Value::String(text.clone()),
        };
        let words = words.into_iter().filter_map(|(key, text)| Some((key.to_owned(), value(text.as_ref()?))));
        let cost = self.cost.clone().map(|cost| ("cost".to_owned(), cost));
        let mut options = Map::new();
        for (key, value) in self.others.iter().cloned().chain(words).chain(cost) {
            if options.contains_key(&key) {
                return Err(format!("the option `{key}` is given twice"));
            }
            options.insert(key, value);
        }
        Ok(options)
    }
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let cluster = Cluster::find(global, output)?;
    let options = args.options().map_err(Failure::Usage)?;
    let Args { job, edge, policy, .. } = args;
    cluster
        .tell(ClusterRequest::Route {
            job: job.clone(),
            edge: edge.clone(),
            policy: policy.clone(),
            options: if options.is_empty() {
                String::new()
            } else {
                Value::Object(options.clone()).to_string()
            },
        })
        .await?;
    if output.is_text() {
        let given: Vec<String> =
            options.iter().map(|(key, value)| format!("{key}={}", plain(value))).collect();
        let with = if given.is_empty() { String::new() } else { format!(" with {}", given.join(", ")) };
        output.text(&safe::line(&format!("{job}: {edge} goes by {policy}{with}")))
    } else {
        output.document("route", &json!({"job": job, "edge": edge, "policy": policy, "options": options}))
    }
}

/// A value as it is typed: text without its marks.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        args: Args,
    }

    fn options(args: &[&str]) -> Value {
        let all = ["route", "j", "a..b", "potus"].iter().chain(args);
        Value::Object(Alone::try_parse_from(all).unwrap().args.options().unwrap())
    }

    #[test]
    fn options_are_as_a_job_file_has_them() {
        assert_eq!(options(&[]), json!({}));
        assert_eq!(
            options(&[
                "--v",
                "2",
                "--beta",
                "capacity",
                "--gamma",
                "50",
                "--slot",
                "5ms",
                "--max-hold",
                "none"
            ]),
            json!({"v": 2, "beta": "capacity", "gamma": 50, "slot": "5ms", "max_hold": "none"})
        );
        assert_eq!(
            options(&["--v", "latency=50ms", "--cost", "a..b=3, a..c=0.5", "--option", "reprice=off"]),
            json!({"v": "latency=50ms", "cost": {"a..b": 3.0, "a..c": 0.5}, "reprice": "off"})
        );
        assert_eq!(options(&["--cost", "measured"]), json!({"cost": "measured"}));
        assert_eq!(options(&["--cost", "2"]), json!({"cost": 2}));
        // Told that it is too small by those who know what it may be.
        assert_eq!(options(&["--beta", "-1", "--record", "-1"]), json!({"beta": -1, "record": -1}));
    }

    #[test]
    fn nothing_is_given_twice() {
        let parse = |args: &[&str]| {
            Alone::try_parse_from(["route", "j", "a..b", "potus"].iter().chain(args)).map(|alone| alone.args)
        };
        let twice = parse(&["--option", "v=3", "--v", "2"]).unwrap().options().unwrap_err();
        assert_eq!(twice, "the option `v` is given twice");
        assert!(parse(&["--option", "deal=3", "--option", "deal=2"]).unwrap().options().is_err());
        let said = parse(&["--cost", "a..b=3,a..b=9"]).unwrap_err().to_string();
        assert!(said.contains("a..b is given twice"), "{said}");
    }
}
