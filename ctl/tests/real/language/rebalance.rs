//! The examples around `rebalance()` under `testbed/jobs/rebalance`: their plans are those of the planner's
//! cases of the same name, and on three agents the rows go where the plan says.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::real::world::{World, assert_exact_ledger, text, workspace};

/// What each source of an example reads, on agent `a` alone.
const ROWS: u64 = 60_000;
/// A third of it, and how far an agent may be from it: 5 %.
const THIRD: std::ops::RangeInclusive<u64> = 19_000..=21_000;

fn folder() -> PathBuf {
    workspace().join("testbed/jobs/rebalance")
}

/// The names of the examples, in order.
fn names() -> Vec<String> {
    let files = std::fs::read_dir(folder()).unwrap();
    let stem = |file: std::io::Result<std::fs::DirEntry>| {
        file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()
    };
    let mut names: Vec<String> = files.map(stem).collect();
    names.sort();
    names
}

fn path(name: &str) -> String {
    folder().join(format!("{name}.toml")).to_str().unwrap().to_owned()
}

fn json(world: &World, args: &[&str]) -> Value {
    let output = world.tuplane(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What the edge from one vertex to another is, in the words of the cases; keys by their number.
type Edge = (String, u64, String, u64, String, bool, Option<usize>, i64);

/// A plan as the cases have it: vertices, and edges with keys numbered as they first come. The examples have
/// expressions where the cases have names.
fn shape(vertices: Vec<String>, edges: &Value, names: &dyn Fn(&str) -> String) -> (Vec<String>, Vec<Edge>) {
    let mut keys: Vec<String> = Vec::new();
    let mut number = |key: &Value| {
        let key = key.as_str()?.to_owned();
        Some(keys.iter().position(|known| *known == key).unwrap_or_else(|| {
            keys.push(key);
            keys.len() - 1
        }))
    };
    let mut vertices = vertices;
    vertices.sort();
    let mut sorted: Vec<&Value> = edges.as_array().unwrap().iter().collect();
    let place = |edge: &Value| {
        let [from, to] = ["from", "to"].map(|end| names(edge[end].as_str().unwrap()));
        (from, edge["from_ordinal"].as_u64().unwrap(), to, edge["ordinal"].as_u64().unwrap())
    };
    sorted.sort_by_key(|edge| place(edge));
    let edges = sorted.into_iter().map(|edge| {
        let (from, from_ordinal, to, ordinal) = place(edge);
        let routing = edge["routing"].as_str().unwrap().to_owned();
        let key = if routing == "partitioned" { number(&edge["key"]) } else { None };
        let priority = edge["priority"].as_i64().unwrap_or(0);
        (from, from_ordinal, to, ordinal, routing, edge["distributed"] == true, key, priority)
    });
    let edges = edges.collect();
    (vertices, edges)
}

#[test]
fn examples_plan_as_the_cases_of_their_name() {
    let world = World::new();
    let cases = std::fs::read(workspace().join("core/tests/vectors/planner_cases.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_slice(&cases).unwrap();
    let design: Vec<&Value> = cases.iter().filter(|case| case["category"] == "design-doc examples").collect();
    let ids: Vec<&str> = design.iter().map(|case| case["id"].as_str().unwrap()).collect();
    assert_eq!(names(), ids, "an example for each case, and a case for each example");
    for case in design {
        let id = case["id"].as_str().unwrap();
        let plan = json(&world, &["plan", &path(id), "-o", "json"]);
        let name = |vertex: &Value| ["id", "name"].map(|key| vertex[key].as_str().unwrap().to_owned());
        let vertices = plan["vertices"].as_array().unwrap().iter();
        let known: BTreeMap<String, String> = vertices.map(name).map(|[id, name]| (id, name)).collect();
        let found = shape(known.values().cloned().collect(), &plan["edges"], &|id| known[id].clone());
        let expect = &case["expect"];
        let vertices = expect["vertices"].as_array().unwrap();
        let vertices = vertices.iter().map(|vertex| vertex["name"].as_str().unwrap().to_owned());
        assert_eq!(found, shape(vertices.collect(), &expect["edges"], &str::to_owned), "{id}");
    }
}

#[test]
fn a_rebalance_without_effect_is_said_and_refused_under_strict() {
    let world = World::new();
    for name in names() {
        let idle = ["A13", "A14", "A17", "A19", "A20"].iter().any(|case| name.starts_with(case));
        let plan = json(&world, &["plan", &path(&name), "-o", "json"]);
        let said = plan["notes"].as_array().unwrap().iter().any(|note| note["no_effect"] == true);
        assert_eq!(said, idle, "{name}: {}", plan["notes"]);
        let output = world.tuplane(&["plan", &path(&name), "--strict"]);
        assert_eq!(output.status.code(), Some(if idle { 2 } else { 0 }), "{name}: {}", text(&output));
    }
}

/// Without its rebalance an example's stages are one vertex, or two.
#[test]
fn what_a_rebalance_changes_is_seen_without_it() {
    let world = World::new();
    let vertices = |name: &str, keep: bool| {
        let file = std::fs::read_to_string(path(name)).unwrap();
        let without = file.replace("[[stage]]\nid = \"r\"\nop = \"rebalance\"\nin = \"src\"\n\n", "");
        let without = without.replace("[[stage]]\nid = \"r\"\nop = \"rebalance\"\nin = \"m\"\n\n", "");
        assert_ne!(file, without, "{name}");
        let without = without
            .replace("in = \"r\"", if name.starts_with("A04") { "in = \"m\"" } else { "in = \"src\"" });
        let file = world.file("job.toml", if keep { file } else { without });
        let plan = json(&world, &["plan", &file, "-o", "json"]);
        let names = plan["vertices"].as_array().unwrap().iter();
        names.map(|vertex| vertex["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let fused = "A04-map-rebalance-flatmap-no-fusion";
    assert_eq!(vertices(fused, true), ["src", "map", "flat-map", "sink"]);
    assert_eq!(vertices(fused, false), ["src", "fused(map, flat-map)", "sink"]);
    let stages = "A11-rebalance-group-aggregate";
    assert_eq!(vertices(stages, true), ["src", "group-and-aggregate", "sink"]);
    assert_eq!(
        vertices(stages, false),
        ["src", "group-and-aggregate-prepare", "group-and-aggregate", "sink"]
    );
}

/// Rows that came to a vertex, by agent.
fn rows_in(status: &Value, vertex: &str) -> [u64; 3] {
    ["a", "b", "c"].map(|agent| {
        let of = status["per_instance"].as_array().unwrap().iter();
        of.filter(|i| i["vertex"] == vertex && i["agent"] == agent)
            .map(|i| i["rows_in"].as_u64().unwrap())
            .sum()
    })
}

/// Bytes that crossed from one agent to another on the edge into a vertex.
fn across(status: &Value, into: &str) -> u64 {
    let to = format!("..{into}");
    let edges = status["edges"].as_array().unwrap().iter();
    let into = edges.filter(|edge| edge["edge"].as_str().unwrap().split(':').next().unwrap().ends_with(&to));
    let flows = into.flat_map(|edge| edge["flows"].as_array().unwrap());
    flows.filter(|flow| flow["from"] != flow["to"]).map(|flow| flow["bytes"].as_u64().unwrap()).sum()
}

#[test]
fn rows_of_the_examples_go_where_their_plans_say() {
    let world = World::new();
    for name in names() {
        let out = world.path(&name);
        let sink = format!("sink.path={}", out.display());
        let status = json(&world, &["run", &path(&name), "--agents", "3", "--set", &sink, "-o", "json"]);
        assert_eq!(status["phase"], "finished", "{status}");
        assert_exact_ledger(&status);
        let case = name.split('-').next().unwrap();
        let thirds = |rows: [u64; 3]| rows.iter().all(|rows| THIRD.contains(rows));
        let (home, made) = ([ROWS, 0, 0], status["result_rows"].as_u64().unwrap());
        let (rows, bytes, expected) = match case {
            "A01" | "A02" => (rows_in(&status, "m"), across(&status, "m"), ROWS),
            "A04" => (rows_in(&status, "fm"), across(&status, "fm"), ROWS),
            "A05" | "A07" => (rows_in(&status, "mg"), across(&status, "mg"), 2 * ROWS),
            "A08" => (rows_in(&status, "a/prepare"), across(&status, "a/prepare"), 1),
            "A10" => (rows_in(&status, "a/prepare"), across(&status, "a/prepare"), 100),
            "A11" => (rows_in(&status, "a"), across(&status, "a"), 100),
            "A13" | "A14" | "A19" | "A20" => (rows_in(&status, "a"), across(&status, "a"), ROWS),
            "A16" | "A17" => (rows_in(&status, "j"), across(&status, "j"), ROWS),
            other => panic!("no expectation for {other}"),
        };
        assert_eq!(made, expected, "{name}");
        println!("{name}: {rows:?} rows, {bytes} bytes between agents");
        match case {
            // As read: on agent `a` alone, and nothing crosses.
            "A01" | "A10" => assert_eq!((rows, bytes), (home, 0), "{name}"),
            // Dealt out: a third each, two of which cross, 8 bytes a row at least.
            "A02" | "A04" | "A08" => assert!(thirds(rows) && bytes > 300_000, "{name}: {rows:?}, {bytes}"),
            // The first input stays, the second is dealt out.
            "A05" => {
                let dealt = [rows[0].saturating_sub(ROWS), rows[1], rows[2]];
                assert!(thirds(dealt) && bytes > 300_000, "{name}: {rows:?}, {bytes}");
            }
            // By key: every agent has some, and they are all there.
            "A07" | "A11" | "A13" | "A14" => {
                let all = if case == "A07" { 2 * ROWS } else { ROWS };
                assert!(
                    rows.iter().all(|rows| *rows > 1_000) && bytes > 300_000,
                    "{name}: {rows:?}, {bytes}"
                );
                assert_eq!(rows.iter().sum::<u64>(), all, "{name}");
            }
            // One instance in the cluster, wherever it stands.
            "A19" | "A20" => {
                assert_eq!(rows.iter().filter(|rows| **rows == ROWS).count(), 1, "{name}: {rows:?}");
                assert_eq!(rows.iter().sum::<u64>(), ROWS, "{name}: {rows:?}");
            }
            // The joiners: what they build their tables from is not counted among the dealt rows.
            "A16" => assert!(rows.iter().all(|rows| (19_000..=22_000).contains(rows)), "{name}: {rows:?}"),
            "A17" => assert!(rows[0] >= ROWS && rows[1] < 1_000 && rows[2] < 1_000, "{name}: {rows:?}"),
            other => panic!("no expectation for {other}"),
        }
    }
}
