//! Stages that keep state by key are scaled while their job runs: on agents that come and go, at full queues, with event
//! time, and whenever the coordinator is killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::rescale::{idle, running, second_agent};
use super::world::{ByHand, World, assert_exact_ledger, csv_rows, signal, vertex, wait};

const KEYS: u64 = 53;

/// Numbered rows, each answered by how many of its key there were, through a stage of so many milliseconds a row.
fn job(world: &World, rows: u64, ms: f64) -> String {
    let out = world.path("out");
    let text = format!(
        r#"
name = "line"
[job]
memory = "4MiB"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = {rows}
payload = 8000
on = ["a", "b"]
[[stage]]
id = "by_key"
op = "group_by"
in = "rows"
key = "id % {KEYS} as k"
[[stage]]
id = "counts"
op = "rolling_aggregate"
in = "by_key"
compute = ["count(*) as c"]
instances = 2
[[stage]]
id = "slow"
op = "work"
in = "counts"
ms = {ms}
instances = 2
[[stage]]
id = "narrow"
op = "map"
in = "slow"
select = ["id", "c"]
[[stage]]
id = "out"
op = "sink"
in = "narrow"
connector = "file"
format = "csv"
path = "{}"
instances = 1
"#,
        out.display()
    );
    world.file("line.toml", text)
}

/// Each key was counted without a gap: a row that is lost or there twice, or state that did not come along, shows in the
/// counts of all rows behind it; and rows of one source instance kept their order.
fn assert_counted(folder: &Path, rows: u64, sources: u64) {
    let mut keys: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    for row in csv_rows(folder).1 {
        let [id, count] = [&row[0], &row[1]].map(|cell| cell.parse::<u64>().unwrap());
        assert_eq!(keys.entry(id % KEYS).or_default().insert(count, id), None, "a count came twice");
    }
    for (key, counts) in &keys {
        let expected = (0..rows).filter(|id| id % KEYS == *key).count() as u64;
        assert!(counts.keys().copied().eq(1..=expected), "key {key}: {} of {expected}", counts.len());
        for source in 0..sources {
            let ids: Vec<u64> = counts.values().copied().filter(|id| id % sources == source).collect();
            assert!(ids.is_sorted(), "key {key}: rows of one source instance in another order");
        }
    }
    assert_eq!(keys.len() as u64, KEYS);
}

/// Key partitions that each instance holds, by the instance's number.
fn held(status: &Value, stage: &str) -> BTreeMap<u64, u64> {
    let all = status["per_instance"].as_array().unwrap().iter();
    let of_stage = all.filter(|one| one["vertex"].as_str().unwrap().contains(stage));
    let held =
        of_stage.map(|one| (one["number"].as_u64().unwrap(), one["key_partitions"].as_u64().unwrap_or(0)));
    held.filter(|(_, count)| *count > 0).collect()
}

fn assert_even(status: &Value, stage: &str, instances: usize) {
    let held = held(status, stage);
    assert_eq!((held.len(), held.values().sum::<u64>()), (instances, 271), "{held:?}");
    assert!(held.values().max().unwrap() - held.values().min().unwrap() <= 1, "{held:?}");
}

/// The vertex that a stage is part of.
fn name(status: &Value, stage: &str) -> String {
    let all = status["vertices"].as_array().unwrap().iter();
    let names = all.map(|one| one["vertex"].as_str().or(one["name"].as_str()).unwrap());
    names.into_iter().find(|name| name.contains(stage)).unwrap().to_owned()
}

struct Cluster {
    world: World,
    address: String,
    /// None while there is no coordinator.
    first: Option<ByHand>,
    others: Vec<ByHand>,
}

impl Cluster {
    fn at(&self, args: &[&str]) -> Value {
        self.world.json_at(&self.address, args)
    }

    fn status(&self) -> Value {
        self.at(&["status", "line"])
    }

    /// One rescale, waited for; gives its time in ms.
    fn scale(&self, args: &[&str]) -> u64 {
        let done = self.at(&[&["scale"], args, &["--wait=20s", "--yes"]].concat());
        assert_eq!(done["outcome"]["step"], "done", "{done}");
        done["outcome"]["ended_ms"].as_u64().unwrap()
    }

