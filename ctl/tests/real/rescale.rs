//! Rescales of running jobs: full queues, agents that join and leave, agents that do not answer, event time.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::world::{ByHand, Processes, World, assert_exact_ledger, edge, long, signal, text, vertex, wait};

/// Each rescale is done within this time, on a machine with much else to do.
const DONE: Duration = Duration::from_secs(20);

/// Numbered rows of one source into work with a few instances, and from there into a ledger.
pub(super) fn job(world: &World, rows: u64, instances: u32, ms: f64, policy: &str) -> String {
    let out = world.path("out");
    let text = format!(
        r#"
name = "line"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = {rows}
distributed = false
[[stage]]
id = "spread"
op = "rebalance"
in = "rows"
{policy}
[[stage]]
id = "work"
op = "work"
in = "spread"
ms = {ms}
instances = {instances}
[[stage]]
id = "out"
op = "sink"
in = "work"
connector = "ledger"
path = "{}"
"#,
        out.display()
    );
    world.file("line.toml", text)
}

/// The ids that the ledger's files have, each as often as it is there, and the sinks' instances that wrote them.
pub(super) fn ids(folder: &Path) -> (Vec<u64>, BTreeMap<String, u64>) {
    let (mut ids, mut by) = (Vec::new(), BTreeMap::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(!name.starts_with('.'), "a part is left: {name}");
        for line in std::fs::read_to_string(&path).unwrap().lines().skip(1) {
            let mut cells = line.split(',');
            ids.push(cells.next().unwrap().parse().unwrap());
            *by.entry(cells.next().unwrap().to_owned()).or_default() += 1;
        }
    }
    ids.sort_unstable();
    (ids, by)
}

/// Nothing is lost and nothing is there twice.
pub(super) fn assert_each_once(folder: &Path, rows: u64) {
    let (ids, _) = ids(folder);
    assert_eq!(ids.len() as u64, rows);
    assert!(
        ids.iter().zip(0..rows).all(|(id, expected)| *id == expected),
        "a row is twice there, or not at all"
    );
}

fn instances<'a>(status: &'a Value, vertex: &str) -> Vec<&'a Value> {
    let all = status["per_instance"].as_array().unwrap().iter();
    all.filter(|one| one["vertex"] == vertex).collect()
}

/// Names of those that run, with their agent.
pub(super) fn running(status: &Value, vertex: &str) -> Vec<(u64, String)> {
    let all = instances(status, vertex).into_iter().filter(|one| one["state"] == "running");
    all.map(|one| (one["number"].as_u64().unwrap(), one["agent"].as_str().unwrap().to_owned())).collect()
}

fn code(world: &World, args: &[&str]) -> (i32, String) {
    let output = world.tuplane(args);
    (output.status.code().unwrap(), text(&output))
}

/// Waits until a vertex's targets and its sender have as much as they take.
pub(super) fn wait_for_full_queues(world: &World) {
    wait("the queues are full", Duration::from_secs(30), || {
        let status = world.status("line");
        let source = vertex(&status, "rows");
        let (before, queued) = (
            source["rows_out"].as_u64().unwrap(),
            edge(&status, "rows..work")["queued_in"].as_u64().unwrap(),
        );
        std::thread::sleep(Duration::from_millis(300));
        let after = world.status("line");
        // The source is held up: it gives no more than is worked on.
        queued > 0 && before > 0 && vertex(&after, "rows")["blocked"].as_f64().unwrap_or(0.0) > 0.5
    });
}

/// Rescales are done in under 3 s: each of them where a test may take its time, else, on a machine with much else to do,
/// half of them.
pub(super) fn assert_quick(mut took_ms: Vec<u64>) {
    took_ms.sort_unstable();
    let counts = if long() { took_ms.len() - 1 } else { took_ms.len() / 2 };
    assert!(took_ms[counts] < 3_000, "{took_ms:?} ms");
}

