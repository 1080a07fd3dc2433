//! Several jobs at once, live changes, cancelling.

use std::time::Duration;

use serde_json::Value;

use super::world::{World, edge, text, vertex, wait};

/// A paced source into work of no cost.
const STEADY: &str = r#"
name = "steady"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = 100000000
rate = 20000
distributed = false
[[stage]]
id = "spread"
op = "rebalance"
in = "rows"
[[stage]]
id = "double"
op = "map"
in = "spread"
select = ["id * 2 as id"]
[[stage]]
id = "out"
op = "sink"
in = "double"
connector = "count"
"#;

/// A source as fast as it can into a sink that stands still.
const STUCK: &str = r#"
name = "stuck"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = 100000000
payload = 100
[[stage]]
id = "spread"
op = "rebalance"
in = "rows"
[[stage]]
id = "wall"
op = "work"
in = "spread"
ms = 3600000
[[stage]]
id = "out"
op = "sink"
in = "wall"
connector = "count"
"#;

fn taken(status: &Value, name: &str) -> u64 {
    edge(status, name)["taken"].as_u64().unwrap()
}

#[test]
fn a_blocked_job_leaves_another_its_rate_and_cancelling_it_changes_nothing_there() {
    let world = World::new();
    world.up(&["--local", "3", "--slots", "1"]);
    let pids = world.pids();
    // The blocked one first: it fills its queues before the other has any.
    world.json(&["submit", &world.file("stuck.toml", STUCK)]);
    world.wait_for("stuck", "running", Duration::from_secs(10));
    std::thread::sleep(Duration::from_secs(2));
    world.json(&["submit", &world.file("steady.toml", STEADY)]);
    world.wait_for("steady", "running", Duration::from_secs(10));
    let before = world.status("steady");
    std::thread::sleep(Duration::from_secs(10));
    let after = world.status("steady");
    let stuck = world.status("stuck");
    assert!(vertex(&stuck, "rows")["blocked"].as_f64().unwrap() > 0.5, "{stuck}");
    let span = after["running_ms"].as_u64().unwrap() - before["running_ms"].as_u64().unwrap();
    let rate = (taken(&after, "double..out") - taken(&before, "double..out")) as f64 * 1e3 / span as f64;
    assert!(rate > 19_000.0, "{rate} rows/s of 20,000 beside a blocked job");
    world.json(&["cancel", "stuck", "--yes"]);
    world.wait_for("stuck", "cancelled", Duration::from_secs(10));
    let end = world.status("steady");
    assert_eq!(end["phase"], "running");
    assert_eq!(end["run"], after["run"]);
    assert!(taken(&end, "double..out") > taken(&after, "double..out"));
    assert!(end["running_ms"].as_u64() > after["running_ms"].as_u64());
    for one in end["edges"].as_array().unwrap() {
        assert_eq!(one["dropped"], serde_json::json!({}), "{one}");
    }
    assert_eq!(world.pids(), pids, "agents were restarted");
    world.json(&["cancel", "steady", "--yes"]);
}

