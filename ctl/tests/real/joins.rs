//! A join while it is scaled: agents that come get its table, and those that go are needed no more.

use std::collections::BTreeSet;
use std::time::Duration;

use super::rescale::running;
use super::world::{World, assert_exact_ledger, csv_rows, wait};

const ROWS: u64 = 40_000;

#[test]
fn a_join_comes_to_a_new_agent_with_its_table_and_leaves_it_again() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    let out = world.path("out");
    let file = world.file(
        "line.toml",
        format!(
            r#"
name = "line"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = {ROWS}
rate = 1000
on = ["a", "b"]
[[stage]]
id = "names"
op = "source"
connector = "ids"
n = 1000
on = ["a", "b"]
[[stage]]
id = "named"
op = "map"
in = "names"
select = ["id as k", "id * 3 as v"]
[[stage]]
id = "joined"
op = "hash_join"
in = ["rows", "named"]
on = ["id % 1000 = k"]
[[stage]]
id = "out"
op = "sink"
in = "joined"
connector = "file"
format = "csv"
path = "{}"
"#,
            out.display()
        ),
    );
    world.json(&["submit", &file]);
    world.json(&["agents", "add", "--local", "1"]);
    wait("the tables are there", Duration::from_secs(20), || {
        let ended = |one: &serde_json::Value| one["vertex"] != "joined/collector1" || one["state"] == "ended";
        world.status("line")["per_instance"].as_array().unwrap().iter().all(ended)
    });
    let on = |vertex: &str| -> BTreeSet<String> {
        running(&world.status("line"), vertex).into_iter().map(|(_, agent)| agent).collect()
    };
    let done = world.json(&["scale", "set", "line", "joined=3", "--wait=20s", "--yes"]);
    assert_eq!(done["outcome"]["step"], "done", "{done}");
    assert_eq!(on("joined").len(), 3, "one on each agent");
    wait("the new one takes rows", Duration::from_secs(20), || {
        let status = world.status("line");
        let all = status["per_instance"].as_array().unwrap().iter();
        all.filter(|one| one["vertex"] == "joined").all(|one| one["rows_in"].as_u64().unwrap_or(0) > 0)
    });
    // Nothing else of the job is there: it ends, and what it has had of the join is nobody's loss.
    let done = world.json(&["scale", "in", "line", "--agent", "c", "--wait=20s", "--yes"]);
    assert_eq!(done["agents_released"], serde_json::json!(["c"]), "{done}");
    // It lasts until here, however busy the machine is.
    world.json(&["set", "line", "rows.rate=100000"]);
    let last = world.wait_for("line", "finished", Duration::from_mins(1));
    assert_exact_ledger(&last);
    let mut ids = BTreeSet::new();
    for row in csv_rows(&out).1 {
        let cells: Vec<u64> = row.iter().map(|cell| cell.parse().unwrap()).collect();
        assert_eq!((cells[1], cells[2]), (cells[0] % 1000, cells[0] % 1000 * 3), "{row:?}");
        assert!(ids.insert(cells[0]), "{row:?} came twice");
    }
    assert_eq!(ids.len() as u64, ROWS);
}
