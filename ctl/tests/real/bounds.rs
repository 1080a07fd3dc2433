//! Memory, idle cost and bytes on the wire stay bounded.

use std::time::Duration;

use serde_json::Value;

use super::world::{World, cpu_seconds, edge, kib, vertex, wait};

/// Numbered rows through a rebalanced edge into slow work, on two agents.
fn slow(n: u64, payload: u32, ms: f64, between: &str) -> String {
    format!(
        r#"
name = "slow"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = {n}
payload = {payload}
distributed = false
{between}
[[stage]]
id = "spread"
op = "rebalance"
in = "{input}"
[[stage]]
id = "work"
op = "work"
in = "spread"
ms = {ms}
parallelism = 1
[[stage]]
id = "out"
op = "sink"
in = "work"
connector = "count"
"#,
        input = if between.is_empty() { "rows" } else { "few" }
    )
}

/// Runs a job for 20 s; its agents' memory must be flat in the last 10 and small. Gives its status.
fn is_flat(job: &str) -> Value {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    let file = world.file("job.toml", job);
    world.json(&["submit", &file]);
    std::thread::sleep(Duration::from_secs(10));
    let before: Vec<u64> = world.pids().values().map(|pid| kib(*pid, "RssAnon:")).collect();
    std::thread::sleep(Duration::from_secs(10));
    let after: Vec<u64> = world.pids().values().map(|pid| kib(*pid, "RssAnon:")).collect();
    for (before, after) in before.iter().zip(&after) {
        assert!(*after < before + (20 << 10), "RssAnon grew from {before} to {after} KiB");
        assert!(*after < 200 << 10, "RssAnon is {after} KiB");
    }
    let status = world.status("slow");
    assert_eq!(status["phase"], "running", "{status}");
    println!("RssAnon {before:?} -> {after:?} KiB");
    status
}

fn assert_blocked(status: &Value) {
    let source = vertex(status, "rows");
    assert!(source["blocked"].as_f64().unwrap() > 0.8, "{source}");
}

#[test]
fn memory_is_flat_with_small_rows() {
    assert_blocked(&is_flat(&slow(2_000_000, 200, 1.0, "")));
}

#[test]
fn memory_is_flat_with_rows_of_64_kib() {
    assert_blocked(&is_flat(&slow(2_000_000, 64 << 10, 1.0, "")));
}

#[test]
fn memory_is_flat_behind_a_filter_before_a_stopped_consumer() {
    let few = r#"
[[stage]]
id = "few"
op = "filter"
in = "rows"
where = "id % 2048 = 0"
"#;
    let status = is_flat(&slow(20_000_000_000, 200, 3_600_000.0, few));
    assert_blocked(&status);
    // Rows wait in front of the consumer, which is what must keep nothing else alive.
    assert!(edge(&status, "few..work")["emitted"].as_u64().unwrap() > 1000, "{status}");
}

#[test]
fn an_idle_agent_costs_little() {
    let world = World::new();
    world.up(&["--local", "2"]);
    std::thread::sleep(Duration::from_secs(5));
    let pids = world.pids();
    let before: Vec<f64> = pids.values().map(|pid| cpu_seconds(*pid)).collect();
    std::thread::sleep(Duration::from_secs(30));
    for ((name, pid), before) in pids.iter().zip(before) {
        let (rss, cpu) = (kib(*pid, "VmRSS:"), cpu_seconds(*pid) - before);
        println!("{name}: {rss} KiB, {cpu:.2} s of CPU in 30 s");
        assert!(rss < 40 << 10, "{name} idles with {rss} KiB");
        assert!(cpu < 0.3, "{name} used {cpu} s of CPU while idle");
    }
}

#[test]
fn rows_across_agents_are_counted_and_frames_are_not_wasteful() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    let file = world.file("job.toml", slow(400_000, 32, 0.0, ""));
    world.json(&["submit", &file, "--wait"]);
    let mut status = world.status("slow");
    wait("the last report is in", Duration::from_secs(5), || {
        status = world.status("slow");
        edge(&status, "rows..work")["in_flight"] == 0
    });
    let spread = edge(&status, "rows..work");
    let flows = spread["flows"].as_array().unwrap();
    let sum = |key: &str, flows: &mut dyn Iterator<Item = &Value>| -> u64 {
        flows.map(|flow| flow[key].as_u64().unwrap()).sum()
    };
    assert_eq!(sum("rows", &mut flows.iter()), 400_000, "{spread}");
    let across = || flows.iter().filter(|flow| flow["from"] != flow["to"]);
    let (rows, payload) = (sum("rows", &mut across()), sum("bytes", &mut across()));
    let wire = sum("wire_bytes", &mut across());
    // An id of 8 bytes, a text of 32 and its offset.
    assert!(rows > 10_000 && payload == rows * 44, "{rows} rows, {payload} bytes");
    assert!(wire > payload && wire < 2 * payload, "{wire} bytes on the wire for {payload}");
}

#[test]
fn a_source_that_is_joined_with_itself_ends_with_its_waiting_rows_on_disk() {
    const N: u64 = 300_000;
    let world = World::new();
    // 300 MB of rows wait for a table of 300,000 numbers.
    let job = format!(
        "name = \"itself\"\n[[stage]]\nid = \"ids\"\nop = \"source\"\nconnector = \"ids\"\nn = {N}\npayload = 1000\n\
         [[stage]]\nid = \"keys\"\nop = \"map\"\nin = \"ids\"\nselect = [\"id\"]\n\
         [[stage]]\nid = \"both\"\nop = \"hash_join\"\nin = [\"ids\", \"keys\"]\non = [\"id = id\"]\n\
         [[stage]]\nid = \"out\"\nop = \"sink\"\nin = \"both\"\nconnector = \"count\"\n"
    );
    world.up(&["--local", "2", "--slots", "1", "--memory", "8MiB"]);
    let pids = world.pids();
    let file = world.file("itself.toml", job);
    world.json(&["submit", &file]);
    let (mut most, mut status) = (0, Value::Null);
    wait("the join has ended", Duration::from_mins(2), || {
        most = pids.values().map(|pid| kib(*pid, "RssAnon:")).max().unwrap_or(0).max(most);
        status = world.status("itself");
        status["phase"] != "running"
    });
    assert_eq!(status["phase"], "finished", "{status}");
    assert_eq!(vertex(&status, "out")["rows_in"], N, "{status}");
    println!("RssAnon {most} KiB at most");
    assert!(most < 100 << 10, "RssAnon was {most} KiB");
}
