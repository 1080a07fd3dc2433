//! The automatic mode on real agents: it acts on what is measured, keeps its cooldown also when its coordinator is killed,
//! says its limit once, and is off when it is off; and it follows a real load.

use std::time::Duration;

use serde_json::Value;

use super::world::{ByHand, World, shared, signal, vertex, wait};

/// 300 rows a second into work that takes 200 on one instance.
const JOB: &str = r#"
name = "line"
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
id = "work"
op = "work"
in = "spread"
ms = 5
instances = 1
[[stage]]
id = "out"
op = "sink"
in = "work"
connector = "count"
instances = 1
"#;

const COOLDOWN_S: u64 = 10;

fn notes<'a>(document: &'a Value, what: &str) -> Vec<&'a Value> {
    document["auto"]["notes"].as_array().unwrap().iter().filter(|note| note["what"] == what).collect()
}

/// Seconds from one time of a document to a later one, less than a day apart.
fn seconds(from: &Value, to: &Value) -> f64 {
    let of_day = |time: &Value| {
        let text = time.as_str().unwrap();
        let part = |range: std::ops::Range<usize>| text[range].parse::<f64>().unwrap();
        part(11..13) * 3600.0 + part(14..16) * 60.0 + part(17..23)
    };
    (of_day(to) - of_day(from)).rem_euclid(86_400.0)
}

/// Two agents with so many slots each, and a coordinator without any.
struct Cluster {
    world: World,
    coordinator: Option<ByHand>,
    address: String,
    _others: [ByHand; 2],
}

impl Cluster {
    fn new(slots: u32) -> Self {
        let world = World::new();
        let coordinator = world.coordinator_held("c", "127.0.0.1:0", None);
        let address = coordinator.address.clone();
        let others = ["a", "b"].map(|name| world.agent_with(name, Some(&address), |c| c.slots = slots));
        let cluster = Self { world, coordinator: Some(coordinator), address, _others: others };
        cluster.wait_for_agents();
        cluster
    }

    fn at(&self, args: &[&str]) -> Value {
        self.world.json_at(&self.address, args)
    }

    fn history(&self) -> Value {
        self.at(&["scale", "history", "line"])
    }

    fn wait_for_agents(&self) {
        wait("all are there", Duration::from_secs(30), || {
            let agents = self.at(&["agents"]);
            agents["agents"].as_array().unwrap().iter().filter(|agent| agent["alive"] == true).count() == 3
        });
    }

    /// The coordinator is killed, and another one goes on.
    fn kill(&mut self) {
        if let Some(coordinator) = self.coordinator.take() {
            signal(coordinator.pid, "KILL");
        }
        self.coordinator = Some(self.world.coordinator_held("c", &self.address, None));
        self.wait_for_agents();
        assert_eq!(self.at(&["status", "line"])["phase"], "running");
    }
}

#[test]
fn it_adds_what_is_needed_keeps_its_cooldown_and_says_once_that_it_is_at_its_limit_whoever_coordinates() {
    let mut cluster = Cluster::new(3);
    let file = cluster.world.file("line.toml", JOB);
    cluster.at(&["submit", &file, "--auto"]);
    assert_eq!(cluster.at(&["scale", "auto", "line"])["auto"]["cooldown_ms"], 60_000);
    let cooldown = format!("{COOLDOWN_S}s");
    let on = cluster.at(&["scale", "auto", "line", "on", "--cooldown", &cooldown, "--window", "2s"]);
    assert_eq!((&on["auto"]["on"], &on["auto"]["window_ms"]), (&Value::Bool(true), &Value::from(2000)));
    let mut seen = Value::Null;
    wait("it has added instances", Duration::from_secs(40), || {
        seen = cluster.history();
        seen["history"].as_array().unwrap().iter().any(|entry| entry["step"] == "done")
    });
    // What came of it may be measured later.
    let planned = |history: &Value| -> Value {
        let mut entry = history["history"][0].clone();
        let fields = entry.as_object_mut().unwrap();
        fields.remove("measured_per_s");
        fields.remove("not_measured");
        entry
    };
    let first = planned(&seen);
    assert_eq!((&first["planner"], &first["asked"].as_str().unwrap()[..9]), (&"auto".into(), "set work="));
    assert!(first["why"].as_str().unwrap().starts_with("`work` needs "), "{first}");
    assert!(first["predicted_per_s"].as_f64().unwrap() > 0.0, "{first}");
    // Another coordinator goes on, which has not acted itself.
    cluster.kill();
    let resumed = cluster.history();
    assert_eq!((&planned(&resumed), &resumed["auto"]["cooldown_ms"]), (&first, &10_000.into()), "{resumed}");
    // What no number of instances that there are slots for can take.
    cluster.at(&["set", "line", "work.ms=200"]);
    wait("it is at its limit", Duration::from_mins(1), || {
        seen = cluster.history();
        !notes(&seen, "at_limit").is_empty()
    });
    let said = notes(&seen, "at_limit")[0];
    assert!(said["reason"].as_str().unwrap().contains("6 slots"), "{seen}");
    assert_eq!(vertex(&cluster.at(&["status", "line"]), "work")["instances"], 6, "{seen}");
    let entries = seen["history"].as_array().unwrap();
    let at = entries.iter().map(|entry| &entry["asked_at"]).chain([&notes(&seen, "at_limit")[0]["at"]]);
    let at: Vec<&Value> = at.collect();
    let apart: Vec<f64> = at.windows(2).map(|pair| seconds(pair[0], pair[1])).collect();
    println!(
        "it acted, and said something, {apart:?} s apart; its coordinator was killed after the first time"
    );
    assert!(apart.iter().all(|seconds| *seconds >= COOLDOWN_S as f64), "{seen}");
    let asked = notes(&seen, "out").into_iter().map(|note| note["plan"].as_u64().unwrap());
    let plans: Vec<u64> = entries.iter().map(|e| e["epoch"].as_u64().unwrap()).collect();
    assert_eq!(asked.collect::<Vec<_>>(), plans, "{seen}");
    // The next one has the same notes and history, looks again, and says nothing that was said.
    cluster.kill();
    wait("it has looked", Duration::from_secs(30), || {
        let thought = cluster.at(&["scale", "auto", "line"])["auto"]["thought"].clone();
        thought.as_str().is_some_and(|thought| thought.contains("6 slots"))
    });
    let again = cluster.history();
    assert_eq!((planned(&again), &again["auto"]["notes"]), (planned(&seen), &seen["auto"]["notes"]));
    assert_eq!(again["history"].as_array().unwrap().len(), entries.len(), "{again}");
    let off = cluster.at(&["scale", "auto", "line", "off"]);
    assert_eq!((&off["auto"]["on"], &off["auto"]["thought"]), (&Value::Bool(false), &Value::Null));
    assert_eq!(notes(&off, "at_limit").len(), 1, "{off}");
    assert_eq!(cluster.at(&["status", "line"])["auto"], Value::Null);
}

