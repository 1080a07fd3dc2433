//! Sources are moved and become fewer while their job runs: what an instance has not read others go on with.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::rescale::running;
use super::world::{World, assert_exact_ledger, csv_rows, wait};

/// Counted by key without a gap, and rows of one unit of the source in their order.
fn assert_counted(world: &World, folder: &str, ids: std::ops::Range<u64>, unit: impl Fn(u64) -> u64) {
    let mut keys: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    for row in csv_rows(&world.path(folder)).1 {
        let [id, count] = [&row[0], &row[1]].map(|cell| cell.parse::<u64>().unwrap());
        assert_eq!(keys.entry(id % 7).or_default().insert(count, id), None, "a count came twice");
    }
    for (key, counts) in &keys {
        let expected = ids.clone().filter(|id| id % 7 == *key).count() as u64;
        assert!(
            counts.keys().copied().eq(1..=expected),
            "{folder}, key {key}: {} of {expected}",
            counts.len()
        );
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for id in counts.values() {
            let before = last.insert(unit(*id), *id);
            assert!(before < Some(*id), "{folder}, key {key}: {before:?} and then {id}");
        }
    }
    assert_eq!(keys.len(), 7);
}

/// Under load an agent is drained that has instances of a paced source and of one of files, and then both have one instance.
#[test]
fn an_agent_with_sources_is_given_back_under_load() {
    const ROWS: u64 = 30_000;
    const FILES: u64 = 6;
    const LINES: u64 = 30_000;
    let world = World::new();
    world.up(&["--local", "3", "--slots", "1"]);
    let folder = world.path("in");
    std::fs::create_dir(&folder).unwrap();
    for file in 0..FILES {
        // So wide that queues hold few of them.
        let lines = (0..LINES).map(|line| format!("{},{:0200}\n", file * LINES + line, 0));
        let lines: Vec<String> = lines.collect();
        std::fs::write(folder.join(format!("{file}.csv")), lines.concat()).unwrap();
    }
    let counted = |source: &str, out: &str| {
        format!(
            r#"
[[stage]]
id = "{source}_by_key"
op = "group_by"
in = "{source}"
key = "id % 7 as k"
[[stage]]
id = "{source}_counts"
op = "rolling_aggregate"
in = "{source}_by_key"
compute = ["count(*) as c"]
instances = 2
[[stage]]
id = "{source}_slow"
op = "work"
in = "{source}_counts"
ms = 0.2
instances = 2
[[stage]]
id = "{source}_narrow"
op = "map"
in = "{source}_slow"
select = ["id", "c"]
[[stage]]
id = "{source}_out"
op = "sink"
in = "{source}_narrow"
connector = "file"
format = "csv"
path = "{}"
instances = 1
"#,
            world.path(out).display()
        )
    };
    let text = format!(
        r#"
name = "line"
[job]
memory = "2MiB"
[[stage]]
id = "paced"
op = "source"
connector = "ids"
n = {ROWS}
rate = 1500
instances = 3
[[stage]]
id = "files"
op = "source"
connector = "file"
path = "{}/*.csv"
format = "csv"
columns = {{ id = "bigint", wide = "text" }}
split = "file"
instances = 3
{}{}"#,
        folder.display(),
        counted("paced", "paced"),
        counted("files", "files"),
    );
    world.json(&["submit", &world.file("line.toml", text)]);
    let status = world.wait_for("line", "running", Duration::from_secs(20));
    for source in ["paced", "files"] {
        assert!(running(&status, source).iter().any(|(_, agent)| agent == "c"), "{status}");
    }
    wait("all of them read", Duration::from_secs(20), || {
        let status = world.status("line");
        let all = status["per_instance"].as_array().unwrap().clone();
        all.iter().all(|one| one["rows_in"].as_u64().unwrap_or(0) > 0)
    });
    let drain = world.json(&["agents", "drain", "c", "--wait=1m"]);
    assert_eq!(drain["jobs"][0]["stays"], json!([]), "{drain}");
    let status = world.status("line");
    for source in ["paced", "files"] {
        let agents = running(&status, source);
        assert!(agents.len() == 3 && agents.iter().all(|(_, agent)| agent != "c"), "{status}");
    }
    world.json(&["agents", "release", "c", "--yes"]);
    for source in ["files", "paced"] {
        let done = world.json(&["scale", "set", "line", &format!("{source}=1"), "--wait=1m", "--yes"]);
        assert_eq!(
            (&done["outcome"]["step"], done["stopped"].as_array().unwrap().len()),
            (&"done".into(), 2),
            "{done}"
        );
    }
    assert_eq!(world.status("line")["phase"], "running", "it was over before");
    for stage in ["paced_slow.ms=0.005", "files_slow.ms=0.005", "paced.rate=20000"] {
        world.json(&["set", "line", stage]);
    }
    let last = world.wait_for("line", "finished", Duration::from_mins(1));
    assert_exact_ledger(&last);
    assert_counted(&world, "paced", 0..ROWS, |id| id % 3);
    assert_counted(&world, "files", 0..FILES * LINES, |id| id / LINES);
}
