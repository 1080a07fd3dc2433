//! The automatic mode on real agents: it acts on what is measured, keeps its cooldown, says its limit once, and is off
//! when it is off.

use std::time::Duration;

use serde_json::Value;

use super::world::{World, vertex, wait};

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
parallelism = 1
"#;

const COOLDOWN_S: u64 = 4;

fn notes<'a>(document: &'a Value, what: &str) -> Vec<&'a Value> {
    document["auto"]["notes"].as_array().unwrap().iter().filter(|note| note["what"] == what).collect()
}

#[test]
fn it_adds_what_is_needed_up_to_the_slots_and_then_says_once_that_it_is_at_its_limit() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "3"]);
    let file = world.file("line.toml", JOB);
    world.json(&["submit", &file, "--auto"]);
    assert_eq!(world.json(&["scale", "auto", "line"])["auto"]["cooldown_ms"], 60_000);
    let cooldown = format!("{COOLDOWN_S}s");
    let on = world.json(&["scale", "auto", "line", "on", "--cooldown", &cooldown, "--window", "3s"]);
    assert_eq!((&on["auto"]["on"], &on["auto"]["window_ms"]), (&Value::Bool(true), &Value::from(3000)));
    let mut seen = Value::Null;
    wait("it has added instances", Duration::from_secs(40), || {
        seen = world.json(&["scale", "history", "line"]);
        seen["history"].as_array().unwrap().iter().any(|entry| entry["step"] == "done")
    });
    let first = &seen["history"][0];
    assert_eq!((&first["planner"], &first["asked"].as_str().unwrap()[..9]), (&"auto".into(), "set work="));
    assert!(first["why"].as_str().unwrap().starts_with("`work` needs "), "{first}");
    assert!(first["predicted_per_s"].as_f64().unwrap() > 200.0, "{first}");
    // What no number of instances that there are slots for can take.
    world.json(&["set", "line", "work.ms=500"]);
    wait("it is at its limit", Duration::from_mins(1), || {
        seen = world.json(&["scale", "history", "line"]);
        !notes(&seen, "at_limit").is_empty()
    });
    let status = world.status("line");
    assert_eq!(vertex(&status, "work")["instances"], 6, "{seen}");
    assert!(status["auto"].as_str().unwrap().contains("6 slots"), "{status}");
    let asked = notes(&seen, "out").into_iter().map(|note| note["plan"].as_u64().unwrap());
    let plans: Vec<u64> =
        seen["history"].as_array().unwrap().iter().map(|e| e["epoch"].as_u64().unwrap()).collect();
    assert_eq!(asked.collect::<Vec<_>>(), plans, "{seen}");
    let off = world.json(&["scale", "auto", "line", "off"]);
    assert_eq!((&off["auto"]["on"], &off["auto"]["thought"]), (&Value::Bool(false), &Value::Null));
    assert_eq!(notes(&off, "at_limit").len(), 1, "{off}");
    assert_eq!(world.status("line")["auto"], Value::Null);
    let at: Vec<&str> = notes(&off, "out").iter().map(|note| note["at"].as_str().unwrap()).collect();
    println!("it acted at {at:?}");
}