/// One rescale, waited for; gives its time in ms.
pub(super) fn set(world: &World, count: u32) -> u64 {
    let limit = format!("--wait={}s", DONE.as_secs());
    let done = world.json(&["scale", "set", "line", &format!("work={count}"), &limit, "--yes"]);
    assert_eq!(done["outcome"]["step"], "done", "{done}");
    done["outcome"]["ended_ms"].as_u64().unwrap()
}

fn twenty_rescales(policy: &str) {
    const ROWS: u64 = 150_000;
    let world = World::new();
    world.up(&["--local", "2", "--slots", "2"]);
    let pids = world.pids();
    world.json(&["submit", &job(&world, ROWS, 2, 2.0, policy)]);
    wait_for_full_queues(&world);
    let before = world.status("line");
    let processes = Processes::of(pids.values().copied());
    let untouched = |status: &Value| {
        let all = status["per_instance"].as_array().unwrap().iter();
        let stays = all.filter(|one| one["vertex"] != "work");
        stays
            .map(|one| (one["instance"].as_u64().unwrap(), one["rows_in"].as_u64().unwrap()))
            .collect::<Vec<_>>()
    };
    let mut took = Vec::new();
    for round in 0..20 {
        took.push(set(&world, [6, 2, 5, 3][round % 4]));
    }
    println!("20 rescales at full queues took {took:?} ms each");
    assert_quick(took);
    let after = world.status("line");
    assert_eq!(after["phase"], "running", "{after}");
    assert_eq!(after["epoch"], 21);
    assert_eq!(running(&after, "work").len(), 3);
    assert_eq!(vertex(&after, "work")["instances"], 3);
    // Whoever was not asked about is where it was: the same processes, connections and instances, counters that go on.
    assert_eq!(world.pids(), pids);
    processes.assert_same();
    for ((id, was), (same, is)) in untouched(&before).iter().zip(untouched(&after)) {
        assert!(*id == same && is >= *was, "instance {id}: {was}, then {is}");
    }
    assert!(instances(&after, "work").iter().all(|one| one["number"].as_u64().unwrap() < 60), "{after}");
    world.json(&["set", "line", "work.ms=0.01"]);
    let last = world.wait_for("line", "finished", Duration::from_mins(2));
    assert_exact_ledger(&last);
    for name in ["rows..work", "work..out"] {
        assert_eq!(
            (&edge(&last, name)["emitted"], &edge(&last, name)["taken"]),
            (&ROWS.into(), &ROWS.into())
        );
    }
    assert_each_once(&world.path("out"), ROWS);
    let history = world.json(&["scale", "history", "line"]);
    let steps: Vec<&Value> =
        history["history"].as_array().unwrap().iter().map(|entry| &entry["step"]).collect();
    assert_eq!(steps, vec!["done"; 20]);
}

#[test]
fn twenty_rescales_at_full_queues_lose_and_double_nothing() {
    twenty_rescales("");
}

#[test]
fn twenty_rescales_of_a_priced_edge_lose_and_double_nothing() {
    twenty_rescales("policy = \"potus\"");
}

/// Two agents by hand; the job's agents are those that were there when it was submitted.
pub(super) fn second_agent(world: &World, first: &ByHand, lease_ms: u64) -> ByHand {
    let second = world.agent_with("b", Some(&first.address), |config| config.lease_ms = lease_ms);
    wait("both are there", Duration::from_secs(20), || {
        let agents = world.json_at(&first.address, &["agents"]);
        agents["agents"].as_array().unwrap().iter().filter(|agent| agent["alive"] == true).count() == 2
    });
    second
}

/// The rest goes fast, and all of it is there once.
pub(super) fn finish(world: &World, at: &dyn Fn(&[&str]) -> Value, rows: u64) {
    at(&["set", "line", "work.ms=0.01"]);
    wait("the job finishes", Duration::from_mins(1), || at(&["status", "line"])["phase"] != "running");
    let last = at(&["status", "line"]);
    assert_eq!(last["phase"], "finished", "{last}");
    assert_exact_ledger(&last);
    assert_each_once(&world.path("out"), rows);
}

