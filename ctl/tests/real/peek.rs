//! `tuplane peek` on real agents: rows from all instances, ends, and what is said where there is nothing to see.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::world::{World, text, wait};

/// A job without end, dealt out over all agents; two stages run as one behind the work.
const ENDLESS: &str = r#"
name = "endless"
[[stage]]
id = "rows"
op = "source"
connector = "generator"
kind = "sequence"
rate = 2000
[[stage]]
id = "spread"
op = "rebalance"
in = "rows"
[[stage]]
id = "work"
op = "work"
in = "spread"
ms = 0.1
[[stage]]
id = "doubled"
op = "map"
in = "work"
select = ["value", "value * 2 as twice"]
[[stage]]
id = "kept"
op = "filter"
in = "doubled"
where = "value % 2 = 0"
[[stage]]
id = "by"
op = "group_by"
in = "kept"
key = "value % 7"
[[stage]]
id = "seen"
op = "rolling_aggregate"
in = "by"
compute = ["count(*) as n"]
[[stage]]
id = "look"
op = "peek"
in = "seen"
sample = "20/s"
[[stage]]
id = "out"
op = "sink"
in = "look"
connector = "count"
"#;

fn documents(output: &std::process::Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", text(output));
    String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn rows_come_from_every_instance_while_the_job_runs() {
    let world = World::new();
    world.up(&["--local", "3", "--slots", "1"]);
    let job = world.file("job.toml", ENDLESS);
    world.json(&["submit", &job]);
    world.wait_for("endless", "running", Duration::from_secs(20));
    let output = world.tuplane(&["peek", "endless", "work", "-n", "60", "--rate", "60/s", "-o", "jsonl"]);
    let documents = documents(&output);
    let rows: Vec<&Value> = documents.iter().flat_map(|one| one["rows"].as_array().unwrap()).collect();
    assert_eq!(rows.len(), 60, "{}", text(&output));
    let agents: BTreeSet<&str> = rows.iter().map(|row| row["agent"].as_str().unwrap()).collect();
    let instances: BTreeSet<&str> = rows.iter().map(|row| row["instance"].as_str().unwrap()).collect();
    assert_eq!((agents.len(), instances.len()), (3, 3), "{agents:?} {instances:?}");
    assert!(rows.iter().all(|row| row["row"]["value"].is_u64() && row["cut"] == serde_json::json!([])));
    let last = documents.last().unwrap();
    assert!(last["passed"].as_u64().unwrap() >= 60 && last["shown"] == 60 && last["missed"] == 0, "{last}");
    // What a fused vertex puts out, and that it is one.
    let fused = world.tuplane(&["peek", "endless", "doubled", "-n", "5"]);
    let said = text(&fused);
    assert!(fused.status.success() && said.contains("doubled runs inside doubled+kept"), "{said}");
    for line in String::from_utf8_lossy(&fused.stdout).lines() {
        let (place, values) = line.split_once(": ").unwrap();
        assert!(place.starts_with("doubled+kept#") && place.contains(" on "), "{line}");
        let (value, twice) = values.strip_prefix("value = ").unwrap().split_once(", twice = ").unwrap();
        let (value, twice): (u64, u64) = (value.parse().unwrap(), twice.parse().unwrap());
        assert!(value % 2 == 0 && twice == 2 * value, "{line}");
    }
    // A sink shows what it takes; a `peek` stage is a name of what stands before it.
    for stage in ["out", "look", "seen", "rows"] {
        let document = world.json(&["peek", "endless", stage, "-n", "3"]);
        assert_eq!(document["rows"].as_array().unwrap().len(), 3, "{document}");
    }
    // The stage's rows are in the log of each agent, also while nobody follows.
    let logs = || -> usize {
        let run = world.path("run");
        let found = walk(&run).into_iter().filter(|path| path.extension().is_some_and(|end| end == "log"));
        found
            .filter(|path| {
                let log = std::fs::read_to_string(path).unwrap();
                log.lines().any(|line| line.contains("stage=look") && line.contains("n = "))
            })
            .count()
    };
    wait("each agent's log has rows", Duration::from_secs(10), || logs() == 3);
    // What has no rows, is not there, or is over.
    for (stage, code, said) in [
        ("spread", 2, "`spread` (rebalance) has no rows of its own: peek at rows"),
        ("by", 2, "peek at kept"),
        ("wrk", 6, "no stage `wrk`; did you mean `work`?"),
    ] {
        let output = world.tuplane(&["peek", "endless", stage]);
        assert!(output.status.code() == Some(code) && text(&output).contains(said), "{}", text(&output));
    }
    world.json(&["cancel", "endless", "--yes"]);
    let output = world.tuplane(&["peek", "endless", "work"]);
    assert!(
        output.status.code() == Some(2) && text(&output).contains("only the rows of a running job"),
        "{}",
        text(&output)
    );
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn a_follower_ends_with_the_job_and_text_is_made_safe() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    let mut lines = String::new();
    for _ in 0..400 {
        lines.push_str(&format!("a\u{1b}[2Jb\u{202e}c\t{}\n", "x".repeat(3000)));
    }
    let path = world.file("in.txt", lines);
    let job = world.file(
        "job.toml",
        format!(
            "name = \"ends\"\n[[stage]]\nid = \"lines\"\nop = \"source\"\npath = \"{path}\"\nrate = 100\n\
         [[stage]]\nid = \"out\"\nop = \"sink\"\nin = \"lines\"\nconnector = \"count\"\n"
        ),
    );
    world.json(&["submit", &job]);
    world.wait_for("ends", "running", Duration::from_secs(20));
    // 400 rows at 100 a second: it ends by itself, since the job does.
    let output = world.tuplane(&["peek", "ends", "lines"]);
    assert!(output.status.success(), "{}", text(&output));
    let shown = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(shown.lines().count() >= 2, "{}", text(&output));
    for line in shown.lines() {
        assert!(
            line.contains("line = \"a\\u001b[2Jb\\u{202e}c\\txxx") && line.ends_with("\" (+1,987 bytes)"),
            "{line}"
        );
    }
    assert!(String::from_utf8_lossy(&output.stderr).contains("went by"), "{}", text(&output));
    assert_eq!(world.wait_for("ends", "finished", Duration::from_secs(20))["result_rows"], 400);
}
