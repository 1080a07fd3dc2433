//! Stages that keep state by key are scaled while their job runs: on agents that come and go, at full queues, with event
//! time.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::rescale::{assert_quick, running, second_agent};
use super::world::{ByHand, Processes, World, assert_exact_ledger, csv_rows, numbers, vertex, wait};

const KEYS: u64 = 53;

/// Numbered rows of so many bytes, each answered by how many of its key there were, through a stage of 2 ms a row.
pub(super) fn job(world: &World, rows: u64, payload: u32) -> String {
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
payload = {payload}
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
ms = 2
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
pub(super) fn held(status: &Value, stage: &str) -> BTreeMap<u64, u64> {
    let all = status["per_instance"].as_array().unwrap().iter();
    // Another vertex may have its partial results.
    let is_it = |label: &str| label.split('+').any(|part| part == stage);
    let of_stage = all.filter(|one| is_it(one["vertex"].as_str().unwrap()));
    let held =
        of_stage.map(|one| (one["number"].as_u64().unwrap(), one["key_partitions"].as_u64().unwrap_or(0)));
    held.filter(|(_, count)| *count > 0).collect()
}

pub(super) fn assert_even(status: &Value, stage: &str, instances: usize) {
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

pub(super) struct Cluster {
    pub(super) world: World,
    pub(super) address: String,
    /// None while there is no coordinator.
    pub(super) first: Option<ByHand>,
    pub(super) others: Vec<ByHand>,
}

impl Cluster {
    pub(super) fn at(&self, args: &[&str]) -> Value {
        self.world.json_at(&self.address, args)
    }

    pub(super) fn status(&self) -> Value {
        self.at(&["status", "line"])
    }

    /// One rescale, waited for; gives its time in ms.
    pub(super) fn scale(&self, args: &[&str]) -> u64 {
        let done = self.at(&[&["scale"], args, &["--wait=20s", "--yes"]].concat());
        assert_eq!(done["outcome"]["step"], "done", "{done}");
        done["outcome"]["ended_ms"].as_u64().unwrap()
    }

    /// Processes that live.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.first.iter().chain(&self.others).map(|agent| agent.pid)
    }

    /// So many agents are there.
    pub(super) fn wait_for_agents(&self, count: usize) {
        wait("all are there", Duration::from_secs(30), || {
            let agents = self.at(&["agents"]);
            agents["agents"].as_array().unwrap().iter().filter(|agent| agent["alive"] == true).count()
                == count
        });
    }

    /// An agent joins that the job has nothing on.
    fn third(&mut self) {
        self.others.push(self.world.agent_by_hand("c", "127.0.0.1:0", Some(&self.address)));
        self.wait_for_agents(3);
    }

    fn wait_for_full_queues(&self) {
        wait("the queues are full", Duration::from_secs(30), || {
            vertex(&self.status(), "rows")["blocked"].as_f64().unwrap_or(0.0) > 0.5
        });
    }

    /// The rest goes fast. Gives the status of the job that has finished.
    fn last_status(&self) -> Value {
        self.at(&["set", "line", "slow.ms=0.005"]);
        wait("the job finishes", Duration::from_mins(1), || self.status()["phase"] != "running");
        let last = self.status();
        assert_eq!(last["phase"], "finished", "{last}");
        assert_exact_ledger(&last);
        last
    }

    /// The rest goes fast, and all of it was counted.
    pub(super) fn finish(&self, rows: u64, sources: u64) {
        self.last_status();
        assert_counted(&self.world.path("out"), rows, sources);
    }
}

#[test]
fn twenty_rescales_of_a_keyed_stage_at_full_queues_skip_no_count_and_repeat_none() {
    const ROWS: u64 = 72_000;
    let world = World::new();
    let first = world.agent_with("a", None, |config| config.slots = 1);
    let others = vec![second_agent(&world, &first, 10_000)];
    let mut cluster = Cluster { world, address: first.address.clone(), first: Some(first), others };
    cluster.at(&["submit", &job(&cluster.world, ROWS, 8000)]);
    cluster.wait_for_full_queues();
    cluster.third();
    let processes = Processes::of(cluster.pids());
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
    assert_quick(took);
    processes.assert_same();
    assert_eq!(cluster.status()["phase"], "running", "it was over before");
    cluster.finish(ROWS, 2);
}

/// Windows of 10 s over windows of 1 s, whose rows are some 1 KiB long, and a stage behind that takes few of them.
fn windows(world: &World, rows: u64) -> String {
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
payload = 1000
on = ["a", "b"]
time = {{ column = "id * {STEP_MS}", format = "unix_ms", lateness = "0s" }}
[[stage]]
id = "by_key"
op = "group_by"
in = "rows"
key = "id % {KEYS} as k"
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
compute = ["count(*) as c", "max(payload) as p"]
instances = 2
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
compute = ["sum(c) as s", "count(*) as seconds", "max(p) as p"]
instances = 2
[[stage]]
id = "slow"
op = "work"
in = "sums"
ms = 1
instances = 1
[[stage]]
id = "narrow"
op = "map"
in = "slow"
select = ["k", "cast(window_start as bigint) / 1000000000 as start", "s", "seconds"]
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

/// From one row's event time to the next one's.
const STEP_MS: u64 = 20;

/// What these windows have to give: by key and start in seconds, the rows and in how many seconds there were any.
fn of_windows(rows: u64) -> BTreeMap<(u64, u64), (u64, u64)> {
    let mut seconds: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for id in 0..rows {
        *seconds.entry((id % KEYS, id * STEP_MS / 1000)).or_default() += 1;
    }
    let mut tens: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
    for ((key, second), count) in seconds {
        let ten = tens.entry((key, second / 10 * 10)).or_default();
        (ten.0, ten.1) = (ten.0 + count, ten.1 + 1);
    }
    tens
}

/// Nobody is late who is not late without rescales, where nobody is; and results are the same.
#[test]
fn twenty_rescales_of_windows_at_full_queues_make_no_row_late_and_change_no_result() {
    const ROWS: u64 = 400_000;
    let world = World::new();
    let first = world.agent_with("a", None, |config| config.slots = 1);
    let others = vec![second_agent(&world, &first, 10_000)];
    let mut cluster = Cluster { world, address: first.address.clone(), first: Some(first), others };
    cluster.at(&["submit", &windows(&cluster.world, ROWS)]);
    cluster.wait_for_full_queues();
    cluster.third();
    let before = cluster.status();
    let processes = Processes::of(cluster.pids());
    // What is there already is no plan.
    for ask in ["counts=2", "sums=2"] {
        let asked = cluster.at(&["scale", "set", "line", ask]);
        assert_eq!((&asked["next"], &asked["started"]), (&Value::Null, &serde_json::json!([])), "{asked}");
    }
    assert_eq!(cluster.at(&["scale", "history", "line"])["history"], serde_json::json!([]));
    assert_eq!(cluster.status()["epoch"], before["epoch"]);
    let took: Vec<u64> = (0..5)
        .flat_map(|_| ["counts=6", "sums=6", "counts=2", "sums=2"])
        .map(|ask| cluster.scale(&["set", "line", ask]))
        .collect();
    println!("20 rescales of windows at full queues took {took:?} ms each");
    assert_quick(took);
    let status = cluster.status();
    assert_eq!((&status["phase"], &status["epoch"]), (&"running".into(), &21.into()), "{status}");
    assert!(
        vertex(&status, "rows")["blocked"].as_f64().unwrap_or(0.0) > 0.5,
        "queues are not full: {status}"
    );
    for stage in ["counts", "sums"] {
        assert_even(&status, stage, 2);
    }
    processes.assert_same();
    let last = cluster.last_status();
    for one in last["vertices"].as_array().unwrap() {
        assert_eq!(one["dropped"], serde_json::json!({}), "{one}");
    }
    let (_, rows) = csv_rows(&cluster.world.path("out"));
    let mut found = BTreeMap::new();
    for row in rows {
        let cells = numbers(&row);
        assert_eq!(found.insert((cells[0], cells[1]), (cells[2], cells[3])), None, "{row:?} came twice");
    }
    assert_eq!(found, of_windows(ROWS));
}
