//! First halves of aggregations while what sends to them is scaled: they begin and end with it, agent by agent.

use std::time::Duration;

use super::rescale::running;
use super::world::{World, assert_exact_ledger, csv_rows};

const ROWS: u64 = 48_000;
const KEYS: u64 = 53;

fn job(world: &World) -> String {
    let text = format!(
        r#"
name = "line"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = {ROWS}
rate = 4000
on = ["a", "b"]
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
id = "by_key"
op = "group_by"
in = "work"
key = "id % {KEYS} as k"
[[stage]]
id = "counts"
op = "aggregate"
in = "by_key"
compute = ["count(*) as c", "sum(id) as s"]
[[stage]]
id = "out"
op = "sink"
in = "counts"
connector = "file"
format = "csv"
path = "{}"
"#,
        world.path("out").display()
    );
    world.file("line.toml", text)
}

#[test]
fn the_first_half_of_an_aggregation_comes_and_goes_with_who_sends_to_it() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    world.json(&["submit", &job(&world)]);
    world.json(&["agents", "add", "--local", "1"]);
    let set = |count: &str| {
        let wanted = format!("work={count}");
        let done = world.json(&["scale", "set", "line", &wanted, "--wait=20s", "--yes"]);
        assert_eq!(done["outcome"]["step"], "done", "{done}");
        let status = world.status("line");
        let on = |vertex: &str| {
            let mut agents: Vec<String> =
                running(&status, vertex).into_iter().map(|(_, agent)| agent).collect();
            agents.sort();
            agents
        };
        // Each agent with a sender has its half, and no other one has.
        assert_eq!(on("work"), on("counts/prepare"), "of {count}");
        on("work")
    };
    assert_eq!(set("3"), ["a", "b", "c"]);
    assert_eq!(set("1").len(), 1);
    assert_eq!(set("3"), ["a", "b", "c"]);
    assert_eq!(set("2").len(), 2);
    let last = world.wait_for("line", "finished", Duration::from_mins(1));
    assert_exact_ledger(&last);
    let rows = csv_rows(&world.path("out")).1;
    let mut found: Vec<Vec<u64>> = rows
        .iter()
        .map(|row| row.iter().flat_map(|cell| cell.split(',')).map(|cell| cell.parse().unwrap()).collect())
        .collect();
    found.sort_unstable();
    let expected: Vec<Vec<u64>> = (0..KEYS)
        .map(|key| {
            let ids = || (0..ROWS).filter(move |id| id % KEYS == key);
            vec![key, ids().count() as u64, ids().sum()]
        })
        .collect();
    assert_eq!(found, expected);
}
