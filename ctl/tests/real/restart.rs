//! Rescales by a restart: what waits is dropped and counted, and the job goes on.

use std::time::Duration;

use super::rescale::{ids, job, running, wait_for_full_queues};
use super::world::{World, assert_exact_ledger, vertex, wait};

#[test]
fn a_restart_drops_what_waits_counts_it_and_the_job_goes_on() {
    const ROWS: u64 = 30_000;
    let world = World::new();
    world.up(&["--local", "2", "--slots", "2"]);
    let pids = world.pids();
    world.json(&["submit", &job(&world, ROWS, 2, 2.0, "")]);
    wait_for_full_queues(&world);
    let scale = |how: &str, count: &str| {
        let args = ["scale", "set", "line", count, "--mechanism", how, "--start-cost", "100ms", "--wait=30s"];
        let done = world.json(&args);
        assert_eq!(done["outcome"]["step"], "done", "{done}");
        assert!(done["outcome"]["ended_ms"].as_u64().unwrap() >= 100, "{done}");
    };
    scale("restart-all", "work=3");
    let numbers: Vec<u64> =
        running(&world.status("line"), "work").into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, [2, 3, 4], "none of the old ones is there");
    scale("restart-moved", "work=2");
    world.json(&["set", "line", "work.ms=0.01"]);
    wait("the job finishes", Duration::from_mins(1), || world.status("line")["phase"] != "running");
    let last = world.status("line");
    assert_eq!(last["phase"], "finished", "{last}");
    assert_exact_ledger(&last);
    let dropped: u64 =
        ["work", "out"].iter().filter_map(|id| vertex(&last, id)["dropped"]["restart"].as_u64()).sum();
    let (mut came, _) = ids(&world.path("out"));
    assert_eq!(came.len() as u64 + dropped, ROWS);
    assert!(dropped > 0, "queues were full");
    came.dedup();
    assert_eq!(came.len() as u64 + dropped, ROWS, "none came twice");
    assert_eq!(world.pids(), pids);
}
