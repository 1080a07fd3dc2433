//! Sources that look ahead on real agents: rows are served before they arrive, and nobody sees them before.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::world::{World, assert_exact_ledger, decisions_of, edge, text, vertex, wait};

/// Bursts: 12 rows within 50 ms, then none for 150 ms. Two targets of 10 ms a row need 60 ms for them.
fn bursts() -> String {
    let counts: String = (0..40).map(|step| if step % 4 == 0 { "12\n" } else { "0\n" }).collect();
    format!("n\n{counts}")
}

/// Rows in bursts through work on all agents; `behind` follows it.
fn job(window: u32, more: &str, behind: &str) -> String {
    format!(
        r#"
name = "serve"
[[stage]]
id = "in"
op = "source"
connector = "trace"
path = "counts.csv"
step = "50ms"
distributed = false
window = {window}
{more}
[[stage]]
id = "spread"
op = "rebalance"
in = "in"
policy = "potus"
slot = "20ms"
record = 1000
[[stage]]
id = "work"
op = "work"
in = "spread"
ms = 10
{behind}
"#
    )
}

const LEDGER: &str = "[[stage]]\nid = \"out\"\nop = \"sink\"\nin = \"work\"\nconnector = \"ledger\"\n\
                      path = \"out\"\nid_column = \"id\"\n";

/// Id, arrival and writing of the rows in a ledger's files, by id.
fn ledger(folder: &Path) -> Vec<(u64, i64, i64)> {
    let mut rows = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(text.ends_with('\n'), "half a row: {text:?}");
        rows.extend(text.lines().skip(1).map(|line| {
            let values: Vec<&str> = line.split(',').collect();
            (values[0].parse().unwrap(), values[3].parse().unwrap(), values[4].parse().unwrap())
        }));
    }
    rows.sort_unstable();
    rows
}

/// Runs a job on two agents; gives its document.
fn run(world: &World, job: &str, name: &str) -> Value {
    let job = world.file(&format!("{name}.toml"), job);
    let sink = format!("out.path={}", world.path(name).display());
    let output = world.tuplane(&["run", &job, "--agents", "2", "--set", &sink, "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_exact_ledger(&document);
    document
}

#[test]
fn rows_are_served_before_they_arrive_and_written_when_they_do() {
    let world = World::new();
    world.file("counts.csv", bursts());
    let mut means = Vec::new();
    for window in [0, 4] {
        let document = run(&world, &job(window, "", LEDGER), &format!("w{window}"));
        let response = &vertex(&document, "out")["response"];
        let number = |key: &str| response[key].as_f64().unwrap();
        println!("window {window}: {response}");
        assert_eq!((response["rows"].as_u64(), document["result_rows"].as_u64()), (Some(120), Some(120)));
        assert!(number("p50_ms") <= number("p99_ms") && number("mean_ms") >= 0.0);
        let rows = ledger(&world.path(&format!("w{window}")));
        assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), (0..120).collect::<Vec<_>>());
        for (id, arrival, written) in &rows {
            // A sink and the source look at the wall clock once each, not at the same moment.
            assert!(*written > arrival - 1_000_000, "row {id} was written before it arrived");
        }
        // The schedule is the trace's, whatever left early.
        let begin = rows[0].1;
        let place = |id: u64| (id / 12 * 200_000_000 + id % 12 * 50_000_000 / 12) as i64;
        assert!(rows.iter().all(|(id, arrival, _)| (arrival - begin - place(*id)).abs() < 1000));
        let early = response["early"].as_u64().unwrap();
        assert!(if window == 0 { early == 0 } else { early > 60 }, "{response}");
        means.push(number("mean_ms"));
    }
    // A burst needs more than it takes to arrive; with 80 ms to see ahead most of that is done before.
    assert!(means[1] < 0.7 * means[0], "{means:?}");
}

