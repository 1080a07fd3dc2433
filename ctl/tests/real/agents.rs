//! Agents that join a running cluster, are drained, and leave it.

use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::rescale::{assert_each_once, job, running, set};
use super::world::{World, alive, assert_exact_ledger, signal, text, vertex, wait};

/// What `cluster.json` says of agents: name and process.
fn recorded(world: &World) -> Vec<(String, u32)> {
    let file = std::fs::read(world.path("run/tuplane/t/cluster.json")).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    let agents = file["agents"].as_array().unwrap().iter();
    agents
        .map(|one| (one["name"].as_str().unwrap().to_owned(), one["pid"].as_u64().unwrap() as u32))
        .collect()
}

fn agent(world: &World, name: &str) -> Value {
    let all = world.json(&["agents"]);
    let found = all["agents"].as_array().unwrap().iter().find(|agent| agent["agent"] == name);
    found.cloned().unwrap_or(Value::Null)
}

fn refused(world: &World, args: &[&str], code: i32, says: &str) {
    let output = world.tuplane(args);
    let said = text(&output);
    assert!(output.status.code() == Some(code) && said.contains(says), "{args:?}: {said}");
}

#[test]
fn agents_whose_start_is_interrupted_are_none_of_the_clusters() {
    let world = World::new();
    world.up(&["--local", "1"]);
    let names = || -> Vec<String> {
        let all = world.json(&["agents"]);
        all["agents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["agent"].as_str().unwrap().to_owned())
            .collect()
    };
    // A start lasts for some tens of milliseconds, so that it can be over before it is interrupted.
    for round in 0..20 {
        let mut adding = world.command(&["agents", "add", "--local", "8"]);
        let mut adding = adding.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let code = loop {
            if let Some(ended) = adding.try_wait().unwrap() {
                break ended.code();
            }
            if names().len() > 1 {
                signal(adding.id(), "INT");
                break adding.wait().unwrap().code();
            }
        };
        if code == Some(130) {
            assert_eq!((names(), recorded(&world).len()), (vec!["a".to_owned()], 1), "round {round}");
            return;
        }
        assert_eq!(code, Some(0), "it was over");
        for name in names().into_iter().filter(|name| name != "a") {
            world.json(&["agents", "drain", &name]);
            world.json(&["agents", "release", &name, "--yes"]);
        }
    }
    panic!("no start was interrupted between its first agent and its end");
}

#[test]
fn an_agent_is_added_gets_instances_is_drained_and_released() {
    const ROWS: u64 = 300_000;
    let world = World::new();
    world.up(&["--local", "2", "--slots", "2"]);
    world.json(&["submit", &job(&world, ROWS, 2, 2.0, "")]);
    world.wait_for("line", "running", Duration::from_secs(20));
    let added = world.json(&["agents", "add", "--local", "1", "--zones", "far"]);
    assert_eq!((&added["agents"][0]["agent"], &added["slots"]), (&"c".into(), &2.into()), "{added}");
    let pid = added["agents"][0]["pid"].as_u64().unwrap() as u32;
    assert_eq!(recorded(&world)[2], ("c".to_owned(), pid));
    let new = agent(&world, "c");
    assert_eq!((&new["zone"], &new["alive"], &new["drained"]), (&"far".into(), &true.into(), &false.into()));
    let done = world.json(&["scale", "set", "line", "work=4", "--place", "new", "--wait=20s"]);
    assert!(done["started"].as_array().unwrap().iter().all(|one| one["agent"] == "c"), "{done}");
    refused(
        &world,
        &["agents", "release", "c", "--yes"],
        2,
        "c is not drained: `tuplane agents drain c` first",
    );
    refused(&world, &["agents", "release", "d", "--yes"], 6, "there is no agent `d`");
    // Nothing is asked that is refused then.
    refused(&world, &["agents", "release", "c"], 2, "c is not drained");
    refused(&world, &["agents", "release", "a", "--yes"], 2, "a coordinates");
    // All of an agent can move, its source too, and a look changes nothing.
    let source = running(&world.status("line"), "rows")[0].1.clone();
    let look = world.json(&["agents", "drain", &source, "--dry-run"]);
    assert_eq!((&look["drained"], &look["jobs"][0]["next"]), (&false.into(), &Value::Null), "{look}");
    assert_eq!(look["jobs"][0]["stays"], json!([]), "{look}");
    let moved = look["jobs"][0]["moved"].as_array().unwrap();
    assert!(moved.iter().any(|one| one["from"]["name"] == "rows#0"), "{look}");
    assert_eq!(agent(&world, &source)["drained"], false);

    let drain = world.json(&["agents", "drain", "c", "--wait=20s"]);
    assert_eq!((&drain["drained"], &drain["jobs"][0]["stays"]), (&true.into(), &json!([])), "{drain}");
    assert_eq!(drain["jobs"][0]["moved"].as_array().unwrap().len(), 2, "{drain}");
    let shown = world.tuplane(&["agents"]);
    assert!(text(&shown).contains("up (drained)"), "{}", text(&shown));
    refused(&world, &["scale", "set", "line", "work=6", "--place", "new"], 2, "all 2 agents have instances");
    set(&world, 7);
    assert!(running(&world.status("line"), "work").iter().all(|(_, agent)| agent != "c"));
    assert_eq!(agent(&world, "c")["instances"], 0);
    // And undone: it takes some again.
    world.json(&["agents", "drain", "c", "--undo"]);
    set(&world, 8);
    assert!(running(&world.status("line"), "work").iter().any(|(_, agent)| agent == "c"));
    refused(&world, &["agents", "release", "c", "--yes"], 2, "c is not drained");
    world.json(&["agents", "drain", "c", "--wait=20s"]);
    let gone = world.json(&["agents", "release", "c", "--yes"]);
    assert_eq!((&gone["ended"], &gone["pid"]), (&"itself".into(), &pid.into()), "{gone}");
    assert!(!alive(pid) && agent(&world, "c").is_null());
    assert_eq!(recorded(&world).len(), 2);
    // The job goes on without it, and is rescaled as before.
    set(&world, 3);
    world.json(&["set", "line", "work.ms=0.01"]);
    let last = world.wait_for("line", "finished", Duration::from_mins(2));
    assert_exact_ledger(&last);
    assert_each_once(&world.path("out"), ROWS);
    // Its name is not given to another one.
    let next = world.json(&["agents", "add", "--local", "1"]);
    assert_eq!(next["agents"][0]["agent"], "d", "{next}");
}

#[test]
fn no_job_begins_on_agents_that_are_drained() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    for name in ["a", "b"] {
        let drain = world.json(&["agents", "drain", name]);
        assert_eq!((&drain["drained"], &drain["jobs"]), (&true.into(), &json!([])));
    }
    let file = job(&world, 1_000_000, 2, 1.0, "");
    refused(&world, &["submit", &file], 2, "all 2 agents are drained");
    world.json(&["agents", "drain", "a", "--undo"]);
    world.json(&["submit", &file]);
    let status = world.wait_for("line", "running", Duration::from_secs(20));
    assert_eq!(status["agents"], json!(["a"]));
    // There is nowhere to go: all of it stays, with the reason.
    let drain = world.json(&["agents", "drain", "a"]);
    let stays = drain["jobs"][0]["stays"].as_array().unwrap();
    assert!(!stays.is_empty() && drain["jobs"][0]["moved"] == json!([]), "{drain}");
    assert!(stays[0]["why"].as_str().unwrap().contains("no other agent takes instances"), "{drain}");
    world.json(&["cancel", "line", "--yes"]);
}

