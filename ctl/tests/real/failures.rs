//! Agents that die, freeze or come back.

use std::process::Stdio;
use std::time::Duration;

use tuplane_core::cluster::{DROPPED_BY_LOSS, DROPPED_BY_STOP};

use super::world::{World, alive, assert_exact_ledger, edge, signal, text, vertex, wait};

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
    assert_exact_ledger(&status);
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
    assert_exact_ledger(&status);
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
        pids.values().all(|pid| !alive(*pid))
    });
    let _ = owner;
}

#[test]
fn a_job_that_may_starts_again_without_the_lost_agent() {
    let world = World::new();
    world.up(&["--local", "3", "--slots", "1"]);
    let job = LASTING.replace("n = 100000000", "n = 20000");
    let job = format!("restart = \"from_start\"\n{job}");
    world.json(&["submit", &world.file("job.toml", job)]);
    world.wait_for("lasting", "running", Duration::from_secs(10));
    std::thread::sleep(Duration::from_secs(1));
    signal(world.pids()["c"], "KILL");
    let status = world.wait_for("lasting", "finished", Duration::from_mins(1));
    assert_eq!(status["attempt"], 2, "{status}");
    assert_eq!(edge(&status, "work..out")["taken"], 20_000, "all rows of the second attempt");
    assert_exact_ledger(&status);
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
    wait("it is gone", Duration::from_secs(5), || !alive(started.pid));
    let again = world.agent_by_hand("a", &address, None);
    let phase = |name: &str| {
        let jobs = world.json_at(&address, &["jobs"]);
        let list = jobs["jobs"].as_array().unwrap();
        let job = list.iter().find(|job| job["job"] == name).unwrap_or_else(|| panic!("no {name} in {jobs}"));
        job["phase"].as_str().unwrap().to_owned()
    };
    assert_eq!(phase("short"), "finished");
    wait("what ran has failed", Duration::from_secs(5), || phase("lasting") == "failed");
    let third = world.file("third.toml", std::fs::read_to_string(&short).unwrap().replace("short", "third"));
    let done = world.json_at(&address, &["submit", &third, "--wait"]);
    assert_eq!(done["phase"], "finished", "{done}");
    drop(again);
}

