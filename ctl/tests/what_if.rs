//! `what-if` on files as a researcher has them.

use serde_json::{Value, json};

use crate::cli::{ran, tuplane};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/tests/vectors/potus_cases.json");

#[test]
fn all_vectors_are_answered_by_one_array_with_their_ids() {
    let runtime = tempfile::tempdir().unwrap();
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(CASES).unwrap()).unwrap();
    let expected: Vec<Value> =
        cases.iter().map(|case| json!({"id": case["id"], "send": case["send"]})).collect();
    for form in ["literal", "fast"] {
        let ran = ran(tuplane(&runtime).args(["what-if", "route", CASES, "-o", "json", "--form", form]));
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
        assert_eq!(serde_json::from_str::<Vec<Value>>(&ran.out).unwrap(), expected, "{form}");
    }
    let by_line = tuplane(&runtime).args(["what-if", "route", CASES, "-o", "jsonl"]).output().unwrap().stdout;
    let lines = String::from_utf8(by_line).unwrap();
    let read: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, expected, "an answer a line");
}

#[test]
fn a_case_is_explained_target_by_target() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one.json");
    let case = json!({"id": "one", "V": 2, "beta": 4, "successors": [{"successor": "c", "q_out": 10, "mandatory": 0,
        "targets": [{"instance": "near", "q_in": 30, "u": 0}, {"instance": "far", "q_in": 1, "u": 3, "credit": 4},
            {"instance": "dead", "q_in": 0, "u": 0, "credit": 0}]}]});
    std::fs::write(&file, case.to_string()).unwrap();
    let ran_one = ran(tuplane(&folder).args(["what-if", "route", file.to_str().unwrap()]));
    assert_eq!((ran_one.code, ran_one.err.as_str()), (Some(0), ""));
    insta::assert_snapshot!(ran_one.out, @r"
    case one
    TARGET   PRICE   V*U  + Q_IN  - BETA*Q_OUT       ROWS
    c/near  -10.00  0.00   30.00         40.00          6
    c/far   -33.00  6.00    1.00         40.00          4
    c/dead  -40.00  0.00    0.00         40.00  no credit
    ");
    let ran = ran(tuplane(&folder).args(["what-if", "route", file.to_str().unwrap(), "-o", "json"]));
    assert_eq!(
        serde_json::from_str::<Value>(&ran.out).unwrap(),
        json!({"id": "one", "send": {"near": 6, "far": 4}})
    );
}

#[test]
fn every_case_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.json");
    let cases = json!([{"id": "a", "V": 1, "beta": 1}, {"id": "b", "V": 1, "beta": 1, "successors": [], "gama": 3}, 7]);
    std::fs::write(&file, cases.to_string()).unwrap();
    let ran_bad = ran(tuplane(&folder).args(["what-if", "route", file.to_str().unwrap()]));
    assert_eq!(ran_bad.code, Some(2));
    for part in [
        "case number 1 (a): successors: it is missing",
        "case number 2 (b): gama: there is no such field; did you mean `gamma`?",
        "case number 3: it is a number",
    ] {
        assert!(ran_bad.err.contains(part), "{}", ran_bad.err);
    }
    let cases = json!([{"id": "a", "V": -1, "beta": 1, "successors": []}, {"id": "b", "V": 1, "beta": 1,
        "successors": [{"successor": "c", "q_out": 1, "mandatory": 2, "targets": []}]}]);
    std::fs::write(&file, cases.to_string()).unwrap();
    let ran_wrong = ran(tuplane(&folder).args(["what-if", "route", file.to_str().unwrap()]));
    assert_eq!(ran_wrong.code, Some(2));
    for part in [
        "case number 1 (a): V: it is -1, and must be a number of at least 0 (0, or from 1/65536 to 1073741824)",
        "case number 2 (b): successor `c`, mandatory: 2 rows have to leave, of 1 that wait",
    ] {
        assert!(ran_wrong.err.contains(part), "{}", ran_wrong.err);
    }
}

const GRAPHS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/tests/vectors/scale_out_cases.json");

/// Both have the same names and, to 1e-9, the same numbers.
#[track_caller]
fn near(found: &Value, wanted: &Value, case: &Value) {
    let (found, wanted) = (found.as_object().unwrap(), wanted.as_object().unwrap());
    assert!(found.keys().eq(wanted.keys()), "{case}");
    for (name, wanted) in wanted {
        let difference = found[name].as_f64().unwrap() - wanted.as_f64().unwrap();
        assert!(difference.abs() < 1e-9, "{case} {name}: {} is not {wanted}", found[name]);
    }
}

#[test]
fn etp_of_all_graphs_is_that_of_the_file() {
    let runtime = tempfile::tempdir().unwrap();
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(GRAPHS).unwrap()).unwrap();
    let ran = ran(tuplane(&runtime).args(["what-if", "etp", GRAPHS, "-o", "json"]));
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let answers: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answers.len(), cases.len());
    for (answer, case) in answers.iter().zip(&cases) {
        let (id, etp) = (&case["id"], &case["etp"]);
        assert_eq!(&answer["id"], id);
        let congested = |list: &Value| {
            let names = list.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned());
            names.collect::<std::collections::BTreeSet<String>>()
        };
        assert_eq!(congested(&answer["congested"]), congested(&etp["congested"]), "{id}");
        near(&answer["path"], &etp["etp_path"], id);
        near(&answer["sink_set"], &etp["etp_sink_set"], id);
        near(&answer["flow_share"], &etp["etp_flow_share"], id);
    }
}

