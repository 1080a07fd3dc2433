//! Sorting: the rows of a sink stand in order, in memory or over the agents' disks.

use super::{csv, one, rows, run};
use crate::real::world::{World, assert_exact_ledger, text};

/// `x`, then `id`, which tells rows apart.
fn expected(rows: usize) -> Vec<String> {
    let mut all: Vec<(usize, usize)> = (0..rows).map(|id| ((id * 31) % 1009, id)).collect();
    all.sort_by_key(|(x, id)| (std::cmp::Reverse(*x), *id));
    all.into_iter().map(|(x, id)| format!("{x},{id}")).collect()
}

fn sorted() -> String {
    one("map", "few", "in", "select = [\"x\", \"id\"]")
        + &one("sort", "sorted", "few", "by = [\"x desc\", \"id\"]")
}

fn sink(more: &str) -> String {
    let options = format!("connector = \"file\"\nformat = \"csv\"\npath = \"out\"\n{more}");
    one("sink", "out", "sorted", &options)
}

#[test]
fn a_sink_with_one_instance_an_agent_gets_the_rows_in_order() {
    const ROWS: usize = 30_000;
    let world = World::new();
    let path = world.file("rows.csv", csv(ROWS, 10));
    for agents in 1..=3 {
        for rebalance in [false, true] {
            let job = rows(&path, rebalance) + &sorted() + &sink("parallelism = 1");
            let files = run(&world, &job, agents, &format!("one-{agents}-{rebalance}"));
            let full: Vec<&Vec<String>> = files.iter().filter(|lines| !lines.is_empty()).collect();
            assert_eq!(full.len(), 1, "{agents} agents, rebalance {rebalance}");
            assert!(*full[0] == expected(ROWS), "{agents} agents, rebalance {rebalance}: not in order");
        }
    }
}

#[test]
fn preserve_order_keeps_the_rows_of_a_sort_together() {
    const ROWS: usize = 5_000;
    let world = World::new();
    let path = world.file("rows.csv", csv(ROWS, 10));
    let job = "preserve_order = true\n".to_owned() + &rows(&path, false) + &sorted() + &sink("");
    let files = run(&world, &job, 2, "preserve");
    let full: Vec<&Vec<String>> = files.iter().filter(|lines| !lines.is_empty()).collect();
    assert_eq!(full.len(), 1);
    assert!(*full[0] == expected(ROWS), "not in order");
}

#[test]
fn more_rows_than_an_agent_holds_are_sorted_over_its_disk() {
    const ROWS: usize = 120_000;
    let world = World::new();
    let path = world.file("rows.csv", csv(ROWS, 10));
    let long = one("map", "few", "in", "select = [\"x\", \"id\", \"repeat('-', 100) as filling\"]")
        + &one("sort", "wide", "few", "by = [\"x desc\", \"id\"]")
        // One instance keeps the order.
        + &one("map", "sorted", "wide", "select = [\"x\", \"id\"]\nparallelism = 1");
    let job = rows(&path, true) + &long + &sink("parallelism = 1");
    let out = world.path("disk");
    let job = world.file("disk.toml", format!("name = \"disk\"\n{job}"));
    // 16 MB of rows; an instance holds 4 MiB of them.
    world.up(&["--local", "2", "--slots", "1", "--memory", "8MiB"]);
    let sink = format!("out.path={}", out.display());
    let output = world.tuplane(&["submit", &job, "--wait", "--set", &sink]);
    assert!(output.status.success(), "{}", text(&output));
    let status = world.status("disk");
    assert_eq!(status["phase"], "finished", "{status}");
    assert_exact_ledger(&status);
    let files = std::fs::read_dir(&out).unwrap().map(|e| std::fs::read_to_string(e.unwrap().path()).unwrap());
    let mut lines: Vec<String> =
        files.flat_map(|t| t.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()).collect();
    assert!(lines == expected(ROWS), "not in order");
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), ROWS);
}