#[test]
fn windows_of_event_time_count_the_same_however_far_a_source_looks_ahead() {
    let world = World::new();
    world.file("counts.csv", bursts());
    let behind = "[[stage]]\nid = \"by\"\nop = \"group_by\"\nin = \"work\"\nkey = \"id % 3 as k\"\n\
                  [[stage]]\nid = \"w\"\nop = \"window\"\nin = \"by\"\ntype = \"tumbling\"\nsize = \"8s\"\n\
                  [[stage]]\nid = \"counts\"\nop = \"aggregate\"\nin = \"w\"\ncompute = [\"count(*) as n\"]\n\
                  [[stage]]\nid = \"out\"\nop = \"sink\"\nin = \"counts\"\npath = \"out\"\n";
    let time = "time = { column = \"step\", format = \"unix\" }";
    let mut results = Vec::new();
    for window in [0, 4, 20] {
        let name = format!("w{window}");
        let document = run(&world, &job(window, time, behind), &name);
        let mut lines: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(world.path(&name)).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            lines.extend(text.lines().skip(1).map(str::to_owned));
        }
        lines.sort();
        let counted: u64 =
            lines.iter().map(|line| line.rsplit(',').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!((counted, lines.len()), (120, 15), "{window}: {lines:?}");
        let dropped = document["vertices"].as_array().unwrap().iter().map(|v| v["dropped"].clone());
        assert!(dropped.into_iter().all(|d| d.as_object().unwrap().is_empty()), "{document}");
        // What an aggregate gives has no arrival of its own.
        assert_eq!(vertex(&document, "out")["response"], Value::Null);
        results.push(lines);
    }
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
}

#[test]
fn a_window_is_over_rows_and_time_stands_still_before_they_arrive() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    // One row now, and one in 40 s that a window of 100 s sees from the beginning.
    world.file("counts.csv", "n\n1\n0\n0\n0\n1\n");
    let job = job(5000, "time = { column = \"step\", format = \"unix\" }", LEDGER);
    let job = job.replace("step = \"50ms\"", "step = \"10s\"");
    world.json(&["submit", &world.file("job.toml", job)]);
    let status = || world.status("serve");
    wait("both have left", Duration::from_secs(10), || {
        let status = status();
        edge(&status, "work..out")["taken"] == 2 && vertex(&status, "out")["rows_in"] == 1
    });
    let seen = status();
    let out = vertex(&seen, "out");
    assert_eq!((&out["queue_in"], &out["response"]["rows"]), (&1.into(), &1.into()), "{out}");
    let routes = world.json(&["routes", "serve"]);
    let sender = &routes["edges"][0]["senders"][0];
    assert_eq!(
        (&sender["window"], &sender["early"], &sender["to_come"]),
        (&5000.into(), &1.into(), &0.into())
    );
    let decisions = world.json(&["routes", "serve", "--decisions"]);
    let decided = decisions_of(&decisions["edges"][0]["senders"][0]);
    assert!(decided.iter().any(|decided| !decided.sends.is_empty()));
    assert!(decided.iter().all(|decided| Some(decided.decision()) == decided.again()));
    // Neither the policy nor its slots can be changed under the window.
    for (args, said) in [
        (&["jsq"][..], "`in` looks ahead (window = 5000), and in..work has the policy `jsq`"),
        (&["potus", "--slot", "50ms"], "counted in slots of 20ms"),
    ] {
        let mut all = vec!["route", "serve", "in..work"];
        all.extend(args);
        let output = world.tuplane(&all);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(said), "{}", text(&output));
    }
    world.json(&["route", "serve", "in..work", "potus", "--slot", "20ms", "--v", "3"]);
    // The row that is held is counted as what the stop found, and no part of it is in a file.
    world.json(&["cancel", "serve", "--yes"]);
    let last = world.wait_for("serve", "cancelled", Duration::from_secs(10));
    assert_exact_ledger(&last);
    let out = vertex(&last, "out");
    assert_eq!((&out["rows_in"], &out["dropped"]["stopped"]), (&1.into(), &1.into()), "{out}");
    for entry in std::fs::read_dir(world.path("out")).unwrap() {
        let path = entry.unwrap().path();
        let lines = std::fs::read_to_string(&path).unwrap();
        assert!(path.file_name().unwrap().to_str().unwrap().starts_with('.'), "{}", path.display());
        assert!(lines.is_empty() || lines.ends_with('\n'), "{lines:?}");
        assert!(lines.lines().count() <= 2, "{lines}");
    }
}
