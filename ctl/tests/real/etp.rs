//! Rates of a job whose costs are known: capacity, offered rate, who limits, and why a number is not known.

use std::time::Duration;

use serde_json::Value;

use super::world::{ByHand, World, text, vertex, wait};

/// 300 rows a second through 1 ms on two instances into 20 ms on one, which takes 50.
const JOB: &str = r#"
name = "bottle"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = 100_000_000
rate = 300
distributed = false
[[stage]]
id = "spread"
op = "rebalance"
in = "rows"
[[stage]]
id = "quick"
op = "work"
in = "spread"
ms = 1
instances = 2
[[stage]]
id = "slow"
op = "work"
in = "quick"
ms = 20
instances = 1
[[stage]]
id = "out"
op = "sink"
in = "slow"
connector = "count"
parallelism = 1
"#;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[track_caller]
fn is(found: &Value, wanted: f64) {
    let found = number(found);
    assert!((found - wanted).abs() < 1e-9, "{found} is not {wanted}");
}

/// A whole window of it.
fn full(world: &World, job: &str) -> Value {
    let mut last = Value::Null;
    wait("a window is full", Duration::from_secs(40), || {
        last = world.json(&["etp", job]);
        last["full"] == true
    });
    last
}

/// What was measured of `work` of so many milliseconds: never more than it can do, and not much less, whatever else the
/// machine does.
#[track_caller]
fn is_capacity_of(ms: f64, found: &Value) {
    let (found, exact) = (number(found), 1000.0 / ms);
    assert!(found < exact * 1.1 && found > exact * 0.4, "{found} rows/s is not about {exact}");
}

#[test]
fn the_bottleneck_is_named_with_what_it_takes_and_what_another_one_brings() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    let file = world.file("bottle.toml", JOB);
    world.json(&["submit", &file]);
    let begun = world.json(&["etp", "bottle"]);
    // Where it has just begun, what it does is not known, and says why.
    if begun["over_s"].is_null() {
        let slow = vertex(&begun, "slow");
        for field in ["processed_per_s", "capacity_per_s", "busy", "congested", "gain_per_s"] {
            assert_eq!(slow[field], Value::Null, "{field}: {slow}");
            assert!(!slow["why"][field].as_str().unwrap().is_empty(), "{field}: {slow}");
        }
    }
    assert_eq!(begun["full"], false);
    let etp = full(&world, "bottle");
    let (rows, quick, slow) = (vertex(&etp, "rows"), vertex(&etp, "quick"), vertex(&etp, "slow"));
    is(&rows["offered_per_s"], 300.0);
    is(&rows["input_per_s"], 300.0);
    is_capacity_of(20.0, &slow["capacity_per_s"]);
    is_capacity_of(1.0, &quick["capacity_per_s"]);
    assert_eq!(etp["limiting"], "slow", "{etp}");
    assert_eq!((&slow["congested"], &quick["congested"]), (&Value::Bool(true), &Value::Bool(false)));
    // Of two the second brings as much as the first.
    let (gain, capacity) = (number(&slow["gain_per_s"]), number(&slow["capacity_per_s"]));
    assert!((gain / capacity - 1.0).abs() < 0.01, "{gain} {capacity}");
    is(&quick["gain_per_s"], 0.0);
    // All that the sink gets came through it, and nothing that came through `quick` went by without meeting it.
    for reading in ["path", "sink_set", "flow_share"] {
        is(&slow["etp"][reading], 1.0);
        is(&quick["etp"][reading], 0.0);
    }
    let rate = number(&etp["throughput_per_s"]);
    assert!((rate / number(&slow["processed_per_s"]) - 1.0).abs() < 0.1, "{etp}");
    assert_eq!(slow["why"]["skew"], "it needs two instances");
    let shown = text(&world.tuplane(&["etp", "bottle", "--readings"]));
    for part in ["limits the job: slow", "*slow", "PATH", "+"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // A cheaper row is measured anew.
    let set = world.tuplane(&["set", "bottle", "slow.ms=2"]);
    assert!(set.status.success(), "{}", text(&set));
    let etp = full(&world, "bottle");
    is_capacity_of(2.0, &vertex(&etp, "slow")["capacity_per_s"]);
}

#[test]
fn two_on_one_core_take_what_one_does_and_the_wait_is_told_apart() {
    let world = World::new();
    world.up(&["--local", "1", "--slots", "2", "--cores", "1"]);
    let job = JOB.replace("ms = 20\ninstances = 1", "ms = 20\ninstances = 2").replace("ms = 1\n", "ms = 0\n");
    let file = world.file("cores.toml", job);
    world.json(&["submit", &file]);
    let etp = full(&world, "bottle");
    let slow = vertex(&etp, "slow");
    let (shared, alone) = (number(&slow["capacity_per_s"]), number(&slow["capacity_alone_per_s"]));
    is_capacity_of(40.0, &slow["capacity_per_s"]);
    is_capacity_of(20.0, &slow["capacity_alone_per_s"]);
    assert!(alone > shared * 1.5, "{alone} {shared}");
}