#[test]
fn an_agent_without_the_job_gets_instances_gives_them_back_and_may_end() {
    const ROWS: u64 = 60_000;
    let world = World::new();
    let first = world.agent_with("a", None, |config| config.slots = 2);
    let at = |args: &[&str]| world.json_at(&first.address, args);
    at(&["submit", &job(&world, ROWS, 2, 2.0, "")]);
    let second = second_agent(&world, &first, 10_000);
    let plan = at(&["scale", "set", "line", "work=4", "--place", "new", "--dry-run"]);
    assert_eq!((&plan["next"], plan["started"].as_array().unwrap().len()), (&Value::Null, 2), "{plan}");
    assert!(plan["started"].as_array().unwrap().iter().all(|one| one["agent"] == "b"), "{plan}");
    assert_eq!(at(&["status", "line"])["epoch"], 1, "it was only asked");
    let done = at(&["scale", "set", "line", "work=4", "--place", "new", "--wait=20s"]);
    assert_eq!(done["outcome"]["step"], "done", "{done}");
    wait("b works", Duration::from_secs(20), || {
        let status = at(&["status", "line"]);
        let on_b = instances(&status, "work").into_iter().filter(|one| one["agent"] == "b");
        let rows: Vec<u64> = on_b.map(|one| one["rows_out"].as_u64().unwrap()).collect();
        rows.len() == 2 && rows.iter().all(|rows| *rows > 10)
    });
    let status = at(&["status", "line"]);
    assert_eq!(status["agents"], serde_json::json!(["a", "b"]));
    // And back: its instances move, are drained, and it is not needed any more.
    let done = at(&["scale", "in", "line", "--agent", "b", "--keep", "--wait=20s"]);
    assert_eq!(done["moved"].as_array().unwrap().len(), 2, "{done}");
    let status = at(&["status", "line"]);
    assert!(running(&status, "work").iter().all(|(_, agent)| agent == "a"), "{status}");
    assert_eq!(status["instance_states"]["retired"], 2);
    drop(second);
    wait("b is gone", Duration::from_secs(20), || {
        let agents = at(&["agents"]);
        agents["agents"]
            .as_array()
            .unwrap()
            .iter()
            .any(|agent| agent["agent"] == "b" && agent["alive"] == false)
    });
    finish(&world, &at, ROWS);
}

#[test]
fn an_agent_that_does_not_answer_leaves_the_old_plan() {
    let world = World::new();
    let first = world.agent_with("a", None, |config| {
        config.slots = 2;
        config.lease_ms = 3_000;
    });
    let at = |args: &[&str]| world.json_at(&first.address, args);
    at(&["submit", &job(&world, 1_000_000, 2, 1.0, "")]);
    let second = second_agent(&world, &first, 3_000);
    signal(second.pid, "STOP");
    at(&["scale", "set", "line", "work=4", "--place", "new"]);
    // While it is prepared nothing else may be asked, and the job goes on.
    let began = Instant::now();
    let mut rows = 0;
    wait("it is given up", Duration::from_secs(30), || {
        let status = at(&["status", "line"]);
        let now = vertex(&status, "work")["rows_out"].as_u64().unwrap();
        assert!(now > rows, "{now} after {rows}");
        rows = now;
        at(&["scale", "history", "line"])["history"][0]["step"] == "failed"
    });
    println!("given up after {:?}", began.elapsed());
    let status = at(&["status", "line"]);
    assert_eq!((&status["phase"], &status["epoch"]), (&"running".into(), &1.into()));
    assert_eq!(running(&status, "work").len(), 2);
    let why = at(&["scale", "history", "line"])["history"][0]["fault"].as_str().unwrap().to_owned();
    assert!(why.contains('b'), "{why}");
    signal(second.pid, "CONT");
    wait("b is back", Duration::from_secs(20), || {
        let agents = at(&["agents"]);
        agents["agents"]
            .as_array()
            .unwrap()
            .iter()
            .any(|agent| agent["agent"] == "b" && agent["alive"] == true)
    });
    let done = at(&["scale", "set", "line", "work=4", "--place", "new", "--wait=20s"]);
    assert_eq!((&done["outcome"]["step"], &done["next"]), (&"done".into(), &3.into()), "{done}");
    let names: Vec<&str> =
        done["started"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["work#2", "work#3"], "what never ran has no number");
    at(&["cancel", "line", "--yes"]);
}