    fn finish(&self, rows: u64, sources: u64) {
        self.at(&["set", "line", "slow.ms=0.005"]);
        wait("the job finishes", Duration::from_mins(1), || self.status()["phase"] != "running");
        let last = self.status();
        assert_eq!(last["phase"], "finished", "{last}");
        assert_exact_ledger(&last);
        assert_counted(&self.world.path("out"), rows, sources);
    }
}

#[test]
fn twenty_rescales_of_a_keyed_stage_at_full_queues_skip_no_count_and_repeat_none() {
    const ROWS: u64 = 36_000;
    let world = World::new();
    let first = world.agent_with("a", None, |config| config.slots = 1);
    let others = vec![second_agent(&world, &first, 10_000)];
    let mut cluster = Cluster { world, address: first.address.clone(), first: Some(first), others };
    cluster.at(&["submit", &job(&cluster.world, ROWS, 2.0)]);
    wait("the queues are full", Duration::from_secs(30), || {
        let status = cluster.status();
        vertex(&status, "rows")["blocked"].as_f64().unwrap_or(0.0) > 0.5
    });
    let third = cluster.world.agent_by_hand("c", "127.0.0.1:0", Some(&cluster.address));
    cluster.others.push(third);
    wait("c is there", Duration::from_secs(20), || {
        let agents = cluster.at(&["agents"]);
        agents["agents"]
            .as_array()
            .unwrap()
            .iter()
            .any(|agent| agent["agent"] == "c" && agent["alive"] == true)
    });
    let stage = name(&cluster.status(), "counts");
    assert_even(&cluster.status(), "counts", 2);
    let mut took = Vec::new();
    for round in 0..5 {
        took.push(cluster.scale(&["set", "line", "counts=4", "--place", "new"]));
        took.push(cluster.scale(&["set", "line", &format!("counts={}", 6 + round)]));
        took.push(cluster.scale(&["in", "line", "--agent", "c", "--keep"]));
        let status = cluster.status();
        assert!(running(&status, &stage).iter().all(|(_, agent)| agent != "c"), "{status}");
        took.push(cluster.scale(&["set", "line", "counts=2"]));
        assert_even(&cluster.status(), "counts", 2);
    }
    println!("20 rescales of a keyed stage at full queues took {took:?} ms each");
    assert_eq!(cluster.status()["phase"], "running", "it was over before");
    cluster.finish(ROWS, 2);
}

/// Windows, and windows over their results: both are scaled, neither finds a row late.
#[test]
fn rescales_of_windows_make_no_row_late_and_change_no_result() {
    const ROWS: u64 = 40_000;
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    let out = world.path("out");
    let file = world.file(
        "timed.toml",
        format!(
            r#"
name = "line"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = {ROWS}
rate = 1500
time = {{ column = "id", format = "unix_ms" }}
[[stage]]
id = "by_key"
op = "group_by"
in = "rows"
key = "id % 7 as k"
[[stage]]
id = "second"
op = "window"
in = "by_key"
type = "tumbling"
size = "1s"
[[stage]]
id = "counts"
op = "aggregate"
in = "second"
compute = ["count(*) as c"]
[[stage]]
id = "spread"
op = "rebalance"
in = "counts"
[[stage]]
id = "again"
op = "group_by"
in = "spread"
key = "k"
[[stage]]
id = "ten"
op = "window"
in = "again"
type = "tumbling"
size = "10s"
[[stage]]
id = "sums"
op = "aggregate"
in = "ten"
compute = ["sum(c) as s", "count(*) as seconds"]
[[stage]]
id = "out"
op = "sink"
in = "sums"
connector = "file"
format = "csv"
path = "{}"
"#,
            out.display()
        ),
    );
    world.json(&["submit", &file]);
    let scale = |stage: &str, count: u32| {
        let done = world.json(&["scale", "set", "line", &format!("{stage}={count}"), "--wait=20s", "--yes"]);
        assert_eq!(done["outcome"]["step"], "done", "{done}");
    };
    for (stage, count) in [("counts", 5), ("sums", 3), ("counts", 1), ("sums", 1), ("counts", 3)] {
        scale(stage, count);
    }
    world.json(&["set", "line", "rows.rate=30000"]);
    let last = world.wait_for("line", "finished", Duration::from_mins(1));
    assert_exact_ledger(&last);
    for one in last["vertices"].as_array().unwrap() {
        assert_eq!(one["dropped"], serde_json::json!({}), "{one}");
    }
    let rows = csv_rows(&out).1;
    assert_eq!(rows.len() as u64, 7 * ROWS / 10_000);
    for row in rows {
        // Key, 1970-01-01T00:00:SSZ, the end, the sum
        let cells: Vec<&str> = row[0].split(',').collect();
        let (key, start): (u64, u64) = (cells[0].parse().unwrap(), cells[1][17..19].parse().unwrap());
        let expected = (start * 1000..start * 1000 + 10_000).filter(|id| id % 7 == key).count();
        assert_eq!((cells[3].parse(), row[1].as_str()), (Ok(expected), "10"), "{row:?}");
    }
}

