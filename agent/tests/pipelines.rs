//! Random small pipelines give what a plain computation gives, whatever their plan and the number of agents.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tuplane_wire::message::JobPhase;

use crate::cluster::Cluster;

/// Cases of an ordinary run, and the most of a long one (`PROPTEST_CASES`).
const CASES: u32 = 30;
const MOST_CASES: u32 = 500;

/// A row: `k` and `v`, neither negative.
type Row = (i64, i64);

/// A step from rows to rows, whose result does not depend on the order of its input.
#[derive(Debug, Clone, Copy)]
enum Step {
    Map { times: i64, modulo: i64 },
    Filter { modulo: i64 },
    Unfold { modulo: i64 },
    Merge { modulo: i64 },
    Count { modulo: i64 },
    Total,
    Rolling { modulo: i64 },
    Seen { modulo: i64 },
    First { modulo: i64, most: i64 },
    Distinct,
    DistinctKey { modulo: i64 },
    Sort,
    Join { modulo: i64, left: bool },
    CoCount { modulo: i64, part: i64 },
    Tumbling { modulo: i64, seconds: i64 },
    Sliding { modulo: i64, seconds: i64 },
    Session { modulo: i64, gap: i64 },
}

impl Step {
    /// It gives rows their time; a pipeline does that once.
    fn is_timed(self) -> bool {
        matches!(self, Self::Tumbling { .. } | Self::Sliding { .. } | Self::Session { .. })
    }
}

/// What stands before a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spread {
    Nothing,
    Turn,
    Key,
}

/// How a pipeline is planned.
#[derive(Debug, Clone)]
struct Variant {
    /// Per step, in turn.
    spread: Vec<Spread>,
    /// Aggregates may have two stages.
    combine: bool,
}

/// The stages of a job, as they are made.
struct Stages<'a> {
    made: Vec<Value>,
    variant: &'a Variant,
    step: usize,
}