#[test]
fn etp_of_a_graph_is_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("diamond.json");
    let vertex =
        |id: &str, capacity: f64| json!({"id": id, "instances": 1, "capacity_per_instance": capacity});
    let mut vertices = vec![vertex("src", 900.0), vertex("a", 100.0), vertex("b", 900.0), vertex("c", 900.0)];
    vertices.push(vertex("t", 900.0));
    vertices[0]["offered"] = json!(200.0);
    let edges = json!([["src", "a"], ["a", "b"], ["a", "c"], ["b", "t"], ["c", "t"]]);
    let case = json!({"id": "diamond", "graph": {"vertices": vertices, "edges": edges}});
    std::fs::write(&file, case.to_string()).unwrap();
    let shown = ran(tuplane(&folder).args(["what-if", "etp", file.to_str().unwrap()]));
    assert_eq!((shown.code, shown.err.as_str()), (Some(0), ""));
    insta::assert_snapshot!(shown.out, @r"
    case diamond
    VERTEX  CONGESTED  PATH  SINKS  FLOW
    a       yes        200%   100%  100%
    b                  100%   100%   50%
    c                  100%   100%   50%
    src                  0%     0%    0%
    t                  100%   100%  100%
    ");
    let broken = case.to_string().replace("\"t\"]", "\"u\"]");
    std::fs::write(&file, broken).unwrap();
    let refused = ran(tuplane(&folder).args(["what-if", "etp", file.to_str().unwrap()]));
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("no vertex is called `u`"), "{}", refused.err);
}

#[test]
fn best_is_near_the_optimum_of_the_file_and_each_planner_answers_every_graph() {
    let runtime = tempfile::tempdir().unwrap();
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(GRAPHS).unwrap()).unwrap();
    for engine in ["queueing", "backpressured"] {
        for planner in ["best", "stela", "stela-code", "ds2", "round-robin"] {
            let args = ["what-if", "scale", GRAPHS, "--engine", engine, "--planner", planner, "-o", "json"];
            let ran = ran(tuplane(&runtime).args(args));
            assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{planner}");
            let answers: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
            assert_eq!(answers.len(), cases.len());
            let mut shares = Vec::new();
            for (answer, case) in answers.iter().zip(&cases) {
                assert_eq!(answer["id"], case["id"]);
                let number = |value: &Value| value.as_f64().unwrap();
                let before = case["graph"]["vertices"].as_array().unwrap();
                let had: f64 = before.iter().map(|vertex| number(&vertex["instances"])).sum();
                let has: f64 = answer["instances"].as_object().unwrap().values().map(number).sum();
                let left = answer.get("left").map_or(0.0, |left| number(&left["slots"]));
                let all = had + number(&case["new_instances"]);
                assert!((has + left - all).abs() < 0.5, "{planner} {answer}");
                let optimum = number(&case[engine]["optimum"]);
                assert!(number(&answer["predicted"]) <= optimum * (1.0 + 1e-9), "{planner} {answer}");
                shares.push(number(&answer["predicted"]) / optimum);
            }
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            assert!(planner != "best" || mean >= 0.995, "{engine}: {mean}");
        }
    }
}

#[test]
fn a_plan_says_why_and_what_it_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chain.json");
    let vertex =
        |id: &str, capacity: f64| json!({"id": id, "instances": 1, "capacity_per_instance": capacity});
    let mut vertices = vec![vertex("src", 900.0), vertex("slow", 100.0), vertex("out", 900.0)];
    vertices[0]["offered"] = json!(150.0);
    let edges = json!([["src", "slow"], ["slow", "out"]]);
    let case = json!({"id": "chain", "new_instances": 2, "graph": {"vertices": vertices, "edges": edges}});
    std::fs::write(&file, case.to_string()).unwrap();
    let path = file.to_str().unwrap();
    let shown = ran(tuplane(&folder).args(["what-if", "scale", path, "--engine", "backpressured"]));
    assert_eq!((shown.code, shown.err.as_str()), (Some(0), ""));
    for part in [
        "case chain: 100 rows/s, 150 with 1 more instance\n",
        "limits it at 100 rows/s that it takes\n",
        "1 not used: ",
    ] {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
    let unknown =
        ran(tuplane(&folder).args(["what-if", "scale", path, "--engine", "queueing", "--planner", "bets"]));
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.err.contains("did you mean `best`?"), "{}", unknown.err);
    let unknown = ran(tuplane(&folder).args(["what-if", "scale", path, "--engine", "storm"]));
    assert_eq!(unknown.code, Some(2));
}

#[test]
fn a_wrong_file_is_not_refused_for_each_of_its_cases() {
    let runtime = tempfile::tempdir().unwrap();
    let refused = ran(tuplane(&runtime).args(["what-if", "etp", CASES]));
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.lines().count() <= 22, "{}", refused.err);
    assert!(refused.err.trim_end().ends_with(" more"), "{}", refused.err);
}