#[test]
fn options_and_policies_change_while_a_job_runs() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    let job = STUCK.replace("ms = 3600000", "ms = 1");
    world.json(&["submit", &world.file("stuck.toml", job)]);
    world.wait_for("stuck", "running", Duration::from_secs(10));
    let rate = |world: &World| {
        let first = world.status("stuck");
        std::thread::sleep(Duration::from_secs(3));
        let second = world.status("stuck");
        let span = second["running_ms"].as_u64().unwrap() - first["running_ms"].as_u64().unwrap();
        (taken(&second, "wall..out") - taken(&first, "wall..out")) as f64 * 1e3 / span as f64
    };
    std::thread::sleep(Duration::from_secs(1));
    let fast = rate(&world);
    assert!((1_800.0..2_100.0).contains(&fast), "two instances of 1 ms gave {fast} rows/s");
    world.json(&["set", "stuck", "wall.ms=10"]);
    std::thread::sleep(Duration::from_secs(1));
    let slow = rate(&world);
    assert!((180.0..220.0).contains(&slow), "two instances of 10 ms gave {slow} rows/s");
    assert_eq!(edge(&world.status("stuck"), "rows..wall")["policy"], "round-robin");
    world.json(&["route", "stuck", "rows..wall", "shuffle"]);
    wait("the policy is shown", Duration::from_secs(5), || {
        edge(&world.status("stuck"), "rows..wall")["policy"] == "shuffle"
    });
    for (args, code) in [
        (&["set", "stuck", "wall.ms=-1"][..], 2),
        (&["set", "stuck", "wall.mode=spin"][..], 2),
        (&["set", "stuck", "wal.ms=1"][..], 6),
        (&["set", "nobody", "wall.ms=1"][..], 6),
        (&["route", "stuck", "rows..wall", "best"][..], 2),
        (&["route", "stuck", "rows..nowhere", "shuffle"][..], 6),
        (&["cancel", "stuck"][..], 7),
    ] {
        let output = world.tuplane(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output));
    }
    world.json(&["cancel", "stuck", "--yes"]);
    world.wait_for("stuck", "cancelled", Duration::from_secs(10));
}

#[test]
fn equal_shares_are_dealt_row_by_row_when_rows_are_few() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    let job = STEADY.replace("n = 100000000", "n = 8").replace("rate = 20000", "rate = 100");
    world.json(&["submit", &world.file("few.toml", job), "--wait"]);
    let status = world.status("steady");
    assert_eq!(taken(&status, "rows..double"), 8);
    let spread = edge(&status, "rows..double");
    assert_eq!(spread["emitted"], 8, "{spread}");
    let flows = spread["flows"].as_array().unwrap();
    let rows = |crossed: bool| -> u64 {
        let these = flows.iter().filter(|flow| (flow["from"] != flow["to"]) == crossed);
        these.map(|flow| flow["rows"].as_u64().unwrap()).sum()
    };
    assert_eq!((rows(true), rows(false)), (4, 4), "half of them crossed to the other agent: {spread}");
}

#[test]
fn sources_that_wait_for_pipes_hold_up_no_other_job_and_can_be_cancelled() {
    let world = World::new();
    world.up(&["--local", "1", "--slots", "4"]);
    for name in ["pipe-1", "pipe-2", "pipe-3", "pipe-4"] {
        assert!(std::process::Command::new("mkfifo").arg(world.path(name)).status().unwrap().success());
    }
    let pipes = format!(
        "name = \"pipes\"\n[[stage]]\nid = \"lines\"\nop = \"source\"\nconnector = \"file\"\n\
         path = \"{}\"\nformat = \"lines\"\n[[stage]]\nid = \"out\"\nop = \"sink\"\nin = \"lines\"\n\
         connector = \"count\"\n",
        world.path("pipe-*").display()
    );
    world.json(&["submit", &world.file("pipes.toml", pipes)]);
    world.wait_for("pipes", "running", Duration::from_secs(10));
    world.json(&["submit", &world.file("steady.toml", STEADY)]);
    world.wait_for("steady", "running", Duration::from_secs(10));
    let before = world.status("steady");
    std::thread::sleep(Duration::from_secs(3));
    let after = world.status("steady");
    let span = after["running_ms"].as_u64().unwrap() - before["running_ms"].as_u64().unwrap();
    let rate = (taken(&after, "double..out") - taken(&before, "double..out")) as f64 * 1e3 / span as f64;
    assert!(rate > 19_000.0, "{rate} rows/s of 20,000 beside four sources that wait for pipes");
    world.json(&["cancel", "pipes", "--yes"]);
    world.wait_for("pipes", "cancelled", Duration::from_secs(5));
    world.json(&["cancel", "steady", "--yes"]);
}