impl Stages<'_> {
    fn add(&mut self, op: &str, from: Value, options: Value) -> String {
        let id = format!("s{}", self.made.len());
        let mut stage = options;
        stage["id"] = Value::from(id.clone());
        stage["op"] = Value::from(op);
        if !from.is_null() {
            stage["in"] = from;
        }
        self.made.push(stage);
        id
    }

    /// The input of a consumer, behind whatever the variant puts before it.
    fn spread(&mut self, from: &str) -> String {
        let spread = self.variant.spread[self.step % self.variant.spread.len()];
        match spread {
            Spread::Nothing => from.to_owned(),
            Spread::Turn => self.add("rebalance", json!(from), json!({})),
            Spread::Key => self.add("rebalance", json!(from), json!({"key": "k % 7"})),
        }
    }

    fn select(&mut self, from: &str, k: &str, v: &str) -> String {
        self.add("map", json!(from), json!({"select": [format!("{k} as k"), format!("{v} as v")]}))
    }

    fn by(&mut self, from: &str, modulo: i64) -> String {
        self.add("group_by", json!(from), json!({"key": format!("k % {modulo} as g")}))
    }

    fn aggregate(&mut self, from: &str, compute: &[&str]) -> String {
        let combine = self.variant.combine;
        self.add("aggregate", json!(from), json!({"compute": compute, "combine": combine}))
    }

    /// A keyed window over `v` as seconds, then the count by key and window.
    fn window(&mut self, from: &str, modulo: i64, window: Value) -> String {
        let time = json!({"column": "v", "format": "unix", "lateness": "100000h"});
        let timed = self.add("add_timestamps", json!(from), json!({"time": time}));
        let spread = self.spread(&timed);
        let by = self.by(&spread, modulo);
        let window = self.add("window", json!(by), window);
        let counts = self.aggregate(&window, &["count(*) as n"]);
        self.select(&counts, "g", "cast(date_part('epoch', window_start) as bigint) + n")
    }

    /// Adds a step; gives the stage that has its result.
    fn step(&mut self, step: Step, from: &str) -> String {
        match step {
            Step::Map { times, modulo } => {
                let from = self.spread(from);
                self.select(&from, &format!("(k * {times} + v) % {modulo}"), "v + 1")
            }
            Step::Filter { modulo } => {
                let from = self.spread(from);
                self.add("filter", json!(from), json!({"where": format!("v % {modulo} <> 0")}))
            }
            Step::Unfold { modulo } => {
                let from = self.spread(from);
                let list = format!("range(0, v % {modulo}) as i");
                let unfolded = self.add("flat_map", json!(from), json!({"unnest": list}));
                self.select(&unfolded, "k", "v + i")
            }
            Step::Merge { modulo } => {
                let part = self.add("filter", json!(from), json!({"where": format!("k % {modulo} = 0")}));
                let part = self.spread(&part);
                self.add("merge", json!([from, part]), json!({}))
            }
            Step::Count { modulo } => {
                let from = self.spread(from);
                let by = self.by(&from, modulo);
                let counts = self.aggregate(&by, &["count(*) as n", "sum(v) as total"]);
                self.select(&counts, "g", "n * 1000 + total % 1000")
            }
            Step::Total => {
                let from = self.spread(from);
                let total = self.aggregate(&from, &["count(*) as n", "sum(v) as total"]);
                self.select(&total, "n", "coalesce(total, 0)")
            }
            Step::Rolling { modulo } => {
                let from = self.spread(from);
                let by = self.by(&from, modulo);
                let rolled = self.add("rolling_aggregate", json!(by), json!({"compute": ["count(*) as n"]}));
                self.select(&rolled, &format!("k % {modulo}"), "n")
            }
            Step::Seen { modulo } => {
                let from = self.spread(from);
                let by = self.by(&from, modulo);
                let state = json!({
                    "state": ["0 as seen"],
                    "update": ["seen + 1 as seen"],
                    "select": [format!("k % {modulo} as k"), "seen as v"],
                });
                self.add("map_stateful", json!(by), state)
            }
            Step::First { modulo, most } => {
                let from = self.spread(from);
                let by = self.by(&from, modulo);
                let state = json!({
                    "state": ["0 as seen"],
                    "update": ["seen + 1 as seen"],
                    "where": format!("seen <= {most}"),
                });
                let first = self.add("filter_stateful", json!(by), state);
                self.select(&first, &format!("k % {modulo}"), "0")
            }
            Step::Distinct => {
                let from = self.spread(from);
                self.add("distinct", json!(from), json!({"key": ["k", "v"]}))
            }
            Step::DistinctKey { modulo } => {
                let from = self.spread(from);
                let distinct = self.add("distinct", json!(from), json!({"key": format!("k % {modulo}")}));
                self.select(&distinct, &format!("k % {modulo}"), "0")
            }
            Step::Sort => {
                let from = self.spread(from);
                self.add("sort", json!(from), json!({"by": ["v desc", "k"]}))
            }
            Step::Join { modulo, left } => {
                let table = json!({"connector": "generator", "kind": "sequence", "n": modulo});
                let table = self.add("source", Value::Null, table);
                let from = self.spread(from);
                let on = format!("k % {} = value", modulo + 3);
                let kind = if left { "left" } else { "inner" };
                let joined = self.add("hash_join", json!([from, table]), json!({"on": [on], "kind": kind}));
                self.select(&joined, "k", &format!("v + coalesce(\"{table}.value\", 0)"))
            }
            Step::CoCount { modulo, part } => {
                let some = self.add("filter", json!(from), json!({"where": format!("k % {part} = 0")}));
                let from = self.spread(from);
                let (all, some) = (self.by(&from, modulo), self.by(&some, modulo));
                let combine = self.variant.combine;
                let compute = json!({&all: ["count(*) as n"], &some: ["count(*) as m"]});
                let options = json!({"compute": compute, "combine": combine});
                let counts = self.add("co_aggregate", json!([all, some]), options);
                self.select(&counts, "g", "n * 1000 + m")
            }
            Step::Tumbling { modulo, seconds } => {
                self.window(from, modulo, json!({"type": "tumbling", "size": format!("{seconds}s")}))
            }
            Step::Sliding { modulo, seconds } => {
                let (size, slide) = (format!("{}s", 2 * seconds), format!("{seconds}s"));
                self.window(from, modulo, json!({"type": "sliding", "size": size, "slide": slide}))
            }
            Step::Session { modulo, gap } => {
                self.window(from, modulo, json!({"type": "session", "gap": format!("{gap}s")}))
            }
        }
    }
}