#[test]
fn a_row_that_grew_too_long_is_an_error_and_never_vanishes() {
    let world = World::new();
    let job = r#"
name = "long"
[[stage]]
id = "numbers"
op = "source"
connector = "generator"
kind = "sequence"
n = 3
[[stage]]
id = "grown"
op = "map"
in = "numbers"
select = ["repeat('x', cast(17000000 * (value % 2) as int)) as text"]
[[stage]]
id = "out"
op = "sink"
in = "grown"
connector = "count"
"#;
    let output = world.tuplane(&["run", &world.file("job.toml", job), "--agents", "1"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("grown") && said.contains("16 MiB at most"), "{said}");
    let dropping = format!("on_error = \"drop\"\n{job}");
    let document = world.json(&["run", &world.file("drop.toml", dropping), "--agents", "1"]);
    assert_eq!(vertex(&document, "grown")["dropped"], serde_json::json!({ "expression": 1 }), "{document}");
    assert_eq!(vertex(&document, "out")["rows_in"], 2, "{document}");
}

/// [`LASTING`] with so many rows, into files of a folder.
fn into_files(world: &World, rows: u32) -> (String, std::path::PathBuf) {
    let out = world.path("out");
    let sink = format!("connector = \"file\"\nformat = \"csv\"\npath = \"{}\"", out.display());
    let job = LASTING.replace("n = 100000000", &format!("n = {rows}"));
    (job.replace("connector = \"count\"", &sink), out)
}

/// Names of the files in a folder.
fn names(folder: &std::path::Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Rows of all csv files of a folder.
fn rows_in(folder: &std::path::Path) -> usize {
    let lines = |name: &String| std::fs::read_to_string(folder.join(name)).unwrap().lines().count() - 1;
    names(folder).iter().map(lines).sum()
}

/// A job's line of `jobs`: quicker than its status.
fn line(world: &World, job: &str) -> serde_json::Value {
    let jobs = world.json(&["jobs"]);
    jobs["jobs"].as_array().unwrap().iter().find(|line| line["job"] == job).cloned().unwrap()
}

#[test]
fn an_agent_that_is_killed_while_a_job_seals_takes_no_result_with_it() {
    let world = World::new();
    world.up(&["--local", "3", "--slots", "1"]);
    let (job, out) = into_files(&world, 9000);
    world.json(&["submit", &world.file("job.toml", job)]);
    wait("all sinks write", Duration::from_secs(20), || names(&out).len() == 3);
    // A file of this name keeps b from renaming its own.
    std::fs::write(out.join("out-1-1-0.csv"), "not ours\n").unwrap();
    wait("the job seals", Duration::from_secs(40), || line(&world, "lasting")["phase"] == "sealing");
    let output = world.tuplane(&["cancel", "lasting", "--yes"]);
    assert_eq!(output.status.code(), Some(2), "it has finished: {}", text(&output));
    signal(world.pids()["b"], "KILL");
    std::fs::remove_file(out.join("out-1-1-0.csv")).unwrap();
    let status = world.wait_for("lasting", "finished", Duration::from_secs(20));
    assert_eq!(status["pending"], serde_json::json!([]), "{status}");
    assert_eq!(names(&out), ["out-0-1-0.csv", "out-1-1-0.csv", "out-2-1-0.csv"]);
    assert_eq!(rows_in(&out), 9000);
    assert_exact_ledger(&status);
    let files = status["files"].as_array().unwrap();
    let taken = files.iter().find(|file| file["path"].as_str().unwrap().ends_with("out-1-1-0.csv")).unwrap();
    assert_ne!(taken["agent"], "b", "another agent of this machine has renamed it");
    let brought = world.path("brought");
    world.json(&["fetch", "lasting", brought.to_str().unwrap()]);
    assert_eq!(rows_in(&brought), 9000);
}

#[test]
fn files_that_cannot_be_made_visible_are_pending_and_named() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    let (job, out) = into_files(&world, 6000);
    let file = world.file("job.toml", job);
    let mut command = world.command(&["submit", &file, "--wait", "-o", "json"]);
    let waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait("all sinks write", Duration::from_secs(20), || names(&out).len() == 2);
    std::fs::write(out.join("out-1-1-0.csv"), "not ours\n").unwrap();
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = text(&output);
    let part = out.join(".out-1-1-0.csv.part").display().to_string();
    assert!(said.contains(&format!("pending on b: its hidden parts are at {part}")), "{said}");
    assert!(said.replace(' ', "").contains("\"kind\":\"agent\""), "{said}");
    let line = line(&world, "lasting");
    assert_eq!(line["phase"], "finished", "{line}");
    assert_eq!(line["pending"][0]["agent"], "b", "{line}");
    assert_eq!(line["pending"][0]["parts"][0], part.as_str(), "{line}");
    let shown = world.tuplane(&["status", "lasting"]);
    assert!(text(&shown).contains(&part), "{}", text(&shown));
    let status = world.status("lasting");
    assert_eq!(status["files"].as_array().unwrap().len(), 1, "{status}");
    assert_exact_ledger(&status);
}

#[test]
fn a_job_that_is_submitted_right_after_an_agent_died_runs_on_the_others() {
    let world = World::new();
    world.up(&["--local", "3", "--slots", "1"]);
    let job = LASTING.replace("n = 100000000", "n = 1000");
    let file = world.file("job.toml", job);
    signal(world.pids()["c"], "KILL");
    let output = world.tuplane(&["submit", &file, "--wait"]);
    assert!(output.status.success(), "{}", text(&output));
    let status = world.status("lasting");
    assert_eq!(status["agents"], serde_json::json!(["a", "b"]), "{status}");
    assert_eq!(edge(&status, "work..out")["taken"], 1000, "{status}");
    assert_exact_ledger(&status);
}

#[test]
fn a_start_that_is_cancelled_leaves_nothing() {
    let world = World::new();
    world.up(&["--local", "3", "--slots", "1"]);
    let (job, out) = into_files(&world, 100_000_000);
    let pids = world.pids();
    // It answers nothing, so that the start does not get further.
    signal(pids["c"], "STOP");
    world.json(&["submit", &world.file("job.toml", job)]);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(line(&world, "lasting")["phase"], "starting");
    // The command waits for the end, and that for c.
    let mut cancel = world.command(&["cancel", "lasting", "--yes"]).stdout(Stdio::null()).spawn().unwrap();
    wait("it is being stopped", Duration::from_secs(5), || line(&world, "lasting")["phase"] == "stopping");
    signal(pids["c"], "CONT");
    assert!(cancel.wait().unwrap().success());
    let status = world.wait_for("lasting", "cancelled", Duration::from_secs(20));
    assert_eq!(status["files"], serde_json::json!([]), "{status}");
    assert_eq!(names(&out), [""; 0]);
    // Its memory and its places are free again.
    let next = LASTING.replace("n = 100000000", "n = 1000").replace("lasting", "next");
    let output = world.tuplane(&["submit", &world.file("next.toml", next), "--wait"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(world.pids(), pids);
}

#[test]
fn a_restarted_coordinator_runs_jobs_again_that_may_and_names_the_parts_of_others() {
    let world = World::new();
    let first = world.agent_by_hand("a", "127.0.0.1:0", None);
    let address = first.address.clone();
    let second = world.agent_by_hand("b", "127.0.0.1:0", Some(&address));
    let (job, out) = into_files(&world, 8000);
    let (again, once) = (world.path("again"), world.path("once"));
    let job = |name: &str, folder: &std::path::Path| {
        job.replace("lasting", name).replace(out.to_str().unwrap(), folder.to_str().unwrap())
    };
    let repeated = format!("restart = \"from_start\"\n{}", job("again", &again));
    let repeated = world.file("again.toml", repeated);
    let never = job("once", &once).replace("n = 8000", "n = 100000000");
    let never = world.file("once.toml", never);
    world.json_at(&address, &["submit", &repeated]);
    world.json_at(&address, &["submit", &never]);
    wait("all sinks write", Duration::from_secs(20), || names(&again).len() + names(&once).len() == 4);
    signal(first.pid, "KILL");
    wait("it is gone", Duration::from_secs(5), || !alive(first.pid));
    let restarted = world.agent_by_hand("a", &address, None);
    let status = |name: &str| world.json_at(&address, &["status", name]);
    wait("one has failed", Duration::from_secs(20), || status("once")["phase"] == "failed");
    let failed = status("once");
    assert_eq!(failed["fault"]["kind"], "agent", "{failed}");
    let cause = failed["fault"]["message"].as_str().unwrap();
    assert!(cause.starts_with("agent a was lost: it was started again"), "{failed}");
    // The part of the agent that lives is named, and it is said whose else may be there.
    assert_eq!(failed["files"][0]["agent"], "b", "{failed}");
    let part = failed["files"][0]["path"].as_str().unwrap();
    assert!(std::path::Path::new(part).exists(), "{part}");
    let unasked = serde_json::json!([{"agent": "a", "attempt": 1, "instances": ["out#0"]}]);
    assert_eq!(failed["unasked"], unasked, "{failed}");
    wait("the other has finished", Duration::from_secs(40), || status("again")["phase"] == "finished");
    let done = status("again");
    assert_eq!(done["attempt"], 2, "{done}");
    assert_eq!(edge(&done, "work..out")["taken"], 8000, "{done}");
    assert_eq!(done["agents"], serde_json::json!(["a", "b"]), "{done}");
    assert_exact_ledger(&done);
    let results: Vec<_> = names(&again).into_iter().filter(|name| !name.starts_with('.')).collect();
    assert_eq!(results, ["out-0-2-0.csv", "out-1-2-0.csv"]);
    assert_eq!(done["earlier_parts"][0]["agent"], "b", "what the first attempt has left is named: {done}");
    assert!(alive(second.pid), "b is the same process");
    drop((restarted, second));
}

#[test]
fn a_job_goes_on_while_its_coordinator_is_killed_and_started_again() {
    let world = World::new();
    let idle = |config: &mut tuplane_wire::launch::AgentConfig| config.slots = 0;
    let first = world.agent_at("a", "127.0.0.1:0", None, idle);
    let address = first.address.clone();
    let others = ["b", "c"].map(|name| world.agent_by_hand(name, "127.0.0.1:0", Some(&address)));
    let (job, out) = into_files(&world, 30_000);
    let job = world.file("job.toml", job.replace("n = 30000", "n = 30000\nrate = 1500"));
    let all_there = || {
        let agents = world.json_at(&address, &["agents"]);
        agents["agents"].as_array().unwrap().iter().filter(|agent| agent["alive"] == true).count() == 3
    };
    wait("all are there", Duration::from_secs(20), all_there);
    world.json_at(&address, &["submit", &job]);
    let status = || world.json_at(&address, &["status", "lasting"]);
    wait("its sinks write", Duration::from_secs(20), || names(&out).len() == 2);
    world.json_at(&address, &["route", "lasting", "rows..work", "shuffle"]);
    assert_eq!(status()["agents"], serde_json::json!(["b", "c"]), "a takes no part");
    signal(first.pid, "KILL");
    wait("it is gone", Duration::from_secs(5), || !alive(first.pid));
    // Rows flow on without it.
    std::thread::sleep(Duration::from_secs(2));
    let again = world.agent_at("a", &address, None, idle);
    wait("all are back", Duration::from_secs(20), all_there);
    assert_eq!(status()["phase"], "running");
    assert_eq!(edge(&status(), "rows..work")["policy"], "shuffle");
    world.json_at(&address, &["set", "lasting", "work.ms=0"]);
    wait("it has finished", Duration::from_mins(1), || status()["phase"] == "finished");
    let done = status();
    assert_eq!((&done["attempt"], rows_in(&out)), (&serde_json::json!(1), 30_000), "{done}");
    assert_eq!(edge(&done, "work..out")["taken"], 30_000, "{done}");
    assert_exact_ledger(&done);
    assert!(others.iter().all(|other| alive(other.pid)));
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
    wait("it runs", Duration::from_secs(10), || {
        let jobs = world.json(&["jobs"]);
        jobs["jobs"].as_array().unwrap().iter().any(|job| job["phase"] == "running")
    });
    let agents = world.json(&["agents"]);
    let coordinates = |agent: &&serde_json::Value| agent["coordinator"] == true;
    let coordinator = agents["agents"].as_array().unwrap().iter().find(coordinates).unwrap();
    signal(coordinator["pid"].as_u64().unwrap() as u32, "KILL");
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("is not reachable") && !said.contains("it goes on:"), "{said}");
}
