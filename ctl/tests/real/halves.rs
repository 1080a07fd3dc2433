//! First halves of aggregations while what sends to them is scaled: they begin and end with it, agent by agent.

use std::time::Duration;

use super::rescale::running;
use super::world::{World, assert_exact_ledger, csv_rows};

const ROWS: u64 = 60_000;
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
        println!("work={count} took {} ms", done["outcome"]["ended_ms"]);
        let agents: Vec<Vec<String>> = ["work", "counts/prepare"]
            .iter()
            .map(|vertex| {
                let mut on: Vec<String> =
                    running(&world.status("line"), vertex).into_iter().map(|(_, agent)| agent).collect();
                on.sort();
                on
            })
            .collect();
        // Each agent with a sender has its half, and no other one has.
        assert_eq!(agents[0], agents[1], "of {count}");
        agents[0].clone()
    };
    assert_eq!(set("3"), ["a", "b", "c"]);
    assert_eq!(set("1").len(), 1);
    assert_eq!(set("3"), ["a", "b", "c"]);
    assert_eq!(set("2").len(), 2);
    let last = world.wait_for("line", "finished", Duration::from_mins(1));
    assert_exact_ledger(&last);
    let mut found: Vec<[u64; 3]> = csv_rows(&world.path("out"))
        .1
        .iter()
        .map(|row| {
            let cell = |index: usize| row[index].parse().unwrap();
            [cell(0), cell(1), cell(2)]
        })
        .collect();
    found.sort_unstable();
    let expected: Vec<[u64; 3]> = (0..KEYS)
        .map(|key| {
            let ids = || (0..ROWS).filter(move |id| id % KEYS == key);
            [key, ids().count() as u64, ids().sum()]
        })
        .collect();
    assert_eq!(found, expected);
}
