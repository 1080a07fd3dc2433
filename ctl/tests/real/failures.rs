//! Agents that die, freeze or come back.

use std::time::Duration;

use super::world::{World, edge, signal, text, wait};

/// Work that lasts for ever, over all agents.
const LASTING: &str = r#"
name = "lasting"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = 100000000
[[stage]]
id = "spread"
op = "rebalance"
in = "rows"
[[stage]]
id = "work"
op = "work"
in = "spread"
ms = 1
[[stage]]
id = "out"
op = "sink"
in = "work"
connector = "count"
"#;

#[test]
fn a_killed_agent_fails_its_job_by_name_and_the_others_serve_the_next() {
    let world = World::new();
    world.up(&["--local", "3", "--slots", "1"]);
    world.json(&["submit", &world.file("job.toml", LASTING)]);
    world.wait_for("lasting", "running", Duration::from_secs(10));
    std::thread::sleep(Duration::from_secs(2));
    let pids = world.pids();
    signal(pids["b"], "KILL");
    let start = std::time::Instant::now();
    let status = world.wait_for("lasting", "failed", Duration::from_secs(8));
    // Its process is gone, which is known at once, not by the lease of 10 s.
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    let fault = &status["fault"];
    assert_eq!(fault["kind"], "agent", "{status}");
    assert!(fault["message"].as_str().unwrap().contains('b'), "{fault}");
    assert!(edge(&status, "rows..work")["open"].as_u64().unwrap() > 0, "{status}");
    let next = LASTING.replace("n = 100000000", "n = 1000").replace("lasting", "next");
    let output = world.tuplane(&["submit", &world.file("next.toml", next), "--wait"]);
    assert!(output.status.success(), "{}", text(&output));
    let after = world.pids();
    assert_eq!((after["a"], after["c"]), (pids["a"], pids["c"]), "the others went on");
}

#[test]
fn a_short_freeze_ends_nothing() {
    let world = World::new();
    world.up(&["--local", "3", "--slots", "1"]);
    let job = LASTING.replace("n = 100000000", "n = 15000");
    world.json(&["submit", &world.file("job.toml", job)]);
    world.wait_for("lasting", "running", Duration::from_secs(10));
    let pids = world.pids();
    signal(pids["c"], "STOP");
    std::thread::sleep(Duration::from_secs(3));
    signal(pids["c"], "CONT");
    let status = world.wait_for("lasting", "finished", Duration::from_mins(1));
    assert_eq!(edge(&status, "work..out")["taken"], 45_000 / 3, "{status}");
    super::world::assert_exact_ledger(&status);
}

#[test]
fn a_failing_row_fails_the_job_with_its_place() {
    let world = World::new();
    let input = world.file("in.txt", "1\n2\nthree\n4\n");
    let job = format!(
        r#"
name = "cast"
[[stage]]
id = "lines"
op = "source"
connector = "file"
path = "{input}"
format = "lines"
[[stage]]
id = "number"
op = "map"
in = "lines"
select = ["cast(line as int) as n"]
[[stage]]
id = "out"
op = "sink"
in = "number"
connector = "count"
"#
    );
    let file = world.file("job.toml", &job);
    let output = world.tuplane(&["run", &file, "--agents", "1"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("number") && message.contains("three"), "{message}");
    let dropping = format!("on_error = \"drop\"\n{job}");
    let file = world.file("drop.toml", dropping);
    let document = world.json(&["run", &file, "--agents", "1"]);
    assert_eq!(document["result_rows"], 3, "{document}");
}

#[test]
fn a_dead_coordinator_is_said_and_its_agents_end() {
    let mut world = World::new();
    let owner = world.up_owned(&["--local", "3"]);
    let pids = world.pids();
    signal(pids["a"], "KILL");
    let output = world.tuplane(&["jobs"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    wait("agents without a coordinator end", Duration::from_secs(25), || {
        pids.values().all(|pid| !super::world::alive(*pid))
    });
    let _ = owner;
}