/// A whole job over `value` from 0 to `rows` - 1.
fn job(steps: &[Step], rows: u64, variant: &Variant) -> Value {
    let mut stages = Stages { made: Vec::new(), variant, step: 0 };
    let source = json!({"connector": "generator", "kind": "sequence", "n": rows});
    let source = stages.add("source", Value::Null, source);
    let mut last = stages.select(&source, "value % 17", "value");
    for (number, step) in steps.iter().enumerate() {
        stages.step = number;
        last = stages.step(*step, &last);
    }
    stages.add("sink", json!(last), json!({"connector": "file", "format": "csv", "path": "out"}));
    json!({"name": "random", "stages": stages.made})
}

fn groups(rows: &[Row], modulo: i64) -> BTreeMap<i64, Vec<i64>> {
    rows.iter().fold(BTreeMap::new(), |mut groups: BTreeMap<i64, Vec<i64>>, (k, v)| {
        groups.entry(k % modulo).or_default().push(*v);
        groups
    })
}

/// A row per key and window, by where the windows of a key with these times begin.
fn windows(rows: &[Row], modulo: i64, starts: impl Fn(&[i64]) -> Vec<i64>) -> Vec<Row> {
    let counted = |(key, times): (&i64, &Vec<i64>)| {
        let counts = starts(times).into_iter().fold(BTreeMap::new(), |mut counts, start| {
            *counts.entry(start).or_insert(0) += 1;
            counts
        });
        counts.into_iter().map(|(start, n): (i64, i64)| (*key, start + n)).collect::<Vec<_>>()
    };
    groups(rows, modulo).iter().flat_map(counted).collect()
}

/// What a step makes, computed plainly.
fn plain(step: Step, rows: Vec<Row>) -> Vec<Row> {
    match step {
        Step::Map { times, modulo } => {
            rows.into_iter().map(|(k, v)| ((k * times + v) % modulo, v + 1)).collect()
        }
        Step::Filter { modulo } => rows.into_iter().filter(|(_, v)| v % modulo != 0).collect(),
        Step::Unfold { modulo } => {
            rows.into_iter().flat_map(|(k, v)| (0..v % modulo).map(move |i| (k, v + i))).collect()
        }
        Step::Merge { modulo } => {
            let part: Vec<Row> = rows.iter().filter(|(k, _)| k % modulo == 0).copied().collect();
            rows.into_iter().chain(part).collect()
        }
        Step::Count { modulo } => {
            let value = |values: &Vec<i64>| values.len() as i64 * 1000 + values.iter().sum::<i64>() % 1000;
            groups(&rows, modulo).iter().map(|(k, values)| (*k, value(values))).collect()
        }
        Step::Total => vec![(rows.len() as i64, rows.iter().map(|(_, v)| v).sum())],
        Step::Rolling { modulo } | Step::Seen { modulo } => {
            let each = |(k, values): (&i64, &Vec<i64>)| {
                (1..=values.len() as i64).map(|n| (*k, n)).collect::<Vec<_>>()
            };
            groups(&rows, modulo).iter().flat_map(each).collect()
        }
        Step::First { modulo, most } => {
            let each = |(k, values): (&i64, &Vec<i64>)| vec![(*k, 0); values.len().min(most as usize)];
            groups(&rows, modulo).iter().flat_map(each).collect()
        }
        Step::Distinct => rows.into_iter().collect::<BTreeSet<_>>().into_iter().collect(),
        Step::DistinctKey { modulo } => groups(&rows, modulo).into_keys().map(|k| (k, 0)).collect(),
        Step::Sort => rows,
        Step::Join { modulo, left } => {
            let joined = rows.into_iter().filter_map(|(k, v)| {
                let key = k % (modulo + 3);
                if key < modulo { Some((k, v + key)) } else { left.then_some((k, v)) }
            });
            joined.collect()
        }
        Step::CoCount { modulo, part } => {
            let some: Vec<Row> = rows.iter().filter(|(k, _)| k % part == 0).copied().collect();
            let some = groups(&some, modulo);
            let value = |k: &i64, values: &Vec<i64>| {
                values.len() as i64 * 1000 + some.get(k).map_or(0, |values| values.len() as i64)
            };
            groups(&rows, modulo).iter().map(|(k, values)| (*k, value(k, values))).collect()
        }
        Step::Tumbling { modulo, seconds } => {
            windows(&rows, modulo, |times| times.iter().map(|time| time - time % seconds).collect())
        }
        Step::Sliding { modulo, seconds } => windows(&rows, modulo, |times| {
            let both = |time: &i64| [time - time % seconds, time - time % seconds - seconds];
            times.iter().flat_map(both).collect()
        }),
        Step::Session { modulo, gap } => windows(&rows, modulo, |times| {
            let mut times = times.to_vec();
            times.sort_unstable();
            let mut start = None;
            let mut last = 0;
            let starts = times.into_iter().map(|time| {
                if start.is_none() || time - last >= gap {
                    start = Some(time);
                }
                last = time;
                start.unwrap_or(time)
            });
            starts.collect()
        }),
    }
}

