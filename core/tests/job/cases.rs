//! The planner cases: the structure of a job in JSON, functions left out.

use std::collections::BTreeSet;
use std::path::Path;

use tuplane_core::job::{self, FileFormat, Job};

/// The cases' text: the copy in this package, else the shared one, else nothing.
fn text() -> Option<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    ["tests/vectors/planner_cases.json", "../../shared/conformance/planner_cases.json"]
        .into_iter()
        .find_map(|path| std::fs::read_to_string(here.join(path)).ok())
}

#[test]
fn all_planner_cases_parse() {
    let Some(text) = text() else {
        println!("skipped: no planner_cases.json here");
        return;
    };
    let cases = job::cases(&text).expect("an array of cases");
    assert_eq!(cases.len(), 133);
    let mut ops = BTreeSet::new();
    for (id, case) in &cases {
        let job = case.as_ref().unwrap_or_else(|faults| panic!("{id}: {faults:?}"));
        assert_eq!(job.check(), [], "{id}");
        ops.extend(job.stages.iter().map(|stage| stage.op.name()));
    }
    assert_eq!(ops.len(), 23, "{ops:?}");
}

#[test]
fn the_same_case_in_both_formats() {
    let case = r#"{"id": "X", "note": "n", "pipeline": {"stages": [
        {"id": "src", "op": "source", "kind": "stream", "distributed": false, "timestamps": "native"},
        {"id": "r", "op": "rebalance", "in": "src", "key": "k", "name": "renamed", "parallelism": 3},
        {"id": "w", "op": "window", "in": "r", "type": "tumbling", "size": 10, "early_ms": 100},
        {"id": "a", "op": "aggregate", "in": "w", "combine": false},
        {"id": "s", "op": "sink", "in": "a", "type": "distributed_partitioned", "key": "sk",
         "preferred_parallelism": 1}
    ], "preserve_order": true, "default_parallelism": 8}}"#;
    let toml = r#"
preserve_order = true
[job]
default_parallelism = 8
[[stage]]
id = "src"
op = "source"
kind = "stream"
distributed = false
timestamps = "native"
[[stage]]
id = "r"
op = "rebalance"
in = ["src"]
key = ["k"]
name = "renamed"
parallelism = 3
[[stage]]
id = "w"
op = "window"
in = "r"
type = "tumbling"
size = "10ms"
early_ms = 100
[[stage]]
id = "a"
op = "aggregate"
in = "w"
combine = false
[[stage]]
id = "s"
op = "sink"
in = "a"
type = "distributed_partitioned"
key = "sk"
preferred_parallelism = 1
"#;
    let cases = job::cases(case).expect("one case");
    let [(id, Ok(from_json))] = cases.as_slice() else { panic!("{cases:?}") };
    let from_toml = Job::parse(toml, FileFormat::Toml).expect("a job");
    assert_eq!(id, "X");
    assert_eq!(without_places(from_json), without_places(&from_toml));
}

/// A job as JSON with every place taken out.
pub(super) fn without_places(job: &Job) -> serde_json::Value {
    fn strip(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(map) => {
                map.remove("at");
                map.values_mut().for_each(strip);
            }
            serde_json::Value::Array(list) => list.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(job).expect("a job is data");
    strip(&mut value);
    value
}

#[test]
fn what_is_and_is_not_an_array_of_cases() {
    assert_eq!(job::cases("[]"), Some(Vec::new()));
    assert_eq!(job::cases("name = 'x'"), None);
    assert_eq!(job::cases(r#"{"stages": []}"#), None);
    assert_eq!(job::cases("[{"), None);
    let text = "[{\"id\": \"A\", \"pipeline\": {\"stages\": [{\"id\": \"s\", \"op\": \"source\"}]}},\n\
                {\"id\": \"B\"},\n\
                {\"pipeline\": {\"stages\": [{\"id\": \"s\",\n\"op\": \"sauce\"}]}},\n\
                {\"id\": \"D\", \"id\": \"E\", \"pipeline\": {\"stages\": [{\"id\": \"s\", \"op\": \"source\"}]}}]";
    let cases = job::cases(text).expect("cases");
    let told: Vec<String> = cases
        .iter()
        .map(|(id, case)| match case {
            Ok(job) => format!("{id}: {} stages of {}", job.stages.len(), job.name),
            Err(faults) => format!("{id}: {}", faults[0]),
        })
        .collect();
    assert_eq!(
        told,
        [
            "A: 1 stages of job",
            "B: 2:1: case `B` has no `pipeline`",
            "#3: 4:7: there is no op `sauce` (did you mean `source`?)",
            "D: 5:13: key `id` is given twice; first in line 5",
        ]
    );
}