/// The coordinator has no instances, and is killed at some moment of each rescale.
#[test]
fn key_partitions_are_where_the_old_plan_or_the_new_one_has_them_when_a_coordinator_is_killed() {
    const ROWS: u64 = 30_000;
    let world = World::new();
    let first = world.agent_at("c", "127.0.0.1:0", None, idle);
    let address = first.address.clone();
    let others = ["a", "b"].map(|name| world.agent_by_hand(name, "127.0.0.1:0", Some(&address)));
    let mut cluster = Cluster { world, address, first: Some(first), others: others.into() };
    let there = |cluster: &Cluster| {
        wait("all are there", Duration::from_secs(30), || {
            let agents = cluster.at(&["agents"]);
            agents["agents"].as_array().unwrap().iter().filter(|agent| agent["alive"] == true).count() == 3
        });
    };
    there(&cluster);
    cluster.at(&["submit", &job(&cluster.world, ROWS, 2.0)]);
    wait("rows are counted", Duration::from_secs(20), || {
        vertex(&cluster.status(), "out")["rows_in"].as_u64().unwrap_or(0) > 100
    });
    let mut before = 2;
    // From the request on, and from the commit on.
    let moments = [(false, 8), (true, 0), (true, 5), (true, 40)];
    for (committed, pause_ms) in moments {
        let wanted = if before == 2 { 5 } else { 2 };
        let asked = cluster.at(&["scale", "set", "line", &format!("counts={wanted}")]);
        if committed {
            wait("it is committed", Duration::from_secs(20), || {
                let history = cluster.at(&["scale", "history", "line"]);
                let last = history["history"].as_array().unwrap().last().cloned().unwrap_or_default();
                ["committed", "done"].iter().any(|step| last["step"] == *step)
            });
        }
        std::thread::sleep(Duration::from_millis(pause_ms));
        if let Some(first) = cluster.first.take() {
            signal(first.pid, "KILL");
        }
        cluster.first = Some(cluster.world.agent_at("c", &cluster.address, None, idle));
        there(&cluster);
        let began = Instant::now();
        let mut last = Value::Null;
        wait("the rescale is over", Duration::from_secs(30), || {
            let history = cluster.at(&["scale", "history", "line"]);
            last = history["history"].as_array().unwrap().last().cloned().unwrap_or_default();
            ["done", "failed"].iter().any(|step| last["step"] == *step)
        });
        let status = cluster.status();
        assert_eq!(status["phase"], "running", "{status}");
        let expected = match (&asked["next"], last["step"].as_str().unwrap()) {
            (Value::Null, _) | (_, "failed") => before,
            _ => wanted,
        };
        println!(
            "killed {pause_ms} ms after ({committed}): {}, over after {:?}",
            last["step"],
            began.elapsed()
        );
        assert_even(&status, "counts", expected);
        before = expected;
    }
    cluster.finish(ROWS, 2);
}