/// A count of the trace each quarter of a second, then a constant load that asks for more.
#[test]
#[ignore = "takes two minutes; `make test-long` runs it"]
fn it_follows_a_real_load_and_then_a_constant_one_without_flapping() {
    const STEP_MS: u64 = 250;
    const WINDOW_S: u64 = 3;
    const COOLDOWN_S: u64 = 6;
    const STEPS: usize = 240;
    let test = "it_follows_a_real_load_and_then_a_constant_one_without_flapping";
    let Some(path) = shared(test, "data/arrivals-nab/elb_request_count_8c0756.csv") else { return };
    let text = std::fs::read_to_string(path).unwrap();
    let count = |line: &str| line.rsplit(',').next().unwrap().parse::<f64>().unwrap();
    let counts: Vec<f64> = text.lines().skip(1).take(STEPS).map(count).collect();
    // The mean is 60 % of what four instances of 200 rows/s take; constant are 1,200 rows/s.
    let mean = counts.iter().sum::<f64>() / STEPS as f64;
    let rows = counts.iter().map(|count| count / mean * 480.0 * STEP_MS as f64 / 1e3);
    let rows = rows.chain(std::iter::repeat_n(300.0, 4 * (COOLDOWN_S + 10 * WINDOW_S + 12) as usize));
    let lines: String = std::iter::once("rows\n".to_owned()).chain(rows.map(|n| format!("{n}\n"))).collect();
    let cluster = Cluster::new(8);
    let trace = cluster.world.file("load.csv", lines);
    let source = format!("connector = \"trace\"\npath = \"{trace}\"\nstep = \"{STEP_MS}ms\"");
    let job = JOB.replace("connector = \"ids\"\nn = 100_000_000\nrate = 300", &source);
    let job = job.replace("instances = 1\n[[stage]]", "instances = 4\n[[stage]]");
    cluster.at(&["submit", &cluster.world.file("line.toml", job)]);
    let cooldown = format!("{COOLDOWN_S}s");
    cluster.at(&[
        "scale",
        "auto",
        "line",
        "on",
        "--cooldown",
        &cooldown,
        "--window",
        &format!("{WINDOW_S}s"),
    ]);
    let began = cluster.at(&["status", "line"]);
    let mut last = Value::Null;
    wait("the trace ends", Duration::from_mins(4), || {
        if cluster.at(&["status", "line"])["phase"] == "running" {
            last = cluster.history();
        }
        cluster.at(&["status", "line"])["phase"] != "running"
    });
    let of_notes = last["auto"]["notes"].as_array().unwrap();
    let on = &of_notes.iter().find(|note| note["what"] == "on").unwrap()["at"];
    let acts: Vec<(f64, bool, &str)> = of_notes
        .iter()
        .filter(|note| note["what"] == "out" || note["what"] == "in")
        .map(|note| (seconds(on, &note["at"]), note["what"] == "out", note["reason"].as_str().unwrap()))
        .collect();
    let since = began["running_ms"].as_f64().unwrap() / 1e3;
    println!("the mode was turned on {since} s after the job; it acted at {acts:#?}");
    for pair in acts.windows(2) {
        let apart = pair[1].0 - pair[0].0;
        assert!(apart >= COOLDOWN_S as f64, "{acts:?}");
        assert!(!pair[0].1 || pair[1].1 || apart >= 2.0 * COOLDOWN_S as f64, "taken back: {acts:?}");
    }
    for what in ["at_limit", "refused", "failed"] {
        assert_eq!(notes(&last, what), Vec::<&Value>::new());
    }
    // Constant from here on: one more is asked for, and nothing in the last ten windows.
    let (constant, end) = (
        (STEPS as u64 * STEP_MS) as f64 / 1e3 - since,
        (STEPS as u64 * STEP_MS / 1000 + COOLDOWN_S + 10 * WINDOW_S + 12) as f64 - since,
    );
    let (trace, later): (Vec<_>, Vec<_>) = acts.iter().partition(|(at, ..)| *at < constant);
    assert!(!trace.is_empty() && later.iter().any(|(_, is_out, _)| *is_out), "{acts:?}");
    assert!(later.iter().all(|(at, ..)| *at < end - (10 * WINDOW_S) as f64), "{end}: {acts:?}");
    let done = cluster.at(&["status", "line"]);
    assert_eq!(done["phase"], "finished", "{done}");
}
