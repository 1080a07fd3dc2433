//! The example with a planner of its own: on a file, and beside Stela.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

fn planner(args: &[&str]) -> Output {
    let built = Path::new(env!("CARGO_BIN_EXE_tuplane-testbed")).with_file_name("examples").join("planner");
    assert!(built.exists(), "{} is built by `cargo test`", built.display());
    Command::new(built).args(args).output().unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_planner_of_ones_own_plans_the_graphs_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cases.json");
    let vertex = |id: &str, n: u32, capacity: u32| json!({"id": id, "instances": n, "capacity_per_instance": capacity});
    let mut source = vertex("in", 1, 5000);
    source["offered"] = json!(4000);
    let graph = json!({"vertices": [source, vertex("work", 2, 800), vertex("out", 1, 3000)],
        "edges": [["in", "work"], ["work", "out"]]});
    let case = json!({"id": "a", "new_instances": 2, "graph": graph});
    std::fs::write(&file, json!([case]).to_string()).unwrap();
    let what_if = |engine: &str, name: &str, more: &[&str]| {
        let path = file.to_str().unwrap();
        planner(&[&["what-if", "scale", path, "--engine", engine, "--planner", name], more].concat())
    };
    let ran = what_if("backpressured", "fullest", &["-o", "json"]);
    assert!(ran.status.success(), "{}", err(&ran));
    let answers: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let after = json!({"in": 1, "work": 4, "out": 1});
    assert_eq!((&answers[0]["id"], &answers[0]["instances"]), (&json!("a"), &after));
    assert!((answers[0]["predicted"].as_f64().unwrap() - 3000.0).abs() < 1e-6, "{answers}");
    let text = what_if("queueing", "fullest", &[]);
    let said = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        said.contains("case a: 1600 rows/s") && said.contains("uses 100 % of what its instances take"),
        "{said}"
    );
    let unknown = what_if("queueing", "fulest", &[]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(err(&unknown).contains("did you mean `fullest`?"), "{}", err(&unknown));
    std::fs::write(&file, r#"{"id": "a", "graph": {"vertices": [{"id": "v"}], "edges": []}}"#).unwrap();
    let broken = what_if("queueing", "best", &[]);
    assert_eq!(broken.status.code(), Some(2));
    assert!(err(&broken).contains("vertex `v`, capacity_per_instance: it is missing"), "{}", err(&broken));
}

#[test]
fn a_planner_of_ones_own_stands_beside_stela() {
    let out = tempfile::tempdir().unwrap();
    let ran = planner(&[
        "paper",
        "stela",
        "--model",
        "--also",
        "fullest",
        "-o",
        "json",
        "--out",
        out.path().to_str().unwrap(),
    ]);
    assert!(ran.status.success(), "{}", err(&ran));
    let claims: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let folder = PathBuf::from(claims["folder"].as_str().unwrap());
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let rows = read("model.csv");
    // Six topologies under two kinds of queue; it does not plan which machines go, and that is said.
    assert_eq!(rows.lines().filter(|line| line.contains(",fullest,")).count(), 12, "{rows}");
    assert!(read("model-out-block.svg").contains(">fullest<"));
    let page = read("claims.md");
    assert!(
        page.contains("page-load-scale-in: `fullest` has no plan") && page.contains("; fullest "),
        "{page}"
    );
    for (name, said) in [("fulest", "did you mean `fullest`?"), ("best", "it is compared anyway")] {
        let refused =
            planner(&["paper", "stela", "--model", "--also", name, "--out", out.path().to_str().unwrap()]);
        assert!(refused.status.code() == Some(2) && err(&refused).contains(said), "{}", err(&refused));
    }
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 1);
}