fn step() -> impl Strategy<Value = Step> {
    let modulo = || 2..40_i64;
    prop_oneof![
        (1..5_i64, modulo()).prop_map(|(times, modulo)| Step::Map { times, modulo }),
        (2..5_i64).prop_map(|modulo| Step::Filter { modulo }),
        (2..4_i64).prop_map(|modulo| Step::Unfold { modulo }),
        (2..5_i64).prop_map(|modulo| Step::Merge { modulo }),
        modulo().prop_map(|modulo| Step::Count { modulo }),
        Just(Step::Total),
        modulo().prop_map(|modulo| Step::Rolling { modulo }),
        modulo().prop_map(|modulo| Step::Seen { modulo }),
        (modulo(), 1..4_i64).prop_map(|(modulo, most)| Step::First { modulo, most }),
        Just(Step::Distinct),
        modulo().prop_map(|modulo| Step::DistinctKey { modulo }),
        Just(Step::Sort),
        (1..9_i64, any::<bool>()).prop_map(|(modulo, left)| Step::Join { modulo, left }),
        (modulo(), 2..5_i64).prop_map(|(modulo, part)| Step::CoCount { modulo, part }),
        (modulo(), 1..90_i64).prop_map(|(modulo, seconds)| Step::Tumbling { modulo, seconds }),
        (modulo(), 1..90_i64).prop_map(|(modulo, seconds)| Step::Sliding { modulo, seconds }),
        (modulo(), 1..9_i64).prop_map(|(modulo, gap)| Step::Session { modulo, gap }),
    ]
}

/// Up to five steps, of which one may be timed; how many rows; and spreads for a variant by chance.
fn pipeline() -> impl Strategy<Value = (Vec<Step>, u64, Vec<Spread>)> {
    let spread = prop_oneof![Just(Spread::Nothing), Just(Spread::Turn), Just(Spread::Key)];
    let steps = prop::collection::vec(step(), 1..6).prop_map(|mut steps| {
        let mut timed = false;
        steps.retain(|step| !step.is_timed() || !std::mem::replace(&mut timed, true));
        steps
    });
    (steps, 1..400_u64, prop::collection::vec(spread, 1..4))
}

#[test]
fn results_do_not_depend_on_the_plan_or_the_number_of_agents() {
    let clusters = [1, 2, 3].map(Cluster::new);
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = asked.map_or(CASES, |cases: u32| cases.min(MOST_CASES));
    let config =
        ProptestConfig { cases, max_shrink_iters: 60, failure_persistence: None, ..Default::default() };
    let mut runner = TestRunner::new(config);
    let tried = runner.run(&pipeline(), |(steps, rows, chance)| {
        let input: Vec<Row> = (0..rows as i64).map(|value| (value % 17, value)).collect();
        let expected = steps.iter().fold(input, |rows, step| plain(*step, rows));
        let mut expected: Vec<String> = expected.into_iter().map(|(k, v)| format!("{k},{v}")).collect();
        expected.sort();
        let variants = [
            Variant { spread: vec![Spread::Nothing], combine: true },
            Variant { spread: vec![Spread::Turn], combine: true },
            Variant { spread: chance, combine: false },
        ];
        for variant in &variants {
            let job = job(&steps, rows, variant);
            for (agents, cluster) in (1..).zip(&clusters) {
                let (status, found) = cluster.run(&job);
                let summary = &status.summary;
                prop_assert_eq!(summary.phase, JobPhase::Finished, "{} agents: {:?}", agents, &summary.fault);
                prop_assert_eq!(&found, &expected, "{} agents, {:?}, {}", agents, variant, &job);
            }
        }
        Ok(())
    });
    if let Err(error) = tried {
        panic!("{error}");
    }
}