#[test]
fn an_added_agent_ends_with_the_cluster_that_an_owner_holds() {
    let mut world = World::new();
    let owner = world.up_owned(&["--local", "1"]);
    world.json(&["agents", "add", "--local", "2"]);
    let pids = world.pids();
    assert_eq!(pids.len(), 3);
    signal(owner, "KILL");
    // Its coordinator goes at once, the others when they have not reached it for a lease of 10 s.
    wait("no agent is left", Duration::from_secs(40), || pids.values().all(|pid| !alive(*pid)));
}

#[test]
fn an_owner_that_ends_and_a_down_elsewhere_end_added_agents_too() {
    let mut world = World::new();
    let owner = world.up_owned(&["--local", "1"]);
    world.json(&["agents", "add", "--local", "1"]);
    let pids = world.pids();
    signal(owner, "TERM");
    wait("no agent is left", Duration::from_secs(10), || pids.values().all(|pid| !alive(*pid)));
    let world = World::new();
    world.up(&["--local", "1"]);
    world.json(&["agents", "add", "--local", "1"]);
    let pids = world.pids();
    let down = world.json(&["down", "--yes"]);
    assert_eq!(down["agents"].as_array().unwrap().len(), 2, "{down}");
    assert!(pids.values().all(|pid| !alive(*pid)));
}