#[test]
fn an_agent_that_refuses_its_part_leaves_the_old_plan() {
    let world = World::new();
    let first = world.agent_with("a", None, |config| config.slots = 2);
    let at = |args: &[&str]| world.json_at(&first.address, args);
    // Each agent has the sink's folder for itself, and where b would make it there is a file.
    let (ledger, own) = ("connector = \"ledger\"", "connector = \"file\"\nshared = false\ninstances = 1");
    let text = std::fs::read_to_string(job(&world, 1_000_000, 2, 1.0, "")).unwrap();
    let text = text.replace(ledger, own).replace(world.path("out").to_str().unwrap(), "own");
    at(&["submit", &world.file("line.toml", text)]);
    let folder = world.path("of-b");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("own"), "a file").unwrap();
    let second = world.agent_with("b", Some(&first.address), |config| {
        folder.to_str().unwrap().clone_into(&mut config.folder);
    });
    wait("b is there", Duration::from_secs(20), || {
        let agents = at(&["agents"]);
        agents["agents"].as_array().unwrap().iter().filter(|agent| agent["alive"] == true).count() == 2
    });
    let before = at(&["status", "line"]);
    let processes = Processes::of([first.pid, second.pid]);
    let set = ["scale", "set", "line", "out=3", "--place", "new"];
    at(&set);
    let mut last = Value::Null;
    wait("it is given up", Duration::from_secs(20), || {
        last = at(&["scale", "history", "line"])["history"][0].clone();
        last["step"] == "failed"
    });
    let why = last["fault"].as_str().unwrap();
    assert!(why.contains("agent b") && why.contains("own"), "{why}");
    let after = at(&["status", "line"]);
    assert_eq!(
        [&after["phase"], &after["epoch"], &after["agents"], &after["instance_states"]],
        [&"running".into(), &1.into(), &before["agents"], &before["instance_states"]]
    );
    processes.assert_same();
    std::fs::remove_file(folder.join("own")).unwrap();
    let done = at(&[&set[..], &["--wait=20s"]].concat());
    assert_eq!((&done["outcome"]["step"], &done["next"]), (&"done".into(), &3.into()), "{done}");
    let on_b = running(&at(&["status", "line"]), "out").into_iter().filter(|(_, agent)| agent == "b").count();
    assert_eq!(on_b, 2);
    at(&["cancel", "line", "--yes"]);
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    world.json(&["submit", &job(&world, 1_000_000, 2, 1.0, "")]);
    let refused = |args: &[&str], expected: i32, says: &str| {
        let (code, said) = code(&world, args);
        assert_eq!(code, expected, "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
    };
    refused(&["scale", "set", "line", "work=0"], 2, "`work` has 2 instances, and needs one at least");
    refused(&["scale", "set", "line", "wrok=3"], 6, "did you mean `work`?");
    refused(&["scale", "set", "none", "work=3"], 6, "there is no job `none`");
    refused(&["scale", "set", "line", "rows=2"], 2, "by number from the start");
    refused(&["scale", "set", "line", "work=3", "--if-epoch", "7"], 5, "has plan 1, and not plan 7");
    refused(&["scale", "set", "line", "work=20"], 7, "from 2 to 20 instances");
    refused(
        &["scale", "set", "line", "work=5000", "--yes"],
        2,
        "4998 more of `work` are wanted, and there is room for",
    );
    refused(
        &["scale", "set", "line", "work=4", "--place", "new"],
        2,
        "all 2 agents have instances of the job",
    );
    refused(&["scale", "in", "line", "--agent", "nobody"], 6, "there is no agent `nobody`");
    let (code, said) = code(&world, &["scale", "set", "line", "work=2"]);
    assert!(code == 0 && said.contains("nothing to do"), "{said}");
    let status = world.status("line");
    assert_eq!(
        (&status["epoch"], &status["instance_states"]),
        (&1.into(), &serde_json::json!({"running": 5}))
    );
    assert_eq!(world.json(&["scale", "history", "line"])["history"], serde_json::json!([]));
    // The only agent that a source may be on.
    let bound = std::fs::read_to_string(job(&world, 1_000_000, 2, 1.0, "")).unwrap();
    let bound = bound.replace("distributed = false", "on = [\"b\"]").replace("\"line\"", "\"bound\"");
    let out = world.path("out").display().to_string();
    world.json(&["submit", &world.file("bound.toml", bound.replace(&out, &format!("{out}-bound")))]);
    refused(&["scale", "in", "bound", "--agent", "b", "--yes"], 2, "rows#0 cannot leave b");
    refused(&["scale", "in", "bound", "--agents", "1", "--yes"], 2, "b");
    let status = world.status("bound");
    let states = serde_json::json!({"running": 5});
    assert_eq!((&status["epoch"], &status["instance_states"]), (&1.into(), &states));
    assert_eq!(world.json(&["scale", "history", "bound"])["history"], serde_json::json!([]));
    world.json(&["cancel", "bound", "--yes"]);
    // Options that were set live hold for new instances too.
    world.json(&["set", "line", "work.ms=3"]);
    set(&world, 3);
    let (_, shown) = self::code(&world, &["status", "line", "-v"]);
    assert!(shown.contains("plan 2") && shown.contains("work#2"), "{shown}");
    world.json(&["cancel", "line", "--yes"]);
}

