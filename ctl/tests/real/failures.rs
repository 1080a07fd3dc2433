//! Agents that die, freeze or come back.

use std::time::Duration;

use tuplane_core::cluster::{DROPPED_BY_LOSS, DROPPED_BY_STOP};

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
    let message = fault["message"].as_str().unwrap();
    assert!(message.starts_with("agent b was lost: "), "{fault}");
    assert!(message.contains("; rows lost: ") && message.contains("rows..work "), "{fault}");
    let dropped = &edge(&status, "rows..work")["dropped"];
    let rows = |reason: &str| dropped[reason].as_u64().unwrap_or(0);
    assert!(rows(DROPPED_BY_STOP) + rows(DROPPED_BY_LOSS) > 0, "{status}");
    super::world::assert_exact_ledger(&status);
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
    assert!(message.contains(&format!("{input}, line 3")), "{message}");
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

#[test]
fn a_job_that_may_starts_again_without_the_lost_agent() {
    let world = World::new();
    world.up(&["--local", "3", "--slots", "1"]);
    let job = LASTING.replace("n = 100000000", "n = 6000");
    let job = format!("restart = \"from_start\"\n{job}");
    world.json(&["submit", &world.file("job.toml", job)]);
    world.wait_for("lasting", "running", Duration::from_secs(10));
    std::thread::sleep(Duration::from_secs(1));
    signal(world.pids()["c"], "KILL");
    let status = world.wait_for("lasting", "finished", Duration::from_secs(40));
    assert_eq!(status["attempt"], 2, "{status}");
    assert_eq!(edge(&status, "work..out")["taken"], 6000, "all rows of the second attempt");
    super::world::assert_exact_ledger(&status);
}

#[test]
fn a_restarted_coordinator_remembers_and_serves() {
    let world = World::new();
    let started = world.agent_by_hand("a", "127.0.0.1:0", None);
    let address = started.address.clone();
    let finished = LASTING.replace("n = 100000000", "n = 1000").replace("lasting", "short");
    let (short, lasting) = (world.file("short.toml", finished), world.file("job.toml", LASTING));
    world.json_at(&address, &["submit", &short, "--wait"]);
    world.json_at(&address, &["submit", &lasting]);
    std::thread::sleep(Duration::from_secs(1));
    signal(started.pid, "KILL");
    wait("it is gone", Duration::from_secs(5), || !super::world::alive(started.pid));
    let again = world.agent_by_hand("a", &address, None);
    let jobs = world.json_at(&address, &["jobs"]);
    let phase = |name: &str| {
        let list = jobs["jobs"].as_array().unwrap();
        let job = list.iter().find(|job| job["job"] == name).unwrap_or_else(|| panic!("no {name} in {jobs}"));
        job["phase"].as_str().unwrap().to_owned()
    };
    assert_eq!((phase("short").as_str(), phase("lasting").as_str()), ("finished", "failed"), "{jobs}");
    let third = world.file("third.toml", std::fs::read_to_string(&short).unwrap().replace("short", "third"));
    let done = world.json_at(&address, &["submit", &third, "--wait"]);
    assert_eq!(done["phase"], "finished", "{done}");
    drop(again);
}

#[test]
fn a_wait_that_ends_without_its_coordinator_does_not_say_that_the_job_goes_on() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    let file = world.file("job.toml", LASTING);
    let waiting = world
        .command(&["submit", &file, "--wait=6s"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    world.wait_for("lasting", "running", Duration::from_secs(10));
    let agents = world.json(&["agents"]);
    let coordinates = |agent: &&serde_json::Value| agent["coordinator"] == true;
    let coordinator = agents["agents"].as_array().unwrap().iter().find(coordinates).unwrap();
    signal(coordinator["pid"].as_u64().unwrap() as u32, "KILL");
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("is not reachable") && !said.contains("it goes on:"), "{said}");
}