#[test]
fn a_drain_that_waits_ends_with_the_job_and_takes_back_no_undo() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "2"]);
    world.json(&["submit", &job(&world, 1_000_000, 2, 2.0, "")]);
    world.wait_for("line", "running", Duration::from_secs(20));
    // Until its agents have "started" nothing else can be asked of the job.
    let how = ["--mechanism", "restart-all", "--start-cost", "60s", "--yes"];
    world.json(&[&["scale", "set", "line", "work=4"][..], &how].concat());
    let drain = || {
        let mut command = world.command(&["agents", "drain", "b", "--wait"]);
        let waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait("b is drained", Duration::from_secs(10), || agent(&world, "b")["drained"] == true);
        waiting
    };
    let over = |mut waiting: Child| {
        wait("the drain ends", Duration::from_secs(10), || waiting.try_wait().unwrap().is_some());
        waiting.wait_with_output().unwrap()
    };
    let waiting = drain();
    world.json(&["agents", "drain", "b", "--undo"]);
    let undone = over(waiting);
    assert_eq!(undone.status.code(), Some(5), "{}", text(&undone));
    assert!(
        text(&undone).contains("agent b gets new instances again, by another command"),
        "{}",
        text(&undone)
    );
    assert_eq!(agent(&world, "b")["drained"], false);
    let waiting = drain();
    world.json(&["cancel", "line", "--yes"]);
    let done = over(waiting);
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(agent(&world, "b")["drained"], true);
}

#[test]
fn scale_out_starts_agents_and_scale_in_releases_them() {
    let world = World::new();
    world.up(&["--local", "1", "--slots", "2"]);
    // Without a rate nothing is known of what a source offers that is always held up.
    let file = std::fs::read_to_string(job(&world, 1_000_000, 2, 5.0, "")).unwrap();
    let file = file.replace("distributed = false", "distributed = false\nrate = 1000");
    world.json(&["submit", &world.file("line.toml", file)]);
    wait("rates are known", Duration::from_secs(40), || {
        world.tuplane(&["scale", "out", "line", "--instances", "1", "--dry-run"]).status.success()
    });
    // For what is wrong nothing is started, and what is refused later leaves nothing behind.
    let by = |planner| ["scale", "out", "line", "--agents", "1", "--instances", "1", "--planner", planner];
    refused(&world, &by("nobody"), 2, "no planner is called `nobody`");
    refused(&world, &by("etp-sum"), 2, "planner `etp-sum` only plans which machines are given back");
    assert_eq!(recorded(&world).len(), 1);
    let out = world.json(&["scale", "out", "line", "--agents", "1", "--instances", "1", "--wait=30s"]);
    assert_eq!((&out["agents_started"], &out["outcome"]["step"]), (&json!(["b"]), &"done".into()), "{out}");
    assert!(out["started"].as_array().unwrap().iter().all(|one| one["agent"] == "b"), "{out}");
    let pid = world.pids()["b"];
    refused(&world, &["scale", "in", "line", "--agent", "b"], 7, "end b once nothing is there");
    let back = world.json(&["scale", "in", "line", "--agent", "b", "--wait=30s", "--yes"]);
    assert_eq!(
        (&back["agents_released"], &back["outcome"]["step"]),
        (&json!(["b"]), &"done".into()),
        "{back}"
    );
    assert!(!alive(pid));
    assert!(vertex(&world.status("line"), "work")["rows_out"].as_u64().unwrap() > 0);
    world.json(&["cancel", "line", "--yes"]);
}

#[test]
fn agents_are_added_where_the_cluster_was_started() {
    let world = World::new();
    let first = world.agent_by_hand("a", "127.0.0.1:0", None);
    let said = world.refused_at(&first.address, &["agents", "add", "--local", "1"]);
    assert!(said.contains("on the machine that started the cluster"), "{said}");
    // One that nobody has recorded ends by itself when it is released.
    let second = world.agent_by_hand("b", "127.0.0.1:0", Some(&first.address));
    world.json_at(&first.address, &["agents", "drain", "b"]);
    let gone = world.json_at(&first.address, &["agents", "release", "b", "--yes"]);
    assert_eq!((&gone["pid"], &gone["ended"]), (&Value::Null, &Value::Null));
    wait("b has ended", Duration::from_secs(10), || !alive(second.pid));
    let agents = world.json_at(&first.address, &["agents"]);
    assert_eq!(agents["agents"].as_array().unwrap().len(), 1, "{agents}");
}