/// Rows with event time through work that is rescaled, into windows that let nothing be late.
#[test]
fn rescales_make_no_row_late_and_hold_no_window_up() {
    const ROWS: u64 = 30_000;
    let world = World::new();
    world.up(&["--local", "2", "--slots", "2"]);
    let out = world.path("out");
    let file = world.file(
        "timed.toml",
        format!(
            r#"
name = "line"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = {ROWS}
rate = 6000
distributed = false
time = {{ column = "id", format = "unix_ms", lateness = "0s" }}
[[stage]]
id = "spread"
op = "rebalance"
in = "rows"
[[stage]]
id = "work"
op = "work"
in = "spread"
ms = 0.5
spread = "exp"
instances = 3
[[stage]]
id = "by"
op = "group_by"
in = "work"
key = "id % 7"
[[stage]]
id = "w"
op = "window"
in = "by"
type = "tumbling"
size = "1s"
[[stage]]
id = "counts"
op = "aggregate"
in = "w"
compute = ["count(*) as n"]
[[stage]]
id = "out"
op = "sink"
in = "counts"
connector = "file"
format = "csv"
path = "{}"
"#,
            out.display()
        ),
    );
    world.json(&["submit", &file]);
    for count in [6, 2, 5, 3] {
        set(&world, count);
    }
    let last = world.wait_for("line", "finished", Duration::from_mins(2));
    assert_exact_ledger(&last);
    for one in last["vertices"].as_array().unwrap() {
        assert_eq!(one["dropped"], serde_json::json!({}), "{one}");
    }
    let mut counted = 0;
    for entry in std::fs::read_dir(&out).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in text.lines().skip(1) {
            let n: u64 = line.rsplit(',').next().unwrap().parse().unwrap();
            // A whole second has 1,000 rows of 7 keys.
            assert!((142..=143).contains(&n), "{line}");
            counted += n;
        }
    }
    assert_eq!(counted, ROWS);
}

