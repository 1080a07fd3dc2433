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
        "case number 1 (a): missing field `successors`",
        "case number 2 (b): unknown field `gama`",
        "case number 3: ",
    ] {
        assert!(ran_bad.err.contains(part), "{}", ran_bad.err);
    }
    let cases = json!([{"id": "a", "V": -1, "beta": 1, "successors": []}, {"id": "b", "V": 1, "beta": 1,
        "successors": [{"successor": "c", "q_out": 1, "mandatory": 2, "targets": []}]}]);
    std::fs::write(&file, cases.to_string()).unwrap();
    let ran_wrong = ran(tuplane(&folder).args(["what-if", "route", file.to_str().unwrap()]));
    assert_eq!(ran_wrong.code, Some(2));
    for part in [
        "case a: V = -1 is not a number of at least 0 (0, or from 1/65536 to 1073741824)",
        "case b: 2 rows have to leave for c, of 1 that wait",
    ] {
        assert!(ran_wrong.err.contains(part), "{}", ran_wrong.err);
    }
}