#[test]
fn it_is_followed_until_the_job_ends_and_refused_for_one_that_has() {
    let world = World::new();
    world.up(&["--local", "1", "--slots", "1"]);
    let job = JOB.replace("n = 100_000_000\nrate = 300", "n = 150").replace("ms = 20", "ms = 20\n# ends");
    let file = world.file("ends.toml", job);
    world.json(&["submit", &file]);
    let followed = world.tuplane(&["etp", "bottle", "-w"]);
    assert!(followed.status.success(), "{}", text(&followed));
    let said = String::from_utf8(followed.stdout.clone()).unwrap();
    let documents: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(documents.len() >= 2 && documents.iter().all(|one| one["schema"] == "tuplane/etp/1"), "{said}");
    let late = world.tuplane(&["etp", "bottle"]);
    assert_eq!(late.status.code(), Some(2), "{}", text(&late));
    assert!(text(&late).contains("bottle is not running: it is finished"), "{}", text(&late));
    assert_eq!(world.tuplane(&["etp", "nobody"]).status.code(), Some(6));
}

/// 300 rows a second from agent a into 10 ms on two instances, which take 200.
const SHORT: &str = r#"
name = "short"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = 100_000_000
rate = 300
distributed = false
on = ["a"]
[[stage]]
id = "spread"
op = "rebalance"
in = "rows"
[[stage]]
id = "slow"
op = "work"
in = "spread"
ms = 10
instances = 2
[[stage]]
id = "gather"
op = "rebalance"
in = "slow"
[[stage]]
id = "out"
op = "sink"
in = "gather"
connector = "count"
instances = 2
"#;

fn registered(world: &World, first: &ByHand, count: usize) {
    wait("all agents are there", Duration::from_secs(20), || {
        let agents = world.json_at(&first.address, &["agents"]);
        agents["agents"].as_array().unwrap().iter().filter(|agent| agent["alive"] == true).count() == count
    });
}

fn names(list: &Value, field: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|one| one[field].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_planner_adds_what_pays_on_a_new_agent_and_what_came_of_it_is_kept_beside_what_it_said() {
    let world = World::new();
    let first = world.agent_with("a", None, |_| {});
    let second = world.agent_with("b", Some(&first.address), |_| {});
    registered(&world, &first, 2);
    let file = world.file("short.toml", SHORT);
    let at = |args: &[&str]| world.json_at(&first.address, args);
    at(&["submit", &file]);
    let measured = |epoch: u64| {
        let mut etp = Value::Null;
        wait("a window is full", Duration::from_mins(1), || {
            etp = at(&["etp", "short"]);
            etp["full"] == true && etp["epoch"] == epoch
        });
        etp
    };
    let before = measured(1);
    assert_eq!(before["limiting"], "slow", "{before}");
    let more: Vec<u64> =
        before["more"].as_array().unwrap().iter().map(|plan| plan["instances"].as_u64().unwrap()).collect();
    assert_eq!((&before["more_by"], &more[..]), (&Value::from("best"), &[1, 2, 4][..]), "{before}");
    assert!(number(&before["more"][0]["gain_per_s"]) > 0.0, "{before}");
    // A number that somebody asks for is predicted as a planner's choice is.
    let set = at(&["scale", "set", "short", "slow=4", "--dry-run"]);
    assert!(number(&set["predicted_per_s"]) > number(&before["throughput_per_s"]), "{set}");
    // There is no agent to be added yet, and nothing has changed when that is said.
    let refused = world.refused_at(&first.address, &["scale", "out", "short", "--agents", "1"]);
    assert!(
        refused.contains("--agents 1: of 2 agents that take instances 0 have none of job short"),
        "{refused}"
    );
    let refused =
        world.refused_at(&first.address, &["scale", "out", "short", "--instances", "1", "--planner", "bets"]);
    assert!(refused.contains("did you mean `best`?"), "{refused}");
    let third = world.agent_with("c", Some(&first.address), |_| {});
    registered(&world, &first, 3);
    // Of three instances one is enough for what the source gives.
    let out = ["scale", "out", "short", "--agents", "1", "--instances", "3"];
    let shown = at(&[&out[..], &["--dry-run"]].concat());
    assert_eq!((&shown["next"], &shown["planner"]), (&Value::Null, &Value::from("best")), "{shown}");
    let plan = at(&[&out[..], &["--wait=60s"]].concat());
    assert_eq!(plan["outcome"]["step"], "done", "{plan}");
    let started = plan["started"].as_array().unwrap();
    assert!(
        !started.is_empty() && names(&plan["started"], "agent").iter().all(|agent| agent == "c"),
        "{plan}"
    );
    assert!(names(&plan["started"], "name").iter().all(|name| name.starts_with("slow#")), "{plan}");
    let predicted = number(&plan["predicted_per_s"]);
    let held = number(&before["throughput_per_s"]);
    assert!(predicted > held * 1.2 && predicted <= 300.1, "{predicted} after {held}: {plan}");
    assert!(!plan["why"].as_str().unwrap().is_empty());
    let mut history = Value::Null;
    wait("the outcome is measured", Duration::from_secs(90), || {
        history = at(&["scale", "history", "short"]);
        !history["history"][0]["measured_per_s"].is_null()
    });
    let came = number(&history["history"][0]["measured_per_s"]);
    is(&history["history"][0]["predicted_per_s"], predicted);
    assert!((came / predicted - 1.0).abs() < 0.3, "{came} was measured, {predicted} predicted");
    // Back again: the source's agent is kept.
    let back = at(&["scale", "in", "short", "--agents", "1", "--keep", "--wait=60s"]);
    assert_eq!(back["outcome"]["step"], "done", "{back}");
    let left =
        |agent: &str| back["moved"].as_array().unwrap().iter().any(|one| one["from"]["agent"] == agent);
    assert!(!left("a") && (left("b") || left("c")), "{back}");
    drop((second, third));
}