#[test]
fn all_that_an_agent_has_moves_at_once() {
    const ROWS: u64 = 120_000;
    let world = World::new();
    let first = world.agent_with("a", None, |config| config.slots = 2);
    let at = |args: &[&str]| world.json_at(&first.address, args);
    let _second = second_agent(&world, &first, 10_000);
    let file = std::fs::read_to_string(job(&world, ROWS, 4, 1.0, "")).unwrap();
    let file = file.replace("distributed = false", "distributed = false\non = [\"a\"]") + "instances = 4\n";
    at(&["submit", &world.file("line.toml", file)]);
    let on_b = |status: &Value| {
        let all = status["per_instance"].as_array().unwrap().iter();
        all.filter(|one| one["agent"] == "b" && one["state"] == "running").count()
    };
    wait("b works", Duration::from_secs(20), || {
        let status = at(&["status", "line"]);
        vertex(&status, "out")["rows_in"].as_u64().unwrap() > 500 && on_b(&status) == 4
    });
    let done = at(&["scale", "in", "line", "--agent", "b", "--keep", "--wait=20s"]);
    assert_eq!(
        (&done["outcome"]["step"], done["moved"].as_array().unwrap().len()),
        (&"done".into(), 4),
        "{done}"
    );
    assert_eq!(on_b(&at(&["status", "line"])), 0);
    // And out again, of both.
    let done = at(&["scale", "set", "line", "out=6", "--place", "new", "--wait=20s"]);
    assert!(done["started"].as_array().unwrap().iter().all(|one| one["agent"] == "b"), "{done}");
    at(&["scale", "set", "line", "work=5", "--wait=20s"]);
    at(&["scale", "in", "line", "--agent", "b", "--keep", "--wait=20s"]);
    finish(&world, &at, ROWS);
}

/// More instances of a source read what the others have left, and of fewer one goes on with what they had begun.
#[test]
fn a_source_of_shared_files_gets_more_instances_and_fewer() {
    const FILES: u64 = 24;
    const LINES: u64 = 500;
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    let folder = world.path("in");
    std::fs::create_dir(&folder).unwrap();
    for file in 0..FILES {
        let lines: Vec<String> = (0..LINES).map(|line| (file * LINES + line).to_string()).collect();
        std::fs::write(folder.join(format!("{file}.txt")), lines.join("\n")).unwrap();
    }
    let out = world.path("out");
    let file = world.file(
        "files.toml",
        format!(
            r#"
name = "line"
[[stage]]
id = "rows"
op = "source"
connector = "file"
path = "{}/*.txt"
format = "lines"
rate = 500
instances = 1
[[stage]]
id = "spread"
op = "rebalance"
in = "rows"
[[stage]]
id = "work"
op = "work"
in = "spread"
ms = 2
instances = 2
[[stage]]
id = "out"
op = "sink"
in = "work"
connector = "ledger"
id_column = "line"
path = "{}"
"#,
            folder.display(),
            out.display()
        ),
    );
    world.json(&["submit", &file]);
    let done = world.json(&["scale", "set", "line", "rows=3", "--wait=20s"]);
    assert_eq!(done["outcome"]["step"], "done", "{done}");
    wait("the new ones read", Duration::from_secs(30), || {
        let status = world.status("line");
        instances(&status, "rows").iter().all(|one| one["rows_out"].as_u64().unwrap() > 0)
    });
    let done = world.json(&["scale", "set", "line", "rows=1", "--wait=1m"]);
    assert_eq!(done["outcome"]["step"], "done", "{done}");
    for faster in ["work.ms=0.01", "rows.rate=5000"] {
        world.json(&["set", "line", faster]);
    }
    let last = world.wait_for("line", "finished", Duration::from_mins(1));
    assert_exact_ledger(&last);
    assert_each_once(&out, FILES * LINES);
}
