//! Every planner case, in full: what is planned, or which error arises and when.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tuplane_core::job::cases;
use tuplane_core::plan::{case_error_json, case_json, plan};

const VECTORS: &str = include_str!("../vectors/planner_cases.json");

/// Order of vertices and edges has no meaning in the cases; everything else has.
fn unordered(plan: &Value) -> Value {
    let Some(object) = plan.as_object() else { return plan.clone() };
    let mut sorted = object.clone();
    for list in sorted.values_mut().filter_map(Value::as_array_mut) {
        list.sort_by_key(ToString::to_string);
    }
    Value::Object(sorted)
}

#[test]
fn all_planner_cases_agree_in_full() {
    let raw: Vec<Value> = serde_json::from_str(VECTORS).unwrap();
    let read = cases(VECTORS).unwrap();
    assert_eq!(read.len(), raw.len());
    assert_eq!(read.len(), 133);
    let mut differing = Vec::new();
    for ((name, job), raw) in read.into_iter().zip(&raw) {
        let id = raw["id"].as_str().unwrap();
        assert_eq!(name, id);
        let got = match job {
            Ok(job) => match plan(&job) {
                Ok(dag) => case_json(&dag),
                Err(error) => case_error_json(&error),
            },
            Err(faults) => json!(format!("refused by the reader: {faults:?}")),
        };
        if unordered(&got) != unordered(&raw["expect"]) {
            differing.push(format!("{id}\n  expected {}\n  got      {got}", raw["expect"]));
        }
    }
    assert!(differing.is_empty(), "{} cases differ:\n{}", differing.len(), differing.join("\n"));
}

#[test]
fn each_case_plans_twice_the_same_and_leaves_its_job_alone() {
    for (id, job) in cases(VECTORS).unwrap() {
        let job = job.unwrap();
        let before = job.clone();
        assert_eq!(plan(&job), plan(&job), "{id}");
        assert_eq!(job, before, "{id}");
    }
}

#[test]
fn every_routing_and_every_error_of_the_cases_occurs() {
    let (mut routings, mut errors) = (BTreeSet::new(), BTreeSet::new());
    for (id, job) in cases(VECTORS).unwrap() {
        match plan(&job.unwrap()) {
            Ok(dag) => {
                for edge in case_json(&dag)["edges"].as_array().unwrap() {
                    routings.insert(edge["routing"].to_string());
                }
            }
            Err(error) => {
                errors.insert(error.kind.case_text());
                assert!(!error.fault.message.is_empty() && error.fault.help.is_some(), "{id}: {error}");
            }
        }
    }
    assert_eq!(routings.len(), 5, "{routings:?}");
    assert_eq!(errors.len(), 8, "{errors:?}");
}
